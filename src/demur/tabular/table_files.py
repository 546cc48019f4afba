"""Read a table from a file, a folder, standard input or a stream; the format is detected from the first bytes."""

import codecs
import csv
import datetime as dt
import io
import itertools
import lzma
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TypeAlias
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, ByName, Ints, Names, Objects, Texts
from demur.columns.frames import (
    Batches,
    TableError,
    TableWarning,
    Types,
    Values,
    as_table,
    check_columns,
    check_names,
    decoded,
    listed,
    plain_table,
    shown,
)
from demur.columns.schema import Schema, as_type, kind_of_type, label_of
from demur.errors import MissingExtraError
from demur.tabular.array_files import StoredRows, array_table, arrays_of
from demur.tabular.csv_files import CsvContent, column_of_text, replaced, stream_of

Source: TypeAlias = str | os.PathLike[str] | IO[bytes]
"""A path, ``"-"`` for standard input, or a binary stream."""

_ReadBatches: TypeAlias = Callable[[list[str], int], Batches]

_HEAD = 1 << 16
_AT_ONCE = 1 << 23  # the largest number of cells in a chunk
_NAME = 512  # within these bytes, a zip archive has the name of its first file


@contextmanager
def _explained(name: str, what: str) -> Iterator[None]:
    """Convert the errors of libraries about an unreadable file to one sentence."""
    try:
        yield
    except TableError:
        raise
    except (
        pa.ArrowException,
        OSError,
        ValueError,
        OverflowError,
        MemoryError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
        BadZipFile,
    ) as error:
        reason = str(error).rstrip(". ")
        problem = f"{name} cannot be read as a {what} ({reason})"
        raise TableError(f"{problem}: write it again if it is truncated, damaged or too large") from error


