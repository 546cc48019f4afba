"""A model of another model's answers: on the command line from fit to monitor, and served."""

import json

import numpy as np
import pandas as pd
import pytest
from service_samples import ask

from demur import load
from demur.deploy import create_app


def said(n_rows, seed, worse=0.0):
    rng = np.random.default_rng(seed)
    truth, sure = rng.choice(["bill", "card", "loan"], n_rows), rng.uniform(0.3, 1, n_rows).round(2)
    answer = np.where(rng.random(n_rows) < sure - worse, truth, rng.choice(["bill", "card", "loan"], n_rows))
    return pd.DataFrame({"answer": answer, "sure": sure, "truth": truth})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, demur):
    folder = tmp_path_factory.mktemp("answers")
    said(1500, 0).to_csv(folder / "past.csv", index=False)
    columns = ("--answer", "answer", "--confidence", "sure", "--target", "truth")
    done = demur("fit", "--answers", folder / "past.csv", *columns, "--out", folder / "model")
    assert done.code == 0, done.errors
    assert "calibration of given answers" in done.text
    return folder


def test_predict_needs_no_labels_and_the_service_decides_the_same(folder, demur):
    new = said(40, 1).drop(columns="truth")
    new.loc[3, "sure"] = np.nan
    new.to_csv(folder / "new.csv", index=False)
    done = demur("predict", folder / "model", folder / "new.csv", "--out", folder / "decisions.csv")
    assert done.code == 0, done.errors
    decided = pd.read_csv(folder / "decisions.csv")
    rows = json.loads(new.to_json(orient="records"))
    served = ask(create_app(load(folder / "model")), {"rows": rows}).json()["decisions"]
    assert [one["rejected"] for one in served] == decided["rejected"].tolist()
    assert np.allclose([one["confidence"] for one in served], decided["confidence"], atol=1e-6)
    new_row = {"row": {"answer": "Sorry, ...", "sure": 1.0}}
    strange = ask(create_app(load(folder / "model")), new_row).json()["decisions"][0]
    assert (strange["prediction"], strange["reason"]) == (None, "ambiguous; new category: answer")


def test_the_monitor_finds_that_answers_became_worse(folder, demur):
    said(1500, 2).to_csv(folder / "same.csv", index=False)
    shifted = said(1500, 3)
    shifted.assign(sure=0.3 + 0.3 * (shifted["sure"] - 0.3)).to_csv(folder / "shifted.csv", index=False)
    codes = [
        demur("monitor", folder / "model", folder / f"{name}.csv", "--state", folder / f"{name}.json").code
        for name in ("same", "shifted")
    ]
    assert codes == [0, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--answers", "past.csv"], "--answers needs --answer"),
        (["past.csv", "--answer", "answer"], "--answer needs --answers"),
        (["past.csv", "--confidence", "sure"], "--confidence needs --answers"),
        (["past.csv", "--answers", "past.csv", "--answer", "answer"], "--answers and DATA cannot be given together"),
        (["--answers", "past.csv", "--answer", "nobody"], "there is no column 'nobody'"),
    ],
)
def test_options_that_do_not_fit_together(folder, demur, options, message, monkeypatch):
    monkeypatch.chdir(folder)
    done = demur("fit", *options, "--target", "truth", "--out", "other")
    assert message in done.complaint
