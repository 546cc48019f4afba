"""How a column of a table is understood: as a feature of some kind, or set aside for a reason."""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demur.columns.arrow_types import as_type
from demur.columns.column import Column, kind_of_type
from demur.columns.table_errors import shown

__all__ = ["MAX_CODES", "understand"]

MAX_CODES = 255
"""Codes of a category, "other" included: what scikit-learn's histogram trees take."""

_MANY_ROWS = 20  # in fewer rows, all values differ or rise by chance
_LONG_TEXT = 40
_MANY_WORDS = 5
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|uuid|guid|key|index)$", re.IGNORECASE)
_CAMEL = re.compile(r"[a-z](?:Id|ID|Key|Uuid|UUID)$")
_PLAIN_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
# 1,5 and 1.234,5 and $1,200 and 12 % and 31/12/2024
_NUMBER_AS_TEXT = r"^[-+]?\s*[$€£¥]?\s*\d[\d., '_]*\s*[%$€£¥]?$|^\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|^0[xX][0-9a-fA-F]+$"


def understand(name: str, values: Any, *, keep: bool = False) -> tuple[Column | None, str]:
    """Return a column as a feature, with a remark about it or an empty one; or no feature, with the reason.

    Parameters
    ----------
    name : str
    values : pyarrow.ChunkedArray
    keep : bool, default False
        Whether to use the column although it is constant, or looks like an identifier or free text.

    Examples
    --------
    >>> understand("pet", pa.chunked_array([["dog", "cat", "dog"]]))
    (Column(name='pet', kind='category', categories=('dog', 'cat'), other=False, ...), '')
    >>> understand("country", pa.chunked_array([["NL", "NL"]]))
    (None, "every value is 'NL'")
    """
    kind = kind_of_type(values.type)
    if values.null_count == len(values):
        return None, "every value is missing"
    if kind is None:
        return None, f"its values are neither numbers nor text nor dates but of type {values.type}"
    if kind == "category":
        return _category(name, as_type(values, pa.string(), name, "the table"), keep)
    if kind == "number":
        return _number(name, values, keep)
    zoned = pa.types.is_timestamp(values.type) and values.type.tz is not None
    unit = "ns" if getattr(values.type, "unit", None) == "ns" else "us"
    return _unless_constant(Column(name, kind, zoned=zoned, unit=unit), values, keep)


def _unless_constant(column: Column, values: Any, keep: bool, remark: str = "") -> tuple[Column | None, str]:
    """Look at the numbers that a model would see: Arrow cannot compare all types, nor a model all integers."""
    encoded = column.encode(values, "the table")
    # One value and gaps still tell two kinds of rows apart.
    if not keep and not np.isnan(encoded).any() and encoded.min() == encoded.max():
        what = repr(encoded[0].item()).removesuffix(".0") if column.kind == "number" else "the same"
        return None, f"every value is {what}"
    return column, remark


def _number(name: str, values: Any, keep: bool) -> tuple[Column | None, str]:
    remark = ""
    if pa.types.is_floating(values.type):
        values = as_type(values, pa.float64(), name, "the table")
        finite = pc.is_finite(values)
        n_infinite = pc.sum(pc.is_inf(values)).as_py() or 0
        if n_infinite:
            remark = f"{n_infinite:,} infinite {'value is' if n_infinite == 1 else 'values are'} read as missing"
        values = pc.if_else(finite, values, None)
        if values.null_count == len(values):
            return None, "every value is missing or infinite"
    if not keep and pa.types.is_integer(values.type) and values.null_count == 0:
        reason = _numbered_rows(name, values)
        if reason:
            return None, reason
    return _unless_constant(Column(name, "number"), values, keep, remark)


def _numbered_rows(name: str, values: Any) -> str:
    """Tell why integers look like the identifier of a row, if they do."""
    n = len(values)
    if n > 1 and _names_identifier(name) and pc.count_distinct(values).as_py() == n:
        return "it looks like an identifier (every value is different)"
    rising = n >= _MANY_ROWS and pc.all(pc.greater(values.slice(1), values.slice(0, n - 1))).as_py()
    return "it looks like a row number (every value is larger than the one before)" if rising else ""


def _names_identifier(name: str) -> bool:
    return bool(_IDENTIFIER.search(name) or _CAMEL.search(name))


def _category(name: str, text: Any, keep: bool) -> tuple[Column | None, str]:
    counted = pc.value_counts(text.drop_null())
    table = pa.table({"value": counted.field("values"), "count": counted.field("counts")})
    table = table.sort_by([("count", "descending"), ("value", "ascending")])
    n_valid, n_distinct = len(text) - text.null_count, table.num_rows
    if not keep:
        if n_distinct == 1 and text.null_count == 0:
            return None, f"every value is {shown(table['value'][0].as_py())}"
        reason = _unlike_category(name, table["value"], n_valid)
        if reason:
            return None, reason
    other = n_distinct > MAX_CODES
    kept = table["value"].slice(0, MAX_CODES - 1 if other else MAX_CODES).to_pylist()
    remark = f"{n_distinct:,} different values, of which all but the {len(kept)} most frequent count as one"
    return Column(name, "category", tuple(kept), other), remark if other else ""


def _unlike_category(name: str, distinct: Any, n_valid: int) -> str:
    """Tell why text is no category but numbers, sentences or identifiers, if it is."""
    if len(distinct) >= _MANY_ROWS:
        numbers = pc.mean(pc.cast(pc.match_substring_regex(distinct, _NUMBER_AS_TEXT), pa.float64())).as_py()
        if numbers > 0.9:
            unread = distinct.filter(pc.invert(pc.match_substring_regex(distinct, _PLAIN_NUMBER)))
            example = shown(unread[0].as_py()) if len(unread) else "those in quotes"
            return f"its values are numbers or dates, but not written as 1.5 or 2024-12-31, such as {example}"
        length = pc.mean(pc.utf8_length(distinct)).as_py()
        words = pc.mean(pc.count_substring(distinct, " ")).as_py() + 1
        if (length >= _LONG_TEXT or words >= _MANY_WORDS) and 2 * len(distinct) > n_valid:
            return "it is free text (long, and mostly different from row to row)"
    all_different = len(distinct) == n_valid and n_valid > 1
    if all_different and (n_valid >= _MANY_ROWS or _names_identifier(name)):
        return "it looks like an identifier (every value is different)"
    return ""
