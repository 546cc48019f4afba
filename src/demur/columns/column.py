"""One column: Arrow types, what a feature holds, how text writes numbers and dates, and how it becomes numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.columns.frames import TableError, Values, plain_array, shown

__all__ = [
    "Column",
    "Decimal",
    "Kind",
    "as_type",
    "check_decimal",
    "dates_of_text",
    "decimal_of",
    "iso_dates",
    "kind_of_type",
    "no_such_value",
    "order_of_dates",
    "type_in_words",
]

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "time"]
KINDS: tuple[str, ...] = get_args(Kind)

_SECONDS_PER_DAY = 86_400
_PER_SECOND = {"us": 1e6, "ns": 1e9}
_IS_KIND: dict[Kind, Callable[[pa.DataType], bool]] = {
    "boolean": pa.types.is_boolean,
    "number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
    "date": lambda t: pa.types.is_date(t) or pa.types.is_timestamp(t),
    "time": lambda t: pa.types.is_time(t) or pa.types.is_duration(t),
    "category": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
}


def kind_of_type(type_: pa.DataType) -> Kind | None:
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
        """The number of different codes; 0 for everything but categories."""
        return len(self.categories) + self.other

    @property
    def arrow_type(self) -> pa.DataType:
        """The type to insist on when the column is read."""
        date = pa.timestamp(self.unit, tz="UTC" if self.zoned else None)
        types = {"number": pa.float64(), "boolean": pa.bool_(), "category": pa.string(), "time": pa.time64(self.unit)}
        return types.get(self.kind, date)

    def fits(self, type_: pa.DataType | None) -> bool:
        """Tell whether a column of an Arrow type can stand for this one."""
        if type_ is None or pa.types.is_null(type_):
            return True  # text that is still to be read, or nothing but missing values
        if self.kind != "category":
            return kind_of_type(type_.value_type if pa.types.is_dictionary(type_) else type_) == self.kind
        numbered = pa.types.is_integer(type_) and all(value.lstrip("-").isdigit() for value in self.categories)
        return kind_of_type(type_) == "category" or numbered

    def encode(self, values: Values, where: str) -> NDArray[np.float64]:
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

    def _codes(self, text: Values) -> NDArray[np.float64]:
        found = pc.index_in(text, value_set=pa.array(self.categories, pa.string()))
        if self.other:
            beyond = pc.and_(pc.is_null(found), pc.is_valid(text))
            found = pc.if_else(beyond, pa.scalar(len(self.categories), pa.int32()), found)
        return _as_float(found)


def _as_float(values: Values) -> NDArray[np.float64]:
    """Return numbers as an array, with NaN for what is missing or infinite."""
    # A chunked array takes no such argument, and always copies where it must.
    array = values.to_numpy() if isinstance(values, pa.ChunkedArray) else values.to_numpy(zero_copy_only=False)
    array = np.asarray(array, dtype=np.float64)
    infinite = np.isinf(array)
    return np.where(infinite, np.nan, array) if infinite.any() else array


def as_type(values: Values, wanted: pa.DataType, column: str, where: str) -> Values:
    """Return an Arrow array as another type, or say which of its values is not of that type.

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
    tests = {
        "a number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
        "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
        "a date with a time zone, such as 2024-12-31T23:59Z": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
        "a date such as 2024-12-31 or 2024-12-31 23:59": lambda t: pa.types.is_date(t) or pa.types.is_timestamp(t),
        "a time of day such as 23:59": lambda t: pa.types.is_time(t),
        "a truth value such as true or false": pa.types.is_boolean,
    }
    return next((words for words, test in tests.items() if test(kind)), str(kind))


Decimal: TypeAlias = Literal[".", ","]

_WITH_COMMA = r"^\s*[-+]?(\d+|\d*,\d+)([eE][-+]?\d+)?\s*$"
# 1,234 may be a thousand; 0,234 and 1,5 and 1234,5 are not
_SURELY_DECIMAL = r"^\s*[-+]?(\d*,(\d|\d\d|\d{4,})|0*,\d+|\d{4,},\d+|\d+,\d+[eE].*)\s*([eE][-+]?\d+)?\s*$"
_LOCAL_DATE = (
    r"^\s*(?P<first>\d{1,2})[./-](?P<second>\d{1,2})[./-](?P<year>\d{4})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<seconds>\d{2}(?:\.\d{1,6})?))?)?\s*$"
)
_FIRST_LOOK = 50


def check_decimal(decimal: str | None) -> None:
    """Refuse what is neither a comma nor a point.

    Examples
    --------
    >>> check_decimal(";")
    Traceback (most recent call last):
    demur.columns.frames.TableError: the decimal sign ';' is unknown: give , or .
    """
    if decimal not in (None, ".", ","):
        raise TableError(f"the decimal sign {shown(decimal)} is unknown: give , or .")


