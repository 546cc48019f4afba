"""What an evaluation is given, checked once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError, InputTypeError
from demur.rules import Decision, chow_acceptance

__all__ = ["check_decision", "check_free_cost", "sortable"]


def check_decision(decision: Decision[Any], n_rows: int, n_classes: int) -> Decision[NDArray[Any]]:
    """Return the decision with NumPy arrays: one entry per row, labels that are positions among the classes.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> check_decision(Chow(0.2).decide([[0.9, 0.1]]), n_rows=2, n_classes=2)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: decision.label has shape (1,) but there are 2 labels; decide for the labelled rows.
    """
    found = decision.numpy()
    for name in ("label", "reject", "acceptance", "confidence"):
        shape = getattr(found, name).shape
        if shape != (n_rows,):
            raise InputError(
                f"decision.{name} has shape {shape} but there are {n_rows} labels; decide for the labelled rows."
            )
    if found.label.dtype.kind not in "iu" or found.label.min() < 0 or found.label.max() >= n_classes:
        raise InputError(
            f"decision.label must hold positions 0 to {n_classes - 1} among the classes, got {found.label[:5].tolist()}"
            "...; use decide(), not predict()."
        )
    if found.reject.dtype != np.bool_:
        raise InputTypeError(f"decision.reject must be a boolean mask, got dtype {found.reject.dtype}.")
    return found


def check_free_cost(decision: Decision[NDArray[Any]], cost: float) -> None:
    """Refuse decisions that are not those of Chow's rule at this cost, which alone lets the cost move.

    Examples
    --------
    >>> from demur.rules import Threshold
    >>> check_free_cost(Threshold(0.5).decide([[0.9, 0.1], [0.7, 0.3]]), 0.2)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the decision differs from Chow's rule at cost 0.2 on 1 rows, so that the cost cannot ...
    cost_is_free=False.
    """
    # Computed as Chow's rule does, with the cost as an array: float32 probabilities are compared in float64.
    chow = Decision.from_acceptance(decision.label, chow_acceptance(decision.confidence, np.asarray(cost)))
    n_others = int((chow.reject != decision.reject).sum())
    if n_others:
        raise InputError(
            f"the decision differs from Chow's rule at cost {cost:g} on {n_others} rows, so that the cost cannot move "
            "freely; pass cost_is_free=False."
        )


def sortable(confidence: NDArray[Any]) -> NDArray[Any]:
    """Return finite values in the same order, undefined ones last, since a curve can only be drawn of those.

    Examples
    --------
    >>> sortable(np.array([0.5, 0.25])), sortable(np.array([np.inf, np.nan, 3.0]))
    (array([0.5 , 0.25]), array([2., 0., 1.]))
    """
    if np.isfinite(confidence).all():
        return confidence
    ranks = np.unique(np.where(np.isnan(confidence), -np.inf, confidence), return_inverse=True)[1]
    return np.asarray(ranks, dtype=np.float64)
