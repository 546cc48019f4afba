"""Cascades from calls files: fit, decide one call at a time, evaluate, save and serve."""

import asyncio
import io

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from demur.cli.app import app
from demur.columns import TableError
from demur.deploy import create_app, load, save
from demur.errors import InputError
from demur.tabular import evaluate_calls, fit_calls

SERVICES = {"small": ("small", "small_sure", "small_price"), "large": ("large", "large_sure", 0.1)}
CLASSES = np.array(["billing", "login", "refund"])


def calls(n=450, seed=0):
    """A cheap service that reports when it guesses, and a good one at ten times the price."""
    rng = np.random.default_rng(seed)
    y, other = rng.integers(0, 3, n), rng.integers(1, 3, (2, n))
    sure = rng.random((2, n))
    wrong = rng.random((2, n)) > np.array([np.where(sure[0] > 0.4, 0.99, 0.4), np.full(n, 0.97)])
    small, large = CLASSES[(y + wrong * other) % 3]
    price = rng.choice([0.005, 0.015], n)
    columns = {"id": np.arange(n), "small": small, "small_sure": sure[0], "small_price": price}
    return pd.DataFrame({**columns, "large": large, "large_sure": sure[1], "truth": CLASSES[y]})


def fitted(table, services=SERVICES, **options):
    options = {"mistake": 1.0} | options
    return fit_calls(io.BytesIO(table.to_csv(index=False).encode()), "truth", services, **options)


@pytest.fixture(scope="module")
def model():
    return fitted(calls()).model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    calls().to_csv(folder / "calls.csv", index=False)
    calls(300, seed=1).to_csv(folder / "test.csv", index=False)
    return folder


def test_one_call_at_a_time_ends_where_the_stored_calls_do(model):
    table = calls(200, seed=1).drop(columns="truth")
    whole = model.answers(table).to_pandas()
    assert (whole.decision == "answer").all()
    made = table.astype({"small": object, "large": object})
    made[["small", "small_sure", "small_price", "large", "large_sure"]] = None
    for _ in range(3):
        found = model.answers(pa.Table.from_pandas(made)).to_pandas()
        for row, service in found.service[found.decision == "ask"].items():
            columns = [name for name in table if name.startswith(service)]
            made.loc[row, columns] = table.loc[row, columns]
    pd.testing.assert_frame_equal(found, whole)
    assert 0 < found.spent.mean() < 0.11
    asked = found.spent > 0.05
    assert asked.any()
    assert not asked.all()


def test_evaluation_is_next_to_the_services(model):
    test = calls(2000, seed=1)
    found = evaluate_calls(model, pa.Table.from_pandas(test))
    by_name = {one.name: one for one in found.payments}
    assert list(by_name) == ["cascade", "small", "large", "all services"]
    for name in ("small", "large"):
        assert by_name[name].error.estimate == pytest.approx((test[name] != test.truth).mean())
    assert by_name["small"].spent == pytest.approx(test.small_price.mean())
    first = by_name["cascade"]
    assert first.cost.estimate == pytest.approx(first.spent + first.error.estimate)
    assert first.cost.estimate < min(by_name["small"].cost.estimate, by_name["large"].cost.estimate)
    assert first.cost.low < first.cost.estimate < first.cost.high
    assert found.to_json()["payments"][0]["name"] == "cascade"


def test_a_human_is_asked_where_that_is_cheaper_than_the_mistakes():
    model = fitted(calls(), {"small": SERVICES["small"], "large": ("large", None, 0.1)}, mistake=50.0, human=0.5).model
    found = model.answers(calls(300, seed=1).drop(columns="truth"))
    assert "human" in found["service"].to_pylist()
    judged = {one.name: one for one in evaluate_calls(model, pa.Table.from_pandas(calls(300, seed=1))).payments}
    assert judged["human"].error.estimate == 0
    assert judged["cascade"].cost.estimate <= judged["human"].cost.estimate * 1.1
    cheap = fitted(calls(), mistake=1.0, human=0.0).model
    assert set(cheap.answers(calls(9)).column("service").to_pylist()) == {"human"}


