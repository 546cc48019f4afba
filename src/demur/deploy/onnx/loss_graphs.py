"""Losses and networks as operators: the link or rule of each loss, and the networks of a RejectClassifier."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from demur.deploy.onnx.decision_graphs import Ruled, temperature
from demur.deploy.onnx.onnx_graph import (
    ExportError,
    Graph,
    argmax,
    clip_to_unit,
    column,
    largest,
    normalised,
    sigmoid,
    softmax,
    two_sided,
)
from demur.estimators import RejectClassifier
from demur.estimators.network_selection import FittedNetworks
from demur.losses import (
    AbstainingClassifier,
    AdditivePairwise,
    AsymmetricSoftmax,
    BinaryEncodedHinge,
    Brier,
    CaoRejection,
    CostSensitiveOneVsAll,
    CrammerSingerHinge,
    CrossEntropy,
    DeepGamblers,
    Focal,
    GeneralisedCrossEntropy,
    LabelSmoothing,
    Loss,
    MaoScores,
    Margin,
    ModifiedHinge,
    MozannarSontag,
    MultiplicativePairwise,
    OneVsAll,
    OneVsAllHinge,
    PlusBound,
    PredictorRejector,
    TwoStage,
    VermaNalisnick,
)
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.training import MLP, TabularNet, Trained

__all__ = ["Linked", "Ruled", "linked", "network_decision", "network_proba", "ruled"]

Value = TypeVar("Value")
_F = np.float32


@dataclass(frozen=True)
class Linked:
    """What scores of shape (..., n_outputs) stand for: probabilities and scores of the classes, (..., n_classes)."""

    proba: str
    class_scores: str


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


@_for(_links, CrossEntropy, Brier)
def _cross_entropy(graph: Graph, loss: Loss, scores: str) -> Linked:
    return Linked(softmax(graph, scores), scores)


@_for(_links, GeneralisedCrossEntropy)
def _generalised(graph: Graph, loss: GeneralisedCrossEntropy, scores: str) -> Linked:
    return Linked(softmax(graph, graph.op("Mul", scores, np.array(1 - loss.q, dtype=_F))), scores)


@_for(_links, LabelSmoothing)
def _label_smoothing(graph: Graph, loss: LabelSmoothing, scores: str) -> Linked:
    p = softmax(graph, scores)
    share = graph.op("ReduceMean", p, np.array([-1], dtype=np.int64), keepdims=1)  # 1 / K
    above = graph.op("Sub", p, graph.op("Mul", share, np.array(loss.epsilon, dtype=_F)))
    zero = np.array(0, dtype=_F)
    return Linked(normalised(graph, graph.op("Where", graph.op("Less", above, zero), zero, above)), scores)


@_for(_links, Focal)
def _focal(graph: Graph, loss: Focal, scores: str) -> Linked:
    zero, one, last = np.array(0, dtype=_F), np.array(1, dtype=_F), np.array([-1], dtype=np.int64)
    shifted = graph.op("Sub", scores, graph.op("ReduceMax", scores, last, keepdims=1))
    e = graph.op("Exp", shifted)
    total = graph.op("ReduceSum", e, last, keepdims=1)
    p = graph.op("Div", e, total)
    lower = graph.op("Where", graph.op("Less", shifted, zero), e, zero)
    below = graph.op("ReduceSum", lower, last, keepdims=1)
    likely = graph.op("Greater", p, np.array(0.5, dtype=_F))
    rest = graph.op("Div", graph.op("Where", likely, below, graph.op("Sub", total, e)), total)
    least = np.array(loss.least_rest, dtype=_F)
    rest = graph.op("Where", graph.op("Less", rest, least), least, rest)
    surprise = graph.op("Sub", graph.op("Log", total), shifted)
    small = graph.op("Less", rest, np.array(1e-4, dtype=_F))
    near_one = graph.op("Add", graph.op("Mul", rest, np.array(0.5, dtype=_F)), one)
    ratio = graph.op("Where", small, near_one, graph.op("Div", surprise, rest))
    gamma = np.array(loss.gamma, dtype=_F)
    slope = graph.op("Log", graph.op("Add", graph.op("Mul", graph.op("Mul", p, ratio), gamma), one))
    powers = graph.op("Add", surprise, graph.op("Mul", graph.op("Log", rest), gamma))
    return Linked(softmax(graph, graph.op("Neg", graph.op("Add", powers, slope))), scores)


@_for(_links, OneVsAll)
def _one_vs_all(graph: Graph, loss: OneVsAll, scores: str) -> Linked:
    return Linked(_margin_link(graph, loss.phi, scores), scores)


@_for(_links, Margin)
def _margin(graph: Graph, loss: Margin, scores: str) -> Linked:
    both = two_sided(graph, scores)
    return Linked(_margin_link(graph, loss.phi, both), both)


@_for(_rules, MozannarSontag, CaoRejection, MaoScores, AsymmetricSoftmax, VermaNalisnick, AbstainingClassifier)
def _plus_one(graph: Graph, loss: Loss, scores: str) -> Ruled:
    classes = _class_part(graph, scores)
    ahead = graph.op("Sub", largest(graph, classes, _F), column(graph, scores, -1))
    return Ruled(argmax(graph, classes), ahead, ahead)


@_for(_rules, DeepGamblers)
def _deep_gamblers(graph: Graph, loss: DeepGamblers, scores: str) -> Ruled:
    tau = torch.as_tensor(loss.tau)
    if tau.numel() != 1:
        raise ExportError(f"tau has {tau.numel()} values, one per network of a stack; give one number.")
    kept = column(graph, softmax(graph, scores), -1)
    acceptance = graph.op("Sub", np.array(float(tau), dtype=_F), kept)
    bet = graph.op("Sub", np.array(1, dtype=_F), kept)
    return Ruled(argmax(graph, _class_part(graph, scores)), acceptance, bet)


@_for(_rules, CostSensitiveOneVsAll)
def _cost_sensitive(graph: Graph, loss: CostSensitiveOneVsAll, scores: str) -> Ruled:
    best, _ = graph.ops("TopK", 2, scores, np.array([2], dtype=np.int64), axis=-1)
    first, others = column(graph, best, 0), graph.op("Neg", column(graph, best, 1))
    least = graph.op("Where", graph.op("Less", others, first), others, first)
    # TopK may leave a NaN out, which has to reject.
    least = graph.op("Where", graph.op("IsNaN", largest(graph, scores, _F)), np.array(np.nan, dtype=_F), least)
    return Ruled(argmax(graph, scores), least, least)


def _class_part(graph: Graph, scores: str) -> str:
    """Return all scores but the last."""
    ends = (np.array([end], dtype=np.int64) for end in (0, -1, -1))
    return graph.op("Slice", scores, *ends)


@_for(_rules, AdditivePairwise, MultiplicativePairwise, PredictorRejector, TwoStage)
def _pairwise(graph: Graph, loss: Loss, scores: str) -> Ruled:
    # The scores are (g_1, ..., g_K, r); -1 counts from the end.
    rejector = column(graph, scores, -1)
    return Ruled(argmax(graph, _class_part(graph, scores)), rejector, rejector)


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


_FIRST = np.array([0], dtype=np.int64)


def network_decision(graph: Graph, features: str, model: RejectClassifier) -> tuple[Ruled, str | None]:
    """Return the label, acceptance and confidence of the networks, and the probabilities of losses with a link.

    For these the rule is Chow's, whose cost is not known here: the acceptance is then still to be made.
    """
    networks = model.networks_
    scores = _scores(graph, features, model)
    if not networks.loss.has_link:
        return ruled(graph, networks.loss, graph.op("Squeeze", scores, _FIRST)), None
    found = linked(graph, networks.loss, scores)
    proba = _calibrated(graph, found.proba, model)
    confidence = largest(graph, proba, _F)
    # Among equally likely classes (saturated links) the one with the best mean score.
    by_score = _mean(graph, found.class_scores, _n_linked(networks))
    wide = graph.op("Unsqueeze", confidence, np.array([-1], dtype=np.int64))
    likeliest = graph.op("Where", graph.op("Equal", proba, wide), by_score, np.array(-np.inf, dtype=_F))
    return Ruled(argmax(graph, likeliest), "", confidence), _as_predicted(graph, proba, model)


def network_proba(graph: Graph, features: str, model: RejectClassifier) -> str:
    """Return ``predict_proba`` alone."""
    found = linked(graph, model.networks_.loss, _scores(graph, features, model))
    return _as_predicted(graph, _calibrated(graph, found.proba, model), model)


def _as_predicted(graph: Graph, proba: str, model: RejectClassifier) -> str:
    """Return probabilities in double precision, divided by their sum."""
    whole = normalised(graph, graph.cast(proba, np.float64))
    return graph.op("Where", graph.op("IsNaN", whole), np.array(1 / len(model.classes_)), whole)


def _calibrated(graph: Graph, proba: str, model: RejectClassifier) -> str:
    networks = model.networks_
    averaged = _mean(graph, proba, _n_linked(networks))
    return averaged if networks.temperature is None else temperature(graph, averaged, networks.temperature, _F)


def _n_linked(networks: FittedNetworks) -> int:
    """Return how many members' probabilities are averaged; where their scores are, nothing is left to average."""
    return 1 if networks.mean_of == "scores" else len(networks.networks)


