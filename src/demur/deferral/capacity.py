"""Capacity: limits on the number of questions to experts, in a batch or in a stream of rows."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog
from sklearn.base import BaseEstimator

from demur.array_types import AnyArray
from demur.errors import InputError, InputTypeError
from demur.guarantees.risk_control import p_value, rows_needed
from demur.rules import Decision

__all__ = ["Capacity"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SAMPLE = 4096
"""Rows of the program that gives the first prices, and of the first exact program."""


class Capacity(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    r"""Limits on the number of questions to experts, and the assignment of least expected cost within them.

    In a batch, :meth:`assign` solves the transport problem exactly: of all ways to give each row to the model or to an
    expert within the limits, one of least total expected cost. In a stream, where each row must be decided before the
    next is seen, :meth:`fit` finds prices of scarcity on calibration rows, which :meth:`assign` then adds to the prices
    of the experts.

    Parameters
    ----------
    limits : mapping
        From the name of an expert to its limit: a number of rows (an int), or a share of the rows (a float below 1).
        Experts that are not named have no limit.
    delta : float, default 0.05
        For a stream: the probability, over the choice of the calibration rows, that a load exceeds its limit.

    Attributes
    ----------
    scarcity_ : dict
        After ``fit``: the amount that is added to each expert's price.

    Notes
    -----
    Batch: the linear program's dual has one price per limited expert. It is solved to near optimality first; rows that
    are nearly indifferent at these prices go into a linear program, and its exact prices must confirm the actions of
    all others, which proves the whole optimal (else more rows go in). Where a limit binds, a row on which model and
    expert tie stays with the model.

    Stream: one half of the calibration rows gives the prices :math:`\lambda_e`; on the other half a common surcharge s
    is chosen so large that the long-run load of each limited expert stays within its limit with probability at least
    1 - delta. A load can only fall as s rises, so that an order statistic and the exact binomial tail at level delta
    divided by the number of limited experts suffice. With a single limited expert all rows serve the second step.

    Examples
    --------
    Asking saves 0.3, 0.2 and 0.1 in three rows, and there is time for one:

    >>> costs = np.array([[0.4, 0.6, 0.1], [0.3, 0.7, 0.1], [0.2, 0.8, 0.1]])
    >>> decision = Decision(np.zeros(3, int), np.ones(3, bool), -np.ones(3), -np.ones(3), np.zeros(3, int), costs)
    >>> Capacity({"nurse": 1}).assign(decision, ["nurse"]).ask
    array([ 0, -1, -1])
    """

    def __init__(self, limits: Mapping[str, float], *, delta: float = 0.05) -> None:
        self.limits = limits
        self.delta = delta
        _check_limits(limits)
        if not 0 < delta < 1:
            raise InputError(f"delta must be in (0, 1), got {delta!r}.")

    def assign(self, decision: Decision[AnyArray], experts: Iterable[str]) -> Decision[AnyArray]:
        """Assign the rows of a decision within the limits: all at once, or after ``fit`` each row by itself.

        Parameters
        ----------
        decision : Decision
            As :meth:`DeferOption.decide <demur.DeferOption.decide>` returns it, with the costs of all actions.
        experts : names
            In the order of ``decision.ask``: ``model.experts_``.

        Returns
        -------
        Decision
            With other ``ask`` and ``reject``. In a stream, ``acceptance`` includes the prices of scarcity.
        """
        gains, names = _gains(decision, experts)
        if self.__sklearn_is_fitted__():
            return self._stream(decision, gains, names)
        room = self._room(names, len(gains))
        ask = _best(gains, names)
        if (np.bincount(ask + 1, minlength=len(names) + 1)[1:] > room).any():
            ask = _least_cost(gains, room)
        return replace(decision, ask=ask, reject=ask >= 0)

    def fit(self, decision: Decision[AnyArray], experts: Iterable[str], rows_per_period: int | None = None) -> Self:
        """Find prices of scarcity for a stream.

        Parameters
        ----------
        decision : Decision
            On calibration rows: rows like those to come that the model was not fitted on.
        experts : names
            As for :meth:`assign`.
        rows_per_period : int, optional
            How many rows come in the time for which limits are given as a number of rows: 40 of 1,000 a day are a
            share of 0.04.
        """
        gains, names = _gains(decision, experts)
        shares = self._shares(names, rows_per_period)
        limited = np.flatnonzero(shares < 1)
        level = self.delta / max(len(limited), 1)
        prices, rows = np.zeros(len(names)), np.arange(len(gains))
        if len(limited) > 1:
            shuffled = np.random.RandomState(0).permutation(rows)
            first, rows = shuffled[: len(rows) // 2], shuffled[len(rows) // 2 :]
            prices[limited] = _scarcity(gains[first], shares * len(first))[limited]
        best, margin, _ = _margins(gains[rows], prices, limited)
        surcharge = -float(prices[limited].min(initial=np.inf)) if len(limited) else 0.0
        for expert in limited:
            allowed = _most_allowed(len(rows), float(shares[expert]), level)
            own = np.sort(margin[best == expert])[::-1]
            if allowed < len(own):
                surcharge = max(surcharge, float(own[allowed]))
        self.prices_, self.surcharge_ = prices, surcharge
        self.scarcity_ = {name: float(prices[i] + surcharge) if i in limited else 0.0 for i, name in enumerate(names)}
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "scarcity_")

    def _stream(self, decision: Decision[AnyArray], gains: Floats, names: list[str]) -> Decision[AnyArray]:
        if names != list(self.scarcity_):
            raise InputError(f"this capacity was fitted for {', '.join(self.scarcity_)}, not for {', '.join(names)}.")
        limited = np.flatnonzero([name in self.limits for name in names])
        best, margin, others = _margins(gains, self.prices_, limited)
        ask = np.where(margin > self.surcharge_, best, others)
        total = gains - np.array(list(self.scarcity_.values()))
        return replace(decision, ask=ask, reject=ask >= 0, acceptance=-total.max(axis=1))

    def _room(self, names: list[str], n_rows: int) -> Ints:
        self.check_names(names)
        room = np.full(len(names), n_rows, dtype=np.int64)
        for number, name in enumerate(names):
            limit = self.limits.get(name)
            if limit is not None:
                most = limit if _is_count(limit) else np.floor(limit * n_rows + 1e-9)
                room[number] = min(int(most), n_rows)
        return room

    def _shares(self, names: list[str], rows_per_period: int | None) -> Floats:
        self.check_names(names)
        shares = np.ones(len(names))
        for number, name in enumerate(names):
            limit = self.limits.get(name)
            if limit is None:
                continue
            if _is_count(limit):
                if rows_per_period is None:
                    raise InputError(
                        f"the limit of {name!r} is {limit} rows; give rows_per_period, the number of rows that come in "
                        "that time, or the limit as a share."
                    )
                limit = limit / rows_per_period
            shares[number] = min(float(limit), 1.0)
        return shares

    def check_names(self, names: list[str]) -> None:
        """Refuse limits for somebody who is not among the experts."""
        unknown = [name for name in self.limits if name not in names]
        if unknown:
            raise InputError(f"there is a limit for {unknown[0]!r}; the experts are {', '.join(names)}.")


def _check_limits(limits: Any) -> None:
    if not isinstance(limits, Mapping):
        raise InputTypeError(f'limits must be a mapping such as {{"consultant": 40, "nurse": 0.2}}, got {limits!r}.')
    for name, limit in limits.items():
        if isinstance(limit, bool) or not isinstance(limit, int | float | np.integer | np.floating):
            raise InputTypeError(f"the limit of {name!r} must be a number, got {limit!r}.")
        if not (limit >= 0 and (_is_count(limit) or limit < 1)):
            raise InputError(
                f"the limit of {name!r} must be a whole number of rows, or a share of them in [0, 1), got {limit!r}."
            )


def _is_count(limit: Any) -> bool:
    return isinstance(limit, int | np.integer)


def _gains(decision: Decision[AnyArray], experts: Iterable[str]) -> tuple[Floats, list[str]]:
    """Return what asking each expert saves on each row, and the experts' names."""
    names = list(experts)
    if decision.costs is None:
        raise InputError("the decision does not hold the costs of its actions; take one from DeferOption.decide.")
    costs = np.asarray(decision.costs)
    if costs.shape[1] < len(names) + 2:
        raise InputError(
            f"the decision has {costs.shape[1]} actions, too few for {len(names)} experts and two classes."
        )
    answering = costs[:, : -len(names)].min(axis=1, keepdims=True)
    return answering - costs[:, -len(names) :], names


