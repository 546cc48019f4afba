"""Templates, escaping and the content security policy of all HTML pages."""

import base64
import hashlib
import json
import re
from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from demur.errors import MissingExtraError
from demur.tabular.evaluation_words import UNDEFINED, cost_words, per_hundred, percent

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = [
    "SECURITY_HEADERS",
    "asset",
    "case_value",
    "content_policy",
    "embedded_json",
    "own_parts",
    "page_environment",
    "unbroken",
    "visible",
]

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
"""Sent with every page, beside its policy."""

_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Control characters, halves of surrogate pairs and non-characters: not allowed in HTML, or not in UTF-8."""


def page_environment(package: str, *, needed_by: str, extra: str) -> "Environment":
    """Return the template engine for the pages in the folder ``page`` of a package.

    Names from data stay text: everything is escaped, and an undefined name is an error instead of nothing.

    Parameters
    ----------
    package : str
        Such as ``"demur.tabular"``.
    needed_by, extra : str
        What to say where Jinja2 is missing: who needs it, and the extra of demur that brings it.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError(f"{needed_by} needs Jinja2: pip install demur[{extra}].") from None
    environment = Environment(
        loader=FunctionLoader(lambda name: asset(package, name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {
        "percent": lambda share: unbroken(percent(share)),
        "per_hundred": per_hundred,
        "cost_words": cost_words,
        "unbroken": unbroken,
        "case_value": case_value,
    }
    return environment


def asset(package: str, name: str) -> str:
    """Return the text of a file in the folder ``page`` of a package."""
    return files(package).joinpath("page", name).read_text(encoding="utf-8")


def content_policy(style: str | Collection[str], script: str | Collection[str], *more: str) -> str:
    """Return a content security policy that allows these styles and scripts, and nothing else from anywhere.

    Parameters
    ----------
    style, script : str, or several
        Their text; empty where there is none.
    *more : str
        Further directives, such as ``"connect-src 'self'"``.

    Examples
    --------
    >>> content_policy("", "")
    "default-src 'none'; style-src 'none'; script-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    """
    rules = (
        "default-src 'none'",
        f"style-src {_source(style)}",
        f"script-src {_source(script)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join((*rules, *more))


def _source(texts: str | Collection[str]) -> str:
    """Return the expressions by which a policy allows these texts and no others."""
    some = [text for text in ([texts] if isinstance(texts, str) else texts) if text]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in some]
    return " ".join(f"'sha256-{one}'" for one in dict.fromkeys(digests)) or "'none'"


def own_parts(page: str) -> tuple[list[str], list[str]]:
    """Return the texts of the inline style and script elements of a page that have no attributes.

    Examples
    --------
    >>> own_parts("<style>p {}</style><script src='x.js'></script><script>go();</script><p onclick='no();'>")
    (['p {}'], ['go();'])
    """
    styles, scripts = (re.findall(f"<{tag}>(.+?)</{tag}>", page, re.DOTALL) for tag in ("style", "script"))
    return styles, scripts


def embedded_json(data: Mapping[str, object]) -> str:
    r"""Write JSON that cannot end the element it stands in, whatever the strings in it.

    Examples
    --------
    >>> embedded_json({"name": "</script>"})
    '{"name":"\\u003c/script>"}'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


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


def case_value(value: object, longest: int = 60) -> str:
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
