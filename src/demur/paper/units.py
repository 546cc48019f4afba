"""Units of work: some trials of one method on one problem, with a name that their record is kept under."""

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from demur.losses import get
from demur.paper.grid import grid_size
from demur.paper.problems import DataIdentity, training_rows
from demur.paper.protocol import Experiment, Method, Protocol

__all__ = ["NETWORKS_PER_UNIT", "Unit", "make_units", "spec_of"]

FORMAT = 1
"""Raised when what a record means changes, so that older records are computed again."""

NETWORKS_PER_UNIT = {"cpu": 225, "cuda": 1800}
"""How many networks a unit trains at most: on a CPU a couple of minutes' worth, on a GPU enough to fill it."""


@dataclass(frozen=True)
class Unit:
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
    def spec(self) -> dict[str, Any]:
        """Everything that decides the result of each trial, data included."""
        return {
            **spec_of(self.experiment, self.problem, self.method, self.protocol),
            "data": self.data.sha256,
        }

    @property
    def name(self) -> str:
        """The name of the unit's record: readable, and different for every spec."""
        key = hashlib.sha256(json.dumps(self.spec, sort_keys=True).encode()).hexdigest()[:12]
        return f"{self.problem}.{self.method.name}.trials-{_ranges(self.trials)}.{key}"

    @property
    def n_networks(self) -> int:
        """The number of networks to train."""
        return len(self.trials) * grid_size(self.method, self.protocol)

    @property
    def work_per_network_epoch(self) -> float:
        """The rows that a network sees in an epoch."""
        return (1 - self.protocol.validation_fraction) * training_rows(self.problem, self.protocol)

    @property
    def work(self) -> float:
        """The rows that all networks see during training: what the time left is estimated from."""
        return self.n_networks * self.protocol.epochs * self.work_per_network_epoch


def spec_of(experiment: str, problem: str, method: Method, protocol: Protocol) -> dict[str, Any]:
    """Return the specification of a result, without the data's hash."""
    return {
        "format": FORMAT,
        "experiment": experiment,
        "problem": problem,
        "method": {**asdict(method), "betas": list(method.betas)},
        "thresholds": list(getattr(get(method.loss), "tau_candidates", ())),
        "protocol": protocol.spec(),
    }


def make_units(
    experiment: Experiment,
    identities: dict[str, DataIdentity],
    done: Collection[tuple[str, str, int]] = (),
    *,
    networks_per_unit: int = NETWORKS_PER_UNIT["cpu"],
) -> list[Unit]:
    """Cut what is not done yet into units, problem by problem.

    The cuts lie where they would lie if nothing were done, so that a continued run computes the same units.

    Parameters
    ----------
    experiment : Experiment
    identities : dict
        The data of each problem.
    done : collection of (problem, method, trial)
    networks_per_unit : int

    Examples
    --------
    >>> from demur.paper.methods import BENCHMARK
    >>> data = {name: DataIdentity("") for name in BENCHMARK.problems}
    >>> units = make_units(BENCHMARK, data)
    >>> len(units), sum(unit.n_networks for unit in units)
    (70, 9750)
    """
    units = []
    for problem in experiment.problems:
        for method in experiment.all_methods:
            block = max(1, networks_per_unit // grid_size(method, experiment.protocol))
            for start in range(0, experiment.protocol.trials, block):
                stop = min(start + block, experiment.protocol.trials)
                trials = tuple(trial for trial in range(start, stop) if (problem, method.name, trial) not in done)
                if trials:
                    data = identities[problem]
                    units.append(Unit(experiment.name, problem, method, trials, experiment.protocol, data))
    return units


def _ranges(numbers: Iterable[int]) -> str:
    """Write (0, 1, 2, 5) as "0-2,5"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
