"""Where tables come from: files, streams and compressed ones as bytes, and what every format offers of them."""

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, BinaryIO, Self, TypeAlias, cast

import pyarrow as pa

from demur.columns.frames import TableError, TableWarning, listed, plain_table, shown

__all__ = ["Opened", "Rewound", "Source", "TableReader", "Utf8Stream", "open_raw", "open_source", "source_name"]

Source: TypeAlias = str | os.PathLike[str] | IO[bytes]
"""A path, ``"-"`` for standard input, or a binary stream."""

_HEAD = 1 << 16


class Rewound(io.RawIOBase):
    """A stream with bytes put back in front of it: pipes cannot seek, and their beginning tells the format.

    Closing it, as Python does with what is no longer used, leaves the stream below open: it may be standard input.
    """

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        super().__init__()
        self._head = head
        self._rest = rest

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, of the head first."""
        if not self._head:
            return self._rest.read(-1 if size is None else size)
        if size is None or size < 0:
            block, self._head = self._head, b""
            return block + self._rest.read()
        block, self._head = self._head[:size], self._head[size:]
        return block if len(block) == size else block + self._rest.read(size - len(block))


MOST_UNPACKED, MOST_TIMES = 1 << 29, 200
"""What a table may unpack to in any case, in bytes; and how many times its size it may beyond that."""


def too_much(name: str, packed: int, unpacked: int) -> TableError | None:
    """Return the error for a file that unpacks to far more than any table does, if this one has so far.

    Examples
    --------
    >>> too_much("rows.csv.gz", packed=4_000_000, unpacked=40_000_000) is None
    True
    >>> str(too_much("lines.csv.gz", packed=4_000_000, unpacked=4_000_000_000))
    'lines.csv.gz has 4,000,000 bytes so far and unpacks to more than 4,000,000,000, which no table does: ...
    """
    if unpacked <= max(MOST_UNPACKED, MOST_TIMES * packed):
        return None
    problem = f"{name} has {packed:,} bytes so far and unpacks to more than {unpacked:,}, which no table does"
    return TableError(f"{problem}: make it again, or unpack it yourself if you trust it")


class _Counted(io.RawIOBase):
    """A stream that counts what is read from it."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self._stream = stream
        self.taken = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        part: bytes = self._stream.read(-1 if size is None else size)
        self.taken += len(part)
        return part


class _Decompressed(io.RawIOBase):
    """A decompressed stream whose damage is a :class:`TableError`, wherever in the file it shows, and its size too."""

    def __init__(self, opener: Callable[[Any], Any], stream: Any, name: str) -> None:
        super().__init__()
        self._packed = _Counted(stream)
        self._stream = opener(self._packed)
        self._name = name
        self._unpacked = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size >= 0:
            return self._some(size)
        parts = []
        while part := self._some(_BLOCK):
            parts.append(part)
        return b"".join(parts)

    def _some(self, size: int) -> bytes:
        try:
            part = bytes(self._stream.read(size))
        except (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            problem = f"{self._name} is truncated or damaged ({error}): make or copy the compressed file again"
            raise TableError(problem) from error
        self._unpacked += len(part)
        error_ = too_much(self._name, self._packed.taken, self._unpacked)
        if error_ is not None:
            raise error_
        return part


def _by_arrow(codec: str) -> Callable[[Any], Any]:
    return lambda stream: pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), codec)


_COMPRESSIONS: dict[bytes, Callable[[Any], Any]] = {
    b"\x1f\x8b": lambda stream: gzip.GzipFile(fileobj=stream),
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
    b"\x28\xb5\x2f\xfd": _by_arrow("zstd"),
    b"\x04\x22\x4d\x18": _by_arrow("lz4"),
}


def source_name(source: Source) -> str:
    """Return what messages call a source.

    Examples
    --------
    >>> source_name("data/train.csv"), source_name("-"), source_name(io.BytesIO())
    ('train.csv', 'standard input', 'the stream')
    """
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else Path(source).name or str(source)
    name = getattr(source, "name", None)
    return Path(name).name if isinstance(name, str) else "the stream"


@dataclass(frozen=True)
class Opened:
    """An open source.

    Parameters
    ----------
    stream : binary stream
        Its bytes, decompressed.
    head : bytes
        The first of them, which are in the stream as well.
    close : callable
        Closes the file; does nothing to a stream that was open before.
    """

    stream: BinaryIO
    head: bytes
    close: Callable[[], None]


