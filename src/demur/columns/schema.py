"""The feature columns of a model: learned from a table, checked against another table, and encoded as numbers."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.array_types import ByName, Features
from demur.columns.column import KINDS, Column, as_type, kind_of_type
from demur.columns.frames import TableError, Values, as_table, did_you_mean, listed, shown
from demur.errors import InputError

__all__ = ["MAX_CODES", "Schema", "mismatches", "understand"]

_VERSION = 1

_Understood: TypeAlias = Mapping[str, tuple[Column | None, str]]


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
    decimal : {".", ","}
        The decimal sign of the text file that the table came from.
    dayfirst : bool or None
        Whether dates such as 1.2.2024 begin with the day there; None if there were none.

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
        """Understand each column of a table.

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
        """Understand the columns of a table that were chosen already: all are used, whatever they look like.

        Parameters
        ----------
        frame : pandas or polars DataFrame, pyarrow.Table, or array
            Some rows as a model takes them. The more there are, the more values of its categories are known.
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
    def _of(
        cls, understood: Mapping[str, tuple[Column | None, str]], target: str | None, drop: Collection[str]
    ) -> Self:
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
        """How many codes each feature has; 0 for everything but categories."""
        return tuple(column.n_codes for column in self.columns)

    def arrow_types(self) -> dict[str, pa.DataType]:
        """Return the type to insist on for each feature, as :func:`demur.tabular.open_chunks` takes it."""
        return {column.name: column.arrow_type for column in self.columns}

    def check(
        self, columns: Mapping[str, pa.DataType | None] | pa.Schema, *, strict: bool = True, where: str = "the table"
    ) -> None:
        """Refuse a table that has other columns than the one learned from, in one error that names them all.

        The target and the columns that were set aside may be there or not.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType or None, or pyarrow.Schema
            As :attr:`TableReader.columns` holds them; None is text that is still to be read, of any type.
        strict : bool, default True
            Whether extra columns are refused as well; their order never matters.
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
        there = set(table.schema.names)
        missing = [name for name in self.names if name not in there]
        if missing:
            raise TableError(f"{where} has no column {listed(missing)}: give all columns that the model was fitted on")
        encoded = np.empty((table.num_rows, len(self.columns)))
        for position, column in enumerate(self.columns):
            encoded[:, position] = column.encode(table.column(column.name), where)
        return encoded

    def unseen(self, table: pa.Table | pa.RecordBatch, codes: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which cells hold a category that the model was not fitted on; their codes are those of missing ones.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
        codes : array of shape (n_rows, n_columns)
            What :meth:`encode` made of it.

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

    def to_json(self) -> ByName:
        """Return the schema as a plain dictionary."""
        return {
            "version": _VERSION,
            "target": self.target,
            "columns": [{**asdict(column), "categories": list(column.categories)} for column in self.columns],
            "set_aside": dict(self.set_aside),
            "remarks": dict(self.remarks),
            "decimal": self.decimal,
            "dayfirst": self.dayfirst,
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
            aside, remarks = dict(document["set_aside"]), dict(document["remarks"])
            return cls(columns, document["target"], aside, remarks, document["decimal"], document["dayfirst"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TableError(f"this is not the schema of a table ({error!r}): fit the model again") from error


def _plural(kind: str, count: int) -> str:
    if count == 1:
        return kind
    return "categories" if kind == "category" else f"{kind}s"


MAX_CODES = 255
"""Codes of a category, "other" included: what scikit-learn's histogram trees take."""

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
    """Return a column as a feature, with a remark about it or an empty one; or no feature, with the reason.

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
    """Tell why integers look like the identifier of a row, if they do."""
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
    """Tell why text is not a category but numbers, sentences or identifiers, if so."""
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


def mismatches(
    expected: Sequence[Column], known: Collection[str], columns: Mapping[str, pa.DataType | None], *, strict: bool
) -> str:
    """Return what is missing, of another type and extra, and what to do; empty if nothing is.

    Parameters
    ----------
    expected : sequence of Column
    known : names
        Those that are not extra, whether or not they are used.
    columns : dict of str to type or None
    strict : bool
        Whether extra columns count.

    Examples
    --------
    >>> mismatches([Column("a", "number"), Column("b", "number")], {"a", "b"}, {"b": None, "c": None}, strict=True)
    "missing 'a'; extra 'c'; add what is missing; --allow-extra accepts the extra columns"
    """
    found, advice = [], []
    missing = [column.name for column in expected if column.name not in columns]
    if missing:
        found.append(f"missing {listed(missing)}")
        advice.append("add what is missing")
    wrong = [column for column in expected if column.name in columns and not column.fits(columns[column.name])]
    if wrong:
        examples = [f"{shown(c.name)} ({_word(columns[c.name])}, not {_WORDS.get(c.kind, c.kind)})" for c in wrong[:4]]
        more = f" and {len(wrong) - 4:,} more" if len(wrong) > 4 else ""
        found.append(f"of another type {', '.join(examples)}{more}")
        advice.append("convert what is of another type")
    extra = [name for name in columns if name not in known] if strict else []
    if extra:
        found.append(f"extra {listed(extra)}")
        advice.append("--allow-extra accepts the extra columns")
    return "; ".join(found + advice)


def _word(type_: pa.DataType) -> str:
    kind = kind_of_type(type_)
    return str(type_) if kind is None else _WORDS.get(kind, kind)
