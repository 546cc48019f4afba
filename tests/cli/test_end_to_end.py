"""Contracts between commands: what a fit learns from, what predictions copy, and how errors end."""

import csv
import io
import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur import RiskControl, save
from demur.columns import Schema
from demur.deploy import load
from demur.estimators import splitting
from demur.tabular import TableModel, evaluation, fit_file, fit_table
from demur.tabular.fitting import likely_leaks


def rows_of(n=200, seed=0, **more):
    """Return a table of two numbers, of which one tells the class but for some noise."""
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n)
    y = np.where(size + rng.normal(size=n) * 0.4 > 0, "large", "small")
    return pa.table({"size": size, "age": rng.normal(size=n), **more, "y": y})


def csv_of(table, path, delimiter=","):
    lines = [delimiter.join(table.column_names)]
    lines += [delimiter.join("" if cell is None else str(cell) for cell in row.values()) for row in table.to_pylist()]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def fit(demur, tmp_path):
    def call(data, *options):
        return demur("fit", data, "--target", "y", "--model", "lr", "--out", tmp_path / "model", *options)

    return call


# nothing is learnt from the rows that judge


def test_the_model_does_not_depend_on_the_held_out_rows(tmp_path):
    table = rows_of(kind=["red", "green"] * 100)
    first = fit_file(csv_of(table, tmp_path / "a.csv"), "y", model="lr", refit=False)
    judged = np.isin(table["size"].to_pylist(), first.held_out["size"].to_pylist())
    assert judged.sum() == first.held_out.num_rows == 40
    kinds = np.where(judged, "only here", table["kind"].to_pylist())
    ages = np.where(judged, 1e6, table["age"].to_pylist())
    other = table.set_column(2, "kind", pa.array(kinds)).set_column(1, "age", pa.array(ages))
    second = fit_file(csv_of(other, tmp_path / "b.csv"), "y", model="lr", refit=False)
    assert second.model.schema == first.model.schema
    assert "only here" not in second.model.schema.columns[2].categories
    new = rows_of(seed=1, kind=["red", "green"] * 100)
    assert second.model.answers(new).equals(first.model.answers(new))


@pytest.mark.parametrize("model", ["lr", pytest.param("hgb", marks=pytest.mark.slow)])
def test_the_model_does_not_depend_on_the_rows_of_the_rule(model, monkeypatch):
    seen = []

    def spy(*arguments, **options):
        seen.append(set_aside(*arguments, **options))
        return seen[-1]

    set_aside = splitting.set_aside
    monkeypatch.setattr(splitting, "set_aside", spy)
    table = rows_of(400, kind=[f"pair {k // 2}" for k in range(400)])
    options = {"model": model, "rule": RiskControl(0.4)}
    first = fit_table(table, "y", **options)
    aside = seen[0].aside
    assert len(aside) == first.facts["rows_for_the_rule"] == 200
    assert first.facts["rows"] == 200
    trained_on = set(np.array(table["kind"].to_pylist())[seen[0].train])
    assert set(first.schema.columns[2].categories) == trained_on
    sizes = np.array(table["size"].to_pylist())
    sizes[aside] *= 1.01
    second = fit_table(table.set_column(0, "size", pa.array(sizes)), "y", **options)
    np.testing.assert_array_equal(second.predict_proba(table), first.predict_proba(table))


# the price


def test_a_model_without_a_price_refuses_one(fit, demur, tmp_path):
    data = csv_of(rows_of(), tmp_path / "data.csv")
    assert fit(data, "--coverage", "0.8").code == 0
    assert load(tmp_path / "model").cost is None
    for cost in ("0.1", "0.2"):
        complaint = demur("predict", tmp_path / "model", data, "--cost", cost).complaint
        assert "this model cannot decide for another cost" in complaint
        assert "Coverage" in complaint
    assert fit(data, "--cost", "0.3", "--force").code == 0
    assert load(tmp_path / "model").cost == 0.3


# Labels that are copied


