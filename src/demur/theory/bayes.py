"""The target of all losses: Chow's rule and its risk (Section 2.1)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.costs import check_cost
from demur.rules import Chow, Decision, check_proba

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
    price = check_cost(cost)
    best: NDArray[np.float64] = np.minimum(price, 1 - np.asarray(check_proba(proba), dtype=np.float64).max(-1))
    return best


def excess_zero_one_c_risk(decision: Decision[Any], proba: ArrayLike, cost: float) -> NDArray[np.float64]:
    """Return how much more 0-1-c risk each decision has than Chow's (the excess of Eq. 13, row by row).

    Examples
    --------
    >>> eta = [[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]]
    >>> always_reject = bayes_decision([[0.4, 0.3, 0.3]] * 2, cost=0.2)
    >>> excess_zero_one_c_risk(always_reject, eta, cost=0.2).round(6)
    array([0.1, 0. ])
    """
    taken = decision.numpy()
    eta = np.asarray(check_proba(proba), dtype=np.float64)
    answering = 1 - np.take_along_axis(eta, np.asarray(taken.label)[..., None], -1)[..., 0]
    risk = np.where(taken.reject, float(cost), answering)
    excess: NDArray[np.float64] = risk - bayes_risk(eta, cost)
    return excess
