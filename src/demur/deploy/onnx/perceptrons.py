"""MLPClassifier of scikit-learn, in double precision."""

from typing import Any

import numpy as np

from demur.deploy.onnx.arithmetic import sigmoid, softmax
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.linear import with_complement

__all__ = ["perceptron_proba"]


def perceptron_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of an MLPClassifier."""
    value = X
    for depth, (weights, bias) in enumerate(zip(model.coefs_, model.intercepts_, strict=True)):
        product = graph.product(value, np.asarray(weights, dtype=np.float64))
        value = graph.op("Add", product, np.asarray(bias, dtype=np.float64))
        if depth < len(model.coefs_) - 1:
            value = _activated(graph, value, model.activation)
    if model.out_activation_ == "softmax":
        return softmax(graph, value)
    if len(model.classes_) != 2:
        raise ExportError("MLPClassifier for several labels at once is not supported; fit one model for each.")
    return with_complement(graph, sigmoid(graph, value, np.float64))


def _activated(graph: Graph, value: str, activation: str) -> str:
    if activation == "identity":
        return value
    if activation == "logistic":
        return sigmoid(graph, value, np.float64)
    return graph.op({"relu": "Relu", "tanh": "Tanh"}[activation], value)
