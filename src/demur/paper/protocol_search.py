"""``demur reproduce protocol``: which choices that the paper does not print give its numbers?

Every protocol of :data:`SPACE` trains the whole benchmark; every network and threshold of its grids is then tried on the
validation rows and on the test rows. How validation chooses among them costs nothing more, so that all ways to choose are
compared afterwards, from the records alone. A protocol is scored by how many of the paper's printed figures lie within
two printed standard deviations plus half a printed digit of its own.
"""

import gzip
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from demur.losses import resolve
from demur.paper.experiments import BENCHMARK, BenchmarkProtocol, Method
from demur.paper.problems import DataPlace, Problem, identify, prepare
from demur.paper.records import Environment, describe_environment
from demur.paper.trial_computing import (
    CRITERIA,
    TIES,
    Answerer,
    GridPart,
    Split,
    TrialGrid,
    Validation,
    choose,
    count,
    make_grid,
    make_network,
    split_rows,
    surrogates,
)
from demur.paper.trial_means import METRICS, Numbers, Value
from demur.training import Job, Trained, TrainingData, train_all
from demur.training.engine import Decay
from demur.whole_file import write_whole

__all__ = [
    "CHOOSING",
    "CONFIRMING",
    "SPACE",
    "Agreement",
    "SearchStore",
    "Tried",
    "agreement",
    "numbers_of",
    "try_protocol",
    "ways_to_choose",
]

CHOOSING = ("vehicle", "yeast", "letter")
"""Every other data set of the paper's Table 3, fixed before anything was run: a protocol is chosen on these, ..."""

CONFIRMING = ("satimage", "covtype")
"""... and confirmed on those; and the other way round."""

SEARCH_TRIALS = 5
SEARCH_TEST_ROWS = 100_000

FORMAT = 1


def _base(**settings: Any) -> BenchmarkProtocol:
    return replace(BenchmarkProtocol(trials=SEARCH_TRIALS, max_test_rows=SEARCH_TEST_ROWS), **settings)


def _space() -> tuple[BenchmarkProtocol, ...]:
    """Lay out the protocols: scaling by batch size, by learning rate, and the rest for the scalings of LIBSVM's files."""
    found = [_base(scaling=s, batch_size=b) for s in SCALINGS for b in (32, 64, 128, 256, 512)]
    found += [_base(scaling=s, learning_rate=r) for s in SCALINGS for r in (1e-4, 3e-4, 3e-3, 1e-2)]
    found += [_base(scaling=s, decay="decoupled") for s in SCALINGS]
    found += [_base(scaling=s, initialisation=i) for s in ("range", "unit") for i in ("glorot", "he", "lecun")]
    found += [_base(scaling=s, refit="yes") for s in ("standard", "range", "unit")]
    return tuple(found)


SCALINGS = ("standard", "range", "unit", "none")

SPACE = _space()
"""What is trained; how validation chooses comes on top (:func:`ways_to_choose`)."""


def ways_to_choose() -> list[tuple[str, str]]:
    """Return the criteria and the rules among equals that are compared.

    Examples
    --------
    >>> len(ways_to_choose()), ways_to_choose()[0]
    (20, ('risk', 'first'))
    """
    return [(criterion, ties) for criterion in CRITERIA for ties in TIES]


def name_of(protocol: BenchmarkProtocol) -> str:
    """Name a protocol by what it does differently from ours.

    Examples
    --------
    >>> name_of(BenchmarkProtocol(scaling="range", batch_size=64))
    'batch_size=64 scaling=range'
    >>> name_of(BenchmarkProtocol())
    'ours'
    """
    ours = BenchmarkProtocol()
    names = [item.name for item in fields(protocol) if item.name not in ("trials", "max_test_rows", "max_train_rows")]
    texts = [
        f"{name}={_text(getattr(protocol, name))}" for name in names if getattr(protocol, name) != getattr(ours, name)
    ]
    return " ".join(texts) or "ours"