def test_a_budget_is_kept():
    found = evaluate_calls(
        fitted(calls(), mistake=None, budget=0.05).model, pa.Table.from_pandas(calls(2000, seed=1))
    ).payments[0]
    assert found.spent < 0.055
    assert found.cost is None
    with pytest.raises(InputError, match=r"costs 0\.0\d+, more than the budget 0\.001"):
        fitted(calls(), mistake=None, budget=0.001)


def test_answers_that_are_not_classes_are_named_and_lead_to_a_question(model):
    table = calls(1)
    table["small"], table["large"], table["large_sure"] = "perhaps", None, None
    (found,) = model.answers(table).to_pylist()
    assert (found["decision"], found["service"], found["answer"]) == ("ask", "large", None)
    assert found["reason"] == "not one of the classes: small says 'perhaps'"
    strange = calls()
    strange.loc[::9, "small"] = "???"
    assert fitted(strange).notes == ("small gives 36 answers that are not among the classes, such as '???'.",)
    strange["small"] = strange["small"].str.upper()
    with pytest.raises(InputError, match="no answer of 'small' is one of the classes"):
        fitted(strange)


def test_missing_confidences_get_a_sentence(model):
    table = calls(20)
    table.loc[3, "small_sure"] = None
    with pytest.raises(TableError, match=r"row 4 has the answer '\w+' of 'small' but no confidence"):
        model.answers(table)
    table = calls()
    table.loc[300, "small_sure"] = None
    with pytest.raises(TableError, match="the stream: row 301 has the answer"):  # not that of the rows held in
        fitted(table)
    table.loc[:8, "truth"] = None
    with pytest.raises(TableError, match="counting rows with a label: row 292 has the answer"):
        fitted(table)


def test_rows_that_a_service_has_not_answered_are_left_out(model):
    table = calls()
    table.loc[:10, ["large", "large_sure"]] = None
    assert fitted(table, holdout=0.0).notes == ("11 rows are left out: not every service has answered.",)
    assert evaluate_calls(model, pa.Table.from_pandas(table)).n_left_out == 11
    table["large"] = None
    with pytest.raises(TableError, match=r"no row of .* has an answer of every service"):
        fitted(table)


@pytest.mark.parametrize(
    ("services", "message"),
    [
        ({"a": ("smal", None, 1.0), "b": ("large", None, 1.0)}, "there is no column 'smal' .* did you mean 'small'"),
        ({"a": ("small", None, 1.0), "b": ("small", None, 1.0)}, "'small' cannot be used for 'b'"),
        ({"a": ("truth", None, 1.0), "b": ("small", None, 1.0)}, "'truth' cannot be used for 'a': it is the target"),
        ({"a": ("small", "large", 1.0), "b": ("truth2", None, 1.0)}, "there is no column 'truth2'"),
        ({"a": ("small", None, -1.0), "b": ("large", None, 1.0)}, "at least 0, got -1"),
        ({"human": ("small", None, 1.0), "b": ("large", None, 1.0)}, "cannot be called 'human'"),
    ],
)
def test_hostile_services_are_refused_in_words(services, message):
    with pytest.raises(InputError, match=message):
        fitted(calls(60), services)


def test_numbers_are_classes_too():
    table = calls()
    codes = {name: float(k) for k, name in enumerate(CLASSES)}
    for name in ("small", "large", "truth"):
        table[name] = table[name].map(codes)
    found = fitted(table).model.answers(table.drop(columns="truth"))
    assert found.schema.field("answer").type == pa.int64()


def test_a_saved_cascade_decides_and_serves_likewise(model, tmp_path):
    save(model, tmp_path / "model")
    again, table = load(tmp_path / "model"), calls(40, seed=2)
    assert again.answers(table).equals(model.answers(table))

    async def ask(*questions):
        transport = httpx.ASGITransport(create_app(again))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [(await client.post("/decide", json=one)).json() for one in questions]

    row = {"small": "login", "small_sure": 0.1}
    first, second, lost, unknown = asyncio.run(
        ask({"row": {}}, {"row": row}, {"row": {"small": "login"}}, {"row": {"smal": "login"}})
    )
    assert first["decisions"][0]["service"] == "small"
    assert (second["decisions"][0]["decision"], second["decisions"][0]["service"]) == ("ask", "large")
    assert "row 1 has the answer 'login' of 'small' but no confidence" in lost["error"]
    assert "this name is unknown" in unknown["error"]


