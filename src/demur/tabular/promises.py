"""What a fitted rule promised, beside what is seen on the rows that it is judged on."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from demur.guarantees import Coverage, RiskControl
from demur.rules import Rule
from demur.tabular.evaluation_words import percent
from demur.tabular.judged_rows import Counts

__all__ = ["CoveragePromise", "KeptOrNot", "Promise", "RiskPromise", "promise_of"]

_SURPRISING = 0.01
"""A promise is called broken where chance explains what is seen less often than this. A model is judged more than once,
on held-out rows and on tables that come later, and at one in twenty some honest promise would soon be called broken."""


@dataclass(frozen=True)
class KeptOrNot:
    """A promise beside what was seen.

    Parameters
    ----------
    figure : str
        "wrong_among_answers" or "coverage".
    promised : float
        The largest share of wrong answers, or the smallest share of answers.
    seen : float or None
        None where no row was answered.
    n_rows : int
        Of how many rows ``seen`` is a share.
    chance : float or None
        How often what was seen, or worse, comes up in such samples if the promise holds; None where it was kept.
    sentence : str
    """

    figure: str
    promised: float
    seen: float | None
    n_rows: int
    chance: float | None
    sentence: str

    @property
    def verdict(self) -> str:
        """One of "kept", "within chance" and "broken"."""
        if self.chance is None:
            return "kept"
        return "broken" if self.chance < _SURPRISING else "within chance"


class Promise(ABC):
    """What a rule promised about new rows."""

    @abstractmethod
    def judged(self, counts: Counts) -> KeptOrNot:
        """Put the promise beside what these rows show."""


@dataclass(frozen=True)
class RiskPromise(Promise):
    """At most the share ``at_most`` of the answers is wrong, in all but a share ``delta`` of fits.

    Examples
    --------
    >>> promise = RiskPromise(0.3, delta=0.05)
    >>> promise.judged(Counts(500, 412, 110)).sentence
    'Promised: at most 30.0 % of the answers wrong. Seen: 26.7 % of 412 answered. The promise is kept on these rows.'
    >>> promise.judged(Counts(500, 400, 160)).sentence
    'Promised: at most 30.0 % of the answers wrong. Seen: 40.0 % of 400 answered. The promise is broken: if it held, ...
    """

    at_most: float
    delta: float

    def judged(self, counts: Counts) -> KeptOrNot:
        promised = f"Promised: at most {percent(self.at_most)} of the answers wrong."
        if not counts.n_answered:
            sentence = f"{promised} No row was answered, so that these rows cannot tell."
            return KeptOrNot("wrong_among_answers", self.at_most, None, 0, None, sentence)
        seen, n_rows = counts.n_wrong / counts.n_answered, counts.n_answered
        beside = f"{promised} Seen: {percent(seen)} of {n_rows:,} answered."
        if seen <= self.at_most:
            sentence = f"{beside} The promise is kept on these rows."
            return KeptOrNot("wrong_among_answers", self.at_most, seen, n_rows, None, sentence)
        # The exact chance of as many wrong answers or more at the largest risk that the promise allows.
        from scipy.stats import binom  # it takes a while to import

        chance = float(binom.sf(counts.n_wrong - 1, n_rows, self.at_most))
        if chance < _SURPRISING:
            sentence = (
                f"{beside} The promise is broken: if it held, so many wrong answers or more would come up in "
                f"{percent(chance)} of such samples. Such a promise may fail in {percent(self.delta)} of fits; it is "
                "void if the rows come from elsewhere than those it was fitted on, or if equal rows were on both sides "
                "of a split."
            )
        else:
            sentence = (
                f"{beside} That is more than promised, but chance can explain it: where the promise just holds, so "
                f"many wrong answers or more come up in {percent(chance)} of such samples."
            )
        return KeptOrNot("wrong_among_answers", self.at_most, seen, n_rows, chance, sentence)


@dataclass(frozen=True)
class CoveragePromise(Promise):
    """At least the share ``at_least`` of the rows is answered, as on the calibration rows.

    How many new rows are answered depends on the luck of both samples. Above the confidence of the calibration row that
    comes next after the k of m accepted ones lies a Beta(k + 1, m - k) share of new rows, so that the number of answers
    is beta-binomial.

    Examples
    --------
    >>> promise = CoveragePromise(0.9, n_accepted=180, n_calibration=200)
    >>> promise.judged(Counts(450, 410, 8)).sentence
    'Asked for: at least 90.0 % of the rows answered. Seen: 91.1 % of 450.'
    >>> promise.judged(Counts(450, 390, 8)).verdict, promise.judged(Counts(450, 300, 8)).verdict
    ('within chance', 'broken')
    """

    at_least: float
    n_accepted: int
    n_calibration: int

    def judged(self, counts: Counts) -> KeptOrNot:
        seen, n_rows = counts.coverage, counts.n_rows
        beside = (
            f"Asked for: at least {percent(self.at_least)} of the rows answered. Seen: {percent(seen)} of {n_rows:,}."
        )
        if seen >= self.at_least:
            return KeptOrNot("coverage", self.at_least, seen, n_rows, None, beside)
        left_out = self.n_calibration - self.n_accepted
        from scipy.stats import betabinom

        chance = float(betabinom.cdf(counts.n_answered, n_rows, self.n_accepted + 1, left_out)) if left_out else 0.0
        if chance < _SURPRISING:
            sentence = (
                f"{beside} So few answers, or fewer, come up in {percent(chance)} of such samples: these rows differ "
                "from those that the rule was fitted on."
            )
        else:
            sentence = (
                f"{beside} Chance can explain the difference: so few answers, or fewer, come up in {percent(chance)} "
                "of such samples."
            )
        return KeptOrNot("coverage", self.at_least, seen, n_rows, chance, sentence)


def promise_of(rule: Rule | None) -> Promise | None:
    """Return what a fitted rule promises, or None.

    Examples
    --------
    >>> promise_of(RiskControl(0.3))
    RiskPromise(at_most=0.3, delta=0.05)
    """
    if isinstance(rule, RiskControl):
        return RiskPromise(float(rule.target_risk), float(rule.delta))
    if isinstance(rule, Coverage):
        return CoveragePromise(float(rule.target), rule.n_accepted_, rule.n_rows_)
    return None
