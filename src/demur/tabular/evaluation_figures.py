"""Figures of decisions on labelled rows, and how they are written: counts, classes, groups, guarantees, experts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, ByName, Floats, Ints, Mask, Prices
from demur.guarantees import Coverage, RiskControl
from demur.metrics import Interval, mean_interval, proportion_interval, risk_interval
from demur.rules import Rule
from demur.tabular.expert_columns import given_answers

UNDEFINED = "\N{EN DASH}"
"""Text for a figure that is not defined, such as the accuracy without answers."""


def percent(share: float) -> str:
    """Write a share in per cent; 100.0 % and 0.0 % are written only for exactly 1 and 0.

    Examples
    --------
    >>> percent(0.9125), percent(1), percent(0.9999), percent(0.0001)
    ('91.3 %', '100.0 %', '>99.9 %', '<0.1 %')
    """
    if math.isnan(share):
        return UNDEFINED
    return ">99.9 %" if 0.9995 <= share < 1 else f"{per_hundred(share)} %"


def per_hundred(risk: float) -> str:
    """Write the cost of a hundred rows, to one decimal.

    Examples
    --------
    >>> per_hundred(0.037), per_hundred(0.0002), per_hundred(0)
    ('3.7', '<0.1', '0.0')
    """
    if math.isnan(risk):
        return UNDEFINED
    tenths = math.floor(risk * 1000 + 0.5)
    return "<0.1" if tenths == 0 and risk > 0 else f"{tenths / 10:.1f}"


def cost_words(cost: float) -> str:
    """Write a cost with as many digits as it needs and no more.

    Examples
    --------
    >>> cost_words(0.2), cost_words(0.0), cost_words(0.00001)
    ('0.2', '0', '0.00001')
    """
    return str(np.format_float_positional(cost, trim="-"))


def matrix_words(cost: float) -> str:
    """Write the cost of a hundred rows by a cost matrix, which may have any unit.

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


def four_digits(value: float) -> str:
    """Write a number to four digits after the point, or to one if it is large.

    Examples
    --------
    >>> four_digits(0.12345), four_digits(12345.678)
    ('0.1235', '12,345.7')
    """
    if math.isnan(value):
        return UNDEFINED
    return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"


@dataclass(frozen=True)
class Figure:
    """Title, meaning and format of a figure, on the command line and in the report.

    Parameters
    ----------
    title, meaning : str
    write : callable
        Returns a value as text.

    Examples
    --------
    >>> FIGURES["coverage"].title, FIGURES["coverage"].write(0.8125)
    ('Coverage', '81.3 %')
    """

    title: str
    meaning: str
    write: Callable[[float], str] = four_digits


FIGURES = {
    "system_risk": Figure("System risk", "cost per row: prices, mistakes"),
    "system_accuracy": Figure("System accuracy", "correct final answers", percent),
    "mean_cost": Figure("Mean cost", "cost per row by the cost matrix"),
    "risk": Figure("Risk", "cost per row (0-1-c)"),
    "coverage": Figure("Coverage", "rows answered", percent),
    "accepted_accuracy": Figure("Accepted accuracy", "correct among the answers", percent),
    "risk_if_all_answered": Figure("Error rate", "wrong if all were answered"),
    "augrc": Figure("AUGRC", "mean error rate x coverage"),
    "aurc": Figure("AURC", "area under risk-coverage"),
    "aurc_ranked": Figure("AURC, ranked errors", "valid if the risk does not fall with coverage"),
}
"""All figures that an evaluation can have."""


_MOST_VALUES = 64
"""Number of different amounts that an interval of a mean distinguishes."""


def mean_of(values: ArrayLike, possible: ArrayLike, confidence_level: float = 0.95) -> Interval:
    """Return an interval of the mean of amounts, given others that are possible; NaN without any amount.

    Many different amounts are rounded first.

    Examples
    --------
    >>> print(mean_of([0.0, 0.2, 0.2, 0.0], possible=[0.0, 1.0]))
    0.1 [0.01352, 0.617]
    """
    amounts = np.asarray(values, dtype=np.float64)
    if not len(amounts):
        return Interval(math.nan, math.nan, math.nan, confidence_level)
    support = np.union1d(amounts, possible)
    if len(support) > _MOST_VALUES:
        support = np.linspace(support[0], support[-1], _MOST_VALUES)
    if len(support) == 1:
        return Interval(support[0], support[0], support[0], confidence_level)
    cells = np.searchsorted((support[1:] + support[:-1]) / 2, amounts)
    found = mean_interval(support, np.bincount(cells, minlength=len(support)), confidence_level)
    mean = float(amounts.mean())
    shift = mean - found.estimate
    return replace(found, estimate=mean, low=found.low + shift, high=found.high + shift)


