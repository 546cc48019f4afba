"""``demur fit``: what it says, what it refuses, what it leaves behind."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.deploy import load


def separable(labels, n_each=30, **more):
    """Return a table in which one number tells the classes apart, but for a few rows."""
    rng = np.random.default_rng(0)
    positions = np.repeat(np.arange(len(labels)), n_each)
    order = rng.permutation(len(positions))
    size = positions[order] * 3 + rng.normal(size=len(order))
    return pa.table({"size": size, **more, "y": labels.take(pa.array(positions[order]))})


def save_table(table, folder, name="data.parquet"):
    pq.write_table(table, folder / name)
    return folder / name


@pytest.fixture
def data(tmp_path):
    return save_table(separable(pa.array(["cat", "dog", "owl"])), tmp_path)


@pytest.fixture
def fit(demur, tmp_path):
    def call(data, *options, model="lr"):
        return demur("fit", data, "--target", "y", "--model", model, "--out", tmp_path / "model", *options)

    return call


def test_the_summary_names_rows_classes_columns_and_results(fit, tmp_path):
    more = {"customer_id": [f"C{k}" for k in range(90)], "country": ["NL"] * 90}
    table = separable(pa.array(["cat", "dog", "owl"]), **more)
    labels = pa.array([None, None, *table["y"].to_pylist()[2:]])
    result = fit(save_table(table.set_column(3, "y", labels), tmp_path))
    assert result.code == 0, result
    words = " ".join(result.text.split())
    assert "trained on 88 rows of 3 classes" in words
    assert "These are the figures of the model fitted on 70 rows, before the refit on all 88." in words
    assert "; 2 more without a label, left out." in words
    assert "'customer_id' is not used: it looks like an identifier" in words
    assert "'country' is not used: every value is 'NL'" in words
    assert "Trained logistic regression" in words
    assert "Verdict on 18 held-out rows" in words
    assert all(word in words for word in ("Risk", "Coverage", "Accepted accuracy", "At cost 0.2, the model answers"))
    assert f"demur predict {tmp_path / 'model'}" in words
    counts = load(tmp_path / "model").facts["classes"]
    assert sum(counts.values()) == 88
    assert all(f"{name} ({count})" in words for name, count in counts.items())


def test_the_model_is_fitted_on_all_rows_unless_a_rule_is_fitted(fit, data, tmp_path):
    first = json.loads(fit(data, "--no-refit", "--json").text)
    again = json.loads(fit(data, "--json", "--force", "--report", tmp_path / "report.html").text)
    assert (first["rows"], again["rows"]) == (72, 90)
    assert "evaluated_before_refit" not in first
    assert first["evaluation"]["figures"] == again["evaluation"]["figures"]
    assert "before the refit on all 90" in (tmp_path / "report.html").read_text()
    promised = json.loads(fit(data, "--json", "--force", "--coverage", "0.8").text)
    assert promised["rows"] + promised["rows_for_the_rule"] == 72


def test_json_is_for_programs(fit, data):
    found = json.loads(fit(data, "--json").text)
    assert found["rows"] == 90
    assert found["evaluated_before_refit"] == {"rows": 72}
    assert found["classes"] == {"cat": 30, "dog": 30, "owl": 30}
    assert found["evaluation"]["n_rows"] == 18
    assert 0 <= found["held_out"]["coverage"]["estimate"] <= 1


def test_a_model_is_never_replaced_by_accident(fit, data, tmp_path):
    assert fit(data).code == 0
    written = (tmp_path / "model" / "model.json").read_bytes()
    assert "exists already" in fit(data, "--cost", "0.1").complaint
    assert (tmp_path / "model" / "model.json").read_bytes() == written
    assert fit(data, "--cost", "0.1", "--force").code == 0
    assert load(tmp_path / "model").cost == 0.1
    (tmp_path / "model" / "notes.txt").write_text("mine")
    assert "notes.txt" in fit(data, "--force").complaint
    assert (tmp_path / "model" / "notes.txt").read_text() == "mine"


LABELS = {
    "integer": pa.array([3, -1, 7]),
    "small integer": pa.array([0, 1], pa.int8()),
    "boolean": pa.array([True, False]),
    "whole number": pa.array([1.0, 2.0]),
    "fraction": pa.array([0.5, 1.0, 0.1]),
    "text": pa.array(["cat", "dog"]),
    "dictionary": pa.array(["cat", "dog", "owl"]).dictionary_encode(),
    "called reject": pa.array(["reject", "reject!", "accept"]),
    "like missing": pa.array(["NA", "nan", "null"]),
    "empty text": pa.array(["", " ", "x"]),
    "date": pa.array([datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)]),
    "large integer": pa.array([2**62, 2**62 + 1]),
    "beyond integers": pa.array([2**63, 2**63 + 1], pa.uint64()),
    "odd text": pa.array(["a\nb", "[bold]c", ":dog:"]),
}


QUICK = ("integer", "boolean", "fraction", "text", "called reject", "date", "large integer")


@pytest.mark.parametrize("name", [pytest.param(one, marks=() if one in QUICK else pytest.mark.slow) for one in LABELS])
def test_predictions_come_back_in_the_labels_type(demur, fit, name, tmp_path):
    labels = LABELS[name]
    data = save_table(separable(labels, 20), tmp_path)
    assert fit(data).code == 0
    assert demur("predict", tmp_path / "model", data, "--out", tmp_path / "out.parquet").code == 0
    answers = pq.read_table(tmp_path / "out.parquet")
    kinds = {"integer": pa.int64(), "small integer": pa.int64(), "boolean": pa.bool_(), "whole number": pa.int64()}
    kinds |= {"fraction": pa.float64(), "large integer": pa.int64()}
    wanted = kinds.get(name, pa.string())
    assert answers["prediction"].type == answers["second_choice"].type == wanted
    assert set(answers["first_choice"].to_pylist()) == set(labels.cast(wanted).to_pylist())
    agree = np.array(answers["first_choice"].to_pylist()) == np.array(pq.read_table(data)["y"].cast(wanted).to_pylist())
    assert agree.mean() > 0.8
    assert demur("evaluate", tmp_path / "model", data).code == 0


def test_text_that_looks_missing_is_a_class_in_csv_too(demur, fit, tmp_path):
    rows = [f"{k % 2 * 5 + k * 0.01},{('NA', 'other')[k % 2]}" for k in range(60)]
    (tmp_path / "data.csv").write_text("\n".join(["size,y", *rows, "3.0,"]) + "\n")
    assert fit(tmp_path / "data.csv").code == 0
    model = load(tmp_path / "model")
    assert model.classes.tolist() == ["NA", "other"]
    assert model.facts["rows_without_label"] == 1
    assert json.loads(demur("evaluate", tmp_path / "model", tmp_path / "data.csv", "--json").text)["n_rows"] == 60


def test_a_rare_class_is_learnt_and_not_held_out(fit, tmp_path):
    table = separable(pa.array(["cat", "dog"]), 20)
    rare = pa.concat_tables([table, pa.table({"size": [99.0], "y": ["axolotl"]})])
    assert fit(save_table(rare, tmp_path), "--no-refit").code == 0
    assert load(tmp_path / "model").facts["classes"] == {"axolotl": 1, "cat": 16, "dog": 16}


@pytest.mark.parametrize(("n_classes", "n_each"), [(2, 5), (30, 8), (3, 2)])
def test_small_tables_and_many_classes(fit, n_classes, n_each, tmp_path):
    labels = pa.array([f"class {k:02d}" for k in range(n_classes)])
    assert fit(save_table(separable(labels, n_each), tmp_path)).code == 0
    assert len(load(tmp_path / "model").classes) == n_classes


def test_two_rows_are_too_few(fit, tmp_path):
    complaint = fit(save_table(separable(pa.array(["cat", "dog"]), 1), tmp_path)).complaint
    assert "2 different values in 2 rows" in complaint


def test_an_out_of_scope_label_that_no_row_has_is_noted(fit, data):
    result = fit(data, "--out-of-scope", "dogs")
    assert "no row has the out-of-scope label 'dogs', did you mean 'dog'?" in " ".join(result.errors.split())


def test_without_held_out_rows_there_is_no_evaluation(fit, data, tmp_path):
    result = fit(data, "--holdout", "0")
    assert result.code == 0
    assert "trained on 90 rows" in result.text
    assert "was not evaluated" in result.text
    assert "--report needs rows" in fit(data, "--force", "--holdout", "0", "--report", tmp_path / "r.html").complaint


def test_a_separate_table_evaluates_it(fit, tmp_path):
    """Labels 01 and 02 alone look like numbers; beside A3 in the training rows they were text."""
    table = separable(pa.array(["01", "02", "A3"]))
    lines = [f"{size},{y}" for size, y in zip(table["size"].to_pylist(), table["y"].to_pylist(), strict=True)]
    (tmp_path / "train.csv").write_text("\n".join(["size,y", *lines]) + "\n")
    (tmp_path / "test.csv").write_text("y,size\n01,-0.5\n02,3.1\n01,0.1\n,5\n")
    found = json.loads(fit(tmp_path / "train.csv", "--test", tmp_path / "test.csv", "--json").text)
    assert found["rows"] == 90
    assert found["evaluation"]["n_rows"] == 3
    assert found["evaluation"]["n_unknown_labels"] == 0
    (tmp_path / "wrong.csv").write_text("size\n1\n")
    assert (
        "there is no column 'y' with the labels (or give --labels): wrong.csv has 'size'"
        in fit(tmp_path / "train.csv", "--force", "--test", tmp_path / "wrong.csv").complaint
    )


def test_standard_input(fit, demur, data, tmp_path):
    options = ("--target", "y", "--model", "lr", "--out")
    assert demur("fit", "-", *options, tmp_path / "piped", stdin=data.read_bytes()).code == 0
    assert fit(data).code == 0
    table = pq.read_table(data)
    assert load(tmp_path / "piped").answers(table).equals(load(tmp_path / "model").answers(table))


def test_columns_can_be_dropped_and_kept(fit, tmp_path):
    table = separable(pa.array(["cat", "dog"]), n_each=30, noise=[k % 3 for k in range(60)], row=list(range(60)))
    data = save_table(table, tmp_path)
    assert fit(data, "--drop", "noise", "--keep", "row").code == 0
    assert load(tmp_path / "model").schema.names == ("size", "row")
    assert "no column 'nosie'" in fit(data, "--force", "--drop", "nosie").complaint


def test_numbers_beyond_what_models_compare_are_missing(fit, tmp_path):
    table = separable(pa.array(["cat", "dog"]), n_each=30, far=[1e200, 2.0] * 30)
    assert "'far': infinite values, and those beyond 1e30, are read as missing" in fit(save_table(table, tmp_path)).text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--cost", "1.5"), "1.5"),
        (("--cost", "-0.1"), "-0.1"),
        (("--holdout", "1"), "--holdout must be a number"),
        (("--coverage", "0.9", "--max-risk", "0.1"), "--coverage and --max-risk are alternatives"),
        (("--coverage", "2"), "2"),
        (("--target", "Y"), "no column 'Y'"),
        (("--model", "hbg"), "did you mean 'hgb'?"),
        (("--model", "ova+hin", "--coverage", "0.9"), "ova+hin gives no probabilities"),
        (("--cost-matrix", "costs.csv", "--cost", "0.2"), "cannot be given together"),
        (("--cost-matrix", "missing.csv"), "there is no file 'missing.csv'"),
    ],
)
def test_wrong_calls_are_one_sentence(fit, data, options, words, tmp_path):
    assert words in fit(data, *options).complaint
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_read(demur, data):
    result = demur("fit", data, "--target", "no such column", "--out", data / "model")
    assert "data.parquet is not a folder that can be written to" in result.complaint


def test_a_guarantee_that_cannot_be_given_is_refused(fit, data, tmp_path):
    complaint = fit(data, "--max-risk", "0.001").complaint
    assert "0.001" in complaint
    assert "rows" in complaint
    assert not (tmp_path / "model").exists()


def test_a_guarantee_is_printed(fit, tmp_path):
    result = fit(save_table(separable(pa.array(["cat", "dog"]), 400), tmp_path), "--max-risk", "0.2", "--delta", "0.1")
    assert result.code == 0, result
    assert "at most 0.2 of the answers given are wrong" in " ".join(result.text.split())


def test_a_coverage_instead_of_a_cost(fit, tmp_path):
    data = save_table(separable(pa.array(["cat", "dog"]), 400), tmp_path)
    found = json.loads(fit(data, "--coverage", "0.5", "--json").text)
    assert 0.4 < found["evaluation"]["figures"]["coverage"]["estimate"] < 0.65
    assert "Answers where the confidence exceeds" in fit(data, "--coverage", "0.5", "--force").text


def test_a_cost_matrix_decides_and_is_accounted_for(demur, fit, tmp_path):
    """Calling a dog a cat costs 4, the other way round 1, declining 0.5: order in the file does not matter."""
    data = save_table(separable(pa.array(["cat", "dog"]), 150), tmp_path)
    (tmp_path / "costs.csv").write_text("true,reject,dog,cat\ndog,0.5,0,4\ncat,0.5,1,0\n")
    assert fit(data, "--cost-matrix", tmp_path / "costs.csv").code == 0
    model, table = load(tmp_path / "model"), pq.read_table(data)
    proba = model.predict_proba(table)
    expected = proba @ np.array([[0, 1, 0.5], [4, 0, 0.5]])
    answers = model.answers(table)
    np.testing.assert_array_equal(answers["rejected"].to_numpy(), expected[:, 2] <= expected[:, :2].min(axis=1))
    first = np.where(expected[:, 0] <= expected[:, 1], "cat", "dog")
    np.testing.assert_array_equal(answers["first_choice"].to_pylist(), first)
    np.testing.assert_array_equal(answers["confidence"].to_numpy(), np.where(first == "cat", proba[:, 0], proba[:, 1]))
    price = {("cat", "cat"): 0, ("cat", "dog"): 1, ("dog", "cat"): 4, ("dog", "dog"): 0}
    pairs = zip(table["y"].to_pylist(), answers["prediction"].to_pylist(), strict=True)
    by_hand = np.mean([0.5 if said is None else price[true, said] for true, said in pairs])
    found = json.loads(demur("evaluate", tmp_path / "model", data, "--json").text)
    assert found["figures"]["mean_cost"]["estimate"] == pytest.approx(by_hand)
    assert found["verdict"][1]["difference"]["estimate"] == pytest.approx(by_hand - 0.5)
    assert f"100 rows cost {100 * by_hand:.4g}" in " ".join(demur("evaluate", tmp_path / "model", data).text.split())
    assert "cannot decide for another cost" in demur("predict", tmp_path / "model", data, "--cost", "0.1").complaint


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        ("true,cat,reject\ncat,0,0.1\ndog,1,0.1\n", "not a cost matrix of the classes 'cat', 'dog'"),
        ("true,cat,dog,reject\ncat,0,1,0.1\n", "not a cost matrix of the classes 'cat', 'dog'"),
        ("true,cat,dog,reject\ncat,0,1,0.1\ndog,1,0,\n", "a cell that is not a number"),
        ("true,cat,dog,reject\ncat,0,1,0.1\ndog,x,0,1\n", "a cell that is not a number"),
        ("true,cat,dog,reject\ncat,0,1,0.1\ncat,0,1,0.1\ndog,1,0,0.1\n", "one row for each class"),
        ("true,cat,dog,reject\ncat,0,1,0.1\ndog,1,0,inf\n", "must be finite"),
    ],
)
def test_wrong_cost_matrices_are_refused(fit, matrix, words, tmp_path):
    data = save_table(separable(pa.array(["cat", "dog"])), tmp_path)
    (tmp_path / "costs.csv").write_text(matrix)
    assert words in fit(data, "--cost-matrix", tmp_path / "costs.csv").complaint


@pytest.mark.parametrize("moment", ["demur.tabular.fitting._fit_rows", "os.fsync"])
def test_an_interrupt_leaves_nothing_behind(fit, data, moment, monkeypatch, tmp_path):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(moment, interrupt)
    result = fit(data)
    assert result.code not in (0, 2)
    assert "Traceback" not in result.errors
    assert [path.name for path in tmp_path.iterdir()] == ["data.parquet"]


def write_csv(path, header, rows):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def test_a_folder_that_is_not_there_is_created(demur, pets, tmp_path):
    out = tmp_path / "models" / "today" / "pets"
    report = tmp_path / "reports" / "pets.html"
    call = ("fit", pets / "train.csv", "--target", "y", "--model", "lr", "--out", out, "--report", report)
    assert demur(*call).code == 0
    assert out.is_dir()
    assert report.is_file()
    answers = tmp_path / "answers" / "new.csv"
    assert demur("predict", out, pets / "new.csv", "--out", answers).code == 0
    assert answers.is_file()


@pytest.mark.parametrize("values", ["fractions", "integers"])
def test_a_quantity_as_target_is_refused_with_advice(fit, values, tmp_path):
    x = np.random.default_rng(0).normal(size=500)
    y = np.round(1000 * x) if values == "integers" else np.round(x, 3)
    data = write_csv(tmp_path / "data.csv", "a,y", zip(x, y.astype(int) if values == "integers" else y, strict=True))
    complaint = fit(data).complaint
    assert "too many for classes" in complaint
    assert "convert a quantity to classes" in complaint


def test_a_loss_does_not_read_text(fit, tmp_path):
    rows = [(k % 7, f"this is the sentence number {k}", "ab"[k % 2]) for k in range(400)]
    data = write_csv(tmp_path / "data.csv", "a,text,y", rows)
    complaint = fit(data, "--model", "ce").complaint
    assert "ce does not read text, which column 'text' holds: use auto, text, lr or nn" in complaint


def test_rows_that_a_time_split_by_groups_drops_are_counted(fit, tmp_path):
    of_row = [f"p{k % 40}" if k < 320 else f"p{35 + k % 40}" for k in range(400)]
    rows = [(k, patient, k % 7 + k / 1000, "ab"[k % 7 // 4]) for k, patient in enumerate(of_row)]
    data = write_csv(tmp_path / "data.csv", "day,patient,a,y", rows)
    result = fit(data, "--model", "lr", "--time-split", "day", "--group-split", "patient", "--keep", "a", "--no-refit")
    assert result.code == 0, result
    held_out = {patient for day, patient, *_ in rows if day >= 320}
    dropped = sum(day < 320 and patient in held_out for day, patient, *_ in rows)
    assert 0 < dropped < 100
    assert f"trained on {320 - dropped} rows" in result.text


def test_every_column_that_is_set_aside_is_named(fit, tmp_path):
    names = [f"same_{k}" for k in range(12)]
    rows = [(k % 5, k % 7, *(["x"] * 12), "ab"[k % 5 // 3]) for k in range(100)]
    data = write_csv(tmp_path / "data.csv", ",".join(["a", "b", *names, "y"]), rows)
    result = fit(data, "--model", "lr")
    assert result.code == 0, result
    assert all(repr(name) in result.text for name in names)


def test_logits_stay_logits_through_calibration(demur, tmp_path):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3000, 4))
    proba = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
    labels = ["abcd"[rng.choice(4, p=one)] for one in proba]
    data = write_csv(
        tmp_path / "data.csv", "a,b,c,d,y", [(*row, y) for row, y in zip(30 * logits, labels, strict=True)]
    )
    out = tmp_path / "model"
    result = demur("fit", "--proba", data, "--target", "y", "--proba-kind", "logits", "--out", out, "--json")
    assert json.loads(result.text)["temperature"] == pytest.approx(15, rel=0.1)
    from demur.deploy import load

    found = load(out).predict_proba(pa.table({name: 30 * logits[:, k] for k, name in enumerate("abcd")}))
    assert np.abs(found - proba).mean() < 0.02


def test_a_label_without_a_column_of_probabilities_is_named(demur, tmp_path):
    data = write_csv(tmp_path / "data.csv", "p_a,p_b,y", [(0.3, 0.7, "abc"[k % 3]) for k in range(60)])
    result = demur("fit", "--proba", data, "--target", "y", "--out", tmp_path / "model")
    assert "there is no column for 'c'" in result.complaint
