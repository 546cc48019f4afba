"""What the commands share: where they print, and how they say that a call was wrong."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["EXIT_FAILED", "EXIT_WRONG_CALL", "CallError", "complain", "console", "wrong_call_if_refused"]

EXIT_FAILED = 1
EXIT_WRONG_CALL = 2

console = Console(highlight=False)
"""Standard output."""

_complaints = Console(stderr=True, highlight=False, soft_wrap=True)


class CallError(Exception):
    """The call or its input is wrong: one sentence for the user, exit code 2, no traceback."""


@contextmanager
def wrong_call_if_refused() -> Iterator[None]:
    """Turn the library's refusal of an argument into a message for the command line's user."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise CallError(str(error)) from error


def complain(message: str) -> None:
    """Print one message on standard error."""
    _complaints.print(f"demur: {message}", markup=False)
