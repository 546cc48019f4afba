"""From a fitted model to one ONNX graph: features in; label, reject, confidence and probabilities out."""

import json
import os
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from demur._version import __version__
from demur.array_types import AnyArray, Estimator
from demur.columns import Schema, as_table
from demur.columns.schema import Column
from demur.deferral import DeferOption
from demur.deploy.onnx.classifier_graphs import network_decision, option_proba, transformed
from demur.deploy.onnx.classifier_graphs import proba as classifier_proba
from demur.deploy.onnx.decision_graphs import RuleForm, decided_with_experts, rule_form
from demur.deploy.onnx.onnx_graph import DOMAIN_ML, ExportError, Graph, require
from demur.estimators import AutoClassifier, RejectClassifier, RejectOption
from demur.tabular import TableModel
from demur.whole_file import write_whole

__all__ = ["GraphAgreement", "class_values", "compare_onnx", "export_onnx", "onnx_inputs", "onnx_model"]

_MOST_BYTES = 2**31 - 1
"""The size limit of a protobuf message."""

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
        while (
            not name
            or name in OWN_NAMES
            or name.startswith("demur/")
            or (name != column.name and name in (*names.values(), *schema.names))
        ):
            name = f"column_{name}"
        names[column.name] = name
    return names


def _matrix_input(graph: Graph, n_features: int, names: Iterable[str] | None = None) -> str:
    """Declare the features as one input of shape (rows, n_features) in double precision."""
    listed = "" if names is None else f": {', '.join(names)}"
    return graph.input(FEATURES, np.float64, ["rows", n_features], f"The {n_features} features of each row{listed}.")


def _table_inputs(graph: Graph, schema: Schema) -> str:
    """Declare the columns of a table, and return them as ``Schema.encode`` would."""
    graph.schema = schema
    if all(column.kind == "number" for column in schema.columns):
        return _without_infinities(graph, _matrix_input(graph, len(schema.columns), schema.names))
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
        read: dict[str, Callable[[str], Any]] = {"integer": int, "number": float, "boolean": "true".__eq__}
        values = [read.get(model.label_type, str)(str(name)) for name in model.classes]
    else:
        values = np.asarray(model.classes_).tolist()
    classes = np.array(values)
    if len(set(map(type, values))) > 1 or classes.dtype.kind not in "Uifb":
        raise ExportError(f"the classes {values[:5]} have no type of ONNX's; fit again with text labels.")
    return classes


