"""A file that appears under its name only once it is whole."""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from demur.columns.table_errors import TableError, shown

__all__ = ["Destination"]


class Destination:
    r"""A file to be written: under a name that ends in ``.part`` at first, renamed when it is complete.

    Parameters
    ----------
    path : Path
    overwrite : bool
        Whether a file that is already there is replaced.
    inputs : paths
        Files and folders that are being read, which are never written to.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> destination = Destination(path)
    >>> written = destination.file.write(b"done\n")
    >>> path.exists()
    False
    >>> destination.commit()
    >>> path.read_text()
    'done\n'
    """

    def __init__(self, path: Path, *, overwrite: bool = False, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.path = path
        self._overwrite = overwrite
        self._check_inputs([Path(one) for one in inputs if str(one) != "-"])
        self._check_free()
        # A device or a pipe is written to directly: renaming a file onto /dev/null would replace it.
        self._in_place = path.exists() and not path.is_file()
        self._part = path if self._in_place else path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
        self.file: BinaryIO = self._open()

    def commit(self) -> None:
        """Put the file in its place."""
        try:
            self.file.close()
            if not self._in_place:
                with open(self._part, "rb+") as part:
                    os.fsync(part.fileno())  # so that a crash of the machine leaves no short file under the name
                self._check_free()  # another run may have written it meanwhile
                os.replace(self._part, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what has been written."""
        with suppress(OSError):  # what cannot be flushed to a full disk is not wanted any more
            self.file.close()
        if not self._in_place:
            self._part.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        try:
            return open(self._part, "wb" if self._in_place else "xb")
        except FileNotFoundError as error:
            problem = f"there is no folder {shown(self.path.parent)} to write {self.path.name} to"
            raise TableError(f"{problem}: create it, or choose another") from error
        except OSError as error:
            raise TableError(f"{shown(self.path)} cannot be written ({error.strerror}): choose another name") from error

    def _check_free(self) -> None:
        if self.path.is_dir():
            raise TableError(f"{shown(self.path)} is a folder: give the name of a file")
        if self.path.is_file() and not self._overwrite:
            raise TableError(f"{shown(self.path)} is already there: choose another name, or pass --force to replace it")

    def _check_inputs(self, inputs: list[Path]) -> None:
        for one in inputs:
            if one.is_dir():
                onto = one.resolve() in self.path.resolve().parents
            else:
                onto = one.exists() and self.path.exists() and one.samefile(self.path)
            if onto:
                raise TableError(f"{shown(self.path)} is what is being read: write to another name or folder")
