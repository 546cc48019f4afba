"""Trees of scikit-learn as ONNX operators: decision trees, forests and both kinds of gradient boosting.

skl2onnx rounds thresholds and probabilities to single precision, so that rows on a threshold and votes that tie would
be decided differently, and it has no form for the category splits of histogram gradient boosting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier

from demur.array_types import AnyArray, Estimator
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph

__all__ = ["boosting_scores", "forest_proba", "gradient_boosting_scores"]

_ITERATIONS_AT_A_TIME = 32
"""Iterations of boosting that share one operator, which bounds the memory for their category splits."""


@dataclass(frozen=True, eq=False)
class _Tree:
    """A binary tree, one entry per node: rows at or below the threshold go left; leaves have a value per target."""

    feature: AnyArray
    threshold: AnyArray
    left: AnyArray
    right: AnyArray
    is_leaf: NDArray[np.bool_]
    missing_left: AnyArray
    values: NDArray[np.float64]


def _summed(graph: Graph, X: str, trees: Sequence[_Tree]) -> str:
    """Return the sum of the values of each row's leaves, of shape (rows, targets)."""
    sizes = [len(tree.feature) for tree in trees]
    is_leaf, values = (np.concatenate([getattr(tree, name) for tree in trees]) for name in ("is_leaf", "values"))
    tree_ids, node_ids = np.repeat(np.arange(len(trees)), sizes), np.concatenate([np.arange(size) for size in sizes])
    stored = values != 0
    stored[:, 0] |= ~stored.any(axis=1)  # every leaf needs an entry
    leaf, target = np.nonzero(stored & is_leaf[:, None])

    def inner(name: str) -> Any:
        return np.where(is_leaf, 0, np.concatenate([getattr(tree, name) for tree in trees]))

    def doubles(name: str, array: AnyArray) -> Any:
        return graph.onnx.numpy_helper.from_array(array.astype(np.float64), name)

    found = graph.op(
        "TreeEnsembleRegressor",
        X,
        domain=DOMAIN_ML,
        n_targets=values.shape[1],
        nodes_treeids=tree_ids.tolist(),
        nodes_nodeids=node_ids.tolist(),
        nodes_featureids=inner("feature").astype(int).tolist(),
        nodes_truenodeids=inner("left").astype(int).tolist(),
        nodes_falsenodeids=inner("right").astype(int).tolist(),
        nodes_missing_value_tracks_true=inner("missing_left").astype(int).tolist(),
        nodes_modes=["LEAF" if leaf else "BRANCH_LEQ" for leaf in is_leaf.tolist()],
        nodes_values_as_tensor=doubles("nodes_values", inner("threshold")),
        target_treeids=tree_ids[leaf].tolist(),
        target_nodeids=node_ids[leaf].tolist(),
        target_ids=target.tolist(),
        target_weights_as_tensor=doubles("target_weights", values[leaf, target]),
    )
    return graph.cast(found, np.float64)


def _rounded(graph: Graph, X: str) -> str:
    """Round to single precision, as scikit-learn does before it compares with thresholds in double precision."""
    return graph.cast(graph.cast(X, np.float32), np.float64)


def _of_sklearn(tree: Any, values: AnyArray) -> _Tree:
    missing_left = tree.__getstate__()["nodes"]["missing_go_to_left"]  # which scikit-learn shows nowhere else
    left = tree.children_left
    return _Tree(tree.feature, tree.threshold, left, tree.children_right, left < 0, missing_left, values)


