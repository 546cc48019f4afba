"""Novelty: out-of-distribution rows, by a calibrated score, and the values that make a row unusual.

The score of a row has two parts: its distance to the nearest training row, with numbers divided by their range and
categories compared by equality; and how far its values lie outside the training data, beyond a range or in an unseen
category. Training rows are scored in the same way from the *other* training rows, which calibrates the score.
"""

import warnings
from dataclasses import dataclass, replace
from numbers import Real
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from demur.array_types import Floats, Ints, Mask
from demur.errors import InputError

__all__ = ["Novelty"]


UNSEEN = -1.0
"""The code of a category that does not occur in training."""

FEWEST_ROWS = 10
"""The fewest training rows for which novelty can be calibrated."""

_FOLDS = 10
_MOST_SCORED = 10_000
"""The most training rows whose scores are kept, for p-values down to 1 / 10,001."""
_MOST_KEPT = 8192
"""The most training rows that new rows are compared with."""
_MOST_NUMBERS = 1 << 20
"""The most numbers in all kept rows together, as long as 32 rows are kept."""
_FEWEST_KEPT = 32
_MOST_INDICATORS = 32
"""The most categories of a column that count in distances; the others are equal to each other."""
_LARGEST = 1e300
"""Larger numbers, infinity included, count as this one, in training rows and in new ones."""
_FURTHEST = 1e3
"""The largest scaled value of a number, in ranges."""
_ROWS_FOR_QUANTILES = 20_000
_PIECE = 1024
"""Points whose distances are computed at a time."""
_FIRST = (32, 256)
"""Numbers of kept rows that are compared first: most new rows are near one of them."""
_HALF = float(np.sqrt(0.5))
"""The value of a category's indicator: two different categories have the distance of one range."""
_MORE = 1 + 1e-9
"""The factor by which one distance must exceed another, because of rounding."""
_ZERO = 1e-12
"""Squared distances, and distances from a range, below this are rounding errors."""

