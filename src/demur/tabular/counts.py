"""Three counts decide everything at one cost: the rows, the answers, the wrong answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.metrics import Interval, bootstrap

__all__ = ["Counts", "counts_interval", "entry"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Counts:
    """How many rows there are, how many were answered, and how many of those wrongly.

    Parameters
    ----------
    n_rows, n_answered, n_wrong : int

    Examples
    --------
    Ten rows, eight answered, one of them wrongly, at cost 0.25: (1 + 2 * 0.25) / 10.

    >>> counts = Counts(10, 8, 1)
    >>> counts.risk(0.25), counts.coverage, counts.accepted_accuracy
    (0.15, 0.8, 0.875)
    """

    n_rows: int
    n_answered: int
    n_wrong: int

    @property
    def n_rejected(self) -> int:
        """The rows that were declined."""
        return self.n_rows - self.n_answered

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.n_answered / self.n_rows

    @property
    def accepted_accuracy(self) -> float:
        """The share of right answers among those given; NaN if none was given."""
        return (self.n_answered - self.n_wrong) / self.n_answered if self.n_answered else float("nan")

    def risk(self, cost: float) -> float:
        """Return the 0-1-c risk: what a row costs on average."""
        return (self.n_wrong + cost * self.n_rejected) / self.n_rows


def counts_interval(
    n_rejections: NDArray[Any],
    wrong: NDArray[np.bool_],
    costs: Floats,
    *,
    n_resamples: int = 1000,
    confidence_level: float = 0.95,
    seed: Any = 0,
) -> Interval:
    """Return bootstrap intervals of 0-1-c risk, coverage and accepted accuracy at each of several ascending costs.

    Parameters
    ----------
    n_rejections : array of int, shape (n,)
        At how many of the costs the row is rejected; it is accepted from the cost of that position on.
    wrong : array of bool, shape (n,)
        Whether the row's answer is wrong.
    costs : array of shape (n_costs,)

    Returns
    -------
    Interval
        Of shape (3, n_costs). The resampled rows depend on the seed only, not on the costs.

    Examples
    --------
    >>> found = counts_interval(np.array([0, 0, 1]), np.array([False, True, False]), np.array([0.2]), n_resamples=50)
    >>> found.estimate.round(3).tolist()
    [[0.4], [0.667], [0.5]]
    """
    n_rows, n_costs = len(wrong), len(costs)

    def figures(n_rejections: NDArray[Any], wrong: NDArray[np.bool_]) -> Floats:
        answered, errors = (
            np.cumsum(np.bincount(rows, minlength=n_costs + 1))[:n_costs]
            for rows in (n_rejections, n_rejections[wrong])
        )
        right = np.divide(answered - errors, answered, out=np.full(n_costs, np.nan), where=answered > 0)
        return np.stack([(errors + costs * (n_rows - answered)) / n_rows, answered / n_rows, right])

    return bootstrap(
        figures, n_rejections, wrong, n_resamples=n_resamples, confidence_level=confidence_level, seed=seed
    )


def entry(interval: Interval, *where: int) -> Interval:
    """Return the interval of one entry of a statistic that is an array.

    Examples
    --------
    >>> both = bootstrap(lambda x: [x.min(), x.max()], np.array([1.0, 2.0]), seed=0)
    >>> entry(both, 1).estimate
    2.0
    """
    parts = (interval.estimate, interval.low, interval.high, interval.n_undefined)
    estimate, low, high, undefined = (np.asarray(values)[where].item() for values in parts)
    position: tuple[Any, ...] = (slice(None), *where)
    return Interval(estimate, low, high, interval.confidence_level, interval.resamples[position], undefined)
