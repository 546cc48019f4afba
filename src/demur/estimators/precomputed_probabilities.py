"""PrecomputedProbabilities: a classifier whose features are another model's numbers for each class."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from demur.array_types import AnyArray, Features, Floats
from demur.calibration import softmax_at
from demur.errors import InputError
from demur.estimators.base import NothingToFit
from demur.rules import library_of

PROBA_KINDS = {
    "probabilities": "each from 0 to 1, those of a row sum to 1",
    "percentages": "each from 0 to 100, those of a row sum to 100",
    "log-probabilities": "none is above 0, and their exponentials sum to at most 1",
    "logits": "any numbers; their softmax are probabilities",
    "votes": "whole numbers from 0",
}
"""The kinds of numbers, each with its condition."""

LOG_KINDS = ("logits", "log-probabilities")
"""The kinds whose softmax are probabilities, at a temperature."""

_ROUNDING = 0.05
"""Largest tolerated distance of a row's sum from 1, whatever the number of digits."""

_NOISE = 1e-6
"""Rounding errors below 0 that are tolerated in probabilities."""

_LEAST_LEFT = 1e-6
"""Least total probability of classes without a number, even if the others sum to 1."""


@dataclass(eq=False, repr=False)
class PrecomputedProbabilities(NothingToFit):
    r"""Turn another model's numbers for each class into probabilities.

    There is nothing to fit. With z the numbers of a row, K of them, the probabilities are

    - z over their sum for probabilities and percentages, a gap being 0;
    - the softmax of z for logits and for log-probabilities. An LLM lists log-probabilities only for the likeliest
      classes: the others (gaps) share the remaining probability, but none gets more than the least listed one;
    - :math:`(z_y + 1 / K) / (\sum_k z_k + 1)` for votes, as if one more vote were divided among all classes. A gap is
      0.

    Parameters
    ----------
    classes : array of shape (n_classes,)
        Class of each column.
    kind : {"probabilities", "percentages", "log-probabilities", "logits", "votes"}
    tolerance : float or None, default 0.001
        Largest difference between the sum of a row's probabilities and 1. None allows any sum.
    temperature : float, default 1.0
        Divisor of logits and log-probabilities before the softmax.

    Examples
    --------
    >>> PrecomputedProbabilities(["cat", "dog"], "votes").predict_proba([[3, 0], [0, 0]])
    array([[0.875, 0.125],
           [0.5  , 0.5  ]])
    >>> PrecomputedProbabilities(["cat", "dog"], "probabilities").predict_proba([[0.5, 0.5], [0.9, 0.3]])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: row 2 sums to 1.2, but probabilities must sum to 1.
    """

    reads: ClassVar[str] = "numbers"

    classes: Any
    kind: str = "probabilities"
    tolerance: float | None = 1e-3
    temperature: float = 1.0

    @property
    def classes_(self) -> AnyArray:
        """The classes, in the order of the columns."""
        return np.asarray(self.classes)

    @property
    def n_features_in_(self) -> int:
        """The number of columns: one for each class."""
        return len(self.classes)

    def predict_proba(self, X: Features) -> Floats:
        """Return the probabilities of each row, or refuse a row whose numbers are not of the kind."""
        if self.kind in LOG_KINDS:
            return np.asarray(softmax_at(self.logits(X), self.temperature), dtype=np.float64)
        values = self._checked(X)
        _refuse_first((values < -_NOISE).any(axis=1), f"holds a number below 0, which is not possible for {self.kind}")
        if self.kind != "votes":
            whole, total = 1.0 if self.kind == "probabilities" else 100.0, np.nansum(np.maximum(values, 0.0), axis=1)
            if self.tolerance is not None:
                wrong = np.abs(total / whole - 1) > self.tolerance
                _refuse_first(wrong, f"sums to {{:.6g}}, but {self.kind} must sum to {whole:g}", total)
            _refuse_first(total <= 0, "sums to 0: some class must be possible")
        return np.asarray(self.proba_of(values))

    def proba_of(self, values: Any) -> Any:
        """Return the probabilities of rows in an array or a tensor, whose numbers are not checked."""
        if self.kind in LOG_KINDS:
            return softmax_at(self._without_gaps(values), self.temperature)
        library = library_of(values)
        shares = library.clip(library.where(library.isnan(values), 0.0, values), 0.0, None)
        if self.kind == "votes":
            shares = shares + 1 / len(self.classes)
        return shares / shares.sum(axis=1, keepdims=True)

    def logits(self, X: Features) -> Floats:
        """Return logits or log-probabilities without gaps; :attr:`temperature` does not change them."""
        values = self._checked(X)
        if self.kind == "logits":
            _refuse_first(np.isnan(values).any(axis=1), "lacks a logit, or it is infinite: give finite ones")
        elif self.tolerance is not None:
            mass = np.nansum(np.exp(np.minimum(values, 1.0)), axis=1)
            words = "has exponentials that sum to {:.6g}, more than 1: if these are logits, give that kind"
            _refuse_first(mass > 1 + self.tolerance, words, mass)
        return np.asarray(self._without_gaps(values))

    def _checked(self, X: Features) -> Floats:
        values = np.asarray(X, dtype=np.float64)
        if values.ndim != 2 or values.shape[1] != len(self.classes):
            raise InputError(f"there must be {len(self.classes)} columns, one for each class, got {values.shape}.")
        if self.kind not in PROBA_KINDS:
            raise InputError(f"there is no kind {self.kind!r} of numbers; choose one of {', '.join(PROBA_KINDS)}.")
        _refuse_first(~(values > -np.inf).any(axis=1), "holds no number: leave the row out, or fill it in")
        _refuse_first((values == np.inf).any(axis=1), "holds infinity: give finite numbers")
        return values

    def _without_gaps(self, values: Any) -> Any:
        """Return logits as they are, and log-probabilities with their gaps filled."""
        library = library_of(values)
        gaps = library.isnan(values)
        if self.kind == "logits" or (library is np and not gaps.any()):
            return values
        mass = library.where(gaps, 0.0, library.exp(library.clip(values, None, 1.0))).sum(axis=1, keepdims=True)
        n_gaps = library.where(gaps, 1.0, 0.0).sum(axis=1, keepdims=True)
        left = library.log(library.clip(1 - mass, _LEAST_LEFT, None) / library.clip(n_gaps, 1.0, None))
        least = library.amin(library.where(gaps, np.inf, values), axis=1)[:, None]
        return library.where(gaps, library.minimum(left, least), values)


