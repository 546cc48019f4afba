"""NumPy files as tables, and as stored outputs of a network with labels in another file."""

import io

import numpy as np
import pyarrow as pa
import pytest

from demur import Coverage, RiskControl
from demur.columns import TableError
from demur.estimators import reject_option
from demur.tabular import (
    DecideOptions,
    array_files,
    decide_file,
    evaluate_table,
    evaluation,
    fit_proba,
    fitting,
    read_labelled,
    read_table,
)


def outputs(n_rows=900, n_classes=12, seed=0):
    """Logits that are too large by a factor of 2, and column numbers."""
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes - 1, size=n_rows)  # the last class has no row
    logits = rng.normal(size=(n_rows, n_classes))
    logits[np.arange(n_rows), y] += 3
    return (6 * logits).astype(np.float32), y


LOGITS, Y = outputs()


@pytest.fixture
def files(tmp_path):
    np.save(tmp_path / "z.npy", LOGITS)
    np.save(tmp_path / "y.npy", Y)
    np.savez(tmp_path / "both.npz", logits=LOGITS, truth=Y)
    (tmp_path / "y.csv").write_text("anything\n" + "\n".join(map(str, Y)) + "\n")
    (tmp_path / "more.csv").write_text("site,y\n" + "\n".join(f"s{k % 3},{label}" for k, label in enumerate(Y)) + "\n")
    return tmp_path


