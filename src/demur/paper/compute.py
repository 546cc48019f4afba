"""Computing one unit: train its networks, choose by validation, score the chosen ones once on the test data."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from demur.losses import Loss, get
from demur.paper.environment import describe_environment
from demur.paper.grid import Candidate, Grid, Split, make_grid, split_rows
from demur.paper.problems import DataPlace, Problem, prepare
from demur.paper.records import Record, Score
from demur.paper.scoring import choose, count
from demur.paper.units import Unit
from demur.training import MLP, Trained, TrainingData, train

__all__ = ["AllDivergedError", "Workplace", "compute"]


class AllDivergedError(Exception):
    """Every network that validation could choose from has overflowed."""


class Workplace:
    """A device, and the data of the problem at hand on it, read once for all its units.

    Parameters
    ----------
    device : torch.device
    place : DataPlace
    n_workers : int, optional
        How many stacks train at a time; chosen from the machine by default.
    """

    def __init__(self, device: torch.device, place: DataPlace, n_workers: int | None = None) -> None:
        self.device, self.place, self.n_workers = device, place, n_workers
        self._at_hand: tuple[Any, Problem] | None = None

    def problem_of(self, unit: Unit) -> Problem:
        """Return the data of a unit; only one problem's data are held at a time."""
        key = (unit.experiment, unit.problem, unit.protocol, unit.data)
        if self._at_hand is None or self._at_hand[0] != key:
            self._at_hand = None
            self._at_hand = key, prepare(unit.problem, unit.protocol, self.place, self.device)
        return self._at_hand[1]


def compute(unit: Unit, workplace: Workplace, progress: Callable[[int], None] | None = None) -> Record:
    """Compute a unit.

    Parameters
    ----------
    unit : Unit
    workplace : Workplace
    progress : callable, optional
        Called with the number of network-epochs just finished.

    Raises
    ------
    AllDivergedError
        If nothing is left to choose from, in some trial at some cost.
    """
    started = time.perf_counter()
    problem = workplace.problem_of(unit)
    splits = {trial: split_rows(len(problem.X), unit.problem, trial, unit.protocol) for trial in unit.trials}
    grid = make_grid(unit.method, problem.n_classes, unit.protocol, splits)
    loss = get(unit.method.loss).for_classes(problem.n_classes)
    training_started = time.perf_counter()
    trained = _train(unit, loss, problem, grid, workplace, progress)
    training = time.perf_counter() - training_started
    scores = _select_and_score(unit, loss, problem, grid, trained, splits)
    return Record(
        spec=unit.spec,
        trials=unit.trials,
        note=unit.data.note,
        scores=tuple(scores),
        networks=len(grid.networks),
        failed=int(trained.failed.sum()),
        seconds_training=round(training, 3),
        seconds_other=round(time.perf_counter() - started - training, 3),
        environment=describe_environment(workplace.device),
    )


def _train(
    unit: Unit,
    loss: Loss,
    problem: Problem,
    grid: Grid,
    workplace: Workplace,
    progress: Callable[[int], None] | None,
) -> Trained:
    sizes = (problem.X.shape[1], unit.protocol.hidden_units, loss.n_outputs(problem.n_classes))
    trained = train(
        loss,
        MLP(sizes),
        TrainingData(problem.X, problem.y),
        grid.networks,
        epochs=unit.protocol.epochs,
        batch_size=unit.protocol.batch_size,
        learning_rate=unit.protocol.learning_rate,
        device=workplace.device,
        n_workers=workplace.n_workers,
        progress=progress,
    )
    if workplace.device.type == "cuda":
        torch.cuda.synchronize(workplace.device)
    return trained


def _select_and_score(
    unit: Unit, loss: Loss, problem: Problem, grid: Grid, trained: Trained, splits: dict[int, Split]
) -> list[Score]:
    width = max(unit.protocol.hidden_units, loss.n_outputs(problem.n_classes) * 4)
    failed = trained.failed.cpu().numpy()
    chosen: list[tuple[int, Candidate, float, tuple[float | None, ...]]] = []
    for trial, candidates in grid.candidates.items():
        rows = torch.as_tensor(splits[trial].validation, device=problem.X.device)
        counts = count(loss, trained, candidates, problem.X[rows], problem.y[rows], width=width)
        costs = np.array([candidate.cost for candidate in candidates])
        risks = counts.risk(costs)
        risks[failed[[candidate.network for candidate in candidates]]] = np.inf
        for position in choose(candidates, risks, unit.protocol.costs):
            best = candidates[position]
            if not np.isfinite(risks[position]):
                raise AllDivergedError(
                    f"every network of {unit.method.name} on {unit.problem} diverged in trial {trial} at cost "
                    f"{best.cost:g}; lower learning_rate (it is {unit.protocol.learning_rate:g}) or scale the features."
                )
            rivals = tuple(round(float(risk), 6) if np.isfinite(risk) else None for risk in risks[costs == best.cost])
            chosen.append((trial, best, float(risks[position]), rivals))
    test = count(
        loss,
        trained,
        [best for _, best, _, _ in chosen],
        problem.X_test,
        problem.y_test,
        width=width,
        best_confidence=problem.best_confidence,
    )
    return [
        Score(
            trial,
            best.cost,
            n=test.n,
            rejected=int(test.rejected[index]),
            wrong=int(test.wrong[index]),
            hyper=best.hyper,
            validation_risk=round(risk, 6),
            rivals=rivals,
            false_accepts=None if test.false_accepts is None else int(test.false_accepts[index]),
            false_rejects=None if test.false_rejects is None else int(test.false_rejects[index]),
        )
        for index, (trial, best, risk, rivals) in enumerate(chosen)
    ]
