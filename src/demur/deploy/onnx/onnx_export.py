"""From a fitted model to one ONNX graph: features in; label, reject, confidence and probabilities out."""

import json
import os
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from demur._version import __version__
from demur.array_types import AnyArray, Estimator
from demur.deferral import DeferOption
from demur.deploy.onnx import tree_graphs
from demur.deploy.onnx.classifier_graphs import option_proba
from demur.deploy.onnx.decision_graphs import CostInput, Ruled, apply_rule, chow, fixed
from demur.deploy.onnx.deferral_graphs import Asked, asked
from demur.deploy.onnx.input_graphs import (
    OWN_NAMES,
    input_names,
    matrix_input,
    onnx_inputs,
    schema_of,
    table_inputs,
    transformed,
)
from demur.deploy.onnx.loss_graphs import network_decision
from demur.deploy.onnx.onnx_graph import ExportError, Graph, require_onnx
from demur.errors import MissingExtraError
from demur.estimators import RejectClassifier, RejectOption
from demur.tabular import TableModel
from demur.whole_file import write_whole

__all__ = ["Agreement", "class_values", "compare_onnx", "export_onnx", "onnx_model"]


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
        names = [str(name) for name in model.classes]
        if model.label_type == "integer":
            return _integers([int(name) for name in names])
        if model.label_type == "number":
            return np.array([float(name) for name in names])
        return np.array([name == "true" for name in names]) if model.label_type == "boolean" else np.array(names)
    classes = np.asarray(model.classes_)
    if classes.dtype.kind in "iu":
        return _integers(classes.tolist())
    if classes.dtype.kind in "fb":
        return classes.astype(np.float64 if classes.dtype.kind == "f" else np.bool_)
    if all(isinstance(name, str) for name in classes.tolist()):
        return classes.astype(str)
    raise ExportError(
        f"the classes {classes.tolist()[:5]} are neither text nor numbers nor truth values; fit again with text labels."
    )


def _integers(numbers: list[int]) -> NDArray[np.int64]:
    limits = np.iinfo(np.int64)
    if min(numbers) < limits.min or max(numbers) > limits.max:
        raise ExportError(f"the class {max(numbers, key=abs)} does not fit into 64 bits; fit again with text labels.")
    return np.array(numbers, dtype=np.int64)


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

    The graph computes in the precision of the model and decides as it does: networks in single precision, all else in
    double. A row may fall on the other side of the rule only where its confidence is as close to it as programs differ
    in the order of additions: some 5e-7 for networks, 1e-14 otherwise. What the model refuses (NaN where it takes none)
    the graph lets pass; a row whose confidence is NaN is rejected.

    The graph decides by the rule alone: rows that the model declines as novel, unlike those of training, are answered
    by it like others. Its metadata say so.

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
    onnx = require_onnx()
    classifier = model.classifier if isinstance(model, TableModel) else model
    if not isinstance(classifier, (RejectClassifier, RejectOption, DeferOption)):
        raise ExportError(
            "only a fitted RejectClassifier, RejectOption, DeferOption or TableModel can be exported, got "
            f"{type(classifier).__name__}."
        )
    check_is_fitted(classifier)
    graph = Graph(OWN_NAMES)
    features = _features(graph, model, classifier)
    classes = class_values(model)
    if isinstance(classifier, DeferOption):
        found = asked(graph, features, classifier)
        cost = fixed(f"{classifier.explain()} Limits on what experts get are not part of the graph.")
        _outputs(graph, found.ruled, found.proba, classes)
        _asking_outputs(graph, found, list(classifier.experts_))
    else:
        ruled, cost, proba = _decided(graph, features, classifier)
        _outputs(graph, ruled, proba, classes)
    proto = graph.model(_words(graph, cost), _metadata(model, classifier, classes, cost), __version__)
    if proto.ByteSize() > tree_graphs.MOST_BYTES:
        raise ExportError(
            f"the graph takes {proto.ByteSize():,} bytes, more than the {tree_graphs.MOST_BYTES:,} of any ONNX file; "
            "fit a smaller model."
        )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _features(graph: Graph, model: Estimator, classifier: Estimator) -> str:
    schema = schema_of(model)
    if schema is None:
        names, width = (getattr(classifier, name, None) for name in ("feature_names_in_", "n_features_in_"))
        if width is None:
            raise ExportError(
                f"{type(classifier.estimator_).__name__} does not say how many features it takes; set n_features_in_."
            )
        return _with_one_more_row(graph, matrix_input(graph, int(width), names), int(width))
    if isinstance(model, TableModel) and model.reads != "codes":
        other = [column.name for column in schema.columns if column.kind not in ("number", "boolean")]
        if other:
            raise ExportError(
                f"the column {other[0]!r} is read as it is by a classifier that was fitted elsewhere, and only columns "
                "of numbers are exported for such; export your own pipeline with skl2onnx."
            )
    graph.reserve(input_names(schema).values())
    codes = _with_one_more_row(graph, table_inputs(graph, schema), len(schema.columns))
    return transformed(graph, codes, model.dense) if isinstance(model, TableModel) else codes


def _with_one_more_row(graph: Graph, features: str, width: int) -> str:
    """Add a row, which :func:`_outputs` drops: onnxruntime gives maxima over no rows at all a wrong shape."""
    return graph.op("Concat", features, np.zeros((1, width)), axis=0)


