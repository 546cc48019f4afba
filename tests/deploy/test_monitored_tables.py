"""Tables of new and reviewed rows: each row is counted once, whatever happens to files and processes."""

import csv
import json
import os
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pyarrow.csv
import pytest

from demur.columns import TableWarning
from demur.deploy import Monitor, MonitoredTables, load
from demur.errors import InputError
from demur.tabular import fit_table


def write_rows(path, n, *, seed, shift=0.0, labels=True):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    values = np.c_[rng.normal(size=(n, 2)) + 1.5 * y[:, None] + shift]
    lines = [
        f"{a:.4f},{b:.4f}" + (f",{['no', 'yes'][k]}" if labels else "") for (a, b), k in zip(values, y, strict=True)
    ]
    path.write_text("\n".join(["a,b" + ",y" * labels, *lines]) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, demur):
    place = tmp_path_factory.mktemp("watched")
    write_rows(place / "train.csv", 1500, seed=0)
    write_rows(place / "new.csv", 1000, seed=1, labels=False)
    write_rows(place / "reviewed.csv", 300, seed=2)
    write_rows(place / "moved.csv", 1500, seed=3, shift=1.0, labels=False)
    for name, options in {"model": (), "unjudged": ("--holdout", "0")}.items():
        fitted = demur("fit", place / "train.csv", "--target", "y", "--model", "lr", "--out", place / name, *options)
        assert fitted.code == 0, fitted
    return place


def approx_figures(state):
    """Return the figures of a state, to be compared up to rounding."""
    figures = Monitor.load(state).to_json()
    figures["evidence"] = pytest.approx(figures["evidence"])
    return figures


def call(demur, folder, data, state, *options):
    return demur("monitor", folder / "model", folder / data, "--state", state, *options)


def test_watch_review_and_alarm(demur, folder, tmp_path):
    state = tmp_path / "state.json"
    first = call(demur, folder, "new.csv", state)
    assert (first.code, "No alarm." in first.text, "After 1,000 rows" in first.text) == (0, True, True), first
    reviewed = call(demur, folder, "reviewed.csv", state, "--reviewed", "--json")
    found = json.loads(reviewed.text)
    assert reviewed.code == 0
    assert found["audited"] + found["reviewed_declined"] == 300
    assert found["risk"]["low"] <= found["risk"]["estimate"] <= found["risk"]["high"]
    again = json.loads(call(demur, folder, "reviewed.csv", state, "--reviewed", "--json").text)
    assert again == found  # rows that were taken already do not count twice
    moved = call(demur, folder, "moved.csv", state)
    assert moved.code == 3
    assert "ALARM at row 1," in " ".join(moved.text.split())
    assert state.stat().st_size < 20_000


def test_the_rows_to_review_are_declined_and_drawn_rows(demur, folder, tmp_path):
    out, options = tmp_path / "desk.csv", ("--audit", "0.2", "--chunk-rows", "70")
    assert call(demur, folder, "new.csv", tmp_path / "state.json", "--to-review", out, *options).code == 0
    table = pyarrow.csv.read_csv(out)
    why = table["why"].to_pylist()
    n_declined = json.loads(call(demur, folder, "new.csv", tmp_path / "state.json", "--json").text)["rejected_share"]
    assert why.count("declined") == round(1000 * n_declined)
    assert 0.15 < why.count("audit") / (1000 - why.count("declined")) < 0.25


def test_a_file_that_grows_is_read_from_where_it_ended(demur, folder, tmp_path):
    lines = (folder / "new.csv").read_text().splitlines(keepends=True)
    growing, state, whole = tmp_path / "growing.csv", tmp_path / "state.json", tmp_path / "whole.json"
    for n_lines in (301, 302, 302, 1001):
        growing.write_text("".join(lines[:n_lines]))
        assert demur("monitor", folder / "model", growing, "--state", state, "--chunk-rows", "64").code == 0
    assert demur("monitor", folder / "model", growing, "--state", whole).code == 0
    assert Monitor.load(state).to_json() == approx_figures(whole)


