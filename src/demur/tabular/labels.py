"""Labels of a table: any column as class names, and class names back as the column's own type."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.columns.column import kind_of_type
from demur.columns.table_errors import TableError, shown

__all__ = ["as_column", "class_texts", "label_type"]

_MOST_NUMBERS = 1000
"""A target with more different fractional numbers than this is a quantity and no class."""


def label_type(column: Any, name: str) -> str:
    """Return how predictions are to be written: "integer", "number", "boolean" or "text", which dates are as well.

    Examples
    --------
    >>> label_type(pa.chunked_array([[1.0, 2.0, None]]), "y"), label_type(pa.chunked_array([["a"]]), "y")
    ('integer', 'text')
    """
    column = _plain(column)
    kind = column.type
    if pa.types.is_boolean(kind):
        return "boolean"
    if kind_of_type(kind) is None and not pa.types.is_null(kind):
        raise TableError(f"the target column {shown(name)} holds {kind}: classes must be text, numbers or dates")
    if not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
        return "text"
    numbers = [value for value in pc.unique(column).to_pylist() if value is not None and value == value]
    fits = not numbers or (min(numbers) >= -(2**63) and max(numbers) < 2**63)
    if fits and all(int(value) == value for value in numbers):
        return "integer"
    if len(numbers) > _MOST_NUMBERS:
        raise TableError(
            f"the target column {shown(name)} holds {len(numbers):,} different numbers, which is a quantity and no "
            "class: make classes of it first, such as low and high"
        )
    return "number" if pa.types.is_floating(kind) else "text"


def class_texts(column: Any) -> NDArray[np.object_]:
    """Return the labels as text, None where one is missing: 3 and 3.0 are both the class "3".

    Examples
    --------
    >>> class_texts(pa.chunked_array([[3.0, None, 2.5]])).tolist()
    ['3', None, '2.5']
    """
    texts = [_text(value) for value in _plain(column).to_pylist()]
    result: NDArray[np.object_] = np.array(texts, dtype=object)
    return result


def as_column(classes: Any, kind: str) -> Any:
    """Return class names as an Arrow array of the label type.

    Examples
    --------
    >>> as_column(["2", "0.5"], "number").to_pylist()
    [2.0, 0.5]
    """
    column = pa.array(np.asarray(classes, dtype=object), pa.string())
    if kind == "boolean":
        return pc.equal(column, "true")
    types = {"integer": pa.int64(), "number": pa.float64()}
    return column.cast(types[kind]) if kind in types else column


def _plain(column: Any) -> Any:
    """Take dictionaries apart, and nanoseconds away, which Python's own dates do not have."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
