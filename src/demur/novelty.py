"""Novelty: out-of-distribution rows, by a calibrated score, and the values that make a row unusual.

The score of a row has two parts: its distance to the nearest training row, with numbers divided by their range and
categories compared by equality; and how far its values lie outside the training data, beyond a range or in an unseen
category. Training rows are scored in the same way from the *other* training rows, which calibrates the score.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from demur.errors import InputError

__all__ = ["Novelty"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

UNSEEN = -1.0
"""The code of a category that does not occur in training."""

FEWEST_ROWS = 10
"""The fewest training rows for which novelty can be calibrated."""

_FOLDS = 10
_MOST_JUDGED = 10_000
"""The most training rows whose scores are kept, for p-values down to 1 / 10,001."""
_MOST_KEPT = 8192
"""The most training rows that new rows are compared with."""
_MOST_NUMBERS = 1 << 20
"""The most numbers in all kept rows together."""
_FEWEST_KEPT = 32
_MOST_INDICATORS = 32
"""The most categories of a column that count in distances; the rarer ones are equal to each other."""
_INFINITE = 1e300
_FURTHEST = 1e3
"""The largest scaled value of a number, in ranges."""
_LONG_TAIL = 10.0
"""A column whose range is so many times that of its middle 98 % is measured on a logarithmic scale."""
_PIECE = 4096
"""Points whose distances are computed at a time."""
_FIRST = 256
"""Kept rows that are compared first: most new rows are near one of them."""
_HALF = float(np.sqrt(0.5))
"""The value of a category's indicator: two different categories have the distance of one range."""
_MORE = 1 + 1e-9
"""The factor by which one distance must exceed another, because of rounding."""

_STRETCH = 1.5
_NEAR = 0.5
_BEYOND = 1.0
"""The limits of "auto": 1.5 times the largest distance of a training row, and at least half a range, which is more than
the gap between two classes on one axis; or one unit more outside than any training row."""
_PER_UNSEEN = 2.0
"""How far outside an unseen category counts."""


