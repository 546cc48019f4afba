"""Fit a model again with reviewed rows, and correct for the selection of these rows.

Reviewers see every declined row and a random sample of the answered ones. Added to the training rows as they are, they
would make ambiguous rows look frequent. The probability of a review is known: 1 for a declined row, the audit share for
an answered one; the weight of a row is its inverse (Horvitz and Thompson 1952).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.columns.frames import TableError
from demur.columns.schema import Schema
from demur.errors import InputError
from demur.metrics import Interval, mean_interval
from demur.rules import Chow
from demur.tabular.class_labels import LabelledTable, as_column, class_texts
from demur.tabular.model_training import fit_table
from demur.tabular.review_queue import reviewed_rows
from demur.tabular.table_model import TableModel

__all__ = ["Refitted", "refit_table", "review_weights", "stratified_mean"]

Floats = NDArray[np.float64]

_HELD_OUT = 0.2
_FEWEST_JUDGED = 20
_MOST_ROWS = 200_000
"""Rows that weights may multiply the table to; beyond it all weights shrink alike."""
_NORMAL = 1.959963984540054


@dataclass(frozen=True, eq=False)
class Refitted:
    """A model that was fitted again, and what it is worth on the stream.

    Parameters
    ----------
    model : TableModel
    n_trained, n_declined, n_audited : int
        Old rows, declined rows that were reviewed, and answered ones of the audit.
    n_judged : int
        Reviewed rows that were held out of the fit to judge it; 0 where there are too few.
    old_risk, new_risk, gain : Interval or None
        What a row of the stream costs by the old model and by the new one, and the difference, old less new: means of
        the declined and the audited rows held out, weighted by their share of the stream, with 95 % intervals.
    """

    model: TableModel
    n_trained: int
    n_declined: int
    n_audited: int
    n_judged: int
    old_risk: Interval | None
    new_risk: Interval | None
    gain: Interval | None


def review_weights(declined: NDArray[np.bool_], labelled: NDArray[np.bool_], audit: float) -> Floats:
    """Return how many rows of the stream each reviewed row stands for; 0 where there is no label yet.

    Parameters
    ----------
    declined : array of bool, shape (n,)
        Whether the model declined the row; the others were drawn for the audit.
    labelled : array of bool, shape (n,)
        Whether a reviewer has given a label. Those without one are taken to be missing by chance.
    audit : float
        The share of answered rows that was drawn.

    Examples
    --------
    >>> review_weights(np.array([True, True, False]), np.array([True, False, True]), audit=0.1)
    array([ 2.,  0., 10.])
    """
    if not 0 < audit <= 1:
        raise InputError(f"audit must be a share above 0 and at most 1, got {audit!r}.")
    weights = np.zeros(len(declined))
    for stratum, each in ((declined, 1.0), (~declined, 1 / audit)):
        known = stratum & labelled
        if known.any():
            weights[known] = each * stratum.sum() / known.sum()
    return weights


def refit_table(
    model: TableModel,
    table: pa.Table,
    reviewed: pa.Table,
    *,
    audit: float = 0.02,
    rejected_share: float | None = None,
    time_budget: float | None = 90.0,
    verbose: int = 0,
) -> Refitted:
    """Fit a model again, on its training rows and on reviewed rows, each with the weight that its selection asks for.

    Training rows count once. Reviewed rows count for those of the stream that they stand for, as
    :func:`review_weights` says; where no answered row was reviewed, the training rows that the model answers must stand
    for those of the stream, and declined rows, old and new, are weighted to be as frequent as they are. Weights become
    repetitions of rows, which stay on one side of every split.

    Parameters
    ----------
    model : TableModel
        That decides by a price, and decided which rows were reviewed.
    table : pyarrow.Table
        The rows that it was fitted on; a model does not keep them.
    reviewed : pyarrow.Table
        Declined rows and audited ones, with the reviewers' labels in the target's column; rows without one are waiting.
        A column ``why`` (``declined`` or ``audit``), as ``demur monitor --to-review`` and the service write it, says
        which is which, and rows in which it is empty are left out; without it the model is asked.
    audit : float, default 0.02
        The share of answered rows that was drawn for the audit.
    rejected_share : float, optional
        Where nothing was audited: the share of rows that is declined now; by default what the model saw when it was
        fitted.
    time_budget, verbose
        As for :func:`fit_table`.

    Examples
    --------
    >>> old = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(old, "pet", model="lr")
    >>> seen = pa.table({"size": [3.0, 3.2, 3.4, 1.1], "pet": ["dog", "dog", "dog", "cat"]})
    >>> found = refit_table(model, old, seen, audit=0.1)
    >>> found.n_declined, found.n_audited, found.model.decide(pa.table({"size": [3.3]})).label
    (3, 1, array([1]))
    """
    cost = _price(model)
    old = LabelledTable.of(table, model.target, "the training table").rows
    reviewed, known = reviewed_rows(reviewed, model, where="the reviewed table")
    declined = np.asarray(model.decide(reviewed).reject) if known is None else known
    labelled = np.array([text is not None for text in class_texts(reviewed[model.target])], dtype=bool)
    if not labelled.any():
        raise TableError(f"no reviewed row has a label in the column {model.target!r}: fill it in first")
    weights = review_weights(declined, labelled, audit)
    judged = _held_out(declined, labelled)
    used = labelled & ~judged
    of_old, of_new = np.ones(len(old)), weights[used] * (weights.sum() / max(weights[used].sum(), 1e-300))
    if not (~declined & used).any():
        share = _rejected_share(model, rejected_share)
        of_old, of_new = _declined_as_frequent(model.decide(old).reject, int(used.sum()), share)
    rows = pa.concat_tables([_plain(old, model), _plain(reviewed.filter(used), model)])
    fitted = fit_table(
        rows.take(pa.array(_repetitions(np.concatenate([of_old, of_new])))),
        model.target,
        schema=_of_rows(rows, model),
        model=str(model.facts["model"]),
        cost=cost,
        novelty=None if model.novelty is None else model.novelty.rate,
        time_budget=time_budget,
        verbose=verbose,
    )
    n_new = int((declined & used).sum()), int((~declined & used).sum())
    own = {"rows": len(old) + sum(n_new), "refitted": {"declined": n_new[0], "audited": n_new[1]}}
    fitted = replace(fitted, label_type=_label_type(fitted, model), facts={**fitted.facts, **own})
    risks: tuple[Interval | None, ...] = (None, None, None)
    if judged.any():
        counts = int(declined.sum()), int((~declined).sum())
        risks = _compared((model, fitted), reviewed.filter(judged), declined[judged], counts, audit)
    n_reviewed = int((declined & labelled).sum()), int((~declined & labelled).sum())
    return Refitted(fitted, len(old), *n_reviewed, int(judged.sum()), *risks)


def _price(model: TableModel) -> float:
    rule = getattr(model.classifier, "rule_", None)
    if model.cost is None or not (rule is None or isinstance(rule, Chow)):
        raise InputError(
            "a guarantee or a rule must be fitted on rows as they come, which reviewed rows are not: fit again with "
            "demur fit on such rows; refit is for a model that decides by a cost."
        )
    if model.facts.get("model") is None or "rows" not in model.facts:
        raise InputError("this model was fitted elsewhere, and can be fitted again there only.")
    return model.cost


def _held_out(declined: NDArray[np.bool_], labelled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Choose reviewed rows to judge on, of both kinds; none where there are too few."""
    rng, held = np.random.default_rng(0), np.zeros(len(declined), dtype=bool)
    for stratum in (declined & labelled, ~declined & labelled):
        rows = rng.permutation(np.flatnonzero(stratum))
        held[rows[: int(_HELD_OUT * len(rows))]] = True
    # Without audited rows, only the declined ones would be judged.
    return held if held.sum() >= _FEWEST_JUDGED and (held & ~declined).any() else np.zeros_like(held)


