"""Tables in memory as Arrow tables: data frames of any library, arrays, and lists of rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.array_types import AnyArray, Features
from demur.columns.column import plain_array, plain_table
from demur.columns.table_errors import TableError, listed

__all__ = ["as_table", "check_names"]


def as_table(X: Features, names: Sequence[str] | None = None) -> pa.Table:
    """Return a data frame, an array or a list of rows as an Arrow table.

    A column that mixes types, such as numbers and text, becomes text.

    Parameters
    ----------
    X : pandas or polars DataFrame, pyarrow Table or RecordBatch, array of shape (n, d), or list of rows
    names : sequence of str, optional
        The columns of an array or of a list of rows; without it ``x0``, ``x1`` and so on.

    Raises
    ------
    TableError
        If it is none of these, or its columns have no names of their own.

    Examples
    --------
    >>> as_table([[1, "a"], [2.5, None], ["?", "b"]], names=["size", "kind"]).to_pydict()
    {'size': ['1', '2.5', '?'], 'kind': ['a', None, 'b']}
    >>> as_table(np.eye(2)).column_names
    ['x0', 'x1']
    """
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        columns = [_from_pandas(X.iloc[:, position]) for position in range(X.shape[1])]
        return _table(columns, [str(name) for name in X.columns])
    if isinstance(X, pa.RecordBatch) or (hasattr(X, "__arrow_c_stream__") and hasattr(X, "schema")):
        table = _from_arrow(X)
        return _table(table.columns, table.column_names)
    arrays = _columns_of_rows(X)
    if names is None:
        names = [f"x{position}" for position in range(len(arrays))]
    if len(names) != len(arrays):
        raise TableError(f"there are {len(names)} names for {len(arrays)} columns: give one name for each")
    return _table([_from_values(array) for array in arrays], [str(name) for name in names])


def _table(columns: list[Any], names: list[str]) -> pa.Table:
    check_names(tuple(names), "the table")
    return pa.Table.from_arrays(columns, names=names)


def _from_arrow(X: Features) -> pa.Table:
    try:
        return plain_table(pa.table(X))
    except Exception as error:  # each library raises its own, for columns of Python objects for example
        raise TableError(f"the data frame cannot be read ({error}): convert or leave out its odd columns") from error


def _from_pandas(series: Any) -> Any:
    """Convert by pandas' own means; what Arrow has no type for, such as intervals, becomes text."""
    if hasattr(series, "sparse"):
        return pa.array(series.to_numpy())
    missing = series.isna().to_numpy()
    try:
        values = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return _as_text(series.to_numpy(dtype=object), missing)
    if isinstance(values.type, pa.BaseExtensionType):
        return _as_text(series.to_numpy(dtype=object), missing)
    return plain_array(values)


def _from_values(values: AnyArray) -> Any:
    try:
        return plain_array(pa.array(values.tolist() if values.dtype == object else values, from_pandas=True))
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        values = values.astype(object)
        return _as_text(values, np.array([_is_missing(value) for value in values], dtype=bool))


def _as_text(values: AnyArray, missing: NDArray[np.bool_]) -> Any:
    """Write each value as text; numbers alone, which Arrow refuses beyond 64 bits, stay numbers."""
    there = [value for value, gap in zip(values, missing, strict=True) if not gap]
    convert: Callable[[Any], Any] = str
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in there):
        convert = _float
    converted = [None if gap else convert(value) for value, gap in zip(values, missing, strict=True)]
    return pa.array(converted, pa.float64() if convert is _float else pa.string())


def _float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # pandas.NA compares as itself, and arrays compare elementwise
        return type(value).__name__ == "NAType"


def _columns_of_rows(X: Features) -> list[AnyArray]:
    if hasattr(X, "tocsr"):
        raise TableError("the table is a sparse matrix, which is not read: give X.toarray()")
    if isinstance(X, list | tuple):
        return _columns_of_lists(X)
    array = np.asarray(X)
    if array.ndim == 0:
        raise TableError(f"a {type(X).__name__} is not a table: give a data frame, an array or a list of rows")
    if array.ndim != 2:
        raise TableError(
            f"an array of shape {array.shape} is not a table: give rows and columns, as in X.reshape(-1, 1)"
        )
    if array.dtype.kind == "c":
        raise TableError("the table holds complex numbers: give their real and imaginary parts as two columns")
    return [np.ascontiguousarray(array[:, position]) for position in range(array.shape[1])]


def _columns_of_lists(rows: Sequence[Any]) -> list[AnyArray]:
    """Take lists apart by hand: NumPy would turn the numbers beside a name into names."""
    for position, row in enumerate(rows, 1):
        if isinstance(row, str | bytes | dict) or not hasattr(row, "__len__"):
            raise TableError(
                f"row {position:,} is a {type(row).__name__} and not a list of values: give a list of rows"
            )
        if len(row) != len(rows[0]):
            problem = f"row {position:,} has {len(row):,} values where the first has {len(rows[0]):,}"
            raise TableError(f"{problem}: give rows of the same length")
    columns = []
    for column in zip(*rows, strict=True):
        values = np.empty(len(rows), dtype=object)
        values[:] = column
        columns.append(values)
    return columns


def check_names(names: tuple[str, ...], name: str) -> None:
    """Refuse columns without a name, and two columns with the same name.

    Examples
    --------
    >>> check_names(("x", ""), "data.csv")
    Traceback (most recent call last):
    demur.columns.table_errors.TableError: data.csv has no name for column 2 of 2: name every column ...
    """
    unnamed = [position for position, column in enumerate(names, 1) if not column]
    if unnamed:
        which = f"column {unnamed[0]:,} of {len(names):,}"
        if len(unnamed) > 1:
            which = f"{len(unnamed):,} of its {len(names):,} columns"
        index = " (pandas writes its index so, unless told index=False)" if unnamed == [1] else ""
        raise TableError(f"{name} has no name for {which}{index}: name every column in the header, or leave it out")
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        problem = f"{name} has more than one column named {listed(twice)}"
        raise TableError(f"{problem}: give each column its own name")
