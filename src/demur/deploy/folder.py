"""A model's folder on the disk: written whole or not at all, read only if every byte is as it was written."""

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from demur.deploy.errors import ModelFileError
from demur.deploy.manifest import FILE_NAMES, FORMAT, MANIFEST, checksum, parse, render

__all__ = ["check_target", "read_folder", "write_folder"]


def check_target(path: Path, *, overwrite: bool) -> None:
    """Refuse a path where nothing may be written."""
    if not path.name:
        raise ModelFileError(f"cannot save to {str(path)!r}: give the path of a new folder.")
    if not path.parent.is_dir():
        raise ModelFileError(f"cannot save to {path}: the folder {path.parent} does not exist; create it first.")
    if path.is_symlink():
        raise ModelFileError(f"cannot save to {path}: it is a symbolic link; save to {os.readlink(path)} itself.")
    if not path.exists():
        return
    if not overwrite:
        raise ModelFileError(f"{path} exists already; choose another path, or use overwrite=True to replace a model.")
    foreign = _foreign_content(path)
    if foreign:
        raise ModelFileError(f"cannot replace {path}: {foreign}; remove it yourself, or choose another path.")


def write_folder(
    path: Path, head: Mapping[str, Any], tree: Any, files: Mapping[str, bytes], *, overwrite: bool
) -> None:
    """Write a model beside its place, then move it there; what stood there goes only after that.

    Parameters
    ----------
    path : Path
    head : mapping
        What the manifest shall say first: format and versions.
    tree : tree of plain values
        The model.
    files : mapping of names to contents
    overwrite : bool
        Whether a demur model that stands there may be replaced.
    """
    check_target(path, overwrite=overwrite)
    listed = {name: checksum(content) for name, content in files.items()}
    contents = {**files, MANIFEST: render({**head, "files": listed, "model": tree})}
    with _new_folder(_sibling(path, "partial")) as partial:
        for name, content in contents.items():
            with open(partial / name, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        _move_into_place(partial, path)


def read_folder(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the document and the files of a model, all of them checked.

    Symbolic links are followed: a stored model may be made of them, and what they lead to is checked like any file.
    """
    if not path.exists():
        raise ModelFileError(f"there is no model at {path}; check the path.")
    if not path.is_dir():
        raise ModelFileError(f"{path} is a file, but a demur model is a folder; give the folder.")
    if not (path / MANIFEST).is_file():
        raise ModelFileError(f"{path} is not a demur model: it has no {MANIFEST}.")
    document = parse(_read(path / MANIFEST), str(path))
    return document, {name: _checked(path, name, facts) for name, facts in document["files"].items()}


def _checked(path: Path, name: str, facts: dict[str, Any]) -> bytes:
    if name not in FILE_NAMES:
        raise ModelFileError(f"{path} names a file {name!r}, which no model has.")
    file = path / name
    if not file.is_file():
        raise ModelFileError(f"{name} is missing from the model at {path}; copy the whole folder again.")
    if file.stat().st_size != facts["size"]:  # before reading: a link may lead to something endless
        raise ModelFileError(
            f"{name} of {path} is damaged or was altered: it has {file.stat().st_size:,} bytes instead of "
            f"{facts['size']:,}; copy it again."
        )
    content = _read(file)
    if checksum(content) != facts:
        raise ModelFileError(f"{name} of {path} is damaged or was altered: its checksum does not match; copy it again.")
    return content


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{file} cannot be read: {error.strerror}.") from error


def _sibling(path: Path, what: str) -> Path:
    return path.parent / f".{path.name}.{uuid.uuid4().hex[:12]}.{what}"


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Make a folder to fill and to move away, and remove it if it is still there in the end."""
    try:
        folder.mkdir()
        yield folder
    except OSError as error:
        raise ModelFileError(f"cannot save to {folder.parent}: {error.strerror}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move_into_place(new: Path, path: Path) -> None:
    if not path.exists():
        new.rename(path)
        return
    old = _sibling(path, "replaced")
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _foreign_content(path: Path) -> str | None:
    """Say what would be lost with a folder that is more than a demur model, or is none."""
    if not path.is_dir():
        return "it is a file"
    names = {child.name for child in path.iterdir()}
    others = sorted(names - {MANIFEST, *FILE_NAMES})
    if others:
        return f"it holds {others[0]!r}, which is no part of a model"
    if not names:
        return None
    try:
        document = json.loads((path / MANIFEST).read_bytes())
        genuine = isinstance(document, dict) and document.get("format") == FORMAT
    except (OSError, ValueError):
        genuine = False
    return None if genuine else "it is not a demur model"
