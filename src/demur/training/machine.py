"""How large a stack this machine likes: read from its cores, caches and memory."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from demur.errors import InputError
from demur.training.architecture import Architecture
from demur.workers import n_cores

__all__ = ["Schedule", "resolve_device", "schedule_for"]


_CUDA_STREAMS = 8
"""How many stacks train side by side on a GPU: one alone leaves most of it idle."""


@dataclass(frozen=True)
class Schedule:
    """How many networks train in one stack, and how many stacks at a time.

    On the CPU each worker is one thread that runs its stacks with single-threaded kernels: small matrix products
    gain nothing from two threads, two stacks do.
    """

    stack_size: int
    n_workers: int


def schedule_for(architecture: Architecture, *, batch_size: int, n_networks: int, device: torch.device) -> Schedule:
    """Choose the stack size from the bytes that one network touches in a step.

    On the CPU a stack takes what a core has of the second or third level of cache; on CUDA all stacks together take
    a quarter of the free memory.
    """
    touched = 4 * (3 * batch_size * architecture.n_activations + 6 * architecture.n_parameters)
    if architecture.one_by_one:
        return Schedule(stack_size=1, n_workers=1)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return Schedule(stack_size=max(1, min(2048, free // 4 // _CUDA_STREAMS // touched)), n_workers=_CUDA_STREAMS)
    stack_size = max(4, min(96, _cache_per_core() // touched))
    n_workers = min(n_cores(), max(1, n_networks // 8))
    return Schedule(stack_size=stack_size, n_workers=n_workers)


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
    return found


def _cache_per_core() -> int:
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
