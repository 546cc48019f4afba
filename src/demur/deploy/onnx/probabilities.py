"""Class probabilities of any supported classifier, as ``demur.estimators.cross_fitting`` defines them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
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

from demur.deploy.onnx.boosting import boosting_proba
from demur.deploy.onnx.calibration import calibrated, shifted, temperature
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.forests import forest_proba, tree_proba
from demur.deploy.onnx.generative import (
    bernoulli_proba,
    complement_proba,
    gaussian_proba,
    multinomial_proba,
    quadratic_proba,
)
from demur.deploy.onnx.gradient_boosting import gradient_boosting_proba
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.kernels import svc_proba
from demur.deploy.onnx.linear import linear_proba, sgd_proba
from demur.deploy.onnx.networks import network_proba
from demur.deploy.onnx.perceptrons import perceptron_proba
from demur.deploy.onnx.preprocessing import transformed
from demur.estimators import AutoClassifier, RejectClassifier, RejectOption

__all__ = ["option_proba", "proba"]


def proba(graph: Graph, X: str, model: Any, classes: NDArray[Any]) -> str:
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


def _proba(graph: Graph, X: str, model: Any) -> str:
    if isinstance(model, KNeighborsClassifier):
        raise ExportError(
            "KNeighborsClassifier picks among equally distant rows by the order of its search, which no other program "
            "repeats; use another classifier, such as ExtraTreesClassifier."
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
    every = np.arange(len(model.classes_))
    mixture = ""
    for member, share, scaling, view in zip(model.models_, model.weights_, model.scalings_, model.views_, strict=True):
        own = temperature(graph, proba(graph, views[view], member, every), scaling, np.float64)
        part = graph.op("Mul", own, np.array(float(share)))
        mixture = graph.op("Add", mixture, part) if mixture else part
    return temperature(graph, mixture, model.scaling_, np.float64)


def _zeros(graph: Graph, value: str) -> str:
    first = graph.op("Gather", value, np.array([0], dtype=np.int64), axis=-1)
    return graph.op("Mul", first, np.array(0.0))


_KNOWN: dict[type, Callable[[Graph, str, Any], str]] = {
    AutoClassifier: _blend,
    BernoulliNB: bernoulli_proba,
    ComplementNB: complement_proba,
    DecisionTreeClassifier: tree_proba,
    ExtraTreeClassifier: tree_proba,
    ExtraTreesClassifier: forest_proba,
    FrozenEstimator: lambda graph, X, model: _proba(graph, X, model.estimator),
    GaussianNB: gaussian_proba,
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
