"""Worker threads that each run single-threaded kernels.

Small tensor operations gain nothing from several threads and lose much where other programs use the cores too;
several workers with independent work gain from every core.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # it has no types

from demur.lazy_torch import torch

__all__ = ["free_cores", "n_cores", "native_threads", "on_workers", "single_threaded_kernels"]

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
            futures = [pool.submit(function, item) for item in items]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
                for future in futures:
                    if future.done():
                        future.result()
                return [future.result() for future in futures]
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
    """Return what knows the libraries of matrix products; NumPy's and SciPy's are loaded by now."""
    return ThreadpoolController()


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_cores() -> int:
    """Return how many cores this process may use and other processes leave idle, at least one."""
    cores = n_cores()
    try:
        others = max(0.0, os.getloadavg()[0] - 1) * cores / (os.cpu_count() or cores)  # one of them is this process
    except (AttributeError, OSError):  # not on Windows
        return cores
    return max(1, round(cores - others))


_ROWS_FOR_THREADS = 50_000
"""Rows from which several threads are faster than one: below, they mostly wait for each other."""


@contextmanager
def native_threads(n_rows: int) -> Iterator[None]:
    """Limit OpenMP and BLAS to the cores that are free, and to one thread on a small table.

    OpenMP threads spin while they wait: two of them on a core that another process uses can take forty times as long as
    one alone.
    """
    with ThreadpoolController().limit(limits=free_cores() if n_rows >= _ROWS_FOR_THREADS else 1):
        yield
