"""The figures of an experiment: means over trials, which of them are best, and how they compare with the paper's.

Everything here is made from stored records, or from the tables that the paper prints.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    "lies_within",
    "tolerance",
    "worse_than",
]

METRICS = ("zoc_risk", "accepted_accuracy", "rejection_ratio")


class MixedDataError(UserError):
    """The store holds records of one problem that were made with different data."""


@dataclass(frozen=True)
class Value:
    """A mean and a standard deviation over trials; both None where every trial rejected everything.

    ``n`` counts the trials that the mean is over: fewer than all where some rejected everything, so that they have
    no accuracy.
    """

    mean: float | None
    std: float | None
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Value":
        """Summarise the trials' values; NaN is left out.

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
        By (problem, cost), the methods with the lowest 0-1-c risk and those equivalent to it.
    """

    values: dict[tuple[str, str, float, str], Value] = field(default_factory=dict)
    bold: dict[tuple[str, float], set[str]] = field(default_factory=dict)

    def get(self, metric: str, problem: str, cost: float, method: str) -> Value | None:
        """Return a value, or None where there is none."""
        return self.values.get((metric, problem, cost, method))

    def mean(self, metric: str, problem: str, cost: float, method: str) -> float | None:
        """Return a mean, or None where there is none."""
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
        """Return a standard deviation, or None where there is none."""
        value = self.get(metric, problem, cost, method)
        return None if value is None else value.std


@dataclass(frozen=True)
class Results:
    """All that was found in the store for an experiment.

    Parameters
    ----------
    experiment : Experiment
    scores : dict
        By (problem, cost, method), one score per trial, in order.
    records : tuple of Record
    notes : dict
        By problem, what must be said of its figures.
    """

    experiment: Experiment
    scores: dict[tuple[str, float, str], list[Score]]
    records: tuple[Record, ...]
    notes: dict[str, str]

    @property
    def problems(self) -> list[str]:
        """The problems that have any record, in the order of the experiment."""
        found = {problem for problem, _, _ in self.scores}
        return [problem for problem in self.experiment.problems if problem in found]

    @property
    def missing(self) -> list[str]:
        """What is declared but not in the store, one line each."""
        trials = set(range(self.experiment.protocol.trials))
        lines = []
        for problem in self.experiment.problems:
            for method in self.experiment.all_methods:
                cost = self.experiment.protocol.costs[0]
                found = {score.trial for score in self.scores.get((problem, cost, method.name), [])}
                if trials - found:
                    lines.append(f"{method.name} on {problem}: {len(trials - found)} of {len(trials)} trials")
        return lines

    def numbers(self, methods: Sequence[str]) -> Numbers:
        """Summarise some methods; what is bold is decided among them."""
        values, bold = {}, {}
        for problem in self.problems:
            for cost in self.experiment.protocol.costs:
                risks = {}
                for method in methods:
                    scores = self.scores.get((problem, cost, method))
                    if not scores:
                        continue
                    for metric, trials in zip(METRICS, _by_metric(scores), strict=True):
                        values[metric, problem, cost, method] = Value.of(trials)
                    risks[method] = [score.risk for score in scores]
                bold[problem, cost] = best_and_equivalent(risks)
        return Numbers(values, bold)


def collect(experiment: Experiment, records: Iterable[Record]) -> Results:
    """Put matching records together, each trial once.

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
                f"the store holds records of {problem} made with different data; say which data are meant with --data, "
                "or keep them in different folders."
            )
        notes[problem] = record.note
        used.append(record)
        for score in record.scores:
            if score.trial < experiment.protocol.trials:
                by_trial.setdefault((problem, score.cost, method), {}).setdefault(score.trial, score)
    scores = {key: [trials[trial] for trial in sorted(trials)] for key, trials in by_trial.items()}
    ordered = {problem: notes[problem] for problem in experiment.problems if problem in notes}
    return Results(experiment, scores, tuple(used), ordered)


def _by_metric(scores: Sequence[Score]) -> tuple[list[float], list[float], list[float]]:
    return (
        [score.risk for score in scores],
        [score.accuracy for score in scores],
        [score.rejection_ratio for score in scores],
    )


LEVEL = 0.05

ROUNDING = 1e-9
"""Risks that differ by less are equal: trials that all reject everything differ by rounding errors alone."""

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
    moments = {method: _moments(values) for method, values in risks.items()}
    best = min(moments, key=lambda method: moments[method][:2])
    return {method for method in moments if method == best or not worse_than(*moments[method], *moments[best])}


def worse_than(mean: float, std: float, n: int, best_mean: float, best_std: float, best_n: int) -> bool:
    """Return whether a mean is higher than the best one beyond chance.

    Examples
    --------
    >>> worse_than(0.11, 0.01, 10, 0.10, 0.01, 10), worse_than(0.105, 0.01, 10, 0.10, 0.01, 10)
    (True, False)
    """
    if mean <= best_mean + ROUNDING:
        return False
    if min(n, best_n) < 2 or max(std, best_std) <= ROUNDING:
        return True
    result = stats.ttest_ind_from_stats(mean, std, n, best_mean, best_std, best_n, alternative="greater")
    return bool(result.pvalue < LEVEL)


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation, len(values)