def decimal_of(columns: dict[str, Values], *, points: bool) -> tuple[Decimal, str]:
    """Find the decimal sign of a file, with a remark for people, or an empty one.

    Parameters
    ----------
    columns : dict of str to text
        The columns that do not hold numbers with a decimal point, each without its missing values.
    points : bool
        Whether other columns of the file hold numbers with a decimal point.

    Examples
    --------
    >>> decimal_of({"x": pa.array(["1,5", "12"])}, points=False)
    (',', "numbers such as '1,5' are read with a decimal comma")
    >>> decimal_of({"x": pa.array(["1,234"])}, points=False)
    ('.', "'1,234' in column 'x' may be 1.234 or 1234, so that it stays text: say --decimal , if it is the former")
    """
    remark = ""
    for name, text in columns.items():
        if not _all_match(text, _WITH_COMMA):
            continue
        with_comma = text.filter(pc.match_substring(text, ","))
        if not len(with_comma):
            continue
        example = shown(with_comma[0].as_py().strip())
        if points:
            remark = (
                f"column {shown(name)} holds {example} and other columns numbers with a decimal point, so that it "
                "stays text: write both alike"
            )
            continue
        sure = with_comma.filter(pc.match_substring_regex(with_comma, _SURELY_DECIMAL))
        if len(sure):
            return ",", f"numbers such as {shown(sure[0].as_py().strip())} are read with a decimal comma"
        point, plain = example.strip("'").replace(",", "."), example.strip("'").replace(",", "")
        remark = (
            f"{example} in column {shown(name)} may be {point} or {plain}, so that it stays text: say --decimal , if "
            "it is the former"
        )
    return ".", remark


def order_of_dates(columns: dict[str, Values], dayfirst: bool | None = None) -> tuple[bool | None, list[str], str]:
    """Find the columns with dates such as 31.12.2024, and whether the day comes first: by days beyond the 12th.

    Parameters
    ----------
    columns : dict of str to text
        Each without its missing values.
    dayfirst : bool, optional
        What is known about it.

    Returns
    -------
    tuple of bool or None, list of names, str
        The order, or None if there is nothing to tell it by; the columns; a remark for people, or an empty one.

    Examples
    --------
    >>> order_of_dates({"born": pa.array(["31.12.1999", "1.2.2000"])})
    (True, ['born'], "dates such as '31.12.1999' are read with the day first")
    >>> order_of_dates({"born": pa.array(["11/12/1999", "1/2/2000"])})
    (None, [], "dates such as '11/12/1999' in column 'born' may begin with the day or the month, so that they stay ...
    """
    local = {name: text for name, text in columns.items() if _all_match(text, _LOCAL_DATE)}
    if not local:
        return dayfirst, [], ""
    evidence = {name: _orders(text) for name, text in local.items()}
    if dayfirst is None:
        said = {order for orders in evidence.values() for order, _ in orders}
        if len(said) != 1:
            name = next(iter(local))
            why = "may begin with the day or the month" if not said else "begin with the day or the month by turns"
            remark = (
                f"dates such as {shown(local[name][0].as_py().strip())} in column {shown(name)} {why}, so that they "
                "stay text: say --dayfirst or --no-dayfirst"
            )
            return None, [], remark
        dayfirst = said.pop()
    fitting = [name for name in local if (not dayfirst) not in {order for order, _ in evidence[name]}]
    examples = [value for name in fitting for _, value in evidence[name]] + [
        local[name][0].as_py().strip() for name in fitting
    ]
    if not fitting:
        return dayfirst, [], ""
    return dayfirst, fitting, f"dates such as {shown(examples[0])} are read with the {_word(dayfirst)} first"


def dates_of_text(text: Values, dayfirst: bool) -> Values | None:
    """Return local dates as Arrow dates, or as points in time where some have a time; None if the calendar lacks one.

    Examples
    --------
    >>> dates_of_text(pa.array(["31.12.2024", None]), True).to_pylist()
    [datetime.date(2024, 12, 31), None]
    >>> dates_of_text(pa.array(["31.02.2024"]), True) is None
    True
    """
    iso = iso_dates(text, dayfirst)
    with_time = pc.any(pc.match_substring(iso, ":")).as_py()
    try:
        return pc.cast(iso, pa.timestamp("us") if with_time else pa.date32())
    except pa.ArrowException:
        return None


def iso_dates(text: Values, dayfirst: bool) -> Values:
    """Return text with dates such as 31.12.2024 written as 2024-12-31, and everything else as it is.

    Examples
    --------
    >>> iso_dates(pa.array(["31.12.2024", "1.2.2024 3:04", "2024-12-31"]), True).to_pylist()
    ['2024-12-31', '2024-02-01 03:04:00', '2024-12-31']
    """
    parts = pc.extract_regex(text, _LOCAL_DATE)
    first, second, year, hour, minute, seconds = (pc.struct_field(parts, position) for position in range(6))
    day, month = (first, second) if dayfirst else (second, first)
    date = pc.binary_join_element_wise(year, _padded(month), _padded(day), "-")
    seconds = pc.if_else(pc.equal(seconds, ""), "00", seconds)
    time = pc.binary_join_element_wise(_padded(hour), minute, seconds, ":")
    moment = pc.binary_join_element_wise(date, time, " ")
    iso = pc.if_else(pc.equal(hour, ""), date, moment)
    return pc.if_else(pc.is_valid(parts), iso, text)


def _padded(number: Values) -> Values:
    return pc.utf8_lpad(number, 2, padding="0")


def _orders(text: Values) -> list[tuple[bool, str]]:
    """Return the orders that days beyond the 12th speak for, each with a date that shows it."""
    parts = pc.extract_regex(text, _LOCAL_DATE)
    found = []
    for position, dayfirst in ((0, True), (1, False)):
        beyond = pc.greater(pc.cast(pc.struct_field(parts, position), pa.int64()), 12)
        if pc.any(beyond).as_py():
            found.append((dayfirst, text.filter(beyond)[0].as_py().strip()))
    return found


def _all_match(text: Values, pattern: str) -> bool:
    """Tell whether all values match; a few are enough to see that a column of words does not."""
    if not len(text):
        return False
    return all(pc.all(pc.match_substring_regex(part, pattern)).as_py() for part in (text.slice(0, _FIRST_LOOK), text))


def _word(dayfirst: bool) -> str:
    return "day" if dayfirst else "month"
