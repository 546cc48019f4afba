"""Classifiers, transformers and calibrators as ONNX operators.

skl2onnx translates the estimators that it supports in double precision. The functions here translate demur's
estimators, and estimators that skl2onnx lacks or computes differently from scikit-learn: trees, binary discriminant
analysis, scores without probabilities, soft votes, imputers, rare and missing categories.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from operator import mul
from typing import Any, TypeAlias

import numpy as np
import torch
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
)
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier
from torch import Tensor

from demur.array_types import AnyArray, Estimator
from demur.calibration import CURVE_END, OneVsRestCalibration, TemperatureScaling, at_temperature
from demur.deploy.onnx.onnx_graph import ExportError, Graph, stored_network
from demur.deploy.onnx.tree_graphs import boosting_scores, forest_proba, gradient_boosting_scores
from demur.estimators import AutoClassifier, PrecomputedProbabilities, RejectClassifier, RejectOption
from demur.estimators.base import CodedLabels
from demur.estimators.torch_classifier import OnnxNetwork, TorchClassifier
from demur.label_shift import LabelShift

Translation: TypeAlias = Callable[[Graph, str, Any], str]
"""Adds a fitted estimator to a graph, given the name of its features, and returns the name of its probabilities."""

_CONVERTED = (
    BernoulliNB, ComplementNB, GaussianNB, LogisticRegression, LogisticRegressionCV, MLPClassifier, MultinomialNB,
    QuadraticDiscriminantAnalysis, MaxAbsScaler, MinMaxScaler, Normalizer, PCA, RobustScaler, StandardScaler,
)  # fmt: skip
"""Estimators that skl2onnx translates with double inputs; tests compare the probabilities with scikit-learn's."""


def proba(graph: Graph, X: str, model: Estimator, classes: AnyArray | None = None) -> str:
    """Return probabilities of shape (rows, n_classes) in double precision.

    With ``classes``, one column for each of them, which is zero for classes that the model does not know.
    """
    function = _CLASSIFIERS.get(type(model))
    if function is not None:
        found = function(graph, X, model)
    elif type(model) in _CONVERTED:
        found = graph.converted(model, X)
    else:
        name = getattr(model, "library", type(model).__name__)
        raise ExportError(
            f"the classifier {name} has no ONNX form in demur; fit another model, such as a logistic regression "
            "(--model lr) or scikit-learn's gradient boosting (--model hgb)."
        )
    if classes is None or np.array_equal(model.classes_, classes):
        return found
    return graph.op("MatMul", found, np.eye(len(classes))[np.searchsorted(classes, model.classes_)])


def option_proba(graph: Graph, X: str, model: RejectOption) -> str:
    """Return ``predict_proba`` of a RejectOption."""

    def function(p: Tensor) -> Tensor:
        return _shifted(_calibrated(p, model.calibrator_), model.label_shift_)

    graph.scale = model.score_scale_
    found = proba(graph, X, model.estimator_, model.classes_)
    return graph.traced(function, (found, (2, len(model.classes_))))[0]


def _calibrated(p: Tensor, calibrator: Any) -> Any:
    """Return the calibrated probabilities; unchanged if the calibrator is None."""
    if calibrator is None:
        return p
    if type(calibrator) is TemperatureScaling:
        return _at(calibrator)(p)
    if type(calibrator) is not OneVsRestCalibration:
        raise _no_calibration(calibrator)
    values = torch.stack([_curve(p[:, k], model) for k, model in enumerate(calibrator.models_)], 1)
    total = values.sum(1, keepdim=True)
    return torch.where(total > 0, values / torch.where(total > 0, total, 1.0), p)


