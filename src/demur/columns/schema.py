"""The feature columns of a model: learned from a table, checked against another table, and encoded as numbers."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.array_types import Features
from demur.columns.column import KINDS, Column, as_type, kind_of_type
from demur.columns.frames import TableError, Values, as_table, did_you_mean, listed, shown

__all__ = ["MAX_CODES", "Schema", "understand"]

_Understood: TypeAlias = Mapping[str, tuple[Column | None, str]]


@dataclass(frozen=True)
class Schema:
    r"""The feature columns of a table, in order, and the columns that are not used.

    Parameters
    ----------
    columns : tuple of Column
        The features.
    target : str or None
        The column with the labels.
    set_aside : dict of str to str
        Columns that are not used, each with the reason.
    remarks : dict of str to str
        Notes about columns that are used.
    decimal : {".", ","}
        The decimal sign of the CSV file that the table came from.
    dayfirst : bool or None
        Whether dates such as 1.2.2024 in it begin with the day; None if there were none.

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
    """

    columns: tuple[Column, ...]
    target: str | None = None
    set_aside: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    decimal: str = "."
    dayfirst: bool | None = None

    @classmethod
    def learn(
        cls,
        table: pa.Table,
        *,
        target: str | None = None,
        keep: Collection[str] = (),
        drop: Collection[str] = (),
    ) -> Self:
        """Decide for each column of a table whether it is a feature, and of which kind.

        Parameters
        ----------
        table : pyarrow.Table
        target : str, optional
            The column with the labels, which is not a feature.
        keep : names
            Columns to use although they are constant or look like identifiers.
        drop : names
            Columns to leave out.

        Raises
        ------
        TableError
            If a named column does not exist or is free text, there are no rows, or no column is left to learn from.
        """
        unknown = [name for name in (target, *keep, *drop) if name is not None and name not in table.column_names]
        if unknown:
            hint = did_you_mean(unknown[0], table.column_names)
            raise TableError(
                f"there is no column {listed(unknown)} in the table{hint}: it has {listed(table.column_names)}"
            )
        if not table.num_rows:
            raise TableError("the table has no rows: give at least one")
        names = [name for name in table.column_names if name != target and name not in drop]
        understood = {name: understand(name, table[name], keep=name in keep) for name in names}
        for name, (column, said) in understood.items():
            if column is not None and said == _FREE_TEXT:
                raise TableError(f"column {shown(name)} cannot be kept as a feature, because {said}: leave it out")
        return cls._of(understood, target, drop)

    @classmethod
    def from_frame(cls, frame: Features, *, target: str | None = None, drop: Collection[str] = ()) -> Self:
        """Use all columns of a table as features, even those that look useless.

        Parameters
        ----------
        frame : pandas or polars DataFrame, pyarrow.Table, or array
            Some rows as a model takes them. The more rows, the more values of its categories are known.
        target : str, optional
            The column with the labels, which is not a feature.
        drop : names
            Columns to leave out.

        Examples
        --------
        >>> Schema.from_frame(pa.table({"id": [1, 2, 3], "pet": ["cat", "dog", "cat"]})).names
        ('id', 'pet')
        >>> Schema.learn(pa.table({"id": [1, 2, 3], "pet": ["cat", "dog", "cat"]})).names
        ('pet',)
        """
        table = as_table(frame)
        names = [name for name in table.column_names if name != target and name not in drop]
        understood = {name: understand(name, table[name], keep=True) for name in names}
        return cls._of(understood, target, drop)

    @classmethod
    def _of(cls, understood: _Understood, target: str | None, drop: Collection[str]) -> Self:
        columns = tuple(column for column, _ in understood.values() if column is not None)
        aside = {name: reason for name, (column, reason) in understood.items() if column is None}
        if not columns:
            reasons = "; ".join(f"{shown(name)}: {reason}" for name, reason in list(aside.items())[:4])
            reasons = f" ({reasons})" if reasons else ""
            raise TableError(f"no column is left to learn from{reasons}: give at least one that differs between rows")
        remarks = {name: remark for name, (column, remark) in understood.items() if column is not None and remark}
        return cls(columns, target, {**aside, **dict.fromkeys(drop, "it was left out on request")}, remarks)

    def without(self, name: str) -> Self:
        """Return the schema without one of its columns, if it has it.

        Examples
        --------
        >>> Schema((Column("size", "number"), Column("pet", "category"))).without("pet").names
        ('size',)
        """
        return replace(self, columns=tuple(column for column in self.columns if column.name != name))

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
        """The number of codes of each feature; 0 for everything but categories."""
        return tuple(column.n_codes for column in self.columns)

    def arrow_types(self) -> dict[str, pa.DataType]:
        """Return the type to read each feature with, as :meth:`demur.tabular.TableReader.chunks` takes it."""
        return {column.name: column.arrow_type for column in self.columns}

    def check(
        self, columns: Mapping[str, pa.DataType | None] | pa.Schema, *, strict: bool = True, where: str = "the table"
    ) -> None:
        """Refuse a table that does not have the columns of this schema, in one error that names them all.

        The target and the columns that were set aside may be missing.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType or None, or pyarrow.Schema
            As in :attr:`TableReader.columns`; None is text of a CSV file, which may be read as any type.
        strict : bool, default True
            Whether extra columns are refused as well. The order does not matter.
        where : str
            The name of the table in the message.
        """
        there = dict(columns) if isinstance(columns, Mapping) else {field.name: field.type for field in columns}
        problems, advice = [], []
        if missing := [name for name in self.names if name not in there]:
            problems.append(f"missing {listed(missing)}")
            advice.append("add what is missing")
        wrong = [column for column in self.columns if column.name in there and not column.fits(there[column.name])]
        if wrong:
            examples = [
                f"{shown(c.name)} ({_word(there[c.name])}, not {_WORDS.get(c.kind, c.kind)})" for c in wrong[:4]
            ]
            more = f" and {len(wrong) - 4:,} more" if len(wrong) > 4 else ""
            problems.append(f"of another type {', '.join(examples)}{more}")
            advice.append("convert what is of another type")
        extra = [name for name in there if name not in {*self.names, *self.set_aside, self.target}]
        if extra and strict:
            problems.append(f"extra {listed(extra)}")
            advice.append("--allow-extra accepts the extra columns")
        if problems:
            found = "; ".join(problems + advice)
            raise TableError(f"{where} does not have the columns that the model was fitted on: {found}")

    def encode(self, table: pa.Table | pa.RecordBatch, *, where: str = "the table") -> NDArray[np.float64]:
        """Return the features as numbers, with NaN for values that are missing, infinite or unseen."""
        there = set(table.schema.names)
        missing = [name for name in self.names if name not in there]
        if missing:
            raise TableError(f"{where} has no column {listed(missing)}: give all columns that the model was fitted on")
        encoded = np.empty((table.num_rows, len(self.columns)))
        for position, column in enumerate(self.columns):
            encoded[:, position] = column.encode(table.column(column.name), where)
        return encoded

    def unseen(self, table: pa.Table | pa.RecordBatch, codes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which cells hold a category that the model was not fitted on; their codes are NaN.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
        codes : array of shape (n_rows, n_columns)
            The result of :meth:`encode`.

        Examples
        --------
        >>> schema = Schema((Column("pet", "category", ("cat", "dog")),))
        >>> table = pa.table({"pet": ["dog", "newt", None]})
        >>> schema.unseen(table, schema.encode(table)).ravel()
        array([False,  True, False])
        """
        found = np.zeros(codes.shape, dtype=bool)
        for position in np.flatnonzero(self.categorical):
            missing = np.isnan(codes[:, position])
            if missing.any():
                values = as_type(table.column(self.columns[position].name), pa.string(), "", "")
                found[:, position] = missing & np.asarray(pc.is_valid(values), dtype=bool)
        return found

    def describe(self) -> tuple[str, ...]:
        """Return sentences about the columns that are used and those that are not."""
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


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return "categories" if kind == "category" else f"{kind}s"


