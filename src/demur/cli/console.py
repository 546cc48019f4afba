"""What the commands share: where they print, and how they say that a call was wrong."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demur.errors import UserError

if TYPE_CHECKING:
    from demur.tabular import TableModel

__all__ = [
    "EXIT_FAILED",
    "EXIT_WRONG_CALL",
    "CallError",
    "check_free",
    "check_share",
    "complain",
    "console",
    "is_watched",
    "load_table_model",
    "note",
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
"""Standard error, for what is not a result: notes, complaints, and summaries where the result is on standard output."""


_FOR_PROGRAMMERS = (DeprecationWarning, FutureWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)


class CallError(UserError):
    """The call or its input is wrong: one sentence for the user, exit code 2, no traceback."""


@contextmanager
def wrong_call_if_refused() -> Iterator[None]:
    """Turn the library's refusal of an argument or of a file into a message for the command line's user."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has gone away, and the call was right
    except (UserError, OSError) as error:
        raise CallError(" ".join(str(error).split())) from error
    except MemoryError as error:
        raise CallError("there is not enough memory for this: give fewer rows at once, or a smaller model.") from error


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings as notes on standard error, each once; those for programmers stay silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in _FOR_PROGRAMMERS:
            warnings.simplefilter("ignore", category)
        yield
    for message in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        note(message)


def note(message: str) -> None:
    """Print something worth knowing on standard error."""
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


def check_share(option: str, value: float | None, *, zero: bool = True, one: bool = False, what: str = "share") -> None:
    """Refuse a number that is not between 0 and 1, and suggest what may be meant where it looks like a percentage.

    Examples
    --------
    >>> check_share("--coverage", 90, zero=False, one=True)
    Traceback (most recent call last):
        ...
    demur.cli.console.CallError: --coverage must be a share above 0 and at most 1, got 90: did you mean 0.9?
    """
    if value is None or 0 < value < 1 or (zero and value == 0) or (one and value == 1):
        return
    bounds = f"{'of at least' if zero else 'above'} 0 and {'at most' if one else 'below'} 1"
    hint = (
        f"did you mean {value / 100:g}?" if 1 < value < 100 or (value in (1, 100) and not one) else "give a fraction."
    )
    raise CallError(f"{option} must be a {what} {bounds}, got {value:g}: {hint}")


def load_table_model(path: Path | str) -> "TableModel":
    """Return the model in a folder; one that was saved from Python reads the columns that it was fitted on, by name."""
    from demur.deploy import load
    from demur.tabular import TableModel

    model = load(path)
    if isinstance(model, TableModel):
        return model
    from demur.tabular.own_models import schema_of_estimator

    if not hasattr(model, "predict"):
        raise CallError(f"{path} holds a {type(model).__name__}, which is not a classifier: give the folder of one.")
    try:
        wrapped = TableModel.wrap(model, schema_of_estimator(model))
    except UserError as error:
        raise CallError(f"{path} holds a {type(model).__name__} that was saved from Python: {error}") from error
    numbers = "" if any(column.kind != "number" for column in wrapped.schema.columns) else " as numbers"
    note(
        f"{path} holds a {type(model).__name__} that was saved from Python; its columns are read by their names"
        f"{numbers}, and the labels are in {wrapped.target!r}: demur wrap tells it otherwise."
    )
    return wrapped


def complain(message: str) -> None:
    """Print one message on standard error."""
    notes.print(f"demur: {message}", markup=False)


def plain_table(title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=SIMPLE_HEAD)


def is_watched() -> bool:
    """Say whether a person watches, so that a progress bar makes sense."""
    return sys.stderr.isatty()
