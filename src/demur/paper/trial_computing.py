"""Computing a job: train its networks, choose by validation, score the chosen ones once on the test data.

The grid of hyper-parameters and the choice are :class:`demur.RejectClassifier`'s own
(:mod:`demur.estimators.network_selection`). What is added here: trials, several costs, other ways to choose, and
counting on large test sets.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.errors import InputError
from demur.estimators.network_selection import Candidate, GridEntry, grid_of
from demur.losses import Loss, resolve
from demur.losses.pairwise import BetaSide, PairwiseLoss
from demur.paper.experiments import Method, Protocol
from demur.paper.problems import DataIdentity, DataPlace, Problem, is_divided, prepare, seed_for, validation_share
from demur.paper.records import Record, Score, describe_environment
from demur.paper.trial_jobs import TrialJob
from demur.rules import chow_acceptance
from demur.training import MLP, NetworkSpec, Trained, TrainingData, train
from demur.training.jobs import Decay
from demur.training.mlp import Initialisation
from demur.training.training_step import stacked_loss

__all__ = [
    "CRITERIA",
    "TIES",
    "AllDivergedError",
    "Answerer",
    "Counts",
    "Split",
    "TrialGrid",
    "Validation",
    "Workplace",
    "choose",
    "compute",
    "count",
    "make_grid",
    "make_network",
    "split_rows",
    "surrogates",
]

CRITERIA = ("risk", "mean_risk", "surrogate", "error", "accuracy")
TIES = ("first", "last", "rejects_most", "rejects_least")

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
    trained = _train(job, loss, problem, grid.networks, workplace, progress)
    training = time.perf_counter() - training_started
    chosen = [answer for part in grid.parts for answer in _choose(job, problem, part, trained, splits[part.trial])]
    n_networks, n_failed = len(grid.networks), int(trained.failed.sum())
    if job.protocol.refit != "no":
        chosen, trained = _refitted(job, loss, problem, grid, chosen, workplace)
        n_networks, n_failed = n_networks + len(trained), n_failed + int(trained.failed.sum())
    if job.protocol.thresholds != "validation":
        chosen = _best_thresholds(job, problem, chosen, trained)
    scores = _score(job, problem, chosen, trained)
    return Record(
        spec=job.spec,
        trials=job.trials,
        note=job.data.note,
        scores=tuple(scores),
        networks=n_networks,
        failed=n_failed,
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
    drawn = seed_for(protocol.seed, problem, 0) if is_divided(problem, protocol) else seed
    order = np.random.default_rng(drawn).permutation(n_rows).astype(np.int64)
    n_validation = round(validation_share(problem, protocol) * n_rows)
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


def make_network(problem: Problem, loss: Loss, protocol: Protocol) -> MLP:
    """Return the networks' shape and how their initial weights are drawn."""
    own_units = loss.has_rejector and protocol.rejector == "separate"
    n_hidden = (2 if own_units else 1) * protocol.hidden_units
    sizes = (problem.X.shape[1], n_hidden, loss.n_outputs(problem.n_classes))
    return MLP(sizes, cast(Initialisation, protocol.initialisation), own_units)


