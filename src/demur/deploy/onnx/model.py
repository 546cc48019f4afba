"""From a fitted model to one ONNX graph: features in; label, reject, confidence and probabilities out."""

import json
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from demur._version import __version__
from demur.deploy.onnx import trees
from demur.deploy.onnx.class_names import class_values
from demur.deploy.onnx.errors import ExportError, require_onnx
from demur.deploy.onnx.graph import Graph
from demur.deploy.onnx.inputs import OWN_NAMES, input_names, matrix_input, schema_of, table_inputs
from demur.deploy.onnx.losses import Ruled
from demur.deploy.onnx.networks import network_decision
from demur.deploy.onnx.preprocessing import transformed
from demur.deploy.onnx.probabilities import option_proba
from demur.deploy.onnx.rules import CostInput, apply_rule, chow, fixed
from demur.estimators import RejectClassifier, RejectOption
from demur.tabular import TableModel

__all__ = ["onnx_model"]


def onnx_model(model: Any) -> Any:
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

    The graph computes in the precision of the model and decides as it does: networks in single precision, all else in
    double. A row may fall on the other side of the rule only where its confidence is as close to it as programs differ
    in the order of additions: some 5e-7 for networks, 1e-14 otherwise. What the model refuses (NaN where it takes none)
    the graph lets pass; a row whose confidence is NaN is rejected.

    Parameters
    ----------
    model : RejectClassifier, RejectOption or TableModel
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
    if not isinstance(classifier, (RejectClassifier, RejectOption)):
        raise ExportError(
            "only a fitted RejectClassifier, RejectOption or TableModel can be exported, got "
            f"{type(classifier).__name__}."
        )
    check_is_fitted(classifier)
    graph = Graph(OWN_NAMES)
    features = _features(graph, model, classifier)
    ruled, cost, proba = _decided(graph, features, classifier)
    classes = class_values(model)
    _outputs(graph, ruled, proba, classes)
    proto = graph.model(_words(graph, cost), _metadata(model, classifier, classes, cost), __version__)
    if proto.ByteSize() > trees.MOST_BYTES:
        raise ExportError(
            f"the graph takes {proto.ByteSize():,} bytes, more than the {trees.MOST_BYTES:,} of any ONNX file; fit a "
            "smaller model."
        )
    onnx.checker.check_model(proto, full_check=True)
    return proto


def _features(graph: Graph, model: Any, classifier: Any) -> str:
    schema = schema_of(model)
    if schema is None:
        names, width = (getattr(classifier, name, None) for name in ("feature_names_in_", "n_features_in_"))
        if width is None:
            raise ExportError(
                f"{type(classifier.estimator_).__name__} does not say how many features it takes; set n_features_in_."
            )
        return _with_one_more_row(graph, matrix_input(graph, int(width), names), int(width))
    graph.reserve(input_names(schema).values())
    codes = _with_one_more_row(graph, table_inputs(graph, schema), len(schema.columns))
    return transformed(graph, codes, model.dense) if isinstance(model, TableModel) else codes


def _with_one_more_row(graph: Graph, features: str, width: int) -> str:
    """Add a row, which :func:`_outputs` drops: onnxruntime gives maxima over no rows at all a wrong shape."""
    return graph.op("Concat", features, np.zeros((1, width)), axis=0)


def _decided(graph: Graph, features: str, classifier: Any) -> tuple[Ruled, CostInput, str | None]:
    if isinstance(classifier, RejectOption):
        proba = option_proba(graph, features, classifier)
        return *apply_rule(graph, proba, classifier.rule_, classifier.cost), proba
    found, probabilities = network_decision(graph, features, classifier)
    ruled = Ruled(found.label, found.acceptance, graph.cast(found.confidence, np.float64))
    if probabilities is not None:
        return *chow(graph, ruled, classifier.cost), probabilities
    words = f"Answers by the rule of {classifier.loss_.name}, which was trained for the cost {classifier.fit_cost_:g}."
    return ruled, fixed(words), None


def _outputs(graph: Graph, ruled: Ruled, proba: str | None, classes: Any) -> None:
    def given(value: str) -> str:
        ends = (np.array([end], dtype=np.int64) for end in (0, -1, 0))
        return graph.op("Slice", value, *ends)

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


def _metadata(model: Any, classifier: Any, classes: Any, cost: CostInput) -> dict[str, str]:
    default = classifier.cost if cost.default is None else cost.default
    schema = schema_of(model)
    return {
        "demur_version": __version__,
        "classes": json.dumps(classes.tolist(), ensure_ascii=False),
        "cost": repr(float(default)),
        "cost_is_input": json.dumps(cost.default is not None),
        "rule": cost.words,
        "columns": "" if schema is None else json.dumps(list(schema.names), ensure_ascii=False),
    }


def _listed(classes: Any) -> str:
    shown = [str(name) for name in classes.tolist()]
    return ", ".join(shown[:20]) + (f", ... ({len(shown)} in all)" if len(shown) > 20 else "")
