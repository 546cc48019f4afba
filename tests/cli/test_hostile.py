"""Whatever the file: a result, or one sentence and exit code 2, and nothing left behind."""

import importlib
import re
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.deploy import load

SLOW = {"many_categories.csv": 3_000, "target_of_thousand_classes.csv": 300}
"""Files of which the first lines are enough here."""

OTHER_MODELS = {
    "ce": ["infinities.csv", "mixed_types.csv", "class_of_one_row.csv", "every_row_many_times.csv", "two_rows.csv"],
    "hgb": ["nested.parquet", "missing_spellings.csv", "beyond_float.csv", "target_of_booleans.csv", "one_class.csv"],
    "ova+hin": ["target_named_reject.csv", "truncated.csv.gz"],
}


@pytest.fixture
def light_model(monkeypatch):
    """Fit a model that takes no time: what is tried here is the file's way to it and back."""
    from sklearn.dummy import DummyClassifier

    def estimator(training, needs_proba):
        return DummyClassifier(strategy="prior"), training.codes

    monkeypatch.setattr("demur.tabular.fitting._Training._estimator", estimator)


@pytest.fixture
def loaded_once(monkeypatch, pets):
    """Keep the model in memory from call to call."""
    model = load(pets / "model")
    for name in ("demur.cli.predict", "demur.cli.evaluate"):
        monkeypatch.setattr(importlib.import_module(name), "load_table_model", lambda path, **_: model)


def write(hostile_file, folder):
    name, data = hostile_file
    if name in SLOW:
        data = b"\n".join(data.split(b"\n")[: SLOW[name]]) + b"\n"
    path = folder / name
    path.write_bytes(data)
    return path


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def check(result, folder, before, made):
    """Hold a call to its contract: ``made`` is what it leaves when it works, and nothing else it ever leaves."""
    assert result.code in (0, 2), result
    assert "Traceback" not in result.errors
    after = [name for name in files_of(folder) if name not in before]
    if result.code == 0:
        assert [name for name in after if "/" not in name] == made
        assert all(line.startswith("Note: ") for line in result.errors.splitlines() if not line.startswith("Wrote"))
        return
    assert after == []
    assert result.output == b""
    sentence = result.complaint
    assert sentence.isprintable()
    assert len(sentence) < 400
    own_words = re.sub(r"\(.*\)", "", sentence)  # what a library said stands in brackets
    assert not re.search(r"[.?!] [A-Z]", own_words), sentence


def fit_and_decide(demur, hostile, path, folder):
    before = files_of(folder)
    result = demur("fit", path, "--target", "y", "--model", "lr", "--out", folder / "model")
    check(result, folder, before, ["model"])
    if path.name in hostile.REFUSED:
        assert path.name in result.complaint
        return
    if result.code == 0:
        # What a model was fitted on, it can decide for.
        again = demur("predict", folder / "model", path)
        assert again.code == 0, again
        assert re.match("prediction(.)rejected\\1confidence\\1first_choice\\1second_choice\\1reason\n", again.text)


@pytest.mark.usefixtures("light_model")
def test_fit(demur, hostile, hostile_file, tmp_path):
    fit_and_decide(demur, hostile, write(hostile_file, tmp_path), tmp_path)


@pytest.mark.slow
def test_fit_a_real_model(demur, hostile, hostile_file, tmp_path):
    fit_and_decide(demur, hostile, write(hostile_file, tmp_path), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name"), [(model, name) for model, names in OTHER_MODELS.items() for name in names])
def test_fit_other_models(demur, hostile, model, name, tmp_path):
    path = write((name, hostile.hostile_files()[name]), tmp_path)
    before = files_of(tmp_path)
    result = demur("fit", path, "--target", "y", "--model", model, "--out", tmp_path / "model")
    check(result, tmp_path, before, ["model"])


@pytest.mark.slow
def test_fit_auto_on_the_worst_at_once(demur, hostile, tmp_path):
    path = write(("mixed_types.csv", hostile.hostile_files()["mixed_types.csv"]), tmp_path)
    before = files_of(tmp_path)
    options = ("--target", "y", "--time-budget", "0.01", "--out", tmp_path / "model")
    check(demur("fit", path, *options), tmp_path, before, ["model"])


@pytest.mark.slow
@pytest.mark.usefixtures("loaded_once")
def test_predict_and_evaluate(demur, pets, hostile_file, tmp_path):
    path = write(hostile_file, tmp_path)
    before = files_of(tmp_path)
    options = ("--out", tmp_path / "out.csv", "--allow-extra", "--keep-all")
    check(demur("predict", pets / "model", path, *options), tmp_path, before, ["out.csv"])
    before = files_of(tmp_path)
    check(demur("evaluate", pets / "model", path, "--allow-extra", "--json"), tmp_path, before, [])


@pytest.mark.slow
def test_what_the_memory_does_not_hold_is_said(tmp_path):
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29)); "
    call = "sys.argv = ['demur', *sys.argv[1:]]; from demur.cli import main; main()"
    table = tmp_path / "large.parquet"
    numbers = np.random.default_rng(0).normal(size=30_000_000)
    pq.write_table(pa.table({"size": numbers, "y": np.where(numbers > 0, "a", "b")}), table)
    arguments = ["fit", str(table), "--target", "y", "--model", "lr", "--out", str(tmp_path / "new")]
    ended = subprocess.run([sys.executable, "-c", limit + call, *arguments], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("demur: ")
    assert "Traceback" not in ended.stderr