@dataclass(frozen=True, eq=False)
class Space:
    """The ranges and categories of the training rows, and the coordinates of rows in distances.

    Parameters
    ----------
    numeric, categorical : arrays of int
        The positions of either kind of column.
    low, high, unit : arrays of float
        The range of each number and its length; the size of its value where it has only one.
    bent, centre, body : arrays
        Positions of the numbers with a long tail, their medians, and the widths of their middle 98 %.
    factor, shift : arrays of float
        Times ``factor`` minus ``shift``, a number (after the transformation of long tails) is in [0, 1] in training.
    has_gaps : array of bool
        Which columns had missing values.
    seen : array of bool, shape (n_categorical, n_codes)
    told : array of int, shape (n, 2)
        The categories that have a coordinate: position among the categorical columns, and code.
    """

    numeric: Ints
    categorical: Ints
    low: Floats
    high: Floats
    unit: Floats
    bent: Ints
    centre: Floats
    body: Floats
    factor: Floats
    shift: Floats
    has_gaps: Mask
    seen: Mask
    told: Ints

    @classmethod
    def of(cls, X: Floats, is_categorical: Mask) -> "Space":
        """Learn from training rows."""
        numeric, categorical = np.flatnonzero(~is_categorical), np.flatnonzero(is_categorical)
        numbers = X[:, numeric]
        gaps = np.isnan(numbers)
        low = np.where(gaps, np.inf, numbers).min(axis=0)
        high = np.where(gaps, -np.inf, numbers).max(axis=0)
        low, high = np.where(low > high, 0.0, low), np.where(low > high, 0.0, high)
        unit = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
        first, median, last = _quantiles(numbers, (0.01, 0.5, 0.99))
        bent = np.flatnonzero((last > first) & (unit > _LONG_TAIL * (last - first)))
        centre, body = median[bent], (last - first)[bent]
        start, width = low.copy(), unit.copy()
        start[bent] = np.arcsinh((low[bent] - centre) / body)
        width[bent] = np.arcsinh((high[bent] - centre) / body) - start[bent]
        counts = _code_counts(X[:, categorical])
        often = np.argsort(-counts, axis=1, kind="stable")[:, :_MOST_INDICATORS]
        told = [(column, code) for column, codes in enumerate(often) for code in codes if counts[column, code]]
        return cls(
            numeric, categorical, low, high, unit, bent, centre, body, 1 / width, start / width,
            np.asarray(np.isnan(X).any(axis=0)), counts > 0, np.array(told, dtype=np.int64).reshape(-1, 2),
        )  # fmt: skip

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates of a point."""
        return len(self.numeric) + int(self.has_gaps[self.numeric].sum()) + len(self.told)

    def points(self, X: Floats) -> NDArray[np.float32]:
        """Return the coordinates of rows: scaled numbers, indicators of missing numbers, indicators of categories."""
        numbers = X[:, self.numeric]
        with np.errstate(over="ignore", invalid="ignore"):
            if len(self.bent):
                numbers[:, self.bent] = np.arcsinh((numbers[:, self.bent] - self.centre) / self.body)
            numbers *= self.factor
            numbers -= self.shift
        np.clip(numbers, -_FURTHEST, _FURTHEST, out=numbers)
        parts = [numbers]
        if self.has_gaps.any() or np.isnan(numbers).any():
            gaps = np.isnan(numbers)
            numbers[gaps] = 0.5
            parts.append(0.5 * gaps[:, self.has_gaps[self.numeric]])
        if len(self.told):
            parts.append(_HALF * (X[:, self.categorical[self.told[:, 0]]] == self.told[:, 1]))
        return np.hstack(parts).astype(np.float32) if len(parts) > 1 else numbers.astype(np.float32)

    def left_out(self, X: Floats) -> Floats:
        """Return the part of each squared distance that comes from gaps in columns without gaps in training."""
        columns = self.categorical[~self.has_gaps[self.categorical]]
        return np.asarray(0.5 * np.isnan(X[:, columns]).sum(axis=1))

    def outside(self, X: Floats) -> Floats:
        """Return how far each value lies outside: 0 inside, 1 for one range beyond, 2 for an unseen category."""
        found = np.zeros(X.shape)
        numbers = X[:, self.numeric]
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = np.maximum(self.low - numbers, numbers - self.high) / self.unit
        rows, columns = np.nonzero(beyond > 0)
        found[rows, self.numeric[columns]] = np.log2(1 + np.minimum(beyond[rows, columns], _INFINITE))
        if len(self.categorical):
            found[:, self.categorical] = np.where(self._met(X), 0.0, _PER_UNSEEN)
        return found

    def _met(self, X: Floats) -> Mask:
        """Return which categories are missing or occurred in training."""
        codes = X[:, self.categorical]
        missing = np.isnan(codes)
        known = np.where(missing, 0.0, np.clip(codes, -1, self.seen.shape[1])).astype(np.int64)
        inside = (known >= 0) & (known < self.seen.shape[1])
        return np.asarray(missing | (inside & self.seen[np.arange(len(self.categorical)), np.where(inside, known, 0)]))


@dataclass(frozen=True, eq=False)
class KeptRows:
    """The coordinates of the training rows that new rows are compared with.

    Parameters
    ----------
    points : array of float32, shape (n, n_coordinates)
    """

    points: NDArray[np.float32]

    def nearest(self, points: NDArray[np.float32]) -> Floats:
        """Return the squared distance of each point to the nearest row; zeros where no rows are kept."""
        if not len(points) or not len(self.points):
            return np.zeros(len(points))
        return _least_squared(points.astype(np.float64), self.points.astype(np.float64))

    def none_within(self, points: NDArray[np.float32], near: Floats) -> Mask:
        """Return the points that have no row within their squared distance ``near``.

        Most points are clearly within it of one of the first rows, for which single precision is enough.
        """
        slack = 1e-5 * (near + points.shape[1] + (points**2).sum(axis=1))
        left = np.flatnonzero(_least_squared(points, self.points[:_FIRST]) >= near - slack)
        far = np.zeros(len(points), dtype=bool)
        far[left] = self.nearest(points[left]) > near[left]
        return far


def _least_squared(points: NDArray[Any], rows: NDArray[Any]) -> Floats:
    """Return the squared distance of each point to the nearest of the rows."""
    lengths, found = (rows**2).sum(axis=1), np.full(len(points), np.inf)
    for start in range(0, len(points) if len(rows) else 0, _PIECE):
        part = points[start : start + _PIECE]
        products = part @ rows.T
        products *= -2
        products += lengths
        found[start : start + _PIECE] = products.min(axis=1) + (part**2).sum(axis=1)
    return np.asarray(np.maximum(found, 0.0))


class Novelty(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""Detects out-of-distribution rows with a given false-alarm rate.

    The score of a row is :math:`\max(d / d_0, o)`. Here d is the distance to the nearest training row, each number
    divided by its range in training, with :math:`d_0` the 99 % quantile of that distance among training rows; and o
    is the sum over its values of how far each lies outside: :math:`\log_2(1 + e)` for a number e ranges beyond its
    range, 2 for an unseen category, 0 for a missing value. Of n training rows, each judged from
    the other folds, let m have a score of at least that of a new row; its p-value is

    .. math:: p = (m + 1) / (n + 1).

    If new rows come from the same source as the training rows, p is at most ``rate`` with probability at most ``rate``,
    on average over training samples: a cross-fitted conformal p-value (Vovk et al. 2005).

    Parameters
    ----------
    rate : float or "auto"
        The share of ordinary rows that may be called novel by mistake, at least 1 / (n + 1). "auto" calls only rows far
        outside of all training rows novel: a distance 1.5 times that of any training row and at least 1/2, or one unit
        more outside than any. Its rate is at most 2 / (n + 1), and less where tails are not heavy.

    Attributes
    ----------
    distances_, outside_ : arrays of shape (n,)
        The two parts of the score of at most 10,000 training rows, from the other folds.
    n_features_in_ : int

    Notes
    -----
    Numbers with long tails are measured on a logarithmic scale. New rows are compared with at most 8,192 training
    rows. Labels are not used.

    References
    ----------
    Vovk, Gammerman, Shafer (2005), Algorithmic learning in a random world.
    Bates, Candes, Lei, Romano, Sesia (2023), Testing for outliers with conformal p-values, Annals of Statistics.

    Examples
    --------
    >>> rows = np.random.default_rng(0).uniform(size=(500, 2))
    >>> usual = Novelty(rate=0.01).fit(rows)
    >>> usual.novel([[0.5, 0.5], [0.5, 1e6]])
    array([False,  True])
    >>> usual.p_values([[0.5, 1e6]]).round(4)
    array([0.002])
    >>> usual.outside([[0.5, 1e6]])
    array([[False,  True]])
    """

    def __init__(self, rate: float | str = "auto") -> None:
        self.rate = rate
        check_rate(rate)

    def fit(self, X: ArrayLike, categorical: ArrayLike | None = None, blocks: ArrayLike | None = None) -> Self:
        """Learn from training rows.

        Parameters
        ----------
        X : array of shape (n, n_features)
            NaN where a value is missing.
        categorical : array of bool, shape (n_features,), optional
            Which columns hold codes 0, 1, ... of categories.
        blocks : array of int, shape (n,), optional
            Rows of one block, such as those of one patient, are scored from the rows of other blocks.
        """
        rows = self._checked(X)
        rows = np.where(np.abs(rows) < _INFINITE, rows, np.nan)
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"{len(rows)} training rows are too few to calibrate novelty; give at least {FEWEST_ROWS}."
            )
        kinds = np.zeros(rows.shape[1], dtype=bool) if categorical is None else np.asarray(categorical, dtype=bool)
        of_row = np.arange(len(rows)) if blocks is None else np.unique(np.asarray(blocks), return_inverse=True)[1]
        rng = np.random.default_rng(0)
        n_blocks = int(of_row.max()) + 1
        fold = rng.permutation(np.arange(n_blocks) % min(_FOLDS, n_blocks))[of_row]
        judged = rng.permutation(len(rows))[:_MOST_JUDGED]
        self.n_features_in_ = rows.shape[1]
        self.distances_, self.outside_ = np.zeros(len(judged)), np.zeros(len(judged))
        for number in range(fold.max() + 1 if n_blocks > 1 else 0):
            own = np.flatnonzero(fold[judged] == number)
            space, kept = _parts(rows[fold != number], kinds, rng)
            self.distances_[own], self.outside_[own] = _judged(space, kept, rows[judged[own]])
        self.space_, self.rows_ = _parts(rows, kinds, rng)
        self.usual_distance_ = float(np.quantile(self.distances_, 0.99, method="higher")) or 1.0
        self._limits(self.rate)
        return self

    def novel(self, X: ArrayLike, rate: float | str | None = None) -> Mask:
        """Return which rows are novel, at ``rate`` or at another rate."""
        rows = self._checked(X)
        most_outside, radius = self._limits(self.rate if rate is None else rate)
        near = (radius**2 + self.space_.left_out(rows)) * _MORE
        far = self.rows_.none_within(self.space_.points(rows), near)
        return np.asarray(far | (self.space_.outside(rows).sum(axis=1) > most_outside))

    def p_values(self, X: ArrayLike) -> Floats:
        """Return the p-value of each row: the share of rows with at least its score, the row itself included."""
        rows = self._checked(X)
        scores = self._scores(*_judged(self.space_, self.rows_, rows))
        usual = np.sort(self._scores(self.distances_, self.outside_))
        at_least = len(usual) - np.searchsorted(usual * _MORE, scores, side="left")
        return np.asarray((at_least + 1) / (len(usual) + 1))

    def outside(self, X: ArrayLike) -> Mask:
        """Return which values lie beyond the range of training, or are unseen categories."""
        return np.asarray(self.space_.outside(self._checked(X)) > 0)

    def explain(self) -> str:
        """Describe which rows are called novel, and how often by mistake."""
        n_rows = len(self.distances_)
        if self.rate == "auto":
            return (
                "Rows far outside of the training data are declined as novel; at most a share of "
                f"{2 / (n_rows + 1):.2g} of ordinary rows by mistake."
            )
        return (
            f"Rows unlike the training data are declined as novel; at most {self.rate:g} of ordinary rows by mistake."
        )

    def _limits(self, rate: float | str) -> tuple[float, float]:
        """Return the limits of the sum outside and of the distance."""
        if rate == "auto":
            return float(self.outside_.max()) + _BEYOND, max(_STRETCH * float(self.distances_.max()), _NEAR)
        n_rows = len(self.distances_)
        check_rate(rate, n_rows)
        allowed = int(np.floor(float(rate) * (n_rows + 1) + 1e-9))
        limit = float(np.partition(self._scores(self.distances_, self.outside_), n_rows - allowed)[n_rows - allowed])
        return limit, limit * self.usual_distance_

    def _scores(self, distances: Floats, outside: Floats) -> Floats:
        return np.maximum(distances / self.usual_distance_, outside)

    def _checked(self, X: ArrayLike) -> Floats:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or not rows.shape[1]:
            raise InputError(f"rows must have shape (n, n_features), got {rows.shape}.")
        if hasattr(self, "n_features_in_") and rows.shape[1] != self.n_features_in_:
            check_is_fitted(self)
            raise InputError(f"rows have {rows.shape[1]} features, and those of training {self.n_features_in_}.")
        return rows


