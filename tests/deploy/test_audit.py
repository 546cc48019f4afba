"""The audit that the service draws: which rows, how many, and that they tell the risk of the answers."""

import asyncio
import csv
import json

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from pydantic import TypeAdapter

from demur.columns import TableError
from demur.deploy import Monitor, Reference, create_app, save
from demur.deploy.answers import Answerer
from demur.deploy.request_types import answer_type
from demur.errors import InputError
from demur.tabular import draw_audit, evaluate_table, fit_table, read_table, reviewed_rows


def draw_rows(n_rows, seed, name="size"):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n_rows)
    size = rng.normal(2.0 * y).round(4)
    return pa.table({name: size, "y": np.array(["no", "yes"])[y]})


@pytest.fixture(scope="module")
def model():
    return fit_table(draw_rows(300, 0), "y", model="lr", cost=0.25)


@pytest.fixture(scope="module")
def rows():
    return draw_rows(64, 1).select(["size"])


def ask(served, *documents):
    """Send questions one after another; return the answers, and then the metrics by name."""

    async def all_of_them():
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = [(await client.post("/decide", json=one)).json() for one in documents]
            lines = (await client.get("/metrics")).text.splitlines()
            return answers, dict(line.split() for line in lines if line.startswith("demur_rows"))

    return asyncio.run(all_of_them())


def rounded(decisions):
    return [one | {"confidence": round(one["confidence"], 6)} for one in decisions]


# The draw


def test_each_answered_row_is_drawn_with_the_same_probability_and_no_declined_one():
    rng, n_draws, share = np.random.default_rng(0), 2000, 0.05
    reject = np.arange(300) % 3 == 0
    drawn = np.array([draw_audit(reject, share, rng) for _ in range(n_draws)])
    assert not drawn[:, reject].any()
    answered = drawn[:, ~reject]
    error = np.sqrt(share * (1 - share) / answered.size)
    assert abs(answered.mean() - share) < 3 * error
    by_row = np.abs(answered.mean(axis=0) - share) / (error * np.sqrt(answered.shape[1]))
    assert by_row.max() < 4.5  # the largest of 200 deviations, in standard errors
    together = (answered[:, :-1] & answered[:, 1:]).mean()  # neighbours are drawn independently of each other
    assert abs(together - share**2) < 4 * share / np.sqrt(answered.size)


def test_the_ends_of_the_share():
    rng, reject = np.random.default_rng(0), np.array([False, True] * 500)
    assert not draw_audit(reject, 0.0, rng).any()
    assert (draw_audit(reject, 1.0, rng) == ~reject).all()
    assert draw_audit([], 0.5, rng).shape == (0,)


def test_audited_rows_estimate_the_risk_of_the_answers_without_bias():
    """Over 200 small draws; with the declined rows among them, or with rows that somebody picked, it would not."""
    rng, n_draws = np.random.default_rng(0), 200
    reject = rng.uniform(size=400) < 0.3
    wrong = rng.uniform(size=400) < np.where(reject, 0.5, 0.12)
    picked = np.where(wrong, 0.6, 0.1) > rng.uniform(size=400)  # reviewers who look where they see a mistake
    risk, found, biased = wrong[~reject].mean(), [], []
    known = Reference.of([False] * 9, [0.9] * 9, [0] * 9, [False] * 9, classes=["a", "b"])
    for _ in range(n_draws):
        seen = draw_audit(reject, 0.15, rng) | reject
        monitor = Monitor(known, max_risk=0.5)
        monitor.review(reject[seen], wrong[seen])
        assert monitor.n_reviewed == reject.sum()
        found.append(monitor.n_wrong / monitor.n_audited)
        biased.append([wrong[seen].mean(), wrong[(seen | picked) & ~reject].mean()])
    error = np.std(found) / np.sqrt(n_draws)
    assert error < 0.01
    assert abs(np.mean(found) - risk) < 3 * error
    assert (np.mean(biased, axis=0) > risk + 3 * error).all()


# The service


def test_without_audits_no_decision_has_the_field(model, rows):
    served = create_app(model)
    (answer,), counts = ask(served, {"rows": rows.to_pylist()})
    assert rounded(answer["decisions"]) == rounded(model.answers(rows).to_pylist())
    assert counts["demur_rows_audited_total"] == "0.0"
    assert "why" not in TypeAdapter(answer_type(model)).json_schema()["$defs"]["Decision"]["properties"]


def test_with_audits_each_decision_says_why_and_is_otherwise_the_same(model, rows):
    served = create_app(model, audit=0.3)
    questions = [{"rows": rows.to_pylist()}, {"row": rows.to_pylist()[0]}] * 20
    answers, counts = ask(served, *questions)
    assert answers[0].keys() == {"decisions", "cost", "model"}
    decisions = [one for answer in answers for one in answer["decisions"]]
    why = [one.pop("why") for one in decisions]
    expected = model.answers(rows).to_pylist()
    assert rounded(decisions) == rounded((expected + expected[:1]) * 20)
    rejected = [one["rejected"] for one in decisions]
    assert 0 < sum(rejected) < len(rejected)
    assert [one == "declined" for one in why] == rejected
    assert set(why) == {"declined", "audit", None}
    assert float(counts["demur_rows_audited_total"]) == why.count("audit")
    described = TypeAdapter(answer_type(model, audits=True)).json_schema()["$defs"]["Decision"]
    assert described["properties"]["why"]["enum"] == ["declined", "audit", None]
    assert "why" in described["required"]


