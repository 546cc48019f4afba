"""Cascades: services with confidences, asked in sequence until the next question is not worth its price."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray, AnyMapping, Floats, Ints, Mask, Objects
from demur.columns.frames import shown
from demur.deferral.experts import by_name, class_numbers, numbers, read_experts
from demur.errors import InputError
from demur.estimators.base import checked_labels
from demur.estimators.splitting import Fold
from demur.guarantees.coverage import check_share
from demur.guarantees.risk_control import NoGuaranteeError, mean_p_value, upper_bound

ServiceSet: TypeAlias = int
"""A set of services: the sum of 2 to the power of each one's number."""

HUMAN = "human"
"""The name of the person who is always right, where there is one."""

_ALL: ServiceSet = -1
"""The set of all services: every bit is set."""
_MOST = 6
"""The most services: there is a model for each set of them."""
_LEAST = 25
"""The fewest answers in the first bin of confidences; the bins are finest at low confidence."""
_PRIOR = 4.0
_FOLDS = 5
_ROWS_FOR_TREES = 500
"""With fewer rows a forest does not improve on the logistic regression."""
_TREES, _LEAF = 100, 6


@dataclass(frozen=True, eq=False)
class CascadeRun:
    """The answers of a cascade, the services it asked, and the amounts spent.

    Parameters
    ----------
    label : array
        Answer for each row; the likeliest class so far if another call must be made first.
    asked : array of bool, shape (n_rows, n_services)
    spent : array of shape (n_rows,)
        The sum of the prices of the services asked.
    confidence : array of shape (n_rows,)
        The probability of the label.
    ask : array of shape (n_rows,)
        The service to ask next, or "human"; None if the label is the answer. The price of this call is not part of
        ``spent``.
    reason : array of shape (n_rows,)
        The answers among those asked for that are not classes, in a sentence; None if there are none.
    """

    label: AnyArray
    asked: Mask
    spent: Floats
    confidence: Floats
    ask: Objects
    reason: Objects


@dataclass(frozen=True)
class NextCall:
    """What to do next for one row.

    Parameters
    ----------
    decision : {"ask", "answer"}
    service : str or None
        The service to ask, or "human"; None for an answer.
    answer : object
        The class to answer; None if a service is to be asked.
    confidence : float
        The probability of the likeliest class.
    spent : float
        The sum of the prices of the calls that were used.
    reason : str or None
        The answers that are not classes, in words; None if there are none.
    """

    decision: str
    service: str | None
    answer: Any
    confidence: float
    spent: float
    reason: str | None


@dataclass(frozen=True, eq=False)
class Policy:
    """One way to run the cascade.

    Parameters
    ----------
    cost, accuracy : float
        Mean price per row, and share of right answers on rows that the policy was not chosen on.
    cuts : mapping
        For each set of services that have answered, two arrays over their possible answers (over the likeliest class,
        for several services): the confidence up to which one more service is asked, and the number of that service, -1
        for none. For the empty set, number 0, a service is always asked.
    """

    cost: float
    accuracy: float
    cuts: "Cuts"


class _Known(NamedTuple):
    """Conclusions from the answers of a set of services to each row.

    Parameters
    ----------
    label : array of int
        The likeliest class.
    case : array of int
        The answer of a single service; the likeliest class after several.
    level : array
        The confidence of a single service; the probability of the likeliest class after several.
    proba : array
        The probability of the likeliest class.
    """

    label: Ints
    case: Ints
    level: Floats
    proba: Floats

    @classmethod
    def of(cls, some: ServiceSet, proba: Floats, said: Ints, sure: Floats) -> "_Known":
        label, own, most = proba.argmax(axis=1), _members(some), proba.max(axis=1)
        if len(own) == 1:
            return cls(label, said[:, own[0]], sure[:, own[0]], most)
        return cls(label, label, most, most)


_KnownBy: TypeAlias = Callable[[ServiceSet], _Known]
Cuts: TypeAlias = dict[ServiceSet, tuple[Floats, Ints]]