def check_rate(rate: object, n_rows: int | None = None) -> None:
    """Refuse a rate that is neither "auto" nor a share, or too small for the number of training rows.

    Examples
    --------
    >>> check_rate(0.001, n_rows=150)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: a false-alarm rate of 0.001 takes 999 training rows, and there are 150: ask for at ...
    """
    if isinstance(rate, str) and rate == "auto":
        return
    if isinstance(rate, bool | str) or not isinstance(rate, int | float | np.number) or not 0 < rate < 1:
        raise InputError(f'the rate of novelty must be "auto" or a share between 0 and 1, got {rate!r}.')
    if n_rows is not None and rate * (n_rows + 1) < 1 - 1e-9:
        raise InputError(
            f"a false-alarm rate of {rate:g} takes {int(np.ceil(1 / rate)) - 1:,} training rows, and there are "
            f'{n_rows:,}: ask for at least {np.ceil(1e4 / (n_rows + 1)) / 1e4:g}, or for "auto".'
        )


def _parts(rows: Floats, categorical: Mask, rng: np.random.Generator) -> tuple[Space, KeptRows]:
    """Return ranges and categories of the rows, and the rows to compare with, in random order."""
    space = Space.of(rows, categorical)
    n_kept = min(_MOST_KEPT, _MOST_NUMBERS // max(space.n_coordinates, 1), len(rows))
    if n_kept < min(_FEWEST_KEPT, len(rows)):
        n_kept = 0
    points = space.points(rows[rng.permutation(len(rows))[:n_kept]])
    return space, KeptRows(points)


def _judged(space: Space, kept: KeptRows, rows: Floats) -> tuple[Floats, Floats]:
    """Return for each row its distance to the nearest kept row, and the sum of how far its values lie outside."""
    squared = kept.nearest(space.points(rows)) - space.left_out(rows)
    return np.sqrt(np.maximum(squared, 0.0)), space.outside(rows).sum(axis=1)


def _quantiles(numbers: Floats, shares: tuple[float, ...]) -> Floats:
    """Return quantiles of each column, of some rows where there are many; 0 where a column holds nothing."""
    if not numbers.shape[1]:  # nanquantile returns another shape then
        return np.empty((len(shares), 0))
    some = numbers[:: 1 + len(numbers) // 20_000]
    held = np.where(np.isnan(some).all(axis=0), 0.0, some)
    return np.asarray(np.nanquantile(held, shares, axis=0, method="lower"))


def _code_counts(codes: Floats) -> NDArray[np.int64]:
    """Return how often each code of each column occurs, shape (n_columns, n_codes)."""
    known = [column[column >= 0].astype(np.int64) for column in codes.T]
    n_codes = 1 + max((int(column.max(initial=0)) for column in known), default=0)
    return np.array([np.bincount(column, minlength=n_codes) for column in known]).reshape(-1, n_codes)
