"""Search for the paper's protocol: which choices that the paper does not print reproduce its numbers.

Every protocol of :data:`SPACE` trains the whole benchmark, and every network and threshold of its grids is tried on the
validation rows and on the test rows. How one of them is chosen costs nothing more, so that all ways to choose are
compared afterwards, from what was kept. A protocol is scored by how many of the paper's printed figures lie within two
printed standard deviations, plus half a printed digit, of its own.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.array_types import ByName
from demur.errors import InputError
from demur.estimators.network_selection import GridEntry
from demur.losses import Loss, resolve
from demur.paper.experiments import BENCHMARK, BenchmarkProtocol, Method
from demur.paper.problems import DataPlace, Problem, ensure, identify, is_divided, prepare, scaling_of
from demur.paper.records import StoreError, describe_environment
from demur.paper.trial_means import METRICS, Agreement, Numbers, Value, tolerance
from demur.paper.trials import Answerer, Split, TrialGrid, count, make_grid, split_rows
from demur.training import MLP, Job, NetworkSpec, Trained, TrainingData, resolve_device, train_all
from demur.training.training_step import stacked_loss
from demur.whole_file import write_whole
from demur.workers import connect_dask

CRITERIA = ("risk", "mean_risk", "surrogate", "error", "accuracy")
"""What validation may choose by: the 0-1-c risk at the cost in question; its mean over all costs; the training loss;
the error rate if nothing is declined; the error rate of the answers."""

TIES = ("first", "last", "rejects_most", "rejects_least")
"""Which of several equal candidates is chosen."""

CHOOSING = ("vehicle", "yeast", "letter")
"""Every other data set of the paper's Table 3, fixed before anything was run: a protocol is chosen on these, ..."""

CONFIRMING = ("satimage", "covtype")
"""... and confirmed on those; and the other way round."""

SEARCH_TRIALS = 5
SEARCH_TEST_ROWS = 100_000

FORMAT = 1


