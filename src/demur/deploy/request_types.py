"""Requests to a served model and its answers, as pydantic types made from the model's columns."""

import re
from collections.abc import Mapping, Sequence
from datetime import time
from functools import partial
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import pyarrow as pa
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    FailFast,
    Field,
    NaiveDatetime,
    Tag,
    WithJsonSchema,
)
from typing_extensions import TypedDict

from demur.array_types import AnyMapping
from demur.columns import Column, TableError
from demur.columns.frames import shown
from demur.columns.schema import LARGEST
from demur.tabular import CallsModel, TableModel
from demur.tabular.review_queue import AUDIT, DECLINED, WHY
from demur.tabular.table_files import label_text

TypeForm: TypeAlias = Any
"""A pydantic type; Python has no annotation for types that are created at run time."""


_TIME = r"[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_PATTERNS = {"date-time-local": f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T{_TIME}$", "time-local": f"^{_TIME}$"}
"""Few tools support these formats of OpenAPI, so the document has a pattern as well. Dates without a time are also
accepted."""


class RequestError(TableError):
    """A request that cannot be answered: one sentence for the client, and the HTTP status.

    Parameters
    ----------
    message : str
    status : int, default 422

    Examples
    --------
    >>> RequestError("the body is larger than 10 bytes", 413).status
    413
    """

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def _object_type(name: str, parts: Mapping[str, TypeForm]) -> TypeForm:
    """Return the type of an object with exactly these fields; values are not converted."""
    make: Any = TypedDict  # the names are known only now
    made = make(name, dict(parts))
    made.__pydantic_config__ = ConfigDict(extra="forbid", strict=True)
    return made


# Questions ------------------------------------------------------------------------------------------------------------


def question_type(model: TableModel, max_rows: int) -> TypeForm:
    """Return the type of a request: one row or many, and the cost or prices to decide for.

    Parameters
    ----------
    model : TableModel
    max_rows : int

    Examples
    --------
    >>> from pydantic import TypeAdapter
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> adapter = TypeAdapter(question_type(fit_table(table, "y", model="lr"), max_rows=10))
    >>> adapter.validate_python({"row": {"size": 2}, "cost": 0.1})
    {'row': {'size': 2.0}, 'cost': 0.1}
    """
    row, number = _row_type(model), Annotated[float, Field(allow_inf_nan=False)]
    words = "Whether to return the calibrated probability of each class."
    proba: TypeForm = Annotated[bool, Field(description=words) if model.has_proba else WithJsonSchema({"const": False})]
    words = "Whether to return the columns that make a declined row ambiguous or unusual, as because."
    why: TypeForm = Annotated[bool, Field(description=words)]
    options = {"cost": NotRequired[_cost_type(model)], "proba": NotRequired[proba], "why": NotRequired[why]}
    if model.asks_experts:
        known = {name: {"type": "number", "minimum": 0, "default": one} for name, one in model.experts.prices.items()}
        schema = {"type": ["object", "null"], "properties": known, "additionalProperties": False}
        options["prices"] = NotRequired[Annotated[dict[str, number] | None, WithJsonSchema(schema)]]  # type: ignore[valid-type]
    many: TypeForm = Annotated[list[row], Field(min_length=1, max_length=max_rows), FailFast()]  # type: ignore[valid-type]
    one_row: TypeForm = Annotated[_object_type("OneRow", {"row": row, **options}), Tag("one")]
    many_rows: TypeForm = Annotated[_object_type("ManyRows", {"rows": many, **options}), Tag("many")]
    return Annotated[one_row | many_rows, Discriminator(_one_or_many)]


def _one_or_many(question: object) -> str:
    return "one" if isinstance(question, dict) and "row" in question else "many"


def _row_type(model: TableModel) -> TypeForm:
    unused = {**model.schema.set_aside, model.target: "it is what the model predicts"}
    ignored = {
        name: NotRequired[Annotated[Any, Field(description=f"Not used: {reason}.")]] for name, reason in unused.items()
    }
    columns = {one.name: _value_type(one) | None for one in model.schema.columns}
    if isinstance(model, CallsModel):  # calls that were not made may be left out
        columns = {name: NotRequired[type_] for name, type_ in columns.items()}
    row = _object_type("Row", {**columns, **ignored})
    vectors = [name.removesuffix("[0]") for name in columns if name.endswith("[0]")]
    return Annotated[row, BeforeValidator(partial(_with_numbers, vectors))] if vectors else row


def _with_numbers(vectors: Sequence[str], row: Any) -> Any:
    """Return a row with the numbers of its vectors, which a request may give as lists, as a table may."""
    given = [name for name in vectors if isinstance(row, dict) and isinstance(row.get(name), list)]
    numbers = {f"{name}[{place}]": value for name in given for place, value in enumerate(row[name])}
    return {**{name: row[name] for name in row if name not in given}, **numbers} if given else row


