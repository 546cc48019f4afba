"""Evaluation: the figures of a model with a reject option on labelled rows."""

import math
import time
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, ByName, FloatArray, Floats, Ints, Mask, Names, Prices
from demur.calibration import TemperatureScaling
from demur.columns.frames import check_columns
from demur.costs import check_cost
from demur.deferral import Capacity
from demur.errors import InputError
from demur.metrics import Interval, RiskCoverage, area_intervals, proportion_interval, risk_interval
from demur.rules import CostMatrix, Decision, Rule, check_proba, chow_acceptance
from demur.tabular.checks import Comparison, compared, findings, ignored_codes, verdict
from demur.tabular.evaluation_figures import (
    AnswerCounts,
    ClassFigures,
    ExpertEvaluation,
    GroupFigures,
    GuaranteeCheck,
    ReliabilityBins,
    check_guarantee,
    cost_words,
    counted,
    figures_by_group,
    json_ready,
    matrix_words,
    mean_of,
    per_hundred,
    percent,
    right_answers,
    shares_in_words,
)
from demur.tabular.table_files import LabelledTable, class_texts, label_text
from demur.tabular.table_model import TableModel, answer_confidence, top_scores

_AT_ONCE = 1 << 22
"""Largest number of scores in memory at once."""

_MOST_COLUMNS = 6
"""Original columns of a row that a report shows."""


