"""Evaluation of a model with experts: who is asked, what it costs, and what the alternatives would cost."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from demur.array_types import AnyArray, ByName, Floats, Ints, Mask
from demur.metrics import Interval
from demur.tabular.evaluation_figures import counted, mean_of, per_hundred, percent
from demur.tabular.expert_columns import given_answers


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
        The rows that are sent to the expert, and those with an answer of the expert, asked or not.
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
    """Model and experts together on labelled rows.

    Parameters
    ----------
    names : tuple of str
        The experts.
    prices : array of shape (n_experts,)
        The prices that the decisions used.
    ask : array of int, shape (n,)
        Who was asked, -1 where the model answered.
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
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.ask)

    @cached_property
    def right(self) -> Floats:
        """Whether the final answer is right; where the asked expert's is missing, how likely it is to be."""
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
        """What each row costs: the price and the mistake, or the expected one where an answer is missing."""
        return np.asarray(np.append(self.prices, 0.0)[self.ask] + (1 - self.right))

    @property
    def alternatives(self) -> dict[str, Floats]:
        """What each row costs if nobody is asked, or always one expert: one with a limit cannot always be asked."""
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
        who = " and ".join([", ".join(shares[:-1]), shares[-1]] if len(shares) > 1 else shares)
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
