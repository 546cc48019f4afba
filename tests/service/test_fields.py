"""A value in JSON means what the same value means in a table."""

import json
from datetime import time, timedelta

import numpy as np
import pyarrow as pa
import pytest

from demur.columns import Column, Schema
from demur.deploy.service_schema import RefusedError, Requests, column_array
from demur.tabular import TableModel

SAME = {
    "number": (Column("x", "number"), [1, 2.5, None, -3, 2**60], pa.array([1, 2.5, None, -3, 2.0**60])),
    "boolean": (Column("x", "boolean"), [True, None, False], pa.array([True, None, False])),
    "category": (
        Column("x", "category", ("a", ""), other=True), ["a", "", None, "unseen"], pa.array(["a", "", None, "unseen"])
    ),
    "numbered": (Column("x", "category", ("-1", "2")), [2, "-1", None, 7], pa.array([2, -1, None, 7])),
    "date": (
        Column("x", "date"),
        ["2024-12-31", "2024-12-31T23:59", "2024-12-31 23:59:01.5", None],
        pa.array([1735603200000000, 1735689540000000, 1735689541500000, None], pa.timestamp("us")),
    ),
    "zoned": (
        Column("x", "date", zoned=True), ["1970-01-02T00:00Z", "1970-01-02T02:00+02:00"],
        pa.array([86400, 86400], pa.timestamp("s", tz="UTC")),
    ),
    "time": (Column("x", "time"), ["23:59", "00:00:01.5"], pa.array([time(23, 59), time(0, 0, 1, 500_000)])),
    "time in nanoseconds": (
        Column("x", "time", unit="ns"), ["23:59:01.000001"], pa.array([time(23, 59, 1, 1)], pa.time64("ns"))
    ),
    "duration": (Column("x", "time"), [90, -0.5], pa.array([timedelta(seconds=90), timedelta(seconds=-0.5)])),
    "time and seconds": (Column("x", "time"), ["00:01", 60], pa.array([timedelta(minutes=1)] * 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_json_and_table_agree(name):
    column, values, expected = SAME[name]
    found = column.encode(column_array(column, values), "the request")
    np.testing.assert_array_equal(found, column.encode(expected, "the table"))


@pytest.mark.parametrize("kind", ["number", "boolean", "category", "date", "time"])
def test_what_is_missing_is_missing(kind):
    column = Column("x", kind, ("a", "b") if kind == "category" else ())
    assert np.isnan(column.encode(column_array(column, [None, None]), "the request")).all()


def reader(*columns):
    """The requests to a model of these columns; it needs no classifier."""

    class Priced:
        effective_cost, cost_adjustable, why_cost_fixed, has_proba = 0.2, True, None, True

    return Requests(TableModel(Schema(columns, "y"), Priced()), max_rows=10)


def body(*values):
    return json.dumps({"rows": [{"x": value} for value in values]}).encode()


def test_integers_are_categories_only_where_all_categories_are():
    numbered, named = reader(Column("x", "category", ("1", "2"))), reader(Column("x", "category", ("1", "b")))
    assert numbered.read(body(1, "2", 2.0)).table["x"].to_pylist() == ["1", "2", "2"]
    for refused in (lambda: named.read(body(1)), lambda: numbered.read(body(True)), lambda: numbered.read(body(1.5))):
        with pytest.raises(RefusedError, match="which is not text"):
            refused()


@pytest.mark.parametrize("kind", ["date", "number"])
def test_the_first_wrong_row_is_named(kind):
    good = "2024-01-01" if kind == "date" else 1
    with pytest.raises(RefusedError, match="column 'x', row 3,"):
        reader(Column("x", kind)).read(body(good, None, "soon", "later"))


def test_a_column_without_a_name_is_a_column():
    assert reader(Column("", "number")).read(b'{"row": {"": 1}}').table[""].to_pylist() == [1.0]