@dataclass(frozen=True)
class Case:
    """One row to show in a report.

    Parameters
    ----------
    row : str
        Its number or identifier.
    true, answer : str
        The true class, and the class that was answered or would have been.
    confidence : float
        As :func:`~demur.tabular.table_model.answer_confidence` defines it.
    second : str or None
        The next most probable class.
    second_confidence : float or None
    columns : dict of str to object
        Some of the row's original values.
    """

    row: str
    true: str
    answer: str
    confidence: float
    second: str | None = None
    second_confidence: float | None = None
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Evaluation of decisions on labelled rows; made by :meth:`of` or :func:`evaluate_table`.

    Parameters
    ----------
    class_names : tuple of str
    true : array of int, shape (n,)
        The position of the true class, or the number of classes for a label that is none of them.
    decision : Decision
        The decisions, as NumPy arrays.
    cost : float or None
        Cost of one rejection; None if there is no single cost.
    cost_adjustable : bool
        Whether Chow's rule decides, so that another cost needs no refit.
    top : array of shape (n, 3), or None
        The probability of each row's label, the position of the next most probable class, and its probability; None for
        models without probabilities. :meth:`of` finds them in ``proba``.
    explanation : str, or None
        Description of the rule in a sentence.
    rows : pyarrow.Table, or None
        The original columns, to show single rows in a report; :meth:`of` accepts everything that ``pyarrow.table``
        does.
    row_numbers : sequence of length n, or None
        The name of each row; 1, 2, 3, ... by default.
    why_cost_fixed : str, or None
        Why another cost needs a refit.
    rule : Rule, or None
        The fitted rule that decided: a :class:`~demur.CostMatrix` determines the costs of the rows, and a guarantee is
        compared with the rows.
    n_unlabelled : int
        Rows that were left out because they have no label.
    group : str, or None
        The name of the column with the groups, which are also evaluated separately.
    group_of_row : sequence of str, length n
        The group of each row, or None.
    asking : ExpertEvaluation, or None
        Evaluation of the experts, if the model can ask any; for rejected rows an expert is then asked.
    outside : array of bool, or None
        Which rows are labelled out of scope: any answer to them is wrong. :meth:`of` takes the label, ``out_of_scope``.
    single : tuple of str and Decision, or None
        The best single model of a blend, by its log loss in training, and its decisions on the same rows.
    starved : str or None
        Sentence about the training that the time budget cut short or left out.
    false_alarms : tuple of float, or None
        The parameters of the beta distribution of the rate at which ordinary rows are declined as novel.
    importances : dict of str to Interval
        Increase of the cost per row if the values of a column are permuted at random. The most important column comes
        first. Empty unless requested.
    ignored : collection of str
        Codes of the checks to leave out.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.15, 0.85]]
    >>> decision = Chow(0.3).decide(proba)
    >>> result = Evaluation.of(["a", "a", "b", "a"], decision, classes=["a", "b"], cost=0.3, proba=proba,
    ...                        cost_adjustable=True)
    >>> result.risk, result.coverage, round(result.accepted_accuracy, 3)
    (0.325, 0.75, 0.667)
    >>> result.confusion
    array([[1, 1, 1],
           [0, 1, 0]])
    >>> result.headline()
    'At cost 0.3, the model answers 75.0 % of the rows, 66.7 % of those correctly, and declines 25.0 %; each 100 rows
    cost 32.5.'
    >>> result.at(0.1).coverage
    0.0
    """

    class_names: tuple[str, ...]
    true: Ints
    decision: Decision[AnyArray]
    cost: float | None
    cost_adjustable: bool = False
    top: FloatArray | None = None
    explanation: str | None = None
    rows: pa.Table | None = None
    row_numbers: Sequence[object] | AnyArray | None = None
    why_cost_fixed: str | None = None
    rule: Rule | None = None
    n_unlabelled: int = 0
    group: str | None = None
    group_of_row: Sequence[str | None] = ()
    asking: ExpertEvaluation | None = None
    outside: Mask | None = None
    single: tuple[str, Decision[AnyArray]] | None = None
    starved: str | None = None
    false_alarms: tuple[float, float] | None = None
    importances: Mapping[str, Interval] = field(default_factory=dict)
    ignored: Names = ()

    @classmethod
    def of(
        cls,
        y: ArrayLike,
        decision: Decision[Any],
        *,
        classes: ArrayLike,
        cost: float | None = None,
        proba: ArrayLike | None = None,
        **more: Any,
    ) -> "Evaluation":
        """Evaluate decisions on labelled rows.

        Parameters
        ----------
        y : array of shape (n,)
            True labels. A row whose label is not among ``classes`` counts as an error if it is answered.
        decision : Decision
            Decision for each row; ``label`` holds positions among the classes.
        classes : array of shape (n_classes,)
        cost : float, optional
            Cost of one rejection; a wrong answer costs 1. Leave it out if the rule has no single cost.
        proba : array of shape (n, n_classes), optional
            Class probabilities; None for models without probabilities.
        **more
            Further fields of the class, such as ``rows`` and ``cost_adjustable``.
        """
        price, label = None if cost is None else float(check_cost(cost)), label_text(more.pop("out_of_scope", None))
        labels, names = _texts(y), _texts(classes)
        outside = np.array([one == label is not None for one in labels], dtype=bool)
        true = _class_codes(labels, names, outside)
        found = _checked(decision, len(true), len(names))
        values = None if proba is None else check_proba(proba)
        if values is not None:
            if values.shape != (len(true), len(names)):
                raise InputError(f"proba must have shape {(len(true), len(names))}, got {values.shape}.")
            more["top"] = top_scores(values, found.label)
        rows = more.pop("rows", None)
        more |= {"rows": None if rows is None else pa.table(rows), "outside": None if label is None else outside}
        return cls(tuple(map(str, names)), true, found, price, **more)

    def at(self, cost: float) -> "Evaluation":
        """Return the evaluation of the same model at another cost, if the cost is adjustable."""
        if not self.cost_adjustable:
            raise InputError(f"these decisions do not follow the cost: fit or decide again for cost {cost:g}.")
        price, old = float(check_cost(cost)), self.decision
        new = Decision.from_acceptance(old.label, chow_acceptance(old.confidence, np.asarray(price)), old.confidence)
        decision = replace(new, novel=old.novel, in_scope=old.in_scope)
        return replace(self, cost=price, decision=decision, single=None, importances={})

    @property
    def n_rows(self) -> int:
        """The number of labelled rows."""
        return len(self.true)

    @cached_property
    def n_unknown(self) -> int:
        """The number of rows whose label is neither one of the model's classes nor out of scope."""
        outside = np.False_ if self.outside is None else self.outside
        return int(((self.true == len(self.class_names)) & ~outside).sum())

    @cached_property
    def scope(self) -> ByName | None:
        """Rows in and out of scope: their numbers, accuracy in scope, and how well out-of-scope rows are detected.

        ``auroc`` is the probability that a row in scope has a higher probability of being in scope (or a higher
        confidence, where there is no such probability) than one out of scope; None without rows of both
        kinds. None altogether without a label for out-of-scope rows.
        """
        if self.outside is None:
            return None
        from sklearn.metrics import roc_auc_score

        outside, n_outside = self.outside, int(self.outside.sum())
        both = 0 < n_outside < self.n_rows
        score = self.decision.confidence if self.decision.in_scope is None else self.decision.in_scope
        return {
            "n_out_of_scope": n_outside,
            "n_declined": int((outside & self.decision.reject).sum()),
            "accuracy_in_scope": proportion_interval(int((~outside & ~self.wrong).sum()), self.n_rows - n_outside),
            "auroc": float(roc_auc_score(~outside, _sortable(score))) if both else None,
        }

    @cached_property
    def wrong(self) -> Mask:
        """Mask of the rows whose first choice is wrong, answered or not."""
        return np.asarray(self.decision.label != self.true)

    def paid(self, cost: float) -> Floats:
        """Return the cost of each row: 0 for a right answer, 1 for a wrong one, ``cost`` if it is declined."""
        return np.where(self.decision.reject, cost, self.wrong.astype(np.float64))

    def costs_of(self, decision: Decision[AnyArray], rows: Any = slice(None)) -> Any:
        """Return the cost of each of these rows under a decision; None if the rule has no cost.

        A row whose label has no price in a cost matrix costs NaN.
        """
        true, matrix = self.true[rows], self.cost_matrix
        if self.asking is not None:
            return self.asking.costs[rows]
        if matrix is not None:
            priced = np.vstack([matrix, np.full(matrix.shape[1], np.nan)])
            return priced[true, np.where(decision.reject, len(self.class_names), decision.label)]
        return None if self.cost is None else np.where(decision.reject, self.cost, 1.0 * (decision.label != true))

    @cached_property
    def compared(self) -> list[Comparison]:
        """The decisions compared with answering and declining every row, and with the best single model of a blend."""
        return compared(self)

    @cached_property
    def findings(self) -> list[dict[str, str]]:
        """Findings of the checks, problems first: code, severity, title, found and advice."""
        return findings(self)

    @property
    def verdict(self) -> list[str]:
        """Whether the model is better than its alternatives, and whether it is calibrated, in sentences."""
        return verdict(self)

    @cached_property
    def counts(self) -> AnswerCounts:
        """Rows, answers, wrong answers."""
        accept = ~self.decision.reject
        return AnswerCounts(self.n_rows, int(accept.sum()), int((accept & self.wrong).sum()))

    @cached_property
    def n_novel(self) -> int | None:
        """The number of rows declined as novel; None where novelty was not checked."""
        return None if self.decision.novel is None else int(self.decision.novel.sum())

    @property
    def risk(self) -> float:
        """The 0-1-c risk, the mean cost of a row; NaN if a rejection has no single price."""
        return math.nan if self.cost is None else self.counts.risk(self.cost)

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
        """The mean cost of a row if every row were answered: the error rate."""
        return float(self.wrong.mean())

    @property
    def cost_matrix(self) -> Floats | None:
        """The cost matrix of the decisions: true class by answer, rejection last."""
        return np.asarray(self.rule.costs, dtype=np.float64) if isinstance(self.rule, CostMatrix) else None

    @cached_property
    def mean_cost(self) -> Interval | None:
        """The mean cost of a row by the cost matrix; None without one. Rows whose label has no costs are left out."""
        if self.cost_matrix is None:
            return None
        costs = self.costs_of(self.decision)
        return mean_of(costs[np.isfinite(costs)], self.cost_matrix)

    @cached_property
    def risk_coverage(self) -> RiskCoverage:
        """The risk-coverage curve of the decision's confidence."""
        return RiskCoverage.from_confidence(_sortable(self.decision.confidence), self.wrong)

    @cached_property
    def confusion(self) -> Ints:
        """True classes by answers, rejections last; labels that are not a class, if any, have a last row."""
        width = len(self.class_names) + 1
        answers = np.where(self.decision.reject, width - 1, self.decision.label)
        counts = np.bincount(self.true * width + answers, minlength=width**2).reshape(width, width)
        return np.asarray(counts if (self.true == width - 1).any() else counts[:-1], dtype=np.int64)

    @cached_property
    def by_class(self) -> list[ClassFigures]:
        """The figures of each class."""
        counts = self.confusion
        columns = counts.sum(axis=1), counts[:, -1], counts.diagonal(), counts[:, :-1].sum(axis=0)
        return [ClassFigures(*one) for one in zip(self.class_names, *map(np.ndarray.tolist, columns), strict=False)]

    @cached_property
    def by_group(self) -> list[GroupFigures]:
        """The figures of each group; empty without groups."""
        if self.group is None:
            return []
        return figures_by_group(self.group_of_row, self.decision.reject, self.wrong, self.cost)

    @cached_property
    def answer_confidence(self) -> FloatArray:
        """The confidence of each answer, as ``demur predict`` writes it: :func:`answer_confidence`."""
        first = None if self.top is None else self.top[:, 0]
        return answer_confidence(self.decision, first, self.cost_adjustable)

    @cached_property
    def reliability(self) -> ReliabilityBins | None:
        """Confidence against accuracy over the rows that are not novel, answered or not; None without probabilities."""
        known = slice(None) if self.decision.novel is None else ~self.decision.novel
        if self.top is None or not len(self.wrong[known]):
            return None
        return ReliabilityBins.from_confidence(self.answer_confidence[known], ~self.wrong[known])

    @cached_property
    def answer_figures(self) -> dict[str, Interval]:
        """The risk where there is a price, the coverage and the accepted accuracy, each with a 95 % interval."""
        counts, figures = self.counts, {}
        if self.cost is not None:
            figures["risk"] = risk_interval(counts.n_wrong, counts.n_rejected, counts.n_rows, self.cost)
        figures["coverage"] = proportion_interval(counts.n_answered, counts.n_rows)
        figures["accepted_accuracy"] = proportion_interval(counts.n_right, counts.n_answered)
        return figures

    @cached_property
    def figures(self) -> dict[str, Interval]:
        """The headline figures, each with a 95 % interval, the one that the decisions were made by first.

        ``mean_cost`` where there is a cost matrix; ``risk`` where there is a price.
        """
        asking, figures = self.asking, {} if self.mean_cost is None else {"mean_cost": self.mean_cost}
        if asking is not None:
            figures |= {"system_risk": asking.risk, "system_accuracy": asking.accuracy}
        figures |= self.answer_figures
        figures["risk_if_all_answered"] = proportion_interval(int(self.wrong.sum()), self.n_rows)
        figures |= area_intervals(_sortable(self.decision.confidence), self.wrong)
        return figures

    @cached_property
    def guarantee_check(self) -> GuaranteeCheck | None:
        """The guarantee of the rule compared with these rows; None without a guarantee."""
        return check_guarantee(self.rule, self.counts)

    def nearest_border(self, n: int = 20) -> list[Case]:
        """Return the rejected rows closest to being answered, the closest first, without novel rows."""
        near = self.decision.reject
        if self.decision.novel is not None:
            near = near & ~self.decision.novel
        return self._cases(near, self.decision.acceptance, n)

    def worst_mistakes(self, n: int = 20) -> list[Case]:
        """Return the wrongly answered rows, the most confident first."""
        return self._cases(~self.decision.reject & self.wrong, self.answer_confidence, n)

    def most_unusual(self) -> list[Case]:
        """Return the rows declined as novel or out of scope, the least probable in scope first."""
        strange = np.isin(self.decision.reason, ("novel", "out of scope"))
        inside = np.zeros(self.n_rows) if self.decision.in_scope is None else self.decision.in_scope
        return self._cases(strange, -inside)

    def _cases(self, mask: Mask, order: FloatArray, n: int = 20) -> list[Case]:
        """Return up to ``n`` of the rows, from the highest of ``order`` down; ties stay in the order of the rows."""
        chosen = np.flatnonzero(mask)
        chosen = chosen[np.argsort(-_sortable(order[chosen]), kind="stable")[:n]]
        columns: list[ByName] = [{}] * len(chosen)
        if self.rows is not None:
            columns = self.rows.select(range(self.rows.num_columns)[:_MOST_COLUMNS]).take(chosen).to_pylist()
        names = (*self.class_names, "none of the classes")
        cases = []
        for row, shown in zip(chosen.tolist(), columns, strict=True):
            number = row + 1 if self.row_numbers is None else self.row_numbers[row]
            true, answer = names[self.true[row]], names[self.decision.label[row]]
            second, proba = (
                (None, None) if self.top is None else (names[int(self.top[row, 1])], float(self.top[row, 2]))
            )
            cases.append(Case(str(number), true, answer, float(self.answer_confidence[row]), second, proba, shown))
        return cases

    def headline(self) -> str:
        """Summarize the decisions in one sentence."""
        if self.asking is not None:
            return self.asking.headline()
        words = shares_in_words(self.counts)
        if self.mean_cost is not None:
            start, paid = "By its cost matrix", matrix_words(self.mean_cost.estimate)
        elif self.cost is not None:
            start, paid = f"At cost {cost_words(self.cost)}", per_hundred(self.risk)
        else:
            return f"{words[0].upper()}{words[1:]}."
        return f"{start}, {words}; each 100 rows cost {paid}."

    def meaning(self) -> list[str]:
        """Explain the unit of the headline, and how a rule without a cost decides."""
        if self.cost is not None:
            return [f"A wrong answer costs 1 and a declined row {cost_words(self.cost)}."]
        return [] if self.explanation is None else [self.explanation]

    def remarks(self) -> list[str]:
        """Return sentences on a guarantee that holds and on special rows, in addition to the findings."""
        check, sentences = self.guarantee_check, []
        if check is not None and check.verdict in ("kept", "within chance"):
            sentences.append(check.sentence)
        if self.n_novel:
            rows = counted(self.n_novel, "row is", "rows are")
            sentences.append(f"{rows} declined as novel, that is, unlike the training rows.")
        if (found := self.scope) is not None:
            words = counted(found["n_out_of_scope"], "row is", "rows are")
            sentences.append(
                f"{words} out of scope, and {found['n_declined']:,} of them are declined; the first choice is right "
                f"for {percent(found['accuracy_in_scope'].estimate)} of the rows in scope"
                + ("." if found["auroc"] is None else f"; the AUROC of out-of-scope detection is {found['auroc']:.3f}.")
            )
        if self.n_unlabelled:
            rows = counted(self.n_unlabelled, "row has no label and is", "rows have no label and are")
            sentences.append(f"{rows} left out.")
        return sentences

    def sentences(self) -> list[str]:
        """Return the results in sentences, for a reader who does not know the reject option."""
        found = [f"{one['code']} {one['title']}: {one['found']} {one['advice']}" for one in self.findings]
        return [self.headline(), *self.verdict, *found, *self.meaning(), *self.remarks()]

    def to_json(self) -> ByName:
        """Return every figure as plain numbers, strings, lists and dicts, with None where one is undefined."""
        counts, bins = self.counts, self.reliability
        found = {
            "n_rows": self.n_rows,
            "n_unlabelled": self.n_unlabelled,
            "n_unknown_labels": self.n_unknown,
            "classes": self.class_names,
            "cost": self.cost,
            "cost_adjustable": self.cost_adjustable,
            "cost_matrix": self.cost_matrix,
            "rule": self.explanation,
            "sentences": self.sentences(),
            "verdict": self.compared,
            "checks": self.findings,
            "importances": self.importances,
            "guarantee": self.guarantee_check,
            "counts": {
                "answered": counts.n_answered,
                "rejected": counts.n_rejected,
                "wrong": counts.n_wrong,
                "novel": self.n_novel,
            },
            "figures": self.figures,
            "by_class": [vars(one) | {"intervals": one.intervals} for one in self.by_class],
            "group": self.group,
            "by_group": self.by_group,
            "confusion": self.confusion,
            "calibration": None if bins is None else {"expected_calibration_error": bins.ece, **vars(bins)},
            "out_of_scope": self.scope,
            "asking": None if self.asking is None else self.asking.to_json(),
        }
        json: ByName = json_ready(found)
        return json


