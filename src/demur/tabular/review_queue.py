"""Review queue: rows to review, the audit of answers, and a model fitted again on reviewed rows."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from demur.array_types import Floats, Ints, Mask
from demur.columns.frames import TableError, shown
from demur.errors import InputError
from demur.guarantees.coverage import check_share
from demur.rules import Chow, CostMatrix
from demur.tabular.table_files import LabelledTable, class_texts, writable_type
from demur.tabular.table_model import TableModel

WHY, DECLINED, AUDIT = "why", "declined", "audit"
"""The column with the reason for a review, and its values; it is empty for rows that are not reviewed."""

_MOST_ROWS = 200_000
"""Largest number of rows after weighting; beyond it all weights are scaled down by the same factor."""


def draw_audit(reject: ArrayLike, share: float, rng: np.random.Generator) -> Mask:
    """Draw answered rows for a review at random, each with the same probability; declined rows are never drawn.

    The share of wrong answers among the drawn ones is then an unbiased estimate of that among all answers, unlike that
    of rows chosen by hand.

    Parameters
    ----------
    reject : array of bool, shape (n,)
        Whether the model declined the row.
    share : float
        The probability, in [0, 1].
    rng : numpy.random.Generator

    Examples
    --------
    >>> draw_audit([False, True, False, False], 0.5, np.random.default_rng(0))
    array([False, False,  True,  True])
    """
    check_audit(share)
    rejected = np.asarray(reject, dtype=bool)
    return ~rejected & (rng.random(rejected.shape) < share)


def check_audit(share: float) -> None:
    """Refuse an audit share outside [0, 1]."""
    if not 0 <= share <= 1:
        raise InputError(f"audit must be a share from 0 to 1, got {share!r}.")


def reviewed_rows(table: pa.Table, model: TableModel, *, where: str = "the table") -> tuple[pa.Table, Mask | None]:
    """Return the rows that were declined or drawn for the audit, and which were declined; None if it is not known.

    The column ``why``, which the service and ``demur monitor --to-review`` write, has the reason. Rows without a reason
    were answered and not drawn: their labels have another origin, and they are left out because they would bias
    estimates.

    Parameters
    ----------
    table : pyarrow.Table
    model : TableModel
        If one of its own columns is called ``why``, that column is not read.
    where : str
        The name of the table in messages.

    Examples
    --------
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(table, "pet", model="lr")
    >>> kept = pa.table({"size": [3.1, 1.1, 5.1], "pet": ["dog", "cat", "cat"], "why": ["declined", "audit", None]})
    >>> rows, declined = reviewed_rows(kept, model)
    >>> rows["size"].to_pylist(), declined
    ([3.1, 1.1], array([ True, False]))
    """
    if WHY not in table.column_names or WHY in (*model.schema.names, model.target):
        return table, None
    why = np.array([one or "" for one in class_texts(table[WHY])])
    odd = np.setdiff1d(why, [DECLINED, AUDIT, ""])
    if len(odd) or not why.any():
        found = f"holds {shown(odd[0])}" if len(odd) else "is empty in all rows"
        raise TableError(f"the column {shown(WHY)} of {where} {found}: write {DECLINED} or {AUDIT} for reviewed rows")
    return table.filter(pa.array(why != "")), np.asarray(why[why != ""] == DECLINED)


def savings(model: TableModel, table: Any, cost: float | None = None, *, where: str = "the table") -> Floats:
    """Return the expected saving of a review of each row: the cost of the best answer minus that of the review.

    With a cost c this is 1 - p - c, where p is the confidence in the first choice. With a cost matrix it is the
    smallest mean cost of an answer minus that of declining. With a rule without a cost it is 1 - p, the mistakes saved.
    It is negative where answering is cheaper. The probabilities of a novel row are not reliable: its answer counts as
    wrong, at the highest cost.

    Parameters
    ----------
    model : TableModel
        A model with class probabilities.
    table : pyarrow.Table, RecordBatch, or a pandas or polars DataFrame
    cost : float, optional
        Cost of a review, if it differs from the model's.
    where : str
        The name of the table in messages.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(table, "pet", model="lr", cost=0.2)
    >>> savings(model, pa.table({"size": [1.1, 3.1]})).round(2)
    array([-0.2,  0.3])
    """
    model.check_proba()
    decision, proba = model.decide_and_score(table, cost, where=where)
    rule, price = getattr(model.classifier, "rule_", None), model.cost if cost is None else cost
    saves, highest = -decision.acceptance, np.asarray(1.0)
    if isinstance(rule, CostMatrix):
        matrix = np.asarray(rule.costs, dtype=np.float64)
        highest = matrix[:, :-1].max() - proba @ matrix[:, -1]
    elif price is None:
        saves = 1 - decision.confidence
    else:
        highest = highest - price
    return np.asarray(saves if decision.novel is None else np.where(decision.novel, highest, saves), dtype=np.float64)


def rows_to_review(saves: ArrayLike, budget: float) -> Mask:
    """Return which rows to review: those with the largest savings, the earlier one of two that tie.

    Parameters
    ----------
    saves : array of shape (n,)
    budget : int or float
        A number of rows, or a share below 1 of them, rounded down. A number beyond n chooses all.

    Examples
    --------
    >>> rows_to_review([0.1, 0.3, 0.3, -0.2, 0.3], 2)
    array([False,  True,  True, False, False])
    >>> rows_to_review([0.1, 0.3, 0.3, -0.2, 0.3], 0.7).sum()
    np.int64(3)
    """
    values = np.asarray(saves, dtype=np.float64)
    if not (math.isfinite(budget) and budget >= 0) or (budget >= 1 and budget != int(budget)):
        raise InputError(f"a review budget is a whole number of rows, or a share below 1, got {budget!r}.")
    n_rows = math.floor(budget * len(values) + 1e-9) if budget < 1 else int(budget)
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-values, kind="stable")[:n_rows]] = True
    return chosen


def review_weights(declined: Mask, labelled: Mask, audit: float) -> Floats:
    """Return the number of rows of the stream that each reviewed row represents; 0 if there is no label yet.

    The weight of a row is the inverse of its probability of a review (Horvitz and Thompson 1952): 1 for a declined row,
    the audit share for an answered one.

    Parameters
    ----------
    declined : array of bool, shape (n,)
        Whether the model declined the row; the others were drawn for the audit.
    labelled : array of bool, shape (n,)
        Whether a reviewer has given a label. Missing labels are assumed to be missing at random.
    audit : float
        The share of answered rows that was drawn.

    Examples
    --------
    >>> review_weights(np.array([True, True, False]), np.array([True, False, True]), audit=0.1)
    array([ 2.,  0., 10.])
    """
    check_share("audit", audit, closed=True)
    weights = np.zeros(len(declined))
    for stratum, each in ((declined, 1.0), (~declined, 1 / audit)):
        known = stratum & labelled
        weights[known] = each * stratum.sum() / max(known.sum(), 1)
    return weights


@dataclass(frozen=True, eq=False)
class Refitted:
    """A model that was fitted again.

    Parameters
    ----------
    model : TableModel
    n_trained, n_declined, n_audited : int
        Old rows, declined rows that were reviewed, and answered ones of the audit.
    """

    model: TableModel
    n_trained: int
    n_declined: int
    n_audited: int


def refit_table(
    model: TableModel,
    table: pa.Table,
    reviewed: pa.Table,
    *,
    audit: float = 0.02,
    time_budget: float | None = 90.0,
    verbose: int = 0,
) -> Refitted:
    """Fit a model again on its training rows and on reviewed rows, and correct for the selection of these rows.

    Reviewers see every declined row and a random sample of the answered ones. Without a correction, ambiguous rows
    would look frequent. Training rows count once, reviewed rows as often as :func:`review_weights` says. Weights become
    repetitions of rows, which stay on one side of every split.

    Parameters
    ----------
    model : TableModel
        A model that decides by a cost, and decided which rows were reviewed.
    table : pyarrow.Table
        The rows that it was fitted on; a model does not keep them.
    reviewed : pyarrow.Table
        Declined rows and audited ones, with the reviewers' labels in the target's column. Rows without a label are not
        used yet. A column ``why`` is read as by :func:`reviewed_rows`; without it the model decides which rows were
        declined.
    audit : float, default 0.02
        The share of answered rows that was drawn for the audit.
    time_budget, verbose
        As for :func:`fit_table`.

    Examples
    --------
    >>> from demur.tabular import fit_table
    >>> old = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(old, "pet", model="lr")
    >>> seen = pa.table({"size": [3.0, 3.1, 3.2, 1.1], "pet": ["dog", "dog", "dog", "cat"]})
    >>> found = refit_table(model, old, seen, audit=0.1)
    >>> found.n_declined, found.n_audited, found.model.decide(pa.table({"size": [3.3]})).label
    (3, 1, array([1]))
    """
    from demur.tabular.fitting import fit_table

    rule = getattr(model.classifier, "rule_", None)
    if model.cost is None or not (rule is None or isinstance(rule, Chow)) or model.reads != "codes":
        raise InputError(
            "refit is for a model that demur trained and that decides by a cost: a guarantee or another rule must be "
            "fitted on a random sample of rows, with demur fit."
        )
    old = LabelledTable.of(table, model.target, "the training table").rows
    reviewed, known = reviewed_rows(reviewed, model, where="the reviewed table")
    declined = np.asarray(model.decide(reviewed).reject) if known is None else known
    labelled = np.array([text is not None for text in class_texts(reviewed[model.target])], dtype=bool)
    if not (labelled & ~declined).any():
        raise TableError(
            f"no answered row has a reviewer's label in {model.target!r}: review a random sample of the answers as well"
        )
    rows = pa.concat_tables([_plain(old, model), _plain(reviewed.filter(labelled), model)])
    repeated = _repetitions(np.append(np.ones(len(old)), review_weights(declined, labelled, audit)[labelled]))
    fitted = fit_table(
        rows.take(pa.array(repeated)),
        model.target,
        groups=repeated,
        keep=model.schema.names,
        text=[column.name for column in model.schema.columns if column.kind == "text"],
        out_of_scope=getattr(model.classifier, "out_of_scope", None),
        out_of_scope_share=getattr(model.classifier, "out_of_scope_share", None),
        model=str(model.facts["model"]),
        cost=model.cost,
        novelty=None if model.novelty is None else model.novelty.rate,
        time_budget=time_budget,
        verbose=verbose,
    )
    counts = {name: int((labelled & some).sum()) for name, some in (("declined", declined), ("audited", ~declined))}
    fitted = replace(
        fitted,
        schema=replace(fitted.schema, notation=model.schema.notation),
        label_type=writable_type(fitted.classes, model.label_type),
        facts={**fitted.facts, "rows": rows.num_rows, "refitted": counts},
    )
    return Refitted(fitted, len(old), counts["declined"], counts["audited"])


def _repetitions(weights: Floats) -> Ints:
    """Return row numbers, each about as often as its weight says, by systematic sampling."""
    expected = weights * min(1.0, _MOST_ROWS / weights.sum())
    counts = np.diff(np.floor(np.cumsum(expected) + 0.5), prepend=0.0).astype(np.int64)
    return np.repeat(np.arange(len(weights)), counts)


def _plain(table: pa.Table, model: TableModel) -> pa.Table:
    """Return the columns of the model with labels as text, so that two tables fit together."""
    labels = pa.array(class_texts(table[model.target]).tolist(), pa.string())
    return table.select(model.schema.names).append_column(model.target, labels)
