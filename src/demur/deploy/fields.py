"""One column of a table as JSON holds it: what it may be, and how it becomes an Arrow array."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import time
from typing import Any

import pyarrow as pa

from demur.columns.column import as_type, no_such_value
from demur.columns.table_errors import shown
from demur.deploy.refusal import RefusedError
from demur.tabular import Column, TableError
from demur.tabular.table_model import LARGEST

__all__ = ["Field", "as_text"]

_LONGEST_SECONDS = 9e9
"""What a duration in nanoseconds can hold."""

_TIME = r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?"
_DATE = r"\d{4}-\d\d-\d\d"
_PATTERNS = {
    "date": f"^{_DATE}$",
    "date-time-local": f"^{_DATE}[T ]{_TIME}$",
    "date-time": f"^{_DATE}[T ]{_TIME}(Z|[+-]\\d\\d:\\d\\d)$",
    "time-local": f"^{_TIME}$",
}
"""What narrows the formats of OpenAPI to those that Arrow reads in a CSV file."""


@dataclass(frozen=True)
class Field:
    """A feature column in a request.

    Parameters
    ----------
    column : Column

    Examples
    --------
    >>> Field(Column("size", "number")).array([1, None, 2.5]).to_pylist()
    [1.0, None, 2.5]
    >>> Field(Column("size", "number")).array([1, "big"])
    Traceback (most recent call last):
        ...
    demur.deploy.refusal.RefusedError: the request: column 'size', row 2, holds 'big', which is no number: ...
    """

    column: Column

    @property
    def takes_integers(self) -> bool:
        """Whether a category may be written as a whole number, because all its values are."""
        return self.column.kind == "category" and self.column.fits(pa.int64())

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON schema of one value."""
        kind = self.column.kind
        if kind == "number":
            return {"type": ["number", "null"], "minimum": -LARGEST, "maximum": LARGEST}
        if kind == "boolean":
            return {"type": ["boolean", "null"]}
        if kind == "category":
            types = ["string", "integer", "null"] if self.takes_integers else ["string", "null"]
            return {"type": types, "examples": list(self.column.categories[:20])}
        if kind == "time":
            seconds = {"type": "number", "minimum": -_LONGEST_SECONDS, "maximum": _LONGEST_SECONDS}
            return {"anyOf": [_written_as("time-local"), seconds, {"type": "null"}]}
        formats = ["date-time"] if self.column.zoned else ["date", "date-time-local"]
        return {"anyOf": [*map(_written_as, formats), {"type": "null"}]}

    def array(self, values: Sequence[Any]) -> Any:
        """Return the values as an Arrow array that the schema encodes, or refuse the first that is none."""
        make: Callable[[Sequence[Any]], Any] = getattr(self, f"_{self.column.kind}")
        return make(values)

    def _number(self, values: Sequence[Any]) -> Any:
        for row, value in enumerate(values):
            if value is None:
                continue
            if type(value) is not float and type(value) is not int:
                raise self._no_such_value(row, value)
            if not -LARGEST <= value <= LARGEST:
                raise self._beyond(row, value, f"give a number between {-LARGEST:g} and {LARGEST:g}, or null")
        return pa.array([None if value is None else float(value) for value in values], pa.float64())

    def _boolean(self, values: Sequence[Any]) -> Any:
        self._require(values, bool)
        return pa.array(values, pa.bool_())

    def _category(self, values: Sequence[Any]) -> Any:
        if self.takes_integers:
            self._require(values, str, int)
            values = [str(value) if type(value) is int else value for value in values]
        self._require(values, str)
        return self._strings(values)

    def _date(self, values: Sequence[Any]) -> Any:
        self._require(values, str)
        column, strings = self.column, self._strings(values)
        try:
            return as_type(strings, column.arrow_type, column.name, "the request")
        except TableError:
            for row in range(len(strings)):
                try:
                    as_type(strings[row : row + 1], column.arrow_type, column.name, "the request")
                except TableError:
                    raise self._no_such_value(row, values[row]) from None
            raise

    def _time(self, values: Sequence[Any]) -> Any:
        """Take times of day, and seconds for a column of durations: both are seconds to the model."""
        self._require(values, str, int, float)
        per_second = 10**9 if self.column.unit == "ns" else 10**6
        ticks = [None if value is None else self._ticks(row, value, per_second) for row, value in enumerate(values)]
        return pa.array(ticks, pa.int64()).cast(pa.duration(self.column.unit))

    def _ticks(self, row: int, value: Any, per_second: int) -> int:
        if type(value) is str:
            try:
                if not re.fullmatch(_TIME, value):
                    raise ValueError
                moment = time.fromisoformat(value)
            except ValueError:
                raise self._no_such_value(row, value) from None
            seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
            return seconds * per_second + moment.microsecond * (per_second // 10**6)
        if not -_LONGEST_SECONDS <= value <= _LONGEST_SECONDS:
            raise self._beyond(row, value, f"give between {-_LONGEST_SECONDS:g} and {_LONGEST_SECONDS:g} seconds")
        ticks: int = round(value * per_second)
        return ticks

    def _strings(self, values: Sequence[Any]) -> Any:
        try:
            return pa.array(values, pa.string())
        except UnicodeEncodeError:  # JSON can write half of a surrogate pair, which is no text
            row = next(row for row, value in enumerate(values) if value is not None and not _is_text(value))
            raise self._no_such_value(row, values[row]) from None

    def _require(self, values: Sequence[Any], *types: type) -> None:
        """Refuse what is of another type; true is no number, so that subclasses do not count."""
        for row, value in enumerate(values):
            if value is not None and type(value) not in types:
                raise self._no_such_value(row, value)

    def _no_such_value(self, row: int, value: Any) -> RefusedError:
        words = no_such_value("the request", self.column.name, as_text(value), self.column.arrow_type, row + 1)
        return RefusedError(str(words))

    def _beyond(self, row: int, value: Any, advice: str) -> RefusedError:
        place = f"the request: column {shown(self.column.name)}, row {row + 1:,}, holds {shown(as_text(value))}"
        return RefusedError(f"{place}, which is too large: {advice}")


def as_text(value: Any) -> str:
    """Return a value of a request as a message shows it.

    Examples
    --------
    >>> as_text("big"), as_text(True), as_text([[1]])
    ('big', 'true', '[...]')
    """
    if isinstance(value, list | dict):  # they may be large and deep
        return "[...]" if isinstance(value, list) else "{...}"
    return value if isinstance(value, str) else json.dumps(value)


def _written_as(format_: str) -> dict[str, Any]:
    return {"type": "string", "format": format_, "pattern": _PATTERNS[format_]}


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
