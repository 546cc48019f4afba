"""One feature column: what it holds, and how it becomes numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.columns.arrow_types import as_type

__all__ = ["Column", "Kind", "kind_of_type"]

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "time"]
KINDS: tuple[str, ...] = get_args(Kind)

_SECONDS_PER_DAY = 86_400
_PER_SECOND = {"us": 1e6, "ns": 1e9}
_IS_KIND: dict[Kind, Callable[[Any], bool]] = {
    "boolean": pa.types.is_boolean,
    "number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
    "date": lambda t: pa.types.is_date(t) or pa.types.is_timestamp(t),
    "time": lambda t: pa.types.is_time(t) or pa.types.is_duration(t),
    "category": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
}


def kind_of_type(type_: Any) -> Kind | None:
    """Return the kind of column that an Arrow type makes, or None for lists, records and bytes.

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
        Numbers stay as they are, truth values become 0 and 1, dates days since 1970, times seconds, and categories
        their position in ``categories``.
    categories : tuple of str
        The values of a category, the most frequent first.
    other : bool
        Whether values beyond these share one more code.
    zoned : bool
        Whether a date is given with its time zone, as in ``2024-12-31T23:59Z``.
    unit : {"us", "ns"}
        The precision of dates and times of day: nanoseconds reach from 1677 to 2262 only.

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
        """The number of different codes; 0 for what is no category."""
        return len(self.categories) + self.other

    @property
    def arrow_type(self) -> Any:
        """The type to insist on when the column is read."""
        date = pa.timestamp(self.unit, tz="UTC" if self.zoned else None)
        types = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string(), "time": pa.time64(self.unit)}
        return types.get(self.kind, date)

    def fits(self, type_: Any) -> bool:
        """Tell whether a column of an Arrow type can stand for this one."""
        if type_ is None or pa.types.is_null(type_):
            return True  # text that is still to be read, or nothing but missing values
        if self.kind != "category":
            return kind_of_type(type_.value_type if pa.types.is_dictionary(type_) else type_) == self.kind
        numbered = pa.types.is_integer(type_) and all(value.lstrip("-").isdigit() for value in self.categories)
        return kind_of_type(type_) == "category" or numbered

    def encode(self, values: Any, where: str) -> NDArray[np.float64]:
        """Return the column as numbers, NaN where a value is missing or infinite."""
        if self.kind == "category":
            return self._codes(as_type(values, pa.string(), self.name, where))
        if self.kind == "date":
            values = as_type(as_type(values, self.arrow_type, self.name, where), pa.int64(), self.name, where)
            return _as_float(values) / (_SECONDS_PER_DAY * _PER_SECOND[self.unit])
        if self.kind == "time":
            type_ = pa.duration(self.unit) if pa.types.is_duration(values.type) else self.arrow_type
            values = as_type(as_type(values, type_, self.name, where), pa.int64(), self.name, where)
            return _as_float(values) / _PER_SECOND[self.unit]
        if self.kind == "boolean" and not pa.types.is_boolean(values.type):
            values = as_type(values, pa.bool_(), self.name, where)
        return _as_float(as_type(values, pa.float64(), self.name, where))

    def _codes(self, text: Any) -> NDArray[np.float64]:
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        if self.other:
            beyond = pc.and_(pc.is_null(found), pc.is_valid(text))
            found = pc.if_else(beyond, pa.scalar(len(self.categories), pa.int32()), found)
        return _as_float(found)


def _as_float(values: Any) -> NDArray[np.float64]:
    """Return numbers as an array, with NaN for what is missing or infinite."""
    # A chunked array takes no such argument, and always copies where it must.
    array = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    array = np.asarray(array, dtype=np.float64)
    infinite = np.isinf(array)
    return np.where(infinite, np.nan, array) if infinite.any() else array
