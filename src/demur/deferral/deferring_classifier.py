"""What the two estimators that ask experts share: who decides, who is asked, what the system answers and costs."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import _check_sample_weight

from demur.array_types import AnyArray, Features
from demur.deferral.capacity import Capacity
from demur.deferral.experts import MODEL, Expert, check_prices, read_answers, read_experts
from demur.errors import InputError
from demur.estimators.base import checked_labels
from demur.rules import Decision

__all__ = ["DeferringClassifier"]

Floats = NDArray[np.float64]


class DeferringClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that may ask experts: :class:`~demur.DeferOption` and :class:`~demur.DeferClassifier`.

    Attributes
    ----------
    classes_ : array
    experts_ : dict
        The experts by name, in the given order.
    reject_label_ : object
        What ``predict`` returns where somebody is to be asked who has not answered yet.
    """

    experts: Any
    experts_: dict[str, Expert]
    classes_: AnyArray
    reject_label_: Any

    @abstractmethod
    def _estimates(self, X: Features) -> tuple[Floats, Floats, Floats]:
        """Return the class probabilities, the same given the experts, and P(expert right) for each expert."""

    def decide(self, X: Features, prices: Any = None, capacity: Capacity | None = None) -> Decision[AnyArray]:
        """Decide for each row: which class, or who is asked.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        prices : mapping or array, optional
            Other prices than the experts' own; nothing is fitted again, unless a joint loss is trained for its prices.
            A mapping from names to a number, or to one
            per row; or an array of one price per expert, or of shape (n_rows, n_experts). Infinity is for an expert who
            cannot be asked.
        capacity : Capacity, optional
            Limits on how much the experts can take: the rows are then assigned together, or one by one if the capacity
            was fitted. It needs probabilities.

        Returns
        -------
        Decision
            ``ask`` holds the number of the expert in ``experts_``, -1 where the model answers; ``costs`` the expected
            cost of every action.
        """
        _, proba, right = self._estimates(X)
        return self._decide(proba, right, prices, capacity)

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
        routed: NDArray[np.str_] = names[self.decide(X, prices, capacity).ask]
        return routed

    def predict(
        self, X: Features, answers: Any = None, prices: Any = None, capacity: Capacity | None = None
    ) -> AnyArray:
        """Return the system's answer: the model's, or the asked expert's.

        Parameters
        ----------
        X, prices, capacity
            As for :meth:`decide`.
        answers : as for :meth:`fit`, optional
            What the experts say to these rows. Only the answer of the expert who is asked is looked at; of several
            people the first who answered, of counted votes the most frequent. Where it is missing, ``reject_label_``
            is returned.
        """
        plain, proba, right = self._estimates(X)
        decision = self._decide(proba, right, prices, capacity)
        said = self._said(answers, plain, decision)
        open_questions = Decision(np.maximum(said, 0), said < 0, decision.acceptance, decision.confidence)
        return open_questions.labels(self.classes_, self.reject_label_)

    def final_answers(self, X: Features, decision: Decision[AnyArray], answers: Any) -> NDArray[np.int64]:
        """Return the position among the classes of the system's answer; -1 where the asked expert's is missing.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        decision : Decision
            Who is asked, as :meth:`decide` or :class:`~demur.deferral.Capacity` has decided on these rows.
        answers : as for :meth:`predict`
        """
        return self._said(answers, self._estimates(X)[0], decision)

    def predict_proba(self, X: Features) -> Floats:
        """Return the model's class probabilities, given what is known about model and experts."""
        return self._estimates(X)[1]

    def predict_right(self, X: Features) -> Floats:
        """Return P(expert right) for each row and expert, of shape (n_rows, n_experts).

        With ``combine`` it is the combined answer that is to be right.
        """
        return self._estimates(X)[2]

    def decision_function(self, X: Features) -> Floats:
        """Return log probabilities, or for two classes the log odds of the second.

        A joint loss without probabilities has the softmax of its scores in their place.
        """
        scores = np.log(np.maximum(self._estimates(X)[1], np.finfo(np.float64).tiny))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(
        self, X: Features, y: ArrayLike, answers: Any = None, sample_weight: ArrayLike | None = None, prices: Any = None
    ) -> float:
        """Return minus the mean cost of the system, prices and mistakes: greater is better.

        Parameters
        ----------
        X, y
        answers : as for :meth:`predict`, optional
            Where the asked expert's answer is missing, the expected number of mistakes counts.
        sample_weight : array-like, optional
        prices : as for :meth:`decide`
        """
        labels = checked_labels(y)
        plain, proba, right = self._estimates(X)
        decision = self._decide(proba, right, prices)
        said = self._said(answers, plain, decision)
        asked = decision.ask
        assert asked is not None
        if decision.costs is None and (said < 0).any():
            raise InputError(
                "the answers of experts who are asked are missing, and this loss has no probabilities to expect them "
                "by; give answers=."
            )
        rows = np.arange(len(labels))
        price = np.append(check_prices(prices, self._priced(), len(labels)), np.zeros((len(labels), 1)), axis=1)
        wrong = np.asarray(self.classes_[np.maximum(said, 0)] != labels, dtype=np.float64)
        charged = price[rows, asked] + wrong
        expected = charged
        if decision.costs is not None:
            expected = decision.costs[rows, np.where(asked < 0, 0, len(self.classes_) + asked)]
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, labels, dtype=np.float64)
        return 0.0 - float(np.average(np.where(said < 0, expected, charged), weights=weight))

    @property
    def has_proba(self) -> bool:
        """Whether there are class probabilities: always."""
        return True

    @property
    def effective_cost(self) -> float | None:
        """The price of one rejection; None, because each expert has one of its own."""
        return None

    @property
    def why_cost_fixed(self) -> str | None:
        """Why there is no one cost to change, in words."""
        return "it asks experts, each at a price of its own; change those prices instead"

    @property
    def cost_adjustable(self) -> bool:
        """Whether one cost decides: never; prices change without another fit, by ``decide(X, prices=...)``."""
        return False

    def explain(self) -> str | None:
        """Say in words who can be asked, and at which price."""
        asked = ", ".join(f"{name} at {one.price:g}" for name, one in read_experts(self.experts).items())
        return f"Each row goes to whoever is expected to cost least: the model itself, or {asked}; a mistake costs 1."

    def _priced(self) -> dict[str, Expert]:
        """Return the experts at the prices of today: those of the parameter, if the names are the same."""
        now = read_experts(self.experts)
        if set(now) != set(self.experts_):
            raise InputError(
                f"the experts were changed after fit, from {', '.join(self.experts_)} to {', '.join(now)}: fit again, "
                "or give prices to decide."
            )
        return {name: now[name] for name in self.experts_}

    def _decide(
        self, proba: Floats, right: Floats, prices: Any, capacity: Capacity | None = None
    ) -> Decision[AnyArray]:
        decision = self._best(proba, right - check_prices(prices, self._priced(), len(proba)))
        return decision if capacity is None else capacity.assign(decision, list(self.experts_))

    def _best(self, proba: Floats, worth: Floats) -> Decision[AnyArray]:
        """Take the action of largest worth, on one scale for classes and experts; ties ask, equal experts by name."""
        by_name = np.argsort(list(self.experts_), kind="stable")
        best = by_name[worth[:, by_name].argmax(axis=1)]
        acceptance = proba.max(axis=1) - worth[np.arange(len(worth)), best]
        reject = ~(acceptance > 0)
        return Decision(
            label=proba.argmax(axis=1),
            reject=reject,
            acceptance=acceptance,
            confidence=acceptance,
            ask=np.where(reject, best, -1),
            costs=np.column_stack([1 - proba, 1 - worth]),
        )

    def _said(self, answers: Any, proba: Floats, decision: Decision[AnyArray]) -> NDArray[np.int64]:
        """Return the number of the class that the system answers, -1 where it waits for an expert."""
        asked = decision.ask
        assert asked is not None
        said = np.where(asked < 0, decision.label, -1)
        if answers is None:
            return said
        ballots = read_answers(answers, self.experts_, self.classes_, len(said))
        for number, name in enumerate(self.experts_):
            rows = np.flatnonzero((asked == number) & (ballots.answer[:, number] >= 0))
            said[rows] = self._final_answer(name, ballots.answer[rows, number], proba[rows])
        return said

    def _final_answer(self, name: str, answer: NDArray[np.int64], proba: Floats) -> NDArray[np.int64]:
        """Return the system's answer on rows where this expert was asked and gave an answer."""
        return answer
