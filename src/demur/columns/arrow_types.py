"""Arrow types: newer string layouts as the one that all functions know, and one type as another."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from demur.columns.table_errors import TableError, shown

__all__ = ["as_type", "no_such_value", "plain_array", "plain_table", "type_in_words"]


def plain_array(values: Any) -> Any:
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
    if not pa.types.is_dictionary(type_) or not pa.types.is_string_view(type_.value_type):
        return values
    if isinstance(values, pa.ChunkedArray):
        wanted = pa.dictionary(type_.index_type, pa.string())
        return pa.chunked_array([plain_array(chunk) for chunk in values.chunks], type=wanted)
    return pa.DictionaryArray.from_arrays(values.indices, plain_array(values.dictionary))


def plain_table(table: Any) -> Any:
    """Return a table or record batch with every column plain.

    Examples
    --------
    >>> plain_table(pa.table({"a": pa.array(["x"], pa.string_view())})).schema.types
    [DataType(string)]
    """
    columns = [plain_array(column) for column in table.columns]
    return type(table).from_arrays(columns, names=table.schema.names)


def as_type(values: Any, wanted: Any, column: str, where: str) -> Any:
    """Return an Arrow array as another type, or say which of its values is none of that type.

    Examples
    --------
    >>> as_type(pa.array(["1.5", None]), pa.float64(), "x", "data.parquet").to_pylist()
    [1.5, None]
    >>> as_type(pa.array(["1.5", "big"]), pa.float64(), "x", "data.parquet")
    Traceback (most recent call last):
    demur.columns.table_errors.TableError: data.parquet: column 'x' holds 'big', which is no number: correct it or ...
    """
    values = plain_array(values)
    if values.type == wanted:
        return values
    if pa.types.is_dictionary(values.type):
        return as_type(pc.cast(values, values.type.value_type), wanted, column, where)
    try:
        return pc.cast(values, wanted, safe=False)
    except pa.ArrowException as error:
        message = str(error)
        if "Failed to parse string: '" in message:
            value = message.split("'", 1)[1].rsplit("' as a scalar", 1)[0]
            raise no_such_value(where, column, value, wanted) from error
        problem = f"{where}: column {shown(column)} is {values.type}, which cannot be read as {type_in_words(wanted)}"
        raise TableError(f"{problem}: convert it, or fit again") from error


def no_such_value(where: str, column: str, value: str, wanted: Any, row: int | None = None) -> TableError:
    """Return the error for one value that is not of the type its column must have."""
    place = f"column {shown(column)}" + ("" if row is None else f", row {row:,},")
    return TableError(
        f"{where}: {place} holds {shown(value)}, which is no {type_in_words(wanted)}: correct it or leave it empty"
    )


def type_in_words(kind: Any) -> str:
    """Return the word for a type.

    Examples
    --------
    >>> type_in_words(pa.float64()), type_in_words(pa.string())
    ('number', 'text')
    """
    tests = {
        "number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
        "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
        "date with a time zone, such as 2024-12-31T23:59Z": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
        "date such as 2024-12-31 or 2024-12-31 23:59": lambda t: pa.types.is_date(t) or pa.types.is_timestamp(t),
        "time of day such as 23:59": lambda t: pa.types.is_time(t),
        "truth value such as true or false": pa.types.is_boolean,
    }
    return next((word for word, test in tests.items() if test(kind)), str(kind))
