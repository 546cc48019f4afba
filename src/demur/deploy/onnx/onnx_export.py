"""From a fitted model to one ONNX graph: features in; label, reject, confidence and probabilities out."""

import json
import os
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from demur import __version__
from demur.array_types import AnyArray, Estimator, FilePath
from demur.columns import Schema, as_table
from demur.columns.schema import LARGEST, Column, as_type
from demur.deploy.onnx.classifier_graphs import network_decision, option_proba
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph, Operand, require, session
from demur.estimators import RejectClassifier, RejectOption
from demur.rules import Chow, CostMatrix, Relinked, ThresholdRule
from demur.tabular import TableModel
from demur.tabular.table_files import as_column
from demur.whole_file import write_whole

FEATURES = "features"
OWN_NAMES = (FEATURES, "cost", "label", "reject", "confidence", "proba")
"""Names of the graph's own inputs and outputs."""


def schema_of(model: Estimator) -> Schema | None:
    """Return the columns that a model reads by name, or None for a model of matrices."""
    if isinstance(model, TableModel):
        return model.schema
    estimator = model.estimator_ if isinstance(model, RejectOption) else model
    estimator = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
    encoding = getattr(estimator, "encoding_", None)
    return None if encoding is None else encoding.schema


def input_names(schema: Schema) -> dict[str, str]:
    """Return the input name of each column: its own name, unless the graph uses that name.

    Examples
    --------
    >>> input_names(Schema((Column("size", "number"), Column("cost", "number"), Column("pet", "category", ("cat",)))))
    {'size': 'size', 'cost': 'column_cost', 'pet': 'pet'}
    """
    names: dict[str, str] = {}
    for column in schema.columns:
        name = column.name
        while not name or name in OWN_NAMES or (name != column.name and name in schema.names):
            name = f"column_{name}"
        names[column.name] = name
    return names


def _table_inputs(graph: Graph, schema: Schema, largest: float) -> str:
    """Declare the columns of a table, and return their codes; numbers above the largest count as missing."""
    graph.schema = schema
    if all(column.kind == "number" for column in schema.columns):
        codes = graph.input(FEATURES, np.float64, ["rows", len(schema.columns)])
    else:
        parts = [
            _codes(graph, column, name) if column.kind == "category" else graph.input(name, np.float64, ["rows", 1])
            for column, name in zip(schema.columns, input_names(schema).values(), strict=True)
        ]
        codes = graph.op("Concat", *parts, axis=1)
    too_large = graph.op("Greater", graph.op("Abs", codes), np.array(largest))
    return graph.op("Where", too_large, np.array(np.nan), codes)


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
        return column.encode(values, "the table")[:, None]
    texts = as_type(values, pa.string(), column.name, "the table").to_pylist()
    return np.array(["" if text is None else text for text in texts], dtype=object)[:, None]  # ONNX has no null


def _codes(graph: Graph, column: Column, name: str) -> str:
    # where the empty text is a category itself, it stays one
    codes = {"": np.nan} | {text: float(code) for code, text in enumerate(column.categories)}
    code = graph.op(
        "LabelEncoder",
        graph.input(name, str, ["rows", 1]),
        domain=DOMAIN_ML,
        keys_strings=list(codes),
        values_floats=list(codes.values()),
        default_float=float(len(column.categories)) if column.other else np.nan,
    )
    return graph.cast(code, np.float64)


def class_values(model: Estimator) -> AnyArray:
    """Return the classes as text, int64, float64 or bool.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [3, 3, 7, 7])
    >>> class_values(model)
    array([3, 7])
    """
    if isinstance(model, TableModel):
        values = as_column(model.classes, model.label_type).to_pylist()
    else:
        values = np.asarray(model.classes_).tolist()
    classes = np.array(values)
    if len(set(map(type, values))) > 1 or classes.dtype.kind not in "Uifb":
        raise ExportError(f"the classes {values[:5]} have no type of ONNX's; fit again with text labels.")
    return classes


