"""How a user says when to decline: a cost, a coverage, a risk, or a matrix of costs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demur.cli.console import CallError

__all__ = ["Choice"]


@dataclass(frozen=True)
class Choice:
    """The options of ``demur fit`` that choose the rule; at most one of the last three is given."""

    cost: float
    coverage: float | None = None
    max_risk: float | None = None
    delta: float = 0.05
    cost_matrix: Path | None = None

    def check_alone(self) -> None:
        """Refuse another way to choose beside a cost."""
        if self.cost_matrix is not None:
            raise CallError("--cost-matrix holds all costs, the ones of declining included: leave --cost out.")
        if self.coverage is not None or self.max_risk is not None:
            option = "--coverage" if self.coverage is not None else "--max-risk"
            raise CallError(f"--cost and {option} are different ways to choose what to decline: give one of them.")

    def rule(self, classes: list[str]) -> Any:
        """Return the rule, None for Chow's at the cost."""
        from demur import CostMatrix, Coverage, RiskControl

        options = {"--coverage": self.coverage, "--max-risk": self.max_risk, "--cost-matrix": self.cost_matrix}
        given = [name for name, value in options.items() if value is not None]
        if len(given) > 1:
            raise CallError(f"{' and '.join(given)} are different ways to choose what to decline: give one of them.")
        if self.coverage is not None:
            return Coverage(self.coverage)
        if self.max_risk is not None:
            return RiskControl(self.max_risk, self.delta)
        return None if self.cost_matrix is None else CostMatrix(_read_matrix(self.cost_matrix, classes))


def _read_matrix(path: Path, classes: list[str]) -> list[list[float]]:
    """Read a table with a row for each true class and a column for each answer, and one called ``reject``."""
    from demur.tabular import read_table
    from demur.tabular.class_labels import class_texts

    if "reject" in classes:
        raise CallError("a class is called reject, as is the column for declining in a cost matrix: rename the class.")
    table = read_table(path)
    names = class_texts(table.column(0)).tolist()
    twice = [name for name in classes if names.count(name) > 1]
    if twice:
        raise CallError(f"{path} has more than one row for the class {twice[0]!r}: leave one.")
    wanted = [*classes, "reject"]
    missing_columns = [name for name in wanted if name not in table.column_names[1:]]
    missing_rows = [name for name in classes if name not in names]
    if missing_columns or missing_rows:
        what = f"column {missing_columns[0]!r}" if missing_columns else f"row {missing_rows[0]!r}"
        raise CallError(
            f"{path} has no {what}: the first column names the true class, and there is a column of costs for each "
            f"answer ({', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''}) and one called reject."
        )
    columns = {name: dict(zip(names, table.column(name).to_pylist(), strict=True)) for name in wanted}
    return [[_cost(columns[answer][true], path) for answer in wanted] for true in classes]


def _cost(value: Any, path: Path) -> float:
    """Read one cell: a single word makes a whole column text."""
    try:
        return float(value)
    except (TypeError, ValueError):
        what = "an empty cell" if value is None else repr(value)
        raise CallError(f"{path} holds {what} where a cost should be: give a number in every cell.") from None
