"""Models that ask experts as operators: who is expected to be right on a row, and whom to ask at which prices."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur.deferral import DeferOption, ExpertReliability
from demur.deferral.expert_reliability import LogitModel
from demur.deploy.onnx.classifier_graphs import proba
from demur.deploy.onnx.decision_graphs import Ruled, calibrated
from demur.deploy.onnx.onnx_graph import ExportError, Graph, column, columns, sigmoid

__all__ = ["Asked", "asked"]

_SMALLEST = 1e-6
"""As in :mod:`demur.deferral.expert_reliability`."""

_LAST = np.array([-1], dtype=np.int64)


@dataclass(frozen=True)
class Asked:
    """What is decided, each of shape (rows,): the rule's part, who is asked, and what that is expected to cost."""

    ruled: Ruled
    ask: str
    expected_cost: str
    proba: str


def asked(graph: Graph, X: str, model: DeferOption) -> Asked:
    """Decide as :meth:`DeferOption.decide <demur.DeferOption.decide>`; the prices become an optional input."""
    plain = calibrated(graph, proba(graph, X, model.estimator_, model.classes_), model.calibrator_)
    n_classes = len(model.classes_)
    best = graph.op("ArgMax", plain, axis=-1, keepdims=1)
    is_best = graph.op("Equal", best, np.arange(n_classes, dtype=np.int64))
    odds = _odds_of_best(graph, plain, is_best)
    right, informing = {}, []
    for name in sorted(model.experts_):
        fitted = model.reliability_.get(name)
        if fitted is None:
            right[name] = _constant(graph, odds, model.experts_[name].accuracy)
            continue
        estimate = _estimate(graph, X, plain, odds, model, name)
        right[name] = _right(graph, plain, odds, fitted, estimate)
        if fitted.informs_model:
            informing.append(estimate)
    sure = plain
    if model.correction_ is not None:
        evidence = [odds, *(_log_odds(graph, one) for one in informing)]
        sure = _recalibrated(graph, plain, is_best, _logit_model(graph, evidence, odds, model.correction_), n_classes)
    return _decided(graph, sure, right, model)


def _decided(graph: Graph, sure: str, right: dict[str, str], model: DeferOption) -> Asked:
    names = list(model.experts_)
    own = np.array([one.price for one in model._priced().values()])
    words = ", ".join(f"{name} {price:g}" for name, price in zip(names, own, strict=True))
    prices = graph.optional_input(
        "prices", own, f"What asking each expert costs; a wrong answer costs 1. May be left out: then {words}."
    )
    estimates = graph.op("Concat", *(graph.op("Unsqueeze", right[name], _LAST) for name in names), axis=-1)
    by_name = np.argsort(names, kind="stable")  # who comes first of those that cost the same
    worth = columns(graph, graph.op("Sub", estimates, prices), by_name)
    most = graph.op("ReduceMax", worth, _LAST, keepdims=0)
    who = graph.op("Gather", by_name.astype(np.int64), graph.op("ArgMax", worth, axis=-1, keepdims=0))
    confidence = graph.op("ReduceMax", sure, _LAST, keepdims=0)
    acceptance = graph.op("Sub", confidence, most)
    answers = graph.op("Greater", acceptance, np.array(0.0))
    cost = graph.op("Sub", np.array(1.0), graph.op("Where", answers, confidence, most))
    ruled = Ruled(graph.op("ArgMax", sure, axis=-1, keepdims=0), acceptance, acceptance)
    return Asked(ruled, graph.op("Where", answers, np.array(-1, dtype=np.int64), who), cost, sure)


def _estimate(graph: Graph, X: str, plain: str, odds: str, model: DeferOption, name: str) -> str:
    """Return the first estimate that an expert is right, as :meth:`ExpertReliability.estimate` does."""
    fitted = model.reliability_[name]
    if fitted.kind == "probabilities":
        assert fitted.first is not None
        logs = graph.op("Log", graph.op("Max", plain, np.array(_SMALLEST)))
        each = [column(graph, logs, number) for number in range(len(model.classes_))]
        level = _constant(graph, odds, float(np.log(fitted.share / (1 - fitted.share))))
        return _logit_model(graph, each, level, fitted.first)
    if fitted.kind == "features":
        return column(graph, proba(graph, X, model.learners_[name], np.arange(2)), 1)
    if fitted.kind == "stored":
        place = model.experts_[name].model
        if not isinstance(place, int | np.integer):
            raise ExportError(
                f"whether {name!r} is right is read from the column {place!r} by its name, which a matrix of features "
                "does not have; give the number of the column."
            )
        return column(graph, X, int(place))
    return _constant(graph, odds, fitted.share)


def _right(graph: Graph, plain: str, odds: str, fitted: ExpertReliability, estimate: str) -> str:
    """Return P(expert right), as :meth:`ExpertReliability.predict` does."""
    if fitted.kind == "share":
        return estimate
    if fitted.kind == "confusion":
        return graph.op("Squeeze", graph.product(plain, np.asarray(fitted.by_class)[:, None]), _LAST)
    assert fitted.model is not None
    guess = _log_odds(graph, estimate)
    return _logit_model(graph, [odds, guess] if fitted.informs_model else [odds], guess, fitted.model)


def _logit_model(graph: Graph, z: list[str], guess: str, model: LogitModel) -> str:
    score = graph.op("Add", guess, np.array(model.coefficients[0]))
    for value, mean, scale, slope in zip(z, model.mean, model.scale, model.coefficients[1:], strict=True):
        standard = graph.op("Div", graph.op("Sub", value, np.array(mean)), np.array(scale))
        score = graph.op("Add", score, graph.op("Mul", standard, np.array(slope)))
    return sigmoid(graph, score, np.float64)


def _odds_of_best(graph: Graph, plain: str, is_best: str) -> str:
    """Return the log odds of the largest probability against the sum of the others."""
    others = graph.op("Where", is_best, np.array(0.0), plain)
    return graph.op("Neg", _log_odds(graph, graph.op("ReduceSum", others, _LAST, keepdims=0)))


def _recalibrated(graph: Graph, plain: str, is_best: str, right: str, n_classes: int) -> str:
    """Give the likeliest class the probability ``right``, and divide what is left among the others as before."""
    others = graph.op("Where", is_best, np.array(0.0), plain)
    total = graph.op("ReduceSum", others, _LAST, keepdims=1)
    some = graph.op("Greater", total, np.array(0.0))
    divided = graph.op("Div", others, graph.op("Where", some, total, np.array(1.0)))
    shares = graph.op("Where", some, divided, np.array(1 / (n_classes - 1)))
    wide = graph.op("Unsqueeze", right, _LAST)
    rest = graph.op("Mul", shares, graph.op("Sub", np.array(1.0), wide))
    return graph.op("Where", is_best, wide, rest)


def _log_odds(graph: Graph, share: str) -> str:
    low = graph.op("Max", share, np.array(_SMALLEST))
    inside = graph.op("Min", low, np.array(1 - _SMALLEST))
    return graph.op("Log", graph.op("Div", inside, graph.op("Sub", np.array(1.0), inside)))


def _constant(graph: Graph, like: str, value: Any) -> str:
    return graph.op("Add", graph.op("Mul", like, np.array(0.0)), np.array(float(value)))
