"""What is counted when decisions are judged: rows, answers and wrong answers, of the whole table and of each class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from demur.metrics import Interval, proportion_interval

__all__ = ["ClassFigures", "Counts", "class_intervals", "figures_by_class"]


@dataclass(frozen=True)
class Counts:
    """How many rows there are, how many were answered, and how many of those wrongly.

    Parameters
    ----------
    n_rows, n_answered, n_wrong : int

    Examples
    --------
    Ten rows, eight answered, one of them wrongly, at cost 0.25: (1 + 2 * 0.25) / 10.

    >>> counts = Counts(10, 8, 1)
    >>> counts.risk(0.25), counts.coverage, counts.accepted_accuracy
    (0.15, 0.8, 0.875)
    """

    n_rows: int
    n_answered: int
    n_wrong: int

    @property
    def n_rejected(self) -> int:
        """The rows that were declined."""
        return self.n_rows - self.n_answered

    @property
    def n_right(self) -> int:
        """The rows that were answered rightly."""
        return self.n_answered - self.n_wrong

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.n_answered / self.n_rows

    @property
    def accepted_accuracy(self) -> float:
        """The share of right answers among those given; NaN if none was given."""
        return _ratio(self.n_right, self.n_answered)

    def risk(self, cost: float) -> float:
        """Return the 0-1-c risk: what a row costs on average."""
        return (self.n_wrong + cost * self.n_rejected) / self.n_rows


@dataclass(frozen=True)
class ClassFigures:
    """The figures of one class; made by :attr:`~demur.tabular.Evaluation.by_class`.

    Parameters
    ----------
    name : str
    n_rows : int
        Rows of this class.
    n_rejected : int
        Those of them that were declined.
    n_right : int
        Those of them that were answered with this class.
    n_answers : int
        All answers with this class, whatever the truth.

    Examples
    --------
    >>> cat = ClassFigures("cat", n_rows=10, n_rejected=2, n_right=6, n_answers=9)
    >>> cat.rejection_rate, cat.accepted_accuracy, round(cat.precision, 3), cat.recall
    (0.2, 0.75, 0.667, 0.6)
    """

    name: str
    n_rows: int
    n_rejected: int
    n_right: int
    n_answers: int

    @property
    def rejection_rate(self) -> float:
        """The declined share of the class; NaN for a class without rows."""
        return _ratio(self.n_rejected, self.n_rows)

    @property
    def accepted_accuracy(self) -> float:
        """The share answered rightly among the rows of the class that were answered."""
        return _ratio(self.n_right, self.n_rows - self.n_rejected)

    @property
    def precision(self) -> float:
        """The share of right ones among the answers with this class."""
        return _ratio(self.n_right, self.n_answers)

    @property
    def recall(self) -> float:
        """The share of the class, declined rows included, that was answered rightly."""
        return _ratio(self.n_right, self.n_rows)


def figures_by_class(names: tuple[str, ...], confusion: NDArray[np.int64]) -> list[ClassFigures]:
    """Read the figures of each class off a confusion matrix whose last column counts the rejections.

    Rows of the matrix beyond the named classes (labels that are not a class) count as answers only.

    Examples
    --------
    >>> figures_by_class(("a", "b"), np.array([[3, 1, 1], [0, 2, 0]]))[0]
    ClassFigures(name='a', n_rows=5, n_rejected=1, n_right=3, n_answers=3)
    """
    n_rows, n_answers = confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    return [
        ClassFigures(name, int(n_rows[k]), int(confusion[k, -1]), int(confusion[k, k]), int(n_answers[k]))
        for k, name in enumerate(names)
    ]


def class_intervals(figures: list[ClassFigures]) -> dict[str, Interval]:
    """Return 95 % intervals of the four shares, each with one entry per class.

    Examples
    --------
    Twenty of twenty right is no proof of perfection:

    >>> found = class_intervals([ClassFigures("cat", n_rows=20, n_rejected=0, n_right=20, n_answers=20)])["recall"]
    >>> found.low.round(3), found.high
    (array([0.832]), array([1.]))
    """
    n_rows, n_rejected, n_right, n_answers = np.array(
        [(one.n_rows, one.n_rejected, one.n_right, one.n_answers) for one in figures], dtype=np.int64
    ).T
    return {
        "rejection_rate": proportion_interval(n_rejected, n_rows),
        "accepted_accuracy": proportion_interval(n_right, n_rows - n_rejected),
        "precision": proportion_interval(n_right, n_answers),
        "recall": proportion_interval(n_right, n_rows),
    }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
