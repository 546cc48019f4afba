"""What cannot be answered is told why, in one sentence."""

import asyncio
import json
import threading

import httpx
import pyarrow as pa
import pytest
from service_samples import HOSTILE, app, ask, good, json_rows, model, send, table

from demur.costs import check_cost
from demur.deploy import create_app
from demur.deploy.decider import Lanes
from demur.deploy.service_schema import Asked, RefusedError
from demur.tabular import fit_table


def with_value(column, value):
    rows = json_rows(table().slice(0, 2))
    return {"rows": [rows[0], rows[1] | {column: value}]}


def without(column):
    row = json_rows(table().slice(0, 1))[0]
    del row[column]
    return {"row": row}


REFUSED = {
    "no number": (with_value("size", "big"), 422, "column 'size', row 2, holds 'big', which is not a number"),
    "number as text": (with_value("size", "1.5"), 422, "holds '1.5', which is not a number"),
    "truth as number": (with_value("size", True), 422, "holds 'true', which is not a number"),
    "too large": (with_value("size", 1e31), 422, "holds '1e+31', which is too large: give a number between"),
    "too large a whole number": (with_value("size", 10**400), 422, "which is too large"),
    "a list": (with_value("size", [1]), 422, "holds '[...]', which is not a number"),
    "no truth value": (with_value("open", "true"), 422, "which is not a truth value"),
    "no text": (with_value(HOSTILE, 3), 422, "holds '3', which is not text"),
    "half of a character": (with_value(HOSTILE, "\ud800"), 422, "which is not text"),
    "no whole number": (with_value("floor", 1.5), 422, "holds '1.5', which is not text"),
    "no such day": (with_value("day", "2024-02-30"), 422, "row 2, holds '2024-02-30', which is not a date"),
    "a zone where none is": (with_value("day", "2024-02-01T00:00Z"), 422, "which is not a date such as 2024-12-31"),
    "no zone": (with_value("seen", "2024-02-01"), 422, "which is not a date with a time zone"),
    "no time": (with_value("noon", "24:00"), 422, "column 'noon', row 2, holds '24:00', which is not a time of day"),
    "an odd time": (with_value("noon", "2359"), 422, "which is not a time of day"),
    "too many seconds": ({"row": good()["rows"][0] | {"noon": 1e10}}, 422, "which is too large"),
    "missing": (without("open"), 422, "row 1 does not have the columns that the model was fitted on: missing 'open'"),
    "misspelt": ({"row": without("open")["row"] | {"opne": True}}, 422, "extra 'opne'; give null for what is not known;"
                 " leave out what is extra; did you mean 'open'?"),
    "no rows": ({"rows": []}, 422, "the request has no rows: give at least one row"),
    "nothing": ({}, 422, "the request has no rows"),
    "both": ({**good(), "row": {}}, 422, "has both row and rows"),
    "rows of another kind": ({"rows": {}}, 422, "rows is '{...}' and not a list"),
    "a row of another kind": ({"rows": [1]}, 422, "row 1 is '1' and not an object"),
    "a list at the top": ([1], 422, "the body is not an object"),
    "an unknown part": (good(costs=1), 422, "has 'costs' beside rows, cost and proba; did you mean 'cost'?"),
    "proba as text": (good(proba="yes"), 422, "proba must be true or false, got 'yes'."),
    "cost as text": (good(cost="0.1"), 422, "cost must be a number in [0, 1), got '0.1'."),
    "cost as truth": (good(cost=False), 422, "cost must be a number in [0, 1), got 'false'."),
    "cost beyond all floats": (good(cost=10**400), 422, "cost must be in [0, 1), got inf"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_the_reason_is_told(name):
    document, status, words = REFUSED[name]
    response = ask(app(), document)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert words in response.json()["error"]
    assert "\n" not in response.json()["error"]


@pytest.mark.parametrize("cost", [1, 1.5, -0.1, 1e300])
def test_a_cost_out_of_range_is_refused_in_the_words_of_the_library(cost):
    with pytest.raises(ValueError, match="cost must be in") as error:
        check_cost(cost)
    assert ask(app(), good(cost=cost)).json() == {"error": str(error.value)}


BODIES = {
    "not a number": (b'{"row": {"size": NaN}}', "it holds NaN; give null"),
    "infinity": (b'{"row": {"size": -Infinity}}', "it holds -Infinity"),
    "empty": (b"", "the body is not JSON: expecting value at line 1, column 1"),
    "cut": (b'{"row": ', "at line 1, column 9"),
    "bytes": (b"\xff\xfe", "the body is not UTF-8 text (byte 1)"),
    "deep": (b"[" * 10_000 + b"]" * 10_000, "nested too deeply"),
    "digits": (b'{"cost": ' + b"1" * 5000 + b"}", "thousands of digits"),
    "twice": (b'{"cost": 0.1, "cost": 0.2}', "holds 'cost' twice"),
    "twice among many": (json.dumps({str(k): 0 for k in range(99)})[:-1].encode() + b', "7": 1}', "holds '7' twice"),
}


@pytest.mark.parametrize("name", BODIES)
def test_what_is_not_json(name):
    body, words = BODIES[name]
    (response,) = send(app(), {"content": body, "headers": {"content-type": "application/json"}})
    assert response.status_code == 400
    assert words in response.json()["error"]


def test_a_number_beyond_all_floats_is_too_large():
    body = json.dumps(with_value("size", 7)).replace(": 7", ": 1e999")
    (response,) = send(app(), {"content": body, "headers": {"content-type": "application/json"}})
    assert response.status_code == 422
    assert "holds 'Infinity', which is too large" in response.json()["error"]


def test_a_number_that_overflows_once_it_is_scaled_is_refused():
    scale = 1e-20
    rows = pa.table({"size": [scale * k for k in range(40)], "y": ["a"] * 20 + ["b"] * 20})
    served = create_app(fit_table(rows, "y", model="apc+log", novelty=None))
    assert ask(served, {"rows": [{"size": scale}, {"size": 40 * scale}]}).status_code == 200
    refused = ask(served, {"rows": [{"size": scale}, {"size": 1e29}]})
    assert refused.status_code == 422
    assert "row 2 holds a number too far from those" in refused.json()["error"]
    careful = ask(create_app(fit_table(rows, "y", model="apc+log")), {"row": {"size": 1e29}}).json()["decisions"][0]
    assert (careful["prediction"], careful["reason"]) == (None, "novel: size")


@pytest.mark.parametrize(
    ("kind", "accepted"),
    [
        ("application/json", True),
        ("Application/JSON; charset=UTF-8", True),
        ("application/json; charset=latin-1", False),
        ("text/plain", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
    ],
)
def test_only_json_is_taken(kind, accepted):
    (response,) = send(app(), {"content": json.dumps(good()), "headers": {"content-type": kind}})
    assert response.status_code == (200 if accepted else 415)
    assert accepted or "Content-Type: application/json" in response.json()["error"]


async def _in_pieces(body, size=100):
    for start in range(0, len(body), size):
        yield body[start : start + size]


def test_a_body_too_large_is_refused_however_it_comes():
    body = json.dumps(good()).encode()
    headers = {"content-type": "application/json"}
    just_fits, too_small = app(max_bytes=len(body)), app(max_bytes=len(body) - 1)
    for content in (lambda: body, lambda: _in_pieces(body)):
        (fits,) = send(just_fits, {"content": content(), "headers": headers})
        (refused,) = send(too_small, {"content": content(), "headers": headers})
        assert fits.status_code == 200
        assert refused.status_code == 413
        assert f"more than {len(body) - 1:,} bytes" in refused.json()["error"]


def test_an_announced_length_is_believed_only_where_it_is_too_large():
    headers = {"content-type": "application/json", "content-length": "1" + "0" * 15}
    (response,) = send(app(), {"content": _in_pieces(b"{"), "headers": headers})
    assert response.status_code == 413


def test_too_many_rows():
    served = app(max_rows=3)
    assert ask(served, good(3)).status_code == 200
    refused = ask(served, good(4))
    assert refused.status_code == 413
    assert refused.json()["error"] == "the request has 4 rows, and 3 are the most: send them in several requests"


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/decide", 405), ("GET", "/no", 404), ("PUT", "/", 405)]
)
def test_other_addresses_and_methods(method, path, status):
    (response,) = send(app(), {}, path=path, method=method)
    assert response.status_code == status
    assert "/decide" in response.json()["error"]
    assert ("allow" in response.headers) == (status == 405)


def test_too_many_requests_at_once_are_told_to_come_again():
    release = threading.Event()

    class Shouting:
        is_quick, seconds = True, 1.0

        def prepare(self, body):
            return Asked([], None, codes=body)

        def answers(self, asked):
            return [self.answer(one.codes) for one in asked]

        def answer(self, body):
            release.wait(60)
            return body.upper()

    async def crowd(lanes):
        waiting = [asyncio.ensure_future(lanes.run(b"a")) for _ in range(lanes.MOST_WAITING)]
        await asyncio.sleep(0)  # let them begin
        with pytest.raises(RefusedError, match="busy with 128 requests") as error:
            await lanes.run(b"a")
        assert error.value.status == 503
        release.set()
        assert await asyncio.gather(*waiting) == [b"A"] * lanes.MOST_WAITING
        assert await lanes.run(b"a" * 100_000) == b"A" * 100_000

    asyncio.run(crowd(Lanes(Shouting())))


async def _never_ends(start=b"{"):
    yield start
    await asyncio.Event().wait()


def test_issue_17_a_body_that_does_not_come_is_given_up_and_takes_no_slot():
    served = create_app(model(), max_seconds=0.05)

    async def slow_and_good():
        transport = httpx.ASGITransport(served)
        headers = {"content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            slow = [client.post("/decide", content=_never_ends(), headers=headers) for _ in range(200)]
            running = [asyncio.ensure_future(one) for one in slow]
            await asyncio.sleep(0)
            answered = await client.post("/decide", json=good())
            return answered, await asyncio.gather(*running)

    answered, given_up = asyncio.run(slow_and_good())
    assert answered.status_code == 200
    assert {one.status_code for one in given_up} == {408}
    assert "did not arrive within 0.05 seconds" in given_up[0].json()["error"]


def test_issue_17_unfinished_bodies_do_not_fill_the_memory():
    served = create_app(model(), max_seconds=0.5)
    piece = b" " * 4_900_000

    async def many():
        transport = httpx.ASGITransport(served)
        headers = {"content-type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            posts = [client.post("/decide", content=_never_ends(piece), headers=headers) for _ in range(20)]
            return await asyncio.gather(*posts)

    codes = [one.status_code for one in asyncio.run(many())]
    assert set(codes) == {408, 503}
    assert codes.count(408) == (1 << 26) // len(piece)
    assert ask(served, good()).status_code == 200


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("127.0.0.1:8000", True),
        ("192.168.0.7", True),
        ("[::1]:8000", True),
        ("models.example.org", True),
        ("MODELS.example.org:443", True),
        ("evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("localhost.evil.example.org:8000", False),
    ],
)
def test_issue_17_a_foreign_name_is_refused(host, known):
    served = create_app(model(), allowed_hosts=["models.example.org"])
    (response,) = send(served, {"headers": {"host": host}}, path="/health", method="GET")
    assert response.status_code == (200 if known else 421)
    assert known or "--allow-host" in response.json()["error"]


def test_any_name_may_be_allowed():
    served = create_app(model(), allowed_hosts=["*"])
    (response,) = send(served, {"headers": {"host": "anything.example"}}, path="/health", method="GET")
    assert response.status_code == 200
