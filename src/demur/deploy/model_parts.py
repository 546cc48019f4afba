"""A model as one skops archive: nothing is pickled, only listed types are built, the same model gives the same bytes.

skops stores scikit-learn's estimators, NumPy's arrays and plain objects. Three things are added here: which of demur's
own classes a model may hold, under names that stay when a class moves; classes of the user's own, found through the
registries; and the building of the parts that demur's own models have without skops, whose import loads all of
scikit-learn, and torch with it. An archive with any other part is left to skops, which has lists of its own.
"""

import functools
import io
import json
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.exceptions import InconsistentVersionWarning

from demur import losses, margins, rules
from demur.array_types import Estimator
from demur.deploy.model_archive import Archive, Node, PartError, check_built, check_described, nodes_of, packed_anew
from demur.errors import InputError, MissingExtraError
from demur.estimators.boosted_trees import LIBRARIES, BoostedTrees, BoostedTreesError, library_of

__all__ = ["ModelFileError", "class_named", "dump", "load"]


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
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",  # what is in these, model_archive looks at
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
"""Types beside those that skops trusts by itself, which are numbers, arrays and scikit-learn's public estimators."""

_PARTS = (
    "demur.calibration.OneVsRestCalibration",
    "demur.calibration.TemperatureScaling",
    "demur.columns.column.Column",
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
    "demur.deferral.reliability.LogitModel",
    "demur.deferral.reliability.Reliability",
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
    "demur.estimators.table_codes.KnownRows",
    "demur.estimators.table_codes.TableCodes",
    "demur.guarantees.risk_control.Certificate",
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
"""For each kind of class that a user may add, what makes one known."""

_BASES: Mapping[str, type] = {"loss": losses.Loss, "margin": margins.MarginFunction, "rule": rules.Rule}

_ARCHIVED = "demur"
"""The module that an archive gives for a class known here: ``demur`` and ``loss:CrossEntropy``, say."""


def class_named(name: str) -> type:
    """Return the class that has a name in the archives; nothing else of demur's is ever built.

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
    """Give skops, which looks a class up as an attribute of a module, the classes by their names in the archives."""
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
    """Return the name in the archives of a class, by the name that skops gives it; None if it is not ours."""
    if path in _PARTS:
        return f"part:{path.rpartition('.')[2]}"
    for kind in _BASES:
        for cls in _registered(kind):
            if path == f"{cls.__module__}.{cls.__name__}":
                return f"{kind}:{cls.__name__}"
    return None


def dump(model: Estimator) -> bytes:
    """Return the archive of a model, or say which part of it cannot be saved.

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
    import skops.io  # type: ignore[import-untyped] # it takes seconds to import

    model = _with_boosters_as_text(model)
    try:
        data = skops.io.dumps(model)
        untrusted = set(skops.io.get_untrusted_types(data=data)) - set(TRUSTED)
    except Exception as error:  # skops meets whatever object a user put into a pipeline
        raise _why_it_cannot_be_written(model, error) from error
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
        for node, place in nodes_of(schema):
            path = f"{node['__module__']}.{node['__class__']}"
            name = _archived_name(path) if path in untrusted else None
            if name is not None:
                class_named(name)  # two classes of one name could not be told apart
                node["__module__"], node["__class__"] = _ARCHIVED, name
            elif path in untrusted:
                raise ModelFileError(f"cannot save {place}: {_why_not(path, place)}")
            elif node["__loader__"] == "DictNode" and not _keys_survive(node):
                raise ModelFileError(f"cannot save {place}: {_ODD_KEYS}")
        return packed_anew(schema, archive)


def _with_boosters_as_text(model: Estimator) -> Estimator:
    """Return a copy in which classifiers of CatBoost, LightGBM and XGBoost are texts; the model itself without any."""
    if sys.modules.keys().isdisjoint(LIBRARIES):
        return model  # none of them was imported, so that nothing can be of one
    memo: dict[int, Any] = {}
    waiting, seen = [("model", model)], {id(model)}
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, BoostedTrees):
            continue  # it is text already, whatever it has made of that
        if library_of(value) is not None:
            try:
                memo[id(value)] = BoostedTrees.of(value)
            except BoostedTreesError as error:
                raise ModelFileError(f"cannot save {place}: {error}") from error
            continue
        for name, part in _inside(value, place):
            if id(part) not in seen and (isinstance(part, Mapping | list | tuple) or hasattr(part, "__dict__")):
                seen.add(id(part))
                waiting.append((name, part))
    return deepcopy(model, memo) if memo else model


