"""Where the bytes of a table come from: a file, standard input or a stream, decompressed by what they begin with."""

import bz2
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, TypeAlias, cast

import pyarrow as pa

from demur.columns.table_errors import TableError, shown

__all__ = ["Opened", "Rewound", "Source", "open_source", "source_name"]

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


class _Decompressed(io.RawIOBase):
    """A decompressed stream whose damage is a :class:`TableError`, wherever in the file it shows."""

    def __init__(self, stream: Any, name: str) -> None:
        super().__init__()
        self._stream = stream
        self._name = name

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        try:
            return bytes(self._stream.read() if size is None or size < 0 else self._stream.read(size))
        except (EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowException) as error:
            problem = f"{self._name} is truncated or damaged ({error}): make or copy the compressed file again"
            raise TableError(problem) from error


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
    raw = _open(source)
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
            inner = _Decompressed(opener(_as_stream(raw, head)), name)
            head = inner.read(_HEAD)
            return cast(BinaryIO, Rewound(head, cast(IO[bytes], inner))), head
    return _as_stream(raw, head), head


def _as_stream(stream: IO[bytes], head: bytes) -> BinaryIO:
    """Go back to the start: by seeking where that is possible, since Parquet files are read by seeking."""
    if isinstance(stream, io.BufferedIOBase) and stream.seekable():
        stream.seek(-len(head), os.SEEK_CUR)
        return cast(BinaryIO, stream)
    return cast(BinaryIO, Rewound(head, stream))


def _open(source: Source) -> IO[bytes]:
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