def _rejected_share(model: TableModel, given: float | None) -> float:
    known = model.facts.get("reference") or {"n_rejected": 0, "n_rows": 1}
    if given is None and not known["n_rejected"]:
        raise InputError(
            "no answered row was reviewed, and the model does not know how many rows it declines: give rejected_share, "
            "or review a random few of its answers as well."
        )
    share = float(known["n_rejected"] / known["n_rows"]) if given is None else given
    if not 0 < share < 1:
        raise InputError(f"rejected_share must be between 0 and 1, got {share!r}.")
    return share


def _declined_as_frequent(old_declined: NDArray[np.bool_], n_new: int, share: float) -> tuple[Floats, Floats]:
    """Weigh declined rows, old and new, so that together they have their share; answered rows count once."""
    n_answered = int((~old_declined).sum())
    mass = share / (1 - share) * n_answered
    each = mass / max(int(old_declined.sum()) + n_new, 1)
    return np.where(old_declined, each, 1.0), np.full(n_new, each)


def _repetitions(weights: Floats) -> NDArray[np.int64]:
    """Return row numbers, each about as often as its weight says: systematic sampling, without chance."""
    expected = weights * min(1.0, _MOST_ROWS / weights.sum())
    up_to = np.floor(np.cumsum(expected) + 0.5)
    counts = np.diff(np.concatenate([[0.0], up_to])).astype(np.int64)
    return np.repeat(np.arange(len(weights)), counts)


