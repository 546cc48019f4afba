"""Support vector machines with a kernel, in double precision."""

from itertools import combinations
from typing import Any

import numpy as np

from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.linear import linked_scores

__all__ = ["svc_proba"]

_LAST = np.array([-1], dtype=np.int64)


def svc_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the linked scores of an SVC or NuSVC, as ``RejectOption`` makes them from its ``decision_function``."""
    name, n_classes = type(model).__name__, len(model.classes_)
    if hasattr(model, "predict_proba"):
        raise ExportError(
            f"{name} with probability=True finds its probabilities by an iteration that is not supported; use "
            "probability=False, since RejectOption calibrates the scores itself."
        )
    if n_classes > 2 and model.decision_function_shape != "ovr":
        raise ExportError(f"{name} has decision_function_shape={model.decision_function_shape!r}; use 'ovr'.")
    similarity = _kernel(graph, X, model)
    if n_classes == 2:
        scores = graph.product(similarity, np.ascontiguousarray(model.dual_coef_.T))
        return linked_scores(graph, graph.op("Add", scores, model.intercept_), 2)
    pairs = list(combinations(range(n_classes), 2))
    duels = graph.op("Add", graph.product(similarity, _pair_weights(model, pairs)), model.intercept_)
    return linked_scores(graph, _tournament(graph, duels, pairs, n_classes), n_classes)


def _kernel(graph: Graph, X: str, model: Any) -> str:
    """Return the kernel between each row and each support vector."""
    if model.kernel not in ("linear", "poly", "rbf", "sigmoid"):
        raise ExportError(f"the kernel {model.kernel!r} is not supported; use 'rbf', 'linear', 'poly' or 'sigmoid'.")
    vectors = np.asarray(model.support_vectors_, dtype=np.float64)
    product = graph.product(X, np.ascontiguousarray(vectors.T))
    gamma, offset = np.array(float(model._gamma)), np.array(float(model.coef0))
    if model.kernel == "linear":
        return product
    if model.kernel == "rbf":
        own = graph.op("ReduceSum", graph.op("Mul", X, X), _LAST, keepdims=1)
        apart = graph.op("Sub", graph.op("Add", own, (vectors**2).sum(axis=1)), graph.op("Mul", np.array(2.0), product))
        return graph.op("Exp", graph.op("Mul", -gamma, graph.op("Max", apart, np.array(0.0))))
    shifted = graph.op("Add", graph.op("Mul", gamma, product), offset)
    if model.kernel == "poly":
        return graph.op("Pow", shifted, np.array(float(model.degree)))
    return graph.op("Tanh", shifted)


def _pair_weights(model: Any, pairs: list[tuple[int, int]]) -> Any:
    """Return the weight of each support vector in the duel of each pair of classes, as libsvm stores them."""
    ends = np.r_[0, np.cumsum(model.n_support_)]
    weights = np.zeros((len(model.support_vectors_), len(pairs)))
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[of_i, number] = model.dual_coef_[j - 1, of_i]
        weights[of_j, number] = model.dual_coef_[i, of_j]
    return weights


def _tournament(graph: Graph, duels: str, pairs: list[tuple[int, int]], n_classes: int) -> str:
    """Count the duels that each class wins; their margins, squeezed to less than a vote, break ties."""
    places = np.array(pairs)
    first, second = np.eye(n_classes)[places[:, 0]], np.eye(n_classes)[places[:, 1]]
    lost = graph.cast(graph.op("Less", duels, np.array(0.0)), np.float64)
    won = graph.op("Sub", np.array(1.0), lost)
    votes = graph.op("Add", graph.product(won, first), graph.product(lost, second))
    margins = graph.product(duels, first - second)
    size = graph.op("Mul", np.array(3.0), graph.op("Add", graph.op("Abs", margins), np.array(1.0)))
    return graph.op("Add", votes, graph.op("Div", margins, size))
