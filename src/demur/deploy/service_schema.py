"""What may be asked of a served model and what it answers, as pydantic types built from the columns.

FastAPI makes the OpenAPI document of them, and pydantic checks the requests. Two things are done by hand: JSON is read
with Python's own reader, because pydantic's lets a name given twice and NaN pass; and what pydantic finds is said in
one sentence that names the row and the column.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.columns import Column, Schema, TableError
from demur.columns.column import as_type, no_such_value
from demur.columns.frames import listed, shown
from demur.errors import InputError
from demur.tabular import TableModel
from demur.tabular.class_labels import as_column
from demur.tabular.review_queue import AUDIT, DECLINED, WHY
from demur.tabular.table_model import LARGEST

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = [
    "Asked",
    "Question",
    "RefusedError",
    "Requests",
    "Row",
    "answer_type",
    "column_array",
    "health_type",
    "ready_type",
    "refusal_type",
]

TypeForm: TypeAlias = Any
"""A type as pydantic reads it; Python has no type for those that are made while a program runs."""

Value = str | float | int | bool | None
"""What a cell of a request may be."""

Row: TypeAlias = Mapping[str, Any]
"""A row of a request: values by the names of the columns."""

_LONGEST_SECONDS = 9e9
"""What a duration in nanoseconds can hold."""

_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_PATTERNS = {
    "date": f"^{_DATE}$",
    "date-time-local": f"^{_DATE}[T ]{_TIME}$",
    "date-time": f"^{_DATE}[T ]{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})$",
    "time-local": f"^{_TIME}$",
}
"""What narrows the formats of OpenAPI to those that Arrow reads in a CSV file."""

_MOST_CLASSES = 100
"""Classes that the document lists one by one."""

_LONGEST_NAME = 100

_REASON = (
    'Why it declines: "ambiguous" (between classes), or "novel" (unlike the training rows) and the columns whose '
    "values they do not hold; null where it answers."
)

_WHY = (
    f'Why the row is to be reviewed: "{DECLINED}", or "{AUDIT}" for an answered row that was drawn at random; null '
    "where it is not."
)

_MOST_PROBA = 1_000_000
"""Probabilities that one answer tells."""

_PROBA = "Whether to tell the calibrated probability of each class."


class RefusedError(TableError):
    """A request that cannot be answered: one sentence for whoever sent it, and the HTTP status.

    Parameters
    ----------
    message : str
    status : int, default 422

    Examples
    --------
    >>> error = RefusedError("there are no rows: give at least one")
    >>> error.status, str(error)
    (422, 'there are no rows: give at least one')
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, eq=False)
class Question:
    """What a request asks: rows, and the cost or the prices to decide for.

    Parameters
    ----------
    table : pyarrow.Table
    cost : float or None
        None for the model's own.
    proba : bool
        Whether the probability of each class is asked for.
    prices : dict of str to float, or None
        Of asking experts, other than the model's.
    """

    table: pa.Table
    cost: float | None
    proba: bool = False
    prices: Mapping[str, float] | None = None


@dataclass(frozen=True, eq=False)
class Asked:
    """A request that was read and checked.

    Parameters
    ----------
    rows : sequence of dict
    cost : float or None
        None for the model's own.
    proba : bool, default False
        Whether the probability of each class is to be told.
    prices : dict of str to float, optional
        Those of experts.
    codes : array of shape (n_rows, n_columns), optional
        The rows as the model takes them; None for a request that takes the long way.
    """

    rows: Sequence[Row]
    cost: float | None
    proba: bool = False
    prices: Mapping[str, float] | None = None
    codes: NDArray[np.float64] | None = None


