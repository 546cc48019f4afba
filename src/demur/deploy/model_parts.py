"""A model as one skops archive: nothing is pickled, and only types on fixed lists are built.

skops stores scikit-learn's estimators, NumPy's arrays and plain values. This module adds the classes of demur that a
model may hold, under names that do not change when a class moves to another module, and classes of the user's own,
which are found through the registries.
"""

import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.exceptions import InconsistentVersionWarning

from demur import losses, margins, rules
from demur.array_types import ByName, Estimator
from demur.errors import InputError
from demur.estimators.boosted_trees import LIBRARIES, BoostedTrees, BoostedTreesError, library_of

__all__ = ["ModelFileError", "class_named", "dump", "load", "one_line"]


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
    "demur.deferral.expert_reliability.LogitModel",
    "demur.deferral.expert_reliability.ExpertReliability",
    "demur.deferral.defer_option.StoredProbabilities",
    "demur.estimators.auto_classifier.AutoClassifier",
    "demur.estimators.boosted_trees.BoostedTrees",
    "demur.estimators.candidates.Tried",
    "demur.estimators.cross_fitting.CodedLabels",
    "demur.estimators.precomputed_probabilities.PrecomputedProbabilities",
    "demur.estimators.reject_classifier.RejectClassifier",
    "demur.estimators.reject_option.RejectOption",
    "demur.estimators.network_selection.Candidate",
    "demur.estimators.network_selection.FittedNetworks",
    "demur.estimators.network_selection.ScaledNetworks",
    "demur.estimators.table_encoding.KnownRows",
    "demur.estimators.table_encoding.TableEncoding",
    "demur.guarantees.risk_control.RiskCertificate",
    "demur.label_shift.LabelShift",
    "demur.novelty.KeptRows",
    "demur.novelty.Novelty",
    "demur.novelty.Space",
    "demur.rules.Decision",
    "demur.tabular.expert_columns.ExpertColumns",
    "demur.tabular.table_model.TableModel",
    "demur.training.mlp.MLP",
    "demur.training.robust_scaling.SmoothRobustScaler",
    "demur.training.tabular_net.PeriodicEmbeddings",
    "demur.training.tabular_net.TabularNet",
    "demur.training.jobs.Trained",
)
"""What demur's models are made of, beside losses, margin functions and rules, which the registries know."""

_REGISTERED_BY = {
    "loss": "demur.losses.register",
    "margin": "demur.margins.register_margin",
    "rule": "demur.rules.register_rule",
}
"""For each kind of class that a user may add, the decorator that registers one."""

_BASES: Mapping[str, type] = {"rule": rules.Rule, "loss": losses.Loss, "margin": margins.MarginFunction}

_NEVER_OURS = ("builtins", "numpy", "scipy", "sklearn")
"""Packages whose classes keep their names in an archive."""

_ARCHIVED = "demur"
"""The module that an archive names for a class of the lists above: ``demur`` and ``loss:CrossEntropy``, for example."""

_MOST_UNPACKED = 100
"""How many times its own size an archive may unpack to; decision trees compress about ten times."""

_SMALL = 1 << 24
"""Archives that unpack to no more than 16 MiB are not held to that ratio."""


def class_named(name: str) -> type:
    """Return the class that has a name in the archives.

    Examples
    --------
    >>> class_named("part:MLP").__module__, class_named("loss:CrossEntropy").__name__
    ('demur.training.mlp', 'CrossEntropy')
    >>> class_named("rule:MyOwn")
    Traceback (most recent call last):
        ...
    demur.deploy.model_parts.ModelFileError: the model holds the rule 'MyOwn', which is not registered here; import ...
    """
    kind, _, short = name.partition(":")
    if kind == "part":
        for path in _PARTS:
            module, _, found = path.rpartition(".")
            if found == short:
                part: type = getattr(import_module(module), short)
                return part
    if kind in _BASES:
        classes = [cls for cls in _registered(kind) if cls.__name__ == short]
        if len(classes) == 1:
            return classes[0]
        if classes:
            raise ModelFileError(f"two registered classes are called {short}; give one of them another name.")
        raise ModelFileError(
            f"the model holds the {kind} {short!r}, which is not registered here; import the module that registers it "
            f"with {_REGISTERED_BY[kind]}, then load again."
        )
    raise ModelFileError(f"the model names the class {name!r}, which no model may hold; a newer demur may know it.")


def __getattr__(name: str) -> type:
    """Let skops, which looks a class up as an attribute of a module, find classes by their names in the archives."""
    if ":" not in name:
        raise AttributeError(name)
    return class_named(name)


def _registered(kind: str) -> set[type]:
    if kind == "loss":
        return losses.registry.registered_classes()
    if kind == "margin":
        return margins.registered_classes()
    return set(rules.available_rules().values())


