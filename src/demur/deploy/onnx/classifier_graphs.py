"""Classifiers of scikit-learn as operators: adding one is one function and its line at the end."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from demur.array_types import AnyArray, Estimator
from demur.deploy.onnx.decision_graphs import calibrated, shifted, temperature
from demur.deploy.onnx.input_graphs import transformed
from demur.deploy.onnx.loss_graphs import network_proba
from demur.deploy.onnx.onnx_graph import ExportError, Graph, sigmoid, softmax, two_sided, with_complement
from demur.deploy.onnx.tree_graphs import boosting_proba, forest_proba, gradient_boosting_proba, tree_proba
from demur.estimators import AutoClassifier, PrecomputedProbabilities, RejectClassifier, RejectOption
from demur.estimators.boosted_trees import BoostedTrees, library_of
from demur.estimators.cross_fitting import CodedLabels
from demur.estimators.precomputed_probabilities import LEAST_LEFT, LOG_KINDS

__all__ = [
    "bernoulli_proba",
    "complement_proba",
    "gaussian_proba",
    "given_proba",
    "linear_proba",
    "linked_scores",
    "multinomial_proba",
    "option_proba",
    "perceptron_proba",
    "proba",
    "quadratic_proba",
    "sgd_proba",
    "svc_proba",
]


def linear_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the logistic function of the scores for two classes, their softmax for more."""
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64)).T
    intercept = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    scores = graph.op("Add", graph.product(X, weights), intercept)
    if len(model.classes_) > 2 or not hasattr(model, "predict_proba"):
        return linked_scores(graph, scores, len(model.classes_))
    return with_complement(graph, sigmoid(graph, scores, np.float64))


def sgd_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of an SGDClassifier."""
    if hasattr(model, "predict_proba") and model.loss != "log_loss":
        raise ExportError(f"SGDClassifier with loss={model.loss!r} is not supported; use loss='log_loss'.")
    if hasattr(model, "predict_proba") and len(model.classes_) > 2:
        raise ExportError(
            "SGDClassifier with loss='log_loss' and more than two classes rounds several probabilities to nearly 1, so "
            "that the last bit decides, which no two programs agree on; use LogisticRegression."
        )
    return linear_proba(graph, X, model)


def linked_scores(graph: Graph, scores: str, n_classes: int) -> str:
    """Link the scores of a ``decision_function`` as ``RejectOption`` does.

    They have the shape (rows, 1) for two classes, else (rows, n_classes).
    """
    return softmax(graph, scores) if n_classes > 2 else sigmoid(graph, two_sided(graph, scores), np.float64)


_LAST = np.array([-1], dtype=np.int64)


def gaussian_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of GaussianNB."""
    constant = np.log(model.class_prior_) - 0.5 * np.sum(np.log(2.0 * np.pi * model.var_), axis=1)
    centred = graph.op("Sub", graph.op("Unsqueeze", X, np.array([1], dtype=np.int64)), model.theta_)
    squares = graph.op("Div", graph.op("Mul", centred, centred), model.var_)
    distance = graph.op("ReduceSum", squares, _LAST, keepdims=0)
    return softmax(graph, graph.op("Sub", constant, graph.op("Mul", np.array(0.5), distance)))


def multinomial_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of MultinomialNB."""
    counted = graph.product(X, np.ascontiguousarray(model.feature_log_prob_.T))
    return softmax(graph, graph.op("Add", counted, model.class_log_prior_))


def complement_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of ComplementNB."""
    return softmax(graph, graph.product(X, np.ascontiguousarray(model.feature_log_prob_.T)))


