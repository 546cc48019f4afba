"""CSV and its kin, read whole with types decided over all rows, or in chunks with types that are given."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.columns.arrow_types import no_such_value
from demur.columns.table_errors import TableError
from demur.tabular.dialect import sniff
from demur.tabular.reader import TableReader
from demur.tabular.sources import Rewound
from demur.tabular.text import Utf8Stream

__all__ = ["CsvReader"]

_HEAD = 1 << 18
_BLOCK = 1 << 21  # Arrow reads 32 of them ahead: the size bounds the memory, and the longest row
_SPELLINGS = [
    "",
    "NA",
    "N/A",
    "n/a",
    "#N/A",
    "NaN",
    "nan",
    "NAN",
    "-nan",
    "null",
    "NULL",
    "Null",
    "None",
    "?",
    "-",
    "--",
]
_MISSING = [f"{before}{word}{after}" for word in _SPELLINGS for before in ("", " ") for after in ("", " ")]
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_BAD_VALUE = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to [^:]*: [^']*'(.*)'", re.DOTALL)


class CsvReader(TableReader):
    """A text file with a header, whatever its delimiter and encoding."""

    def __init__(self, stream: BinaryIO, name: str, delimiter: str | None = None) -> None:
        self._text = Utf8Stream(stream, name)
        head = self._text.read(_HEAD)
        # The last line may be cut, even inside a character: what counts are the whole lines before it.
        whole = head if len(head) < _HEAD else head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1] or head
        if not whole.strip():
            raise TableError(f"{name} holds only blank lines: give a table with a header and at least one row")
        self._dialect = sniff(whole.decode(errors="ignore"), name, delimiter)
        self._rest = Rewound(head[self._dialect.header_bytes :], self._text)  # type: ignore[arg-type]
        self._lines_of_header = head[: self._dialect.header_bytes].count(b"\n")
        super().__init__(name, dict.fromkeys(self._dialect.names))

    def _read(self) -> pa.Table:
        data = self._rest.read()
        if not data.strip():
            raise self._no_rows()
        table = self._parsed(data, {})
        integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
        if integers and (b"0x" in data or b"0X" in data):
            table = self._without_hexadecimal(data, table, integers)
        self._check_quotes(table.num_rows)
        return _tidy(table)

    def _parsed(self, data: bytes, types: Mapping[str, Any]) -> pa.Table:
        try:
            return pacsv.read_csv(pa.BufferReader(data), *self._options(types, threads=True))
        except pa.ArrowException:
            pass  # read again in one thread, which knows the number of the row
        try:
            return pacsv.read_csv(pa.BufferReader(data), *self._options(types))
        except pa.ArrowException as error:
            raise self._explained(error, types) from error

    def _without_hexadecimal(self, data: bytes, table: pa.Table, integers: list[str]) -> pa.Table:
        """Take 0x1F for text: Arrow infers integers from it, and then could not read it as a number in chunks."""
        as_text = self._parsed(data, dict.fromkeys(integers, pa.string()))
        for name in integers:
            if pc.any(pc.match_substring_regex(as_text[name], "0[xX]")).as_py():
                table = table.set_column(table.schema.get_field_index(name), name, as_text[name])
        return table

    def _chunks(self, columns: Mapping[str, Any] | None, rows: int) -> Iterator[pa.RecordBatch]:
        types = dict.fromkeys(self.columns, pa.string()) if columns is None else columns
        first = self._rest.read(_HEAD)
        if not first.strip() and not (first := first + self._rest.read()).strip():
            return
        n_rows, pending = 0, []
        batches: Any = None
        try:
            batches = pacsv.open_csv(Rewound(first, self._rest), *self._options(types, only=list(types)))  # type: ignore[arg-type]
            for batch in batches:
                n_rows += batch.num_rows
                pending.append(_tidy(batch))
                if sum(map(len, pending)) >= rows:
                    yield (whole := pa.concat_batches(pending)).slice(0, len(whole) // rows * rows)
                    pending = [whole.slice(len(whole) // rows * rows)]
        except pa.ArrowException as error:
            raise self._explained(error, types) from error
        finally:
            if batches is not None:
                batches.close()  # else Arrow may still read ahead when the program ends, and bring it down
        self._check_quotes(n_rows)
        yield from pending

    def _options(
        self, types: Mapping[str, Any], only: list[str] | None = None, threads: bool = False
    ) -> tuple[Any, ...]:
        return (
            pacsv.ReadOptions(use_threads=threads, block_size=_BLOCK, column_names=list(self.columns)),
            pacsv.ParseOptions(delimiter=self._dialect.delimiter, newlines_in_values=True),
            pacsv.ConvertOptions(column_types=dict(types), include_columns=only or [], null_values=_MISSING),
        )

    def _check_quotes(self, n_rows: int) -> None:
        """Refuse a quote that is never closed: it would swallow the rows after it without a word."""
        if self._text.n_quotes % 2 and n_rows < self._text.n_lines - self._lines_of_header:
            raise _open_quote(self.name)

    def _no_rows(self) -> TableError:
        return _open_quote(self.name) if self._text.n_quotes % 2 else super()._no_rows()

    def _advice_on_fields(self, expected: int) -> str:
        if expected == 1:
            return "remove what stands above the names of the columns"
        if self._text.n_quotes % 2:
            return "correct it, or close a quotation mark that is left open"
        return "correct it, or put quotes around text that holds the delimiter"

    def _explained(self, error: Exception, types: Mapping[str, Any]) -> TableError:
        message = str(error)
        if ragged := _RAGGED.search(message):
            row, expected, got = map(int, ragged.groups())
            fields = f"{got:,} field{'s' if got != 1 else ''}"
            problem = f"{self.name}: row {row + 1:,} has {fields} where the header has {expected:,}"
            return TableError(f"{problem}: {self._advice_on_fields(expected)}")
        if bad := _BAD_VALUE.search(message):
            column = list(self.columns)[int(bad.group(1))]
            row_number = int(bad.group(2)) + 1 if bad.group(2) else None
            return no_such_value(self.name, column, bad.group(3), types.get(column, pa.string()), row_number)
        if "straddling" in message:
            problem = f"{self.name} has a row of more than {_BLOCK >> 20} MB, or a quotation mark that is never closed"
            return TableError(f"{problem}: close it, or leave the long column out")
        return TableError(f"{self.name} cannot be read as CSV ({message}): save it again as CSV or Parquet")


def _open_quote(name: str) -> TableError:
    problem = f"{name} has a quotation mark that is never closed, or an odd one"
    return TableError(f"{problem}: close it, or write it twice inside a quoted field")


def _tidy(table: Any) -> Any:
    """Take the white space around text away, and empty text for missing."""
    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            text = pc.utf8_trim_whitespace(table.column(position))
            text = pc.if_else(pc.equal(text, ""), None, text)
            table = table.set_column(position, field.name, text)
    return table
