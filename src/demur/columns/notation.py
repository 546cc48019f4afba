"""How a text file writes numbers and dates: with a decimal comma, with the day or the month first."""

from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from demur.columns.column import Values
from demur.columns.table_errors import TableError, shown

__all__ = ["Decimal", "check_decimal", "dates_of_text", "decimal_of", "iso_dates", "order_of_dates"]

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
    demur.columns.table_errors.TableError: the decimal sign ';' is unknown: give , or .
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
