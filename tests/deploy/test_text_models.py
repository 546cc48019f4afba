"""Models of tables with text: fitted, saved, loaded, evaluated and refused by ONNX export."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.naive_bayes import GaussianNB

from demur import RejectOption
from demur.columns import TableError
from demur.deploy import load, save
from demur.deploy.onnx import ExportError, export_onnx
from demur.errors import InputError
from demur.tabular import TableModel, evaluate_table, fit_file, fit_table, refit_table, write_report

_PATTERNS = {
    "open": ("please open the {} door, request {}", "could you open the {} window, request {}"),
    "play": ("play a {} song for me, request {}", "play the {} album today, request {}"),
    "pay": ("pay the {} bill now, request {}", "please pay my {} rent, request {}"),
    "none": ("will it rain in {} on day {} of the holidays", "how far is {} from here in {} hours"),
}


def _texts(n_each, seed):
    rng = np.random.default_rng(seed)
    words = ("rome", "blue", "old", "new", "lima", "small", "oslo", "last")
    found = [
        (rng.choice(patterns).format(rng.choice(words), k), label)
        for label, patterns in _PATTERNS.items()
        for k in range(n_each)
    ]
    texts, labels = zip(*(found[k] for k in rng.permutation(len(found))), strict=True)
    return pa.table({"text": texts, "size": rng.normal(size=len(texts)), "y": labels})


@pytest.fixture(scope="module")
def rows():
    return _texts(40, seed=0)


@pytest.fixture(scope="module")
def new():
    return _texts(10, seed=1)


@pytest.fixture(scope="module")
def model(rows):
    return fit_table(rows, "y", model="text", out_of_scope="none", time_budget=None)


def test_texts_of_no_class_are_declined_as_out_of_scope(model, new):
    answers, true = model.answers(new), np.array(new["y"].to_pylist())
    reasons, said = (np.array(answers[name].to_pylist(), dtype=object) for name in ("reason", "prediction"))
    assert model.classes.tolist() == ["open", "pay", "play"]
    assert np.mean(reasons[true == "none"] == "out of scope") > 0.8
    assert np.mean((said == true)[true != "none"]) > 0.8


def test_a_saved_model_decides_the_same(model, new, tmp_path):
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.answers(new).equals(model.answers(new))
    assert loaded.schema == model.schema


def test_missing_empty_and_long_texts_are_decided(model):
    odd = pa.table({"text": ["", None, "x" * 30_000, "please open the door"], "size": [0.0, None, 1e9, 0.0]})
    answers = model.answers(odd)
    assert np.isfinite(answers["confidence"].to_numpy()).all()
    assert answers["first_choice"].to_pylist()[-1] == "open"


def test_evaluation_counts_answers_out_of_scope_as_wrong(model, new, tmp_path):
    judged = evaluate_table(model, new)
    found = judged.scope
    assert found["n_out_of_scope"] == 10
    assert found["auroc"] > 0.9
    assert judged.n_unknown == 0
    answered = ~judged.decision.reject
    wrong = model.classes[judged.decision.label] != np.array(new["y"].to_pylist())
    assert judged.risk == pytest.approx(np.where(answered, wrong, 0.2).mean())
    assert any("10 rows are out of scope" in sentence for sentence in judged.sentences())
    assert judged.to_json()["out_of_scope"]["n_declined"] == found["n_declined"]
    write_report(judged, tmp_path / "report.html", title="texts")
    page = (tmp_path / "report.html").read_text()
    assert "will it rain in" in page or "how far is" in page
    assert "as novel or out of scope" in page


def test_rows_out_of_scope_alone_can_be_evaluated(model, new):
    outside = new.filter(pa.compute.equal(new["y"], "none"))
    judged = evaluate_table(model, outside)
    assert judged.scope["auroc"] is None
    assert judged.risk_if_all_answered == 1


def test_onnx_export_is_refused(model, tmp_path):
    with pytest.raises(ExportError, match="a model that reads text cannot be exported to ONNX"):
        export_onnx(model, tmp_path / "model.onnx")


def test_experts_and_out_of_scope_rows_exclude_each_other(rows):
    with pytest.raises(InputError, match="a model with experts has no out-of-scope rows"):
        fit_table(rows, "y", experts={"ann": ("size", 0.1)}, out_of_scope="none")


def test_vectors_of_a_parquet_file_are_numbers(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    vectors = rng.normal(size=(120, 3)) + 4 * y[:, None]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3)
    pq.write_table(pa.table({"v": column, "y": y}), tmp_path / "data.parquet")
    fitted = fit_file(tmp_path / "data.parquet", "y", model="lr")
    assert fitted.model.schema.names == ("v[0]", "v[1]", "v[2]")
    assert fitted.evaluate().accepted_accuracy > 0.95


@pytest.mark.parametrize("name", ["same", "other"])
def test_a_monitor_compares_the_confidence_of_texts_with_that_of_the_reference(model, name):
    from demur.deploy import Monitor, Reference

    reference = Reference.of_evaluation(evaluate_table(model, _texts(20, seed=2)), is_probability=True)
    new = _texts(60, seed=3)
    if name == "other":
        new = new.filter(pa.array([label == "none" for label in new["y"].to_pylist()]))
    alarms = Monitor(reference, delta=0.05).watch_table(model, new)
    assert bool(alarms) == (name == "other")


@pytest.mark.parametrize(("given", "written"), [("-1.0", "-1"), (-1, "-1"), ("True", "true"), ("none", "none")])
def test_the_label_of_out_of_scope_rows_may_be_written_as_in_the_file(rows, given, written):
    labels = [{"open": "1", "play": "2", "pay": "3", "none": written}[label] for label in rows["y"].to_pylist()]
    table = rows.set_column(2, "y", pa.array(labels))
    model = fit_table(table, "y", model="lr", drop=["text"], out_of_scope=given)
    assert model.classes.tolist() == ["1", "2", "3"]
    assert model.facts["out_of_scope"] == {"label": written, "rows": 40}


def test_a_table_of_out_of_scope_rows_alone_is_refused(rows):
    outside = rows.filter(pa.compute.equal(rows["y"], "none"))
    with pytest.raises(TableError, match="the target column 'y' holds no row in scope: give at least two classes"):
        fit_table(outside, "y", model="lr", out_of_scope="none")


def test_a_model_that_is_fitted_again_keeps_its_text_and_its_label(model, rows, new):
    short = rows.set_column(0, "text", pa.array([text.split()[-3] for text in rows["text"].to_pylist()]))
    first = fit_table(short, "y", model="text", text=["text"], out_of_scope="none", out_of_scope_share=0.3)
    seen = new.set_column(0, "text", pa.array([text.split()[-3] for text in new["text"].to_pylist()]))
    again = refit_table(first, short, seen, audit=1.0).model
    assert again.schema.text.tolist() == first.schema.text.tolist() == [True, False]
    assert again.classes.tolist() == ["open", "pay", "play"]
    assert (again.classifier.out_of_scope, again.classifier.out_of_scope_share) == ("none", 0.3)


def test_a_classifier_of_ones_own_keeps_its_label_of_out_of_scope_rows(rows):
    numbers = rows.drop(["text"]).to_pandas()
    own = RejectOption(GaussianNB(), out_of_scope="none").fit(numbers[["size"]], numbers["y"])
    judged = evaluate_table(TableModel.wrap(own, numbers, target="y"), numbers)
    assert judged.scope["n_out_of_scope"] == 40
    assert judged.n_unknown == 0
