"""Capacity: limits on the number of questions to experts, in a batch or in a stream of rows."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import permutations
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from demur.array_types import AnyArray, Floats, Ints
from demur.errors import InputError, InputTypeError
from demur.guarantees.coverage import check_share
from demur.guarantees.risk_control import p_value, rows_needed
from demur.rules import Decision


class Capacity(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""Limits on the number of questions to experts, and the assignment of least expected cost within them.

    For a batch, :meth:`assign` solves the transport problem exactly: of all ways to give each row to the model or to an
    expert within the limits, it finds one of least total expected cost. In a stream, each row must be decided before
    the next is seen: :meth:`fit` finds a surcharge for each expert on calibration rows, and :meth:`assign` adds it to
    the expert's price.

    Parameters
    ----------
    limits : mapping
        Limit of each expert by its name: a number of rows (an int), or a share of the rows (a float below 1).
        Experts that are not named have no limit.
    delta : float, default 0.05
        Probability, over the choice of the calibration rows, that a load of a stream exceeds its limit.

    Attributes
    ----------
    scarcity_ : dict
        The surcharge on each expert's price that ``fit`` found.

    Notes
    -----
    Batch: the assignment starts with the best action of each row. While an expert has too many rows, the cheapest chain
    of moves to the model or to an expert below its limit is made (successive shortest paths), which keeps the
    assignment optimal for its loads. Rows on which the model and the expert cost the same are moved first.

    Stream: a tenth of the calibration rows gives the prices :math:`\lambda_e`; a single limited expert needs none. On
    the other rows, experts get one surcharge :math:`s_e` each, in the order of their limits, the largest first. An
    expert is asked on the rows that no earlier one takes and on which asking saves more than the best alternative (the
    model, an expert without a limit, or a later expert at its price) by more than :math:`s_e`. The surcharge is the
    order statistic that leaves :math:`k_e` rows above it, and k is the largest number with
    :math:`P(\mathrm{Bin}(n, L_e) \le k_e) \le \delta_e`. The rows of successive experts are statistically equivalent
    blocks (Tukey 1947): whatever the earlier surcharges are, the long-run load is at most a beta variable with the
    parameters :math:`k_e + 1` and :math:`n - k_e`, and exceeds :math:`L_e` with probability at most :math:`\delta_e`.
    The :math:`\delta_e` sum to delta, in proportion to :math:`((1 - L) / L)^2`, because small limits need the most
    rows; the part that one expert does not use, since k is an integer, goes to the next.

    With n calibration rows the load is on average :math:`(k_e + 1) / (n + 1)`, about
    :math:`1 - z \sqrt{(1 - L) / (n L)}` of the limit L, where z is the normal quantile of :math:`1 - \delta_e`. No
    threshold that holds for every distribution does better. At delta = 0.1 and one expert with a limit of 0.1, that is
    0.87 with 1,000 rows and 0.94 with 5,000. The rows need no labels.

    References
    ----------
    Tukey (1947), Non-parametric estimation II: statistically equivalent blocks and tolerance regions, Annals of
    Mathematical Statistics 18.

    Examples
    --------
    Asking saves 0.3, 0.2 and 0.1 in three rows, and the limit is one question:

    >>> costs = np.array([[0.4, 0.6, 0.1], [0.3, 0.7, 0.1], [0.2, 0.8, 0.1]])
    >>> decision = Decision(np.zeros(3, int), np.ones(3, bool), -np.ones(3), -np.ones(3), np.zeros(3, int), costs)
    >>> Capacity({"nurse": 1}).assign(decision, ["nurse"]).ask
    array([ 0, -1, -1])
    """

    def __init__(self, limits: Mapping[str, float], *, delta: float = 0.05) -> None:
        self.limits = limits
        self.delta = delta
        _check_limits(limits)
        check_share("delta", delta, closed=False)

    def assign(self, decision: Decision[AnyArray], experts: Iterable[str]) -> Decision[AnyArray]:
        """Assign the rows of a decision within the limits: all at once, or after ``fit`` each row separately.

        Parameters
        ----------
        decision : Decision
            As :meth:`DeferOption.decide <demur.DeferOption.decide>` returns it, with the costs of all actions.
        experts : names
            Names in the order of ``decision.ask``: ``model.experts_``.

        Returns
        -------
        Decision
            The decision with new ``ask`` and ``reject``. In a stream, ``acceptance`` includes the surcharges.
        """
        gains, names = _gains(decision, experts)
        if self.__sklearn_is_fitted__():
            return self._stream(decision, gains, names)
        room = np.floor(self._shares(names, len(gains)) * len(gains) + 1e-9)
        ask, _ = _within(gains, _best(gains, names), room)
        return replace(decision, ask=ask, reject=ask >= 0)

    def fit(self, decision: Decision[AnyArray], experts: Iterable[str], rows_per_period: int | None = None) -> Self:
        """Find the surcharge of each limited expert for a stream of rows.

        Parameters
        ----------
        decision : Decision
            Decision on calibration rows: rows from the same source as future rows, on which the model was not fitted.
        experts : names
            As for :meth:`assign`.
        rows_per_period : int, optional
            Number of rows in the period for which limits are given as a number of rows: 40 of 1,000 rows per day are a
            share of 0.04.
        """
        if rows_per_period is not None and rows_per_period < 1:
            raise InputError(f"rows_per_period must be at least 1, got {rows_per_period!r}.")
        gains, names = _gains(decision, experts)
        shares = self._shares(names, rows_per_period)
        order = np.argsort(-shares, kind="stable")[(shares == 1).sum() :]  # small limits are the hardest to fill
        prices, rows = np.zeros(len(names)), np.arange(len(gains))
        if len(order) > 1:
            shuffled = np.random.RandomState(0).permutation(rows)
            first, rows = shuffled[: len(rows) // 10], shuffled[len(rows) // 10 :]
            prices = _within(gains[first], _best(gains[first], names), np.ceil(shares * max(len(first), 1)))[1]
        prices[shares == 0] = np.inf
        surcharges, left = np.where(shares > 0, -prices, 0.0), self.delta  # no price is reduced
        margins, odds = _margins(gains[rows], prices, order)[0], (1 / shares[order[shares[order] > 0]] - 1) ** 2
        levels = (self.delta * odds / odds.sum()).tolist()
        needed = max(map(rows_needed, shares[order].tolist(), levels), default=0)
        if len(rows) < needed:
            raise InputError(
                f"{len(gains)} calibration rows cannot show that the loads stay within their limits with confidence "
                f"{1 - self.delta:g}: give at least {math.ceil(needed / (0.9 if len(order) > 1 else 1))}."
            )
        for place, expert in enumerate(order[: len(odds)]):
            tails = p_value(np.arange(len(rows)), len(rows), shares[expert])
            level = left * odds[place] / odds[place:].sum()
            allowed = max(int(np.searchsorted(tails, level, side="right")) - 1, 0)
            left -= tails[allowed]
            own = np.sort(margins[:, place])[::-1]
            if allowed < len(own):
                surcharges[expert] = max(surcharges[expert], own[allowed])
            margins = margins[margins[:, place] < surcharges[expert]]
        self.prices_, self.surcharges_, self.order_ = prices, surcharges, order
        self.scarcity_ = dict(zip(names, (prices + surcharges).tolist(), strict=True))
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "scarcity_")

    def _stream(self, decision: Decision[AnyArray], gains: Floats, names: list[str]) -> Decision[AnyArray]:
        if names != list(self.scarcity_):
            raise InputError(f"this capacity was fitted for {', '.join(self.scarcity_)}, not for {', '.join(names)}.")
        margins, free, instead = _margins(gains, self.prices_, self.order_)
        above = np.column_stack([margins - self.surcharges_[self.order_], free])
        first = np.minimum(above, 0).argmax(axis=1)  # a row exactly at the threshold of one is offered to no other
        saved = above[np.arange(len(first)), first]
        limited = (saved > 0) & (first < len(self.order_))
        ask = np.where(limited, np.append(self.order_, -1)[first], instead)
        return replace(decision, ask=ask, reject=ask >= 0, acceptance=-saved)

    def _shares(self, names: list[str], n_rows: int | None) -> Floats:
        """Return the limit of each expert as a share of the rows."""
        self.check_names(names)
        shares = np.ones(len(names))
        for name, limit in self.limits.items():
            if isinstance(limit, int | np.integer):
                if n_rows is None:
                    raise InputError(
                        f"the limit of {name!r} is {limit} rows; give rows_per_period, the number of rows that come in "
                        "that time, or the limit as a share."
                    )
                limit = limit / max(n_rows, 1)
            shares[names.index(name)] = min(limit, 1.0)
        return shares

    def check_names(self, names: list[str]) -> None:
        """Refuse limits for unknown experts."""
        unknown = [name for name in self.limits if name not in names]
        if unknown:
            raise InputError(f"there is a limit for {unknown[0]!r}; the experts are {', '.join(names)}.")