def _curve(p: Tensor, model: Any) -> Tensor:
    if isinstance(model, float):  # the class was everywhere or nowhere among the calibration rows
        return p * 0 + model
    if isinstance(model, LogisticRegression):
        inside = p.clamp(CURVE_END, 1 - CURVE_END)
        return torch.sigmoid(torch.log(inside / (1 - inside)) * float(model.coef_[0, 0]) + float(model.intercept_[0]))
    if type(model) is not IsotonicRegression or model.out_of_bounds != "clip":
        raise _no_calibration(model)
    x, y = (torch.as_tensor(one, dtype=torch.float64) for one in (model.X_thresholds_, model.y_thresholds_))
    inside = p.clamp(float(x[0]), float(x[-1]))
    place = (inside[:, None] >= x).to(torch.int64).sum(1) - 1
    slopes = torch.cat([torch.diff(y) / torch.diff(x), torch.zeros(1, dtype=x.dtype)])
    return y[place] + slopes[place] * (inside - x[place])


def _no_calibration(given: object) -> ExportError:
    return ExportError(
        f"calibration by {type(given).__name__} is not supported; use 'temperature', 'isotonic' or 'sigmoid'."
    )


def _shifted(p: Tensor, shift: LabelShift | None) -> Tensor:
    """Return the probabilities under the new class frequencies, if they have changed."""
    if shift is None:
        return p
    weighted = p.clamp_min(0.0) * torch.as_tensor(shift.new_prior_ / np.asarray(shift.train_prior))
    return weighted / weighted.sum(1, keepdim=True)


def _linked(scores: Tensor) -> Tensor:
    """Return the probabilities of scores of shape (rows, 1) for two classes, else (rows, n_classes)."""
    return torch.softmax(scores, 1) if scores.shape[1] > 1 else torch.sigmoid(torch.cat([-scores, scores], 1))


def _from_scores(scores: Translation) -> Translation:
    """Return a function for classifiers whose scores are linked by the logistic function or the softmax."""

    def function(graph: Graph, X: str, model: Estimator) -> str:
        width = 1 if len(model.classes_) == 2 else len(model.classes_)
        return graph.traced(_linked, (scores(graph, X, model), (2, width)))[0]

    return function


def _linear_scores(graph: Graph, X: str, model: Estimator) -> str:
    weights, intercept = (np.asarray(one, dtype=np.float64) / graph.scale for one in (model.coef_, model.intercept_))
    return graph.op("Gemm", X, np.atleast_2d(weights).T, np.atleast_1d(intercept))


def _given(graph: Graph, X: str, model: PrecomputedProbabilities) -> str:
    return graph.traced(model.proba_of, (X, (2, len(model.classes))))[0]


def _stored(graph: Graph, X: str, model: OnnxNetwork) -> str:
    return graph.added(graph.onnx.load_from_string(model.content.tobytes()), [graph.cast(X, model.dtype)])[0]


def _voting(graph: Graph, X: str, model: VotingClassifier) -> str:
    if model.voting != "soft":
        raise ExportError("VotingClassifier with voting='hard' gives no probabilities; use voting='soft'.")
    members = [(member, X) for member in model.estimators_]
    weights = model._weights_not_none or [1.0] * len(members)
    return _mixed(graph, members, model, lambda parts: sum(map(mul, weights, parts)) / sum(weights))


def _mixed(graph: Graph, members: Iterable[tuple[Estimator, str]], model: Estimator, mean: Callable[..., Any]) -> str:
    """Return the mean of the probabilities of classifiers, each with the name of its features."""
    every = np.arange(len(model.classes_))
    parts = [(proba(graph, X, member, every), (2, len(every))) for member, X in members]
    return graph.traced(lambda *own: mean(own), *parts)[0]


def _blend(graph: Graph, X: str, model: AutoClassifier) -> str:
    """Return the blend of an AutoClassifier; X holds its codes already."""
    _check_columns(graph, model)
    views = {"codes": X}
    for view in sorted({*model.views_} - {"codes"}):
        views[view] = transformed(graph, X, getattr(model, f"{view}_"))
    members = zip(model.models_, (views[view] for view in model.views_), strict=True)

    def mean(parts: tuple[Tensor, ...]) -> Any:
        scaled = (_at(scaling)(p) for scaling, p in zip(model.scalings_, parts, strict=True))
        return _at(model.scaling_)(sum(map(mul, model.weights_, scaled)))

    return _mixed(graph, members, model, mean)


