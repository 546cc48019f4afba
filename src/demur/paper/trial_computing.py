"""Computing a job: train its networks, choose by validation, score the chosen ones once on the test data.

The grid of hyper-parameters and the choice are :class:`demur.RejectClassifier`'s own
(:mod:`demur.estimators.network_selection`). What is added here: trials, several costs, and counting on large test sets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.estimators.network_selection import GridEntry, grid_of, least_risk, try_out
from demur.losses import Loss, resolve
from demur.losses.pairwise import BetaSide, PairwiseLoss
from demur.paper.experiments import Method, Protocol
from demur.paper.problems import DataIdentity, DataPlace, Problem, prepare, seed_for
from demur.paper.records import Record, Score, describe_environment
from demur.paper.trial_jobs import TrialJob
from demur.rules import chow_acceptance
from demur.training import MLP, NetworkSpec, Trained, TrainingData, train

__all__ = [
    "AllDivergedError",
    "Answerer",
    "Counts",
    "Split",
    "TrialGrid",
    "Workplace",
    "compute",
    "count",
    "make_grid",
    "split_rows",
]

NUMBERS_AT_A_TIME = 2**24
"""Bounds the memory of one block of test rows: networks x rows x hidden units."""

Ints: TypeAlias = NDArray[np.int64]


class AllDivergedError(Exception):
    """Every network that validation could choose from has overflowed."""


class Workplace:
    """A device, and the data of the problem at hand on it, read once for all its jobs.

    Parameters
    ----------
    device : torch.device
    place : DataPlace
    n_workers : int, optional
        How many stacks train at a time; chosen from the machine by default.
    """

    def __init__(self, device: torch.device, place: DataPlace, n_workers: int | None = None) -> None:
        self.device, self.place, self.n_workers = device, place, n_workers
        self._at_hand: tuple[tuple[str, str, Protocol, DataIdentity], Problem] | None = None

    def problem_of(self, job: TrialJob) -> Problem:
        """Return the data of a job; only one problem's data are held at a time."""
        key = (job.experiment, job.problem, job.protocol, job.data)
        if self._at_hand is None or self._at_hand[0] != key:
            self._at_hand = None
            self._at_hand = key, prepare(job.problem, job.protocol, self.place, self.device)
        return self._at_hand[1]


def compute(job: TrialJob, workplace: Workplace, progress: Callable[[int], None] | None = None) -> Record:
    """Compute a job.

    Parameters
    ----------
    job : TrialJob
    workplace : Workplace
    progress : callable, optional
        Called with the number of network-epochs just finished.

    Raises
    ------
    AllDivergedError
        If nothing is left to choose from, in some trial at some cost.
    """
    started = time.perf_counter()
    problem = workplace.problem_of(job)
    splits = {trial: split_rows(len(problem.X), job.problem, trial, job.protocol) for trial in job.trials}
    grid = make_grid(job.method, problem.n_classes, job.protocol, splits)
    loss = resolve(job.method.loss).for_classes(problem.n_classes)
    training_started = time.perf_counter()
    trained = _train(job, loss, problem, grid, workplace, progress)
    training = time.perf_counter() - training_started
    chosen = [answer for part in grid.parts for answer in _choose(job, problem, part, trained, splits[part.trial])]
    scores = _score(job, problem, chosen, trained)
    return Record(
        spec=job.spec,
        trials=job.trials,
        note=job.data.note,
        scores=tuple(scores),
        networks=len(grid.networks),
        failed=int(trained.failed.sum()),
        seconds_training=round(training, 3),
        seconds_other=round(time.perf_counter() - started - training, 3),
        environment=describe_environment(workplace.device),
    )


@dataclass(frozen=True, eq=False)
class Split:
    """One trial's rows, and the seed of all its networks."""

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
    order = np.random.default_rng(seed).permutation(n_rows).astype(np.int64)
    n_validation = round(protocol.validation_fraction * n_rows)
    return Split(train=order[n_validation:], validation=order[:n_validation], seed=seed)