def _text(value: object) -> str:
    return ",".join(f"{one:g}" for one in value) if isinstance(value, tuple) else f"{value}"


@dataclass(frozen=True, eq=False)
class Tried:
    """All candidates of one method on one data set under one protocol, on validation and test rows.

    Parameters
    ----------
    protocol : dict
        Its specification, with the number of trials.
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
    environment: Environment
    format: int = FORMAT

    def to_json(self) -> str:
        """Return one line that ends in a checksum of itself."""
        body = {
            item.name: value.ravel().tolist() if isinstance(value := getattr(self, item.name), np.ndarray) else value
            for item in fields(self)
        }
        return json.dumps({**body, "sha256": _checksum(body)}, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Tried":
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

    @cached_property
    def costs(self) -> tuple[float, ...]:
        """The costs, in the order of the axis."""
        return tuple(self.protocol["costs"])

    def scores(self, criterion: str, ties: str) -> NDArray[np.float64]:
        """Return risk, accuracy and rejected share on the test rows of what would be chosen: (3, n_trials, n_costs)."""
        together = not resolve(self._loss).trained_for_cost
        found = np.empty((3, len(self.test), len(self.costs)))
        for trial, (tried, tested, other) in enumerate(zip(self.validation, self.test, self.other, strict=True)):
            places = self._chosen(tried, other, criterion, ties, together=together)
            for place, chosen in enumerate(places):
                wrong, rejected = tested[place, chosen]
                answered = self.n_test - rejected
                risk = (wrong + self.costs[place] * rejected) / self.n_test
                accuracy = 1 - wrong / answered if answered else np.nan
                found[:, trial, place] = (risk, accuracy, rejected / self.n_test) if wrong >= 0 else np.nan
        return found

    @property
    def _loss(self) -> str:
        return next(method.loss for method in BENCHMARK.methods if method.name == self.method)

    def _chosen(
        self, tried: NDArray[np.int64], other: NDArray[np.float64], criterion: str, ties: str, *, together: bool
    ) -> list[int]:
        """Return the position of the chosen candidate at each cost."""
        counts = np.where(tried < 0, np.nan, tried)
        wrong, rejected = counts[..., 0], counts[..., 1]
        if together:
            whole = Validation(self.costs, self.n_validation, wrong, rejected, other[0, :, 0], other[0, :, 1])
            return choose(whole, criterion, ties)
        chosen = []
        for place, cost in enumerate(self.costs):
            part = slice(place, place + 1)
            alone = Validation(
                (cost,), self.n_validation, wrong[part], rejected[part], other[place, :, 0], other[place, :, 1]
            )
            chosen += choose(alone, criterion, ties)
        return chosen


def _checksum(body: object) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def try_protocol(
    protocol: BenchmarkProtocol, problem: str, place: DataPlace, device: torch.device, methods: Sequence[Method] = ()
) -> list[Tried]:
    """Train every method on one data set, all together, and try every candidate.

    Examples
    --------
    >>> tiny = replace(_base(), trials=1, epochs=1, max_train_rows=60, max_test_rows=50, costs=(0.2,))
    >>> place = DataPlace("/nonexistent", stand_ins=True)
    >>> (found,) = try_protocol(tiny, "vehicle", place, torch.device("cpu"), [Method("CE")])
    >>> found.test.shape, found.hyper[0]
    ((1, 1, 3, 2), {'weight_decay': 1e-07})
    """
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
            Tried(
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
            )  # fmt: skip
        )
    return found


def _on_all_rows(grid: TrialGrid, n_rows: int) -> TrialGrid:
    everything = np.arange(n_rows, dtype=np.int64)
    return TrialGrid([replace(one, rows=everything) for one in grid.networks], grid.parts)


def _train(
    protocol: BenchmarkProtocol,
    data: Problem,
    methods: Sequence[Method],
    grids: Sequence[TrialGrid],
    device: torch.device,
) -> list[Trained]:
    losses = [resolve(method.loss).for_classes(data.n_classes) for method in methods]
    jobs = [
        Job(loss, make_network(data, loss, protocol), TrainingData(data.X, data.y), grid.networks)
        for loss, grid in zip(losses, grids, strict=True)
    ]
    return train_all(
        jobs, epochs=protocol.epochs, batch_size=protocol.batch_size, learning_rate=protocol.learning_rate,
        decay=cast(Decay, protocol.decay), device=device,
    )  # fmt: skip


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
    width = max(tested.architecture.n_activations, 4 * candidates[0].loss.n_outputs(data.n_classes))
    counts = count(tested, candidates, X, y, width=width)
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
    return np.concatenate(counted), np.round(np.nan_to_num(np.concatenate(other), nan=-1.0), 6)


@dataclass(frozen=True)
class Agreement:
    """How many of the printed figures lie within two printed deviations and half a printed digit, by metric."""

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


HALF_A_DIGIT = 0.0005
DEVIATIONS = 2


def lies_within(ours: Value | None, printed: Value) -> bool | None:
    """Return whether a figure agrees with a printed one; None where none is printed.

    Examples
    --------
    >>> lies_within(Value(0.1024, 0.01, 10), Value(0.1, 0.001, 10)), lies_within(None, Value(None, None, 10))
    (True, None)
    """
    if printed.mean is None:
        return None
    if ours is None or ours.mean is None:
        return False
    return abs(ours.mean - printed.mean) <= DEVIATIONS * (printed.std or 0.0) + HALF_A_DIGIT + 1e-9


def agreement(
    numbers: Numbers, published: Numbers, problems: Sequence[str] = (), methods: Sequence[str] = ()
) -> Agreement:
    """Count the printed figures that agree, of some data sets and methods or of all."""
    found = Agreement()
    for (metric, problem, cost, method), printed in published.values.items():
        if (problems and problem not in problems) or (methods and method not in methods):
            continue
        agrees = lies_within(numbers.get(metric, problem, cost, method), printed)
        if agrees is not None and metric in found.of:
            found.of[metric] += 1
            found.within[metric] += agrees
    return found


def numbers_of(tried: Sequence[Tried], criterion: str, ties: str) -> Numbers:
    """Summarise what one way to choose would have reported."""
    numbers = Numbers()
    for one in tried:
        for metric, by_cost in zip(METRICS, one.scores(criterion, ties), strict=True):
            for cost, values in zip(one.costs, by_cost.T, strict=True):
                numbers.values[metric, one.problem, cost, one.method] = Value.of(values.tolist())
    return numbers


class SearchStore:
    """What was tried, in one compressed file of lines for each protocol and data set under ``OUT/search``."""

    def __init__(self, out: str | os.PathLike[str]) -> None:
        self.folder = Path(out) / "search"

    def path(self, protocol: BenchmarkProtocol, problem: str) -> Path:
        """Return the file of a protocol on a data set."""
        spec = {"format": FORMAT, **protocol.spec(), "trials": protocol.trials}
        words = name_of(protocol).replace(" ", "_").replace("=", "-")
        return self.folder / f"{problem}.{words}.{_checksum(spec)[:8]}.jsonl.gz"

    def write(self, protocol: BenchmarkProtocol, problem: str, tried: Sequence[Tried]) -> None:
        """Write a whole file or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(one.to_json() for one in tried)
        write_whole(self.path(protocol, problem), gzip.compress(text.encode(), mtime=0), overwrite=True)

    def read(self, protocol: BenchmarkProtocol, problem: str) -> list[Tried] | None:
        """Return what was tried, or None if it was not, or its file is damaged."""
        try:
            lines = gzip.decompress(self.path(protocol, problem).read_bytes()).decode().splitlines()
            return [Tried.from_json(line) for line in lines]
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return None