def open_source(source: Source) -> Opened:
    r"""Open a source and look at how it begins.

    Examples
    --------
    >>> open_source(io.BytesIO(gzip.compress(b"a,b\n"))).head
    b'a,b\n'
    """
    name = source_name(source)
    raw = open_raw(source)
    close = raw.close if isinstance(source, str | os.PathLike) and source != "-" else _leave_open
    try:
        stream, head = _decompressed(raw, _read_head(raw, name), name)
    except BaseException:
        close()
        raise
    if not head:
        close()
        raise TableError(f"{name} is empty: give a table with a header and at least one row")
    return Opened(stream, head, close)


def _leave_open() -> None:
    pass


def _read_head(raw: IO[bytes], name: str) -> bytes:
    try:
        return raw.read(_HEAD)
    except (OSError, ValueError) as error:
        raise TableError(f"{name} cannot be read ({error}): check that it is a file or an open stream") from error


def _decompressed(raw: IO[bytes], head: bytes, name: str) -> tuple[BinaryIO, bytes]:
    for magic, opener in _COMPRESSIONS.items():
        if head.startswith(magic):
            inner = _Decompressed(opener, _as_stream(raw, head), name)
            head = inner.read(_HEAD)
            return cast(BinaryIO, Rewound(head, cast(IO[bytes], inner))), head
    return _as_stream(raw, head), head


def _as_stream(stream: IO[bytes], head: bytes) -> BinaryIO:
    """Go back to the start: by seeking where that is possible, since Parquet files are read by seeking."""
    if isinstance(stream, io.BufferedIOBase) and stream.seekable():
        stream.seek(-len(head), os.SEEK_CUR)
        return cast(BinaryIO, stream)
    return cast(BinaryIO, Rewound(head, stream))


def open_raw(source: Source) -> IO[bytes]:
    """Open a source as it is, without looking inside."""
    if isinstance(source, str | os.PathLike):
        if source == "-":
            return sys.stdin.buffer
        try:
            return open(source, "rb")
        except (OSError, ValueError) as error:
            raise TableError(_unopened(source, error)) from error
    if isinstance(source, io.TextIOBase) or not hasattr(source, "read"):
        kind = type(source).__name__
        raise TableError(f"a {kind} is neither a path nor a stream of bytes: give a path, or a stream of mode 'rb'")
    return source


def _unopened(source: str | os.PathLike[str], error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {shown(source)}: check the path"
    if isinstance(error, PermissionError):
        return f"{shown(source)} may not be read: check its permissions"
    reason = getattr(error, "strerror", None) or error
    return f"{shown(source)} cannot be opened ({reason}): check the path"


_BLOCK = 1 << 20
_LONGEST_CHARACTER = 4
_UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}