def _archived_name(path: str) -> str | None:
    """Return the name in the archives of a class, given its module and name; None if it is on no list."""
    if path in _PARTS:
        return f"part:{path.rpartition('.')[2]}"
    for kind in _BASES:
        for cls in _registered(kind):
            if path == f"{cls.__module__}.{cls.__name__}":
                return f"{kind}:{cls.__name__}"
    return None


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
    model = _with_stored_boosters(model)
    _refuse_outside_access(model)
    data, problem = _written(model, "model")
    if problem is not None:
        raise ModelFileError(_located(model, problem))
    smaller = _renamed(data, _to_archived, zipfile.ZIP_DEFLATED)
    return smaller if _unpacks_within_limits(smaller) else _renamed(data, _to_archived, zipfile.ZIP_STORED)


def load(data: bytes) -> Any:
    """Return the model in an archive; nothing is built unless all its types are on the lists."""
    import skops.io  # type: ignore[import-untyped] # it takes seconds to import

    try:
        if not _unpacks_within_limits(data):
            raise ModelFileError("the model unpacks to far more bytes than it has; it was not written by demur.")
        archive = _renamed(data, _from_archived, zipfile.ZIP_STORED)
        own = {node["__class__"] for node in _nodes(_schema(archive)) if node["__module__"] == __name__}
        trusted = [*TRUSTED, *(f"{__name__}.{name}" for name in own if class_named(name))]
        unknown = sorted(set(skops.io.get_untrusted_types(data=archive)) - set(trusted))
        if unknown:
            raise ModelFileError(f"the model holds {', '.join(unknown)}, which no model may hold; nothing was loaded.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # model_folder gives a warning of its own
            model = skops.io.loads(archive, trusted=trusted)
        _refuse_outside_access(model)
    except ModelFileError:
        raise
    except Exception as error:  # the bytes may be anything, and skops, NumPy and scikit-learn fail in their own ways
        raise ModelFileError(f"the model cannot be read ({type(error).__name__}: {one_line(error)}).") from error
    return model


def one_line(error: Exception) -> str:
    """Return the message of an error on one line."""
    return " ".join(str(error).split())


def _unpacks_within_limits(data: bytes) -> bool:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(info.file_size for info in archive.infolist())
    return size <= max(_SMALL, _MOST_UNPACKED * len(data))


def _schema(data: bytes) -> ByName:
    """Return skops' description of the model in an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema: ByName = json.loads(archive.read("schema.json"))
    return schema


def _nodes(value: Any) -> Iterator[ByName]:
    """Return the description of each part of a model.

    Only skops' own descriptions have text under ``__loader__``: a dictionary of the user's with such a key has the
    description of its value there.
    """
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if isinstance(one.get("__loader__"), str):
                yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _renamed(data: bytes, rename: Callable[[str, str], tuple[str, str]], compression: int) -> bytes:
    """Return an archive in which each class, given by its module and name, has another module and name."""
    schema = _schema(data)
    for node in _nodes(schema):
        node["__module__"], node["__class__"] = rename(node["__module__"], node["__class__"])
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(packed, "w", compression) as new:
        for name in old.namelist():
            new.writestr(name, json.dumps(schema) if name == "schema.json" else old.read(name))
    return packed.getvalue()


def _to_archived(module: str, name: str) -> tuple[str, str]:
    archived = None if module.partition(".")[0] in _NEVER_OURS else _archived_name(f"{module}.{name}")
    return (module, name) if archived is None else (_ARCHIVED, archived)


def _from_archived(module: str, name: str) -> tuple[str, str]:
    return (__name__ if module == _ARCHIVED else module), name


def _written(part: Any, place: str) -> tuple[bytes, str | None]:
    """Return a part as skops writes it, and why it cannot be saved; None if it can."""
    import skops.io

    try:
        data = skops.io.dumps(part)
        untrusted = set(skops.io.get_untrusted_types(data=data)) - set(TRUSTED)
    except RecursionError:
        return b"", f"its {type(part).__name__} is nested too deeply."
    except Exception as error:  # skops meets whatever object a user put into a pipeline
        return b"", _why_skops_cannot(part, error)
    for path in sorted(untrusted):
        name = _archived_name(path)
        if name is None:
            return b"", _why_not_trusted(path, place)
        class_named(name)  # refuses two classes of one name
    if not all(_keys_survive(node) for node in _nodes(_schema(data)) if node["__loader__"] == "DictNode"):
        return b"", _ODD_KEYS
    return data, None


_ODD_KEYS = "it is a dictionary with keys that skops cannot store; use text as keys."


def _keys_survive(node: ByName) -> bool:
    """Return whether skops, which writes every key as text, reads the same keys back.

    It takes "false" for True, and one of the keys 1 and "1" is lost.
    """
    kinds = [f"{one['__module__']}.{one['__class__']}" for one in node["key_types"]["content"]]
    return len(kinds) == len(node["content"]) and all(
        kind in ("builtins.str", "builtins.int", "builtins.float")
        or (kind.startswith("numpy.") and not kind.startswith("numpy.bool"))
        for kind in kinds
    )


def _why_skops_cannot(part: Any, error: Exception) -> str:
    if type(part).__module__.partition(".")[0] == "torch":
        return (
            f"it is a torch {type(part).__name__}, which skops cannot store; make a tensor a NumPy array, and save the "
            "weights of your own network yourself: networks_.networks.module(0).state_dict()."
        )
    if isinstance(part, Mapping) and "keys must be" in str(error):
        return _ODD_KEYS
    return f"skops cannot store its {type(part).__name__} ({one_line(error)})."


def _why_not_trusted(path: str, place: str) -> str:
    """Return why a type has no place in a model, and what to do."""
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    for kind, base in _BASES.items():
        if isinstance(found, type) and issubclass(found, base):
            return (
                f"the {kind} {name} is not registered, so that no other program could find its code; decorate the "
                f"class with {_REGISTERED_BY[kind]}."
            )
    if place.endswith(".module"):
        return (
            f"{path} is code, and a model holds only data; leave module=None for the built-in network, or save "
            "networks_.networks.module(0).state_dict() yourself."
        )
    if (callable(found) and not isinstance(found, type)) or "<lambda>" in name:
        return f"{path} is code, and a model holds only data; give a name, or an object of demur or scikit-learn."
    return (
        f"{path} is neither demur's nor scikit-learn's own; save that object with its own library, and put the "
        "model together again after loading."
    )


def _located(model: Estimator, problem: str) -> str:
    """Find the innermost part that cannot be saved, by trying one at a time."""
    value, place, above = model, "model", {id(model)}
    descends = True
    while descends:
        descends = False
        for name, part in _inside(value, place):
            if id(part) in above:
                hint = "; leave out set_fit_request and the like" if "._metadata_request" in name else ""
                return f"cannot save {name}: it contains itself{hint}."
            deeper = _written(part, name)[1]
            if deeper is not None:
                value, place, problem, descends = part, name, deeper, True
                above.add(id(part))
                break
    return f"cannot save {place}: {problem}"


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Return what a container or an object holds, each part with its place in the model."""
    if isinstance(value, Mapping):
        yield from ((f"{place}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{place}[{number}]", part) for number, part in enumerate(value))
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from ((f"{place}[{number}]", part) for number, part in enumerate(value.ravel().tolist()))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f"{place}.{name}", part) for name, part in vars(value).items())