def forest_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a decision tree or a forest: the mean over its trees.

    The sum of the leaves is divided in double precision, so that 8 of 10 votes are 0.8.
    """
    if model.n_outputs_ != 1:
        raise ExportError(f"{type(model).__name__} has {model.n_outputs_} targets; fit one model for each.")
    members = getattr(model, "estimators_", [model])
    trees = [_of_sklearn(member.tree_, member.tree_.value[:, 0, :]) for member in members]
    return graph.op("Div", _summed(graph, _rounded(graph, X), trees), np.array(float(len(trees))))


def gradient_boosting_scores(graph: Graph, X: str, model: Estimator) -> str:
    """Return the raw predictions of a GradientBoostingClassifier, of shape (rows, 1 or n_classes)."""
    if model.loss != "log_loss":
        raise ExportError(f"GradientBoostingClassifier with loss={model.loss!r} is not supported; use 'log_loss'.")
    if not (isinstance(model.init_, DummyClassifier) or model.init_ == "zero"):
        raise ExportError("GradientBoostingClassifier with init=... is not supported; leave init out, or use 'zero'.")
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))
    targets = np.eye(model.estimators_.shape[1])
    trees = [
        _of_sklearn(one.tree_, model.learning_rate * one.tree_.value[:, 0, :] * targets[k])
        for step in model.estimators_
        for k, one in enumerate(step)
    ]
    return graph.op("Add", _summed(graph, _rounded(graph, X), trees), np.asarray(start, dtype=np.float64))


def boosting_scores(graph: Graph, X: str, model: Estimator) -> str:
    """Return the raw predictions of a HistGradientBoostingClassifier, of shape (rows, 1 or n_classes)."""
    categories = _Categories(model)
    found = graph.constant(np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1, -1))
    for start in range(0, len(model._predictors), _ITERATIONS_AT_A_TIME):
        trees, splits = categories.trees(model._predictors[start : start + _ITERATIONS_AT_A_TIME])
        matrix = graph.traced(categories.columns(splits), (X, (2, model.n_features_in_)))[0]
        found = graph.op("Add", found, _summed(graph, matrix, trees))
    return found


class _Categories:
    """Splits by sets of categories as further columns, which are 0 where a row goes left and 1 where it goes right."""

    def __init__(self, model: Estimator) -> None:
        self.n_features = model.n_features_in_
        self.known: list[AnyArray] = []
        self.order = np.arange(model.n_features_in_)
        if model._preprocessor is not None:  # it puts the categorical columns first
            is_category = np.asarray(model.is_categorical_, dtype=bool)
            self.order = np.r_[np.flatnonzero(is_category), np.flatnonzero(~is_category)]
            self.known = [
                _numbers(one)
                for one in model._preprocessor.named_transformers_["encoder"].categories_[: is_category.sum()]
            ]
            self.bitsets, self.places = model._bin_mapper.make_known_categories_bitsets()

    def trees(self, iterations: Sequence[Any]) -> tuple[list[_Tree], list[tuple[int, AnyArray]]]:
        """Return the trees of some iterations, and the feature and the sides of each further column."""
        trees: list[_Tree] = []
        splits: list[tuple[int, AnyArray]] = []
        for iteration in iterations:
            for target, predictor in enumerate(iteration):
                nodes, values = predictor.nodes, np.zeros((len(predictor.nodes), len(iteration)))
                values[:, target] = nodes["value"]
                feature, threshold = nodes["feature_idx"].astype(int), nodes["num_threshold"].astype(np.float64)
                is_leaf = nodes["is_leaf"].astype(bool)
                for number in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf).tolist():
                    splits.append((feature[number], self._sides(predictor, number)))
                    feature[number], threshold[number] = self.n_features + len(splits) - 1, 0.5
                missing = nodes["missing_go_to_left"]
                trees.append(_Tree(feature, threshold, nodes["left"], nodes["right"], is_leaf, missing, values))
        return trees, splits

    def _sides(self, predictor: Any, number: int) -> AnyArray:
        """Return the side of a missing or unknown category, then that of each known one."""
        node = predictor.nodes[number]
        codes, feature = np.arange(len(self.known[node["feature_idx"]])), node["feature_idx"]
        goes_left = _members(predictor.raw_left_cat_bitsets[node["bitset_idx"]], codes)
        missing_left = bool(node["missing_go_to_left"])
        is_known = _members(self.bitsets[self.places[feature]], codes)
        return np.where(np.r_[missing_left, np.where(is_known, goes_left, missing_left)], 0.0, 1.0)

    def columns(self, splits: list[tuple[int, AnyArray]]) -> Any:
        """Return a function from the features to the columns that the trees compare."""

        def function(x: torch.Tensor) -> torch.Tensor:
            ordered = x[:, torch.as_tensor(self.order)]
            parts, place = [ordered], np.arange(self.n_features)
            for feature, known in enumerate(self.known):
                own = [number for number, (asked, _) in enumerate(splits) if asked == feature]
                if own:
                    sides = np.column_stack([splits[number][1] for number in own])
                    parts.append(torch.as_tensor(sides)[self._codes(ordered[:, feature : feature + 1], known)])
                    place = np.r_[place, self.n_features + np.array(own)]
            return torch.cat(parts, 1)[:, torch.as_tensor(np.argsort(place))]

        return function

    @staticmethod
    def _codes(column: torch.Tensor, known: AnyArray) -> torch.Tensor:
        """Return numbers of the known categories, from 1; 0 is anything else."""
        hits = (column == torch.as_tensor(known)).to(torch.float64)
        return (hits @ torch.arange(1, len(known) + 1, dtype=torch.float64)).to(torch.int64)


def _numbers(categories: AnyArray) -> AnyArray:
    if categories.dtype.kind not in "biuf":
        raise ExportError(
            "HistGradientBoostingClassifier was fitted on categories that are text; encode them as numbers first, or "
            "fit the table with demur.tabular.fit_table, which exports them too."
        )
    values = categories.astype(np.float64)
    return values[~np.isnan(values)]


def _members(bitset: NDArray[np.uint32], codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    return ((bitset[codes // 32] >> (codes % 32).astype(np.uint32)) & 1).astype(bool)
