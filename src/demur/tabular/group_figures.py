"""The figures of each group of rows: a site, a machine, a month."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.metrics import Interval, proportion_interval, risk_interval
from demur.tabular.judged_rows import Counts

__all__ = ["GroupFigures", "Groups"]

_MOST = 40
"""Groups with a line of their own; those with fewer rows share one."""
_NONE = "(none)"


@dataclass(frozen=True)
class GroupFigures:
    """What was decided in one group.

    Parameters
    ----------
    name : str
    counts : Counts
    coverage, errors : Interval
        The share of rows answered, and of wrong answers among those given; NaN where there is none.
    risk : Interval or None
        What a row costs; None where rejecting has no single price.
    differs : {"", "more", "fewer"}
        Whether the errors are more or fewer than those of all rows, beyond what chance explains.
    """

    name: str
    counts: Counts
    coverage: Interval
    errors: Interval
    risk: Interval | None
    differs: str


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each row is of.

    Parameters
    ----------
    column : str
        What the groups are called.
    of_row : array of str, shape (n,)

    Examples
    --------
    >>> sites = Groups.of("site", ["north"] * 90 + ["south"] * 10)
    >>> reject, wrong = np.zeros(100, dtype=bool), np.arange(100) >= 93
    >>> for one in sites.figures(reject, wrong, cost=0.2):
    ...     print(one.name, one.counts.n_wrong, round(one.errors.low, 2), round(one.errors.high, 2), one.differs)
    north 0 0.0 0.05 fewer
    south 7 0.31 0.95 more
    """

    column: str
    of_row: NDArray[np.str_]

    @classmethod
    def of(cls, column: str, values: Sequence[str | None]) -> "Groups":
        """Name the group of each row; rows without one are a group as well."""
        return cls(column, np.array([_NONE if value is None else str(value) for value in values], dtype=np.str_))

    def figures(
        self, reject: NDArray[np.bool_], wrong: NDArray[np.bool_], cost: float | None = None
    ) -> list[GroupFigures]:
        """Return the figures of each group, by name; beyond forty groups the smallest are one.

        The intervals of each figure hold for all groups together with 95 % confidence (Bonferroni), so that the widest
        of many is not a discovery; a small group has a wide one, which is all that can be said about it.
        """
        names, codes, sizes = np.unique(self.of_row, return_inverse=True, return_counts=True)
        shown = [str(name) for name in names]
        if len(names) > _MOST:
            largest = np.sort(np.argsort(-sizes, kind="stable")[: _MOST - 1])
            place = np.full(len(names), len(largest))
            place[largest] = np.arange(len(largest))
            shown = [shown[k] for k in largest] + [f"{len(names) - len(largest):,} other groups"]
            codes = place[codes]
        level = 1 - 0.05 / len(shown)
        answered = ~reject
        errors_of_all = float((wrong & answered).sum() / max(answered.sum(), 1))
        found = []
        for code, name in enumerate(shown):
            own = codes == code
            counts = Counts(int(own.sum()), int((own & answered).sum()), int((own & answered & wrong).sum()))
            errors = proportion_interval(counts.n_wrong, counts.n_answered, level)
            risk = None
            if cost is not None:
                risk = risk_interval(counts.n_wrong, counts.n_rejected, counts.n_rows, cost, level)
            differs = "more" if errors.low > errors_of_all else "fewer" if errors.high < errors_of_all else ""
            coverage = proportion_interval(counts.n_answered, counts.n_rows, level)
            found.append(GroupFigures(name, counts, coverage, errors, risk, differs))
        return found


def group_json(one: GroupFigures) -> ByName:
    """Return the figures of a group as plain numbers, with None where one is undefined."""

    def numbers(interval: Interval | None) -> dict[str, float | None] | None:
        if interval is None:
            return None
        parts = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
        return {name: float(value) if value == value else None for name, value in parts.items()}

    counts = {"rows": one.counts.n_rows, "answered": one.counts.n_answered, "wrong": one.counts.n_wrong}
    intervals = {"coverage": numbers(one.coverage), "errors": numbers(one.errors), "risk": numbers(one.risk)}
    return {"name": one.name, **counts, **intervals, "differs": one.differs or None}
