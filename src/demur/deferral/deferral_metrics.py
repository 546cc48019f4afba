"""How well model and experts do together: accuracy, load and the deferral curve."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.metrics import RiskCoverage
from demur.metrics.intervals import Interval, proportion_interval

__all__ = ["DeferralCurve", "expert_load", "system_accuracy"]

Floats = NDArray[np.float64]


def system_accuracy(y_true: ArrayLike, y_system: ArrayLike, confidence_level: float = 0.95) -> Interval:
    """Return the share of rows on which the final answer, of the model or an expert, is right, with its interval.

    Parameters
    ----------
    y_true, y_system : arrays of shape (n,)
    confidence_level : float, default 0.95

    Examples
    --------
    >>> print(system_accuracy(["a", "b", "a", "b"], ["a", "b", "a", "a"]))
    0.75 [0.1941, 0.9937]
    """
    true, said = np.asarray(y_true), np.asarray(y_system)
    if true.shape != said.shape or true.ndim != 1:
        raise InputError(f"y_true and y_system must be of one shape (n,), got {true.shape} and {said.shape}.")
    right = np.asarray(true == said, dtype=bool)
    return proportion_interval(int(right.sum()), len(right), confidence_level)


def expert_load(ask: ArrayLike, n_experts: int, confidence_level: float = 0.95) -> Interval:
    """Return the share of rows that each expert gets, with intervals.

    Parameters
    ----------
    ask : array of int, shape (n,)
    n_experts : int
    confidence_level : float, default 0.95

    Examples
    --------
    >>> expert_load([-1, 0, 1, 1], 2).estimate
    array([0.25, 0.5 ])
    """
    asked = np.asarray(ask)
    if asked.dtype.kind not in "iu" or ((asked < -1) | (asked >= n_experts)).any():
        raise InputError(f"ask must hold numbers of experts from 0 to {n_experts - 1}, or -1 for the model.")
    counts = np.bincount(asked.astype(np.int64) + 1, minlength=n_experts + 1)[1:]
    return proportion_interval(counts, len(asked), confidence_level)


@dataclass(frozen=True, eq=False)
class DeferralCurve:
    """Accuracy of model and expert together when the least certain share of the rows is asked about.

    Made by :meth:`from_confidence`. Rows of equal confidence cannot be separated by a threshold, so they are asked
    about together: one point for each distinct confidence, and none depends on the order of the rows.

    Parameters
    ----------
    deferred : array
        The share of rows that are asked about, ascending from 0 to 1.
    accuracy : array
        Accuracy of the system at each share.
    area : float
        Under the curve, whose points are joined by straight lines: the mean accuracy over all shares.

    Examples
    --------
    The model errs in the row that it is least sure of, the expert in the surest:

    >>> curve = DeferralCurve.from_confidence([0.9, 0.8, 0.6], [True, True, False], [False, True, True])
    >>> curve.deferred.round(2), curve.accuracy.round(2), round(curve.area, 3)
    (array([0.  , 0.33, 0.67, 1.  ]), array([0.67, 1.  , 1.  , 0.67]), 0.889)
    """

    deferred: Floats
    accuracy: Floats
    area: float

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, model_right: ArrayLike, expert_right: ArrayLike) -> Self:
        """Make the curve.

        Parameters
        ----------
        confidence : array of shape (n,)
            Higher means that the model answers: ``decision.confidence``.
        model_right, expert_right : arrays of shape (n,)
            Whether each is right; the expert's may be a share, over several people.
        """
        order, model, expert = (
            np.asarray(values, dtype=np.float64) for values in (confidence, model_right, expert_right)
        )
        if not order.shape == model.shape == expert.shape or order.ndim != 1:
            raise InputError(
                f"confidence, model_right and expert_right must be of one shape (n,), got {order.shape}, {model.shape} "
                f"and {expert.shape}."
            )
        kept = RiskCoverage.from_confidence(order, model - expert)
        level = float(expert.mean())
        deferred = np.r_[1 - kept.coverage[::-1], 1.0]
        accuracy = np.r_[level + kept.generalized_risk[::-1], level]
        return cls(np.abs(deferred), accuracy, level + kept.augrc)
