"""Classifiers that were fitted elsewhere, as models of a table: what they read, and how they may decline.

The rows reach such an estimator as it knows them: as a data frame with its own column names and texts where it was
fitted on one, else as a matrix. What it cannot read it refuses itself, and its words are passed on.
"""

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
from demur.tabular.table_model import LARGEST, Reads

__all__ = [
    "REFUSALS",
    "adopted",
    "columns_for",
    "in_words",
    "label_type_of",
    "own_input",
    "refusal",
    "repeated",
    "schema_of_estimator",
]


def own_input(schema: Schema, table: pa.Table | pa.RecordBatch, reads: Reads, where: str = "the table") -> Any:
    """Return rows as an estimator that was fitted elsewhere takes them.

    Parameters
    ----------
    schema : Schema
    table : pyarrow.Table or RecordBatch
    reads : {"numbers", "objects", "frame", "texts"}
        A matrix of numbers, a matrix of any values, a data frame, or one list of texts.
    where : str
        What messages call the table.

    Examples
    --------
    >>> schema = Schema((Column("size", "number"), Column("pet", "category", ("cat",))))
    >>> own_input(schema, pa.table({"pet": ["cat", "newt"], "size": [1, None]}), "objects")
    array([[1.0, 'cat'],
           [nan, 'newt']], dtype=object)
    """
    missing = [name for name in schema.names if name not in table.schema.names]
    if missing:
        raise TableError(f"{where} has no column {listed(missing)}: give all columns that the model was fitted on")
    values = {column.name: _values(column, table.column(column.name), where) for column in schema.columns}
    if reads == "frame":
        return _frame(values)
    if reads == "texts":
        (texts,) = values.values()
        return texts
    matrix: AnyArray = np.empty((table.num_rows, len(values)), dtype=np.float64 if reads == "numbers" else object)
    for position, column in enumerate(values.values()):
        matrix[:, position] = column
    return matrix


def _values(column: Column, values: Any, where: str) -> AnyArray:
    """Return a column as pandas would hold it: NaN for what is missing, in text as well."""
    if column.kind == "category":
        return _with_gaps(as_type(values, pa.string(), column.name, where))
    if column.kind == "boolean":
        truths = as_type(values, pa.bool_(), column.name, where)
        return _with_gaps(truths) if truths.null_count else np.asarray(truths)
    if column.kind in ("date", "time"):
        wanted = column.arrow_type
        if column.kind == "time":
            values = values if pa.types.is_duration(values.type) else as_type(values, wanted, column.name, where)
            wanted = pa.duration(column.unit)
            values = pc.cast(values, pa.int64()) if pa.types.is_time(values.type) else values
        moments = as_type(values, wanted, column.name, where)
        return np.asarray(moments.to_numpy() if isinstance(moments, pa.ChunkedArray) else moments.to_numpy(False))
    numbers = column.encode(values, where)
    return np.where(np.abs(numbers) > LARGEST, np.nan, numbers)


def _with_gaps(values: Any) -> NDArray[np.object_]:
    found: NDArray[np.object_] = np.empty(len(values), dtype=object)
    found[:] = [np.nan if value is None else value for value in values.to_pylist()]
    return found


def _frame(values: dict[str, AnyArray]) -> Any:
    try:
        import pandas as pd  # type: ignore[import-untyped,unused-ignore] # it has no type hints
    except ImportError:
        raise MissingExtraError(
            "this model was fitted on a data frame, and reads one: pip install pandas where it is used."
        ) from None
    return pd.DataFrame(values)


