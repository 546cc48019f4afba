"""HistGradientBoostingClassifier, with missing values and categorical splits."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.deploy.onnx.arithmetic import columns, sigmoid, softmax
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.linear import with_complement
from demur.deploy.onnx.trees import Tree, check_size, leaf_numbers

__all__ = ["boosting_proba"]

_MOST_COLUMNS = 256
"""Trees share an operator until their categorical splits need so many extra columns, which bounds the memory."""
_MOST_TREES = 128


def boosting_proba(graph: Graph, X: str, model: Any) -> str:
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


def _preprocessed(graph: Graph, X: str, model: Any) -> _Data:
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