@dataclass(frozen=True, eq=False)
class GridPart:
    """The networks of one trial that validation chooses from at some costs, in the order of preference among equals.

    Parameters
    ----------
    trial : int
    first : int
        The position of its first network among all; the others follow.
    entries : list of GridEntry
        One per network.
    costs : tuple of float
        For which it decides: all of them, or the one that its networks were trained for.
    """

    trial: int
    first: int
    entries: list[GridEntry]
    costs: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class TrialGrid:
    """All networks of some trials, and the parts that validation chooses from."""

    networks: list[NetworkSpec] = field(default_factory=list)
    parts: list[GridPart] = field(default_factory=list)


def make_grid(method: Method, n_classes: int, protocol: Protocol, splits: dict[int, Split]) -> TrialGrid:
    """Lay out the networks of some trials.

    A loss that is trained for a cost has networks of its own for every cost; one with a link is trained once, and
    each of its networks is a candidate at every cost. A threshold is tried after training, at no cost. All
    networks of a trial share their rows, their initial weights and the order of their minibatches.
    """
    loss = resolve(method.loss)
    grid = TrialGrid()
    for trial, split in splits.items():
        for costs in [(cost,) for cost in protocol.costs] if loss.trained_for_cost else [protocol.costs]:
            entries = [
                entry
                for weight_decay in protocol.weight_decays
                for subject in _subjects(method, loss)
                for entry in grid_of(subject, n_classes, weight_decay, costs[0])
            ]
            grid.parts.append(GridPart(trial, len(grid.networks), entries, costs))
            grid.networks.extend(entry.network(split.train, split.seed, costs[0]) for entry in entries)
    return grid


def _subjects(method: Method, loss: Loss) -> Sequence[str | Loss]:
    """Return what the grid is made of: the loss by its name, which tries all it can, or only some sides of beta."""
    if not method.betas:
        return [method.loss]
    assert isinstance(loss, PairwiseLoss)
    return [replace(loss, beta=cast(BetaSide, side)) for side in method.betas]


def _train(
    job: TrialJob,
    loss: Loss,
    problem: Problem,
    grid: TrialGrid,
    workplace: Workplace,
    progress: Callable[[int], None] | None,
) -> Trained:
    sizes = (problem.X.shape[1], job.protocol.hidden_units, loss.n_outputs(problem.n_classes))
    trained = train(
        loss,
        MLP(sizes),
        TrainingData(problem.X, problem.y),
        grid.networks,
        epochs=job.protocol.epochs,
        batch_size=job.protocol.batch_size,
        learning_rate=job.protocol.learning_rate,
        device=workplace.device,
        n_workers=workplace.n_workers,
        progress=progress,
    )
    if workplace.device.type == "cuda":
        torch.cuda.synchronize(workplace.device)
    return trained


@dataclass(frozen=True)
class Answerer:
    """The network that decides in one trial at one cost, and the loss, with its threshold, by which it does.

    Parameters
    ----------
    network : int
        Its position among the trained networks.
    loss : Loss
    cost : float
    trial : int
    hyper : dict
        The chosen hyper-parameters, by name; "beta" is the name of a side.
    risk : float
        On the validation part.
    rivals : tuple of float or None
        The risks of all candidates, in the order of the grid; None where the network diverged.
    """

    network: int
    loss: Loss
    cost: float
    trial: int = 0
    hyper: dict[str, float | str] = field(default_factory=dict)
    risk: float = 0.0
    rivals: tuple[float | None, ...] = ()


def _choose(job: TrialJob, problem: Problem, part: GridPart, trained: Trained, split: Split) -> list[Answerer]:
    """Choose by the 0-1-c risk on the validation rows, at each cost of a part."""
    rows = torch.as_tensor(split.validation, device=problem.X.device)
    networks = trained.take(range(part.first, part.first + len(part.entries)))
    ones = torch.ones(len(rows), dtype=torch.float64)
    chosen = []
    tried = try_out(part.entries, networks, 1, problem.X[rows], problem.y[rows], ones, part.costs)
    for cost, candidates in zip(part.costs, tried, strict=True):
        best = least_risk(candidates)
        if best.failed:
            raise AllDivergedError(
                f"every network of {job.method.name} on {job.problem} diverged in trial {part.trial} at cost {cost:g}; "
                f"lower learning_rate (it is {job.protocol.learning_rate:g}) or scale the features."
            )
        rivals = tuple(None if one.failed else round(one.risk, 6) for one in candidates)
        hyper = {"weight_decay": best.weight_decay, **_told_apart_by(best.loss, job.method)}
        network = part.first + best.members[0]
        chosen.append(Answerer(network, best.loss, cost, part.trial, hyper, best.risk, rivals))
    return chosen


