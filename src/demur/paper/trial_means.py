"""Means over trials from stored records, which of them are best, and how they compare with the paper's tables."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan

import numpy as np
from scipy import stats

from demur.errors import UserError
from demur.paper.experiments import Experiment
from demur.paper.records import Record, Score

__all__ = [
    "METRICS",
    "ROUNDING",
    "TEST",
    "Agreement",
    "Comparison",
    "MixedDataError",
    "Numbers",
    "Results",
    "Value",
    "agreement",
    "best_and_equivalent",
    "collect",
    "compare",
    "tolerance",
    "worse_than",
]

METRICS = ("zoc_risk", "accepted_accuracy", "rejection_ratio")


class MixedDataError(UserError):
    """The store holds records of one problem that were made with different data."""


@dataclass(frozen=True)
class Value:
    """Mean and standard deviation over ``n`` trials; None if every trial rejected everything (then n is 0)."""

    mean: float | None
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Value":
        """Summarise the values of trials; NaN is ignored.

        Examples
        --------
        >>> Value.of([0.1, 0.3, float("nan")])
        Value(mean=0.2, std=0.1414..., n=2)
        """
        kept = [value for value in values if not isnan(value)]
        if not kept:
            return cls(None, None, 0)
        return cls(float(np.mean(kept)), float(np.std(kept, ddof=1)) if len(kept) > 1 else 0.0, len(kept))


@dataclass(frozen=True)
class Numbers:
    """Values by (metric, problem, cost, method), from our records or from the paper's tables.

    Parameters
    ----------
    values : dict
    bold : dict
        The methods with the lowest 0-1-c risk and those equivalent to it, by (problem, cost).
    """

    values: dict[tuple[str, str, float, str], Value] = field(default_factory=dict)
    bold: dict[tuple[str, float], set[str]] = field(default_factory=dict)

    def get(self, metric: str, problem: str, cost: float, method: str) -> Value | None:
        """Return a value, or None."""
        return self.values.get((metric, problem, cost, method))

    def mean(self, metric: str, problem: str, cost: float, method: str) -> float | None:
        """Return a mean, or None."""
        value = self.get(metric, problem, cost, method)
        return None if value is None else value.mean

    def rivals(self, problem: str, cost: float) -> list[str]:
        """Return the methods that have a risk in a cell."""
        return [
            method for metric, where, at, method in self.values if (metric, where, at) == ("zoc_risk", problem, cost)
        ]

    def without(self, problems: Collection[str]) -> "Numbers":
        """Return the numbers without those of some problems."""
        return Numbers(
            {key: value for key, value in self.values.items() if key[1] not in problems},
            {key: methods for key, methods in self.bold.items() if key[0] not in problems},
        )

    def std(self, metric: str, problem: str, cost: float, method: str) -> float | None:
        """Return a standard deviation, or None."""
        value = self.get(metric, problem, cost, method)
        return None if value is None else value.std


@dataclass(frozen=True)
class Results:
    """The stored results of an experiment.

    Parameters
    ----------
    experiment : Experiment
    scores : dict
        One score per trial, by (problem, cost, method).
    records : tuple of Record
    notes : dict
        Caveats about the figures, by problem.
    """

    experiment: Experiment
    scores: dict[tuple[str, float, str], list[Score]]
    records: tuple[Record, ...]
    notes: dict[str, str]

    @property
    def problems(self) -> list[str]:
        """The problems that have records, in the order of the experiment."""
        found = {problem for problem, _, _ in self.scores}
        return [problem for problem in self.experiment.problems if problem in found]

    @property
    def missing(self) -> list[str]:
        """The trials that are not in the store, one line per method and problem."""
        trials = set(range(self.experiment.protocol.trials))
        lines = []
        for problem in self.experiment.problems:
            for method in self.experiment.all_methods:
                cost = self.experiment.protocol.costs[0]
                found = {score.trial for score in self.scores.get((problem, cost, method.name), [])}
                if trials - found:
                    lines.append(f"{method.name} on {problem}: {len(trials - found)} of {len(trials)} trials")
        return lines

    @property
    def methods(self) -> list[str]:
        """Names of the experiment's own methods."""
        return [method.name for method in self.experiment.methods]

    @property
    def all_methods(self) -> list[str]:
        """Names of all methods, also of the further ones."""
        return [method.name for method in self.experiment.all_methods]

    @cached_property
    def paper_numbers(self) -> Numbers:
        """Summary of the experiment's own methods."""
        return self.numbers(self.methods)

    def numbers(self, methods: Sequence[str]) -> Numbers:
        """Summarise some methods; bold marks the best among them."""
        values, bold = {}, {}
        for problem in self.problems:
            for cost in self.experiment.protocol.costs:
                risks = {}
                for method in methods:
                    scores = self.scores.get((problem, cost, method))
                    if not scores:
                        continue
                    risks[method] = [score.risk for score in scores]
                    trials = (risks[method], [one.accuracy for one in scores], [one.rejection_ratio for one in scores])
                    for metric, figures in zip(METRICS, trials, strict=True):
                        values[metric, problem, cost, method] = Value.of(figures)
                bold[problem, cost] = best_and_equivalent(risks)
        return Numbers(values, bold)


