"""The archive of a model: read with a limit, written in one way, and looked at before and after its parts are built.

A model runs no code of its file. But scikit-learn follows the indices in decision trees, neighbour trees, support
vectors and encoders without looking, so that a forged one could bring the process down; and a small archive could
unpack to more than the memory. skops checks the types of the parts; their sizes, shapes and indices are checked here.
"""

import dataclasses
import functools
import inspect
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeAlias, get_args

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName

__all__ = ["Archive", "Node", "PartError", "check_built", "check_described", "nodes_of", "packed_anew"]

Node = ByName
"""A part as skops describes it in ``schema.json``: its class, how to build it, and what it is built from."""


Part: TypeAlias = Any
"""A built part, mostly of scikit-learn's, which has no types."""


class PartError(Exception):
    """A part is not as it must be; for the reader of archives, which adds which model it is."""


def _demand(condition: object, words: str) -> None:
    if not condition:
        raise PartError(words)


@dataclass(frozen=True)
class Archive:
    """The members of a skops archive, unpacked with a limit.

    Parameters
    ----------
    schema : dict
        The description of the model.
    members : dict of str to bytes
        Its arrays, each in NumPy's format.
    """

    schema: Node
    members: Mapping[str, bytes]

    RATIO: ClassVar[int] = 64
    """How many times its size an archive may unpack to."""

    _LARGEST_SCHEMA: ClassVar[int] = 1 << 25
    _OLDEST_PROTOCOL: ClassVar[int] = 2  # that of skops when this format began
    _NAME: ClassVar[re.Pattern[str]] = re.compile(r"\d{1,9}\.(npy|bin)|schema\.json")

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Unpack an archive, unless it is larger inside than any that demur writes."""
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            listed = archive.infolist()
            names = [info.filename for info in listed]
            _demand(len(set(names)) == len(names), "its archive holds a member twice.")
            _demand(all(map(cls._NAME.fullmatch, names)), "its archive holds a member that no model has.")
            size = sum(info.file_size for info in listed)
            if size > cls.RATIO * len(data) + (1 << 16):
                raise PartError(
                    f"its archive of {len(data):,} bytes would unpack to {size:,}, which none of demur's does."
                )
            _demand(
                archive.getinfo("schema.json").file_size <= cls._LARGEST_SCHEMA,
                f"its description has more than {cls._LARGEST_SCHEMA:,} bytes, which none of demur's has.",
            )
            members = {name: archive.read(name) for name in names}
        schema = json.loads(members.pop("schema.json"))
        _demand(isinstance(schema, dict), "its description is not an object.")
        if schema["protocol"] < cls._OLDEST_PROTOCOL:
            raise PartError(f"its protocol {schema['protocol']} is older than any that demur has written.")
        return cls(schema, members)

    def pack(self) -> bytes:
        """Return the archive as skops reads it, not compressed."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, content in self.members.items():
                archive.writestr(name, content)
            archive.writestr("schema.json", json.dumps(self.schema))
        return packed.getvalue()

    def check_members(self) -> None:
        """Look whether each array is as long as it says, before anybody makes room for it."""
        for name, content in self.members.items():
            if name.endswith(".npy"):
                _check_npy(content)

    def array(self, node: Node) -> AnyArray:
        """Return the array that a node describes."""
        _demand(node["__loader__"] == "NdArrayNode" and node["type"] == "numpy", "an array is of another type.")
        array: AnyArray = np.load(io.BytesIO(self.members[node["file"]]), allow_pickle=False)
        return array


_LARGEST_ITEM = 1 << 16
"""The bytes of one item of an array: NumPy makes room for one even where an array has none."""


def _check_npy(content: bytes) -> None:
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    read = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(version)
    _demand(read is not None, f"an array has version {version} of NumPy's format.")
    assert read is not None
    shape, _, dtype = read(stream)
    size = dtype.itemsize
    for length in shape:
        size *= length
    _demand(not dtype.hasobject, "an array holds objects.")
    _demand(dtype.itemsize <= _LARGEST_ITEM, f"an array holds items of {dtype.itemsize:,} bytes each.")
    _demand(size == len(content) - stream.tell(), f"an array of {dtype} and shape {shape} does not have its size.")


