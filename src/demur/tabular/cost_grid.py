"""The costs a reader can choose in the report, and what Chow's rule does with each row at every one of them."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.rules import Decision, chow_acceptance
from demur.tabular.evaluation import Evaluation
from demur.tabular.judged_counts import Counts

__all__ = ["cells", "cost_grid", "counts_along", "n_rejections"]

Floats = NDArray[np.float64]
_STEPS = 200
"""Steps of 0.005; k / 200 is the double nearest to its decimal, so that it equals a cost typed as text."""


def cost_grid(cost: float) -> Floats:
    """Return costs from 0 to 1/2 in steps of 0.005, up to 1 if the cost is above 1/2, with the cost itself.

    Examples
    --------
    >>> cost_grid(0.123)[23:27]
    array([0.115, 0.12 , 0.123, 0.125])
    """
    last = _STEPS // 2 if cost <= 0.5 else _STEPS - 1
    return np.union1d(np.arange(last + 1) / _STEPS, [cost])


def n_rejections(confidence: NDArray[np.floating[Any]], grid: Floats) -> NDArray[np.int64]:
    """Return at how many of the costs Chow's rule rejects each row: it is accepted from that position on.

    Examples
    --------
    At cost 0.1 a confidence of 0.9 is a tie, and ties reject:

    >>> n_rejections(np.array([0.95, 0.9, 0.2]), np.array([0.05, 0.1, 0.2]))
    array([1, 2, 3])
    """
    total = np.zeros(len(confidence), dtype=np.int64)
    for cost in grid:
        total += Decision.from_acceptance(confidence, chow_acceptance(confidence, cost)).reject
    return total


def counts_along(n_rejections: NDArray[np.int64], wrong: NDArray[np.bool_], n_costs: int) -> list[Counts]:
    """Count rows, answers and wrong answers at each cost.

    Examples
    --------
    >>> counts_along(np.array([0, 1]), np.array([False, True]), 2)
    [Counts(n_rows=2, n_answered=1, n_wrong=0), Counts(n_rows=2, n_answered=2, n_wrong=1)]
    """
    answered, errors = (
        np.cumsum(np.bincount(rows, minlength=n_costs + 1)).tolist() for rows in (n_rejections, n_rejections[wrong])
    )
    return [Counts(len(wrong), answered[k], errors[k]) for k in range(n_costs)]


def cells(evaluation: Evaluation, n_rejections: NDArray[np.int64]) -> dict[str, str]:
    """Return the distinct (true class, answer, number of rejections) with their counts, as little-endian base64.

    The script counts the confusion matrix of any cost from these exactly; rows that share all three are one cell, so
    that the page stays small however many rows there are, and no row can be told from it.
    """
    # One number for each triple: sorting those is ten times as fast as sorting rows.
    width, height = int(n_rejections.max()) + 1, len(evaluation.class_names)
    triples = (evaluation.true * height + evaluation.decision.label) * width + n_rejections
    found, counts = np.unique(triples, return_counts=True)
    pairs, rejections = np.divmod(found, width)
    true, answer = np.divmod(pairs, height)
    return {
        "true": _base64(true, "<u2"),
        "answer": _base64(answer, "<u2"),
        "rejections": _base64(rejections, "<u2"),
        "count": _base64(counts, "<u4"),
    }


def _base64(numbers: NDArray[np.integer[Any]], dtype: str) -> str:
    return base64.b64encode(numbers.astype(dtype).tobytes()).decode("ascii")