def test_commands(folder):
    def demur(*words):
        found = CliRunner().invoke(app, [str(word) for word in words])
        return found.output + str(found.exception or "")

    services = ("--service", "small=small:small_sure:small_price", "--service", "large=large:large_sure:0.1")
    fit = ("fit", "--calls", folder / "calls.csv", "--target", "truth", *services, "--out", folder / "model")
    found = demur(*fit, "--mistake", 1)
    assert "The cascade costs" in found
    found = demur("evaluate", folder / "model", folder / "test.csv")
    assert "all services" in found
    found = demur("predict", folder / "model", folder / "test.csv", "--out", folder / "next.csv", "--keep", "id")
    assert "Wrote 300 decisions" in found
    columns = ["id", "decision", "service", "answer", "confidence", "spent", "reason"]
    assert list(pd.read_csv(folder / "next.csv")) == columns
    for words in (("refit", folder / "test.csv", "--data", folder / "calls.csv", "--out", folder / "o"), ("monitor",)):
        rest = words[1:] or (folder / "test.csv", "--state", folder / "state.json")
        assert "holds a cascade of services" in demur(words[0], folder / "model", *rest)
    for more, message in (
        (("--force",), "give either mistake (--mistake)"),
        (("--force", "--mistake", 1, "--budget", 1), "give either mistake (--mistake)"),
        (("--force", "--mistake", 1, "--cost", 0.1), "--calls and --cost cannot be given together"),
    ):
        assert message in demur(*fit, *more)
    assert "--service must be NAME=ANSWER:CONFIDENCE:PRICE" in demur(
        *fit[:5], "--service", "small=small", *fit[-2:], "--force", "--mistake", 1
    )


@pytest.mark.parametrize("words", [("True", "False"), ("1.0", "2.0")])
def test_one_strange_answer_leaves_the_others_as_they_are(words):
    """A column of True and False is read as truth values, and with "maybe" in it as text."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    table = pd.DataFrame({"small": np.array(words)[y], "large": np.array(words)[y], "truth": np.array(words)[y]})
    found = fitted(table, {"a": ("small", None, 0.1), "b": ("large", None, 1.0)}).model
    table.loc[0, "small"] = "maybe"
    answers = found.answers(pa.Table.from_pandas(table.drop(columns="truth")))
    assert [reason is not None for reason in answers["reason"].to_pylist()] == [True] + 59 * [False]
    names = dict(
        zip(words, found.answers(pa.table({"small": words, "large": words}))["answer"].to_pylist(), strict=True)
    )
    assert answers["answer"].to_pylist()[1:] == table.truth[1:].map(names).tolist()
    assert len(set(names.values())) == 2


def test_truth_values_are_answers_in_requests():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80) > 0
    table = pd.DataFrame({"small": y, "large": y, "truth": y})
    model = fitted(table, {"a": ("small", None, 0.1), "b": ("large", None, 1.0)}).model

    async def ask(row):
        transport = httpx.ASGITransport(create_app(model))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return (await client.post("/decide", json={"row": row})).json()["decisions"][0]

    for given in (True, "true", "True"):
        assert asyncio.run(ask({"small": given}))["answer"] is True


def test_a_service_that_is_always_wrong_has_an_interval_below_certainty():
    """20 wrong of 20: the Clopper-Pearson interval of the error rate is 0.8316 to 1."""
    table = calls(20, seed=3)
    table["small"], table["small_price"] = (
        table.truth.map({"billing": "login", "login": "refund", "refund": "billing"}),
        0.01,
    )
    judged = evaluate_calls(fitted(calls()).model, pa.Table.from_pandas(table))
    small = {one.name: one for one in judged.payments}["small"]
    assert small.cost.low == pytest.approx(0.01 + 0.8316, abs=1e-4)
    assert small.cost.high == pytest.approx(1.01)
