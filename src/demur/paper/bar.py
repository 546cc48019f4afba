"""A progress bar with the time left, on a terminal only. The only import of rich in the experiments, and a lazy one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from demur.paper.records import Record
from demur.paper.units import Unit

__all__ = ["Bar", "watching"]


class Bar:
    """Watches one or more runs and draws one bar for all of them.

    Parameters
    ----------
    progress : rich.progress.Progress
    complain : callable
        Takes the messages that the user should see.
    """

    def __init__(self, progress: Any, complain: Callable[[str], None]) -> None:
        self._progress, self._complain = progress, complain
        self._task: Any = None
        self._n_units = self._n_done = 0

    def expect(self, n_units: int, work: float) -> None:
        """Draw the bar for the units and the work of all runs to come."""
        self._n_units = n_units
        self._task = self._progress.add_task(f"unit 1 of {n_units}", total=work)

    def start(self, n_units: int, work: float) -> None:
        """Draw the bar, unless it is there already."""
        if self._task is None:
            self.expect(n_units, work)

    def advance(self, work: float) -> None:
        """Move the bar."""
        self._progress.advance(self._task, work)

    def finished(self, unit: Unit, record: Record) -> None:
        """Count the unit."""
        self._n_done += 1
        now = min(self._n_done + 1, self._n_units)
        self._progress.update(self._task, description=f"unit {now} of {self._n_units}")

    def warn(self, message: str) -> None:
        """Pass the message on."""
        self._complain(message)


@contextmanager
def watching(complain: Callable[[str], None]) -> Iterator[Bar]:
    """Yield a watcher; its bar goes to standard error, and only if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        speed_estimate_period=600,
    )
    with bar:
        yield Bar(bar, complain)
