"""The stacked engine: divides networks into stacks by cores, caches and memory, and trains each as one program."""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from demur.errors import InputError, UserError
from demur.lazy_torch import torch
from demur.losses.loss import Trainable
from demur.training.architecture import Architecture
from demur.training.fused import can_fuse, train_fused
from demur.training.jobs import Job, NetworkSpec, Trained, TrainingData, TrainingOptions
from demur.training.training_step import Batches, TrainingStep, stacked_loss
from demur.workers import n_cores, on_workers


class DeviceMemoryError(UserError):
    """A GPU does not have enough free memory."""


def train(
    loss: Trainable,
    architecture: Architecture,
    data: TrainingData,
    networks: Sequence[NetworkSpec],
    **options: Any,
) -> Trained:
    """Train every network with AMSGrad on minibatches of its rows.

    The result of a network depends only on its specification and the device, not on the other networks or the stack
    size. Memory stays bounded by the data, the trained vectors, and ``n_workers`` stacks of ``stack_size`` networks at
    a time, each with one shuffled copy of the rows per group of networks that share their batches.

    Parameters
    ----------
    loss : Trainable
        Loss whose hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of NetworkSpec
    **options
        Options of :class:`TrainingOptions`: epochs, batch_size, learning_rate, device and others.

    Returns
    -------
    Trained
        In the order of ``networks``. A network whose numbers overflowed is marked in ``failed`` and holds zeros.

    Raises
    ------
    DeviceMemoryError
        If a GPU runs out of memory.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> from demur.training import MLP, NetworkSpec, TrainingData
    >>> X, y = torch.randn(64, 2), torch.randint(3, (64,))
    >>> grid = [NetworkSpec(np.arange(64), seed=0, weight_decay=w) for w in (1e-7, 1e-4, 1e-1)]
    >>> trained = train(get("ce"), MLP((2, 5, 3)), TrainingData(X, y), grid, epochs=2)
    >>> trained.scores(X).shape
    torch.Size([3, 64, 3])
    """
    (trained,) = train_all([Job(loss, architecture, data, networks)], **options)
    return trained


def train_all(jobs: Sequence[Job], **options: Any) -> list[Trained]:
    """Train several jobs at once, as :func:`train` does each.

    Small stacks leave most of a GPU idle; stacks of different jobs then run side by side.
    """
    how = TrainingOptions(**options)
    device = how.where
    if device.type != "cuda":
        return _train_stacks([replace(job, data=job.data.to(device)) for job in jobs], how)
    try:
        with torch.cuda.device(device):
            jobs = [replace(job, data=job.data.to(device)) for job in jobs]
            fused = [number for number, job in enumerate(jobs) if can_fuse(job)]
            others = [number for number in range(len(jobs)) if number not in fused]
            trained = dict(zip(fused, train_fused([jobs[number] for number in fused], how), strict=True))
            trained |= zip(others, _train_stacks([jobs[number] for number in others], how), strict=True)
    except torch.cuda.OutOfMemoryError as error:
        raise DeviceMemoryError(
            f'{device} does not have enough free memory. Close other programs, lower batch_size, or use device="cpu".'
        ) from error
    return [trained[number] for number in range(len(jobs))]


