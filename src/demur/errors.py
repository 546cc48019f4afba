"""Errors for the user: each message says what is wrong, the value, and what to do.

The command line prints the message of a :class:`UserError` as one sentence with exit code 2. Any other exception is a
bug in demur, and keeps its traceback.
"""

__all__ = ["InputError", "InputTypeError", "MissingExtraError", "UserError"]


class UserError(Exception):
    """The call or its input is wrong; the message says what to do about it."""


class InputError(UserError, ValueError):
    """A value cannot be used.

    Examples
    --------
    >>> from demur import Chow
    >>> Chow(cost=20)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: cost must be in [0, 1), got 20: ...
    """


class InputTypeError(UserError, TypeError):
    """A value has a type that cannot be used."""


class MissingExtraError(UserError, ImportError):
    """An optional package is not installed; the message names the extra to install."""


def one_line(message: object) -> str:
    r"""Return a message on one line.

    Examples
    --------
    >>> one_line(ValueError("a\n  b"))
    'a b'
    """
    return " ".join(str(message).split())