def rows_needed(difference: Interval, n_rows: int) -> str:
    """Say about how many rows would show a difference that ``n_rows`` do not show; empty if no number would.

    Examples
    --------
    >>> rows_needed(Interval(0.01, -0.01, 0.03, 0.95), 100)
    ' To show a difference of this size takes about 400 rows.'
    """
    found = difference.estimate
    if not found:
        return ""
    needed = n_rows * ((found - (difference.low if found > 0 else difference.high)) / found) ** 2
    return f" To show a difference of this size takes about {float(f'{needed:.2g}'):,.0f} rows."


def json_ready(value: Any) -> Any:
    """Return figures as plain numbers, strings, lists and dicts, with None for undefined ones.

    Examples
    --------
    >>> json_ready({"risk": Interval(0.5, 0.25, np.nan, 0.95), "rows": np.array([1, 2])})
    {'risk': {'estimate': 0.5, 'low': 0.25, 'high': None}, 'rows': [1, 2]}
    """
    if isinstance(value, Interval):
        value = {"estimate": value.estimate, "low": value.low, "high": value.high}
    elif is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: json_ready(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [json_ready(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True)
class AnswerCounts:
    """The numbers of rows, of answers, and of wrong answers.

    Parameters
    ----------
    n_rows, n_answered, n_wrong : int

    Examples
    --------
    Ten rows, eight answered, one of them wrongly, at cost 0.25: (1 + 2 * 0.25) / 10.

    >>> counts = AnswerCounts(10, 8, 1)
    >>> counts.risk(0.25), counts.coverage, counts.accepted_accuracy
    (0.15, 0.8, 0.875)
    """

    n_rows: int
    n_answered: int
    n_wrong: int

    @property
    def n_rejected(self) -> int:
        """The number of declined rows."""
        return self.n_rows - self.n_answered

    @property
    def n_right(self) -> int:
        """The number of rows answered correctly."""
        return self.n_answered - self.n_wrong

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.n_answered / self.n_rows

    @property
    def accepted_accuracy(self) -> float:
        """The share of correct answers among those given; NaN if none was given."""
        return self.n_right / self.n_answered if self.n_answered else math.nan

    def risk(self, cost: float) -> float:
        """Return the 0-1-c risk: the mean cost of a row."""
        return (self.n_wrong + cost * self.n_rejected) / self.n_rows


def shares_in_words(counts: AnswerCounts) -> str:
    """Return how many rows are answered and how well, as a part of a sentence.

    Examples
    --------
    >>> shares_in_words(AnswerCounts(1000, 900, 20))
    'the model answers 90.0 % of the rows, 97.8 % of those correctly, and declines 10.0 %'
    """
    correct = percent(counts.accepted_accuracy)
    if not counts.n_answered:
        return "the model answers no row and declines all of them"
    if not counts.n_rejected:
        return f"the model answers every row, {correct} of them correctly"
    answered, declined = percent(counts.coverage), percent(counts.n_rejected / counts.n_rows)
    return f"the model answers {answered} of the rows, {correct} of those correctly, and declines {declined}"


@dataclass(frozen=True)
class ClassFigures:
    """The figures of one class; made by :attr:`~demur.tabular.Evaluation.by_class`.

    Parameters
    ----------
    name : str
    n_rows, n_rejected, n_right : int
        The rows of this class, those declined, and those answered correctly.
    n_answers : int
        All answers with this class, whatever the truth.

    Examples
    --------
    >>> cat = ClassFigures("cat", n_rows=10, n_rejected=2, n_right=6, n_answers=9)
    >>> {name: round(share.estimate, 3) for name, share in cat.intervals.items()}
    {'rejection_rate': 0.2, 'accepted_accuracy': 0.75, 'precision': 0.667, 'recall': 0.6}
    """

    name: str
    n_rows: int
    n_rejected: int
    n_right: int
    n_answers: int

    @property
    def intervals(self) -> dict[str, Interval]:
        """The four shares with their 95 % intervals; NaN for a share of nothing.

        The declined share of the class, the correct share of its answered rows, the correct share of the answers with
        this class, and the correctly answered share of the class, declined rows included.
        """
        shares = {
            "rejection_rate": (self.n_rejected, self.n_rows),
            "accepted_accuracy": (self.n_right, self.n_rows - self.n_rejected),
            "precision": (self.n_right, self.n_answers),
            "recall": (self.n_right, self.n_rows),
        }
        return {name: proportion_interval(*share) for name, share in shares.items()}


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    r"""Confidence and accuracy in bins of equal width, and the expected calibration error.

    Made by :meth:`from_confidence`. With n_b rows in bin b,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    (Guo et al. 2017). A row on an edge falls into the bin above it, except confidence 1.

    Parameters
    ----------
    edges : array of shape (n_bins + 1,)
    n_rows : array of int, shape (n_bins,)
    confidence : array of shape (n_bins,)
        Means over the rows of the bin; NaN where it is empty.
    accuracy : Interval
        The share of correct answers in each bin, with an exact 95 % interval.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.

    Examples
    --------
    Four rows of confidence 0.8, two of them right, and one certain row, right: |0.5 - 0.8| * 4 / 5.

    >>> found = ReliabilityBins.from_confidence([0.8, 0.8, 0.8, 0.8, 1.0], [True, True, False, False, True])
    >>> round(found.ece, 6)
    0.24
    """

    edges: Floats
    n_rows: Ints
    confidence: Floats
    accuracy: Interval

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, right: ArrayLike, n_bins: int = 10) -> "ReliabilityBins":
        """Put the rows into bins.

        Parameters
        ----------
        confidence : array of shape (n,)
            Probability of the answer, in [0, 1].
        right : array of bool, shape (n,)
        n_bins : int, default 10
        """
        values, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
        edges = np.arange(n_bins + 1) / n_bins
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bins - 1)
        n_rows = np.bincount(bins, minlength=n_bins)
        sums = np.bincount(bins, weights=values, minlength=n_bins)
        means: Floats = np.divide(sums, n_rows, out=np.full(n_bins, np.nan), where=n_rows > 0)
        return cls(edges, n_rows, means, proportion_interval(np.bincount(bins[correct], minlength=n_bins), n_rows))

    @property
    def mean_confidence(self) -> float:
        """The mean confidence of all rows."""
        return float(np.nansum(self.confidence * self.n_rows) / self.n_rows.sum())

    @property
    def ece(self) -> float:
        """The expected calibration error: zero where confidence is accuracy in every bin."""
        gaps = np.abs(self.accuracy.estimate - self.confidence)
        return float(np.nansum(gaps * self.n_rows) / self.n_rows.sum())


