"""Read CSV files: find encoding, delimiter, header and notation, then read all rows, or chunks with given types."""

import codecs
import csv
import io
import itertools
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.array_types import ByName, Names
from demur.columns.frames import Batches, Rows, TableError, TableWarning, Types, Values, check_names, listed, shown
from demur.columns.schema import kind_of_type, no_such_value

Numbers: TypeAlias = tuple[str, str, str, str]
"""Notation of the numbers in a column: prefix, thousands separator, decimal sign and unit."""

_HEAD = 1 << 22  # the header must end within these bytes
_BLOCK = 1 << 21  # Arrow reads 32 blocks ahead, so this bounds the memory; a row must fit into one block
_ROW_ROOM = 8  # the block has room for rows that are this many times as long as the header
_SHEET_ERRORS = ["#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#SPILL!", "#CALC!"]
SPELLINGS = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null", "None", "?", "-", "--"),
    *_SHEET_ERRORS,
)
"""Cells that are missing values, except in a column of text."""
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_BAD_VALUE = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to [^:]*: [^']*'(.*?)'(?:\. If.*)?$", re.S
)
_CODES = {True: (pc.any, r"^\s*[-+]?0[0-9xX]"), False: (pc.all, r"^\s*\d{16,}\s*$")}
"""Codes that Arrow reads as numbers: some like 007 and 0x1F as integers (True); only long ones as rounded fractions."""
_GUARDED = r"^'([=+\-@])"  # what TableWriter(spreadsheet_safe=True) writes


