"""What is understood of a table, what another table is refused for, and the numbers that come out."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from demur.columns import Column, Schema, TableError
from demur.columns.frames import as_table

N = 40


def learn_one(values, name="x", **options):
    """Learn a table with this column and another one that is always used."""
    table = pa.table({name: values, "size": np.linspace(0, 1, len(values)), "y": ["a", "b"] * (len(values) // 2)})
    return Schema.learn(table, target="y", **options), table


def encoded_one(values):
    schema, table = learn_one(values)
    assert "x" in schema.names, schema.set_aside
    return schema.encode(table)[:, schema.names.index("x")]


@pytest.mark.parametrize(
    ("values", "name", "reason"),
    [
        ([3.5] * N, "x", "every value is 3.5"),
        (["a"] * N, "x", "every value is 'a'"),
        ([datetime.date(2024, 1, 1)] * N, "x", "every value is the same"),
        ([None] * N, "x", "every value is missing"),
        ([float("inf")] * N, "x", "every value is missing, infinite or beyond 1e30"),
        (list(range(5, 5 + N)), "x", "row number"),
        ([(7 * i) % N for i in range(N)], "user_id", "identifier"),
        ([f"code-{(7 * i) % N}" for i in range(N)], "x", "identifier"),
        (["u1", "u2", "u3", "u4"], "UUID", "identifier"),
        ([f"{i},{i}" for i in range(N)], "x", "such as '0,0'"),
        ([[1, 2]] * N, "x", "list"),
        ([b"\0"] * N, "x", "binary"),
    ],
)
def test_what_is_no_feature_is_set_aside_with_its_reason(values, name, reason):
    schema, _ = learn_one(values, name)
    assert schema.names == ("size",)
    assert reason in schema.set_aside[name]
    assert any(name in sentence and reason in sentence for sentence in schema.describe())


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ([(7 * i) % N for i in range(N)], "x"),  # all different, but neither in order nor named as an identifier
        ([(7 * i) % N for i in range(N)], "paid"),
        ([1.0, None] * (N // 2), "x"),  # one value, but gaps that tell rows apart
        ([i + 0.5 for i in range(N)], "x"),
        ([1, 2, 3, 4], "x"),
        ([f"long but few different sentences with words, {i % 3}" for i in range(N)], "x"),
        (["1,5", "2,5"] * (N // 2), "x"),
    ],
)
def test_what_only_resembles_these_is_used(values, name):
    assert name in learn_one(values, name)[0].names


def test_free_text_is_a_column_of_text_unless_a_frame_says_category():
    texts = [f"a sentence of rather many words, the {i}th of them" for i in range(300)]
    assert [column.kind for column in learn_one(texts)[0].columns] == ["text", "number"]
    assert [column.kind for column in Schema.from_frame(pa.table({"x": texts})).columns] == ["text"]
    typed = pa.table({"x": pa.array(texts).dictionary_encode()})
    assert [column.kind for column in Schema.from_frame(typed).columns] == ["category"]


def test_text_of_a_script_without_spaces_is_text():
    texts = [f"我想查询第{i}号账单的付款金额" for i in range(300)]
    assert [column.kind for column in Schema.from_frame(pa.table({"x": texts})).columns] == ["text"]
    names = [f"{a}{b}" for a in "王李张刘陈杨黄" for b in "伟芳娜敏静丽强磊军洋"]
    assert not learn_one(names)[0].text.any()


def test_short_text_is_text_if_it_is_named_and_missing_text_is_empty():
    table = pa.table({"x": ["yes", "no", None, "yes"], "size": [1.0, 2.0, 3.0, 5.0]})
    schema = Schema.learn(table, text=["x"])
    assert schema.text.tolist() == [True, False]
    assert schema.texts(table).tolist() == [["yes"], ["no"], [""], ["yes"]]
    np.testing.assert_array_equal(schema.encode(table)[:, 0], [0, 0, np.nan, 0])
    assert schema.with_texts(schema.encode(table), table)[1].tolist() == ["no", 2.0]
    with pytest.raises(TableError, match="no column 'y'"):
        Schema.learn(table, text=["y"])


@pytest.mark.parametrize("kind", [pa.list_(pa.float32(), 2), pa.list_(pa.float64()), pa.large_list(pa.int64())])
def test_a_column_of_vectors_becomes_numbers(kind):
    table = as_table(pa.table({"v": pa.array([[1, 2], None, [5, 6]], kind), "a": [1, 2, 3]}))
    assert table.to_pydict() == {"v[0]": [1, None, 5], "v[1]": [2, None, 6], "a": [1, 2, 3]}


def test_lists_of_different_lengths_stay_lists():
    assert as_table(pa.table({"v": [[1, 2], [3]]})).column_names == ["v"]


def test_codes_with_leading_zeros_are_categories():
    codes = [f"{i % 30:05d}" for i in range(300)]
    schema, table = learn_one(codes)
    assert schema.columns[0].kind == "category"
    assert schema.encode(table)[:31, 0].tolist() == [*range(30), 0]


def test_codes_with_leading_zeros_are_not_looked_up_among_numbers():
    assert Column("code", "category", ("10", "0", "-3")).fits(pa.int64())
    assert Column("code", "category", ("10", "0", "-3")).fits(pa.float64())
    assert not Column("code", "category", ("123456789012",)).fits(pa.float64())  # which is written as 1.234e+11
    with pytest.raises(TableError, match="'code' is a number and not text"):
        Schema((Column("code", "category", ("10", "01")),)).check({"code": pa.int64()})


def test_whole_numbers_and_truth_values_are_known_as_pandas_writes_them():
    column = Column("code", "category", ("7", "2.0", "true", "False"))
    cells = pa.array(["7.0", "2.0", "True", "False", "2", "7.5", "false", None])
    np.testing.assert_array_equal(column.encode(cells, "new.csv", unseen=-1), [0, 1, 2, 3, -1, -1, -1, np.nan])


def test_numbers_that_no_model_takes_are_missing_and_named():
    schema, table = learn_one([1.5, 1e31, float("inf"), 2.5] * 10)
    np.testing.assert_array_equal(schema.encode(table)[:4, 0], [1.5, np.nan, np.nan, 2.5])
    assert schema.remarks == {"x": "infinite values, and those beyond 1e30, are read as missing"}
    assert learn_one([1.5, float("nan")] * 10)[0].remarks == {}


def test_durations_are_numbers_in_seconds():
    schema, _ = learn_one(pa.array([90, 30] * 20, pa.duration("s")))
    assert schema.columns[0] == Column("x", "number")
    assert schema.remarks == {"x": "durations are used in seconds"}
    FEATURES.check({**TYPES, "a": pa.duration("us")})


def test_a_column_can_be_kept_or_dropped_by_name():
    rising = list(range(N))
    assert "x" in learn_one(rising, keep=["x"])[0].names
    assert learn_one([1.5, 2.5] * (N // 2), drop=["x"])[0].set_aside == {"x": "it was left out on request"}
    with pytest.raises(TableError, match="no column 'z'"):
        learn_one(rising, keep=["z"])


def test_categories_are_ordered_by_frequency_then_by_name():
    schema, _ = learn_one(["b", "c", "a", "c", "b", "d"])
    assert schema.columns[0].categories == ("b", "c", "a", "d")


def test_the_most_frequent_categories_are_kept_and_the_rest_share_a_code():
    values = [f"v{i}" for i in range(300) for _ in range(3 if i >= 290 else 2)]
    schema, table = learn_one(values)
    column = schema.columns[0]
    assert column.categories[:10] == tuple(f"v{i}" for i in range(290, 300))
    codes = schema.encode(table)[:, 0]
    assert codes.max() == 254
    assert (codes == 254).sum() == 2 * (300 - 254)
    assert "300 different values" in schema.remarks["x"]


def test_unseen_categories_are_other_where_there_is_one_and_missing_elsewhere():
    values = pa.array(["b", "new", None])
    np.testing.assert_array_equal(Column("x", "category", ("a", "b")).encode(values, "t"), [1, np.nan, np.nan])
    np.testing.assert_array_equal(Column("x", "category", ("a", "b"), other=True).encode(values, "t"), [1, 2, np.nan])
    np.testing.assert_array_equal(Column("x", "category", ("a", "b")).encode(values, "t", unseen=-1), [1, -1, np.nan])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 7, 7]), [1, np.nan, 7, 7]),
        (pa.array([0.5, np.nan, np.inf, -np.inf]), [0.5, np.nan, np.nan, np.nan]),
        (pa.array([1, 2, 3, 3], pa.uint8()), [1, 2, 3, 3]),
        (pa.array(np.array([1, 2, 3, 3], np.float16)), [1, 2, 3, 3]),
        (pa.array(["1.25", "2", None, "2"]).cast(pa.decimal128(5, 2)), [1.25, 2, np.nan, 2]),
        (pa.array([True, False, None, True]), [1, 0, np.nan, 1]),
        (pa.array([datetime.date(1970, 1, 2), None, datetime.date(1969, 12, 31), None]), [1, np.nan, -1, np.nan]),
        (pa.array([0, 43_200, None, 86_400], pa.timestamp("s")), [0, 0.5, np.nan, 1]),
        (pa.array([0, 43_200, None, 86_400], pa.timestamp("s", tz="Europe/Paris")), [0, 0.5, np.nan, 1]),
        (pa.array([0, 10**9, None, 3], pa.timestamp("ns")), [0, 1 / 86_400, np.nan, 0]),
        (pa.array([60, 3600, None, 0], pa.time32("s")), [60, 3600, np.nan, 0]),
        (pa.array([1500, 0, None, 1], pa.duration("ms")), [1.5, 0, np.nan, 0.001]),
        (pa.array(["b", "a", None, "b"]), [0, 1, np.nan, 0]),
        (pa.array(["b", "a", None, "b"], pa.large_string()), [0, 1, np.nan, 0]),
        (pa.array(["b", "a", None, "b"], pa.string_view()), [0, 1, np.nan, 0]),
        (pa.array(["b", "a", None, "b"]).dictionary_encode(), [0, 1, np.nan, 0]),
        (pa.array([30, 20, None, 30]).dictionary_encode(), [0, 1, np.nan, 0]),
    ],
)
def test_the_numbers_of_each_type(values, expected):
    np.testing.assert_allclose(encoded_one(values), expected, rtol=1e-12)


def test_batches_and_chunked_tables_encode_the_same():
    schema, table = learn_one(["a", None, "b", "a"] * 10)
    parts = [schema.encode(batch) for batch in table.to_batches(max_chunksize=7)]
    again = pa.concat_tables([table.slice(0, 11), table.slice(11)])
    np.testing.assert_array_equal(np.concatenate(parts), schema.encode(table))
    np.testing.assert_array_equal(schema.encode(again), schema.encode(table))
    assert schema.categorical.tolist() == [True, False]


FEATURES = Schema((Column("a", "number"), Column("b", "category", ("u", "v")), Column("c", "date")), "y", {"id": "one"})
TYPES = {"a": pa.int64(), "b": pa.string(), "c": pa.date32()}


@pytest.mark.parametrize(
    "columns",
    [
        TYPES,
        dict.fromkeys(TYPES),
        {"b": None, "a": None, "c": None},  # in any order
        {"id": pa.int64(), **TYPES, "y": pa.string()},
        {"y": pa.list_(pa.int8()), **TYPES},
        {**TYPES, "a": pa.null(), "b": pa.dictionary(pa.int8(), pa.string()), "c": pa.timestamp("ns")},
    ],
)
def test_tables_with_the_same_columns_pass(columns):
    FEATURES.check(columns)


@pytest.mark.parametrize(
    ("columns", "parts", "passes_by_name"),
    [
        ({"a": None, "c": None}, ["missing 'b'"], False),
        ({**TYPES, "a": pa.string()}, ["'a' is text and not a number"], False),
        ({**TYPES, "b": pa.float64()}, ["'b' is a number and not text"], False),
        ({**TYPES, "c": pa.list_(pa.int8())}, ["'c' is list"], False),
        ({**TYPES, "c": pa.timestamp("s", "Asia/Tokyo")}, ["'c' is a date with a time zone"], False),
        ({**TYPES, "new": None}, ["extra 'new'", "--allow-extra"], True),
        ({"c": pa.bool_(), "a": None, "z": None}, ["missing 'b'", "'c' is a boolean", "extra 'z'"], False),
    ],
)
def test_other_columns_are_one_error_that_names_them(columns, parts, passes_by_name):
    with pytest.raises(TableError) as caught:
        FEATURES.check(columns, where="new.csv")
    assert all(part in str(caught.value) for part in ["new.csv", *parts])
    if passes_by_name:
        FEATURES.check(columns, strict=False)
    else:
        with pytest.raises(TableError) as caught:
            FEATURES.check(columns, strict=False)
        assert "--allow-extra" not in str(caught.value)


def test_encoding_goes_by_name_and_says_what_is_not_there():
    table = pa.table({"c": pa.array([1], pa.date32()), "b": ["v"], "a": [3]})
    assert FEATURES.encode(table).tolist() == [[3, 1, 1]]
    with pytest.raises(TableError, match="there is no column 'b'"):
        FEATURES.encode(table.drop_columns(["b"]))
    with pytest.raises(TableError, match="column 'a' holds 'x'"):
        FEATURES.encode(table.set_column(2, "a", pa.array(["x"])))
    with pytest.raises(TableError, match="column 'a' is list"):
        FEATURES.encode(table.set_column(2, "a", pa.array([[1]])))


@pytest.mark.parametrize(
    ("table", "part"),
    [
        (pa.table({"a": [1.5, 2.5]}), "no column 'y'"),
        (pa.table({"y": [1, 2]}), "no column is left"),
        (pa.table({"a": [1, 1], "y": [1, 2]}), "every value is 1"),
        (pa.table({"a": pa.array([], pa.int8()), "y": pa.array([], pa.int8())}), "no rows"),
    ],
)
def test_tables_without_features_are_refused(table, part):
    with pytest.raises(TableError, match=part):
        Schema.learn(table, target="y")


@pytest.mark.parametrize(
    "values",
    [
        [f"{k} cm" if k % 2 else f"1.{k} m" for k in range(40)],
        [f"2024/{1 + k % 12}/{1 + k % 28}" for k in range(40)],
        [f"2024-01-{1 + k % 28:02}T0{k % 9}:00:00{'Z' if k % 2 else ''}" for k in range(40)],
        [f"{1 + k % 28} Dec {1990 + k}" for k in range(40)],
        [f"Dec {1 + k % 28}, {1990 + k}" for k in range(40)],
        [f"({k},50)" if k % 2 else f"{k}.5" for k in range(40)],
    ],
)
def test_numbers_and_dates_that_are_not_read_are_no_categories(values):
    schema = Schema.learn(pa.table({"x": values, "size": range(40), "y": ["a", "b"] * 20}), target="y", keep=["size"])
    assert schema.names == ("size",)
    assert "its values are numbers or dates, but not all are written as" in schema.set_aside["x"]
