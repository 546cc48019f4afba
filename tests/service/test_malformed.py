"""A thousand bodies that are no request: each gets a 4xx, and the service goes on."""

import json
import random

import pytest
from service_samples import app, ask, good, send

VALUES = [[], {}, [[]], "x", "\u202e", "\x00", True, 10**30, 1e308, "9" * 100_000, {"a": {"b": [1]}}, "\N{SNOWMAN}"]


def random_bytes(rng, text):
    return b"\xff" + rng.randbytes(rng.randrange(1, 200))


def cut(rng, text):
    return text[: rng.randrange(len(text) - 1)].encode()


def without_a_sign(rng, text):
    position = rng.choice([k for k, sign in enumerate(text) if sign in '{}[]:"'])
    return (text[:position] + text[position + 1 :]).encode()


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
    name = rng.choice(["rows", "cost", "more"])
    document[name] = rng.choice([value for value in VALUES if name != "cost" or value is not None])
    return json.dumps(document).encode()


def no_number_of_json(rng, text):
    number = rng.choice(["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "01", "+1", ".5", "0x1", "1" * 9999])
    return text.replace('"cost": 0.1', f'"cost": {number}').encode()


def deep(rng, text):
    return text.replace('"cost": 0.1', '"cost": ' + "[" * 10_000 + "]" * 10_000).encode()


def twice(rng, text):
    return text.replace('"cost": 0.1', '"cost": 0.1, "cost": 0.1').encode()


def half_a_pair(rng, text):
    return text.replace('"cost": 0.1', rf'"cost": "\ud{rng.choice("89abcdef")}00"').encode()


def text_of_another_encoding(rng, text):
    return text.encode(rng.choice(["utf-16", "utf-32", "utf-16-le"]))


KINDS = (
    random_bytes, cut, without_a_sign, with_a_control_character, another_type, another_name, another_shape,
    no_number_of_json, deep, twice, half_a_pair, text_of_another_encoding,
)  # fmt: skip


@pytest.mark.parametrize("n_bodies", [12 * 12, pytest.param(1000, marks=pytest.mark.slow)])
def test_bodies_that_cannot_be_answered(n_bodies):
    rng = random.Random(n_bodies)
    text = json.dumps(good(2, cost=0.1))
    before = ask(app(), json.loads(text))
    bodies = [KINDS[k % len(KINDS)](rng, text) for k in range(n_bodies)]
    headers = {"content-type": "application/json"}
    responses = send(app(), *({"content": body, "headers": headers} for body in bodies))
    for body, response in zip(bodies, responses, strict=True):
        assert 400 <= response.status_code < 500, body[:300]
        assert list(response.json()) == ["error"]
        assert 10 < len(response.json()["error"]) < 600
    (health,) = send(app(), {}, path="/health", method="GET")
    assert health.json()["status"] == "ok"
    assert ask(app(), json.loads(text)).json() == before.json()
