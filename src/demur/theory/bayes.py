"""The target of all losses: Chow's rule and its risk (Section 2.1)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.costs import check_cost
from demur.rules import Chow, Decision, check_proba, chow_acceptance

__all__ = ["bayes_decision", "bayes_risk", "excess_zero_one_c_risk"]


def bayes_decision(proba: ArrayLike, cost: float) -> Decision[NDArray[Any]]:
    """Return Chow's decision: answer argmax eta iff max eta > 1 - c, which minimises the 0-1-c risk (Eq. 1).

    Parameters
    ----------
    proba : array of shape (..., n_classes)
        The true class probabilities eta.
    cost : float
        The price c of one rejection.

    Examples
    --------
    >>> bayes_decision([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]], cost=0.2).reject
    array([False,  True])
    """
    return Chow(cost).decide(proba)


def bayes_risk(proba: ArrayLike, cost: float) -> NDArray[np.float64]:
    """Return min(c, 1 - max eta), the least 0-1-c risk that any decision has, for each row.

    Examples
    --------
    >>> bayes_risk([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]], cost=0.2).round(6)
    array([0.1, 0.2])
    """
    check_cost(cost)
    return _least_risk(np.asarray(check_proba(proba), dtype=np.float64), cost)


def excess_zero_one_c_risk(decision: Decision[Any], proba: ArrayLike, cost: float) -> NDArray[np.float64]:
    """Return how much more 0-1-c risk each decision has than Chow's (the excess of Eq. 13, row by row).

    Examples
    --------
    >>> eta = [[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]]
    >>> always_reject = bayes_decision([[0.4, 0.3, 0.3]] * 2, cost=0.2)
    >>> excess_zero_one_c_risk(always_reject, eta, cost=0.2).round(6)
    array([0.1, 0. ])
    """
    check_cost(cost)
    return excess_of(decision, np.asarray(check_proba(proba), dtype=np.float64), cost)


def excess_of(decision: Decision[Any], eta: NDArray[np.float64], cost: float) -> NDArray[np.float64]:
    """Do what :func:`excess_zero_one_c_risk` does, unchecked."""
    taken = decision.numpy()
    answering = 1 - np.take_along_axis(eta, np.asarray(taken.label)[..., None], -1)[..., 0]
    excess: NDArray[np.float64] = np.where(taken.reject, float(cost), answering) - _least_risk(eta, cost)
    return excess


def chow_rejects(eta: NDArray[np.float64], cost: float) -> NDArray[np.bool_]:
    """Return where Chow's rule rejects, unchecked."""
    rejects: NDArray[np.bool_] = ~(chow_acceptance(eta.max(-1), cost) > 0)
    return rejects


def _least_risk(eta: NDArray[np.float64], cost: float) -> NDArray[np.float64]:
    least: NDArray[np.float64] = np.minimum(cost, 1 - eta.max(-1))
    return least