@pytest.mark.parametrize(
    ("labels", "piped"),
    [
        ([3, 5], False),
        ([0.5, 1.5], False),
        (["true", "false"], False),
        (["01", "A3"], True),
        (["large", "small"], True),
    ],
)
def test_copied_labels_compare_with_predictions(fit, demur, labels, piped, tmp_path):
    table = rows_of()
    names = [labels[label == "large"] for label in table["y"].to_pylist()]
    data = csv_of(table.set_column(2, "y", pa.array(names)), tmp_path / "data.csv")
    assert fit(data).code == 0
    source, stdin = ("-", data.read_bytes()) if piped else (data, b"")
    call = ("predict", tmp_path / "model", source, "--keep", "y", "--cost", "0.45")
    rows = list(csv.DictReader(demur(*call, stdin=stdin).text.splitlines()))
    assert [row["y"] for row in rows] == [str(name) for name in names]
    assert np.mean([row["y"] == row["prediction"] for row in rows if row["rejected"] == "false"]) > 0.7


# partitioned folders


@pytest.fixture
def partitioned(tmp_path):
    """Return a folder ``new`` below one that is named like a partition, and the same rows as one table."""
    folder, parts = tmp_path / "run=7" / "new", []
    for year in (2023, 2024):
        table = rows_of(60, seed=year).drop_columns("y")
        (folder / f"year={year}").mkdir(parents=True)
        pq.write_table(table, folder / f"year={year}" / "rows.parquet")
        parts.append(table.append_column("year", pa.array([year] * 60)))
    hidden = ("_temporary/0.parquet", ".hidden.parquet", "year=2023/.rows.parquet", "year=2024/_old.parquet")
    for name in hidden:
        (folder / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"nonsense": [1]}), folder / name)
    return folder, pa.concat_tables(parts)


def fitted_on_years():
    table = rows_of(300, year=[2023, 2024, 2025] * 100)
    y = ["small" if row["year"] == 2024 else row["y"] for row in table.to_pylist()]
    return fit_table(table.set_column(3, "y", pa.array(y)), "y", model="hgb")


@pytest.mark.slow
def test_a_partitioned_folder_has_its_columns_and_no_hidden_files(demur, partitioned, tmp_path):
    pytest.importorskip("distributed")
    folder, table = partitioned
    model = fitted_on_years()
    save(model, tmp_path / "model")
    wanted = model.answers(table)
    result = demur("predict", tmp_path / "model", folder, "--keep", "year", "--out", tmp_path / "local.parquet")
    assert result.code == 0, result
    local = pq.read_table(tmp_path / "local.parquet")
    assert local.drop_columns("year").equals(wanted)
    assert local["year"].to_pylist() == table["year"].to_pylist()


# our mistakes keep their traceback


