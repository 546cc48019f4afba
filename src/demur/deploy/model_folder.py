"""Model folders: saved completely or not at all, and loaded only if their checksums match.

``model.skops`` holds the model. ``model.json`` holds the size and checksum of that file and the versions that wrote it.
The folder may hold other files, such as the report that ``demur serve`` shows.

Nothing is pickled, and only types on fixed lists are built. skops stores scikit-learn's estimators, NumPy's arrays and
plain values. This module adds the classes of demur that a model may hold, and the user's own classes, which are found
through the registries.
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.frozen import FrozenEstimator

from demur import __version__, losses, margins, rules
from demur.array_types import AnyMapping, ByName, Estimator, FilePath
from demur.errors import InputError, MissingExtraError, UserError, one_line
from demur.estimators.boosted_trees import LIBRARIES, BoostedTrees
from demur.estimators.torch_classifier import TorchClassifier
from demur.tabular import TableModel
from demur.whole_file import move_into_place, part_of, recover, write_whole

_MANIFEST, _MODEL, _REPORT = "model.json", "model.skops", "report.html"
_FORMAT, _VERSION = "demur-model", 2


class ModelFileError(InputError):
    """A model cannot be saved, or a path holds no model that can be loaded; the message says why in one sentence.

    Examples
    --------
    >>> from demur.deploy import load
    >>> load("no/such/model")
    Traceback (most recent call last):
        ...
    demur.deploy.model_folder.ModelFileError: there is no model at no/such/model; check the path.
    """


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
    content = to_archive(model)
    predicts = False
    with contextlib.suppress(Exception):  # it is not fitted, not a classifier, or cannot read a dummy row
        _predict_dummy_row(model)
        predicts = True
    document = {
        "format": _FORMAT,
        "format_version": _VERSION,
        "written_with": {"demur": __version__, "scikit-learn": sklearn.__version__},
        "files": {_MODEL: {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}},
        "predicts_dummy_row": predicts,
    }
    new = part_of(target)
    try:
        write_whole(new / _MODEL, content)
        write_whole(new / _MANIFEST, json.dumps(document, indent=1) + "\n")
        move_into_place(new, target)
    except OSError as error:
        raise ModelFileError(f"cannot save to {target}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def load(path: FilePath) -> Any:
    """Load a model that :func:`save` has written.

    A model that was trained on a GPU is loaded on the CPU. The loaded model predicts one dummy row, so a damaged model
    is an error here and not at the first prediction.

    Nothing in a folder is executed or unpickled: only classes on fixed lists and registered ones are built. But
    scikit-learn, LightGBM, XGBoost and CatBoost do not check the arrays of a stored model, so a forged model can crash
    the process or give wrong answers, and checksums detect damage, not forgery. Load models only from sources that you
    trust, and sign them if others could change them; SECURITY.md shows how.

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
    demur.deploy.model_folder.ModelFileError: README.md is not a demur model, which is a folder that holds ...
    """
    target = Path(path)
    recover(target)
    document = _read_manifest(target)
    content = _checked_content(target, document)
    _warn_of_versions(target, document["written_with"].get("scikit-learn", "unknown"))
    try:
        model = from_archive(content)
        if document.get("predicts_dummy_row"):
            _predict_dummy_row(model)
    except MissingExtraError:
        raise
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {target}: {error}") from error
    except Exception as error:  # the bytes may be anything: skops, NumPy and scikit-learn fail in their own ways
        problem = f"it cannot be read, or fails on a dummy row ({type(error).__name__}: {one_line(error)})"
        raise ModelFileError(
            f"cannot load {target}: {problem}; it is damaged, or made by other library versions: fit and save it again."
        ) from error
    return model


def _predict_dummy_row(model: Any) -> None:
    """Decide on one row of zeros, first categories or a word, and check that the numbers are finite."""
    width, names = (getattr(model, name, None) for name in ("n_features_in_", "feature_names_in_"))
    shape = getattr(getattr(model, "estimator_", model), "input_shape_", (width,))  # a network may take images
    row: Any
    if isinstance(model, TableModel):
        row = pa.table(
            {
                one.name: [one.decode(0.0)] if one.kind in ("category", "text") else pa.array([0]).cast(one.arrow_type)
                for one in model.schema.columns
            }
        )
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
    """Return the reason why a folder may not be replaced; None if it holds a demur model and nothing else."""
    if not path.is_dir():
        return "it is a file"
    names = {child.name for child in path.iterdir()}
    others = sorted(name for name in names if name not in _REPLACEABLE or (path / name).is_dir())
    if others:
        return f"it holds {others[0]!r}, which is not part of a model"
    if names and (_MANIFEST not in names or _FORMAT not in (path / _MANIFEST).read_text(errors="replace")):
        return "it is not a demur model"
    if _REPORT in names and b"<dt>Written by</dt><dd>demur " not in (path / _REPORT).read_bytes():
        return f"it holds {_REPORT!r}, which demur has not written"
    return None


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


# The archive ----------------------------------------------------------------------------------------------------------

TRUSTED = (
    "builtins.frozenset",
    "builtins.object",  # as the dtype that a column selector asks for
    "functools.partial",  # with check_array: the preprocessing of histogram gradient boosting
    "numpy.dtype",
    "numpy.number",
    "sklearn.calibration._CalibratedClassifier",
    "sklearn.calibration._SigmoidCalibration",
    "sklearn.calibration._TemperatureScaling",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.feature_selection._univariate_selection.chi2",  # by which features are chosen: called in fit alone
    "sklearn.feature_selection._univariate_selection.f_classif",
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
    "sklearn.tree._tree.Tree",
    "sklearn.utils._bunch.Bunch",
    "sklearn.utils.validation.check_array",
    "torch.device",
)
"""Types trusted in addition to those that skops trusts: numbers, arrays and scikit-learn's public estimators."""

