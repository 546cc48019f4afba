"""Rows in order of confidence, where rows that tie form one group: what every risk-coverage curve is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

__all__ = ["TiedGroups"]

Floats = NDArray[np.float64]

_CHUNK = 1 << 18
"""Areas are summed over this many groups at a time, so that ten million points need no large temporaries."""


@dataclass(frozen=True, eq=False)
class TiedGroups:
    """Distinct confidences from high to low, with what has been accepted down to each of them.

    Parameters
    ----------
    confidence : array of shape (n_groups,)
        The distinct values, descending.
    weight : array of shape (n_groups,)
        The weight of all rows with at least this confidence.
    loss : array of shape (n_groups,)
        Their weighted loss.
    n_rows : int
        How many rows there are, without those of zero weight.

    Examples
    --------
    >>> groups = TiedGroups.from_rows(np.array([0.9, 0.5, 0.9]), np.array([0.0, 1.0, 1.0]))
    >>> groups.confidence, groups.weight, groups.loss
    (array([0.9, 0.5]), array([2., 3.]), array([1., 2.]))
    """

    confidence: Floats
    weight: Floats
    loss: Floats
    n_rows: int

    def __post_init__(self) -> None:
        for array in (self.confidence, self.weight, self.loss):
            array.setflags(write=False)

    @classmethod
    def from_rows(cls, confidence: Floats, loss: NDArray[Any], weight: Floats | None = None) -> "TiedGroups":
        """Sort the rows and join those that tie; the result is the same, to the last bit, for any order of the rows."""
        if weight is not None and not weight.all():
            counts = weight > 0
            confidence, loss, weight = confidence[counts], loss[counts], weight[counts]
        ordered, weights, losses = _descending(confidence, loss, weight)
        n_rows = len(ordered)
        weights = np.arange(1.0, n_rows + 1) if weights is None else np.cumsum(weights)
        losses = np.cumsum(losses)
        is_last = np.append(ordered[1:] != ordered[:-1], True)
        if is_last.all():
            return cls(ordered, weights, losses, n_rows)
        return cls(ordered[is_last], weights[is_last], losses[is_last], n_rows)

    @classmethod
    def of_oracle(cls, loss: NDArray[Any], weight: Floats | None = None) -> "TiedGroups":
        """Return the groups of the best possible order: the smallest losses are accepted first."""
        if weight is None and _is_zero_one(loss):
            n_rows, n_wrong = len(loss), int(np.count_nonzero(loss))
            kept = np.array([n_wrong < n_rows, n_wrong > 0])
            weights, losses = np.array([n_rows - n_wrong, n_rows]), np.array([0, n_wrong])
            return cls(np.array([0.0, -1.0])[kept], weights[kept] / 1.0, losses[kept] / 1.0, n_rows)
        return cls.from_rows(-loss.astype(np.float64, copy=False), loss, weight)

    def area_under_risk(self) -> float:
        """Return the mean of the running risk; :class:`~demur.metrics.RiskCoverage` gives the formula."""
        total = self.weight[-1]
        scale = max(1.0, self.n_rows / total)  # weights that sum to less than the rows cannot be counts
        area = 0.0
        for before, size, loss_before, loss_size in self._steps():
            start, length = before * scale, size * scale
            harmonic = 1 / (start + 1)
            long = np.flatnonzero(length != 1)
            harmonic[long] = digamma(start[long] + length[long] + 1) - digamma(start[long] + 1)
            area += float(np.sum((loss_before - before * loss_size / size) * harmonic * scale + loss_size * scale))
        return area / float(total * scale)

    def area_under_generalized_risk(self) -> float:
        """Return the area under accumulated loss over accumulated weight, straight within a tied group."""
        total = float(self.weight[-1])
        area = sum(float(np.sum(size * (before + loss / 2))) for _, size, before, loss in self._steps())
        return area / total**2

    def _steps(self) -> Iterator[tuple[Floats, Floats, Floats, Floats]]:
        """Yield, chunk by chunk: weight before the group and of the group, loss before it and of it."""
        for start in range(0, len(self.weight), _CHUNK):
            part = slice(start, start + _CHUNK)
            weight, loss = self.weight[part], self.loss[part]
            weight_before, loss_before = (
                np.concatenate(([total[start - 1] if start else 0.0], accumulated[:-1]))
                for total, accumulated in ((self.weight, weight), (self.loss, loss))
            )
            yield weight_before, weight - weight_before, loss_before, loss - loss_before


def _is_zero_one(loss: NDArray[Any]) -> bool:
    return loss.dtype == np.bool_ or bool(((loss == 0) | (loss == 1)).all())


def _descending(
    confidence: Floats, loss: NDArray[Any], weight: Floats | None
) -> tuple[Floats, Floats | None, NDArray[Any]]:
    """Return confidence, weight and weighted loss from the highest confidence to the lowest.

    Ties are put in order too, by loss and weight, so that sums do not depend on the order of the rows. Complex
    numbers sort by real, then by imaginary part: faster than sorting positions and picking values by them.
    """
    if weight is None:
        ordered, losses = _sorted_pairs(confidence, loss)
        return ordered, None, losses
    if _is_zero_one(loss):
        ordered, signed = _sorted_pairs(confidence, np.where(loss == 0, weight, -weight))
        return ordered, np.abs(signed), np.maximum(-signed, 0)
    order = np.lexsort((weight, loss, -confidence))
    return confidence[order], weight[order], (weight * loss)[order]


def _sorted_pairs(descending: Floats, ascending: NDArray[Any]) -> tuple[Floats, Floats]:
    pairs = np.empty(len(descending), dtype=np.complex128)
    np.negative(descending, out=pairs.real)
    pairs.imag = ascending
    pairs.sort()
    return -pairs.real, pairs.imag