def _decided(graph: Graph, features: str, classifier: Estimator) -> tuple[Ruled, CostInput, str | None]:
    if isinstance(classifier, RejectOption):
        proba = option_proba(graph, features, classifier)
        return *apply_rule(graph, proba, classifier.rule_, classifier.cost), proba
    found, probabilities = network_decision(graph, features, classifier)
    ruled = Ruled(found.label, found.acceptance, graph.cast(found.confidence, np.float64))
    if probabilities is not None:
        return *chow(graph, ruled, classifier.cost), probabilities
    words = f"Answers by the rule of {classifier.loss_.name}, which was trained for the cost {classifier.fit_cost_:g}."
    return ruled, fixed(words, price=classifier.fit_cost_), None


def _given(graph: Graph, value: str) -> str:
    """Drop the last row, which :func:`_with_one_more_row` has added."""
    ends = (np.array([end], dtype=np.int64) for end in (0, -1, 0))
    return graph.op("Slice", value, *ends)


def _asking_outputs(graph: Graph, found: Asked, names: list[str]) -> None:
    experts = ", ".join(f"{number} {name}" for number, name in enumerate(names))
    graph.output(_given(graph, found.ask), "ask", np.int64, ["rows"], f"Who is asked: {experts}; -1 nobody.")
    words = "What the row is expected to cost, price and mistakes."
    graph.output(_given(graph, found.expected_cost), "expected_cost", np.float64, ["rows"], words)


def _outputs(graph: Graph, ruled: Ruled, proba: str | None, classes: Any) -> None:
    def given(value: str) -> str:
        return _given(graph, value)

    kind: Any = str if classes.dtype.kind == "U" else classes.dtype
    label = graph.op("Gather", classes, given(ruled.label), axis=0)
    graph.output(label, "label", kind, ["rows"], "The class that would be answered, also where the row is rejected.")
    zero = np.array(0, dtype=np.float32 if proba is None else np.float64)
    accepted = graph.op("Greater", given(ruled.acceptance), zero)
    graph.output(graph.op("Not", accepted), "reject", np.bool_, ["rows"], "Whether the model declines to answer.")
    graph.output(
        given(ruled.confidence), "confidence", np.float64, ["rows"], "Higher is surer; see the rule in the metadata."
    )
    if proba is not None:
        words = f"The probability of each class, in the order {_listed(classes)}."
        graph.output(given(proba), "proba", np.float64, ["rows", len(classes)], words)


def _words(graph: Graph, cost: CostInput) -> str:
    inputs = [f"{value.name}: {value.doc_string}" for value in graph.inputs]
    outputs = [f"{value.name}: {value.doc_string}" for value in graph.outputs]
    return "\n".join(
        ["A classifier with a reject option, made by demur.", cost.words, "Inputs", *inputs, "Outputs", *outputs]
    )


def _metadata(model: Estimator, classifier: Estimator, classes: Any, cost: CostInput) -> dict[str, str]:
    schema = schema_of(model)
    return {
        "demur_version": __version__,
        "classes": json.dumps(classes.tolist(), ensure_ascii=False),
        "cost": json.dumps(cost.price),
        "cost_is_input": json.dumps(cost.default is not None),
        "rule": cost.words,
        "novelty": "not part of this graph: novel rows are not told from others",
        "columns": "" if schema is None else json.dumps(list(schema.names), ensure_ascii=False),
    }


def _listed(classes: Any) -> str:
    shown = [str(name) for name in classes.tolist()]
    return ", ".join(shown[:20]) + (f", ... ({len(shown)} in all)" if len(shown) > 20 else "")


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


@dataclass(frozen=True)
class Agreement:
    """How often a graph and its model differ.

    Parameters
    ----------
    n_rows, n_labels, n_rejects : int
        Rows compared, and among them those with another label, or another decision to reject or whom to ask.
    confidence, proba : float
        The largest differences; NaN in both counts as equal, and ``proba`` is 0 where there is none.
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


def compare_onnx(model: Estimator, exported: Any, rows: Any, cost: float | None = None) -> Agreement:
    """Run rows through a model and through its exported graph, and compare.

    The graph does not tell novel rows, so that the model is asked for what its rule decides, novel or not.

    Parameters
    ----------
    model : RejectClassifier, RejectOption, DeferOption or TableModel
    exported : path or ModelProto
    rows : as the model takes them
    cost : float, optional
        Another than the model's.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from demur import RejectOption
    >>> from demur.deploy.onnx import onnx_model
    >>> model = RejectOption(GaussianNB(), calibration=None).fit([[0.0], [0.1], [1.0], [1.1]], [0, 0, 1, 1])
    >>> compare_onnx(model, onnx_model(model), [[0.4], [0.55], [0.9]]).decisions_agree
    True
    """
    try:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore] # it has no type hints
    except ImportError:
        raise MissingExtraError(
            "running an exported model needs the package onnxruntime; install it with: pip install demur[onnx]"
        ) from None
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
    decision = _by_the_rule(model).decide(rows, cost)
    proba = 0.0
    if "proba" in found:
        proba = _largest_difference(found["proba"], model.predict_proba(rows))
    return Agreement(
        len(decision.label),
        int(np.sum(found["label"] != class_values(model)[decision.label])),
        int(np.sum((found["reject"] != decision.reject) | (found.get("ask", decision.ask) != decision.ask))),
        _largest_difference(found["confidence"], decision.confidence),
        proba,
    )


def _by_the_rule(model: Estimator) -> Any:
    """Return a model that decides as the given one, without looking for novel rows."""
    if isinstance(model, TableModel):
        return replace(model, novelty=None)
    return model if isinstance(model, DeferOption) else copy(model).set_params(novelty=None)


def _largest_difference(ours: AnyArray, theirs: Any) -> float:
    theirs = np.asarray(theirs, dtype=np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    difference = np.where(same, 0.0, np.abs(np.where(same, 0, ours) - np.where(same, 0, theirs)))
    return float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
