"""Tables in memory as Arrow tables (data frames, arrays, lists of rows), and the error of those that cannot be read."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.array_types import AnyArray, Features
from demur.errors import InputError

__all__ = [
    "TableError",
    "TableWarning",
    "Values",
    "as_table",
    "check_names",
    "did_you_mean",
    "listed",
    "plain_array",
    "plain_table",
    "shown",
]


_LONGEST_VALUE = 40
_MOST_NAMES = 8


Values: TypeAlias = pa.Array | pa.ChunkedArray
"""A column in memory, in one piece or in several."""


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


def plain_array(values: Values) -> Values:
    """Return an array or chunked array without string views, which polars writes and few functions take.

    Examples
    --------
    >>> plain_array(pa.array(["a"], pa.string_view())).type
    DataType(string)
    """
    type_ = values.type
    if pa.types.is_string_view(type_):
        return pc.cast(values, pa.string())
    if isinstance(type_, pa.BaseExtensionType):
        storage = type_.storage_type
        return plain_array(values.cast(storage) if isinstance(values, pa.ChunkedArray) else values.storage)
    if pa.types.is_dictionary(type_) and pa.types.is_string_view(type_.value_type):
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        decoded = [plain_array(chunk.dictionary).take(chunk.indices) for chunk in chunks]
        return pa.chunked_array(decoded, pa.string()) if isinstance(values, pa.ChunkedArray) else decoded[0]
    return values


def plain_table(table: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
    """Return a table or record batch with every column plain.

    Examples
    --------
    >>> plain_table(pa.table({"a": pa.array(["x"], pa.string_view())})).schema.types
    [DataType(string)]
    """
    columns = [plain_array(column) for column in table.columns]
    return type(table).from_arrays(columns, names=table.schema.names)


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
    demur.columns.frames.TableError: data.csv has no name for column 2 of 2: name every column ...
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
