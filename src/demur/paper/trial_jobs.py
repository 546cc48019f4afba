"""Run the remaining jobs of an experiment on this machine or on a Dask cluster; each record is stored at once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from demur.array_types import FilePath
from demur.errors import UserError
from demur.paper.experiments import Experiment
from demur.paper.problems import DataPlace, ensure, identify
from demur.paper.records import Record, Store
from demur.paper.trials import TrialJob, compute, grid_size, spec_of
from demur.training import resolve_device
from demur.workers import connect_dask, optional_dask, process_pool

if TYPE_CHECKING:
    from distributed import Client

NETWORKS_PER_JOB = {"cpu": 225, "cuda": 1800}
"""Maximum number of networks in a job: a few minutes of work on a CPU, or enough to use a whole GPU."""

WORK_FOR_PROCESSES = 3e8
"""Rows to train on (:attr:`TrialJob.work`) that justify starting processes: about two minutes of one core."""


def make_jobs(
    experiment: Experiment,
    place: DataPlace,
    done: Collection[tuple[str, str, int]] = (),
    *,
    networks_per_job: int = NETWORKS_PER_JOB["cpu"],
) -> list[TrialJob]:
    """Divide the trials that are not done into jobs, problem by problem; a continued run computes the same jobs.

    Parameters
    ----------
    experiment : Experiment
    place : DataPlace
    done : collection of (problem, method, trial)
    networks_per_job : int

    Examples
    --------
    >>> from demur.paper.experiments import BENCHMARK
    >>> jobs = make_jobs(BENCHMARK, DataPlace())
    >>> len(jobs), sum(job.n_networks for job in jobs)
    (70, 9750)
    """
    jobs = []
    for problem in experiment.problems:
        data = identify(problem, experiment.protocol, place)
        for method in experiment.all_methods:
            block = max(1, networks_per_job // grid_size(method, experiment.protocol))
            for start in range(0, experiment.protocol.trials, block):
                own = range(experiment.protocol.trials)[start : start + block]
                if trials := tuple(trial for trial in own if (problem, method.name, trial) not in done):
                    jobs.append(TrialJob(experiment.name, problem, method, trials, experiment.protocol, data))
    return jobs


class Plan(NamedTuple):
    """The jobs of an experiment that are not done.

    Parameters
    ----------
    store : Store
    place : DataPlace
    jobs : list of TrialJob
    """

    store: Store
    place: DataPlace
    jobs: list[TrialJob]


def make_plan(
    experiment: Experiment,
    store: Store,
    place: DataPlace,
    *,
    device_type: str = "cpu",
    warn: Callable[[str], object] = str,
) -> Plan:
    """Return the remaining jobs, and report damaged records, which are computed again.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    device_type : {"cpu", "cuda"}
        Determines the size of the jobs.
    warn : callable, optional
        Called with a message about each damaged record.
    """
    done = {
        (record.spec["problem"], record.spec["method"]["name"], trial)
        for record in matching(experiment, store, place)
        for trial in record.trials
    }
    for path, reason in store.damaged.items():
        warn(f"the record {path} is damaged: {reason}. It is ignored, and computed again if needed.")
    jobs = make_jobs(experiment, place, done, networks_per_job=NETWORKS_PER_JOB[device_type])
    return Plan(store, place, jobs)


def matching(experiment: Experiment, store: Store, place: DataPlace | None = None) -> Iterator[Record]:
    """Yield the stored records of an experiment; with a place, only those made with its data."""
    wanted = [
        spec_of(experiment.name, problem, method, experiment.protocol)
        for problem in experiment.problems
        for method in experiment.all_methods
    ]
    for record in store.records():
        data, spec = record.spec["data"], {key: value for key, value in record.spec.items() if key != "data"}
        if spec in wanted and (place is None or identify(spec["problem"], experiment.protocol, place).sha256 == data):
            yield record


class JobsFailedError(UserError):
    """Some jobs failed; the records of the others are stored."""

    exit_code = 1


def _nothing(*_: object) -> None:
    """Do nothing."""


@dataclass(frozen=True)
class Watch:
    """Callbacks of a run; each does nothing by default.

    Parameters
    ----------
    finished : callable
        Called with a finished job, its record, and its number, such as "3/70".
    warn : callable
        Called with a message for the user.
    """

    finished: Callable[[TrialJob, Record, str], object] = _nothing
    warn: Callable[[str], object] = _nothing


def compute_records(
    experiments: Sequence[Experiment],
    out: FilePath,
    place: DataPlace,
    *,
    device: str = "auto",
    scheduler: str | None = None,
    n_processes: int = 1,
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
        As for :func:`demur.workers.connect_dask`; by default the jobs run as in :func:`run_here`.
    n_processes : int
        As for :func:`run_here`.
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
        for problem in dict.fromkeys(job.problem for job in plans[-1].jobs):
            ensure(problem, experiment.protocol, place)
    failures = []
    for plan in plans:
        try:
            if scheduler is None:
                run_here(plan, resolve_device(device), watch, n_processes=n_processes)
            elif plan.jobs:
                with connect_dask(scheduler) as client:
                    run_on_cluster(plan, client, device, watch)
        except JobsFailedError as error:
            failures.append(str(error))
    if failures:
        raise JobsFailedError(" ".join(failures))


def run_here(plan: Plan, device: torch.device, watch: Watch | None = None, *, n_processes: int = 1) -> None:
    """Compute the jobs of a plan on this machine.

    A job that fails is reported, and the next one starts. A record that cannot be written ends the run.

    Parameters
    ----------
    plan : Plan
    device : torch.device
    watch : Watch, optional
    n_processes : int
        With more than one, much work on a CPU is divided over new processes (:func:`demur.workers.process_pool`). By
        default the jobs run in this process, one after another.

    Raises
    ------
    JobsFailedError
        If some job failed.
    StoreError
        If a record could not be written.
    """
    watch = watch or Watch()
    if n_processes > 1 and device.type == "cpu" and sum(job.work for job in plan.jobs) > WORK_FOR_PROCESSES:
        with process_pool(min(n_processes, len(plan.jobs))) as pool:
            jobs = _submit(plan, pool.submit, "cpu")
            _store(plan, ((jobs[future], future.result) for future in as_completed(jobs)), watch)
        return
    _store(plan, ((job, partial(compute, job, plan.place, device)) for job in plan.jobs), watch)


def _submit(plan: Plan, submit: Callable[..., Any], device: str) -> dict[Any, TrialJob]:
    """Submit the jobs, the largest first, so that no worker is idle at the end; return the job of each future."""
    return {submit(compute, job, plan.place, device, 1): job for job in sorted(plan.jobs, key=lambda job: -job.work)}


def _store(plan: Plan, jobs: Iterable[tuple[TrialJob, Callable[[], Record]]], watch: Watch) -> None:
    """Store the record that each function returns; a job that fails is reported at once and again at the end."""
    failed = []
    for number, (job, result) in enumerate(jobs, 1):
        try:
            record = result()
        except Exception as error:  # one job's failure must not lose the others
            failed.append(f"{job.method.name} on {job.problem}")
            watch.warn(f"{failed[-1]} failed: {type(error).__name__}: {error}")
            continue
        plan.store.write(record)
        watch.finished(job, record, f"{number}/{len(plan.jobs)}")
    if failed:
        raise JobsFailedError(
            f"{len(failed)} of the jobs failed ({', '.join(failed)}); the others are stored. No tables or figures "
            "were written: run the same command again to retry the failed jobs, or with --tables-only to go without."
        )


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
    jobs = _submit(plan, partial(client.submit, pure=False), device)
    try:
        finished = optional_dask().as_completed(jobs)
        _store(plan, ((jobs[future], future.result) for future in finished), watch or Watch())
    finally:
        client.cancel(list(jobs))  # type: ignore[no-untyped-call] # Dask is untyped