def collect(experiment: Experiment, records: Iterable[Record]) -> Results:
    """Combine records; each trial counts once.

    Raises
    ------
    MixedDataError
        If a problem's records were made with different data.
    """
    by_trial: dict[tuple[str, float, str], dict[int, Score]] = {}
    data: dict[str, str] = {}
    notes: dict[str, str] = {}
    used = []
    for record in records:
        problem, method = record.spec["problem"], record.spec["method"]["name"]
        if data.setdefault(problem, record.spec["data"]) != record.spec["data"]:
            raise MixedDataError(
                f"the store holds records of {problem} made with different data; choose the data with --data, or keep "
                "the records in different folders."
            )
        notes[problem] = record.note
        used.append(record)
        for score in record.scores:
            if score.trial < experiment.protocol.trials:
                by_trial.setdefault((problem, score.cost, method), {}).setdefault(score.trial, score)
    scores = {key: [trials[trial] for trial in sorted(trials)] for key, trials in by_trial.items()}
    ordered = {problem: notes[problem] for problem in experiment.problems if problem in notes}
    return Results(experiment, scores, tuple(used), ordered)


LEVEL = 0.05

ROUNDING = 1e-9
"""Risks that differ by less are equal: if all trials reject everything, they differ by rounding errors only."""

TEST = """\
The test is a two-sample Student t-test (equal variances), one-sided at the 5 % level: is the method's mean risk higher
than the lowest? The paper says only that it used a 5 % t-test; of the four kinds tried on its printed means and
deviations, this one gives most of its bold figures, 170 of 175 (one-sided Welch 169, both two-sided ones 167)."""


def best_and_equivalent(risks: Mapping[str, Sequence[float]]) -> set[str]:
    """Return the method with the lowest mean risk, and those whose risk is not significantly higher.

    Parameters
    ----------
    risks : mapping of method to the risks of its trials

    Examples
    --------
    >>> sorted(best_and_equivalent({"a": [0.10, 0.12], "b": [0.11, 0.13], "c": [0.30, 0.31]}))
    ['a', 'b']
    """
    if not risks:
        return set()
    values = {method: Value.of(trials) for method, trials in risks.items()}
    best = min(values, key=lambda method: (values[method].mean, values[method].std))
    return {method for method, value in values.items() if method == best or not worse_than(value, values[best])}