@pytest.mark.parametrize("n_rows", [1, 300])
def test_the_share_that_is_drawn(model, n_rows):
    share, table = 0.2, draw_rows(n_rows, 2).select(["size"])
    question = {"rows": table.to_pylist(), "cost": 0.45}

    def reasons():
        service = Answerer(model, share, np.random.default_rng(0))

        async def ask_often():
            return [await service.answer(question) for _ in range(max(500 // n_rows, 20))]

        answers = asyncio.run(ask_often())
        return [one["why"] for answer in answers for one in json.loads(answer)["decisions"]]

    found = reasons()
    n_answered = len(found) - found.count("declined")
    assert n_answered > 0.8 * len(found)
    assert abs(found.count("audit") / n_answered - share) < 3 * np.sqrt(share * (1 - share) / n_answered)
    assert found == reasons()  # the same generator, the same rows


def test_probabilities_and_an_audit_in_one_answer(model, rows):
    (answer,), _ = ask(create_app(model, audit=1.0), {"rows": rows.to_pylist(), "proba": True})
    for one in answer["decisions"]:
        assert one["why"] == ("declined" if one["rejected"] else "audit")
        assert sum(one["proba"].values()) == pytest.approx(1)


@pytest.mark.parametrize("share", [2.0, -1.0, float("nan")])
def test_what_is_no_share_is_refused(model, demur, share):
    with pytest.raises(InputError, match="audit must be a share from 0 to 1, got"):
        create_app(model, audit=share)
    with pytest.raises(InputError, match="audit must be a share from 0 to 1, got"):
        draw_audit([False], share, np.random.default_rng())
    complaint = demur("serve", "no-such-model", "--audit", share).complaint
    assert complaint.startswith(f"--audit must be a number of at least 0 and at most 1, got {share:g}: ")
    assert "\n" not in complaint


# What was reviewed


def test_the_service_s_answers_once_reviewed_go_to_the_monitor_as_they_are(model, demur, tmp_path):
    """Labels of rows that were answered and not drawn do not count, nor do rows without one."""
    stream = draw_rows(600, 3)
    given, labels = stream.select(["size"]).to_pylist(), stream["y"].to_pylist()
    (answer,), _ = ask(create_app(model, audit=0.2), {"rows": given, "cost": 0.1})
    kept = [row | one | {"y": label} for row, one, label in zip(given, answer["decisions"], labels, strict=True)]
    for one in kept[::7]:
        one["y"] = None  # not reviewed yet
    with (tmp_path / "reviewed.csv").open("w") as file:
        writer = csv.DictWriter(file, kept[0])
        writer.writeheader()
        writer.writerows(kept)
    audited = [one for one in kept if one["why"] == "audit" and one["y"]]
    declined = [one for one in kept if one["why"] == "declined" and one["y"]]
    assert 0 < len(audited) < len(kept) / 5 < len(declined)
    known = Reference.of_evaluation(evaluate_table(model, draw_rows(200, 4)), is_probability=True)
    monitor = Monitor(known, max_risk=0.3)
    monitor.review_table(model, read_table(tmp_path / "reviewed.csv"))
    assert (monitor.n_audited, monitor.n_reviewed) == (len(audited), len(declined))  # by the request's cost of 0.1
    assert monitor.n_wrong == sum(one["prediction"] != one["y"] for one in audited)
    assert monitor.n_missed == sum(one["first_choice"] != one["y"] for one in declined)


def test_a_why_column_with_other_values_is_refused(model):
    table = draw_rows(3, 0)
    late = table.append_column("why", pa.array(["late", None, "audit"]))
    with pytest.raises(TableError, match="'why' of today holds 'late': write declined or audit"):
        reviewed_rows(late, model, where="today")
    with pytest.raises(TableError, match="is empty in all rows"):
        reviewed_rows(table.append_column("why", pa.nulls(3)), model)
    rows, declined = reviewed_rows(table.append_column("why", pa.array(["", "audit", "declined"])), model)
    assert (rows.num_rows, declined.tolist()) == (2, [False, True])
    assert reviewed_rows(table, model) == (table, None)


def test_a_feature_called_why_is_one(demur, tmp_path):
    own = fit_table(draw_rows(300, 0, "why"), "y", model="lr", cost=0.25)
    table = draw_rows(50, 1, "why")
    assert reviewed_rows(table, own) == (table, None)
    (answer,), _ = ask(create_app(own, audit=1.0), {"row": {"why": 9.0}})
    assert answer["decisions"][0]["why"] in ("audit", "declined")
    save(own, tmp_path / "model")
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    call = ("monitor", tmp_path / "model", tmp_path / "rows.csv", "--reference", tmp_path / "rows.csv", "--audit", 1)
    assert demur(*call, "--state", tmp_path / "state.json", "--to-review", tmp_path / "desk.csv").code == 0
    desk = pyarrow.csv.read_csv(tmp_path / "desk.csv")
    assert desk["why"].to_pylist() == table["why"].to_pylist()