def bernoulli_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of BernoulliNB."""
    if model.binarize is None:
        raise ExportError("BernoulliNB with binarize=None is not supported; set binarize, to 0.5 for zeros and ones.")
    present = graph.cast(graph.op("Greater", X, np.array(float(model.binarize))), np.float64)
    absent = np.log(1 - np.exp(model.feature_log_prob_))
    seen = graph.product(present, np.ascontiguousarray((model.feature_log_prob_ - absent).T))
    return softmax(graph, graph.op("Add", seen, model.class_log_prior_ + absent.sum(axis=1)))


def quadratic_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the probabilities of QuadraticDiscriminantAnalysis."""
    distances = []
    for mean, rotation, scaling in zip(model.means_, model.rotations_, model.scalings_, strict=True):
        whitened = graph.product(graph.op("Sub", X, mean), rotation * scaling ** (-0.5))
        distances.append(graph.op("ReduceSum", graph.op("Mul", whitened, whitened), _LAST, keepdims=1))
    volumes = np.array([np.sum(np.log(scaling)) for scaling in model.scalings_])
    total = graph.op("Add", graph.op("Concat", *distances, axis=-1), volumes)
    return softmax(graph, graph.op("Add", graph.op("Mul", np.array(-0.5), total), np.log(model.priors_)))


def svc_proba(graph: Graph, X: str, model: Estimator) -> str:
    """Return the linked scores of an SVC or NuSVC, as ``RejectOption`` makes them from its ``decision_function``."""
    name, n_classes = type(model).__name__, len(model.classes_)
    if hasattr(model, "predict_proba"):
        raise ExportError(
            f"{name} with probability=True finds its probabilities by an iteration that is not supported; use "
            "probability=False, since RejectOption calibrates the scores itself."
        )
    if n_classes > 2 and model.decision_function_shape != "ovr":
        raise ExportError(f"{name} has decision_function_shape={model.decision_function_shape!r}; use 'ovr'.")
    similarity = _kernel(graph, X, model)
    if n_classes == 2:
        scores = graph.product(similarity, np.ascontiguousarray(model.dual_coef_.T))
        return linked_scores(graph, graph.op("Add", scores, model.intercept_), 2)
    pairs = list(combinations(range(n_classes), 2))
    duels = graph.op("Add", graph.product(similarity, _pair_weights(model, pairs)), model.intercept_)
    return linked_scores(graph, _tournament(graph, duels, pairs, n_classes), n_classes)


def _kernel(graph: Graph, X: str, model: Estimator) -> str:
    """Return the kernel between each row and each support vector."""
    if model.kernel not in ("linear", "poly", "rbf", "sigmoid"):
        raise ExportError(f"the kernel {model.kernel!r} is not supported; use 'rbf', 'linear', 'poly' or 'sigmoid'.")
    vectors = np.asarray(model.support_vectors_, dtype=np.float64)
    product = graph.product(X, np.ascontiguousarray(vectors.T))
    gamma, offset = np.array(float(model._gamma)), np.array(float(model.coef0))
    if model.kernel == "linear":
        return product
    if model.kernel == "rbf":
        own = graph.op("ReduceSum", graph.op("Mul", X, X), _LAST, keepdims=1)
        apart = graph.op("Sub", graph.op("Add", own, (vectors**2).sum(axis=1)), graph.op("Mul", np.array(2.0), product))
        return graph.op("Exp", graph.op("Mul", -gamma, graph.op("Max", apart, np.array(0.0))))
    shifted = graph.op("Add", graph.op("Mul", gamma, product), offset)
    if model.kernel == "poly":
        return graph.op("Pow", shifted, np.array(float(model.degree)))
    return graph.op("Tanh", shifted)


def _pair_weights(model: Estimator, pairs: list[tuple[int, int]]) -> Any:
    """Return the weight of each support vector in the duel of each pair of classes, as libsvm stores them."""
    ends = np.r_[0, np.cumsum(model.n_support_)]
    weights = np.zeros((len(model.support_vectors_), len(pairs)))
    for number, (i, j) in enumerate(pairs):
        of_i, of_j = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[of_i, number] = model.dual_coef_[j - 1, of_i]
        weights[of_j, number] = model.dual_coef_[i, of_j]
    return weights


