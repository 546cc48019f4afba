"""Comparing an experiment with the store: what is done, what is left."""

from collections.abc import Iterator
from dataclasses import dataclass

from demur.paper.problems import DataIdentity, DataPlace, ensure, identify
from demur.paper.progress import Progress, Silent
from demur.paper.protocol import Experiment
from demur.paper.records import Record
from demur.paper.store import Store
from demur.paper.units import NETWORKS_PER_UNIT, Unit, make_units, spec_of

__all__ = ["Plan", "make_plan", "matching"]


@dataclass(frozen=True)
class Plan:
    """What is left of an experiment.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    units : list of Unit
        Not finished yet.
    n_done : int
        How many trials of methods are finished.
    """

    experiment: Experiment
    store: Store
    place: DataPlace
    units: list[Unit]
    n_done: int

    @property
    def work(self) -> float:
        """The work that is left, in rows seen by networks."""
        return sum(unit.work for unit in self.units)

    def ensure_data(self) -> None:
        """Download now what is not at hand.

        Raises
        ------
        DatasetError
            If some data cannot be had.
        """
        for problem in dict.fromkeys(unit.problem for unit in self.units):
            ensure(problem, self.experiment.protocol, self.place)


def make_plan(
    experiment: Experiment,
    store: Store,
    place: DataPlace,
    *,
    device_type: str = "cpu",
    progress: Progress | None = None,
) -> Plan:
    """Find out what is left, and report damaged records, which will be computed again.

    Parameters
    ----------
    experiment : Experiment
    store : Store
    place : DataPlace
    device_type : {"cpu", "cuda"}
        Decides how large the units are.
    progress : Progress, optional
    """
    progress = progress or Silent()
    identities = {problem: identify(problem, experiment.protocol, place) for problem in experiment.problems}
    done = {
        (record.spec["problem"], record.spec["method"]["name"], trial)
        for record in matching(experiment, store, identities)
        for trial in record.trials
    }
    for path, reason in store.damaged.items():
        progress.warn(f"the record {path} is damaged: {reason}. It is not used, and computed again if it is needed.")
    units = make_units(experiment, identities, done, networks_per_unit=NETWORKS_PER_UNIT[device_type])
    return Plan(experiment, store, place, units, len(done))


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
        spec = dict(record.spec)
        data = spec.pop("data", None)
        problem = str(spec.get("problem"))
        if spec != wanted.get((problem, spec.get("method", {}).get("name"))):
            continue
        if identities is None or identities[problem].sha256 == data:
            yield record
