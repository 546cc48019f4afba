"""Experts in a table: the columns with their answers, the prices of questions, and their limits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.columns.frames import TableError, Values, did_you_mean, listed, shown
from demur.deferral import Capacity
from demur.deferral.experts import read_experts
from demur.errors import InputTypeError
from demur.tabular.class_labels import class_texts
from demur.tabular.csv_files import column_of_text

__all__ = ["ASKING_COLUMNS", "SYSTEM_ANSWER", "ExpertColumns", "given_answers"]

ASKING_COLUMNS = ("ask", "expected_cost")
"""Columns of the predictions of a model with experts, after those of every model."""

SYSTEM_ANSWER = "system_answer"
"""The last column of the predictions, where the table holds the experts' answers."""

_GAPS = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
"""Cells that mean "no answer", in upper or lower case, unless a class has that name."""


@dataclass(frozen=True)
class ExpertColumns:
    """The columns with each expert's answers, and the limits on how many questions each gets.

    Parameters
    ----------
    columns : dict of str to tuple of str
        For each expert the columns with its answers, one for each of the people behind it.
    prices : dict of str to float
        What one question costs; a wrong answer costs 1.
    limits : dict of str to int or float
        The most rows of a table that an expert gets: a number of them, or a share below 1.

    Examples
    --------
    >>> experts = ExpertColumns.of({"nurse": ("nurse says", 0.05)}, limits={"nurse": 40})
    >>> experts
    ExpertColumns(columns={'nurse': ('nurse says',)}, prices={'nurse': 0.05}, limits={'nurse': 40})
    >>> table = pa.table({"nurse says": ["yes", None, "no "], "y": ["yes", "no", "no"]})
    >>> experts.answers(table, ["no", "yes"])["nurse"].tolist()
    [['yes'], [None], ['no']]
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, experts: Any, limits: Mapping[str, float] | None = None) -> "ExpertColumns":
        """Read experts from a mapping of names to pairs: the column with the answers, or several, and the price."""
        if isinstance(experts, ExpertColumns):
            return experts
        try:
            columns = {name: (own,) if isinstance(own, str) else tuple(own) for name, (own, _) in experts.items()}
            prices = {name: price for name, (_, price) in experts.items()}
        except (AttributeError, TypeError, ValueError):
            raise InputTypeError(
                "experts must be a mapping from names to a column and a price, such as "
                f'{{"nurse": ("nurse_says", 0.05)}}, got {experts!r}.'
            ) from None
        priced = read_experts(prices)
        Capacity(limits or {}).check_names(list(columns))
        found = cls(columns, {name: one.price for name, one in priced.items()}, dict(limits or {}))
        twice = [column for column in found.names if found.names.count(column) > 1]
        if twice:
            raise TableError(f"the column {shown(twice[0])} is given twice: each expert has answers of its own")
        return found

    def __bool__(self) -> bool:
        return bool(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns with answers."""
        return tuple(column for columns in self.columns.values() for column in columns)

    @property
    def owners(self) -> dict[str, str]:
        """The expert of each column with answers."""
        return {column: name for name, columns in self.columns.items() for column in columns}

    def found_in(self, header: Collection[str], where: str = "the table") -> "ExpertColumns":
        """Return the same with columns that are there; "a,b" stands for two columns where no column is called so."""
        found = {}
        for name, columns in self.columns.items():
            own = columns
            if len(columns) == 1 and columns[0] not in header:
                own = tuple(part.strip() for part in columns[0].split(","))
            missing = [column for column in own if column not in header]
            if missing:
                problem = f"there is no column {shown(missing[0])} with the answers of {shown(name)}"
                raise TableError(f"{problem}{did_you_mean(missing[0], header)}: {where} has {listed(header)}")
            found[name] = own
        return ExpertColumns.of({name: (own, self.prices[name]) for name, own in found.items()}, self.limits)

    def check(self, target: str, others: Mapping[str, str]) -> None:
        """Refuse a column that is the target or has another use."""
        for name, columns in self.columns.items():
            if target in columns:
                raise TableError(
                    f"the target {shown(target)} cannot also be what {shown(name)} says: name the column with the "
                    "expert's own answers"
                )
            for column in set(columns) & set(others):
                problem = f"the column {shown(column)} holds the answers of {shown(name)}"
                raise TableError(f"{problem}, and cannot also be used otherwise: {others[column]}")

    def check_names(self, classes: Collection[str]) -> None:
        """Refuse an expert who is named like a class."""
        for name in set(self.columns) & set(classes):
            raise TableError(f"the expert {shown(name)} is named like a class: give the expert another name")

    def present(self, columns: Collection[str]) -> bool:
        """Return whether a table has a column with answers of at least one expert."""
        return any(column in columns for column in self.names)

    def answers(
        self, table: pa.Table | pa.RecordBatch, known: Collection[str], *, where: str = "the table", first: int = 0
    ) -> dict[str, NDArray[np.object_]]:
        """Return what each expert said, as text of shape (n_rows, n_people), None where there is no answer.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
            A column that is not there holds no answers.
        known : names
            The classes, as text.
        where : str
            What messages call the table.
        first : int
            How many rows came before the first, for messages.
        """
        there, allowed = set(table.schema.names), set(known)
        found = {}
        for name, columns in self.columns.items():
            people = [
                _answers(table.column(column), allowed, column, where, first)
                if column in there
                else np.full(table.num_rows, None, dtype=object)
                for column in columns
            ]
            found[name] = np.column_stack(people).astype(object)
        return found


def given_answers(people: NDArray[np.object_]) -> NDArray[np.bool_]:
    """Return which entries are answers, not None.

    Examples
    --------
    >>> given_answers(np.array(["yes", None], dtype=object))
    array([ True, False])
    """
    return np.array([one is not None for one in people.ravel()], dtype=bool).reshape(people.shape)


def _answers(column: Values, known: set[str], name: str, where: str, first: int) -> NDArray[np.object_]:
    """Return answers as class names: as they are written, without spaces around, or as a CSV file is read."""
    column = pa.chunked_array([column]) if isinstance(column, pa.Array) else column
    texts = class_texts(column)
    as_read = class_texts(column_of_text(column)) if pa.types.is_string(column.type) else texts
    found: NDArray[np.object_] = np.full(len(texts), None, dtype=object)
    for row, (text, value) in enumerate(zip(texts.tolist(), as_read.tolist(), strict=True)):
        if text is None:
            continue
        found[row] = next((one for one in (text, text.strip(), value) if one in known), None)
        if found[row] is None and text.strip().lower() not in _GAPS:
            raise TableError(
                f"{where}: column {shown(name)}, row {first + row + 1:,}, holds {shown(text)}, which is not one of the "
                f"classes {listed(sorted(known))}{did_you_mean(text, known)}: leave the cell empty where there is no "
                "answer"
            )
    return found
