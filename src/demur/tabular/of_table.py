"""Judging a TableModel on a table with labels."""

from typing import Any

from demur.tabular.class_labels import labelled_rows
from demur.tabular.evaluation import Evaluation
from demur.tabular.table_model import TableModel

__all__ = ["evaluate_table"]


def evaluate_table(model: TableModel, table: Any, *, cost: float | None = None, where: str = "the table") -> Evaluation:
    """Decide for each row that has a label, and judge the decisions.

    Parameters
    ----------
    model : TableModel
    table : pyarrow.Table
        With the model's columns and its target.
    cost : float, optional
        Another than the model's, where it may move. For a model with a rule that reads no cost, it only prices the
        rejections.
    where : str
        What messages call the table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> evaluate_table(fit_table(table, "pet", model="lr"), table).accepted_accuracy
    1.0
    """
    rows, labels = labelled_rows(table, model.target, where=where)
    by_rule = getattr(model.classifier, "rule_", None) is not None
    decision, scores = model.decide_and_score(rows, None if by_rule else cost, where=where)
    has_proba = hasattr(model.classifier, "predict_proba")
    return Evaluation.of(
        labels,
        decision,
        classes=model.classes,
        cost=model.cost if cost is None else cost,
        proba=scores if has_proba else None,
        cost_is_free=model.cost_adjustable,
        rule_words=model.explain(),
        rows=rows,
    )
