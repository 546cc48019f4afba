"""Naive Bayes and quadratic discriminant analysis: classifiers that add up log likelihoods."""

from typing import Any

import numpy as np

from demur.deploy.onnx.arithmetic import softmax
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph

__all__ = ["bernoulli_proba", "complement_proba", "gaussian_proba", "multinomial_proba", "quadratic_proba"]

_LAST = np.array([-1], dtype=np.int64)


def gaussian_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of GaussianNB."""
    constant = np.log(model.class_prior_) - 0.5 * np.sum(np.log(2.0 * np.pi * model.var_), axis=1)
    centred = graph.op("Sub", graph.op("Unsqueeze", X, np.array([1], dtype=np.int64)), model.theta_)
    squares = graph.op("Div", graph.op("Mul", centred, centred), model.var_)
    distance = graph.op("ReduceSum", squares, _LAST, keepdims=0)
    return softmax(graph, graph.op("Sub", constant, graph.op("Mul", np.array(0.5), distance)))


def multinomial_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of MultinomialNB."""
    counted = graph.product(X, np.ascontiguousarray(model.feature_log_prob_.T))
    return softmax(graph, graph.op("Add", counted, model.class_log_prior_))


def complement_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of ComplementNB."""
    return softmax(graph, graph.product(X, np.ascontiguousarray(model.feature_log_prob_.T)))


def bernoulli_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of BernoulliNB."""
    if model.binarize is None:
        raise ExportError("BernoulliNB with binarize=None is not supported; set binarize, to 0.5 for zeros and ones.")
    present = graph.cast(graph.op("Greater", X, np.array(float(model.binarize))), np.float64)
    absent = np.log(1 - np.exp(model.feature_log_prob_))
    seen = graph.product(present, np.ascontiguousarray((model.feature_log_prob_ - absent).T))
    return softmax(graph, graph.op("Add", seen, model.class_log_prior_ + absent.sum(axis=1)))


def quadratic_proba(graph: Graph, X: str, model: Any) -> str:
    """Return the probabilities of QuadraticDiscriminantAnalysis."""
    distances = []
    for mean, rotation, scaling in zip(model.means_, model.rotations_, model.scalings_, strict=True):
        whitened = graph.product(graph.op("Sub", X, mean), rotation * scaling ** (-0.5))
        distances.append(graph.op("ReduceSum", graph.op("Mul", whitened, whitened), _LAST, keepdims=1))
    volumes = np.array([np.sum(np.log(scaling)) for scaling in model.scalings_])
    total = graph.op("Add", graph.op("Concat", *distances, axis=-1), volumes)
    return softmax(graph, graph.op("Add", graph.op("Mul", np.array(-0.5), total), np.log(model.priors_)))
