"""The 0-1-c loss and the plain figures around it: coverage, rejection rate, accuracy of the answers given."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.costs import check_cost
from demur.errors import InputError
from demur.metrics.labels import check_weights, correct_and_rejected, rejected

__all__ = ["accepted_accuracy", "coverage", "rejection_rate", "zero_one_c_loss", "zero_one_c_risk"]


def zero_one_c_loss(
    y_true: ArrayLike, y_pred: ArrayLike, *, cost: ArrayLike, reject_label: Any = -1
) -> NDArray[np.float64]:
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
        The marker of a rejection. It must not be a class. NaN and None both stand for a missing value.

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
    prices = check_cost(cost)
    if prices.shape not in ((), reject.shape):
        raise InputError(f"cost must be one number or have shape {reject.shape} like y_true, got {prices.shape}.")
    return np.where(reject, prices, np.where(correct, 0.0, 1.0))


def zero_one_c_risk(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    cost: ArrayLike,
    reject_label: Any = -1,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Return the mean 0-1-c loss: what a prediction costs on average. Lower is better.

    Parameters
    ----------
    y_true, y_pred, cost, reject_label
        As for :func:`zero_one_c_loss`.
    sample_weight : array of shape (n,), optional
        How much each example counts.

    Examples
    --------
    Four examples, one wrong and one rejected: (1 + 0.2) / 4.

    >>> zero_one_c_risk([0, 1, 1, 0], [0, 0, -1, 0], cost=0.2)
    0.3
    """
    losses = zero_one_c_loss(y_true, y_pred, cost=cost, reject_label=reject_label)
    return float(np.average(losses, weights=check_weights(sample_weight, len(losses))))


def rejection_rate(y_pred: ArrayLike, *, reject_label: Any = -1, sample_weight: ArrayLike | None = None) -> float:
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
    reject = rejected(y_pred, reject_label)
    return float(np.average(reject, weights=check_weights(sample_weight, len(reject))))


def coverage(y_pred: ArrayLike, *, reject_label: Any = -1, sample_weight: ArrayLike | None = None) -> float:
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
    accept = ~rejected(y_pred, reject_label)
    return float(np.average(accept, weights=check_weights(sample_weight, len(accept))))


def accepted_accuracy(
    y_true: ArrayLike, y_pred: ArrayLike, *, reject_label: Any = -1, sample_weight: ArrayLike | None = None
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