@pytest.mark.slow
def test_a_killed_call_continues_where_it_stopped(demur, folder, tmp_path):
    write_rows(tmp_path / "long.csv", 3000, seed=4, labels=False)
    state, whole = tmp_path / "state.json", tmp_path / "whole.json"
    words = ["monitor", folder / "model", tmp_path / "long.csv", "--chunk-rows", "20", "--state"]
    seen, kills = [], 0
    for _ in range(3):
        before = state.read_bytes() if state.exists() else None
        process = subprocess.Popen(
            [sys.executable, "-m", "demur", *map(str, words), str(state)], stdout=subprocess.DEVNULL, env=os.environ
        )
        while process.poll() is None and (not state.exists() or state.read_bytes() == before):
            pass
        process.send_signal(signal.SIGKILL)
        kills += process.wait() == -signal.SIGKILL
        seen.append(Monitor.load(state).n_rows)
    assert kills
    assert sorted(seen) == seen
    assert demur(*words, state).code == demur(*words, whole).code
    assert Monitor.load(state).to_json() == approx_figures(whole)


def test_settings_and_reference_of_a_state_cannot_change(demur, folder, tmp_path):
    state = tmp_path / "state.json"
    assert call(demur, folder, "new.csv", state, "--delta", "0.1").code == 0
    assert "--delta 0.1" in call(demur, folder, "new.csv", state, "--delta", "0.2").complaint
    other = call(demur, folder, "new.csv", state, "--reference", folder / "reviewed.csv")
    assert "another model or other reference rows" in other.complaint
    assert "--max-risk must be a number" in call(demur, folder, "new.csv", state, "--max-risk", "5").complaint
    assert "--to-review" in call(demur, folder, "new.csv", state, "--reviewed", "--to-review", "x.csv").complaint


def test_a_model_without_held_out_rows_needs_a_reference(demur, folder, tmp_path):
    words = ("monitor", folder / "unjudged", folder / "new.csv", "--state", tmp_path / "state.json")
    assert "not trained on as the reference" in demur(*words).complaint
    assert not (tmp_path / "state.json").exists()
    assert demur(*words, "--reference", folder / "reviewed.csv").code == 0


def read_rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def figures(demur, folder, data, state, *options):
    result = demur("monitor", folder / "model", data, "--state", state, "--json", *options)
    assert result.code in (0, 3), result
    return json.loads(result.text)


def test_a_replaced_file_is_a_new_one(demur, folder, tmp_path):
    """The README's own usage: today.csv is overwritten every day, also with as many rows as yesterday."""
    state, today = tmp_path / "state.json", tmp_path / "today.csv"
    today.write_bytes((folder / "new.csv").read_bytes())
    assert demur("monitor", folder / "model", today, "--state", state).code == 0
    write_rows(today, 1000, seed=5, shift=1.0, labels=False)
    moved = demur("monitor", folder / "model", today, "--state", state)
    assert moved.code == 3
    assert "After 2,000 rows" in moved.text
    for seed in (6, 7):
        write_rows(today, 300, seed=seed)
        found = figures(demur, folder, today, state, "--reviewed")
    assert found["audited"] + found["reviewed_declined"] == 600


def test_rows_given_again_are_not_counted_again_and_a_note_says_so(demur, folder, tmp_path):
    state, copy = tmp_path / "state.json", tmp_path / "another_name.csv"
    copy.write_bytes((folder / "new.csv").read_bytes())
    assert call(demur, folder, "new.csv", state).errors == ""
    again = demur("monitor", folder / "model", copy, "--state", state)
    assert "1,000 rows of" in again.errors
    assert "were counted before and are not counted again" in again.errors
    assert "After 1,000 rows" in again.text
    copy.write_bytes((folder / "reviewed.csv").read_bytes())
    call(demur, folder, "reviewed.csv", state, "--reviewed")
    again = demur("monitor", folder / "model", copy, "--state", state, "--reviewed")
    assert "300 labelled rows" in again.errors
    assert Monitor.load(state).n_audited + Monitor.load(state).n_reviewed == 300


def test_two_monitors_on_one_state_lose_no_row(folder, tmp_path):
    model, state = load(folder / "model"), tmp_path / "state.json"

    def watch(name):
        MonitoredTables(state, model, lambda: Monitor.of_model(model)).watch(str(folder / name), chunk_rows=100)

    both = [threading.Thread(target=watch, args=(name,)) for name in ("new.csv", "moved.csv", "new.csv")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TableWarning)  # which of the two threads finds rows of new.csv counted is open
        for one in both:
            one.start()
        for one in both:
            one.join()
    assert Monitor.load(state).n_rows == 2500


