"""From the body of a request to rows and a cost."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import pyarrow as pa

from demur.columns.table_errors import listed, shown
from demur.deploy.fields import Field, as_text
from demur.deploy.refusal import RefusedError
from demur.tabular import Schema

__all__ = ["Question", "QuestionReader", "parse"]

_PARTS = ("row", "rows", "cost")
_LONGEST_NAME = 100


@dataclass(frozen=True, eq=False)
class Question:
    """What a request asks: rows, and the cost to decide for.

    Parameters
    ----------
    table : pyarrow.Table
    cost : float or None
        None for the model's own.
    """

    table: Any
    cost: float | None


class QuestionReader:
    """Reads the requests of one model.

    Parameters
    ----------
    schema : Schema
    max_rows : int

    Examples
    --------
    >>> from demur.tabular import Column
    >>> reader = QuestionReader(Schema((Column("size", "number"),)), max_rows=10)
    >>> question = reader.read(b'{"row": {"size": 2}, "cost": 0.1}')
    >>> question.table.to_pylist(), question.cost
    ([{'size': 2.0}], 0.1)
    """

    def __init__(self, schema: Schema, max_rows: int) -> None:
        self.fields = {column.name: Field(column) for column in schema.columns}
        self.ignored = frozenset([*schema.set_aside, *([] if schema.target is None else [schema.target])])
        self.max_rows = max_rows

    def read(self, body: bytes) -> Question:
        """Return the question, or raise a :class:`RefusedError` that says what is wrong with it."""
        document = parse(body)
        if not isinstance(document, dict):
            raise RefusedError('the body is no object: give {"rows": [{...}, ...]} or {"row": {...}}')
        unknown = [name for name in document if name not in _PARTS]
        if unknown:
            raise RefusedError(
                f"the request has {listed(unknown)} beside rows and cost{_did_you_mean(unknown, _PARTS)}"
            )
        if ("row" in document) == ("rows" in document):
            problem = "has both row and rows" if "row" in document else "has no rows"
            raise RefusedError(f'the request {problem}: give {{"rows": [{{...}}, ...]}} or {{"row": {{...}}}}')
        cost = _cost(document["cost"]) if document.get("cost") is not None else None
        return Question(self._table(self._rows(document)), cost)

    def _rows(self, document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        rows = [document["row"]] if "row" in document else document["rows"]
        if not isinstance(rows, list):
            raise RefusedError(f"rows is {shown(as_text(rows))} and no list: give a list of objects")
        if not rows:
            raise RefusedError("the request has no rows: give at least one row")
        if len(rows) > self.max_rows:
            problem = f"the request has {len(rows):,} rows, and {self.max_rows:,} are the most"
            raise RefusedError(f"{problem}: send them in several requests", status=413)
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict):
                raise RefusedError(f"row {number:,} is {shown(as_text(row))} and no object: give names and values")
            if row.keys() != self.fields.keys():
                self._check_names(number, row)
        return rows

    def _check_names(self, number: int, row: Mapping[str, Any]) -> None:
        missing = [name for name in self.fields if name not in row]
        extra = [name for name in row if name not in self.fields and name not in self.ignored]
        found = [f"{word} {listed(names)}" for word, names in (("missing", missing), ("extra", extra)) if names]
        if not found:
            return
        advice = ["give null for what is not known"] if missing else []
        if extra:
            advice.append(f"leave out what is extra{_did_you_mean(extra, missing or list(self.fields))}")
        problem = f"row {number:,} does not have the columns that the model was fitted on"
        raise RefusedError(f"{problem}: {'; '.join(found + advice)}")

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> Any:
        arrays = [field.array([row[name] for row in rows]) for name, field in self.fields.items()]
        return pa.Table.from_arrays(arrays, names=list(self.fields))


def parse(body: bytes) -> Any:
    """Return what a JSON text holds; what JSON leaves to each reader, such as a name given twice, is refused.

    Examples
    --------
    >>> parse(b'{"cost": NaN}')
    Traceback (most recent call last):
        ...
    demur.deploy.refusal.RefusedError: the body is not JSON: it holds NaN; give null for a missing value
    """
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise RefusedError(f"the body is not UTF-8 text (byte {error.start + 1:,}): send JSON", 400) from None
    except json.JSONDecodeError as error:
        words = error.msg[:1].lower() + error.msg[1:]
        problem = f"the body is not JSON: {words} at line {error.lineno:,}, column {error.colno:,}"
        raise RefusedError(problem, 400) from None
    except RecursionError:
        raise RefusedError("the body is nested too deeply: give a list of objects", 400) from None
    except RefusedError:
        raise
    except ValueError:  # Python's limit for the digits of a whole number
        raise RefusedError("the body holds a number with thousands of digits: give fewer", 400) from None


def _refuse_constant(name: str) -> None:
    raise RefusedError(f"the body is not JSON: it holds {name}; give null for a missing value", 400)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise RefusedError(f"the body holds {shown(twice)} twice in one object: give it once", 400)
    return result


def _cost(value: Any) -> float:
    """Return a cost as a number, which the model judges."""
    if type(value) not in (int, float):
        raise RefusedError(f"cost must be a number in [0, 1), got {shown(as_text(value))}.")
    try:
        return float(value)
    except OverflowError:  # a whole number beyond all floats
        return math.inf


def _did_you_mean(wrong: Sequence[str], known: Sequence[str]) -> str:
    # the search takes time that grows with the square of the name's length
    close = get_close_matches(wrong[0][:_LONGEST_NAME], known, n=1)
    return f"; did you mean {shown(close[0])}?" if close else ""
