"""Experts: their prices and their answers, and the base class of estimators that ask them."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight

from demur.array_types import AnyArray, ByName, Estimator, Features, Floats, Ints, Objects
from demur.deferral.capacity import Capacity, first_best
from demur.errors import InputError, InputTypeError
from demur.estimators.base import checked_labels
from demur.rules import Decision

MODEL = "model"
"""The entry of ``route`` for rows that the model answers."""


@dataclass(frozen=True)
class Expert:
    """A source of answers that can replace the model's: a person, a team, a service, another model.

    Parameters
    ----------
    price : float
        Price of one question; one wrong answer costs 1.
    accuracy : float, optional
        Share of right answers of the expert, if it is known beforehand; 1 for an expert who is always right. By default
        ``fit`` learns it from answers.
    model : classifier, optional
        Classifier that predicts from the features whether the expert is right; by default a clone of the wrapped
        classifier.

    Examples
    --------
    >>> Expert(0.05)
    Expert(price=0.05, accuracy=None, model=None)
    >>> Expert(-1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the price of asking must be a finite number of at least 0, got -1.
    """

    price: float
    accuracy: float | None = None
    model: Estimator = None

    def __post_init__(self) -> None:
        if not 0 <= numbers("the price of asking", self.price, ()) < np.inf:
            raise InputError(f"the price of asking must be a finite number of at least 0, got {self.price!r}.")
        if self.accuracy is not None and not 0 <= numbers("accuracy", self.accuracy, ()) <= 1:
            raise InputError(f"accuracy must be in [0, 1], got {self.accuracy!r}.")


@dataclass(frozen=True, eq=False)
class Votes:
    """Counts of votes, for answers that were stored as counts.

    Parameters
    ----------
    counts : array of shape (n_rows, n_classes)
        Number of people who chose each class, in the order of the sorted classes.

    Examples
    --------
    >>> Votes([[3, 1], [0, 5]])
    Votes(counts=[[3, 1], [0, 5]])
    """

    counts: Any


class Ballots(NamedTuple):
    """The answers of all experts, as counts.

    Parameters
    ----------
    counts : array of shape (n_rows, n_experts, n_classes)
        Number of answers of each class.
    answer : array of int, shape (n_rows, n_experts)
        The number of the class that counts as each expert's answer; -1 for a gap.
    """

    counts: Floats
    answer: Ints

    def right(self, y: Ints) -> Floats:
        """Return the share of right answers, of shape (n_rows, n_experts), given the classes; NaN for a gap."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.counts[np.arange(len(y)), :, y] / self.counts.sum(axis=2))


def read_experts(experts: Any) -> dict[str, Expert]:
    """Read the experts from a mapping of names to prices or to :class:`Expert`.

    Examples
    --------
    >>> read_experts({"nurse": 0.05})
    {'nurse': Expert(price=0.05, accuracy=None, model=None)}
    """
    if not isinstance(experts, Mapping) or not experts or not all(isinstance(name, str) for name in experts):
        raise InputTypeError(
            f'experts must be a mapping from names to prices, such as {{"nurse": 0.05}}, got {experts!r}.'
        )
    if MODEL in experts:
        raise InputError(f"an expert cannot be called {MODEL!r}, the name of the classifier itself; rename it.")
    return {
        name: one if isinstance(one, Expert) else Expert(float(numbers(f"the price of {name!r}", one, ())))
        for name, one in experts.items()
    }


def check_prices(prices: Any, experts: Mapping[str, Expert], n_rows: int) -> Floats:
    """Return the price of each expert on each row, of shape (n_rows, n_experts).

    Parameters
    ----------
    prices : None, mapping, or array
        None for the experts' own; a mapping from some of their names to a number or one per row; an array of one price
        per expert, or of shape (n_rows, n_experts). Infinity is for an expert who cannot be asked.
    experts : mapping
    n_rows : int

    Examples
    --------
    >>> check_prices({"nurse": [0.1, np.inf]}, {"nurse": Expert(0.05), "doctor": Expert(0.2)}, 2)
    array([[0.1, 0.2],
           [inf, 0.2]])
    """
    names = list(experts)
    found = np.tile(np.array([one.price for one in experts.values()], dtype=np.float64), (n_rows, 1))
    if isinstance(prices, Mapping):
        for name, price in prices.items():
            if name not in experts:
                raise InputError(f"a price was given for {name!r}; the experts are {', '.join(names)}.")
            found[:, names.index(name)] = numbers(f"the price of {name!r}", price, (), (n_rows,))
    elif prices is not None:
        found[:] = numbers("prices", prices, (len(experts),), (n_rows, len(experts)))
    if not (found >= 0).all():
        row, column = np.argwhere(~(found >= 0))[0]
        raise InputError(
            f"the price of {names[column]!r} in row {row + 1} is {found[row, column]:g}; give a number of at "
            "least 0, or infinity for an expert who cannot be asked."
        )
    return found


def read_answers(
    answers: Any, experts: Mapping[str, Expert], classes: AnyArray, n_rows: int, to_learn: Sequence[str] = ()
) -> Ballots:
    """Read the answers of the experts; refuse answers that are not classes, and experts that are named like a class.

    Parameters
    ----------
    answers : array of shape (n_rows, n_experts), table or mapping
        A column for each expert, in their order, with a gap (NaN, None, an empty string or a masked entry) where an
        expert has not seen the row. A table has columns of the experts' names. A mapping from names may also hold an
        array of shape (n_rows, n_people), for several people behind one expert, or :class:`Votes`.
    experts : mapping
    classes : array
    n_rows : int
    to_learn : sequence of str
        The experts that must have at least one answer.

    Examples
    --------
    >>> ballots = read_answers([["a"], [None]], {"nurse": Expert(0.1)}, np.array(["a", "b"]), 2)
    >>> ballots.answer.ravel(), ballots.counts[:, 0]
    (array([ 0, -1]), array([[1., 0.], [0., 0.]]))
    """
    for name in experts.keys() & set(classes.tolist()):
        raise InputError(f"the expert {name!r} is named like a class; give the expert another name.")
    columns = _columns_by_expert({} if answers is None else answers, list(experts))
    counts = np.zeros((n_rows, len(experts), len(classes)))
    answer = np.full((n_rows, len(experts)), -1, dtype=np.int64)
    one_vote = np.eye(len(classes) + 1)[:, :-1]  # the last row, also number -1, is a gap
    for number, name in enumerate(experts):
        given = columns.get(name)
        if isinstance(given, Votes):
            votes, shape = np.asarray(given.counts, dtype=np.float64), (n_rows, len(classes))
            if votes.shape != shape or not np.isfinite(votes).all() or (votes < 0).any():
                raise InputError(
                    f"the votes of {name!r} must be counts of shape {shape}, rows by classes: finite, at least 0."
                )
            counts[:, number] = votes
            answer[:, number] = np.where(votes.any(axis=1), votes.argmax(axis=1), -1)
        elif given is not None:
            codes = _codes(name, given, classes, n_rows)
            counts[:, number] = one_vote[codes].sum(axis=1)
            answer[:, number] = codes[np.arange(n_rows), (codes >= 0).argmax(axis=1)]
        if name in to_learn and not counts[:, number].any():
            raise InputError(
                f"there is no answer of the expert {name!r} to learn from; give answers=, leave the expert out, or "
                "give an Expert with a known accuracy."
            )
    return Ballots(counts, answer)


def _columns_by_expert(answers: Any, names: list[str]) -> ByName:
    if isinstance(answers, Mapping):
        unknown = [name for name in answers if name not in names]
        if unknown:
            raise InputError(f"answers of {unknown[0]!r} were given; the experts are {', '.join(names)}.")
        return dict(answers)
    return dict(zip(names, by_name(answers, names).T, strict=True))


def by_name(values: Any, names: list[str], what: str = "answers") -> Objects:
    """Return an array of objects with a column for each name, from an array, a table or a mapping.

    Examples
    --------
    >>> by_name({"b": [1, 2], "a": ["x", None]}, ["a", "b"])
    array([['x', 1],
           [None, 2]], dtype=object)
    """
    columns = getattr(values, "column_names", None) or getattr(values, "columns", values)
    if columns is not values or isinstance(values, Mapping):
        missing = [name for name in names if name not in columns]
        if missing:
            raise InputError(f"{what} has no column {missing[0]!r}; its columns are {', '.join(map(str, columns))}.")
        return np.column_stack([_as_objects(values[name]) for name in names])
    table = _as_objects(values)
    table = table.reshape(-1, 1) if table.ndim == len(names) == 1 else table
    if table.ndim != 2 or table.shape[1] != len(names):
        raise InputError(f"{what} must have shape (n_rows, {len(names)}), for {', '.join(names)}; got {table.shape}.")
    return table


def _codes(name: str, given: Any, classes: AnyArray, n_rows: int) -> Ints:
    """Return class numbers of shape (n_rows, n_people), -1 for gaps."""
    labels = _as_objects(given)
    labels = labels.reshape(-1, 1) if labels.ndim == 1 else labels
    if labels.ndim != 2 or len(labels) != n_rows:
        raise InputError(
            f"the answers of {name!r} must have shape ({n_rows},) or ({n_rows}, n_people), got {labels.shape}."
        )
    codes = class_numbers(labels, classes)
    for row, person in np.argwhere(codes == len(classes)).tolist():
        known = ", ".join(map(repr, classes[:8].tolist())) + ", ..." * (len(classes) > 8)
        raise InputError(
            f"the answer {labels[row, person]!r} of {name!r} in row {row + 1} is not among the classes {known}; leave "
            "a gap (NaN or None) where an expert gave no answer."
        )
    return codes


def class_numbers(answers: Objects, classes: AnyArray) -> Ints:
    """Return the number of the class of each answer; -1 for a gap, and K for an answer that is not a class.

    Examples
    --------
    >>> class_numbers(np.array(["b", None, "c"], dtype=object), np.array(["a", "b"]))
    array([ 1, -1,  2])
    """
    number_of = {label: number for number, label in enumerate(classes.tolist())}

    def number(answer: Any) -> int:
        return number_of.get(answer, -1 if is_gap(answer) else len(number_of))

    return np.asarray(np.frompyfunc(number, 1, 1)(answers), dtype=np.int64)


def _as_objects(values: Any) -> Objects:
    """Return an array of objects, in which a gap among names stays a gap: NumPy would convert it to the name "nan"."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    found = np.array(values, dtype=object)
    found[np.ma.getmaskarray(values)] = None
    return found


def is_gap(entry: Any) -> bool:
    """Say whether an entry is a gap: None, NaN, NA or an empty string.

    Examples
    --------
    >>> [is_gap(entry) for entry in (None, float("nan"), "", 0)]
    [True, True, True, False]
    """
    return entry is None or type(entry).__name__ == "NAType" or entry == "" or entry != entry


def numbers(what: str, values: Any, *shapes: tuple[int, ...]) -> Floats:
    """Return numbers of one of these shapes, or refuse them."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputTypeError(f"{what} must be numbers, got {values!r}.") from None
    if found.shape not in shapes:
        raise InputError(f"{what} must have shape {' or '.join(map(str, shapes))}, got {found.shape}.")
    return found


class DeferringClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that may ask experts: :class:`~demur.DeferOption` and :class:`~demur.DeferClassifier`.

    Attributes
    ----------
    classes_ : array
    experts_ : dict
        The experts by name, in the given order.
    reject_label_ : object
        Label that ``predict`` returns if the expert to ask has not answered the row yet.
    """

    __metadata_request__fit: ClassVar = {"answers": True, "groups": True}
    __metadata_request__predict: ClassVar = {"answers": True}
    __metadata_request__score: ClassVar = {"answers": True}

    experts: Any
    experts_: dict[str, Expert]
    classes_: AnyArray
    reject_label_: Any
    has_proba: ClassVar = True
    """Whether there are class probabilities: always."""
    effective_cost: ClassVar = None
    """The price of one rejection; None, because each expert has its own price."""
    cost_adjustable: ClassVar = False
    """Whether ``decide`` accepts another cost: never; it accepts ``prices=`` instead."""
    why_cost_fixed: ClassVar = "it asks experts, each with its own price; change those prices instead"
    """The reason why there is no single cost to change."""

    @abstractmethod
    def _estimates(self, X: Features) -> tuple[Floats, Floats, Floats]:
        """Return the class probabilities, the same given the experts, and P(expert right) for each expert."""

    def decide(self, X: Features, prices: Any = None, capacity: Capacity | None = None) -> Decision[AnyArray]:
        """Decide for each row which class to answer, or which expert to ask.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        prices : mapping or array, optional
            Prices to use instead of the experts' own; nothing is fitted again. A joint loss that is trained for its
            prices refuses others. A mapping from names to a number, or to one per row; or an array of one price per
            expert, or of shape (n_rows, n_experts). Infinity is for an expert who cannot be asked.
        capacity : Capacity, optional
            Limits on the number of questions to each expert: the rows are then assigned together, or one by one if the
            capacity was fitted. It needs probabilities.

        Returns
        -------
        Decision
            ``ask`` holds the number of the expert in ``experts_``, -1 where the model answers; ``costs`` the expected
            cost of every action.
        """
        return self.decide_and_score(X, prices, capacity)[0]

    def decide_and_score(
        self, X: Features, prices: Any = None, capacity: Capacity | None = None
    ) -> tuple[Decision[AnyArray], Floats]:
        """Return the decisions, and the class probabilities that they were made from.

        Parameters
        ----------
        X, prices, capacity
            As for :meth:`decide`.
        """
        _, proba, right = self._estimates(X)
        return self._decide(proba, right, prices, capacity), proba

    def route(self, X: Features, prices: Any = None, capacity: Capacity | None = None) -> NDArray[np.str_]:
        """Return the name of the expert who is to be asked on each row, or "model".

        Parameters
        ----------
        X, prices, capacity
            As for :meth:`decide`.
        """
        names = np.array([*self.experts_, MODEL])
        return names[self.decide(X, prices, capacity).ask]

    def predict(
        self, X: Features, answers: Any = None, prices: Any = None, capacity: Capacity | None = None
    ) -> AnyArray:
        """Return the system's answer: the model's, or the asked expert's.

        Parameters
        ----------
        X, prices, capacity
            As for :meth:`decide`.
        answers : as for :meth:`fit`, optional
            Answers of the experts for these rows. Only the answer of the expert who is asked is used: that of the first
            person who answered if there are several, the most frequent class for votes. If it is missing,
            ``reject_label_`` is returned.
        """
        decision, said, _ = self._answered(X, answers, prices, capacity)
        return replace(decision, label=np.maximum(said, 0), reject=said < 0).labels(self.classes_, self.reject_label_)

    def final_answers(self, X: Features, decision: Decision[AnyArray], answers: Any) -> Ints:
        """Return the class number of the system's answer; -1 if the answer of the expert to ask is missing.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        decision : Decision
            The decision of :meth:`decide` or :class:`~demur.deferral.Capacity` on these rows.
        answers : as for :meth:`predict`
        """
        return self._said(answers, self._estimates(X)[0], decision)

    def predict_proba(self, X: Features) -> Floats:
        """Return the model's class probabilities, corrected by the estimates for model and experts."""
        return self._estimates(X)[1]

    def predict_right(self, X: Features) -> Floats:
        """Return P(expert right) for each row and expert, of shape (n_rows, n_experts).

        With ``combine``, this is the probability that the combined answer is right.
        """
        return self._estimates(X)[2]

    def score(
        self, X: Features, y: ArrayLike, answers: Any = None, sample_weight: ArrayLike | None = None, prices: Any = None
    ) -> float:
        """Return minus the mean cost of the system, prices and mistakes: greater is better.

        Parameters
        ----------
        X, y
        answers : as for :meth:`predict`, optional
            Answers of the experts for these rows. If the answer of the expert to ask is missing, the expected error is
            used.
        sample_weight : array-like, optional
        prices : as for :meth:`decide`
        """
        labels = checked_labels(y)
        decision, said, right = self._answered(X, answers, prices, None)
        if decision.costs is None and (said < 0).any():
            raise InputError(
                "the answers of experts who are asked are missing, and this loss gives no probabilities to "
                "estimate them from; give answers=."
            )
        price = np.column_stack([check_prices(prices, self._priced(), len(labels)), np.zeros(len(labels))])
        rows, asked = np.arange(len(labels)), np.asarray(decision.ask)
        wrong = np.asarray(self.classes_[said] != labels, dtype=np.float64)
        expected = 1 - right[rows, asked]  # where an answer is missing, an expert is asked
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, labels, dtype=np.float64)
        charged = price[rows, asked] + np.where(said < 0, expected, wrong)
        return 0.0 - float(np.average(charged, weights=weight))

    def explain(self) -> str | None:
        """Return a sentence with the experts and their prices."""
        asked = ", ".join(f"{name} at {one.price:g}" for name, one in read_experts(self.experts).items())
        return f"Each row goes where the expected cost is lowest: the model itself, or {asked}; a mistake costs 1."

    def _priced(self) -> dict[str, Expert]:
        """Return the experts with the current prices of the parameter, if the names are the same."""
        now = read_experts(self.experts)
        if set(now) != set(self.experts_):
            raise InputError(
                f"the experts were changed after fit, from {', '.join(self.experts_)} to {', '.join(now)}: fit again, "
                "or give prices to decide."
            )
        return {name: now[name] for name in self.experts_}

    def _answered(
        self, X: Features, answers: Any, prices: Any, capacity: Capacity | None
    ) -> tuple[Decision[AnyArray], Ints, Floats]:
        """Return the decisions, the numbers of the system's answers, and P(expert right)."""
        plain, proba, right = self._estimates(X)
        decision = self._decide(proba, right, prices, capacity)
        return decision, self._said(answers, plain, decision), right

    def _decide(
        self, proba: Floats, right: Floats, prices: Any, capacity: Capacity | None = None
    ) -> Decision[AnyArray]:
        decision = self._best(proba, right - check_prices(prices, self._priced(), len(proba)))
        return decision if capacity is None else capacity.assign(decision, list(self.experts_))

    def _best(self, proba: Floats, worth: Floats) -> Decision[AnyArray]:
        """Return the action of largest value for classes and experts; in a tie the first expert by name."""
        best = first_best(worth, list(self.experts_))
        acceptance = proba.max(axis=1) - worth[np.arange(len(worth)), best]
        reject = ~(acceptance > 0)
        ask, costs = np.where(reject, best, -1), np.column_stack([1 - proba, 1 - worth])
        return Decision(proba.argmax(axis=1), reject, acceptance, acceptance, ask, costs)

    def _said(self, answers: Any, proba: Floats, decision: Decision[AnyArray]) -> Ints:
        """Return the number of the class that the system answers, -1 if the answer of an expert is missing."""
        asked = np.asarray(decision.ask)
        said = np.where(asked < 0, decision.label, -1)
        if answers is None:
            return said
        ballots = read_answers(answers, self.experts_, self.classes_, len(said))
        for number, name in enumerate(self.experts_):
            rows = np.flatnonzero((asked == number) & (ballots.answer[:, number] >= 0))
            said[rows] = self._final_answer(name, ballots.answer[rows, number], proba[rows])
        return said

    def _final_answer(self, name: str, answer: Ints, proba: Floats) -> Ints:
        """Return the system's answer on rows where this expert was asked and gave an answer."""
        return answer