_PARTS = (
    "demur.calibration.OneVsRestCalibration",
    "demur.calibration.TemperatureScaling",
    "demur.columns.schema.Column",
    "demur.columns.schema.Schema",
    "demur.deferral.capacity.Capacity",
    "demur.deferral.cascade.AnswerTable",
    "demur.deferral.cascade.Cascade",
    "demur.deferral.cascade.Policy",
    "demur.deferral.cascade.Pool",
    "demur.deferral.defer_classifier.DeferClassifier",
    "demur.deferral.defer_option.DeferOption",
    "demur.deferral.experts.Expert",
    "demur.deferral.joint_losses.AsymmetricDeferral",
    "demur.deferral.joint_losses.DecoupledDeferral",
    "demur.deferral.joint_losses.OneVsAllDeferral",
    "demur.deferral.joint_losses.RealizableDeferral",
    "demur.deferral.joint_losses.SoftmaxDeferral",
    "demur.deferral.joint_losses.TwoStageDeferral",
    "demur.deferral.expert_reliability.ExpertReliability",
    "demur.estimators.answer_classifier.AnswerClassifier",
    "demur.estimators.auto_classifier.TableEncoding",
    "demur.estimators.base.KnownRows",
    "demur.estimators.auto_classifier.AutoClassifier",
    "demur.estimators.boosted_trees.BoostedTrees",
    "demur.estimators.candidates.Tried",
    "demur.estimators.base.CodedLabels",
    "demur.estimators.precomputed_probabilities.PrecomputedProbabilities",
    "demur.estimators.reject_classifier.RejectClassifier",
    "demur.estimators.reject_option.RejectOption",
    "demur.estimators.scope.Scope",
    "demur.estimators.text_features.DenseText",
    "demur.estimators.text_features.Ngrams",
    "demur.estimators.network_selection.Candidate",
    "demur.estimators.network_selection.FittedNetworks",
    "demur.training.robust_scaling.Pieces",
    "demur.estimators.network_selection.ScaledNetworks",
    "demur.estimators.torch_classifier.OnnxNetwork",
    "demur.guarantees.risk_control.RiskCertificate",
    "demur.label_shift.LabelShift",
    "demur.novelty.Novelty",
    "demur.novelty.TrainingRows",
    "demur.rules.Decision",
    "demur.tabular.calls.CallsModel",
    "demur.tabular.calls.ServiceColumns",
    "demur.tabular.expert_columns.ExpertColumns",
    "demur.tabular.table_model.TableModel",
    "demur.training.mlp.MLP",
    "demur.training.tabular_net.PeriodicEmbeddings",
    "demur.training.tabular_net.TabularNet",
    "demur.training.jobs.Trained",
)
"""Classes of demur's models, except losses, margin functions and rules, which are in the registries."""


