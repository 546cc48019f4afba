"""Worker threads that each run single-threaded kernels.

Small tensor operations gain nothing from several threads and lose much where other programs use the cores too;
several workers with independent work gain from every core.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

__all__ = ["n_cores", "on_workers", "single_threaded_kernels"]

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
        with ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
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
    """Run the CPU's tensor operations on one thread each."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def n_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