@dataclass(frozen=True)
class SearchProtocol(BenchmarkProtocol):
    """The benchmark's protocol with the settings that only the search varies.

    Parameters
    ----------
    refit : {"no", "yes"}
        Whether the chosen network is trained again on all training rows.
    """

    refit: str = "no"

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the outcome of one trial; ``refit`` unless it is "no"."""
        return {name: value for name, value in super().spec().items() if (name, value) != ("refit", "no")}


SCALINGS = ("standard", "range", "unit", "none")


def _base(**settings: Any) -> SearchProtocol:
    return replace(SearchProtocol(trials=SEARCH_TRIALS, max_test_rows=SEARCH_TEST_ROWS), **settings)


def _space() -> tuple[SearchProtocol, ...]:
    """Lay out the protocols; "source" mixes scalings that are trained anyway."""
    found = [_base(scaling=s, batch_size=b) for s in (*SCALINGS, "source") for b in (32, 64, 128, 256, 512)]
    found += [_base(scaling=s, learning_rate=r) for s in SCALINGS for r in (1e-4, 3e-4, 3e-3, 1e-2)]
    found += [_base(scaling=s, refit="yes") for s in (*SCALINGS, "source")]
    with_and_without: list[dict[str, Any]] = [{"batch_size": size} for size in (100, 128, 150, 200)]
    with_and_without += [{"epochs": 100}, {"validation": "source"}]
    of_its_own = [{"refit": refit, **one} for refit in ("no", "yes") for one in with_and_without]
    of_its_own += [{"batch_size": size} for size in (32, 64, 256, 512)]
    of_its_own += [{"learning_rate": rate} for rate in (3e-4, 5e-4, 3e-3)]
    of_its_own += [{"validation_fraction": 0.3, "batch_size": size} for size in (100, 128)]
    of_its_own += [{"validation": "source", "batch_size": 100}, {"batch_size": 256, "learning_rate": 2e-3}]
    of_its_own += [{"scaling": scaling} for scaling in SCALINGS]
    of_its_own += [{"scaling": "unit", "refit": "yes"}]
    found += [_base(rejector="separate", **{"scaling": "source", **settings}) for settings in of_its_own]
    found += [_base(scaling="source", validation="source")]
    return tuple(found)


SPACE = _space()
"""What is trained; how one network is chosen comes on top (:func:`ways_to_choose`)."""


@dataclass(frozen=True, order=True)
class Way:
    """How one of the candidates is chosen: settings of a protocol that need no training of their own."""

    criterion: str = "risk"
    ties: str = "first"
    thresholds: str = "validation"


def ways_to_choose() -> list[Way]:
    """Return all ways that are compared.

    Examples
    --------
    >>> len(ways_to_choose()), ways_to_choose()[0]
    (40, Way(criterion='risk', ties='first', thresholds='validation'))
    """
    return [
        Way(criterion, ties, thresholds)
        for criterion in CRITERIA
        for ties in TIES
        for thresholds in ("validation", "test")
    ]


def name_of(protocol: SearchProtocol) -> str:
    """Name a protocol by what it does differently from ours.

    Examples
    --------
    >>> name_of(SearchProtocol(scaling="range", batch_size=64)), name_of(SearchProtocol())
    ('batch_size=64 scaling=range', 'ours')
    """
    ours, differences = SearchProtocol(), []
    for item in fields(protocol):
        value = getattr(protocol, item.name)
        if value != getattr(ours, item.name) and item.name not in ("trials", "max_test_rows", "max_train_rows"):
            text = ",".join(f"{one:g}" for one in value) if isinstance(value, tuple) else str(value)
            differences.append(f"{item.name}={text}")
    return " ".join(differences) or "ours"


def _on(protocol: SearchProtocol, problem: str) -> SearchProtocol:
    """Return the protocol as it is trained on one data set, so that equal trainings are kept once."""
    plain = replace(protocol, scaling=scaling_of(problem, protocol.scaling), thresholds="validation")
    if not is_divided(problem, protocol):
        plain = replace(plain, validation="random")
    return plain if problem in ("vehicle", "yeast") else replace(plain, split_seed=0)


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


def choose(tried: Validation, criterion: str, ties: str, *, same_networks: bool = True) -> NDArray[np.int64]:
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


@dataclass(frozen=True, eq=False)
class TriedCandidates:
    """All candidates of one method on one data set under one protocol, on validation and test rows.

    Parameters
    ----------
    protocol : dict
        The specification, with the number of trials.
    problem, method : str
    data : str
        The hash of the data.
    hyper : list of dict
        The hyper-parameters of each candidate.
    n_validation, n_test : int
    validation, test : arrays of shape (n_trials, n_costs, n_candidates, 2), int
        Rows answered wrongly and rows declined; -1 where the network diverged. With a refit, ``test`` is that of the
        networks that were trained on all rows.
    other : array of shape (n_trials, n_costs, n_candidates, 2), float
        On the validation rows, the mean loss that was trained and the share of wrong answers if none is declined.
    networks : int
    seconds : float
        Of training, shared by the methods that were trained together.
    environment : dict
    """

    protocol: dict[str, Any]
    problem: str
    method: str
    data: str
    hyper: list[dict[str, float | str]]
    n_validation: int
    n_test: int
    validation: NDArray[np.int64]
    test: NDArray[np.int64]
    other: NDArray[np.float64]
    networks: int
    seconds: float
    environment: ByName
    format: int = FORMAT

    def to_json(self) -> str:
        """Return one line that ends in a checksum of itself."""
        body = {
            item.name: value.ravel().tolist() if isinstance(value := getattr(self, item.name), np.ndarray) else value
            for item in fields(self)
        }
        return json.dumps({**body, "sha256": _checksum(body)}, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "TriedCandidates":
        """Read a line.

        Raises
        ------
        ValueError
            If it is cut short, or not what was written.
        """
        body = json.loads(text)
        if body.pop("sha256", None) != _checksum(body):
            raise ValueError("its checksum does not fit its contents")
        shape = (body["protocol"]["trials"], len(body["protocol"]["costs"]), len(body["hyper"]), 2)
        for name, kind in (("validation", np.int64), ("test", np.int64), ("other", np.float64)):
            body[name] = np.array(body[name], dtype=kind).reshape(shape)
        return cls(**body)

    @property
    def costs(self) -> tuple[float, ...]:
        """The costs, in the order of the axis."""
        return tuple(self.protocol["costs"])

    @property
    def method_of_paper(self) -> Method:
        """The method, as the benchmark declares it."""
        return next(method for method in BENCHMARK.methods if method.name == self.method)

    @property
    def one_training(self) -> bool:
        """Whether the same networks are candidates at every cost."""
        return not resolve(self.method_of_paper.loss).trained_for_cost

    @cached_property
    def on_validation(self) -> Validation:
        """How the candidates do on the validation rows, by trial and cost."""
        counts = np.where(self.validation < 0, np.nan, self.validation)
        return Validation(
            self.costs, self.n_validation, counts[..., 0], counts[..., 1], self.other[..., 0], self.other[..., 1]
        )

    def chosen(self, way: Way) -> NDArray[np.int64]:
        """Return the position of what would be chosen, of shape (n_trials, n_costs)."""
        places = choose(self.on_validation, way.criterion, way.ties, same_networks=self.one_training)
        if way.thresholds == "validation" or "tau" not in self.hyper[0]:
            return places
        networks = [json.dumps({**one, "tau": None}, sort_keys=True) for one in self.hyper]
        group = np.unique(networks, return_inverse=True)[1]
        risk = (self.test[..., 0] + np.array(self.costs)[:, None] * self.test[..., 1]) / self.n_test
        return np.asarray(np.where(group == group[places][..., None], risk, np.inf).argmin(-1), dtype=np.int64)

    def scores(self, way: Way) -> NDArray[np.float64]:
        """Return risk, accuracy and declined share on the test rows of what would be chosen: (3, n_trials, n_costs)."""
        places = self.chosen(way)
        counts = np.take_along_axis(self.test, places[..., None, None], 2)[:, :, 0].astype(np.float64)
        wrong, rejected = np.where(counts < 0, np.nan, counts).transpose(2, 0, 1)
        answered = self.n_test - rejected
        with np.errstate(invalid="ignore", divide="ignore"):
            accuracy = np.where(answered > 0, 1 - wrong / answered, np.nan)
        return np.stack([(wrong + np.array(self.costs) * rejected) / self.n_test, accuracy, rejected / self.n_test])


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def try_protocol(
    protocol: SearchProtocol, problem: str, place: DataPlace, device: torch.device, methods: Sequence[Method] = ()
) -> list[TriedCandidates]:
    """Train every method on one data set, all together, and try every candidate.

    Examples
    --------
    >>> tiny = replace(_base(), trials=1, epochs=1, max_train_rows=60, max_test_rows=50, costs=(0.2,))
    >>> place = DataPlace("/nonexistent", stand_ins=True)
    >>> (found,) = try_protocol(tiny, "vehicle", place, torch.device("cpu"), [Method("CE")])
    >>> found.test.shape, found.hyper[0]
    ((1, 1, 3, 2), {'weight_decay': 1e-07})
    """
    protocol = _on(protocol, problem)
    data = prepare(problem, protocol, place, device)
    splits = {trial: split_rows(len(data.X), problem, trial, protocol) for trial in range(protocol.trials)}
    methods = methods or BENCHMARK.methods
    grids = [make_grid(method, data.n_classes, protocol, splits) for method in methods]
    started = time.perf_counter()
    trained = _train(protocol, data, methods, grids, device)
    tested = trained
    if protocol.refit != "no":
        tested = _train(protocol, data, methods, [_on_all_rows(grid, len(data.X)) for grid in grids], device)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    seconds = time.perf_counter() - started
    spec = {**protocol.spec(), "trials": protocol.trials}
    identity, environment = identify(problem, protocol, place).sha256, describe_environment(device)
    found = []
    for method, grid, networks, for_test in zip(methods, grids, trained, tested, strict=True):
        candidates = _candidates(grid, protocol.costs)
        validation, other = _on_validation(data, grid, candidates, networks, splits)
        test = _counted(data, candidates, networks, for_test, data.X_test, data.y_test)
        shape = (protocol.trials, len(protocol.costs), -1, 2)
        found.append(
            TriedCandidates(
                spec,
                problem,
                method.name,
                identity,
                [one.hyper for one in candidates if (one.trial, one.cost) == (0, protocol.costs[0])],
                len(splits[0].validation),
                len(data.X_test),
                validation.reshape(shape),
                test.reshape(shape),
                other.reshape(shape),
                networks=len(grid.networks),
                seconds=round(seconds, 3),
                environment=environment,
            )
        )
    return found


def _on_all_rows(grid: TrialGrid, n_rows: int) -> TrialGrid:
    everything = np.arange(n_rows, dtype=np.int64)
    return TrialGrid([replace(one, rows=everything) for one in grid.networks], grid.parts)


def _train(
    protocol: SearchProtocol,
    data: Problem,
    methods: Sequence[Method],
    grids: Sequence[TrialGrid],
    device: torch.device,
) -> list[Trained]:
    losses = [resolve(method.loss).for_classes(data.n_classes) for method in methods]
    jobs = [
        Job(loss, _network(data, loss, protocol), TrainingData(data.X, data.y), grid.networks)
        for loss, grid in zip(losses, grids, strict=True)
    ]
    return train_all(
        jobs,
        epochs=protocol.epochs,
        batch_size=protocol.batch_size,
        learning_rate=protocol.learning_rate,
        device=device,
    )


def _network(problem: Problem, loss: Loss, protocol: SearchProtocol) -> MLP:
    own_units = loss.has_rejector and protocol.rejector == "separate"
    n_hidden = (2 if own_units else 1) * protocol.hidden_units
    sizes = (problem.X.shape[1], n_hidden, loss.n_outputs(problem.n_classes))
    return MLP(sizes, own_units)


def _candidates(grid: TrialGrid, costs: Sequence[float]) -> list[Answerer]:
    """List every candidate, by trial, then cost, then in the order of the grid."""
    found = []
    for part in grid.parts:
        for cost in part.costs:
            for place, entry in enumerate(part.entries):
                for decider in entry.deciders:
                    hyper: dict[str, float | str] = {"weight_decay": entry.weight_decay}
                    if entry.hyper:
                        hyper["beta"] = str(cast(Any, entry.loss).beta)
                    if len(entry.deciders) > 1:
                        hyper["tau"] = float(cast(Any, decider).tau)
                    found.append(Answerer(part.first + place, decider, cost, part.trial, hyper))
    order = {cost: place for place, cost in enumerate(costs)}
    return sorted(found, key=lambda one: (one.trial, order[one.cost]))


def _counted(
    data: Problem, candidates: Sequence[Answerer], trained: Trained, tested: Trained, X: torch.Tensor, y: torch.Tensor
) -> NDArray[np.int64]:
    """Return wrong and declined rows of each candidate, of shape (n_candidates, 2); -1 where it diverged."""
    counts = count(tested, candidates, X, y)
    failed = (trained.failed | tested.failed).cpu().numpy()[[one.network for one in candidates]]
    return np.where(failed[:, None], -1, np.stack([counts.wrong, counts.rejected], 1))


def _on_validation(
    data: Problem, grid: TrialGrid, candidates: Sequence[Answerer], networks: Trained, splits: dict[int, Split]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the counts of each candidate on its own trial's validation rows, and what else may choose."""
    counted, other = [], []
    for trial, split in splits.items():
        own = [one for one in candidates if one.trial == trial]
        rows = torch.as_tensor(split.validation, device=data.X.device)
        X, y = data.X[rows], data.y[rows]
        counted.append(_counted(data, own, networks, networks, X, y))
        parts = [part for part in grid.parts if part.trial == trial]
        entries = [entry for part in parts for entry in part.entries]
        costs = [part.costs[0] for part in parts for _ in part.entries]
        first = parts[0].first  # the parts of a trial follow each other
        mine = networks.take(range(first, first + len(entries)))
        per_network = np.stack(surrogates(entries, mine, X, y, costs), 1)
        other.append(per_network[[one.network - first for one in own]])
    judged = np.asarray(np.nan_to_num(np.concatenate(other), nan=-1.0), dtype=np.float64)
    return np.concatenate(counted), judged.round(6)


