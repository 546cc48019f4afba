"""Downloading a benchmark data set once, with pooch, into the user's cache."""

import gzip
import hashlib
import logging
from pathlib import Path

from demur.datasets.uci_sources import COVTYPE_ARCHIVE, DATA_FOLDER_VARIABLE, DatasetError, Source

__all__ = ["download_lines"]

SECONDS_TO_WAIT = 60


def download_lines(source: Source, looked_in: Path | None) -> bytes:
    """Return the data lines of a data set, as its local files would hold them.

    The archive of a data set may be packed anew without its rows changing, so what is compared with the known
    hash are the rows; covtype's single file is compared as it is.

    Parameters
    ----------
    source : Source
    looked_in : path or None
        The local folder that does not have the files, for the error message.

    Raises
    ------
    DatasetError
        If there is no network, or if what came is not the known data.
    """
    wanted = " and ".join(file.name for file in source.files)
    try:
        files = _fetch(source)
    except Exception as error:  # pooch, requests and zipfile raise what they like; the user needs one sentence
        where = f"not in {looked_in}" if looked_in else f"not at hand ({DATA_FOLDER_VARIABLE} is not set)"
        raise DatasetError(
            f"{source.name} is {where}, and downloading it from {source.url} failed ({type(error).__name__}). "
            f"Without a network, put {wanted} into a folder and name it with --data or {DATA_FOLDER_VARIABLE}."
        ) from error
    if not source.members:
        return gzip.decompress(files[0].read_bytes())
    texts = [file.read_text() for file in files]
    rows = [source.read_line(line.strip()) for text in texts for line in text.splitlines() if line.strip()]
    lines = "".join(",".join(row) + "\n" for row in rows).encode()
    found = hashlib.sha256(lines).hexdigest()
    if found != source.sha256:
        raise DatasetError(
            f"{source.url} no longer holds the known rows of {source.name}: their sha256 is {found}, expected "
            f"{source.sha256}. Look at {source.page}, or use a local copy with {DATA_FOLDER_VARIABLE}."
        )
    return lines


def _fetch(source: Source) -> list[Path]:
    """Download the archive unless the cache has it, and return its data files in the order of the rows."""
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel(logging.WARNING)
    cache = pooch.os_cache("demur") / source.name
    options = {"path": cache, "downloader": _downloader(source.url)}
    if not source.members:
        return [Path(pooch.retrieve(source.url, known_hash=COVTYPE_ARCHIVE, fname="covtype.data.gz", **options))]
    unpacked = pooch.retrieve(
        source.url, known_hash=None, fname=f"{source.name}.zip", processor=pooch.Unzip(), **options
    )
    by_name = {Path(path).name: Path(path) for path in unpacked}
    return [by_name[member] for member in source.members]


def _downloader(url: str) -> object:
    import pooch

    return pooch.HTTPDownloader(timeout=SECONDS_TO_WAIT) if url.startswith("http") else pooch.choose_downloader(url)