def _told_apart_by(chosen: Loss, method: Method) -> dict[str, float | str]:
    """Return the fields of a chosen loss in which it may differ from its rivals."""
    loss = resolve(method.loss)
    variants = [*loss.variants_to_train(), *loss.variants_to_decide()]
    names = [name for name in vars(loss) if len({getattr(one, name) for one in variants}) > 1]
    return {name: getattr(chosen, name) for name in names}


def _score(job: TrialJob, problem: Problem, chosen: Sequence[Answerer], trained: Trained) -> list[Score]:
    """Count on the test rows, once for every trial and cost."""
    width = max(job.protocol.hidden_units, 4 * chosen[0].loss.n_outputs(problem.n_classes))
    counts = count(
        trained, chosen, problem.X_test, problem.y_test, width=width, best_confidence=problem.best_confidence
    )
    return [
        Score(
            one.trial,
            one.cost,
            n=counts.n,
            rejected=int(counts.rejected[index]),
            wrong=int(counts.wrong[index]),
            hyper=one.hyper,
            validation_risk=round(one.risk, 6),
            rivals=one.rivals,
            false_accepts=None if counts.false_accepts is None else int(counts.false_accepts[index]),
            false_rejects=None if counts.false_rejects is None else int(counts.false_rejects[index]),
        )
        for index, one in enumerate(chosen)
    ]


@dataclass(frozen=True, eq=False)
class Counts:
    """How many of ``n`` rows each answerer rejected, and how many it answered wrongly.

    ``false_accepts`` and ``false_rejects`` count disagreements with the best possible rule, where that is known.
    """

    n: int
    rejected: Ints
    wrong: Ints
    false_accepts: Ints | None = None
    false_rejects: Ints | None = None


@torch.no_grad()
def count(
    trained: Trained,
    answerers: Sequence[Answerer],
    X: Tensor,
    y: Tensor,
    *,
    width: int,
    best_confidence: Tensor | None = None,
) -> Counts:
    """Decide every row with every answerer, by its loss's own rule, and count: a block of rows at a time.

    Parameters
    ----------
    trained : Trained
    answerers : sequence of Answerer
    X, y : tensor
        On the device of the networks.
    width : int
        The largest number of values that a network computes for a row, to keep blocks small.
    best_confidence : tensor, optional
        max_y eta_y of each row.
    """
    different = sorted({one.network for one in answerers})
    networks = trained.take(different)
    groups = []
    for loss, members in _by_loss(answerers):
        position = torch.tensor([different.index(answerers[m].network) for m in members], device=X.device)
        cost = torch.tensor([answerers[m].cost for m in members], dtype=torch.float32, device=X.device).unsqueeze(1)
        groups.append((loss, torch.tensor(members, device=X.device), position, cost))
    totals = torch.zeros(4, len(answerers), dtype=torch.int64, device=X.device)
    n_rows = max(1, NUMBERS_AT_A_TIME // (len(answerers) * width))
    for start in range(0, len(X), n_rows):
        block = slice(start, start + n_rows)
        scores = networks.scores(X[block])
        for loss, those, position, cost in groups:
            decision = loss.rule(scores.index_select(0, position), cost)
            accept = ~decision.reject
            totals[0, those] += decision.reject.sum(1)
            totals[1, those] += (accept & (decision.label != y[block])).sum(1)
            if best_confidence is not None:
                should_accept = chow_acceptance(best_confidence[block], cost.double()) > 0
                totals[2, those] += (accept & ~should_accept).sum(1)
                totals[3, those] += (decision.reject & should_accept).sum(1)
    rejected, wrong, false_accepts, false_rejects = totals.cpu().numpy()
    if best_confidence is None:
        return Counts(len(X), rejected, wrong)
    return Counts(len(X), rejected, wrong, false_accepts, false_rejects)


def _by_loss(answerers: Sequence[Answerer]) -> list[tuple[Loss, list[int]]]:
    """Return the positions of the answerers in groups of equal losses."""
    groups: list[tuple[Loss, list[int]]] = []
    for position, one in enumerate(answerers):
        members = next((members for loss, members in groups if loss == one.loss), None)
        if members is None:
            groups.append((one.loss, [position]))
        else:
            members.append(position)
    return groups
