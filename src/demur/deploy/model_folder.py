"""Model folders: saved completely or not at all, and loaded only if their checksums match.

``model.skops`` holds the model. ``model.json`` holds the size and checksum of that file and the versions that wrote it.
The folder may hold other files, such as the report that ``demur serve`` shows.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import sklearn

from demur import __version__
from demur.array_types import AnyMapping, ByName, Estimator, FilePath
from demur.columns.schema import Column
from demur.deploy import model_parts
from demur.deploy.model_parts import ModelFileError
from demur.errors import MissingExtraError
from demur.tabular import TableModel
from demur.whole_file import move_into_place, part_of, recover, write_whole

_MANIFEST, _MODEL, _REPORT = "model.json", "model.skops", "report.html"
_FORMAT, _VERSION = "demur-model", 2


class ModelVersionWarning(UserWarning):
    """A model was written with another version of scikit-learn, with which it may decide differently.

    Examples
    --------
    Turn the warning into an error:

    >>> import warnings
    >>> from demur.deploy import load
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ModelVersionWarning)
    ...     model = load("model")  # doctest: +SKIP
    """


def save(model: Estimator, path: FilePath, *, overwrite: bool = False) -> None:
    """Save a model as a folder that :func:`load` reads on another machine, without pickle.

    The folder holds ``model.skops`` (the model) and ``model.json`` (the versions it was written with, and checksums).
    It is written completely or not at all.

    Parameters
    ----------
    model : object
        A :class:`~demur.RejectClassifier`, a :class:`~demur.RejectOption`, or any rule, loss or calibration of
        demur, fitted or not. Its parts may be demur's, scikit-learn's, NumPy's and plain values; classifiers of
        CatBoost, LightGBM and XGBoost are stored in their libraries' formats. A loss, a margin function or a rule of
        your own is saved as its attributes: its class must be registered, here and where the model is loaded. A
        :class:`~demur.TorchClassifier` is stored as an ONNX graph. Functions are code and cannot be saved.
    path : path
        The folder to write. Parent folders are created.
    overwrite : bool, default=False
        Whether to replace a demur model at this path, with the ``report.html`` and the signature in its folder.
        Anything else at this path is never replaced.

    Raises
    ------
    ModelFileError
        If the path exists already, or a part of the model cannot be saved; the message names the part.

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
    content = model_parts.dump(model)
    predicts = False
    with contextlib.suppress(Exception):  # it is not fitted, not a classifier, or cannot read a dummy row
        _predict_dummy_row(model)
        predicts = True
    document = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "written_with": {
            "demur": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scikit-learn": sklearn.__version__,
            "torch": version("torch"),
        },
        "files": {_MODEL: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}},
        "predicts_dummy_row": predicts,
    }
    with _new_folder(target) as new:
        write_whole(new / _MODEL, content)
        write_whole(new / _MANIFEST, json.dumps(document, indent=1) + "\n")
        move_into_place(new, target)


def load(path: FilePath) -> Any:
    """Load a model that :func:`save` has written.

    A model that was trained on a GPU is loaded on the CPU. The loaded model predicts one dummy row, so that a damaged
    model is an error here and not at the first row to decide.

    Nothing in a folder is executed or unpickled: only classes on fixed lists and registered ones are built. But
    scikit-learn, LightGBM, XGBoost and CatBoost do not check the arrays of a stored model, so that a forged one can
    crash the process or answer wrongly, and checksums detect damage, not forgery. Load models only from sources that
    you trust, and sign them where others could change them; the guide to deployment shows how.

    Parameters
    ----------
    path : path

    Raises
    ------
    ModelFileError
        If there is no model, or it is damaged, altered, of another format, or holds a type that no model may hold.

    Warns
    -----
    ModelVersionWarning
        If it was written with another major or minor version of scikit-learn.

    Examples
    --------
    >>> load("README.md")
    Traceback (most recent call last):
        ...
    demur.deploy.model_parts.ModelFileError: README.md is not a demur model, which is a folder that holds ...
    """
    target = Path(path)
    recover(target)
    document = _read_manifest(target)
    content = _checked_content(target, document)
    _warn_of_versions(target, document["written_with"].get("scikit-learn", "unknown"))
    try:
        model = model_parts.load(content)
        if document.get("predicts_dummy_row"):
            _predict_dummy_row(model)
    except MissingExtraError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {target}: {error}") from error
    except Exception as error:  # the bytes may be anything: skops, NumPy and scikit-learn fail in their own ways
        problem = f"it cannot be read, or fails on a dummy row ({type(error).__name__}: {model_parts.one_line(error)})"
        raise ModelFileError(
            f"cannot load {target}: {problem}; it is damaged, or made by other versions of its libraries: fit and save "
            "it again."
        ) from error
    return model


