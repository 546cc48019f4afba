"""The sentences of an evaluation, and its guarantee compared with what was seen.

The report's script writes the same sentence for other costs: it takes :data:`SENTENCES` from the page and rounds as
:func:`percent` does, by operations that every language computes alike. A test in a browser compares the two.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from demur.guarantees import Coverage, RiskControl
from demur.metrics import proportion_interval
from demur.rules import Rule
from demur.tabular.evaluation_figures import AnswerCounts, ClassFigures, GroupFigures

__all__ = [
    "FEW",
    "FIGURES",
    "MOST",
    "SENTENCES",
    "UNDEFINED",
    "CoverageTarget",
    "Guarantee",
    "GuaranteeCheck",
    "RiskGuarantee",
    "assumed_price",
    "baselines",
    "class_warnings",
    "compared",
    "cost_words",
    "counted",
    "group_remark",
    "guarantee_of",
    "headline",
    "interval_words",
    "matrix_baselines",
    "matrix_headline",
    "matrix_words",
    "per_hundred",
    "percent",
    "shares",
]

UNDEFINED = "\N{EN DASH}"
"""Stands for a figure that nothing defines, such as the accuracy of no answers."""

FEW, MOST = 0.05, 0.95
"""Below and above these shares of answers the words say "almost no row" and "almost every row"."""

SENTENCES = {
    "some": "the model answers {coverage} of the rows, {accuracy} of those correctly, and declines {rejected}",
    "few": "the model answers almost no row ({coverage}), {accuracy} of those correctly, and declines {rejected}",
    "most": "the model answers almost every row ({coverage}), {accuracy} of those correctly, and declines {rejected}",
    "all": "the model answers every row, {accuracy} of them correctly",
    "none": "the model answers no row and declines all of them",
    "priced": "At cost {cost}, {shares}; each 100 rows cost {risk}{compared}.",
    "less": " instead of {better} if it {alternative}",
    "more": ", more than the {better} if it {alternative}",
    "same": ", as much as if it {alternative}",
    "answered": "answered all",
    "declined": "declined all",
}
"""The parts of the headline: the shares in their five cases, and how the cost compares with the better of two extremes:
answering all rows, or declining all."""


FIGURES = {
    "system_risk": ("System risk", "cost per row: prices, mistakes"),
    "system_accuracy": ("System accuracy", "correct final answers"),
    "mean_cost": ("Mean cost", "cost per row by the cost matrix"),
    "mean_cost_if_all_answered": ("Mean cost, all answered", "if every row were answered"),
    "mean_cost_if_all_rejected": ("Mean cost, all declined", "if every row were declined"),
    "risk": ("Risk", "0-1-c: cost per row"),
    "coverage": ("Coverage", "rows answered"),
    "accepted_accuracy": ("Accepted accuracy", "correct among the answers"),
    "risk_if_all_answered": ("Error rate", "wrong if all were answered"),
    "aurc": ("AURC", "area under risk-coverage"),
    "eaurc": ("Excess AURC", "above the AURC of the best order; 0 is perfect"),
    "augrc": ("AUGRC", "area under the generalized risk-coverage curve"),
    "deferral_area": ("Deferral area", "mean accuracy over all shares of rows asked about"),
    "regret": ("Regret", "cost per row above an oracle, on rows that all experts answered"),
}
"""Title and meaning of the figures of an evaluation, for the command line and the report."""


def percent(share: float) -> str:
    """Write a share in per cent, half up; what is not quite 0 or 100 never looks as if it were.

    Examples
    --------
    >>> percent(0.9125), percent(1), percent(0.9999), percent(0.0001)
    ('91.3 %', '100.0 %', '>99.9 %', '<0.1 %')
    """
    if math.isnan(share):
        return UNDEFINED
    tenths = math.floor(share * 1000 + 0.5)
    if tenths == 1000 and share < 1:
        return ">99.9 %"
    return f"{_tenths(tenths, share)} %"


def per_hundred(risk: float) -> str:
    """Write what a hundred rows cost, to one decimal.

    Examples
    --------
    >>> per_hundred(0.037), per_hundred(0.0002), per_hundred(0)
    ('3.7', '<0.1', '0.0')
    """
    return _tenths(math.floor(risk * 1000 + 0.5), risk)


def cost_words(cost: float) -> str:
    """Write a cost with as many digits as it needs and no more.

    Examples
    --------
    >>> cost_words(0.2), cost_words(0.0), cost_words(0.00001)
    ('0.2', '0', '0.00001')
    """
    return str(np.format_float_positional(cost, trim="-"))


def matrix_words(cost: float) -> str:
    """Write what a hundred rows cost by a cost matrix, which may be in any unit.

    Examples
    --------
    >>> matrix_words(0.1234567), matrix_words(1200.0), matrix_words(-2)
    ('12.35', '120,000', '-200')
    """
    hundred = 100 * cost
    return f"{hundred:,.0f}" if abs(hundred) >= 1000 else f"{hundred:.4g}"


def counted(number: int, singular: str, plural: str) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "row", "rows"), counted(1200, "row", "rows")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {singular if number == 1 else plural}"


def interval_words(low: float, high: float, write: Callable[[float], str]) -> str:
    """Write a 95 % interval; nothing where it is undefined.

    Examples
    --------
    >>> interval_words(0.832, 1.0, percent), interval_words(0.01, 0.05, per_hundred)
    ('95 % interval 83.2 % to 100.0 %', '95 % interval 1.0 to 5.0')
    """
    return "" if math.isnan(low) else f"95 % interval {write(low)} to {write(high)}"


def shares(counts: AnswerCounts) -> str:
    """Return how many rows are answered and how well, as a part of a sentence.

    Examples
    --------
    >>> shares(AnswerCounts(1000, 900, 20))
    'the model answers 90.0 % of the rows, 97.8 % of those correctly, and declines 10.0 %'
    >>> shares(AnswerCounts(1000, 10, 2))
    'the model answers almost no row (1.0 %), 80.0 % of those correctly, and declines 99.0 %'
    """
    return SENTENCES[_kind(counts)].format(
        coverage=percent(counts.coverage),
        accuracy=percent(counts.accepted_accuracy),
        rejected=percent(counts.n_rejected / counts.n_rows),
    )


def _kind(counts: AnswerCounts) -> str:
    if not counts.n_answered:
        return "none"
    if not counts.n_rejected:
        return "all"
    return "few" if counts.coverage < FEW else "most" if counts.coverage > MOST else "some"


def headline(counts: AnswerCounts, cost: float, n_wrong_if_all: int) -> str:
    """Return the headline at a cost, compared with the better of answering all rows and declining all.

    Examples
    --------
    >>> headline(AnswerCounts(1000, 900, 20), 0.2, 60)
    'At cost 0.2, the model answers 90.0 % of the rows, 97.8 % of those correctly, and declines 10.0 %; each 100 rows
    cost 4.0 instead of 6.0 if it answered all.'
    """
    risk, everything = counts.risk(cost), n_wrong_if_all / counts.n_rows
    compared = _compared(counts, risk, everything, cost, per_hundred)
    words = {"cost": cost_words(cost), "shares": shares(counts), "risk": per_hundred(risk), "compared": compared}
    return SENTENCES["priced"].format(**words)


def matrix_headline(counts: AnswerCounts, cost: float, if_all_answered: float, if_all_declined: float) -> str:
    """Return the headline for a cost matrix.

    Examples
    --------
    >>> matrix_headline(AnswerCounts(1000, 900, 20), 0.5, 0.9, 0.6)
    'By its cost matrix, each 100 rows cost 50 instead of 60 if it declined all; the model answers 90.0 % of the rows,
    97.8 % of those correctly, and declines 10.0 %.'
    """
    compared = _compared(counts, cost, if_all_answered, if_all_declined, matrix_words)
    return f"By its cost matrix, each 100 rows cost {matrix_words(cost)}{compared}; {shares(counts)}."


def _compared(
    counts: AnswerCounts, risk: float, answered: float, declined: float, write: Callable[[float], str]
) -> str:
    """Compare with the better of the two extremes; say nothing where the model is that extreme itself."""
    others = {SENTENCES["answered"]: answered, SENTENCES["declined"]: declined}
    itself = SENTENCES["answered"] if not counts.n_rejected else SENTENCES["declined"] if not counts.n_answered else ""
    return compared(SENTENCES, risk, others, write, itself)


def compared(
    sentences: Mapping[str, str],
    risk: float,
    others: Mapping[str, float],
    write: Callable[[float], str],
    itself: str = "",
) -> str:
    """Compare a cost with that of the best alternative, in words; say nothing where that is ``itself``."""
    alternative = min(others, key=lambda one: others[one])
    better = others[alternative]
    if alternative == itself:
        return ""
    kind = "same" if write(risk) == write(better) else "less" if risk < better else "more"
    return sentences[kind].format(better=write(better), alternative=alternative)


def baselines(cost: float, if_all_answered: float) -> str:
    """Return the unit of the costs in the headline, and the costs of the two extremes.

    Examples
    --------
    >>> baselines(0.2, 0.06)
    'A wrong answer costs 1 and a declined row 0.2: answering every row would cost 6.0 per 100 rows, declining every
    row 20.0.'
    """
    return (
        f"A wrong answer costs 1 and a declined row {cost_words(cost)}: answering every row would cost "
        f"{per_hundred(if_all_answered)} per 100 rows, declining every row {per_hundred(cost)}."
    )


def matrix_baselines(if_all_answered: float, if_all_declined: float) -> str:
    """Return the costs of the two extremes by a cost matrix.

    Examples
    --------
    >>> matrix_baselines(0.9, 0.6)
    'By the same matrix, answering every row would cost 90 per 100 rows, declining every row 60.'
    """
    return (
        f"By the same matrix, answering every row would cost {matrix_words(if_all_answered)} per 100 rows, declining "
        f"every row {matrix_words(if_all_declined)}."
    )


def assumed_price(counts: AnswerCounts, cost: float, if_all_answered: float) -> str:
    """Return the sentence about the cost at an assumed price, for a rule that does not use a cost.

    Examples
    --------
    >>> assumed_price(AnswerCounts(1000, 900, 20), 0.2, 0.06)
    'The rule did not decide by a cost. At an assumed price of 0.2 for a declined row, each 100 rows cost 4.0; answering
    every row would cost 6.0, declining every row 20.0.'
    """
    return (
        f"The rule did not decide by a cost. At an assumed price of {cost_words(cost)} for a declined row, each 100 "
        f"rows cost {per_hundred(counts.risk(cost))}; answering every row would cost {per_hundred(if_all_answered)}, "
        f"declining every row {per_hundred(cost)}."
    )


_MOST_NAMED = 3


def class_warnings(figures: Sequence[ClassFigures], counts: AnswerCounts) -> list[str]:
    """Name the classes of which fewer than half as many rows are answered rightly as of all rows, beyond chance.

    The intervals of all classes hold together with 95 % confidence (Bonferroni).

    Examples
    --------
    >>> sick = ClassFigures("sick", n_rows=56, n_rejected=50, n_right=3, n_answers=3)
    >>> well = ClassFigures("well", n_rows=1000, n_rejected=0, n_right=1000, n_answers=1003)
    >>> class_warnings([sick, well], AnswerCounts(1056, 1006, 3))
    ['Of the 56 rows of class sick, only 3 are answered correctly: 50 are declined and 3 are answered wrongly.']
    """
    level = 1 - 0.05 / len(figures)
    found = [
        one
        for one in figures
        if one.n_rows and proportion_interval(one.n_right, one.n_rows, level).high < counts.n_right / counts.n_rows / 2
    ]
    found.sort(key=lambda one: one.recall)
    sentences = []
    for one in found[:_MOST_NAMED]:
        right = counted(one.n_right, "is", "are") if one.n_right else "none is"
        only = "only " if one.n_right else ""
        declined = counted(one.n_rejected, "is", "are")
        wrong = counted(one.n_rows - one.n_rejected - one.n_right, "is", "are")
        rows = counted(one.n_rows, "row", "rows")
        sentences.append(
            f"Of the {rows} of class {one.name}, {only}{right} answered correctly: {declined} declined and {wrong} "
            "answered wrongly."
        )
    if len(found) > _MOST_NAMED:
        more = counted(len(found) - _MOST_NAMED, "more class is", "more classes are")
        sentences.append(f"{more} served as badly: {', '.join(one.name for one in found[_MOST_NAMED:][:20])}.")
    return sentences


def group_remark(one: GroupFigures) -> str:
    """Return a sentence on a group that has more or fewer errors than all rows."""
    answers = counted(one.counts.n_answered, "answer", "answers")
    return (
        f"Group {one.name} has {one.differs} errors than all rows: {percent(float(one.errors.estimate))} of its "
        f"{answers} are wrong, beyond chance."
    )


def _tenths(tenths: int, value: float) -> str:
    return "<0.1" if tenths == 0 and value > 0 else f"{tenths / 10:.1f}"


_SURPRISING = 0.01
"""A guarantee is called broken where chance explains what is seen less often than this. A model is evaluated more than
once, on held-out rows and on later tables: at 5 %, a valid guarantee would soon be called broken."""


@dataclass(frozen=True)
class GuaranteeCheck:
    """A guarantee and what was seen.

    Parameters
    ----------
    figure : str
        "wrong_among_answers" or "coverage".
    target : float
        The largest share of wrong answers, or the smallest share of answers.
    seen : float or None
        None where no row was answered.
    n_rows : int
        The number of rows that ``seen`` is a share of.
    chance : float or None
        How often what was seen, or worse, comes up in such samples if the guarantee holds; None where it was kept.
    sentence : str
    comparable : bool
        Whether ``seen`` is a share of what the guarantee is about.
    """

    figure: str
    target: float
    seen: float | None
    n_rows: int
    chance: float | None
    sentence: str
    comparable: bool = True

    @property
    def verdict(self) -> str:
        """One of "kept", "within chance", "broken" and "not comparable"."""
        if not self.comparable:
            return "not comparable"
        if self.chance is None:
            return "kept"
        return "broken" if self.chance < _SURPRISING else "within chance"


@dataclass(frozen=True)
class RiskGuarantee:
    """At most the share ``at_most`` of the answers is wrong, in all but a share ``delta`` of fits.

    With ``per_group`` the guarantee counts one answer per group, as where :class:`~demur.RiskControl` was fitted with
    the groups (patients, machines) that rows belong to.

    Examples
    --------
    >>> guarantee = RiskGuarantee(0.3, delta=0.05)
    >>> guarantee.check(AnswerCounts(500, 412, 110)).sentence
    'Guaranteed: at most 30.0 % of the answers wrong. Seen: 26.7 % of 412 answered. The guarantee holds on these rows.'
    >>> guarantee.check(AnswerCounts(500, 400, 160)).sentence
    'Guaranteed: at most 30.0 % of the answers wrong. Seen: 40.0 % of 400 answered. The guarantee is broken: if it ...
    """

    at_most: float
    delta: float
    per_group: bool = False

    def check(self, counts: AnswerCounts) -> GuaranteeCheck:
        """Compare the guarantee with what these rows show."""
        answers = "the answers to one row of each group, drawn at random," if self.per_group else "the answers"
        words = f"Guaranteed: at most {percent(self.at_most)} of {answers} wrong."
        seen = counts.n_wrong / counts.n_answered if counts.n_answered else None
        chance = None
        if seen is None:
            words += " No row was answered, so that these rows cannot tell."
        elif self.per_group:
            words += (
                f" Seen: {percent(seen)} of all {counts.n_answered:,} answered, which the guarantee is not about: "
                "there, large groups count more."
            )
        else:
            words += f" Seen: {percent(seen)} of {counts.n_answered:,} answered."
            if seen <= self.at_most:
                words += " The guarantee holds on these rows."
            else:
                from scipy.stats import binom  # slow to import

                # The exact chance of as many wrong answers or more at the largest risk that the guarantee allows.
                chance = float(binom.sf(counts.n_wrong - 1, counts.n_answered, self.at_most))
                words += f" {self._excess(chance)}"
        comparable = not self.per_group
        return GuaranteeCheck("wrong_among_answers", self.at_most, seen, counts.n_answered, chance, words, comparable)

    def _excess(self, chance: float) -> str:
        if chance < _SURPRISING:
            return (
                "The guarantee is broken: if it held, as many wrong answers or more would come up in "
                f"{percent(chance)} of such samples. It may fail in {percent(self.delta)} of fits; it is void if these "
                "rows come from another source than those it was fitted on, or if rows that belong together were on "
                "both sides of a split."
            )
        return (
            "That is more than guaranteed, but chance can explain it: where the guarantee just holds, as many wrong "
            f"answers or more come up in {percent(chance)} of such samples."
        )


@dataclass(frozen=True)
class CoverageTarget:
    """At least the share ``at_least`` of the rows is answered, as on the calibration rows.

    How many new rows are answered depends on both samples. Above the confidence of the calibration row that comes next
    after the k of m accepted ones lies a Beta(k + 1, m - k) share of new rows, so that the number of answers is
    beta-binomial.

    Examples
    --------
    >>> target = CoverageTarget(0.9, n_accepted=180, n_calibration=200)
    >>> target.check(AnswerCounts(450, 410, 8)).sentence
    'Target: at least 90.0 % of the rows answered. Seen: 91.1 % of 450.'
    >>> target.check(AnswerCounts(450, 390, 8)).verdict, target.check(AnswerCounts(450, 300, 8)).verdict
    ('within chance', 'broken')
    """

    at_least: float
    n_accepted: int
    n_calibration: int

    def check(self, counts: AnswerCounts) -> GuaranteeCheck:
        """Compare the target with what these rows show."""
        seen, n_rows, chance = counts.coverage, counts.n_rows, None
        words = f"Target: at least {percent(self.at_least)} of the rows answered. Seen: {percent(seen)} of {n_rows:,}."
        if seen < self.at_least:
            from scipy.stats import betabinom

            left_out = self.n_calibration - self.n_accepted
            chance = float(betabinom.cdf(counts.n_answered, n_rows, self.n_accepted + 1, left_out)) if left_out else 0.0
            often = f"so few answers, or fewer, come up in {percent(chance)} of such samples"
            if chance < _SURPRISING:
                words += f" These rows differ from those that the rule was fitted on: {often}."
            else:
                words += f" Chance can explain the difference: {often}."
        return GuaranteeCheck("coverage", self.at_least, seen, n_rows, chance, words)


Guarantee: TypeAlias = RiskGuarantee | CoverageTarget


def guarantee_of(rule: Rule | None) -> Guarantee | None:
    """Return what a fitted rule guarantees, or None.

    Examples
    --------
    >>> guarantee_of(RiskControl(0.3))
    RiskGuarantee(at_most=0.3, delta=0.05, per_group=False)
    """
    if isinstance(rule, RiskControl):
        return RiskGuarantee(float(rule.target_risk), float(rule.delta), bool(getattr(rule, "per_cluster_", False)))
    if isinstance(rule, Coverage):
        return CoverageTarget(float(rule.target), rule.n_accepted_, rule.n_rows_)
    return None
