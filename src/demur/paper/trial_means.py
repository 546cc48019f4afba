"""Means over trials of stored records, the best of them, and their agreement with the paper's tables."""

import csv
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path

import numpy as np
from scipy import stats

from demur.array_types import FilePath
from demur.errors import InputError
from demur.paper.experiments import Experiment
from demur.paper.records import Record, Score

METRICS = {"zoc_risk": "risk", "accepted_accuracy": "accuracy", "rejection_ratio": "rejection_ratio"}
"""The figures of the tables, and the attributes of a :class:`Score` that they are means of."""


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

    def mean(self, metric: str, problem: str, cost: float, method: str) -> float | None:
        """Return a mean, or None."""
        value = self.values.get((metric, problem, cost, method))
        return None if value is None else value.mean

    def rivals(self, problem: str, cost: float) -> list[str]:
        """Return the methods that have a risk in a cell."""
        return [
            method for metric, where, at, method in self.values if (metric, where, at) == ("zoc_risk", problem, cost)
        ]


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
        protocol = self.experiment.protocol
        counts = {
            f"{method} on {problem}": protocol.trials - len(self.scores.get((problem, protocol.costs[0], method), []))
            for problem in self.experiment.problems
            for method in self.all_methods
        }
        return [f"{where}: {n} of {protocol.trials} trials" for where, n in counts.items() if n]

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
                    if scores := self.scores.get((problem, cost, method)):
                        risks[method] = [score.risk for score in scores]
                        for metric, name in METRICS.items():
                            values[metric, problem, cost, method] = Value.of(getattr(one, name) for one in scores)
                bold[problem, cost] = best_and_equivalent(risks)
        return Numbers(values, bold)


def collect(experiment: Experiment, records: Iterable[Record]) -> Results:
    """Combine records; each trial counts once.

    Raises
    ------
    InputError
        If a problem's records were made with different data.
    """
    by_trial: dict[tuple[str, float, str], dict[int, Score]] = {}
    data: dict[str, str] = {}
    notes: dict[str, str] = {}
    used = tuple(records)
    for record in used:
        problem, method = record.spec["problem"], record.spec["method"]["name"]
        if data.setdefault(problem, record.spec["data"]) != record.spec["data"]:
            raise InputError(
                f"the store holds records of {problem} made with different data; choose the data with --data, or keep "
                "the records in different folders."
            )
        notes[problem] = record.note
        for score in record.scores:
            if score.trial < experiment.protocol.trials:
                by_trial.setdefault((problem, score.cost, method), {}).setdefault(score.trial, score)
    scores = {key: [trials[trial] for trial in sorted(trials)] for key, trials in by_trial.items()}
    return Results(experiment, scores, used, notes)


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
    values = {method: Value.of(trials) for method, trials in risks.items()}
    best = min(values, key=lambda method: (values[method].mean, values[method].std), default="")
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


PUBLISHED_FOLDER_VARIABLE = "DEMUR_PUBLISHED"
"""Environment variable that names a folder with the paper's tables."""

BENCHMARK_FILE = "benchmark_tables.csv"
SYNTHETIC_FILE = "synthetic_rejection_ratio.csv"
LARGEST_SIZE = "10000"
TRIALS = {"benchmark": 10, "synthetic": 3}


@dataclass(frozen=True)
class Published:
    """The paper's tables; empty if there are none to compare with."""

    benchmark: Numbers = field(default_factory=Numbers)
    synthetic: Numbers = field(default_factory=Numbers)


def find_published(folder: FilePath | None = None) -> Published:
    """Read the paper's tables from a folder, or from the one that ``DEMUR_PUBLISHED`` names.

    Raises
    ------
    InputError
        If the folder does not have them.

    Examples
    --------
    >>> find_published("/nowhere")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: /nowhere has no benchmark_tables.csv; --published names the folder with the paper's ...
    """
    named, found = folder or os.environ.get(PUBLISHED_FOLDER_VARIABLE), Published()
    if not named:
        return found
    if not (Path(named) / BENCHMARK_FILE).is_file():
        raise InputError(
            f"{named} has no {BENCHMARK_FILE}; --published names the folder with the paper's tables as CSV."
        )
    for row in _rows(Path(named) / BENCHMARK_FILE):
        cell, method = (row["dataset"], float(row["cost"])), row["method"]
        mean, std = (float(row[name]) if row[name] else None for name in ("mean", "std"))
        found.benchmark.values[row["metric"], *cell, method] = Value(mean, std, TRIALS["benchmark"])
        if row["metric"] == "zoc_risk":
            found.benchmark.bold.setdefault(cell, set()).update([method] * (row["best_or_equivalent"] == "1"))
    for row in _rows(Path(named) / SYNTHETIC_FILE):
        key = ("rejection_ratio", LARGEST_SIZE, float(row["cost"]), row["method"])
        mean, std = (float(row[name]) / 100 for name in ("mean_percent", "std_percent"))
        found.synthetic.values[key] = Value(mean, std, TRIALS["synthetic"])
    return found


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


DEVIATIONS = 3


@dataclass
class Agreement:
    """Comparison of our figures with the printed ones.

    Parameters
    ----------
    within, of : dict
        Numbers of figures that agree with the printed ones, and of all that are printed, by metric.
    at_or_below : int
        Number of mean risks that, at the three decimals that the paper prints, are at most the printed ones.
    above : list of str
        Cells whose risk is more than three printed standard deviations above the printed mean.
    """

    within: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    of: dict[str, int] = field(default_factory=lambda: dict.fromkeys(METRICS, 0))
    at_or_below: int = field(default=0, compare=False)
    above: list[str] = field(default_factory=list, compare=False)


def tolerance(printed: Value) -> float:
    """Return the largest distance of a figure that agrees with a printed one: two deviations and half a digit."""
    return 2 * (printed.std or 0.0) + 0.0005 + ROUNDING


def agreement(
    numbers: Numbers, published: Numbers, problems: Collection[str] = (), methods: Collection[str] = ()
) -> Agreement:
    """Compare our figures with the printed ones, of some data sets and methods or of all.

    Examples
    --------
    >>> cell = ("zoc_risk", "letter", 0.2, "CE")
    >>> ours, paper = (Numbers({cell: Value(mean, 0.01, 10)}) for mean in (0.09, 0.083))
    >>> found = agreement(ours, paper)
    >>> found.within["zoc_risk"], found.at_or_below, found.above
    (1, 0, [])
    """
    found = Agreement()
    for (metric, problem, cost, method), printed in published.values.items():
        asked = (not problems or problem in problems) and (not methods or method in methods)
        if not asked or printed.mean is None:
            continue
        found.of[metric] += 1
        ours = numbers.mean(metric, problem, cost, method)
        if ours is None:
            continue
        found.within[metric] += abs(ours - printed.mean) <= tolerance(printed)
        if metric == "zoc_risk":
            excess = round(ours, 3) - printed.mean
            found.at_or_below += excess <= ROUNDING
            if excess > DEVIATIONS * (printed.std or 0.0) + ROUNDING:
                found.above.append(f"{method} {problem} {cost:g}")
    return found