def cost_difference(first: Evaluation, second: Evaluation, cost: float | None = None) -> Interval:
    """Return the cost per row of the first model minus that of the second, with a paired 95 % interval.

    The difference is that of the two decisions on each row, which cost 0 if right, 1 if wrong, or the cost of
    declining.

    Parameters
    ----------
    first, second : Evaluation
        Evaluations of the same rows.
    cost : float, optional
        Cost of declining; by default that of both models, which must then be the same.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> y, proba = [0, 1] * 100, [[0.9, 0.1], [0.1, 0.9]] * 100
    >>> options = {"classes": [0, 1], "cost": 0.2}
    >>> good, bad = (Evaluation.of(y, Chow(0.2).decide(rows), **options) for rows in (proba, proba[::-1]))
    >>> difference = cost_difference(good, bad)
    >>> difference.estimate, difference.high < 0
    (-1.0, True)
    """
    if first.asking is not None or second.asking is not None:
        raise InputError("models that ask experts cannot be compared: give models without experts.")
    if cost is None and (first.cost is None or first.cost != second.cost):
        raise InputError("the models have different costs of declining, or rules without one: give a cost (--cost).")
    price = float(first.cost or 0) if cost is None else cost
    possible = np.subtract.outer([0.0, price, 1.0], [0.0, price, 1.0]).ravel()
    return mean_of(first.paid(price) - second.paid(price), possible)