def _check_columns(graph: Graph, model: Estimator) -> None:
    schema = model.encoding_.schema
    if schema is not None and schema is not graph.schema:
        raise ExportError(
            f"{type(model).__name__} that was fitted on a DataFrame cannot be exported as a part of another estimator; "
            "export it alone, or in a RejectOption."
        )


def _coded(graph: Graph, X: str, model: CodedLabels) -> str:
    graph.scale = model.score_scale_
    return proba(graph, X, model.estimator_)


def _at(scaling: TemperatureScaling) -> Callable[[Any], Any]:
    return lambda p: at_temperature(p, scaling.temperature_, scaling.biases_, scaling.smoothing_)


def _networks(graph: Graph, X: str, model: RejectClassifier) -> str:
    if not model.loss_.has_link:
        raise ExportError(
            f"{model.loss_.name} has no probabilities, and its scores inside a RejectOption are not supported; export "
            "the RejectClassifier itself."
        )
    return network_decision(graph, X, model)[-1]


def network_decision(graph: Graph, X: str, model: RejectClassifier) -> list[str]:
    """Return label and confidence of the networks, then the acceptance, or the probabilities if the loss has a link."""
    networks, loss, encoding = model.networks_, model.networks_.loss, model.encoding_
    width = model.n_features_in_
    if encoding is not None:
        _check_columns(graph, model)
        X, width = transformed(graph, X, model.numbers_), len(model.numbers_.get_feature_names_out())
    networks = replace(networks, networks=networks.networks.to("cpu"))

    def function(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scores, is_infinite = networks.scores(x), x.isinf().any(1)  # such rows are declined
        if loss.has_link:
            label, confidence, proba = networks.label_confidence_proba(scores)
            return label, torch.where(is_infinite, torch.nan, confidence), proba
        found = loss.rule(scores[0], model.fit_cost_)
        acceptance = torch.where(is_infinite, torch.nan, found.acceptance)
        return found.label.to(torch.int64), found.confidence.double(), acceptance.double()

    try:
        return graph.traced(function, (X, (2, width)))
    except RuntimeError as error:
        raise ExportError(
            f"torch cannot translate the networks or the loss {loss.name!r} to ONNX; use the built-in ones "
            f"({' '.join(str(error).split())[:200]})."
        ) from error


def transformed(graph: Graph, X: str, transformer: Any) -> str:
    """Return the features after a fitted transformer."""
    if transformer is None or getattr(transformer, "func", X) is None:  # a fitted "passthrough"
        return X
    if isinstance(transformer, Pipeline):
        return reduce(lambda x, step: transformed(graph, x, step[1]), transformer.steps, X)
    if isinstance(transformer, ColumnTransformer):
        return _column_transformer(graph, X, transformer)
    if isinstance(transformer, SimpleImputer):
        return _imputed(graph, X, transformer)
    if isinstance(transformer, OneHotEncoder):
        return graph.traced(_indicators(transformer), (X, (2, transformer.n_features_in_)))[0]
    if type(transformer) in _CONVERTED:
        return graph.converted(transformer, X)
    raise ExportError(
        f"the transformer {type(transformer).__name__} is not supported; transform the features before the model."
    )


def _column_transformer(graph: Graph, X: str, transformer: ColumnTransformer) -> str:
    if transformer.transformer_weights:
        raise ExportError("a ColumnTransformer with transformer_weights is not supported; leave them out.")
    parts = []
    for name, step, _ in transformer.transformers_:
        indices = np.asarray(transformer._transformer_to_input_indices[name], dtype=np.int64)
        if len(indices) and not isinstance(step, str):  # "drop"; a fitted "passthrough" is a transformer
            parts.append(transformed(graph, graph.op("Gather", X, indices, axis=1), step))
    return graph.op("Concat", *parts, axis=1)


def _imputed(graph: Graph, X: str, imputer: SimpleImputer) -> str:
    if str(imputer.missing_values) != "nan":
        raise ExportError(
            f"SimpleImputer with missing_values={imputer.missing_values!r} is not supported; mark gaps as NaN."
        )
    numbers, gaps = np.asarray(imputer.statistics_, dtype=np.float64), graph.op("IsNaN", X)
    kept = np.flatnonzero(~np.isnan(numbers) | imputer.keep_empty_features)
    parts = [graph.op("Gather", graph.op("Where", gaps, numbers, X), kept, axis=1)]
    if imputer.indicator_ is not None:
        parts.append(graph.cast(graph.op("Gather", gaps, imputer.indicator_.features_, axis=1), np.float64))
    return graph.op("Concat", *parts, axis=1)


def _indicators(encoder: OneHotEncoder) -> Callable[[Tensor], Tensor]:
    """Return one column per category, NaN being one if it was seen; rare and perhaps unknown ones share a column."""
    if encoder.drop is not None or any(np.asarray(one).dtype.kind not in "biuf" for one in encoder.categories_):
        raise ExportError(
            "OneHotEncoder is supported for numbers without drop=...; encode text as numbers first, or fit the table "
            "with demur.tabular.fit_table, which exports text columns."
        )
    rare = encoder._infrequent_indices if encoder._infrequent_enabled else [None] * len(encoder.categories_)
    unknown_are_rare = encoder.handle_unknown in ("infrequent_if_exist", "warn")

    def function(x: Tensor) -> Tensor:
        parts = []
        for column, values, infrequent in zip(x.chunk(len(rare), 1), encoder.categories_, rare, strict=True):
            known = torch.as_tensor(np.asarray(values, dtype=np.float64))
            hits = ((column == known) | (column.isnan() & known.isnan())).to(x.dtype)
            if infrequent is not None:
                frequent = hits[:, torch.as_tensor(np.delete(np.arange(len(values)), infrequent))]
                others = hits[:, torch.as_tensor(infrequent)]
                share = 1 - frequent.sum(1, keepdim=True) if unknown_are_rare else others.sum(1, keepdim=True)
                hits = torch.cat([frequent, share], 1)
            parts.append(hits)
        return torch.cat(parts, 1)

    return function


_linear = _from_scores(_linear_scores)

_CLASSIFIERS: dict[type, Translation] = {
    AutoClassifier: _blend,
    CodedLabels: _coded,
    FrozenEstimator: lambda graph, X, model: proba(graph, X, model.estimator),
    PrecomputedProbabilities: _given,
    GradientBoostingClassifier: _from_scores(gradient_boosting_scores),
    HistGradientBoostingClassifier: _from_scores(boosting_scores),
    Pipeline: lambda graph, X, model: proba(graph, transformed(graph, X, model[:-1]), model[-1]),
    RejectClassifier: _networks,
    RejectOption: option_proba,
    OnnxNetwork: _stored,
    TorchClassifier: lambda graph, X, model: _stored(graph, X, stored_network(model)),
    SGDClassifier: lambda graph, X, model: (
        graph.converted(model, X) if hasattr(model, "predict_proba") else _linear(graph, X, model)
    ),
    VotingClassifier: _voting,
    **dict.fromkeys((LinearDiscriminantAnalysis, LinearSVC, Perceptron, RidgeClassifier, RidgeClassifierCV), _linear),
    **dict.fromkeys(
        (DecisionTreeClassifier, ExtraTreeClassifier, ExtraTreesClassifier, RandomForestClassifier), forest_proba
    ),
}