def onnx_model(model: Estimator) -> Any:
    """Return a fitted model as one ONNX graph, from features to decisions.

    Inputs
        ``features``, double of shape (rows, n_features), or (rows, ...) as a torch module takes its rows. A model that
        was fitted on a table with other columns than numbers has one input per column instead, of shape (rows, 1) and
        named like it (``column_cost`` if it is named like an input or output below): double for numbers, booleans (0
        and 1), dates (days since 1970) and times (seconds), with NaN for missing values; text for categories, with the
        empty text for missing ones. (If the empty text is itself a category, a missing value counts as it.)
        :func:`onnx_inputs` makes them.

        ``cost``, one double, may be left out. It exists where the model decides by Chow's rule.
    Outputs
        ``label`` (rows,), the class that would be answered, also where the row is rejected: text, int64, double or bool
        as the classes are; ``reject`` (rows,) bool; ``confidence`` (rows,) double; ``proba`` (rows, n_classes) double,
        where the model has probabilities.

    A graph takes one row or more; operators of skl2onnx refuse an empty batch.

    The graph computes in double precision, but for the scores of networks. Its probabilities are within 1e-6 of those
    of the model, and it decides the same unless the confidence is that close to the threshold. (A steep isotonic
    calibration can multiply the rounding errors of networks.) Rows that the model refuses, such as NaN where it takes
    none, are not refused by the graph; a row whose confidence is NaN is rejected.

    The graph decides by the rule alone: it does not detect novel rows. Models that ask experts are not exported.

    Losses and networks are translated by torch, most classifiers and transformers of scikit-learn by skl2onnx. demur
    itself translates trees, since skl2onnx has no double precision for them and no category splits of
    :class:`~sklearn.ensemble.HistGradientBoostingClassifier`.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
        A fitted model.

    Returns
    -------
    onnx.ModelProto
        Checked, of operator set 18 (and 3 of ai.onnx.ml where needed), with classes, cost and rule in its metadata.

    Raises
    ------
    ExportError
        If a part of the model has no ONNX form; the message says which and what to do.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> X, y = load_iris(return_X_y=True)
    >>> proto = onnx_model(RejectOption(GaussianNB(), cost=0.05).fit(X, y))
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(proto.SerializeToString())
    >>> [values.tolist() for values in session.run(["label", "reject"], {"features": X[[0, 77]]})]
    [[0, 2], [False, True]]
    >>> session.run(["reject"], {"features": X[[0, 77]], "cost": np.array(0.49)})[0].tolist()
    [False, False]
    """
    onnx = require("onnx")
    classifier = model.classifier if isinstance(model, TableModel) else model
    if not isinstance(classifier, (RejectClassifier, RejectOption)):
        kind = type(classifier).__name__
        raise ExportError(
            f"only a fitted RejectClassifier, RejectOption or TableModel can be exported, got {kind}. Models that ask "
            "experts or services have no ONNX form: use demur serve."
        )
    check_is_fitted(classifier)
    graph, classes, schema = Graph(), class_values(model), schema_of(model)
    _refuse_text_and_scope(classifier, schema)
    words, cost = _declare_outputs(graph, _features(graph, model, classifier, schema), classifier, classes)
    proto = graph.model(
        f"A classifier with a reject option, made by demur. {words}",
        {
            "demur_version": __version__,
            "classes": json.dumps(classes.tolist(), ensure_ascii=False),
            "cost": json.dumps(cost),
            "rule": words,
            "columns": "" if schema is None else json.dumps(list(schema.names), ensure_ascii=False),
        },
    )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _refuse_text_and_scope(classifier: Estimator, schema: Schema | None) -> None:
    """Refuse models that no graph computes: those that read text, or estimate the probability of being in scope."""
    inner = getattr(classifier, "estimator_", classifier)
    encoding = getattr(inner, "encoding_", None)
    if (schema is not None and schema.text.any()) or getattr(encoding, "dense_text", None) is not None:
        raise ExportError("a model that reads text cannot be exported to ONNX; serve it with demur serve.")
    if getattr(classifier, "scope_", None) is not None:
        raise ExportError(
            "a model that declines out-of-scope rows cannot be exported to ONNX; serve it with demur serve, or fit "
            "without out_of_scope and out_of_scope_share."
        )