def numbers_of(tried: Iterable[TriedCandidates], way: Way) -> Numbers:
    """Summarise what one way to choose would have reported."""
    numbers = Numbers()
    for one in tried:
        for metric, by_cost in zip(METRICS, one.scores(way), strict=True):
            for cost, values in zip(one.costs, by_cost.T, strict=True):
                numbers.values[metric, one.problem, cost, one.method] = Value.of(values.tolist())
    return numbers


class SearchStore:
    """What was tried: one compressed file of lines for each protocol and data set, under ``OUT/search``.

    Parameters
    ----------
    out : path
    """

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.folder = Path(out) / "search"

    def path(self, protocol: SearchProtocol, problem: str) -> Path:
        """Return the file of a protocol on a data set."""
        protocol = _on(protocol, problem)
        spec = {"format": FORMAT, **protocol.spec(), "trials": protocol.trials}
        words = name_of(protocol).replace(" ", "_").replace("=", "-")
        return self.folder / f"{problem}.{words}.{_checksum(spec)[:8]}.jsonl.gz"

    def write(self, protocol: SearchProtocol, problem: str, tried: Sequence[TriedCandidates]) -> None:
        """Write a whole file or nothing.

        Raises
        ------
        StoreError
        """
        text = "".join(one.to_json() for one in tried)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.path(protocol, problem), gzip.compress(text.encode(), mtime=0), overwrite=True)
        except OSError as error:
            raise StoreError(
                f"cannot write to {self.folder}: {error.strerror or error}. What is finished is kept; the same command "
                "continues."
            ) from error

    def read(self, protocol: SearchProtocol, problem: str) -> list[TriedCandidates] | None:
        """Return what was tried, or None if it was not, or its file is damaged."""
        try:
            lines = gzip.decompress(self.path(protocol, problem).read_bytes()).decode().splitlines()
            return [TriedCandidates.from_json(line) for line in lines]
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return None


