"""Running work: threads that each run single-threaded kernels, clients of Dask clusters, a progress bar.

Small tensor operations gain nothing from several threads, and become slow if other programs use the cores too. Several
workers with independent work gain from every core.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # it has no types

from demur.errors import InputError, MissingExtraError
from demur.lazy_torch import torch

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "connect_dask",
    "free_cores",
    "n_cores",
    "on_workers",
    "optional_dask",
    "progress_bar",
    "single_threaded_kernels",
]

Item = TypeVar("Item")
Result = TypeVar("Result")


def on_workers(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    n_workers: int | None = None,
    stop: threading.Event | None = None,
) -> list[Result]:
    """Return the function of every item, in order.

    Parameters
    ----------
    function : callable
    items : sequence
    n_workers : int, optional
        One per core by default.
    stop : Event, optional
        Set when an item fails or the user interrupts, so that long functions can end early.

    Examples
    --------
    >>> on_workers(lambda x: x * x, [1, 2, 3], n_workers=2)
    [1, 4, 9]
    """
    n_workers = min(n_workers or n_cores(), len(items))
    with single_threaded_kernels():
        if n_workers <= 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(n_workers, initializer=_start_worker) as pool:
            try:
                return list(pool.map(function, items))
            except BaseException:
                if stop is not None:
                    stop.set()
                pool.shutdown(cancel_futures=True)
                raise


@contextmanager
def single_threaded_kernels() -> Iterator[None]:
    """Run the CPU's tensor operations and matrix products on one thread each."""
    is_loaded = "torch" in sys.modules
    before = torch.get_num_threads() if is_loaded else 1
    if is_loaded:
        torch.set_num_threads(1)
    try:
        with _blas().limit(limits=1, user_api="blas"):
            yield
    finally:
        if is_loaded:
            torch.set_num_threads(before)


def _start_worker() -> None:
    if "torch" in sys.modules:
        torch.set_num_threads(1)


@cache
def _blas() -> ThreadpoolController:
    """Return the controller of the BLAS libraries that are loaded; NumPy's and SciPy's are."""
    return ThreadpoolController()


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def optional_dask() -> ModuleType:
    """Return the package ``distributed``, or say how to install it."""
    try:
        return import_module("distributed")
    except ImportError as error:
        raise MissingExtraError('--scheduler needs Dask: pip install "demur[dask]".') from error


@contextmanager
def connect_dask(scheduler: str) -> Iterator[Client]:
    """Yield a Dask client.

    Parameters
    ----------
    scheduler : str
        "local:N" for N worker processes on this machine, "local" for one per core, or the address of a scheduler.

    Raises
    ------
    MissingExtraError
        If Dask distributed is not installed.
    InputError
        If the scheduler is none of these, or does not answer.

    Examples
    --------
    >>> with connect_dask("local:many"):
    ...     pass
    Traceback (most recent call last):
        ...
    demur.errors.InputError: scheduler must be 'local:N' with N worker processes, or an address such as ...
    """
    dask = optional_dask()
    kind, _, number = scheduler.partition(":")
    n_workers = n_cores() if scheduler == "local" else int(number) if number.isdigit() else 0
    if kind == "local" and n_workers:
        with (
            dask.LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            dask.Client(cluster) as client,
        ):
            yield client
        return
    if kind == "local" or ":" not in scheduler:
        raise InputError(
            "scheduler must be 'local:N' with N worker processes, or an address such as 'tcp://host:8786', got "
            f"{scheduler!r}."
        )
    try:
        client = dask.Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise InputError(f"the scheduler {scheduler} does not answer; is it running, and can it be reached?") from error
    with client:
        yield client


def free_cores() -> int:
    """Return how many cores this process may use and other processes leave idle, at least one."""
    cores = n_cores()
    try:
        others = max(0.0, os.getloadavg()[0] - 1) * cores / (os.cpu_count() or cores)  # one of them is this process
    except (AttributeError, OSError):  # not on Windows
        return cores
    return max(1, round(cores - others))


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar on standard error, and yield a function that advances it and may describe the current step.

    If the total is not known, the bar shows the number of steps and their speed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    text = "{task.description}" if total is not None else "{task.completed:,} {task.description}"
    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(show_speed=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps, now=None: bar.update(task, advance=steps, description=f"{what} {now}" if now else None)