@dataclass(frozen=True)
class GroupFigures:
    """The figures of one group.

    Parameters
    ----------
    name : str
    counts : AnswerCounts
    coverage, errors : Interval
        The share of rows answered, and of wrong answers among those given; NaN where there is none.
    risk : Interval or None
        The mean cost of a row; None where rejecting has no single cost.
    differs : {"", "more", "fewer"}
        Whether the group has significantly more or fewer errors than all rows.
    """

    name: str
    counts: AnswerCounts
    coverage: Interval
    errors: Interval
    risk: Interval | None
    differs: str


def figures_by_group(
    groups: Sequence[str | None], reject: Mask, wrong: Mask, cost: float | None = None
) -> list[GroupFigures]:
    """Return the figures of each group, by name; rows without one are a group as well.

    The intervals of each figure hold for all groups together with 95 % confidence (Bonferroni).

    Parameters
    ----------
    groups : sequence of str, length n
        The group of each row, or None.
    reject, wrong : array of bool, shape (n,)
        Whether the row was declined, and whether its first choice is wrong.
    cost : float, optional
        The cost of declining a row.

    Examples
    --------
    >>> reject, wrong = np.zeros(100, dtype=bool), np.arange(100) >= 93
    >>> for one in figures_by_group(["north"] * 90 + ["south"] * 10, reject, wrong, cost=0.2):
    ...     print(one.name, one.counts.n_wrong, round(one.errors.low, 2), round(one.errors.high, 2), one.differs)
    north 0 0.0 0.05 fewer
    south 7 0.31 0.95 more
    """
    names, codes = np.unique(["(none)" if name is None else name for name in groups], return_inverse=True)
    level = 1 - 0.05 / len(names)
    parts = [np.bincount(codes[rows], minlength=len(names)) for rows in (slice(None), ~reject, ~reject & wrong)]
    errors_of_all, found = parts[2].sum() / max(parts[1].sum(), 1), []
    for name, numbers in zip(names.tolist(), np.transpose(parts).tolist(), strict=True):
        counts = AnswerCounts(*numbers)
        coverage = proportion_interval(counts.n_answered, counts.n_rows, level)
        errors = proportion_interval(counts.n_wrong, counts.n_answered, level)
        costs = counts.n_wrong, counts.n_rejected, counts.n_rows
        risk = None if cost is None else risk_interval(*costs, cost, level)
        differs = "more" if errors.low > errors_of_all else "fewer" if errors.high < errors_of_all else ""
        found.append(GroupFigures(name, counts, coverage, errors, risk, differs))
    return found


