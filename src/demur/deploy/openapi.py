"""The OpenAPI document of a served model: its columns, its classes, its limits."""

from collections.abc import Collection
from typing import Any

from demur._version import __version__
from demur.deploy.fields import Field
from demur.tabular import ANSWER_COLUMNS, TableModel
from demur.tabular.class_labels import as_column

__all__ = ["openapi_document"]

_MOST_CLASSES = 100
"""Classes that are listed one by one."""

_REFUSALS = {
    "400": "The body is not JSON.",
    "413": "The body or the number of rows is too large.",
    "415": "The body is not sent as application/json.",
    "422": "The request is JSON, but not one for this model.",
    "500": "Something unforeseen; it is in the service's log.",
    "503": "The service is busy; try again in a second.",
}


def openapi_document(model: TableModel, *, max_rows: int, max_bytes: int, has_report: bool) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document.

    Parameters
    ----------
    model : TableModel
    max_rows, max_bytes : int
    has_report : bool

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    >>> document = openapi_document(fit_table(table, "y", model="lr"), max_rows=9, max_bytes=900, has_report=False)
    >>> document["components"]["schemas"]["Row"]["properties"]["size"]["type"]
    ['number', 'null']
    """
    decide = {
        "summary": f"Decide {model.target} for one row or many",
        "description": f"At most {max_rows:,} rows and {max_bytes:,} bytes.",
        "operationId": "decide",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"oneOf": [_ref("OneRow"), _ref("ManyRows")]}}},
        },
        "responses": {"200": _json("One decision for each row, in order.", "Decisions")}
        | {status: _json(words, "Error") for status, words in _REFUSALS.items()},
    }
    paths: dict[str, Any] = {
        "/decide": {"post": decide},
        "/health": {"get": _get("health", "Whether the service runs", _json("It does.", "Health"))},
        "/": {"get": _get("page", "A page to try the model", _html("The page."))},
    }
    if has_report:
        paths["/report"] = {"get": _get("report", "How good the model is", _html("The report."))}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"demur: {model.target}",
            "version": __version__,
            "description": "A classifier that declines to answer when answering would cost more than asking.",
        },
        "paths": paths,
        "components": {"schemas": _schemas(model, max_rows)},
    }


def _schemas(model: TableModel, max_rows: int) -> dict[str, Any]:
    rows = {"type": "array", "items": _ref("Row"), "minItems": 1, "maxItems": max_rows}
    label, cost = _label(model), _cost(model)
    no_answer = {"description": "The class, or null where the model declines.", "anyOf": [label, {"type": "null"}]}
    parts = [
        no_answer,
        {"type": "boolean"},
        {"type": "number", "description": _confidence_words(model)},
        label,
        label,
    ]
    decision = dict(zip(ANSWER_COLUMNS, parts, strict=True))
    about = _object({"name": {"type": "string"}, "target": {"type": "string"}})
    return {
        "Row": _row(model),
        "OneRow": _object({"row": _ref("Row"), "cost": cost}, optional={"cost"}),
        "ManyRows": _object({"rows": rows, "cost": cost}, optional={"cost"}),
        "Decision": _object(decision),
        "Decisions": _object(
            {
                "decisions": {"type": "array", "items": _ref("Decision")},
                "cost": {"type": "number", "description": "The cost that was decided for."},
                "model": about,
            }
        ),
        "Error": _object({"error": {"type": "string", "description": "One sentence: what is wrong, and what to do."}}),
        "Health": _object(
            {
                "status": {"const": "ok"},
                "version": {"type": "string"},
                "model": {"type": "string"},
                "target": {"type": "string"},
                "n_classes": {"type": "integer"},
                "uptime_seconds": {"type": "number"},
            }
        ),
    }


def _row(model: TableModel) -> dict[str, Any]:
    columns = {column.name: Field(column).json_schema() for column in model.schema.columns}
    ignored = dict(model.schema.set_aside) | {model.target: "it is what the model predicts"}
    unused = {name: {"description": f"Not used: {reason}."} for name, reason in ignored.items()}
    return _object(columns | unused, optional=set(unused))


def _label(model: TableModel) -> dict[str, Any]:
    classes = as_column(model.classes, model.label_type).to_pylist()
    if len(classes) <= _MOST_CLASSES:
        return {"enum": classes}
    return {"type": "string" if model.label_type == "text" else model.label_type}


def _cost(model: TableModel) -> dict[str, Any]:
    words = f"The price of one rejection; a wrong answer costs 1. {model.cost:g} where it is left out"
    if model.why_cost_is_fixed is None:
        return {"type": ["number", "null"], "minimum": 0, "exclusiveMaximum": 1, "description": f"{words}."}
    return {"enum": [model.cost, None], "description": f"{words}, and no other: {model.why_cost_is_fixed}."}


def _confidence_words(model: TableModel) -> str:
    has_proba = hasattr(model.classifier, "predict_proba")
    return f"The {'probability' if has_proba else 'trained score'} of the first choice."


def _object(properties: dict[str, Any], optional: Collection[str] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(words: str, schema: str) -> dict[str, Any]:
    return {"description": words, "content": {"application/json": {"schema": _ref(schema)}}}


def _html(words: str) -> dict[str, Any]:
    return {"description": words, "content": {"text/html": {"schema": {"type": "string"}}}}


def _get(name: str, summary: str, response: dict[str, Any]) -> dict[str, Any]:
    return {"summary": summary, "operationId": name, "responses": {"200": response}}