def worse_than(value: Value, best: Value) -> bool:
    """Return whether a mean is significantly higher than the best one.

    Examples
    --------
    >>> best = Value(0.1, 0.01, 10)
    >>> worse_than(Value(0.11, 0.01, 10), best), worse_than(Value(0.105, 0.01, 10), best)
    (True, False)
    """
    assert value.mean is not None
    assert best.mean is not None
    deviations = [one.std or 0.0 for one in (value, best)]
    if value.mean <= best.mean + ROUNDING:
        return False
    if min(value.n, best.n) < 2 or max(deviations) <= ROUNDING:
        return True
    result = stats.ttest_ind_from_stats(
        value.mean, deviations[0], value.n, best.mean, deviations[1], best.n, alternative="greater"
    )
    return bool(result.pvalue < LEVEL)


DEVIATIONS = 3


@dataclass(frozen=True)
class Comparison:
    """Comparison of one method's mean risks with the published ones.

    Parameters
    ----------
    method : str
    n : int
        Number of cells that both have.
    at_or_below : int
        Cells where our mean, rounded to the three decimals that the paper prints, is at most the published one.
    strictly : int
        The same without rounding.
    within : int
        Cells where the rounded mean is at most the published mean plus three published standard deviations.
    outside : tuple of str
        The other cells, with both figures.
    """

    method: str
    n: int
    at_or_below: int
    strictly: int
    within: int
    outside: tuple[str, ...]


def compare(numbers: Numbers, published: Numbers, methods: Sequence[str]) -> list[Comparison]:
    """Compare every method's risks with the published ones; methods without a published risk are omitted.

    Examples
    --------
    >>> cell = ("zoc_risk", "letter", 0.2, "CE")
    >>> ours, paper = (Numbers({cell: Value(mean, 0.01, 10)}) for mean in (0.0834, 0.083))
    >>> compare(ours, paper, ["CE"])
    [Comparison(method='CE', n=1, at_or_below=1, strictly=0, within=1, outside=())]
    """
    compared = []
    for method in methods:
        cells = []
        for (metric, problem, cost, name), ours in numbers.values.items():
            paper = published.get(metric, problem, cost, name)
            if metric == "zoc_risk" and name == method and paper and paper.mean is not None and ours.mean is not None:
                cells.append((f"{problem} {cost:g}", ours.mean, paper.mean, paper.std or 0.0))
        within = [round(ours, 3) <= paper + DEVIATIONS * std + ROUNDING for _, ours, paper, std in cells]
        outside = tuple(
            f"{place}: {ours:.3f}, paper {paper:.3f} ({std:.4f})"
            for (place, ours, paper, std), inside in zip(cells, within, strict=True)
            if not inside
        )
        at_or_below = sum(round(ours, 3) <= paper + ROUNDING for _, ours, paper, _ in cells)
        strictly = sum(ours <= paper + ROUNDING for _, ours, paper, _ in cells)
        if cells:
            compared.append(Comparison(method, len(cells), at_or_below, strictly, sum(within), outside))
    return compared


@dataclass(frozen=True)
class Agreement:
    """Numbers of printed figures, and of those that agree with ours, by metric."""

    within: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    of: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))


def tolerance(printed: Value) -> float:
    """Return the largest distance of a figure that agrees with a printed one: two deviations and half a digit."""
    return 2 * (printed.std or 0.0) + 0.0005 + ROUNDING


def agreement(
    numbers: Numbers, published: Numbers, problems: Collection[str] = (), methods: Collection[str] = ()
) -> Agreement:
    """Count the printed figures that agree with ours, of some data sets and methods or of all.

    Examples
    --------
    >>> cell = ("zoc_risk", "letter", 0.2, "CE")
    >>> ours, paper = (Numbers({cell: Value(mean, 0.01, 10)}) for mean in (0.09, 0.083))
    >>> agreement(ours, paper).within["zoc_risk"]
    1
    """
    found = Agreement()
    for (metric, problem, cost, method), printed in published.values.items():
        if metric not in METRICS or (problems and problem not in problems) or (methods and method not in methods):
            continue
        if printed.mean is not None:
            ours = numbers.mean(metric, problem, cost, method)
            found.of[metric] += 1
            found.within[metric] += ours is not None and abs(ours - printed.mean) <= tolerance(printed)
    return found