def onnx_model(model: Estimator) -> Any:
    """Return a fitted model as one ONNX graph, from features to decisions.

    Inputs
        ``features``, double of shape (rows, n_features). A model that was fitted on a table with other columns than
        numbers has one input per column instead, of shape (rows, 1) and named like it (``column_cost`` if it is named
        like an input or output below): double for numbers, truth values (0 and 1), dates (days since 1970) and times
        (seconds), with NaN for missing values; text for categories, with the empty text for missing ones.
        :func:`onnx_inputs` makes them.

        ``cost``, one double, may be left out. It exists where the model decides by Chow's rule.
    Outputs
        ``label`` (rows,), the class that would be answered, also where the row is rejected: text, int64, double or bool
        as the classes are; ``reject`` (rows,) bool; ``confidence`` (rows,) double; ``proba`` (rows, n_classes) double,
        where the model has probabilities.

        A model that asks experts has ``ask`` (rows,) int64, the number of the expert in ``experts_`` or -1, and
        ``expected_cost`` (rows,) double; and an input ``prices``, one double for each expert, which may be left out.

    The graph computes in double precision, but for the scores of networks. Its probabilities are within 1e-6 of those
    of the model, and it decides the same unless the confidence is that close to the threshold. (A steep isotonic
    calibration can multiply the rounding errors of networks.) Rows that the model refuses, such as NaN where it takes
    none, are not refused by the graph; a row whose confidence is NaN is rejected.

    The graph decides by the rule alone: it does not detect novel rows.

    Losses and networks are translated by torch, most classifiers and transformers of scikit-learn by skl2onnx. demur
    itself translates trees, since skl2onnx has no double precision for them and no category splits of
    :class:`~sklearn.ensemble.HistGradientBoostingClassifier`.

    Parameters
    ----------
    model : RejectClassifier, RejectOption, DeferOption or TableModel
        Fitted.

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
    if not isinstance(classifier, (RejectClassifier, RejectOption, DeferOption)):
        raise ExportError(
            "only a fitted RejectClassifier, RejectOption, DeferOption or TableModel can be exported, got "
            f"{type(classifier).__name__}."
        )
    check_is_fitted(classifier)
    graph, classes = Graph(), class_values(model)
    found = _decided(graph, _features(graph, model, classifier), classifier)
    _declare_outputs(graph, found, classes, list(getattr(classifier, "experts_", ())))
    proto = graph.model(*_described(graph, model, classes, found.rule), __version__)
    if proto.ByteSize() > _MOST_BYTES:
        raise ExportError(
            f"the graph takes {proto.ByteSize():,} bytes, and an ONNX file at most {_MOST_BYTES:,}; fit a smaller "
            "model, such as fewer or smaller trees."
        )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _features(graph: Graph, model: Estimator, classifier: Estimator) -> str:
    """Declare the inputs and return the features that the classifier takes, with one more row.

    :func:`_declared` drops the last row: onnxruntime gives maxima over no rows at all a wrong shape.
    """
    schema = schema_of(model)
    if schema is None:
        names, width = (getattr(classifier, name, None) for name in ("feature_names_in_", "n_features_in_"))
        if width is None:
            raise ExportError(
                f"{type(classifier.estimator_).__name__} does not say how many features it takes; set n_features_in_."
            )
        return graph.op("Concat", _matrix_input(graph, int(width), names), np.zeros((1, int(width))), axis=0)
    if isinstance(model, TableModel) and model.reads != "codes":
        other = [column.name for column in schema.columns if column.kind not in ("number", "boolean")]
        if other:
            raise ExportError(
                f"the column {other[0]!r} is read as it is by a classifier that was fitted elsewhere, and only columns "
                "of numbers are exported for such; export your own pipeline with skl2onnx."
            )
    codes = graph.op("Concat", _table_inputs(graph, schema), np.zeros((1, len(schema.columns))), axis=0)
    return transformed(graph, codes, model.dense) if isinstance(model, TableModel) else codes


@dataclass
class _Decided:
    """Names of what the graph decides, each of shape (rows,), and what the rule is."""

    label: str
    confidence: str
    acceptance: str
    rule: RuleForm
    proba: str | None = None
    experts: tuple[str, ...] = ()
    """Whom to ask, and the expected cost."""


def _decided(graph: Graph, X: str, model: Estimator) -> _Decided:
    shape = (2, len(model.classes_))
    if isinstance(model, DeferOption):
        return _decided_by_experts(graph, X, model)
    if isinstance(model, RejectClassifier):
        label, confidence, last = network_decision(graph, X, model)
        if not model.loss_.has_link:
            words = f"Answers by the rule of {model.loss_.name}, trained for the cost {model.fit_cost_:g}."
            return _Decided(label, confidence, last, RuleForm(words, price=model.fit_cost_))
        rule = rule_form(None, model.cost)
        return _Decided(label, confidence, graph.op("Sub", confidence, _chow_threshold(graph, rule)), rule, last)
    proba, rule = option_proba(graph, X, model), rule_form(model.rule_, model.cost)
    threshold = [] if rule.price is None else [(_chow_threshold(graph, rule), (1,))]
    label, confidence, acceptance = graph.traced(rule.decide, (proba, shape), *threshold)
    return _Decided(label, confidence, acceptance, rule, proba)


def _chow_threshold(graph: Graph, rule: RuleForm) -> str:
    words = "The price of one rejection, in [0, 1); a wrong answer costs 1. May be left out: then it is"
    cost = graph.optional_input("cost", np.array(rule.price), f"{words} {rule.price:g}.")
    return graph.op("Sub", np.array([1.0]), cost)


def _decided_by_experts(graph: Graph, X: str, model: DeferOption) -> _Decided:
    experts = model._priced()
    words = ", ".join(f"{name} {one.price:g}" for name, one in experts.items())
    prices = graph.optional_input(
        "prices",
        np.array([one.price for one in experts.values()]),
        f"What asking each expert costs; a wrong answer costs 1. May be left out: then {words}.",
    )
    given = {name: _reliability(graph, X, model, name) for name in model.reliability_}
    inputs = {name: value for name, value in given.items() if value is not None}

    def function(plain: Tensor, prices: Tensor, *estimates: Tensor) -> tuple[Tensor, ...]:
        return decided_with_experts(model, plain, prices, dict(zip(inputs, estimates, strict=True)))

    label, confidence, acceptance, proba, ask, expected_cost = graph.traced(
        function,
        (classifier_proba(graph, X, model.estimator_, model.classes_), (2, len(model.classes_))),
        (prices, (len(experts),)),
        *((value, (2,)) for value in inputs.values()),
    )
    rule = RuleForm(f"{model.explain()} Limits on what experts get are not part of the graph.")
    return _Decided(label, confidence, acceptance, rule, proba, (ask, expected_cost))


def _reliability(graph: Graph, X: str, model: DeferOption, name: str) -> str | None:
    """Return the estimate that an expert is right from features or from a column, if there is one."""
    kind, place = model.reliability_[name].kind, model.experts_[name].model
    if kind == "features":
        found = classifier_proba(graph, X, model.learners_[name], np.arange(2))
        return graph.op("Gather", found, np.array(1), axis=1)
    if kind != "stored":
        return None
    if not isinstance(place, int | np.integer):
        raise ExportError(
            f"whether {name!r} is right is read from the column {place!r} by its name, which a matrix of features "
            "does not have; give the number of the column."
        )
    return graph.op("Gather", X, np.array(int(place)), axis=1)


def _declare_outputs(graph: Graph, found: _Decided, classes: Any, experts: list[str]) -> None:
    def declare(value: str, name: str, dtype: Any, words: str, *more: int) -> None:
        given = graph.op("Slice", value, np.array([0]), np.array([-1]), np.array([0]))  # without the last row
        if name == "label":
            given = graph.op("Gather", classes, given, axis=0)
        graph.output(given, name, dtype, ["rows", *more], words)

    kind: Any = str if classes.dtype.kind == "U" else classes.dtype
    declare(found.label, "label", kind, "The class that would be answered, also where the row is rejected.")
    reject = graph.op("Not", graph.op("Greater", found.acceptance, np.array(0.0)))
    declare(reject, "reject", np.bool_, "Whether the model declines to answer.")
    declare(found.confidence, "confidence", np.float64, "Higher is more confident; the metadata say what the rule is.")
    if found.proba is not None:
        shown = ", ".join(map(str, classes.tolist()[:20])) + (", ..." if len(classes) > 20 else "")
        declare(found.proba, "proba", np.float64, f"Class probabilities, in the order {shown}.", len(classes))
    if found.experts:
        who = ", ".join(f"{number} {name}" for number, name in enumerate(experts))
        declare(found.experts[0], "ask", np.int64, f"Expert to ask: {who}; -1 if the model answers.")
        declare(found.experts[1], "expected_cost", np.float64, "Expected cost of the row, prices and mistakes.")


def _described(graph: Graph, model: Estimator, classes: Any, rule: RuleForm) -> tuple[str, dict[str, str]]:
    """Return the description of the graph and its metadata."""
    inputs, outputs = ([f"{value.name}: {value.doc_string}" for value in one] for one in (graph.inputs, graph.outputs))
    lines = ["A classifier with a reject option, made by demur.", rule.words, "Inputs", *inputs, "Outputs", *outputs]
    schema = schema_of(model)
    return "\n".join(lines), {
        "demur_version": __version__,
        "classes": json.dumps(classes.tolist(), ensure_ascii=False),
        "cost": json.dumps(rule.price),
        "cost_is_input": json.dumps(any(value.name == "cost" for value in graph.inputs)),
        "rule": rule.words,
        "novelty": "not part of this graph: novel rows are decided like others",
        "columns": "" if schema is None else json.dumps(list(schema.names), ensure_ascii=False),
    }


def export_onnx(model: Estimator, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Write a fitted model to one ONNX file and return its path.

    Parameters
    ----------
    model : RejectClassifier, RejectOption, DeferOption or TableModel
        Fitted; see :func:`onnx_model` for the inputs and outputs of the graph.
    path : path
        The file to write. Its folder must exist.
    overwrite : bool, default=False
        Whether a file that is there already may be replaced.

    Raises
    ------
    ExportError
        If a part of the model has no ONNX form.
    FileExistsError, FileNotFoundError, IsADirectoryError
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
"""How far probabilities of a graph may be from those of its model."""


@dataclass(frozen=True)
class GraphAgreement:
    """How often a graph and its model differ.

    Parameters
    ----------
    n_rows, n_labels, n_rejects : int
        Rows compared, and among them those with another label, or another decision to reject or whom to ask. Rows whose
        probabilities, or whose confidence and threshold, differ by less than 1e-6 are not counted.
    confidence, proba : float
        The largest differences; ``proba`` is 0 if there are no probabilities.
    """

    n_rows: int
    n_labels: int
    n_rejects: int
    confidence: float
    proba: float

    @property
    def decisions_agree(self) -> bool:
        """Whether every row has the same label and the same decision."""
        return not (self.n_labels or self.n_rejects)


def compare_onnx(model: Estimator, exported: Any, rows: Any, cost: float | None = None) -> GraphAgreement:
    """Run rows through a model and through its exported graph, and compare.

    The graph does not detect novel rows, so that the model decides by its rule alone as well.

    Parameters
    ----------
    model : RejectClassifier, RejectOption, DeferOption or TableModel
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
    onnxruntime = require("onnxruntime")
    is_path = isinstance(exported, (str, os.PathLike))
    content = Path(exported).read_bytes() if is_path else exported.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of every optional input
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that wait take no processor
    session = onnxruntime.InferenceSession(content, options)
    feeds = onnx_inputs(model, rows)
    if cost is not None:
        feeds["cost"] = np.array(float(cost))
    names = [output.name for output in session.get_outputs()]
    found: dict[str, AnyArray] = dict(zip(names, session.run(names, feeds), strict=True))
    if isinstance(model, TableModel):
        model = replace(model, novelty=None)
    elif not isinstance(model, DeferOption):
        model = copy(model).set_params(novelty=None)
    decision, proba = model.decide(rows, cost), 0.0
    other = found["label"] != class_values(model)[decision.label]
    if "proba" in found:
        own = np.asarray(model.predict_proba(rows), dtype=np.float64)
        proba = float(np.nanmax(np.abs(found["proba"] - own), initial=0.0))
        likely = own.max(axis=1, initial=0.0) - np.where(found["label"][:, None] == class_values(model), own, 0).sum(
            axis=1
        )
        other &= likely > TOLERANCE
    differs = (found["reject"] != decision.reject) | (found.get("ask", decision.ask) != decision.ask)
    differs &= ~(np.abs(decision.acceptance) <= TOLERANCE)
    off = float(np.nanmax(np.abs(found["confidence"] - decision.confidence), initial=0.0))
    return GraphAgreement(len(decision.label), int(other.sum()), int(differs.sum()), off, proba)
