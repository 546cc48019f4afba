"""Requests and answers: a value in JSON means what it means in a table, and what does not fit is refused in words."""

import json
import random
from datetime import time, timedelta
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from service_samples import HOSTILE, Client, app, ask, covering, good, json_rows, model, table

from demur.columns import Column, Schema
from demur.deploy import create_app
from demur.deploy.request_types import question_type, request_table
from demur.tabular import TableModel


class Priced:
    """What a request needs to know of a classifier."""

    effective_cost, cost_adjustable, why_cost_fixed, has_proba = 0.2, True, None, True


def read(column, *values):
    """Return the column that a request with these values makes."""
    served = TableModel(Schema((column,), "y"), Priced())
    question = TypeAdapter(question_type(served, 10)).validate_python({"rows": [{"x": value} for value in values]})
    return request_table(served, question["rows"])["x"]


SAME = {
    "number": (Column("x", "number"), [1, 2.5, None, -3, 2**60], pa.array([1, 2.5, None, -3, 2.0**60])),
    "boolean": (Column("x", "boolean"), [True, None, False], pa.array([True, None, False])),
    "category": (
        Column("x", "category", ("a", ""), other=True), ["a", "", None, "unseen"], pa.array(["a", "", None, "unseen"])
    ),
    "numbered": (Column("x", "category", ("-1", "2")), [2, "-1", None, 7, 2.0], pa.array([2, -1, None, 7, 2])),
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
        Column("x", "time"), ["23:59:01.000001"], pa.array([time(23, 59, 1, 1)], pa.time64("ns"))
    ),
    "duration": (Column("x", "number"), [90, -0.5], pa.array([timedelta(seconds=90), timedelta(seconds=-0.5)])),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_json_and_table_agree(name):
    column, values, expected = SAME[name]
    found = column.encode(read(column, *values), "the request")
    np.testing.assert_array_equal(found, column.encode(expected, "the table"))


def test_a_vector_is_a_list_or_its_numbers():
    schema = Schema((Column("x[0]", "number"), Column("x[1]", "number"), Column("size", "number")), "y")
    questions = TypeAdapter(question_type(TableModel(schema, Priced()), 10))
    numbers = questions.validate_python({"row": {"x[0]": 1, "x[1]": None, "size": 3}})
    assert questions.validate_json('{"row": {"x": [1, null], "size": 3}}') == numbers
    assert questions.validate_python({"rows": [{"x": [1, None], "size": 3}]})["rows"] == [numbers["row"]]
    for wrong in ([1], [1, 2, 3], ["a", 1], 5, None):
        with pytest.raises(ValidationError):
            questions.validate_json(json.dumps({"row": {"x": wrong, "size": 3}}))


@pytest.mark.parametrize("kind", ["number", "boolean", "category", "date", "time"])
def test_null_is_a_missing_value(kind):
    column = Column("x", kind, ("a", "b") if kind == "category" else ())
    assert np.isnan(column.encode(read(column, None, None), "the request")).all()


def test_integers_are_categories_only_where_all_categories_are():
    numbered, named = Column("x", "category", ("1", "2")), Column("x", "category", ("1", "b"))
    assert read(numbered, 1, "2", 2.0).to_pylist() == ["1", "2", "2"]
    for column, value in ((named, 1), (numbered, True), (numbered, 1.5)):
        with pytest.raises(ValidationError):
            read(column, value)


# Refusals -------------------------------------------------------------------------------------------------------------


def with_value(column, value):
    rows = json_rows(table().slice(0, 2))
    return {"rows": [rows[0], rows[1] | {column: value}]}


def without(column):
    row = json_rows(table().slice(0, 1))[0]
    del row[column]
    return {"row": row}