def _train_stacks(jobs: Sequence[Job], how: TrainingOptions) -> list[Trained]:
    """Train stacks of networks, several at a time."""
    results = [Trained.empty(job.architecture, len(job.networks), how.where) for job in jobs]
    alone = how.where.type == "cuda" or any(job.architecture.is_module for job in jobs)
    n_networks = sum(len(job.networks) for job in jobs)
    n_workers = how.n_workers or (1 if alone else min(n_cores(), max(1, n_networks // 8)))
    work = [
        (job, trained, chunk)
        for job, trained in zip(jobs, results, strict=True)
        for chunk in plan_chunks(
            job.networks,
            stack_size=1
            if job.architecture.is_module
            else how.stack_size or stack_size(job.architecture, how.batch_size, how.where, 4),
            n_workers=n_workers,
        )
    ]
    stop = threading.Event()

    def run(one_stack: tuple[Job, Trained, Chunk]) -> None:
        job, trained, chunk = one_stack
        with torch.no_grad():
            members = [job.networks[position] for position in chunk.members]
            leaders = members[:: len(members) // chunk.n_groups]
            batches = Batches([one.rows for one in leaders], [one.seed for one in leaders], how.batch_size)
            stack = job.architecture.stack([one.seed for one in members], chunk.n_groups, how.where)
            loss = stacked_loss(job.loss, members, how.where)
            step = TrainingStep(loss, stack, job.data, members, how.learning_rate)
            size, last = batches.batch_size, batches.n_rows
            if job.architecture.is_module and last % size == 1 and last > 1:
                last -= 1  # batch normalisation has no statistics of a single row
            for _ in range(how.epochs):
                order, weight = batches.shuffle().flatten(1), batches.weight[0].flatten()
                x, y, weight = step.examples(order.to(how.where), weight.to(how.where))
                for start in range(0, last, size):
                    if stop.is_set():
                        raise KeyboardInterrupt
                    batch = slice(start, min(start + size, last))
                    step(x[:, batch], y[:, batch], weight[:, batch])
                if how.progress is not None:
                    how.progress(len(chunk.members))
            trained.put(chunk.members, *step.outcome())

    on_workers(run, work, n_workers=n_workers, stop=stop)
    return results


def stack_size(architecture: Architecture, batch_size: int, device: torch.device, least: int = 1) -> int:
    """Return how many networks fit into a core's share of the cache, or into an eighth of a GPU's free memory."""
    touched = 4 * (batch_size * architecture.n_activations + 6 * architecture.n_parameters)
    if device.type == "cuda":
        return max(1, min(2048, torch.cuda.mem_get_info(device)[0] // 8 // touched))
    return max(least, min(96, cache_per_core() // touched))


@dataclass(frozen=True)
class Chunk:
    """Networks that train as one stack: ``n_groups`` groups that share their batches, of equal size.

    ``members`` are positions in the caller's list, group after group.
    """

    members: tuple[int, ...]
    n_groups: int


def plan_chunks(networks: Sequence[NetworkSpec], *, stack_size: int, n_workers: int = 1) -> list[Chunk]:
    """Divide the networks into stacks of at most ``stack_size``, with networks that share their batches together.

    The plan affects only the time, not the trained networks.

    Parameters
    ----------
    networks : sequence of NetworkSpec
    stack_size : int
    n_workers : int
        With more than one, stacks are made a little smaller where that lets every worker have one.

    Returns
    -------
    list of Chunk
        Each network is in exactly one; all networks of a chunk have equally many rows.

    Examples
    --------
    >>> rows = [np.arange(10), np.arange(10, 20)]
    >>> grid = [NetworkSpec(rows[trial], seed=trial) for trial in (0, 1) for _ in range(3)]
    >>> plan_chunks(grid, stack_size=4)
    [Chunk(members=(0, 1, 2), n_groups=1), Chunk(members=(3, 4, 5), n_groups=1)]
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for position, network in enumerate(networks):
        groups[len(network.rows), network.seed, network.rows.tobytes()].append(position)
    if len(networks) >= 8 * n_workers:
        stack_size = min(stack_size, ceil(len(networks) / n_workers))
    pieces: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for (n_rows, *_), members in groups.items():
        for piece in np.array_split(members, ceil(len(members) / stack_size)):
            pieces[n_rows, len(piece)].append(piece.tolist())
    chunks = []
    for (_, length), same in pieces.items():
        n_chunks = ceil(len(same) / max(1, stack_size // length))
        parts = np.array_split(np.array(same), n_chunks)
        chunks += [Chunk(tuple(part.ravel().tolist()), n_groups=len(part)) for part in parts]
    return chunks


def resolve_device(device: str) -> torch.device:
    """Turn "auto", "cpu", "cuda" or "cuda:1" into a device that exists.

    Examples
    --------
    >>> resolve_device("cpu")
    device(type='cpu')
    >>> resolve_device("gpu")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown device 'gpu'; use "auto", "cpu", "cuda" or "cuda:0".
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type not in ("cpu", "cuda"):
        raise InputError(f'unknown device {device!r}; use "auto", "cpu", "cuda" or "cuda:0".')
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} is not available: PyTorch sees {torch.cuda.device_count()} CUDA GPU(s), numbered from "
            '0. Use another number, "cpu" or "auto".'
        )
    return found


def cache_per_core() -> int:
    """Return the bytes of cache per core, or 2 MiB if the system does not report it."""
    try:
        size = 1024 * int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip().removesuffix("K"))
    except (OSError, ValueError):
        size = 0
    return max(2 * 1024**2, size // max(n_cores(), os.cpu_count() or 1))
