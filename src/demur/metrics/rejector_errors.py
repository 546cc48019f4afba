"""The two errors of a rejector, measured against a known posterior (the remark after Theorem 4 of the paper)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.costs import check_cost
from demur.errors import InputError, InputTypeError
from demur.rules import check_proba, check_weights, chow_acceptance

__all__ = ["false_accept_rate", "false_reject_rate"]


def false_reject_rate(
    decision_reject: ArrayLike, proba: ArrayLike, cost: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the share of all examples that were rejected although the Bayes-optimal rule accepts them.

    The rate is over all examples, not over those that the Bayes-optimal rule accepts, so that it adds up with
    :func:`false_accept_rate` to the share of rejector mistakes. Where max eta = 1 - c both decisions cost the
    same, and neither is a mistake.

    Parameters
    ----------
    decision_reject : array of bool, shape (n,)
        True where the example was declined, as in ``Decision.reject``.
    proba : array of shape (n, n_classes)
        The true class probabilities eta(x).
    cost : float, or array of shape (n,)
        The price c of one rejection.
    sample_weight : array of shape (n,), optional
        How much each example counts.

    Examples
    --------
    At c = 0.2 the first two examples should be accepted and the third rejected; the last is a tie.

    >>> eta = [[0.9, 0.1], [0.1, 0.9], [0.7, 0.3], [0.8, 0.2]]
    >>> false_reject_rate([True, False, False, True], eta, cost=0.2)
    0.25
    """
    reject, acceptance, weights = _against_bayes(decision_reject, proba, cost, sample_weight)
    return float(np.average(reject & (acceptance > 0), weights=weights))


def false_accept_rate(
    decision_reject: ArrayLike, proba: ArrayLike, cost: ArrayLike, *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the share of all examples that were accepted although the Bayes-optimal rule rejects them.

    Parameters
    ----------
    decision_reject, proba, cost, sample_weight
        As for :func:`false_reject_rate`, which also says what a rate and a tie are.

    Examples
    --------
    >>> eta = [[0.9, 0.1], [0.1, 0.9], [0.7, 0.3], [0.8, 0.2]]
    >>> false_accept_rate([True, False, False, True], eta, cost=0.2)
    0.25
    """
    reject, acceptance, weights = _against_bayes(decision_reject, proba, cost, sample_weight)
    return float(np.average(~reject & (acceptance < 0), weights=weights))


def _against_bayes(
    decision_reject: ArrayLike, proba: ArrayLike, cost: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[NDArray[np.bool_], NDArray[Any], NDArray[np.float64]]:
    """Return the decisions, the Bayes-optimal acceptance with zero at ties, and the weights."""
    reject = np.asarray(decision_reject)
    if reject.dtype != np.bool_:
        raise InputTypeError(
            f"decision_reject must be a boolean mask, True where rejected, got dtype {reject.dtype}; "
            "use decision.reject, or y_pred == reject_label."
        )
    eta = check_proba(proba)
    if reject.ndim != 1 or len(reject) == 0 or eta.shape[:-1] != reject.shape:
        raise InputError(
            f"decision_reject and proba need shapes (n,) and (n, n_classes) with n >= 1, got {reject.shape} and "
            f"{eta.shape}."
        )
    prices = check_cost(cost)
    if prices.shape not in ((), reject.shape):
        raise InputError(f"cost must be one number or have shape {reject.shape}, got {prices.shape}.")
    acceptance = chow_acceptance(eta.max(axis=-1), prices)
    ties = np.abs(acceptance) <= 4 * np.finfo(eta.dtype).eps
    return reject, np.where(ties, 0.0, acceptance), check_weights(sample_weight, len(reject))
