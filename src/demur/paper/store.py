"""The store: a folder with one file per unit, each written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from demur.errors import UserError
from demur.paper.records import DamagedRecordError, Record

__all__ = ["Store", "StoreError", "UnusableFolderError"]


class StoreError(UserError):
    """A record could not be written: the disk is full, or the folder has gone."""


class UnusableFolderError(StoreError):
    """The output folder cannot be made or written to: the call was wrong."""


class Store:
    """Records of one experiment under an output folder.

    Parameters
    ----------
    out : path
    experiment : str

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as out:
    ...     len(list(Store(out, "benchmark").records()))
    0
    """

    def __init__(self, out: str | os.PathLike[str], experiment: str) -> None:
        self.folder = Path(out) / "records" / experiment
        self.damaged: dict[Path, str] = {}
        """Files found damaged so far, with the reason."""

    def check_writable(self) -> None:
        """Make the folder, and write and remove a small file in it.

        Raises
        ------
        UnusableFolderError
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(b"demur")
        except OSError as error:
            raise UnusableFolderError(
                f"cannot write to {self.folder}: {error.strerror or error}. Choose another folder with --out."
            ) from error

    def write(self, name: str, record: Record) -> None:
        """Write a record so that a reader sees all of it or nothing, even if the machine stops in between.

        Raises
        ------
        StoreError
        """
        path = self.folder / f"{name}.json"
        try:
            for leftover in self.folder.glob(f".{name}.*.tmp"):
                leftover.unlink(missing_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=f".{name}.", suffix=".tmp", dir=self.folder)
            with os.fdopen(descriptor, "w") as file:
                file.write(record.to_json())
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
            _sync_folder(self.folder)
        except OSError as error:
            raise StoreError(
                f"cannot write the record {path}: {error.strerror or error}. What is finished is kept; make room, then "
                "run the same command again to continue."
            ) from error

    def records(self) -> Iterator[Record]:
        """Yield every readable record, in the order of the file names; note the damaged ones in ``damaged``."""
        for path in sorted(self.folder.glob("*.json")):
            try:
                yield Record.from_json(path.read_text())
            except (DamagedRecordError, OSError, UnicodeDecodeError) as error:
                self.damaged[path] = str(error)


def _sync_folder(folder: Path) -> None:
    """Make a rename last; only POSIX can, and needs to."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