def test_arrays_are_tables(files):
    table = read_table(files / "both.npz")
    assert table.column_names == [*map(str, range(12)), "truth"]
    np.testing.assert_array_equal(table["11"], LOGITS[:, 11])
    assert read_table(files / "y.npy").to_pydict() == {"0": Y.tolist()}
    with open(files / "z.npy", "rb") as stream:
        assert read_table(io.BytesIO(stream.read())).equals(read_table(files / "z.npy"))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"a": np.zeros((3, 2)), "b": np.zeros(4)}, "arrays that are not one table, a (3, 2), b (4,)"),
        ({"a": np.zeros((3, 2, 2))}, "a (3, 2, 2)"),
        ({"a": np.array([object()])}, "cannot be read"),
        ({"a": np.zeros((0, 2))}, "no rows"),
    ],
)
def test_arrays_that_are_not_a_table(arrays, words, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(TableError) as caught:
        read_table(tmp_path / "a.npz")
    assert words in str(caught.value)


def test_a_damaged_archive_is_refused(files):
    (files / "half.npz").write_bytes((files / "both.npz").read_bytes()[:4000])
    (files / "half.npy").write_bytes((files / "z.npy").read_bytes()[:4000])
    for name in ("half.npz", "half.npy"):
        with pytest.raises(TableError, match="cannot be read"):
            read_table(files / name)


def test_labels_are_taken_from_every_kind_of_file(files):
    models = [
        fit_proba(files / "both.npz", "truth", cost=0.3).model,
        *(fit_proba(files / "z.npy", "y", labels=files / name, cost=0.3).model for name in ("y.npy", "y.csv")),
        fit_proba(files / "z.npy", "y", labels=files / "more.csv", cost=0.3, drop=["site"]).model,
    ]
    rows = read_table(files / "z.npy")
    for model in models:
        assert model.label_type == "integer"
        assert sorted(model.classes.tolist(), key=int) == [*map(str, range(12))]
        assert model.facts["temperature"] == pytest.approx(2, rel=0.1)
        np.testing.assert_array_equal(model.predict_proba(rows), models[0].predict_proba(rows))


def test_groups_come_with_the_labels(files):
    fitted = fit_proba(files / "z.npy", "y", labels=files / "more.csv", group_split="site")
    assert len(set(fitted.held_out["site"].to_pylist())) == 1


def test_a_model_of_a_matrix_reads_matrices(files):
    fitted = fit_proba(files / "z.npy", "truth", labels=files / "y.npy", cost=0.3)
    model = fitted.model
    assert decide_file(model, files / "z.npy", files / "a.csv", DecideOptions()).rows == 900
    assert decide_file(model, files / "both.npz", files / "b.csv", DecideOptions()).rows == 900
    assert (files / "a.csv").read_bytes() == (files / "b.csv").read_bytes()
    table = read_labelled(files / "z.npy", model.schema, model.classes.tolist(), labels=files / "y.npy")
    judged = evaluate_table(model, table)
    same = evaluate_table(model, read_labelled(files / "both.npz", model.schema, model.classes.tolist()))
    assert judged.to_json() == same.to_json()
    assert judged.n_unknown == 0
    assert fitted.evaluate().n_rows == fitted.held_out.num_rows


def test_labels_that_are_no_column_numbers_are_sorted(files):
    names = np.array([f"n{k:02}" for k in range(12)])
    np.save(files / "names.npy", names[np.r_[Y[:-1], 11]])
    model = fit_proba(files / "z.npy", "y", labels=files / "names.npy", holdout=0).model
    assert model.classes.tolist() == names.tolist()
    np.save(files / "from_one.npy", np.r_[Y[:-1], 11] + 1)
    model = fit_proba(files / "z.npy", "y", labels=files / "from_one.npy", holdout=0).model
    answers = model.answers(read_table(files / "z.npy"))["first_choice"].to_numpy()
    np.testing.assert_array_equal(answers, LOGITS.argmax(axis=1) + 1)
    np.save(files / "some.npy", names[Y])
    with pytest.raises(TableError, match=r"12 columns, and 'y' holds 11 classes, .*give column numbers from 0 to 11"):
        fit_proba(files / "z.npy", "y", labels=files / "some.npy")
    np.save(files / "few.npy", Y[:-1])
    with pytest.raises(TableError, match=r"899 labels for 900 rows"):
        fit_proba(files / "z.npy", "y", labels=files / "few.npy")


def test_rows_without_a_label_are_left_out(files):
    labels = [None if k % 2 else int(label) for k, label in enumerate(Y)]
    (files / "gaps.csv").write_text("y,n\n" + "\n".join(f"{'' if y is None else y},1" for y in labels) + "\n")
    half = fit_proba(files / "z.npy", "y", labels=files / "gaps.csv", drop=["n"], holdout=0).model
    np.savez(files / "half.npz", z=LOGITS[::2], y=Y[::2])
    same = fit_proba(files / "half.npz", "y", holdout=0).model
    assert half.facts["rows_without_label"] == 450
    assert half.facts["temperature"] == same.facts["temperature"]


@pytest.mark.parametrize("rule", [None, RiskControl(0.2), Coverage(0.7)])
def test_small_chunks_change_nothing(files, rule, monkeypatch):
    whole = fit_proba(files / "z.npy", "y", labels=files / "y.npy", rule=rule)
    judged = whole.evaluate()
    for module in (array_files, reject_option, evaluation):
        monkeypatch.setattr(module, "_AT_ONCE", 100)
    parts = fit_proba(files / "z.npy", "y", labels=files / "y.npy", rule=rule)
    assert parts.model.explain() == whole.model.explain()
    found = parts.evaluate()
    assert found.to_json() == judged.to_json()
    assert found.worst_mistakes() == judged.worst_mistakes()


def test_many_rows_are_calibrated_on_some(files, monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_OUTPUTS", 12 * 300)
    fitted = fit_proba(files / "z.npy", "y", labels=files / "y.npy")
    assert fitted.model.facts["calibrated_on"] == 300
    assert fitted.model.facts["temperature"] == pytest.approx(2, rel=0.15)


def test_a_wrong_row_is_named_by_its_number(files, monkeypatch):
    monkeypatch.setattr(array_files, "_AT_ONCE", 100)
    logits = LOGITS.copy()
    logits[777, 3] = np.nan
    np.save(files / "gap.npy", logits)
    with pytest.raises(TableError, match="row 778 lacks a logit"):
        fit_proba(files / "gap.npy", "y", labels=files / "y.npy")
    model = fit_proba(files / "z.npy", "y", labels=files / "y.npy").model
    with pytest.raises(TableError, match="row 778 lacks a logit"):
        decide_file(model, files / "gap.npy", files / "out.csv", DecideOptions(chunk_rows=50))


@pytest.mark.parametrize("value", [np.nan, 1e300])
def test_a_matrix_without_a_usable_number_is_refused(files, value):
    np.save(files / "none.npy", np.full_like(LOGITS, value, dtype=np.float64))
    with pytest.raises(TableError, match="no row holds a number from -1e30 to 1e30"):
        fit_proba(files / "none.npy", "y", labels=files / "y.npy")


def test_large_logits_stay_in_order_under_every_calibration(files):
    np.save(files / "large.npy", LOGITS * np.float32(500))  # as probabilities they are 0 and 1
    for calibration in ("auto", "isotonic", "sigmoid"):
        options = {"labels": files / "y.npy", "calibration": calibration, "holdout": 0}
        large, small = (fit_proba(files / f"{name}.npy", "y", **options).model for name in ("large", "z"))
        found = large.predict_proba(read_table(files / "large.npy"))
        assert len(np.unique(found.max(axis=1).round(4))) > (5 if calibration == "isotonic" else 100)
        np.testing.assert_allclose(found, small.predict_proba(read_table(files / "z.npy")), atol=0.02)


def test_one_flag_keeps_the_classes_without_a_row():
    table = pa.table({str(k): LOGITS[:, k] for k in range(12)} | {"y": Y})
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    kept = fit_proba(io.BytesIO(stream.getvalue()), "y", all_classes=True).model
    assert "11" in kept.classes
    assert "11" not in fit_proba(io.BytesIO(stream.getvalue()), "y").model.classes


def test_arrays_of_another_byte_order_are_read(files):
    np.savez(files / "swapped.npz", logits=LOGITS.astype(">f4"), truth=Y.astype(">i2"))
    assert read_table(files / "swapped.npz").to_pydict() == read_table(files / "both.npz").to_pydict()
    np.save(files / "swapped.npy", LOGITS.astype(">f4"))
    assert read_table(files / "swapped.npy").equals(read_table(files / "z.npy"))