def _check_limits(limits: Any) -> None:
    if not isinstance(limits, Mapping):
        raise InputTypeError(f'limits must be a mapping such as {{"consultant": 40, "nurse": 0.2}}, got {limits!r}.')
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float | np.integer | np.floating):
            raise InputTypeError(f"the limit of {name!r} must be a number, got {limit!r}.")
        if not (limit >= 0 and (isinstance(limit, int | np.integer) or limit < 1)):
            raise InputError(
                f"the limit of {name!r} must be a whole number of rows, or a share of them in [0, 1), got {limit!r}."
            )


def _gains(decision: Decision[AnyArray], experts: Iterable[str]) -> tuple[Floats, list[str]]:
    """Return the saving of asking each expert on each row, and the experts' names."""
    names = list(experts)
    if decision.costs is None:
        raise InputError("the decision does not hold the costs of its actions; take one from DeferOption.decide.")
    costs = np.asarray(decision.costs)
    answering = costs[:, : -len(names)].min(axis=1, keepdims=True)
    return answering - costs[:, -len(names) :], names


def _best(gains: Floats, names: list[str]) -> Ints:
    """Return the expert to ask without limits: in a tie an expert is asked, and of equal experts the first by name."""
    best = first_best(gains, names)
    return np.where(gains[np.arange(len(gains)), best] >= 0, best, -1)


