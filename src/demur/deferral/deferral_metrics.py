"""How well model and experts do together: accuracy and load."""

import numpy as np
from numpy.typing import ArrayLike

from demur.errors import InputError
from demur.metrics.intervals import Interval, proportion_interval

__all__ = ["expert_load", "system_accuracy"]


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
