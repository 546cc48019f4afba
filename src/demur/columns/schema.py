"""Feature columns of a model: learned from a table, checked against another table, and encoded as numbers."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demur.array_types import AnyArray, ByName, Features, Floats, Mask, Names, Objects
from demur.columns.frames import Rows, TableError, Values, as_table, check_columns, decoded, listed, plain_array, shown

Kind: TypeAlias = Literal["number", "boolean", "category", "date", "time", "text"]

LARGEST = 1e30
"""Models read larger numbers as missing, because trees and networks compute in single precision."""

_MAX_CODES = 255
"""Largest number of codes of a category, "other" included: the limit of scikit-learn's histogram trees."""

_SECONDS_PER_DAY = 86_400
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


_TESTS: dict[Kind, tuple[Callable[[pa.DataType], bool], ...]] = {
    "boolean": (pa.types.is_boolean,),
    "number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_duration),
    "date": (pa.types.is_date, pa.types.is_timestamp),
    "time": (pa.types.is_time,),
    "category": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
}


def kind_of_type(type_: pa.DataType) -> Kind | None:
    """Return the kind of column that an Arrow type makes, or None for lists, structs and bytes.

    Examples
    --------
    >>> kind_of_type(pa.int8()), kind_of_type(pa.dictionary(pa.int8(), pa.int64())), kind_of_type(pa.binary())
    ('number', 'category', None)
    """
    if pa.types.is_dictionary(type_):
        return "category" if kind_of_type(type_.value_type) else None
    return next((kind for kind, tests in _TESTS.items() if any(test(type_) for test in tests)), None)


def label_of(answer: Any, labels: Collection[Any], *, any_case: bool = True) -> Any:
    """Return the label that an answer names, or None; booleans may be written in any case.

    Examples
    --------
    >>> [label_of(answer, ["1", "true"]) for answer in ("1.0", " True", "maybe", None)]
    ['1', 'true', None, None]
    """
    variants = [answer]
    if isinstance(answer, str):
        text = answer.strip()
        lower = text.lower()
        variants += [text, lower if any_case or lower in ("true", "false") else text, text.removesuffix(".0")]
    return next((one for one in variants if one in labels), None)


