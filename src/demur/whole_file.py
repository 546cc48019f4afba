"""Files and folders that are written completely or not at all, even if the machine stops in between."""

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from demur.array_types import FilePath


def part_of(path: Path) -> Path:
    """Return a hidden temporary name beside a path.

    Examples
    --------
    >>> part_of(Path("notes.txt")).name.startswith(".notes.txt.")
    True
    """
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock beside a path while the block runs; other processes that ask for it wait.

    The operating system releases the lock when the process ends, however it ends.

    Examples
    --------
    >>> import tempfile
    >>> state = Path(tempfile.mkdtemp()) / "state.json"
    >>> with locked(state):
    ...     _ = write_whole(state, "{}")
    """
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {path.parent} does not exist; make it first.")
    with FileLock(path.with_name(f".{path.name}.lock")):
        yield


def write_whole(path: FilePath, content: str | bytes, *, overwrite: bool = False) -> Path:
    r"""Write a file completely or not at all, and return its path.

    Parameters
    ----------
    path : path
        Its folder is created if it does not exist.
    content : str or bytes
    overwrite : bool, default False
        Whether an existing file may be replaced.

    Raises
    ------
    FileExistsError, IsADirectoryError

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> write_whole(path, "one\n").read_text()
    'one\n'
    >>> write_whole(path, "two\n")
    Traceback (most recent call last):
    FileExistsError: ...notes.txt exists already; choose another name or allow it to be replaced.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it.")
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists already; choose another name or allow it to be replaced.")
    with open_whole(target) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return target


@contextmanager
def open_whole(target: Path) -> Iterator[BinaryIO]:
    r"""Open a new file for writing; it appears under its name, or replaces an existing file, at the end of the block.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with open_whole(path) as file:
    ...     _ = file.write(b"one\n")
    ...     path.exists()
    False
    >>> path.read_text()
    'one\n'
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(target)
    try:
        with part.open("xb") as file:
            yield file
        with part.open("rb+") as written:
            os.fsync(written.fileno())  # a crash of the machine must not leave a short file under the name
        part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def move_into_place(new: Path, path: Path) -> None:
    """Move a complete folder to its path, and remove the folder that was there before.

    What killed processes have left behind is removed as well: replaced folders, and incomplete ones after an hour.
    The old folder is renamed first; :func:`recover` renames it back if the process is killed before the new one is in
    place.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("new", "model"):
    ...     (folder / name).mkdir()
    ...     _ = (folder / name / "file").write_text(name)
    >>> move_into_place(folder / "new", folder / "model")
    >>> [path.name for path in folder.iterdir()], (folder / "model" / "file").read_text()
    (['model'], 'new')
    """
    _sync_folder(new)
    old = part_of(path).with_suffix(".replaced")
    with suppress(FileNotFoundError):  # there is none
        path.rename(old)
    try:
        new.rename(path)
    except BaseException as error:
        if isinstance(error, OSError) and path.exists():  # of another process, or put back by a reader: replace it
            move_into_place(new, path)
            return
        with suppress(FileNotFoundError):
            old.rename(path)
        raise
    _sync_folder(path.parent)
    for one in _aside(path, "*"):
        with suppress(OSError):  # another process may remove it as well
            if one.suffix == ".replaced" or time.time() - one.stat().st_mtime > _SECONDS_OF_A_SAVE:
                shutil.rmtree(one)


_SECONDS_OF_A_SAVE = 3600
"""Seconds after which an incomplete folder is no longer being written."""


def _aside(path: Path, ending: str) -> list[Path]:
    """Return the temporary names beside a path that exist."""
    return list(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 12}.{ending}"))


def recover(path: Path) -> None:
    """Rename back a folder that :func:`move_into_place` had renamed when its process was killed.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> (folder / ".model.0123456789ab.replaced").mkdir()
    >>> recover(folder / "model")
    >>> [path.name for path in folder.iterdir()]
    ['model']
    """
    if path.exists() or path.is_symlink() or not path.name or not path.parent.is_dir():
        return
    with suppress(OSError, ValueError):  # there is none, or the process that replaces the folder was quicker
        max(_aside(path, "replaced"), key=lambda one: one.stat().st_mtime_ns).rename(path)


def _sync_folder(folder: Path) -> None:
    """Write a rename to the disk, on POSIX systems."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