def load(data: bytes) -> Any:
    """Return the model in an archive if all its types are trusted and its parts fit; nothing is built otherwise."""
    try:
        archive = Archive.read(data)
        for node, _ in nodes_of(archive.schema):
            if node["__module__"] == _ARCHIVED:
                class_named(node["__class__"])
                node["__module__"] = __name__
        check_described(archive, class_named)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InconsistentVersionWarning)  # the folder's reader warns, with our own class
            try:
                model = _built_here(archive)
            except _OtherPartsError:
                model = _built_by_skops(archive)
        check_built(model)
    except PartError as error:
        raise ModelFileError(f"the model cannot be read: {error}") from error
    except (ModelFileError, MissingExtraError):
        raise
    except Exception as error:  # the bytes are a stranger's, and each layer fails in its own way
        raise ModelFileError(f"the model cannot be read ({type(error).__name__}: {error}).") from error
    return model


def _built_by_skops(archive: Archive) -> Any:
    """Build a model with parts of scikit-learn's that only skops knows; it takes seconds to import."""
    import skops.io
    from skops.io.exceptions import UntrustedTypesFoundException  # type: ignore[import-untyped] # it has no type hints

    named = {f"{__name__}.{one['__class__']}" for one, _ in nodes_of(archive.schema) if one["__module__"] == __name__}
    packed, trusted = archive.pack(), [*TRUSTED, *named]
    try:
        return skops.io.loads(packed, trusted=trusted)
    except UntrustedTypesFoundException as error:
        names = sorted(set(skops.io.get_untrusted_types(data=packed)) - set(trusted))
        raise ModelFileError(
            f"the model holds {', '.join(names)}, which no model may hold; nothing of it was loaded."
        ) from error


def _keys_survive(node: Mapping[str, Any]) -> bool:
    """Say whether skops, which writes every key as text, reads the same keys back: it would take "false" for True."""
    kinds = {f"{one['__module__']}.{one['__class__']}" for one in node["key_types"]["content"]}
    return kinds <= {"builtins.str", "builtins.int", "builtins.float"} or all(
        kind.startswith("numpy.") and not kind.endswith("bool") for kind in kinds
    )


def _why_not(path: str, place: str) -> str:
    """Say why a type has no place in a model, in words that help."""
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
    if (callable(found) and (not isinstance(found, type) or path in place)) or "<lambda>" in name:
        return f"{path} is code, and a model holds only data; give a name, or an object of demur or scikit-learn."
    return (
        f"{path} is neither demur's nor scikit-learn's own; save that object with its own library, and put the "
        "model together again after loading."
    )


def _why_it_cannot_be_written(model: Estimator, error: Exception) -> ModelFileError:
    """Find the innermost part that skops cannot write, by trying one at a time."""
    import skops.io

    value, place, above = model, "model", {id(model)}
    while True:
        for name, part in _inside(value, place):
            if id(part) in above:
                hint = "; leave out set_fit_request and the like" if "._metadata_request" in name else ""
                return ModelFileError(f"cannot save {name}: it contains itself{hint}.")
            try:
                skops.io.dumps(part)
            except Exception as deeper:  # as in dump
                value, place, error = part, name, deeper
                above.add(id(part))
                break
        else:
            break
    if isinstance(error, RecursionError):
        return ModelFileError(f"cannot save {place}: its {type(value).__name__} is nested too deeply.")
    if type(value).__module__.partition(".")[0] == "torch":
        return ModelFileError(
            f"cannot save {place}: it is a torch {type(value).__name__}, which skops cannot store; make a tensor a "
            "NumPy array, and save the weights of your own network yourself: networks_.networks.module(0).state_dict()."
        )
    if isinstance(value, Mapping) and "keys must be" in str(error):
        return ModelFileError(f"cannot save {place}: {_ODD_KEYS}")
    return ModelFileError(f"cannot save {place}, a {type(value).__name__}: {error}")


