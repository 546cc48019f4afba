"""Cascades: services with confidences, asked in sequence until the next question is not worth its price."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray
from demur.deferral.experts import read_experts
from demur.errors import InputError
from demur.estimators.splitting import Fold
from demur.guarantees.risk_control import NoGuaranteeError, upper_bound

__all__ = ["Cascade", "CascadeRun"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
ServiceSet: TypeAlias = int
"""A set of services: the sum of 2 to the power of each one's number."""

_MOST = 6
"""The most services: there is a model for each set of them."""
_LEAST = 25
"""The fewest answers in the first bin of confidences; the bins are finest at low confidence."""
_PRIOR = 4.0
_ROWS_FOR_TREES = 500
"""With fewer rows a forest does not improve on the logistic regression."""
_TREES, _LEAF = 100, 6


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


@dataclass(frozen=True, eq=False)
class Policy:
    """One way to run the cascade.

    Parameters
    ----------
    first : int
        The number of the service that is always asked.
    cost, accuracy : float
        Mean price per row, and share of right answers on rows that the policy was not chosen on.
    cuts : mapping
        For each set of services, two arrays over the cases in which their answers leave a row: the confidence up to
        which one more service is asked, and the number of that service; -1 for none.
    """

    first: int
    cost: float
    accuracy: float
    cuts: "Cuts"


@dataclass(frozen=True, eq=False)
class _Known:
    """What the answers of a set of services tell about each row.

    Parameters
    ----------
    label : array of int
        The likeliest class.
    case : array of int
        The answer of a single service; the likeliest class after several.
    level : array
        The confidence of a single service; the probability of the likeliest class after several.
    """

    label: Ints
    case: Ints
    level: Floats

    @classmethod
    def of(cls, some: ServiceSet, proba: Floats, said: Ints, sure: Floats) -> "_Known":
        label, own = proba.argmax(axis=1), _members(some)
        if len(own) == 1:
            return cls(label, said[:, own[0]], sure[:, own[0]])
        return cls(label, label, proba.max(axis=1))


_KnownBy: TypeAlias = Callable[[ServiceSet], _Known]
Cuts: TypeAlias = dict[ServiceSet, tuple[Floats, Ints]]