class Utf8Stream(io.RawIOBase):
    r"""The bytes of a text file as UTF-8 without a mark, checked on the way.

    UTF-16 is known by its mark. Bytes that are not UTF-8 are read as Windows-1252 with a warning, provided that all
    before them was ASCII, so that what has been handed out stays right. NUL bytes are refused.

    Parameters
    ----------
    raw : binary stream
    name : str
        What messages call it.

    Examples
    --------
    >>> Utf8Stream(io.BytesIO("\ufeffé".encode("utf-16-le")), "data.csv").read().decode()
    'é'
    """

    def __init__(self, raw: IO[bytes], name: str) -> None:
        super().__init__()
        self.n_lines = 0
        self._raw = raw
        self._name = name
        self._ready = b""
        self._held = b""  # the beginning of a character whose end is in the next block
        self._only_ascii = True
        self._ended = False
        self._decoder = self._by_mark()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return exactly ``size`` bytes, fewer only at the end: Arrow copies into a buffer of that size."""
        wanted = float("inf") if size is None or size < 0 else size
        parts, total = [], 0
        while total < wanted:
            if not self._ready and not self._fill(_BLOCK if size is None or size < 0 else size):
                break
            part = self._ready if len(self._ready) <= wanted - total else self._ready[: int(wanted - total)]
            self._ready = self._ready[len(part) :]
            parts.append(part)
            total += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _by_mark(self) -> codecs.IncrementalDecoder | None:
        start = self._raw.read(len(codecs.BOM_UTF8))
        for mark, encoding in _UTF16.items():
            if start.startswith(mark):
                self._held = start[len(mark) :]
                return codecs.getincrementaldecoder(encoding)()
        self._held = start.removeprefix(codecs.BOM_UTF8)
        return None

    def _fill(self, size: int) -> bool:
        """Read and convert until something is ready; tell whether anything is."""
        while not self._ready and not self._ended:
            block = self._raw.read(max(size, _LONGEST_CHARACTER))
            self._ended = not block
            data, self._held = self._held + block, b""
            self._ready = self._converted(data)
            self._check_nul()
            self.n_lines += self._ready.count(b"\n") or self._ready.count(b"\r")
        return bool(self._ready)

    def _converted(self, data: bytes) -> bytes:
        if self._decoder is not None:
            try:
                return self._decoder.decode(data, final=self._ended).encode()
            except UnicodeError as error:
                where = f"near line {self.n_lines + 1:,}"
                raise TableError(f"{self._name} is damaged UTF-16 {where}: save it as UTF-8") from error
        if data.isascii():
            return data
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and not self._ended:
                data, self._held = data[: error.start], data[error.start :]
            else:
                return self._fall_back(data, error)
        self._only_ascii = self._only_ascii and data.isascii()
        return data

    def _fall_back(self, data: bytes, error: UnicodeDecodeError) -> bytes:
        line = self.n_lines + data[: error.start].count(b"\n") + 1
        if not (self._only_ascii and data[: error.start].isascii()):
            byte = f"0x{data[error.start]:02X}"
            problem = f"{self._name} is UTF-8 up to line {line:,}, where the byte {byte} is not: save it as UTF-8"
            raise TableError(problem) from error
        notice = f"{self._name} is not UTF-8 (line {line:,}): read as Windows-1252; save it as UTF-8 to be sure"
        warnings.warn(notice, TableWarning, stacklevel=2)
        self._decoder = _WindowsDecoder()
        return self._decoder.decode(data).encode()

    def _check_nul(self) -> None:
        position = self._ready.find(b"\0")
        if position >= 0:
            line = self.n_lines + self._ready[:position].count(b"\n") + 1
            problem = f"{self._name} holds a NUL byte in line {line:,}, so it is damaged, or UTF-16 without its mark"
            raise TableError(f"{problem}: save it as UTF-8 text")


class _WindowsDecoder(codecs.IncrementalDecoder):
    """Windows-1252, with the five bytes that it leaves undefined read as Latin-1 reads them."""

    _letters = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256))

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override] # it reads bytes alone
        return codecs.charmap_decode(data, "strict", self._letters)[0]


class TableFormat(Enum):
    """The formats that tables are read from."""

    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW_FILE = "Arrow file"
    ARROW_STREAM = "Arrow stream"


class TableReader(ABC):
    """An open table, which is read once: whole, or in chunks. It is its own context manager.

    Parameters
    ----------
    name : str
        What messages call the file.
    columns : dict of str to pyarrow.DataType or None
        Its columns in order, with their types; None in a CSV file, whose fields are text until they are read.

    Attributes
    ----------
    decimal : {".", ","} or None
        The decimal sign of a text file; None while nothing says so, and for files that carry their types.
    dayfirst : bool or None
        Whether dates such as 1.2.2024 begin with the day, likewise.
    """

    def __init__(self, name: str, columns: dict[str, pa.DataType | None]) -> None:
        self.name = name
        self.columns = columns
        self.closer: Callable[[], None] | None = None
        self.decimal: str | None = None
        self.dayfirst: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self.closer is not None:
            self.closer()

    def read(self) -> pa.Table:
        """Return the whole table, its types decided over all rows."""
        table = plain_table(self._read())
        if not table.num_rows:
            raise self._no_rows()
        return table

    def chunks(self, columns: Mapping[str, pa.DataType] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Return the table piece by piece, in bounded memory.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType, optional
            The columns to read, and the type of each. Without it all are read, those of a CSV file as text.
        rows : int, default 65536
            The most rows of a chunk.

        Yields
        ------
        pyarrow.RecordBatch
            With the columns in the order of ``columns``.
        """
        if columns is not None:
            missing = [name for name in columns if name not in self.columns]
            if missing:
                raise TableError(f"{self.name} has no column {listed(missing)}: it has {listed(self.columns)}")
        if rows < 1:
            raise TableError(f"a chunk of {rows} rows cannot be read: ask for at least one")
        empty = True
        for batch in self._chunks(columns, rows):
            plain = plain_table(batch)
            for start in range(0, plain.num_rows, rows):
                empty = False
                yield plain.slice(start, rows)
        if empty:
            raise self._no_rows()

    def _no_rows(self) -> TableError:
        return TableError(f"{self.name} has columns but no rows: give at least one row")

    @abstractmethod
    def _read(self) -> pa.Table: ...

    @abstractmethod
    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]: ...