MAX_CODES = 255
"""Largest number of codes of a category, "other" included: the limit of scikit-learn's histogram trees."""

_MANY_ROWS = 20  # in fewer rows, all values differ or rise by chance
_LONG_TEXT = 40
_MANY_WORDS = 5
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?:id|uuid|guid|key|index)$", re.IGNORECASE)
_CAMEL = re.compile(r"[a-z](?:Id|ID|Key|Uuid|UUID)$")
_PLAIN_NUMBER = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$"
# 1,5 and 1.234,5 and $1,200 and 12 % and 31/12/2024
_NUMBER_AS_TEXT = r"^[-+]?\s*[$€£¥]?\s*\d[\d., '_]*\s*[%$€£¥]?$|^\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|^0[xX][0-9a-fA-F]+$"
_LEADING_ZERO = r"^0\d+$"  # codes such as 00501, which are no numbers
_FREE_TEXT = "it is free text (long, and mostly different from row to row)"


def understand(name: str, values: pa.ChunkedArray, *, keep: bool = False) -> tuple[Column | None, str]:
    """Return a feature and a remark about it (possibly empty), or None and the reason why it is not used.

    Parameters
    ----------
    name : str
    values : pyarrow.ChunkedArray
    keep : bool, default False
        Whether to use the column although it is constant, or looks like an identifier or free text.

    Examples
    --------
    >>> understand("pet", pa.chunked_array([["dog", "cat", "dog"]]))
    (Column(name='pet', kind='category', categories=('dog', 'cat'), other=False, ...), '')
    >>> understand("country", pa.chunked_array([["NL", "NL"]]))
    (None, "every value is 'NL'")
    """
    kind, type_ = kind_of_type(values.type), values.type
    if values.null_count == len(values):
        return None, "every value is missing"
    if kind is None:
        return None, f"its values are neither numbers nor text nor dates but of type {type_}"
    if kind == "category":
        return _category(name, as_type(values, pa.string(), name, "the table"), keep)
    zoned = pa.types.is_timestamp(type_) and type_.tz is not None
    unit = "ns" if kind != "number" and getattr(type_, "unit", None) == "ns" else "us"
    column = Column(name, kind, zoned=zoned, unit=unit)
    encoded = column.encode(values, "the table")
    missing = np.isnan(encoded)
    if missing.all():
        return None, "every value is missing or infinite"
    if not keep:
        if not missing.any() and encoded.min() == encoded.max():  # one value and gaps still tell rows apart
            return None, f"every value is {encoded[0]:.15g}" if kind == "number" else "every value is the same"
        if pa.types.is_integer(type_) and not missing.any() and (reason := _numbered_rows(name, values)):
            return None, reason
    if pa.types.is_floating(type_) and (n := int(np.isinf(np.asarray(values, dtype=np.float64)).sum())):
        return column, f"{n:,} infinite {'value is' if n == 1 else 'values are'} read as missing"
    return column, "durations are used in seconds" if pa.types.is_duration(type_) else ""


