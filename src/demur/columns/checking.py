"""In which columns one table differs from another, in words."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from demur.columns.column import Column, kind_of_type
from demur.columns.table_errors import listed, shown

__all__ = ["mismatches"]

_WORDS = {"category": "text", "boolean": "true or false"}


def mismatches(expected: Sequence[Column], known: Collection[str], columns: Mapping[str, Any], *, strict: bool) -> str:
    """Return what is missing, of another type, extra and reordered, and what to do; empty if nothing is.

    Parameters
    ----------
    expected : sequence of Column
    known : names
        Those that are not extra, whether or not they are used.
    columns : dict of str to type or None
    strict : bool
        Whether extra and reordered columns count.

    Examples
    --------
    >>> mismatches([Column("a", "number"), Column("b", "number")], {"a", "b"}, {"b": None, "c": None}, strict=True)
    "missing 'a'; extra 'c'; add what is missing; --allow-extra accepts the extra columns"
    """
    found, advice = [], []
    missing = [column.name for column in expected if column.name not in columns]
    if missing:
        found.append(f"missing {listed(missing)}")
        advice.append("add what is missing")
    wrong = [column for column in expected if column.name in columns and not column.fits(columns[column.name])]
    if wrong:
        examples = [f"{shown(c.name)} ({_word(columns[c.name])}, not {_WORDS.get(c.kind, c.kind)})" for c in wrong[:4]]
        more = f" and {len(wrong) - 4:,} more" if len(wrong) > 4 else ""
        found.append(f"of another type {', '.join(examples)}{more}")
        advice.append("convert what is of another type")
    if strict:
        unused = _unused(expected, known, columns)
        found += unused
        if unused:
            what = " and ".join(word.split()[0] for word in unused)
            advice.append(f"--allow-extra accepts the {what} columns")
    return "; ".join(found + advice)


def _word(type_: Any) -> str:
    kind = kind_of_type(type_)
    return str(type_) if kind is None else _WORDS.get(kind, kind)


def _unused(expected: Sequence[Column], known: Collection[str], columns: Mapping[str, Any]) -> list[str]:
    extra = [name for name in columns if name not in known]
    here = [column.name for column in expected if column.name in columns]
    order = [name for name in columns if name in set(here)]
    moved = [name for name, other in zip(order, here, strict=True) if name != other]
    return [f"{word} {listed(names)}" for word, names in (("extra", extra), ("reordered", moved)) if names]
