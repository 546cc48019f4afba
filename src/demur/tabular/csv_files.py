"""Read CSV files: find encoding, delimiter, header and notation, then read all rows, or chunks with given types."""

import codecs
import csv
import io
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.columns.frames import TableError, TableWarning, Values, check_names, shown
from demur.columns.schema import no_such_value
from demur.tabular.table_sources import TableReader

__all__ = ["CsvReader", "Dialect", "column_of_text", "decimal_of", "order_of_dates", "sniff"]

_Piece: TypeAlias = pa.Table | pa.RecordBatch

_HEAD = 1 << 22  # the header must end within these bytes
_BLOCK = 1 << 21  # Arrow reads 32 blocks ahead, so this bounds the memory; a row must fit into one block
_ROW_ROOM = 8  # the block has room for rows that are this many times as long as the header
_SHEET_ERRORS = ("#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#SPILL!", "#CALC!")
_SPELLINGS = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null", "None", "?", "-", "--"),
    *_SHEET_ERRORS,
)
_MISSING = [f"{before}{word}{after}" for word in _SPELLINGS for before in ("", " ") for after in ("", " ")]
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_BAD_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to [^:]*: [^']*'(.*)'", re.DOTALL)
_CODE = r"^[-+]?0[0-9xX]"  # 007 and 0x1F, which Arrow reads as integers
_GUARDED = r"^'([=+\-@])"  # what TableWriter(spreadsheet_safe=True) writes


class CsvReader(TableReader):
    """A text file with a header.

    Parameters
    ----------
    stream : binary stream
    name : str
        The name of the file in messages.
    delimiter : str, optional
        The character between fields. By default it is detected.
    decimal : {".", ","}, optional
        The decimal sign. By default a comma is detected if the file is read whole and uses it consistently.
    dayfirst : bool, optional
        Whether dates such as 1.2.2024 begin with the day. By default this is detected in the same way.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        delimiter: str | None = None,
        *,
        decimal: str | None = None,
        dayfirst: bool | None = None,
    ) -> None:
        if decimal not in (None, ".", ","):
            raise TableError(f"the decimal sign {shown(decimal)} is unknown: give , or .")
        text = _Utf8(stream, name)
        head = text.read(_HEAD)
        self._dialect = sniff(head.decode(errors="ignore"), name, delimiter)
        if self._dialect.header_bytes == _HEAD:
            problem = f"{name} has a header of more than {_HEAD >> 20} MB, or an open quotation mark in it"
            raise TableError(f"{problem}: the first line must name the columns")
        names = self._dialect.names
        # A row of empty fields at the end: a quotation mark that is never closed swallows it.
        end = b"\n" + self._dialect.delimiter.join(['""'] * len(names)).encode() + b"\n"
        self._rows = _Rows(head[self._dialect.header_bytes :], text, end)
        self._block = max(_BLOCK, _ROW_ROOM * self._dialect.header_bytes)
        super().__init__(name, dict.fromkeys(names))
        self.decimal, self.dayfirst = decimal, dayfirst

    def _read(self) -> pa.Table:
        data = self._rows.read()
        table = self._parsed(data)
        if self.decimal is None:
            self.decimal, remark = decimal_of(_texts(table), points=_has_points(table))
            if self.decimal == ",":
                table = self._parsed(data)
            self._remark(remark)
        table = self._with_codes(data, table)
        n_errors = sum(data.count(word.encode()) for word in _SHEET_ERRORS) if b"#" in data else 0
        if n_errors:
            cells = "cell holds" if n_errors == 1 else "cells hold"
            self._remark(
                f"{n_errors:,} {cells} a spreadsheet error such as '#DIV/0!', which is missing in a column of numbers"
            )
        return self._with_dates(table)

    def _parsed(self, data: bytes, types: Mapping[str, pa.DataType] | None = None) -> pa.Table:
        """Return the table, or only the columns in ``types``."""
        types = types or {}
        for threads in (True, False):  # one thread is slower, but knows the number of a wrong row
            options = self._options(types, list(types), threads=threads)
            try:
                return _tidy(self._without_end(pacsv.read_csv(_Rows(data), *options)))
            except pa.ArrowException as error:
                problem = error
        raise self._explained(problem, types, list(self.columns)) from problem

    def _with_codes(self, data: bytes, table: pa.Table) -> pa.Table:
        """Read integers with leading zeros, and hexadecimal ones, as text."""
        integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
        texts = self._parsed(data, dict.fromkeys(integers, pa.string())) if integers else table
        for name in integers:
            codes = texts[name].filter(pc.match_substring_regex(texts[name], _CODE))
            if len(codes):
                table = table.set_column(table.schema.get_field_index(name), name, texts[name])
                example = shown(codes[0].as_py())
                self._remark(f"column {shown(name)} holds codes such as {example}, so it is read as text")
        return table

    def _with_dates(self, table: pa.Table) -> pa.Table:
        self.dayfirst, names, remark = order_of_dates(_texts(table), self.dayfirst)
        for name in names:
            dates = column_of_text(table[name], dayfirst=self.dayfirst)
            if pa.types.is_string(dates.type):
                remark = f"column {shown(name)} holds dates that do not exist, so it is read as text"
            table = table.set_column(table.schema.get_field_index(name), name, dates)
        self._remark(remark)
        return table

    def _remark(self, remark: str) -> None:
        if remark:
            warnings.warn(f"{self.name}: {remark}", TableWarning, stacklevel=2)

    def _chunks(
        self, columns: Mapping[str, pa.DataType], copied: Collection[str], rows: int
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        converted = [
            name
            for name, wanted in columns.items()
            if wanted != pa.string() and (name in copied or (self.dayfirst is not None and _is_local_date(wanted)))
        ]
        last = list(self.columns)[-1]  # a quoted field that is never closed can only be the last one of its row
        as_read = {last: pa.string(), **columns, **dict.fromkeys([*copied, *converted], pa.string())}
        n_rows = 0
        try:
            with pacsv.open_csv(self._rows, *self._options(as_read, list(as_read))) as batches:
                for batch in self._all_but_end(batches):
                    chunk = _tidy(batch.select(list(columns)))
                    for name in converted:
                        position = chunk.schema.get_field_index(name)
                        values = self._converted(batch.column(name), columns[name], name, n_rows)
                        chunk = chunk.set_column(position, name, values)
                    n_rows += batch.num_rows
                    yield chunk, batch.select(list(copied))
        except pa.ArrowException as error:
            raise self._explained(error, columns, list(self.columns)) from error

    def _converted(self, text: Values, wanted: pa.DataType, column: str, n_before: int) -> Values:
        try:
            return column_of_text(text, wanted, decimal=self.decimal, dayfirst=self.dayfirst)
        except pa.ArrowException as error:
            raise self._explained(error, {column: wanted}, [column], n_before) from error

    def _options(self, types: Mapping[str, pa.DataType], only: list[str], threads: bool = False) -> tuple[Any, ...]:
        return (
            pacsv.ReadOptions(use_threads=threads, block_size=self._block, column_names=list(self.columns)),
            pacsv.ParseOptions(delimiter=self._dialect.delimiter, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types=dict(types),
                include_columns=only,
                null_values=_MISSING,
                decimal_point=self.decimal or ".",
            ),
        )

    def _all_but_end(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held = None
        for batch in batches:
            if batch.num_rows:
                if held is not None:
                    yield held
                held = batch
        if held is not None:
            yield self._without_end(held)

    def _without_end(self, rows: _Piece) -> _Piece:
        """Remove the empty row that was appended; if it is not there, a quoted field has swallowed it."""
        last = rows.num_rows - 1
        cells = [column[last] for column in rows.columns]
        if any(cell.is_valid and (not pa.types.is_string(cell.type) or cell.as_py()) for cell in cells):
            problem = f"{self.name} has a quotation mark at the start of a field that is never closed"
            raise TableError(f"{problem}: close it, or put quotes around the field and double its own quotes")
        return rows.slice(0, last)

    def _explained(
        self, error: Exception, types: Mapping[str, pa.DataType], names: list[str], n_before: int = 0
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
            column, value = names[int(bad.group(1))], bad.group(3)
            row_number = n_before + int(bad.group(2)) if bad.group(2) else None
            wanted = types.get(column, pa.string())
            return no_such_value(self.name, column, value, wanted, row_number, self._advice(value))
        if "straddling" in message or "Empty CSV file" in message:  # the latter if it is the first row
            problem = f"{self.name} has a row of more than {self._block >> 20} MB, or an open quotation mark"
            return TableError(f"{problem}: close it, or leave the long column out")
        return TableError(f"{self.name} cannot be read as CSV ({message}): save it again as CSV or Parquet")

    def _advice(self, value: str) -> str:
        """Return the option to use if a value is written in another notation."""
        if self.decimal != "," and re.fullmatch(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*", value):
            return "pass --decimal , if it has a decimal comma"
        if self.decimal == "," and re.fullmatch(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*", value):
            return "pass --decimal . if it has a decimal point"
        if self.dayfirst is None and re.match(_LOCAL_DATE, value):
            return "pass --dayfirst or --no-dayfirst"
        return ""


_WINDOWS = {0xDC00 + byte: bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(128, 256)}
"""What Windows-1252 makes of bytes that were decoded as UTF-8 with "surrogateescape"; Latin-1 where it has nothing."""


class _Utf8(io.RawIOBase):
    """The bytes of a text file as UTF-8: UTF-16 is known by its mark, bytes that are not UTF-8 are Windows-1252."""

    def __init__(self, raw: IO[bytes], name: str) -> None:
        super().__init__()
        self._raw, self._name = raw, name
        self._ended = self._warned = False
        start = raw.read(4)
        is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        decoder = codecs.getincrementaldecoder("utf-16" if is_utf16 else "utf-8")
        self._decoder = decoder("strict" if is_utf16 else "surrogateescape")
        self._ready = self._converted(start.removeprefix(codecs.BOM_UTF8))

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return exactly ``size`` bytes, fewer only at the end."""
        wanted = -1 if size is None or size < 0 else size
        while (wanted < 0 or len(self._ready) < wanted) and not self._ended:
            block = self._raw.read(wanted)
            self._ended = not block
            self._ready += self._converted(block)
        if wanted < 0:
            wanted = len(self._ready)
        block, self._ready = self._ready[:wanted], self._ready[wanted:]
        return block

    def _converted(self, block: bytes) -> bytes:
        try:
            text = self._decoder.decode(block, final=self._ended)
        except UnicodeError as error:
            raise TableError(f"{self._name} is damaged UTF-16: save it as UTF-8") from error
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.translate(_WINDOWS).encode()
            if not self._warned:
                notice = f"{self._name} is not UTF-8: read as Windows-1252; save it as UTF-8 to be sure"
                warnings.warn(notice, TableWarning, stacklevel=2)
            self._warned = True
        if b"\0" in data:
            problem = f"{self._name} contains a NUL byte, so it is damaged, or UTF-16 without its mark"
            raise TableError(f"{problem}: save it as UTF-8 text")
        return data


class _Rows(io.RawIOBase):
    r"""The rows of a CSV file after its header, and ``end`` after them.

    No block ends between \r and \n: there Arrow would drop the \n, even inside quotes.
    """

    def __init__(self, data: bytes, rest: _Utf8 | None = None, end: bytes = b"") -> None:
        super().__init__()
        self._data, self._rest, self._end = memoryview(data), rest, end

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = -1 if size is None or size < 0 else size
        if self._rest is not None and (wanted < 0 or len(self._data) < wanted):
            more = self._rest.read(wanted if wanted < 0 else wanted - len(self._data))
            data = bytes(self._data) + more
            if wanted < 0 or len(data) < wanted:
                data, self._rest = data + self._end, None
            self._data = memoryview(data)
        cut = len(self._data) if wanted < 0 else min(wanted, len(self._data))
        if 1 < cut < len(self._data) + (self._rest is not None) and self._data[cut - 1] == ord("\r"):
            cut -= 1
        block, self._data = bytes(self._data[:cut]), self._data[cut:]
        return block


def _tidy(rows: _Piece) -> _Piece:
    """Remove white space around text and the guard in front of formulas; empty text is missing."""
    for position, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            text = pc.utf8_trim_whitespace(rows.column(position))
            text = pc.replace_substring_regex(pc.if_else(pc.equal(text, ""), None, text), _GUARDED, r"\1")
            rows = rows.set_column(position, field.name, text)
    return rows


def _texts(table: pa.Table) -> dict[str, Values]:
    """Return the columns of text without missing values, however they are spelled."""
    missing, names = pa.array(_MISSING), [field.name for field in table.schema if pa.types.is_string(field.type)]
    return {name: pc.if_else(pc.is_in(table[name], missing), None, table[name]).drop_null() for name in names}


def _has_points(table: pa.Table) -> bool:
    """Tell whether the table holds a fraction, which is only possible with a decimal point."""
    for column in table.columns:
        if pa.types.is_floating(column.type):
            fraction = pc.and_(pc.is_finite(column), pc.not_equal(column, pc.floor(column)))
            if pc.any(fraction).as_py():
                return True
    return False


def column_of_text(
    text: Values, wanted: pa.DataType | None = None, *, decimal: str | None = None, dayfirst: bool | None = None
) -> Values:
    """Convert a column of text to a type, by default to the one that it would have in a CSV file.

    Examples
    --------
    >>> column_of_text(pa.array(["1", None, "NA"])).to_pylist()
    [1, None, None]
    """
    dates = dayfirst is not None and (wanted is None or _is_local_date(wanted))
    written, file = _iso_dates(text, bool(dayfirst)) if dates else text, io.BytesIO()
    options = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")
    pacsv.write_csv(pa.table({"x": pc.fill_null(written, "")}), file, options)
    reading = pacsv.ReadOptions(column_names=["x"], use_threads=False, block_size=max(_BLOCK, file.tell()))
    types = {} if wanted is None else {"x": wanted}
    converting = pacsv.ConvertOptions(null_values=_MISSING, decimal_point=decimal or ".", column_types=types)
    parsing = pacsv.ParseOptions(newlines_in_values=True)
    column = pacsv.read_csv(pa.BufferReader(file.getvalue()), reading, parsing, converting).column(0)
    if wanted is None and pa.types.is_string(column.type):
        return text
    return column if isinstance(text, pa.ChunkedArray) else column.combine_chunks()


def _is_local_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


_WITH_COMMA = r"^\s*[-+]?(\d+|\d*,\d+)([eE][-+]?\d+)?\s*$"
# 1,234 may be a thousand; 0,234 and 1,5 and 1234,5 are not
_SURELY_DECIMAL = r"^\s*[-+]?(\d*,(\d|\d\d|\d{4,})|0*,\d+|\d{4,},\d+|\d+,\d+[eE].*)\s*([eE][-+]?\d+)?\s*$"
_LOCAL_DATE = (
    r"^\s*(?P<first>\d{1,2})[./-](?P<second>\d{1,2})[./-](?P<year>\d{4})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<seconds>\d{2}(?:\.\d{1,6})?))?)?\s*$"
)
_FIRST_LOOK = 50


def decimal_of(columns: Mapping[str, Values], *, points: bool) -> tuple[str, str]:
    """Find the decimal sign of a file; return it with a remark for the user, or an empty one.

    Parameters
    ----------
    columns : dict of str to text
        The columns that do not hold numbers with a decimal point, without missing values.
    points : bool
        Whether other columns of the file hold numbers with a decimal point.

    Examples
    --------
    >>> decimal_of({"x": pa.array(["1,5", "12"])}, points=False)
    (',', "numbers such as '1,5' are read with a decimal comma")
    >>> decimal_of({"x": pa.array(["1,234"])}, points=False)
    ('.', "'1,234' in column 'x' may be 1.234 or 1234, so it is read as text: pass --decimal , for 1.234")
    """
    remark = ""
    for name, text in columns.items():
        with_comma = text.filter(pc.match_substring(text, ",")) if _all_match(text, _WITH_COMMA) else text[:0]
        if not len(with_comma):
            continue
        sure = with_comma.filter(pc.match_substring_regex(with_comma, _SURELY_DECIMAL))
        value = (sure if len(sure) else with_comma)[0].as_py().strip()
        if points:
            remark = (
                f"column {shown(name)} holds {shown(value)} and other columns hold numbers with a decimal point, so it "
                "is read as text: use one decimal sign"
            )
        elif len(sure):
            return ",", f"numbers such as {shown(value)} are read with a decimal comma"
        else:
            point, plain = value.replace(",", "."), value.replace(",", "")
            remark = (
                f"{shown(value)} in column {shown(name)} may be {point} or {plain}, so it is read as text: pass "
                f"--decimal , for {point}"
            )
    return ".", remark


def order_of_dates(columns: Mapping[str, Values], dayfirst: bool | None = None) -> tuple[bool | None, list[str], str]:
    """Find the columns with dates such as 31.12.2024, and whether the day comes first: days beyond the 12th tell.

    Parameters
    ----------
    columns : dict of str to text
        Without missing values.
    dayfirst : bool, optional
        The order, if it is known.

    Returns
    -------
    tuple of bool or None, list of names, str
        The order, or None if nothing tells it; the columns; a remark for the user, or an empty one.

    Examples
    --------
    >>> order_of_dates({"born": pa.array(["31.12.1999", "1.2.2000"])})
    (True, ['born'], "dates such as '31.12.1999' are read with the day first")
    >>> order_of_dates({"born": pa.array(["11/12/1999", "1/2/2000"])})
    (None, [], "dates such as '11/12/1999' in column 'born' may begin with the day or the month, so they are read ...
    """
    local = {name: text for name, text in columns.items() if _all_match(text, _LOCAL_DATE)}
    evidence = {name: _orders(text) for name, text in local.items()}
    if dayfirst is None and local:
        found = {order for orders in evidence.values() for order in orders}
        if len(found) != 1:
            name, text = next(iter(local.items()))
            example = f"dates such as {shown(text[0].as_py().strip())} in column {shown(name)}"
            why = "begin with the day or the month by turns" if found else "may begin with the day or the month"
            return None, [], f"{example} {why}, so they are read as text: pass --dayfirst or --no-dayfirst"
        dayfirst = found.pop()
    fitting = [name for name in local if (not dayfirst) not in evidence[name]]
    if not fitting:
        return dayfirst, [], ""
    examples = [*(value for name in fitting for value in evidence[name].values()), local[fitting[0]][0].as_py()]
    word = "day" if dayfirst else "month"
    return dayfirst, fitting, f"dates such as {shown(examples[0].strip())} are read with the {word} first"


def _orders(text: Values) -> dict[bool, str]:
    """Return the orders that days beyond the 12th show (True for the day first), each with an example."""
    parts, found = pc.extract_regex(text, _LOCAL_DATE), {}
    for position, dayfirst in ((0, True), (1, False)):
        beyond = pc.greater(pc.cast(pc.struct_field(parts, position), pa.int64()), 12)
        if pc.any(beyond).as_py():
            found[dayfirst] = text.filter(beyond)[0].as_py()
    return found


def _all_match(text: Values, pattern: str) -> bool:
    """Tell whether all values match; the first few show it for most columns that do not."""
    parts = (text.slice(0, _FIRST_LOOK), text) if len(text) else ()
    return bool(parts) and all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in parts)


def _iso_dates(text: Values, dayfirst: bool) -> Values:
    """Return text with dates such as 31.12.2024 written as 2024-12-31, and everything else unchanged."""
    parts = pc.extract_regex(text, _LOCAL_DATE)
    first, second, year, hour, minute, seconds = (pc.struct_field(parts, position) for position in range(6))
    day, month = (first, second) if dayfirst else (second, first)
    hour_or_0, month, day = (pc.utf8_lpad(number, 2, padding="0") for number in (hour, month, day))
    date = pc.binary_join_element_wise(year, month, day, "-")
    seconds = pc.if_else(pc.equal(seconds, ""), "00", seconds)
    time = pc.binary_join_element_wise(hour_or_0, minute, seconds, ":")
    iso = pc.if_else(pc.equal(hour, ""), date, pc.binary_join_element_wise(date, time, " "))
    return pc.if_else(pc.is_valid(parts), iso, text)


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
    """

    delimiter: str
    names: tuple[str, ...]
    header_bytes: int


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
    Dialect(delimiter=';', names=('a', 'b'), header_bytes=4)
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
    check_names(names, name)
    return Dialect(delimiter, names, len(head[: lines.tell()].encode()))


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
