"""Open a path, standard input or a stream as decompressed bytes, and the interface of all table readers."""

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TypeAlias, cast

import pyarrow as pa

from demur.columns.frames import TableError, listed, plain_table, shown

__all__ = ["Source", "TableReader", "explained", "open_raw", "open_source", "source_name"]

Source: TypeAlias = str | os.PathLike[str] | IO[bytes]
"""A path, ``"-"`` for standard input, or a binary stream."""

_HEAD = 1 << 16
_COMPRESSIONS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": lambda stream: pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd"),
    b"\x04\x22\x4d\x18": lambda stream: pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "lz4"),
}
"""The first bytes of each compression, and what opens it."""


@contextmanager
def explained(name: str, what: str) -> Iterator[None]:
    """Turn what libraries raise about a file that they cannot read into one sentence."""
    try:
        yield
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, EOFError, zlib.error) as error:
        reason = str(error).rstrip(". ")
        problem = f"{name} cannot be read as a {what}; it is truncated, damaged or too large ({reason})"
        raise TableError(f"{problem}: write or copy it again") from error


class _Stream(io.RawIOBase):
    """A stream that starts with bytes that were already read from it; closing it leaves the original open."""

    def __init__(self, head: bytes, rest: Any, name: str) -> None:
        super().__init__()
        self._head, self._rest, self._name = head, rest, name

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = -1 if size is None or size < 0 else size
        block, self._head = (self._head, b"") if wanted < 0 else (self._head[:wanted], self._head[wanted:])
        if len(block) == wanted:
            return block
        with explained(self._name, "file"):
            return block + bytes(self._rest.read(wanted if wanted < 0 else wanted - len(block)))


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


def open_source(source: Source) -> tuple[BinaryIO, bytes, Callable[[], None]]:
    r"""Return the decompressed stream, its first bytes (which are still in it), and a function that closes the file.

    Examples
    --------
    >>> open_source(io.BytesIO(gzip.compress(b"a,b\n")))[1]
    b'a,b\n'
    """
    name = source_name(source)
    raw = open_raw(source)
    close = raw.close if isinstance(source, str | os.PathLike) and source != "-" else lambda: None
    try:
        with explained(name, "file"):
            head = raw.read(_HEAD)
            stream = _from_start(raw, head, name)
            for mark, opener in _COMPRESSIONS.items():
                if head.startswith(mark):
                    inner = opener(stream)
                    head = inner.read(_HEAD)
                    stream = cast(BinaryIO, _Stream(head, inner, name))
                    break
        if not head:
            raise TableError(f"{name} is empty: give a table with a header and at least one row")
    except BaseException:
        close()
        raise
    return stream, head, close


def _from_start(stream: IO[bytes], head: bytes, name: str) -> BinaryIO:
    """Return the stream from its start: by seeking where possible, because Parquet files are read by seeking."""
    if isinstance(stream, io.BufferedIOBase) and stream.seekable():
        stream.seek(-len(head), os.SEEK_CUR)
        return cast(BinaryIO, stream)
    return cast(BinaryIO, _Stream(head, stream, name))


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
            reason = getattr(error, "strerror", None) or error
            problem = f"{shown(source)} cannot be opened ({reason})"
            raise TableError(f"{problem}: check the path and its permissions") from error
    if isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
        kind = type(source).__name__
        raise TableError(f"a {kind} is neither a path nor a stream of bytes: give a path, or a stream of mode 'rb'")
    return source


class TableReader(ABC):
    """An open table that can be read once, whole or in chunks. Use it as a context manager.

    Parameters
    ----------
    name : str
        The name of the file in messages.
    columns : dict of str to pyarrow.DataType or None
        Its columns in order with their types; None in a CSV file, whose types depend on the rows.

    Attributes
    ----------
    decimal : {".", ","} or None
        The decimal sign of a CSV file; None if it is not known, and for formats with types.
    dayfirst : bool or None
        Whether dates such as 1.2.2024 begin with the day; None as for ``decimal``.
    """

    def __init__(self, name: str, columns: dict[str, pa.DataType | None]) -> None:
        self.name = name
        self.columns = columns
        self.close: Callable[[], None] = lambda: None
        self.decimal: str | None = None
        self.dayfirst: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self) -> pa.Table:
        """Return the whole table, with types that fit all rows."""
        table = plain_table(self._read())
        if not table.num_rows:
            raise self._no_rows()
        return table

    def chunks(self, columns: Mapping[str, pa.DataType] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Return the table in chunks, in bounded memory.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType, optional
            The columns to read, and the type of each. By default all are read, those of a CSV file as text.
        rows : int, default 65536
            The largest number of rows in a chunk.

        Yields
        ------
        pyarrow.RecordBatch
            With the columns in the order of ``columns``.
        """
        types = {name: type_ or pa.string() for name, type_ in self.columns.items()} if columns is None else columns
        for chunk, _ in self.chunks_and_copies(types, (), rows):
            yield chunk

    def chunks_and_copies(
        self, columns: Mapping[str, pa.DataType], copied: Collection[str], rows: int = 65_536
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Return chunks as :meth:`chunks` does, each with unchanged copies of some columns.

        A copy has the type that it has in the file; in a CSV file it is the text of the cells.
        """
        missing = [name for name in (*columns, *copied) if name not in self.columns]
        if missing:
            raise TableError(f"{self.name} has no column {listed(missing)}: it has {listed(self.columns)}")
        if rows < 1:
            raise TableError(f"a chunk of {rows} rows cannot be read: ask for at least one")
        empty = True
        for batch, copies in self._chunks(columns, copied, rows):
            for start in range(0, batch.num_rows, rows):
                empty = False
                yield batch.slice(start, rows), copies.slice(start, rows)
        if empty:
            raise self._no_rows()

    def _no_rows(self) -> TableError:
        return TableError(f"{self.name} has columns but no rows: give at least one row")

    @abstractmethod
    def _read(self) -> pa.Table: ...

    @abstractmethod
    def _chunks(
        self, columns: Mapping[str, pa.DataType], copied: Collection[str], rows: int
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]: ...
