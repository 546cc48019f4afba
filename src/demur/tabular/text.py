"""Text as UTF-8, whatever encoding a file is in, decided while it streams."""

import codecs
import io
import warnings
from typing import IO

from demur.columns.table_errors import TableError, TableWarning

__all__ = ["Utf8Stream"]

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
        self.n_quotes = 0
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
            self.n_quotes += self._ready.count(b'"')
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

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        return codecs.charmap_decode(data, "strict", self._letters)[0]
