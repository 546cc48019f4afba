"""Trees of scikit-learn as operators: decision trees, forests, and both kinds of gradient boosting."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier

from demur.array_types import AnyArray, Estimator
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph, columns, sigmoid, softmax, with_complement

__all__ = [
    "MOST_BYTES",
    "Tree",
    "as_tree",
    "boosting_proba",
    "check_size",
    "forest_proba",
    "gradient_boosting_proba",
    "leaf_numbers",
    "rounded",
    "tree_proba",
]

MOST_BYTES = 2**31 - 1
"""No protobuf message, and so no ONNX file without files beside it, can be larger."""

_BYTES_PER_NODE = 40
_EXACT = 2**24
"""Whole numbers up to here are exact in single precision."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree in arrays, one entry per node, the root first.

    Parameters
    ----------
    feature : array of int
        The column that a node looks at.
    threshold : array of float
        Rows at or below it go left.
    left, right : arrays of int
        The children.
    is_leaf, missing_left : arrays of bool
        Whether a row without a value goes left.
    content : array of int
        What a leaf holds: the number to return.
    """

    feature: AnyArray
    threshold: NDArray[np.float64]
    left: AnyArray
    right: AnyArray
    is_leaf: NDArray[np.bool_]
    missing_left: NDArray[np.bool_]
    content: AnyArray


def check_size(n_nodes: int, what: str) -> None:
    """Refuse trees that fit into no ONNX file, before they are written out."""
    if n_nodes * _BYTES_PER_NODE > MOST_BYTES:
        raise ExportError(
            f"{what} has {n_nodes:,} nodes, and more than about {MOST_BYTES // _BYTES_PER_NODE:,} do not fit into an "
            "ONNX file (2 GB); fit fewer or smaller trees (n_estimators, max_leaf_nodes, min_samples_leaf)."
        )


def leaf_numbers(graph: Graph, X: str, trees: Sequence[Tree]) -> str:
    """Return the content of each row's leaf in each tree, as int64 of shape (rows, trees).

    X is in double precision, and so are the comparisons.
    """
    helper, sizes = graph.onnx.helper, [len(tree.feature) for tree in trees]
    if max(int(tree.content.max()) for tree in trees) >= _EXACT:
        raise ExportError(f"the trees have more than {_EXACT:,} different leaves; fit fewer or smaller trees.")
    is_leaf = np.concatenate([tree.is_leaf for tree in trees])
    tree_ids = np.repeat(np.arange(len(trees)), sizes)
    node_ids = np.concatenate([np.arange(size) for size in sizes])

    def inner(name: str) -> AnyArray:
        return np.where(is_leaf, 0, np.concatenate([getattr(tree, name) for tree in trees]))

    content = np.concatenate([tree.content for tree in trees])[is_leaf]
    attributes: dict[str, AnyArray] = {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": node_ids,
        "nodes_featureids": inner("feature"),
        "nodes_truenodeids": inner("left"),
        "nodes_falsenodeids": inner("right"),
        "nodes_missing_value_tracks_true": inner("missing_left"),
        "target_treeids": tree_ids[is_leaf],
        "target_nodeids": node_ids[is_leaf],
        "target_ids": tree_ids[is_leaf],
    }
    numbers = graph.op("TreeEnsembleRegressor", X, domain=DOMAIN_ML, n_targets=len(trees))
    node = graph.nodes[-1]
    for name, values in attributes.items():
        node.attribute.append(graph.onnx.AttributeProto(name=name, type=graph.onnx.AttributeProto.INTS))
        node.attribute[-1].ints.extend(values.astype(np.int64).tolist())
    modes = [b"LEAF" if leaf else b"BRANCH_LEQ" for leaf in is_leaf.tolist()]
    node.attribute.append(helper.make_attribute("nodes_modes", modes))
    for name, values in (("nodes_values", inner("threshold")), ("target_weights", content)):
        tensor = graph.onnx.numpy_helper.from_array(values.astype(np.float64), name)
        node.attribute.append(helper.make_attribute(f"{name}_as_tensor", tensor))
    return graph.cast(numbers, np.int64)


_TREES_AT_A_TIME = 32
"""The leaves of so many trees are looked up together, which bounds the memory by rows x trees x classes."""


def tree_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a DecisionTreeClassifier or ExtraTreeClassifier."""
    return _mean_leaf(graph, X, [model], model)