_SURPRISING = 0.01
"""A guarantee is called broken if the probability of the result by chance is below this. A model is evaluated more than
once, on held-out rows and on later tables: at 5 %, a valid guarantee would soon be called broken."""


@dataclass(frozen=True)
class GuaranteeCheck:
    """A guarantee compared with labelled rows.

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
    verdict : {"kept", "within chance", "broken", "not comparable"}
    sentence : str
    chance : float or None
        Probability of a result at least as bad if the guarantee holds; None where it was kept.
    """

    figure: str
    target: float
    seen: float | None
    n_rows: int
    verdict: str
    sentence: str
    chance: float | None = None


def check_guarantee(rule: Rule | None, counts: AnswerCounts) -> GuaranteeCheck | None:
    """Compare the guarantee of a fitted rule with labelled rows; None for a rule without a guarantee.

    Examples
    --------
    >>> check_guarantee(RiskControl(0.3), AnswerCounts(500, 412, 110)).sentence
    'Guaranteed: at most 30.0 % of the answers wrong. Observed: 26.7 % of 412. The guarantee holds on these rows.'
    >>> check_guarantee(RiskControl(0.3), AnswerCounts(500, 400, 160)).sentence
    'Guaranteed: at most 30.0 % of the answers wrong. Observed: 40.0 % of 400. The guarantee is broken: if it ...
    """
    if isinstance(rule, RiskControl):
        return _check_risk(rule, counts)
    return _check_coverage(rule, counts) if isinstance(rule, Coverage) else None


def _check_risk(rule: RiskControl, counts: AnswerCounts) -> GuaranteeCheck:
    target, n_answered = float(rule.target_risk), counts.n_answered
    per_group = getattr(rule, "per_cluster_", False)
    words = f"Guaranteed: at most {percent(target)} of the answers wrong{rule.unit_in_words()}."
    seen, verdict, chance = None, "kept", None
    if not n_answered:
        words += " No row was answered, so these rows cannot confirm it."
    else:
        seen = counts.n_wrong / n_answered
        words += f" Observed: {percent(seen)} of {n_answered:,}."
        if per_group:
            verdict = "not comparable"
            words += " The guarantee is not about this share, to which large groups contribute more."
        elif seen <= target:
            words += " The guarantee holds on these rows."
        elif getattr(rule, "largest_cluster_", 1) > 1:
            verdict = "not comparable"
            words += " That is more than guaranteed, but rows of one group resemble each other: chance may explain it."
        else:
            from scipy.stats import binom  # slow to import

            # The exact chance of as many wrong answers or more at the largest risk that the guarantee allows.
            chance = float(binom.sf(counts.n_wrong - 1, n_answered, target))
            verdict = "broken" if chance < _SURPRISING else "within chance"
            often = f"as many wrong answers or more would come up in {percent(chance)} of such samples"
            if verdict == "broken":
                words += (
                    f" The guarantee is broken: if it held, {often}. It may fail in {percent(rule.delta)} of fits; it "
                    "is void if these rows come from another source than those it was fitted on, or if rows that "
                    "belong together were on both sides of a split."
                )
            else:
                words += f" That is more than guaranteed, but chance can explain it: if it just held, {often}."
    return GuaranteeCheck("wrong_among_answers", target, seen, n_answered, verdict, words, chance)