def columns_for(estimator: Estimator, schema: Schema) -> tuple[Schema, Reads]:
    """Return the columns that an estimator takes, in its order, and how it reads them.

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
    first = _first_step(estimator)
    names = getattr(estimator, "feature_names_in_", None)
    if hasattr(first, "build_analyzer") and names is None:
        texts = [column.name for column in schema.columns if column.kind == "category"]
        if len(schema.columns) != 1 or len(texts) != 1:
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
    """Return the columns of a fitted estimator as far as it tells them: by name, and all of them numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.naive_bayes import GaussianNB
    >>> frame = pd.DataFrame({"size": [0.0, 1.0], "age": [3.0, 2.0]})
    >>> schema_of_estimator(GaussianNB().fit(frame, ["cat", "dog"])).names
    ('size', 'age')
    """
    from demur.estimators import AutoClassifier

    inner = _without_wrapping(estimator)
    if isinstance(inner, AutoClassifier) and inner.encoding_.schema is not None:
        return inner.encoding_.schema
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"this {_name(estimator)} was not fitted on named columns, so that nothing tells which columns of a table "
            "it takes: wrap it with a table that has them, demur wrap MODEL TABLE or TableModel.wrap(model, table)."
        )
    return Schema(tuple(Column(str(name), "number") for name in names))


def _without_wrapping(estimator: Estimator) -> Estimator:
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


def _first_step(estimator: Estimator) -> Estimator:
    estimator = _without_wrapping(estimator)
    while True:
        steps = getattr(estimator, "steps", None) or getattr(estimator, "transformer_list", None)
        if not steps:
            return estimator
        estimator = steps[0][1]


def adopted(
    estimator: Estimator,
    *,
    cost: float | None = None,
    rule: Rule | None = None,
    rows: Any = None,
    labels: NDArray[np.str_] | None = None,
) -> Any:
    """Return a fitted classifier as one that may decline.

    Parameters
    ----------
    estimator : fitted classifier
        One that may decline already stays as it is.
    cost, rule : optional
        For others.
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
                f"this {_name(estimator)} decides by what it was fitted with: leave out {' and '.join(named)}, or use "
                f"set_params on it before."
            )
        return estimator
    scores = hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")
    if not is_classifier(estimator) or not scores:
        raise InputTypeError(
            f"a {_name(estimator)} has no predict_proba and no decision_function of a classifier, so that no rule can "
            "tell how sure it is: give a fitted classifier that has one."
        )
    classes = np.asarray(estimator.classes_)
    if classes.ndim != 1 or len(classes) < 2:
        raise InputError(f"this {_name(estimator)} does not choose between two classes or more: classes_ is {classes}.")
    option = RejectOption(
        estimator if isinstance(estimator, FrozenEstimator) else FrozenEstimator(estimator),
        cost=0.2 if cost is None else cost,
        rule=rule,
        calibration=None if rows is None else "auto",
        reject_label=_free_label(classes),
    )
    if rows is not None and labels is not None:
        return option.fit(rows, _as_classes(labels, classes))
    if rule is not None and rule.needs_fit:
        raise InputError(f"{type(rule).__name__} is fitted on labelled rows: give some that are new to the model.")
    return _uncalibrated(option, classes)


def _uncalibrated(option: Any, classes: AnyArray) -> Any:
    """Return the option as fit would leave it without any row: nothing is known but the classes."""
    option._check_parameters()
    option.estimator_ = option.estimator
    option.classes_ = classes
    option.reject_label_ = option.reject_label
    option.class_prior_ = np.zeros(len(classes))
    option.equal_rows_ = 0
    option.label_shift_ = option.calibrator_ = option.fitted_rule_ = None
    return option


def _free_label(classes: AnyArray) -> Any:
    """Return what stands for "declined" among labels of this type; tables never show it."""
    known = set(classes.tolist())
    if classes.dtype.kind in "iuf":
        return -1 if -1 not in known else int(np.floor(min(known))) - 1
    if classes.dtype.kind == "b":
        return -1
    label = "reject"
    while label in known:
        label += "!"
    return label


def _as_classes(labels: NDArray[np.str_], classes: AnyArray) -> AnyArray:
    """Return labels that were read as text in the estimator's own type."""
    if not np.array_equal(np.sort(classes), classes):
        raise InputError(f"the classes {classes.tolist()[:5]} are not sorted, as scikit-learn's are: sort classes_.")
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


def in_words(estimator: Estimator) -> str:
    """Say what an estimator is.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> in_words(make_pipeline(StandardScaler(), GaussianNB()))
    'your own Pipeline (StandardScaler, GaussianNB)'
    """
    inner = _without_wrapping(estimator)
    steps = ", ".join(_name(step) for _, step in inner.steps) if hasattr(inner, "steps") else ""
    return f"your own {_name(inner)}" + (f" ({steps})" if steps else "")


REFUSALS = (ValueError, TypeError, AttributeError, KeyError, IndexError)
"""What estimators raise that meet values which they cannot take."""


def refusal(error: Exception, estimator: Estimator, where: str) -> TableError:
    """Say in one sentence what an estimator did not like about the rows."""
    if isinstance(error, UserError):
        return TableError(str(error))
    words = str(error).strip().split("\n")[0].rstrip(".: ")
    return TableError(f"{where}: the {_name(_without_wrapping(estimator))} refuses these rows: {words}")


def _name(estimator: Estimator) -> str:
    return type(estimator).__name__


def repeated(rows: Any, missing: int) -> Any:
    """Return rows with the last of them so many times more.

    Examples
    --------
    >>> repeated(np.array([[1], [2]]), 2).tolist()
    [[1], [2], [2], [2]]
    """
    order = np.minimum(np.arange(len(rows) + missing), len(rows) - 1)
    return rows.iloc[order].reset_index(drop=True) if hasattr(rows, "iloc") else rows[order]
