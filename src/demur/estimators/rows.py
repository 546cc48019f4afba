"""The rows that a network trains on and those that choose between networks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rows", "Split", "merge_rows", "split_rows"]


@dataclass(frozen=True, eq=False)
class Rows:
    """Distinct examples with the weight that each has."""

    X: NDArray[Any]
    y: NDArray[np.int64]
    weight: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Split:
    """Row numbers for training and for validation."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]


def merge_rows(X: NDArray[Any], y: NDArray[np.int64], weight: NDArray[np.float64] | None) -> Rows:
    """Merge equal examples and add up their weights, in an order that depends on their values alone.

    So a weight of 2 is the same as the row twice, a weight of 0 the same as no row, and the order of the rows
    does not matter. Equal examples also cannot stand in training and validation at once.

    Examples
    --------
    >>> rows = merge_rows(np.array([[1.0], [0.0], [1.0]]), np.array([1, 0, 1]), None)
    >>> rows.X.ravel(), rows.y, rows.weight
    (array([0., 1.]), array([0, 1]), array([1., 2.]))
    """
    weights = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=np.float64)
    kept = weights > 0
    X, y, weights = X[kept] + 0.0, y[kept], weights[kept]  # + 0.0 turns -0.0 into 0.0
    keyed = np.ascontiguousarray(np.column_stack([X, y.astype(X.dtype)]))
    as_bytes = keyed.view(np.dtype((np.void, keyed.dtype.itemsize * keyed.shape[1]))).ravel()
    _, first, group = np.unique(as_bytes, return_index=True, return_inverse=True)
    total = np.bincount(group, weights=weights, minlength=len(first)).astype(np.float64)
    return Rows(X[first], y[first], total)


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
