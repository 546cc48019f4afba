"""The inputs of the graph: one matrix of features, or one input per column of a table."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from demur.columns.column import Column
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import DOMAIN_ML, Graph
from demur.estimators import AutoClassifier, RejectOption
from demur.tabular import Schema, TableModel, as_table

__all__ = ["FEATURES", "OWN_NAMES", "input_names", "matrix_input", "onnx_inputs", "schema_of", "table_inputs"]

FEATURES = "features"
OWN_NAMES = (FEATURES, "cost", "label", "reject", "confidence", "proba")
"""What the graph itself calls its inputs and outputs."""

_WORDS = {
    "number": "A number; NaN or infinite where it is missing.",
    "boolean": "0 for false, 1 for true, NaN where it is missing.",
    "date": "Days since 1970-01-01, with fractions; NaN where it is missing.",
    "time": "Seconds, with fractions; NaN where it is missing.",
}


def schema_of(model: Any) -> Schema | None:
    """Return the columns that a model reads by name, or None for a model of matrices."""
    if isinstance(model, TableModel):
        return model.schema
    estimator = model.estimator_ if isinstance(model, RejectOption) else None
    estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    return estimator.codes_.schema if isinstance(estimator, AutoClassifier) else None


def input_names(schema: Schema) -> dict[str, str]:
    """Return the input of each column: its own name, unless the graph needs that for something else.

    Examples
    --------
    >>> input_names(Schema((Column("size", "number"), Column("cost", "number"), Column("pet", "category", ("cat",)))))
    {'size': 'size', 'cost': 'column_cost', 'pet': 'pet'}
    """
    names: dict[str, str] = {}
    for column in schema.columns:
        name = column.name
        while not name or name in OWN_NAMES or (name != column.name and name in (*names.values(), *schema.names)):
            name = f"column_{name}"
        names[column.name] = name
    return names


def matrix_input(graph: Graph, n_features: int, names: Iterable[str] | None = None) -> str:
    """Declare the features as one input of shape (rows, n_features) in double precision."""
    listed = "" if names is None else f": {', '.join(names)}"
    return graph.input(FEATURES, np.float64, ["rows", n_features], f"The {n_features} features of each row{listed}.")


def table_inputs(graph: Graph, schema: Schema) -> str:
    """Declare the columns of a table, and return them as ``Schema.encode`` would."""
    graph.schema = schema
    if all(column.kind == "number" for column in schema.columns):
        return _without_infinities(graph, matrix_input(graph, len(schema.columns), schema.names))
    names = input_names(schema)
    parts = []
    for column in schema.columns:
        if column.kind == "category":
            parts.append(_codes(graph, column, names[column.name]))
        else:
            value = graph.input(names[column.name], np.float64, ["rows", 1], _WORDS[column.kind])
            parts.append(_without_infinities(graph, value))
    return graph.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]


def onnx_inputs(model: Any, rows: Any) -> dict[str, NDArray[Any]]:
    """Return rows as the exported graph of a model takes them, ready for ``InferenceSession.run``.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
    rows : array, or a table where the model reads one

    Examples
    --------
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 5.0, 5.1] * 20, "pet": ["cat", "dog"] * 40, "y": [0, 0, 1, 1] * 20})
    >>> inputs = onnx_inputs(fit_table(table, "y", model="lr"), pa.table({"size": [1.0], "pet": [None]}))
    >>> {name: values.tolist() for name, values in inputs.items()}
    {'size': [[1.0]], 'pet': [['']]}
    """
    schema = schema_of(model)
    if schema is None:
        return {FEATURES: np.ascontiguousarray(rows, dtype=np.float64)}
    table = as_table(rows)
    if all(column.kind == "number" for column in schema.columns):
        return {FEATURES: schema.encode(table)}
    names = input_names(schema)
    return {names[column.name]: _as_input(column, table.column(column.name)) for column in schema.columns}


def _as_input(column: Column, values: Any) -> NDArray[Any]:
    if column.kind != "category":
        return column.encode(values, "the table").reshape(-1, 1)
    # Encoding first reports what is no text; null has no equal in ONNX.
    column.encode(values, "the table")
    text = values.cast(pa.string()).to_pylist()
    return np.array([["" if value is None else value] for value in text], dtype=object).reshape(-1, 1)


def _without_infinities(graph: Graph, value: str) -> str:
    return graph.op("Where", graph.op("IsInf", value), np.array(np.nan), value)


def _codes(graph: Graph, column: Column, name: str) -> str:
    unseen = "count as one further category" if column.other else "count as missing"
    shown = ", ".join(repr(value) for value in column.categories[:20]) + (
        ", ..." if len(column.categories) > 20 else ""
    )
    if any("\0" in value for value in column.categories):
        raise ExportError(
            f"the column {column.name!r} has categories with a zero byte, which ONNX cannot hold; rename them."
        )
    value = graph.input(
        name, str, ["rows", 1], f"Text: one of {shown}. Other values {unseen}. The empty text is a missing value."
    )
    known = {text: code for code, text in enumerate(column.categories)}
    table = {"": -1} | known  # where the empty text is a category itself, it stays one
    code = graph.op(
        "LabelEncoder",
        value,
        domain=DOMAIN_ML,
        keys_strings=list(table),
        values_int64s=list(table.values()),
        default_int64=len(column.categories) if column.other else -1,
    )
    missing = graph.op("Less", code, np.array(0, dtype=np.int64))
    return graph.op("Where", missing, np.array(np.nan), graph.cast(code, np.float64))