DEVIATIONS = 3


@dataclass(frozen=True)
class Comparison:
    """How one method's mean risks compare with the published ones.

    Parameters
    ----------
    method : str
    n : int
        The cells that both have.
    at_or_below : int
        Cells where our mean, rounded to the three decimals that the paper prints, is at most the published one.
    strictly : int
        The same without rounding.
    within : int
        Cells where the rounded mean is at most the published mean plus three published standard deviations.
    outside : tuple of str
        The other cells, with both figures.
    distance : float
        The mean absolute difference of the risks.
    rejection_distance : float
        The mean absolute difference of the rejection ratios.
    """

    method: str
    n: int
    at_or_below: int
    strictly: int
    within: int
    outside: tuple[str, ...]
    distance: float = 0.0
    rejection_distance: float = 0.0


def compare(numbers: Numbers, published: Numbers, methods: Sequence[str]) -> list[Comparison]:
    """Compare every method's risks with the published ones, cell by cell.

    Examples
    --------
    >>> cell = ("zoc_risk", "letter", 0.2, "CE")
    >>> ours, paper = (Numbers({cell: Value(mean, 0.01, 10)}) for mean in (0.0834, 0.083))
    >>> compare(ours, paper, ["CE"])
    [Comparison(method='CE', n=1, at_or_below=1, strictly=0, within=1, outside=(), distance=0.0004, ...)]
    """
    compared = []
    for method in methods:
        at_or_below = strictly = within = n = 0
        outside = []
        for (metric, problem, cost, name), ours in numbers.values.items():
            paper = published.get(metric, problem, cost, name)
            if metric != "zoc_risk" or name != method or paper is None or paper.mean is None or ours.mean is None:
                continue
            mean, limit = round(ours.mean, 3), paper.mean + DEVIATIONS * (paper.std or 0.0)
            n += 1
            at_or_below += mean <= paper.mean + 1e-9
            strictly += ours.mean <= paper.mean + 1e-9
            within += mean <= limit + 1e-9
            if mean > limit + 1e-9:
                outside.append(f"{problem} {cost:g}: {ours.mean:.3f}, paper {paper.mean:.3f} ({paper.std or 0:.4f})")
        distances = [_distance(numbers, published, metric, method) for metric in ("zoc_risk", "rejection_ratio")]
        compared.append(Comparison(method, n, at_or_below, strictly, within, tuple(outside), *distances))
    return compared


def _distance(numbers: Numbers, published: Numbers, metric: str, method: str) -> float:
    differences = []
    for key, ours in numbers.values.items():
        paper = published.values.get(key)
        if (key[0], key[3]) == (metric, method) and paper is not None and None not in (paper.mean, ours.mean):
            assert ours.mean is not None
            assert paper.mean is not None
            differences.append(abs(ours.mean - paper.mean))
    return round(float(np.mean(differences)), 6) if differences else 0.0


@dataclass(frozen=True)
class Agreement:
    """How many printed figures lie within two printed deviations, and half a printed digit, of ours; by metric."""

    within: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    of: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))

    @property
    def total(self) -> int:
        """Of all three metrics."""
        return sum(self.within.values())

    @property
    def share(self) -> float:
        """Of all printed figures."""
        return self.total / max(1, sum(self.of.values()))

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            {name: self.within[name] + other.within[name] for name in METRICS},
            {name: self.of[name] + other.of[name] for name in METRICS},
        )


HALF_A_DIGIT = 0.0005
TWO_SIDED_DEVIATIONS = 2


def lies_within(ours: Value | None, printed: Value) -> bool | None:
    """Return whether a figure agrees with a printed one, on both sides; None where none is printed.

    Examples
    --------
    >>> lies_within(Value(0.1024, 0.01, 10), Value(0.1, 0.001, 10)), lies_within(None, Value(None, None, 10))
    (True, None)
    """
    if printed.mean is None:
        return None
    if ours is None or ours.mean is None:
        return False
    return abs(ours.mean - printed.mean) <= tolerance(printed)


def tolerance(printed: Value) -> float:
    """Return how far from a printed figure one that agrees may lie."""
    return TWO_SIDED_DEVIATIONS * (printed.std or 0.0) + HALF_A_DIGIT + ROUNDING


def agreement(
    numbers: Numbers, published: Numbers, problems: Collection[str] = (), methods: Collection[str] = ()
) -> Agreement:
    """Count the printed figures that agree, of some data sets and methods or of all.

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
        agrees = lies_within(numbers.get(metric, problem, cost, method), printed)
        if agrees is not None:
            found.of[metric] += 1
            found.within[metric] += agrees
    return found