def _features(graph: Graph, model: Estimator, classifier: Estimator, schema: Schema | None) -> str:
    """Declare the inputs and return the features that the classifier takes."""
    if schema is None:
        width = getattr(classifier, "n_features_in_", None)
        shape = getattr(getattr(classifier, "estimator_", None), "input_shape_", (width,))  # a network may take images
        return graph.input(FEATURES, np.float64, ["rows", *(one and int(one) for one in shape)])
    other = [column.name for column in schema.columns if column.kind not in ("number", "boolean")]
    if getattr(model, "reads", "codes") != "codes" and other:
        raise ExportError(
            f"the column {other[0]!r} is passed unchanged to a classifier that was fitted elsewhere, and only columns "
            "of numbers are exported then; export your own pipeline with skl2onnx."
        )
    return _table_inputs(graph, schema, LARGEST if isinstance(model, TableModel) else np.finfo(np.float64).max)


def _declare_outputs(graph: Graph, X: str, model: Estimator, classes: AnyArray) -> tuple[str, float | None]:
    """Add the decision, declare its outputs, and return the description of the rule and the cost that is an input."""
    proba = None
    if isinstance(model, RejectClassifier):
        label, confidence, last = network_decision(graph, X, model)
        rule = Chow(model.cost) if model.loss_.has_link else None
    else:
        rule, last = model.rule_ or Chow(model.cost), option_proba(graph, X, model)
        scores = last  # of each class, of which the rule compares the largest
        if type(rule) is Relinked:
            scores = graph.traced(rule.link, (last, (2, len(classes))))[0]
        if type(rule) is CostMatrix:  # what each answer saves on average, compared with declining
            costs = _one_for_all(rule.costs, 2)
            scores = graph.op("MatMul", last, costs[:, -1:] - costs[:, :-1])
        label = graph.op("ArgMax", scores, axis=1, keepdims=0)
        confidence = graph.op("ReduceMax", scores, np.array([1]), keepdims=0)
    if rule is None:
        acceptance, cost = last, model.fit_cost_
        words = f"Answers by the rule of {model.loss_.name}, trained for the cost {cost:g}."
    else:
        proba, (threshold, words, cost) = last, _threshold(graph, rule)
        acceptance = graph.op("Sub", confidence, threshold)
    kind: Any = str if classes.dtype.kind == "U" else classes.dtype
    graph.output(graph.op("Gather", classes, label, axis=0), "label", kind, ["rows"])
    reject = graph.op("Not", graph.op("Greater", acceptance, np.array(0.0)))
    graph.output(reject, "reject", np.bool_, ["rows"])
    graph.output(confidence, "confidence", np.float64, ["rows"])
    if proba is not None:
        graph.output(proba, "proba", np.float64, ["rows", len(classes)])
    return words, cost


def _threshold(graph: Graph, rule: Any) -> tuple[Operand, str, float | None]:
    """Return the threshold of the confidence, the description of the rule, and the cost that is an input."""
    if type(rule) in (Chow, Relinked):
        price = float(_one_for_all(rule.cost, 0))
        graph.constant(np.array(price), "cost")  # the default of the input with the same name
        limit = graph.op("Sub", np.array(1.0), graph.input("cost", np.float64, []))
        return limit, "Answers where the confidence exceeds 1 - cost (Chow's rule).", price
    if type(rule) is CostMatrix:
        return np.array(0.0), rule.explain(), None
    if isinstance(rule, ThresholdRule) and type(rule)._decide is ThresholdRule._decide:  # also one of the user's own
        return _one_for_all(rule.threshold_, 0), rule.explain(), None
    raise ExportError(
        f"the rule {type(rule).__name__} is not one of demur's own; use Chow, Threshold, CostMatrix, Coverage or "
        "RiskControl, or derive it from ThresholdRule."
    )