class TableReader:
    """An open table that can be read once, whole or in chunks. Use it as a context manager.

    Parameters
    ----------
    content : CsvContent or ArrowContent
        Its name, columns and rows.
    close : callable
        Closes the file.

    Attributes
    ----------
    columns : dict of str to pyarrow.DataType or None
        The columns in order with their types; None in a CSV file, whose types depend on the rows.
    delimiter : str or None
        The delimiter of a CSV file.
    matrix : StoredRows or None
        The columns 0, 1, 2, ... of a NumPy file, as they are stored.
    """

    def __init__(self, content: "CsvContent | ArrowContent", close: Callable[[], None] = lambda: None) -> None:
        self.name, self.columns, self._content, self._close = content.name, content.columns, content, close
        self.delimiter, self.matrix = content.delimiter, content.matrix

    @property
    def notation(self) -> ByName:
        """The notation of numbers and dates in a CSV file, as :attr:`Schema.notation` stores it."""
        return self._content.notation

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, labels: Names = ()) -> pa.Table:
        """Return the whole table, with types that fit all rows; labels are not read as numbers with a unit."""
        table = self._content.read(labels)
        if not table.num_rows:
            raise self._no_rows()
        return table

    def read_others(self) -> pa.Table:
        """Return the columns that are not in :attr:`matrix`, whose names are numbers."""
        types = {name: kind for name, kind in self.columns.items() if not name.isdigit()}
        return pa.Table.from_batches(list(self.chunks(types))) if types else pa.table({})

    def chunks(self, columns: Types, rows: int = 65_536) -> Batches:
        """Return the table in chunks, in bounded memory.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType
            The columns to read, and the type of each.
        rows : int, default 65536
            The largest number of rows in a chunk.

        Yields
        ------
        pyarrow.RecordBatch
            With the columns in the order of ``columns``.
        """
        return (chunk for chunk, _ in self.chunks_and_copies(columns, (), rows))

    def chunks_and_copies(
        self, columns: Types, copied: Names, rows: int = 65_536
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Return chunks as :meth:`chunks` does, each with unchanged copies of some columns.

        A copy has the type that it has in the file; in a CSV file it is the text of the cells.
        """
        check_columns((*columns, *copied), self.columns, self.name)
        empty, rows = True, max(1, min(rows, _AT_ONCE // max(1, len(columns))))
        for batch, copies in self._content.chunks(columns, copied, rows):
            for start in range(0, batch.num_rows, rows):
                empty = False
                yield batch.slice(start, rows), copies.slice(start, rows)
        if empty:
            raise self._no_rows()

    def _no_rows(self) -> TableError:
        return TableError(f"{self.name} has columns but no rows: give at least one row")


class ArrowContent:
    """The rows of a table in a format with types.

    Parameters
    ----------
    name : str
        The name of the file in messages.
    schema : pyarrow.Schema
    batches : callable
        Returns the record batches, given the columns to read and the largest number of rows of each.
    matrix : StoredRows, optional
        The columns 0, 1, 2, ... as they are stored in a NumPy file.
    """

    delimiter = None

    def __init__(self, name: str, schema: pa.Schema, batches: _ReadBatches, matrix: StoredRows | None = None) -> None:
        check_names(tuple(schema.names), name)
        for field in schema:
            getattr(field.type, "tz", None)  # raises an error if the file is damaged there
        empty = schema.empty_table()
        self._stored = {name: plain_table(empty.select([name])).column_names for name in schema.names}
        self._schema = plain_table(empty).schema
        self.columns: dict[str, pa.DataType | None] = {field.name: field.type for field in self._schema}
        self.name, self._batches, self.matrix = name, batches, matrix
        self.notation: ByName = {}

    def read(self, labels: Names = ()) -> pa.Table:
        """Return all rows; columns without a type become dates, except for labels."""
        with _explained(self.name, "table"):
            table = pa.Table.from_batches(self._validated(self._schema.names, 1 << 20), self._schema)
        for name, kind in self.columns.items():
            if kind is None and name not in labels:
                table = replaced(table, name, column_of_text(table[name]))
        return table

    def _validated(self, names: list[str], rows: int) -> Batches:
        """Return the batches after a check of their offsets and texts, which Arrow does not check when it reads."""
        stored = [name for name, columns in self._stored.items() if not set(columns).isdisjoint(names)]
        for batch in self._batches(stored, rows):
            chosen = batch.select(stored)
            chosen.validate(full=True)
            yield plain_table(chosen).select(names)

    def chunks(self, columns: Types, copied: Names, rows: int) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Return record batches with the columns as the types, each with the copied columns as they are."""
        with _explained(self.name, "table"):
            for batch in self._validated(list(dict.fromkeys((*columns, *copied))), rows):
                arrays = [as_type(batch.column(name), wanted, name, self.name) for name, wanted in columns.items()]
                yield pa.RecordBatch.from_arrays(arrays, names=list(columns)), batch.select(list(copied))


def _seekable(stream: BinaryIO) -> BinaryIO | pa.BufferReader:
    """Return a stream that Arrow can seek in: a pipe or a compressed file is held in memory."""
    return stream if stream.seekable() else pa.BufferReader(stream.read())


def _parquet(stream: BinaryIO, name: str) -> ArrowContent:
    import pyarrow.parquet as pq  # takes a while to import, and most tables are CSV

    file = pq.ParquetFile(_seekable(stream))

    def batches(names: list[str], rows: int) -> Batches:
        for group in range(file.num_row_groups):  # over several groups Arrow keeps all that it has read
            yield from file.iter_batches(rows, [group], columns=names)

    return ArrowContent(name, file.schema_arrow, batches)


def _arrow_file(stream: BinaryIO, name: str) -> ArrowContent:
    file = pa.ipc.open_file(_seekable(stream))
    return ArrowContent(name, file.schema, lambda names, rows: map(file.get_batch, range(file.num_record_batches)))


def _arrow_stream(stream: BinaryIO, name: str) -> ArrowContent:
    file = pa.ipc.open_stream(stream)
    return ArrowContent(name, file.schema, lambda names, rows: iter(file))


def _arrays(stream: BinaryIO, name: str) -> ArrowContent:
    return ArrowContent(name, *array_table(arrays_of(stream, name), name))


def _json_lines(stream: BinaryIO, name: str) -> ArrowContent:
    import pyarrow.json as pajson

    data, options = pa.BufferReader(stream.read()), pajson.ReadOptions(block_size=_AT_ONCE)
    table = pajson.read_json(data, options)
    dates = [field.name for field in table.schema if pa.types.is_timestamp(field.type)]
    if dates:  # Arrow adds a time to them: read as text again
        data.seek(0)
        text = pa.schema([(one, pa.string()) for one in dates])
        table = pajson.read_json(data, options, pajson.ParseOptions(explicit_schema=text)).select(table.column_names)
    content = ArrowContent(name, table.schema, lambda names, rows: iter(table.select(names).to_batches(rows)))
    content.columns |= dict.fromkeys(dates)
    return content


def _workbook(stream: BinaryIO, name: str, notation: Mapping[str, Any]) -> CsvContent:
    """Read the first sheet of a workbook as the CSV file that it would be saved as."""
    try:
        from python_calamine import CalamineWorkbook
    except ImportError:
        raise MissingExtraError(
            f"{name} is a workbook, which needs python-calamine: pip install demur[excel], or save it as CSV."
        ) from None
    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(stream.read()))
        rows = [row for row in book.get_sheet_by_index(0).to_python() if len(row) == 1 or any(one != "" for one in row)]
    except Exception as error:  # the library has exceptions of its own
        raise TableError(f"{name} cannot be read as a workbook ({error}): unpack it, or save it as CSV") from error
    if len(book.sheet_names) > 1:
        problem = f"{name} has {len(book.sheet_names)} sheets, of which the first is read, {shown(book.sheet_names[0])}"
        warnings.warn(f"{problem}: save another sheet as a separate file", TableWarning, stacklevel=2)
    text, decimal = io.StringIO(), notation.get("decimal") or "."
    csv.writer(text).writerows([_cell(value, decimal) for value in row] for row in rows)
    return CsvContent(iter([text.getvalue().encode(), b""]), name, ",", **notation)


