"""Loaders of the paper's five benchmark data sets: from a local folder, or downloaded once and kept."""

import gzip
import hashlib
import os
from dataclasses import dataclass
from difflib import get_close_matches
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from demur.datasets.uci_download import download_lines
from demur.datasets.uci_sources import COVTYPE_ARCHIVE, DATA_FOLDER_VARIABLE, SOURCES, DatasetError, Source
from demur.errors import InputError

__all__ = ["Dataset", "DatasetError", "available_datasets", "fingerprint", "is_local", "load"]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A classification data set with a fixed split.

    Parameters
    ----------
    name : str
    X_train, X_test : array of shape (n, n_features), float64
        The features as in the source, unscaled.
    y_train, y_test : array of shape (n,), int64
        Numbers of classes.
    classes : tuple of str
        The class that each number stands for.
    feature_names : tuple of str
    sha256 : str
        Of the rows: equal wherever they came from.
    source : str
        Where they came from.
    note : str
        What everybody who shows figures on this data must say; empty if nothing.
    """

    name: str
    X_train: NDArray[np.float64]
    y_train: NDArray[np.int64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    feature_names: tuple[str, ...]
    sha256: str
    source: str
    note: str = ""


def available_datasets() -> list[str]:
    """Return the names that :func:`load` knows, in the order of the paper's Table 3.

    Examples
    --------
    >>> available_datasets()
    ['vehicle', 'satimage', 'yeast', 'covtype', 'letter']
    """
    return list(SOURCES)


def load(name: str, data_dir: str | os.PathLike[str] | None = None, *, split_seed: int = 0) -> Dataset:
    """Return one of the paper's benchmark data sets, with the paper's numbers of training and test rows.

    Its files are read from a local folder if they are there, and otherwise downloaded from the UCI repository (covtype
    from scikit-learn's mirror), checked, and kept in the user's cache. The splits: satimage has an official one;
    covtype's first 15,120 and letter's first 15,000 rows train; vehicle and yeast have none, so their rows are
    shuffled as ``frame.sample(frac=1, random_state=0)`` does, and the first 700 and 1,000 train.

    Parameters
    ----------
    name : str
        One of :func:`available_datasets`.
    data_dir : path, optional
        The local folder; without it, the one that the variable ``DEMUR_DATA`` names.
    split_seed : int, default 0
        The ``random_state`` of that shuffle; the other data sets ignore it.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If there is no such data set.
    DatasetError
        If it can be neither found nor downloaded, or is not what it should be.

    Examples
    --------
    >>> load("lettre")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown data set 'lettre'. Did you mean 'letter'? Available: vehicle, satimage, ...
    """
    source = _find(name)
    folder = _local_folder(source, data_dir)
    if folder is None:
        lines, where = download_lines(source, _looked_in(data_dir)), source.url
    else:
        lines, where = _local_lines(source, folder), str(folder)
    sha256, note = fingerprint(name, data_dir)
    X, labels = _parse(source, lines)
    classes, y = np.unique(labels, return_inverse=True)
    n_train, n_test = source.n_train, len(X) - source.n_train
    if (X.shape[1], len(classes)) != (source.n_features, source.n_classes) or n_test not in (
        source.n_test,
        source.n_test_local,
    ):
        raise DatasetError(
            f"{name} should have {source.n_features} features, {source.n_classes} classes and {n_train} + "
            f"{source.n_test} rows, got {X.shape[1]}, {len(classes)} and {len(X)}; get it again from {source.page}."
        )
    order = source.train_first(len(X), split_seed)
    train, test = order[:n_train], order[n_train:]
    return Dataset(
        name,
        *(X[train], y[train].astype(np.int64), X[test], y[test].astype(np.int64)),
        classes=tuple(classes.tolist()),
        feature_names=source.features,
        sha256=sha256,
        source=where,
        note=note,
    )


def is_local(name: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Return whether the files of a data set lie in the local folder."""
    return _local_folder(_find(name), data_dir) is not None


def fingerprint(name: str, data_dir: str | os.PathLike[str] | None = None) -> tuple[str, str]:
    """Return the hash and the note that ``load(name, data_dir)`` would give, without reading all of it.

    Local files are checked against their known hashes.

    Raises
    ------
    DatasetError
        If a local file is not the known one.
    """
    source = _find(name)
    folder = _local_folder(source, data_dir)
    if folder is None:
        return (source.sha256 if source.n_test_local is None else COVTYPE_ARCHIVE), ""
    for file in source.files:
        found = hashlib.sha256((folder / file.name).read_bytes()).hexdigest()
        if found != file.sha256:
            raise DatasetError(
                f"{folder / file.name} is not the known file: its sha256 is {found}, expected {file.sha256}. Replace "
                f"it, or remove it to download {name} from {source.page}."
            )
    if source.n_test_local is None:
        return source.sha256, ""
    return source.sha256, f"measured on {source.n_test_local:,} of {source.n_test:,} test rows"


def _find(name: str) -> Source:
    if name not in SOURCES:
        close = get_close_matches(str(name), SOURCES, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"unknown data set {name!r}.{hint} Available: {', '.join(SOURCES)}.")
    return SOURCES[name]


def _looked_in(data_dir: str | os.PathLike[str] | None) -> Path | None:
    folder = data_dir or os.environ.get(DATA_FOLDER_VARIABLE)
    return Path(folder) if folder else None


def _local_folder(source: Source, data_dir: str | os.PathLike[str] | None) -> Path | None:
    folder = _looked_in(data_dir)
    if folder is None or not all((folder / file.name).is_file() for file in source.files):
        return None
    return folder


def _local_lines(source: Source, folder: Path) -> bytes:
    """Return the data lines of all files, without their headers."""
    texts = [gzip.decompress((folder / file.name).read_bytes()) for file in source.files]
    return b"".join(text[text.index(b"\n") + 1 :] for text in texts)


def _parse(source: Source, lines: bytes) -> tuple[NDArray[np.float64], list[str]]:
    try:
        X = np.loadtxt(BytesIO(lines), delimiter=",", usecols=range(source.n_features), ndmin=2)
    except ValueError as error:
        raise DatasetError(f"{source.name} has a line that is not {source.n_features} numbers: {error}") from error
    return X, [line[line.rfind(b",") + 1 :].decode() for line in lines.splitlines()]
