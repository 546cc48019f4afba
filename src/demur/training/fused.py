"""Training on a CUDA device with one program per network: the supported jobs, and the program's inputs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any, cast

from demur.array_types import Ints
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Trainable
from demur.margins import own_fact
from demur.training.jobs import Job, NetworkSpec, Trained, TrainingOptions
from demur.training.mlp import MLP
from demur.training.training_step import Batches
from demur.workers import on_workers

_HYPER = ("alpha", "beta")
"""The hyper-parameters of a loss that enter its gradient, besides the cost."""

_STREAMS = 8
_WARPS = 8

_ROWS_AT_A_TIME = 128
"""Number of rows that fit into registers; larger batches are processed in pieces of this size."""

_MOST_WEIGHTS = 10240
"""Maximum number of padded weights of a network that one program can train."""

_WIDE = 8192
"""Number of padded weights above which registers hold only half as many rows."""

_MOST_ORDER = 1 << 26
"""Maximum number of row numbers on the device at a time, which limits the epochs of a launch."""


def can_fuse(job: Job) -> bool:
    """Return whether one program can train a network: one hidden layer, small enough, a supported loss."""
    architecture = job.architecture
    if find_spec("triton") is None or not isinstance(architecture, MLP) or len(architecture.sizes) != 3:
        return False
    features, hidden, outputs = (_padded(size) for size in architecture.sizes)
    if hidden * (features + outputs) > _MOST_WEIGHTS or _kind(job.loss) is None:
        return False
    return all(
        set(one.hyper) <= {*_HYPER, "tau"} and all(_hyper(job.loss, one, name) is not None for name in _HYPER)
        for one in job.networks
    )


def _kind(loss: Trainable) -> tuple[str, str] | None:
    """Return the kernel's names for a loss and its margin function, or None if it does not have them."""
    name = own_fact(loss, "kernel")
    margins = {own_fact(phi, "kernel") for phi in loss.margin_functions()} or {"log"}  # any name: unused
    if name is None or None in margins or len(margins) > 1:
        return None
    return name, margins.pop()


def _padded(size: int) -> int:
    """Return the next power of two, at least 16, which matrix units need."""
    return max(16, 1 << (size - 1).bit_length())


