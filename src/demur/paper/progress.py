"""What a run tells of itself while it runs."""

import sys
import time
from dataclasses import dataclass, field
from typing import Protocol as Interface

from demur.paper.records import Record
from demur.paper.units import Unit

__all__ = ["Failures", "Lines", "Progress", "RunFailedError", "Silent"]


class RunFailedError(Exception):
    """Some units failed; the others are finished and kept."""


class Progress(Interface):
    """Whoever watches a run. Work is counted in rows seen by networks."""

    def start(self, n_units: int, work: float) -> None:
        """Hear what lies ahead."""

    def advance(self, work: float) -> None:
        """Hear that some work is done; called from any thread."""

    def finished(self, unit: Unit, record: Record) -> None:
        """Hear that a unit is finished and kept."""

    def warn(self, message: str) -> None:
        """Hear something that the user should know."""


class Silent:
    """Nobody watches."""

    def start(self, n_units: int, work: float) -> None:
        """Do nothing."""

    def advance(self, work: float) -> None:
        """Do nothing."""

    def finished(self, unit: Unit, record: Record) -> None:
        """Do nothing."""

    def warn(self, message: str) -> None:
        """Do nothing."""


class Lines(Silent):
    """One line on standard error for every finished unit: for log files."""

    def start(self, n_units: int, work: float) -> None:
        """Note how many units there are."""
        self._n_units, self._n_done, self._started = n_units, 0, time.monotonic()

    def finished(self, unit: Unit, record: Record) -> None:
        """Print the unit and its seconds."""
        self._n_done += 1
        print(
            f"[{self._n_done}/{self._n_units}, {time.monotonic() - self._started:.0f} s] {unit.experiment} "
            f"{unit.problem} {unit.method.name}: {record.networks} networks, training {record.seconds_training:.2f} s, "
            f"other {record.seconds_other:.2f} s",
            file=sys.stderr,
            flush=True,
        )

    def warn(self, message: str) -> None:
        """Print the message."""
        print(f"demur: {message}", file=sys.stderr, flush=True)


@dataclass
class Failures:
    """The units that failed in a run: reported at once, and again at the end."""

    progress: Progress
    names: list[str] = field(default_factory=list)

    def add(self, unit: Unit, error: BaseException) -> None:
        """Report one."""
        self.names.append(f"{unit.method.name} on {unit.problem}")
        self.progress.warn(f"{self.names[-1]} failed: {type(error).__name__}: {error}")

    def raise_if_any(self) -> None:
        """Raise RunFailedError if there were any."""
        if self.names:
            raise RunFailedError(
                f"{len(self.names)} of the units failed ({', '.join(self.names)}); the others are kept. Run the same "
                "command again to try the failed ones once more."
            )