def _one_for_all(value: Any, n_axes: int) -> Any:
    if np.ndim(value) != n_axes:
        raise ExportError(f"the rule has values of shape {np.shape(value)}, one per row; give one for all rows.")
    return np.asarray(value, dtype=np.float64)


def export_onnx(model: Estimator, path: FilePath, *, overwrite: bool = False) -> Path:
    """Write a fitted model to one ONNX file and return its path.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
        Fitted; see :func:`onnx_model` for the inputs and outputs of the graph.
    path : path
        The file to write. Its folder is created if it does not exist.
    overwrite : bool, default=False
        Whether a file that is there already may be replaced.

    Raises
    ------
    ExportError
        If a part of the model has no ONNX form.
    FileExistsError, IsADirectoryError
        If the file cannot be written there.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(model, f"{folder}/model.onnx").name
    'model.onnx'
    """
    return write_whole(path, onnx_model(model).SerializeToString(), overwrite=overwrite)


TOLERANCE = 1e-6
"""Largest tolerated difference between the probabilities of a graph and of its model."""


@dataclass(frozen=True)
class GraphAgreement:
    """Comparison of a graph with its model.

    Parameters
    ----------
    n_rows, n_different : int
        Rows compared, and those with another label or another decision to reject. Rows with two classes whose
        probabilities differ by less than 1e-6, or a confidence that is as close to its threshold, are not counted.
    confidence, proba : float
        The largest differences; ``proba`` is 0 if there are no probabilities.
    """

    n_rows: int
    n_different: int
    confidence: float
    proba: float

    @property
    def decisions_agree(self) -> bool:
        """Whether every row has the same label and the same decision."""
        return not self.n_different


def compare_onnx(model: Estimator, exported: Any, rows: Any, cost: float | None = None) -> GraphAgreement:
    """Run rows through a model and through its exported graph, and compare.

    The graph does not detect novel rows, so that the model decides by its rule alone as well.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
    exported : path or ModelProto
    rows : as the model takes them
    cost : float, optional
        Another cost than the model's.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> from demur.deploy.onnx import onnx_model
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
    >>> compare_onnx(model, onnx_model(model), [[0.4], [0.55], [0.9]]).decisions_agree
    True
    """
    ready = session(exported.SerializeToString() if hasattr(exported, "SerializeToString") else os.fspath(exported))
    given = onnx_inputs(model, rows) | ({} if cost is None else {"cost": np.array(float(cost))})
    if isinstance(model, TableModel):
        model = replace(model, novelty=None)
    else:
        model = copy(model).set_params(novelty=None)
        model.rule_novelty_ = None  # the graph decides by the rule alone
    decision, classes, off = model.decide(rows, cost), class_values(model), 0.0
    label, reject, confidence, *rest = ready.run(None, given)
    is_close = np.abs(decision.acceptance) <= TOLERANCE
    if rest:
        own = np.asarray(model.predict_proba(rows), dtype=np.float64)
        off, ordered = _distance(rest[0], own), np.sort(own, axis=1)
        is_close |= ordered[:, -1] - ordered[:, -2] <= TOLERANCE
    differs = ((label != classes[decision.label]) | (reject != decision.reject)) & ~is_close
    return GraphAgreement(len(label), int(differs.sum()), _distance(confidence, decision.confidence), off)


def _distance(one: AnyArray, other: AnyArray) -> float:
    """Return the largest difference: none where both are NaN, infinite where one is."""
    off = np.where(np.isnan(one) & np.isnan(other), 0.0, np.abs(one - other))
    return float(np.nan_to_num(off, nan=np.inf).max(initial=0.0))
