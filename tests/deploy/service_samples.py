"""Models to serve, the rows they were fitted on, and a client without a network."""

import asyncio
from datetime import date, datetime, time
from functools import cache

import httpx
import numpy as np
import pyarrow as pa
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier

from demur import Coverage
from demur.columns import Schema
from demur.deploy import create_app
from demur.estimators import AutoClassifier, RejectOption
from demur.tabular import TableModel, fit_table

HOSTILE = "</script><script>alert(1)</script> \"'{{ 7 * 7 }}"
CLASSES = ("ant", "<b>bee</b>", "cow")


@cache
def table(n_rows=90, seed=0):
    """A column of each kind, each with values that are missing, an identifier, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n_rows)
    hours = rng.integers(24, size=n_rows - 1).tolist()
    columns = {
        "size": pa.array(rng.normal(3 * y, 1), mask=rng.random(n_rows) < 0.1),
        HOSTILE: pa.array(rng.choice(["cat", "dog", "<i>newt</i>"], n_rows), mask=rng.random(n_rows) < 0.1),
        "floor": pa.array(rng.integers(-1, 3, n_rows)).dictionary_encode(),
        "open": pa.array(rng.random(n_rows) < 0.5, mask=rng.random(n_rows) < 0.1),
        "day": pa.array([None, *(datetime(2024, 1, 1 + hour, hour) for hour in hours)]),
        "seen": pa.array(
            [None, *rng.integers(0, 2_000_000_000, n_rows - 1).tolist()], pa.timestamp("s", tz="UTC")
        ),
        "noon": pa.array([None, *(time(hour, 30, 1) for hour in reversed(hours))]),
        "row_id": pa.array(range(n_rows)),
        "y": pa.array(np.array(CLASSES)[y]),
    }  # fmt: skip
    return pa.table(columns)


def json_rows(rows):
    """Rows of a table as a request holds them."""
    return [{name: _plain(value) for name, value in row.items()} for row in rows.to_pylist()]


def _plain(value):
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date | time) else value


@cache
def model(name="lr"):
    return fit_table(table(), "y", model=name)


@cache
def covering():
    """A model that decides without any cost."""
    return fit_table(table(), "y", model="lr", rule=Coverage(0.7))


@cache
def wrapped(name):
    """A small model of a kind that would take long to fit as it is by default."""
    schema = Schema.learn(table(), target="y")
    features, labels = schema.encode(table()), np.array(table()["y"].to_pylist())
    estimators = {
        "forest": RandomForestClassifier(12, n_jobs=-1, random_state=0),
        "extra trees": ExtraTreesClassifier(12, n_jobs=-1, random_state=0),
        "boosting": HistGradientBoostingClassifier(max_iter=5, categorical_features=schema.categorical),
        "blend": AutoClassifier(
            ("extra trees", "logistic regression"), cv=2, categorical_features=schema.categorical, random_state=0
        ),
    }
    classifier = RejectOption(estimators[name], cost=0.3, cv=2).fit(features, labels)
    return TableModel(schema, classifier, "text", {"model": name})


@cache
def app(name="lr", **limits):
    return create_app(model(name), **limits)


def good(n_rows=1, **more):
    return {"rows": json_rows(table().slice(0, n_rows)), **more}


class Client:
    """A client of an application, without a network.

    Headers are sent with each request.
    """

    def __init__(self, served, **headers):
        self.served, self.headers = served, headers

    def request(self, method, path, **options):
        async def sent():
            transport = httpx.ASGITransport(self.served)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as one:
                return await one.request(method, path, headers=self.headers | options.pop("headers", {}), **options)

        return asyncio.run(sent())

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, **options):
        return self.request("POST", path, **options)


def ask(served, document):
    return Client(served).post("/decide", json=document)
