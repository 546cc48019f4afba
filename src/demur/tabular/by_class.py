"""What happens to each class: how many of its rows are declined, and how many answers are right."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

__all__ = ["ClassFigures", "figures_by_class"]


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


def figures_by_class(names: tuple[str, ...], confusion: NDArray[Any]) -> list[ClassFigures]:
    """Read the figures of each class off a confusion matrix whose last column counts the rejections.

    Rows of the matrix beyond the named classes (labels that are no class) count as answers only.

    Examples
    --------
    >>> import numpy as np
    >>> figures_by_class(("a", "b"), np.array([[3, 1, 1], [0, 2, 0]]))[0]
    ClassFigures(name='a', n_rows=5, n_rejected=1, n_right=3, n_answers=3)
    """
    n_rows, n_answers = confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    return [
        ClassFigures(name, int(n_rows[k]), int(confusion[k, -1]), int(confusion[k, k]), int(n_answers[k]))
        for k, name in enumerate(names)
    ]


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
