"""Calibrators and the correction of label shift as operators."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.deploy.onnx.arithmetic import clip_to_unit, column, normalised, sigmoid, softmax
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.label_shift import LabelShift

__all__ = ["calibrated", "shifted", "temperature"]

_SMALLEST = 1e-12
"""As in :mod:`demur.calibration`."""


def calibrated(graph: Graph, proba: str, calibrator: Any) -> str:
    """Return the probabilities after a calibrator, which may be None."""
    if calibrator is None:
        return proba
    if type(calibrator) is TemperatureScaling:
        return temperature(graph, proba, calibrator, np.float64)
    if type(calibrator) is OneVsRestCalibration:
        return _one_vs_rest(graph, proba, calibrator)
    raise ExportError(
        f"the calibrator {type(calibrator).__name__} is not one of demur's own; use calibration='temperature', "
        "'isotonic' or 'sigmoid'."
    )


def temperature(graph: Graph, proba: str, scaling: TemperatureScaling, dtype: Any) -> str:
    """Return probabilities at a temperature, computed in their own precision."""
    logs = graph.op("Log", graph.op("Max", proba, np.array(_SMALLEST, dtype=dtype)))
    return softmax(graph, graph.op("Div", logs, np.array(scaling.temperature_, dtype=dtype)))


def shifted(graph: Graph, proba: str, shift: LabelShift | None) -> str:
    """Return the probabilities under the new class frequencies, if they have changed."""
    if shift is None:
        return proba
    known = normalised(graph, graph.op("Max", proba, np.array(0.0)))
    old, new = (np.asarray(prior) / np.sum(prior) for prior in (shift.train_prior, shift.new_prior_))
    return normalised(graph, graph.op("Mul", known, new / old))


def _one_vs_rest(graph: Graph, proba: str, calibrator: OneVsRestCalibration) -> str:
    found = [_curve(graph, column(graph, proba, k), model) for k, model in enumerate(calibrator.models_)]
    last = np.array([-1], dtype=np.int64)
    values = clip_to_unit(
        graph, graph.op("Concat", *(graph.op("Unsqueeze", one, last) for one in found), axis=-1), np.float64
    )
    total = graph.op("ReduceSum", values, last, keepdims=1)
    some = graph.op("Greater", total, np.array(0.0))
    divisor = graph.op("Where", some, total, np.array(1.0))
    return graph.op("Where", some, graph.op("Div", values, divisor), proba)


def _curve(graph: Graph, p: str, model: Any) -> str:
    if isinstance(model, float):  # the class was everywhere or nowhere among the calibration rows
        return graph.op("Add", graph.op("Mul", p, np.array(0.0)), np.array(model))
    if type(model) is IsotonicRegression and model.out_of_bounds == "clip":
        return _interpolated(graph, p, np.asarray(model.X_thresholds_), np.asarray(model.y_thresholds_))
    if type(model) is LogisticRegression:
        low = graph.op("Max", p, np.array(_SMALLEST))
        inside = graph.op("Min", low, np.array(1 - _SMALLEST))
        odds = graph.op("Log", graph.op("Div", inside, graph.op("Sub", np.array(1.0), inside)))
        slope, intercept = model.coef_[0, 0], model.intercept_[0]
        return sigmoid(graph, graph.op("Add", graph.op("Mul", odds, slope), intercept), np.float64)
    raise ExportError(
        f"calibration by {type(model).__name__} is not supported; use calibration='temperature', 'isotonic' or "
        "'sigmoid'."
    )


def _interpolated(graph: Graph, p: str, x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    """Interpolate linearly, with the same operations in the same order as ``numpy.interp``: plateaus stay exact."""
    if len(x) == 1:
        return _curve(graph, p, float(y[0]))
    low = graph.op("Max", p, x[0])
    inside = graph.op("Min", low, x[-1])
    wide = graph.op("Unsqueeze", inside, np.array([-1], dtype=np.int64))
    passed = graph.cast(graph.op("GreaterOrEqual", wide, x), np.float32)
    count = graph.cast(graph.op("ReduceSum", passed, np.array([-1], dtype=np.int64), keepdims=0), np.int64)
    place = graph.op("Sub", count, np.array(1, dtype=np.int64))
    slopes = np.append(np.diff(y) / np.diff(x), 0.0)
    step = graph.op("Sub", inside, graph.op("Gather", x, place))
    return graph.op("Add", graph.op("Mul", graph.op("Gather", slopes, place), step), graph.op("Gather", y, place))