def _train(
    job: TrialJob,
    loss: Loss,
    problem: Problem,
    networks: Sequence[NetworkSpec],
    workplace: Workplace,
    progress: Callable[[int], None] | None = None,
) -> Trained:
    trained = train(
        loss,
        make_network(problem, loss, job.protocol),
        TrainingData(problem.X, problem.y),
        networks,
        epochs=job.protocol.epochs,
        batch_size=job.protocol.batch_size,
        learning_rate=job.protocol.learning_rate,
        decay=cast(Decay, job.protocol.decay),
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


@dataclass(frozen=True, eq=False)
class Validation:
    """How candidates do on the validation rows; leading axes, such as trials, may come before those named here.

    Parameters
    ----------
    costs : tuple of float
    n : int
        The number of rows.
    wrong, rejected : arrays of shape (n_costs, n_candidates)
        How many rows they answer wrongly and decline; NaN where the network diverged.
    surrogate, error : arrays of shape (n_costs, n_candidates), or None
        The mean of the loss that they were trained with, and the share of wrong answers if none is declined.
    """

    costs: tuple[float, ...]
    n: int
    wrong: NDArray[np.float64]
    rejected: NDArray[np.float64]
    surrogate: NDArray[np.float64] | None = None
    error: NDArray[np.float64] | None = None

    @property
    def risk(self) -> NDArray[np.float64]:
        """The 0-1-c risk."""
        return np.asarray((self.wrong + np.array(self.costs)[:, None] * self.rejected) / self.n)

    def values(self, criterion: str, *, same_networks: bool = True) -> NDArray[np.float64]:
        """Return what to choose by, the least being the best; the networks may be the same at every cost, or not."""
        if criterion == "risk" or (criterion == "mean_risk" and not same_networks):
            return self.risk
        if criterion == "mean_risk":
            return np.broadcast_to(self.risk.mean(-2, keepdims=True), self.wrong.shape)
        if criterion == "accuracy":
            answered = self.n - self.rejected
            with np.errstate(invalid="ignore", divide="ignore"):
                return np.where(answered == 0, 1.0, self.wrong / answered)
        if criterion not in ("surrogate", "error"):
            raise InputError(f"criterion must be one of {', '.join(CRITERIA)}, got {criterion!r}.")
        found = self.surrogate if criterion == "surrogate" else self.error
        assert found is not None
        return np.where(np.isnan(self.wrong), np.nan, found)


def choose(tried: Validation, criterion: str, ties: str, *, same_networks: bool = True) -> Ints:
    """Return the position of the chosen candidate at each cost; one that diverged only where all did.

    Examples
    --------
    >>> tried = Validation((0.1,), 10, wrong=np.array([[1.0, 0, 0]]), rejected=np.array([[0.0, 10, 10]]))
    >>> [choose(tried, "risk", ties).tolist() for ties in TIES]
    [[0], [2], [1], [0]]
    """
    if ties not in TIES:
        raise InputError(f"ties must be one of {', '.join(TIES)}, got {ties!r}.")
    values = tried.values(criterion, same_networks=same_networks)
    values = np.where(np.isnan(values), np.inf, values)
    among_best = values == values.min(-1, keepdims=True)
    if ties == "last":
        return np.asarray(values.shape[-1] - 1 - among_best[..., ::-1].argmax(-1), dtype=np.int64)
    if ties == "first":
        return np.asarray(among_best.argmax(-1), dtype=np.int64)
    rejected = np.nan_to_num(tried.rejected) * (1 if ties == "rejects_most" else -1)
    return np.asarray(np.where(among_best, rejected, -np.inf).argmax(-1), dtype=np.int64)


def surrogates(
    entries: Sequence[GridEntry], networks: Trained, X: Tensor, y: Tensor, cost: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return, for each network, the mean of its loss on some rows, and the share of wrong answers if none is declined.

    Parameters
    ----------
    entries : sequence of GridEntry
        One per network.
    networks : Trained
    X, y : tensor
    cost : sequence of float
        The cost that each network was trained for.
    """
    members = [NetworkSpec(np.arange(0), hyper=entry.hyper) for entry in entries]
    loss = stacked_loss(entries[0].loss, members, X.device)
    costs = torch.tensor(cost, dtype=torch.float32, device=X.device).unsqueeze(1)
    scores = networks.scores(X)
    labels = y.expand(len(scores), -1)
    surrogate = loss.forward(scores, labels, costs).double().mean(1)
    error = (entries[0].loss.rule(scores, costs).label != labels).double().mean(1)
    return surrogate.cpu().numpy(), error.cpu().numpy()


_ROWS_AT_A_TIME = 1 << 12


def try_out(
    entries: Sequence[GridEntry], trained: Trained, X: Tensor, y: Tensor, costs: Sequence[float]
) -> list[list[Candidate]]:
    """Return, for each cost, the results of each candidate on these rows, in the order of the grid.

    There is one network per entry. Networks of one loss decide as one tensor program, on the device where they are.
    """
    cost = torch.tensor(costs, dtype=torch.float32, device=X.device).view(-1, 1, 1)
    failed = trained.failed.tolist()
    tried: list[dict[int, list[Candidate]]] = [{} for _ in costs]
    distinct = [entry.loss for n, entry in enumerate(entries) if entry.loss not in [one.loss for one in entries[:n]]]
    for loss in distinct:
        alike = [n for n, entry in enumerate(entries) if entry.loss == loss]
        networks = trained.take(alike)
        for decider in entries[alike[0]].deciders:
            wrong, rejected = _counts(decider, networks, X, y, cost)
            for c, n_wrong, n_rejected in zip(range(len(costs)), wrong, rejected, strict=True):
                for n, wrong_rows, rejected_rows in zip(alike, n_wrong, n_rejected, strict=True):
                    risk = np.inf if failed[n] else (wrong_rows + costs[c] * rejected_rows) / len(y)
                    coverage = np.nan if failed[n] else 1 - rejected_rows / len(y)
                    members = () if failed[n] else (n,)
                    tried[c].setdefault(n, []).append(
                        Candidate(decider, entries[n].weight_decay, members, risk, coverage, failed=failed[n])
                    )
    return [[one for n in range(len(entries)) for one in at_cost[n]] for at_cost in tried]


def _counts(loss: Loss, networks: Trained, X: Tensor, y: Tensor, cost: Tensor) -> tuple[list[list[int]], ...]:
    """Return how many rows are wrong, and how many are rejected, at each cost by each network."""
    counted = torch.zeros(2, len(cost), len(networks), dtype=torch.int64, device=X.device)
    for start in range(0, len(X), _ROWS_AT_A_TIME):
        rows = slice(start, start + _ROWS_AT_A_TIME)
        decision = loss.rule(networks.scores(X[rows]), cost)
        reject = decision.reject.expand(*counted.shape[1:], -1)
        counted += torch.stack([(~reject & (decision.label != y[rows])).sum(-1), reject.sum(-1)])
    return tuple(counted.tolist())


def _choose(job: TrialJob, problem: Problem, part: GridPart, trained: Trained, split: Split) -> list[Answerer]:
    """Choose by the validation rows, at each cost of a part."""
    rows = torch.as_tensor(split.validation, device=problem.X.device)
    X, y = problem.X[rows], problem.y[rows]
    networks = trained.take(range(part.first, part.first + len(part.entries)))
    tried = try_out(part.entries, networks, X, y, part.costs)
    rejected = np.array([[(1 - one.coverage) * len(rows) for one in candidates] for candidates in tried])
    risks = np.array([[np.nan if one.failed else one.risk for one in candidates] for candidates in tried])
    validation = Validation(
        part.costs, len(rows), np.rint(risks * len(rows) - np.array(part.costs)[:, None] * rejected), np.rint(rejected)
    )
    if job.protocol.criterion in ("surrogate", "error"):
        per_network = surrogates(part.entries, networks, X, y, part.costs[:1] * len(part.entries))
        repeats = [len(entry.deciders) for entry in part.entries]
        surrogate, error = (np.tile(np.repeat(values, repeats), (len(part.costs), 1)) for values in per_network)
        validation = replace(validation, surrogate=surrogate, error=error)
    chosen = []
    for place, cost, candidates in zip(
        choose(validation, job.protocol.criterion, job.protocol.ties), part.costs, tried, strict=True
    ):
        best = candidates[place]
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


def _refitted(
    job: TrialJob, loss: Loss, problem: Problem, grid: TrialGrid, chosen: Sequence[Answerer], workplace: Workplace
) -> tuple[list[Answerer], Trained]:
    """Train the chosen networks again, on all training rows."""
    different = sorted({one.network for one in chosen})
    everything = np.arange(len(problem.X), dtype=np.int64)
    networks = [replace(grid.networks[number], rows=everything) for number in different]
    trained = _train(job, loss, problem, networks, workplace)
    if bool(trained.failed.any()):
        raise AllDivergedError(f"a chosen network of {job.method.name} on {job.problem} diverged on all training rows.")
    return [replace(one, network=different.index(one.network)) for one in chosen], trained


def _told_apart_by(chosen: Loss, method: Method) -> dict[str, float | str]:
    """Return the fields of a chosen loss in which it may differ from its rivals."""
    loss = resolve(method.loss)
    variants = [*loss.variants_to_train(), *loss.variants_to_decide()]
    names = [name for name in vars(loss) if len({getattr(one, name) for one in variants}) > 1]
    return {name: getattr(chosen, name) for name in names}


def _best_thresholds(job: TrialJob, problem: Problem, chosen: Sequence[Answerer], trained: Trained) -> list[Answerer]:
    """Replace each threshold by the candidate of least risk on the test rows, the first of equals."""
    variants = [one.loss.variants_to_decide() for one in chosen]
    everybody = [replace(one, loss=loss) for one, losses in zip(chosen, variants, strict=True) for loss in losses]
    scores = iter(_score(job, problem, everybody, trained))
    found = []
    for one, losses in zip(chosen, variants, strict=True):
        risks = [next(scores).risk for _ in losses]
        best = losses[int(np.argmin(risks))]
        found.append(replace(one, loss=best, hyper={**one.hyper, **_told_apart_by(best, job.method)}))
    return found


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
