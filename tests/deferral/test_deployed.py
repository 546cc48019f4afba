"""Models that ask experts, saved and loaded, served, and as ONNX graphs."""

import asyncio
import json

import numpy as np
import pyarrow as pa
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from demur import Capacity, DeferOption
from demur.deferral import Expert
from demur.deploy import load, save
from demur.deploy.answers import Answerer
from demur.deploy.model_folder import from_archive, to_archive
from demur.deploy.onnx import onnx_model
from demur.deploy.onnx.onnx_graph import ExportError
from demur.deploy.request_types import answer_type, question_type
from demur.errors import InputError
from demur.tabular import fit_table

EXPERTS = {"nurse": ("nurse says", 0.05), "consultant": ("cons", 0.2)}


def rows(n, seed=0, n_classes=3):
    """Classes along two features; the nurse knows where the third is large, the consultant nearly always."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n)
    X = rng.normal(size=(n, 3)) + 1.2 * np.column_stack([y == 0, y == 1, np.zeros(n)])
    other = (y + rng.integers(1, n_classes, n)) % n_classes
    nurse = np.where(rng.random(n) < expit(2 * X[:, 2]), y, other)
    consultant = np.where(rng.random(n) < 0.95, y, other)
    return X, y, np.column_stack([nurse, consultant])


def table(n, seed=0):
    X, y, answers = rows(n, seed)
    columns = {name: X[:, k] for k, name in enumerate(("a", "b", "c"))}
    said = {name: pa.array(answers[:, k], mask=np.arange(n) % 4 == k) for k, name in enumerate(("nurse says", "cons"))}
    return pa.table({**columns, **said, "y": y})


@pytest.fixture(scope="module")
def model():
    return fit_table(table(400), "y", model="lr", experts=EXPERTS, capacity={"consultant": 30})


@pytest.fixture(scope="module")
def deferring():
    X, y, answers = rows(400)
    return DeferOption(LogisticRegression(), {"nurse": 0.05, "consultant": 0.2}).fit(X, y, answers=answers)


def test_a_model_comes_back_as_it_was(model, tmp_path):
    save(model, tmp_path / "model")
    again, new = load(tmp_path / "model"), table(100, seed=1)
    assert again.answers(new).equals(model.answers(new))
    assert again.answers(new, prices={"nurse": 0.3}).equals(model.answers(new, prices={"nurse": 0.3}))
    assert again.experts == model.experts


@pytest.mark.parametrize("combine", [False, True])
def test_an_estimator_comes_back_as_it_was(combine):
    X, y, answers = rows(300)
    experts = {"nurse": 0.05, "oracle": Expert(0.3, accuracy=1.0)}
    given = {"nurse": answers[:, 0], "oracle": y}
    fitted = DeferOption(GaussianNB(), experts, combine=combine).fit(X, y, answers=given)
    again = from_archive(to_archive(fitted))
    np.testing.assert_array_equal(again.decide(X).costs, fitted.decide(X).costs)
    np.testing.assert_array_equal(again.predict(X, answers=given), fitted.predict(X, answers=given))
    dearer = again.set_params(experts={"nurse": 0.4, "oracle": 0.3})
    assert (dearer.decide(X).ask == 0).sum() < (fitted.decide(X).ask == 0).sum()


def test_a_fitted_capacity_comes_back_as_it_was(deferring):
    X = rows(200, seed=3)[0]
    capacity = Capacity({"nurse": 0.2}).fit(deferring.decide(X), deferring.experts_)
    again = from_archive(to_archive(capacity))
    assert again.scarcity_ == capacity.scarcity_
    np.testing.assert_array_equal(deferring.decide(X, capacity=again).ask, deferring.decide(X, capacity=capacity).ask)


def test_the_service_says_whom_to_ask(model):
    service = Answerer(model)
    new = table(8, seed=1)
    asked = [{name: one[name] for name in "abc"} for one in new.to_pylist()]
    answer = json.loads(asyncio.run(service.answer({"rows": asked})))
    expected = model.answers(new.select(["a", "b", "c"])).to_pylist()
    assert answer["decisions"] == expected
    assert answer["prices"] == {"nurse": 0.05, "consultant": 0.2}
    free = json.loads(asyncio.run(service.answer({"rows": asked, "prices": {"consultant": 0}})))
    assert {one["ask"] for one in free["decisions"]} <= {"consultant", "nurse", None}
    assert sum(one["ask"] == "consultant" for one in free["decisions"]) >= 4
    assert free["prices"] == {"nurse": 0.05, "consultant": 0.0}
    assert "ask" in TypeAdapter(answer_type(model)).json_schema()["$defs"]["Decision"]["properties"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prices": {"doctor": 1}}, "a price was given for 'doctor'"),
        ({"prices": {"nurse": -1}}, "give a number of at least 0"),
        ({"prices": {"nurse": "dear"}}, "Input should be a valid number"),
        ({"prices": 3}, "Input should be a valid dictionary"),
        ({"price": {"nurse": 1}}, "Extra inputs are not permitted"),
        ({"cost": 0.1}, "it asks experts, each with its own price"),
    ],
)
def test_the_service_refuses_invalid_requests(model, more, words):
    question, service = {"row": {"a": 1, "b": 1, "c": 1}, **more}, Answerer(model)
    checks = TypeAdapter(question_type(model, max_rows=10))
    with pytest.raises((ValidationError, InputError), match=words):
        asyncio.run(service.answer(checks.validate_python(question)))


def test_a_model_with_experts_has_no_graph(deferring):
    with pytest.raises(ExportError, match="Models that ask experts or services have no ONNX form"):
        onnx_model(deferring)