class Requests:
    """The requests to one model: their type, and how a body becomes a question.

    Parameters
    ----------
    model : TableModel
    max_rows : int

    Attributes
    ----------
    type : type
        For FastAPI: one row, or many.

    Examples
    --------
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> requests = Requests(fit_table(table, "y", model="lr"), max_rows=10)
    >>> question = requests.read(b'{"row": {"size": 2}, "cost": 0.1}')
    >>> question.table.to_pylist(), question.cost
    ([{'size': 2.0}], 0.1)
    >>> requests.read(b'{"rows": [{"size": 2}, {"size": "big"}]}')
    Traceback (most recent call last):
        ...
    demur.deploy.service_schema.RefusedError: the request: column 'size', row 2, holds 'big', which is not a number: ...
    """

    def __init__(self, model: TableModel, max_rows: int) -> None:
        from typing import NotRequired

        from pydantic import FailFast, Field, TypeAdapter

        self.columns = {column.name: column for column in model.schema.columns}
        self.model, self.max_rows = model, max_rows
        row, own = _row_type(model.schema), {"cost": NotRequired[_cost_type(model)]}
        own["proba"] = NotRequired[_proba_type(model)]
        if model.asks_experts:
            own["prices"] = NotRequired[_prices_type(model)]
        self.parts = ("row", "rows", *own)
        many: TypeForm = Annotated[list[row], Field(min_length=1, max_length=max_rows), FailFast()]  # type: ignore[valid-type] # a type made from columns
        one_row = _object_type("OneRow", {"row": row, **own})
        many_rows = _object_type("ManyRows", {"rows": many, **own})
        self.type: TypeForm = one_row | many_rows
        self._one, self._many = TypeAdapter[Any](one_row), TypeAdapter[Any](many_rows)

    def read(self, body: bytes) -> Question:
        """Return the question, or raise a :class:`RefusedError` that says what is wrong with it."""
        return self.question(self.read_rows(body))

    def read_rows(self, body: bytes) -> "Asked":
        """Return what a request asks, checked but as it was written."""
        from pydantic import ValidationError

        document = parse(body)
        is_one = isinstance(document, dict) and "row" in document
        try:
            asked = (self._one if is_one else self._many).validate_python(document)
        except ValidationError as error:
            raise self._refusal(error) from None
        rows = [asked["row"]] if is_one else asked["rows"]
        if asked.get("proba", False):
            self._check_proba(len(rows))
        return Asked(rows, asked.get("cost"), bool(asked.get("proba", False)), asked.get("prices"))

    def question(self, asked: "Asked") -> Question:
        """Return the question that these rows ask."""
        arrays = [column_array(column, [row[name] for row in asked.rows]) for name, column in self.columns.items()]
        table = pa.Table.from_arrays(arrays, names=list(self.columns))
        return Question(table, asked.cost, asked.proba, asked.prices)

    def _check_proba(self, n_rows: int) -> None:
        """Refuse to tell probabilities where there are none, or more of them than an answer can hold."""
        try:
            self.model.check_proba()
        except InputError as error:
            raise RefusedError(str(error)) from None
        n_classes = len(self.model.classes)
        if n_rows * n_classes > _MOST_PROBA:
            problem = f"{n_rows:,} rows of {n_classes:,} classes have more than {_MOST_PROBA:,} probabilities"
            raise RefusedError(f"{problem}: send the rows in several requests", status=413)

    def _refusal(self, error: "ValidationError") -> RefusedError:
        """Say in one sentence what is wrong first of all."""
        problems = sorted(error.errors(include_url=False), key=lambda one: len(one["loc"]) > 1)  # what is outside first
        first = problems[0]
        match first["loc"]:
            case ():
                return RefusedError('the body is not an object: give {"rows": [{...}, ...]} or {"row": {...}}')
            case ("row",) if first["type"] != "extra_forbidden":
                return _not_a_row(1, first)
            case ("rows", int(row)):
                return _not_a_row(row + 1, first)
            case ("row", _, *_):
                return self._wrong_row(1, [one for one in problems if one["loc"][0] == "row"], 1)
            case ("rows", int(row), _, *_):
                return self._wrong_row(row + 1, [one for one in problems if one["loc"][:2] == ("rows", row)], 2)
        return self._wrong_part(problems)

    def _wrong_part(self, problems: "Sequence[ErrorDetails]") -> RefusedError:
        first = problems[0]
        name, kind = str(first["loc"][0]), first["type"]
        if kind == "extra_forbidden" and name in ("row", "rows"):
            return RefusedError('the request has both row and rows: give {"rows": [{...}, ...]} or {"row": {...}}')
        if kind == "extra_forbidden":
            unknown = [str(one["loc"][0]) for one in problems if one["type"] == kind]
            hint = _did_you_mean(unknown, self.parts)
            others = f"{', '.join(self.parts[1:-1])} and {self.parts[-1]}"
            return RefusedError(f"the request has {listed(unknown)} beside {others}{hint}")
        if name == "prices":
            return RefusedError(_NO_PRICES)
        if name == "cost":
            return RefusedError(f"cost must be a number in [0, 1), got {shown(as_text(first['input']))}.")
        if name == "proba":
            return RefusedError(f"proba must be true or false, got {shown(as_text(first['input']))}.")
        if kind == "missing":
            return RefusedError('the request has no rows: give {"rows": [{...}, ...]} or {"row": {...}}')
        if kind == "too_short":
            return RefusedError("the request has no rows: give at least one row")
        if kind == "too_long":
            problem = f"the request has {len(first['input']):,} rows, and {self.max_rows:,} are the most"
            return RefusedError(f"{problem}: send them in several requests", status=413)
        return RefusedError(f"rows is {shown(as_text(first['input']))} and not a list: give a list of objects")

    def _wrong_row(self, row: int, problems: "Sequence[ErrorDetails]", depth: int) -> RefusedError:
        by_kind: dict[str, list[str]] = {"missing": [], "extra_forbidden": []}
        for one in problems:
            by_kind.setdefault(one["type"], []).append(str(one["loc"][depth]))
        missing, extra = by_kind["missing"], by_kind["extra_forbidden"]
        if missing or extra:
            found = [f"{word} {listed(names)}" for word, names in (("missing", missing), ("extra", extra)) if names]
            advice = ["give null for what is not known"] if missing else []
            if extra:
                advice.append(f"leave out what is extra{_did_you_mean(extra, missing or list(self.columns))}")
            problem = f"row {row:,} does not have the columns that the model was fitted on"
            return RefusedError(f"{problem}: {'; '.join(found + advice)}")
        value, column = problems[0]["input"], self.columns[str(problems[0]["loc"][depth])]
        is_number = type(value) in (int, float)
        if is_number and column.kind == "number":
            advice_ = f"give a number between {-LARGEST:g} and {LARGEST:g}, or null"
        elif is_number and column.kind == "time":
            advice_ = f"give between {-_LONGEST_SECONDS:g} and {_LONGEST_SECONDS:g} seconds"
        else:
            return _no_such_value(column, row, value)
        place = f"the request: column {shown(column.name)}, row {row:,}, holds {shown(as_text(value))}"
        return RefusedError(f"{place}, which is too large: {advice_}")


