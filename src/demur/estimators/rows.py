"""The rows that a network trains on and those that choose between networks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "Split", "in_canonical_order", "split_rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Examples with the weight that each has."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers for training and for validation."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]


_MOST_REPETITIONS = 10
"""Whole-number weights become repetitions while the rows grow at most this many times."""


def in_canonical_order(X: NDArray[Any], y: NDArray[np.int64], weight: NDArray[np.float64] | None) -> Rows:
    """Sort the examples by their values, with weights turned into repetitions where they are whole numbers.

    So a weight of 2 is the same as the row twice, a weight of 0 the same as no row, and the order in which the rows
    come does not matter. Other weights multiply the loss.

    Examples
    --------
    >>> rows = in_canonical_order(np.array([[1.0], [0.0]]), np.array([1, 0]), np.array([2.0, 1.0]))
    >>> rows.X.ravel(), rows.y, rows.weight
    (array([0., 1., 1.]), array([0, 1, 1]), array([1., 1., 1.]))
    """
    weights = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    kept = weights > 0
    X, y, weights = X[kept] + 0.0, y[kept], weights[kept]  # + 0.0 turns -0.0 into 0.0
    whole = np.array_equal(weights, np.round(weights)) and weights.sum() <= _MOST_REPETITIONS * len(X)
    repetitions = weights.astype(np.int64) if whole else np.ones(len(X), dtype=np.int64)
    keyed = np.ascontiguousarray(np.column_stack([X, y.astype(X.dtype), weights.astype(X.dtype)]))
    as_bytes = keyed.view(np.dtype((np.void, keyed.dtype.itemsize * keyed.shape[1]))).ravel()
    order = np.repeat(*(part[np.argsort(as_bytes, kind="stable")] for part in (np.arange(len(X)), repetitions)))
    return Rows(X[order], y[order], np.ones(len(order)) if whole else weights[order])


def split_rows(y: NDArray[np.int64], fraction: float, rng: np.random.RandomState) -> Split:
    """Hold out a random share for validation, but leave every class at least one row to train on.

    Where nothing can be held out, the training rows also validate.

    Examples
    --------
    >>> split = split_rows(np.array([0] * 8 + [1, 2]), 0.5, np.random.RandomState(0))
    >>> sorted(set(np.array([0] * 8 + [1, 2])[split.train]))
    [np.int64(0), np.int64(1), np.int64(2)]
    """
    order = rng.permutation(len(y))
    n_validation = round(fraction * len(y))
    validation, train = order[:n_validation], order[n_validation:]
    missing = np.setdiff1d(y, y[train])
    if len(missing):
        rescued = [int(np.flatnonzero(y[validation] == label)[0]) for label in missing]
        train = np.r_[train, validation[rescued]]
        validation = np.delete(validation, rescued)
    train = np.sort(train)
    return Split(train, np.sort(validation) if len(validation) else train)
