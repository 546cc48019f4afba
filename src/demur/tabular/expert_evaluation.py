"""Evaluation of a model with experts: who is asked, what it costs, and what the alternatives would cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.deferral.deferral_metrics import DeferralCurve, ExpertCalibration, expert_load
from demur.metrics import Interval, bootstrap, mean_interval, proportion_interval
from demur.tabular.evaluation_figures import interval_json
from demur.tabular.evaluation_words import compared, counted, per_hundred, percent
from demur.tabular.expert_columns import given_answers

__all__ = ["ASKING_SENTENCES", "ExpertEvaluation", "right_answers"]

Floats = NDArray[np.float64]

ASKING_SENTENCES = {
    "asks": "The model answers {own} of the rows itself and asks {who}",
    "asks_nobody": "The model answers every row itself",
    "asks_always": "The model answers no row itself and asks {who}",
    "share": "{name} about {load}",
    "result": "{asks}; {right} of the final answers are right, and each 100 rows cost {risk}{compared}.",
    "less": " instead of {better} if {alternative}",
    "more": ", more than the {better} if {alternative}",
    "same": ", as much as if {alternative}",
    "nobody": "nobody were asked",
    "always": "{name} were always asked",
}
"""The parts of the headline, which the report's script puts together in the same way for other prices."""

_MOST_RESAMPLED = 2_000_000
"""Rows in all resamples together."""


