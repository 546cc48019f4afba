"""Text from data as a page can show it."""

import re
from typing import Any

from demur.tabular.words import UNDEFINED

__all__ = ["case_value", "unbroken", "visible"]

_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters, halves of surrogate pairs and non-characters: not allowed in HTML, or not in UTF-8."""


def visible(text: str) -> str:
    r"""Replace what no page may contain by the replacement character.

    Examples
    --------
    >>> visible("a\x00b") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    return _UNSHOWABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def unbroken(text: str) -> str:
    r"""Keep a number and its per cent sign on one line.

    Examples
    --------
    >>> unbroken("91.3 % of the rows")
    '91.3\xa0% of the rows'
    """
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def case_value(value: Any, longest: int = 60) -> str:
    """Write a value of an original column: numbers to six digits, long text cut.

    Examples
    --------
    >>> case_value(0.123456789), case_value("a long story", longest=6), case_value(None) == UNDEFINED
    ('0.123457', 'a lon…', True)
    """
    if value is None or value != value:
        return UNDEFINED
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
