"""Fitting a TableModel."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from demur.columns.schema import Schema
from demur.columns.table_errors import TableError, listed, shown
from demur.estimators.candidates import dense_view
from demur.estimators.splitting import set_aside
from demur.rules import Rule
from demur.tabular.labels import class_texts, label_type
from demur.tabular.model_names import model_kind
from demur.tabular.table_model import LARGEST, TableModel

__all__ = ["check_classes", "fit_table", "labelled_rows"]

_LONGEST_NAME = 1000
"""Characters in the name of a class: NumPy gives each label as much room as the longest takes."""


def labelled_rows(table: Any, target: str, *, where: str = "the table") -> tuple[Any, Any]:
    """Return the rows that have a label, and the labels as text."""
    if target not in table.column_names:
        raise TableError(f"there is no column {shown(target)} to predict: {where} has {listed(table.column_names)}")
    label_type(table[target], target)  # refuses what can be no class
    labels = class_texts(table[target])
    known = np.array([label is not None for label in labels], dtype=bool)
    if not known.any():
        raise TableError(f"the target column {shown(target)} of {where} is empty: give rows with a label")
    longest = max(map(len, labels[known]))
    if longest > _LONGEST_NAME:
        raise TableError(
            f"the target column {shown(target)} holds a text of {longest:,} characters, which is no name of a class: "
            "choose another target"
        )
    return (table if known.all() else table.filter(known)), labels[known].astype(str)


_FOLDS = 5
"""RejectOption's own number of folds, which also says how many rows it sets aside for a rule."""


def check_classes(labels: Any, target: str) -> None:
    """Refuse labels that nothing can be learnt from: of one class only, or all different.

    Examples
    --------
    >>> check_classes(np.array(["cat", "cat"]), "pet")
    Traceback (most recent call last):
    demur.columns.table_errors.TableError: the target column 'pet' holds only one class, 'cat': give at least two
    """
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise TableError(
            f"the target column {shown(target)} holds only one class, {shown(classes[0])}: give at least two"
        )
    if counts.max() == 1:
        raise TableError(
            f"every one of the {len(labels):,} labels in {shown(target)} is different, and nothing can be learnt from "
            "one row each: choose another target, or give more rows"
        )


def fit_table(
    table: Any,
    target: str,
    *,
    model: str = "auto",
    cost: float = 0.2,
    rule: Rule | None = None,
    schema: Schema | None = None,
    time_budget: float | None = 90.0,
    verbose: int = 0,
) -> TableModel:
    """Fit a classifier with a reject option on a table.

    Parameters
    ----------
    table : pyarrow.Table
        Features and labels; rows without a label are left out.
    target : str
        The column with the labels.
    model : str, default="auto"
        One of :func:`model_names`.
    cost : float, default=0.2
    rule : Rule, optional
        As for :class:`~demur.RejectOption`.
    schema : Schema, optional
        What is known about the columns; learnt from the table by default.
    time_budget : float or None
        Seconds that "auto" may take.
    verbose : int
        1 shows a progress bar on a terminal.
    """
    kind = model_kind(model)
    rows, labels = labelled_rows(table, target)
    check_classes(labels, target)
    classes, counts = np.unique(labels, return_counts=True)
    train, aside = np.arange(len(labels)), np.array([], dtype=np.int64)
    if hasattr(rule, "fit"):  # nothing may be learnt from the rows that the rule is fitted on
        train, aside, _ = set_aside(_FOLDS, rows.drop_columns([target]), labels)
    schema = schema or Schema.learn(rows.take(train), target=target)
    codes = schema.encode(rows)
    _check_sizes(codes, schema)
    dense = dense_view(schema.categorical).fit(codes[train]) if kind.view == "dense" else None
    features = codes if dense is None else np.asarray(dense.transform(codes), dtype=np.float64)
    classifier = kind.classifier(
        len(rows), schema.categorical, cost=cost, rule=rule, time_budget=time_budget, verbose=verbose
    )
    classifier.set_params(reject_label=_no_class(classes))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration judges what came of it
        if len(aside):
            classifier.set_params(rule=None).fit(features[train], labels[train])
            classifier.set_params(rule=rule).fit_rule(features[aside], labels[aside])
        else:
            classifier.fit(features, labels)
    inner: Any = getattr(classifier, "estimator_", None)
    if "n_jobs" in getattr(inner, "get_params", dict)() and kind.name != "auto":
        inner.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
    facts = {
        "model": kind.name,
        "model_in_words": kind.words,
        "rows": len(train),
        "rows_for_the_rule": len(rows) - len(train),
        "rows_without_label": table.num_rows - len(rows),
        "classes": {str(name): int(count) for name, count in zip(classes, counts, strict=True)},
    }
    return TableModel(schema, classifier, dense, label_type(table[target], target), facts)


def _no_class(classes: NDArray[np.str_]) -> str:
    """Return a reject label that is none of the classes, whatever they are called; tables never show it."""
    label = "reject"
    while label in classes:
        label += "!"
    return label


def _check_sizes(codes: NDArray[np.float64], schema: Schema) -> None:
    rows, columns = np.nonzero(np.abs(codes) > LARGEST)
    if len(rows):
        name, value = schema.names[columns[0]], codes[rows[0], columns[0]]
        raise TableError(
            f"column {shown(name)} holds {value:.3g}, which is beyond what models can compare: divide it by a power of "
            "ten, or leave it out with --drop"
        )