def run_search(
    out: str | os.PathLike[str],
    place: DataPlace,
    *,
    protocols: Sequence[SearchProtocol] = SPACE,
    problems: Sequence[str] = BENCHMARK.problems,
    device: str = "auto",
    scheduler: str | None = None,
    say: Callable[[str], object] = str,
) -> None:
    """Train what is not in the store yet, data set by data set; stopped at any moment, the next call continues.

    Parameters
    ----------
    out : path
    place : DataPlace
    protocols : sequence of SearchProtocol
    problems : sequence of str
    device : str
        As for :func:`demur.training.resolve_device`.
    scheduler : str, optional
        As for :func:`demur.workers.connect_dask`; this machine alone by default.
    say : callable, optional
        Takes a sentence about each finished step.

    Raises
    ------
    DatasetError, StoreError, InputError
    """
    store = SearchStore(out)
    missing = {
        store.path(protocol, problem): (protocol, problem)
        for problem in problems
        for protocol in protocols
        if store.read(protocol, problem) is None
    }
    for problem in problems:
        ensure(problem, SearchProtocol(), place)
    started, left = time.monotonic(), list(missing.values())
    if scheduler is None:
        where = resolve_device(device)
        results: Iterator[tuple[tuple[SearchProtocol, str], list[TriedCandidates]]] = (
            (one, try_protocol(*one, place, where)) for one in left
        )
        _keep(store, results, len(left), started, say)
        return
    with connect_dask(scheduler) as client:
        futures = {
            client.submit(_on_worker, *one, place, device, key=f"demur-search-{path.name}", pure=False): one
            for path, one in missing.items()
        }
        _keep(store, ((futures[done], done.result()) for done in _as_completed(futures)), len(left), started, say)