def parse(body: bytes) -> object:
    """Return what a JSON text holds; what JSON leaves to each reader, such as a name given twice, is refused.

    Examples
    --------
    >>> parse(b'{"cost": NaN}')
    Traceback (most recent call last):
        ...
    demur.deploy.service_schema.RefusedError: the body is not JSON: it holds NaN; give null for a missing value
    """
    try:
        text = body.decode()
        if text.startswith("\ufeff"):
            raise json.JSONDecodeError("unexpected byte order mark", text, 0)
        return _READER.decode(text)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the body is not UTF-8 text (byte {error.start + 1:,}): send JSON", 400) from None
    except json.JSONDecodeError as error:
        words = error.msg[:1].lower() + error.msg[1:]
        problem = f"the body is not JSON: {words} at line {error.lineno:,}, column {error.colno:,}"
        raise RefusedError(problem, 400) from None
    except RecursionError:
        raise RefusedError("the body is nested too deeply: give a list of objects", 400) from None
    except RefusedError:
        raise
    except ValueError:  # Python's limit for the digits of a whole number
        raise RefusedError("the body holds a number with thousands of digits: give fewer", 400) from None


def _refuse_constant(name: str) -> None:
    raise RefusedError(f"the body is not JSON: it holds {name}; give null for a missing value", 400)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RefusedError(f"the body holds {shown(twice)} twice in one object: give it once", 400)
    return result


_READER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)


def as_text(value: object) -> str:
    """Return a value of a request as a message shows it.

    Examples
    --------
    >>> as_text("big"), as_text(True), as_text([[1]])
    ('big', 'true', '[...]')
    """
    if isinstance(value, list | dict):  # they may be large and deep
        return "[...]" if isinstance(value, list) else "{...}"
    return value if isinstance(value, str) else json.dumps(value)


def _not_a_row(row: int, problem: "ErrorDetails") -> RefusedError:
    return RefusedError(f"row {row:,} is {shown(as_text(problem['input']))} and not an object: give names and values")


def _no_such_value(column: Column, row: int, value: object) -> RefusedError:
    advice = "correct it or give null"
    return RefusedError(str(no_such_value("the request", column.name, as_text(value), column.arrow_type, row, advice)))