@dataclass(eq=False, repr=False)
class Cascade(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Ask services in sequence as long as the next call is expected to be worth its price, and combine their answers.

    After each answer, the cascade asks one more service if its confidence is below a threshold. Otherwise it answers
    with the likeliest class, given all answers and confidences so far. For each set of services asked and each answer
    there is a threshold and a service to ask next; they are chosen so that further questions are worth their price.

    Parameters
    ----------
    services : mapping
        Price per question of each service by its name, in any unit; at most six services.
    mistake : float, optional
        Cost of a mistake, in the unit of the prices.
    budget : float, optional
        Mean amount to spend per row, instead of ``mistake``. Two policies are then mixed at random, so that the budget
        is spent and the expected accuracy is as high as possible. In each call of ``run``, the number of rows with the
        more expensive policy is rounded down, so batches of few rows spend less.
    human : float, optional
        Price of asking a person, who is always right, as the last step.
    random_state : int, default 0
        Random seed of the folds and of the mixing.

    Attributes
    ----------
    classes_ : array
    policies_ : list
        The policies to choose from, from the cheapest to the most accurate, with their costs and accuracies on the rows
        of ``fit``. No mixture of other policies is both cheaper and as accurate.

    Examples
    --------
    A free service with low confidence when it guesses, and an expensive one that is always right:

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> sure = rng.random(2000) < 0.7
    >>> cheap = np.where(sure, y, rng.integers(0, 2, 2000))
    >>> answers, confidence = np.column_stack([cheap, y]), np.column_stack([0.5 + 0.4 * sure, np.ones(2000)])
    >>> cascade = Cascade({"cheap": 0.0, "expensive": 1.0}, mistake=10.0).fit(answers, confidence, y)
    >>> run = cascade.run(answers, confidence)
    >>> float((run.label == y).mean()), round(float(run.spent.mean()), 1)
    (1.0, 0.3)

    One call at a time:

    >>> cascade.next({}, {}).service
    'cheap'
    >>> cascade.next({"cheap": 1}, {"cheap": 0.9}).answer
    1
    >>> cascade.next({"cheap": 1}, {"cheap": 0.5}).service
    'expensive'
    """

    services: Mapping[str, float]
    _: KW_ONLY
    mistake: float | None = None
    budget: float | None = None
    human: float | None = None
    random_state: int = 0

    def fit(self, answers: Any, confidence: Any, y: ArrayLike) -> Self:
        """Learn from rows that every service has answered.

        Parameters
        ----------
        answers : array of shape (n_rows, n_services), table or mapping
            Answers: one column per service, in their order; or a table or mapping with one column per service name.
        confidence : array, table or mapping of the same shape
            The confidence that each service reports, on any scale.
        y : array of shape (n_rows,)
        """
        services = read_experts(self.services)
        if HUMAN in services:
            raise InputError(f"a service cannot be called {HUMAN!r}, the person who is always right; rename it.")
        person = {} if self.human is None else read_experts({HUMAN: self.human})
        if not 2 - len(person) <= len(services) <= _MOST:
            raise InputError(f"a cascade takes two to {_MOST} services, or one and a human, got {len(services)}.")
        self.certified_: tuple[Policy, Policy, float] | None = None
        self.classes_, codes = np.unique(checked_labels(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"a cascade needs rows of at least two classes, got {len(self.classes_)}.")
        self.shares_ = np.bincount(codes) / len(codes)
        self.prices_ = np.array([one.price for one in (services | person).values()])
        said, sure, _ = self._read(answers, confidence, whole=True)
        _check_length(len(said), codes)
        n_classes, n_services = len(self.classes_), len(services)
        for s, name in enumerate(services):
            if (said[:, s] == n_classes).all():
                raise InputError(
                    f"no answer of {name!r} is one of the classes, such as {self.classes_.tolist()[0]!r}: write "
                    "answers and labels in the same way, and with the same type."
                )
        fold = np.random.RandomState(self.random_state).permutation(len(codes)) % _FOLDS
        folds = [(np.flatnonzero(fold != part), np.flatnonzero(fold == part)) for part in range(_FOLDS)]
        self.tables_ = [AnswerTable.fit(said[:, s], sure[:, s], codes, n_classes) for s in range(n_services)]
        logs = np.empty((n_services, len(codes), n_classes))
        for s in range(n_services):
            for train, test in folds:
                table = AnswerTable.fit(said[train, s], sure[train, s], codes[train], n_classes)
                logs[s, test] = table.predict(said[test, s], sure[test, s])
        self.pools_, known = {}, {0: self._known_by(said, sure)(0)}
        for some in _subsets(n_services):
            own = _members(some)
            self.pools_[some] = Pool.fit(logs[own], sure[:, own], codes, self.random_state)
            known[some] = _Known.of(some, self.pools_[some].predict(logs[own]), said, sure)
        self.policies_ = self._policies(codes, folds, known)
        return self

    def run(
        self,
        answers: Any,
        confidence: Any,
        *,
        mistake: float | None = None,
        budget: float | None = None,
    ) -> CascadeRun:
        """Run the cascade on rows with stored answers; answers of services that are not asked are ignored.

        If the next answer is missing, all answers of the row are used, and the result says whom to ask if these do not
        suffice.

        Parameters
        ----------
        answers, confidence
            As for :meth:`fit`; None or NaN for calls that were not made.
        mistake, budget : float, optional
            Other than those of the constructor; nothing is fitted again.
        """
        check_is_fitted(self, "policies_")
        said, sure, given = self._read(answers, confidence)
        known, there = self._known_by(said, sure), given @ (1 << np.arange(given.shape[1]))
        at, ask = np.zeros((2, len(said)), dtype=np.int64)
        cheap, dear, share = self._mixture(mistake, budget)
        drawn = np.random.RandomState(self.random_state).permutation(len(said)) < int(share * len(said))
        for policy, rows in ((cheap, ~drawn), (dear, drawn)):
            if rows.any():
                at[rows], ask[rows] = (found[rows] for found in _follow(policy.cuts, there, known))
        asked, names = self._asked(at)[:, : given.shape[1]], np.array([*self.services, HUMAN, None], dtype=object)
        label, proba = (_by_set(at, known, name) for name in ("label", "proba"))
        spent = asked @ self.prices_[: given.shape[1]]
        texts, unknown = by_name(answers, list(self.services)), asked & (said == len(self.classes_))
        reason: Objects = np.full(len(said), None, dtype=object)
        for row in np.flatnonzero(unknown.any(axis=1)).tolist():
            strange = [f"{names[s]} says {shown(texts[row, s])}" for s in np.flatnonzero(unknown[row])]
            reason[row] = f"not one of the classes: {', '.join(strange)}"
        return CascadeRun(self.classes_[label.astype(np.int64)], asked, spent, proba, names[ask], reason)

    def next(
        self,
        answers: AnyMapping,
        confidences: Mapping[str, float],
        *,
        mistake: float | None = None,
        budget: float | None = None,
    ) -> NextCall:
        """Return the service to ask next about one row, or the answer.

        One row cannot mix two policies: with a budget, the most accurate policy within the budget is used.

        Parameters
        ----------
        answers, confidences : mapping
            Answers and confidences of the services asked so far, by their names; both are empty at first.
        mistake, budget : float, optional
            Other than those of the constructor.
        """
        for name in (*answers, *confidences):
            if name not in self.services:
                raise InputError(
                    f"there is no service {name!r}: the services are {', '.join(map(repr, self.services))}."
                )
        said = np.array([[answers.get(name) for name in self.services]], dtype=object)
        sure = np.array([[confidences.get(name) for name in self.services]], dtype=object)
        found = self.run(said, sure, mistake=mistake, budget=budget)
        service, (label,) = found.ask[0], found.label.tolist()
        decision, answer = ("answer", label) if service is None else ("ask", None)
        return NextCall(decision, service, answer, float(found.confidence[0]), float(found.spent[0]), found.reason[0])

    def combine(self, answers: Any, confidence: Any) -> AnyArray:
        """Return the likeliest class of each row given the answers of all services, as for :meth:`fit`."""
        said, sure, _ = self._read(answers, confidence, whole=True)
        found: AnyArray = self.classes_[self._known_by(said, sure)((1 << len(self.services)) - 1).label]
        return found

    def certify(
        self,
        answers: Any,
        confidence: Any,
        y: ArrayLike | None = None,
        *,
        within: float = 0.01,
        budget: float | None = None,
        delta: float = 0.05,
    ) -> Self:
        """Choose a policy with a guarantee on rows that ``fit`` has not seen; ``run`` and ``next`` then use it.

        With labels, it is the cheapest whose accuracy is guaranteed to be close to that of the best service: with
        probability at least 1 - delta over these rows, its accuracy on new rows is at least that of every service minus
        ``within``. Policies are tested from the most accurate to the cheapest, until one fails (fixed-sequence
        testing). Each is compared with each service by exact binomial bounds on the share of rows on which only one of
        the two is right.

        With a budget, it is the most accurate policy that is guaranteed to stay within it: with probability at least 1
        - delta over these rows, the mean amount spent on new rows is at most the budget. Policies and mixtures of two
        are tested from the cheapest up, by betting on the mean of a bounded amount.

        Parameters
        ----------
        answers, confidence, y
            Rows that ``fit`` has not seen; a budget needs no labels.
        within : float, default 0.01
        budget : float, optional
        delta : float, default 0.05

        Raises
        ------
        NoGuaranteeError
            If no policy can be certified.
        """
        said, sure, _ = self._read(answers, confidence, whole=True)
        known, n = self._known_by(said, sure), len(said)
        check_share("delta", delta, closed=False)
        if budget is not None:
            self.certified_ = self._within_budget(budget, delta, n, known)
            return self
        if y is None:
            raise InputError("give the labels y, to certify an accuracy, or a budget.")
        labels, certified = np.array(y, dtype=object), None
        _check_length(n, labels)
        codes = class_numbers(labels, self.classes_)
        # Compared by their names: a label that fit has not seen has no number, but a service may answer it.
        alone = by_name(answers, list(self.services)) == labels[:, None]
        for policy in reversed(self.policies_):
            at = _follow(policy.cuts, np.full(n, _ALL), known)[0]
            own = self._right(at, codes, known)
            lost = (alone & ~own[:, None]).sum(axis=0)
            won = (~alone & own[:, None]).sum(axis=0)
            behind = upper_bound(lost, n, delta / 2) - (1 - upper_bound(n - won, n, delta / 2))
            if not (behind <= within).all():
                break
            certified = policy
        if certified is None:
            raise NoGuaranteeError(
                f"no policy is within {within:g} of the best service with probability {1 - delta:g}, on {n} rows; give "
                "more rows, or a larger within."
            )
        self.certified_ = certified, certified, 0.0
        return self

    def _within_budget(self, budget: float, delta: float, n_rows: int, known: _KnownBy) -> tuple[Policy, Policy, float]:
        """Return two policies, and the share of the second, whose mean cost is certified to be within the budget."""
        ends = [_follow(policy.cuts, np.full(n_rows, _ALL), known)[0] for policy in self.policies_]
        spent = [self._asked(at) @ self.prices_ for at in ends]
        largest, certified = float(self.prices_.sum()) - budget, None
        for step in range(8 * len(spent)):
            place, share = step // 8, step % 8 / 8
            dearer = min(place + 1, len(spent) - 1)
            mean = (1 - share) * spent[place] + share * spent[dearer]
            if not (largest <= 0 or mean_p_value(mean - budget, largest) <= delta):
                break
            certified = self.policies_[place], self.policies_[dearer], share
        if certified is None:
            raise NoGuaranteeError(
                f"no policy keeps the budget {budget:g} with probability {1 - delta:g}, on {n_rows} rows: the cheapest "
                f"costs {self.policies_[0].cost:g} per row; give more rows, or a larger budget."
            )
        return certified

    def _read(self, answers: Any, confidence: Any, whole: bool = False) -> tuple[Ints, Floats, Mask]:
        """Return numbers of the answers, n_classes for one that is not a class, confidences, and which are given.

        ``whole`` says that every service must have answered every row.
        """
        names = list(self.services)
        table, level = by_name(answers, names), by_name(confidence, names, "confidence")
        if table.shape != level.shape:
            raise InputError(f"confidence must have the shape of answers, {table.shape}, got {level.shape}.")
        said = class_numbers(table, self.classes_)
        given = said >= 0
        for row, s in np.argwhere(~given)[:whole].tolist():
            raise InputError(
                f"row {row + 1:,} has no answer of {names[s]!r}; every service must have answered each row."
            )
        sure = numbers("confidences", np.where(given, level, 0.0), level.shape)
        for row, s in np.argwhere(~np.isfinite(sure)).tolist():
            raise InputError(
                f"row {row + 1:,} has an answer of {names[s]!r} and the confidence {sure[row, s]:g}: "
                "give every answer a finite confidence, a constant if there is none."
            )
        return np.where(given, said, len(self.classes_)), sure, given

    def _known_by(self, said: Ints, sure: Floats) -> _KnownBy:
        """Return the conclusions from the answers of a set of services, computed at first use."""

        @cache
        def known(some: ServiceSet) -> _Known:
            own = _members(some)
            if not own:  # before the first question
                return _Known.of(some, np.tile(self.shares_, (len(said), 1)), said, sure)
            logs = np.array([self.tables_[s].predict(said[:, s], sure[:, s]) for s in own])
            return _Known.of(some, self.pools_[some].predict(logs, sure[:, own]), said, sure)

        return known

    def _asked(self, at: Ints) -> Mask:
        return (at[:, None] >> np.arange(len(self.prices_)) & 1).astype(bool)

    def _right(self, at: Ints, y: Ints, known: _KnownBy) -> Mask:
        """Return which answers are right; those of the human always are."""
        person = 1 << len(self.services)
        return np.asarray((_by_set(at % person, known, "label") == y) | (at >= person))

    def _policies(self, y: Ints, folds: list[Fold], known: Mapping[ServiceSet, _Known]) -> list[Policy]:
        """Return the cheapest policy, and the best for each trade-off between cost and accuracy.

        Their costs and accuracies are out-of-fold estimates.
        """
        found: list[Policy] = []
        dearest, everyone = float(self.prices_.max()) or 1.0, np.arange(len(y))
        # for rows whose calls were made in another order than the policy's
        other = self._best_cuts(1 / self.mistake, everyone, y, known) if self.mistake else {}
        for rate in (np.r_[0.0, np.logspace(-4, 2, 49)] / dearest).tolist():
            cuts = self._best_cuts(rate, everyone, y, known)
            apart = [self._best_cuts(rate, train, y, known) for train, _ in folds]
            for first in range(len(self.prices_)):
                start: Cuts = {0: (np.full(len(self.classes_), np.inf), np.full(len(self.classes_), first))}
                at = np.empty(len(y), dtype=np.int64)
                for own, (_, test) in zip(apart, folds, strict=True):
                    at[test] = _follow(start | own, np.full(len(y), _ALL), known.__getitem__)[0][test]
                right = self._right(at, y, known.__getitem__)
                spent = self._asked(at) @ self.prices_
                after_first = {some: own for some, own in cuts.items() if some >> first & 1}
                found.append(Policy(float(spent.mean()), float(right.mean()), start | cuts | other | after_first))
        found.sort(key=lambda policy: (policy.cost, -policy.accuracy))
        cost, accuracy = np.array([(policy.cost, policy.accuracy) for policy in found]).T
        rates = np.r_[0.0, np.logspace(-6, 4, 5000)] / dearest
        best = {0, *np.argmax(accuracy - rates[:, None] * cost, axis=1).tolist()}
        return [found[place] for place in sorted(best)]

    def _best_cuts(self, rate: float, rows: Ints, y: Ints, known: Mapping[ServiceSet, _Known]) -> Cuts:
        """Return the cuts that were best on these rows, where a unit of money is worth ``rate`` right answers.

        The largest sets come first, so that the value of a further question includes those that follow it.
        """
        worth: dict[ServiceSet, Floats] = {}
        cuts: Cuts = {}
        certain = np.ones(len(rows))  # after the human
        subsets = _subsets(len(self.services))
        for some in reversed(subsets):
            case, level = known[some].case[rows], known[some].level[rows]
            worth[some] = (known[some].label[rows] == y[rows]).astype(np.float64)
            levels, following = (np.full(len(self.classes_) + 1, none) for none in (-np.inf, -1))
            others = _members(~some & (1 << len(self.prices_)) - 1)
            asking = {s: worth.get(some | 1 << s, certain) - rate * self.prices_[s] for s in others}
            for each in range(len(self.classes_) + 1):
                own = np.flatnonzero(case == each)
                if not len(own):  # no row has this case: ask if that is better than the most frequent class
                    gains = {s: after.mean() - self.shares_.max() for s, after in asking.items()}
                    if max(gains.values(), default=0.0) > 0:
                        levels[each], following[each] = np.inf, max(gains, key=lambda s: gains[s])
                    continue
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
        return {some: cuts[some] for some in subsets}

    def _mixture(self, mistake: Any, budget: Any) -> tuple[Policy, Policy, float]:
        """Return two policies, and the share of the rows that are run by the second."""
        if mistake is None and budget is None:
            if self.certified_ is not None:
                return self.certified_
            mistake, budget = self.mistake, self.budget
        for name, value in (("mistake", mistake), ("budget", budget)):
            if value is not None and not 0 <= numbers(name, value, ()) < np.inf:
                raise InputError(f"{name} must be a finite number of at least 0, got {value!r}.")
        if (mistake is None) == (budget is None):
            raise InputError("give either mistake, the cost of a mistake, or budget, the amount to spend per row.")
        if budget is None:
            best = max(self.policies_, key=lambda one: (mistake * one.accuracy - one.cost, one.accuracy))
            return best, best, 0.0
        costs = np.array([policy.cost for policy in self.policies_])
        above = int(np.searchsorted(costs, budget * (1 + 1e-12), side="right"))
        if above == 0:
            raise InputError(f"the cheapest service costs {costs[0]:g}, more than the budget {budget:g}.")
        cheap, dear = self.policies_[above - 1], self.policies_[min(above, len(costs) - 1)]
        return cheap, dear, (budget - cheap.cost) / (dear.cost - cheap.cost) if dear is not cheap else 0.0


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
            near = (prior + np.eye(n_classes)[answer]) / 2 if answer < n_classes else prior
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
        """Return the log-probability of each class, given each row's answer."""
        found = np.empty((len(said), self.logs[0].shape[1]))
        for answer, (cuts, logs) in enumerate(zip(self.edges, self.logs, strict=True)):
            own = said == answer
            found[own] = logs[np.searchsorted(cuts, sure[own], side="left")]
        return found


@dataclass(frozen=True, eq=False)
class Pool:
    """Class probabilities from the answers of several services: the mean of a logistic regression and a forest.

    Their inputs are the confidences, and the logarithms of the class frequencies given each answer. The forest models
    errors that the services share, and needs many rows. A single service has the class frequencies of its table.
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


def _follow(policy_cuts: Cuts, given: Ints, known: _KnownBy) -> tuple[Ints, Ints]:
    """Return the set of services that is used for each row, and the service to ask next, -1 for none.

    ``given`` is the set of services that have answered each row. Where the next one has not, all others are used.
    """
    at, ask = np.zeros(len(given), dtype=np.int64), np.full(len(given), -1)
    n_services = max(policy_cuts).bit_length()
    for some, (levels, following) in policy_cuts.items():  # from the smallest set to the largest
        rows = np.flatnonzero(at == some)
        if not len(rows) or following.max() < 0:
            continue
        case, level = known(some).case[rows], known(some).level[rows]
        wanted = np.where(level <= levels[case], following[case], -1)
        rows, wanted = rows[wanted >= 0], wanted[wanted >= 0]
        there, bit = given[rows], 1 << wanted
        others = np.where(wanted < n_services, there & ~some, 0)  # no service replaces the human
        more = np.where(there & bit, bit, others)
        at[rows] |= more
        ask[rows[more == 0]] = wanted[more == 0]
    return at, ask


def _by_set(at: Ints, known: _KnownBy, name: str) -> Floats:
    """Return a field of ``_Known`` for each row, such as its label, from the set of services used for it."""
    found = np.zeros(len(at))
    for some in np.unique(at).tolist():
        rows = at == some
        found[rows] = getattr(known(some), name)[rows]
    return found


def _check_length(n_rows: int, y: AnyArray) -> None:
    if len(y) != n_rows:
        raise InputError(f"answers has {n_rows:,} rows, and y has {len(y):,}.")


def _subsets(n_services: int) -> list[ServiceSet]:
    """Return all sets of services but the empty one, smaller ones first."""
    return sorted(range(1, 1 << n_services), key=int.bit_count)


def _members(some: ServiceSet) -> list[int]:
    """Return the numbers of the services in a set.

    Examples
    --------
    >>> _members(5)
    [0, 2]
    """
    return [s for s in range(int(some).bit_length()) if some >> s & 1]