def _plain(table: pa.Table, model: TableModel) -> pa.Table:
    """Return the columns of the model with labels as text, so that two tables fit together."""
    labels = pa.array(class_texts(table[model.target]).tolist(), pa.string())
    return table.select(model.schema.names).append_column(model.target, labels)


def _of_rows(rows: pa.Table, model: TableModel) -> Schema:
    """Return the schema of the model with the categories that these rows hold."""
    schema = Schema.learn(rows, target=model.target, keep=model.schema.names)
    return replace(schema, decimal=model.schema.decimal, dayfirst=model.schema.dayfirst)


def _label_type(fitted: TableModel, model: TableModel) -> str:
    """Return how labels are written: as before, unless a new class cannot be."""
    try:
        as_column(fitted.classes, model.label_type)
    except (pa.ArrowException, ValueError):
        return "text"
    return model.label_type


def _compared(
    models: tuple[TableModel, TableModel],
    rows: pa.Table,
    declined: NDArray[np.bool_],
    n_reviewed: tuple[int, int],
    audit: float,
) -> tuple[Interval, ...]:
    """Return the risk of both models and the gain, from declined and audited rows that were held out.

    Parameters
    ----------
    models : pair of TableModel
        The old one and the new one.
    rows : pyarrow.Table
        The rows held out.
    declined : array of bool
        Which of them were declined.
    n_reviewed : pair of int
        All declined rows, and all audited ones.
    audit : float
    """
    cost, labels = _price(models[0]), class_texts(rows[models[0].target]).astype(str)
    losses = []
    for model in models:
        decision = model.decide(rows)
        losses.append(np.where(decision.reject, cost, model.classes[decision.label] != labels))
    before, after = losses
    possible = np.array([0.0, cost, 1.0])
    strata = [(declined, np.array([cost])), (~declined, np.array([0.0, 1.0]))]  # with the losses of the old model
    found = []
    for values, support in (
        (before, lambda own: own),
        (after, lambda own: possible),
        (before - after, lambda own: np.subtract.outer(own, possible)),
    ):
        means = [_mean(values[part], support(np.union1d(own, before[part]))) for part, own in strata]
        found.append(stratified_mean(means, (n_reviewed[0], n_reviewed[1] / audit), n_reviewed))
    return tuple(found)


def _mean(values: Floats, possible: Floats) -> Interval:
    """Return the mean of values with an interval that knows which other values are possible; all of them for none."""
    if not len(values):
        return Interval(float(np.mean(possible)), float(np.min(possible)), float(np.max(possible)), 0.95)
    support = np.unique(np.round(possible, 12))
    counts = np.bincount(np.abs(values[:, None] - support).argmin(axis=1), minlength=len(support))
    return mean_interval(support, counts)


def stratified_mean(means: Sequence[Interval], sizes: Sequence[float], n_counted: Sequence[int]) -> Interval:
    """Combine the means of declined and answered rows into that of the stream, with a 95 % interval.

    The distances from each estimate to its ends are combined like standard errors (MOVER, Zou and Donner 2008), with
    that of the shares of the two strata, whose sizes are known from ``n_counted`` rows only.

    Parameters
    ----------
    means : pair of Interval
        Of the declined rows, and of the answered ones; a stratum of size 0 is not used.
    sizes : pair of float
        The estimated number of rows of each in the stream.
    n_counted : pair of int
        The number of rows that each size was estimated from.

    Examples
    --------
    >>> declined, answered = mean_interval([0.0, 1.0], [30, 10]), mean_interval([0.0, 1.0], [50, 0])
    >>> print(stratified_mean([declined, answered], [40, 360], [40, 36]))
    0.025 [0.01006, 0.09213]
    """
    if not all(sizes):
        return means[0] if sizes[0] else means[1]
    odds, spread = sizes[0] / sizes[1], math.exp(_NORMAL * math.sqrt(sum(1 / count for count in n_counted)))
    share, *ends = (one / (1 + one) for one in (odds, odds / spread, odds * spread))
    first, second = means
    mean = share * first.estimate + (1 - share) * second.estimate
    moved = [(end - share) * (first.estimate - second.estimate) for end in ends]
    below = (share * (first.estimate - first.low), (1 - share) * (second.estimate - second.low), min(moved))
    above = (share * (first.high - first.estimate), (1 - share) * (second.high - second.estimate), max(moved))
    return Interval(mean, mean - math.hypot(*below), mean + math.hypot(*above), 0.95)
