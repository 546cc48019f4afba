"""Classifiers that were fitted elsewhere: the columns they take, the form of their input, and a reject option."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.array_types import AnyArray, Estimator
from demur.columns.column import Column, as_type
from demur.columns.frames import TableError, listed, shown
from demur.columns.schema import Schema
from demur.errors import InputError, InputTypeError, MissingExtraError, UserError
from demur.rules import Rule
from demur.tabular.class_labels import class_texts, label_type
from demur.tabular.table_model import LARGEST, Reads, free_label

__all__ = [
    "REFUSALS",
    "columns_for",
    "described",
    "label_type_of",
    "model_input",
    "refusal",
    "schema_of_estimator",
    "with_reject_option",
]

REFUSALS = (ValueError, TypeError, AttributeError, KeyError, IndexError)
"""Exceptions that estimators raise on values that they cannot take."""


def model_input(schema: Schema, table: pa.Table | pa.RecordBatch, reads: Reads, where: str = "the table") -> Any:
    """Return rows as an estimator that was fitted elsewhere takes them.

    Parameters
    ----------
    schema : Schema
    table : pyarrow.Table or RecordBatch
    reads : {"numbers", "objects", "frame", "texts"}
        A matrix of numbers, a matrix of any values, a data frame, or one list of texts.
    where : str
        The name of the table in messages.

    Examples
    --------
    >>> schema = Schema((Column("size", "number"), Column("pet", "category", ("cat",))))
    >>> model_input(schema, pa.table({"pet": ["cat", "newt"], "size": [1, None]}), "objects")
    array([[1.0, 'cat'],
           [nan, 'newt']], dtype=object)
    """
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise TableError(f"{where} has no column {listed(missing)}: give all columns that the model was fitted on")
    values = {column.name: _values(column, table.column(column.name), where) for column in schema.columns}
    if reads == "frame":
        try:
            import pandas as pd  # type: ignore[import-untyped,unused-ignore] # it has no type hints
        except ImportError:
            raise MissingExtraError("this model reads a data frame: pip install pandas where it is used.") from None
        return pd.DataFrame(values)
    if reads == "texts":
        return next(iter(values.values()))
    matrix: AnyArray = np.empty((table.num_rows, len(values)), dtype=np.float64 if reads == "numbers" else object)
    for position, column in enumerate(values.values()):
        matrix[:, position] = column
    return matrix


def _values(column: Column, values: Any, where: str) -> AnyArray:
    """Return a column as pandas would hold it: NaN for what is missing, in text as well."""
    if column.kind == "number":
        numbers = column.encode(values, where)
        return np.where(np.abs(numbers) > LARGEST, np.nan, numbers)
    if column.kind in ("date", "time"):
        moments = (
            values if pa.types.is_duration(values.type) else as_type(values, column.arrow_type, column.name, where)
        )
        if pa.types.is_time(moments.type):
            moments = pc.cast(pc.cast(moments, pa.int64()), pa.duration(column.unit))
        return np.asarray(moments.to_numpy() if isinstance(moments, pa.ChunkedArray) else moments.to_numpy(False))
    typed = as_type(values, pa.bool_() if column.kind == "boolean" else pa.string(), column.name, where)
    if column.kind == "boolean" and not typed.null_count:
        return np.asarray(typed)
    found: NDArray[np.object_] = np.empty(len(typed), dtype=object)
    found[:] = [np.nan if value is None else value for value in typed.to_pylist()]
    return found


def columns_for(estimator: Estimator, schema: Schema) -> tuple[Schema, Reads]:
    """Return the columns that an estimator takes, in its order, and the form in which it takes them.

    Parameters
    ----------
    estimator : fitted classifier
    schema : Schema
        Of a table that has these columns, and perhaps others.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> schema = Schema((Column("size", "number"), Column("age", "number")))
    >>> columns_for(GaussianNB().fit([[0.0, 1.0], [1.0, 0.0]], [0, 1]), schema)[1]
    'numbers'
    """
    first = _inner(estimator)
    while steps := getattr(first, "steps", None) or getattr(first, "transformer_list", None):
        first = steps[0][1]
    names = getattr(estimator, "feature_names_in_", None)
    if hasattr(first, "build_analyzer") and names is None:
        if [column.kind for column in schema.columns] != ["category"]:
            raise TableError(
                f"{_name(first)} reads one column of text, and the schema has {listed(schema.names)}: give a table "
                "with that column and the target alone, or drop the others"
            )
        return schema, "texts"
    if names is not None:
        return _named_columns(schema, [str(name) for name in names]), "frame"
    width = getattr(estimator, "n_features_in_", None)
    if width is not None and width != len(schema.columns):
        raise TableError(
            f"{_name(estimator)} was fitted on a matrix of {width:,} columns, and the schema has "
            f"{len(schema.columns):,}, {listed(schema.names)}: give those that it was fitted on, in that order"
        )
    plain = all(column.kind in ("number", "boolean") for column in schema.columns)
    return schema, "numbers" if plain else "objects"


def _named_columns(schema: Schema, names: Sequence[str]) -> Schema:
    by_name = {column.name: column for column in schema.columns}
    missing = [name for name in names if name not in by_name]
    if missing:
        why = schema.set_aside.get(missing[0])
        because = f", of which {shown(missing[0])} cannot be used because {why}" if why else ""
        raise TableError(
            f"the model was fitted on {listed(missing)}{because}, which the schema does not have: it has "
            f"{listed(schema.names)}; give a table with the columns that the model was fitted on"
        )
    unused = {name: "the model was not fitted on it" for name in by_name if name not in set(names)}
    remarks = {name: words for name, words in schema.remarks.items() if name in names}
    aside = {**schema.set_aside, **unused}
    return replace(schema, columns=tuple(by_name[name] for name in names), set_aside=aside, remarks=remarks)


def schema_of_estimator(estimator: Estimator) -> Schema:
    """Return the columns of a fitted estimator as far as it knows them: their names, all of them as numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.naive_bayes import GaussianNB
    >>> frame = pd.DataFrame({"size": [0.0, 1.0], "age": [3.0, 2.0]})
    >>> schema_of_estimator(GaussianNB().fit(frame, ["cat", "dog"])).names
    ('size', 'age')
    """
    from demur.estimators import AutoClassifier

    inner = _inner(estimator)
    if isinstance(inner, AutoClassifier) and inner.encoding_.schema is not None:
        return inner.encoding_.schema
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"this {_name(estimator)} was not fitted on named columns, so that a table's columns cannot be matched: "
            "wrap it with a table that has them, demur wrap MODEL TABLE or TableModel.wrap(model, table)."
        )
    return Schema(tuple(Column(str(name), "number") for name in names))


def _inner(estimator: Estimator) -> Estimator:
    """Return the classifier inside a reject option, a frozen one or a search."""
    from sklearn.frozen import FrozenEstimator

    from demur.estimators import RejectOption

    while True:
        if isinstance(estimator, RejectOption):
            estimator = estimator.estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        else:
            return estimator


def with_reject_option(
    estimator: Estimator,
    *,
    cost: float | None = None,
    rule: Rule | None = None,
    rows: Any = None,
    labels: NDArray[np.str_] | None = None,
) -> Any:
    """Return a fitted classifier as one that may decline; one that may already stays as it is.

    Parameters
    ----------
    estimator : fitted classifier
    cost, rule : optional
        For a classifier without a reject option.
    rows, labels : optional
        Rows as the estimator takes them, and labels as text, to calibrate it on, and to fit the rule on.
    """
    from sklearn.base import is_classifier
    from sklearn.exceptions import NotFittedError
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils.validation import check_is_fitted

    from demur.estimators import RejectOption
    from demur.estimators.base import RejectingClassifier

    try:
        check_is_fitted(estimator)
    except NotFittedError:
        raise InputError(f"this {_name(estimator)} is not fitted: fit it first, then wrap it.") from None
    except TypeError:
        raise InputTypeError(f"a {_name(estimator)} is not a classifier: give a fitted one.") from None
    if isinstance(estimator, RejectingClassifier):
        given = {"cost": cost, "rule": rule, "calibrate": rows}
        named = [name for name, value in given.items() if value is not None]
        if named:
            raise InputError(
                f"this {_name(estimator)} has a reject option already: leave out {' and '.join(named)}, or use "
                "set_params on it before."
            )
        return estimator
    if not is_classifier(estimator) or not any(
        hasattr(estimator, one) for one in ("predict_proba", "decision_function")
    ):
        raise InputTypeError(
            f"a {_name(estimator)} is no classifier with predict_proba or decision_function: give one."
        )
    classes = np.asarray(estimator.classes_)
    if classes.ndim != 1 or len(classes) < 2:
        raise InputError(f"this {_name(estimator)} does not choose between two classes or more: classes_ is {classes}.")
    option = RejectOption(
        estimator if isinstance(estimator, FrozenEstimator) else FrozenEstimator(estimator),
        cost=0.2 if cost is None else cost,
        rule=rule,
        calibration=None if rows is None else "auto",
        reject_label=free_label(classes),
    )
    if rows is not None and labels is not None:
        return option.fit(rows, _as_classes(labels, classes))
    if rule is not None and rule.needs_fit:
        raise InputError(f"{type(rule).__name__} is fitted on labelled rows: give some that are new to the model.")
    return _uncalibrated(option, classes)


def _uncalibrated(option: Any, classes: AnyArray) -> Any:
    """Return the option as ``fit`` would leave it without any rows: only the classes are known."""
    from demur.estimators.base import choose_reject_label

    option._check_parameters()
    option.estimator_ = option.estimator
    option.classes_ = classes
    option.reject_label_ = choose_reject_label(classes, option.reject_label)
    option.class_prior_ = np.zeros(len(classes))
    option.equal_rows_ = 0
    option.label_shift_ = option.calibrator_ = option.fitted_rule_ = None
    return option


def _as_classes(labels: NDArray[np.str_], classes: AnyArray) -> AnyArray:
    """Return labels that were read as text in the estimator's own type."""
    texts = class_texts(pa.array(classes.tolist()))
    position = {text: number for number, text in enumerate(texts)}
    unknown = sorted({str(label) for label in labels if label not in position})
    if unknown:
        raise TableError(f"the labels hold {listed(unknown)}, which the model does not know: it has {listed(texts)}")
    found: AnyArray = classes[[position[label] for label in labels]]
    return found