def _tournament(graph: Graph, duels: str, pairs: list[tuple[int, int]], n_classes: int) -> str:
    """Count the duels that each class wins; their margins, squeezed to less than a vote, break ties."""
    places = np.array(pairs)
    first, second = np.eye(n_classes)[places[:, 0]], np.eye(n_classes)[places[:, 1]]
    lost = graph.cast(graph.op("Less", duels, np.array(0.0)), np.float64)
    won = graph.op("Sub", np.array(1.0), lost)
    votes = graph.op("Add", graph.product(won, first), graph.product(lost, second))
    margins = graph.product(duels, first - second)
    size = graph.op("Mul", np.array(3.0), graph.op("Add", graph.op("Abs", margins), np.array(1.0)))
    return graph.op("Add", votes, graph.op("Div", margins, size))


def perceptron_proba(graph: Graph, X: str, model: Estimator) -> str:
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


def proba(graph: Graph, X: str, model: Estimator, classes: AnyArray) -> str:
    """Return probabilities of shape (rows, classes) in double precision, zero for classes the model does not know."""
    found = _proba(graph, X, model)
    if len(model.classes_) == len(classes):
        return found
    # One more column of zeros stands for all classes that are unknown.
    padded = graph.op("Concat", found, _zeros(graph, found), axis=-1)
    places = np.full(len(classes), len(model.classes_), dtype=np.int64)
    places[np.searchsorted(classes, model.classes_)] = np.arange(len(model.classes_))
    return graph.op("Gather", padded, places, axis=-1)


def option_proba(graph: Graph, X: str, model: RejectOption) -> str:
    """Return ``predict_proba`` of a RejectOption."""
    found = proba(graph, X, model.estimator_, model.classes_)
    return shifted(graph, calibrated(graph, found, model.calibrator_), model.label_shift_)


def _proba(graph: Graph, X: str, model: Estimator) -> str:
    if isinstance(model, KNeighborsClassifier):
        raise ExportError(
            "KNeighborsClassifier picks among equally distant rows by the order of its search, which no other program "
            "repeats; use another classifier, such as ExtraTreesClassifier."
        )
    library = model.library if isinstance(model, BoostedTrees) else library_of(model)
    if library is not None:
        raise ExportError(
            f"trees of {library} have no ONNX form in demur; convert them with that library's own tools, or fit "
            "without them: AutoClassifier takes the names of its candidates."
        )
    function = _KNOWN.get(type(model))
    if function is None:
        known = ", ".join(sorted(kind.__name__ for kind in _KNOWN))
        raise ExportError(f"the classifier {type(model).__name__} has no ONNX form in demur; use one of {known}.")
    return function(graph, X, model)


def _pipeline(graph: Graph, X: str, model: Pipeline) -> str:
    for _, step in model.steps[:-1]:
        X = transformed(graph, X, step)
    return _proba(graph, X, model.steps[-1][1])


def _networks(graph: Graph, X: str, model: RejectClassifier) -> str:
    if not model.loss_.has_link:
        raise ExportError(
            f"{model.loss_.name} has no probabilities, and its scores inside a RejectOption are not supported; export "
            "the RejectClassifier itself."
        )
    return network_proba(graph, X, model)


def _voting(graph: Graph, X: str, model: VotingClassifier) -> str:
    if model.voting != "soft":
        raise ExportError("VotingClassifier with voting='hard' gives no probabilities; use voting='soft'.")
    weights = model._weights_not_none or [1.0] * len(model.estimators_)
    every = np.arange(len(model.classes_))
    total = ""
    for member, weight in zip(model.estimators_, weights, strict=True):
        part = graph.op("Mul", proba(graph, X, member, every), np.array(float(weight)))
        total = graph.op("Add", total, part) if total else part
    return graph.op("Div", total, np.array(float(np.sum(weights))))


