"""A progress bar on standard error, for people who watch."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(what: str, total: int | None) -> Iterator[Callable[..., None]]:
    """Show a bar and yield a function that moves it on, from any thread, and may say at what the work is now.

    If the total is not known, the bar shows the number of steps and their speed.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    text = "{task.description}" if total is not None else "{task.completed:,} {task.description}"
    columns = (TextColumn(text), BarColumn(), TaskProgressColumn(show_speed=True), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda steps, now=None: bar.update(task, advance=steps, description=f"{what} {now}" if now else None)