@pytest.mark.parametrize("bug", [TypeError("unsupported operand"), ValueError("operands could not be broadcast")])
@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_a_mistake_of_ours_is_not_taken_for_the_users(demur, pets, monkeypatch, command, bug, tmp_path):
    def broken(*arguments, **options):
        raise bug

    place = TableModel if command == "predict" else evaluation
    monkeypatch.setattr(place, "answers" if command == "predict" else "check_guarantee", broken)
    call = {
        "fit": ("fit", pets / "train.csv", "--target", "y", "--model", "lr", "--out", tmp_path / "model"),
        "predict": ("predict", pets / "model", pets / "new.csv"),
        "evaluate": ("evaluate", pets / "model", pets / "new.csv"),
    }[command]
    with pytest.raises(type(bug), match=str(bug)):
        demur(*call)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_mistake_of_ours_is_exit_code_1_with_a_traceback():
    code = (
        "import sys, demur.cli, demur.losses; sys.argv = ['demur', 'methods']\n"
        "demur.losses.available = lambda: 1 + 'x'\n"
        "demur.cli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "TypeError" in done.stderr


# equal rows and groups stay on one side


def test_equal_rows_stay_on_one_side_and_are_counted(fit, demur, tmp_path):
    table = rows_of(100)
    copied = pa.concat_tables([table] * 4)
    copied = copied.append_column("customer_id", pa.array(range(400)))  # which makes no row another one
    result = fit(csv_of(copied, tmp_path / "data.csv"), "--json")
    assert result.code == 0, result
    found = json.loads(result.text)
    assert found["notes"] == [
        "nearly all of the 400 rows occur 4 times: they are treated as copies, stay on one side of every split, and "
        "count once in a guarantee and in the evaluation."
    ]
    assert "Note: nearly all of the 400 rows occur 4 times" in result.errors
    fitted = fit_file(tmp_path / "data.csv", "y", model="lr", refit=False)
    held_out = set(fitted.held_out["size"].to_pylist())
    assert fitted.held_out.num_rows == len(held_out) == 20
    assert fitted.model.facts["rows"] == 320


@pytest.mark.slow
def test_copies_do_not_make_a_guarantee_possible(fit, tmp_path):
    """Coin tosses, each row eight times: a forest memorises the copies, and a guarantee from them would not hold."""
    rng = np.random.default_rng(0)
    table = pa.table({"size": rng.normal(size=150), "age": rng.normal(size=150), "y": rng.choice(["a", "b"], 150)})
    data = csv_of(pa.concat_tables([table] * 8), tmp_path / "data.csv")
    complaint = fit(data, "--model", "hgb", "--max-risk", "0.1").complaint
    assert "--max-risk" in complaint


def test_rows_of_another_file_that_the_model_knows_are_counted(tmp_path):
    data = csv_of(rows_of(), tmp_path / "data.csv")
    other = csv_of(pa.concat_tables([rows_of(30, seed=1), rows_of().slice(0, 12)]), tmp_path / "test.csv")
    assert fit_file(data, "y", model="lr", test=other).notes == (
        "12 of the 42 rows of test.csv equal a training row in all features: the figures may be too good.",
    )
    apart = csv_of(rows_of(30, seed=1), tmp_path / "apart.csv")
    assert fit_file(data, "y", model="lr", test=apart).notes == ()


def test_rows_of_one_group_stay_on_one_side(fit, tmp_path):
    machine = [f"machine {k // 10}" for k in range(200)]
    table = rows_of(machine=machine)
    data = csv_of(table, tmp_path / "data.csv")
    fitted = fit_file(data, "y", model="lr", group_split="machine")
    judged = np.isin(table["size"].to_pylist(), fitted.held_out["size"].to_pylist())
    assert not set(np.array(machine)[judged]) & set(np.array(machine)[~judged])
    assert fitted.held_out.num_rows == 40
    assert fitted.model.schema.names == ("size", "age")
    assert fitted.model.schema.set_aside["machine"] == "its groups of rows stay together"
    result = fit(data, "--group-split", "machine")
    assert result.code == 0, result
    assert "did you mean 'machine'?" in fit(data, "--group-split", "machin", "--force").complaint
    assert "cannot be the target" in fit(data, "--group-split", "y", "--force").complaint


# time, seeds and names


def test_the_latest_rows_are_evaluated(fit, tmp_path):
    day = [f"2026-{1 + (7 * k) % 12:02}-{1 + k % 28:02}" for k in range(200)]
    table = rows_of(day=day)
    data = csv_of(table, tmp_path / "data.csv")
    fitted = fit_file(data, "y", model="lr", time_split="day")
    judged = np.isin(table["size"].to_pylist(), fitted.held_out["size"].to_pylist())
    assert min(np.array(day)[judged]) > max(np.array(day)[~judged])
    assert abs(judged.sum() - 40) < 5
    assert fitted.model.schema.set_aside["day"] == "it is the time of a row"
    result = fit(data, "--time-split", "day", "--model", "lr")
    assert result.code == 0, result
    assert "did you mean 'day'?" in fit(data, "--time-split", "dya", "--force").complaint
    assert "cannot be the target" in fit(data, "--time-split", "y", "--force").complaint
    words = csv_of(rows_of(day=["soon", "late"] * 100), tmp_path / "words.csv")
    assert "name a column of numbers or dates without gaps" in fit(words, "--time-split", "day", "--force").complaint
    gaps = csv_of(rows_of(day=[None, *day[1:]]), tmp_path / "gaps.csv")
    assert "name a column of numbers or dates without gaps" in fit(gaps, "--time-split", "day", "--force").complaint


@pytest.mark.slow
def test_a_seed_chooses_other_rows_and_another_model(tmp_path):
    data = csv_of(rows_of(), tmp_path / "data.csv")
    first, again, other = (fit_file(data, "y", model="et", seed=seed) for seed in (1, 1, 2))
    table = first.held_out
    assert table.equals(again.held_out)
    assert not table.equals(other.held_out)
    proba = [one.model.decide_and_score(table)[1] for one in (first, again, other)]
    np.testing.assert_array_equal(proba[0], proba[1])
    assert not np.array_equal(proba[0], proba[2])
    with pytest.raises(ValueError, match="seed must be a whole number"):
        fit_file(data, "y", seed=-1)


# words


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--coverage", "90"), "--coverage must be a number above 0 and at most 1, got 90: did you mean 0.9?"),
        (("--max-risk", "5"), "--max-risk must be a number above 0 and below 1, got 5: did you mean 0.05?"),
        (("--cost", "20"), "--cost must be a number of at least 0 and below 1, got 20: did you mean 0.2?"),
        (("--delta", "5"), "--delta must be a number above 0 and below 1, got 5: did you mean 0.05?"),
        (("--holdout", "20"), "--holdout must be a number of at least 0 and below 1, got 20: did you mean 0.2?"),
        (("--coverage", "-1"), "--coverage must be a number above 0 and at most 1, got -1: give a fraction."),
        (("--cost", "nan"), "--cost must be a number of at least 0 and below 1, got nan: give a fraction."),
    ],
)
def test_a_percentage_names_its_flag_and_the_fraction(fit, pets, options, words):
    assert fit(pets / "train.csv", *options).complaint == words


