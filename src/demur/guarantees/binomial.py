"""Exact binomial statements about an error rate, from a count of errors."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaincinv

__all__ = ["p_value", "rows_needed", "upper_bound"]


def p_value(errors: ArrayLike, n: ArrayLike, risk: float) -> NDArray[np.float64]:
    """Return P(Bin(n, risk) <= errors): small where so few errors would be a surprise at that risk.

    It is a valid p-value for the hypothesis that the error rate exceeds ``risk``; 1 where nothing was accepted.

    Examples
    --------
    No error in 59 rows is just surprising enough at the 5 % level to rule out a risk above 5 %: 0.95^59 = 0.0485.

    >>> round(float(p_value(0, 59, 0.05)), 4)
    0.0485
    """
    wrong, total = np.asarray(errors, dtype=np.float64), np.asarray(n, dtype=np.float64)
    right = total - wrong
    return np.where(right > 0, betainc(np.maximum(right, 1), wrong + 1, 1 - risk), 1.0)


def upper_bound(errors: ArrayLike, n: ArrayLike, delta: ArrayLike) -> NDArray[Any]:
    """Return the Clopper-Pearson upper bound: the largest risk at which P(Bin(n, risk) <= errors) is still delta.

    With probability at least 1 - delta it is not below the true error rate. It is 1 where all rows are wrong or
    none was accepted.

    Examples
    --------
    Without errors it solves (1 - b)^n = delta, the "rule of three" b = 3 / n:

    >>> round(float(upper_bound(0, 100, 0.05)), 4), round(1 - 0.05 ** (1 / 100), 4)
    (0.0295, 0.0295)
    """
    wrong, total, level = np.broadcast_arrays(
        np.asarray(errors, dtype=np.float64), np.asarray(n, dtype=np.float64), np.asarray(delta, dtype=np.float64)
    )
    right = total - wrong
    return np.where((right > 0) & (level > 0), betaincinv(wrong + 1, np.maximum(right, 1), 1 - level), 1.0)


def rows_needed(risk: float, delta: float) -> int:
    """Return how many rows, all of them right, it takes for the upper bound to fall to ``risk``.

    Examples
    --------
    >>> rows_needed(0.05, 0.05)
    59
    """
    return math.ceil(math.log(delta) / math.log1p(-risk))
