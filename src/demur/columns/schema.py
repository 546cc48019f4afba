"""The columns that a model was fitted on: learned from a table, checked against another, and encoded as numbers."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.columns.checking import mismatches
from demur.columns.column import KINDS, Column
from demur.columns.table_errors import TableError, listed, shown
from demur.columns.understanding import understand
from demur.errors import InputError

__all__ = ["Schema"]

_VERSION = 1


@dataclass(frozen=True)
class Schema:
    r"""The feature columns of a table, in order, and what was set aside.

    Parameters
    ----------
    columns : tuple of Column
        The features.
    target : str or None
        The column with the labels.
    set_aside : dict of str to str
        Columns that are not used, each with the reason.
    remarks : dict of str to str
        What there is to say about columns that are used.

    Examples
    --------
    >>> table = pa.table({"id": [7, 9, 8], "size": [1.5, None, 2.0], "pet": ["cat", "dog", "cat"], "y": [0, 1, 0]})
    >>> schema = Schema.learn(table, target="y")
    >>> print(*schema.describe(), sep="\n")
    2 columns are used: 1 number ('size') and 1 category ('pet').
    'id' is set aside: it looks like an identifier (every value is different).
    >>> schema.encode(table)
    array([[1.5, 0. ],
           [nan, 1. ],
           [2. , 0. ]])
    >>> Schema.from_json(schema.to_json()) == schema
    True
    """

    columns: tuple[Column, ...]
    target: str | None = None
    set_aside: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def learn(
        cls,
        table: pa.Table,
        *,
        target: str | None = None,
        keep: Collection[str] = (),
        drop: Collection[str] = (),
    ) -> Self:
        """Understand each column of a table.

        Parameters
        ----------
        table : pyarrow.Table
        target : str, optional
            The column with the labels, which is no feature.
        keep : names
            Columns to use although they are constant, or look like identifiers or free text.
        drop : names
            Columns to leave out.

        Raises
        ------
        TableError
            If a named column is not there, there are no rows, or no column is left to learn from.
        """
        unknown = [name for name in (target, *keep, *drop) if name is not None and name not in table.column_names]
        if unknown:
            raise TableError(f"there is no column {listed(unknown)} in the table: it has {listed(table.column_names)}")
        if not table.num_rows:
            raise TableError("the table has no rows: give at least one")
        columns: list[Column] = []
        set_aside: dict[str, str] = {}
        remarks: dict[str, str] = {}
        for name in table.column_names:
            if name == target:
                continue
            if name in drop:
                set_aside[name] = "it was left out on request"
                continue
            column, said = understand(name, table[name], keep=name in keep)
            if column is None:
                set_aside[name] = said
                continue
            columns.append(column)
            if said:
                remarks[name] = said
        if not columns:
            reasons = "; ".join(f"{shown(name)}: {reason}" for name, reason in list(set_aside.items())[:4])
            reasons = f" ({reasons})" if reasons else ""
            raise TableError(f"no column is left to learn from{reasons}: give at least one that differs between rows")
        return cls(tuple(columns), target, set_aside, remarks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(column.name for column in self.columns)

    @property
    def categorical(self) -> NDArray[np.bool_]:
        """Which features are categories."""
        return np.array([column.kind == "category" for column in self.columns])

    @property
    def n_codes(self) -> tuple[int, ...]:
        """How many codes each feature has; 0 for what is no category."""
        return tuple(column.n_codes for column in self.columns)

    def arrow_types(self) -> dict[str, Any]:
        """Return the type to insist on for each feature, as :func:`demur.tabular.open_chunks` takes it."""
        return {column.name: column.arrow_type for column in self.columns}

    def check(self, columns: Mapping[str, Any] | pa.Schema, *, strict: bool = True, where: str = "the table") -> None:
        """Refuse a table that has other columns than the one learned from, in one error that names them all.

        The target and the columns that were set aside may be there or not.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType or None, or pyarrow.Schema
            As :attr:`TableReader.columns` holds them; None is text that is still to be read, of any type.
        strict : bool, default True
            Whether extra and reordered columns are refused as well.
        where : str
            What the message calls the table.
        """
        if not isinstance(columns, Mapping):
            columns = {name: columns.field(name).type for name in columns.names}
        known = {*self.names, *self.set_aside, *([] if self.target is None else [self.target])}
        problems = mismatches(self.columns, known, columns, strict=strict)
        if problems:
            raise TableError(f"{where} does not have the columns that the model was fitted on: {problems}")

    def encode(self, table: pa.Table | pa.RecordBatch, *, where: str = "the table") -> NDArray[np.float64]:
        """Return the features as numbers, one row each, with NaN for what is missing, infinite or unseen."""
        missing = [name for name in self.names if name not in table.schema.names]
        if missing:
            raise TableError(f"{where} has no column {listed(missing)}: give all columns that the model was fitted on")
        encoded = np.empty((table.num_rows, len(self.columns)))
        for position, column in enumerate(self.columns):
            encoded[:, position] = column.encode(table.column(column.name), where)
        return encoded

    def describe(self) -> tuple[str, ...]:
        """Return sentences that say what is used, how, and what is not."""
        groups = {kind: [column.name for column in self.columns if column.kind == kind] for kind in KINDS}
        parts = [
            f"{len(names):,} {_plural(kind, len(names))} ({listed(names)})" for kind, names in groups.items() if names
        ]
        used = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        n = len(self.columns)
        sentences = [f"{n:,} {'column is' if n == 1 else 'columns are'} used: {used}."]
        sentences += [f"{shown(name)}: {remark}." for name, remark in self.remarks.items()]
        sentences += [f"{shown(name)} is set aside: {reason}." for name, reason in self.set_aside.items()]
        return tuple(sentences)

    def to_json(self) -> dict[str, Any]:
        """Return the schema as a plain dictionary."""
        return {
            "version": _VERSION,
            "target": self.target,
            "columns": [{**asdict(column), "categories": list(column.categories)} for column in self.columns],
            "set_aside": dict(self.set_aside),
            "remarks": dict(self.remarks),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Return the schema that :meth:`to_json` wrote."""
        try:
            if document["version"] != _VERSION:
                raise InputError(f"its version is {document['version']!r} and not {_VERSION}")
            columns = tuple(Column(**{**c, "categories": tuple(c["categories"])}) for c in document["columns"])
            if unknown := {column.kind for column in columns} - set(KINDS):
                raise InputError(f"it has columns of kind {listed(unknown)}")
            return cls(columns, document["target"], dict(document["set_aside"]), dict(document["remarks"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(f"this is no schema of a table ({error!r}): fit the model again") from error


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return "categories" if kind == "category" else f"{kind}s"
