"""``demur reproduce``: exit codes, messages, and one small run through the whole program."""

import re
import sys

import pytest
from typer.testing import CliRunner

from demur.cli.app import app
from demur.errors import UserError
from demur.paper import pages
from demur.paper.records import Store

SMALL = [
    *("reproduce", "benchmark", "--quick", "--data", "/nonexistent", "--problems", "vehicle", "--methods", "CE"),
    *("--set", "epochs=1", "--device", "cpu"),
]


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEMUR_DATA", raising=False)
    monkeypatch.delenv("DEMUR_PUBLISHED", raising=False)


@pytest.fixture(autouse=True)
def without_figures(monkeypatch):
    monkeypatch.setattr(pages, "draw_figures", lambda *results: {})


def call(*arguments):
    return CliRunner().invoke(app, list(arguments))


def test_a_small_run_then_only_tables(tmp_path):
    first = call(*SMALL)
    assert first.exit_code == 0, first.output
    assert "README.md" in first.output
    assert "stand-in" in first.output
    page = tmp_path / "results" / "quick" / "README.md"
    assert "A quick run" in page.read_text()
    before = page.read_text()
    assert "Not complete" in before
    assert call(*SMALL, "--tables-only").exit_code == 0
    assert page.read_text() == before


def test_a_quick_run_says_that_the_data_are_stand_ins_before_its_verdicts():
    done = call(*SMALL)
    assert done.exit_code == 0, done.output
    said, verdicts = done.stdout.index("stand-in"), done.stdout.index("The paper's statements, tested on")
    assert said < verdicts


def test_records_only_draws_nothing_and_needs_no_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = call(*SMALL)
    assert isinstance(refused.exception, UserError)
    assert 'pip install "demur[paper]"' in str(refused.exception)
    assert not (tmp_path / "results").exists()  # refused before anything was computed
    done = call(*SMALL, "--records-only")
    assert done.exit_code == 0, done.output
    assert re.search(r"^\[1/1\] benchmark vehicle CE: 6 networks, training", done.stderr, re.MULTILINE)
    found = [path.suffix for path in tmp_path.joinpath("results").rglob("*") if path.is_file()]
    assert found == [".jsonl"]


def test_reproduce_takes_a_registered_loss_and_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\n"
        "from demur.losses import CrossEntropy\n"
        "@dataclass(frozen=True)\n"
        "class Mine(CrossEntropy):\n"
        "    name = property(lambda self: 'mine')\n"
    )
    done = call(*SMALL, "--methods", "ova+log,mine.py:Mine")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "results" / "quick" / "tables.md").read_text()
    assert "| data set | c | CE | OVA+sq | OVA+sqhin | CS+hin | BEP | mine |" in page
    names = [record.spec["method"]["name"] for record in Store(tmp_path / "results" / "quick", "benchmark").records()]
    assert names == ["OVA+log", "mine"]


def test_published_figures_are_shown_beside_real_data_only(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "benchmark_tables.csv").write_text(
        "metric,dataset,cost,method,mean,std,best_or_equivalent\nzoc_risk,vehicle,0.05,CE,0.036,0.0007,1\n"
    )
    done = call(*SMALL, "--published", str(folder))
    assert done.exit_code == 0, done.output
    assert "Against the published" not in (tmp_path / "results" / "quick" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["reproduce", "everything"],
            "unknown experiment 'everything'; there are synthetic, benchmark, modern",
        ),
        ([*SMALL, "--set", "speed=9"], "has no setting 'speed'"),
        ([*SMALL, "--methods", "SVM"], "unknown method 'SVM'"),
        ([*SMALL, "--device", "tpu"], "unknown device 'tpu'"),
        ([*SMALL, "--published", "/nowhere"], "/nowhere has no benchmark_tables.csv"),
        ([*SMALL, "--out", "/proc/nowhere"], "cannot write to /proc/nowhere"),
        (["reproduce", "modern", "--protocol", "published"], "the published protocol is one of the benchmark, not of"),
        (["reproduce", "benchmark", "--protocol", "mine"], "unknown protocol 'mine'; there are ours and published"),
        ([*SMALL, "--scheduler", "slurm"], "scheduler must be an address"),
        ([*SMALL, "--tables-only"], "has no records of this"),
        ([*SMALL, "--tables-only", "--records-only"], "give only one of them"),
        ([*SMALL, "--methods", "mine.py:Loss"], "there is no file mine.py"),
        ([*SMALL, "--problems", "nowhere"], "unknown problem 'nowhere'; there are vehicle"),
        ([*SMALL, "--set", "epochs"], "--set takes NAME=VALUE"),
        ([*SMALL, "--set", "epochs=many"], "setting epochs must be like 150, got 'many'"),
    ],
)
def test_wrong_calls(arguments, message):
    result = call(*arguments)
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)


def test_data_that_cannot_be_had_end_the_run_before_it_begins(monkeypatch):

    def refuse(url, output_file, pooch):
        raise ConnectionError("no network")

    monkeypatch.setattr("pooch.core.choose_downloader", lambda *_, **__: refuse)
    result = call("reproduce", "benchmark", "--problems", "letter", "--device", "cpu")
    assert isinstance(result.exception, UserError)
    assert "downloading it from https://archive.ics.uci.edu" in str(result.exception)


def test_work_that_fails_is_exit_code_one(demur):
    result = demur(*SMALL, "--set", "learning_rate=1e38")
    assert result.code == 1
    assert "every network of CE on vehicle diverged" in result.errors
    assert "demur: 1 of the jobs failed (CE on vehicle)" in result.errors
