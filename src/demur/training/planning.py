"""Where and in which stacks networks train, read from the machine's cores, caches and memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from demur.errors import InputError
from demur.lazy_torch import torch
from demur.training.architecture import Architecture
from demur.training.jobs import NetworkSpec
from demur.workers import n_cores

__all__ = ["Chunk", "StackPlan", "cache_per_core", "plan_chunks", "resolve_device", "stack_plan"]


_CUDA_STREAMS = 8
"""How many stacks train side by side on a GPU: one alone leaves most of it idle."""


@dataclass(frozen=True)
class StackPlan:
    """How many networks train in one stack, and how many stacks at a time.

    On the CPU each worker is one thread that runs its stacks with single-threaded kernels: small matrix products
    gain nothing from two threads, two stacks do.
    """

    stack_size: int
    n_workers: int


def stack_plan(architecture: Architecture, *, batch_size: int, n_networks: int, device: torch.device) -> StackPlan:
    """Choose the stack size from the bytes that one network touches in a step.

    On the CPU a stack takes what a core has of the second or third level of cache; on CUDA all stacks together take
    a quarter of the free memory.
    """
    touched = 4 * (3 * batch_size * architecture.n_activations + 6 * architecture.n_parameters)
    if architecture.one_by_one:
        return StackPlan(stack_size=1, n_workers=1)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return StackPlan(stack_size=max(1, min(2048, free // 4 // _CUDA_STREAMS // touched)), n_workers=_CUDA_STREAMS)
    stack_size = max(4, min(96, cache_per_core() // touched))
    n_workers = min(n_cores(), max(1, n_networks // 8))
    return StackPlan(stack_size=stack_size, n_workers=n_workers)


@dataclass(frozen=True)
class Chunk:
    """Networks that train as one stack: ``n_groups`` groups that share their batches, of equal size.

    ``members`` are positions in the caller's list, group after group.
    """

    members: tuple[int, ...]
    n_groups: int


def plan_chunks(networks: Sequence[NetworkSpec], *, stack_size: int, n_workers: int = 1) -> list[Chunk]:
    """Cut the networks into stacks of at most ``stack_size``, keeping those together that share their batches.

    What a network learns does not depend on the plan, only the time does.

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
        for part in np.array_split(np.arange(len(same)), n_chunks):
            members = [position for index in part for position in same[index]]
            chunks.append(Chunk(tuple(members), n_groups=len(part)))
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
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f'device {device!r} is not there: PyTorch sees no CUDA GPU. Use device="cpu" or "auto".')
    if found.type == "cuda" and found.index is not None and found.index >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} is not there: PyTorch sees {torch.cuda.device_count()} CUDA GPU(s), numbered from 0. "
            'Use another number, "cuda" or "cpu".'
        )
    return found


def cache_per_core() -> int:
    """Return the bytes of cache that one core may count on, or 2 MiB where the system does not tell."""
    sizes = {}
    for level in (2, 3):
        try:
            text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{level}/size").read_text().strip()
            sizes[level] = int(text[:-1]) * {"K": 1024, "M": 1024**2}[text[-1]]
        except (OSError, KeyError, ValueError):
            sizes[level] = 0
    shared_by = max(n_cores(), os.cpu_count() or 1)
    return max(2 * 1024**2, sizes[2], sizes[3] // shared_by)
