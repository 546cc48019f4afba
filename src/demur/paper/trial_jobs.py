"""Jobs: some trials of one method on one problem each; and the plan, which of them are left to compute."""

import hashlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from demur.losses import resolve
from demur.paper.experiments import Experiment, Method, Protocol
from demur.paper.problems import DataIdentity, DataPlace, ensure, identify, training_rows, validation_share
from demur.paper.records import Record, Spec, Store, record_name

__all__ = ["NETWORKS_PER_JOB", "Plan", "TrialJob", "grid_size", "make_jobs", "make_plan", "matching", "spec_of"]

FORMAT = 1
"""Raised when what a record means changes, so that older records are computed again."""

NETWORKS_PER_JOB = {"cpu": 225, "cuda": 1800}
"""How many networks a job trains at most: on a CPU a couple of minutes' worth, on a GPU enough to fill it."""


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
        """Everything that decides the result of each trial, data included."""
        return {**spec_of(self.experiment, self.problem, self.method, self.protocol), "data": self.data.sha256}

    @property
    def name(self) -> str:
        """The name of the job's record: readable, and different for every spec."""
        return record_name(self.spec, self.trials)

    @property
    def n_networks(self) -> int:
        """The number of networks to train."""
        return len(self.trials) * grid_size(self.method, self.protocol)

    @property
    def work_per_network_epoch(self) -> float:
        """The rows that a network sees in an epoch."""
        return (1 - validation_share(self.problem, self.protocol)) * training_rows(self.problem, self.protocol)

    @property
    def work(self) -> float:
        """The rows that all networks see during training: what the time left is estimated from."""
        return self.n_networks * self.protocol.epochs * self.work_per_network_epoch


def grid_size(method: Method, protocol: Protocol) -> int:
    """Return how many networks one trial of a method trains.

    Examples
    --------
    >>> grid_size(Method("CE"), Protocol()), grid_size(Method("APC+log", betas=("acc", "rej", "mean")), Protocol())
    (3, 45)
    """
    loss = resolve(method.loss)
    n_costs = len(protocol.costs) if loss.trained_for_cost else 1
    return n_costs * len(protocol.weight_decays) * (len(method.betas) or len(loss.variants_to_train()))


def spec_of(experiment: str, problem: str, method: Method, protocol: Protocol) -> Spec:
    """Return the specification of a result, without the data's hash."""
    spec: Spec = {
        "format": FORMAT,
        "experiment": experiment,
        "problem": problem,
        "method": {"name": method.name, "loss": method.loss, "betas": list(method.betas)},
        "thresholds": list(getattr(resolve(method.loss), "tau_candidates", ())),
        "protocol": protocol.spec(),
    }
    file, colon, _ = method.loss.rpartition(":")
    if colon and Path(file).is_file():  # a loss of the user's own: another text is another loss
        spec["source"] = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return spec


def make_jobs(
    experiment: Experiment,
    identities: dict[str, DataIdentity],
    done: Collection[tuple[str, str, int]] = (),
    *,
    networks_per_job: int = NETWORKS_PER_JOB["cpu"],
) -> list[TrialJob]:
    """Cut what is not done yet into jobs, problem by problem.

    The cuts lie where they would lie if nothing were done, so that a continued run computes the same jobs.

    Parameters
    ----------
    experiment : Experiment
    identities : dict
        The data of each problem.
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
    """What is left of an experiment.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    jobs : list of TrialJob
        Not finished yet.
    n_done : int
        How many trials of methods are finished.
    """

    experiment: Experiment
    store: Store
    place: DataPlace
    jobs: list[TrialJob]
    n_done: int

    @property
    def work(self) -> float:
        """The work that is left, in rows seen by networks."""
        return sum(job.work for job in self.jobs)

    def ensure_data(self) -> None:
        """Download now what is not at hand.

        Raises
        ------
        DatasetError
            If some data cannot be had.
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
    """Find out what is left, and report damaged records, which will be computed again.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    device_type : {"cpu", "cuda"}
        Decides how large the jobs are.
    warn : callable, optional
        Takes what is said of damaged records.
    """
    identities = {problem: identify(problem, experiment.protocol, place) for problem in experiment.problems}
    done = {
        (record.spec["problem"], record.spec["method"]["name"], trial)
        for record in matching(experiment, store, identities)
        for trial in record.trials
    }
    for path, reason in store.damaged.items():
        warn(f"the record {path} is damaged: {reason}. It is not used, and computed again if it is needed.")
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
