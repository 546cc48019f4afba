"""Transformers of scikit-learn, in double precision: adding one is one function."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

from demur.deploy.onnx.arithmetic import columns
from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import Graph

__all__ = ["transformed"]


def transformed(graph: Graph, X: str, transformer: Any) -> str:
    """Return what a fitted transformer makes of the features."""
    if transformer is None or (isinstance(transformer, str) and transformer == "passthrough"):
        return X
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