_STRETCH = 1.5
_NEAR = 0.5
_BEYOND = 1.0
"""The limits of "auto": 1.5 times the largest distance of a training row, and at least half a range, which is more than
the gap between two classes on one axis; or one unit more outside than any training row."""
_PER_UNSEEN = 2.0
"""The value by which an unseen category counts as outside."""


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """The ranges and categories of training rows, and the coordinates of some of the rows.

    Parameters
    ----------
    typical : array of shape (n_features,)
        The median of each column, which stands for a missing value.
    numeric, categorical : arrays of int
        The positions of either kind of column.
    body, start, width : arrays of shape (n_numeric,)
        The width of the middle 98 %, or of the range. The scaled value of x is
        (arcsinh((x - typical) / body) - start) / width: linear in the middle, logarithmic in long tails, and in [0, 1]
        in training.
    seen : array of bool, shape (n_categorical, n_codes)
    indicators : array of int, shape (n, 2)
        The categories that have a coordinate: position of the column, and code.
    kept : array of shape (n_kept, n_coordinates)
    """

    typical: Floats
    numeric: Ints
    categorical: Ints
    body: Floats
    start: Floats
    width: Floats
    seen: Mask
    indicators: Ints
    kept: Floats

    @classmethod
    def learn(cls, X: Floats, is_categorical: Mask, rng: np.random.Generator) -> "TrainingRows":
        """Learn ranges and categories from training rows, and keep some of the rows in random order."""
        numeric, categorical = np.flatnonzero(~is_categorical), np.flatnonzero(is_categorical)
        low, first, typical, last, high = _quantiles(X)
        unit = np.where(high > low, high - low, np.maximum(np.abs(low), 1.0))
        body = np.where(last > first, last - first, unit)[numeric]
        start, end = (np.arcsinh((edge - typical)[numeric] / body) for edge in (low, high))
        codes = X[:, categorical]
        rows, columns = np.nonzero(codes >= 0)
        known = codes[rows, columns].astype(np.int64)
        seen = np.zeros((len(categorical), 1 + known.max(initial=0)), dtype=bool)
        seen[columns, known] = True
        indicators = np.argwhere(seen & (np.cumsum(seen, axis=1) <= _MOST_INDICATORS))
        indicators[:, 0] = categorical[indicators[:, 0]]
        n_kept = max(_FEWEST_KEPT, min(_MOST_KEPT, _MOST_NUMBERS // max(len(numeric) + len(indicators), 1)))
        width = np.where(end > start, end - start, 1.0)
        ranges = cls(typical, numeric, categorical, body, start, width, seen, indicators, np.empty((0, 0)))
        return replace(ranges, kept=ranges.points(X[rng.permutation(len(X))[:n_kept]]))

    @np.errstate(over="ignore")
    def points(self, X: Floats) -> Floats:
        """Return the coordinates of rows: scaled numbers and indicators of categories."""
        filled, (column, code) = np.where(np.isnan(X), self.typical, X), self.indicators.T
        far = np.arcsinh((filled - self.typical)[:, self.numeric] / self.body)
        scaled = np.minimum(np.maximum((far - self.start) / self.width, -_FURTHEST), _FURTHEST)
        return np.concatenate([scaled, _HALF * (filled[:, column] == code)], axis=1)

    def nearest(self, points: Floats, enough: float = 0.0) -> Floats:
        """Return the squared distance of each point to the nearest kept row, or to another one within ``enough``."""
        found = np.zeros(len(points))
        for start in range(0, len(points), _PIECE):
            left = np.arange(start, min(start + _PIECE, len(points)))
            for n_rows in (*_FIRST, len(self.kept)):
                if len(left):
                    found[left] = near = _least(points[left], self.kept[:n_rows])
                    left = left[near > enough]
        found[found < _ZERO] = 0.0
        return found

    def outside(self, X: Floats, points: Floats) -> Floats:
        """Return how far each value lies outside: by its scaled value beyond [0, 1], 2 for an unseen category.

        The columns of numbers come first, and then the categorical ones.
        """
        scaled, codes = points[:, : len(self.numeric)], X[:, self.categorical]
        beyond = np.maximum(np.abs(scaled - 0.5) - 0.5, 0.0)
        in_table = (codes >= 0) & (codes < self.seen.shape[1])
        seen = self.seen[np.arange(len(self.seen)), np.where(in_table, codes, 0).astype(np.int64)]
        return np.concatenate([beyond, _PER_UNSEEN * ~(in_table & seen | np.isnan(codes))], axis=1)


def _least(points: Floats, rows: Floats) -> Floats:
    """Return the squared distance of each point to the nearest of the rows."""
    lengths, own = (np.einsum("ij,ij->i", one, one) for one in (rows, points))
    return np.asarray((lengths - 2 * points @ rows.T).min(axis=1) + own)


class Novelty(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""Detector of out-of-distribution rows with a given false-alarm rate.

    The score of a row is :math:`\max(d / d_0, o)`. Here d is the distance to the nearest training row, each number
    divided by its range in training, with :math:`d_0` the 99 % quantile of that distance among training rows; and o
    is the sum over its values of how far each lies outside: for a number, by how many ranges, with large values on a
    logarithmic scale; 2 for an unseen category, 0 for a missing value. Of n training rows, each scored from the other
    folds, let m have a score of at least that of a new row; its p-value is

    .. math:: p = (m + 1) / (n + 1).

    If new rows come from the same source as the training rows, p is at most ``rate`` with probability at most ``rate``,
    on average over training samples: a cross-fitted conformal p-value (Vovk et al. 2005).

    Parameters
    ----------
    rate : float or "auto"
        False-alarm rate: the share of ordinary rows that may be called novel by mistake, at least 1 / (n + 1). With
        "auto", only rows far outside the training data are novel: their d exceeds 1/2 and 1.5 times the d of every
        training row, or their o exceeds that of every training row by 1. Its rate is at most 2 / (n + 1), and less if
        the features have no heavy tails.

    Attributes
    ----------
    scores_ : array of shape (n,)
        The scores of at most 10,000 training rows, from the other folds; ascending.
    n_features_in_ : int

    Notes
    -----
    Numbers with long tails are measured on a logarithmic scale, and a missing value counts as the median of its column.
    New rows are compared with at most 8,192 training rows. Labels are not used.

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
            Block of each row, such as the patient: a row is scored from the rows of other blocks.
        """
        rows = _as_rows(X)
        if len(rows) < FEWEST_ROWS:
            raise InputError(
                f"{len(rows)} training rows are too few to calibrate novelty; give at least {FEWEST_ROWS}."
            )
        kinds = np.zeros(rows.shape[1], dtype=bool) if categorical is None else np.asarray(categorical, dtype=bool)
        of_row = np.arange(len(rows)) if blocks is None else np.unique(np.asarray(blocks), return_inverse=True)[1]
        rng = np.random.default_rng(0)
        n_blocks = int(of_row.max()) + 1
        fold = rng.permutation(np.arange(n_blocks) % min(_FOLDS, n_blocks))[of_row]
        scored = rng.permutation(len(rows))[:_MOST_SCORED]
        distances, outside = np.zeros(len(scored)), np.zeros(len(scored))
        for number in range(fold.max() + 1 if n_blocks > 1 else 0):
            own = np.flatnonzero(fold[scored] == number)
            others = TrainingRows.learn(rows[fold != number], kinds, rng)
            distances[own], outside[own] = _parts(others, rows[scored[own]])
        self.n_features_in_ = rows.shape[1]
        self.training_rows_ = TrainingRows.learn(rows, kinds, rng)
        self.usual_distance_ = float(np.quantile(distances, 0.99, method="higher")) or 1.0
        self.scores_ = np.sort(np.maximum(distances / self.usual_distance_, outside))
        self.auto_limits_ = (float(outside.max()) + _BEYOND, max(_STRETCH * float(distances.max()), _NEAR))
        self._limits(self.rate)
        return self

    def novel(self, X: ArrayLike, rate: float | str | None = None) -> Mask:
        """Return which rows are novel, at ``rate`` or at another rate."""
        rows, training = self._checked(X), self.training_rows_
        most_outside, radius = self._limits(self.rate if rate is None else rate)
        near, points = radius**2 * _MORE, training.points(rows)
        far = training.nearest(points, near) > near
        return np.asarray(far | (training.outside(rows, points).sum(axis=1) > most_outside))

    def p_values(self, X: ArrayLike) -> Floats:
        """Return the p-value of each row: the share of rows with at least its score, the row itself included."""
        n_rows = len(self.scores_)
        at_least = n_rows - np.searchsorted(self.scores_ * _MORE, self.score(X), side="left")
        return (at_least + 1) / (n_rows + 1)

    def score(self, X: ArrayLike) -> Floats:
        """Return the score of each row, higher for a more unusual one."""
        distances, outside = _parts(self.training_rows_, self._checked(X))
        return np.maximum(distances / self.usual_distance_, outside)

    @property
    def false_alarms(self) -> tuple[float, float]:
        """The parameters of the beta distribution of the share of ordinary rows that are called novel.

        It is a distribution over training samples, whose mean is the expected rate of false alarms.
        """
        expected = 2.0 if self.rate == "auto" else float(self.rate) * (len(self.scores_) + 1)
        return expected, len(self.scores_) + 1 - expected

    def outside(self, X: ArrayLike) -> Mask:
        """Return which values lie beyond the range of training, or are unseen categories."""
        rows, training = self._checked(X), self.training_rows_
        order = np.argsort(np.concatenate([training.numeric, training.categorical]))
        return np.asarray(training.outside(rows, training.points(rows))[:, order] > _ZERO)

    def _limits(self, rate: float | str) -> tuple[float, float]:
        """Return the limits of the sum outside and of the distance."""
        if rate == "auto":
            return self.auto_limits_
        n_rows = len(self.scores_)
        check_rate(rate, n_rows)
        limit = float(self.scores_[n_rows - int(float(rate) * (n_rows + 1) + 1e-9)])
        return limit, limit * self.usual_distance_

    def _checked(self, X: ArrayLike) -> Floats:
        rows = _as_rows(X)
        check_is_fitted(self, "scores_")
        if rows.shape[1] != self.n_features_in_:
            raise InputError(f"rows have {rows.shape[1]} features, and those of training {self.n_features_in_}.")
        return rows


def check_rate(rate: object, n_rows: int | None = None) -> None:
    """Refuse a rate that is neither "auto" nor a share, or that is too small for the number of training rows.

    Examples
    --------
    >>> check_rate(0.001, n_rows=150)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: a false-alarm rate of 0.001 takes 999 training rows, and there are 150: ask for at ...
    """
    if isinstance(rate, str) and rate == "auto":
        return
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 < float(rate) < 1:
        raise InputError(f'the rate of novelty must be "auto" or a share between 0 and 1, got {rate!r}.')
    share = float(rate)
    if n_rows is not None and share * (n_rows + 1) < 1 - 1e-9:
        raise InputError(
            f"a false-alarm rate of {share:g} takes {int(np.ceil(1 / share)) - 1:,} training rows, and there are "
            f'{n_rows:,}: ask for at least {np.ceil(1e4 / (n_rows + 1)) / 1e4:g}, or for "auto".'
        )


def _as_rows(X: ArrayLike) -> Floats:
    rows = np.clip(np.asarray(X, dtype=np.float64), -_LARGEST, _LARGEST)
    if rows.ndim != 2 or not rows.shape[1]:
        raise InputError(f"rows must have shape (n, n_features), got {rows.shape}.")
    return rows


def _parts(training: TrainingRows, rows: Floats) -> tuple[Floats, Floats]:
    """Return for each row its distance to the nearest kept row, and the sum of how far its values lie outside."""
    points = training.points(rows)
    return np.sqrt(training.nearest(points)), training.outside(rows, points).sum(axis=1)


def _quantiles(X: Floats) -> Floats:
    """Return minimum, 1 % quantile, median, 99 % quantile and maximum of each column, without missing values."""
    some = X[:: 1 + len(X) // _ROWS_FOR_QUANTILES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a column may have no value
        middle = np.nanquantile(some, [0.01, 0.5, 0.99], axis=0, method="lower")
    return np.asarray(np.nan_to_num([np.fmin.reduce(X), *middle, np.fmax.reduce(X)]), dtype=np.float64)
