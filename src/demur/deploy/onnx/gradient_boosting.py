"""GradientBoostingClassifier, the older of scikit-learn's two."""

from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from demur.deploy.onnx.arithmetic import sigmoid, softmax
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.forests import as_tree, rounded
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.linear import with_complement
from demur.deploy.onnx.trees import check_size, leaf_numbers

__all__ = ["gradient_boosting_proba"]

_STEPS_AT_A_TIME = 32


def gradient_boosting_proba(graph: Graph, X: str, model: Any) -> str:
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
