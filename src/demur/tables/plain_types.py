"""Arrow's newer string layouts as the one that all its functions know."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["plain_array", "plain_table"]


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