class Cascade(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Ask services in sequence as long as the next question is expected to pay, and combine their answers.

    After each answer, the cascade asks one more service if its confidence is below a cut, and then answers with the
    likeliest class given all answers and confidences that it has bought. There is a cut, and a service to ask next, for
    each set of services and each answer; they are chosen so that further questions are worth their price.

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
        services = read_experts(self.services)
        if not 2 <= len(services) <= _MOST:
            raise InputError(f"a cascade takes two to {_MOST} services, got {len(services)}.")
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
        self.pools_, known = {}, {}
        for some in _subsets(n_services):
            own = _members(some)
            self.pools_[some] = Pool.fit(logs[own], sure[:, own], codes, self.random_state)
            known[some] = _Known.of(some, self.pools_[some].predict(logs[own]), said, sure)
        self.policies_ = _upper_hull(self._policies(codes, folds, known))
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
            at[rows] = _follow(policy.first, policy.cuts, len(said), known)[rows]
        asked = self._asked(at)
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
        certified = None
        for policy in reversed(self.policies_):
            own = self.classes_[_labels(_follow(policy.first, policy.cuts, n, known), known)] == labels
            lost = (alone & ~own[:, None]).sum(axis=0)
            won = (~alone & own[:, None]).sum(axis=0)
            behind = upper_bound(lost, n, delta / 2) - (1 - upper_bound(n - won, n, delta / 2))
            if (behind > within).any():
                break
            certified = policy
        if certified is None:
            raise NoGuaranteeError(
                f"no policy is within {within:g} of the best service with probability {1 - delta:g}, on {n} rows; give "
                "more rows, or a larger within."
            )
        self.certified_ = certified
        return self

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

    def _known_by(self, said: Ints, sure: Floats) -> _KnownBy:
        """Return what is known about new rows by the services of a set, computed when it is needed first."""

        @cache
        def known(some: ServiceSet) -> _Known:
            own = _members(some)
            logs = np.array([self.tables_[s].predict(said[:, s], sure[:, s]) for s in own])
            return _Known.of(some, self.pools_[some].predict(logs, sure[:, own]), said, sure)

        return known

    def _asked(self, at: Ints) -> NDArray[np.bool_]:
        return (at[:, None] >> np.arange(len(self.prices_)) & 1).astype(bool)

    def _policies(self, y: Ints, folds: list[Fold], known: Mapping[ServiceSet, _Known]) -> list[Policy]:
        """Return policies for several exchange rates between money and right answers.

        What they cost is computed on the rows that they were chosen on, how often they are right out of fold.
        """
        found = []
        for rate in (np.r_[0.0, np.logspace(-4, 2, 49)] / max(float(self.prices_.max()), 1e-12)).tolist():
            cuts = self._best_cuts(rate, np.arange(len(y)), y, known)
            apart = [self._best_cuts(rate, train, y, known) for train, _ in folds]
            for first in range(len(self.prices_)):
                at = np.empty(len(y), dtype=np.int64)
                for own, (_, test) in zip(apart, folds, strict=True):
                    at[test] = _follow(first, own, len(y), known.__getitem__)[test]
                right = _labels(at, known.__getitem__) == y
                spent = self._asked(_follow(first, cuts, len(y), known.__getitem__)) @ self.prices_
                found.append(Policy(first, float(spent.mean()), float(right.mean()), cuts))
        return found

    def _best_cuts(self, rate: float, rows: Ints, y: Ints, known: Mapping[ServiceSet, _Known]) -> Cuts:
        """Return the cuts that were best on these rows, where a unit of money is worth ``rate`` right answers.

        The largest sets come first, so that the worth of a further question includes those that follow it.
        """
        worth: dict[ServiceSet, Floats] = {}
        cuts: Cuts = {}
        for some in reversed(list(known)):
            label, case, level = (values[rows] for values in vars(known[some]).values())
            worth[some] = (label == y[rows]).astype(np.float64)
            levels, following = (np.full(len(self.classes_) + 1, none) for none in (-np.inf, -1))
            others = _members(~some & (1 << len(self.prices_)) - 1)
            asking = {s: worth[some | 1 << s] - rate * self.prices_[s] for s in others}
            for each in range(len(self.classes_) + 1):
                own = np.flatnonzero(case == each)
                own = own[np.argsort(level[own], kind="stable")]
                ends = np.flatnonzero(np.append(np.diff(level[own]) > 0, True)[: len(own)])
                most = 0.0
                for s, after in asking.items():
                    gain = np.cumsum(after[own] - worth[some][own])[ends]
                    if gain.max(initial=0.0) > most:
                        most, levels[each], following[each] = gain.max(), level[own[ends[gain.argmax()]]], s
                if most > 0:
                    own = own[level[own] <= levels[each]]
                    worth[some][own] = asking[following[each]][own]
            cuts[some] = levels, following
        return {some: cuts[some] for some in known}

    def _mixture(self, n_rows: int, mistake: float | None, budget: float | None) -> list[tuple[Policy, Ints]]:
        """Return policies and the rows that are run by each."""
        rows = np.arange(n_rows)
        if mistake is None and budget is None:
            if getattr(self, "certified_", None) is not None:
                return [(self.certified_, rows)]
            mistake, budget = self.mistake, self.budget
        for name, value in (("mistake", mistake), ("budget", budget)):
            if value is not None and not value >= 0:
                raise InputError(f"{name} must be a number of at least 0, got {value!r}.")
        if mistake is not None and budget is None:
            return [(max(self.policies_, key=lambda policy: mistake * policy.accuracy - policy.cost), rows)]
        if mistake is not None or budget is None:
            raise InputError("give either mistake, the cost of a mistake, or budget, the amount to spend per row.")
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
            ordered = np.sort(sure[own])
            n_bins = max(1, int(np.sqrt(len(ordered) / _LEAST)))
            cuts = np.unique(ordered[np.arange(1, n_bins) ** 2 * len(ordered) // n_bins**2])
            cell = np.searchsorted(cuts, sure[own], side="left")
            counts = np.zeros((len(cuts) + 1, n_classes))
            np.add.at(counts, (cell, y[own]), 1)
            frequencies = (counts + _PRIOR * label) / (counts.sum(axis=1, keepdims=True) + _PRIOR)
            edges.append(cuts)
            logs.append(np.log(frequencies))
        return cls(edges, logs)

    def predict(self, said: Ints, sure: Floats) -> Floats:
        found = np.empty((len(said), self.logs[0].shape[1]))
        for answer, (cuts, logs) in enumerate(zip(self.edges, self.logs, strict=True)):
            own = said == answer
            found[own] = logs[np.searchsorted(cuts, sure[own], side="left")]
        return found


@dataclass(frozen=True, eq=False)
class Pool:
    """Class probabilities from the answers of several services: the mean of a logistic regression and a forest.

    Their inputs are confidences, and the logarithms of class frequencies given each answer. The forest needs many rows;
    it knows how the services err together. A single service has the class frequencies of its table.
    """

    regression: Any = None
    forest: Any = None

    @classmethod
    def fit(cls, logs: Floats, sure: Floats, y: Ints, seed: int) -> "Pool":
        if len(logs) == 1:
            return cls()
        regression = LogisticRegression(solver="newton-cholesky").fit(np.hstack([*logs]), y)
        if len(y) < _ROWS_FOR_TREES:
            return cls(regression)
        forest = ExtraTreesClassifier(_TREES, min_samples_leaf=_LEAF, bootstrap=True, oob_score=True, random_state=seed)
        return cls(regression, forest.fit(np.hstack([sure, *logs]), y))

    def predict(self, logs: Floats, sure: Floats | None = None) -> Floats:
        """Return the probabilities of new rows; without ``sure``, those of the rows of ``fit``, out of bag."""
        found = [np.exp(logs[0])]
        if self.regression is not None:
            found = [self.regression.predict_proba(np.hstack([*logs]))]
        if self.forest is not None:
            other = self.forest.oob_decision_function_
            if sure is not None:
                other = self.forest.predict_proba(np.hstack([sure, *logs]))
            found.append(other)
        mean: Floats = np.mean(found, axis=0)
        return mean


def _follow(first: int, policy_cuts: Cuts, n_rows: int, known: _KnownBy) -> Ints:
    """Return the set of services that is asked on each row."""
    at = np.full(n_rows, 1 << first)
    for some, (levels, following) in policy_cuts.items():  # from the smallest set to the largest
        rows = np.flatnonzero(at == some)
        if len(rows) and following.max() >= 0:
            case, level = known(some).case[rows], known(some).level[rows]
            asks = level <= levels[case]
            at[rows[asks]] |= 1 << following[case[asks]]
    return at


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
