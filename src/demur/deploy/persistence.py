"""Saving a model and loading it again."""

import os
import platform
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
import torch
from safetensors import SafetensorError

from demur._version import __version__
from demur.deploy import sklearn_parts
from demur.deploy.arrays import ArrayReader
from demur.deploy.decoding import Decoder
from demur.deploy.encoding import Encoder
from demur.deploy.errors import ModelFileError, ModelVersionWarning
from demur.deploy.folder import check_target, read_folder, write_folder
from demur.deploy.manifest import FORMAT, VERSION

__all__ = ["load", "save"]

_ARRAYS, _SKLEARN = "arrays.safetensors", "sklearn.skops"


def save(model: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Save a model as a folder that :func:`load` reads on another machine, without pickle.

    The folder holds ``model.json`` (what the model is made of, the versions it was written with, checksums),
    ``arrays.safetensors`` (its weights and other arrays) and, where the model has scikit-learn parts,
    ``sklearn.skops``. It appears whole or not at all. The same model gives the same bytes.

    Parameters
    ----------
    model : object
        A :class:`~demur.RejectClassifier`, a :class:`~demur.RejectOption`, or any rule, loss or calibration of
        demur, fitted or not. Its parts may be demur's, scikit-learn's, NumPy's, torch tensors and plain values.
        A loss of your own is saved by its registered name and its fields: it must be registered where the model
        is loaded. Functions and your own torch modules are code, which no model file holds.
    path : path
        The folder to write. Its parent must exist.
    overwrite : bool, default=False
        Whether a model that stands there may be replaced. Nothing but a demur model ever is.

    Raises
    ------
    ModelFileError
        If the path is taken, or a part of the model cannot be saved; the message says which.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from demur import RejectClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RejectClassifier(cost=0.1, epochs=2, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, f"{folder}/iris")
    ...     again = load(f"{folder}/iris")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    target = Path(path)
    check_target(target, overwrite=overwrite)
    encoder = Encoder()
    try:
        tree = encoder.encode(model)
    except RecursionError as error:
        raise ModelFileError("cannot save the model: it is nested too deeply.") from error
    files = {_ARRAYS: encoder.arrays.to_bytes()}
    if encoder.sklearn_parts:
        files[_SKLEARN] = sklearn_parts.dump(encoder.sklearn_parts)
    head = {
        "format": FORMAT,
        "format_version": VERSION,
        "written_with": {
            "demur": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "torch": torch.__version__,
        },
    }
    write_folder(target, head, tree, files, overwrite=overwrite)


def load(path: str | os.PathLike[str]) -> Any:
    """Load a model that :func:`save` has written.

    On the same machine and versions it decides exactly as the saved one did, to the last bit. A model that was
    trained on a GPU is loaded on the CPU.

    Loading runs no code from the file: it builds objects of classes on fixed lists, and nothing else. The checksums
    tell damage, not malice: whoever can write the folder can make a model that answers wrongly, so take models, like
    programs, from where you trust.

    Parameters
    ----------
    path : path

    Raises
    ------
    ModelFileError
        If there is no model, or it is damaged, altered, of a newer format, or asks for what no model may hold.

    Warns
    -----
    ModelVersionWarning
        If its scikit-learn parts were written with another major or minor version of scikit-learn.

    Examples
    --------
    >>> load("README.md")
    Traceback (most recent call last):
        ...
    demur.deploy.errors.ModelFileError: README.md is a file, but a demur model is a folder; give the folder.
    """
    target = Path(path)
    try:
        document, files = read_folder(target)
        if _SKLEARN in files:
            _warn_of_versions(target, document["written_with"]["scikit-learn"])
        return _put_together(target, document["model"], files)
    except _UNFIT as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(
            f"cannot load {target}: its parts do not fit together ({type(error).__name__}: {error})."
        ) from error


_UNFIT = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, SafetensorError)
"""What a forged tree can raise on its way; the checksums have told a damaged one already."""


def _put_together(path: Path, tree: Any, files: dict[str, bytes]) -> Any:
    try:
        parts = sklearn_parts.load(files[_SKLEARN]) if _SKLEARN in files else []
        return Decoder(ArrayReader(files[_ARRAYS]), parts).decode(tree)
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {path}: {error}") from error


def _warn_of_versions(path: Path, written: str) -> None:
    if written.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        warnings.warn(
            f"{path} was written with scikit-learn {written} and this is {sklearn.__version__}: it may fail or decide "
            f"otherwise; install scikit-learn {written}, or fit and save it again.",
            ModelVersionWarning,
            stacklevel=3,
        )
