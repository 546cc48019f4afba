"""Jobs: some trials of one method on one problem. Networks are trained, chosen on validation rows and scored once.

The grid of hyper-parameters and the choice are those of :class:`demur.RejectClassifier`
(:mod:`demur.estimators.network_selection`). Trials, several costs and counting on large test sets are added here.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from demur.array_types import ByName, Ints
from demur.estimators.network_selection import GridEntry, grid_of
from demur.losses import Loss, resolve
from demur.paper.experiments import AnyProtocol, Method, Protocol
from demur.paper.problems import DataIdentity, DataPlace, Problem, is_divided, prepare, seed_for, training_rows
from demur.paper.records import Record, Score, describe_environment
from demur.rules import chow_acceptance
from demur.training import MLP, NetworkSpec, Trained, TrainingData, resolve_device, train

NUMBERS_AT_A_TIME = 2**24
"""Bounds the memory of one block of test rows: candidates x rows x activations."""


FORMAT = 1
"""Version of the records; when it is raised, older records are computed again."""


@dataclass(frozen=True)
class TrialJob:
    """Some trials of one method on one problem.

    Parameters
    ----------
    experiment, problem : str
    method : Method
    trials : tuple of int
    protocol : BenchmarkProtocol or SyntheticProtocol
    data : DataIdentity
    """

    experiment: str
    problem: str
    method: Method
    trials: tuple[int, ...]
    protocol: AnyProtocol
    data: DataIdentity

    @property
    def spec(self) -> ByName:
        """Everything that determines the result of each trial, with the hash of the data."""
        return {**spec_of(self.experiment, self.problem, self.method, self.protocol), "data": self.data.sha256}

    @property
    def n_networks(self) -> int:
        """Number of networks to train."""
        return len(self.trials) * grid_size(self.method, self.protocol)

    @property
    def work(self) -> float:
        """Number of rows that all networks see during training."""
        return self.n_networks * self.protocol.epochs * training_rows(self.problem, self.protocol)


def grid_size(method: Method, protocol: Protocol) -> int:
    """Return the number of networks that one trial of a method trains.

    Examples
    --------
    >>> grid_size(Method("CE"), Protocol()), grid_size(Method("APC+log", betas=("acc", "rej", "mean")), Protocol())
    (3, 45)
    """
    loss = resolve(method.loss)
    n_costs = len(protocol.costs) if loss.trained_for_cost else 1
    return n_costs * len(protocol.weight_decays) * (len(method.betas) or len(loss.variants_to_train()))


def spec_of(experiment: str, problem: str, method: Method, protocol: Protocol) -> ByName:
    """Return the specification of a result, without the hash of the data."""
    spec: ByName = {
        "format": FORMAT,
        "experiment": experiment,
        "problem": problem,
        "method": {"name": method.name, "loss": method.loss, "betas": list(method.betas)},
        "thresholds": list(getattr(resolve(method.loss), "tau_candidates", ())),
        "protocol": protocol.spec(),
    }
    file, colon, _ = method.loss.rpartition(":")
    if colon and Path(file).is_file():  # a user's own loss changes with its file
        spec["source"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return spec


class AllDivergedError(Exception):
    """Every network of a trial has diverged."""


_prepared = lru_cache(maxsize=1)(prepare)
"""The data of a problem, which its consecutive jobs share."""


def compute(job: TrialJob, place: DataPlace, device: str | torch.device, n_workers: int | None = None) -> Record:
    """Compute a job.

    Parameters
    ----------
    job : TrialJob
    place : DataPlace
    device : str or torch.device
        As for :func:`demur.training.resolve_device`.
    n_workers : int, optional
        Number of stacks of networks that train at a time; by default chosen for the machine.

    Raises
    ------
    AllDivergedError
        If every network has diverged, in some trial at some cost.
    """
    started, device = time.perf_counter(), resolve_device(str(device))
    problem = _prepared(job.problem, job.protocol, place, device)
    splits = {trial: split_rows(len(problem.X), job.problem, trial, job.protocol) for trial in job.trials}
    grid = make_grid(job.method, problem.n_classes, job.protocol, splits)
    training_started = time.perf_counter()
    trained = _train(job, problem, grid.networks, n_workers)
    training = time.perf_counter() - training_started
    chosen = [answer for part in grid.parts for answer in _choose(job, problem, part, trained, splits[part.trial])]
    if job.protocol.thresholds != "validation":
        chosen = _best_thresholds(job.method, problem, chosen, trained)
    return Record(
        spec=job.spec,
        trials=job.trials,
        note=job.data.note,
        scores=tuple(_score(problem, chosen, trained)),
        networks=len(grid.networks),
        failed=int(trained.failed.sum()),
        seconds_training=round(training, 3),
        seconds_other=round(time.perf_counter() - started - training, 3),
        environment=describe_environment(device),
    )


class Split(NamedTuple):
    """The training and validation rows of a trial, and the seed of its networks."""

    train: Ints
    validation: Ints
    seed: int


def split_rows(n_rows: int, problem: str, trial: int, protocol: Protocol) -> Split:
    """Split the training rows of a trial at random, the same way for every method.

    Examples
    --------
    >>> split = split_rows(10, "vehicle", 0, Protocol())
    >>> len(split.train), len(split.validation), sorted({*split.train, *split.validation}) == list(range(10))
    (8, 2, True)
    """
    seed = seed_for(protocol.seed, problem, trial)
    drawn, share = seed, protocol.validation_fraction
    if is_divided(problem, protocol):
        drawn, share = seed_for(protocol.seed, problem, 0), 0.3
    order = np.random.default_rng(drawn).permutation(n_rows).astype(np.int64)
    n_validation = round(share * n_rows)
    return Split(train=order[n_validation:], validation=order[:n_validation], seed=seed)


class GridPart(NamedTuple):
    """The networks of one trial that validation chooses from at some costs; earlier ones win ties.

    Parameters
    ----------
    trial : int
    first : int
        Index of its first network among all networks; the others follow.
    entries : list of GridEntry
        One per network.
    costs : tuple of float
        All costs, or the one that its networks were trained for.
    """

    trial: int
    first: int
    entries: list[GridEntry]
    costs: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class TrialGrid:
    """The networks of some trials, and the parts that validation chooses from."""

    networks: list[NetworkSpec] = field(default_factory=list)
    parts: list[GridPart] = field(default_factory=list)


def make_grid(method: Method, n_classes: int, protocol: Protocol, splits: dict[int, Split]) -> TrialGrid:
    """Return the grid of networks of some trials.

    A loss that is trained for a cost has separate networks for every cost. A loss with a link is trained once, and each
    of its networks is a candidate at every cost. Thresholds are tried after training. All networks of a trial share
    their rows, their initial weights and the order of their minibatches.
    """
    loss, grid = resolve(method.loss), TrialGrid()
    variants = [replace(cast(Any, loss), beta=side) for side in method.betas] or [method.loss]
    for trial, split in splits.items():
        for costs in [(cost,) for cost in protocol.costs] if loss.trained_for_cost else [protocol.costs]:
            entries = [
                entry
                for weight_decay in protocol.weight_decays
                for variant in variants
                for entry in grid_of(variant, n_classes, weight_decay, costs[0])
            ]
            grid.parts.append(GridPart(trial, len(grid.networks), entries, costs))
            grid.networks.extend(entry.network(split.train, split.seed, costs[0]) for entry in entries)
    return grid


def _train(job: TrialJob, problem: Problem, networks: Sequence[NetworkSpec], n_workers: int | None) -> Trained:
    protocol, loss = job.protocol, resolve(job.method.loss).for_classes(problem.n_classes)
    own_units = loss.has_rejector and protocol.rejector == "separate"
    n_hidden = (2 if own_units else 1) * protocol.hidden_units
    trained = train(
        loss,
        MLP((problem.X.shape[1], n_hidden, loss.n_outputs(problem.n_classes)), own_units=own_units),
        TrainingData(problem.X, problem.y),
        networks,
        epochs=protocol.epochs,
        batch_size=protocol.batch_size,
        learning_rate=protocol.learning_rate,
        device=problem.X.device,
        n_workers=n_workers,
    )
    if problem.X.is_cuda:
        torch.cuda.synchronize(problem.X.device)
    return trained


@dataclass(frozen=True)
class Answerer:
    """The network that decides in one trial at one cost, and the loss whose rule it decides by, with its threshold.

    Parameters
    ----------
    network : int
        Index among the trained networks.
    loss : Loss
    cost : float
    trial : int
    hyper : dict
        The chosen hyper-parameters; "beta" is the name of a side.
    risk : float
        0-1-c risk on the validation rows.
    rivals : tuple of float or None
        Risks of all candidates in the order of the grid; None where the network diverged.
    """

    network: int
    loss: Loss
    cost: float
    trial: int = 0
    hyper: dict[str, float | str] = field(default_factory=dict)
    risk: float = 0.0
    rivals: tuple[float | None, ...] = ()


def _choose(job: TrialJob, problem: Problem, part: GridPart, trained: Trained, split: Split) -> list[Answerer]:
    """Choose the candidate of least risk on the validation rows at each cost of a part, the first of equals."""
    X, y = problem.X[split.validation], problem.y[split.validation]
    candidates = [
        Answerer(part.first + n, decider, part.costs[0], part.trial, {"weight_decay": entry.weight_decay})
        for n, entry in enumerate(part.entries)
        for decider in entry.deciders
    ]
    failed = trained.failed.cpu().numpy()[[one.network for one in candidates]]
    if failed.all():
        raise AllDivergedError(
            f"every network of {job.method.name} on {job.problem} diverged in trial {part.trial} at cost "
            f"{part.costs[0]:g}; lower learning_rate (it is {job.protocol.learning_rate:g}) or scale the features."
        )
    chosen = []
    for cost in part.costs:
        tried = [replace(one, cost=cost) for one in candidates]
        counts = count(trained, tried, X, y)
        risks = np.where(failed, np.inf, (counts.wrong + cost * counts.rejected) / counts.n)
        best = tried[int(risks.argmin())]
        hyper = {**best.hyper, **_told_apart_by(best.loss, job.method)}
        rivals = tuple(None if np.isinf(risk) else round(risk, 6) for risk in risks.tolist())
        chosen.append(replace(best, hyper=hyper, risk=float(risks.min()), rivals=rivals))
    return chosen


def _told_apart_by(chosen: Loss, method: Method) -> dict[str, float | str]:
    """Return the fields of the chosen loss that differ between the candidates."""
    loss = resolve(method.loss)
    variants = [*loss.variants_to_train(), *loss.variants_to_decide()]
    return {name: getattr(chosen, name) for name in vars(loss) if len({getattr(one, name) for one in variants}) > 1}


def _best_thresholds(method: Method, problem: Problem, chosen: Sequence[Answerer], trained: Trained) -> list[Answerer]:
    """Replace each threshold by the one of least risk on the test rows; earlier ones win ties."""
    found = []
    for one in chosen:
        tried = [replace(one, loss=loss) for loss in one.loss.variants_to_decide()]
        risks = [score.risk for score in _score(problem, tried, trained)]
        best = tried[int(np.argmin(risks))]
        found.append(replace(best, hyper={**best.hyper, **_told_apart_by(best.loss, method)}))
    return found


def _score(problem: Problem, chosen: Sequence[Answerer], trained: Trained) -> list[Score]:
    """Count the decisions on the test rows, for every trial and cost."""
    best = problem.best_confidence
    counts = count(trained, chosen, problem.X_test, problem.y_test, best_confidence=best)
    return [
        Score(
            *(one.trial, one.cost, counts.n, rejected, wrong, one.hyper, round(one.risk, 6), one.rivals),
            *(() if best is None else errors),
        )
        for one, rejected, wrong, *errors in zip(chosen, *(part.tolist() for part in counts[1:]), strict=True)
    ]


class Counts(NamedTuple):
    """Numbers of rejected and of wrongly answered rows, of ``n`` rows, for each answerer.

    ``false_accepts`` and ``false_rejects`` count disagreements with the Bayes-optimal rule; 0 where it is not known.
    """

    n: int
    rejected: Ints
    wrong: Ints
    false_accepts: Ints
    false_rejects: Ints


@torch.no_grad()
def count(
    trained: Trained,
    answerers: Sequence[Answerer],
    X: Tensor,
    y: Tensor,
    *,
    best_confidence: Tensor | None = None,
) -> Counts:
    """Decide every row with every answerer by the rule of its loss, and count; in blocks of rows.

    Parameters
    ----------
    trained : Trained
    answerers : sequence of Answerer
    X, y : tensor
        On the device of the networks.
    best_confidence : tensor, optional
        max_y eta_y of each row.
    """
    different = sorted({one.network for one in answerers})
    networks = trained.take(different)
    by_loss: dict[Loss, list[int]] = {}
    for number, one in enumerate(answerers):
        by_loss.setdefault(one.loss, []).append(number)
    groups = []
    for loss, members in by_loss.items():
        position = [different.index(answerers[m].network) for m in members]
        groups.append((loss, members, position, torch.tensor([[answerers[m].cost] for m in members], device=X.device)))
    totals = torch.zeros(4, len(answerers), dtype=torch.int64, device=X.device)
    n_rows = max(1, NUMBERS_AT_A_TIME // (len(answerers) * trained.architecture.n_activations))
    for start in range(0, len(X), n_rows):
        block = slice(start, start + n_rows)
        scores = networks.scores(X[block])
        for loss, members, position, cost in groups:
            decision = loss.rule(scores[position], cost)
            found = [decision.reject, ~decision.reject & (decision.label != y[block])]
            if best_confidence is not None:
                should_accept = chow_acceptance(best_confidence[block], cost.double()) > 0
                found += [~decision.reject & ~should_accept, decision.reject & should_accept]
            for total, mask in zip(totals, found, strict=False):
                total[members] += mask.sum(1)
    return Counts(len(X), *totals.cpu().numpy())
