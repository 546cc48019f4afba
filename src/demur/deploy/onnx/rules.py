"""The rules as operators on class probabilities."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.losses import Ruled
from demur.guarantees import Coverage, RiskControl
from demur.rules import Chow, CostMatrix, Threshold

__all__ = ["CostInput", "apply_rule", "chow", "fixed"]

_LAST = np.array([-1], dtype=np.int64)


@dataclass(frozen=True)
class CostInput:
    """Where the cost comes from and what the rule does, in words.

    Parameters
    ----------
    default : float or None
        The cost where the caller gives none; None where the graph has no input for it.
    words : str
    """

    default: float | None
    words: str


def apply_rule(graph: Graph, proba: str, rule: Any, cost: float) -> tuple[Ruled, CostInput]:
    """Decide by a rule; None is Chow's at ``cost``."""
    if rule is None or type(rule) is Chow:
        ruled = Ruled(_likeliest(graph, proba), "", graph.op("ReduceMax", proba, _LAST, keepdims=0))
        return chow(graph, ruled, _number(cost if rule is None else rule.cost, "Chow's rule has costs"))
    if type(rule) is CostMatrix:
        return _cost_matrix(graph, proba, np.asarray(rule.costs))
    if type(rule) is Threshold:
        threshold = _number(rule.threshold, "the rule Threshold has thresholds")
        words = f"Answers where the largest class probability exceeds {threshold:.6g}."
    elif type(rule) in (Coverage, RiskControl):
        threshold, words = float(rule.threshold_), rule.explain()
    else:
        raise ExportError(
            f"the rule {type(rule).__name__} is not one of demur's own; use Chow, Threshold, CostMatrix, Coverage or "
            "RiskControl."
        )
    confidence = graph.op("ReduceMax", proba, _LAST, keepdims=0)
    ruled = Ruled(_likeliest(graph, proba), graph.op("Sub", confidence, np.array(threshold)), confidence)
    return ruled, fixed(words)


def chow(graph: Graph, ruled: Ruled, cost: float) -> tuple[Ruled, CostInput]:
    """Compare a confidence in double precision with one minus the cost, which becomes an optional input."""
    source = CostInput(float(cost), "Answers where the confidence exceeds 1 - cost (Chow's rule).")
    name = graph.optional_input(
        "cost",
        np.array(float(cost)),
        f"The price of one rejection, in [0, 1); a wrong answer costs 1. May be left out: then it is {float(cost):g}.",
    )
    acceptance = graph.op("Sub", ruled.confidence, graph.op("Sub", np.array(1.0), name))
    return Ruled(ruled.label, acceptance, ruled.confidence), source


def fixed(words: str) -> CostInput:
    """Say that no cost can be given."""
    return CostInput(None, words)


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
