"""Single rows worth a look: rejected ones nearest the border, and the mistakes made with the most confidence."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError
from demur.tabular.inputs import sortable

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation

__all__ = ["Case", "RowTable", "choose_cases"]


@dataclass(frozen=True)
class Case:
    """One row, as a person would want to see it.

    Parameters
    ----------
    row : str
        Its number or identifier.
    true, answer : str
        The true class, and the class that was answered or would have been.
    confidence : float
        The probability given to the answer; without probabilities, the model's own score.
    second : str or None
        The next most probable class.
    second_confidence : float or None
    columns : dict of str to object
        Some of the row's original values.
    """

    row: str
    true: str
    answer: str
    confidence: float
    second: str | None = None
    second_confidence: float | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RowTable:
    """The original columns of the rows, a mapping of names to values or an Arrow table, and how the rows are called.

    Parameters
    ----------
    columns : mapping of str to sequence, or pyarrow.Table, optional
    numbers : sequence, optional
        What to call each row; 1, 2, 3, ... by default.

    Examples
    --------
    >>> RowTable({"age": [31, 52], "sex": ["f", "m"]}).pick(np.array([1]), 2)
    [{'age': 52, 'sex': 'm'}]
    """

    columns: Any = None
    numbers: Any = None

    def check_length(self, n_rows: int) -> None:
        """Refuse columns or numbers of another length than the labels."""
        lengths = {} if self.numbers is None else {"row_numbers": len(self.numbers)}
        if hasattr(self.columns, "num_rows"):
            lengths["rows"] = self.columns.num_rows
        elif self.columns is not None:
            lengths |= {f"column {name!r} of rows": len(values) for name, values in self.columns.items()}
        for what, length in lengths.items():
            if length != n_rows:
                raise InputError(
                    f"{what} has {length} entries but there are {n_rows} labels; give one per labelled row."
                )

    def name(self, row: int) -> str:
        """Return what to call the row at this position."""
        return str(row + 1 if self.numbers is None else self.numbers[row])

    def pick(self, chosen: NDArray[np.intp], n_columns: int) -> list[dict[str, Any]]:
        """Return the first ``n_columns`` columns of the chosen rows."""
        if self.columns is None:
            return [{} for _ in chosen]
        if hasattr(self.columns, "to_pydict"):
            names = self.columns.column_names[:n_columns]
            picked = self.columns.select(names).take(chosen).to_pydict()
        else:
            names = list(self.columns)[:n_columns]
            picked = {name: [_at(self.columns[name], int(row)) for row in chosen] for name in names}
        return [{name: picked[name][i] for name in names} for i in range(len(chosen))]


def choose_cases(
    evaluation: "Evaluation", mask: NDArray[np.bool_], order: NDArray[Any], n: int, n_columns: int
) -> list[Case]:
    """Return up to ``n`` of the masked rows, from the highest of ``order`` down; ties stay in the order of the rows."""
    rows = np.flatnonzero(mask)
    chosen = rows[np.argsort(-sortable(order[rows]), kind="stable")[:n]]
    names = (*evaluation.class_names, "none of the classes")
    cases = []
    for row, columns in zip(chosen.tolist(), evaluation.rows.pick(chosen, n_columns), strict=True):
        true, answer = int(evaluation.true[row]), int(evaluation.decision.label[row])
        second: tuple[str | None, float | None] = (None, None)
        if evaluation.proba is not None:
            others = np.where(np.arange(len(evaluation.class_names)) == answer, -np.inf, evaluation.proba[row])
            second = names[int(others.argmax())], float(others.max())
        confidence = float(evaluation.answer_confidence[row])
        cases.append(Case(evaluation.rows.name(row), names[true], names[answer], confidence, *second, columns))
    return cases


def _at(values: Any, position: int) -> Any:
    """Return a value by position, also from a pandas column whose index is something else."""
    return values.iloc[position] if hasattr(values, "iloc") else values[position]