def evaluate_table(
    model: TableModel,
    table: Any,
    *,
    cost: float | None = None,
    group: str | None = None,
    prices: Prices | None = None,
    importances: bool = False,
    ignored: str | None = None,
    where: str = "the table",
) -> Evaluation:
    """Decide for each row that has a label, and evaluate the decisions.

    Parameters
    ----------
    model : TableModel
    table : pyarrow.Table
        With the model's columns and its target.
    cost : float, optional
        Cost to use instead of the model's, if that is adjustable.
    group : str, optional
        A column such as the site; its groups are also evaluated separately.
    prices : mapping of names to float, optional
        Prices of asking experts that replace the model's.
    importances : bool, default False
        Whether to compute the importance of each column, which takes as long as deciding 50,000 rows.
    ignored : str, optional
        Codes of checks to leave out, such as ``"DM003,DM007"``.
    where : str
        Name of the table in messages.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> evaluate_table(fit_table(table, "pet", model="lr"), table).accepted_accuracy
    1.0
    """
    data, asking, codes = LabelledTable.of(table, model.target, where), None, ignored_codes(ignored)
    if group is not None:
        check_columns([group], table.column_names, where)
    decision, top = _decide(model, data.rows, cost, prices, where)
    if model.asks_experts:
        decision, asking = _asking(model, data, decision, prices)
    texts = [column.name for column in model.schema.columns if column.kind == "text"]  # shown first
    result = Evaluation.of(
        data.labels,
        decision,
        classes=model.classes,
        cost=model.cost if cost is None else cost,
        cost_adjustable=model.cost_adjustable,
        rule=getattr(model.classifier, "rule_", None),
        out_of_scope=getattr(model.classifier, "out_of_scope", None),
        top=top if model.has_proba else None,
        explanation=None if prices else model.explain(),
        rows=data.rows.select(sorted(data.rows.column_names, key=lambda name: name not in texts)),
        row_numbers=data.numbers + 1,
        why_cost_fixed=model.why_cost_fixed,
        n_unlabelled=data.n_unlabelled,
        group=group,
        group_of_row=() if group is None else class_texts(data.rows[group]).tolist(),
        asking=asking,
        single=None if model.asks_experts else _best_single(model, data.rows, cost, where),
        ignored=codes,
        starved=model.facts.get("starved"),
        false_alarms=None if model.novelty is None else model.novelty.false_alarms,
    )
    return replace(result, importances=_importances(model, result, data.rows, cost)) if importances else result


