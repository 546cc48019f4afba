"""Jobs: some trials of one method on one problem each, and which of them are left to compute."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from demur.losses import resolve
from demur.paper.experiments import Experiment, Method, Protocol
from demur.paper.problems import DataIdentity, DataPlace, ensure, identify, training_rows, validation_share
from demur.paper.records import Record, Spec, Store

__all__ = ["NETWORKS_PER_JOB", "Plan", "TrialJob", "grid_size", "make_jobs", "make_plan", "matching", "spec_of"]

FORMAT = 1
"""Version of the records; when it is raised, older records are computed again."""

NETWORKS_PER_JOB = {"cpu": 225, "cuda": 1800}
"""Largest number of networks of a job: a few minutes of work on a CPU, enough to fill a GPU."""


@dataclass(frozen=True)
class TrialJob:
    """Some trials of one method on one problem.

    Parameters
    ----------
    experiment, problem : str
    method : Method
    trials : tuple of int
    protocol : Protocol
    data : DataIdentity
    """

    experiment: str
    problem: str
    method: Method
    trials: tuple[int, ...]
    protocol: Protocol
    data: DataIdentity

    @property
    def spec(self) -> Spec:
        """Everything that determines the result of each trial, with the hash of the data."""
        return {**spec_of(self.experiment, self.problem, self.method, self.protocol), "data": self.data.sha256}

    @property
    def n_networks(self) -> int:
        """Number of networks to train."""
        return len(self.trials) * grid_size(self.method, self.protocol)

    @property
    def work_per_network_epoch(self) -> float:
        """Number of rows that a network sees in an epoch."""
        return (1 - validation_share(self.problem, self.protocol)) * training_rows(self.problem, self.protocol)

    @property
    def work(self) -> float:
        """Number of rows that all networks see during training, for the progress bar."""
        return self.n_networks * self.protocol.epochs * self.work_per_network_epoch


def grid_size(method: Method, protocol: Protocol) -> int:
    """Return the number of networks that one trial of a method trains.

    Examples
    --------
    >>> grid_size(Method("CE"), Protocol()), grid_size(Method("APC+log", betas=("acc", "rej", "mean")), Protocol())
    (3, 45)
    """
    loss = resolve(method.loss)
    n_costs = len(protocol.costs) if loss.trained_for_cost else 1
    return n_costs * len(protocol.weight_decays) * (len(method.betas) or len(loss.variants_to_train()))


def spec_of(experiment: str, problem: str, method: Method, protocol: Protocol) -> Spec:
    """Return the specification of a result, without the hash of the data."""
    spec: Spec = {
        "format": FORMAT,
        "experiment": experiment,
        "problem": problem,
        "method": {"name": method.name, "loss": method.loss, "betas": list(method.betas)},
        "thresholds": list(getattr(resolve(method.loss), "tau_candidates", ())),
        "protocol": protocol.spec(),
    }
    file, colon, _ = method.loss.rpartition(":")
    if colon and Path(file).is_file():  # a user's own loss changes with its file
        spec["source"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return spec


def make_jobs(
    experiment: Experiment,
    identities: dict[str, DataIdentity],
    done: Collection[tuple[str, str, int]] = (),
    *,
    networks_per_job: int = NETWORKS_PER_JOB["cpu"],
) -> list[TrialJob]:
    """Divide the trials that are not done into jobs, problem by problem; a continued run computes the same jobs.

    Parameters
    ----------
    experiment : Experiment
    identities : dict
        Identity of the data of each problem.
    done : collection of (problem, method, trial)
    networks_per_job : int

    Examples
    --------
    >>> from demur.paper.experiments import BENCHMARK
    >>> data = {name: DataIdentity("") for name in BENCHMARK.problems}
    >>> jobs = make_jobs(BENCHMARK, data)
    >>> len(jobs), sum(job.n_networks for job in jobs)
    (70, 9750)
    """
    jobs = []
    for problem in experiment.problems:
        for method in experiment.all_methods:
            block = max(1, networks_per_job // grid_size(method, experiment.protocol))
            for start in range(0, experiment.protocol.trials, block):
                stop = min(start + block, experiment.protocol.trials)
                trials = tuple(trial for trial in range(start, stop) if (problem, method.name, trial) not in done)
                if trials:
                    data = identities[problem]
                    jobs.append(TrialJob(experiment.name, problem, method, trials, experiment.protocol, data))
    return jobs


@dataclass(frozen=True)
class Plan:
    """The jobs of an experiment that are not done.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    jobs : list of TrialJob
    n_done : int
        Number of finished trials, over all methods.
    """

    experiment: Experiment
    store: Store
    place: DataPlace
    jobs: list[TrialJob]
    n_done: int

    @property
    def work(self) -> float:
        """The remaining work, in rows seen by networks."""
        return sum(job.work for job in self.jobs)

    def ensure_data(self) -> None:
        """Download the data sets that are missing.

        Raises
        ------
        DatasetError
            If a data set is not available.
        """
        for problem in dict.fromkeys(job.problem for job in self.jobs):
            ensure(problem, self.experiment.protocol, self.place)


def make_plan(
    experiment: Experiment,
    store: Store,
    place: DataPlace,
    *,
    device_type: str = "cpu",
    warn: Callable[[str], object] = str,
) -> Plan:
    """Return the jobs that are left, and report damaged records, which are computed again.

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
    identities = {problem: identify(problem, experiment.protocol, place) for problem in experiment.problems}
    done = {
        (record.spec["problem"], record.spec["method"]["name"], trial)
        for record in matching(experiment, store, identities)
        for trial in record.trials
    }
    for path, reason in store.damaged.items():
        warn(f"the record {path} is damaged: {reason}. It is ignored, and computed again if needed.")
    jobs = make_jobs(experiment, identities, done, networks_per_job=NETWORKS_PER_JOB[device_type])
    return Plan(experiment, store, place, jobs, len(done))


def matching(
    experiment: Experiment, store: Store, identities: dict[str, DataIdentity] | None = None
) -> Iterator[Record]:
    """Yield the stored records of an experiment; with identities, only those made with the same data."""
    wanted = {
        (problem, method.name): spec_of(experiment.name, problem, method, experiment.protocol)
        for problem in experiment.problems
        for method in experiment.all_methods
    }
    for record in store.records():
        problem, name = record.spec["problem"], record.spec["method"]["name"]
        if {key: value for key, value in record.spec.items() if key != "data"} != wanted.get((problem, name)):
            continue
        if identities is None or identities[problem].sha256 == record.spec.get("data"):
            yield record
