"""Decision trees and forests of scikit-learn."""

from typing import Any

import numpy as np

from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.trees import Tree, check_size, leaf_numbers

__all__ = ["as_tree", "forest_proba", "rounded", "tree_proba"]

_TREES_AT_A_TIME = 32
"""The leaves of so many trees are looked up together, which bounds the memory by rows x trees x classes."""


def tree_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of a DecisionTreeClassifier or ExtraTreeClassifier."""
    return _mean_leaf(graph, X, [model], model)


def forest_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of a RandomForestClassifier or ExtraTreesClassifier."""
    return _mean_leaf(graph, X, model.estimators_, model)


def _mean_leaf(graph: Graph, X: str, members: Any, model: Any) -> str:
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