@dataclass(frozen=True)
class Column:
    """A feature column.

    Parameters
    ----------
    name : str
    kind : {"number", "boolean", "category", "date", "time", "text"}
        Type of the column. Numbers are unchanged; durations and times of day become seconds, booleans 0 and 1, dates
        days since 1970, and categories their position in ``categories``. Text becomes 0, because models that use text
        read it directly.
    categories : tuple of str
        The values of a categorical column, the most frequent first.
    other : bool
        Whether values that are not in ``categories`` share one extra code.
    zoned : bool
        Whether a date has a time zone, as in ``2024-12-31T23:59Z``.

    Examples
    --------
    >>> Column("pet", "category", ("cat", "dog"), other=True).encode(pa.array(["dog", "newt", None]), "pets.csv")
    array([ 1.,  2., nan])
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    other: bool = False
    zoned: bool = False

    @property
    def arrow_type(self) -> pa.DataType:
        """The type to read the column with."""
        date = pa.timestamp("us", tz="UTC" if self.zoned else None)
        types = {"number": pa.float64(), "boolean": pa.bool_(), "time": pa.time64("us")}
        return pa.string() if self.kind in ("category", "text") else types.get(self.kind, date)

    def fits(self, type_: pa.DataType | None) -> bool:
        """Return whether a column of an Arrow type can be read as this one."""
        if type_ is None or pa.types.is_null(type_):
            return True  # a CSV file, or nothing but missing values
        if self.kind not in ("category", "text"):
            there = type_.value_type if pa.types.is_dictionary(type_) else type_
            return kind_of_type(there) == self.kind and (self.zoned or getattr(there, "tz", None) is None)
        if kind_of_type(type_) == "category" or self.kind == "text":
            return kind_of_type(type_) == "category"
        written = pa.array(self.categories, pa.string())
        try:  # 7 may be a number, whose column is of floats where there are gaps; 07 is none
            return bool(written.cast(type_).cast(pa.string()).equals(written))
        except pa.ArrowException:
            return False

    def encode(self, values: Values, where: str, unseen: float = np.nan) -> Floats:
        """Return the column as numbers, NaN where a value is missing or infinite, ``unseen`` for a new category."""
        values = as_type(values, self.arrow_type, self.name, where)
        if self.kind == "category":
            known = pa.array(self.categories, pa.string())
            found = pc.index_in(values, known)
            if found.null_count > values.null_count:  # pandas writes 7 and true as 7.0 and True beside missing values
                plain = pc.if_else(pc.is_in(values, pa.array(["True", "False"])), pc.utf8_lower(values), values)
                plain = pc.replace_substring_regex(plain, r"^(-?\d+)\.0$", r"\1")
                found = pc.coalesce(found, pc.index_in(plain, known))
                new = pc.and_(pc.is_null(found), pc.is_valid(values))
                found = pc.if_else(new, float(len(known)) if self.other else unseen, found.cast(pa.float64()))
            return _as_float(found)
        if self.kind == "text":
            return _as_float(pc.if_else(pc.is_valid(values), 0.0, None))
        if self.kind in ("number", "boolean"):
            return _as_float(as_type(values, pa.float64(), self.name, where))
        seconds = _as_float(as_type(values, pa.int64(), self.name, where)) / _PER_SECOND["us"]
        return seconds / _SECONDS_PER_DAY if self.kind == "date" else seconds

    def decode(self, code: float) -> float | bool | str | None:
        """Return the value of a code as JSON has it; None where it is missing, text or a category without a name.

        Examples
        --------
        >>> Column("pet", "category", ("cat", "dog")).decode(1.0), Column("day", "date").decode(19723.5)
        ('dog', '2024-01-01T12:00:00')
        """
        if self.kind == "category":
            return self.categories[int(code)] if 0 <= code < len(self.categories) else None
        if self.kind == "text" or not np.isfinite(code):
            return None
        if self.kind in ("number", "boolean"):
            return float(code) if self.kind == "number" else code > 0
        units = round(code * _PER_SECOND["us"] * (_SECONDS_PER_DAY if self.kind == "date" else 1))
        return str(pa.scalar(units, pa.int64()).cast(self.arrow_type).as_py().isoformat())


def _as_float(values: Values) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.where(np.isinf(array), np.nan, array)


def as_type(values: Values, wanted: pa.DataType, column: str, where: str) -> Values:
    """Convert an Arrow array to another type, or name a value that does not have that type; durations become seconds.

    Examples
    --------
    >>> as_type(pa.array(["1.5", None]), pa.float64(), "x", "data.parquet").to_pylist()
    [1.5, None]
    >>> as_type(pa.array(["1.5", "big"]), pa.float64(), "x", "data.parquet")
    Traceback (most recent call last):
    demur.columns.frames.TableError: data.parquet: column 'x' holds 'big', which is not a number: ...
    """
    values = plain_array(values)
    if values.type == wanted:
        return values
    values = decoded(values)
    try:
        if pa.types.is_duration(values.type):
            values = pc.divide(pc.cast(values.cast(pa.int64()), pa.float64()), _PER_SECOND[values.type.unit])
        return pc.cast(values, wanted, safe=False)
    except pa.ArrowException as error:
        message = str(error)
        if "Failed to parse string: '" in message:
            value = message.split("'", 1)[1].rsplit("' as a scalar", 1)[0]
            raise no_such_value(where, column, value, wanted) from error
        problem = f"{where}: column {shown(column)} is {values.type}, which cannot be read as {type_in_words(wanted)}"
        raise TableError(f"{problem}: convert it, or fit again") from error


def no_such_value(
    where: str, column: str, value: str, wanted: pa.DataType, row: int | None = None, advice: str = ""
) -> TableError:
    """Return the error for one value that is not of the type of its column."""
    place = f"column {shown(column)}" + ("" if row is None else f", row {row:,},")
    advice = advice or "correct it or leave it empty"
    return TableError(f"{where}: {place} holds {shown(value)}, which is not {type_in_words(wanted)}: {advice}")


def type_in_words(kind: pa.DataType) -> str:
    """Return the name of a type for messages.

    Examples
    --------
    >>> type_in_words(pa.float64()), type_in_words(pa.string())
    ('a number', 'text')
    """
    if getattr(kind, "tz", None) is not None:
        return "a date with a time zone, such as 2024-12-31T23:59Z"
    words: dict[Kind | None, str] = {
        "number": "a number",
        "boolean": "a boolean such as true or false",
        "date": "a date such as 2024-12-31",
        "time": "a time of day such as 23:59",
        "category": "text",
    }
    return words.get(kind_of_type(kind), str(kind))


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
    notation : dict
        Notation of the CSV file that the table came from: ``decimal``, ``dayfirst``, ``numbers`` and ``missing``
        of :func:`~demur.tabular.open_table`.

    Examples
    --------
    >>> table = pa.table({"id": [7, 9, 8], "size": [1.5, None, 2.0], "pet": ["cat", "dog", "cat"], "y": [0, 1, 0]})
    >>> schema = Schema.learn(table, target="y")
    >>> print(*schema.describe(), sep="\n")
    2 columns are used: 1 number ('size') and 1 category ('pet').
    'id' is not used: it looks like an identifier (every value is different).
    >>> schema.encode(table)
    array([[1.5, 0. ],
           [nan, 1. ],
           [2. , 0. ]])
    """

    columns: tuple[Column, ...]
    target: str | None = None
    set_aside: Mapping[str, str] = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)
    notation: ByName = field(default_factory=dict)

    @classmethod
    def from_frame(cls, frame: Features, *, target: str | None = None, drop: Names = ()) -> Self:
        """Use all columns of a table as features, even those that look useless.

        Parameters
        ----------
        frame : pandas or polars DataFrame, pyarrow.Table, or array
            Rows in the form that a model takes. With more rows, the schema learns more categories.
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
        return cls.learn(table, target=target, keep=table.column_names, drop=drop)

    @classmethod
    def learn(
        cls,
        table: pa.Table,
        *,
        target: str | None = None,
        keep: Names = (),
        drop: Names = (),
        text: Names = (),
    ) -> Self:
        """Decide for each column of a table whether it is a feature, and its kind.

        Parameters
        ----------
        table : pyarrow.Table
        target : str, optional
            The column with the labels, which is not a feature.
        keep : names
            Columns to use although they are constant or look like identifiers.
        drop : names
            Columns to leave out.
        text : names
            Columns of text, in addition to those with long texts that mostly differ, which are recognised.

        Raises
        ------
        TableError
            If a named column does not exist, there are no rows, or no column is left to learn from.
        """
        check_columns([*filter(None, [target]), *keep, *drop, *text], table.column_names, "the table")
        if not table.num_rows:
            raise TableError("the table has no rows: give at least one")
        columns: list[Column] = []
        aside: dict[str, str] = {}
        remarks: dict[str, str] = {}
        for name in table.column_names:
            if name == target:
                continue
            column, words = None, DROPPED
            if name not in drop:
                column, words = _understand(name, table[name], name in keep, name in text)
            if column is None:
                aside[name] = words
            else:
                columns.append(column)
                remarks |= {name: words} if words else {}
        if not columns:
            reasons = (
                "; ".join(f"{shown(name)}: {reason}" for name, reason in list(aside.items())[:4]) or "there is none"
            )
            raise TableError(
                f"no column is left to learn from ({reasons}): give at least one that differs between rows, or name "
                "one to use in any case (--keep, or --text for texts)"
            )
        return cls(tuple(columns), target, aside, remarks)

    def notation_with(self, given: Mapping[str, object]) -> ByName:
        """Return the notation of the file that the table came from, with the given options instead."""
        return {**self.notation} | {name: value for name, value in given.items() if value is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(column.name for column in self.columns)

    @property
    def categorical(self) -> Mask:
        """Which features are categories."""
        return np.array([column.kind == "category" for column in self.columns])

    @property
    def text(self) -> Mask:
        """Which features are text."""
        return np.array([column.kind == "text" for column in self.columns])

    def texts(self, table: Rows) -> Objects:
        """Return the text columns, empty where a text is missing.

        Examples
        --------
        >>> Schema((Column("size", "number"), Column("note", "text"))).texts(pa.table({"note": ["hello", None]}))
        array([['hello'],
               ['']], dtype=object)
        """
        names = [column.name for column in self.columns if column.kind == "text"]
        columns = [as_type(table.column(name), pa.string(), name, "the table") for name in names]
        texts = [pc.fill_null(column, "").to_pylist() for column in columns]
        return np.array(texts, dtype=object).reshape(len(names), table.num_rows).T

    def with_texts(self, codes: Floats, table: Rows) -> AnyArray:
        """Return codes with the texts in the columns of text; the codes themselves if there are none."""
        text = self.text
        if not text.any():
            return codes
        mixed = codes.astype(object)
        mixed[:, text] = self.texts(table)
        return mixed

    def arrow_types(self) -> dict[str, pa.DataType]:
        """Return the type to read each feature with, as :meth:`demur.tabular.TableReader.chunks` takes it."""
        return {column.name: column.arrow_type for column in self.columns}

    def check(
        self, columns: Mapping[str, pa.DataType | None], *, strict: bool = True, where: str = "the table"
    ) -> None:
        """Refuse a table that does not have the columns of this schema, in one error that names them all.

        The target and the columns that were set aside may be missing.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType or None
            As in :attr:`TableReader.columns`; None is text of a CSV file, which may be read as any type.
        strict : bool, default True
            Whether extra columns are refused as well. The order does not matter.
        where : str
            The name of the table in the message.
        """
        problems = []
        if missing := [name for name in self.names if name not in columns]:
            problems.append(f"missing {listed(missing)}")
        for column in self.columns:
            if column.name in columns and not column.fits(type_ := columns[column.name]):
                wanted = type_in_words(column.arrow_type)
                problems.append(f"{shown(column.name)} is {type_in_words(type_)} and not {wanted}")
        extra = [name for name in columns if name not in {*self.names, *self.set_aside, self.target}]
        if extra and strict:
            problems.append(f"extra {listed(extra)} (--allow-extra accepts extra columns)")
        if problems:
            raise TableError(
                f"{where} does not have the columns that the model was fitted on: {'; '.join(problems[:5])}: give a "
                "table with these columns, or fit the model again on the columns that you have"
            )

    def encode(self, table: Rows, *, where: str = "the table", unseen: float = np.nan) -> Floats:
        """Return the features as numbers, with NaN for values that are missing or infinite.

        Parameters
        ----------
        table : pyarrow.Table or RecordBatch
        where : str
            The name of the table in messages.
        unseen : float, default NaN
            The code of a category that the model was not fitted on.

        Examples
        --------
        >>> schema = Schema((Column("pet", "category", ("cat", "dog")),))
        >>> schema.encode(pa.table({"pet": ["dog", "newt", None]}), unseen=-1).ravel()
        array([ 1., -1., nan])
        """
        check_columns(self.names, table.schema.names, where)
        encoded = np.empty((table.num_rows, len(self.columns)))
        for position, column in enumerate(self.columns):
            codes = column.encode(table.column(column.name), where, unseen)
            if self.remarks.get(column.name) == _TOO_LARGE:  # as in training; elsewhere such a value is novel
                codes[np.abs(codes) > LARGEST] = np.nan
            encoded[:, position] = codes
        return encoded

    def describe(self) -> tuple[str, ...]:
        """Return sentences about the columns that are used and those that are not."""
        parts = []
        for kind in get_args(Kind):
            names = [column.name for column in self.columns if column.kind == kind]
            plural = kind if len(names) == 1 else "categories" if kind == "category" else f"{kind}s"
            parts += [f"{len(names):,} {plural} ({listed(names)})"] if names else []
        used = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
        n = len(self.columns)
        sentences = [f"{n:,} {'column is' if n == 1 else 'columns are'} used: {used}."]
        sentences += [f"{shown(name)}: {remark}." for name, remark in self.remarks.items()]
        sentences += [f"{shown(name)} is not used: {reason}." for name, reason in self.set_aside.items()]
        return tuple(sentences)


_MANY_ROWS = 20  # in fewer rows, all values differ or rise by chance
_LONG_TEXT = 40
_MANY_WORDS = 5
_WORD_ENDS = r" |\p{Han}|\p{Hiragana}|\p{Katakana}|\p{Thai}"  # scripts without spaces: a word for each character
_IDENTIFIER = re.compile(r"(?:^|[\W_])(?i:id|uuid|guid|key|index)$|[a-z](?:Id|ID|Key|Uuid|UUID)$")
# 1,5 and 1.234,5 and $1,200 and 12 % and 5 kg, 31/12/2024 and 2024/12/31, 31 Dec 2024 and Dec 31
_NUMBER_AS_TEXT = (
    r"^[-+(]?\s*[$€£¥]?\s*\d[\d., '_]*\s*([%$€£¥)]|\s[a-zA-Z°µ]{1,3}[²³]?)?$|^0[xX][0-9a-fA-F]+$"
    r"|^\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|^\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(\b|T)"
    r"|^(\d{1,2}[ -])?(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[ ,.-]+\d"
)
_PLAIN_NUMBER = r"^[-+]?\d*\.?\d+([eE][-+]?\d+)?$"
_LEADING_ZERO = r"^0\d+$"  # codes such as 00501, which are no numbers
DROPPED = "it was left out on request"
_FREE_TEXT = "it is free text"
_TOO_LARGE = "infinite values, and those beyond 1e30, are read as missing"
_ALL_DIFFERENT = "it looks like an identifier (every value is different)"


def _understand(name: str, values: pa.ChunkedArray, keep: bool, text: bool) -> tuple[Column | None, str]:
    """Return a feature and a remark about it (possibly empty), or None and the reason why it is not used.

    ``keep`` uses the column although it is constant, or looks like an identifier; ``text`` says that it is text.
    """
    kind, type_ = kind_of_type(values.type), values.type
    if values.null_count == len(values):
        return None, "every value is missing"
    if text:
        return Column(name, "text"), ""
    if kind is None:
        return None, f"its values are neither numbers nor text nor dates nor fixed-size lists but of type {type_}"
    if kind == "category":
        typed = pa.types.is_dictionary(type_)  # the type category of a data frame
        return _category(name, as_type(values, pa.string(), name, "the table"), keep, keep and typed)
    column = Column(name, kind, zoned=getattr(type_, "tz", None) is not None)
    encoded = column.encode(values, "the table")
    missing = ~(np.abs(encoded) <= LARGEST)
    if missing.all():
        return None, "every value is missing, infinite or beyond 1e30"
    if not keep:
        if not missing.any() and encoded.min() == encoded.max():  # one value and gaps still tell rows apart
            return None, f"every value is {encoded[0]:.15g}" if kind == "number" else "every value is the same"
        if pa.types.is_integer(type_) and not missing.any() and (reason := _numbered_rows(name, values)):
            return None, reason
    if pa.types.is_floating(type_) and (np.abs(np.asarray(values, dtype=np.float64)) > LARGEST).any():
        return column, _TOO_LARGE
    return column, "durations are used in seconds" if pa.types.is_duration(type_) else ""


def _numbered_rows(name: str, values: Values) -> str:
    """Return the reason why integers look like row identifiers; empty if they do not."""
    n = len(values)
    if n > 1 and _IDENTIFIER.search(name) and pc.count_distinct(values).as_py() == n:
        return _ALL_DIFFERENT
    rising = n >= _MANY_ROWS and pc.all(pc.greater(values.slice(1), values.slice(0, n - 1))).as_py()
    return "it looks like a row number (every value is larger than the one before)" if rising else ""


def _category(name: str, text: Values, keep: bool, is_category: bool) -> tuple[Column | None, str]:
    counted = pc.value_counts(text.drop_null())
    table = pa.table({"value": counted.field("values"), "count": counted.field("counts")})
    distinct = table.sort_by([("count", "descending"), ("value", "ascending")])["value"]
    n_distinct = len(distinct)
    if not keep and n_distinct == 1 and text.null_count == 0:
        return None, f"every value is {shown(distinct[0].as_py())}"
    reason = _unlike_category(name, distinct, len(text) - text.null_count)
    if reason == _FREE_TEXT and not is_category:
        return Column(name, "text"), ""
    if reason and not keep:
        return None, reason
    other = n_distinct > _MAX_CODES
    kept = distinct.slice(0, _MAX_CODES - other).to_pylist()
    remark = f"{n_distinct:,} different values: all but the {len(kept)} most frequent count as one (--text reads all)"
    return Column(name, "category", tuple(kept), other), remark if other else ""


def _unlike_category(name: str, distinct: Values, n_valid: int) -> str:
    """Return the reason why text is not a category but numbers, sentences or identifiers; empty if it is a category."""
    if len(distinct) >= _MANY_ROWS:
        numbers = pc.mean(pc.cast(pc.match_substring_regex(distinct, _NUMBER_AS_TEXT), pa.float64())).as_py()
        if numbers > 0.9 and not pc.any(pc.match_substring_regex(distinct, _LEADING_ZERO)).as_py():
            odd = distinct.filter(pc.invert(pc.match_substring_regex(distinct, _PLAIN_NUMBER)))
            examples = listed((odd if len(odd) else distinct).slice(0, 2).to_pylist())
            return f"its values are numbers or dates, but not all are written as 1.5 or 2024-12-31, such as {examples}"
        length = pc.mean(pc.utf8_length(distinct)).as_py()
        words = pc.mean(pc.count_substring_regex(distinct, _WORD_ENDS)).as_py() + 1
        if (length >= _LONG_TEXT or words >= _MANY_WORDS) and 2 * len(distinct) > n_valid:
            return _FREE_TEXT
    all_different = len(distinct) == n_valid and n_valid > 1
    if all_different and (n_valid >= _MANY_ROWS or _IDENTIFIER.search(name)):
        return _ALL_DIFFERENT
    return ""