def _best(gains: Floats, names: list[str]) -> Ints:
    """Return who is asked without limits: ties ask, and equal experts are told apart by their names."""
    by_name = np.argsort(names, kind="stable")
    best = by_name[gains[:, by_name].argmax(axis=1)]
    return np.where(gains[np.arange(len(gains)), best] >= 0, best, -1)


def _margins(gains: Floats, prices: Floats, limited: Ints) -> tuple[Ints, Floats, Ints]:
    """Return the best limited expert, what it saves over whoever else may answer, and who that is."""
    rows, others = np.arange(len(gains)), np.setdiff1d(np.arange(gains.shape[1]), limited)
    instead, who = np.zeros(len(gains)), np.full(len(gains), -1)
    if len(others):
        best = others[gains[:, others].argmax(axis=1)]
        pays = gains[rows, best] >= 0
        instead, who = np.where(pays, gains[rows, best], 0.0), np.where(pays, best, -1)
    if not len(limited):
        return who, np.full(len(gains), -np.inf), who
    net = gains[:, limited] - prices[limited]
    best = limited[net.argmax(axis=1)]
    return best, net.max(axis=1) - instead, who


def _most_allowed(n_rows: int, share: float, level: float) -> int:
    """Return the largest k for which P(Bin(n, share) <= k) is at most the level."""
    counts = np.arange(n_rows + 1)
    allowed = np.flatnonzero(p_value(counts, n_rows, share) <= level)
    if not len(allowed):
        raise InputError(
            f"{n_rows} calibration rows cannot show that a load stays below {share:g} with confidence {1 - level:g}: "
            f"give at least {rows_needed(share, level)}."
        )
    return int(allowed[-1])


