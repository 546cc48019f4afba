"""CSV and its kin: the delimiter and the header found in the first lines, the rows read whole or in chunks.

Read whole, types are decided over all rows; in chunks they are given.
"""

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, BinaryIO, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from demur.columns.column import (
    Decimal,
    check_decimal,
    dates_of_text,
    decimal_of,
    iso_dates,
    no_such_value,
    order_of_dates,
)
from demur.columns.frames import TableError, TableWarning, Values, check_names, shown
from demur.tabular.table_sources import Rewound, TableReader, Utf8Stream

__all__ = ["CsvReader", "Dialect", "column_of_text", "sniff", "types_of_text"]

_Piece: TypeAlias = pa.Table | pa.RecordBatch

_HEAD = 1 << 18
_LONGEST_HEADER = 1 << 26
_BLOCK = 1 << 21  # Arrow reads 32 of them ahead: the size bounds the memory, and the longest row
_ROW_ROOM = 8  # a row may be this many times as long as the header, whatever the block
_EXCEL_ERRORS = (
    "#DIV/0!",
    "#N/A",
    "#NAME?",
    "#NULL!",
    "#NUM!",
    "#REF!",
    "#VALUE!",
    "#SPILL!",
    "#CALC!",
    "#GETTING_DATA",
)
_SPELLINGS = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "-nan", "null", "NULL", "Null", "None", "?", "-", "--"),
    *_EXCEL_ERRORS,
)
_MISSING = [f"{before}{word}{after}" for word in _SPELLINGS for before in ("", " ") for after in ("", " ")]
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_BAD_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to [^:]*: [^']*'(.*)'", re.DOTALL)
_COMMA_NUMBER = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")
_POINT_NUMBER = re.compile(r"\s*[-+]?\d*\.\d+([eE][-+]?\d+)?\s*")
_LOCAL_DATE = re.compile(r"\s*\d{1,2}[./-]\d{1,2}[./-]\d{4}\b.*")


class CsvReader(TableReader):
    """A text file with a header, whatever its delimiter and encoding.

    Parameters
    ----------
    stream : binary stream
    name : str
        What messages call it.
    delimiter : str, optional
        What separates fields, where it should not be guessed.
    decimal : {".", ","}, optional
        The decimal sign. By default a comma is found where the file is read whole and is consistently so.
    dayfirst : bool, optional
        Whether dates such as 1.2.2024 begin with the day. By default this is found as the decimal sign is.
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
        check_decimal(decimal)
        text = Utf8Stream(stream, name)
        head, self._dialect = _header(text, name, delimiter)
        self._rest = _Rows(head[self._dialect.header_bytes :], text, self._dialect.delimiter)
        self._block = max(_BLOCK, _ROW_ROOM * self._dialect.header_bytes)
        super().__init__(name, dict.fromkeys(self._dialect.names))
        self.decimal = cast("Decimal | None", decimal)
        self.dayfirst = dayfirst

    def _read(self) -> pa.Table:
        data = self._rest.read()
        if not data.strip():
            raise self._no_rows()
        table = self._parsed(data, {})
        self._check_quotes()
        if self.decimal is None:
            self.decimal, remark = decimal_of(_texts(table), points=_has_points(table))
            if self.decimal == ",":
                table = self._parsed(data, {})
            self._remark(remark)
        integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
        if integers and (b"0x" in data or b"0X" in data):
            table = self._without_hexadecimal(data, table, integers)
        if b"#" in data:
            self._tell_excel_errors(data, table)
        return self._with_dates(_tidy(table))

    def _parsed(self, data: bytes, types: Mapping[str, pa.DataType]) -> pa.Table:
        try:
            return pacsv.read_csv(_BlocksOf(data), *self._options(types, threads=True))
        except pa.ArrowException:
            pass  # read again in one thread, which knows the number of the row
        try:
            return pacsv.read_csv(_BlocksOf(data), *self._options(types))
        except pa.ArrowException as error:
            raise self._explained(error, types) from error

    def _without_hexadecimal(self, data: bytes, table: pa.Table, integers: list[str]) -> pa.Table:
        """Take 0x1F for text: Arrow infers integers from it, and then could not read it as a number in chunks."""
        as_text = self._parsed(data, dict.fromkeys(integers, pa.string()))
        for name in integers:
            if pc.any(pc.match_substring_regex(as_text[name], "0[xX]")).as_py():
                table = table.set_column(table.schema.get_field_index(name), name, as_text[name])
        return table

    def _tell_excel_errors(self, data: bytes, table: pa.Table) -> None:
        """Say how many cells of a column are errors of a spreadsheet: they count as missing beside numbers."""
        if not any(word.encode() in data for word in _EXCEL_ERRORS):
            return
        typed = [field.name for field in table.schema if not pa.types.is_string(field.type)]
        as_text = self._parsed(data, dict.fromkeys(typed, pa.string())) if typed else table
        words = pa.array(_EXCEL_ERRORS)
        for name in typed:
            cells = pc.utf8_trim_whitespace(as_text[name])
            errors = cells.filter(pc.is_in(cells, value_set=words))
            if len(errors):
                cells_are = "cell is" if len(errors) == 1 else "cells are"
                self._remark(
                    f"{len(errors):,} {cells_are} {shown(errors[0].as_py())} or the like in column {shown(name)}, an "
                    "error of a spreadsheet that is read as missing"
                )

    def _with_dates(self, table: pa.Table) -> pa.Table:
        self.dayfirst, names, remark = order_of_dates(_texts(table), self.dayfirst)
        told = []
        for name in names:
            dates = dates_of_text(_without_missing(table[name]), bool(self.dayfirst))
            if dates is not None:
                table = table.set_column(table.schema.get_field_index(name), name, dates)
                told.append(name)
        if told or not names:
            self._remark(remark)
        if not told and names:
            self._remark(f"column {shown(names[0])} holds dates that the calendar does not have, so that it stays text")
        return table

    def _remark(self, remark: str) -> None:
        if remark:
            warnings.warn(f"{self.name}: {remark}", TableWarning, stacklevel=2)

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        types = dict.fromkeys(self.columns, pa.string()) if columns is None else dict(columns)
        dates = {
            name: wanted
            for name, wanted in types.items()
            if self.dayfirst is not None
            and (pa.types.is_date(wanted) or (pa.types.is_timestamp(wanted) and wanted.tz is None))
        }
        as_read = {**types, **dict.fromkeys(dates, pa.string())}
        first = self._rest.read(_HEAD)
        if not first.strip() and not (first := first + self._rest.read()).strip():
            return
        n_rows, pending = 0, []
        batches: pacsv.CSVStreamingReader | None = None
        try:
            source = Rewound(first, cast(IO[bytes], self._rest))
            batches = pacsv.open_csv(source, *self._options(as_read, only=list(types)))
            for batch in batches:
                whole = self._batch_with_dates(_tidy(batch), dates, n_rows)
                n_rows += batch.num_rows
                pending.append(whole)
                if sum(map(len, pending)) >= rows:
                    joined = pa.concat_batches(pending)
                    whole_chunks = len(joined) // rows * rows
                    yield joined.slice(0, whole_chunks)
                    pending = [joined.slice(whole_chunks)]
        except pa.ArrowException as error:
            raise self._explained(error, types) from error
        finally:
            if batches is not None:
                batches.close()  # else Arrow may still read ahead when the program ends, and bring it down
        self._check_quotes()
        yield from pending

    def _batch_with_dates(
        self, batch: pa.RecordBatch, dates: Mapping[str, pa.DataType], n_before: int
    ) -> pa.RecordBatch:
        for name, wanted in dates.items():
            position = batch.schema.get_field_index(name)
            iso = iso_dates(_without_missing(batch.column(position)), bool(self.dayfirst))
            try:
                values = pc.cast(iso, wanted)
            except pa.ArrowException:
                raise self._bad_date(batch.column(position), iso, wanted, name, n_before) from None
            batch = batch.set_column(position, name, values)
        return batch

    def _bad_date(self, text: Values, iso: Values, wanted: pa.DataType, column: str, n_before: int) -> TableError:
        """Find the first value that is not a date."""
        for position, value in enumerate(iso):
            try:
                pc.cast(value, wanted)
            except pa.ArrowException:
                row = n_before + position + 1
                return no_such_value(self.name, column, text[position].as_py(), wanted, row, self._how_to_say(""))
        raise AssertionError("each value is a date, though all together are not")

    def _options(
        self, types: Mapping[str, pa.DataType], only: list[str] | None = None, threads: bool = False
    ) -> tuple[Any, ...]:
        return (
            pacsv.ReadOptions(use_threads=threads, block_size=self._block, column_names=list(self.columns)),
            pacsv.ParseOptions(delimiter=self._dialect.delimiter, newlines_in_values=True),
            pacsv.ConvertOptions(
                column_types=dict(types),
                include_columns=only or [],
                null_values=_MISSING,
                decimal_point=self.decimal or ".",
            ),
        )

    def _check_quotes(self) -> None:
        """Refuse a quote that is never closed: it would swallow the rows after it without a word."""
        if self._rest.quote_is_open:
            raise _open_quote(self.name)

    def _no_rows(self) -> TableError:
        return _open_quote(self.name) if self._rest.quote_is_open else super()._no_rows()

    def _advice_on_fields(self, expected: int) -> str:
        if expected == 1:
            return "remove what stands above the names of the columns"
        if self._rest.quote_is_open:
            return "correct it, or close a quotation mark that is left open"
        return "correct it, or put quotes around text that holds the delimiter"

    def _explained(self, error: Exception, types: Mapping[str, pa.DataType]) -> TableError:
        message = str(error)
        if ragged := _RAGGED.search(message):
            row, expected, got = map(int, ragged.groups())
            fields = f"{got:,} field{'s' if got != 1 else ''}"
            problem = f"{self.name}: row {row:,} has {fields} where the header has {expected:,}"
            return TableError(f"{problem}: {self._advice_on_fields(expected)}")
        if bad := _BAD_VALUE.search(message):
            column, value = list(self.columns)[int(bad.group(1))], bad.group(3)
            row_number = int(bad.group(2)) if bad.group(2) else None
            wanted = types.get(column, pa.string())
            return no_such_value(self.name, column, value, wanted, row_number, self._how_to_say(value))
        if "straddling" in message:
            problem = f"{self.name} has a row of more than {self._block >> 20} MB, or a quotation mark left open"
            return TableError(f"{problem}: close it, or leave the long column out")
        return TableError(f"{self.name} cannot be read as CSV ({message}): save it again as CSV or Parquet")

    def _how_to_say(self, value: str) -> str:
        """Return advice where a value is written in another notation than the file is read with."""
        if self.decimal != "," and _COMMA_NUMBER.fullmatch(value):
            return "pass --decimal , if it has a decimal comma"
        if self.decimal == "," and _POINT_NUMBER.fullmatch(value):
            return "pass --decimal . if it has a decimal point"
        if self.dayfirst is None and _LOCAL_DATE.fullmatch(value):
            return "pass --dayfirst or --no-dayfirst to say how such dates begin"
        return ""


def _open_quote(name: str) -> TableError:
    problem = f"{name} has a quotation mark at the beginning of a field that is never closed"
    return TableError(f"{problem}: close it, or put quotes around the field and write its own quotes twice")


def _tidy(table: _Piece) -> _Piece:
    """Take the white space around text away, and empty text for missing."""
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            text = pc.utf8_trim_whitespace(table.column(position))
            text = pc.if_else(pc.equal(text, ""), None, text)
            table = table.set_column(position, field.name, text)
    return table


def _texts(table: pa.Table) -> dict[str, Values]:
    """Return the columns of text without the words that stand for missing values."""
    return {
        field.name: _without_missing(table[field.name]).drop_null()
        for field in table.schema
        if pa.types.is_string(field.type)
    }


def _without_missing(text: Values) -> Values:
    return pc.if_else(pc.is_in(text, value_set=pa.array(_MISSING)), None, text)


def _has_points(table: pa.Table) -> bool:
    """Tell whether some number of the table is a fraction, which it can only be with a decimal point."""
    for column in table.columns:
        if pa.types.is_floating(column.type):
            finite = column.filter(pc.is_finite(column))
            if len(finite) and not pc.all(pc.equal(finite, pc.floor(finite))).as_py():
                return True
    return False


def types_of_text(chunks: Iterable[pa.RecordBatch], decimal: str | None = None) -> dict[str, pa.DataType]:
    """Return the types that columns of text would have in a CSV file, decided over all chunks.

    Examples
    --------
    >>> chunks = [pa.record_batch({"n": ["1", "2"], "t": ["1", "x"]}), pa.record_batch({"n": ["2.5"], "t": ["2"]})]
    >>> types_of_text(chunks)
    {'n': DataType(double), 't': DataType(string)}
    """
    found: dict[str, pa.DataType] = {}
    for chunk in chunks:
        for name, column in zip(chunk.schema.names, chunk.columns, strict=True):
            before = found.get(name, pa.null())
            if before != pa.string():
                found[name] = _common_type(before, column_of_text(column, decimal).type)
    return {name: pa.string() if pa.types.is_null(type_) else type_ for name, type_ in found.items()}


def column_of_text(text: Values, decimal: str | None = None, dayfirst: bool | None = None) -> Values:
    """Return a column of text with the type that it would have in a CSV file.

    Examples
    --------
    >>> column_of_text(pa.array(["1", None, "NA"])).to_pylist()
    [1, None, None]
    """
    if pc.any(pc.match_substring_regex(text, "^0[xX]")).as_py():
        return text
    file = io.BytesIO()
    options = pacsv.WriteOptions(include_header=False, quoting_style="all_valid")
    pacsv.write_csv(pa.table({"x": pc.fill_null(text, "")}), file, options)
    reading = pacsv.ReadOptions(column_names=["x"], use_threads=False, block_size=max(_BLOCK, file.tell()))
    converting = pacsv.ConvertOptions(null_values=_MISSING, decimal_point=decimal or ".")
    parsing = pacsv.ParseOptions(newlines_in_values=True)
    column = pacsv.read_csv(pa.BufferReader(file.getvalue()), reading, parsing, converting).column(0)
    if dayfirst is None or not pa.types.is_string(column.type):
        return column if not pa.types.is_string(column.type) else text
    dates = dates_of_text(_without_missing(text), dayfirst)
    return text if dates is None else dates


def _common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_null(one) or one == other:
        return other
    if pa.types.is_null(other):
        return one
    if {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    moments = [pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None) for kind in (one, other)]
    return pa.timestamp("us") if all(moments) else pa.string()


class _BlocksOf(io.RawIOBase):
    r"""Bytes as a stream whose pieces never end between \r and \n, where Arrow would drop the \n of a quoted field."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = memoryview(data)
        self._at = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._data) if size is None or size < 0 else min(self._at + size, len(self._data))
        while self._at + 1 < end < len(self._data) and self._data[end - 1] == 0x0D:
            end -= 1
        piece, self._at = self._data[self._at : end], end
        return bytes(piece)


