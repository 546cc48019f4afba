"""A review queue of limited size: which rows to review, why, and the expected saving of each review."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from demur.columns.frames import TableError, shown
from demur.errors import InputError
from demur.rules import CostMatrix
from demur.tabular.class_labels import class_texts
from demur.tabular.table_model import TableModel

__all__ = ["ReviewThreshold", "draw_audit", "reviewed_rows", "rows_to_review", "savings"]

Floats = NDArray[np.float64]

WHY, DECLINED, AUDIT = "why", "declined", "audit"
"""The column that says why a row is reviewed, and what it says; it is empty where a row is not."""


def draw_audit(reject: ArrayLike, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
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
    """Refuse what is not a share."""
    if not 0 <= share <= 1:
        raise InputError(f"audit must be a share from 0 to 1, got {share!r}.")


def reviewed_rows(
    table: pa.Table, model: TableModel, *, where: str = "the table"
) -> tuple[pa.Table, NDArray[np.bool_] | None]:
    """Return the rows that were declined or drawn for the audit, and which were declined; None where nothing says.

    A column ``why`` says it, as the service and ``demur monitor --to-review`` write it. A row in which it is empty was
    answered and not drawn: whoever gave it a label had a reason to, which an estimate must not depend on.

    Parameters
    ----------
    table : pyarrow.Table
    model : TableModel
        A column of its own that is called ``why`` says nothing about reviews.
    where : str
        What messages call the table.

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
    why = np.array([one or None for one in class_texts(table[WHY])], dtype=object)
    known = {DECLINED, AUDIT, None}
    odd = next((one for one in why.tolist() if one not in known), None)
    if odd is not None:
        problem = f"the column {shown(WHY)} of {where} holds {shown(odd)}"
        raise TableError(f"{problem}: it says {DECLINED} or {AUDIT}, or nothing; give another column another name")
    reviewed = np.array([one is not None for one in why], dtype=bool)
    if len(why) and not reviewed.any():
        problem = f"the column {shown(WHY)} of {where} says {DECLINED} or {AUDIT} of no row"
        raise TableError(f"{problem}: other rows say nothing about the answers; give those that were to be reviewed")
    declined = np.asarray(why[reviewed] == DECLINED, dtype=bool)
    return (table if reviewed.all() else table.filter(pa.array(reviewed))), declined


def savings(model: TableModel, table: Any, cost: float | None = None, *, where: str = "the table") -> Floats:
    """Return the expected saving of a review of each row: the cost of the best answer less that of the review.

    With a price c that is 1 - p - c, where p is the probability of the first choice; with a cost matrix, the smallest
    mean cost of an answer less that of declining; with a rule that has no price, 1 - p: the mistakes saved. It is
    negative where answering is the cheaper way. For a novel row the probabilities say nothing: its answer counts as
    wrong, at the highest cost that there is.

    Parameters
    ----------
    model : TableModel
        With class probabilities.
    table : pyarrow.Table, RecordBatch, or a pandas or polars DataFrame
    cost : float, optional
        Another price of a review than the model's.
    where : str
        What messages call the table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(table, "pet", model="lr", cost=0.2)
    >>> savings(model, pa.table({"size": [1.1, 3.1]})).round(2)
    array([-0.2,  0.3])
    """
    if not model.has_proba:
        raise InputError(
            "savings are computed from class probabilities, which this model does not have: fit one that has them, "
            "such as auto or ce."
        )
    decision, proba = model.decide_and_score(table, cost, where=where)
    novel = np.zeros(len(proba), dtype=bool) if decision.novel is None else decision.novel
    rule = getattr(model.classifier, "rule_", None)
    if isinstance(rule, CostMatrix):
        matrix = np.asarray(rule.costs, dtype=np.float64)
        costs = proba @ matrix
        least = costs[:, :-1].min(axis=1)
        return np.asarray(np.where(novel, matrix[:, :-1].max(), least) - costs[:, -1])
    price = model.cost if cost is None else cost
    wrong = np.where(novel, 1.0, 1 - proba[np.arange(len(proba)), decision.label])
    return np.asarray(wrong - (0.0 if price is None else price), dtype=np.float64)