def test_a_state_of_another_model_is_refused_though_all_rows_were_counted(folder, tmp_path):
    def monitored(model, state=tmp_path / "state.json"):
        return MonitoredTables(state, model, lambda: Monitor.of_model(load(folder / "model")))

    monitored(load(folder / "model")).watch(str(folder / "new.csv"))
    rows = {"a": [1.0, 2.0] * 50, "b": [1.0, 3.0] * 50, "y": ["left", "right"] * 50}
    other = fit_table(pyarrow.table(rows), "y", model="lr")
    with pytest.raises(InputError, match="started for a model with other classes"):
        monitored(other).watch(str(folder / "new.csv"))


def test_the_audit_draws_other_positions_every_day_and_the_same_ones_again(demur, folder, tmp_path):
    drawn = []
    for day, name in enumerate(("new.csv", "moved.csv", "new.csv")):
        out = tmp_path / f"review{day}.csv"
        options = ("--state", tmp_path / "state.json", "--to-review", out, "--audit", "0.3")
        assert demur("monitor", folder / "model", folder / name, *options).code in (0, 3)
        rows = [(float(row["a"]), float(row["b"])) for row in read_rows(folder / name)]
        audited = [row for row in read_rows(out) if row["why"] == "audit"]
        drawn.append({rows.index((float(row["a"]), float(row["b"]))) for row in audited})
    assert drawn[0] == drawn[2]
    assert len(drawn[0] & drawn[1]) < 0.6 * min(len(drawn[0]), len(drawn[1]))


def test_a_list_to_review_can_be_labelled_little_by_little(demur, folder, tmp_path):
    state, out = tmp_path / "state.json", tmp_path / "review.csv"
    assert call(demur, folder, "new.csv", state, "--to-review", out).code == 0
    rows = read_rows(out)
    assert [row["y"] for row in rows] == [""] * len(rows)
    for n_labelled in (10, 25, len(rows)):
        for row in rows[-n_labelled:]:
            row["y"] = "yes"
        with out.open("w") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        found = figures(demur, folder, out, state, "--reviewed")
        assert found["audited"] + found["reviewed_declined"] == n_labelled


def test_a_list_to_review_guards_formulas(demur, folder, tmp_path):
    data, out = tmp_path / "notes.csv", tmp_path / "review.csv"
    lines = (folder / "new.csv").read_text().splitlines()
    data.write_text("\n".join([lines[0] + ",note", *(f"{line},=1+1" for line in lines[1:])]))
    options = ("--allow-extra", "--state", tmp_path / "state.json", "--to-review", out)
    assert demur("monitor", folder / "model", data, *options).code == 0
    assert {row["note"] for row in read_rows(out)} == {"'=1+1"}


def test_a_list_to_review_has_the_cells_of_the_file(demur, folder, tmp_path):
    data, out = tmp_path / "codes.csv", tmp_path / "review.csv"
    lines = (folder / "new.csv").read_text().splitlines()
    data.write_text("\n".join(["id," + lines[0], *(f"{k:05d},{line}0" for k, line in enumerate(lines[1:]))]))
    options = ("--allow-extra", "--state", tmp_path / "state.json", "--to-review", out, "--audit", "0.2")
    assert demur("monitor", folder / "model", data, *options).code == 0
    known = {row["id"]: row for row in read_rows(data)}
    assert all(row["a"] == known[row["id"]]["a"] and row["b"] == known[row["id"]]["b"] for row in read_rows(out))


def test_an_earlier_version_of_a_grown_table_is_not_counted_again(demur, folder, tmp_path):
    lines = (folder / "new.csv").read_text().splitlines(keepends=True)
    for name, n_rows in (("early.csv", 50), ("late.csv", 80)):
        (tmp_path / name).write_text("".join(lines[: n_rows + 1]))
    state = tmp_path / "state.json"
    for name in ("early.csv", "late.csv", "early.csv"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TableWarning)
            assert demur("monitor", folder / "model", tmp_path / name, "--state", state).code == 0
    assert Monitor.load(state).to_json()["rows"] == 80