def _best_single(
    model: TableModel, rows: pa.Table, cost: float | None, where: str
) -> tuple[str, Decision[AnyArray]] | None:
    """Return the member of a blend with the least log loss in training, and its decisions; None without a blend."""
    option = copy(model.classifier)
    blend = copy(getattr(option, "estimator_", option))
    members = [one for one in getattr(blend, "tried_", ()) if one.weight]
    if len(members) < 2:
        return None
    best = min(range(len(members)), key=lambda number: members[number].log_loss)
    for name in ("models_", "scalings_", "views_"):
        setattr(blend, name, getattr(blend, name)[best : best + 1])
    blend.weights_, blend.scaling_, option.estimator_ = (1.0,), TemperatureScaling(1.0), blend
    return members[best].name, _decide(replace(model, classifier=option), rows, cost, None, where)[0]


_MOST_DECISIONS, _MOST_ROWS, _FEWEST_ROWS = 50_000, 2_000, 100
"""Rows decided again for all importances together, and the most and the fewest rows for one column."""
_SECONDS = 20.0
"""After this time the remaining columns are left out."""


def _importances(model: TableModel, result: Evaluation, rows: pa.Table, cost: float | None) -> dict[str, Interval]:
    """Return the permutation importance of each column: the increase of the cost per row."""
    own, names, started, found = result.costs_of(result.decision), model.schema.names, time.monotonic(), {}
    if own is None or result.asking is not None:
        return {}
    n_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_DECISIONS // len(names)))
    chosen = np.random.default_rng(0).permutation(len(own))[:n_rows]  # so that the next row is drawn at random
    table, matrix = rows.select(names).take(chosen), result.cost_matrix
    most = 1.0 if matrix is None else float(np.ptp(matrix))
    for place, name in enumerate(names):
        changed = table.set_column(place, name, table[name].take(np.roll(np.arange(len(chosen)), 1)))
        costs = result.costs_of(model.decide(changed, cost), chosen)
        more = (costs - own[chosen])[np.isfinite(own[chosen])]
        if len(more):
            found[name] = mean_of(more, [-most, most])
        if time.monotonic() - started > _SECONDS:
            break
    return dict(sorted(found.items(), key=lambda one: -one[1].estimate))


