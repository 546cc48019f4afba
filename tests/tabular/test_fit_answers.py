"""``fit_answers``: files with answers and confidences of another model, or repeated samples."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from demur import RiskControl, load, save
from demur.columns import TableError
from demur.tabular import decide_file, evaluate_table, fit_answers, read_table


def frame(n_rows=600, seed=0):
    rng = np.random.default_rng(seed)
    truth, sure = rng.integers(3, size=n_rows), rng.uniform(40, 100, n_rows).round()
    answer = np.where(rng.random(n_rows) < sure / 100, truth, (truth + 1) % 3)
    return pd.DataFrame(
        {"id": range(n_rows), "says": answer, "sure": sure, "site": rng.choice(["n", "s"], n_rows)}
    ).assign(truth=truth)


def as_csv(table):
    return io.BytesIO(table.to_csv(index=False).encode())


def test_a_model_of_answers_is_saved_and_decides_without_the_truth(tmp_path):
    rows = frame()
    rows.loc[:49, "sure"] = np.nan
    fitted = fit_answers(as_csv(rows), "truth", answer="says", confidence="sure", cost=0.1)
    assert fitted.notes == ("50 rows have no confidence: one probability is estimated for all of them together.",)
    assert fitted.model.schema.set_aside["id"] == "it holds no answer or confidence"
    assert fitted.evaluate().figures["risk"].estimate < 0.12
    save(fitted.model, tmp_path / "model")
    model, new = load(tmp_path / "model"), frame(50, 1).drop(columns=["truth", "id", "site"])
    new.to_csv(tmp_path / "new.csv", index=False)
    new.astype({"says": float}).to_parquet(tmp_path / "new.parquet")  # as pandas has whole numbers with gaps
    found = [model.answers(read_table(tmp_path / name)) for name in ("new.csv", "new.parquet")]
    assert found[0] == found[1] == fitted.model.answers(pa.Table.from_pandas(new))
    assert found[0]["prediction"].type == pa.int64()


def test_an_answer_that_is_new_is_declined_with_its_reason():
    model = fit_answers(as_csv(frame()), "truth", answer="says", confidence="sure").model
    table = pa.table({"says": ["0", "I cannot say", None], "sure": [99, 99, 99]})
    answers = model.answers(table)
    assert answers["prediction"].to_pylist() == [0, None, None]
    assert answers["reason"].to_pylist() == [None, "ambiguous; new category: says", "ambiguous"]
    judged = evaluate_table(model, table.append_column("truth", pa.array([0, 1, 7])))
    assert judged.n_rows == 3


def test_whole_numbers_that_are_written_with_a_point_are_no_new_answers(tmp_path):
    rows = frame().astype({"says": float})
    model = fit_answers(as_csv(rows), "truth", answer="says", confidence="sure").model
    rows.to_csv(tmp_path / "new.csv", index=False)
    decide_file(model, tmp_path / "new.csv", tmp_path / "out.parquet")
    reasons = read_table(tmp_path / "out.parquet")["reason"]
    assert set(reasons.to_pylist()) == {None, "ambiguous"}


def test_a_guarantee_and_one_in_each_group():
    one = fit_answers(as_csv(frame(3000)), "truth", answer="says", confidence="sure", rule=RiskControl(0.2))
    assert one.model.facts["rows_for_the_rule"] == 750
    assert "at most 0.2" in one.model.explain() or "20" in one.model.explain()
    each = fit_answers(
        as_csv(frame(3000)), "truth", answer="says", confidence="sure", rule=RiskControl(0.2), risk_group="site"
    )
    assert set(each.model.classifier.fitted_rule_.group_certificates_) == {"n", "s"}


def test_samples_by_a_pattern_and_notes():
    rng = np.random.default_rng(0)
    truth = rng.choice(["yes", "no", "maybe"], 500)
    rows = pd.DataFrame({f"sample_{k}": np.where(rng.random(500) < 0.7, truth, "No ") for k in range(5)})
    rows.iloc[0, 0] = "error"
    fitted = fit_answers(as_csv(rows.assign(truth=truth)), "truth", answer="sample_*")
    assert fitted.model.schema.names == tuple(f"sample_{k}" for k in range(5))
    assert fitted.notes == ("answers that are not one of the labels, such as 'error', are declined (1 answers).",)
    new = pa.table({f"sample_{k}": ["yes", "no"] for k in range(5)})
    assert fitted.model.answers(new)["prediction"].to_pylist()[0] == "yes"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"answer": "say"}, "there is no column 'say', did you mean 'says'?"),
        ({"answer": "sample_*"}, "there is no column 'sample_\\*'"),
        ({"answer": "truth"}, "column 'truth' is used twice"),
        ({"answer": "says", "confidence": "says"}, "column 'says' is used twice"),
        ({"answer": "says", "confidence": "site"}, "column 'site' holds '[ns]', which is not a number"),
        ({"answer": "site", "confidence": "sure"}, "no answer equals a true class such as '0'"),
    ],
)
def test_columns_that_cannot_be_used(options, message):
    with pytest.raises((TableError, ValueError), match=message):
        fit_answers(as_csv(frame(60)), "truth", **options)


@pytest.mark.parametrize(("name", "service"), [("ferplus", "google"), ("yelp", "amazon")])
def test_services_cost_less_than_always_answering(name, service, data_folder):
    rows = pd.read_csv(data_folder / "deferral" / f"frugal_{name}.csv.gz").sample(4000, random_state=0)
    columns = {"answer": f"{service}_pred", "confidence": f"{service}_conf"}
    fitted = fit_answers(as_csv(rows[:2000]), "label", **columns, holdout=0)
    test = rows[2000:]
    decision, proba = fitted.model.decide_and_score(pa.Table.from_pandas(test))
    top = fitted.model.classes[decision.label].astype(int)
    right = top == test["label"].to_numpy()
    always = (test[columns["answer"]] != test["label"]).mean()
    assert np.where(decision.reject, 0.2, ~right).mean() < 0.9 * min(always, 0.2)
    parts = np.array_split(np.argsort(proba.max(axis=1)), 8)
    assert np.mean([abs(proba[part].max(axis=1).mean() - right[part].mean()) for part in parts]) < 0.04


@pytest.mark.parametrize(("sign", "noted"), [(1, False), (-1, True), (0, True)])
def test_a_confidence_that_says_nothing_or_the_opposite_is_noted(sign, noted):
    rows = frame().assign(sure=lambda rows: sign * rows["sure"])
    notes = fit_answers(as_csv(rows), "truth", answer="says", confidence="sure", holdout=0).notes
    assert any("a higher 'sure' are not right more often in these rows" in note for note in notes) == noted
