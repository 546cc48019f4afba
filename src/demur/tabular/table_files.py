"""Read a table from a file, a folder, standard input or a stream; the first bytes tell the format."""

import itertools
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa

from demur.columns.frames import TableError, check_names, listed, plain_table, shown
from demur.columns.schema import Schema, as_type
from demur.tabular.class_labels import class_texts
from demur.tabular.csv_files import CsvReader, column_of_text
from demur.tabular.table_sources import Source, TableReader, explained, open_source, source_name

__all__ = ["ArrowReader", "ParquetFolder", "open_chunks", "open_table", "read_labelled", "read_table"]

_Batches: TypeAlias = Callable[[list[str], int], Iterator[pa.RecordBatch]]


class ArrowReader(TableReader):
    """A table in a format with types.

    Parameters
    ----------
    name : str
        The name of the file in messages.
    schema : pyarrow.Schema
    batches : callable
        Returns the record batches, given the columns to read and the largest number of rows of each.
    """

    def __init__(self, name: str, schema: pa.Schema, batches: _Batches) -> None:
        check_names(tuple(schema.names), name)
        for field in schema:
            getattr(field.type, "tz", None)  # raises an error if the file is damaged there
        super().__init__(name, {field.name: field.type for field in schema})
        self._schema, self._batches = schema, batches

    def _read(self) -> pa.Table:
        with explained(self.name, "table"):
            return pa.Table.from_batches(self._validated(self._schema.names, 1 << 20), self._schema)

    def _validated(self, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Return the batches after a check of their offsets and texts, which Arrow does not check when it reads."""
        for batch in self._batches(names, rows):
            chosen = batch.select(names)
            for column in chosen.columns:
                column.validate(full=True)
                if pa.types.is_dictionary(column.type):
                    column.dictionary.validate(full=True)
            yield chosen

    def _chunks(
        self, columns: Mapping[str, pa.DataType], copied: Collection[str], rows: int
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        with explained(self.name, "table"):
            for batch in self._validated(list(dict.fromkeys((*columns, *copied))), rows):
                arrays = [as_type(batch.column(name), wanted, name, self.name) for name, wanted in columns.items()]
                chunk = plain_table(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
                yield chunk, batch.select(list(copied))


def _seekable(stream: BinaryIO) -> BinaryIO | pa.BufferReader:
    """Return a stream that Arrow can seek in: a pipe or a compressed file is held in memory."""
    return stream if stream.seekable() else pa.BufferReader(stream.read())


def _parquet(stream: BinaryIO, name: str) -> TableReader:
    import pyarrow.parquet as pq  # takes a while to import, and most tables are CSV

    file = pq.ParquetFile(_seekable(stream))

    def batches(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for group in range(file.num_row_groups):  # over several groups Arrow keeps all that it has read
            yield from file.iter_batches(rows, [group], columns=names)

    return ArrowReader(name, file.schema_arrow, batches)


def _arrow_file(stream: BinaryIO, name: str) -> TableReader:
    file = pa.ipc.open_file(_seekable(stream))
    return ArrowReader(name, file.schema, lambda names, rows: map(file.get_batch, range(file.num_record_batches)))


def _arrow_stream(stream: BinaryIO, name: str) -> TableReader:
    file = pa.ipc.open_stream(stream)
    return ArrowReader(name, file.schema, lambda names, rows: iter(file))


FORMATS: dict[bytes, Callable[[BinaryIO, str], TableReader]] = {
    b"PAR1": _parquet,
    b"ARROW1": _arrow_file,
    b"\xff\xff\xff\xff": _arrow_stream,
}
"""The first bytes of each format with types, and what opens it; everything else is CSV."""

_FOREIGN = {
    re.compile(rb"PK\x03\x04|PK\x05\x06|\xd0\xcf\x11\xe0"): "a zip archive or an Excel workbook",
    re.compile(rb"%PDF"): "a PDF document",
    re.compile(rb"\s*(\{\s*(\"|\}|$)|\[\s*[\[{\"\]])"): "JSON",
    re.compile(rb"\s*<(!doctype|html|head|body|\?xml)\b", re.IGNORECASE): "a web page or XML",
    re.compile(rb"\x1f\x8b|\x93NUMPY|\x80[\x04\x05]\x95"): "binary data",
}
# Control characters that text files do not contain: all but tab, line feed, vertical tab, form feed, carriage return.
_CONTROLS = bytes(c for c in range(1, 32) if c not in b"\t\n\v\f\r")
_TOO_MANY_CONTROLS = 0.01


def _check_is_text(head: bytes, name: str) -> None:
    """Refuse files that are no tables, such as pictures and workbooks."""
    found = next((what for start, what in _FOREIGN.items() if start.match(head.removeprefix(b"\xef\xbb\xbf"))), None)
    if found is None and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        n_controls = len(head) - len(head.translate(None, _CONTROLS))
        found = "binary data" if n_controls > _TOO_MANY_CONTROLS * len(head) else None
    if found:
        raise TableError(f"{name} looks like {found}: save it as CSV, Parquet or Arrow")


class ParquetFolder:
    """The Parquet files in a folder and below, in order of name; folders named ``key=value`` are columns.

    Files whose name or folder starts with ``.`` or ``_`` are ignored.

    Parameters
    ----------
    folder : Path
    """

    def __init__(self, folder: Path) -> None:
        import pyarrow.dataset as ds

        self.name = folder.name or str(folder)
        found = [path for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
        self.paths = [p for p in found if not any(x.startswith((".", "_")) for x in p.relative_to(folder).parts)]
        if not self.paths:
            raise TableError(f"{shown(folder)} has no .parquet files: give a file, or a folder of Parquet files")
        schemas, names = [], [str(path) for path in self.paths]
        with explained(self.name, "folder of Parquet files"):
            files = ds.dataset(names, format="parquet", partitioning="hive", partition_base_dir=str(folder))
        for path, fragment in zip(self.paths, files.get_fragments(), strict=True):
            with explained(path.name, "Parquet file"):
                schemas.append(fragment.physical_schema)
            if different := set(schemas[-1].names) ^ set(schemas[0].names):
                problem = f"{path.name} and {self.paths[0].name} in {self.name} have different columns"
                raise TableError(f"{problem} ({listed(sorted(different))}): give a folder whose files have the same")
        keys = pa.schema([field for field in files.schema if field.name not in schemas[0].names])
        with explained(self.name, "folder of Parquet files"):
            schema = pa.unify_schemas([*schemas, keys], promote_options="permissive")
            self._files = ds.FileSystemDataset(list(files.get_fragments()), schema, files.format, files.filesystem)

    def reader(self, path: Path | None = None) -> TableReader:
        """Return a reader of all files, or of one of them."""
        chosen = [one for one in self._files.get_fragments() if path is None or one.path == str(path)]

        def batches(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
            options = {"schema": self._files.schema, "columns": names, "batch_size": rows, "batch_readahead": 1}
            return itertools.chain.from_iterable(fragment.to_batches(**options) for fragment in chosen)

        return ArrowReader(self.name if path is None else path.name, self._files.schema, batches)


def open_table(
    source: Source, *, delimiter: str | None = None, decimal: str | None = None, dayfirst: bool | None = None
) -> TableReader:
    r"""Open a table, to look at its columns before reading it once.

    CSV (delimited by ``, ; |``, tab or space), Parquet, Arrow and Feather are detected by their content, and so are
    gzip, bzip2, xz, zstd and lz4. Text may be UTF-8, UTF-16 with its mark, or Windows-1252.

    Parameters
    ----------
    source : path, "-" or binary stream
        ``"-"`` is standard input; a folder stands for the Parquet files in it.
    delimiter : str, optional
        The delimiter of a CSV file. By default it is detected.
    decimal : {".", ","}, optional
        The decimal sign of a CSV file. By default a comma is detected if the file is read whole and uses it
        consistently.
    dayfirst : bool, optional
        Whether dates such as 1.2.2024 in a CSV file begin with the day. By default days beyond the 12th tell, if the
        file is read whole; dates that remain ambiguous are read as text.

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
        return ParquetFolder(Path(source)).reader()
    name = source_name(source)
    stream, head, close = open_source(source)
    try:
        opener = next((opener for mark, opener in FORMATS.items() if head.startswith(mark)), None)
        if opener is None:
            _check_is_text(head, name)
            reader: TableReader = CsvReader(stream, name, delimiter, decimal=decimal, dayfirst=dayfirst)
        else:
            with explained(name, "table"):
                reader = opener(stream, name)
    except BaseException:
        close()
        raise
    reader.close = close
    return reader


def read_table(
    source: Source, *, delimiter: str | None = None, decimal: str | None = None, dayfirst: bool | None = None
) -> pa.Table:
    r"""Read a whole table, with types that fit all rows.

    A column of a CSV file holds integers, numbers, dates, times or truth values if all its fields do, and text
    otherwise. Integers with leading zeros are text. Empty fields are missing; so are NA, N/A, NaN, null, None, ``?``,
    ``-`` and spreadsheet errors such as #DIV/0! in a column that is otherwise not text.

    Parameters
    ----------
    source, delimiter, decimal, dayfirst
        As in :func:`open_table`.

    Examples
    --------
    >>> import io
    >>> read_table(io.BytesIO(b"size,kind\n1,cat\n?,\n")).to_pydict()
    {'size': [1, None], 'kind': ['cat', None]}
    """
    with open_table(source, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
        return reader.read()


def open_chunks(
    source: Source,
    *,
    columns: Mapping[str, pa.DataType] | None = None,
    chunk_rows: int = 65_536,
    delimiter: str | None = None,
    decimal: str | None = None,
    dayfirst: bool | None = None,
) -> Iterator[pa.RecordBatch]:
    r"""Read a table in chunks, in bounded memory.

    Parameters
    ----------
    source, delimiter, decimal, dayfirst
        As in :func:`open_table`.
    columns : dict of str to pyarrow.DataType, optional
        The columns to read and the type of each, as :meth:`Schema.arrow_types` returns them; a value of another type
        is an error. By default all columns are read, those of a CSV file as text.
    chunk_rows : int, default 65536
        The largest number of rows in a chunk.

    Yields
    ------
    pyarrow.RecordBatch

    Examples
    --------
    >>> import io
    >>> chunks = open_chunks(io.BytesIO(b"x\n1\n2\n3\n"), columns={"x": pa.float64()}, chunk_rows=2)
    >>> [chunk["x"].to_pylist() for chunk in chunks]
    [[1.0, 2.0], [3.0]]
    """
    with open_table(source, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
        yield from reader.chunks(columns, chunk_rows)


def read_labelled(
    source: Source,
    schema: Schema,
    classes: Collection[str],
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    strict: bool = True,
    allowed: Collection[str] = (),
) -> pa.Table:
    r"""Read a table with labels, each column with the type that the schema expects.

    The types that a file alone suggests may differ, for example in a text column that happens to hold only numbers. The
    labels are text: a label that is not a class as it is written is compared as a value, so that 2.0 is the class "2".

    Parameters
    ----------
    source : path, "-" or binary stream
    schema : Schema
        With its target.
    classes : names
        The classes of the model, as text.
    delimiter : str, optional
    decimal, dayfirst : optional
        The notation of a CSV file; by default that of the file that the schema was learned from.
    strict : bool
        Whether extra columns are an error.
    allowed : names
        Extra columns that are allowed in any case.

    Examples
    --------
    >>> import io
    >>> from demur.columns import Column
    >>> schema = Schema((Column("code", "category", ("A1", "7")),), target="y")
    >>> read_labelled(io.BytesIO(b"code,y\n7,01\n7,2.0\n"), schema, {"01", "2"}).to_pydict()
    {'code': ['7', '7'], 'y': ['01', '2']}
    """
    target = str(schema.target)
    decimal = schema.decimal if decimal is None else decimal
    dayfirst = schema.dayfirst if dayfirst is None else dayfirst
    with open_table(source, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
        extra = {name for name in allowed if name not in schema.names}
        there = {name: kind for name, kind in reader.columns.items() if name not in extra}
        schema.check(there, strict=strict, where=reader.name)
        if target not in reader.columns:
            problem = f"{reader.name} has no column {shown(target)} with the labels: it has {listed(reader.columns)}"
            raise TableError(f"{problem}; add it")
        types = {name: type_ or pa.string() for name, type_ in reader.columns.items()} | schema.arrow_types()
        typed = reader.columns[target] is not None
        table = pa.Table.from_batches(list(reader.chunks(types)))
    if typed:
        return table
    as_written, known = table[target].to_pylist(), set(classes)
    if known.issuperset(text for text in as_written if text is not None):
        return table
    as_read = class_texts(column_of_text(table[target], decimal=decimal, dayfirst=dayfirst)).tolist()
    labels = [text if text in known else label for text, label in zip(as_written, as_read, strict=True)]
    position = table.schema.get_field_index(target)
    return table.set_column(position, target, pa.array(labels, pa.string()))
