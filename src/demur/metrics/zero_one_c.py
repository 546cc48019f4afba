"""The 0-1-c risk and its parts: from answers, and as a scorer."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, Estimator, Features, Floats, Label
from demur.costs import check_cost, cost_per_row
from demur.errors import InputError
from demur.metrics.predictions import NEVER, correct_and_rejected, rejected
from demur.rules import check_weights


def zero_one_c_loss(y_true: ArrayLike, y_pred: ArrayLike, *, cost: ArrayLike, reject_label: Label = -1) -> Floats:
    """Return the 0-1-c loss of each example: 1 if wrong, c if rejected, 0 if right (Eq. 2 of the paper).

    Parameters
    ----------
    y_true : array of shape (n,)
        True labels: numbers or strings.
    y_pred : array of shape (n,)
        Predicted labels, with ``reject_label`` where the classifier declined.
    cost : float, or array of shape (n,)
        The price c of one rejection, possibly different for each example.
    reject_label : number, str, NaN or None, default -1
        Marker of a rejection, which must not be a class. NaN and None both stand for a missing value.

    Returns
    -------
    array of float, shape (n,)

    Examples
    --------
    >>> zero_one_c_loss([0, 1, 1], [0, 0, -1], cost=0.2)
    array([0. , 1. , 0.2])
    >>> zero_one_c_loss(["cat", "dog"], ["reject", "dog"], cost=[0.1, 0.3], reject_label="reject")
    array([0.1, 0. ])
    """
    correct, reject = correct_and_rejected(y_true, y_pred, reject_label)
    return np.where(reject, cost_per_row(cost, reject.shape), np.where(correct, 0.0, 1.0))


def zero_one_c_risk(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    cost: ArrayLike,
    reject_label: Label = -1,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the mean 0-1-c loss, the average cost of a prediction. Lower is better.

    Parameters
    ----------
    y_true, y_pred, cost, reject_label
        As for :func:`zero_one_c_loss`.
    sample_weight : array of shape (n,), optional
        Weight of each example.

    Examples
    --------
    Four examples, one wrong and one rejected: (1 + 0.2) / 4.

    >>> zero_one_c_risk([0, 1, 1, 0], [0, 0, -1, 0], cost=0.2)
    0.3
    """
    return _mean(zero_one_c_loss(y_true, y_pred, cost=cost, reject_label=reject_label), sample_weight)


def rejection_rate(y_pred: ArrayLike, *, reject_label: Label = -1, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of examples that were declined.

    Parameters
    ----------
    y_pred, reject_label, sample_weight
        As for :func:`zero_one_c_risk`.

    Examples
    --------
    >>> rejection_rate([0, 0, -1, 0])
    0.25
    """
    return _mean(rejected(y_pred, reject_label), sample_weight)


def coverage(y_pred: ArrayLike, *, reject_label: Label = -1, sample_weight: ArrayLike | None = None) -> float:
    """Return the share of examples that were answered: one minus :func:`rejection_rate`.

    Parameters
    ----------
    y_pred, reject_label, sample_weight
        As for :func:`zero_one_c_risk`.

    Examples
    --------
    >>> coverage([0, 0, -1, 0])
    0.75
    """
    return _mean(~rejected(y_pred, reject_label), sample_weight)


def _mean(values: AnyArray, sample_weight: ArrayLike | None) -> float:
    return float(np.average(values, weights=check_weights(sample_weight, len(values))))


def accepted_accuracy(
    y_true: ArrayLike, y_pred: ArrayLike, *, reject_label: Label = -1, sample_weight: ArrayLike | None = None
) -> float:
    """Return the share of right answers among the answers given; NaN if every example was rejected.

    Parameters
    ----------
    y_true, y_pred, reject_label, sample_weight
        As for :func:`zero_one_c_risk`.

    Examples
    --------
    >>> accepted_accuracy([0, 1, 1, 0, 1], [0, 0, -1, 0, 1])
    0.75
    >>> accepted_accuracy([0, 1], [-1, -1])
    nan
    """
    correct, reject = correct_and_rejected(y_true, y_pred, reject_label)
    weights = check_weights(sample_weight, len(reject))
    answered = weights[~reject].sum()
    return float(weights[correct].sum() / answered) if answered > 0 else float("nan")


def zero_one_c_scorer(cost: float, reject_label: Label = None) -> Callable[..., float]:
    """Make a scorer for ``cross_val_score``, ``GridSearchCV`` and the like: minus the 0-1-c risk.

    The marker of a rejection is the attribute ``reject_label_`` of the estimator (or of the last step of a pipeline, or
    of the best estimator of a search). An estimator without this attribute rejects where it predicts the
    ``reject_label`` given here; if none is given, it never rejects, so plain classifiers can be compared.

    Parameters
    ----------
    cost : float
        The price c of one rejection.
    reject_label : number or str, optional
        The marker of estimators that have no ``reject_label_``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sample_weight=None)``; greater is better.

    Examples
    --------
    A classifier that always answers 1 is wrong once in four:

    >>> from sklearn.dummy import DummyClassifier
    >>> scorer = zero_one_c_scorer(0.2)
    >>> constant = DummyClassifier(strategy="most_frequent").fit([[0]] * 4, [-1, 1, 1, 1])
    >>> scorer(constant, [[0]] * 4, [-1, 1, 1, 1])
    -0.25
    """
    if np.ndim(cost) != 0:
        raise InputError(f"a scorer takes a single cost, got an array of shape {np.shape(cost)}.")
    check_cost(cost)
    return partial(_minus_risk, cost=cost, reject_label=reject_label)


def _minus_risk(
    estimator: Estimator,
    X: Features,
    y: ArrayLike,
    sample_weight: ArrayLike | None = None,
    *,
    cost: float,
    reject_label: Label,
) -> float:
    marker = marker_of(estimator, default=reject_label)
    return -zero_one_c_risk(y, estimator.predict(X), cost=cost, reject_label=marker, sample_weight=sample_weight)


def marker_of(estimator: Estimator, default: Any) -> Any:
    """Return the marker of an estimator's rejections: its own, or the default, or one that equals no label."""
    if hasattr(estimator, "reject_label_"):
        return estimator.reject_label_
    if hasattr(estimator, "best_estimator_"):
        return marker_of(estimator.best_estimator_, default)
    if hasattr(estimator, "steps"):
        return marker_of(estimator.steps[-1][1], default)
    return NEVER if default is None else default