class _Rows(io.RawIOBase):
    r"""The rows of a CSV file as they are read, watched for a quote that is left open.

    By RFC 4180 a quote opens a field only where it is the field's first character; elsewhere it is a character like
    any other, as in ``5" pipe``. Inside a quoted field, two quotes are one character, and one quote ends it. So of
    each run of quotes only the parity counts: an even one changes nothing.

    Examples
    --------
    >>> def is_open(text):
    ...     rows = _Rows(b"", io.BytesIO(text), ",")
    ...     rows.read()
    ...     return rows.quote_is_open
    >>> [is_open(text) for text in (b'5" pipe\n', b'"a\nb"\n', b'1,"a""\n', b'""\n', b'x,"')]
    [False, False, True, False, True]
    """

    def __init__(self, head: bytes, rest: io.RawIOBase | IO[bytes], delimiter: str) -> None:
        super().__init__()
        self._stream = Rewound(head, cast(IO[bytes], rest))
        self._starts = np.zeros(256, dtype=bool)
        self._starts[[ord(delimiter) if ord(delimiter) < 128 else 0x0A, 0x0A, 0x0D]] = True
        self._open = False
        self._last = 0x0A  # the byte before: the first field starts where a line does
        self._held = 0  # quotes at the end of what was read, whose run may go on
        self._return = b""

    @property
    def quote_is_open(self) -> bool:
        """Whether what was read so far ends inside a quoted field."""
        runs = self._held % 2
        return self._open != bool(runs and (self._open or self._starts[self._last]))

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        r"""Return the next bytes, never up to between \r and \n: Arrow would drop the \n there, in quotes too."""
        wanted = -1 if size is None or size < 0 else max(size - len(self._return), 1)
        block = self._return + self._stream.read(wanted)
        self._return = b""
        if wanted >= 0 and len(block) > 1 and block.endswith(b"\r"):
            block, self._return = block[:-1], b"\r"
        if b'"' in block or self._held:
            self._watch(block)
        elif block:
            self._last = block[-1]
        return block

    def _watch(self, block: bytes) -> None:
        stripped = block.rstrip(b'"')
        trailing = len(block) - len(stripped)
        if not stripped:
            self._held += trailing
            return
        data = np.frombuffer(b'"' * self._held + stripped, dtype=np.uint8)
        quotes = np.flatnonzero(data == 0x22)
        if len(quotes):
            first = np.r_[True, np.diff(quotes) > 1]
            beginnings = quotes[first]
            lengths = np.diff(np.r_[np.flatnonzero(first), len(quotes)])
            before = np.where(beginnings > 0, data[beginnings - 1], self._last)
            odd = lengths % 2 == 1
            self._open = _open_after(self._starts[before[odd]], self._open)
        self._last = int(data[-1])
        self._held = trailing