_ODD_KEYS = (
    "it is a dictionary with keys that are neither text nor numbers, which skops cannot store; use text as keys."
)


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{place}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"{place}[{number}]", part) for number, part in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from ((f"{place}.{name}", part) for name, part in vars(value).items())


_INSIDE_SKLEARN = (
    "sklearn._loss.link.HalfLogitLink",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.LogLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
)
"""Classes of scikit-learn that are no estimators and are built all the same."""

_LOSSES = ("sklearn._loss._loss.CyHalfBinomialLoss", "sklearn._loss._loss.CyHalfMultinomialLoss")
_CHECK = "sklearn.utils.validation.check_array"
_KEYS: Mapping[str, Callable[[str], Any]] = {"builtins.str": str, "builtins.int": int, "builtins.float": float}


class _OtherPartsError(Exception):
    """The archive holds a part that is not built here."""


def _built_here(archive: Archive) -> Any:
    """Return the model in an archive whose description was checked, or raise _OtherPartsError before building any."""
    builder = _Builder(archive)
    builder.look(archive.schema)
    return builder.built(archive.schema)


def _path(node: Node) -> str:
    return f"{node['__module__']}.{node['__class__']}"


class _Builder:
    """Builds each kind of part as skops builds it, from classes on fixed lists."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._done: dict[int, Any] = {}

    # What there is, before anything is built ---------------------------------------------------------------------

    def look(self, schema: Node) -> None:
        for node, _ in nodes_of(schema):
            kind, path = node["__loader__"], _path(node)
            if kind not in _KINDS or not _KINDS[kind](self, path, node):
                raise _OtherPartsError(f"{kind} {path}")

    def _is_object(self, path: str, node: Node) -> bool:
        if node["__module__"] == __name__ or path in _INSIDE_SKLEARN:
            return True
        return path.startswith("sklearn.") and self._is_estimator(node)

    def _is_estimator(self, node: Node) -> bool:
        """Say whether a class is one of scikit-learn's estimators; importing its module runs nothing of the file's."""
        from sklearn.base import BaseEstimator

        module, name = node["__module__"], node["__class__"]
        if name.startswith("_") or not all(part.isidentifier() for part in module.split(".")) or "tests" in module:
            return False
        try:
            found = getattr(import_module(module), name, None)
        except ImportError:
            return False
        return isinstance(found, type) and issubclass(found, BaseEstimator) and found.__module__ == module

    # Building ----------------------------------------------------------------------------------------------------

    def built(self, node: Node) -> Any:
        number = node.get("__id__")
        if number is not None and number in self._done and node["__loader__"] not in ("JsonNode", "TypeNode"):
            return self._done[number]
        value = getattr(self, f"_{node['__loader__']}")(node)
        if number is not None:
            self._done[number] = value
        return value

    def _class(self, node: Node) -> type:
        if node["__module__"] == __name__:
            return class_named(node["__class__"])
        found: type = getattr(import_module(node["__module__"]), node["__class__"])
        return found

    def _JsonNode(self, node: Node) -> Any:  # noqa: N802 # these are called as skops calls the kinds
        return json.loads(node["content"])

    def _DictNode(self, node: Node) -> dict[Any, Any]:  # noqa: N802
        kinds = node["key_types"]["content"]
        if len(kinds) < len(node["content"]):
            raise PartError("a dictionary has more keys than types of keys.")
        keys = (_KEYS[_path(kind)](key) for kind, key in zip(kinds, node["content"], strict=False))
        return dict(zip(keys, map(self.built, node["content"].values()), strict=True))

    def _ListNode(self, node: Node) -> list[Any]:  # noqa: N802
        return [self.built(item) for item in node["content"]]

    def _TupleNode(self, node: Node) -> Any:  # noqa: N802
        content = tuple(self.built(item) for item in node["content"])
        return content if _path(node) == "builtins.tuple" else self._class(node)(*content)

    def _SliceNode(self, node: Node) -> slice:  # noqa: N802
        content = node["content"]
        return slice(content["start"], content["stop"], content["step"])

    def _TypeNode(self, node: Node) -> type:  # noqa: N802
        found: type = getattr(import_module(node["__module__"]), node["__class__"])
        return found

    def _NdArrayNode(self, node: Node) -> Any:  # noqa: N802
        if node["type"] == "json":
            shape, items = self.built(node["shape"]), [self.built(item) for item in node["content"]]
            if len(shape) != 1:
                return np.array(items, dtype="O")
            array = np.ndarray(shape=len(items), dtype="O")
            for position, item in enumerate(items):
                array[position] = item
            return array
        array = np.load(io.BytesIO(self._archive.members[node["file"]]), allow_pickle=False)
        return array if node["__class__"] == "ndarray" else getattr(np, node["__class__"])(array)

    def _DTypeNode(self, node: Node) -> Any:  # noqa: N802
        return self.built(node["content"]).dtype

    def _ObjectNode(self, node: Node) -> Any:  # noqa: N802
        cls: Any = self._class(node)
        instance = cls.__new__(cls)
        attributes = None if node.get("content") is None else self.built(node["content"])
        if attributes is None:
            return instance
        if hasattr(instance, "__setstate__"):
            instance.__setstate__(attributes)
        else:
            instance.__dict__.update(attributes)
        return instance

    def _TreeNode(self, node: Node) -> Any:  # noqa: N802
        from sklearn.tree._tree import Tree

        tree = Tree(*self.built(node["__reduce__"]["args"]))
        tree.__setstate__(self.built(node["content"]))
        return tree

    def _LossNode(self, node: Node) -> Any:  # noqa: N802
        loss = self._class(node)(*self.built(node["__reduce__"]["args"]))
        state = self.built(node["content"])
        if state:
            raise PartError("a loss of scikit-learn's has a state, which none has.")
        return loss

    def _FunctionNode(self, node: Node) -> Any:  # noqa: N802
        from sklearn.utils.validation import check_array

        return check_array

    def _PartialNode(self, node: Node) -> Any:  # noqa: N802
        content = node["content"]
        arguments, named = self.built(content["args"]), self.built(content["kwds"])
        if self.built(content["namespace"]):
            raise PartError("a function has attributes, which none has.")
        return functools.partial(self.built(content["func"]), *arguments, **named)

    def _RandomGeneratorNode(self, node: Node) -> Any:  # noqa: N802
        state = self.built(node["content"]["bit_generator"])
        generator = np.random.PCG64(np.random.SeedSequence(**self.built(node["content"]["seed_seq"])))
        if state["bit_generator"] != "PCG64":
            raise PartError("a generator of random numbers is not of the usual kind.")
        generator.state = state
        return np.random.Generator(generator)


_SCALARS = tuple(f"numpy.{name}" for name in ("bool", "float32", "float64", "int32", "int64", "uint32", "uint64"))


def _is_generator(builder: _Builder, path: str, node: Node) -> bool:
    name = node["content"]["bit_generator"]["content"]["bit_generator"]["content"]
    return path == "numpy.random._generator.Generator" and name == '"PCG64"'


_KINDS: Mapping[str, Callable[[_Builder, str, Node], bool]] = {
    "JsonNode": lambda builder, path, node: isinstance(node["content"], str),
    "DictNode": lambda builder, path, node: (
        path == "builtins.dict" and all(_path(kind) in _KEYS for kind in node["key_types"]["content"])
    ),
    "ListNode": lambda builder, path, node: path == "builtins.list",
    "TupleNode": lambda builder, path, node: path == "builtins.tuple",
    "SliceNode": lambda builder, path, node: path == "builtins.slice",
    "TypeNode": lambda builder, path, node: path in (*_KEYS, *_SCALARS),
    "NdArrayNode": lambda builder, path, node: (
        path in ("numpy.ndarray", *_SCALARS) and node["type"] in ("json", "numpy")
    ),
    "DTypeNode": lambda builder, path, node: path == "numpy.dtype",
    "ObjectNode": _Builder._is_object,
    "TreeNode": lambda builder, path, node: path == "sklearn.tree._tree.Tree",
    "LossNode": lambda builder, path, node: path in _LOSSES,
    "FunctionNode": lambda builder, path, node: path == _CHECK,
    "PartialNode": lambda builder, path, node: path == "functools.partial" and _path(node["content"]["func"]) == _CHECK,
    "RandomGeneratorNode": _is_generator,
}
"""Which parts of each kind are built here."""