REFUSED = {
    "no number": (with_value("size", "big"), "row 2, column 'size': input should be a valid number, got 'big'."),
    "number as text": (with_value("size", "1.5"), "input should be a valid number, got '1.5'"),
    "truth as number": (with_value("size", True), "input should be a valid number"),
    "too large": (with_value("size", 1e31), "input should be less than or equal to 1"),
    "too large a whole number": (with_value("size", 10**400), "input should be a finite number"),
    "a list": (with_value("size", [1]), "input should be a valid number"),
    "not a boolean": (with_value("open", "true"), "input should be a valid boolean"),
    "no text": (with_value(HOSTILE, 3), "input should be a valid string"),
    "no whole number": (with_value("floor", 1.5), "row 2, column 'floor'"),
    "no such day": (with_value("day", "2024-02-30"), "row 2, column 'day': input should be a valid datetime or date"),
    "a number as a day": (with_value("day", 20240101), "row 2, column 'day': a date or time must be text"),
    "a zone where none is": (with_value("day", "2024-02-01T00:00Z"), "input should not have timezone info"),
    "no zone": (with_value("seen", "2024-02-01"), "input should have timezone info"),
    "no time": (with_value("noon", "24:00"), "row 2, column 'noon': input should be in a valid time format"),
    "seconds": ({"row": good()["rows"][0] | {"noon": 30}}, "row 1, column 'noon': a date or time must be text"),
    "missing": (without("open"), "row 1, column 'open': a value is required; give null"),
    "misspelt": ({"row": good()["rows"][0] | {"opne": True}}, "row 1, column 'opne': this name is unknown"),
    "no rows": ({"rows": []}, "'rows': list should have at least 1 item"),
    "nothing": ({}, "'rows': a value is required; send {\"row\": {...}}"),
    "both": ({**good(), "row": good()["rows"][0]}, "'rows': this name is unknown"),
    "rows of another kind": ({"rows": {}}, "'rows': input should be a valid array"),
    "a row of another kind": ({"rows": [1]}, "row 1: input should be an object"),
    "a list at the top": ([1], "the request: input should be"),
    "an unknown part": (good(costs=1), "'costs': this name is unknown"),
    "proba as text": (good(proba="yes"), "'proba': input should be a valid boolean, got 'yes'."),
    "cost as text": (good(cost="0.1"), "'cost': input should be a valid number, got '0.1'."),
    "cost as truth": (good(cost=False), "'cost': input should be a valid number"),
    "too many rows": (good(4), "'rows': list should have at most 3 items after validation"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_reason_is_one_sentence(name):
    document, words = REFUSED[name]
    body = json.dumps(document)  # which httpx would not do for half a character
    response = Client(app(max_rows=3)).post("/decide", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]
    assert "\n" not in response.json()["error"]


@pytest.mark.parametrize("cost", [1, 1.5, -0.1, 1e300])
def test_a_cost_out_of_range_is_refused(cost):
    refused = ask(app(), good(cost=cost))
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("'cost': input should be ")


# Bodies that are no request -------------------------------------------------------------------------------------------

VALUES = [[], {}, [[]], "x", "\u202e", "\x00", True, 10**30, 1e308, "9" * 100_000, {"a": {"b": [1]}}, "\N{SNOWMAN}"]


def random_bytes(rng, text):
    return b"\xff" + rng.randbytes(rng.randrange(1, 200))


def cut(rng, text):
    return text[: rng.randrange(len(text) - 1)].encode()


def with_a_control_character(rng, text):
    position = rng.randrange(1, len(text) - 1)
    return (text[:position] + rng.choice("\x00\x01\x1f\x0b") + text[position:]).encode()


def another_type(rng, text):
    document = json.loads(text)
    column = rng.choice(["size", "open", "day", "seen", "noon"])
    document["rows"][0][column] = rng.choice(VALUES)
    if document["rows"][0][column] in (True, 10**30) and column in ("open", "size"):
        document["rows"][0][column] = []
    return json.dumps(document).encode()


def another_name(rng, text):
    document = json.loads(text)
    row = document["rows"][0]
    row[rng.choice(["", "sise", "\ud800", "\u202e" * 9, "x" * 100_000])] = row.pop(rng.choice(["size", "open", "day"]))
    return json.dumps(document).encode()


def another_shape(rng, text):
    document = json.loads(text)
    document[rng.choice(["rows", "cost", "more"])] = rng.choice(VALUES)
    return json.dumps(document).encode()


def no_number_of_json(rng, text):
    number = rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "0x1", "1" * 9999])
    return text.replace('"cost": 0.1', f'"cost": {number}').encode()


def deep(rng, text):
    return text.replace('"cost": 0.1', '"cost": ' + "[" * 10_000 + "]" * 10_000).encode()


def half_a_pair(rng, text):
    return text.replace('"cost": 0.1', rf'"cost": "\ud{rng.choice("89abcdef")}00"').encode()


KINDS = (
    random_bytes, cut, with_a_control_character, another_type, another_name, another_shape, no_number_of_json, deep,
    half_a_pair,
)  # fmt: skip


@pytest.mark.parametrize("n_bodies", [9 * 12, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_body_that_is_no_request_is_refused_and_the_service_goes_on(n_bodies):
    rng = random.Random(n_bodies)
    text = json.dumps(good(2, cost=0.1))
    asking = Client(app(), **{"content-type": "application/json"})
    before = asking.post("/decide", content=text).json()
    for kind in [*KINDS] * (n_bodies // len(KINDS)):
        body = kind(rng, text)
        response = asking.post("/decide", content=body)
        assert 400 <= response.status_code < 500, body[:300]
        assert list(response.json()) == ["error"]
        assert 10 < len(response.json()["error"]) < 600
    assert asking.post("/decide", content=text).json() == before


# The OpenAPI document -------------------------------------------------------------------------------------------------

SERVED = {
    "free cost": cache(lambda: create_app(model(), allowed_hosts=["*"])),
    "fixed cost": cache(lambda: create_app(model("ova+hin"), allowed_hosts=["*"])),
    "no cost": cache(lambda: create_app(covering(), allowed_hosts=["*"])),
    "audits": cache(lambda: create_app(model(), audit=0.5, allowed_hosts=["*"])),
}


@cache
def document(name):
    import schemathesis  # it takes seconds to import

    # OpenAPI's registry has both; schemathesis does not know them by itself
    schemathesis.openapi.format("date-time-local", st.datetimes().map(lambda moment: moment.isoformat()))
    schemathesis.openapi.format("time-local", st.times().map(lambda moment: moment.isoformat()))
    return schemathesis.openapi.from_asgi("/openapi.json", SERVED[name]())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::demur.costs.CostWarning")
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize("name", SERVED)
def test_decide_keeps_to_the_document_of_every_kind_of_model(name, mode):
    from schemathesis import GenerationMode

    seen = set()
    operation = document(name)["/decide"]["POST"]

    @settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    def check(case):
        response = case.call()
        seen.add(response.status_code)
        case.validate_response(response)

    check()
    assert seen == {200} if mode == "positive" else 200 not in seen


def test_the_document_names_every_column_and_limit():
    found = Client(app()).get("/openapi.json").json()
    row = found["components"]["schemas"]["Row"]
    assert row["required"] == list(model().schema.names)
    assert set(row["properties"]) == set(good()["rows"][0])
    assert row["properties"]["row_id"]["description"].startswith("Not used: it looks like an identifier")
    assert found["components"]["schemas"]["ManyRows"]["properties"]["rows"]["maxItems"] == 10_000
    assert set(found["paths"]) == {"/decide", "/health", "/metrics", "/ready"}
