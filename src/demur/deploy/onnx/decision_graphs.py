"""From probabilities to decisions: calibrators, label shift and rules as operators."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from demur.array_types import Estimator
from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.deploy.onnx.onnx_graph import ExportError, Graph, clip_to_unit, column, normalised, sigmoid, softmax
from demur.label_shift import LabelShift
from demur.rules import Chow, CostMatrix, Threshold, ThresholdRule

__all__ = ["CostInput", "apply_rule", "calibrated", "chow", "fixed", "shifted", "temperature"]

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


def _curve(graph: Graph, p: str, model: Estimator) -> str:
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


_LAST = np.array([-1], dtype=np.int64)


@dataclass(frozen=True)
class Ruled:
    """What a rule says: each of shape (rows,)."""

    label: str
    acceptance: str
    confidence: str


@dataclass(frozen=True)
class CostInput:
    """Where the cost comes from and what the rule does, in words.

    Parameters
    ----------
    default : float or None
        The cost where the caller gives none; None where the graph has no input for it.
    words : str
    price : float or None
        The price of one rejection that the decisions are made by; None where the rule has none.
    """

    default: float | None
    words: str
    price: float | None


def apply_rule(graph: Graph, proba: str, rule: Any, cost: float) -> tuple[Ruled, CostInput]:
    """Decide by a rule; None is Chow's at ``cost``."""
    if rule is None or type(rule) is Chow:
        ruled = Ruled(_likeliest(graph, proba), "", graph.op("ReduceMax", proba, _LAST, keepdims=0))
        return chow(graph, ruled, _number(cost if rule is None else rule.cost, "Chow's rule has costs"))
    if type(rule) is CostMatrix:
        return _cost_matrix(graph, proba, np.asarray(rule.costs))
    if type(rule) is Threshold:
        threshold = _number(rule.threshold_, "the rule Threshold has thresholds")
        words = f"Answers where the largest class probability exceeds {threshold:.6g}."
    elif isinstance(rule, ThresholdRule) and type(rule)._decide is ThresholdRule._decide:  # also one of the user's own
        threshold, words = float(rule.threshold_), rule.explain()
    else:
        raise ExportError(
            f"the rule {type(rule).__name__} is not one of demur's own; use Chow, Threshold, CostMatrix, Coverage or "
            "RiskControl, or derive it from ThresholdRule."
        )
    confidence = graph.op("ReduceMax", proba, _LAST, keepdims=0)
    ruled = Ruled(_likeliest(graph, proba), graph.op("Sub", confidence, np.array(threshold)), confidence)
    return ruled, fixed(words)


def chow(graph: Graph, ruled: Ruled, cost: float) -> tuple[Ruled, CostInput]:
    """Compare a confidence in double precision with one minus the cost, which becomes an optional input."""
    source = CostInput(float(cost), "Answers where the confidence exceeds 1 - cost (Chow's rule).", float(cost))
    name = graph.optional_input(
        "cost",
        np.array(float(cost)),
        f"The price of one rejection, in [0, 1); a wrong answer costs 1. May be left out: then it is {float(cost):g}.",
    )
    acceptance = graph.op("Sub", ruled.confidence, graph.op("Sub", np.array(1.0), name))
    return Ruled(ruled.label, acceptance, ruled.confidence), source


def fixed(words: str, price: float | None = None) -> CostInput:
    """Say that no cost can be given."""
    return CostInput(None, words, price)


def _cost_matrix(graph: Graph, proba: str, costs: Any) -> tuple[Ruled, CostInput]:
    if costs.ndim == 3:
        raise ExportError(
            f"the cost matrix has {len(costs)} parts, one per row of a table; give one for all rows, of shape "
            "(K, K + 1)."
        )
    expected = graph.product(proba, costs)
    ends = (np.array([end], dtype=np.int64) for end in (0, -1, -1))
    answers = graph.op("Slice", expected, *ends)
    label = graph.op("ArgMin", answers, axis=-1, keepdims=0)
    rejecting = graph.op("Gather", expected, np.array(-1, dtype=np.int64), axis=-1)
    saved = graph.op("Sub", rejecting, graph.op("ReduceMin", answers, _LAST, keepdims=0))
    words = "Chooses the cheapest of all answers and of rejecting, by a cost matrix; the confidence is what it saves."
    return Ruled(label, saved, saved), fixed(words)


def _likeliest(graph: Graph, proba: str) -> str:
    return graph.op("ArgMax", proba, axis=-1, keepdims=0)


def _number(value: Any, what: str) -> float:
    if np.ndim(value):
        raise ExportError(f"{what} of shape {np.shape(value)}, one per row of a table; give one number.")
    return float(value)
