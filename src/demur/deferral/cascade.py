"""Cascades: services with confidences, asked in sequence until the next question is not worth its price."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray
from demur.deferral.expert_reliability import LogitModel, log_odds, log_odds_of_best
from demur.deferral.experts import Expert, read_experts
from demur.errors import InputError
from demur.guarantees.risk_control import NoGuaranteeError, upper_bound

__all__ = ["Cascade", "CascadeRun"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ServiceSet: TypeAlias = int
"""A set of services: the sum of 2 to the power of each one's number."""

_MOST = 6
"""The most services: there is a model for each pair of a set of services and a larger set."""
_LEVELS = np.array([0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.13, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
"""Quantiles of a service's confidence at which its answers are binned: finest at low confidence."""
_LEAST = 25
"""The fewest answers in a bin."""
_PRIOR = 4.0
_ROWS_FOR_TREES = 500
"""With fewer rows a forest does not improve on the weighted log probabilities."""
_TREES, _LEAF = 100, 6
_MOST_LABELS = 30
_FLOOR = 1e-3


@dataclass(frozen=True, eq=False)
class CascadeRun:
    """The answers of a cascade, the services it asked, and what that cost.

    Parameters
    ----------
    label : array
        The answer for each row.
    asked : array of bool, shape (n_rows, n_services)
    spent : array of shape (n_rows,)
        The sum of the prices of the services asked.
    """

    label: AnyArray
    asked: NDArray[np.bool_]
    spent: Floats


@dataclass(frozen=True)
class Policy:
    """One way to run the cascade: the first service, and the exchange rate between money and right answers.

    Parameters
    ----------
    first : int
        The number of the service that is always asked.
    rate : float
        Right answers per unit of money that further questions must bring.
    cost, accuracy : float
        Per row, out of fold.
    cuts : tuple of (float, int)
        For each answer of the first service, a confidence and the service to ask next up to that confidence, or -1 to
        stop. Empty if the expected gain of a further question decides.
    goes_on : bool
        Whether, after such a second question, the expected gain decides about a third.
    """

    first: int
    rate: float
    cost: float
    accuracy: float
    cuts: tuple[tuple[float, int], ...] = ()
    goes_on: bool = False


@dataclass(frozen=True, eq=False)
class _Seen:
    """What services say to some rows: answers, confidences, and P(right with more answers | some answers)."""

    said: Ints
    sure: Floats
    outlook: Mapping[ServiceSet, Mapping[ServiceSet, Floats]]


class Cascade(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Ask services in sequence as long as the next question is expected to pay, and combine their answers.

    After each answer, the probability of being right with the answers so far is compared with that after more
    questions. The cascade continues as long as the gain is worth the price, and then answers with the most likely class
    given all answers and confidences that it has bought.

    Parameters
    ----------
    services : mapping
        From names to prices per question, on any scale; at most six.
    mistake : float, optional
        The cost of one mistake, on the scale of the prices.
    budget : float, optional
        Instead of ``mistake``: the mean amount to spend per row. Two policies are then mixed at random, so that the
        budget is spent and the expected accuracy is the largest possible.
    n_folds : int, default 5
    random_state : int, default 0
        Random seed of the folds and of the mixing.

    Attributes
    ----------
    classes_ : array
    policies_ : list
        The policies that no mixture of others beats, from the cheapest to the most accurate, with their costs and
        accuracies on the rows of ``fit``.

    Examples
    --------
    A free service that reports when it guesses, and an expensive one that is always right:

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> sure = rng.random(2000) < 0.7
    >>> cheap = np.where(sure, y, rng.integers(0, 2, 2000))
    >>> answers, confidence = np.column_stack([cheap, y]), np.column_stack([0.5 + 0.4 * sure, np.ones(2000)])
    >>> cascade = Cascade({"cheap": 0.0, "expensive": 1.0}, mistake=10.0).fit(answers, confidence, y)
    >>> run = cascade.run(answers, confidence)
    >>> float((run.label == y).mean()), round(float(run.spent.mean()), 1)
    (1.0, 0.3)
    """

    def __init__(
        self,
        services: Mapping[str, float],
        *,
        mistake: float | None = None,
        budget: float | None = None,
        n_folds: int = 5,
        random_state: int = 0,
    ) -> None:
        self.services = services
        self.mistake = mistake
        self.budget = budget
        self.n_folds = n_folds
        self.random_state = random_state

    def fit(self, answers: Any, confidence: ArrayLike, y: ArrayLike) -> Self:
        """Learn from rows that every service has answered.

        Parameters
        ----------
        answers : array of shape (n_rows, n_services), or as in :meth:`DeferOption.fit <demur.DeferOption.fit>`
        confidence : array of the same shape
            The confidence that each service reports, on any scale.
        y : array of shape (n_rows,)
        """
        services = self._check_parameters()
        labels = np.asarray(y)
        said, sure = self._read(answers, confidence, services, np.unique(labels), len(labels))
        self.classes_ = np.unique(labels)
        self.prices_ = np.array([one.price for one in services.values()])
        codes = np.searchsorted(self.classes_, labels)
        fold = np.random.RandomState(self.random_state).permutation(len(codes)) % self.n_folds
        n_classes, n_services = len(self.classes_), len(services)
        self.tables_ = [AnswerTable.fit(said[:, s], sure[:, s], codes, n_classes) for s in range(n_services)]
        logs = np.empty((n_services, len(codes), n_classes))
        for s in range(n_services):
            for part in range(self.n_folds):
                train, test = fold != part, fold == part
                table = AnswerTable.fit(said[train, s], sure[train, s], codes[train], n_classes)
                logs[s, test] = table.predict(said[test, s], sure[test, s])
        subsets = _subsets(n_services)
        self.pools_, pooled = {}, {}
        for some in subsets:
            own = _members(some)
            self.pools_[some] = Pool.fit(logs[own], said[:, own], sure[:, own], codes, self.random_state)
            pooled[some] = self.pools_[some].out_of_bag(logs[own])
        right = {some: np.asarray(pooled[some].argmax(axis=1) == codes, dtype=np.float64) for some in subsets}
        ranks = [table.rank(said[:, s], sure[:, s]) for s, table in enumerate(self.tables_)]
        self.levels_ = {some: float(log_odds(right[some].mean())) for some in subsets}
        self.outlooks_: dict[ServiceSet, dict[ServiceSet, LogitModel]] = {}
        outlook: dict[ServiceSet, dict[ServiceSet, Floats]] = {}
        for some in subsets:
            z = _state(pooled[some], ranks, some)
            self.outlooks_[some], outlook[some] = {}, {}
            for more in subsets:
                if some & more == some:
                    guess = np.full(len(codes), self.levels_[more])
                    self.outlooks_[some][more] = _fit_rows(z, guess, right[more], fold >= 0)
                    outlook[some][more] = _out_of_fold(z, guess, right[more], fold)
        seen = _Seen(said, sure, outlook)
        self.policies_ = _upper_hull([*self._by_outlook(seen, right), *self._by_cuts(seen, right, fold)])
        return self

    def run(
        self, answers: Any, confidence: ArrayLike, *, mistake: float | None = None, budget: float | None = None
    ) -> CascadeRun:
        """Run the cascade on rows with stored answers; answers that it does not buy are not used.

        Parameters
        ----------
        answers, confidence
            As for :meth:`fit`.
        mistake, budget : float, optional
            Other than those of the constructor; nothing is fitted again.
        """
        check_is_fitted(self, "policies_")
        services = read_experts(self.services)
        n_rows = len(np.asarray(confidence))
        seen, pooled = self._look(answers, confidence, services, n_rows)
        states = np.zeros(n_rows, dtype=np.int64)
        for policy, rows in self._mixture(n_rows, mistake, budget):
            states[rows] = self._follow(policy, seen)[rows]
        asked = (states[:, None] >> np.arange(len(services)) & 1).astype(bool)
        label = np.empty(n_rows, dtype=np.int64)
        for some in np.unique(states).tolist():
            rows = np.flatnonzero(states == some)
            label[rows] = pooled[some][rows].argmax(axis=1)
        return CascadeRun(self.classes_[label], asked, asked @ self.prices_)

    def certify(
        self, answers: Any, confidence: ArrayLike, y: ArrayLike, *, within: float = 0.01, delta: float = 0.05
    ) -> Self:
        """Choose the cheapest policy whose accuracy is guaranteed to be close to that of the best service.

        With probability at least 1 - delta over these rows, the accuracy of the chosen policy on new rows is at least
        that of every service minus ``within``. Policies are tested from the most accurate to the cheapest, until one
        fails (fixed-sequence testing). Each is compared with each service row by row, by exact binomial bounds on how
        often only one of the two is right.

        Parameters
        ----------
        answers, confidence, y
            Rows that ``fit`` has not seen.
        within : float, default 0.01
        delta : float, default 0.05

        Raises
        ------
        NoGuaranteeError
            If no policy can be certified.
        """
        labels = np.asarray(y)
        services = read_experts(self.services)
        seen, pooled = self._look(answers, confidence, services, len(labels))
        # Compared by their names: a label that fit has not seen has no number, and a service may know it.
        alone = np.asarray(answers, dtype=object) == labels.astype(object)[:, None]
        right = {some: self.classes_[one.argmax(axis=1)] == labels for some, one in pooled.items()}
        self.certified_: Policy | None = None
        for policy in reversed(self.policies_):
            own = _chosen(right, self._follow(policy, seen)).astype(bool)
            lost = (alone & ~own[:, None]).sum(axis=0)
            won = (~alone & own[:, None]).sum(axis=0)
            n = len(labels)
            behind = upper_bound(lost, n, delta / 2) - (1 - upper_bound(n - won, n, delta / 2))
            if (behind > within).any():
                break
            self.certified_ = policy
        if self.certified_ is None:
            raise NoGuaranteeError(
                f"no policy is within {within:g} of the best service with probability {1 - delta:g}, on {len(labels)} "
                "rows; give more rows, or a larger within."
            )
        return self

    def _check_parameters(self) -> dict[str, Expert]:
        services = read_experts(self.services)
        if not 2 <= len(services) <= _MOST:
            raise InputError(f"a cascade takes two to {_MOST} services, got {len(services)}.")
        self._check_goal(self.mistake, self.budget)
        return services

    def _check_goal(self, mistake: float | None, budget: float | None) -> None:
        if mistake is not None and budget is not None:
            raise InputError("give the price of a mistake or a budget, not both.")
        for name, value in (("mistake", mistake), ("budget", budget)):
            if value is not None and not value >= 0:
                raise InputError(f"{name} must not be negative, got {value!r}.")

    def _read(
        self, answers: Any, confidence: ArrayLike, services: dict[str, Expert], classes: AnyArray, n_rows: int
    ) -> tuple[Ints, Floats]:
        """Return numbers of the answers, len(classes) for an answer that is not a class in ``y``, and confidences."""
        table = np.asarray(answers, dtype=object)
        if table.shape != (n_rows, len(services)):
            raise InputError(
                f"answers must have shape ({n_rows}, {len(services)}), rows by services, got {table.shape}."
            )
        number_of = {label: number for number, label in enumerate(classes.tolist())}
        said = np.frompyfunc(lambda answer: number_of.get(answer, len(classes)), 1, 1)(table).astype(np.int64)
        sure = np.asarray(confidence, dtype=np.float64)
        if sure.shape != said.shape:
            raise InputError(f"confidence must have the shape of answers, {said.shape}, got {sure.shape}.")
        if np.isnan(sure).any():
            raise InputError("confidence contains NaN; give every answer a confidence, a constant if there is none.")
        return said, sure

    def _look(
        self, answers: Any, confidence: ArrayLike, services: dict[str, Expert], n_rows: int
    ) -> tuple[_Seen, dict[ServiceSet, Floats]]:
        """Return what is seen on new rows, and class probabilities from each set of answers."""
        said, sure = self._read(answers, confidence, services, self.classes_, n_rows)
        logs = np.array([table.predict(said[:, s], sure[:, s]) for s, table in enumerate(self.tables_)])
        pooled = {}
        for some, pool in self.pools_.items():
            own = _members(some)
            pooled[some] = pool.predict(logs[own], said[:, own], sure[:, own])
        ranks = [table.rank(said[:, s], sure[:, s]) for s, table in enumerate(self.tables_)]
        outlook: dict[ServiceSet, dict[ServiceSet, Floats]] = {}
        for some, models in self.outlooks_.items():
            z = _state(pooled[some], ranks, some)
            outlook[some] = {
                more: model.predict(z, np.full(n_rows, self.levels_[more])) for more, model in models.items()
            }
        return _Seen(said, sure, outlook), pooled

    def _follow(self, policy: Policy, seen: _Seen) -> Ints:
        """Return the set of services that is asked on each row."""
        if not policy.cuts:
            return self._go_on(np.full(len(seen.said), 1 << policy.first), policy, seen)
        second = _second(policy, seen.said, seen.sure)
        return self._go_on(second, policy, seen) if policy.goes_on else second

    def _go_on(self, at: Ints, policy: Policy, seen: _Seen) -> Ints:
        """Ask on as long as what is expected of it pays; a cut that has said to stop after the first is obeyed."""
        for some in seen.outlook:
            rows = np.flatnonzero(at == some)
            if not len(rows) or (policy.cuts and some == 1 << policy.first):
                continue
            plans = list(seen.outlook[some])
            extra = np.array([self._price(more & ~some) for more in plans])
            worth = np.array([seen.outlook[some][more][rows] for more in plans]) - policy.rate * extra[:, None]
            best = worth.argmax(axis=0)  # stopping comes first, and wins ties
            for position, more in enumerate(plans[1:], start=1):
                then = min(_members(more & ~some), key=lambda s: (self.prices_[s], s))
                at[rows[best == position]] = some | 1 << then
        return at

    def _price(self, some: ServiceSet) -> float:
        return float(self.prices_[_members(some)].sum())

    def _rates(self) -> Floats:
        rates: Floats = np.r_[0.0, np.logspace(-4, 2, 49)] / max(float(self.prices_.max()), 1e-12)
        return rates

    def _by_outlook(self, seen: _Seen, right: Mapping[ServiceSet, Floats]) -> list[Policy]:
        """Return the policies that go by what is expected of further questions."""
        return [
            self._judged(policy, self._follow(policy, seen), right)
            for first in range(len(self.prices_))
            for policy in (Policy(first, float(rate), 0.0, 0.0) for rate in self._rates())
        ]

    def _by_cuts(self, seen: _Seen, right: Mapping[ServiceSet, Floats], fold: Ints) -> list[Policy]:
        """Return the policies that ask a second service up to a confidence, one for each answer of the first.

        Confidences and second services are those that would have been best on the rows at hand. What they cost and
        bring is found on rows that they were not chosen on.
        """
        rates, found = self._rates(), []
        n_labels = len(self.classes_) + 1
        for first in range(len(self.prices_)):
            gains = _CutGains.of(first, seen, right, self.prices_, n_labels)
            chosen = gains.best(rates, np.ones(len(fold), dtype=bool))
            apart = [gains.best(rates, fold != part) for part in range(self.n_folds)]
            for number, rate in enumerate(rates):
                policy = Policy(first, float(rate), 0.0, 0.0, chosen[number])
                second = np.empty(len(fold), dtype=np.int64)
                for part in range(self.n_folds):
                    rows = np.flatnonzero(fold == part)
                    second[rows] = _second(replace(policy, cuts=apart[part][number]), seen.said[rows], seen.sure[rows])
                for goes_on in (False, True):
                    states = self._go_on(second.copy(), policy, seen) if goes_on else second
                    found.append(self._judged(replace(policy, goes_on=goes_on), states, right))
        return found

    def _judged(self, policy: Policy, states: Ints, right: Mapping[ServiceSet, Floats]) -> Policy:
        """Return the policy with what it costs and brings, where it leads to these sets of services."""
        cost = sum(float((states == some).mean()) * self._price(some) for some in np.unique(states).tolist())
        return replace(policy, cost=cost, accuracy=float(_chosen(right, states).mean()))

    def _mixture(self, n_rows: int, mistake: float | None, budget: float | None) -> list[tuple[Policy, Ints]]:
        """Return policies and the rows that are run by each."""
        self._check_goal(mistake, budget)
        rows = np.arange(n_rows)
        if mistake is None and budget is None:
            if getattr(self, "certified_", None) is not None:
                return [(self.certified_, rows)]  # type: ignore[list-item] # just checked
            mistake, budget = self.mistake, self.budget
            self._check_goal(mistake, budget)
        if mistake is not None:
            best = max(self.policies_, key=lambda policy: mistake * policy.accuracy - policy.cost)
            return [(best, rows)]
        if budget is None:
            raise InputError("give the price of a mistake, or a budget per row.")
        costs = np.array([policy.cost for policy in self.policies_])
        above = int(np.searchsorted(costs, budget * (1 + 1e-12), side="right"))
        if above == 0:
            raise InputError(f"the cheapest service costs {costs[0]:g}, more than the budget {budget:g}.")
        if above == len(costs):
            return [(self.policies_[-1], rows)]
        share = (budget - costs[above - 1]) / (costs[above] - costs[above - 1])
        dear = np.random.RandomState(self.random_state).permutation(n_rows) < int(share * n_rows)
        return [(self.policies_[above - 1], rows[~dear]), (self.policies_[above], rows[dear])]


@dataclass(frozen=True, eq=False)
class AnswerTable:
    """Class frequencies by a service's answer and confidence."""

    edges: list[Floats]
    logs: list[Floats]
    sorted: list[Floats]

    @classmethod
    def fit(cls, said: Ints, sure: Floats, y: Ints, n_classes: int) -> "AnswerTable":
        prior = (np.bincount(y, minlength=n_classes) + 1.0) / (len(y) + n_classes)
        edges, logs = [], []
        for answer in range(n_classes + 1):
            own = said == answer
            near = prior.copy()
            if answer < n_classes:
                near = 0.5 * prior
                near[answer] += 0.5
            label = (np.bincount(y[own], minlength=n_classes) + _PRIOR * near) / (own.sum() + _PRIOR)
            cuts = _cuts(sure[own])
            cell = np.searchsorted(cuts, sure[own], side="left")
            counts = np.zeros((len(cuts) + 1, n_classes))
            np.add.at(counts, (cell, y[own]), 1)
            frequencies = (counts + _PRIOR * label) / (counts.sum(axis=1, keepdims=True) + _PRIOR)
            edges.append(cuts)
            logs.append(np.log(frequencies))
        return cls(edges, logs, [np.sort(sure[said == answer]) for answer in range(n_classes + 1)])

    def predict(self, said: Ints, sure: Floats) -> Floats:
        found = np.empty((len(said), self.logs[0].shape[1]))
        for answer, (cuts, logs) in enumerate(zip(self.edges, self.logs, strict=True)):
            own = said == answer
            found[own] = logs[np.searchsorted(cuts, sure[own], side="left")]
        return found

    def rank(self, said: Ints, sure: Floats) -> Floats:
        """Return the share of answers of this kind that were less sure, and its logarithm, which looks at the least."""
        found = np.full(len(said), 0.5)
        for answer, known in enumerate(self.sorted):
            own = said == answer
            if len(known):
                found[own] = np.searchsorted(known, sure[own]) / len(known)
        return np.column_stack([found, np.log(found + 0.005)])


@dataclass(frozen=True, eq=False)
class Pool:
    """Probabilities from several services: the softmax of weighted log probabilities and a level for each class.

    With enough rows a forest, which knows how the services err together, has half a say.
    """

    weights: Floats
    levels: Floats
    forest: Any = None

    @classmethod
    def fit(cls, logs: Floats, said: Ints, sure: Floats, y: Ints, seed: int) -> "Pool":
        n_services, n_rows, n_classes = logs.shape
        if n_services == 1:
            return cls(np.ones(1), np.zeros(n_classes))
        target = np.eye(n_classes)[y]

        def loss(at: Floats) -> tuple[float, Floats]:
            scores = np.tensordot(at[:n_services], logs, axes=1) + at[n_services:]
            total = logsumexp(scores, axis=1, keepdims=True)
            difference = np.exp(scores - total) - target
            slopes = np.r_[np.einsum("nk,snk->s", difference, logs), difference.sum(axis=0)]
            value = float((total[:, 0] - scores[np.arange(n_rows), y]).sum() + 0.5 * (at[n_services:] ** 2).sum())
            return value / n_rows, (slopes + np.r_[np.zeros(n_services), at[n_services:]]) / n_rows

        start = np.r_[np.full(n_services, 1.0 / n_services), np.zeros(n_classes)]
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100}).x
        forest = None
        if n_rows >= _ROWS_FOR_TREES:
            forest = ExtraTreesClassifier(
                _TREES, min_samples_leaf=_LEAF, bootstrap=True, oob_score=True, random_state=seed
            ).fit(_inputs(logs, said, sure), y)
        return cls(found[:n_services], found[n_services:], forest)

    def predict(self, logs: Floats, said: Ints, sure: Floats) -> Floats:
        """Return the probabilities of rows that it was not fitted on."""
        own = self._weighted(logs)
        return own if self.forest is None else _blended(own, self.forest.predict_proba(_inputs(logs, said, sure)))

    def out_of_bag(self, logs: Floats) -> Floats:
        """Return the probabilities of the rows that it was fitted on, each from trees that have not seen the row."""
        own = self._weighted(logs)
        return own if self.forest is None else _blended(own, self.forest.oob_decision_function_)

    def _weighted(self, logs: Floats) -> Floats:
        scores = np.tensordot(self.weights, logs, axes=1) + self.levels
        proba: Floats = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
        return proba


def _inputs(logs: Floats, said: Ints, sure: Floats) -> Floats:
    """Return what a forest is given: answers, confidences, and the class frequencies that go with them."""
    n_classes = logs.shape[2]
    parts = []
    for s, own in enumerate(logs):
        answer = np.eye(n_classes + 1)[said[:, s]] if n_classes <= _MOST_LABELS else np.empty((len(own), 0))
        parts.append(np.column_stack([answer, sure[:, s], own]))
    return np.column_stack(parts)


def _blended(one: Floats, other: Floats) -> Floats:
    """Return the geometric mean of two sets of probabilities, neither of which may rule a class out alone."""
    mean = np.sqrt((one + _FLOOR) * (other + _FLOOR))
    blended: Floats = mean / mean.sum(axis=1, keepdims=True)
    return blended


@dataclass(frozen=True, eq=False)
class _CutGains:
    """Rows by the first service's answer, from the least to the most sure, and what a second service brings to each.

    Parameters
    ----------
    rows, sure : list of arrays
        One for each answer.
    gain : list of arrays of shape (n_seconds, n_rows)
    seconds : list of int
        The other services, and :attr:`prices` theirs.
    """

    rows: list[Ints]
    sure: list[Floats]
    gain: list[Floats]
    seconds: list[int]
    prices: Floats

    @classmethod
    def of(
        cls, first: int, seen: _Seen, right: Mapping[ServiceSet, Floats], prices: Floats, n_labels: int
    ) -> "_CutGains":
        seconds = [s for s in range(len(prices)) if s != first]
        rows, sure, gain = [], [], []
        for label in range(n_labels):
            own = np.flatnonzero(seen.said[:, first] == label)
            own = own[np.argsort(seen.sure[own, first], kind="stable")]
            rows.append(own)
            sure.append(seen.sure[own, first])
            gain.append(np.array([(right[1 << first | 1 << s] - right[1 << first])[own] for s in seconds]))
        return cls(rows, sure, gain, seconds, prices[seconds])

    def best(self, rates: Floats, kept: NDArray[np.bool_]) -> list[tuple[tuple[float, int], ...]]:
        """Return for each rate the cut and the second service of each answer that were best on the rows kept."""
        found: list[list[tuple[float, int]]] = [[] for _ in rates]
        for rows, sure, gain in zip(self.rows, self.sure, self.gain, strict=True):
            some = kept[rows]
            level, gains = sure[some], gain[:, some]
            ends = np.flatnonzero(np.append(level[1:] > level[:-1], True)) if len(level) else np.empty(0, dtype=int)
            brought = np.cumsum(gains, axis=1)[:, ends]
            for number, rate in enumerate(rates):
                worth = brought - rate * self.prices[:, None] * (ends + 1)
                if not worth.size or worth.max() <= 0:
                    found[number].append((-np.inf, -1))
                    continue
                second, place = np.unravel_index(worth.argmax(), worth.shape)
                found[number].append((float(level[ends[place]]), self.seconds[int(second)]))
        return [tuple(one) for one in found]


def _second(policy: Policy, said: Ints, sure: Floats) -> Ints:
    """Return the first service of a policy, and the second where the confidence is not above the answer's cut."""
    own, level = said[:, policy.first], sure[:, policy.first]
    cuts = np.array([cut for cut, _ in policy.cuts])[own]
    whom = np.array([second for _, second in policy.cuts])[own]
    asks = (level <= cuts) & (whom >= 0)
    return np.where(asks, 1 << policy.first | 1 << np.maximum(whom, 0), 1 << policy.first)


def _chosen(right: Mapping[ServiceSet, Any], states: Ints) -> Floats:
    """Return whether the answer is right, each row with the set of services that it was asked of."""
    found = np.zeros(len(states))
    for some in np.unique(states).tolist():
        rows = states == some
        found[rows] = right[some][rows]
    return found


def _subsets(n_services: int) -> list[ServiceSet]:
    """Return all sets of services but the empty one, smaller ones first."""
    return [sum(1 << s for s in some) for k in range(1, n_services + 1) for some in combinations(range(n_services), k)]


def _members(some: ServiceSet) -> list[int]:
    """Return the numbers of the services in a set.

    Examples
    --------
    >>> _members(5)
    [0, 2]
    """
    return [s for s in range(int(some).bit_length()) if some >> s & 1]


def _fit_rows(z: Floats, guess: Floats, right: Floats, rows: NDArray[np.bool_]) -> LogitModel:
    return LogitModel.fit(z[rows], guess[rows], right[rows], np.ones(int(rows.sum())))


def _out_of_fold(z: Floats, guess: Floats, right: Floats, fold: Ints) -> Floats:
    """Return what the logistic regression expects of rows that it has not seen."""
    found = np.empty(len(z))
    for part in np.unique(fold):
        test = fold == part
        found[test] = _fit_rows(z, guess, right, ~test).predict(z[test], guess[test])
    return found


def _cuts(sure: Floats) -> Floats:
    """Return the confidences that part the answers."""
    kept: list[float] = []
    for level in _LEVELS:
        if (level - (kept[-1] if kept else 0.0)) * len(sure) >= _LEAST:
            kept.append(level)
    return np.unique(np.quantile(sure, kept, method="lower")) if kept else np.empty(0)


def _state(proba: Floats, ranks: list[Floats], some: ServiceSet) -> Floats:
    """Return what is known after some answers, as inputs of a logistic regression."""
    odds = log_odds_of_best(proba)
    best = np.eye(proba.shape[1])[proba.argmax(axis=1)]
    own = [ranks[s] for s in _members(some)]
    logs = np.log(np.maximum(proba, 1e-6))
    return np.column_stack([odds, np.maximum(odds - 2, 0), best, best * odds[:, None], logs, *own])


def _upper_hull(policies: list[Policy]) -> list[Policy]:
    """Return the policies that no mixture of others beats, from the cheapest to the most accurate."""
    hull: list[Policy] = []
    for policy in sorted(policies, key=lambda one: (one.cost, -one.accuracy)):
        if hull and policy.accuracy <= hull[-1].accuracy:
            continue
        while len(hull) > 1:
            before, last = hull[-2], hull[-1]
            slope = (policy.accuracy - before.accuracy) * (last.cost - before.cost)
            if (last.accuracy - before.accuracy) * (policy.cost - before.cost) > slope:
                break
            hull.pop()
        hull.append(policy)
    return hull
