"""Checks of an evaluation: the verdict, and coded findings, each with what to do about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import Floats
from demur.columns.frames import listed
from demur.errors import InputError
from demur.metrics import Interval, proportion_interval
from demur.tabular.evaluation_figures import counted, matrix_words, mean_of, per_hundred, percent, rows_needed

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation

_LEAST_GAP = 0.01
"""Miscalibration below this is not reported: with many rows, any model differs from its probabilities by a little."""

_SURPRISING = 0.01
"""Novel rows are too many where false alarms alone explain them less often than this."""

_FEWEST_OTHERS = 10
"""Rows outside of the most frequent class from which a model is compared with always answering that class."""

_FEWEST_ROWS = 100
"""Rows from which it is worth saying that no miscalibration was found."""

_MOST_NAMED = 3


# The verdict ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """The decisions compared with another way to decide on the same rows.

    Parameters
    ----------
    other : str
        Such as "answering every row".
    difference : Interval
        Mean cost per row of the decisions minus that of the alternative; the intervals of all comparisons hold
        together.
    verdict : {"better", "worse", "the same", "no significant difference"}
    sentence : str

    Examples
    --------
    >>> own, other = np.r_[np.ones(1), np.full(10, 0.2), np.zeros(89)], np.r_[np.ones(11), np.zeros(89)]
    >>> Comparison.of("answering every row", own, other, [0.2, -0.8], 0.95).sentence
    'Better than answering every row: 100 rows cost 8.0 less (95 % interval 3.8 to 14.1 less).'
    """

    other: str
    difference: Interval
    verdict: str
    sentence: str

    @classmethod
    def of(
        cls,
        other: str,
        costs: Floats,
        other_costs: Floats,
        possible: ArrayLike,
        level: float,
        write: Callable[[float], str] = per_hundred,
    ) -> "Comparison":
        """Compare what each row costs; rows where one of the costs is not known (NaN) are left out.

        ``possible`` are differences that a row can have, and ``write`` writes the cost of 100 rows.
        """
        differences = (costs - other_costs)[np.isfinite(costs - other_costs)]
        found = mean_of(differences, np.append(possible, 0.0), level)
        low, high = found.low, found.high

        def amount(value: float) -> str:
            return f"{write(abs(round(value, 12)))} {'less' if value < 0 else 'more'}"

        if not differences.any():
            return cls(other, found, "the same", f"On these rows the same as {other}.")
        if low <= 0 <= high:
            kind, ends = "no significant difference", f"{amount(low)} to {amount(high)}"
            words = f"No significant difference from {other} on {counted(len(differences), 'row', 'rows')}"
        else:
            kind, (near, far) = "better" if high < 0 else "worse", sorted((low, high), key=abs)
            words, ends = f"{kind.capitalize()} than {other}", f"{write(abs(near))} to {amount(far)}"
        return cls(other, found, kind, f"{words}: 100 rows cost {amount(found.estimate)} (95 % interval {ends}).")


def compared(result: "Evaluation") -> list[Comparison]:
    """Compare the decisions with answering and declining every row, and with the best single model of a blend.

    A model with experts is compared with asking nobody, and with always asking one expert. A rule without a cost has
    nothing to compare.
    """
    own, write = result.costs_of(result.decision), matrix_words if result.mean_cost else per_hundred
    if own is None:
        return []
    matrix = np.array([[0.0, 1.0, result.cost or 0.0]]) if result.cost_matrix is None else result.cost_matrix
    gap = np.ravel(matrix[:, -1:] - matrix[:, :-1])  # what declining costs more than an answer
    ways: dict[str, tuple[Floats, ArrayLike]] = {}
    if result.asking is not None:
        most = 1.0 + result.asking.prices.max()
        ways |= {name: (costs, [-most, most]) for name, costs in result.asking.alternatives.items()}
    else:
        for name, reject, possible in (("answering every row", False, gap), ("declining every row", True, -gap)):
            every = replace(result.decision, reject=np.full(result.n_rows, reject))
            ways[name] = result.costs_of(every), possible
    if result.single is not None:
        name, other = result.single
        spread = np.ptp(matrix[:, :-1])
        ways[f"{_SINGLE}({name})"] = result.costs_of(other), [*gap, *-gap, -spread, spread]
    level = 1 - 0.05 / len(ways)
    return [Comparison.of(name, own, *way, level, write) for name, way in ways.items()]


def verdict(result: "Evaluation") -> list[str]:
    """Return the comparisons, and whether the probabilities look calibrated, in sentences."""
    sentences, bins = [one.sentence for one in result.compared], result.reliability
    if bins is not None and bins.n_rows.sum() >= _FEWEST_ROWS and not _miscalibrated(result):
        sure = percent(bins.mean_confidence)
        sentences.append(f"Calibrated, as far as these rows show; the mean confidence is {sure}.")
    return sentences


# The checks -----------------------------------------------------------------------------------------------------------

_SINGLE = "its best single model "


def _worse_than(result: "Evaluation", *others: str) -> str:
    return " ".join(one.sentence for one in result.compared if one.verdict == "worse" and one.other.startswith(others))


def _few_rows(result: "Evaluation") -> str:
    unclear = [one for one in result.compared if one.verdict == "no significant difference"]
    if not unclear:
        return ""
    names, rows = " or ".join(one.other for one in unclear), counted(result.n_rows, "row does", "rows do")
    nearest = min((one.difference for one in unclear), key=lambda one: abs(one.estimate))
    return f"{rows} not show that the model costs less than {names}.{rows_needed(nearest, result.n_rows)}"


def _classes_with_few_correct_answers(result: "Evaluation") -> str:
    # The intervals of all classes hold together with 95 % confidence (Bonferroni).
    half, level = result.counts.n_right / result.n_rows / 2, 1 - 0.05 / len(result.by_class)
    found = [
        one for one in result.by_class if one.n_rows and proportion_interval(one.n_right, one.n_rows, level).high < half
    ]
    sentences = [
        f"Class {one.name}: {one.n_right:,} of {counted(one.n_rows, 'row', 'rows')} answered correctly, "
        f"{one.n_rejected:,} declined, {one.n_rows - one.n_rejected - one.n_right:,} answered wrongly."
        for one in sorted(found, key=lambda one: one.n_right / one.n_rows)
    ]
    if len(found) > _MOST_NAMED:
        names = listed(one.name for one in found)
        sentences = [f"{len(found):,} classes have less than half the share of correct answers of all rows: {names}."]
    return "" if result.asking is not None else " ".join(sentences)


def _groups_with_more_errors(result: "Evaluation") -> str:
    return " ".join(
        f"Group {one.name} has significantly more errors than all rows: {percent(one.errors.estimate)} of its "
        f"{counted(one.counts.n_answered, 'answer', 'answers')} are wrong."
        for one in result.by_group
        if one.differs == "more"
    )


def _miscalibrated(result: "Evaluation") -> str:
    bins = result.reliability
    if bins is None:
        return ""
    used = bins.n_rows > 0
    n_rows, sure, low = bins.n_rows[used], bins.confidence[used], bins.edges[:-1][used]
    right = np.round(bins.accuracy.estimate[used] * n_rows)
    # All rows together come first. The exact intervals of these and of each bin hold together with 95 % confidence.
    sure = np.append(bins.mean_confidence, sure)
    n_rows, right, low = np.append(n_rows.sum(), n_rows), np.append(right.sum(), right), np.append(0.0, low)
    found = proportion_interval(right, n_rows, 1 - 0.05 / len(n_rows))
    gap = np.maximum(sure - found.high, found.low - sure)
    k = 0 if gap[0] > _LEAST_GAP else int(gap.argmax())
    if gap[k] <= _LEAST_GAP:
        return ""
    where = f" with a confidence of {percent(low[k])} to {percent(low[k] + 0.1)}" if k else ""
    correct = f"{percent(found.estimate[k])} of the first choices are right"
    return f"{counted(int(n_rows[k]), 'row', 'rows')}{where}: mean confidence {percent(sure[k])}, but {correct}."


def _guarantee(result: "Evaluation", kind: str) -> str:
    found = result.guarantee_check
    return found.sentence if found is not None and found.verdict == kind else ""


def _many_novel_rows(result: "Evaluation") -> str:
    inside = np.ones(result.n_rows, dtype=bool) if result.outside is None else ~result.outside
    novel = inside if result.decision.novel is None else inside & result.decision.novel
    if result.false_alarms is None or not novel.any():
        return ""
    from scipy.stats import betabinom  # slow to import

    # The false-alarm rate of a fitted detector varies with its training rows, as a beta distribution.
    if betabinom.sf(novel.sum() - 1, inside.sum(), *result.false_alarms) >= _SURPRISING:
        return ""
    right = percent(float((~result.wrong[novel]).mean()))
    return f"{novel.sum():,} of {inside.sum():,} rows are novel; the first choice is right for {right} of them."


def _uninformative(result: "Evaluation") -> str:
    wrong, others = int(result.wrong.sum()), result.n_rows - max(one.n_rows for one in result.by_class)
    if others < _FEWEST_OTHERS or wrong < others:
        return ""
    always = f"always answering the most frequent class in {percent(others / result.n_rows)}"
    return f"The first choice is wrong in {percent(wrong / result.n_rows)} of the rows, {always}."


def _classes_without_rows(result: "Evaluation") -> str:
    names = [one.name for one in result.by_class if not one.n_rows]
    return f"These rows say nothing about {listed(names)}." if names else ""


def _unknown_labels(result: "Evaluation") -> str:
    rows = counted(result.n_unknown, "row has a label", "rows have labels")
    priced = " The cost matrix has no price for it." if result.mean_cost else ""
    words = f"{rows} that the model does not know; such a row counts as an error when answered.{priced}"
    return words if result.n_unknown else ""


def _nothing_answered(result: "Evaluation") -> str:
    none = result.asking is None and not result.counts.n_answered
    return f"The model answers 0 of {counted(result.n_rows, 'row', 'rows')}." if none else ""


@dataclass(frozen=True)
class Check:
    """One check of an evaluation.

    Parameters
    ----------
    code : str
    severity : {"problem", "warning", "note"}
    title : str
    advice : str
        Advice that is printed with the finding.
    found : callable
        Returns what it finds in an :class:`Evaluation`, in sentences; empty if it finds nothing.

    Examples
    --------
    >>> CHECKS["DM007"].title
    'Training was cut short'
    """

    code: str
    severity: str
    title: str
    advice: str
    found: Callable[["Evaluation"], str]


_CHECKS = (
    Check(
        "DM001",
        "problem",
        "Answering every row costs less",
        "Check the cost of declining, and read DM008 if it is there; until then, answer every row.",
        lambda result: _worse_than(result, "answering every row", "asking nobody"),
    ),
    Check(
        "DM002",
        "problem",
        "Declining every row costs less",
        "Do not use these answers at this cost: fit with more rows or other columns, or let a person decide.",
        lambda result: _worse_than(result, "declining every row", "always asking"),
    ),
    Check(
        "DM003",
        "note",
        "Too few rows to tell",
        "Evaluate the model on more labelled rows.",
        _few_rows,
    ),
    Check(
        "DM004",
        "warning",
        "A single model costs less than the blend",
        "Fit that model alone, with --model, and compare the two on other rows with demur compare.",
        lambda result: _worse_than(result, _SINGLE),
    ),
    Check(
        "DM005",
        "warning",
        "Classes with few correct answers",
        "Look at their rows in the report; more training rows of these classes, or a cost matrix, may help.",
        _classes_with_few_correct_answers,
    ),
    Check(
        "DM006",
        "warning",
        "Groups with more errors",
        "Look for what differs in these groups; --risk-group guarantees an error rate in each group.",
        _groups_with_more_errors,
    ),
    Check(
        "DM007",
        "warning",
        "Training was cut short",
        "Fit again with a larger --time-budget, or with one quick model such as --model lr.",
        lambda result: result.starved or "",
    ),
    Check(
        "DM008",
        "warning",
        "Confidence differs from accuracy",
        "Fit again with rows like these; --max-risk guarantees an error rate without relying on the probabilities.",
        _miscalibrated,
    ),
    Check(
        "DM009",
        "problem",
        "The guarantee is broken",
        "Fit again with rows like these, and keep rows that belong together on one side of the split (--group-split).",
        lambda result: _guarantee(result, "broken"),
    ),
    Check(
        "DM010",
        "note",
        "The guarantee cannot be compared with these rows",
        "Evaluate the model on independent rows, one from each group.",
        lambda result: _guarantee(result, "not comparable"),
    ),
    Check(
        "DM011",
        "warning",
        "More novel rows than false alarms explain",
        "Look at these rows: they may come from another source. If they are ordinary, fit with --novelty off.",
        _many_novel_rows,
    ),
    Check(
        "DM012",
        "warning",
        "No better than the most frequent class",
        "Check the labels and the columns; more rows, or another model, may help.",
        _uninformative,
    ),
    Check(
        "DM013",
        "note",
        "Classes without a labelled row",
        "Evaluate the model on rows of these classes before it answers with them.",
        _classes_without_rows,
    ),
    Check(
        "DM014",
        "warning",
        "Labels that the model does not know",
        "Correct the labels if they are wrong, or fit with more rows of these classes.",
        _unknown_labels,
    ),
    Check(
        "DM015",
        "note",
        "Answers of experts are missing",
        "Collect the answers of the experts for these rows.",
        lambda result: "" if result.asking is None else " ".join(result.asking.remarks()),
    ),
    Check(
        "DM016",
        "warning",
        "No row is answered",
        "Raise the cost of declining, or fit with more rows.",
        _nothing_answered,
    ),
)
CHECKS = {one.code: one for one in _CHECKS}
"""All checks by their codes."""


def findings(result: "Evaluation") -> list[dict[str, str]]:
    """Return what the checks find, problems first, without the codes that the evaluation ignores."""
    checks = [one for kind in ("problem", "warning", "note") for one in _CHECKS if one.severity == kind]
    found = [vars(one) | {"found": one.found(result)} for one in checks if one.code not in result.ignored]
    return [one for one in found if one["found"]]


def ignored_codes(text: str | None) -> list[str]:
    """Return the codes in a list such as ``DM003,DM007``.

    Examples
    --------
    >>> ignored_codes("DM003, dm007")
    ['DM003', 'DM007']
    """
    codes = [code.strip().upper() for code in (text or "").split(",") if code.strip()]
    unknown = [code for code in codes if code not in CHECKS]
    if unknown:
        raise InputError(f"there is no check {unknown[0]!r}: choose some of DM001 to {max(CHECKS)}.")
    return codes
