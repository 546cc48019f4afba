"""Trying candidates out of fold, within a time budget."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.calibration import TemperatureScaling
from demur.estimators.auto_candidates import CandidateModel, Task
from demur.estimators.probabilities import out_of_fold_proba
from demur.estimators.time_budget import TimeBudget, forecast_fit

__all__ = ["CandidateSearch", "CrossFitted", "Tried"]


@dataclass(frozen=True)
class Tried:
    """What became of one candidate.

    Parameters
    ----------
    name : str
    weight : float
        Its share of the blend; 0 if it is not part of it.
    log_loss : float or None
        Out of fold, after its own temperature; None if it was not tried.
    temperature : float or None
        Above 1: it was too confident; below 1: not confident enough.
    seconds : float
        Spent on it, the last fit on all rows included.
    outcome : str
        In words.
    """

    name: str
    weight: float
    log_loss: float | None
    temperature: float | None
    seconds: float
    outcome: str


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """A candidate with the calibrated probabilities it gives to rows it has not seen."""

    candidate: CandidateModel
    scaling: TemperatureScaling
    proba: NDArray[np.float64]
    true_class: NDArray[np.float64]

    def log_loss(self, weight: NDArray[np.float64] | None) -> float:
        """Return the mean log loss out of fold."""
        return float(-np.average(np.log(np.maximum(self.true_class, 1e-12)), weights=weight))


class _OutOfTimeError(Exception):
    """A candidate takes longer than the budget leaves."""


class CandidateSearch:
    """Cross-fits candidates within a time budget, and remembers what each took.

    Parameters
    ----------
    views : dict of str to array
        The rows, as trees and as networks take them.
    y : array of int
    weight : array or None
    folds : list of (train, test)
    task : Task
    budget : TimeBudget
    advance : callable
        Called with the number of folds just done.
    """

    def __init__(
        self,
        views: dict[str, NDArray[np.float64]],
        y: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        folds: list[tuple[NDArray[np.int64], NDArray[np.int64]]],
        task: Task,
        budget: TimeBudget,
        advance: Callable[[int], Any],
    ) -> None:
        self.views, self.y, self.weight, self.folds, self.task = views, y, weight, folds, task
        self.budget, self.advance = budget, advance
        self.n_classes = int(y.max()) + 1
        self.seconds: dict[str, float] = {}
        self.forecasts: dict[str, float] = {}
        self.reserved = 0.0

    @property
    def held_out_weight(self) -> NDArray[np.float64] | None:
        """The weights of the rows that have out-of-fold probabilities."""
        return None if self.weight is None else self.weight[self.held_out_rows]

    def run(self, wanted: Sequence[CandidateModel]) -> list[CrossFitted]:
        """Cross-fit all that fit into the budget, and at least the one that is forecast to be cheapest."""
        fitted: list[CrossFitted] = []
        left_out: list[CandidateModel] = []
        for candidate in wanted:
            started = time.perf_counter()
            self.forecasts[candidate.name] = self._forecast(candidate) * (len(self.folds) + 1)
            done = None
            if self.budget.allows(self.forecasts[candidate.name] + self.reserved):
                done = self._cross_fit(candidate, may_give_up=bool(fitted))
            if done is None:
                left_out.append(candidate)
            else:
                fitted.append(done)
                took = time.perf_counter() - started
                self.reserved += took / len(self.folds)  # for its last fit, on all rows
            self.seconds[candidate.name] = time.perf_counter() - started
        if not fitted:
            cheapest = min(left_out, key=lambda candidate: self.forecasts[candidate.name])
            started = time.perf_counter()
            only = self._cross_fit(cheapest, may_give_up=False)
            self.seconds[cheapest.name] += time.perf_counter() - started
            fitted += [] if only is None else [only]
        return fitted

    def fit_all_rows(self, candidate: CandidateModel) -> Any:
        """Return the candidate, fitted on all rows."""
        started = time.perf_counter()
        model = candidate.make(self.task).fit(self.views[candidate.view], self.y, **self._parameters())
        self.seconds[candidate.name] += time.perf_counter() - started
        if "n_jobs" in model.get_params():
            model.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
        return model

    def report(self, name: str, fitted: CrossFitted | None, share: float, weight: Any) -> Tried:
        """Return the line of the table about one candidate."""
        seconds = self.seconds[name]
        if fitted is None:
            forecast = self.forecasts[name]
            takes = (
                f"it would take about {forecast:.0f} s, more than is left" if np.isfinite(forecast) else "none is left"
            )
            outcome = f"left out for want of time: {takes}"
            return Tried(name, 0.0, None, None, seconds, outcome)
        outcome = f"{share:.0%} of the blend" if share else "does not improve the blend"
        return Tried(name, share, fitted.log_loss(weight), fitted.scaling.temperature_, seconds, outcome)

    def _cross_fit(self, candidate: CandidateModel, *, may_give_up: bool) -> CrossFitted | None:
        """Return the candidate, fitted fold by fold; None if that turns out to take longer than is left."""
        started, n_done = time.perf_counter(), 0

        def after_fold() -> None:
            nonlocal n_done
            n_done += 1
            self.advance(1)
            to_come = (time.perf_counter() - started) / n_done * (len(self.folds) + 1 - n_done)
            if may_give_up and not self.budget.allows(to_come + self.reserved):
                self.forecasts[candidate.name] = to_come + time.perf_counter() - started
                raise _OutOfTimeError

        try:
            rows, proba = out_of_fold_proba(
                candidate.make(self.task),
                self.views[candidate.view],
                self.y,
                np.arange(self.n_classes),
                self.folds,
                self._parameters(),
                after_fold=after_fold,
            )
        except _OutOfTimeError:
            return None
        self.held_out_rows = rows
        scaling = TemperatureScaling().fit(proba, self.y[rows], self.held_out_weight)
        proba = np.asarray(scaling.transform(proba), dtype=np.float64)
        true_class = proba[np.arange(len(rows)), self.y[rows]]
        return CrossFitted(candidate, scaling, proba, true_class)

    def _forecast(self, candidate: CandidateModel) -> float:
        """Return the seconds that one fold will take; infinity where no time is left to find out."""
        if self.budget.seconds is None:
            return 0.0
        if self.forecasts and not self.budget.allows(self.reserved):
            return np.inf
        order = np.random.RandomState(self.task.random_state).permutation(len(self.y))

        def fit_on(n_rows: int) -> float:
            rows = order[:n_rows]
            if len(np.unique(self.y[rows])) < 2:
                return 0.0
            started = time.perf_counter()
            weights = {name: value[rows] for name, value in self._parameters().items()}
            candidate.make(self.task).fit(self.views[candidate.view][rows], self.y[rows], **weights)
            return time.perf_counter() - started

        return forecast_fit(fit_on, len(self.folds[0][0]), self.n_classes)

    def _parameters(self) -> dict[str, Any]:
        return {} if self.weight is None else {"sample_weight": self.weight}
