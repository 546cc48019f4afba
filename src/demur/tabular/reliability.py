"""Reliability: whether "80 % sure" is right four times out of five."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.metrics import proportion_interval

__all__ = ["Reliability"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    r"""Confidence against accuracy in bins of equal width, and the expected calibration error.

    Made by :meth:`from_confidence`. With n_b rows in bin b,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    (Guo et al. 2017). A row on an edge falls into the bin above it, except confidence 1.

    Parameters
    ----------
    edges : array of shape (n_bins + 1,)
    n_rows : array of int, shape (n_bins,)
    confidence, accuracy : arrays of shape (n_bins,)
        Means over the rows of the bin; NaN where it is empty.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.

    Examples
    --------
    Four rows of confidence 0.8, two of them right, and one certain row, right: |0.5 - 0.8| * 4 / 5.

    >>> found = Reliability.from_confidence([0.8, 0.8, 0.8, 0.8, 1.0], [True, True, False, False, True])
    >>> round(found.ece, 6)
    0.24
    """

    edges: Floats
    n_rows: NDArray[np.int64]
    confidence: Floats
    accuracy: Floats

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, right: ArrayLike, n_bins: int = 10) -> "Reliability":
        """Put the rows into bins.

        Parameters
        ----------
        confidence : array of shape (n,)
            The probability given to the answer, in [0, 1].
        right : array of bool, shape (n,)
        n_bins : int, default 10
        """
        if n_bins < 1:
            raise InputError(f"n_bins must be at least 1, got {n_bins}.")
        values, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
        if values.ndim != 1 or values.shape != correct.shape or len(values) == 0:
            raise InputError(
                f"confidence and right need the same shape (n,) with n >= 1, got {values.shape} and {correct.shape}."
            )
        if not np.isfinite(values).all():
            raise InputError("confidence contains NaN or infinity; leave those rows out first.")
        edges = np.arange(n_bins + 1) / n_bins
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bins - 1)
        n_rows = np.bincount(bins, minlength=n_bins)
        sums = (np.bincount(bins, weights=what.astype(np.float64), minlength=n_bins) for what in (values, correct))
        return cls(edges, n_rows, *(_means(np.asarray(each, dtype=np.float64), n_rows) for each in sums))

    @property
    def ece(self) -> float:
        """The expected calibration error: zero where confidence is accuracy in every bin."""
        filled = self.n_rows > 0
        gaps = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float(np.average(gaps, weights=self.n_rows[filled]))

    def accuracy_interval(self) -> tuple[Floats, Floats]:
        """Return the ends of each bin's exact 95 % interval for the accuracy; NaN where the bin is empty."""
        n_right = np.round(np.where(self.n_rows > 0, self.accuracy, 0.0) * self.n_rows).astype(np.int64)
        found = proportion_interval(n_right, self.n_rows)
        return found.low, found.high


def _means(sums: Floats, counts: NDArray[np.int64]) -> Floats:
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means
