"""Running the units of a plan on this machine, one after another, each kept as soon as it is finished."""

from functools import partial

import torch

from demur.paper.compute import Workplace, compute
from demur.paper.plan import Plan
from demur.paper.progress import Failures, Progress, Silent
from demur.paper.units import Unit

__all__ = ["run_here"]


def run_here(plan: Plan, device: torch.device, progress: Progress | None = None) -> None:
    """Compute the units of a plan.

    A unit that fails is reported and left out; the others go on. A record that cannot be written ends the run.

    Raises
    ------
    RunFailedError
        If some unit failed.
    StoreError
        If a record could not be written.
    """
    progress = progress or Silent()
    workplace = Workplace(device, plan.place)
    failures = Failures(progress)
    progress.start(len(plan.units), plan.work)
    for unit in plan.units:
        try:
            record = compute(unit, workplace, partial(_advance, progress, unit))
        except Exception as error:  # one unit's failure must not lose the others; all are reported at the end
            failures.add(unit, error)
            continue
        plan.store.write(unit.name, record)
        progress.finished(unit, record)
    failures.raise_if_any()


def _advance(progress: Progress, unit: Unit, network_epochs: int) -> None:
    progress.advance(network_epochs * unit.work_per_network_epoch)
