"""The guarantee of a fitted rule, compared with what labelled rows show."""

from dataclasses import dataclass
from typing import TypeAlias

from demur.guarantees import Coverage, RiskControl
from demur.rules import Rule
from demur.tabular.evaluation_figures import AnswerCounts
from demur.tabular.evaluation_words import percent

__all__ = ["CoverageTarget", "Guarantee", "GuaranteeCheck", "RiskGuarantee", "guarantee_of"]

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