def nodes_of(schema: Node) -> Iterator[tuple[Node, str]]:
    """Return every part that a description names, outer ones first, each with its place in the model.

    Examples
    --------
    >>> def plain(text):
    ...     return {"__loader__": "JsonNode", "content": text}
    >>> attributes = {"__loader__": "DictNode", "content": {"cost": plain("0.2")}}
    >>> [place for _, place in nodes_of({"__loader__": "ObjectNode", "content": attributes})]
    ['model', 'model', 'model.cost']
    """
    waiting = [(schema, "model", False)]
    while waiting:
        node, place, holds_attributes = waiting.pop()
        yield node, place
        below: list[tuple[Node, str, bool]] = []
        for key, value in node.items():
            if isinstance(value, dict) and "__loader__" in value:
                below.append((value, place, key == "content" and node["__loader__"] == "ObjectNode"))
            elif isinstance(value, dict):
                for name, part in value.items():
                    inside = f"{place}.{name}" if holds_attributes else f"{place}[{name!r}]"
                    if isinstance(part, dict):
                        below.append((part, inside, False))
            elif isinstance(value, list):
                below += [(part, f"{place}[{k}]", False) for k, part in enumerate(value) if isinstance(part, dict)]
        waiting.extend(reversed(below))


_NO_IDENTITY = ("JsonNode", "TypeNode", "FunctionNode")
"""Whether two equal numbers or texts are one object differs from run to run, and does not matter."""


def packed_anew(schema: ByName, old: zipfile.ZipFile) -> bytes:
    """Return the same archive, compressed, with names and numbers that do not depend on memory addresses.

    skops names objects by ``id()``. Numbered in the order in which they are met instead, the same model gives the
    same bytes.
    """
    names: dict[str, str] = {}
    done: dict[int, ByName] = {}

    def rewritten(value: Any) -> Any:
        if isinstance(value, list):
            return [rewritten(item) for item in value]
        if not isinstance(value, dict):
            return value
        number = value.get("__id__") if value.get("__loader__") not in _NO_IDENTITY else None
        if number in done:
            return done[number]
        new = {key: rewritten(part) for key, part in value.items() if key not in ("__id__", "file")}
        if isinstance(value.get("file"), str):
            new["file"] = names.setdefault(value["file"], f"{len(names)}.{value['file'].rpartition('.')[2]}")
        if number is not None:
            new["__id__"] = len(done) + 1
            done[number] = new
        return new

    for node, _ in nodes_of(schema):
        _sort_set(node)
    text = json.dumps(rewritten(schema), separators=(",", ":")).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as new:
        for name, renamed in names.items():
            _write(new, renamed, _without_garbage(old.read(name)))
        _write(new, "schema.json", text)
    return packed.getvalue()


def _sort_set(node: ByName) -> None:
    """Put the items of a set, whose own order differs from run to run, into one order."""
    if node["__loader__"] == "SetNode":
        items = node["content"]
    elif node["__class__"] == "frozenset":
        items = node["content"]["content"][0]["content"]
    else:
        return
    if all(item["__loader__"] == "JsonNode" for item in items):
        items.sort(key=lambda item: str(item["content"]))


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
    """Compress a member, unless it would become so small that a reader had to take it for a bomb."""
    # a member below this size cannot do it: what the archive says about each takes a hundred bytes
    plain = len(content) > 1 << 12 and len(zlib.compress(content, 1)) * Archive.RATIO < 2 * len(content)
    info = zipfile.ZipInfo(name)  # without the time of day
    archive.writestr(info, content, zipfile.ZIP_STORED if plain else zipfile.ZIP_DEFLATED)


_NEVER_WRITTEN = ("CachedNode", "MethodNode", "OperatorFuncNode", "SparseMatrixNode")
"""What skops can read and demur never writes: links to other parts, calls, and indices that nothing checks."""

_CALLED_TO_BUILD = ("builtins.frozenset", "torch.device")
"""The types that may be built by calling them with what the file says."""


def check_described(archive: Archive, class_named: Callable[[str], type]) -> None:
    """Check parts by their description, before any of them is built.

    Raises
    ------
    PartError
    """
    archive.check_members()
    first: dict[int, Node] = {}
    for node, _ in nodes_of(archive.schema):
        loader, name = node["__loader__"], f"{node['__module__']}.{node['__class__']}"
        _demand(loader not in _NEVER_WRITTEN, f"no model of demur's has a {loader}.")
        if "__id__" in node:
            # skops builds the first part of a number wherever the number comes again
            _demand(first.setdefault(node["__id__"], node) == node, "two of its parts have one number.")
        if loader == "ConstructorFromReduceNode":
            _demand(name in _CALLED_TO_BUILD, f"it would call {name}.")
        if node["__class__"] == "Tree" and loader != "TypeNode":
            _demand(loader == "TreeNode", "a decision tree is not described as one.")
            _check_described_tree(archive, node)
        if ":" in node["__class__"]:
            _demand(loader == "ObjectNode", f"{name} is not described as an object.")
            _check_attributes(class_named(node["__class__"]), node)