def _predict_dummy_row(model: Any) -> None:
    """Decide on one row of zeros, first categories or a word, and check that the numbers are finite."""
    width, names = (getattr(model, name, None) for name in ("n_features_in_", "feature_names_in_"))
    shape = getattr(getattr(model, "estimator_", model), "input_shape_", (width,))  # a network may take images
    row: Any
    if isinstance(model, TableModel):
        row = pa.table({column.name: _dummy_value(column) for column in model.schema.columns})
    elif shape[0] is None:
        row = ["text"]
    else:
        row = np.zeros((1, *shape))
    if names is not None:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore] # it has no type hints

        row = pd.DataFrame(row, columns=names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.decide(row).confidence if hasattr(model, "decide") else model.predict_proba(row)
    if len(found) != 1 or not np.isfinite(found).all():
        raise ModelFileError("its prediction for a dummy row is not a finite number; fit and save it again.")


def _dummy_value(column: Column) -> pa.Array:
    if column.kind in ("category", "text"):
        return pa.array(column.categories[:1] or ["text" if column.kind == "text" else None], pa.string())
    return pa.array([0], pa.int64()).cast(column.arrow_type)


def check_target(path: Path, *, overwrite: bool) -> None:
    """Check that a model can be written to a path."""
    if not path.name:
        raise ModelFileError(f"cannot save to {str(path)!r}: give the path of a new folder.")
    if path.is_symlink():
        raise ModelFileError(f"cannot save to {path}: it is a symbolic link; save to {os.readlink(path)} itself.")
    recover(path)
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise ModelFileError(f"cannot save to {path}: {parent} is not a folder that can be written to.")
    if not path.exists():
        return
    if not overwrite:
        raise ModelFileError(f"{path} exists already; choose another path, or use overwrite=True to replace a model.")
    foreign = _foreign_content(path)
    if foreign:
        raise ModelFileError(f"cannot replace {path}: {foreign}; remove it yourself, or choose another path.")


_REPLACEABLE = (
    _MANIFEST,
    _MODEL,
    _REPORT,
    f"{_MANIFEST}.sig",
    f"{_MANIFEST}.minisig",
    "arrays.safetensors",
    "sklearn.skops",
)
"""Files of a model, its report, its signature by ssh-keygen or minisign, and the files of demur 0.1."""


def _foreign_content(path: Path) -> str | None:
    """Return why a folder may not be replaced; None if it holds a demur model and nothing else."""
    if not path.is_dir():
        return "it is a file"
    names = {child.name for child in path.iterdir()}
    others = sorted(names.difference(_REPLACEABLE))
    if others:
        return f"it holds {others[0]!r}, which is not part of a model"
    if names and (_MANIFEST not in names or _FORMAT not in (path / _MANIFEST).read_text(errors="replace")):
        return "it is not a demur model"
    if _REPORT in names and b"<dt>Written by</dt><dd>demur " not in (path / _REPORT).read_bytes():
        return f"it holds {_REPORT!r}, which demur has not written"
    return None


@contextlib.contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Make a temporary folder beside a path; it is removed at the end unless it was moved."""
    folder = part_of(target)
    try:
        folder.mkdir(parents=True)
        yield folder
    except OSError as error:
        raise ModelFileError(f"cannot save to {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read_manifest(path: Path) -> ByName:
    """Return the manifest of a folder, if it is one of this format."""
    if not path.exists():
        raise ModelFileError(f"there is no model at {path}; check the path.")
    file = path / _MANIFEST
    if not file.is_file():
        raise ModelFileError(f"{path} is not a demur model, which is a folder that holds {_MANIFEST}; check the path.")
    try:
        document: ByName = json.loads(file.read_bytes())
        found, by = document["format_version"], document["written_with"]["demur"]
        is_ours, is_newer = document["format"] == _FORMAT, found > _VERSION
    except (ValueError, TypeError, LookupError, RecursionError):
        is_ours = False
    if not is_ours:
        raise ModelFileError(f"{path} is not a demur model: its {_MANIFEST} is damaged, or another program's.")
    if found != _VERSION:
        advice = "upgrade demur" if is_newer else f"load it with demur {by}, or fit and save it again"
        raise ModelFileError(
            f"{path} has format version {found}, written by demur {by}, and this is demur {__version__}, which reads "
            f"version {_VERSION}; {advice}."
        )
    return document


def _checked_content(path: Path, document: AnyMapping) -> bytes:
    """Return the bytes of the model if they have the size and the checksum in the manifest."""
    try:
        size, digest = (document["files"][_MODEL][name] for name in ("size", "sha256"))
    except (TypeError, LookupError):
        raise ModelFileError(f"the {_MANIFEST} of {path} is damaged: it does not list {_MODEL}.") from None
    file = path / _MODEL
    if not file.is_file():
        raise ModelFileError(f"{_MODEL} is missing from the model at {path}; copy the whole folder again.")
    # the size comes first: a file may be larger than the memory
    if file.stat().st_size != size or hashlib.sha256(content := file.read_bytes()).hexdigest() != digest:
        raise ModelFileError(
            f"{_MODEL} of {path} is damaged or was altered: its checksum does not match; copy it again."
        )
    return content


def _warn_of_versions(path: Path, written: object) -> None:
    if str(written).split(".")[:2] != sklearn.__version__.split(".")[:2]:
        warnings.warn(
            f"{path} was written with scikit-learn {written} and this is {sklearn.__version__}: it may fail or decide "
            f"differently; install scikit-learn {written}, or fit and save it again.",
            ModelVersionWarning,
            stacklevel=3,
        )