def registered_types() -> set[str]:
    """Return the module and name of each registered loss, margin function and rule.

    Examples
    --------
    >>> "demur.rules.Chow" in registered_types()
    True
    """
    known = (losses.registry.registered_classes(), margins.registered_classes(), rules.available_rules().values())
    return {f"{cls.__module__}.{cls.__qualname__}" for classes in known for cls in classes}


def _types(data: bytes) -> tuple[list[str], list[str]]:
    """Return the types in an archive that skops does not trust by itself, and those that no model may hold."""
    found = _skops().get_untrusted_types(data=data)
    unknown = {name for name in set(found).difference(TRUSTED, _PARTS) if not _is_estimator(name)}
    return found, sorted(unknown - registered_types()) if unknown else []  # the registries import torch


def _is_estimator(path: str) -> bool:
    """Return whether this is a public estimator of scikit-learn, which skops knows if all modules were imported."""
    module, _, name = path.rpartition(".")
    public = module.partition("._")[0]
    library, *parts = public.split(".")
    if library != "sklearn" or not parts or parts[0] not in sklearn.__all__ or "tests" in parts or name[0] == "_":
        return False
    found = getattr(import_module(public), name, None)
    is_public = isinstance(found, type) and issubclass(found, BaseEstimator) and found.__module__ == module
    return is_public and not isabstract(found)


def to_archive(model: Estimator) -> bytes:
    """Return a model as an archive.

    Raises
    ------
    ModelFileError
        If a part of it cannot be saved; the message names the part.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> from_archive(to_archive(Chow(0.2)))
    Chow(cost=0.2)
    >>> to_archive({"rule": print})
    Traceback (most recent call last):
        ...
    demur.deploy.model_folder.ModelFileError: cannot save model['rule']: builtins.print is code, and a model holds ...
    """
    model = _in_stored_form(model)
    _check_parts(model)
    data, problem = _written(model)
    if problem is not None:
        raise _located(model, "model", problem)
    return data


def from_archive(data: bytes) -> Any:
    """Return the model in an archive; nothing is built unless all its types are on the lists."""
    types, unknown = _types(data)
    if unknown:
        raise ModelFileError(
            f"the model holds {unknown[0]}, which is neither in demur {__version__} nor in scikit-learn, and not "
            "registered here; if it is a loss, a margin function or a rule of your own, import the module that "
            "registers it, then load again."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # load gives a warning of its own
        model = _skops().loads(data, trusted=types)
    _check_parts(model)
    return model


@cache
def _skops() -> Any:
    """Import skops, which imports every module of scikit-learn to list its estimators.

    Some of these modules have no estimator but import torch, Dask or pytest, which takes a second; these imports count
    as failed for a moment.
    """
    compat = "sklearn.externals.array_api_compat"
    slow = [name for name in (f"{compat}.torch", f"{compat}.dask", "pytest") if name not in sys.modules]
    sys.modules |= dict.fromkeys(slow)  # type: ignore[arg-type] # so that importing it is an ImportError
    try:
        import skops.io  # type: ignore[import-untyped] # it has no type hints
    finally:
        for name in slow:
            del sys.modules[name]
    return skops.io


def _written(part: Any) -> tuple[bytes, str | None]:
    """Return a part as skops writes it, and why it cannot be saved; None if it can."""
    try:
        data = _skops().dumps(part, compression=zipfile.ZIP_DEFLATED)
        unknown = _types(data)[1]
    except Exception as error:  # skops meets whatever object a user put into a pipeline
        problem = f"skops cannot store its {type(part).__name__} ({one_line(error)})."
        return b"", _OF_TORCH if type(part).__module__.partition(".")[0] == "torch" else problem
    return data, _why_not_trusted(unknown[0]) if unknown else None


_OF_TORCH = (
    "it belongs to torch, and a model holds only data; convert a tensor to a NumPy array, and wrap a trained network "
    "in a TorchClassifier, which is saved as an ONNX graph."
)


def _keys_survive(keys: Collection[Any]) -> bool:
    """Return whether skops, which writes every key as text, reads the same keys back.

    It takes "false" for True, and one of the keys 1 and "1" is lost.
    """
    plain = all(type(key) in (str, int, float) or isinstance(key, np.number | np.str_) for key in keys)
    return plain and len({str(key) for key in keys}) == len(keys)


def _why_not_trusted(path: str) -> str:
    """Return the reason why a type cannot be in a model, and what to do."""
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] == "torch":
        return _OF_TORCH
    found = getattr(sys.modules.get(module), name, None)
    if (callable(found) and not isinstance(found, type)) or "<lambda>" in name:
        return (
            f"{path} is code, and a model holds only data; give a name, or an object of demur or scikit-learn. "
            "Wrap a trained network in a TorchClassifier."
        )
    return (
        f"{path} is neither demur's nor scikit-learn's own, and is not registered; decorate a loss, margin function or "
        "rule of your own with demur.losses.register, demur.margins.register_margin or demur.rules.register_rule, and "
        "save any other object with its own library."
    )


