"""Data frames, arrays and lists of rows as Arrow tables, and the error for tables that cannot be read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demur.array_types import AnyArray, Features, Names
from demur.errors import InputError, one_line

_LONGEST_VALUE = 40
_MOST_NAMES = 8


Values: TypeAlias = pa.Array | pa.ChunkedArray
"""A column in memory, with one chunk or several."""

Rows: TypeAlias = pa.Table | pa.RecordBatch
Batches: TypeAlias = Iterator[pa.RecordBatch]
Types: TypeAlias = Mapping[str, pa.DataType]
"""The type to read each column with."""


class TableError(InputError):
    r"""A table cannot be read or written; the message is one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> print(TableError("the name has a line\nbreak"))
    the name has a line break
    """

    def __init__(self, message: str) -> None:
        # Names and values come from files, and the message must stay one printable line.
        super().__init__("".join(c if c.isprintable() else repr(c)[1:-1] for c in one_line(message)))


class TableWarning(UserWarning):
    """An assumption that was made to read a file, such as its encoding."""


def shown(value: object) -> str:
    """Return a value for a message: quoted, and cut if it is long.

    Examples
    --------
    >>> shown("abc"), shown("z" * 99)
    ("'abc'", "'zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz...'")
    """
    text = str(value)
    return repr(text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "...")


def listed(names: Iterable[object]) -> str:
    """Return names for a message: the first few, then the number of the others.

    Examples
    --------
    >>> listed(["a", "b"]), listed(range(10))
    ("'a', 'b'", "'0', '1', '2', '3', '4', '5', '6', '7' and 2 more")
    """
    names = list(names)
    text = ", ".join(shown(name) for name in names[:_MOST_NAMES])
    return text if len(names) <= _MOST_NAMES else f"{text} and {len(names) - _MOST_NAMES:,} more"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a question about the most similar name, to append to a message; empty if none is similar.

    Examples
    --------
    >>> did_you_mean("Clas", ["size", "class"]), did_you_mean("x", ["size"])
    (", did you mean 'class'?", '')
    """
    by_lower = {known.lower(): known for known in names}
    near = get_close_matches(name.lower().strip(), by_lower, n=1)
    return f", did you mean {shown(by_lower[near[0]])}?" if near else ""


def check_columns(names: Iterable[str], columns: Names, where: str, use: str = "") -> None:
    """Refuse names that are not columns of a table, and suggest similar ones.

    Examples
    --------
    >>> check_columns(["clas"], ["size", "class"], "pets.csv", " to predict")
    Traceback (most recent call last):
    demur.columns.frames.TableError: there is no column 'clas' to predict, did you mean 'class'?: pets.csv has 'size'...
    """
    for name in names:
        if name not in columns:
            hint = did_you_mean(name, columns)
            raise TableError(f"there is no column {shown(name)}{use}{hint}: {where} has {listed(columns)}")


def plain_array(values: Values) -> Values:
    """Return an array without string views and extension types, which few functions of Arrow support.

    Examples
    --------
    >>> plain_array(pa.array(["a"], pa.string_view())).type
    DataType(string)
    """
    type_ = values.type
    if isinstance(type_, pa.BaseExtensionType):
        return plain_array(values.cast(type_.storage_type))
    if pa.types.is_dictionary(type_) and pa.types.is_string_view(type_.value_type):
        chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
        decoded = [plain_array(chunk.dictionary).take(chunk.indices) for chunk in chunks]
        return pa.chunked_array(decoded, pa.string()) if isinstance(values, pa.ChunkedArray) else decoded[0]
    return pc.cast(values, pa.string()) if pa.types.is_string_view(type_) else values


def decoded(values: Values) -> Values:
    """Return a column without a dictionary.

    Examples
    --------
    >>> decoded(pa.array(["a", "a"]).dictionary_encode()).type
    DataType(string)
    """
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def has_infinity(values: Values) -> bool:
    """Return whether a column holds an infinite number.

    Examples
    --------
    >>> has_infinity(pa.array([1.0, None, -np.inf])), has_infinity(pa.array(["inf"]))
    (True, False)
    """
    return bool(pa.types.is_floating(values.type) and pc.any(pc.is_inf(values)).as_py())


