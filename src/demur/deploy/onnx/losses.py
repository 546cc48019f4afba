"""The links and rules of the losses as operators: one small function for each kind of loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from demur.deploy.onnx.arithmetic import argmax, clip_to_unit, column, largest, sigmoid, softmax, two_sided
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.losses import (
    AdditivePairwise,
    BinaryEncodedHinge,
    CrammerSingerHinge,
    CrossEntropy,
    Loss,
    Margin,
    ModifiedHinge,
    MultiplicativePairwise,
    OneVsAll,
    OneVsAllHinge,
    PlusBound,
)
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge

__all__ = ["Linked", "Ruled", "linked", "ruled"]

Value = TypeVar("Value")
_F = np.float32


@dataclass(frozen=True)
class Linked:
    """What scores of shape (..., n_outputs) stand for: probabilities and scores of the classes, (..., n_classes)."""

    proba: str
    class_scores: str


@dataclass(frozen=True)
class Ruled:
    """What a rule says: each of shape (rows,)."""

    label: str
    acceptance: str
    confidence: str


_links: dict[type[Loss], Callable[[Graph, Any, str], Linked]] = {}
_rules: dict[type[Loss], Callable[[Graph, Any, str], Ruled]] = {}


def _for(registry: dict[type[Loss], Value], *kinds: type[Loss]) -> Callable[[Value], Value]:
    def decorate(function: Value) -> Value:
        registry.update(dict.fromkeys(kinds, function))
        return function

    return decorate


def linked(graph: Graph, loss: Loss, scores: str) -> Linked:
    """Apply the inverse link of a loss to its scores."""
    return _found(_links, loss)(graph, loss, scores)


def ruled(graph: Graph, loss: Loss, scores: str) -> Ruled:
    """Decide with the own rule of a loss without a link, for scores of shape (rows, n_outputs)."""
    return _found(_rules, loss)(graph, loss, scores)


def _found(registry: dict[type[Loss], Value], loss: Loss) -> Value:
    # A subclass may decide in its own way, so only the class itself is looked up.
    if type(loss) not in registry:
        raise ExportError(
            f"the loss {loss.name!r} ({type(loss).__name__}) is not one of demur's own, so its rule has no ONNX form; "
            "use one of demur.losses, such as 'ce'."
        )
    return registry[type(loss)]


def _margin_link(graph: Graph, margin: MarginFunction, z: str) -> str:
    if type(margin) is Logistic:
        return sigmoid(graph, z, _F)
    if type(margin) is Exponential:
        return sigmoid(graph, graph.op("Mul", z, np.array(2, dtype=_F)), _F)
    if type(margin) in (Squared, SquaredHinge):
        half = graph.op("Div", graph.op("Add", z, np.array(1, dtype=_F)), np.array(2, dtype=_F))
        return clip_to_unit(graph, half, _F)
    raise ExportError(f"the margin function {margin} is not one of demur's own; use Logistic(), for example.")


@_for(_links, CrossEntropy)
def _cross_entropy(graph: Graph, loss: CrossEntropy, scores: str) -> Linked:
    return Linked(softmax(graph, scores), scores)


@_for(_links, OneVsAll)
def _one_vs_all(graph: Graph, loss: OneVsAll, scores: str) -> Linked:
    return Linked(_margin_link(graph, loss.phi, scores), scores)


@_for(_links, Margin)
def _margin(graph: Graph, loss: Margin, scores: str) -> Linked:
    both = two_sided(graph, scores)
    return Linked(_margin_link(graph, loss.phi, both), both)


@_for(_rules, AdditivePairwise, MultiplicativePairwise)
def _pairwise(graph: Graph, loss: Loss, scores: str) -> Ruled:
    # The scores are (g_1, ..., g_K, r); -1 counts from the end.
    ends = (np.array([end], dtype=np.int64) for end in (0, -1, -1))
    rejector = column(graph, scores, -1)
    return Ruled(argmax(graph, graph.op("Slice", scores, *ends)), rejector, rejector)


@_for(_rules, PlusBound)
def _plus_bound(graph: Graph, loss: PlusBound, scores: str) -> Ruled:
    rejector = column(graph, scores, 1)
    return Ruled(_positive(graph, column(graph, scores, 0)), rejector, rejector)


@_for(_rules, ModifiedHinge)
def _modified_hinge(graph: Graph, loss: ModifiedHinge, scores: str) -> Ruled:
    f = column(graph, scores, 0)
    size = graph.op("Abs", f)
    return Ruled(_positive(graph, f), graph.op("Sub", size, np.array(0.5, dtype=_F)), size)


@_for(_rules, OneVsAllHinge)
def _one_vs_all_hinge(graph: Graph, loss: OneVsAllHinge, scores: str) -> Ruled:
    return _above_tau(graph, argmax(graph, scores), largest(graph, scores, _F), loss.tau)


@_for(_rules, CrammerSingerHinge)
def _crammer_singer(graph: Graph, loss: CrammerSingerHinge, scores: str) -> Ruled:
    best, _ = graph.ops("TopK", 2, scores, np.array([2], dtype=np.int64), axis=-1)
    gap = graph.op("Sub", column(graph, best, 0), column(graph, best, 1))
    # TopK may leave a NaN out, which has to reject.
    gap = graph.op("Where", graph.op("IsNaN", largest(graph, scores, _F)), np.array(np.nan, dtype=_F), gap)
    return _above_tau(graph, argmax(graph, scores), gap, loss.tau)


@_for(_rules, BinaryEncodedHinge)
def _binary_encoded(graph: Graph, loss: BinaryEncodedHinge, scores: str) -> Ruled:
    assert loss.n_classes is not None  # an estimator has set it
    classes, digits = np.arange(loss.n_classes), np.arange(loss.n_outputs(loss.n_classes))
    codes = (((classes[:, None] >> digits) & 1) * 2 - 1).astype(_F)
    products = graph.op("Mul", graph.op("Unsqueeze", scores, np.array([1], dtype=np.int64)), codes)
    per_class = graph.op("Neg", largest(graph, products, _F))
    return _above_tau(graph, argmax(graph, per_class), largest(graph, per_class, _F), loss.tau)


def _above_tau(graph: Graph, label: str, value: str, tau: Any) -> Ruled:
    threshold = torch.as_tensor(tau)
    if threshold.numel() != 1:
        raise ExportError(f"tau has {threshold.numel()} values, one per network of a stack; give one number.")
    acceptance = graph.op("Sub", value, np.array(float(threshold), dtype=_F))
    return Ruled(label, acceptance, acceptance)


def _positive(graph: Graph, f: str) -> str:
    return graph.cast(graph.op("Greater", f, np.array(0, dtype=_F)), np.int64)