@pytest.mark.parametrize("options", [("--delta", "0.1"), ("--delta", "0.1", "--cost", "0.2")])
def test_a_delta_without_a_guarantee_is_refused(fit, pets, options):
    words = "--delta needs --max-risk or --coverage: give one of them, or leave --delta out."
    assert fit(pets / "train.csv", *options).complaint == words


def test_a_guarantee_share_without_a_guarantee_is_refused(fit, pets):
    complaint = fit(pets / "train.csv", "--guarantee-share", "0.3").complaint
    assert complaint.startswith("--guarantee-share needs --max-risk or --coverage")


def test_a_negative_time_budget_is_refused_with_its_flag(fit, pets):
    refused = fit(pets / "train.csv", "--time-budget", "-1")
    assert (refused.code, "--time-budget" in refused.errors) == (2, True)


def test_predict_names_the_flag_too(demur, pets):
    complaint = demur("predict", pets / "model", pets / "new.csv", "--cost", "20").complaint
    assert complaint == "--cost must be a number of at least 0 and below 1, got 20: did you mean 0.2?"


@pytest.mark.parametrize(("typed", "meant"), [("clas", "class"), ("Class", "class"), ("ages", "age")])
def test_a_mistyped_target_is_asked_about(demur, typed, meant, tmp_path):
    (tmp_path / "data.csv").write_text("size,age,class\n1,2,a\n")
    complaint = demur("fit", tmp_path / "data.csv", "--target", typed, "--out", tmp_path / "model").complaint
    assert f"there is no column '{typed}' to predict, did you mean '{meant}'?" in complaint