def _ends_inside_quotes(text: bytes, delimiter: str) -> bool:
    rows = _Rows(text, io.BytesIO(), delimiter)
    rows.read()
    return rows.quote_is_open


def _open_after(opens: NDArray[np.bool_], is_open: bool) -> bool:
    """Return whether a field is open after odd runs of quotes, given which of them stand where a field begins."""
    ordinary = np.flatnonzero(~opens)
    by_parity = [ordinary[ordinary % 2 == parity] for parity in (0, 1)]
    at = int(is_open)  # the first run closes the open field, whatever it is
    while True:
        # runs open and close by turns, up to one that stands inside a field and is an ordinary character
        rest = by_parity[at % 2]
        position = int(np.searchsorted(rest, at))
        if position == len(rest):
            return (len(opens) - at) % 2 == 1
        at = int(rest[position]) + 1


@dataclass(frozen=True)
class Dialect:
    """A delimiter, the names in the header, and how many bytes the header takes.

    Parameters
    ----------
    delimiter : str
    names : tuple of str
        Without the white space around them.
    header_bytes : int
        Where the first row begins, in UTF-8.
    """

    delimiter: str
    names: tuple[str, ...]
    header_bytes: int


_DELIMITERS = ",;\t|"
_ROWS = 200
_SPACE_AGREEMENT = 0.9
_EXCEL_HINT = re.compile(r'"?sep=(.)"?\s*\Z')