def _mean(graph: Graph, values: str, n_members: int) -> str:
    if n_members == 1:
        return graph.op("Squeeze", values, _FIRST)
    return graph.op("Div", graph.op("ReduceSum", values, _FIRST, keepdims=0), np.array(n_members, dtype=_F))


def _scores(graph: Graph, features: str, model: RejectClassifier) -> str:
    """Return the scores of all members, or their mean where that is linked, of shape (members or 1, rows, outputs)."""
    scores, networks = _scores_of_members(graph, features, model), model.networks_
    if networks.mean_of == "proba" or len(networks.networks) == 1:
        return scores
    total = graph.op("ReduceSum", scores, _FIRST, keepdims=1)
    return graph.op("Div", total, np.array(len(networks.networks), dtype=_F))


def _scores_of_members(graph: Graph, features: str, model: RejectClassifier) -> str:
    networks = model.networks_.networks
    architecture = networks.architecture
    if isinstance(architecture, TabularNet):
        return _tabular_scores(graph, _inputs(graph, features, model), networks)
    if not isinstance(architecture, MLP):
        raise ExportError(
            "the networks are torch modules of your own (module=...), whose code demur does not know; export each with "
            "torch.onnx.export(model.networks_.networks.module(0), ...), or fit without module."
        )
    vectors = networks.vectors.detach().cpu().numpy().astype(_F)
    value, start = _inputs(graph, features, model), 0
    for depth, (fan_in, fan_out) in enumerate(pairwise(architecture.sizes)):
        middle, end = start + fan_in * fan_out, start + (fan_in + 1) * fan_out
        weight = vectors[:, start:middle].reshape(-1, fan_out, fan_in).transpose(0, 2, 1)
        bias = vectors[:, middle:end].reshape(-1, 1, fan_out)
        value = graph.op("Add", graph.op("MatMul", value, np.ascontiguousarray(weight)), bias)
        if depth < len(architecture.sizes) - 2:
            value = graph.op("Relu", value)
        start = end
    return value