def _check_attributes(cls: type, node: Node) -> None:
    """Check that an object of demur gets the attributes that its class has, and no others."""
    described = node.get("content")
    names = set() if described is None or described["__loader__"] == "JsonNode" else set(described["content"])
    for name in names:
        if not name.isidentifier() or name.startswith("__"):
            raise PartError(f"it gives a {cls.__name__} the attribute {name!r}, which it cannot have.")
    if dataclasses.is_dataclass(cls):
        unknown = names - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            raise PartError(f"{cls.__name__} has no field {min(unknown)!r}; a newer demur may know it.")
    missing = [name for name, default in _defaults(cls).items() if default is _NEEDED and name not in names]
    if missing:
        raise PartError(f"it holds a {cls.__name__} without its {missing[0]!r}; save it again.")


_NEEDED = inspect.Parameter.empty


def _defaults(cls: type) -> ByName:
    """Return the default of each field or parameter, or ``_NEEDED`` where it has none."""
    if not dataclasses.is_dataclass(cls):
        parameters = inspect.signature(cls).parameters.values()
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        return {one.name: one.default for one in parameters if one.kind in named}
    defaults: ByName = {}
    for field in dataclasses.fields(cls):
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
        else:
            defaults[field.name] = _NEEDED if field.default is dataclasses.MISSING else field.default
    return defaults


_TREE = "it holds a decision tree that points outside itself; it is not genuine."


def _check_described_tree(archive: Archive, node: Node) -> None:
    """Check the shapes of a tree's arrays, which its class takes on trust."""
    arguments, state = node["__reduce__"]["args"]["content"], node["content"]["content"]
    n_features, n_outputs = (json.loads(arguments[position]["content"]) for position in (0, 2))
    n_classes, nodes, values = (
        archive.array(arguments[1]),
        archive.array(state["nodes"]),
        archive.array(state["values"]),
    )
    node_count = json.loads(state["node_count"]["content"])
    _demand(all(type(number) is int for number in (n_features, n_outputs, node_count)), _TREE)
    _demand(n_classes.shape == (n_outputs,) and n_outputs >= 1 and n_classes.dtype.kind == "i", _TREE)
    _demand((n_classes >= 1).all() and n_features >= 1, _TREE)
    _demand(nodes.ndim == 1 and nodes.dtype.names is not None and len(nodes) == node_count >= 1, _TREE)
    _demand(values.shape == (node_count, n_outputs, n_classes.max()) and values.dtype == np.float64, _TREE)


def check_built(model: Part) -> None:
    """Check every part inside a model, however deep, before anybody asks it for a decision.

    What a class of demur's has gained since the model was saved gets its default.

    Raises
    ------
    PartError
        If a part points outside itself, or does not fit the part that it belongs to.
    """
    checks = _checks()
    waiting, seen = [model], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float)):
            continue
        seen.add(id(one))
        if type(one).__module__.startswith("demur.") and hasattr(one, "__dict__") and not isinstance(one, type):
            _fill_in_defaults(one)
        for cls, check in checks:
            if isinstance(one, cls):
                check(one)
        if isinstance(one, (list, tuple, set, frozenset)):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, np.ndarray):
            waiting.extend(one.ravel().tolist() if one.dtype == object else ())
        elif isinstance(one, functools.partial):  # looking at its __dict__ would make one
            waiting.extend((*one.args, *one.keywords.values()))
        elif hasattr(one, "__dict__") and not isinstance(one, type):
            waiting.extend(vars(one).values())


def _fill_in_defaults(part: Part) -> None:
    for name, default in _defaults(type(part)).items():
        if name not in vars(part) and default is not _NEEDED:
            object.__setattr__(part, name, default)  # frozen dataclasses refuse any other way