def _header(text: Utf8Stream, name: str, delimiter: str | None) -> tuple[bytes, Dialect]:
    """Read until the header is complete and some rows show the delimiter; return what was read."""
    head, size = b"", _HEAD
    while True:
        more = text.read(size)
        head, ended = head + more, len(more) < size
        # The last line may be cut, even inside a character: what counts are the whole lines before it.
        whole = head if ended else head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1]
        if ended and not whole.strip():
            raise TableError(f"{name} holds only blank lines: give a table with a header and at least one row")
        if whole.strip():
            complete, dialect = _sniffed(whole.decode(errors="ignore"), name, delimiter)
            if complete or ended:
                if not complete and _ends_inside_quotes(head, dialect.delimiter):
                    raise _open_quote(name)
                check_names(dialect.names, name)
                return head, dialect
        if len(head) > _LONGEST_HEADER:
            problem = (
                f"{name} has a header of more than {_LONGEST_HEADER >> 20} MB, or a quotation mark left open in it"
            )
            raise TableError(f"{problem}: give a table whose first line names the columns")
        size = len(head)


def sniff(head: str, name: str, delimiter: str | None = None) -> Dialect:
    r"""Find the delimiter that splits the first lines into the most regular table, and read the header with it.

    Parameters
    ----------
    head : str
        The first lines, whole.
    name : str
        What messages call the file.
    delimiter : str, optional
        To be used instead of looking for one.

    Examples
    --------
    >>> sniff("a;b\n1,5;2,5\n", "data.csv")
    Dialect(delimiter=';', names=('a', 'b'), header_bytes=4)
    >>> sniff("a,a\n1,2\n", "data.csv")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.csv has more than one column named 'a': give each column its own name
    """
    _, dialect = _sniffed(head, name, delimiter)
    check_names(dialect.names, name)
    return dialect