def _cell(value: object, decimal: str) -> str:
    """Return a cell of a workbook as text; a date at midnight has no time."""
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, dt.datetime):
        return str(value).removesuffix(" 00:00:00")
    text = label_text(value) or ""
    return text.replace(".", decimal) if isinstance(value, float) else text


FORMATS: dict[bytes, Callable[[BinaryIO, str], ArrowContent]] = {
    b"PAR1": _parquet,
    b"ARROW1": _arrow_file,
    b"\xff\xff\xff\xff": _arrow_stream,
    b"\x93NUMPY": _arrays,
    b"PK\x03\x04": _arrays,
    b"{": _json_lines,
}
"""First bytes of each typed format, and the function that opens it; everything else, and workbooks, are read as CSV."""

_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
"""The first bytes of each compression, and its name; Arrow has no xz."""

_FOREIGN = {
    rb"PK\x05\x06": "a zip archive",
    rb"\s*\[\s*[\[{\"\]]": "JSON that is not one object per line",
    rb"\s*\{\s*\"": "JSON with something before the first object",
    rb"\s*<(!doctype|html|head|body|\?xml)\b": "a web page or XML",
}
"""First bytes of files that are often mistaken for tables."""


def source_name(source: Source) -> str:
    """Return the name of a source in messages.

    Examples
    --------
    >>> source_name("data/train.csv"), source_name("-"), source_name(io.BytesIO())
    ('train.csv', 'standard input', 'the stream')
    """
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else Path(source).name or str(source)
    name = getattr(source, "name", None)
    return Path(name).name if isinstance(name, str) else "the stream"


def open_raw(source: Source) -> IO[bytes]:
    """Open a source without looking inside."""
    if isinstance(source, str | os.PathLike):
        if source == "-":
            return sys.stdin.buffer
        try:
            return open(source, "rb")
        except FileNotFoundError as error:
            raise TableError(f"there is no file {shown(source)}: check the path") from error
        except (OSError, ValueError) as error:
            raise TableError(f"{shown(source)} cannot be opened ({error}): check the path") from error
    if isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
        kind = type(source).__name__
        raise TableError(f"a {kind} is neither a path nor a stream of bytes: give a path, or a stream of mode 'rb'")
    return source