def _did_you_mean(wrong: Sequence[str], known: Sequence[str]) -> str:
    # the search takes time that grows with the square of the name's length
    close = get_close_matches(wrong[0][:_LONGEST_NAME], known, n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""


# Types ----------------------------------------------------------------------------------------------------------------


def _object_type(name: str, parts: Mapping[str, Any]) -> TypeForm:
    """Return the type of an object with these parts and no others, of exactly these types."""
    from pydantic import ConfigDict
    from typing_extensions import TypedDict

    make: Any = TypedDict  # the names are known only now
    made = make(name, dict(parts))
    made.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return made


def _described(type_: TypeForm, schema: Mapping[str, object]) -> TypeForm:
    from pydantic import WithJsonSchema

    return Annotated[type_, WithJsonSchema(dict(schema))]


def _row_type(schema: Schema) -> TypeForm:
    from typing import NotRequired

    from pydantic import Field

    unused = dict(schema.set_aside)
    if schema.target is not None:
        unused[schema.target] = "it is what the model predicts"
    ignored = {
        name: NotRequired[Annotated[Any, Field(description=f"Not used: {reason}.")]] for name, reason in unused.items()
    }
    return _object_type("Row", {column.name: _value_type(column) | None for column in schema.columns} | ignored)


def _value_type(column: Column) -> TypeForm:
    """Return the type of one value of a column; what a date is, Arrow judges later, as it does in a CSV file."""
    from pydantic import BeforeValidator, Field

    if column.kind == "number":
        return Annotated[float, Field(ge=-LARGEST, le=LARGEST)]
    if column.kind == "boolean":
        return Annotated[bool, Field()]
    if column.kind == "category":
        examples = list(column.categories[:20])
        text: TypeForm = Annotated[str, Field(examples=examples)]
        return text | Annotated[int, BeforeValidator(_whole)] if column.fits(pa.int64()) else text
    if column.kind == "time":
        seconds = Annotated[float, Field(ge=-_LONGEST_SECONDS, le=_LONGEST_SECONDS)]
        return _described(str, _written_as("time-local")) | seconds
    formats = ["date-time"] if column.zoned else ["date", "date-time-local"]
    return _described(str, {"anyOf": [_written_as(one) for one in formats]})


def _whole(value: object) -> object:
    """Take 2.0, which is a whole number in JSON, as one."""
    return int(value) if type(value) is float and value.is_integer() else value


def _written_as(format_: str) -> dict[str, str]:
    return {"type": "string", "format": format_, "pattern": _PATTERNS[format_]}


def _cost_type(model: TableModel) -> TypeForm:
    """Return the type of a cost: any number, which the model judges in its own words."""
    from pydantic import BeforeValidator

    words = "The price of one rejection; a wrong answer costs 1."
    schema: dict[str, object]
    if model.cost is None:
        schema = {"type": "null", "description": f"{words} This model has none: {model.why_cost_fixed}."}
    elif model.cost_adjustable:
        words = f"{words} {model.cost:g} where it is left out."
        number_ = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
        schema = {"anyOf": [number_, {"type": "null"}], "description": words}
    else:
        words = f"{words} {model.cost:g} where it is left out, and no other: {model.why_cost_fixed}."
        schema = {"enum": [model.cost, None], "description": words}
    number = Annotated[float, BeforeValidator(_number_or_infinity)]
    return _described(number | None, schema)


_NO_PRICES = 'prices must be an object of names and numbers of at least 0, such as {"nurse": 0.1}'


def _prices_type(model: TableModel) -> TypeForm:
    """Return the type of prices: numbers by the names of experts, which the model judges in its own words."""
    from pydantic import BeforeValidator

    known = {
        name: {"type": "number", "minimum": 0, "description": f"{price:g} where it is left out."}
        for name, price in model.experts.prices.items()
    }
    object_ = {"type": "object", "properties": known, "additionalProperties": False}
    schema = {
        "anyOf": [object_, {"type": "null"}],
        "description": "What asking each expert costs; a wrong answer costs 1.",
    }
    number = Annotated[float, BeforeValidator(_number_or_infinity)]
    return _described(dict[str, number] | None, schema)


def _proba_type(model: TableModel) -> TypeForm:
    if model.has_proba:
        return _described(bool, {"type": "boolean", "description": _PROBA})
    return _described(bool, {"const": False, "description": f"{_PROBA} This model has none."})


def _number_or_infinity(value: object) -> object:
    """Take a whole number beyond all floats as infinite, so that the model refuses it like any cost too high."""
    if type(value) is int:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return value


def answer_type(model: TableModel, *, audits: bool = False) -> TypeForm:
    """Return the type of the answer to a request; with audits, each decision says why it is to be reviewed."""
    from typing import NotRequired

    from pydantic import Field

    classes = as_column(model.classes, model.label_type).to_pylist()
    named: dict[str, object] = {"type": "string" if model.label_type == "text" else model.label_type}
    label = {"enum": classes} if len(classes) <= _MOST_CLASSES else named
    no_answer = {"description": "The class, or null where the model declines.", "anyOf": [label, {"type": "null"}]}
    confidence = f"The {'probability' if model.has_proba else 'trained score'} of the first choice."
    parts = [
        _described(Any, no_answer),
        bool,
        Annotated[float, Field(description=confidence)],
        _described(Any, label),
        _described(Any, label),
        Annotated[str | None, Field(description=_REASON)],
    ]
    words = "Who is to be asked, or null where the model answers."
    if model.asks_experts:
        names = {"anyOf": [{"enum": list(model.experts.columns)}, {"type": "null"}], "description": words}
        parts += [_described(Any, names), Annotated[float, Field(description="The expected cost of that.")]]
    told = NotRequired[Annotated[dict[str, float], Field(description="The probability of each class, if asked for.")]]
    own = dict(zip(model.answer_columns(), parts, strict=True))
    if audits:
        own[WHY] = _described(Any, {"enum": [DECLINED, AUDIT, None], "description": _WHY})
    decision = _object_type("Decision", {**own, "proba": told})
    words = "The cost that was decided for; null where the model's rule has no single one."
    about = _object_type("About", {"name": str, "target": str})
    cost = Annotated[float | None, Field(description=words)]
    decisions: TypeForm = list[decision]  # type: ignore[valid-type] # a type made from columns
    whole = {"decisions": decisions, "cost": cost, "model": about}
    if model.asks_experts:
        whole["prices"] = _object_type("Prices", dict.fromkeys(model.experts.prices, float))
    return _object_type("Decisions", whole)


def refusal_type() -> TypeForm:
    """Return the type of what a request is told that is not answered."""
    from pydantic import Field

    words = "One sentence: what is wrong, and what to do."
    return _object_type("Error", {"error": Annotated[str, Field(description=words)]})


def health_type() -> TypeForm:
    """Return the type of what ``/health`` answers."""
    parts = {"status": _described(str, {"const": "ok"}), "version": str, "model": str, "target": str}
    return _object_type("Health", {**parts, "n_classes": int, "uptime_seconds": float})


def ready_type() -> TypeForm:
    """Return the type of what ``/ready`` answers."""
    from typing import NotRequired

    from pydantic import Field

    status = _described(str, {"enum": ["ready", "stopping"]})
    reload_ = Annotated[str, Field(description="Why a newer model in the folder does not answer.")]
    return _object_type("Ready", {"status": status, "reload": NotRequired[reload_]})


# Values ---------------------------------------------------------------------------------------------------------------


def column_array(column: Column, values: Sequence[Value]) -> pa.Array:
    """Return the values of a column, of the types that a request may have, as an Arrow array that the schema encodes.

    Raises
    ------
    RefusedError
        If a text is not a date or a time, or not text at all.

    Examples
    --------
    >>> column_array(Column("size", "number"), [1, None, 2.5]).to_pylist()
    [1.0, None, 2.5]
    """
    if column.kind == "number":
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if column.kind == "boolean":
        return pa.array(values, pa.bool_())
    if column.kind == "time":
        per_second = 10**9 if column.unit == "ns" else 10**6
        ticks = [None if one is None else _ticks(column, row, one, per_second) for row, one in enumerate(values, 1)]
        return pa.array(ticks, pa.int64()).cast(pa.duration(column.unit))
    strings = _strings(column, [str(value) if type(value) is int else value for value in values])
    return strings if column.kind == "category" else _dates(column, strings)


def _ticks(column: Column, row: int, value: Value, per_second: int) -> int:
    """Take times of day, and seconds for a column of durations: both are seconds to the model."""
    if not isinstance(value, str):
        assert value is not None
        return round(value * per_second)
    try:
        if not re.fullmatch(_TIME, value):
            raise ValueError
        moment = time.fromisoformat(value)
    except ValueError:
        raise _no_such_value(column, row, value) from None
    seconds = moment.hour * 3600 + moment.minute * 60 + moment.second
    return seconds * per_second + moment.microsecond * (per_second // 10**6)


def _strings(column: Column, values: Sequence[Value]) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:  # JSON can write half of a surrogate pair, which is not text
        row = next(row for row, value in enumerate(values, 1) if isinstance(value, str) and not _is_text(value))
        raise _no_such_value(column, row, values[row - 1]) from None


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _dates(column: Column, strings: pa.Array) -> pa.Array:
    try:
        return as_type(strings, column.arrow_type, column.name, "the request")
    except TableError:
        for row in range(len(strings)):
            try:
                as_type(strings[row : row + 1], column.arrow_type, column.name, "the request")
            except TableError:
                raise _no_such_value(column, row + 1, strings[row].as_py()) from None
        raise
