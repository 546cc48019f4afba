"""What is raised and warned about when a table cannot be read, understood or written as it stands."""

from collections.abc import Iterable
from difflib import get_close_matches

from demur.errors import InputError

__all__ = ["TableError", "TableWarning", "did_you_mean", "listed", "shown"]

_LONGEST_VALUE = 40
_MOST_NAMES = 8


class TableError(InputError):
    r"""A table that cannot be read, understood or written: one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> print(TableError("the name has a line\nbreak"))
    the name has a line break
    """

    def __init__(self, message: str) -> None:
        # Names and values come from files: whatever they hold, the message stays one line that a terminal can print.
        line = " ".join(message.split())
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in line))


class TableWarning(UserWarning):
    """Something that was assumed about a file in order to read it, such as its encoding."""


def shown(value: object) -> str:
    """Return a value as a message shows it: quoted, and cut where it is long.

    Examples
    --------
    >>> shown("abc"), shown("z" * 99)
    ("'abc'", "'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz...'")
    """
    text = str(value)
    return repr(text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "...")


def listed(names: Iterable[object]) -> str:
    """Return names as a message lists them: the first few, then how many more.

    Examples
    --------
    >>> listed(["a", "b"]), listed(range(10))
    ("'a', 'b'", "'0', '1', '2', '3', '4', '5', '6', '7' and 2 more")
    """
    names = list(names)
    text = ", ".join(shown(name) for name in names[:_MOST_NAMES])
    return text if len(names) <= _MOST_NAMES else f"{text} and {len(names) - _MOST_NAMES:,} more"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question about the name that is nearest, to follow a refusal; empty if none is near.

    Examples
    --------
    >>> did_you_mean("Clas", ["size", "class"]), did_you_mean("x", ["size"])
    (", did you mean 'class'?", '')
    """
    by_lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower().strip(), by_lower, n=1)
    return f", did you mean {shown(by_lower[near[0]])}?" if near else ""