class Orders:
    """The order of rows of every trial, epoch after epoch, on the device; networks of one trial share it.

    Parameters
    ----------
    trials : dict
        For each trial, by any key, its rows and its seed; all have equally many rows.
    how : TrainingOptions
    """

    def __init__(self, trials: dict[Any, tuple[Ints, int]], how: TrainingOptions) -> None:
        self.position = {key: number for number, key in enumerate(trials)}
        self._batches = [Batches([rows], [seed], how.batch_size) for rows, seed in trials.values()]
        first = self._batches[0]
        self.batch_size, self.n_steps, self.weight = first.batch_size, first.n_steps, first.weight.to(how.where)
        self._epochs, self._device = how.epochs, how.where

    def blocks(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yield the first epoch of a block, how many it has, and the orders (n_trials, epochs * positions)."""
        n_trials, length = len(self._batches), self.n_steps * self.batch_size
        per_block = max(1, min(self._epochs, _MOST_ORDER // (n_trials * length)))
        for start in range(0, self._epochs, per_block):
            count = min(per_block, self._epochs - start)
            block = torch.empty(n_trials, count, length, dtype=torch.int32)

            def fill(trial: int, block: Tensor = block) -> None:
                for order in block[trial]:
                    order.copy_(self._batches[trial].shuffle().flatten())

            on_workers(fill, range(n_trials))
            yield start, count, block.flatten(1).to(self._device)


class FusedStack:
    """Networks that train in parallel, each in its own program.

    Parameters
    ----------
    job : Job
        One that :func:`can_fuse` accepts, with its data on the device and networks that have equally many rows.
    orders : Orders
    keys : sequence
        For each network the key of its trial in ``orders``.
    how : TrainingOptions

    Attributes
    ----------
    kernel : tuple
        Parameters for which the program is compiled: stacks with equal kernels share a program.
    """

    def __init__(self, job: Job, orders: Orders, keys: Sequence[Any], how: TrainingOptions) -> None:
        architecture, networks, device = cast(MLP, job.architecture), job.networks, how.where
        self._data, self._orders, self._sizes = job.data, orders, architecture.sizes
        self._state = torch.zeros(4, len(networks), architecture.n_parameters, device=device)
        self._state[0] = _initial_vectors(architecture, [one.seed for one in networks]).to(device)
        self._order_of = torch.tensor([orders.position[key] for key in keys], dtype=torch.int32, device=device)
        hyper = [[_hyper(job.loss, one, name) for one in networks] for name in _HYPER]
        own = [[one.cost for one in networks], [one.weight_decay or 0.0 for one in networks], *hyper]
        self._own = [torch.tensor(values, dtype=torch.float32, device=device) for values in own]
        self._corrections = _bias_corrections(how.epochs * orders.n_steps, how.learning_rate).to(device)
        self._y = job.data.y.to(torch.int32)
        features, hidden, outputs = (_padded(size) for size in self._sizes)
        rows = min(_ROWS_AT_A_TIME // (1 + (hidden * (features + outputs) > _WIDE)), _padded(orders.batch_size))
        loss, margin = cast(tuple[str, str], _kind(job.loss))
        self._constants = {
            "features": features, "hidden": hidden, "outputs": outputs, "rows": rows,
            "in_pieces": orders.batch_size > rows, "loss": loss, "margin": margin,
            "weighted": job.data.weight is not None,
            "own_units": architecture.own_units, "precision": how.on_cuda, "num_warps": _WARPS,
        }  # fmt: skip
        self.kernel = (*self._sizes, *self._constants.values())

    def train(self, first_epoch: int, n_epochs: int, block: Tensor) -> None:
        """Train on a block of epochs, without waiting for the device."""
        from demur.training.fused_kernels import train_networks

        train_networks[(len(self._order_of),)](*self._arguments(first_epoch, n_epochs, block), **self._constants)

    def compile(self) -> None:
        """Compile the program, or find it in the cache on disk, without running it."""
        from demur.training.fused_kernels import train_networks

        with torch.cuda.device(self._state.device):
            train_networks.warmup(*self._arguments(0, 1, self._order_of), grid=(1,), **self._constants)

    def _arguments(self, first_epoch: int, n_epochs: int, block: Tensor) -> tuple[Any, ...]:
        orders, weight = self._orders, self._data.weight
        return (
            self._data.X, self._y, orders.weight if weight is None else weight, block, orders.weight, self._order_of,
            self._state, self._corrections[first_epoch * orders.n_steps :], *self._own,
            len(self._order_of), block.shape[-1], n_epochs * orders.n_steps, orders.n_steps, orders.batch_size,
            *self._sizes, self._state.shape[2],
        )  # fmt: skip

    def outcome(self) -> tuple[Tensor, Tensor]:
        """Return the trained vectors, and which networks failed: their numbers or their moments overflowed."""
        vectors, largest = self._state[0], self._state[3]
        return vectors, ~(vectors.isfinite().all(1) & largest.isfinite().all(1))


def train_fused(jobs: Sequence[Job], how: TrainingOptions) -> list[Trained]:
    """Train every network of every job; networks that have equally many rows share their orders.

    The stacks are distributed over several streams, those with the most rows first, so that the device is busy until
    the end. Each stack keeps its stream.
    """
    keys = [[(one.seed, one.rows.tobytes()) for one in job.networks] for job in jobs]
    trials: dict[int, dict[Any, tuple[Ints, int]]] = defaultdict(dict)
    for job, own in zip(jobs, keys, strict=True):
        for network, key in zip(job.networks, own, strict=True):
            trials[len(network.rows)][key] = (network.rows, network.seed)
    results = [Trained.empty(job.architecture, len(job.networks), how.where) for job in jobs]
    groups: list[tuple[Orders, list[tuple[int, list[int], FusedStack]]]] = []
    for n_rows, those in sorted(trials.items(), reverse=True):
        orders, stacks = Orders(those, how), []
        for number, (job, own) in enumerate(zip(jobs, keys, strict=True)):
            places = [place for place, one in enumerate(job.networks) if len(one.rows) == n_rows]
            if places:
                networks = [job.networks[place] for place in places]
                stack = FusedStack(replace(job, networks=networks), orders, [own[place] for place in places], how)
                stacks.append((number, places, stack))
        groups.append((orders, stacks))
    if how.where.type == "cuda":
        _compile([stack for _, stacks in groups for _, _, stack in stacks])
    lanes = _Lanes(how.where)
    for orders, stacks in groups:
        for start, count, block in orders.blocks():
            for _, places, stack in stacks:
                lanes.launch(stack, start, count, block)
                if how.progress is not None:
                    how.progress(count * len(places))
    lanes.join()
    for _, stacks in groups:
        for number, places, stack in stacks:
            results[number].put(places, *stack.outcome())
    return results


def _compile(stacks: Sequence[FusedStack]) -> None:
    """Compile the program of each kind of stack, several at a time."""
    kinds = list({stack.kernel: stack for stack in stacks}.values())
    on_workers(FusedStack.compile, kinds[:1])  # first and alone: it sets up shared state
    on_workers(FusedStack.compile, kinds[1:])


class _Lanes:
    """Streams on a device; on other devices everything runs immediately."""

    def __init__(self, device: torch.device) -> None:
        self._streams: list[Any] = []
        self._of: dict[int, Any] = {}
        if device.type == "cuda":
            self._current: Any = torch.cuda.current_stream(device)
            self._streams = [torch.cuda.Stream(device) for _ in range(_STREAMS)]  # type: ignore[no-untyped-call] # stubs

    def launch(self, stack: FusedStack, start: int, count: int, block: Tensor) -> None:
        """Train a stack on a block of epochs, on the stack's own stream."""
        if not self._streams:
            stack.train(start, count, block)
            return
        stream = self._of.setdefault(id(stack), self._streams[len(self._of) % len(self._streams)])
        stream.wait_stream(self._current)  # which has copied the block
        block.record_stream(stream)
        with torch.cuda.stream(stream):
            stack.train(start, count, block)

    def join(self) -> None:
        """Let later operations wait for all streams."""
        for stream in self._streams:
            self._current.wait_stream(stream)


def _initial_vectors(architecture: MLP, seeds: Sequence[int]) -> Tensor:
    """Return each network's initial weights; those of equal seeds are drawn once."""
    distinct = list(dict.fromkeys(seeds))
    place = {seed: number for number, seed in enumerate(distinct)}
    vectors = architecture.stack(distinct, len(distinct), torch.device("cpu")).vectors()
    return vectors[[place[seed] for seed in seeds]]


def _hyper(loss: Trainable, network: NetworkSpec, name: str) -> float | None:
    """Return a hyper-parameter of a network, 1 where its loss has none of that name, None where it is not a number."""
    value: Any = network.hyper.get(name, getattr(loss, name, 1.0))
    return float(value) if isinstance(value, (int, float)) else None


def _bias_corrections(n_steps: int, learning_rate: float) -> Tensor:
    """Return learning_rate / (1 - 0.9^t) and sqrt(1 - 0.999^t) for each step t, of shape (n_steps, 2)."""
    t = torch.arange(1, n_steps + 1, dtype=torch.float64)
    first = -torch.expm1(t * math.log(0.9))
    second = -torch.expm1(t * math.log(0.999))
    return torch.stack([learning_rate / first, second.sqrt()], 1).to(torch.float32)
