"""Functions made of a few operators, written so that they round, saturate and treat NaN as NumPy and torch do.

ONNX has operators for some of them, but runtimes are free in how they compute those: onnxruntime's ``Sigmoid``, for
one, never falls below 1.5e-8.
"""

from typing import Any

import numpy as np

from demur.deploy.onnx.graph import Graph

__all__ = ["argmax", "clip_to_unit", "column", "columns", "largest", "normalised", "sigmoid", "softmax", "two_sided"]

_LAST = np.array([-1], dtype=np.int64)


def softmax(graph: Graph, x: str) -> str:
    """Return exp(x) / sum(exp(x)) over the last axis."""
    shifted = graph.op("Exp", graph.op("Sub", x, graph.op("ReduceMax", x, _LAST, keepdims=1)))
    return normalised(graph, shifted)


def normalised(graph: Graph, x: str) -> str:
    """Return x divided by its sum over the last axis."""
    return graph.op("Div", x, graph.op("ReduceSum", x, _LAST, keepdims=1))


def sigmoid(graph: Graph, x: str, dtype: Any) -> str:
    """Return 1 / (1 + exp(-x))."""
    one = np.array(1, dtype=dtype)
    return graph.op("Div", one, graph.op("Add", graph.op("Exp", graph.op("Neg", x)), one))


def clip_to_unit(graph: Graph, x: str, dtype: Any) -> str:
    """Return x cut off at 0 and 1; NaN stays."""
    zero, one = (np.array(value, dtype=dtype) for value in (0, 1))
    above = graph.op("Where", graph.op("Less", x, zero), zero, x)
    return graph.op("Where", graph.op("Greater", above, one), one, above)


def column(graph: Graph, x: str, number: int) -> str:
    """Return one entry along the last axis, which goes."""
    return graph.op("Gather", x, np.array(number, dtype=np.int64), axis=-1)


def columns(graph: Graph, x: str, numbers: Any) -> str:
    """Return some entries along the last axis."""
    return graph.op("Gather", x, np.asarray(numbers, dtype=np.int64), axis=-1)


def two_sided(graph: Graph, x: str) -> str:
    """Return (-x, x) along the last axis."""
    return graph.op("Concat", graph.op("Neg", x), x, axis=-1)


def largest(graph: Graph, x: str, dtype: Any) -> str:
    """Return the maximum over the last axis, which goes; NaN if there is one."""
    best = graph.op("ReduceMax", x, _LAST, keepdims=0)
    return graph.op("Where", _any_nan(graph, x), np.array(np.nan, dtype=dtype), best)


def argmax(graph: Graph, x: str) -> str:
    """Return the place of the first maximum over the last axis; NaN counts as the largest number."""
    best = graph.op("ArgMax", x, axis=-1, keepdims=0)
    nan = graph.op("ArgMax", _nan_as_float(graph, x), axis=-1, keepdims=0)
    return graph.op("Where", _any_nan(graph, x), nan, best)


def _any_nan(graph: Graph, x: str) -> str:
    share = graph.op("ReduceMax", _nan_as_float(graph, x), _LAST, keepdims=0)
    return graph.op("Greater", share, np.array(0, dtype=np.float32))


def _nan_as_float(graph: Graph, x: str) -> str:
    return graph.cast(graph.op("IsNaN", x), np.float32)
