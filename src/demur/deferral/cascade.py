"""Cascades: services with confidences, asked in sequence until the next question is not worth its price."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray
from demur.deferral.expert_reliability import LogitModel, log_odds_of_best
from demur.deferral.experts import Expert, read_experts
from demur.errors import InputError
from demur.estimators.splitting import Fold
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
        For each answer of the first service, a confidence and the only other service to ask, up to that confidence; -1
        for none. Without cuts, the expected gain of further questions decides.
    """

    first: int
    rate: float
    cost: float
    accuracy: float
    cuts: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, eq=False)
class _Known:
    """What the answers of a set of services tell about each row.

    Parameters
    ----------
    label : array of int
        The likeliest class.
    outlook : mapping
        From this set and each larger one to the probability that the likeliest class is right once these are asked.
    """

    label: Ints
    outlook: Mapping[ServiceSet, Floats]


_KnownBy: TypeAlias = Callable[[ServiceSet], _Known]


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
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.prices_ = np.array([one.price for one in services.values()])
        said, sure = self._read(answers, confidence, len(codes))
        n_classes, n_services = len(self.classes_), len(services)
        fold = np.random.RandomState(self.random_state).permutation(len(codes)) % self.n_folds
        folds = [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(self.n_folds)]
        self.tables_ = [AnswerTable.fit(said[:, s], sure[:, s], codes, n_classes) for s in range(n_services)]
        logs = np.empty((n_services, len(codes), n_classes))
        for s in range(n_services):
            for train, test in folds:
                table = AnswerTable.fit(said[train, s], sure[train, s], codes[train], n_classes)
                logs[s, test] = table.predict(said[test, s], sure[test, s])
        subsets = _subsets(n_services)
        self.pools_, pooled, right = {}, {}, {}
        for some in subsets:
            own = _members(some)
            self.pools_[some] = Pool.fit(logs[own], said[:, own], sure[:, own], codes, self.random_state)
            pooled[some] = self.pools_[some].out_of_bag(logs[own])
            right[some] = np.asarray(pooled[some].argmax(axis=1) == codes, dtype=np.float64)
        self.outlooks_: dict[ServiceSet, dict[ServiceSet, LogitModel]] = {}
        known: dict[ServiceSet, _Known] = {}
        for some in subsets:
            z = self._inputs(some, pooled[some], said, sure)
            larger = [more for more in subsets if some & more == some]
            self.outlooks_[some] = {more: LogitModel.fit(z, 0.0, right[more]) for more in larger}
            outlook = {more: np.empty(len(codes)) for more in larger}
            for more in larger:
                for train, test in folds:
                    outlook[more][test] = LogitModel.fit(z[train], 0.0, right[more][train]).predict(z[test], 0.0)
            known[some] = _Known(pooled[some].argmax(axis=1), outlook)
        self.policies_ = _upper_hull(self._tried(said, sure, codes, folds, known.__getitem__))
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
        said, sure = self._read(answers, confidence, len(np.asarray(confidence)))
        known = self._known_by(said, sure)
        at = np.zeros(len(said), dtype=np.int64)
        for policy, rows in self._mixture(len(said), mistake, budget):
            at[rows] = self._follow(policy, said, sure, known)[rows]
        asked = (at[:, None] >> np.arange(len(self.prices_)) & 1).astype(bool)
        return CascadeRun(self.classes_[_labels(at, known)], asked, asked @ self.prices_)

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
        said, sure = self._read(answers, confidence, len(labels))
        known, n = self._known_by(said, sure), len(labels)
        # Compared by their names: a label that fit has not seen has no number, and a service may know it.
        alone = np.asarray(answers, dtype=object) == labels.astype(object)[:, None]
        self.certified_: Policy | None = None
        for policy in reversed(self.policies_):
            own = self.classes_[_labels(self._follow(policy, said, sure, known), known)] == labels
            lost = (alone & ~own[:, None]).sum(axis=0)
            won = (~alone & own[:, None]).sum(axis=0)
            behind = upper_bound(lost, n, delta / 2) - (1 - upper_bound(n - won, n, delta / 2))
            if (behind > within).any():
                break
            self.certified_ = policy
        if self.certified_ is None:
            raise NoGuaranteeError(
                f"no policy is within {within:g} of the best service with probability {1 - delta:g}, on {n} rows; give "
                "more rows, or a larger within."
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

    def _read(self, answers: Any, confidence: ArrayLike, n_rows: int) -> tuple[Ints, Floats]:
        """Return numbers of the answers, n_classes for an answer that is not a class, and confidences."""
        table = np.asarray(answers, dtype=object)
        if table.shape != (n_rows, len(self.prices_)):
            raise InputError(
                f"answers must have shape ({n_rows}, {len(self.prices_)}), rows by services, got {table.shape}."
            )
        number_of = {label: number for number, label in enumerate(self.classes_.tolist())}
        said = np.frompyfunc(lambda answer: number_of.get(answer, len(number_of)), 1, 1)(table).astype(np.int64)
        sure = np.asarray(confidence, dtype=np.float64)
        if sure.shape != said.shape:
            raise InputError(f"confidence must have the shape of answers, {said.shape}, got {sure.shape}.")
        if np.isnan(sure).any():
            raise InputError("confidence contains NaN; give every answer a confidence, a constant if there is none.")
        return said, sure

    def _inputs(self, some: ServiceSet, proba: Floats, said: Ints, sure: Floats) -> Floats:
        """Return what is known after some answers, as inputs of a logistic regression."""
        odds, best = log_odds_of_best(proba), np.eye(proba.shape[1])[proba.argmax(axis=1)]
        logs = np.log(np.maximum(proba, 1e-6))
        ranks = [self.tables_[s].rank(said[:, s], sure[:, s]) for s in _members(some)] if __import__("os").environ.get("RANK","0")=="1" else []
        return np.column_stack([odds, np.maximum(odds - 2, 0), best, best * odds[:, None], logs, *ranks])

    def _known_by(self, said: Ints, sure: Floats) -> _KnownBy:
        """Return what is known about new rows by the services of a set, computed when it is needed first."""

        @cache
        def known(some: ServiceSet) -> _Known:
            own = _members(some)
            logs = np.array([self.tables_[s].predict(said[:, s], sure[:, s]) for s in own])
            proba = self.pools_[some].predict(logs, said[:, own], sure[:, own])
            z = self._inputs(some, proba, said, sure)
            outlook = {more: model.predict(z, 0.0) for more, model in self.outlooks_[some].items()}
            return _Known(proba.argmax(axis=1), outlook)

        return known

    def _follow(self, policy: Policy, said: Ints, sure: Floats, known: _KnownBy) -> Ints:
        """Return the set of services that is asked on each row."""
        at = _second(policy, said, sure)
        if policy.cuts:
            return at
        for some in self.outlooks_:
            rows = np.flatnonzero(at == some)
            if not len(rows):
                continue
            outlook = known(some).outlook
            plans = list(outlook)  # the first is to stop, and wins ties
            extra = np.array([self._price(more & ~some) for more in plans])
            worth = np.array([outlook[more][rows] for more in plans]) - policy.rate * extra[:, None]
            best = worth.argmax(axis=0)
            for position, more in enumerate(plans[1:], start=1):
                then = min(_members(more & ~some), key=lambda s: (self.prices_[s], s))
                at[rows[best == position]] = some | 1 << then
        return at

    def _price(self, some: ServiceSet) -> float:
        return float(self.prices_[_members(some)].sum())

    def _tried(self, said: Ints, sure: Floats, y: Ints, folds: list[Fold], known: _KnownBy) -> list[Policy]:
        """Return policies with what they cost and bring on rows that they were not chosen on.

        For each first service and rate there are two: one asks as long as the expected gain pays; the other asks one
        more service where the first one's confidence is low, with a cut for each answer. The second kind has fewer
        parameters to estimate and is better on some data.
        """
        rates = np.r_[0.0, np.logspace(-4, 2, 49)] / max(float(self.prices_.max()), 1e-12)
        found = []
        for first, rate in product(range(len(self.prices_)), rates.tolist()):
            plain = Policy(first, rate, 0.0, 0.0)
            found.append(self._judged(plain, self._follow(plain, said, sure, known), y, known))
            at = np.empty(len(y), dtype=np.int64)
            for train, test in folds:
                apart = self._with_cuts(plain, said[train], sure[train], y[train], train, known)
                at[test] = _second(apart, said[test], sure[test])
            policy = self._with_cuts(plain, said, sure, y, np.arange(len(y)), known)
            found.append(self._judged(policy, at, y, known))
        return found

    def _with_cuts(self, policy: Policy, said: Ints, sure: Floats, y: Ints, rows: Ints, known: _KnownBy) -> Policy:
        """Return the policy with the cut and the second service for each answer that were best on these rows."""
        first, cuts = policy.first, []
        right = known(1 << first).label[rows] == y
        for answer in range(len(self.classes_) + 1):
            own = np.flatnonzero(said[:, first] == answer)
            own = own[np.argsort(sure[own, first], kind="stable")]
            level = sure[own, first]
            ends = np.flatnonzero(np.append(level[1:] > level[:-1], True)[: len(own)])
            best = (0.0, -np.inf, -1)
            for s in range(len(self.prices_)):
                if s != first and len(own):
                    other = known(1 << first | 1 << s).label[rows] == y
                    worth = np.cumsum(other[own] * 1.0 - right[own] - policy.rate * self.prices_[s])[ends]
                    if worth.max() > best[0]:
                        best = (float(worth.max()), float(level[ends[worth.argmax()]]), s)
            cuts.append(best[1:])
        return replace(policy, cuts=tuple(cuts))

    def _judged(self, policy: Policy, at: Ints, y: Ints, known: _KnownBy) -> Policy:
        """Return the policy with what it costs and brings, where it leads to these sets of services."""
        cost = sum(float((at == some).mean()) * self._price(some) for some in np.unique(at).tolist())
        return replace(policy, cost=cost, accuracy=float((_labels(at, known) == y).mean()))

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
        import os
        if os.environ.get("POOL") == "logreg":
            from sklearn.linear_model import LogisticRegression
            reg = LogisticRegression(max_iter=1000, C=float(os.environ.get("C","1"))).fit(np.hstack(logs), y)
            forest = None
            if n_rows >= _ROWS_FOR_TREES:
                forest = ExtraTreesClassifier(
                    _TREES, min_samples_leaf=_LEAF, bootstrap=True, oob_score=True, random_state=seed
                ).fit(_inputs(logs, said, sure), y)
            return cls(reg, np.zeros(0), forest)
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
        if n_rows >= _ROWS_FOR_TREES and __import__("os").environ.get("POOL","both")!="weights":
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
        if not isinstance(self.weights, np.ndarray):
            return self.weights.predict_proba(np.hstack(logs))
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
    if __import__("os").environ.get("POOL")=="forest": return other
    mean = np.sqrt((one + _FLOOR) * (other + _FLOOR))
    blended: Floats = mean / mean.sum(axis=1, keepdims=True)
    return blended


def _second(policy: Policy, said: Ints, sure: Floats) -> Ints:
    """Return the first service of a policy, and the second where the confidence is not above the answer's cut."""
    if not policy.cuts:
        return np.full(len(said), 1 << policy.first)
    own, level = said[:, policy.first], sure[:, policy.first]
    cuts = np.array([cut for cut, _ in policy.cuts])[own]
    whom = np.array([second for _, second in policy.cuts])[own]
    asks = (level <= cuts) & (whom >= 0)
    return np.where(asks, 1 << policy.first | 1 << np.maximum(whom, 0), 1 << policy.first)


def _labels(at: Ints, known: _KnownBy) -> Ints:
    """Return the likeliest class of each row by the services that are asked on it."""
    found = np.empty(len(at), dtype=np.int64)
    for some in np.unique(at).tolist():
        rows = at == some
        found[rows] = known(some).label[rows]
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


def _cuts(sure: Floats) -> Floats:
    """Return the confidences that part the answers."""
    kept: list[float] = []
    for level in _LEVELS:
        if (level - (kept[-1] if kept else 0.0)) * len(sure) >= _LEAST:
            kept.append(level)
    return np.unique(np.quantile(sure, kept, method="lower")) if kept else np.empty(0)


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