def plain_table(table: Rows, *, lists: bool = False) -> Rows:
    """Return a table or record batch with :func:`plain_array` applied to each column, and vectors as numbers.

    A vector is a fixed-size list of numbers; with ``lists`` also a list that has the same length in all rows.

    Examples
    --------
    >>> plain_table(pa.table({"a": pa.array(["x"], pa.string_view())})).schema.types
    [DataType(string)]
    >>> plain_table(pa.table({"v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))})).to_pydict()
    {'v[0]': [1, 3], 'v[1]': [2, 4]}
    """
    columns: dict[str, Values] = {}
    for name, values in zip(table.schema.names, table.columns, strict=True):
        column = plain_array(values)
        width = _vector_width(column, lists)
        if width is None:
            columns[name] = column
        else:
            columns |= {f"{name}[{k}]": pc.list_element(column, k) for k in range(width)}
    return type(table).from_arrays(list(columns.values()), names=list(columns))


def _vector_width(values: Values, lists: bool) -> int | None:
    """Return the length of the vectors in a column; None if it holds something else."""
    type_ = values.type
    fixed = pa.types.is_fixed_size_list(type_)
    if not fixed and not (lists and (pa.types.is_list(type_) or pa.types.is_large_list(type_))):
        return None
    if not (pa.types.is_floating(type_.value_type) or pa.types.is_integer(type_.value_type)):
        return None
    lengths = [type_.list_size] if fixed else pc.unique(pc.list_value_length(values.drop_null())).to_pylist()
    return lengths[0] or None if len(lengths) == 1 else None


def as_table(X: Features) -> pa.Table:
    """Return a data frame, an array or a list of rows as an Arrow table.

    A column that mixes types, such as numbers and text, becomes text. The columns of an array or a list are called
    ``x0``, ``x1`` and so on.

    Parameters
    ----------
    X : pandas or polars DataFrame, pyarrow Table or RecordBatch, array of shape (n, d), or list of rows

    Raises
    ------
    TableError
        If it is none of these, or its columns do not have distinct names.

    Examples
    --------
    >>> as_table([[1, "a"], [2.5, None], ["?", "b"]]).to_pydict()
    {'x0': ['1', '2.5', '?'], 'x1': ['a', None, 'b']}
    """
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        columns, names = [_column(X.iloc[:, position]) for position in range(X.shape[1])], X.columns
    elif isinstance(X, pa.RecordBatch) or (hasattr(X, "__arrow_c_stream__") and hasattr(X, "schema")):
        try:
            table = pa.table(X)
        except Exception as error:  # each library raises its own, for columns of Python objects for example
            raise TableError(
                f"the data frame cannot be read ({error}): convert these columns or leave them out"
            ) from error
        columns, names = table.columns, table.column_names
    else:
        columns = [_column(values) for values in _columns_of_rows(X)]
        names = [f"x{position}" for position in range(len(columns))]
    texts = [str(name) for name in names]
    check_names(tuple(texts), "the table")
    return plain_table(pa.Table.from_arrays(columns, names=texts), lists=True)


def _column(values: Any) -> Values:
    """Convert values to an Arrow array; values of mixed types, or of types that Arrow does not have, become text."""
    values = np.asarray(values) if hasattr(values, "sparse") else values
    try:
        column = pa.array(values, from_pandas=True)
        if not isinstance(column.type, pa.BaseExtensionType):
            return plain_array(column)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    if all(isinstance(value, Real) and not isinstance(value, bool) for value in values if value is not None):
        with suppress(OverflowError):  # numbers that Arrow does not have, such as 2**70 and long doubles
            return pa.array(np.asarray(values, np.float64), from_pandas=True)
    missing = ("None", "nan", "<NA>", "NaT")
    there = (None if not isinstance(value, str) and str(value) in missing else str(value) for value in values)
    return pa.array(list(there), pa.string())


def _columns_of_rows(X: Features) -> list[AnyArray]:
    if hasattr(X, "tocsr"):
        raise TableError("the table is a sparse matrix, which is not read: give X.toarray()")
    # NumPy would turn the numbers beside a name into names.
    array = np.array(X, dtype=object) if isinstance(X, list | tuple) else np.asarray(X)
    if array.ndim != 2 or array.dtype.kind == "c":
        problem = f"a {type(X).__name__} of shape {array.shape} and type {array.dtype} is not a table"
        raise TableError(f"{problem}: give a data frame, an array of rows and columns, or a list of rows of one length")
    return [np.ascontiguousarray(column) for column in array.T]


def check_names(names: tuple[str, ...], name: str) -> None:
    """Refuse columns without a name, and two columns with the same name.

    Examples
    --------
    >>> check_names(("x", ""), "data.csv")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.csv has no name for column 2 of 2: name every column ...
    """
    if "" in names:
        position = names.index("") + 1
        problem = f"{name} has no name for column {position:,} of {len(names):,}"
        raise TableError(f"{problem}: name every column in the header, which must be the first line, or leave it out")
    twice = [column for column, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"{name} has more than one column named {listed(twice)}: give each column its own name")
