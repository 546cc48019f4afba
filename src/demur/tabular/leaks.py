"""Columns that alone tell the class of nearly every row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from demur.columns.frames import shown
from demur.columns.schema import Schema

__all__ = ["Leak", "likely_leaks"]

_MOST_ROWS = 20_000
_FEW_VALUES = 50
_TOLERATED = 0.02
"""Wrong rows, as a share of those that are not of the largest class, up to which a column still gives all away."""
_CHANCE = 1e-6


@dataclass(frozen=True)
class Leak:
    """A column that alone tells the classes apart, and the share of rows of which it does."""

    column: str
    share: float

    def __str__(self) -> str:
        return (
            f"column {shown(self.column)} alone tells the class of {self.share:.1%} of the rows, which looks like a "
            f"leak: if it is known only after the answer, leave it out with --drop {shown(self.column)}."
        )


def likely_leaks(codes: NDArray[np.float64], labels: NDArray[np.str_], schema: Schema) -> list[Leak]:
    """Return the columns that alone tell nearly all rows' classes, where chance cannot explain it.

    A value speaks for the class that most other rows with it have; a number with many values, for the classes between
    as many cuts as there are classes. How often this would happen by chance, given the columns, the cuts or the
    values and the rows that are wrong, is bounded by counting: it must be below one in a million. A table with one
    column only has nothing to compare it with.

    Parameters
    ----------
    codes : array of shape (n_rows, n_columns)
        As :meth:`Schema.encode` returns them.
    labels : array of str, shape (n_rows,)
    schema : Schema

    Examples
    --------
    >>> import pyarrow as pa
    >>> y = ["cat", "dog"] * 50
    >>> table = pa.table({"code": [1, 2] * 50, "size": np.random.default_rng(0).normal(size=100), "y": y})
    >>> schema = Schema.learn(table, target="y")
    >>> [leak.column for leak in likely_leaks(schema.encode(table), np.array(y), schema)]
    ['code']
    """
    if len(schema.columns) < 2:
        return []
    if len(labels) > _MOST_ROWS:
        some = np.random.default_rng(0).choice(len(labels), _MOST_ROWS, replace=False)
        codes, labels = codes[some], labels[some]
    y = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(y)
    most_wrong = _TOLERATED * (len(y) - counts.max())
    surprise = gammaln(len(y) + 1) - gammaln(counts + 1).sum() - np.log(len(schema.columns))
    found = []
    for column, values in zip(schema.columns, codes.T, strict=True):
        n_wrong, choices = _told_by(values, y, len(counts))
        chance = choices + _log_choose(len(y), n_wrong) + n_wrong * np.log(len(counts)) - surprise
        if n_wrong <= most_wrong and chance < np.log(_CHANCE):
            found.append(Leak(column.name, 1 - n_wrong / len(y)))
    return found


def _told_by(values: NDArray[np.float64], y: NDArray[np.intp], n_classes: int) -> tuple[int, float]:
    """Return how many rows a column alone gets wrong, and the logarithm of the number of ways in which it could not."""
    distinct, position = np.unique(values, return_inverse=True)  # missing values are one value
    if len(distinct) <= _FEW_VALUES:
        table = np.zeros((len(distinct), n_classes), dtype=np.int64)
        np.add.at(table, (position, y), 1)
        # a row's own class counts without the row itself: else every identifier would tell all
        own = table[position, y] - 1
        table_without = table[position]
        table_without[np.arange(len(y)), y] = -1
        return int((own <= table_without.max(axis=1)).sum()), len(distinct) * float(np.log(n_classes))
    runs = 1 + int((np.diff(y[np.lexsort((y, position))]) != 0).sum())
    return max(0, (runs - n_classes + 1) // 2), float(gammaln(n_classes + 1))


def _log_choose(n: int, k: int) -> float:
    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
