"""Read a table from a file, a folder, standard input or a stream; the format is found by looking inside."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from demur.tabular.columnar import ArrowReader, FolderReader, ParquetReader
from demur.tabular.csv_reader import CsvReader
from demur.tabular.formats import Format, recognise
from demur.tabular.reader import TableReader
from demur.tabular.sources import Opened, Source, open_source, source_name

__all__ = ["open_chunks", "open_table", "read_table"]


def open_table(source: Source, *, delimiter: str | None = None) -> TableReader:
    r"""Open a table, to look at its columns before reading it once.

    CSV (with any of ``, ; | tab space``), Parquet, Arrow and Feather are known by their content, as are gzip, bzip2,
    xz, zstd and lz4 around them. Text may be UTF-8, UTF-16 with its mark, or Windows-1252.

    Parameters
    ----------
    source : path, "-" or binary stream
        ``"-"`` is standard input; a folder stands for the Parquet files in it.
    delimiter : str, optional
        What separates the fields of a CSV file, where it should not be guessed.

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
        reader = _reader(opened, source_name(source), delimiter)
    except BaseException:
        opened.close()
        raise
    reader.closer = opened.close
    return reader


def _reader(opened: Opened, name: str, delimiter: str | None) -> TableReader:
    format_ = recognise(opened.head, name)
    if format_ is Format.CSV:
        return CsvReader(opened.stream, name, delimiter)
    if format_ is Format.PARQUET:
        return ParquetReader(opened.stream, name)
    return ArrowReader(opened.stream, name, format_)


def read_table(source: Source, *, delimiter: str | None = None) -> pa.Table:
    r"""Read a whole table, its types decided over all rows.

    In a CSV file a column is a column of integers, numbers, dates, times or truth values if all its fields are, and
    text otherwise. Empty fields are missing; so are NA, N/A, NaN, null, None, ``?`` and ``-`` where a column would
    otherwise be all numbers, dates, times or truth values.

    Parameters
    ----------
    source, delimiter
        As in :func:`open_table`.

    Examples
    --------
    >>> import io
    >>> read_table(io.BytesIO(b"size,kind\n1,cat\n?,\n")).to_pydict()
    {'size': [1, None], 'kind': ['cat', None]}
    """
    with open_table(source, delimiter=delimiter) as reader:
        return reader.read()


def open_chunks(
    source: Source,
    *,
    columns: Mapping[str, Any] | None = None,
    chunk_rows: int = 65_536,
    delimiter: str | None = None,
) -> Iterator[pa.RecordBatch]:
    r"""Read a table piece by piece, in bounded memory.

    Parameters
    ----------
    source, delimiter
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
    with open_table(source, delimiter=delimiter) as reader:
        yield from reader.chunks(columns, chunk_rows)