def _sniffed(head: str, name: str, delimiter: str | None) -> tuple[bool, Dialect]:
    """Return whether the header ends before the text does, and the dialect."""
    first = head.splitlines()[0] if head else ""
    hint = _EXCEL_HINT.fullmatch(first)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise TableError(f"the delimiter {delimiter!r} cannot split rows: give one character, such as ';'")
    delimiter = delimiter or (hint.group(1) if hint else _regular(head))
    lines = _Lines(head)
    records = csv.reader(lines, delimiter=delimiter)
    if hint:
        next(records)
    try:
        header = next(record for record in records if record)
    except (StopIteration, csv.Error) as error:
        if isinstance(error, csv.Error) and _ends_inside_quotes(head.encode(), delimiter):
            raise _open_quote(name) from error
        problem = f"{name} has no header: its first line must name the columns"
        raise TableError(problem) from error
    names = tuple(column.strip() for column in header)
    return lines.n_bytes < len(head.encode()), Dialect(delimiter, names, lines.n_bytes)


class _Lines:
    """Lines for a CSV reader, counting the bytes of those that it has taken."""

    def __init__(self, text: str) -> None:
        self._text = io.StringIO(text, newline="")
        self.n_bytes = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._text:
            self.n_bytes += len(line.encode())
            yield line


def _regular(head: str) -> str:
    scores = {delimiter: _agreement(head, delimiter) for delimiter in _DELIMITERS}
    best = max(scores, key=lambda delimiter: scores[delimiter])  # the first of equals: comma before semicolon
    # Spaces stand inside names and texts, so that they split rows only where nothing else can.
    if scores[best] == (0.0, 0) and _agreement(head, " ")[0] >= _SPACE_AGREEMENT:
        return " "
    return best


def _agreement(head: str, delimiter: str) -> tuple[float, int]:
    """Return how many of the rows have as many fields as the header, and that number; nothing if it is one."""
    sizes: list[int] = []
    try:
        for record in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter):
            if record:
                sizes.append(len(record))
            if len(sizes) > _ROWS:
                break
    except csv.Error:
        pass  # a field beyond the module's limit: the rows before it are enough
    if not sizes or sizes[0] < 2:
        return 0.0, 0
    rows = sizes[1:]
    return (sum(size == sizes[0] for size in rows) / len(rows) if rows else 1.0), sizes[0]
