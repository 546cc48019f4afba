"""A budget of seconds, and a forecast of what a fit will take."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["TimeBudget", "forecast_fit"]

_LITTLE_WORK = 40_000
"""Rows times classes up to which a table is fitted without a forecast: it would cost as much as it saves."""

_MOST_PILOT_ROWS = 20_000


@dataclass
class TimeBudget:
    """Seconds that may be spent, counted from when this object is made; None is no limit.

    Examples
    --------
    >>> TimeBudget(None).allows(1e9)
    True
    >>> TimeBudget(10.0).allows(20.0)
    False
    """

    seconds: float | None
    started: float = field(default_factory=lambda: time.perf_counter())

    def allows(self, forecast: float) -> bool:
        """Say whether this many more seconds fit in."""
        return self.seconds is None or time.perf_counter() - self.started + forecast <= self.seconds


def forecast_fit(fit_on: Callable[[int], float], n_rows: int, n_classes: int) -> float:
    """Return the seconds that a fit on ``n_rows`` will take, from two fits on fewer rows and a line through them.

    Parameters
    ----------
    fit_on : callable
        Fits on so many rows and returns the seconds it took.
    n_rows, n_classes : int

    Examples
    --------
    >>> forecast_fit(lambda n: 1 + n / 1000, 100_000, 2)
    101.0
    >>> forecast_fit(lambda n: 1 + n / 1000, 100, 2)
    0.0
    """
    if n_rows * n_classes <= _LITTLE_WORK:
        return 0.0
    many = min(max(n_rows // 8, 4), _MOST_PILOT_ROWS)
    few = many // 2
    short, long = fit_on(few), fit_on(many)
    return long + max(long - short, 0.0) / (many - few) * (n_rows - many)
