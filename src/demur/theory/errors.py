"""What the theory refuses, by kind; each is a ``ValueError``, so that old habits still catch it."""

from demur.errors import InputError

__all__ = ["CostRangeError", "LossContractError", "NoBoundError", "require_cost", "require_n_classes"]


class CostRangeError(InputError):
    """The statement asked for does not hold, or says nothing, at this rejection cost."""


class LossContractError(InputError):
    """A loss of the user's own does not behave as a loss: wrong shape, NaN, or no derivative."""


class NoBoundError(InputError):
    """No theorem gives this loss the bound that was asked for."""


def require_cost(cost: float, *, below: float = 0.5) -> float:
    """Return the cost as a float, or refuse one outside (0, below).

    Examples
    --------
    >>> require_cost(0.2)
    0.2
    >>> require_cost(0.7)
    Traceback (most recent call last):
        ...
    demur.theory.errors.CostRangeError: this statement needs a cost in (0, 0.5), got 0.7; ...
    """
    try:
        value = float(cost)
    except (TypeError, ValueError):
        raise CostRangeError(f"cost must be one number in (0, {below:g}), got {cost!r}.") from None
    if not 0 < value < below:
        raise CostRangeError(
            f"this statement needs a cost in (0, {below:g}), got {value:g}; the cost is the price of one rejection "
            "where one wrong answer costs 1."
        )
    return value


def require_n_classes(n_classes: int) -> int:
    """Return the number of classes, or refuse fewer than two.

    Examples
    --------
    >>> require_n_classes(1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: a classifier needs at least two classes, got 1.
    """
    if isinstance(n_classes, bool) or int(n_classes) != n_classes:
        raise InputError(f"the number of classes must be a whole number, got {n_classes!r}.")
    if n_classes < 2:
        raise InputError(f"a classifier needs at least two classes, got {n_classes}.")
    return int(n_classes)
