"""A model as one skops archive: nothing is pickled, and only types on fixed lists are built.

skops stores scikit-learn's estimators, NumPy's arrays and plain values. This module adds the classes of demur that a
model may hold, and classes of the user's own, which are found through the registries.
"""

import sys
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from functools import cache
from importlib import import_module
from inspect import isabstract
from types import ModuleType
from typing import Any

import numpy as np
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning
from sklearn.frozen import FrozenEstimator

from demur import losses, margins, rules
from demur.array_types import Estimator
from demur.errors import InputError, UserError
from demur.estimators.boosted_trees import BoostedTrees, library_of
from demur.estimators.torch_classifier import TorchClassifier


class ModelFileError(InputError):
    """A model cannot be saved, or a path holds no model that can be loaded; the message says why in one sentence.

    Examples
    --------
    >>> from demur.deploy import load
    >>> load("no/such/model")
    Traceback (most recent call last):
        ...
    demur.deploy.model_parts.ModelFileError: there is no model at no/such/model; check the path.
    """


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
"""What demur's models are made of, beside losses, margin functions and rules, which the registries know."""


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
    return found, sorted(unknown - registered_types()) if unknown else []


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


def dump(model: Estimator) -> bytes:
    """Return a model as an archive.

    Raises
    ------
    ModelFileError
        If a part of it cannot be saved; the message names the part.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> load(dump(Chow(0.2)))
    Chow(cost=0.2)
    >>> dump({"rule": print})
    Traceback (most recent call last):
        ...
    demur.deploy.model_parts.ModelFileError: cannot save model['rule']: builtins.print is code, and a model holds ...
    """
    model = _in_stored_form(model)
    _check_parts(model)
    data, problem = _written(model)
    if problem is not None:
        raise _located(model, "model", problem)
    return data


def load(data: bytes) -> Any:
    """Return the model in an archive; nothing is built unless all its types are on the lists."""
    types, unknown = _types(data)
    if unknown:
        raise ModelFileError(
            f"the model holds {unknown[0]}, which is neither demur's nor scikit-learn's and not registered here; "
            "if it is a loss, a margin function or a rule of your own, import the module that registers it, then "
            "load again."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InconsistentVersionWarning)  # model_folder gives a warning of its own
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


def one_line(error: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


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
    "it belongs to torch, and a model holds only data; make a tensor a NumPy array, and a trained network of your own "
    "a TorchClassifier, which is saved as an ONNX graph."
)


def _keys_survive(keys: Collection[Any]) -> bool:
    """Return whether skops, which writes every key as text, reads the same keys back.

    It takes "false" for True, and one of the keys 1 and "1" is lost.
    """
    plain = all(type(key) in (str, int, float) or isinstance(key, np.number | np.str_) for key in keys)
    return plain and len({str(key) for key in keys}) == len(keys)


def _why_not_trusted(path: str) -> str:
    """Return why a type has no place in a model, and what to do."""
    module, _, name = path.rpartition(".")
    if module.partition(".")[0] == "torch":
        return _OF_TORCH
    found = getattr(sys.modules.get(module), name, None)
    if (callable(found) and not isinstance(found, type)) or "<lambda>" in name:
        return (
            f"{path} is code, and a model holds only data; give a name, or an object of demur or scikit-learn. A "
            "trained network of your own is saved as a TorchClassifier."
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
    """Return a value and all that it holds, each part with its place in the model."""
    if id(value) in above:
        hint = "; leave out set_fit_request and the like" if "._metadata_request" in place else ""
        raise ModelFileError(f"cannot save {place}: it contains itself{hint}.")
    yield place, value
    for name, part in _inside(value, place):
        yield from _parts(part, name, (*above, id(value)))


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Return what a container or an object holds, each part with its place in the model."""
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
    return isinstance(part, TorchClassifier) or library_of(part) is not None


def _stored_form(part: Estimator) -> Estimator:
    if not isinstance(part, TorchClassifier):
        return BoostedTrees.of(part)
    from demur.deploy.onnx.onnx_graph import stored_network  # which imports torch

    return stored_network(part)