def _as_completed(futures: Iterable[Any]) -> Iterator[Any]:
    from importlib import import_module

    yield from import_module("distributed").as_completed(futures)


def _on_worker(protocol: SearchProtocol, problem: str, place: DataPlace, device: str) -> list[TriedCandidates]:
    return try_protocol(protocol, problem, place, resolve_device(device))


def _keep(
    store: SearchStore,
    results: Iterable[tuple[tuple[SearchProtocol, str], list[TriedCandidates]]],
    n: int,
    started: float,
    say: Callable[[str], object],
) -> None:
    for number, ((protocol, problem), tried) in enumerate(results, start=1):
        store.write(protocol, problem, tried)
        say(f"[{number}/{n}, {time.monotonic() - started:.0f} s] {problem}: {name_of(protocol)}")


@dataclass(frozen=True)
class Found:
    """How one protocol, with one way to choose, agrees with the paper on one data set."""

    protocol: str
    way: Way
    problem: str
    agreement: Agreement


def score_all(store: SearchStore, published: Numbers, protocols: Sequence[SearchProtocol] = SPACE) -> list[Found]:
    """Score every protocol of which the store has all data sets, with every way to choose."""
    found = []
    for protocol in protocols:
        tried = {problem: store.read(protocol, problem) for problem in BENCHMARK.problems}
        for problem, own in tried.items() if None not in tried.values() else ():
            pairs = [(one, _printed(published, one)) for one in own or ()]
            for way in ways_to_choose():
                agrees = sum_of(_agrees(one, way, printed) for one, printed in pairs)
                found.append(Found(name_of(protocol), way, problem, agrees))
    return found


