"""Trees of scikit-learn as ONNX operators: decision trees, forests and both kinds of gradient boosting.

skl2onnx rounds thresholds and probabilities to single precision, so that rows on a threshold and votes that tie would
be decided differently, and it has no form for the category splits of histogram gradient boosting.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from demur.array_types import AnyArray, Estimator, Floats, Ints
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph


class _Tree(NamedTuple):
    """A binary tree.

    Parameters
    ----------
    nodes : list of tuples
        For each node: mode, feature, number to compare the feature with, next node where the comparison holds, next
        node where it does not, and whether the comparison holds for a missing value.
    leaves : array of int
    values : array of shape (n_leaves, n_targets)
    """

    nodes: list[tuple[Any, ...]]
    leaves: Ints
    values: Floats

    @classmethod
    def of(cls, is_leaf: AnyArray, columns: Sequence[AnyArray], values: AnyArray) -> "_Tree":
        """Return a tree of thresholds: a row at or below the threshold of a node goes left."""
        inner = [np.where(is_leaf, 0, one).tolist() for one in columns]
        modes = np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist()
        leaves = np.flatnonzero(is_leaf)
        return cls(list(zip(modes, *inner, strict=True)), leaves, values[leaves])


def _summed(graph: Graph, X: str, trees: Sequence[_Tree]) -> str:
    """Return the sum of the values of each row's leaves, of shape (rows, n_targets)."""
    nodes = [(number, node, *one) for number, tree in enumerate(trees) for node, one in enumerate(tree.nodes)]
    numbers, places, modes, features, compared, if_true, if_false, missing = zip(*nodes, strict=True)
    weights = []
    for number, tree in enumerate(trees):
        stored = tree.values != 0  # onnxruntime takes leaves whose first stored value is equal for the same leaf
        stored[:, 0] |= ~stored.any(axis=1)
        for leaf, target in zip(*np.nonzero(stored), strict=True):
            weights.append((number, int(tree.leaves[leaf]), int(target), tree.values[leaf, target]))
    tree_ids, node_ids, targets, values = zip(*weights, strict=True)

    def doubles(name: str, values: Any) -> Any:
        return graph.onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float64), name)

    found = graph.op(
        "TreeEnsembleRegressor",
        X,
        domain=DOMAIN_ML,
        n_targets=trees[0].values.shape[1],
        nodes_treeids=numbers,
        nodes_nodeids=places,
        nodes_modes=modes,
        nodes_featureids=features,
        nodes_values_as_tensor=doubles("nodes_values", compared),
        nodes_truenodeids=if_true,
        nodes_falsenodeids=if_false,
        nodes_missing_value_tracks_true=missing,
        target_treeids=tree_ids,
        target_nodeids=node_ids,
        target_ids=targets,
        target_weights_as_tensor=doubles("target_weights", values),
    )
    return graph.cast(found, np.float64)


def _rounded(graph: Graph, X: str) -> str:
    """Round to single precision, as scikit-learn does before it compares with thresholds in double precision."""
    return graph.cast(graph.cast(X, np.float32), np.float64)


def _of_sklearn(tree: Any, values: AnyArray) -> _Tree:
    missing_left = tree.__getstate__()["nodes"]["missing_go_to_left"]  # which scikit-learn shows nowhere else
    left = tree.children_left
    return _Tree.of(left < 0, (tree.feature, tree.threshold, left, tree.children_right, missing_left), values)


def forest_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of a decision tree or a forest: the mean over its trees.

    The sum of the leaves is divided in double precision, so that 8 of 10 votes are 0.8.
    """
    members = getattr(model, "estimators_", [model])
    trees = [_of_sklearn(member.tree_, member.tree_.value[:, 0, :]) for member in members]
    return graph.op("Div", _summed(graph, _rounded(graph, X), trees), np.array(float(len(trees))))


def gradient_boosting_scores(graph: Graph, X: str, model: Estimator) -> str:
    """Return the raw predictions of a GradientBoostingClassifier, of shape (rows, 1 or n_classes)."""
    if model.loss != "log_loss" or model.init not in (None, "zero"):
        raise ExportError(
            "GradientBoostingClassifier is supported with its default loss and init only; leave both out."
        )
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
    baseline = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1, -1)
    return graph.op("Add", _summed(graph, X, list(_histogram_trees(model))), baseline)


def _histogram_trees(model: Estimator) -> Iterator[_Tree]:
    order, categories = np.arange(model.n_features_in_), []
    if model._preprocessor is not None:  # it puts the categorical columns first
        order = np.argsort(~np.asarray(model.is_categorical_, dtype=bool), kind="stable")
        encoder = model._preprocessor.named_transformers_["encoder"]
        categories = [_numbers(one) for one in encoder.categories_[: np.sum(model.is_categorical_)]]
    for iteration in model._predictors:
        for target, predictor in zip(np.eye(len(iteration)), iteration, strict=True):
            nodes = predictor.nodes
            names = ("num_threshold", "left", "right", "missing_go_to_left")
            columns = (order[nodes["feature_idx"]], *(nodes[name] for name in names))
            tree = _Tree.of(nodes["is_leaf"].astype(bool), columns, nodes["value"][:, None] * target)
            for number in np.flatnonzero(nodes["is_categorical"] > nodes["is_leaf"]).tolist():
                bits = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][number]]
                _split_by_category(tree.nodes, number, categories[nodes["feature_idx"][number]], bits)
            yield tree


def _split_by_category(nodes: list[tuple[Any, ...]], number: int, known: AnyArray, left_bits: AnyArray) -> None:
    """Replace a node by a chain of nodes, one for each category that does not go where missing values go."""
    _, feature, _, left, right, missing_left = nodes[number]
    goes_left = np.unpackbits(left_bits.view(np.uint8), bitorder="little")[: len(known)]
    others, rest = (right, left) if missing_left else (left, right)
    *chain, last = known[goes_left != missing_left].tolist() or [np.nan]
    for value in chain:
        nodes.append(("BRANCH_EQ", feature, value, others, rest, 0))
        rest = len(nodes) - 1
    nodes[number] = ("BRANCH_EQ", feature, last, others, rest, 0)


def _numbers(categories: AnyArray) -> AnyArray:
    if categories.dtype.kind not in "biuf":
        raise ExportError(
            "HistGradientBoostingClassifier was fitted on categories that are text; encode them as numbers first, or "
            "fit the table with demur.tabular.fit_table, which exports them too."
        )
    values = categories.astype(np.float64)
    return values[~np.isnan(values)]