def _refuse_outside_access(model: Any) -> None:
    """Refuse parts of scikit-learn that would read files or unpickle a cache when they are used.

    Raises
    ------
    ModelFileError
    """
    from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer

    waiting, seen = [("model", model)], {id(model)}
    while waiting:
        place, part = waiting.pop()
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
        for name, inner in _inside(part, place):
            if id(inner) not in seen and (
                isinstance(inner, Mapping | list | tuple | np.ndarray) or hasattr(inner, "__dict__")
            ):
                seen.add(id(inner))
                waiting.append((name, inner))


def _with_stored_boosters(model: Estimator) -> Estimator:
    """Return a model in which classifiers of CatBoost, LightGBM and XGBoost are in their stored form.

    The given model is not changed; parts that hold such a classifier are copied.
    """
    if sys.modules.keys().isdisjoint(LIBRARIES):
        return model  # none of the libraries was imported
    done: dict[int, Any] = {}

    def stored(value: Any, place: str) -> Any:
        if id(value) in done:
            return done[id(value)]
        done[id(value)] = value
        if isinstance(value, BoostedTrees):
            return value
        if library_of(value) is not None:
            try:
                done[id(value)] = BoostedTrees.of(value)
            except BoostedTreesError as error:
                raise ModelFileError(f"cannot save {place}: {error}") from error
        elif isinstance(value, list | tuple):
            parts = [stored(part, name) for name, part in _inside(value, place)]
            if any(new is not old for new, old in zip(parts, value, strict=True)):
                done[id(value)] = type(value)(parts)
        elif isinstance(value, dict) or (hasattr(value, "__dict__") and not isinstance(value, type)):
            content = value if isinstance(value, dict) else vars(value)
            parts = [stored(part, name) for name, part in _inside(value, place)]
            changed = {name: new for new, (name, old) in zip(parts, content.items(), strict=True) if new is not old}
            if changed:
                # copy looks methods up on the class; deepcopy would use the __deepcopy__ of what FrozenEstimator holds
                done[id(value)] = copy(value)
                (done[id(value)] if isinstance(value, dict) else vars(done[id(value)])).update(changed)
        return done[id(value)]

    return stored(model, "model")