def _checks() -> tuple[tuple[type, Callable[[Part], None]], ...]:
    """Return for each class that takes its arrays on trust what must be true of them."""
    from sklearn.ensemble._forest import BaseForest
    from sklearn.ensemble._gb import BaseGradientBoosting
    from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
    from sklearn.linear_model._base import LinearClassifierMixin
    from sklearn.neighbors import BallTree, KDTree
    from sklearn.neighbors._base import NeighborsBase
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.svm._base import BaseLibSVM
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    from demur.deferral import DeferClassifier, DeferOption
    from demur.estimators.boosted_trees import BoostedTrees
    from demur.novelty import Novelty
    from demur.tabular import TableModel
    from demur.training.jobs import Trained

    return (
        (Tree, _check_tree),
        (BaseDecisionTree, _check_tree_owner),
        (BaseForest, _check_forest),
        (BaseGradientBoosting, _check_gradient_boosting),
        (BaseHistGradientBoosting, _check_histogram_boosting),
        (KDTree, _check_neighbour_tree),
        (BallTree, _check_neighbour_tree),
        (NeighborsBase, _check_neighbours),
        (OneHotEncoder, _check_one_hot),
        (BaseLibSVM, _check_support_vectors),
        (BoostedTrees, _check_boosted_trees),
        (LinearClassifierMixin, _check_coefficients),
        (Trained, _check_networks),
        (DeferOption, _check_deferring),
        (DeferClassifier, _check_jointly_deferring),
        (TableModel, _check_table_model),
        (Novelty, _check_novelty),
    )


def _check_tree(tree: Part) -> None:
    _demand(0 < tree.node_count <= tree.capacity, _TREE)
    inner = tree.children_left != -1
    _check_nodes(inner, tree.children_left, tree.children_right, tree.feature, tree.n_features)


def _check_nodes(inner: NDArray[np.bool_], left: AnyArray, right: AnyArray, feature: AnyArray, n_features: int) -> None:
    own = np.flatnonzero(inner)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _demand(((child > own) & (child < len(inner))).all(), _TREE)  # after its parent: no way round in circles
    asked = feature[inner].astype(np.int64)
    _demand(((asked >= 0) & (asked < n_features)).all(), _TREE)


def _check_tree_owner(owner: Part) -> None:
    tree = getattr(owner, "tree_", None)
    if tree is not None:
        _demand(tree.n_features == getattr(owner, "n_features_in_", None), _TREE)


def _check_forest(forest: Part) -> None:
    """Check that trees are as wide as the forest, which gives them its rows without looking again."""
    width = getattr(forest, "n_features_in_", None)
    trees = getattr(forest, "estimators_", ())
    _demand(all(tree.n_features_in_ == width and tree.tree_.n_features == width for tree in trees), _TREE)


def _check_gradient_boosting(booster: Part) -> None:
    estimators = getattr(booster, "estimators_", None)
    if estimators is None:
        return
    width, n_trees = booster.n_features_in_, booster.n_trees_per_iteration_
    _demand(isinstance(estimators, np.ndarray) and estimators.ndim == 2 and estimators.shape[1] == n_trees, _TREE)
    for owner in estimators.ravel():
        _demand(owner.n_features_in_ == width and owner.tree_.n_features == width, _TREE)
        _demand(owner.tree_.value.shape[1:] == (1, 1), _TREE)
    classes = getattr(booster, "classes_", ())
    _demand(n_trees == (1 if len(classes) <= 2 else len(classes)), _TREE)
    if not isinstance(booster.init_, str):
        from sklearn.dummy import DummyClassifier

        _demand(type(booster.init_) is DummyClassifier, "gradient boosting starts from a model that is not its own.")
        _demand(len(booster.init_.classes_) == len(classes) == len(booster.init_.class_prior_), _TREE)


def _check_histogram_boosting(booster: Part) -> None:
    predictors = [one for iteration in getattr(booster, "_predictors", ()) for one in iteration]
    if not predictors:
        return
    width, bins = booster._n_features, booster._bin_mapper
    categories = np.asarray(bins.is_categorical_)
    _demand(categories.shape == (width,) and len(bins.bin_thresholds_) == width, _TREE)
    _demand(all(len(one) <= booster.n_trees_per_iteration_ for one in booster._predictors), _TREE)
    for predictor in predictors:
        nodes = predictor.nodes
        _demand(nodes.ndim == 1 and nodes.dtype.names is not None and len(nodes) > 0, _TREE)
        inner = ~nodes["is_leaf"].astype(bool)
        _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], width)
        categorical = inner & nodes["is_categorical"].astype(bool)
        sets = (predictor.raw_left_cat_bitsets, predictor.binned_left_cat_bitsets)
        _demand(all(one.ndim == 2 and one.shape[1] == 8 for one in sets), _TREE)
        _demand((nodes["bitset_idx"][categorical] < min(map(len, sets))).all(), _TREE)
        _demand(categories[nodes["feature_idx"][categorical].astype(np.int64)].all(), _TREE)


