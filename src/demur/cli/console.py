"""What the commands share: where they print, and how they say that a call was wrong."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

__all__ = [
    "EXIT_FAILED",
    "EXIT_WRONG_CALL",
    "CallError",
    "complain",
    "console",
    "notes",
    "plain_table",
    "warnings_as_notes",
    "wrong_call_if_refused",
]

EXIT_FAILED = 1
EXIT_WRONG_CALL = 2

console = Console(highlight=False)
"""Standard output."""

notes = Console(stderr=True, highlight=False, soft_wrap=True)
"""Standard error, for what is no result: notes, complaints, and summaries where the result is on standard output."""


class CallError(Exception):
    """The call or its input is wrong: one sentence for the user, exit code 2, no traceback."""


@contextmanager
def wrong_call_if_refused() -> Iterator[None]:
    """Turn the library's refusal of an argument or of a file into a message for the command line's user."""
    try:
        yield
    except (TypeError, ValueError, OSError, ImportError) as error:
        raise CallError(" ".join(str(error).split())) from error


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings as notes on standard error, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        notes.print(f"Note: {message}", markup=False)


def complain(message: str) -> None:
    """Print one message on standard error."""
    notes.print(f"demur: {message}", markup=False)


def plain_table(title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=SIMPLE_HEAD)


def is_watched() -> bool:
    """Say whether a person watches, so that a progress bar makes sense."""
    return sys.stderr.isatty()
