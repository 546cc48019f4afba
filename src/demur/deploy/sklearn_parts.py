"""The scikit-learn objects of a model, in one skops file: no pickle, and only types on a list."""

import io
import json
import warnings
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import InconsistentVersionWarning

from demur.deploy.errors import ModelFileError
from demur.errors import InputError, InputTypeError

__all__ = ["TRUSTED", "dump", "load"]

TRUSTED = (
    "builtins.object",  # as the dtype that a column selector asks for
    "functools.partial",  # with check_array: the preprocessing of histogram gradient boosting
    "numpy.dtype",
    "numpy.number",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",  # its indices are checked after loading
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.metrics._dist_metrics.ManhattanDistance64",
    "sklearn.metrics._dist_metrics.MinkowskiDistance64",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.model_selection._split.GroupKFold",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.LeaveOneOut",
    "sklearn.model_selection._split.PredefinedSplit",
    "sklearn.model_selection._split.RepeatedKFold",
    "sklearn.model_selection._split.RepeatedStratifiedKFold",
    "sklearn.model_selection._split.ShuffleSplit",
    "sklearn.model_selection._split.StratifiedGroupKFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.model_selection._split.StratifiedShuffleSplit",
    "sklearn.model_selection._split.TimeSeriesSplit",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
    "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
    "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
    "sklearn.tree._tree.Tree",  # its indices are checked after loading
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
)
"""Types trusted beside those that skops trusts by itself: numbers, arrays and scikit-learn's public estimators."""

_OLDEST_PROTOCOL = 2
"""The protocol of skops when this format began; older ones are kept for files that we never wrote."""


def dump(parts: Sequence[tuple[str, Any]]) -> bytes:
    """Return a skops file of these objects, or say which of them cannot be saved.

    Parameters
    ----------
    parts : sequence of (str, object)
        Objects, with their place in the model for the error.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> load(dump([("model", GaussianNB())]))
    [GaussianNB()]
    """
    import skops.io  # type: ignore[import-untyped] # it takes seconds to import

    try:
        data = skops.io.dumps([part for _, part in parts])
    except Exception as error:  # skops meets whatever object a user put into a pipeline
        _blame(parts, error)
        raise ModelFileError(f"cannot save the scikit-learn parts of the model: {error}") from error
    if set(skops.io.get_untrusted_types(data=data)) - set(TRUSTED):
        _blame(parts, None)
    return _canonical(data)


def load(data: bytes) -> list[Any]:
    """Return the objects of a skops file if all their types are trusted; nothing is constructed otherwise."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException  # type: ignore[import-untyped]

    from demur.deploy.tree_checks import check_trees  # imports scikit-learn's ensembles

    try:
        _check_protocol(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # the loader warns once, with our own class
            parts = skops.io.loads(data, trusted=TRUSTED)
        if not isinstance(parts, list):
            raise InputTypeError(f"a list was expected, not a {type(parts).__name__}")
        check_trees(parts)
    except UntrustedTypesFoundException as error:
        names = sorted(set(skops.io.get_untrusted_types(data=data)) - set(TRUSTED))
        raise ModelFileError(
            f"sklearn.skops holds {', '.join(names)}, which no model file may hold; nothing of it was loaded."
        ) from error
    except ModelFileError:
        raise
    except Exception as error:  # the bytes are a stranger's, and each layer of skops fails in its own way
        raise ModelFileError(f"sklearn.skops cannot be read ({type(error).__name__}: {error}).") from error
    return parts


def _blame(parts: Sequence[tuple[str, Any]], cause: Exception | None) -> None:
    """Find the object that cannot be saved, by trying one at a time."""
    import skops.io

    for where, part in parts:
        try:
            names = set(skops.io.get_untrusted_types(data=skops.io.dumps(part))) - set(TRUSTED)
        except RecursionError:
            raise ModelFileError(
                f"cannot save {where}: its {type(part).__name__} refers to itself, as metadata requests do; leave out "
                "set_fit_request and the like."
            ) from cause
        except Exception as error:  # as above
            raise ModelFileError(f"cannot save {where} ({type(part).__name__}): {error}") from cause
        if names:
            raise ModelFileError(
                f"cannot save {where}: its {type(part).__name__} holds {', '.join(sorted(names))}, which no model file "
                "may hold; use scikit-learn's own estimators and named functions only."
            ) from cause


def _check_protocol(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        protocol = json.loads(archive.read("schema.json"))["protocol"]
    if protocol < _OLDEST_PROTOCOL:
        raise InputError(f"its protocol {protocol} is older than any that demur has written")


def _canonical(data: bytes) -> bytes:
    """Return the same skops file, compressed, with names and numbers that do not depend on memory addresses.

    skops names objects by ``id()``. Numbered in the order in which they are met instead, the same model gives the
    same bytes.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        schema = json.loads(old.read("schema.json"))
        numbers: dict[int, int] = {}
        names: dict[str, str] = {}
        _renumber(schema, numbers, names)
        for name, renamed in names.items():
            _write(new, renamed, _without_garbage(old.read(name)))
        _write(new, "schema.json", json.dumps(schema, separators=(",", ":")).encode())
    return packed.getvalue()


def _without_garbage(content: bytes) -> bytes:
    """Put zeros between the fields of an array's records, as a tree's nodes are, where memory holds anything."""
    if not content.startswith(b"\x93NUMPY"):
        return content
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if array.dtype.names is None:
        return content
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names:
        clean[name] = array[name]
    written = io.BytesIO()
    np.save(written, clean, allow_pickle=False)
    return written.getvalue()


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # without the time of day


def _renumber(node: Any, numbers: dict[int, int], names: dict[str, str]) -> None:
    if isinstance(node, dict):
        if "__loader__" in node:
            if "__id__" in node:
                node["__id__"] = numbers.setdefault(node["__id__"], len(numbers) + 1)
            if isinstance(node.get("file"), str):
                suffix = node["file"].rpartition(".")[2]
                node["file"] = names.setdefault(node["file"], f"{len(names)}.{suffix}")
        for child in node.values():
            _renumber(child, numbers, names)
    elif isinstance(node, list):
        for child in node:
            _renumber(child, numbers, names)
