"""Models that were not made by ``demur fit DATA``: wrapped, saved from Python, or made of probabilities."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from demur import Chow, RejectOption
from demur.deploy import save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, a pipeline that was fitted on it, and simpler models."""
    place = tmp_path_factory.mktemp("own")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=400), "pet": rng.choice(["cat", "dog"], 400), "name": "x"})
    frame["kind"] = np.where(frame["size"] + (frame["pet"] == "cat") + rng.normal(size=400) > 0.5, "wild", "tame")
    frame.to_csv(place / "rows.csv", index=False)
    frame.drop(columns="kind").to_csv(place / "new.csv", index=False)
    steps = make_column_transformer((OneHotEncoder(), ["pet"]), remainder="passthrough")
    pipeline = make_pipeline(steps, LogisticRegression()).fit(frame[["size", "pet"]], frame["kind"])
    save(pipeline, place / "pipeline")
    save(RejectOption(GaussianNB(), cv=2).fit(frame[["size"]], frame["kind"]), place / "option")
    save(GaussianNB().fit(frame[["size"]].to_numpy(), frame["kind"]), place / "matrix")
    save(Chow(0.2), place / "rule")
    return place


def test_a_pipeline_is_wrapped_and_used_by_every_command(demur, folder, tmp_path):
    out = tmp_path / "model"
    result = demur(
        "wrap", folder / "pipeline", folder / "rows.csv", "--target", "kind", "--calibrate", "--cost", 0.3, "--out", out
    )
    assert result.code == 0, result
    words = " ".join(result.text.split())
    assert "your own Pipeline (ColumnTransformer, LogisticRegression), 2 classes." in words
    assert "'name' is not used: the model was not fitted on it." in words
    assert "Calibrated on 400 rows." in words
    decided = demur("predict", out, folder / "new.csv", "--proba", "--keep", "pet")
    assert decided.code == 0, decided
    rows = list(csv.DictReader(decided.text.splitlines()))
    assert len(rows) == 400
    assert all(abs(float(row["proba:tame"]) + float(row["proba:wild"]) - 1) < 1e-9 for row in rows)
    assert all(
        (max(float(row["proba:tame"]), float(row["proba:wild"])) <= 0.7) == (row["rejected"] == "true") for row in rows
    )
    judged = demur("evaluate", out, folder / "rows.csv", "--report", tmp_path / "report.html", "--json")
    assert json.loads(judged.text)["n_rows"] == 400
    assert "your own Pipeline" in (tmp_path / "report.html").read_text()
    assert "column 'pet' is passed unchanged" in demur("export", out, "--out", tmp_path / "no.onnx").complaint