@dataclass(frozen=True, eq=False)
class ExpertEvaluation:
    """Model and experts together on labelled rows.

    Parameters
    ----------
    names : tuple of str
        The experts.
    prices : array of shape (n_experts,)
        By which was decided.
    ask : array of int, shape (n,)
        Who was asked, -1 where the model answered.
    sure : array of shape (n,)
        The estimated probability that the model's answer is right.
    expected : array of shape (n, n_experts)
        The estimated probability that each expert is right.
    model_right : array of bool, shape (n,)
    expert_right : array of shape (n, n_experts)
        1 where the expert's answer is right, 0 where it is wrong, NaN where there is none.
    limits : mapping of str to int or float
        On what the experts get.

    Examples
    --------
    Two rows go to a nurse at 0.1, who is wrong about one of them:

    >>> right = np.array([[1.0], [1.0], [0.0], [np.nan]])
    >>> found = ExpertEvaluation(("nurse",), np.array([0.1]), np.array([-1, 0, 0, -1]), np.array([0.9, 0.5, 0.6, 0.9]),
    ...                np.full((4, 1), 0.8), np.array([True, False, True, True]), right)
    >>> round(found.risk.estimate, 3), found.accuracy.estimate, found.load.estimate
    (0.3, 0.75, array([0.5]))
    >>> found.headline()
    'The model answers 50.0 % of the rows itself and asks nurse about 50.0 %; 75.0 % of the final answers are right, and
    each 100 rows cost 30.0, more than the 25.0 if nobody were asked.'
    """

    names: tuple[str, ...]
    prices: Floats
    ask: NDArray[np.int64]
    sure: Floats
    expected: Floats
    model_right: NDArray[np.bool_]
    expert_right: Floats
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.ask)

    @cached_property
    def right(self) -> Floats:
        """Whether the final answer is right; where the asked expert's is missing, how likely it is to be."""
        rows, asked = np.arange(self.n_rows), np.maximum(self.ask, 0)
        seen = self.expert_right[rows, asked]
        expert = np.where(np.isnan(seen), self.expected[rows, asked], seen)
        return np.where(self.ask < 0, self.model_right, expert)

    @cached_property
    def n_open(self) -> int:
        """The number of rows whose asked expert has not answered."""
        rows = np.flatnonzero(self.ask >= 0)
        return int(np.isnan(self.expert_right[rows, self.ask[rows]]).sum())

    @cached_property
    def risk(self) -> Interval:
        """The mean cost of a row: prices and mistakes."""
        n_experts = len(self.names)
        price = np.append(0.0, self.prices)
        n_asked = np.bincount(self.ask + 1, minlength=n_experts + 1)
        wrong = np.bincount(self.ask + 1, 1 - self.right, minlength=n_experts + 1)
        whole = np.round(wrong).astype(np.int64)  # expected mistakes of missing answers need not be whole
        found = mean_interval(np.r_[price, price + 1], np.r_[n_asked - whole, whole])
        return _moved(found, float((wrong - whole).sum()) / self.n_rows)

    @cached_property
    def accuracy(self) -> Interval:
        """The share of right final answers."""
        total = float(self.right.sum())
        return _moved(proportion_interval(round(total), self.n_rows), (total - round(total)) / self.n_rows)

    @cached_property
    def load(self) -> Interval:
        """The share of rows that each expert gets."""
        return expert_load(self.ask, len(self.names))

    @cached_property
    def nobody(self) -> Interval:
        """The mean cost of a row if the model answered all rows."""
        return proportion_interval(int((~self.model_right).sum()), self.n_rows)

    def always(self, number: int) -> Interval:
        """Return the mean cost of a row if one expert were always asked, on the rows that the expert has answered."""
        seen = self.expert_right[:, number]
        answered = ~np.isnan(seen)
        found = proportion_interval(int((seen[answered] == 0).sum()), int(answered.sum()))
        return _moved(found, float(self.prices[number]))

    def right_when_asked(self, number: int) -> Interval:
        """Return the share of right answers of one expert among the rows that it was asked and has answered."""
        seen = self.expert_right[self.ask == number, number]
        seen = seen[~np.isnan(seen)]
        return proportion_interval(int(seen.sum()), len(seen))

    def calibration(self, number: int) -> ExpertCalibration | None:
        """Compare P(expert right) with what happened on the rows that one expert has answered; None without any."""
        seen = self.expert_right[:, number]
        answered = ~np.isnan(seen)
        if not answered.any():
            return None
        return ExpertCalibration.from_estimates(self.expected[answered, number], seen[answered] == 1)

    @cached_property
    def regret(self) -> Interval | None:
        """The mean cost of a row above an oracle that knows who is right, on rows that all experts have answered."""
        rows = np.flatnonzero(~np.isnan(self.expert_right).any(axis=1))
        if not len(rows):
            return None
        wrong = np.column_stack([1 - self.expert_right[rows], ~self.model_right[rows]])
        costs = wrong + np.append(self.prices, 0.0)
        above = costs[np.arange(len(rows)), self.ask[rows]] - costs.min(axis=1)
        return bootstrap(np.mean, above, n_resamples=_resamples(len(rows)), seed=0)

    @cached_property
    def curve(self) -> DeferralCurve:
        """Accuracy against the share of rows that are asked about, each of its best expert."""
        worth = self.expected - self.prices
        best = worth.argmax(axis=1)
        rows = np.arange(self.n_rows)
        seen = self.expert_right[rows, best]
        expert = np.where(np.isnan(seen), self.expected[rows, best], seen)
        return DeferralCurve.from_confidence(self.sure - worth[rows, best], self.model_right, expert)

    @cached_property
    def area(self) -> Interval:
        """The area under that curve."""
        return self.curve.area_interval(n_resamples=_resamples(self.n_rows))

    @property
    def figures(self) -> dict[str, Interval]:
        """The first figures of an evaluation."""
        return {"system_risk": self.risk, "system_accuracy": self.accuracy}

    @property
    def more_figures(self) -> dict[str, Interval]:
        """The last figures of an evaluation."""
        more = {"deferral_area": self.area}
        return more if self.regret is None else more | {"regret": self.regret}

    def headline(self) -> str:
        """Summarize who answers, and at which cost, in one sentence."""
        words, load = ASKING_SENTENCES, np.asarray(self.load.estimate)
        shares = [
            words["share"].format(name=name, load=percent(float(one)))
            for name, one in zip(self.names, load, strict=True)
            if one > 0
        ]
        own = float((self.ask < 0).mean())
        who = " and ".join([", ".join(shares[:-1]), shares[-1]] if len(shares) > 1 else shares)
        kind = "asks_nobody" if not shares else "asks" if own > 0 else "asks_always"
        return words["result"].format(
            asks=words[kind].format(own=percent(own), who=who),
            right=percent(float(self.accuracy.estimate)),
            risk=per_hundred(float(self.risk.estimate)),
            compared=self._compared(),
        )

    def _compared(self) -> str:
        """Compare with never asking, and with always asking one expert who has no limit."""
        words = ASKING_SENTENCES
        others = {words["nobody"]: float(self.nobody.estimate)}
        for number, name in enumerate(self.names):
            cost = float(self.always(number).estimate)
            if not math.isnan(cost) and name not in self.limits:
                others[words["always"].format(name=name)] = cost
        itself = words["nobody"] if (self.ask < 0).all() else ""
        return compared(words, float(self.risk.estimate), others, per_hundred, itself)

    def rule(self) -> str:
        """Return the experts and their prices in a sentence."""
        asked = ", ".join(f"{name} at {price:g}" for name, price in zip(self.names, self.prices, strict=True))
        return f"Each row goes to whoever is expected to cost least: the model itself, or {asked}; a mistake costs 1."

    def remarks(self) -> list[str]:
        """Return sentences on missing answers and on limits."""
        sentences = []
        if self.n_open:
            rows = counted(self.n_open, "row has", "rows have")
            sentences.append(f"{rows} no answer of the expert who is asked: expected mistakes count there.")
        for number, name in enumerate(self.names):
            if np.isnan(self.expert_right[:, number]).all():
                sentences.append(f"These rows hold no answer of {name}: nothing here tells how good {name} is.")
        if self.limits:
            limited = ", ".join(f"{name} at most {_limit_words(limit)}" for name, limit in self.limits.items())
            sentences.append(f"The rows were assigned together, within the limits: {limited}.")
        return sentences

    def to_json(self) -> ByName:
        """Return every figure as plain numbers."""
        experts = []
        for number, name in enumerate(self.names):
            found = self.calibration(number)
            load = self.load
            experts.append(
                {
                    "name": name,
                    "price": float(self.prices[number]),
                    "limit": self.limits.get(name),
                    "n_asked": int((self.ask == number).sum()),
                    "n_answered": int((~np.isnan(self.expert_right[:, number])).sum()),
                    "load": interval_json(Interval(load.estimate[number], load.low[number], load.high[number], 0.95)),
                    "right_when_asked": interval_json(self.right_when_asked(number)),
                    "risk_if_always_asked": interval_json(self.always(number)),
                    "calibration_error": None if found is None else found.error,
                }
            )
        return {
            "experts": experts,
            "n_asked": int((self.ask >= 0).sum()),
            "n_without_answer": self.n_open,
            "risk_if_nobody_asked": interval_json(self.nobody),
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


def _moved(found: Interval, by: float) -> Interval:
    ends: list[Any] = [found.estimate + by, found.low + by, found.high + by]
    return Interval(ends[0], ends[1], ends[2], found.confidence_level)


def _resamples(n_rows: int) -> int:
    return max(50, min(500, _MOST_RESAMPLED // max(n_rows, 1)))


def _limit_words(limit: float) -> str:
    return f"{limit:,} rows" if isinstance(limit, int) else f"{percent(limit)} of the rows"
