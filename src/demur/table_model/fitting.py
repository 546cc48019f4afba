"""Fitting a TableModel."""

from typing import Any

import numpy as np

from demur.estimators.auto_candidates import dense_view
from demur.rules import Rule
from demur.table_model.labels import class_texts, label_type
from demur.table_model.model import TableModel
from demur.table_model.model_names import model_kind
from demur.tables import Schema, TableError

__all__ = ["fit_table", "labelled_rows"]


def labelled_rows(table: Any, target: str) -> tuple[Any, Any]:
    """Return the rows that have a label, and the labels as text."""
    if target not in table.column_names:
        names = ", ".join(map(repr, table.column_names[:10]))
        more = ", ..." if len(table.column_names) > 10 else ""
        raise TableError(f"there is no column {target!r} to predict: the table has {names}{more}")
    label_type(table[target], target)  # refuses what can be no class
    labels = class_texts(table[target])
    known = np.array([label is not None for label in labels], dtype=bool)
    if not known.any():
        raise TableError(f"the target column {target!r} is empty: no row has a label")
    return (table if known.all() else table.filter(known)), labels[known].astype(str)


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
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise TableError(f"the target column {target!r} holds only one class, {str(classes[0])!r}: give at least two")
    if counts.max() == 1:
        raise TableError(
            f"every one of the {len(labels):,} labels in {target!r} is different: nothing can be learnt from one row "
            "each; is it the right column?"
        )
    schema = schema or Schema.learn(rows, target=target)
    codes = schema.encode(rows)
    dense = dense_view(schema.categorical).fit(codes) if kind.view == "dense" else None
    features = codes if dense is None else np.asarray(dense.transform(codes), dtype=np.float64)
    classifier = kind.classifier(
        len(rows), schema.categorical, cost=cost, rule=rule, time_budget=time_budget, verbose=verbose
    )
    classifier.fit(features, labels)
    inner: Any = getattr(classifier, "estimator_", None)
    if "n_jobs" in getattr(inner, "get_params", dict)() and kind.name != "auto":
        inner.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
    facts = {
        "model": kind.name,
        "model_in_words": kind.words,
        "rows": len(rows),
        "rows_without_label": table.num_rows - len(rows),
        "classes": {str(name): int(count) for name, count in zip(classes, counts, strict=True)},
    }
    return TableModel(schema, classifier, dense, label_type(table[target], target), facts)