def _decide(
    model: TableModel, rows: pa.Table, cost: float | None, prices: Prices | None, where: str
) -> tuple[Decision[AnyArray], FloatArray]:
    """Decide for some rows at a time, whose scores together could take much memory."""
    decisions, tops, step = [], [], max(1, _AT_ONCE // len(model.classes))
    for start in range(0, rows.num_rows, step):
        part = rows.slice(start, step)
        decision, scores = model.decide_and_score(part, cost, prices=prices, where=where, first=start)
        decisions.append(vars(decision if model.asks_experts else replace(decision, costs=None)))
        tops.append(top_scores(scores, decision.label))
    names = [name for name, value in decisions[0].items() if value is not None]
    parts = {name: np.concatenate([one[name] for one in decisions]) for name in names}
    return Decision(**parts), np.concatenate(tops)


def _asking(
    model: TableModel, data: LabelledTable, decision: Decision[AnyArray], prices: Prices | None
) -> tuple[Decision[AnyArray], ExpertEvaluation]:
    """Assign the rows within the limits of the experts, and compare their answers with the labels."""
    experts, names = model.experts, tuple(model.experts.columns)
    if experts.limits:
        decision = Capacity(experts.limits).assign(decision, names)
    said = experts.answers(data.rows, {*model.classes.tolist(), *data.classes}, where=data.where)
    priced = np.array(list({**experts.prices, **(prices or {})}.values()))
    assert decision.costs is not None
    assert decision.ask is not None
    asking = ExpertEvaluation(
        names,
        priced,
        np.asarray(decision.ask, dtype=np.int64),
        1 + priced - decision.costs[:, -len(names) :],
        np.asarray(model.classes[decision.label] == data.labels),
        right_answers(said, data.labels),
        dict(experts.limits),
    )
    return decision, asking


def _texts(values: ArrayLike) -> list[str | None]:
    """Return labels as text; a list keeps its types, which NumPy would merge into text."""
    return [label_text(one) for one in np.asarray(values, dtype=object).tolist()]


def _class_codes(labels: list[str | None], names: list[str | None], outside: Mask) -> Ints:
    """Return the position of each label among the K classes, and K where it is none of them."""
    position = {name: code for code, name in enumerate(names)}
    if len(position) < len(names) or len(names) < 2:
        raise InputError(f"classes must be at least two distinct names, got {names[:10]}.")
    if not labels or None in labels:
        raise InputError("y must hold at least one label, and none that is missing (None or NaN).")
    codes = np.array([position.get(label, len(names)) for label in labels], dtype=np.int64)
    if (codes == len(names)).all() and not outside.any():
        raise InputError(
            f"none of the labels is a class of the model: they start with {labels[0]!r}, the classes with {names[0]!r}."
        )
    return codes


def _checked(decision: Decision[Any], n_rows: int, n_classes: int) -> Decision[AnyArray]:
    """Return the decision with NumPy arrays: one entry per row, labels that are positions among the classes."""
    found = decision.numpy()
    label = found.label
    if label.shape != (n_rows,) or label.dtype.kind not in "iu" or label.min() < 0 or label.max() >= n_classes:
        raise InputError(
            f"decision.label must hold a position from 0 to {n_classes - 1} for each of the {n_rows} labels, got shape "
            f"{label.shape} and {label[:5].tolist()}...; use decide() on the labelled rows, not predict()."
        )
    return found


def _sortable(confidence: FloatArray) -> FloatArray:
    """Return finite values in the same order, undefined ones last, as a curve needs them."""
    if np.isfinite(confidence).all():
        return confidence
    ranks = np.unique(np.where(np.isnan(confidence), -np.inf, confidence), return_inverse=True)[1]
    return np.asarray(ranks, dtype=np.float64)
