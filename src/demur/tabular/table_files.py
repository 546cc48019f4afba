"""Read a table from a file, a folder, standard input or a stream; the format is found by looking inside."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pyarrow as pa

from demur.columns.frames import TableError, listed, shown
from demur.columns.schema import Schema
from demur.tabular.arrow_files import ArrowReader, FolderReader, ParquetReader
from demur.tabular.class_labels import class_texts
from demur.tabular.csv_files import CsvReader, column_of_text
from demur.tabular.table_sources import Opened, Source, TableFormat, TableReader, open_source, source_name

__all__ = ["open_chunks", "open_table", "read_labelled", "read_table", "recognise"]


def open_table(
    source: Source, *, delimiter: str | None = None, decimal: str | None = None, dayfirst: bool | None = None
) -> TableReader:
    r"""Open a table, to look at its columns before reading it once.

    CSV (with any of ``, ; | tab space``), Parquet, Arrow and Feather are known by their content, as are gzip, bzip2,
    xz, zstd and lz4 around them. Text may be UTF-8, UTF-16 with its mark, or Windows-1252.

    Parameters
    ----------
    source : path, "-" or binary stream
        ``"-"`` is standard input; a folder stands for the Parquet files in it.
    delimiter : str, optional
        What separates the fields of a CSV file, where it should not be guessed.
    decimal : {".", ","}, optional
        The decimal sign of a CSV file. By default it is a comma where the file is read whole and consistently so.
    dayfirst : bool, optional
        Whether dates such as 1.2.2024 in a CSV file begin with the day. By default days beyond the 12th tell, where
        the file is read whole; what nothing tells stays text.

    Raises
    ------
    TableError
        If there is no table in it that can be read.

    Examples
    --------
    >>> import io
    >>> with open_table(io.BytesIO(b"size;kind\n1.5;cat\n")) as reader:
    ...     list(reader.columns), next(reader.chunks({"size": pa.float64()})).to_pydict()
    (['size', 'kind'], {'size': [1.5]})
    """
    if isinstance(source, str | os.PathLike) and source != "-" and Path(source).is_dir():
        return FolderReader(Path(source))
    opened = open_source(source)
    try:
        reader = _reader(opened, source_name(source), delimiter, decimal, dayfirst)
    except BaseException:
        opened.close()
        raise
    reader.closer = opened.close
    return reader


def _reader(
    opened: Opened, name: str, delimiter: str | None, decimal: str | None, dayfirst: bool | None
) -> TableReader:
    format_ = recognise(opened.head, name)
    if format_ is TableFormat.CSV:
        return CsvReader(opened.stream, name, delimiter, decimal=decimal, dayfirst=dayfirst)
    if format_ is TableFormat.PARQUET:
        return ParquetReader(opened.stream, name)
    return ArrowReader(opened.stream, name, format_)


def read_table(
    source: Source, *, delimiter: str | None = None, decimal: str | None = None, dayfirst: bool | None = None
) -> pa.Table:
    r"""Read a whole table, its types decided over all rows.

    In a CSV file a column is a column of integers, numbers, dates, times or truth values if all its fields are, and
    text otherwise. Empty fields are missing; so are NA, N/A, NaN, null, None, ``?`` and ``-`` where a column would
    otherwise be all numbers, dates, times or truth values, and the errors of a spreadsheet such as #DIV/0!.

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
    r"""Read a table piece by piece, in bounded memory.

    Parameters
    ----------
    source, delimiter, decimal, dayfirst
        As in :func:`open_table`.
    columns : dict of str to pyarrow.DataType, optional
        The columns to read, and the type to insist on for each, as :meth:`Schema.arrow_types` gives them; a value
        that is not of that type is an error naming it. Without it all are read, those of a CSV file as text.
    chunk_rows : int, default 65536
        The most rows of a chunk.

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
    r"""Read a table with labels, each column as the type that the schema knows.

    What a file alone would suggest may differ: a text column with only numbers in it, or labels 01 and 02 beside which
    the training rows had others. Labels become text; one that is not a class as it is written is one as it is read.

    Parameters
    ----------
    source : path, "-" or binary stream
    schema : Schema
        With its target.
    classes : names
        Of the model, as text.
    delimiter : str, optional
    decimal, dayfirst : optional
        How a CSV file writes numbers and dates; by default as the one that the schema was learnt from.
    strict : bool
        Whether extra columns are an error.
    allowed : names
        Extra columns that are none.

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
    as_read = class_texts(column_of_text(table[target], decimal, dayfirst)).tolist()
    labels = [text if text in known else label for text, label in zip(as_written, as_read, strict=True)]
    position = table.schema.get_field_index(target)
    return table.set_column(position, target, pa.array(labels, pa.string()))


_TABLES = {
    b"PAR1": TableFormat.PARQUET,
    b"ARROW1": TableFormat.ARROW_FILE,
    b"\xff\xff\xff\xff": TableFormat.ARROW_STREAM,
}
_OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"PK\x05\x06": "an empty zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "an SQLite database",
    b"\x93NUMPY": "a NumPy array",
    b"FEA1": "a Feather file of version 1",
    b"PARE": "an encrypted Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x1f\x9d": "a file made by compress",
    b"\x80\x04\x95": "a Python pickle",
    b"\x80\x05\x95": "a Python pickle",
    b"\x7fELF": "a program",
}
_MARKUP = {
    re.compile(rb"\{\s*(\"|\}|$)|\[\s*[\[{\"\]]"): "JSON",
    re.compile(rb"<(!doctype|html|head|body)\b", re.IGNORECASE): "a web page",
    re.compile(rb"<\?xml"): "XML",
}
_ARCHIVE_MARK = slice(257, 262)  # where a tar archive says that it is one
# Control characters that no text file holds: all but tab, line feed, vertical tab, form feed and carriage return.
_CONTROLS = bytes(c for c in range(1, 32) if c not in b"\t\n\v\f\r")
_TOO_MANY_CONTROLS = 0.01


def recognise(head: bytes, name: str) -> TableFormat:
    r"""Return the format of a table that begins with ``head``, or say what it is instead.

    Examples
    --------
    >>> recognise(b"a,b\n1,2\n", "data.csv"), recognise(b"PAR1\x15\x04", "data.csv")
    (<TableFormat.CSV: 'CSV'>, <TableFormat.PARQUET: 'Parquet'>)
    >>> recognise(b'[{"a": 1}]', "data.csv")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.csv looks like JSON: save it as CSV, Parquet or Arrow
    """
    for magic, table in _TABLES.items():
        if head.startswith(magic):
            return table
    found = next((what for magic, what in _OTHERS.items() if head.startswith(magic)), None)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    found = found or next((what for pattern, what in _MARKUP.items() if pattern.match(text)), None)
    if head[_ARCHIVE_MARK] == b"ustar":
        found = "a tar archive"
    if found is None and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        controls = len(head) - len(head.translate(None, _CONTROLS))
        if controls > _TOO_MANY_CONTROLS * len(head):
            found = "binary data"
    if found:
        raise TableError(f"{name} looks like {found}: save it as CSV, Parquet or Arrow")
    return TableFormat.CSV