def _scarcity(gains: Floats, room: Floats) -> Floats:
    """Return the experts' prices of scarcity: those of the assignment of some rows, with room in proportion."""
    some = gains[np.random.RandomState(0).permutation(len(gains))[:_SAMPLE]]
    return _solved(_with_model(some), np.ones(len(some)), room * (len(some) / len(gains)))[1]


def _with_model(gains: Floats) -> Floats:
    """Put the model, which saves nothing, before the experts; who cannot be asked is never worth it."""
    return np.column_stack([np.zeros(len(gains)), np.where(np.isfinite(gains), gains, -1e6)])


def _least_cost(gains: Floats, room: Ints) -> Ints:
    """Return the assignment of largest total gain within the room: -1 for the model.

    The rows that are nearly indifferent at the prices of a sample are assigned by a linear program, the others by
    their best action. If the prices of the program confirm those, no assignment can be better; else more rows go in.
    """
    ask = np.full(len(gains), -1)
    rows = np.flatnonzero((gains > 0).any(axis=1))
    if not len(rows) or not room.any():
        return ask
    saved, kind, size = np.unique(_with_model(gains[rows]), axis=0, return_inverse=True, return_counts=True)
    prices = _scarcity(gains[rows], room.astype(np.float64))
    n_open = _SAMPLE
    while True:
        net = saved - np.r_[0.0, prices]
        best = net.argmax(axis=1)
        top_two = np.partition(net, -2, axis=1)[:, -2:]
        opened = np.argsort(top_two[:, 1] - top_two[:, 0], kind="stable")[:n_open]
        settled = np.setdiff1d(np.arange(len(saved)), opened)
        left = room - np.bincount(best[settled], size[settled], minlength=1 + len(room))[1:]
        if (left >= 0).all():
            amounts, prices = _solved(saved[opened], size[opened], left)
            net = saved[settled] - np.r_[0.0, prices]
            if (net.max(axis=1) - net[np.arange(len(settled)), best[settled]]).max(initial=0.0) <= 1e-12:
                given = np.zeros(saved.shape, dtype=np.int64)
                given[settled, best[settled]] = size[settled]
                given[opened] = np.round(amounts)
                actions = np.tile(np.arange(saved.shape[1]), len(saved))
                ask[rows[np.argsort(kind.ravel(), kind="stable")]] = np.repeat(actions, given.ravel()) - 1
                return ask
        n_open *= 2


def _solved(saved: Floats, size: Floats | Ints, left: Floats | Ints) -> tuple[Floats, Floats]:
    """Solve the transport problem; return how many rows of each kind get each action, and the experts' prices."""
    row, action = np.nonzero(np.column_stack([np.ones(len(saved), dtype=bool), saved[:, 1:] > 0]))
    variables, asked = np.arange(len(row)), action > 0
    once = sparse.csr_array((np.ones(len(row)), (row, variables)), shape=(len(saved), len(row)))
    loads = sparse.csr_array((np.ones(asked.sum()), (action[asked] - 1, variables[asked])), shape=(len(left), len(row)))
    result = linprog(  # type: ignore[call-overload] # the stubs do not know sparse matrices
        -saved[row, action], A_ub=loads, b_ub=left, A_eq=once, b_eq=size, bounds=(0, None), method="highs-ds"
    )
    if result.status != 0:
        raise RuntimeError(f"the linear program of the assignment failed: {result.message}")
    amounts = np.zeros(saved.shape)
    amounts[row, action] = result.x
    return amounts, -np.asarray(result.ineqlin.marginals, dtype=np.float64)
