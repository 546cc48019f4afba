"""Data frames, arrays and lists as tables."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from demur.columns import Schema, TableError, as_table

NAN = float("nan")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        (pd.Series([1, 2]), [1, 2]),
        (pd.Series([1.5, NAN]), [1.5, None]),
        (pd.Series(["a", None], dtype=object), ["a", None]),
        (pd.Series(["a", 1], dtype=object), ["a", "1"]),
        (pd.Series(["a", 1, None, NAN, pd.NA], dtype=object), ["a", "1", None, None, None]),
        (pd.Series([True, 1], dtype=object), ["True", "1"]),
        (pd.Series([[1], "a"], dtype=object), ["[1]", "a"]),
        (pd.Series(["a", None], dtype="string"), ["a", None]),
        (pd.Series(["a", None, "b"], dtype="category"), ["a", None, "b"]),
        (pd.Series([1, None], dtype="Int64"), [1, None]),
        (pd.Series([True, None], dtype="boolean"), [True, None]),
        (pd.Series([1.5, None], dtype="float64[pyarrow]"), [1.5, None]),
        (pd.Series([Decimal("1.5"), None]), [Decimal("1.5"), None]),
        (pd.Series(pd.to_datetime(["2024-01-02", None])), [datetime.datetime(2024, 1, 2), None]),
        (pd.Series(pd.arrays.SparseArray([0.0, 1.0])), [0.0, 1.0]),
        (pd.Series(pd.period_range("2024-01", periods=2, freq="M")), ["2024-01", "2024-02"]),
        (pd.Series([1j, None], dtype=object), ["1j", None]),
    ],
)
def test_pandas_columns(series, expected):
    table = as_table(pd.DataFrame({"x": series}))
    assert table["x"].to_pylist() == expected
    assert not isinstance(table["x"].type, pa.BaseExtensionType)


def test_pandas_names_become_text_and_must_differ():
    assert as_table(pd.DataFrame([[1, 2]])).column_names == ["0", "1"]
    with pytest.raises(TableError, match="more than one column named 'a'"):
        as_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(TableError, match="more than one column named 'a'"):
        as_table(pa.table([[1], [2]], names=["a", "a"]))


def test_polars_columns():
    frame = pl.DataFrame(
        {
            "n": [1, None],
            "s": ["a", None],
            "c": pl.Series(["u", "v"], dtype=pl.Categorical),
            "e": pl.Series(["u", "v"], dtype=pl.Enum(["u", "v"])),
            "d": [datetime.date(2024, 1, 2), None],
        }
    )
    table = as_table(frame)
    assert table.to_pylist() == frame.to_dicts()
    assert Schema.learn(table).encode(table)[0].tolist() == [1, 0, 0, 0, 19_724]


@pytest.mark.parametrize("kind", ["pandas", "polars", "record batch", "table", "list", "object array"])
def test_all_containers_give_the_same_table(kind):
    columns = {"x0": [1.5, None, 2.5], "x1": ["a", "b", None]}
    rows = [list(row) for row in zip(*columns.values(), strict=True)]
    X = {
        "pandas": lambda: pd.DataFrame(columns),
        "polars": lambda: pl.DataFrame(columns),
        "record batch": lambda: pa.record_batch(columns),
        "table": lambda: pa.table(columns),
        "list": lambda: rows,
        "object array": lambda: np.array(rows, dtype=object),
    }[kind]()
    table = as_table(X)
    assert table.to_pydict() == columns
    schema = Schema.learn(table)
    np.testing.assert_array_equal(schema.encode(table), [[1.5, 0], [np.nan, 1], [2.5, np.nan]])


def test_arrays_keep_their_type():
    assert as_table(np.array([[True], [False]])).schema.types == [pa.bool_()]
    assert as_table(np.array([["1", "a"]])).schema.types == [pa.string()] * 2
    assert as_table(np.array([["2024-01-02"]], dtype="M8[D]"))["x0"].to_pylist() == [datetime.date(2024, 1, 2)]
    assert as_table(np.array([[NAN]]))["x0"].null_count == 1
    for large in (np.array([[2**70], [None]], dtype=object), np.array([[2**70], [NAN]], dtype=np.longdouble)):
        assert as_table(large)["x0"].to_pylist() == [2.0**70, None]  # not text
    assert as_table([[10**400], [True]])["x0"].to_pylist() == [str(10**400), "True"]


@pytest.mark.parametrize(
    ("X", "part"),
    [
        (np.zeros(3), r"a ndarray of shape \(3,\)"),
        (np.zeros((2, 2, 2)), "shape"),
        ([[1, 2], [3]], "a list of rows of one length"),
        (["ab", "cd"], "shape"),
        ("ab", "a str of shape"),
        (None, "a NoneType of shape"),
        (np.array([[1j]]), "complex"),
        (pd.Series([1]), "shape"),
    ],
)
def test_what_is_no_table_is_refused(X, part):
    with pytest.raises(TableError, match=part):
        as_table(X)


def test_sparse_matrices_are_refused():
    from scipy.sparse import csr_array

    with pytest.raises(TableError, match="toarray"):
        as_table(csr_array(np.eye(2)))
