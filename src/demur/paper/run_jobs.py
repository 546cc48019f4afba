"""Run jobs on this machine or on a Dask cluster; each record is stored as soon as it is finished."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from demur.paper.experiments import Experiment
from demur.paper.problems import DataPlace
from demur.paper.records import Record, Store
from demur.paper.trial_jobs import Plan, TrialJob, make_plan
from demur.paper.trials import Workplace, compute
from demur.training import resolve_device
from demur.workers import connect_dask, n_cores, optional_dask

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["JobsFailedError", "Watch", "compute_records", "run_here", "run_on_cluster"]


class JobsFailedError(Exception):
    """Some jobs failed; the records of the others are stored."""


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run; each does nothing by default.

    Parameters
    ----------
    planned : callable
        Called with the number of jobs and the total work, in rows seen by networks.
    advance : callable
        Called with the work just done, from any thread.
    finished : callable
        Called with a finished job and its record.
    warn : callable
        Called with a message for the user.
    """

    planned: Callable[[int, float], None] = _nothing
    advance: Callable[[float], None] = _nothing
    finished: Callable[[TrialJob, Record], None] = _nothing
    warn: Callable[[str], None] = _nothing


@dataclass
class _Failures:
    """The jobs that failed in a run, reported at once and again at the end."""

    watch: Watch
    names: list[str] = field(default_factory=list)

    def add(self, job: TrialJob, error: BaseException) -> None:
        self.names.append(f"{job.method.name} on {job.problem}")
        self.watch.warn(f"{self.names[-1]} failed: {type(error).__name__}: {error}")

    def raise_if_any(self) -> None:
        if self.names:
            raise JobsFailedError(
                f"{len(self.names)} of the jobs failed ({', '.join(self.names)}); the others are stored. Run the same "
                "command again to retry the failed ones."
            )


def compute_records(
    experiments: Sequence[Experiment],
    out: str | os.PathLike[str],
    place: DataPlace,
    *,
    device: str = "auto",
    scheduler: str | None = None,
    watch: Watch | None = None,
) -> None:
    """Compute the jobs of some experiments that are not in the store yet.

    It needs neither matplotlib nor the packages of the command line, so it can run on a machine that has only the core
    dependencies; ``demur reproduce --tables-only`` draws from the copied records.

    Parameters
    ----------
    experiments : sequence of Experiment
    out : path
        The records go to ``out/records``.
    place : DataPlace
    device : str
        As for :func:`demur.training.resolve_device`.
    scheduler : str, optional
        As for :func:`demur.workers.connect_dask`; by default the jobs run in this process.
    watch : Watch, optional

    Raises
    ------
    JobsFailedError
        If some jobs failed.
    DatasetError, StoreError, InputError
        If data are missing, the folder is not writable, or the device or the scheduler is unknown.
    """
    watch = watch or Watch()
    device_type = resolve_device(device).type
    plans = []
    for experiment in experiments:
        store = Store(out, experiment.name)
        store.check_writable()
        plans.append(make_plan(experiment, store, place, device_type=device_type, warn=watch.warn))
        plans[-1].ensure_data()
    watch.planned(sum(len(plan.jobs) for plan in plans), sum(plan.work for plan in plans))
    failures = []
    for plan in plans:
        try:
            if scheduler is None:
                run_here(plan, resolve_device(device), watch)
            elif plan.jobs:
                with connect_dask(scheduler) as client:
                    run_on_cluster(plan, client, device, watch)
        except JobsFailedError as error:
            failures.append(str(error))
    if failures:
        raise JobsFailedError(" ".join(failures))


def run_here(plan: Plan, device: torch.device, watch: Watch | None = None) -> None:
    """Compute the jobs of a plan in this process, one after another.

    A job that fails is reported, and the next one starts. A record that cannot be written ends the run.

    Raises
    ------
    JobsFailedError
        If some job failed.
    StoreError
        If a record could not be written.
    """
    watch = watch or Watch()
    workplace = Workplace(device, plan.place)
    failures = _Failures(watch)
    for job in plan.jobs:

        def advance(network_epochs: int, rows: float = job.work_per_network_epoch) -> None:
            watch.advance(network_epochs * rows)

        try:
            record = compute(job, workplace, advance)
        except Exception as error:  # one job's failure must not lose the others; all are reported at the end
            failures.add(job, error)
            continue
        plan.store.write(record)
        watch.finished(job, record)
    failures.raise_if_any()


def run_on_cluster(plan: Plan, client: "Client", device: str, watch: Watch | None = None) -> None:
    """Compute the jobs of a plan on a cluster; this process stores every record as soon as it arrives.

    The job of a worker that dies is given to another one. Workers read the data from the same folder as this process.

    Parameters
    ----------
    plan : Plan
    client : distributed.Client
    device : str
        As for :func:`demur.training.resolve_device`, resolved by each worker.
    watch : Watch, optional

    Raises
    ------
    JobsFailedError
        If some job failed.
    StoreError
        If a record could not be written.
    """
    watch = watch or Watch()
    failures = _Failures(watch)
    n_workers = _stacks_per_worker(client)
    jobs = {
        client.submit(_compute, job, plan.place, device, n_workers, pure=False): job
        for job in sorted(plan.jobs, key=lambda job: -job.work)  # largest first
    }
    try:
        for future in optional_dask().as_completed(jobs):
            job = jobs[future]
            try:
                record: Record = future.result()
            except Exception as error:  # as in run_here: reported at the end
                failures.add(job, error)
                continue
            finally:
                watch.advance(job.work)
            plan.store.write(record)
            watch.finished(job, record)
    finally:
        client.cancel(list(jobs))  # type: ignore[no-untyped-call] # Dask is untyped
    failures.raise_if_any()


_here = threading.local()


def _compute(job: TrialJob, place: DataPlace, device: str, n_workers: int) -> Record:
    """Compute a job on a worker; each of its threads keeps the data of its problem."""
    workplace = getattr(_here, "workplace", None)
    if workplace is None or workplace.place != place:
        workplace = _here.workplace = Workplace(resolve_device(device), place, n_workers)
    return compute(job, workplace)


def _stacks_per_worker(client: "Client") -> int:
    """Return the number of stacks that a worker trains at a time: its share of the local cores, or one."""
    if not isinstance(client.cluster, optional_dask().LocalCluster):
        return 1
    return max(1, n_cores() // max(1, len(client.cluster.workers)))
