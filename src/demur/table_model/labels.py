"""Labels of a table: any column as class names, and class names back as the column's own type."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.tables import TableError

__all__ = ["as_column", "class_texts", "label_type"]

_MOST_NUMBERS = 1000
"""A target with more different fractional numbers than this is a quantity and no class."""


def label_type(column: Any, name: str) -> str:
    """Return how predictions are to be written: "integer", "boolean" or "text".

    Examples
    --------
    >>> label_type(pa.chunked_array([[1.0, 2.0, None]]), "y"), label_type(pa.chunked_array([["a"]]), "y")
    ('integer', 'text')
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise TableError(f"the target column {name!r} holds {kind}: classes must be text or whole numbers")
    if pa.types.is_floating(kind):
        values = pc.drop_null(column)
        if pc.all(pc.equal(pc.floor(values), values)).as_py() and not pc.any(pc.is_inf(values)).as_py():
            return "integer"
        if pc.count_distinct(values).as_py() > _MOST_NUMBERS:
            raise TableError(
                f"the target column {name!r} holds {pc.count_distinct(values).as_py():,} different numbers, which is "
                "a quantity and no class: make classes of it first, such as low and high"
            )
    return "text"


def class_texts(column: Any) -> NDArray[np.object_]:
    """Return the labels as text, None where one is missing: 3 and 3.0 are both the class "3".

    Examples
    --------
    >>> class_texts(pa.chunked_array([[3.0, None, 2.5]])).tolist()
    ['3', None, '2.5']
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    texts = [_text(value) for value in column.to_pylist()]
    result: NDArray[np.object_] = np.array(texts, dtype=object)
    return result


def as_column(classes: Any, kind: str, declined: NDArray[np.bool_] | None = None) -> Any:
    """Return class names as an Arrow array of the label type, null where declined."""
    column = pa.array(np.asarray(classes, dtype=object), pa.string(), mask=declined)
    if kind == "integer":
        return column.cast(pa.int64())
    return pc.equal(column, "true") if kind == "boolean" else column


def _text(value: Any) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