def _numbered_rows(name: str, values: Values) -> str:
    """Return why integers look like identifiers of rows; empty if they do not."""
    n = len(values)
    if n > 1 and _names_identifier(name) and pc.count_distinct(values).as_py() == n:
        return "it looks like an identifier (every value is different)"
    rising = n >= _MANY_ROWS and pc.all(pc.greater(values.slice(1), values.slice(0, n - 1))).as_py()
    return "it looks like a row number (every value is larger than the one before)" if rising else ""


def _names_identifier(name: str) -> bool:
    return bool(_IDENTIFIER.search(name) or _CAMEL.search(name))


def _category(name: str, text: Values, keep: bool) -> tuple[Column | None, str]:
    counted = pc.value_counts(text.drop_null())
    table = pa.table({"value": counted.field("values"), "count": counted.field("counts")})
    table = table.sort_by([("count", "descending"), ("value", "ascending")])
    n_valid, n_distinct = len(text) - text.null_count, table.num_rows
    if not keep and n_distinct == 1 and text.null_count == 0:
        return None, f"every value is {shown(table['value'][0].as_py())}"
    reason = _unlike_category(name, table["value"], n_valid)
    if reason and not keep:
        return None, reason
    other = n_distinct > MAX_CODES
    kept = table["value"].slice(0, MAX_CODES - 1 if other else MAX_CODES).to_pylist()
    remark = f"{n_distinct:,} different values, of which all but the {len(kept)} most frequent count as one"
    remark = reason if reason == _FREE_TEXT else remark if other else ""
    return Column(name, "category", tuple(kept), other), remark


def _unlike_category(name: str, distinct: Values, n_valid: int) -> str:
    """Return why text is not a category but numbers, sentences or identifiers; empty if it is."""
    if len(distinct) >= _MANY_ROWS:
        numbers = pc.mean(pc.cast(pc.match_substring_regex(distinct, _NUMBER_AS_TEXT), pa.float64())).as_py()
        if numbers > 0.9 and not pc.any(pc.match_substring_regex(distinct, _LEADING_ZERO)).as_py():
            unread = distinct.filter(pc.invert(pc.match_substring_regex(distinct, _PLAIN_NUMBER)))
            example = shown(unread[0].as_py()) if len(unread) else "those in quotes"
            return f"its values are numbers or dates, but not written as 1.5 or 2024-12-31, such as {example}"
        length = pc.mean(pc.utf8_length(distinct)).as_py()
        words = pc.mean(pc.count_substring(distinct, " ")).as_py() + 1
        if (length >= _LONG_TEXT or words >= _MANY_WORDS) and 2 * len(distinct) > n_valid:
            return _FREE_TEXT
    all_different = len(distinct) == n_valid and n_valid > 1
    if all_different and (n_valid >= _MANY_ROWS or _names_identifier(name)):
        return "it looks like an identifier (every value is different)"
    return ""


_WORDS = {"category": "text", "boolean": "true or false"}


def _word(type_: pa.DataType) -> str:
    kind = kind_of_type(type_)
    return str(type_) if kind is None else _WORDS.get(kind, kind)
