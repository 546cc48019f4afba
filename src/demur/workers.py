"""Running work: threads and processes with single-threaded kernels, clients of Dask clusters, a progress bar.

Small tensor operations do not benefit from several threads, and become slow if other programs use the cores as well.
Several workers with independent work benefit from every core.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # it has no types

from demur.errors import InputError, MissingExtraError
from demur.lazy_torch import torch

if TYPE_CHECKING:
    from distributed import Client

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
def process_pool(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of new processes whose tensor operations use one thread each.

    Steps of small networks are short calls from Python: threads of one process would wait for its interpreter. An error
    or an interrupt ends the processes without waiting for their work. The pool imports the main module again, so that a
    script needs ``if __name__ == "__main__"``.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with ProcessPoolExecutor(n_processes, context, initializer=_start_process) as pool:
        try:
            yield pool
        except BaseException:
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _start_process() -> None:
    torch.set_num_threads(1)


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
        The address of a scheduler.

    Raises
    ------
    MissingExtraError
        If Dask distributed is not installed.
    InputError
        If this is no address, or the scheduler does not answer.

    Examples
    --------
    >>> with connect_dask("slurm"):
    ...     pass
    Traceback (most recent call last):
        ...
    demur.errors.InputError: scheduler must be an address such as 'tcp://host:8786', got 'slurm'.
    """
    dask = optional_dask()
    if ":" not in scheduler or scheduler.startswith("local:"):
        raise InputError(f"scheduler must be an address such as 'tcp://host:8786', got {scheduler!r}.")
    try:
        client = dask.Client(scheduler, timeout=20)
    except (OSError, ValueError) as error:
        raise InputError(f"the scheduler {scheduler} does not answer; is it running, and can it be reached?") from error
    with client:
        yield client


class BusyClock:
    """Seconds since the start, minus the time in which other programs used the cores of this process.

    On an idle machine this is wall time. If other programs use more than the idle share of the cores, the difference is
    not counted; the clock runs at least half as fast as wall time. The load of the cores is known only on Linux; on
    other systems this is wall time.

    Examples
    --------
    >>> clock = BusyClock()
    >>> 0 <= clock() < 60
    True
    """

    def __init__(self) -> None:
        self._start, self._lost, self._latest = time.monotonic(), 0.0, 0.0
        self._last = self._start, time.process_time(), _busy_seconds()

    def __call__(self) -> float:
        now, before, own_before, busy_before = time.monotonic(), *self._last
        if now - before >= _LOOK:
            self._last = now, time.process_time(), _busy_seconds()
            capacity = n_cores() * (now - before)
            busy = min(self._last[2] - busy_before, capacity)
            others, idle = busy - (self._last[1] - own_before), capacity - busy
            self._lost += max(others - idle, 0.0) / n_cores()
        wall = now - self._start
        self._latest = max(self._latest, wall - min(self._lost, wall / 2))
        return self._latest

    def in_wall_time(self, seconds: float) -> float:
        """Convert seconds of this clock to wall time, at the speed so far."""
        wall = max(time.monotonic() - self._start, 1e-9)
        return seconds * wall / max(self(), wall / 2)


_LOOK = 0.5
"""Seconds between two measurements of the cores, whose resolution is 0.01 s."""


def _busy_seconds() -> float:
    """Return how long the cores that this process may use have been busy, together; 0 where it is not known."""
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        cores = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        # user, nice, system, then idle and waiting, then interrupts and what the host took
        ticks = sum(int(count) for name, *counts in lines if name in cores for count in counts[:3] + counts[5:8])
    except (OSError, ValueError, AttributeError):
        return 0.0
    return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar on a terminal, and yield a function that advances it and may describe the current step.

    If the total is not known, the bar shows the number of steps and their speed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    text = "{task.description}" if total is not None else "{task.completed:,} {task.description}"
    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(show_speed=True), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps, now=None: bar.update(task, advance=steps, description=f"{what} {now}" if now else None)
