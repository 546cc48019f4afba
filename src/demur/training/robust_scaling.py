"""Features scaled for networks: centred, divided by their interquartile range, and cut into intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from sklearn.tree import DecisionTreeClassifier

from demur.array_types import AnyArray, Floats, Ints
from demur.rules import library_of
from demur.training.architecture import Numbers

CLIP = 3.0
"""Scaled features are clipped smoothly to (-CLIP, CLIP)."""


def robust_scale(X: Floats, weight: Floats) -> tuple[Floats, Floats]:
    """Return the median of each column, and the distance of its quartiles; a row of weight 2 counts as two equal rows.

    A column whose quartiles coincide gets half its range as its scale, and a constant one an infinite scale. Missing
    values (NaN) are ignored.

    Examples
    --------
    >>> robust_scale(np.array([[0.0], [1.0], [2.0], [3.0], [40.0]]), np.ones(5))
    (array([2.]), array([2.]))
    """
    X, weight = X[weight > 0], weight[weight > 0]
    low, center, high, least, most = np.array([_quartiles(column, weight) for column in X.T]).reshape(-1, 5).T
    width = np.where(high > low, high - low, (most - least) / 2)
    return center, np.where(width > 0, width, np.inf)


def _quartiles(column: Floats, weight: Floats) -> tuple[float, ...]:
    """Return lower quartile, median, upper quartile, least and largest value.

    A quantile between two values is their mean, so duplicating all rows changes nothing.
    """
    order = np.argsort(column, kind="stable")[: np.count_nonzero(~np.isnan(column))]
    if not len(order):
        return (0.0,) * 5
    values, below = column[order], np.cumsum(weight[order])
    wanted = np.array([0.25, 0.5, 0.75]) * below[-1]
    near = 1e-12 * below[-1]  # sums of weights are rounded
    first = np.searchsorted(below, wanted - near).clip(max=len(values) - 1)
    after = np.searchsorted(below, wanted + near, side="right").clip(max=len(values) - 1)
    return (*((values[first] + values[after]) / 2), values[0], values[-1])


_MOST_PIECES, _MOST_IN_ALL = 16, 1024
"""Maximum number of pieces of a feature, and of all features together."""

_ROWS_FOR_PIECES = 5_000
"""Maximum number of rows from which the bounds of pieces are learned."""

LARGEST = 1e30
"""Larger numbers count as this one, because trees compute in single precision."""


@dataclass(frozen=True, eq=False)
class Pieces:
    """Features divided into intervals: the share of each interval below a value, from 0 to 1.

    With these inputs, networks approximate steps and skewed features better (Gorishniy, Rubachev and Babenko 2022). A
    decision tree on each feature alone chooses the bounds.

    Parameters
    ----------
    columns : array of int, shape (n_pieces,)
        The feature of each interval.
    low, width : arrays of shape (n_pieces,) or (n_members, n_pieces)
        Intervals of infinite width are not used: the trees of members differ in size.

    Examples
    --------
    >>> pieces = Pieces(np.array([0, 0]), np.array([0.0, 10.0]), np.array([10.0, 20.0]))
    >>> pieces.beside(np.array([[4.0], [15.0]]))
    array([[ 4.  ,  0.4 ,  0.  ],
           [15.  ,  1.  ,  0.25]])
    """

    columns: Ints
    low: Floats
    width: Floats

    @classmethod
    def learn(cls, X: AnyArray, y: Ints, weight: Floats, parts: Sequence[Ints]) -> list[Self]:
        """Return the pieces that each of several sets of rows choose; features of two values have none."""
        distinct = [len(np.unique(values[~np.isnan(values)])) for values in X.T]
        of_numbers = [column for column, n_values in enumerate(distinct) if n_values > 2]
        most = int(np.clip(_MOST_IN_ALL // max(len(of_numbers), 1), 2, _MOST_PIECES))
        columns = np.array([one for one in of_numbers for _ in range(min(most, distinct[one]))], dtype=np.int64)
        found = []
        for part in parts:
            rows = np.random.default_rng(0).permutation(part)[:_ROWS_FOR_PIECES]
            low, width = np.zeros(len(columns)), np.full(len(columns), np.inf)
            for column in of_numbers:
                known = rows[~np.isnan(X[rows, column])]
                if not len(known):
                    continue
                place = np.flatnonzero(columns == column)
                tree = DecisionTreeClassifier(
                    max_leaf_nodes=len(place), min_samples_leaf=int(np.clip(len(rows) // 100, 3, 20)), random_state=0
                )
                values = np.clip(X[known, column], -LARGEST, LARGEST)
                own = tree.fit(values[:, None], y[known], weight[known]).tree_
                bounds = np.unique([values.min(), *own.threshold[own.feature >= 0], values.max()])
                place = place[: len(bounds) - 1]
                low[place], width[place] = bounds[:-1], np.diff(bounds)
            found.append(cls(columns, low, width))
        return found

    def beside(self, X: Numbers) -> Numbers:
        """Return the features followed by the pieces: (n_rows, n_inputs), or with members a matrix for each."""
        library, values = library_of(X), X[:, self.columns]
        low, width = (one if one.ndim == 1 else one[:, None] for one in map(library.asarray, (self.low, self.width)))
        pieces: Numbers = library.clip((values - low) / width, 0.0, 1.0)
        joined: Numbers = library.concatenate([library.broadcast_to(X, (*pieces.shape[:-1], X.shape[1])), pieces], -1)
        return joined
