"""Which classes the confusion matrix shows one by one when there are too many for a page."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.tabular.evaluation import Evaluation

__all__ = ["ShownClasses"]


@dataclass(frozen=True, eq=False)
class ShownClasses:
    """A confusion matrix small enough to read: some classes by name, the others together.

    Parameters
    ----------
    rows, columns : list of str
        The headings.
    row_of : list of int
        The row of each class, and of labels that are no class where there are any; also its column.
    counts : array of int, shape (n_rows, n_columns)
    n_named : int
        How many classes have a row of their own.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]]
    >>> result = Evaluation.of([0, 1, 2, 2], Chow(0.2).decide(proba), classes=[0, 1, 2], cost=0.2)
    >>> shown = ShownClasses.of(result, limit=2)
    >>> shown.rows, shown.columns
    (['1', '2', 'Other classes'], ['1', '2', 'Other classes', 'Handed on'])
    >>> shown.counts
    array([[1, 0, 0, 0],
           [1, 0, 0, 1],
           [0, 0, 1, 0]])
    """

    rows: list[str]
    columns: list[str]
    row_of: list[int]
    counts: NDArray[np.int64]
    n_named: int

    @classmethod
    def of(cls, evaluation: Evaluation, limit: int = 20) -> "ShownClasses":
        """Name the classes most often mistaken, as truth or as answer, if every row were answered."""
        names, true, answer = evaluation.class_names, evaluation.true, evaluation.decision.label
        n_classes = len(names)
        named = list(range(n_classes))
        if n_classes > limit:
            wrong = evaluation.wrong
            mistakes = sum(np.bincount(codes[wrong], minlength=n_classes + 1)[:n_classes] for codes in (true, answer))
            named = sorted(np.argsort(-np.asarray(mistakes), kind="stable")[:limit].tolist())
        others = ["Other classes"] if len(named) < n_classes else []
        headings = [names[k] for k in named] + others
        unknown = ["None of the classes"] if evaluation.n_unknown else []
        place = {code: k for k, code in enumerate(named)}
        row_of = [place.get(code, len(named)) for code in range(n_classes)] + [len(headings)] * len(unknown)
        counts = np.zeros((len(headings) + len(unknown), len(headings) + 1), dtype=np.int64)
        column_of = [*row_of[:n_classes], len(headings)]
        np.add.at(counts, np.ix_(row_of, column_of), evaluation.confusion)
        return cls(headings + unknown, [*headings, "Handed on"], row_of, counts, len(named))

    def cell(self, row: int, column: int) -> dict[str, Any]:
        """Return the count of a cell and how it looks: right answers, or one of six shades by share of the row."""
        count, total = int(self.counts[row, column]), int(self.counts[row].sum())
        if row == column and row < self.n_named:
            return {"count": count, "look": "right"}
        share = count / total if total else 0.0
        shade = sum(share > edge for edge in (0, 0.01, 0.05, 0.15, 0.3))
        return {"count": count, "look": f"shade-{shade}"}
