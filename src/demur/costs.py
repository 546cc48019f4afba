"""The cost of rejecting, c: its domain, checked in one place."""

import warnings

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, Floats, Mask
from demur.errors import InputError, InputTypeError

__all__ = ["PAPER_COSTS", "CostWarning", "check_cost"]

PAPER_COSTS = (0.05, 0.1, 0.2, 0.3, 0.4)
"""The five rejection costs of the paper's experiments."""


class CostWarning(UserWarning):
    """A rejection cost of 1/2 or more: allowed, but not covered by the paper's theorems."""


def check_cost(cost: ArrayLike) -> Floats:
    """Check a rejection cost, or an array of them, and return it as float64.

    The 0-1-c loss charges 1 for a wrong answer and c for a rejection (Eq. 2 of the paper), so c lies in [0, 1): from c
    = 1 on, rejecting would never be cheaper than answering. The paper's theorems assume c < 1/2.

    Parameters
    ----------
    cost : float or array of float
        The cost c of rejecting one example.

    Returns
    -------
    ndarray of float64
        The checked cost, zero-dimensional for a single number.

    Raises
    ------
    TypeError
        If the cost is missing or not a number.
    ValueError
        If any cost is not in [0, 1).

    Warns
    -----
    CostWarning
        If any cost is 1/2 or more: an answer that is more often wrong than right is then accepted.

    Examples
    --------
    >>> float(check_cost(0.2))
    0.2
    >>> check_cost(1.5)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: cost must be in [0, 1), got 1.5: rejecting has to be cheaper than a wrong answer, ...
    """
    given = np.asarray(cost)
    if given.dtype.kind not in "biuf":
        raise InputTypeError(f"cost must be a number in [0, 1), the price of one rejection, got {cost!r}.")
    values: Floats = given.astype(np.float64)
    outside = ~((values >= 0) & (values < 1))
    if np.any(outside):
        worst = _first(values, outside)
        raise InputError(
            f"cost must be in [0, 1), got {worst:g}: rejecting has to be cheaper than a wrong answer, which costs 1."
        )
    if np.any(values >= 0.5):
        warnings.warn(
            f"cost {_first(values, values >= 0.5):g} is 1/2 or more: answers that are more often wrong than right will "
            "be accepted, and the paper's guarantees (c < 1/2) do not apply.",
            CostWarning,
            stacklevel=2,
        )
    return values


def cost_per_row(cost: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Check a cost for rows of this shape: one number for all of them, or one for each.

    Examples
    --------
    >>> cost_per_row([0.1, 0.2], shape=(3,))
    Traceback (most recent call last):
        ...
    demur.errors.InputError: cost must be one number or one per row, of shape (3,); got shape (2,).
    """
    values = check_cost(cost)
    if values.shape not in ((), shape):
        raise InputError(f"cost must be one number or one per row, of shape {shape}; got shape {values.shape}.")
    return values


def _first(values: AnyArray, mask: Mask) -> float:
    return float(values[mask].flat[0])
