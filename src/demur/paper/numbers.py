"""The figures of an experiment: means and standard deviations over trials, from stored records alone."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from math import isnan

import numpy as np

from demur.errors import UserError
from demur.paper.protocol import Experiment
from demur.paper.records import Record, Score
from demur.paper.significance import best_and_equivalent

__all__ = ["METRICS", "MixedDataError", "Numbers", "Results", "Value", "collect"]

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