def forest_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a RandomForestClassifier or ExtraTreesClassifier."""
    return _mean_leaf(graph, X, model.estimators_, model)


def _mean_leaf(graph: Graph, X: str, members: Any, model: Estimator) -> str:
    if model.n_outputs_ != 1:
        raise ExportError(f"{type(model).__name__} has {model.n_outputs_} targets; fit one model for each.")
    trees = [member.tree_ for member in members]
    check_size(sum(tree.node_count for tree in trees), f"{type(model).__name__}")
    is_leaf = np.concatenate([tree.children_left < 0 for tree in trees])
    leaves = np.concatenate([tree.value[:, 0, :] for tree in trees])[is_leaf]
    distinct, places = np.unique(leaves, axis=0, return_inverse=True)  # pure leaves are all alike
    rows = np.zeros(len(is_leaf), dtype=np.int64)
    rows[is_leaf] = places.ravel()
    ends = np.cumsum([tree.node_count for tree in trees])[:-1]
    parts = [as_tree(tree, part) for tree, part in zip(trees, np.split(rows, ends), strict=True)]
    table, total, single = graph.constant(distinct), "", rounded(graph, X)
    for start in range(0, len(parts), _TREES_AT_A_TIME):
        numbers = leaf_numbers(graph, single, parts[start : start + _TREES_AT_A_TIME])
        found = graph.op("Gather", table, numbers, axis=0)
        summed = graph.op("ReduceSum", found, np.array([1], dtype=np.int64), keepdims=0)
        total = graph.op("Add", total, summed) if total else summed
    return graph.op("Div", total, np.array(float(len(parts))))


def rounded(graph: Graph, X: str) -> str:
    """Round to single precision, as scikit-learn does before it compares with thresholds in double precision."""
    return graph.cast(graph.cast(X, np.float32), np.float64)


def as_tree(tree: Any, content: Any) -> Tree:
    """Return a scikit-learn tree with a number for each of its nodes, of which those of the leaves matter."""
    nodes = tree.__getstate__()["nodes"]  # the only place where scikit-learn shows missing_go_to_left
    return Tree(
        tree.feature,
        tree.threshold,
        tree.children_left,
        tree.children_right,
        tree.children_left < 0,
        nodes["missing_go_to_left"].astype(bool),
        content,
    )


_STEPS_AT_A_TIME = 32


def gradient_boosting_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a GradientBoostingClassifier."""
    if model.loss != "log_loss":
        raise ExportError(f"GradientBoostingClassifier with loss={model.loss!r} is not supported; use 'log_loss'.")
    if not (isinstance(model.init_, DummyClassifier) or model.init_ == "zero"):
        raise ExportError("GradientBoostingClassifier with init=... is not supported; leave init out, or use 'zero'.")
    steps = model.estimators_
    check_size(sum(one.tree_.node_count for one in steps.ravel()), "GradientBoostingClassifier")
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))
    raw, single = graph.constant(np.asarray(start, dtype=np.float64)), rounded(graph, X)
    for first in range(0, len(steps), _STEPS_AT_A_TIME):
        trees = [one.tree_ for one in steps[first : first + _STEPS_AT_A_TIME].ravel()]
        values = np.concatenate([tree.value[:, 0, 0] for tree in trees]) * model.learning_rate
        ends = np.cumsum([0, *(tree.node_count for tree in trees)])
        parts = [as_tree(tree, np.arange(ends[k], ends[k + 1])) for k, tree in enumerate(trees)]
        found = graph.op("Gather", values, leaf_numbers(graph, single, parts))
        width = steps.shape[1]
        shape = np.array([0, len(trees) // width, width], dtype=np.int64)  # 0 keeps the number of rows
        summed = graph.op("ReduceSum", graph.op("Reshape", found, shape), np.array([1], dtype=np.int64), keepdims=0)
        raw = graph.op("Add", raw, summed)
    return softmax(graph, raw) if steps.shape[1] > 1 else with_complement(graph, sigmoid(graph, raw, np.float64))


_MOST_COLUMNS = 256
"""Trees share an operator until their categorical splits need so many extra columns, which bounds the memory."""
_MOST_TREES = 128


def boosting_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a HistGradientBoostingClassifier."""
    n_trees = model.n_trees_per_iteration_
    predictors = [predictor for iteration in model._predictors for predictor in iteration]
    check_size(sum(len(predictor.nodes) for predictor in predictors), "HistGradientBoostingClassifier")
    data = _preprocessed(graph, X, model)
    raw = graph.constant(np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1, n_trees))
    known, known_place = model._bin_mapper.make_known_categories_bitsets()
    group = _Group(data, known, known_place)
    for start in range(0, len(predictors), n_trees):
        for predictor in predictors[start : start + n_trees]:
            group.add(predictor)
        if len(group.trees) >= _MOST_TREES or group.n_columns >= _MOST_COLUMNS:
            raw = group.added_to(graph, raw, n_trees)
            group = _Group(data, known, known_place)
    if group.trees:
        raw = group.added_to(graph, raw, n_trees)
    if n_trees > 1:
        return softmax(graph, raw)
    return with_complement(graph, sigmoid(graph, raw, np.float64))


@dataclass(frozen=True)
class _Data:
    """The columns as the trees see them, and for each categorical one the row of its lookup tables."""

    matrix: str
    n_columns: int
    rows: dict[int, str]
    n_codes: dict[int, int]


def _preprocessed(graph: Graph, X: str, model: Estimator) -> _Data:
    """Put the categorical columns first, as the model does, and number their categories from 1; 0 is anything else."""
    if model._preprocessor is None:
        return _Data(X, model.n_features_in_, {}, {})
    is_category = np.asarray(model.is_categorical_, dtype=bool)
    order = np.r_[np.flatnonzero(is_category), np.flatnonzero(~is_category)]
    encoder = model._preprocessor.named_transformers_["encoder"]
    rows: dict[int, str] = {}
    n_codes: dict[int, int] = {}
    for place, (source, categories) in enumerate(zip(order, encoder.categories_, strict=False)):
        if categories.dtype.kind not in "biuf":
            raise ExportError(
                "HistGradientBoostingClassifier was fitted on categories that are text; encode them as numbers first, "
                "or fit the table with demur.tabular.fit_table, which exports them too."
            )
        values = categories.astype(np.float64)
        values = values[~np.isnan(values)]
        hit = graph.cast(graph.op("Equal", columns(graph, X, [source]), values), np.float32)
        number = graph.op("MatMul", hit, np.arange(1, len(values) + 1, dtype=np.float32))
        rows[place], n_codes[place] = graph.cast(number, np.int64), len(values)
    return _Data(columns(graph, X, order), len(order), rows, n_codes)


@dataclass
class _Group:
    """Trees that become one operator."""

    data: _Data
    known: NDArray[np.uint32]
    known_place: NDArray[np.uint32]
    trees: list[Tree] = field(default_factory=list)
    values: list[NDArray[np.float64]] = field(default_factory=list)
    splits: dict[int, list[NDArray[np.float64]]] = field(default_factory=dict)
    """For each categorical column its splits, as tables over the codes: 0 goes left, 1 goes right."""
    places: list[tuple[Tree, int, int, int]] = field(default_factory=list)
    """Which node of which tree looks at which split of which column."""

    @property
    def n_columns(self) -> int:
        return sum(map(len, self.splits.values()))

    def add(self, predictor: Any) -> None:
        nodes = predictor.nodes
        is_leaf = nodes["is_leaf"].astype(bool)
        before = sum(map(len, self.values))
        tree = Tree(
            nodes["feature_idx"].astype(np.int64),
            nodes["num_threshold"].astype(np.float64),
            nodes["left"].astype(np.int64),
            nodes["right"].astype(np.int64),
            is_leaf,
            nodes["missing_go_to_left"].astype(bool),
            np.arange(before, before + len(nodes)),
        )
        self.trees.append(tree)
        self.values.append(nodes["value"].astype(np.float64))
        for number in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf).tolist():
            feature = int(nodes["feature_idx"][number])
            tables = self.splits.setdefault(feature, [])
            self.places.append((tree, number, feature, len(tables)))
            tables.append(
                self._table(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][number]], feature, tree, number)
            )
            tree.threshold[number] = 0.5

    def _table(self, left: NDArray[np.uint32], feature: int, tree: Tree, number: int) -> NDArray[np.float64]:
        codes = np.arange(self.data.n_codes[feature])
        goes_left, is_known = _members(left, codes), _members(self.known[self.known_place[feature]], codes)
        missing_left = bool(tree.missing_left[number])
        left_of = np.r_[missing_left, np.where(is_known, goes_left, missing_left)]
        return np.where(left_of, 0.0, 1.0)

    def added_to(self, graph: Graph, raw: str, n_trees: int) -> str:
        """Return the raw predictions with those of this group added."""
        first, parts, width = {}, [self.data.matrix], self.data.n_columns
        for feature, tables in self.splits.items():
            first[feature], width = width, width + len(tables)
            parts.append(graph.op("Gather", np.column_stack(tables), self.data.rows[feature], axis=0))
        for tree, number, feature, split in self.places:
            tree.feature[number] = first[feature] + split
        matrix = graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        found = graph.op("Gather", np.concatenate(self.values), leaf_numbers(graph, matrix, self.trees))
        shape = np.array([0, len(self.trees) // n_trees, n_trees], dtype=np.int64)  # 0 keeps the number of rows
        summed = graph.op("ReduceSum", graph.op("Reshape", found, shape), np.array([1], dtype=np.int64), keepdims=0)
        return graph.op("Add", raw, summed)


def _members(bitset: NDArray[np.uint32], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return ((bitset[codes // 32] >> (codes % 32).astype(np.uint32)) & 1).astype(bool)