def _check_coverage(rule: Coverage, counts: AnswerCounts) -> GuaranteeCheck:
    """Compare the coverage with its target.

    The number of answered new rows depends on both samples. If k of m calibration rows were accepted, the share of new
    rows above the confidence of the next one has a Beta(k + 1, m - k) distribution, so the number of answers is
    beta-binomial.
    """
    target, seen, n_rows, verdict, chance = float(rule.target), counts.coverage, counts.n_rows, "kept", None
    words = f"Target: at least {percent(target)} of the rows answered. Observed: {percent(seen)} of {n_rows:,}."
    if seen < target:
        from scipy.stats import betabinom

        left_out = rule.n_rows_ - rule.n_accepted_
        chance = float(betabinom.cdf(counts.n_answered, n_rows, rule.n_accepted_ + 1, left_out)) if left_out else 0.0
        verdict = "broken" if chance < _SURPRISING else "within chance"
        why = "These rows differ from those that the rule was fitted on"
        why = why if verdict == "broken" else "Chance can explain the difference"
        words += f" {why}: so few answers, or fewer, come up in {percent(chance)} of such samples."
    return GuaranteeCheck("coverage", target, seen, n_rows, verdict, words, chance)


# Models with experts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExpertFigures:
    """The figures of one expert.

    Parameters
    ----------
    name : str
    price : float
        Price of one question.
    limit : int, float or None
        The largest number or share of rows that the expert gets.
    n_asked, n_answered : int
        Number of rows that are sent to the expert, and of those with an answer of the expert, asked or not.
    load : Interval
        The share of rows that are sent to the expert.
    right_when_asked : Interval
        The share of right answers among those asked for and given.
    risk_if_always_asked : Interval
        The mean cost of a row if the expert were always asked, on the rows with an answer.
    """

    name: str
    price: float
    limit: float | None
    n_asked: int
    n_answered: int
    load: Interval
    right_when_asked: Interval
    risk_if_always_asked: Interval