def label_type_of(classes: AnyArray) -> str:
    """Return how classes are written in a table, by the type that they have in an estimator.

    Examples
    --------
    >>> [label_type_of(np.array(classes)) for classes in ([0, 1], [0.5, 1.0], [False, True], ["a", "b"])]
    ['integer', 'number', 'boolean', 'text']
    """
    try:
        return label_type(pa.chunked_array([pa.array(classes.tolist())]), "classes")
    except pa.ArrowException:  # labels of several types
        return "text"


def described(estimator: Estimator) -> str:
    """Return what an estimator is, for people.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> described(make_pipeline(StandardScaler(), GaussianNB()))
    'your own Pipeline (StandardScaler, GaussianNB)'
    """
    inner = _inner(estimator)
    steps = ", ".join(_name(step) for _, step in getattr(inner, "steps", ()))
    return f"your own {_name(inner)}" + (f" ({steps})" if steps else "")


def refusal(error: Exception, estimator: Estimator, where: str) -> TableError:
    """Return an estimator's complaint about rows as one sentence."""
    if isinstance(error, UserError):
        return TableError(str(error))
    words = str(error).strip().split("\n")[0].rstrip(".: ")
    return TableError(f"{where}: the {_name(_inner(estimator))} refuses these rows: {words}")


def _name(estimator: Estimator) -> str:
    return type(estimator).__name__