def sum_of(parts: Iterable[Agreement]) -> Agreement:
    """Return the total of some agreements."""
    total = Agreement()
    for part in parts:
        for metric in METRICS:
            total.within[metric] += part.within[metric]
            total.of[metric] += part.of[metric]
    return total


def _printed(published: Numbers, tried: TriedCandidates) -> NDArray[np.float64]:
    """Return the printed means, and how far from them a figure may lie: (2, n_metrics, n_costs); NaN for none."""
    found = np.full((2, len(METRICS), len(tried.costs)), np.nan)
    for place, metric in enumerate(METRICS):
        for number, cost in enumerate(tried.costs):
            printed = published.values.get((metric, tried.problem, cost, tried.method))
            if printed is not None and printed.mean is not None:
                found[:, place, number] = printed.mean, tolerance(printed)
    return found


def _agrees(tried: TriedCandidates, way: Way, printed: NDArray[np.float64]) -> Agreement:
    """Count as :func:`demur.paper.trial_means.agreement` does."""
    scores = tried.scores(way)
    n = np.maximum(1, (~np.isnan(scores)).sum(1))
    means = np.where(np.isnan(scores).all(1), np.nan, np.nansum(scores, 1) / n)
    within = (np.abs(means - printed[0]) <= printed[1]).sum(1)
    of = (~np.isnan(printed[0])).sum(1)
    return Agreement(*(dict(zip(METRICS, counts.tolist(), strict=True)) for counts in (within, of)))


_CELLS = [(problem, metric) for problem in BENCHMARK.problems for metric in METRICS]
_COLUMNS = ["protocol", "criterion", "ties", "thresholds", *(f"{problem} {metric}" for problem, metric in _CELLS)]
_PRINTED = "printed in the paper"


def write_found(out: str | os.PathLike[str], found: Sequence[Found]) -> None:
    """Write ``search.csv``, from which the page can be drawn without what was tried.

    Its first line says how many figures the paper prints.
    """
    rows: dict[tuple[str, Way], dict[str, Agreement]] = {}
    for one in found:
        rows.setdefault((one.protocol, one.way), {})[one.problem] = one.agreement
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    first = next(iter(rows.values()))
    writer.writerow([_PRINTED, "", "", "", *(first[problem].of[metric] for problem, metric in _CELLS)])
    for (protocol, way), by_problem in rows.items():
        counts = [by_problem[problem].within[metric] for problem, metric in _CELLS]
        writer.writerow([protocol, way.criterion, way.ties, way.thresholds, *counts])
    Path(out).mkdir(parents=True, exist_ok=True)
    write_whole(Path(out) / "search.csv", text.getvalue(), overwrite=True)


def read_found(out: str | os.PathLike[str]) -> list[Found]:
    """Read ``search.csv``; empty if there is none."""
    path = Path(out) / "search.csv"
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        printed, *rows = csv.DictReader(file)
    found = []
    for row in rows:
        way = Way(row["criterion"], row["ties"], row["thresholds"])
        for problem in BENCHMARK.problems:
            within, of = ({metric: int(line[f"{problem} {metric}"]) for metric in METRICS} for line in (row, printed))
            found.append(Found(row["protocol"], way, problem, Agreement(within, of)))
    return found