def _tabular_scores(graph: Graph, value: str, networks: Trained) -> str:
    """Return the scores of networks for tables; ``value`` is (members or 1, rows, inputs)."""
    net = networks.architecture
    assert isinstance(net, TabularNet)
    folded = net.folded(networks.vectors.detach().cpu())
    parts = {name: part.numpy().astype(_F) for name, part in folded.items()}
    if net.embeddings is not None:
        value = _embedded(graph, value, net, parts)
    last = len(net.sizes) - 2
    for depth in range(last + 1):
        weight = np.ascontiguousarray(parts[f"weight{depth}"].transpose(0, 2, 1))
        value = graph.op("Add", graph.op("MatMul", value, weight), parts[f"bias{depth}"][:, None])
        if depth < last:
            bent = graph.op("Sub", graph.op("Selu", value), value)
            value = graph.op("Add", value, graph.op("Mul", bent, parts[f"blend{depth}"][:, None]))
    return value


def _embedded(graph: Graph, value: str, net: TabularNet, parts: dict[str, NDArray[np.float32]]) -> str:
    """Return each feature beside its periodic functions: (members, rows, features x (1 + functions))."""
    columns = graph.op("Unsqueeze", value, np.array([-1], dtype=np.int64))
    turns = graph.op("Mul", columns, (2 * np.pi * parts["frequency"][:, None]).astype(_F))
    waves = graph.op("Cos", graph.op("Add", turns, parts["phase"][:, None]))  # (members, rows, features, frequencies)
    by_feature = graph.op("Transpose", waves, perm=[0, 2, 1, 3])
    mixing = np.ascontiguousarray(parts["mixing"].transpose(0, 1, 3, 2))
    mixed = graph.op("Add", graph.op("MatMul", by_feature, mixing), parts["mixing_bias"][:, :, None])
    mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    n_members = len(parts["frequency"])
    every = graph.op("Expand", columns, np.array([n_members, 1, 1, 1], dtype=np.int64))
    joined = graph.op("Concat", every, mixed, axis=-1)
    return graph.op("Reshape", joined, np.array([n_members, -1, net.sizes[0]], dtype=np.int64))


def _inputs(graph: Graph, features: str, model: RejectClassifier) -> str:
    """Return what each member sees of the features, (members or 1, rows, inputs), in the order of the estimator."""
    networks = model.networks_
    mean, scale, indicators = networks.mean, networks.scale, networks.indicators
    assert mean is not None
    assert scale is not None
    if indicators is not None and len(indicators):
        asked = graph.op("Gather", features, indicators, axis=1)
        told = graph.cast(graph.op("IsNaN", asked), np.float64)
        features = graph.op("Concat", features, told, axis=1)
    value = graph.op("Unsqueeze", features, _FIRST)
    wide = mean[:, None] if mean.ndim == 2 else mean[None, None]
    factor = scale[:, None] if scale.ndim == 2 else scale[None, None]
    value = graph.op("Div", graph.op("Sub", value, wide), factor)
    if networks.clip is not None:
        value = graph.op("Clip", value, np.array(-1e100), np.array(1e100))
        share = graph.op("Div", value, np.array(float(networks.clip)))
        length = graph.op("Sqrt", graph.op("Add", graph.op("Mul", share, share), np.array(1.0)))
        value = graph.op("Div", value, length)
    value = graph.op("Where", graph.op("IsNaN", value), np.array(0.0), value)
    # The estimator refuses infinities; here such a row is rejected.
    value = graph.op("Where", graph.op("IsInf", graph.op("Unsqueeze", features, _FIRST)), np.array(np.nan), value)
    return graph.cast(value, _F)