def _located(value: Any, place: str, problem: str) -> ModelFileError:
    """Return the error that names the innermost part that cannot be saved."""
    for name, part in _inside(value, place):
        deeper = _written(part)[1]
        if deeper is not None:
            return _located(part, name, deeper)
    return ModelFileError(f"cannot save {place}: {problem}")


def _parts(value: Any, place: str = "model", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Return a value and its parts, each with its place in the model."""
    if id(value) in above:
        hint = "; leave out set_fit_request and the like" if "._metadata_request" in place else ""
        raise ModelFileError(f"cannot save {place}: it contains itself{hint}.")
    yield place, value
    for name, part in _inside(value, place):
        yield from _parts(part, name, (*above, id(value)))


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Return the parts of a container or an object, each with its place in the model."""
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist() if value.dtype == object else []
    if isinstance(value, Mapping):
        yield from ((f"{place}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{place}[{number}]", part) for number, part in enumerate(value))
    elif hasattr(value, "__dict__") and not (isinstance(value, type | ModuleType) or _has_stored_form(value)):
        yield from ((f"{place}.{name}", part) for name, part in vars(value).items())


def _check_parts(model: Any) -> None:
    """Refuse keys that would change, and parts of scikit-learn that would read files or unpickle a cache in use."""
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    for place, part in _parts(model):
        if isinstance(part, Mapping) and not _keys_survive(part):
            raise ModelFileError(
                f"cannot save {place}: it is a dictionary with keys that skops cannot store; use text as keys."
            )
        if isinstance(part, CountVectorizer | HashingVectorizer):
            if part.input != "content":
                raise ModelFileError(f"{place} has input={part.input!r}, which reads files; use input='content'.")
            for name in ("tokenizer", "preprocessor", "analyzer"):
                if callable(getattr(part, name)):
                    raise ModelFileError(
                        f"{place}.{name} is code, and a model holds only data; use scikit-learn's own."
                    )
        if type(part).__module__.startswith("sklearn.") and getattr(part, "memory", None) is not None:
            raise ModelFileError(f"{place} has a memory, a cache of pickled objects; use memory=None.")


def _in_stored_form(model: Estimator) -> Estimator:
    """Return a model, or a copy of it in which boosted trees of other libraries and torch modules are plain data."""
    stored: dict[int, Any] = {}
    for place, part in reversed(list(_parts(model))):
        if _has_stored_form(part) and id(part) not in stored:
            try:
                stored[id(part)] = _stored_form(part)
            except UserError as error:
                raise ModelFileError(f"cannot save {place}: {error}") from error
        elif isinstance(part, FrozenEstimator) and stored:  # deepcopy would call the __deepcopy__ of what it holds
            stored[id(part)] = FrozenEstimator(deepcopy(part.estimator, stored))
    return deepcopy(model, stored) if stored else model


def _has_stored_form(part: Any) -> bool:
    return isinstance(part, TorchClassifier) or _library_of(part) is not None


def _library_of(part: Any) -> str | None:
    """Return the library of boosted trees whose classifier this is; None for anything else."""
    names = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(part).__mro__}
    return next((library for library, _ in LIBRARIES.items() & names), None)


def _stored_form(part: Estimator) -> Estimator:
    if (library := _library_of(part)) is not None:
        return BoostedTrees.of(part, library)
    from demur.deploy.onnx.onnx_graph import stored_network  # which imports torch

    return stored_network(part)