@dataclass(frozen=True, eq=False)
class ExpertEvaluation:
    """Evaluation of the model and its experts on labelled rows.

    Parameters
    ----------
    names : tuple of str
        The experts.
    prices : array of shape (n_experts,)
        The prices that the decisions used.
    ask : array of int, shape (n,)
        Number of the expert who was asked, -1 where the model answered.
    expected : array of shape (n, n_experts)
        The estimated probability that each expert is right.
    model_right : array of bool, shape (n,)
    expert_right : array of shape (n, n_experts)
        1 where the expert's answer is right, 0 where it is wrong, NaN where there is none.
    limits : mapping of str to int or float
        Limits on the number or share of rows of each expert.

    Examples
    --------
    Two rows go to a nurse at 0.1, who is wrong about one of them:

    >>> right = np.array([[1.0], [1.0], [0.0], [np.nan]])
    >>> found = ExpertEvaluation(("nurse",), np.array([0.1]), np.array([-1, 0, 0, -1]), np.full((4, 1), 0.8),
    ...                          np.array([True, False, True, True]), right)
    >>> round(found.risk.estimate, 3), found.accuracy.estimate, found.experts[0].load.estimate
    (0.3, 0.75, 0.5)
    >>> found.headline()
    'The model answers 50.0 % of the rows itself and asks nurse about 50.0 %; 75.0 % of the final answers are right, and
    each 100 rows cost 30.0.'
    """

    names: tuple[str, ...]
    prices: Floats
    ask: Ints
    expected: Floats
    model_right: Mask
    expert_right: Floats
    limits: Prices = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.ask)

    @cached_property
    def right(self) -> Floats:
        """Whether the final answer is right; the probability of it if the answer of the expert to ask is missing."""
        expected, seen = (values[np.arange(self.n_rows), self.ask] for values in (self.expected, self.expert_right))
        return np.where(self.ask < 0, self.model_right, np.where(np.isnan(seen), expected, seen))

    @cached_property
    def n_open(self) -> int:
        """The number of rows whose asked expert has not answered."""
        return int((np.isnan(self.expert_right[np.arange(self.n_rows), self.ask]) & (self.ask >= 0)).sum())

    @cached_property
    def risk(self) -> Interval:
        """The mean cost of a row: prices and mistakes."""
        return mean_of(self.costs, np.r_[0.0, 1.0, self.prices, self.prices + 1])

    @cached_property
    def accuracy(self) -> Interval:
        """The share of right final answers."""
        return mean_of(self.right, [0.0, 1.0])

    @property
    def costs(self) -> Floats:
        """The cost of each row: the price, and the mistake or, if the answer is missing, the expected one."""
        return np.asarray(np.append(self.prices, 0.0)[self.ask] + (1 - self.right))

    @property
    def alternatives(self) -> dict[str, Floats]:
        """The cost of each row if nobody is asked, or always one expert without a limit."""
        always = {
            f"always asking {one.name}": np.asarray(one.price + 1 - self.expert_right[:, number])
            for number, one in enumerate(self.experts)
            if one.n_answered and one.limit is None
        }
        return {"asking nobody": np.asarray(1.0 - self.model_right), **always}

    @cached_property
    def experts(self) -> list[ExpertFigures]:
        """The figures of each expert."""
        found = []
        for number, (name, price) in enumerate(zip(self.names, self.prices.tolist(), strict=True)):
            seen, asked = self.expert_right[:, number], self.ask == number
            given = ~np.isnan(seen)
            found.append(
                ExpertFigures(
                    name,
                    price,
                    self.limits.get(name),
                    int(asked.sum()),
                    int(given.sum()),
                    load=mean_of(asked, [0.0, 1.0]),
                    right_when_asked=mean_of(seen[given & asked], [0.0, 1.0]),
                    risk_if_always_asked=mean_of(price + (1 - seen[given]), [price, price + 1]),
                )
            )
        return found

    def headline(self) -> str:
        """Summarize who answers, and at which cost, in one sentence."""
        shares = [f"{one.name} about {percent(one.load.estimate)}" for one in self.experts if one.n_asked]
        who = " and ".join(shares)
        own = percent(float((self.ask < 0).mean()))
        asks = f"The model answers {own} of the rows itself and asks {who or 'nobody'}"
        right, spent = percent(self.accuracy.estimate), per_hundred(self.risk.estimate)
        return f"{asks}; {right} of the final answers are right, and each 100 rows cost {spent}."

    def remarks(self) -> list[str]:
        """Return sentences on missing answers."""
        sentences = []
        if self.n_open:
            rows = counted(self.n_open, "row", "rows")
            sentences.append(f"For {rows}, the asked expert's answer is missing; the expected error is used.")
        sentences += [
            f"These rows have no answer of {one.name}: they cannot show how good {one.name} is."
            for one in self.experts
            if not one.n_answered
        ]
        return sentences

    def to_json(self) -> ByName:
        """Return every figure; :func:`json_ready` writes them as plain numbers."""
        return {
            "experts": self.experts,
            "n_without_answer": self.n_open,
            "risk_if_nobody_asked": mean_of(~self.model_right, [0.0, 1.0]),
        }


def right_answers(answers: Mapping[str, AnyArray], labels: AnyArray) -> Floats:
    """Return whether the first answer of each expert is right, NaN where there is none.

    Examples
    --------
    >>> said = {"nurse": np.array([["a", None], [None, "b"], [None, None]], dtype=object)}
    >>> right_answers(said, np.array(["a", "a", "b"])).ravel()
    array([ 1.,  0., nan])
    """
    found = np.full((len(labels), len(answers)), np.nan)
    for number, people in enumerate(answers.values()):
        for person in people.T[::-1]:  # the first person last, who counts
            given = given_answers(person)
            found[given, number] = person[given] == labels[given]
    return found
