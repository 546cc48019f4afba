"""Running the units of a plan on a Dask cluster: other processes, or other machines."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from demur.errors import InputError, UserError
from demur.paper.compute import Workplace, compute
from demur.paper.plan import Plan
from demur.paper.problems import DataPlace
from demur.paper.progress import Failures, Progress, Silent
from demur.paper.records import Record
from demur.paper.units import Unit
from demur.training import resolve_device

__all__ = ["DaskMissingError", "connect", "run_on_cluster"]


class DaskMissingError(UserError):
    """Dask distributed is not installed."""


@contextmanager
def connect(scheduler: str) -> Iterator[Any]:
    """Yield a Dask client for "local:N", N worker processes on this machine, or for a scheduler's address.

    Raises
    ------
    DaskMissingError
        If Dask distributed is not installed.
    ValueError
        If the scheduler is neither, or does not answer.

    Examples
    --------
    >>> with connect("local:many"):
    ...     pass
    Traceback (most recent call last):
        ...
    demur.errors.InputError: scheduler must be 'local:N' with N worker processes, or an address such as ...
    """
    dask = _dask()
    kind, _, number = scheduler.partition(":")
    if kind == "local" and number.isdigit() and int(number) > 0:
        with (
            dask.LocalCluster(
                n_workers=int(number),
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
    if "://" not in scheduler:
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


def run_on_cluster(plan: Plan, client: Any, device: str, progress: Progress | None = None) -> None:
    """Compute the units of a plan on a cluster; this process keeps every record as soon as it arrives.

    What a worker was computing when it died is given to another one. Workers read the data from the same
    folder as this process would.

    Parameters
    ----------
    plan : Plan
    client : distributed.Client
    device : str
        As for :func:`demur.training.resolve_device`, resolved by each worker.
    progress : Progress, optional

    Raises
    ------
    RunFailedError
        If some unit failed.
    StoreError
        If a record could not be written.
    """
    progress = progress or Silent()
    failures = Failures(progress)
    progress.start(len(plan.units), plan.work)
    n_workers = _stacks_per_worker(client)
    largest_first = sorted(plan.units, key=lambda unit: -unit.work)
    units = {
        client.submit(_compute, unit, plan.place, device, n_workers, key=f"demur-{unit.name}", pure=False): unit
        for unit in largest_first
    }
    try:
        for future in _dask().as_completed(units):
            unit = units[future]
            try:
                record: Record = future.result()
            except Exception as error:  # as in run_here: reported at the end
                failures.add(unit, error)
                continue
            finally:
                progress.advance(unit.work)
            plan.store.write(unit.name, record)
            progress.finished(unit, record)
    finally:
        client.cancel(list(units))
    failures.raise_if_any()


def _dask() -> Any:
    try:
        return import_module("distributed")
    except ImportError as error:
        raise DaskMissingError('--scheduler needs Dask: pip install "demur[dask]".') from error


_here = threading.local()


def _compute(unit: Unit, place: DataPlace, device: str, n_workers: int) -> Record:
    """Compute a unit on a worker; each of its threads keeps the data of the problem at hand."""
    workplace = getattr(_here, "workplace", None)
    if workplace is None or workplace.place != place:
        workplace = _here.workplace = Workplace(resolve_device(device), place, n_workers)
    return compute(unit, workplace)


def _stacks_per_worker(client: Any) -> int:
    """Return how many stacks a worker trains at a time: its share of a local machine's cores, or one."""
    if not isinstance(client.cluster, _dask().LocalCluster):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // max(1, len(client.cluster.workers)))