@pytest.mark.slow
def test_a_mistyped_target_is_found_before_torch_is_imported(tmp_path):
    (tmp_path / "data.csv").write_text("size,class\n1,a\n")
    code = (
        "import sys, demur.cli as c\n"
        f"sys.argv = ['demur', 'fit', {str(tmp_path / 'data.csv')!r}, '-t', 'clas', '-o', {str(tmp_path / 'm')!r}]\n"
        "try: c.run()\n"
        "except SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "did you mean 'class'?" in done.stderr
    assert done.stdout.strip() == "False"


def test_columns_may_come_in_another_order(demur, pets, tmp_path):
    lines = [line.split(",") for line in (pets / "new.csv").read_text().splitlines()]
    (tmp_path / "new.csv").write_text("\n".join(",".join(reversed(line)) for line in lines) + "\n")
    there, here = (demur("predict", pets / "model", folder / "new.csv") for folder in (pets, tmp_path))
    assert here.code == 0, here
    assert here.output == there.output
    there, here = (demur("evaluate", pets / "model", folder / "new.csv", "--json") for folder in (pets, tmp_path))
    assert here.code == 0, here
    assert json.loads(here.text)["figures"] == json.loads(there.text)["figures"]


def test_errors_of_a_spreadsheet_are_said(fit, tmp_path):
    table = rows_of()
    ages = ["#DIV/0!" if k % 50 == 3 else str(age) for k, age in enumerate(table["age"].to_pylist())]
    result = fit(csv_of(table.set_column(1, "age", pa.array(ages)), tmp_path / "data.csv"))
    assert result.code == 0, result
    assert "4 cells with a spreadsheet error such as '#DIV/0!' are missing" in result.errors
    assert {column.name: column.kind for column in load(tmp_path / "model").schema.columns}["age"] == "number"


def recoded(labels, kind, rng):
    large = np.array(labels) == "large"
    return {
        "number": np.where(large, 7, 3).tolist(),
        "text": np.where(large, "L", "S").tolist(),
        "cut": np.where(large, rng.uniform(0.5, 1, len(large)), rng.uniform(0, 0.5, len(large))).tolist(),
        "nearly": np.where(large ^ (np.arange(len(large)) == 5), "L", "S").tolist(),
    }[kind]


@pytest.mark.parametrize("kind", ["number", "text", "cut", "nearly"])
def test_a_column_that_gives_the_class_away_is_said(fit, kind, tmp_path):
    table = rows_of()
    leak = recoded(table["y"].to_pylist(), kind, np.random.default_rng(1))
    result = fit(csv_of(table.add_column(0, "outcome", pa.array(leak)), tmp_path / "data.csv"))
    assert result.code == 0, result
    assert "Note: column 'outcome' alone predicts the class of " in result.errors
    assert "--drop 'outcome'" in result.errors
    assert "'size'" not in result.errors


@pytest.mark.parametrize("n", [20, 60])
def test_chance_is_not_taken_for_a_leak(n):
    """Many columns of noise, in tables so small that some fit: none is said to be a leak."""
    rng = np.random.default_rng(n)
    for _ in range(2):
        noise = {f"x{k}": rng.normal(size=n).round(1) for k in range(30)}
        words = {f"w{k}": rng.choice(["a", "b"], n) for k in range(30)}
        labels = np.array(["cat", "dog"] * (n // 2))
        table = pa.table({**noise, **words, "y": labels})
        schema = Schema.learn(table, target="y", keep=[*noise, *words])
        assert likely_leaks(schema.encode(table), labels, schema) == []


# decimal commas and local dates


def test_a_model_remembers_how_its_table_was_written(fit, demur, tmp_path):
    table = rows_of()
    sizes = [f"{size:.3f}".replace(".", ",") for size in table["size"].to_pylist()]
    days = [f"{1 + k % 28}.{1 + k % 12}.2024" for k in range(200)]
    table = pa.table({"size": sizes, "day": days, "y": table["y"]})
    data = csv_of(table, tmp_path / "data.csv", ";")
    result = fit(data)
    assert result.code == 0, result
    assert "are read with a decimal comma" in result.errors
    assert "are read with the day first" in result.errors
    schema = load(tmp_path / "model").schema
    assert [column.kind for column in schema.columns] == ["number", "date"]
    assert (schema.notation["decimal"], schema.notation["dayfirst"]) == (",", True)
    (tmp_path / "new.csv").write_text("size;day\n-1,5;1.2.2024\n")
    (tmp_path / "other.csv").write_text("size,day\n-1.5,2024-02-01\n")
    (tmp_path / "american.csv").write_text("size,day\n-1.5,2/1/2024\n")
    answers = demur("predict", tmp_path / "model", tmp_path / "new.csv")
    assert answers.code == 0, answers
    complaint = demur("predict", tmp_path / "model", tmp_path / "other.csv").complaint
    assert "row 1, holds '-1.5', which is not a number: pass --decimal ." in complaint
    for name, flags in (("other.csv", ()), ("american.csv", ("--no-dayfirst",))):
        again = demur("predict", tmp_path / "model", tmp_path / name, "--decimal", ".", *flags)
        assert again.output == answers.output.replace(b";", b",")
    evaluated = demur("evaluate", tmp_path / "model", data, "--json")
    assert evaluated.code == 0, evaluated


def test_options_set_what_cannot_be_detected_in_a_file(fit, tmp_path):
    rows = "".join(f"1,{234 + k};{1 + k % 12}.{1 + k % 11}.2024;{'ab'[k % 2]}\n" for k in range(60))
    (tmp_path / "data.csv").write_text("size;day;y\n" + rows)
    result = fit(tmp_path / "data.csv", "--keep", "size", "--keep", "day")
    assert "may be 1.234 or 1234" in result.errors
    assert "may begin with the day or the month" in result.errors
    assert fit(tmp_path / "data.csv", "--decimal", ",", "--dayfirst", "--force").code == 0
    assert [column.kind for column in load(tmp_path / "model").schema.columns] == ["number", "date"]


# the library function behind the command


def test_fit_file_is_what_the_command_calls(fit, demur, pets, tmp_path):
    assert fit(pets / "train.csv").code == 0
    fitted = fit_file(io.BytesIO((pets / "train.csv").read_bytes()), "y", model="lr")
    assert fitted.model.answers(pq.read_table(pets / "new.parquet")).equals(
        load(tmp_path / "model").answers(pq.read_table(pets / "new.parquet"))
    )
    assert fitted.evaluate().n_rows == fitted.held_out.num_rows == 80
    assert fit_file(pets / "train.csv", "y", model="lr", holdout=0).evaluate() is None
    assert fit_file(pets / "train.csv", "y", model="lr", test=pets / "new.csv").evaluate().n_rows == 500


# a loss of one's own, by its file

BRIER = """
from dataclasses import dataclass

import torch
from demur.losses import Loss, register
from demur.rules import Decision, chow_acceptance


@register()
@dataclass(frozen=True)
class SquaredSoftmax(Loss):
    family = "confidence"
    equation = "Brier (1950)"
    why = "strictly proper"
    has_link = True
    name = "brier-of-a-test"

    def n_outputs(self, n_classes):
        return n_classes

    def forward(self, scores, y, cost):
        return ((torch.softmax(scores, -1) - torch.nn.functional.one_hot(y, scores.shape[-1])) ** 2).sum(-1)

    def inverse_link(self, scores):
        return torch.softmax(scores, -1)

    def rule(self, scores, cost):
        top = self.inverse_link(scores).amax(-1)
        return Decision.from_acceptance(scores.argmax(-1), chow_acceptance(top, cost), top)
"""


@pytest.mark.slow
def test_fit_takes_a_loss_by_its_file(demur, tmp_path):
    from demur.losses import unregister

    (tmp_path / "my_losses.py").write_text(BRIER)
    data = csv_of(rows_of(60), tmp_path / "data.csv")
    call = ("fit", data, "--target", "y", "--out", tmp_path / "model", "--model")
    result = demur(*call, f"{tmp_path / 'my_losses.py'}:SquaredSoftmax")
    assert result.code == 0, result
    assert "Trained networks trained with brier-of-a-test" in result.text
    assert demur("predict", tmp_path / "model", data).code == 0
    unregister("brier-of-a-test")
    assert "not registered here" in demur("predict", tmp_path / "model", data).complaint
    assert "there is no file" in demur(*call, "none.py:SquaredSoftmax", "--force").complaint
