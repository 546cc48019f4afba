"""Evaluation: everything one needs to judge a model with a reject option on labelled rows."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.costs import check_cost
from demur.errors import InputError
from demur.metrics import Interval, RiskCoverage, bootstrap, confusion_matrix
from demur.rules import Decision, check_proba, chow_acceptance
from demur.tabular.by_class import ClassFigures, figures_by_class
from demur.tabular.cases import Case, RowTable, choose_cases
from demur.tabular.counts import Counts, counts_interval, entry
from demur.tabular.evaluation_plain import as_json
from demur.tabular.inputs import check_decision, check_free_cost, sortable
from demur.tabular.label_codes import class_codes, class_names
from demur.tabular.reliability import Reliability
from demur.tabular.words import headline, price, shares

__all__ = ["Evaluation"]

_AREAS = ("aurc", "eaurc", "augrc")


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """How good the decisions on labelled rows are; made by :meth:`of`.

    Parameters
    ----------
    class_names : tuple of str
    true : array of int, shape (n,)
        The position of the true class, or the number of classes for a label that is none of them.
    decision : Decision
        Of NumPy arrays.
    cost : float
    cost_is_free : bool
        Whether Chow's rule decides, so that another cost needs no refit.
    proba : array of shape (n, n_classes), or None
    rule_words : str, or None
        How the rule decides, in a sentence.
    rows : RowTable
        The rows as people know them.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.15, 0.85]]
    >>> decision = Chow(0.3).decide(proba)
    >>> result = Evaluation.of(["a", "a", "b", "a"], decision, classes=["a", "b"], cost=0.3, proba=proba,
    ...                        cost_is_free=True)
    >>> result.risk, result.coverage, round(result.accepted_accuracy, 3)
    (0.325, 0.75, 0.667)
    >>> result.confusion
    array([[1, 1, 1],
           [0, 1, 0]])
    >>> result.sentences()[0]
    'At cost 0.3, the model answers 75.0 % of the rows, 66.7 % of those correctly, and hands on 25.0 %; each 100 rows
    cost 32.5, more than the 25.0 if it answered all.'
    >>> result.at(0.1).coverage
    0.0
    """

    class_names: tuple[str, ...]
    true: NDArray[np.int64]
    decision: Decision[NDArray[Any]]
    cost: float
    cost_is_free: bool = False
    proba: NDArray[np.floating[Any]] | None = None
    rule_words: str | None = None
    rows: RowTable = field(default_factory=RowTable)

    @classmethod
    def of(
        cls,
        y: ArrayLike,
        decision: Decision[Any],
        *,
        classes: ArrayLike,
        cost: float,
        proba: ArrayLike | None = None,
        cost_is_free: bool = False,
        rule_words: str | None = None,
        rows: Any = None,
        row_numbers: Any = None,
    ) -> "Evaluation":
        """Judge decisions on labelled rows.

        Parameters
        ----------
        y : array of shape (n,)
            True labels. One that is not among ``classes`` counts as an error where its row is answered.
        decision : Decision
            What was decided for each row; ``label`` holds positions among the classes.
        classes : array of shape (n_classes,)
        cost : float
            The price of one rejection; one wrong answer costs 1.
        proba : array of shape (n, n_classes), optional
            Missing for models that give no probabilities.
        cost_is_free : bool, default False
            Whether Chow's rule decided on ``decision.confidence`` at ``cost``, so that the cost can move without a
            refit.
        rule_words : str, optional
            How the rule decides, in a sentence.
        rows : mapping of str to sequence, or pyarrow.Table, optional
            The original columns, to show single rows to people.
        row_numbers : sequence of length n, optional
            What to call each row; 1, 2, 3, ... by default.
        """
        prices = check_cost(cost)
        if prices.ndim:
            raise InputError(f"cost must be one number for an evaluation, got shape {prices.shape}.")
        true, names = class_codes(y, classes), class_names(classes)
        found = check_decision(decision, len(true), len(names))
        values = None if proba is None else check_proba(proba)
        if values is not None and values.shape != (len(true), len(names)):
            raise InputError(f"proba must have shape ({len(true)}, {len(names)}), rows by classes, got {values.shape}.")
        if cost_is_free:
            check_free_cost(found, float(prices))
        table = RowTable(rows, row_numbers)
        table.check_length(len(true))
        return cls(names, true, found, float(prices), cost_is_free, values, rule_words, table)

    def at(self, cost: float) -> "Evaluation":
        """Return the evaluation of the same model at another cost, where the cost is free."""
        if not self.cost_is_free:
            raise InputError(f"these decisions are fixed at cost {self.cost:g}; fit or decide again for cost {cost:g}.")
        prices, old = check_cost(cost), self.decision
        if prices.ndim:
            raise InputError(f"cost must be one number for an evaluation, got shape {prices.shape}.")
        decision = Decision.from_acceptance(old.label, chow_acceptance(old.confidence, prices), old.confidence)
        return replace(self, cost=float(prices), decision=decision)

    @property
    def is_priced(self) -> bool:
        """Whether the decisions were made for the cost, so that it is fair to price them by it."""
        return self.cost_is_free or self.rule_words is None

    @property
    def n_rows(self) -> int:
        """The number of labelled rows."""
        return len(self.true)

    @cached_property
    def n_unknown(self) -> int:
        """The number of rows whose label is not one of the model's classes."""
        return int((self.true == len(self.class_names)).sum())

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """Where the answer is wrong, or would be."""
        return np.asarray(self.decision.label != self.true)

    @cached_property
    def counts(self) -> Counts:
        """Rows, answers, wrong answers."""
        accept = ~self.decision.reject
        return Counts(self.n_rows, int(accept.sum()), int((accept & self.wrong).sum()))

    @property
    def risk(self) -> float:
        """The 0-1-c risk: what a row costs on average."""
        return self.counts.risk(self.cost)

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.counts.coverage

    @property
    def accepted_accuracy(self) -> float:
        """The share of right answers among those given; NaN if none was given."""
        return self.counts.accepted_accuracy

    @property
    def risk_if_all_answered(self) -> float:
        """What a row would cost if the model answered everything: its error rate."""
        return float(self.wrong.mean())

    @property
    def risk_if_all_rejected(self) -> float:
        """What a row would cost if everything were handed on: the cost itself."""
        return self.cost

    @cached_property
    def risk_coverage(self) -> RiskCoverage:
        """The risk-coverage curve of the decision's confidence."""
        return RiskCoverage.from_confidence(sortable(self.decision.confidence), self.wrong)

    @cached_property
    def confusion(self) -> NDArray[np.int64]:
        """True classes by answers, rejections last; labels that are no class, if any, have a last row."""
        n_classes = len(self.class_names)
        answers = self.decision.labels(np.arange(n_classes), reject_label=-1)
        counts = confusion_matrix(self.true, answers, labels=np.arange(n_classes + 1))
        matrix = np.delete(counts, n_classes, axis=1)  # no answer is "none of the classes"
        return np.asarray(matrix if self.n_unknown else matrix[:-1], dtype=np.int64)

    @cached_property
    def by_class(self) -> list[ClassFigures]:
        """The figures of each class."""
        return figures_by_class(self.class_names, self.confusion)

    @cached_property
    def answer_confidence(self) -> NDArray[np.floating[Any]]:
        """The probability given to each answer; without probabilities, the decision's confidence."""
        if self.proba is None:
            return np.asarray(self.decision.confidence)
        return np.asarray(np.take_along_axis(self.proba, self.decision.label[:, None], axis=1)[:, 0])

    @cached_property
    def reliability(self) -> Reliability | None:
        """Confidence against accuracy over all rows, answered or not; None without probabilities."""
        return None if self.proba is None else Reliability.from_confidence(self.answer_confidence, ~self.wrong)

    @cached_property
    def figures(self) -> dict[str, Interval]:
        """The headline figures, each with a 95 % bootstrap interval.

        Sorting a large table a thousand times is slow, so that the areas get fewer resamples from 10,000 rows on.
        """
        found = counts_interval(self.decision.reject.astype(np.int64), self.wrong, np.array([self.cost]))
        figures = {name: entry(found, k, 0) for k, name in enumerate(("risk", "coverage", "accepted_accuracy"))}
        figures["risk_if_all_answered"] = bootstrap(np.mean, self.wrong, seed=0)
        areas = bootstrap(
            _areas,
            sortable(self.decision.confidence),
            self.wrong,
            n_resamples=int(np.clip(10_000_000 // self.n_rows, 100, 1000)),
            seed=0,
        )
        return figures | {name: entry(areas, k) for k, name in enumerate(_AREAS)}

    def nearest_border(self, n: int = 20, n_columns: int = 6) -> list[Case]:
        """Return the rejected rows that came nearest to being answered, the nearest first."""
        return choose_cases(self, self.decision.reject, self.decision.acceptance, n, n_columns)

    def worst_mistakes(self, n: int = 20, n_columns: int = 6) -> list[Case]:
        """Return the rows answered wrongly with the most confidence, the most confident first."""
        return choose_cases(self, ~self.decision.reject & self.wrong, self.answer_confidence, n, n_columns)

    def sentences(self) -> list[str]:
        """Say what the choice means, for a reader who has never met a reject option."""
        if self.is_priced:
            sentences = [headline(self.counts, self.cost, int(self.wrong.sum())), price(self.cost)]
        else:
            sentences = [shares(self.counts), str(self.rule_words)]
        if self.n_unknown:
            rows = "1 row has a label" if self.n_unknown == 1 else f"{self.n_unknown:,} rows have labels"
            sentences.append(f"{rows} that the model does not know; such a row counts as an error when answered.")
        return sentences

    def to_json(self) -> dict[str, Any]:
        """Return every figure as plain numbers, strings, lists and dicts, with None where one is undefined."""
        return as_json(self)

    def __repr__(self) -> str:
        return (
            f"Evaluation({self.n_rows:,} rows, {len(self.class_names)} classes, cost={self.cost:g}, "
            f"risk={self.risk:.4g}, coverage={self.coverage:.4g}, accepted_accuracy={self.accepted_accuracy:.4g})"
        )


def _areas(confidence: NDArray[Any], wrong: NDArray[np.bool_]) -> list[float]:
    curve = RiskCoverage.from_confidence(confidence, wrong)
    return [getattr(curve, name) for name in _AREAS]
