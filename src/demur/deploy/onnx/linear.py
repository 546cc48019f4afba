"""Linear classifiers of scikit-learn, in double precision."""

from typing import Any

import numpy as np

from demur.deploy.onnx.arithmetic import sigmoid, softmax, two_sided
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph

__all__ = ["linear_proba", "linked_scores", "sgd_proba", "with_complement"]


def linear_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the logistic function of the scores for two classes, their softmax for more."""
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64)).T
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    scores = graph.op("Add", graph.product(X, weights), intercept)
    if len(model.classes_) > 2 or not hasattr(model, "predict_proba"):
        return linked_scores(graph, scores, len(model.classes_))
    return with_complement(graph, sigmoid(graph, scores, np.float64))


def sgd_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of an SGDClassifier."""
    if hasattr(model, "predict_proba") and model.loss != "log_loss":
        raise ExportError(f"SGDClassifier with loss={model.loss!r} is not supported; use loss='log_loss'.")
    if hasattr(model, "predict_proba") and len(model.classes_) > 2:
        raise ExportError(
            "SGDClassifier with loss='log_loss' and more than two classes rounds several probabilities to nearly 1, so "
            "that the last bit decides, which no two programs agree on; use LogisticRegression."
        )
    return linear_proba(graph, X, model)


def linked_scores(graph: Graph, scores: str, n_classes: int) -> str:
    """Link the scores of a ``decision_function`` as ``RejectOption`` does.

    They have the shape (rows, 1) for two classes, else (rows, n_classes).
    """
    return softmax(graph, scores) if n_classes > 2 else sigmoid(graph, two_sided(graph, scores), np.float64)


def with_complement(graph: Graph, second: str) -> str:
    """Return the probabilities of two classes from that of the second, of shape (rows, 1)."""
    return graph.op("Concat", graph.op("Sub", np.array(1.0), second), second, axis=-1)