def rows_to_review(saves: ArrayLike, budget: float) -> NDArray[np.bool_]:
    """Return which rows to review: the given number with the largest savings, the earlier one of two that tie.

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
    if values.ndim != 1 or np.isnan(values).any():
        raise InputError(f"saves must be numbers of shape (n,) without NaN, got shape {values.shape}.")
    check_budget(budget)
    n_rows = math.floor(budget * len(values) + 1e-9) if budget < 1 else min(int(budget), len(values))
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-values, kind="stable")[:n_rows]] = True
    return chosen


def check_budget(budget: float) -> None:
    """Refuse a budget that is neither a number of rows nor a share."""
    if not (math.isfinite(budget) and budget >= 0) or (budget >= 1 and budget != int(budget)):
        raise InputError(f"a review budget is a whole number of rows, or a share below 1, got {budget!r}.")


@dataclass(frozen=True)
class ReviewThreshold:
    r"""A threshold on savings that keeps a review budget on a stream of rows.

    Rows that save more than ``threshold`` are reviewed. With probability at least 1 - delta over the rows it was chosen
    on, at most the share ``share`` of new rows is, whatever the distribution: above the k-th largest of n values lies
    at most a Beta(k, n - k + 1) share of new ones, and k is the largest for which that stays below the budget.

    Parameters
    ----------
    threshold : float
        Infinite where the rows are too few to guarantee any share but 0.
    share, delta : float
    n_rows, n_above : int
        The rows that it was chosen on, and how many of them exceed it.

    Examples
    --------
    >>> queue = ReviewThreshold.choose(np.linspace(-0.2, 0.5, 1001), share=0.1)
    >>> round(queue.threshold, 3), queue.n_above
    (0.441, 84)
    >>> queue.most_of(200)
    24
    """

    threshold: float
    share: float
    delta: float
    n_rows: int
    n_above: int

    @classmethod
    def choose(cls, saves: ArrayLike, share: float, delta: float = 0.05) -> "ReviewThreshold":
        """Choose the threshold on rows from where new ones will come, independent of each other.

        Parameters
        ----------
        saves : array of shape (n,)
            As :func:`savings` gives them; labels are not needed.
        share : float
            The largest share of rows to review, in (0, 1).
        delta : float, default 0.05
            How probable it may be, over the choice of these rows, that the share is exceeded.
        """
        values = np.sort(np.asarray(saves, dtype=np.float64))[::-1]
        for name, value in (("share", share), ("delta", delta)):
            if not 0 < value < 1:
                raise InputError(f"{name} must be between 0 and 1, got {value!r}.")
        if values.ndim != 1 or np.isnan(values).any():
            raise InputError(f"saves must be numbers of shape (n,) without NaN, got shape {values.shape}.")
        n = len(values)
        ranks = np.arange(1, n + 1)
        from scipy.stats import beta  # it takes a while to import

        kept = np.flatnonzero(beta.ppf(1 - delta, ranks, n - ranks + 1) <= share)
        threshold = float(values[kept[-1]]) if len(kept) else math.inf
        return cls(threshold, float(share), float(delta), n, int((values > threshold).sum()))

    def reviewed(self, saves: ArrayLike) -> NDArray[np.bool_]:
        """Return which rows are reviewed."""
        return np.asarray(np.asarray(saves) > self.threshold)

    def most_of(self, n_rows: int, confidence: float = 0.95) -> int:
        """Return how many of the next rows will be reviewed at the most, with this confidence in a single look."""
        if math.isinf(self.threshold):
            return 0
        from scipy.stats import betabinom

        return int(betabinom.ppf(confidence, n_rows, self.n_above + 1, self.n_rows - self.n_above))
