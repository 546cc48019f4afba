"""Experts in a table: the columns with their answers, the prices of questions, and their limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from demur.array_types import Mask, Names, Objects, Prices
from demur.columns.frames import Rows, TableError, Values, check_columns, did_you_mean, listed, shown
from demur.deferral import Capacity
from demur.deferral.experts import read_experts
from demur.errors import InputTypeError
from demur.tabular.csv_files import SPELLINGS
from demur.tabular.table_files import class_texts, read_label

ASKING_COLUMNS = ("ask", "expected_cost")
"""Columns of the predictions of a model with experts, after those of every model."""

SYSTEM_ANSWER = "system_answer"
"""The last column of the predictions, where the table holds the experts' answers."""

_GAPS = frozenset(map(str.lower, SPELLINGS))
"""Cells that mean "no answer", in upper or lower case, unless a class has that name."""


@dataclass(frozen=True)
class ExpertColumns:
    """The columns with each expert's answers, and the limits on how many questions each gets.

    Parameters
    ----------
    columns : dict of str to tuple of str
        Columns with the answers of each expert, one for each of the people behind it.
    prices : dict of str to float
        Price of one question; a wrong answer costs 1.
    limits : dict of str to int or float
        Maximum number of rows of a table for an expert, or a share below 1.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"nurse says": ["yes", None, "no "], "y": ["yes", "no", "no"]})
    >>> experts = ExpertColumns.of({"nurse": ("nurse says", 0.05)}, {"nurse": 40}, table.column_names)
    >>> experts
    ExpertColumns(columns={'nurse': ('nurse says',)}, prices={'nurse': 0.05}, limits={'nurse': 40})
    >>> experts.answers(table, ["no", "yes"])["nurse"].tolist()
    [['yes'], [None], ['no']]
    """

    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prices: Prices = field(default_factory=dict)
    limits: Prices = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        experts: Any,
        limits: Prices | None,
        header: Names,
        where: str = "the table",
        uses: Mapping[str, str] | None = None,
    ) -> "ExpertColumns":
        """Find the columns of experts in a table.

        Parameters
        ----------
        experts : mapping
            From names to pairs: the column with the answers, or several, and the price. "a,b" stands for two columns if
            no column has that name.
        limits : mapping or None
        header : names
            The columns of the table.
        where : str
            The name of the table in messages.
        uses : mapping, optional
            Columns with another use, each with the reason.
        """
        try:
            wanted = {name: (own,) if isinstance(own, str) else tuple(own) for name, (own, _) in experts.items()}
            prices = {name: price for name, (_, price) in experts.items()}
        except (AttributeError, TypeError, ValueError):
            raise InputTypeError(
                "experts must be a mapping from names to a column and a price, such as "
                f'{{"nurse": ("nurse_says", 0.05)}}, got {experts!r}.'
            ) from None
        columns: dict[str, tuple[str, ...]] = {}
        taken = dict(uses or {})
        for name, one in wanted.items():
            named = len(one) > 1 or one[0] in header
            own = one if named else tuple(part.strip() for part in one[0].split(","))
            for column in own:
                check_columns([column], header, where, f" with the answers of {shown(name)}")
                if column in taken:
                    raise TableError(f"column {shown(column)} cannot hold answers of {shown(name)}: {taken[column]}")
                taken[column] = f"it holds answers of {shown(name)}"
            columns[name] = own
        Capacity(limits or {}).check_names(list(columns))
        priced = {name: expert.price for name, expert in read_experts(prices).items()}
        return cls(columns, priced, dict(limits or {}))

    @property
    def owners(self) -> dict[str, str]:
        """The expert of each column with answers."""
        return {column: name for name, columns in self.columns.items() for column in columns}

    def present(self, columns: Names) -> bool:
        """Return whether a table has a column with answers of at least one expert."""
        return any(column in columns for column in self.owners)

    def answers(self, table: Rows, known: Names, *, where: str = "the table", first: int = 0) -> dict[str, Objects]:
        """Return the answers of each expert, as text of shape (n_rows, n_people), None for no answer.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
            Table with the experts' columns; a missing column counts as empty.
        known : names
            The classes, as text.
        where : str
            Name of the table in messages.
        first : int
            Number of rows before the first one, for messages.
        """
        there, allowed = set(table.schema.names), set(known)
        found = {}
        for name, columns in self.columns.items():
            found[name] = np.full((table.num_rows, len(columns)), None, dtype=object)
            for place, column in enumerate(columns):
                said = read_answers(table.column(column), allowed) if column in there else found[name][:, place]
                for row in np.flatnonzero(given_answers(said) & ~np.isin(said.astype(str), [*allowed]))[:1].tolist():
                    raise TableError(
                        f"{where}: column {shown(column)}, row {first + row + 1:,}, holds {shown(said[row])}, which is "
                        f"not one of the classes {listed(sorted(allowed))}{did_you_mean(said[row], allowed)}: leave "
                        "the cell empty if there is no answer"
                    )
                found[name][:, place] = said
        return found


def given_answers(people: Objects) -> Mask:
    """Return which entries are answers, not None.

    Examples
    --------
    >>> given_answers(np.array(["yes", None], dtype=object))
    array([ True, False])
    """
    return np.asarray(people != np.array(None))


def read_answers(column: Values, known: Names) -> Objects:
    """Return answers as class names: unchanged, without surrounding spaces, or as a number or boolean is read.

    An answer that is not a class is returned without surrounding spaces, and a gap as None.

    Examples
    --------
    >>> import pyarrow as pa
    >>> read_answers(pa.array(["yes", " no ", "perhaps", "n/a"]), ["yes", "no"]).tolist()
    ['yes', 'no', 'perhaps', None]
    """
    texts = [read_label(text, known) for text in class_texts(column).tolist()]
    gaps = [text not in known and str(text).lower() in _GAPS for text in texts]
    return np.array([None if gap else text for gap, text in zip(gaps, texts, strict=True)], dtype=object)