def _blend(graph: Graph, X: str, model: AutoClassifier) -> str:
    """Return the blend of an AutoClassifier; X holds its codes already."""
    if model.codes_.schema is not None and model.codes_.schema is not graph.schema:
        raise ExportError(
            "an AutoClassifier that was fitted on a DataFrame cannot be exported as a part of another estimator; "
            "export RejectOption(AutoClassifier()) itself."
        )
    views = {"codes": X}
    if "dense" in model.views_:
        views["dense"] = transformed(graph, X, model.dense_)
    if "numbers" in model.views_:
        views["numbers"] = X if model.numbers_ is None else transformed(graph, X, model.numbers_)
    every = np.arange(len(model.classes_))
    mixture = ""
    for member, share, scaling, view in zip(model.models_, model.weights_, model.scalings_, model.views_, strict=True):
        own = temperature(graph, proba(graph, views[view], member, every), scaling, np.float64)
        part = graph.op("Mul", own, np.array(float(share)))
        mixture = graph.op("Add", mixture, part) if mixture else part
    return temperature(graph, mixture, model.scaling_, np.float64)


def given_proba(graph: Graph, X: str, model: PrecomputedProbabilities) -> str:
    """Return what :class:`~demur.estimators.PrecomputedProbabilities` makes of the numbers that are given."""
    gaps = graph.op("IsNaN", X)
    if model.kind in LOG_KINDS:
        logits = X if model.kind == "logits" else _unlisted(graph, X, gaps)
        return softmax(graph, graph.op("Div", logits, np.array(float(model.temperature))))
    filled = graph.op("Max", graph.op("Where", gaps, np.array(0.0), X), np.array(0.0))
    total = graph.op("ReduceSum", filled, _LAST, keepdims=1)
    if model.kind == "votes":
        share = np.array(1 / len(model.classes_))
        return graph.op("Div", graph.op("Add", filled, share), graph.op("Add", total, np.array(1.0)))
    return graph.op("Div", filled, total)


def _unlisted(graph: Graph, X: str, gaps: str) -> str:
    """Let gaps among log-probabilities share what the others leave."""
    listed = graph.op("Where", gaps, np.array(-np.inf), X)
    mass = graph.op("ReduceSum", graph.op("Exp", graph.op("Min", listed, np.array(1.0))), _LAST, keepdims=1)
    left = graph.op("Max", graph.op("Sub", np.array(1.0), mass), np.array(LEAST_LEFT))
    count = graph.op("ReduceSum", graph.cast(gaps, np.float64), _LAST, keepdims=1)
    each = graph.op("Log", graph.op("Div", left, graph.op("Max", count, np.array(1.0))))
    least = graph.op("ReduceMin", graph.op("Where", gaps, np.array(np.inf), X), _LAST, keepdims=1)
    return graph.op("Where", gaps, graph.op("Min", each, least), X)


def _zeros(graph: Graph, value: str) -> str:
    first = graph.op("Gather", value, np.array([0], dtype=np.int64), axis=-1)
    return graph.op("Mul", first, np.array(0.0))


_KNOWN: dict[type, Callable[[Graph, str, Any], str]] = {
    AutoClassifier: _blend,
    BernoulliNB: bernoulli_proba,
    CodedLabels: lambda graph, X, model: _proba(graph, X, model.estimator_),
    ComplementNB: complement_proba,
    DecisionTreeClassifier: tree_proba,
    ExtraTreeClassifier: tree_proba,
    ExtraTreesClassifier: forest_proba,
    FrozenEstimator: lambda graph, X, model: _proba(graph, X, model.estimator),
    GaussianNB: gaussian_proba,
    PrecomputedProbabilities: given_proba,
    GradientBoostingClassifier: gradient_boosting_proba,
    HistGradientBoostingClassifier: boosting_proba,
    LinearDiscriminantAnalysis: linear_proba,
    LinearSVC: linear_proba,
    LogisticRegression: linear_proba,
    LogisticRegressionCV: linear_proba,
    MLPClassifier: perceptron_proba,
    MultinomialNB: multinomial_proba,
    NuSVC: svc_proba,
    Perceptron: linear_proba,
    Pipeline: _pipeline,
    QuadraticDiscriminantAnalysis: quadratic_proba,
    RandomForestClassifier: forest_proba,
    RejectClassifier: _networks,
    RejectOption: option_proba,
    RidgeClassifier: linear_proba,
    RidgeClassifierCV: linear_proba,
    SGDClassifier: sgd_proba,
    SVC: svc_proba,
    VotingClassifier: _voting,
}
