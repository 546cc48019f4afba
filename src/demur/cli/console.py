"""What the commands share: where they print, and how they say that a call was wrong."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demur.errors import UserError

__all__ = [
    "EXIT_FAILED",
    "EXIT_WRONG_CALL",
    "CallError",
    "check_free",
    "complain",
    "console",
    "is_watched",
    "notes",
    "plain_table",
    "warnings_as_notes",
    "wrong_call_if_refused",
]

EXIT_FAILED = 1
EXIT_WRONG_CALL = 2

console = Console(highlight=False, emoji=False)
"""Standard output."""

notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""Standard error, for what is no result: notes, complaints, and summaries where the result is on standard output."""


_FOR_PROGRAMMERS = (DeprecationWarning, FutureWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)


class CallError(UserError):
    """The call or its input is wrong: one sentence for the user, exit code 2, no traceback."""


@contextmanager
def wrong_call_if_refused() -> Iterator[None]:
    """Turn the library's refusal of an argument or of a file into a message for the command line's user."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has gone away, which is no mistake in the call
    except (UserError, OSError) as error:
        raise CallError(" ".join(str(error).split())) from error


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings as notes on standard error, each once; those for programmers stay silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in _FOR_PROGRAMMERS:
            warnings.simplefilter("ignore", category)
        yield
    for message in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        notes.print(f"Note: {message}", markup=False)


def check_free(path: Path, option: str, force: bool, *, is_file: bool = False) -> None:
    """Refuse a path that cannot be written to, before any time is spent."""
    if is_file and path.is_dir():
        raise CallError(f"{path} is a folder: name a file in it for {option}.")
    if path.exists() and not force:
        raise CallError(f"{path} exists already: choose another {option}, or pass --force to replace it.")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CallError(f"there is no folder {folder} to write {option} into: make it first.")
    if not os.access(folder, os.W_OK):
        raise CallError(f"the folder {folder} may not be written to: choose another {option}.")


def complain(message: str) -> None:
    """Print one message on standard error."""
    notes.print(f"demur: {message}", markup=False)


def plain_table(title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=SIMPLE_HEAD)


def is_watched() -> bool:
    """Say whether a person watches, so that a progress bar makes sense."""
    return sys.stderr.isatty()
