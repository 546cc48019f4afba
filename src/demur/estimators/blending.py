"""Greedy blending: a weighted mean of several models' probabilities, chosen on rows that none of them saw."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError

__all__ = ["Blend", "greedy_blend"]

_ROUNDS = 50
"""The number of draws: weights are multiples of 1/50 or coarser."""

_SMALLEST = 1e-12


@dataclass(frozen=True)
class Blend:
    """The weight of each model, summing to 1, and the log loss of their mean.

    Parameters
    ----------
    weights : tuple of float
    log_loss : float
    """

    weights: tuple[float, ...]
    log_loss: float


def greedy_blend(true_class_proba: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> Blend:
    """Add one model after another, repetitions allowed, always the one that lowers the log loss most.

    Ensemble selection of Caruana et al. (2004): of the 50 mixtures on that path the best is kept. A model that
    helps nobody gets the weight 0. Log loss sees a probability only at the true class, and the mean is linear,
    so one number per model and row is all it takes.

    Parameters
    ----------
    true_class_proba : sequence of arrays of shape (n,)
        For each model the probability that it gives the true class of each row, out of fold.
    sample_weight : array of shape (n,), optional

    References
    ----------
    Caruana, Niculescu-Mizil, Crew, Ksikes (2004), Ensemble selection from libraries of models, ICML.

    Examples
    --------
    Two models that are each right on half of the rows are worth more together than the even-handed third:

    >>> greedy_blend([[0.9, 0.3], [0.3, 0.9], [0.5, 0.5]]).weights
    (0.5, 0.5, 0.0)
    """
    models = [np.maximum(np.asarray(column, dtype=np.float64), _SMALLEST) for column in true_class_proba]
    if not models:
        raise InputError("there is no model to blend; give at least one.")
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    total = np.zeros_like(models[0])
    draws: list[int] = []
    losses: list[float] = []
    for size in range(1, _ROUNDS + 1):
        after = [_log_loss((total + one) / size, weights) for one in models]
        best = int(np.argmin(after))
        total += models[best]
        draws.append(best)
        losses.append(after[best])
    kept = int(np.argmin(losses)) + 1
    counts = np.bincount(draws[:kept], minlength=len(models))
    return Blend(tuple((counts / kept).tolist()), losses[kept - 1])


def _log_loss(true_class_proba: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    return float(-np.average(np.log(true_class_proba), weights=weight))