def _check_neighbour_tree(tree: Part) -> None:
    words = "it holds a tree of neighbours that points outside itself; it is not genuine."
    data, order, nodes, bounds, _, n_levels, n_nodes, *_, metric, weight = tree.__getstate__()
    n_rows, width = data.shape
    _demand(n_rows and np.array_equal(np.sort(order), np.arange(n_rows)), words)
    _demand(1 <= n_levels < 60 and n_nodes == 2**n_levels - 1 == len(nodes), words)
    starts, ends = nodes["idx_start"], nodes["idx_end"]
    _demand(((starts >= 0) & (starts <= ends) & (ends <= n_rows)).all(), words)
    _demand(nodes["is_leaf"][len(nodes) // 2 :].all(), words)
    _demand(bounds.shape[1:] == (n_nodes, width), words)
    _demand(len(bounds) == (2 if type(tree).__name__.startswith("KD") else 1), words)
    _demand(weight is None or len(weight) == n_rows, words)
    own = metric.__getstate__()[1]
    _demand("Minkowski" not in type(metric).__name__ or len(own) in (0, width), words)


def _check_neighbours(model: Part) -> None:
    rows = getattr(model, "_fit_X", None)
    if rows is None:
        return
    words = "its neighbours do not fit together; it is not genuine."
    _demand(isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind == "f", words)
    _demand(rows.shape == (model.n_samples_fit_, model.n_features_in_), words)
    tree = model._tree
    _demand(tree is None or np.asarray(tree.data).shape == rows.shape, words)
    if hasattr(model, "classes_"):
        labels = np.asarray(model._y)
        _demand(labels.shape == (len(rows),) and labels.dtype.kind in "iu", words)
        _demand(((labels >= 0) & (labels < len(model.classes_))).all(), words)


def _check_one_hot(encoder: Part) -> None:
    found = getattr(encoder, "categories_", None)
    if found is None:
        return
    words = "an encoder of categories points outside itself; it is not genuine."
    _demand(len(found) == encoder.n_features_in_ == len(encoder._n_features_outs), words)
    _demand(encoder._n_features_outs == encoder._compute_n_features_outs(), words)
    grouped = getattr(encoder, "_default_to_infrequent_mappings", None) if encoder._infrequent_enabled else None
    dropped = encoder._drop_idx_after_grouping
    for position, categories in enumerate(found):
        n_codes = len(categories)
        mapping = None if grouped is None else grouped[position]
        if mapping is not None:
            rare = encoder._infrequent_indices[position]
            n_codes += 1 - len(rare)
            _demand(len(mapping) == len(categories) and min(mapping) >= 0 and max(mapping) < n_codes, words)
            _demand(min(rare) >= 0 and max(rare) < len(categories), words)
        if dropped is not None:
            _demand(dropped[position] is None or 0 <= dropped[position] < n_codes, words)


def _check_support_vectors(machine: Part) -> None:
    from sklearn.svm._base import BaseSVC

    if not hasattr(machine, "support_"):
        return
    words = "its support vectors do not fit together; it is not genuine."
    _demand(isinstance(machine, BaseSVC) and not machine._sparse, "support vectors are taken from classifiers only.")
    vectors, n_classes, n_rows = machine.support_vectors_, len(machine.classes_), machine.shape_fit_[0]
    n_vectors, n_pairs = len(machine.support_), n_classes * (n_classes - 1) // 2
    support, each = np.asarray(machine.support_), np.asarray(machine._n_support)
    _demand(((support >= 0) & (support < n_rows)).all() and machine.n_features_in_ == machine.shape_fit_[1], words)
    _demand(each.shape == (n_classes,) and (each >= 0).all() and each.sum() == n_vectors, words)
    if machine.kernel != "precomputed" and not callable(machine.kernel):
        _demand(vectors.shape == (n_vectors, machine.n_features_in_), words)
    _demand(machine._dual_coef_.shape == (n_classes - 1, n_vectors), words)
    _demand(machine._intercept_.shape == (n_pairs,), words)
    _demand(all(len(one) in (0, n_pairs) for one in (machine._probA, machine._probB)), words)


def _check_boosted_trees(trees: Part) -> None:
    """Check the text, then let its library read it: here, and not at the first row to decide."""
    from demur.estimators.boosted_trees import BoostedTreesError

    try:
        trees.check()
    except BoostedTreesError as error:
        raise PartError(str(error)) from error
    if hasattr(trees, "content_"):
        trees.booster()


def _check_coefficients(model: Part) -> None:
    words = "its coefficients are not numbers, or do not fit its columns; it is not genuine."
    for name in ("coef_", "intercept_"):
        found = vars(model).get(name)
        if found is not None:
            values = np.asarray(found)
            _demand(values.dtype.kind in "fiu" and np.isfinite(values).all(), words)
    if {"coef_", "n_features_in_"} <= vars(model).keys():
        _demand(np.asarray(model.coef_).shape[-1:] == (model.n_features_in_,), words)


def _check_networks(trained: Part) -> None:
    words = "its weights do not fit its networks; it is not genuine."
    vectors, failed = (trained.arrays()[name] for name in ("vectors", "failed"))
    _demand(vectors.dtype == np.float32 and failed.dtype == np.bool_, words)
    _demand(vectors.ndim == 2 and vectors.shape[1] == trained.architecture.vector_length, words)
    _demand(failed.shape == (len(vectors),), words)
    _demand(bool(np.isfinite(vectors).all()), "its weights are not numbers.")


def _check_novelty(novelty: Part) -> None:
    """Check that what tells novel rows fits together, by asking it about one."""
    if not hasattr(novelty, "space_"):
        return  # not fitted
    try:
        told = novelty.novel(np.zeros((1, int(novelty.n_features_in_))))
    except Exception as error:  # whatever arrays of any shape may raise
        raise PartError(f"what tells novel rows does not fit together ({error}); it is not genuine.") from error
    _demand(told.shape == (1,), "what tells novel rows does not fit together; it is not genuine.")


def _check_table_model(model: Part) -> None:
    """Check that the columns of a table are those that the first step takes."""
    from demur.tabular.table_model import Reads

    known = model.reads in get_args(Reads) and (model.reads != "texts" or len(model.schema.columns) == 1)
    _demand(known, f"it reads {len(model.schema.columns)} columns as {str(model.reads)[:20]!r}, which no model does.")
    first = model.classifier if model.dense is None else model.dense
    width = getattr(first, "n_features_in_", None)
    words = f"it reads {len(model.schema.columns)} columns, and its classifier takes {width}."
    _demand(width is None or width == len(model.schema.columns), words)
    novelty = getattr(model.novelty, "n_features_in_", len(model.schema.columns))
    _demand(novelty == len(model.schema.columns), "what tells novel rows is for another number of columns.")
    asked = list(getattr(model.classifier, "experts_", ()))
    words = f"it reads the answers of {list(model.experts.columns)}, and its classifier asks {asked}."
    _demand(asked == list(model.experts.columns) == list(model.experts.prices), words)


def _check_jointly_deferring(model: Part) -> None:
    """Check that networks have a score for each class and each expert, by asking them about one row."""
    if not hasattr(model, "experts_"):
        return  # not fitted
    words = "its networks do not fit its classes and experts; it is not genuine."
    n_classes, n_experts = len(model.classes_), len(model.experts_)
    _demand(np.shape(model.fit_prices_) == (n_experts,), words)
    try:
        proba, _, right = model._estimates(np.zeros((1, int(model.n_features_in_))))
    except Exception as error:  # whatever arrays of any shape may raise
        raise PartError(words) from error
    _demand(proba.shape == (1, n_classes) and right.shape == (1, n_experts), words)


def _check_deferring(model: Part) -> None:
    """Check that what is known about the experts is known about these experts, and fits the classes."""
    if not hasattr(model, "experts_"):
        return
    known, n_classes = set(model.experts_), len(model.classes_)
    words = "what it knows about its experts does not fit them; it is not genuine."
    for part in (model.reliability_, model.learners_, model.confusion_, model.combines_):
        _demand(set(part) <= known, words)
    _demand(set(model.combines_) == known, words)
    for name, expert in model.experts_.items():
        _demand(expert.accuracy is not None or name in model.reliability_, words)
        _demand(not model.combines_[name] or np.shape(model.confusion_[name]) == (n_classes, n_classes), words)
    for name, one in model.reliability_.items():
        _demand(one.kind != "features" or name in model.learners_, words)
        _demand(np.shape(one.by_class) == (n_classes,), words)
