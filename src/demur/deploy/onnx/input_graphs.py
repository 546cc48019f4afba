"""What goes in: one matrix of features or one input per column, and scikit-learn's transformers."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

from demur.array_types import AnyArray, Estimator
from demur.columns import Schema, as_table
from demur.columns.column import Column
from demur.deferral import DeferOption
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph, columns
from demur.estimators import AutoClassifier, RejectOption
from demur.tabular import TableModel

__all__ = [
    "FEATURES",
    "OWN_NAMES",
    "input_names",
    "matrix_input",
    "onnx_inputs",
    "schema_of",
    "table_inputs",
    "transformed",
]

FEATURES = "features"
OWN_NAMES = (FEATURES, "cost", "label", "reject", "confidence", "proba", "prices", "ask", "expected_cost")
"""What the graph itself calls its inputs and outputs."""

_WORDS = {
    "number": "A number; NaN or infinite where it is missing.",
    "boolean": "0 for false, 1 for true, NaN where it is missing.",
    "date": "Days since 1970-01-01, with fractions; NaN where it is missing.",
    "time": "Seconds, with fractions; NaN where it is missing.",
}


def schema_of(model: Estimator) -> Schema | None:
    """Return the columns that a model reads by name, or None for a model of matrices."""
    if isinstance(model, TableModel):
        return model.schema
    estimator = model.estimator_ if isinstance(model, RejectOption | DeferOption) else None
    estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    return estimator.encoding_.schema if isinstance(estimator, AutoClassifier) else None


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


def onnx_inputs(model: Estimator, rows: Any) -> dict[str, AnyArray]:
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


def _as_input(column: Column, values: Any) -> AnyArray:
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


def transformed(graph: Graph, X: str, transformer: Any) -> str:
    """Return what a fitted transformer makes of the features."""
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return X
    if isinstance(transformer, FunctionTransformer) and transformer.func is None:
        return X  # a fitted "passthrough"
    function = _KNOWN.get(type(transformer))
    if function is None:
        known = ", ".join(sorted(kind.__name__ for kind in _KNOWN))
        raise ExportError(
            f"the transformer {type(transformer).__name__} is not supported; use {known}, or transform the features "
            "before the model."
        )
    return function(graph, X, transformer)


def _pipeline(graph: Graph, X: str, steps: Pipeline) -> str:
    for _, step in steps.steps:
        X = transformed(graph, X, step)
    return X


def _column_transformer(graph: Graph, X: str, transformer: ColumnTransformer) -> str:
    parts = []
    for name, step, _ in transformer.transformers_:
        indices = transformer._transformer_to_input_indices[name]
        if len(indices) == 0 or (isinstance(step, str) and step == "drop"):
            continue
        parts.append(transformed(graph, columns(graph, X, indices), step))
    if not parts:
        raise ExportError("the ColumnTransformer keeps no column at all; keep at least one.")
    weights = transformer.transformer_weights
    if weights:
        raise ExportError(f"a ColumnTransformer with transformer_weights={weights!r} is not supported; leave them out.")
    return graph.op("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]


def _simple_imputer(graph: Graph, X: str, imputer: SimpleImputer) -> str:
    statistics = np.asarray(imputer.statistics_)
    marks_nan = isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)
    if not marks_nan or statistics.dtype.kind not in "fiu":
        raise ExportError(
            f"SimpleImputer with missing_values={imputer.missing_values!r} on {statistics.dtype} is not supported; "
            "mark missing numbers as NaN."
        )
    numbers = statistics.astype(np.float64)
    kept = np.arange(len(numbers)) if imputer.keep_empty_features else np.flatnonzero(~np.isnan(numbers))
    present = columns(graph, X, kept)
    filled = graph.op("Where", graph.op("IsNaN", present), numbers[kept], present)
    if imputer.indicator_ is None:
        return filled
    gaps = graph.op("IsNaN", columns(graph, X, imputer.indicator_.features_))
    return graph.op("Concat", filled, graph.cast(gaps, np.float64), axis=-1)


def _standard_scaler(graph: Graph, X: str, scaler: StandardScaler) -> str:
    if scaler.with_mean:
        X = graph.op("Sub", X, scaler.mean_)
    return graph.op("Div", X, scaler.scale_) if scaler.with_std else X


def _robust_scaler(graph: Graph, X: str, scaler: RobustScaler) -> str:
    if scaler.with_centering:
        X = graph.op("Sub", X, scaler.center_)
    return graph.op("Div", X, scaler.scale_) if scaler.with_scaling else X


def _min_max_scaler(graph: Graph, X: str, scaler: MinMaxScaler) -> str:
    if scaler.clip:
        raise ExportError("MinMaxScaler with clip=True is not supported; use clip=False.")
    return graph.op("Add", graph.op("Mul", X, scaler.scale_), scaler.min_)


def _one_hot(graph: Graph, X: str, encoder: OneHotEncoder) -> str:
    if encoder.drop is not None:
        raise ExportError(f"OneHotEncoder with drop={encoder.drop!r} is not supported; use drop=None.")
    parts = [_indicators(graph, X, encoder, number) for number in range(len(encoder.categories_))]
    return graph.op("Concat", *parts, axis=-1) if len(parts) > 1 else parts[0]


def _indicators(graph: Graph, X: str, encoder: OneHotEncoder, number: int) -> str:
    """Return one column per category, NaN being one if it was seen; rare and perhaps unknown ones share a column."""
    categories = np.asarray(encoder.categories_[number])
    if categories.dtype.kind not in "biuf":
        raise ExportError(
            "OneHotEncoder was fitted on text; encode it as numbers first, or fit the table with "
            "demur.tabular.fit_table, which exports text columns."
        )
    values = categories.astype(np.float64)
    source = columns(graph, X, [number])
    hits = graph.op("Equal", source, values[~np.isnan(values)])
    if np.isnan(values).any():
        hits = graph.op("Concat", hits, graph.op("IsNaN", source), axis=-1)
    indicators = graph.cast(hits, np.float64)
    mapping = encoder._default_to_infrequent_mappings[number] if encoder._infrequent_enabled else None
    if mapping is None:
        return indicators
    width = int(np.max(mapping)) + 1
    grouped = graph.product(indicators, np.eye(width)[mapping])
    if encoder.handle_unknown not in ("infrequent_if_exist", "warn"):
        return grouped
    unknown = graph.op("Sub", np.array(1.0), graph.op("ReduceSum", indicators, np.array([-1]), keepdims=1))
    rare = np.eye(width)[[mapping[encoder._infrequent_indices[number][0]]]]
    return graph.op("Add", grouped, graph.op("Mul", unknown, rare))


_KNOWN: dict[type, Callable[[Graph, str, Any], str]] = {
    Pipeline: _pipeline,
    ColumnTransformer: _column_transformer,
    SimpleImputer: _simple_imputer,
    StandardScaler: _standard_scaler,
    RobustScaler: _robust_scaler,
    MinMaxScaler: _min_max_scaler,
    OneHotEncoder: _one_hot,
}
