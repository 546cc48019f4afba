"""``model.json``: what the other files must be, what the model is made of, and a checksum over itself."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from demur._version import __version__
from demur.deploy.errors import ModelFileError

__all__ = ["FILE_NAMES", "FORMAT", "MANIFEST", "VERSION", "checksum", "parse", "render"]

MANIFEST = "model.json"
FILE_NAMES = ("arrays.safetensors", "sklearn.skops")
"""The other files that a model may have; a file cannot send the reader anywhere else."""

FORMAT = "demur-model"
VERSION = 1

_NO_CHECKSUM = "0" * 64
_HEAD = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')


def checksum(content: bytes) -> dict[str, Any]:
    """Return what the manifest says of a file.

    Examples
    --------
    >>> checksum(b"")["size"]
    0
    """
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def render(document: Mapping[str, Any]) -> bytes:
    """Return the text of a manifest. Its checksum is taken over the whole text, with zeros in the checksum's place.

    Examples
    --------
    >>> print(render({"format": "demur-model", "format_version": 1}).decode())
    {
     "sha256": "...",
     "format": "demur-model",
     "format_version": 1
    }
    <BLANKLINE>
    """
    text = json.dumps({"sha256": _NO_CHECKSUM, **document}, indent=1, allow_nan=False).encode() + b"\n"
    return text.replace(_NO_CHECKSUM.encode(), hashlib.sha256(text).hexdigest().encode(), 1)


def parse(text: bytes, folder: str) -> dict[str, Any]:
    """Return the document of a manifest that is genuine, whole and not too new."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"{folder} holds no model that can be read: its {MANIFEST} is damaged or is not demur's."
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f"{folder} is not a demur model: its {MANIFEST} is another program's, or was altered.")
    version = document.get("format_version")
    if isinstance(version, int) and version > VERSION:
        writer = document.get("written_with")
        by = writer.get("demur") if isinstance(writer, dict) else "unknown"
        raise ModelFileError(
            f"{folder} has format version {version}, written by demur {by}, and this is demur {__version__}, which "
            f"reads up to {VERSION}; upgrade demur."
        )
    head = _HEAD.match(text)
    if head is not None:
        plain = text.replace(head.group(1), _NO_CHECKSUM.encode(), 1)
        if hashlib.sha256(plain).hexdigest().encode() == head.group(1):
            return document
    raise ModelFileError(f"{MANIFEST} of {folder} is damaged or was altered: its checksum does not match.")