def test_a_model_that_was_saved_from_python_is_used_as_it_is(demur, folder):
    result = demur("predict", folder / "option", folder / "new.csv", "--allow-extra")
    assert result.code == 0, result
    assert "Its columns are read by their names, the labels from 'class'" in result.errors
    assert len(result.text.splitlines()) == 401


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "matrix", "new.csv"), "was not fitted on named columns"),
        (("predict", "rule", "new.csv"), "holds a Chow that was saved from Python: "),
        (
            ("predict", "pipeline", "new.csv", "--allow-extra"),
            "row 1, holds 'cat', which is not a number",
        ),
        (("wrap", "pipeline", "new.csv", "--out", "m", "--calibrate"), "there is no column 'class' to predict"),
        (("wrap", "pipeline", "new.csv", "--out", "m", "--coverage", "0.9"), "is fitted on labelled rows"),
        (("wrap", "rule", "new.csv", "--out", "m"), "this Chow is not a fitted classifier"),
        (("wrap", "matrix", "new.csv", "--out", "m"), "was fitted on a matrix of 1 columns, and the table has"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_sentence(demur, folder, tmp_path, arguments, words):
    named = [
        folder / one if (folder / one).exists() else tmp_path / one if one == "m" else one for one in arguments[1:]
    ]
    assert words in demur(arguments[0], *named).complaint


def test_labels_with_a_unit_stay_as_they_are_written(demur, tmp_path):
    rows = pd.DataFrame({"size": np.arange(40.0), "rate": ["10 %"] * 20 + ["20 %"] * 20})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    save(GaussianNB().fit(rows[["size"]], rows["rate"]), tmp_path / "own")
    result = demur(
        "wrap", tmp_path / "own", tmp_path / "rows.csv", "-t", "rate", "--calibrate", "--out", tmp_path / "m"
    )
    assert "Calibrated on 40 rows." in result.text


def test_a_model_that_knows_its_columns_needs_no_wrapping(demur, pets, tmp_path):
    complaint = demur("wrap", pets / "model", pets / "new.csv", "--out", tmp_path / "m").complaint
    assert "is a model of a table already" in complaint


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What an LLM says of tickets: the log-probabilities of the three best of four labels."""
    rng = np.random.default_rng(0)
    labels = np.array(["billing", "other", "refund", "technical"])
    y = rng.integers(4, size=600)
    scores = rng.normal(size=(600, 4))
    scores[np.arange(600), y] += 2
    logs = 3 * scores - np.log(np.exp(3 * scores).sum(axis=1, keepdims=True)) - 0.01
    frame = pd.DataFrame(logs, columns=labels)
    frame = frame.mask(frame.rank(axis=1) == 1).assign(ticket=[f"T{k}" for k in range(600)], y=labels[y])
    place = tmp_path_factory.mktemp("said")
    frame[:450].to_csv(place / "said.csv", index=False)
    frame[450:].to_csv(place / "new.csv", index=False)
    return place


def test_probabilities_are_enough(demur, said, tmp_path):
    out = tmp_path / "model"
    result = demur("fit", "--proba", said / "said.csv", "--target", "y", "--cost", 0.3, "--out", out)
    assert result.code == 0, result
    words = " ".join(result.text.split())
    assert "trained on 360 rows of 4 classes" in words
    assert "Trained calibration of given log-probabilities" in words
    assert "Verdict on 90 held-out rows" in words
    assert "read as log-probabilities (none is above 0" in result.errors
    decided = demur("predict", out, said / "new.csv", "--keep", "ticket", "--proba")
    assert decided.text.splitlines()[0].startswith("ticket,prediction,rejected,confidence")
    assert len(decided.text.splitlines()) == 151
    judged = json.loads(demur("evaluate", out, said / "new.csv", "--json").text)
    assert judged["figures"]["risk"]["estimate"] < judged["figures"]["risk_if_all_answered"]["estimate"]
    assert demur("export", out, "--out", tmp_path / "model.onnx", "--check", said / "new.csv").code == 0


def test_what_the_numbers_are_may_be_said(demur, said, tmp_path):
    options = ("--proba-kind", "log-probabilities", "--calibration", "none", "--coverage", 0.7, "--json")
    result = demur("fit", "--proba", said / "said.csv", "--target", "y", "--out", tmp_path / "model", *options)
    assert result.code == 0, result
    found = json.loads(result.text)
    assert (found["proba_kind"], found["rows_for_the_rule"]) == ("log-probabilities", 288)
    assert "read as" not in result.errors


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("said.csv", "--proba", "said.csv"), "cannot be given together"),
        ((), "no data was given"),
        (("said.csv", "--proba-kind", "votes"), "--proba-kind needs --proba"),
        (("--proba", "said.csv", "--model", "lr"), "--proba and --model cannot be given together"),
        (("--proba", "said.csv", "--calibration", "platt"), "calibration must be"),
        (("--proba", "said.csv", "--proba-kind", "odds"), "there is no kind 'odds' of numbers"),
        (("--proba", "said.csv", "--proba-kind", "logits"), "row 1 lacks a logit"),
        (("--proba", "said.csv", "--drop", "other"), "there is no column for 'other', which 'y' holds"),
        (("--proba", "nothing.csv"), "there is no file"),
    ],
)
def test_a_call_that_is_wrong(demur, said, tmp_path, options, words):
    named = [said / one if str(one).endswith(".csv") else one for one in options]
    assert words in demur("fit", *named, "--target", "y", "--out", tmp_path / "model").complaint
    assert not (tmp_path / "model").exists()