def first_best(worth: Floats, names: list[str]) -> Ints:
    """Return the expert of largest value in each row, in a tie the first by name.

    Examples
    --------
    >>> first_best(np.array([[1.0, 1.0], [2.0, 1.0]]), ["nurse", "doctor"])
    array([1, 0])
    """
    by_name = np.argsort(names, kind="stable")
    return np.asarray(by_name[worth[:, by_name].argmax(axis=1)])


def _margins(gains: Floats, prices: Floats, order: Ints) -> tuple[Floats, Floats, Ints]:
    """Return each limited expert's saving over the best alternative; the best other expert's saving and number.

    The alternatives are the model, the experts without a limit and the later ones of the order. Where two experts are
    equally good on many rows, the rows on which they save more come first.
    """
    unlimited = gains.copy()
    unlimited[:, order] = -np.inf
    free = unlimited.max(axis=1)
    instead = np.maximum(free, 0.0)[:, None]
    net = (gains - prices)[:, order]
    others = np.maximum.accumulate(np.column_stack([instead, net[:, ::-1]]), axis=1)[:, -2::-1]
    margins = net - others + 1e-6 * (gains[:, order] - instead)
    return margins, free, np.where(free >= 0, unlimited.argmax(axis=1), -1)


def _within(gains: Floats, ask: Ints, room: Floats) -> tuple[Ints, Floats]:
    """Return the assignment of largest total gain within the room, and the price of each expert's scarcity.

    ``ask`` is the best assignment without limits; -1 is the model, whose gain is 0 and which has no limit.
    """
    saved, at, model = np.column_stack([gains, np.zeros(len(gains))]), ask % (len(room) + 1), len(room)
    load, room = np.bincount(at, minlength=model + 1), np.append(room, np.inf)
    loss: dict[tuple[int, int], list[tuple[float, int]]] = {}
    for one, other in permutations(range(model + 1), 2):  # what moving a row from one to the other loses, least first
        rows = np.flatnonzero(at == one)
        loss[one, other] = list(zip((saved[rows, one] - saved[rows, other]).tolist(), rows.tolist(), strict=True))
        heapify(loss[one, other])
    while True:
        lost = np.where(load < room, 0.0, np.inf).tolist()  # by the cheapest chain of moves to where there is room
        move: dict[int, tuple[int, int]] = {}
        for _ in range(model):
            for (one, other), heap in loss.items():
                while heap and at[heap[0][1]] != one:
                    heappop(heap)
                if heap and heap[0][0] + lost[other] < lost[one] - 1e-12:
                    lost[one], move[one] = heap[0][0] + lost[other], (other, heap[0][1])
        start = int((load - room).argmax())
        if load[start] <= room[start]:
            return np.where(at == model, -1, at), np.array(lost[:model])
        load[start] -= 1
        while start in move:
            start, row = move[start]
            at[row] = start
            for other in set(range(model + 1)) - {start}:
                heappush(loss[start, other], (float(saved[row, start] - saved[row, other]), row))
        load[start] += 1
