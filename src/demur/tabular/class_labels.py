"""Labels of a table: the rows that have one, labels as class names, and class names as a column of their type."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from demur.array_types import AnyArray
from demur.columns.frames import TableError, Values, did_you_mean, listed, shown
from demur.columns.schema import kind_of_type

__all__ = [
    "LabelledTable",
    "as_column",
    "check_classes",
    "check_target",
    "class_texts",
    "label_type",
    "writable_type",
]

_MOST_NUMBERS = 1000
"""A target with more different fractional numbers than this is a quantity and not a class."""


def label_type(column: Values, name: str) -> str:
    """Return the type to write predictions with: "integer", "number", "boolean" or "text" (also for dates).

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
    if all(-(2**63) <= value < 2**63 and int(value) == value for value in numbers):
        return "integer"
    if len(numbers) > _MOST_NUMBERS:
        raise TableError(
            f"the target column {shown(name)} holds {len(numbers):,} different numbers, which is a quantity and not a "
            "class: make classes of it first, such as low and high"
        )
    return "number" if pa.types.is_floating(kind) else "text"


def class_texts(column: Values) -> NDArray[np.object_]:
    """Return labels as text, with None for missing ones; 3 and 3.0 are both the class "3".

    Examples
    --------
    >>> class_texts(pa.chunked_array([[3.0, None, 2.5]])).tolist()
    ['3', None, '2.5']
    """
    return np.array([_text(value) for value in _plain(column).to_pylist()], dtype=object)


def as_column(classes: Sequence[str | None] | AnyArray, kind: str) -> pa.Array:
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


def writable_type(classes: Sequence[str] | AnyArray, kind: str) -> str:
    """Return a label type, or "text" if these classes cannot be written with it.

    Examples
    --------
    >>> writable_type(["0", "1"], "integer"), writable_type(["0", "maybe"], "integer")
    ('integer', 'text')
    """
    try:
        written = as_column(classes, kind)
    except pa.ArrowException:
        return "text"
    return kind if len(written.unique()) == len(classes) else "text"


_MANY_CLASSES = 20
"""Number of classes up to which a table may have fewer than two rows per class on average."""


def check_target(target: str, columns: Collection[str], where: str = "the table") -> None:
    """Refuse a target that is not a column, and suggest a similar name.

    Examples
    --------
    >>> check_target("clas", ["size", "class"])
    Traceback (most recent call last):
    demur.columns.frames.TableError: there is no column 'clas' to predict, did you mean 'class'?: ...
    """
    if target not in columns:
        hint = did_you_mean(target, columns)
        raise TableError(f"there is no column {shown(target)} to predict{hint}: {where} has {listed(columns)}")


@dataclass(frozen=True, eq=False)
class LabelledTable:
    """The rows of a table that have a label, with their labels as text.

    Parameters
    ----------
    rows : pyarrow.Table
        All columns, the target included.
    labels : array of str
    target : str
        The column with the labels.
    name : str
        The name of the table in messages.
    n_unlabelled : int
        The number of rows that were left out because they have no label.

    Examples
    --------
    >>> data = LabelledTable.of(pa.table({"size": [1, 2, 3], "pet": ["cat", None, "dog"]}), "pet")
    >>> data.classes, data.n_unlabelled, data.take([1]).rows["size"].to_pylist()
    (['cat', 'dog'], 1, [3])
    """

    rows: pa.Table
    labels: NDArray[np.str_]
    target: str
    name: str = "the table"
    n_unlabelled: int = 0

    @classmethod
    def of(cls, table: pa.Table, target: str, name: str = "the table") -> Self:
        """Return the labelled rows of a table, or refuse a target that is missing, empty or no class."""
        check_target(target, table.column_names, name)
        label_type(table[target], target)  # refuses a column that cannot be a target
        labels = class_texts(table[target])
        known = np.array([label is not None for label in labels], dtype=bool)
        if not known.any():
            raise TableError(f"the target column {shown(target)} of {name} is empty: give rows with a label")
        rows = table if known.all() else table.filter(known)
        return cls(rows, labels[known].astype(str), target, name, table.num_rows - rows.num_rows)

    @property
    def classes(self) -> list[str]:
        """The different labels, sorted."""
        return sorted(set(self.labels.tolist()))

    def take(self, positions: ArrayLike) -> Self:
        """Return some of the rows, in the order of ``positions``."""
        chosen = np.asarray(positions, dtype=np.int64)
        return replace(self, rows=self.rows.take(pa.array(chosen)), labels=self.labels[chosen])


def check_classes(labels: NDArray[np.str_], target: str) -> None:
    """Refuse labels that no classifier can be fitted on: one class only, or nearly all different.

    Examples
    --------
    >>> check_classes(np.array(["cat", "cat"]), "pet")
    Traceback (most recent call last):
    demur.columns.frames.TableError: the target column 'pet' holds only one class, 'cat': give at least two
    """
    classes = np.unique(labels)
    if len(classes) < 2:
        raise TableError(
            f"the target column {shown(target)} holds only one class, {shown(classes[0])}: give at least two"
        )
    if len(classes) == len(labels) or (len(classes) > _MANY_CLASSES and 2 * len(classes) > len(labels)):
        raise TableError(
            f"the target column {shown(target)} holds {len(classes):,} different values in {len(labels):,} rows, such "
            f"as {listed(classes[:3])}, too many for classes: make classes of a quantity first, such as low and high, "
            "choose another target, or give more rows"
        )


def _plain(column: Values) -> Values:
    """Decode dictionaries, and remove nanoseconds, which Python's dates do not have."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    return column


def _text(value: object) -> str | None:
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
