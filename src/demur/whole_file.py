"""Files and folders that are there whole or not at all, even if the machine stops in between."""

import ctypes
import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["move_into_place", "part_of", "recover", "write_whole"]


_STALE = 86_400
"""Seconds after which an incomplete file belongs to a run that was killed."""


def part_of(path: Path) -> Path:
    """Return a hidden name beside a path for a file or folder in progress, and remove what killed runs have left."""
    own = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.part")
    for one in path.parent.iterdir() if path.parent.is_dir() else ():
        with suppress(OSError):  # another process may remove it first
            if own.fullmatch(one.name) and time.time() - one.stat().st_mtime > _STALE:
                shutil.rmtree(one) if one.is_dir() else one.unlink()
    return path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")


def write_whole(path: str | os.PathLike[str], content: str | bytes, *, overwrite: bool = False) -> Path:
    r"""Write a file that appears under its name once it is complete, and return its path.

    Parameters
    ----------
    path : path
        Its folder is created if it does not exist.
    content : str or bytes
    overwrite : bool, default False
        Whether a file that is there already may be replaced.

    Raises
    ------
    FileExistsError, IsADirectoryError
        If it cannot be written there; in one sentence.

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
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_of(target)
    try:
        with part.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())  # so that a crash of the machine leaves no short file under the name
        part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)
    return target


def move_into_place(new: Path, path: Path) -> None:
    """Give a complete folder its name; what was there before is removed after that.

    On Linux the two folders are exchanged in one step, so that the path is never empty. Elsewhere the old one steps
    aside for a moment, from where :func:`recover` brings it back if the process is killed just then.

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
    if not path.exists():
        new.rename(path)
    elif _exchange(new, path):
        _sync_folder(path.parent)
        shutil.rmtree(new, ignore_errors=True)
    else:
        old = part_of(path).with_suffix(".replaced")
        path.rename(old)
        try:
            new.rename(path)
        except BaseException:
            old.rename(path)
            raise
        _sync_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)
    _sync_folder(path.parent)


def recover(path: Path) -> None:
    """Bring back what :func:`move_into_place` had put aside when its process was killed, if the path is empty.

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
    own = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{12}}\.replaced")
    aside = [one for one in path.parent.iterdir() if own.fullmatch(one.name) and one.is_dir()]
    if aside:
        max(aside, key=lambda one: one.stat().st_mtime_ns).rename(path)


_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, where the system can."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old C library
        return False
    done: int = renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    return done == 0  # a file system may not know how; whatever else is wrong, the plain renames say


def _sync_folder(folder: Path) -> None:
    """Make a rename last; only POSIX can, and needs to."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
