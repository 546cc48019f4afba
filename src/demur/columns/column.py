"""One feature column: its kind, the Arrow types that it accepts, and its encoding as numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.columns.frames import TableError, Values, plain_array, shown

__all__ = ["Column", "Kind", "as_type", "is_text", "kind_of_type", "no_such_value", "type_in_words"]

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "time"]
KINDS: tuple[str, ...] = get_args(Kind)

_SECONDS_PER_DAY = 86_400
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def is_text(type_: pa.DataType) -> bool:
    """Tell whether values of an Arrow type are text."""
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_number(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration)
    return any(is_kind(type_) for is_kind in kinds)


def _is_date(type_: pa.DataType) -> bool:
    return bool(pa.types.is_date(type_) or pa.types.is_timestamp(type_))


_IS_KIND: dict[Kind, Callable[[pa.DataType], bool]] = {
    "boolean": pa.types.is_boolean,
    "number": _is_number,
    "date": _is_date,
    "time": pa.types.is_time,
    "category": is_text,
}


def kind_of_type(type_: pa.DataType) -> Kind | None:
    """Return the kind of column that an Arrow type makes, or None for lists, structs and bytes.

    Examples
    --------
    >>> kind_of_type(pa.int8()), kind_of_type(pa.dictionary(pa.int8(), pa.int64())), kind_of_type(pa.binary())
    ('number', 'category', None)
    """
    if pa.types.is_dictionary(type_):
        return "category" if kind_of_type(type_.value_type) else None
    return next((kind for kind, test in _IS_KIND.items() if test(type_)), None)


@dataclass(frozen=True)
class Column:
    """A feature column.

    Parameters
    ----------
    name : str
    kind : {"number", "boolean", "category", "date", "time"}
        Numbers are unchanged, durations and times of day are seconds, truth values 0 and 1, dates days since 1970, and
        categories their position in ``categories``.
    categories : tuple of str
        The values of a categorical column, the most frequent first.
    other : bool
        Whether values that are not in ``categories`` share one extra code.
    zoned : bool
        Whether a date has a time zone, as in ``2024-12-31T23:59Z``.
    unit : {"us", "ns"}
        The precision of dates and times of day; dates in nanoseconds range from 1677 to 2262 only.

    Examples
    --------
    >>> Column("pet", "category", ("cat", "dog"), other=True).encode(pa.array(["dog", "newt", None]), "pets.csv")
    array([ 1.,  2., nan])
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    other: bool = False
    zoned: bool = False
    unit: str = "us"

    @property
    def n_codes(self) -> int:
        """The number of different codes; 0 for everything but categories."""
        return len(self.categories) + self.other

    @property
    def arrow_type(self) -> pa.DataType:
        """The type to read the column with."""
        date = pa.timestamp(self.unit, tz="UTC" if self.zoned else None)
        types = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string(), "time": pa.time64(self.unit)}
        return types.get(self.kind, date)

    def fits(self, type_: pa.DataType | None) -> bool:
        """Tell whether a column of an Arrow type can be read as this one."""
        if type_ is None or pa.types.is_null(type_):
            return True  # a CSV file, or nothing but missing values
        if self.kind != "category":
            return kind_of_type(type_.value_type if pa.types.is_dictionary(type_) else type_) == self.kind
        numbered = pa.types.is_integer(type_) and all(value.lstrip("-").isdigit() for value in self.categories)
        return kind_of_type(type_) == "category" or numbered

    def encode(self, values: Values, where: str) -> NDArray[np.float64]:
        """Return the column as numbers, NaN where a value is missing or infinite."""
        if self.kind == "category":
            return self._codes(as_type(values, pa.string(), self.name, where))
        values = as_type(values, self.arrow_type, self.name, where)
        if self.kind in ("number", "boolean"):
            return _as_float(as_type(values, pa.float64(), self.name, where))
        seconds = _as_float(as_type(values, pa.int64(), self.name, where)) / _PER_SECOND[self.unit]
        return seconds / _SECONDS_PER_DAY if self.kind == "date" else seconds

    def _codes(self, text: Values) -> NDArray[np.float64]:
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        if self.other:
            beyond = pc.and_(pc.is_null(found), pc.is_valid(text))
            found = pc.if_else(beyond, pa.scalar(len(self.categories), pa.int32()), found)
        return _as_float(found)


def _as_float(values: Values) -> NDArray[np.float64]:
    """Return numbers as an array, with NaN for what is missing or infinite."""
    array = np.asarray(values, dtype=np.float64)
    infinite = np.isinf(array)
    return np.where(infinite, np.nan, array) if infinite.any() else array


def as_type(values: Values, wanted: pa.DataType, column: str, where: str) -> Values:
    """Convert an Arrow array to another type, or say which of its values is not of that type; durations are seconds.

    Examples
    --------
    >>> as_type(pa.array(["1.5", None]), pa.float64(), "x", "data.parquet").to_pylist()
    [1.5, None]
    >>> as_type(pa.array(["1.5", "big"]), pa.float64(), "x", "data.parquet")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.parquet: column 'x' holds 'big', which is not a number: ...
    """
    values = plain_array(values)
    if values.type == wanted:
        return values
    if pa.types.is_dictionary(values.type):
        return as_type(pc.cast(values, values.type.value_type), wanted, column, where)
    try:
        if pa.types.is_duration(values.type):
            values = pc.divide(pc.cast(values.cast(pa.int64()), pa.float64()), _PER_SECOND[values.type.unit])
        return pc.cast(values, wanted, safe=False)
    except pa.ArrowException as error:
        message = str(error)
        if "Failed to parse string: '" in message:
            value = message.split("'", 1)[1].rsplit("' as a scalar", 1)[0]
            raise no_such_value(where, column, value, wanted) from error
        problem = f"{where}: column {shown(column)} is {values.type}, which cannot be read as {type_in_words(wanted)}"
        raise TableError(f"{problem}: convert it, or fit again") from error


def no_such_value(
    where: str, column: str, value: str, wanted: pa.DataType, row: int | None = None, advice: str = ""
) -> TableError:
    """Return the error for one value that is not of the type its column must have."""
    place = f"column {shown(column)}" + ("" if row is None else f", row {row:,},")
    advice = advice or "correct it or leave it empty"
    return TableError(f"{where}: {place} holds {shown(value)}, which is not {type_in_words(wanted)}: {advice}")


def type_in_words(kind: pa.DataType) -> str:
    """Return the words for a value of a type.

    Examples
    --------
    >>> type_in_words(pa.float64()), type_in_words(pa.string())
    ('a number', 'text')
    """
    if _is_date(kind):
        zoned = pa.types.is_timestamp(kind) and kind.tz is not None
        return "a date with a time zone, such as 2024-12-31T23:59Z" if zoned else "a date such as 2024-12-31"
    words = {
        "number": "a number",
        "boolean": "a truth value such as true or false",
        "time": "a time of day such as 23:59",
        "category": "text",
    }
    return words.get(str(kind_of_type(kind)), str(kind))