class CsvContent:
    """The rows of a text file with a header, which can be read once.

    Parameters
    ----------
    blocks : iterator of bytes
        The content of the file; the first block has its first bytes.
    name : str
        The name of the file in messages.
    delimiter : str, optional
        The character between fields. By default it is detected.
    decimal : {".", ","}, optional
        The decimal sign. By default a comma is detected if the file is read whole and uses it consistently.
    dayfirst : bool, optional
        Whether dates such as 1.2.2024 begin with the day. By default this is detected in the same way.
    numbers : dict of str to Numbers, optional
        The columns with numbers such as 1.234,50 or 20 %. By default they are detected if the file is read whole.
    missing : collection of str, optional
        Words for a missing number, such as "unknown", beside the usual ones. They are detected in the same way.
    """

    matrix = None

    def __init__(
        self,
        blocks: Iterator[bytes],
        name: str,
        delimiter: str | None = None,
        *,
        decimal: str | None = None,
        dayfirst: bool | None = None,
        numbers: Mapping[str, Numbers] | None = None,
        missing: Names | None = None,
    ) -> None:
        if decimal not in (None, ".", ","):
            raise TableError(f"the decimal sign {shown(decimal)} is unknown: give , or .")
        text = stream_of(_utf8(blocks, name))
        head = text.read(_HEAD)
        dialect = sniff(head.decode(errors="ignore"), name, delimiter)
        self.name, self.delimiter = name, dialect.delimiter
        if dialect.unnamed:
            self._remark(f"the first column has no name and is called {shown(INDEX)}; --keep {INDEX} uses it")
        size, names = dialect.header_bytes, dialect.names
        # A row of empty fields at the end: a quotation mark that is never closed swallows it.
        end = self.delimiter.join(['""'] * len(names)).encode() + b"\n"
        self._block = max(_BLOCK, _ROW_ROOM * size)
        blocks = itertools.chain([head[size:]], iter(partial(text.read, self._block), b""))
        rows = stream_of(_followed_by(end, blocks))
        self._rows = _Blocks(_pieces(rows, self._block))
        self.columns: dict[str, pa.DataType | None] = dict.fromkeys(names)
        self.decimal, self.dayfirst, self.numbers, self.missing = decimal, dayfirst, numbers, missing

    def read(self, labels: Names) -> pa.Table:
        """Return all rows, with types that fit them; the columns of labels stay as they are written."""
        text = pa.Table.from_batches(self._batches(dict.fromkeys(self.columns, pa.string())))
        table, given, words, points = _typed(text, self.decimal, {}), self.decimal, {}, True
        if self.missing is None:
            found = {name: _words_for_missing(cells) for name, cells in _texts(table).items() if name not in labels}
            words = {name: some for name, some in found.items() if some}
            self.missing = sorted({*itertools.chain(*words.values())})
            table = _typed(text, self.decimal, words) if words else table
        floats = [field.name for field in table.schema if pa.types.is_floating(field.type) and field.name not in labels]
        pointed = {name: text[name].filter(pc.match_substring(text[name], ".")) for name in floats if given is None}
        doubtful = [name for name, cells in pointed.items() if _all_match(cells, _IN_GROUPS)]
        if given is None:
            points = any(len(cells) and name not in doubtful for name, cells in pointed.items())
            self.decimal, remark = (".", "") if points else decimal_of(_texts(table, words))
            if self.decimal == ",":
                table = _typed(text, ",", words)
            self._remark(remark)
        for name, kind in zip(table.column_names, table.schema.types, strict=True):
            if kind_of_type(kind) != "number":
                continue
            enough, pattern = _CODES[pa.types.is_integer(kind)]
            cells = text[name].filter(pc.is_valid(table[name]))
            found = pc.match_substring_regex(cells, pattern)
            if enough(found).as_py():
                example = shown(cells.filter(found)[0].as_py().strip())
                self._remark(f"column {shown(name)} holds codes such as {example}, so it is read as text")
                table = replaced(table, name, text[name])
        if self.numbers is None:
            self.numbers = {}
            for name, values in _texts(table, words).items():
                if name in labels:
                    continue
                notation, remark = notation_of(values, name, self.decimal if self.decimal == "," else given, given)
                self._remark(remark)
                self.numbers |= {} if notation is None else {name: notation}
        commas = any(one[2] == "," for one in self.numbers.values())
        for name in doubtful if self.decimal == "." else ():
            cells = text[name].filter(pc.is_valid(table[name]))
            some_plain = len(cells) > len(pointed[name]) and _all_match(cells, _OF_THREE_DIGITS)
            if commas or (not points and (some_plain or self.delimiter == ";")):
                self._remark(_doubt(name, pointed[name][0].as_py()))
                table = replaced(table, name, text[name])
        for name in self.numbers.keys() & set(table.column_names):
            table = replaced(table, name, self._plain_numbers(name, text[name]))
        for name, some in words.items():
            if not pa.types.is_string(table[name].type):
                place = f"in column {shown(name)}, which holds numbers"
                self._remark(f"{place}, these words are read as missing: {listed(some)}")
        errors = pa.array(_SHEET_ERRORS)
        n_errors = sum(pc.sum(pc.is_in(column, errors), min_count=0).as_py() for column in text.columns)
        if n_errors:
            self._remark(f"{n_errors:,} cells with a spreadsheet error such as '#DIV/0!' are missing where numbers are")
        return _tidy(self._with_dates(table))

    def _with_dates(self, table: pa.Table) -> pa.Table:
        """Return a table with the columns of dates in local notation read as dates."""
        self.dayfirst, names, remark = order_of_dates(_texts(table), self.dayfirst)
        for name in names:
            table = replaced(table, name, column_of_text(table[name], dayfirst=self.dayfirst))
            if pa.types.is_string(table[name].type):
                remark = f"column {shown(name)} holds dates that do not exist, so it is read as text"
        self._remark(remark)
        return table

    @property
    def notation(self) -> ByName:
        """The parameters that say how numbers and dates are written."""
        return {name: getattr(self, name) for name in ("decimal", "dayfirst", "numbers", "missing")}

    def _remark(self, remark: str) -> None:
        if remark:
            warnings.warn(f"{self.name}: {remark}", TableWarning, stacklevel=2)

    def chunks(self, columns: Types, copied: Names, rows: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Return record batches with the columns as the types, each with the text of the copied columns."""
        local = [
            name for name, wanted in columns.items() if self.dayfirst is not None and kind_of_type(wanted) == "date"
        ]
        local += [name for name in self.numbers or () if name in columns]
        as_text = dict.fromkeys([*copied, *local], pa.string())
        converted = [name for name in as_text if columns.get(name, pa.string()) != pa.string()]
        n_rows = 0
        for batch in self._batches({**columns, **as_text}):
            chunk = _tidy(batch.select(list(columns)))
            for name in converted:
                if name in (self.numbers or ()) and pa.types.is_floating(columns[name]):
                    chunk = replaced(chunk, name, self._plain_numbers(name, batch[name], n_rows))
                    continue
                try:
                    values = column_of_text(batch[name], self.decimal, self.dayfirst, columns[name], self.missing)
                except pa.ArrowException as error:
                    raise self._explained(error, columns, [name], n_rows, batch[name]) from error
                chunk = replaced(chunk, name, values)
            n_rows += batch.num_rows
            yield chunk, batch.select(list(copied))

    def _plain_numbers(self, name: str, text: Values, n_before: int = 0) -> Values:
        """Return the numbers of a column in its notation; a cell in another one is an error."""
        before, thousands, decimal, after = notation = (self.numbers or {})[name]
        found = pc.struct_field(pc.extract_regex(_plain_signs(text), _pattern(*notation)), "number")
        odd = pc.and_(pc.is_null(found), pc.invert(pc.is_in(text, pa.array([None, *_nulls(self.missing)]))))
        position: int = pc.index(odd, value=True).as_py()
        if position >= 0:
            example = f"{before}1{thousands}234{decimal}5 {after}".rstrip()
            place = self.name, name, text[position].as_py(), pa.float64(), n_before + position + 1
            raise no_such_value(*place, f"write it as {example}, as in the table that the model was fitted on")
        plain = pc.replace_substring(found, thousands, "") if thousands else found
        return pc.cast(pc.replace_substring(plain, decimal, "."), pa.float64())

    def _batches(self, types: Types) -> Batches:
        """Return record batches with the columns in ``types``, without the empty row at the end."""
        names = list(self.columns)
        # A quoted field that is never closed can only be the last one of its row.
        types = {**types, names[-1]: types.get(names[-1], pa.string())}
        options = (
            pacsv.ReadOptions(use_threads=False, block_size=self._block, column_names=names),
            # In a single column, an empty line is a row whose value is missing.
            pacsv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=len(names) > 1),
            _converting(types, self.decimal, self.missing, include_columns=list(types)),
        )
        try:
            with pacsv.open_csv(self._rows, *options) as reader:
                held = reader.read_next_batch()
                for batch in reader:
                    if batch.num_rows:
                        yield held
                        held = batch
        except pa.ArrowException as error:
            raise self._explained(error, types, names) from error
        end = held.slice(held.num_rows - 1).to_pylist()[0]
        if any(value not in (None, "") for value in end.values()):
            problem = f"{self.name} has a quotation mark at the start of a field that is never closed"
            raise TableError(f"{problem}: close it, or put quotes around the field and double its own quotes")
        yield held.slice(0, held.num_rows - 1)

    def _explained(
        self,
        error: Exception,
        types: Types,
        names: list[str],
        n_before: int = 0,
        cells: Values | None = None,
    ) -> TableError:
        message = str(error)
        if ragged := _RAGGED.search(message):
            row, expected, got = map(int, ragged.groups())
            fields = f"{got:,} field{'s' if got != 1 else ''}"
            advice = "correct it, put quotes around text that contains the delimiter, or close a quotation mark"
            if expected == 1:
                advice = "remove the lines above the header"
            return TableError(f"{self.name}: row {row:,} has {fields} and the header {expected:,}: {advice}")
        if bad := _BAD_VALUE.search(message):
            column, line = names[int(bad.group(1))], int(bad.group(2)) if bad.group(2) else None
            value = bad.group(3) if cells is None or line is None else cells[line - 1].as_py()
            place = None if line is None else n_before + line
            return no_such_value(self.name, column, value, types[column], place, self._advice(value))
        if "straddling" in message or "Empty CSV file" in message:  # the latter if it is the first row
            problem = f"{self.name} has a row of more than {self._block >> 20} MB, or an open quotation mark"
            return TableError(f"{problem}: close it, or leave the long column out")
        return TableError(f"{self.name} cannot be read as CSV ({message}): save it again as CSV or Parquet")

    def _advice(self, value: str) -> str:
        """Return the option to use if a value is written in another notation."""
        other, word = (".", "point") if self.decimal == "," else (",", "comma")
        if re.fullmatch(rf"\s*[-+]?\d*[{other}]\d+([eE][-+]?\d+)?\s*", value):
            return f"pass --decimal {other} if it has a decimal {word}"
        if self.dayfirst is None and re.match(_LOCAL_DATE, value):
            return "pass --dayfirst or --no-dayfirst"
        return ""


class _Blocks(io.RawIOBase):
    """The bytes of an iterator of blocks, as a raw stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (block := next(self._blocks, None)) is not None:
            self._left = memoryview(block)
        size = min(len(buffer), len(self._left))
        buffer[:size], self._left = self._left[:size], self._left[size:]
        return size


def stream_of(blocks: Iterator[bytes]) -> io.BufferedReader:
    """Return a stream of the blocks, one after the other.

    Examples
    --------
    >>> stream_of(iter([b"ab", b"", b"cde"])).read(4)
    b'abcd'
    """
    return io.BufferedReader(_Blocks(blocks), 1 << 16)


def _followed_by(end: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Return the blocks, then a last line."""
    last = b"\n"
    for block in blocks:
        last = block[-1:] or last
        yield block
    yield end if last in b"\r\n" else b"\n" + end


def _pieces(stream: io.BufferedReader, size: int) -> Iterator[bytes]:
    r"""Return pieces of at most ``size`` bytes; Arrow loses the ``\n`` of a piece that begins inside of ``\r\n``."""
    while piece := stream.read(size - 1):
        yield piece + stream.read(1) if piece.endswith(b"\r") else piece


_WINDOWS = {0xDC00 + byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 256)}
"""Windows-1252 characters of bytes that were decoded as UTF-8 with "surrogateescape"; Latin-1 for undefined bytes."""


def _utf8(blocks: Iterator[bytes], name: str) -> Iterator[bytes]:
    """Return blocks of text as UTF-8: UTF-16 is known by its mark, bytes that are not UTF-8 are Windows-1252."""
    start, warned = next(blocks), False
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    decoder = codecs.getincrementaldecoder("utf-16" if is_utf16 else "utf-8-sig")
    decode = decoder("strict" if is_utf16 else "surrogateescape").decode
    for block in itertools.chain([start], blocks, [b""]):
        try:
            text = decode(block, final=not block)
        except UnicodeError as error:
            raise TableError(f"{name} is damaged UTF-16: save it as UTF-8") from error
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.translate(_WINDOWS).encode()
            if not warned:
                notice = f"{name} is not UTF-8: read as Windows-1252; save it as UTF-8 to be sure"
                warnings.warn(notice, TableWarning, stacklevel=2)
            warned = True
        if b"\0" in data:
            problem = f"{name} contains a NUL byte, so it is damaged, or UTF-16 without its mark"
            raise TableError(f"{problem}: save it as UTF-8 text")
        yield data


def _tidy(rows: Rows) -> Rows:
    """Remove white space around text and the apostrophe in front of formulas; empty text is missing."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            text = pc.utf8_trim_whitespace(rows.column(position))
            text = pc.replace_substring_regex(pc.if_else(pc.equal(text, ""), None, text), _GUARDED, r"\1")
            rows = rows.set_column(position, field.name, text)
    return rows


def replaced(rows: Rows, name: str, values: Values) -> Rows:
    """Return rows with other values in a column.

    Examples
    --------
    >>> replaced(pa.table({"a": [1], "b": [2]}), "a", pa.array([3])).to_pydict()
    {'a': [3], 'b': [2]}
    """
    return rows.set_column(rows.schema.get_field_index(name), name, values)


def _nulls(missing: Names | None) -> list[str]:
    """Return the cells that are missing values, with and without surrounding spaces."""
    words = (*SPELLINGS, *(missing or ()))
    return [f"{before}{word}{after}" for word in words for before in ("", " ") for after in ("", " ")]


def _texts(table: pa.Table, words: Mapping[str, Names] | None = None) -> dict[str, Values]:
    """Return the columns of text without missing values, however they are spelled, and without the words of each."""
    found = {}
    for name in (field.name for field in table.schema if pa.types.is_string(field.type)):
        nulls = pa.array(_nulls((words or {}).get(name)))
        found[name] = table[name].filter(pc.invert(pc.is_in(table[name], nulls)))
    return found


def _typed(text: pa.Table, decimal: str | None, words: Mapping[str, Names]) -> pa.Table:
    """Return a table of text with the types that Arrow finds; words for missing values count in their own columns."""
    return pa.table({name: column_of_text(text[name], decimal, missing=words.get(name)) for name in text.column_names})


def column_of_text(
    text: Values,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    wanted: pa.DataType | None = None,
    missing: Names | None = None,
) -> Values:
    """Convert a column of text to a type, by default to the one that it would have in a CSV file.

    Examples
    --------
    >>> column_of_text(pa.array(["1", None, "NA"])).to_pylist()
    [1, None, None]
    """
    if not len(text):
        return text
    file = io.BytesIO()
    written = pa.table({"x": pc.fill_null(_iso_dates(text, dayfirst), "")})
    pacsv.write_csv(written, file, pacsv.WriteOptions(include_header=False, quoting_style="all_valid"))
    column = pacsv.read_csv(
        pa.BufferReader(file.getvalue()),
        pacsv.ReadOptions(column_names=["x"], use_threads=False, block_size=max(_BLOCK, file.tell())),
        pacsv.ParseOptions(newlines_in_values=True),
        _converting({} if wanted is None else {"x": wanted}, decimal, missing),
    ).column(0)
    if wanted is None and pa.types.is_string(column.type):
        return text
    return column if isinstance(text, pa.ChunkedArray) else column.combine_chunks()


def _converting(types: Types, decimal: str | None, missing: Names | None, **more: Any) -> pacsv.ConvertOptions:
    """Return how Arrow converts text: types, missing values, and the decimal sign."""
    return pacsv.ConvertOptions(column_types=types, null_values=_nulls(missing), decimal_point=decimal or ".", **more)


_MOST_WORDS, _LEAST_NUMBERS, _NUMBER_SHARE = 3, 20, 0.8
"""Limits for words as missing values: maximum number of words, least number of different numbers, least share of
numbers."""


def _words_for_missing(cells: Values) -> list[str]:
    """Return the words without a digit in a column of text that otherwise holds numbers, if they are few."""
    is_word = pc.invert(pc.match_substring_regex(cells, r"\d"))
    words = sorted(pc.unique(pc.utf8_trim_whitespace(cells.filter(is_word))).to_pylist())
    if not words or len(words) > _MOST_WORDS or pc.mean(pc.cast(is_word, pa.float64())).as_py() > 1 - _NUMBER_SHARE:
        return []
    numbers = cells.filter(pc.match_substring_regex(cells, _NUMBER_START))
    enough = pc.count_distinct(numbers).as_py() >= _LEAST_NUMBERS
    return words if enough and len(numbers) + pc.sum(is_word).as_py() == len(cells) else []


_NUMBER_START = r"^\s*[-+]?\s*[$€£¥]?\s*[.,]?\d"
_WITH_COMMA = r"^\s*[-+]?(\d+|\d*,\d+)([eE][-+]?\d+)?\s*$"
# 1,234 may be a thousand; 0,234 and 1,5 and 1234,5 are not
_SURELY_DECIMAL = r"^\s*[-+]?(\d*,(\d|\d\d|\d{4,})|0*,\d+|\d{4,},\d+|\d+,\d+[eE].*)\s*([eE][-+]?\d+)?\s*$"
_LOCAL_DATE = r"^\d{1,2}[./-]\d{1,2}[./-]\d{4}( \d{1,2}:\d{2}(:\d{2})?)?$"
_BEYOND_12 = {True: r"^(1[3-9]|[23]\d)[./-]", False: r"^\d{1,2}[./-](1[3-9]|[23]\d)[./-]"}
"""Dates whose day cannot be a month, by whether the day comes first."""


def decimal_of(columns: Mapping[str, Values]) -> tuple[str, str]:
    """Find the decimal sign of a file; return it with a remark for the user, which may be empty.

    Parameters
    ----------
    columns : dict of str to text
        The columns that do not hold numbers with a decimal point, without missing values.

    Examples
    --------
    >>> decimal_of({"x": pa.array(["1,5", "12"])})
    (',', "numbers such as '1,5' are read with a decimal comma")
    >>> decimal_of({"x": pa.array(["1,234"])})
    ('.', '')
    """
    for text in columns.values():
        if _all_match(text, _WITH_COMMA):
            sure = text.filter(pc.match_substring_regex(text, _SURELY_DECIMAL))
            if len(sure):
                return ",", f"numbers such as {shown(sure[0].as_py().strip())} are read with a decimal comma"
    return ".", ""


_IN_GROUPS = r"^\s*[-+]?[1-9]\d{0,2}(\.\d{3})+\s*$"  # 1.234, which may be a thousand
_OF_THREE_DIGITS = r"^\s*[-+]?\d{1,3}(\.\d{3})*\s*$"  # beside 999, it is more likely one
_THOUSANDS = ("", ".", ",", " ", "\u00a0", "\u202f", "'")
_UNIT = r"[%‰€$£¥]|°[CFK]?|\s[^\W\d][^\s\d]{0,7}|[^\W\d][^\s\d]{1,7}"  # a letter alone after a digit may be a code
_CURRENCY = "[$€£¥]|EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN"
_WITH_UNIT = re.compile(rf"({_CURRENCY})?\s*[-+]?\d[\d.,'\s]*({_UNIT})?")
_SIGNS = {"\u2212": "-", "\u2019": "'", r"^\s*\((.*\d.*)\)\s*$": r"-\1", rf"^\s*-\s*({_CURRENCY})\s*": r"\1-"}
"""Other ways to write signs: a typographic minus or apostrophe, (5) for -5, and -$5 for $-5."""
_SPACE = "[\\s\u00a0\u202f]*"


def _pattern(before: str, thousands: str, decimal: str, after: str) -> str:
    """Return the pattern of a number in a notation; a number does not begin with a zero, as codes do."""
    whole = rf"[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|0|[1-9]\d*" if thousands else r"0|[1-9]\d*"
    number = rf"(?P<number>[-+]?(?:{whole})(?:{re.escape(decimal)}\d+)?)"
    return f"^{_SPACE}{re.escape(before)}{_SPACE}{number}{_SPACE}{re.escape(after)}{_SPACE}$"


def _plain_signs(text: Values) -> Values:
    """Return numbers with their sign in front of the first digit."""
    for written, plain in _SIGNS.items():
        text = pc.replace_substring_regex(text, written, plain)
    return text


def notation_of(
    text: Values, name: str, decimal: str | None = None, given: str | None = None
) -> tuple[Numbers | None, str]:
    """Find how a column of text writes numbers, if all its cells have the same notation and the same unit.

    Parameters
    ----------
    text : text
        Without missing values.
    name : str
        The column, for the remark.
    decimal : {".", ","}, optional
        The decimal sign of the file, if it is known.
    given : {".", ","}, optional
        The decimal sign that the user has given, if any: then 1.234 is not ambiguous.

    Returns
    -------
    tuple of Numbers or None, str
        The notation, or None if these are not numbers or are ambiguous; a remark for the user, which may be empty.

    Examples
    --------
    >>> notation_of(pa.array(["1.234,50 EUR", "7 EUR"]), "paid")[0]
    ('', '.', ',', 'EUR')
    >>> notation_of(pa.array(["1.234 kg", "2.500 kg"]), "mass")
    (None, "'1.234 kg' in column 'mass' may be 1.234 or 1234, so it is read as text: pass --decimal , or .")
    >>> notation_of(pa.array(["1.2.3", "12-34", "5 kg", "5 m"]), "code")
    (None, '')
    """
    written, text = text, _plain_signs(text)
    parts = _WITH_UNIT.fullmatch(text[0].as_py().strip()) if len(text) else None
    if parts is None or _all_match(written, r"^\s*\("):  # numbers of a list
        return None, ""
    before, after = parts[1] or "", (parts[2] or "").strip()
    signed = written.filter(pc.not_equal(written, text))
    found: list[Numbers] = []
    for sign in (decimal,) if decimal else (".", ","):
        ways = ((before, thousands, sign, after) for thousands in _THOUSANDS if thousands != sign)
        found += itertools.islice((way for way in ways if _all_match(text, _pattern(*way))), 1)
    if not found or (found[0] == ("", "", ".", "") and not len(signed)):
        return None, ""
    _, thousands, sign, _ = found[-1]
    group = re.escape(thousands or sign)
    sure = rf"{re.escape(sign)}\d+\D*$|{group}\d{{3}}{group}"
    differs = len({way[1:3] for way in found}) > 1 and pc.any(pc.match_substring_regex(text, r"\d[.,]\d")).as_py()
    grouped = thousands in (".", ",") and not given and not pc.any(pc.match_substring_regex(text, sure)).as_py()
    if differs or grouped:
        return None, _doubt(name, text.filter(pc.match_substring_regex(text, r"\d[.,]\d"))[0].as_py())
    example = shown((signed if len(signed) else written)[0].as_py().strip())
    return found[0], f"column {shown(name)} holds {example}, read as a number; --no-units reads it as text"


def _doubt(name: str, value: str) -> str:
    """Return the remark on an ambiguous number."""
    digits = re.sub(r"[^\d.,]", "", value)
    point, plain = re.sub("[.,]", ".", digits), re.sub("[.,]", "", digits)
    problem = f"{shown(value.strip())} in column {shown(name)} may be {point} or {plain}, so it is read as text"
    return f"{problem}: pass --decimal , or ."


def order_of_dates(columns: Mapping[str, Values], dayfirst: bool | None = None) -> tuple[bool | None, list[str], str]:
    """Find the columns with dates such as 31.12.2024, and whether the day comes first, from days beyond the 12th.

    Parameters
    ----------
    columns : dict of str to text
        Without missing values.
    dayfirst : bool, optional
        The order, if it is known.

    Returns
    -------
    tuple of bool or None, list of names, str
        The order, or None if it is ambiguous; the columns; a remark for the user, which may be empty.

    Examples
    --------
    >>> order_of_dates({"born": pa.array(["31.12.1999", "1.2.2000"])})
    (True, ['born'], "dates such as '31.12.1999' are read with the day first")
    >>> order_of_dates({"born": pa.array(["11/12/1999", "1/2/2000"])})
    (None, [], "dates such as '11/12/1999' in column 'born' may begin with the day or the month, so they are read ...
    """
    local = {name: text for name, text in columns.items() if _all_match(text, _LOCAL_DATE)}
    if not local:
        return dayfirst, [], ""
    name, text = next(iter(local.items()))
    example = f"dates such as {shown(text[0].as_py())}"
    if dayfirst is None:
        found = {
            first
            for first, pattern in _BEYOND_12.items()
            for text in local.values()
            if pc.any(pc.match_substring_regex(text, pattern)).as_py()
        }
        if len(found) != 1:
            both = "begin with the day in some rows and with the month in others"
            why = both if found else "may begin with the day or the month"
            words = f"{example} in column {shown(name)} {why}, so they are read as text"
            return None, [], f"{words}: pass --dayfirst or --no-dayfirst"
        dayfirst = found.pop()
    return dayfirst, list(local), f"{example} are read with the {'day' if dayfirst else 'month'} first"


def _iso_dates(text: Values, dayfirst: bool | None) -> Values:
    """Return dates such as 31.2.2024 as 2024-02-31, which Arrow refuses."""
    if dayfirst is None:
        return text
    for written, plain in (
        (r"^\s*(\d[./-]\d{1,2}[./-]\d{4})", r"0\1"),
        (r"^\s*(\d\d[./-])(\d[./-]\d{4})", r"\10\2"),
        (r"^\s*(\d\d)[./-](\d\d)[./-](\d{4})", r"\3-\2-\1" if dayfirst else r"\3-\1-\2"),
        (r"^(\d{4}-\d\d-\d\d )(\d:)", r"\10\2"),
    ):
        text = pc.replace_substring_regex(text, written, plain)
    return text


def _all_match(text: Values, pattern: str) -> bool:
    return bool(len(text) and pc.all(pc.match_substring_regex(text, pattern)).as_py())


@dataclass(frozen=True)
class Dialect:
    """The layout of a CSV file.

    Parameters
    ----------
    delimiter : str
    names : tuple of str
        The names in the header, without white space around them.
    header_bytes : int
        The position of the first row, in UTF-8.
    unnamed : bool
        Whether the first column has no name, as the index that pandas writes.
    """

    delimiter: str
    names: tuple[str, ...]
    header_bytes: int
    unnamed: bool = False


INDEX = "index"
"""The name of a first column without one."""

_DELIMITERS = ",;\t|"
_SNIFFED_ROWS = 200
_SPACE_AGREEMENT = 0.9
_EXCEL_HINT = re.compile(r'"?sep=(.)"?\s*\Z')


def sniff(head: str, name: str, delimiter: str | None = None) -> Dialect:
    r"""Find the delimiter that splits the first lines into the most regular table, and read the header with it.

    Parameters
    ----------
    head : str
        The first lines.
    name : str
        The name of the file in messages.
    delimiter : str, optional
        The delimiter, if it is known.

    Examples
    --------
    >>> sniff("a;b\n1,5;2,5\n", "data.csv")
    Dialect(delimiter=';', names=('a', 'b'), header_bytes=4, unnamed=False)
    >>> sniff("a,a\n1,2\n", "data.csv")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.csv has more than one column named 'a': give each column its own name
    """
    lines = io.StringIO(head, newline="")
    hint = _EXCEL_HINT.fullmatch(head.splitlines()[0] if head else "")
    if hint:
        lines.readline()
    delimiter = delimiter or (hint.group(1) if hint else _most_regular(head))
    if len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
        raise TableError(f"the delimiter {shown(delimiter)} cannot split rows: give one ASCII character, such as ;")
    try:
        header = next(
            record for record in csv.reader(iter(lines.readline, ""), delimiter=delimiter, strict=True) if record
        )
    except (StopIteration, csv.Error) as error:
        problem = f"{name} has no header, or a quotation mark in it is never closed"
        raise TableError(f"{problem}: the first line must name the columns") from error
    names = tuple(column.strip() for column in header)
    unnamed = len(names) > 1 and not names[0] and INDEX not in names
    names = (INDEX, *names[1:]) if unnamed else names
    check_names(names, name)
    return Dialect(delimiter, names, len(head[: lines.tell()].encode()), unnamed)


def _most_regular(head: str) -> str:
    scores = {delimiter: _agreement(head, delimiter) for delimiter in _DELIMITERS}
    best = max(scores, key=lambda delimiter: scores[delimiter])  # the first of equals: comma before semicolon
    # Spaces also occur in names and texts, so they count only if nothing else splits the rows.
    if scores[best] == (0.0, 0) and _agreement(head, " ")[0] >= _SPACE_AGREEMENT:
        return " "
    return best


def _agreement(head: str, delimiter: str) -> tuple[float, int]:
    """Return the share of rows with as many fields as the header, and that number; zeros if it is one."""
    sizes: list[int] = []
    try:
        for record in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter):
            if record:
                sizes.append(len(record))
            if len(sizes) > _SNIFFED_ROWS:
                break
    except csv.Error:
        pass  # a field beyond the module's limit: the rows before it are enough
    if not sizes or sizes[0] < 2:
        return 0.0, 0
    rows = sizes[1:]
    return (sum(size == sizes[0] for size in rows) / len(rows) if rows else 1.0), sizes[0]