@dataclass(eq=False, repr=False)
class StoredOutputs(NothingToFit):
    """Outputs that are stored elsewhere: the only feature of a row is its number.

    Parameters
    ----------
    outputs : PrecomputedProbabilities
    rows : sequence
        The numbers of each row for each class, for an array of row numbers.

    Examples
    --------
    >>> outputs = PrecomputedProbabilities(["cat", "dog"])
    >>> StoredOutputs(outputs, np.array([[0.8, 0.2], [0.4, 0.6]])).predict_proba([[1], [0]])
    array([[0.4, 0.6],
           [0.8, 0.2]])
    """

    reads: ClassVar[str] = "numbers"

    outputs: PrecomputedProbabilities
    rows: Any

    @property
    def classes_(self) -> AnyArray:
        """The classes, in the order of the columns."""
        return self.outputs.classes_

    @property
    def kind(self) -> str:
        """The kind of numbers."""
        return self.outputs.kind

    def numbers(self, X: Features) -> Floats:
        """Return the numbers of rows for each class."""
        return np.asarray(self.rows[np.asarray(X)[:, 0].astype(np.int64)])

    def predict_proba(self, X: Features) -> Floats:
        """Return the probabilities of the rows with these numbers."""
        return self.outputs.predict_proba(self.numbers(X))


def _refuse_first(found: Any, words: str, values: Floats | None = None) -> None:
    """Raise an error about the first row that is wrong; the words may show its value."""
    wrong = np.asarray(found, dtype=bool)
    if wrong.any():
        row = int(wrong.argmax())
        more = f" (one of {int(wrong.sum()):,} such rows)" if wrong.sum() > 1 else ""
        raise InputError(f"row {row + 1:,} {words.format(None if values is None else values[row])}{more}.")


def find_kind(values: Floats) -> str:
    """Detect the kind of numbers: probabilities, percentages, log-probabilities, logits or votes.

    Parameters
    ----------
    values : array of shape (n, n_classes)
        With NaN for gaps.

    Examples
    --------
    >>> find_kind(np.array([[-0.1, -2.5], [-3.2, -0.05]]))
    'log-probabilities'
    >>> find_kind(np.array([[0.9, 0.7], [0.2, 0.4]]))
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the numbers lie between 0 and 1, but 2 of 2 rows do not sum to 1, row 1 to 1.6 ...
    """
    if np.isnan(values).all():
        raise InputError("no row holds a number from -1e30 to 1e30.")
    rounding = rounding_of(values)
    if np.nanmin(values) < -_NOISE:
        sums = np.nansum(np.exp(np.minimum(values, 1.0)), axis=1)
        return "log-probabilities" if (sums <= 1 + rounding).all() else "logits"
    sums = np.nansum(values, axis=1)
    whole = bool(np.all(np.isnan(values) | (values == np.floor(values))))
    wrong = np.abs(sums - 1) > rounding  # a few wrong rows are named; they do not change the kind
    if wrong.mean() <= 0.5:
        return "probabilities"
    if np.nanmax(values) <= 1 and not (whole and (sums > 1).any()):
        raise InputError(
            f"the numbers lie between 0 and 1, but {int(wrong.sum()):,} of {len(wrong):,} rows do not sum to 1, row "
            f"{int(wrong.argmax()) + 1:,} to {sums[wrong.argmax()]:.6g} for example: give their kind; rows of "
            "probabilities are then divided by their sum."
        )
    if (np.abs(sums / 100 - 1) <= rounding).mean() > 0.5:
        return "percentages"
    return "votes" if whole else "logits"


def rounding_of(values: Floats) -> float:
    """Return how far the sum of a row may be from 1 because of rounding to the given digits.

    Examples
    --------
    >>> rounding_of(np.array([[0.33, 0.33, 0.33]]))
    0.015
    """
    known = values[~np.isnan(values)]
    for digits in range(1, 5):
        scaled = known * 10.0**digits
        if np.all(np.abs(scaled - np.round(scaled)) < 1e-6):
            return float(min(max(values.shape[1] * 0.5 * 10.0**-digits, 1e-3), _ROUNDING))
    return 1e-3