def _value_type(column: Column) -> TypeForm:
    def written_as(type_: TypeForm, format_: str) -> TypeForm:
        extra: Any = {"format": format_, **({"pattern": _PATTERNS[format_]} if format_ in _PATTERNS else {})}
        return Annotated[type_, Field(strict=False, json_schema_extra=extra), BeforeValidator(_text)]

    if column.kind == "number":
        return Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
    if column.kind in ("boolean", "text"):
        return bool if column.kind == "boolean" else str
    if column.kind == "category":
        text: TypeForm = Annotated[str, Field(examples=list(column.categories[:20]))]
        if column.fits(pa.bool_()):
            return text | bool
        return text | Annotated[int, BeforeValidator(_whole)] if column.fits(pa.int64()) else text
    if column.kind == "time":
        return Annotated[written_as(time, "time-local"), AfterValidator(_without_zone)]
    return written_as(AwareDatetime, "date-time") if column.zoned else written_as(NaiveDatetime, "date-time-local")


def _text(value: object) -> object:
    """Refuse numbers, also as text, which pydantic would read as seconds since 1970."""
    if not isinstance(value, str) or not re.match(r"[0-9]{4}-|[0-9]{2}:", value):
        raise ValueError("a date or time must be text such as 2024-12-31T23:59 or 23:59")
    return value


def _without_zone(value: time) -> time:
    """Refuse a time of day with a time zone, which would be ignored."""
    if value.tzinfo is not None:
        raise ValueError("a time of day must have no time zone")
    return value


def _whole(value: object) -> object:
    """Return 2.0, which JSON counts as a whole number, as 2."""
    return int(value) if type(value) is float and value.is_integer() else value


def _cost_type(model: TableModel) -> TypeForm:
    """Return the type of a cost; the model itself refuses other costs if its cost is fixed."""
    words = "The cost of declining one row; a wrong answer costs 1."
    if model.cost_adjustable:
        return Annotated[float, Field(ge=0, lt=1, description=f"{words} By default {model.cost:g}.")] | None
    allowed = [None] if model.cost is None else [model.cost, None]
    return Annotated[float | None, WithJsonSchema({"enum": allowed, "description": f"{words} {model.why_cost_fixed}."})]


def sentence(error: AnyMapping) -> str:
    """Return one of pydantic's errors in a request's body as a sentence.

    Examples
    --------
    >>> error = {"loc": ("many", "rows", 1, "size"), "type": "float_type", "input": "big"}
    >>> sentence({**error, "msg": "Input should be a valid number"})
    "row 2, column 'size': input should be a valid number, got 'big'."
    """
    match tuple(error["loc"])[1:]:
        case ("rows", int(row), str(column), *_):
            place = f"row {row + 1:,}, column {shown(column)}"
        case ("rows", int(row), *_):
            place = f"row {row + 1:,}"
        case ("row", str(column), *_):
            place = f"row 1, column {shown(column)}"
        case (str(name), *_):
            place = shown(name)
        case _:
            place = "the request"
    words = str(error["msg"]).removeprefix("Value error, ").removesuffix(".")
    if error["type"] == "missing":
        advice = 'send {"row": {...}} or {"rows": [...]}' if place == "'rows'" else "give null where it is not known"
        return f"{place}: a value is required; {advice}."
    if error["type"] == "extra_forbidden":
        return f"{place}: this name is unknown; see /openapi.json for the names that the model takes."
    given = error["input"]
    got = f", got {shown(given)}" if isinstance(given, (str, bool, int, float)) and len(str(given)) < 1000 else ""
    return f"{place}: {words[:1].lower()}{words[1:]}{got}."


def request_table(model: TableModel, rows: Sequence[AnyMapping]) -> pa.Table:
    """Return the rows of a request that was checked as the table that the model decides on."""
    columns = model.schema.columns
    return pa.table({one.name: column_array(one, [row.get(one.name) for row in rows]) for one in columns})


def column_array(column: Column, values: Sequence[Any]) -> pa.Array:
    """Return the values of one column as an Arrow array that the schema encodes.

    Examples
    --------
    >>> column_array(Column("size", "number"), [1, None, 2.5]).to_pylist()
    [1.0, None, 2.5]
    """
    type_ = column.arrow_type
    if column.kind == "category":
        values = [value if isinstance(value, str) else label_text(value) for value in values]
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, UnicodeEncodeError, OverflowError):
        raise RequestError(f"column {shown(column.name)} holds a value that cannot be stored as {type_}.") from None


# Answers --------------------------------------------------------------------------------------------------------------


def answer_type(model: TableModel, *, audits: bool = False) -> TypeForm:
    """Return the type of the answer to a request.

    Parameters
    ----------
    model : TableModel
    audits : bool, default False
        Whether each decision says why it is to be reviewed.
    """
    label: TypeForm = {"text": str, "integer": int, "number": float, "boolean": bool}[model.label_type]
    types: dict[str, TypeForm] = {"rejected": bool, "confidence": float, "spent": float, "expected_cost": float}
    types |= dict.fromkeys(("prediction", "first_choice", "second_choice", "answer"), label | None)
    decision = {name: types.get(name, str | None) for name in model.answer_columns()}
    decision["proba"] = NotRequired[dict[str, float]]
    if model.typical is not None:
        decision["because"] = NotRequired[list[_object_type("Because", {"column": str, "note": str})] | None]  # type: ignore[misc]
    if audits:
        decision[WHY] = Literal[DECLINED, AUDIT, None]
    about = _object_type("ModelName", {"name": str, "target": str})
    whole = {"decisions": list[_object_type("Decision", decision)], "cost": float | None, "model": about}  # type: ignore[misc]
    return _object_type("Answer", {**whole, "prices": dict[str, float]} if model.asks_experts else whole)
