"""The networks of a RejectClassifier, in single precision as the engine computes them."""

from itertools import pairwise

import numpy as np

from demur.deploy.onnx.arithmetic import argmax, largest, normalised
from demur.deploy.onnx.calibration import temperature
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.losses import Ruled, linked, ruled
from demur.estimators import RejectClassifier
from demur.training import MLP

__all__ = ["network_decision", "network_proba"]

_F = np.float32
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
    by_score = _mean(graph, found.class_scores, len(networks.networks))
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
    averaged = _mean(graph, proba, len(networks.networks))
    return averaged if networks.temperature is None else temperature(graph, averaged, networks.temperature, _F)


def _mean(graph: Graph, values: str, n_members: int) -> str:
    if n_members == 1:
        return graph.op("Squeeze", values, _FIRST)
    return graph.op("Div", graph.op("ReduceSum", values, _FIRST, keepdims=0), np.array(n_members, dtype=_F))


def _scores(graph: Graph, features: str, model: RejectClassifier) -> str:
    """Return the scores of all members, of shape (members, rows, outputs)."""
    networks = model.networks_.networks
    architecture = networks.architecture
    if not isinstance(architecture, MLP):
        raise ExportError(
            "the networks are torch modules of your own (module=...), whose code demur does not know; export each with "
            "torch.onnx.export(model.networks_.networks.module(0), ...), or fit without module."
        )
    vectors = networks.vectors.detach().cpu().numpy().astype(_F)
    value, start = graph.op("Unsqueeze", _standardised(graph, features, model), _FIRST), 0
    for depth, (fan_in, fan_out) in enumerate(pairwise(architecture.sizes)):
        middle, end = start + fan_in * fan_out, start + (fan_in + 1) * fan_out
        weight = vectors[:, start:middle].reshape(-1, fan_out, fan_in).transpose(0, 2, 1)
        bias = vectors[:, middle:end].reshape(-1, 1, fan_out)
        value = graph.op("Add", graph.op("MatMul", value, np.ascontiguousarray(weight)), bias)
        if depth < len(architecture.sizes) - 2:
            value = graph.op("Relu", value)
        start = end
    return value


def _standardised(graph: Graph, features: str, model: RejectClassifier) -> str:
    """Centre in double precision, then scale in single precision, in the order of the estimator."""
    mean, scale = model.networks_.mean, model.networks_.scale
    assert mean is not None
    assert scale is not None
    centred = graph.cast(graph.op("Sub", features, mean), _F)
    return graph.op("Mul", centred, (1 / scale).astype(_F))