def _blocks(stream: Any, name: str) -> Iterator[bytes]:
    """Return the content of a stream in blocks, the first one included."""
    block = None
    while block != b"":
        with _explained(name, "file"):
            block = bytes(stream.read(_HEAD))
        yield block


def _from_start(stream: Any, name: str) -> tuple[bytes, BinaryIO]:
    """Return the first bytes of a stream, and a stream that still has them; a file can be read by seeking in it."""
    blocks = _blocks(stream, name)
    head = next(blocks)
    if isinstance(stream, io.BufferedReader | io.BytesIO) and stream.seekable():
        stream.seek(-len(head), os.SEEK_CUR)
        return head, stream
    return head, stream_of(itertools.chain([head], blocks))


def _parquet_folder(folder: Path) -> ArrowContent:
    """Open the Parquet files in a folder and below, in order of name; folders named ``key=value`` are columns.

    Files whose name or folder starts with ``.`` or ``_`` are ignored.
    """
    import pyarrow.dataset as ds

    name, found = folder.name or str(folder), [path for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
    paths = [p for p in found if not any(x.startswith((".", "_")) for x in p.relative_to(folder).parts)]
    if not paths:
        raise TableError(f"{shown(folder)} has no .parquet files: give a file, or a folder of Parquet files")
    with _explained(name, "folder of Parquet files"):
        files = ds.dataset([*map(str, paths)], format="parquet", partitioning="hive", partition_base_dir=str(folder))
        schemas = [fragment.physical_schema for fragment in files.get_fragments()]
        schema = pa.unify_schemas([*schemas, files.schema], promote_options="permissive")
    for path, own in zip(paths, schemas, strict=True):
        if different := set(own.names) ^ set(schemas[0].names):
            problem = f"{path.name} and {paths[0].name} in {name} have different columns"
            raise TableError(f"{problem} ({listed(sorted(different))}): give a folder whose files have the same")

    def batches(names: list[str], rows: int) -> Batches:
        options = {"schema": schema, "columns": names, "batch_size": rows, "batch_readahead": 1}
        return itertools.chain.from_iterable(one.to_batches(**options) for one in files.get_fragments())

    return ArrowContent(name, schema, batches)


def open_table(source: Source, *, delimiter: str | None = None, **notation: Any) -> TableReader:
    r"""Open a table, to look at its columns before reading it once.

    CSV (delimited by ``, ; |``, tab or space), Excel workbooks (their first sheet), JSON lines, Parquet, Arrow, Feather
    and NumPy's .npy and .npz are detected by their content, and so are gzip, bzip2, xz, zstd and lz4. Text may be
    UTF-8, UTF-16 with its mark, or Windows-1252.

    Parameters
    ----------
    source : path, "-" or binary stream
        ``"-"`` is standard input; a folder stands for the Parquet files in it.
    delimiter : str, optional
        The delimiter of a CSV file. By default it is detected.
    **notation
        Notation of a CSV file. By default it is detected if the file is read whole; ambiguous columns are read as text.
        ``decimal``, the sign "." or ","; ``dayfirst``, whether dates such as 1.2.2024 begin with the day; ``numbers``,
        the columns with numbers such as 1.234,50 or 20 % (none: ``{}``); ``missing``, words for a missing number.

    Raises
    ------
    TableError
        If it contains no table that can be read.

    Examples
    --------
    >>> import io
    >>> with open_table(io.BytesIO(b"size;kind\n1.5;cat\n")) as reader:
    ...     list(reader.columns), next(reader.chunks({"size": pa.float64()})).to_pydict()
    (['size', 'kind'], {'size': [1.5]})
    """
    if isinstance(source, str | os.PathLike) and source != "-" and Path(source).is_dir():
        return TableReader(_parquet_folder(Path(source)))
    name, raw = source_name(source), open_raw(source)
    with ExitStack() as stack:
        if isinstance(source, str | os.PathLike) and source != "-":
            stack.callback(raw.close)
        return TableReader(_content(raw, name, delimiter, notation), stack.pop_all().close)


def _content(
    raw: IO[bytes], name: str, delimiter: str | None, notation: Mapping[str, Any]
) -> CsvContent | ArrowContent:
    """Decompress a stream and find its format."""
    head, stream = _from_start(raw, name)
    for mark, codec in _COMPRESSIONS.items():
        if head.startswith(mark):
            xz = codec == "xz"
            opened = lzma.LZMAFile(stream) if xz else pa.CompressedInputStream(stream, codec)  # noqa: SIM115
            head, stream = _from_start(opened, name)
            break
    if not head:
        raise TableError(f"{name} is empty: give a table with a header and at least one row")
    if head.startswith(b"\xd0\xcf\x11\xe0") or (head.startswith(b"PK\x03\x04") and b".npy" not in head[:_NAME]):
        return _workbook(stream, name, notation)
    for mark, content_of in FORMATS.items():
        if head.startswith(mark):
            with _explained(name, "table"):
                return content_of(stream, name)
    for start, what in _FOREIGN.items():
        if re.match(start, head.removeprefix(codecs.BOM_UTF8), re.IGNORECASE | re.DOTALL):
            raise TableError(f"{name} looks like {what}: save it as CSV, Parquet or Arrow")
    return CsvContent(_blocks(stream, name), name, delimiter, **notation)


def read_table(source: Source, **options: Any) -> pa.Table:
    r"""Read a whole table, with types that fit all rows.

    A column of a CSV file holds integers, numbers, dates, times or booleans if all its fields do, and text otherwise.
    Integers with leading zeros are text. Empty fields are missing; so are NA, N/A, NaN, null, None, ``?``, ``-`` and
    spreadsheet errors such as #DIV/0! in a column that is otherwise not text.

    Parameters
    ----------
    source, **options
        As in :func:`open_table`.

    Examples
    --------
    >>> import io
    >>> read_table(io.BytesIO(b"size,kind\n1,cat\n?,\n")).to_pydict()
    {'size': [1, None], 'kind': ['cat', None]}
    """
    with open_table(source, **options) as reader:
        return reader.read()


def read_labels(source: Source, target: str, n_rows: int) -> pa.Table:
    r"""Read labels, and possibly other columns, of rows whose features are in another file.

    Parameters
    ----------
    source : path, "-" or binary stream
        As for :func:`open_table`.
    target : str
        The column with the labels; the only column of a file may have any name.
    n_rows : int
        The number of rows in the other file.

    Examples
    --------
    >>> import io
    >>> read_labels(io.BytesIO(b"y\ncat\ndog\n"), "pet", 2).to_pydict()
    {'pet': ['cat', 'dog']}
    """
    table, name = read_table(source, numbers={}, missing=()), source_name(source)
    if table.num_columns == 1:
        table = table.rename_columns([target])
    check_columns([target], table.column_names, name, " with the labels (or give --labels)")
    if table.num_columns == 1 and table.slice(n_rows)[target].null_count == table.num_rows - n_rows:
        table = table.slice(0, n_rows)  # without empty lines at the end
    if table.num_rows != n_rows:
        raise TableError(
            f"{name} has {table.num_rows:,} labels for {n_rows:,} rows: give one for each row, and a header in CSV"
        )
    return table


def read_labelled(
    source: Source,
    schema: Schema,
    classes: Names,
    *,
    delimiter: str | None = None,
    strict: bool = True,
    allowed: Names = (),
    labels: Source | None = None,
    **notation: Any,
) -> pa.Table:
    r"""Read a table with labels, each column with the type that the schema expects.

    The types that a file alone suggests may differ, for example in a text column that happens to hold only numbers. The
    labels are text: a label that is not a class as it is written is compared as a value, so that 2.0 is the class "2".

    Parameters
    ----------
    source : path, "-" or binary stream
    schema : Schema
        The columns and the target.
    classes : names
        The classes of the model, as text.
    delimiter : str, optional
    strict : bool
        Whether extra columns are an error.
    allowed : names
        Extra columns that are allowed in any case.
    labels : path or binary stream, optional
        A file with the labels of the rows, if the table has none.
    **notation
        As in :func:`open_table`; by default that of the file that the schema was learned from.

    Examples
    --------
    >>> import io
    >>> from demur.columns import Column
    >>> schema = Schema((Column("code", "category", ("A1", "7")),), target="y")
    >>> read_labelled(io.BytesIO(b"code,y\n7,01\n7,2.0\n"), schema, {"01", "2"}).to_pydict()
    {'code': ['7', '7'], 'y': ['01', '2']}
    """
    target, notation = str(schema.target), schema.notation_with(notation)
    with open_table(source, delimiter=delimiter, **notation) as reader:
        extra = {name for name in allowed if name not in schema.names}
        there = {name: kind for name, kind in reader.columns.items() if name not in extra}
        schema.check(there, strict=strict, where=reader.name)
        if labels is None:
            check_columns([target], reader.columns, reader.name, " with the labels (or give --labels)")
        types = {name: type_ or pa.string() for name, type_ in reader.columns.items()} | schema.arrow_types()
        typed = labels is not None or reader.columns[target] is not None
        table = pa.Table.from_batches(list(reader.chunks(types)))
    if labels is not None:
        given = read_labels(labels, target, table.num_rows)
        table = pa.table({name: one[name] for one in (table, given.select([target])) for name in one.column_names})
    if typed:
        return table
    as_written, known = table[target].to_pylist(), set(classes)
    as_read = class_texts(column_of_text(table[target], notation.get("decimal"), notation.get("dayfirst"))).tolist()
    chosen = [text if text in known else label for text, label in zip(as_written, as_read, strict=True)]
    return replaced(table, target, pa.array([read_label(label, known) for label in chosen], pa.string()))


def read_label(text: str | None, known: Names) -> str | None:
    """Return the class that a label names: as it is, without spaces around it, or read as a number or boolean.

    Examples
    --------
    >>> read_label(" TRUE", {"true"}), read_label("2.0", {"2"}), read_label("maybe ", {"true"})
    ('true', '2', 'maybe')
    """
    return text and (label_of(text, known, any_case=False) or text.strip())


_MOST_NUMBERS = 1000
"""A target with more different fractional numbers than this is a quantity and not a class."""


def label_type(column: Values, name: str) -> str:
    """Return the type to write predictions with: "integer", "number", "boolean" or "text" (also for dates).

    Examples
    --------
    >>> label_type(pa.chunked_array([[1.0, 2.0, None]]), "y"), label_type(pa.chunked_array([["a"]]), "y")
    ('integer', 'text')
    """
    column = _plain(column)
    kind = column.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if kind_of_type(kind) is None and not pa.types.is_null(kind):
        raise TableError(f"the target column {shown(name)} holds {kind}: classes must be text, numbers or dates")
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return "text"
    numbers = [value for value in pc.unique(column).to_pylist() if value is not None and value == value]
    if all(-(2**63) <= value < 2**63 and int(value) == value for value in numbers):
        return "integer"
    if len(numbers) > _MOST_NUMBERS:
        raise TableError(
            f"the target column {shown(name)} holds {len(numbers):,} different numbers, so it is a quantity: "
            "convert it to classes first, such as low and high"
        )
    return "number" if pa.types.is_floating(kind) else "text"


def class_texts(column: Values) -> Objects:
    """Return labels as text, with None for missing ones; 3 and 3.0 are both the class "3".

    Examples
    --------
    >>> class_texts(pa.chunked_array([[3.0, None, 2.1]], pa.float32())).tolist()
    ['3', None, '2.1']
    """
    return np.array([label_text(value) for value in _plain(column).to_pylist()], dtype=object)


def as_column(classes: Sequence[str | None] | AnyArray, kind: str) -> pa.Array:
    """Return class names as an Arrow array of the label type.

    Examples
    --------
    >>> as_column(["2", "0.5"], "number").to_pylist()
    [2.0, 0.5]
    """
    column = pa.array(np.asarray(classes, dtype=object), pa.string())
    if kind == "boolean":
        return pc.equal(column, "true")
    types = {"integer": pa.int64(), "number": pa.float64()}
    return column.cast(types[kind]) if kind in types else column


def writable_type(classes: Sequence[str] | AnyArray, kind: str) -> str:
    """Return a label type, or "text" if these classes cannot be written with it.

    Examples
    --------
    >>> writable_type(["0", "1"], "integer"), writable_type(["0", "maybe"], "integer")
    ('integer', 'text')
    """
    try:
        written = as_column(classes, kind)
    except pa.ArrowException:
        return "text"
    return kind if len(written.unique()) == len(classes) else "text"


_MANY_CLASSES = 20
"""Number of classes up to which a table may have fewer than two rows per class on average."""


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The rows of a table that have a label, with their labels as text.

    Parameters
    ----------
    rows : pyarrow.Table
        All columns, the target included.
    labels : array of str
    numbers : array of int
        The positions of the rows in the table.
    target : str
        The column with the labels.
    name : str
        The name of the table in messages.
    n_unlabelled : int
        The number of rows that were left out because they have no label.

    Examples
    --------
    >>> data = LabelledTable.of(pa.table({"size": [1, 2, 3], "pet": ["cat", None, "dog"]}), "pet")
    >>> data.classes, data.n_unlabelled, data.take([1]).rows["size"].to_pylist()
    (['cat', 'dog'], 1, [3])
    """

    rows: pa.Table
    labels: Texts
    numbers: Ints
    target: str
    name: str = "the table"
    n_unlabelled: int = 0

    @classmethod
    def of(cls, table: pa.Table, target: str, name: str = "the table") -> Self:
        """Return the labelled rows of a table, or refuse a target that is missing, empty or not a class."""
        if not isinstance(table, pa.Table):
            table = as_table(table)  # an Arrow table may be of a file, whose lists are read as the model says
        check_names(tuple(table.column_names), name)
        check_columns([target], table.column_names, name, " to predict")
        label_type(table[target], target)  # refuses a column that cannot be a target
        labels = class_texts(table[target])
        known = np.flatnonzero([label is not None for label in labels])
        if not len(known):
            raise TableError(f"the target column {shown(target)} of {name} is empty: give rows with a label")
        n_unlabelled = len(labels) - len(known)
        rows = table.take(known) if n_unlabelled else table
        return cls(rows, labels[known].astype(str), known, target, name, n_unlabelled)

    @property
    def where(self) -> str:
        """The name of the table in messages with the number of a row."""
        return f"{self.name}, counting rows with a label" if self.n_unlabelled else self.name

    @property
    def classes(self) -> list[str]:
        """The different labels, sorted."""
        return sorted(set(self.labels.tolist()))

    def take(self, positions: ArrayLike) -> Self:
        """Return some of the rows, in the order of ``positions``."""
        chosen = np.asarray(positions, dtype=np.int64)
        rows = self.rows.take(pa.array(chosen))
        return replace(self, rows=rows, labels=self.labels[chosen], numbers=self.numbers[chosen])


def check_classes(labels: Texts, target: str) -> None:
    """Refuse labels that no classifier can be fitted on: one class only, or nearly all different.

    Examples
    --------
    >>> check_classes(np.array(["cat", "cat"]), "pet")
    Traceback (most recent call last):
    demur.columns.frames.TableError: the target column 'pet' holds only one class, 'cat': give at least two classes
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        found = f"only one class, {shown(classes[0])}" if len(classes) else "no row in scope"
        raise TableError(f"the target column {shown(target)} holds {found}: give at least two classes")
    if len(classes) == len(labels) or (len(classes) > _MANY_CLASSES and 2 * len(classes) > len(labels)):
        raise TableError(
            f"the target column {shown(target)} holds {len(classes):,} different values in {len(labels):,} rows, such "
            f"as {listed(classes[:3])}, too many for classes: convert a quantity to classes, such as low and high, "
            "choose another target, or give more rows"
        )


def _plain(column: Values) -> Values:
    """Decode dictionaries, and remove nanoseconds, which Python's dates do not have, and the noise of single floats."""
    column = decoded(column)
    kind = column.type
    if pa.types.is_float32(kind):  # 0.1 would be 0.10000000149011612
        return column.cast(pa.string()).cast(pa.float64())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


def label_text(value: object) -> str | None:
    """Return a label as text; None where it is missing.

    Examples
    --------
    >>> label_text(3.0), label_text(True), label_text(float("nan"))
    ('3', 'true', None)
    """
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
