"""``demur reproduce``: exit codes, messages, and one small run through the whole program."""

import json

import pytest
from typer.testing import CliRunner

from demur.cli.app import app
from demur.cli.console import CallError
from demur.paper import render

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
    monkeypatch.setattr(render, "_figures", lambda material: {})


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
    second = call(*SMALL, "--tables-only", "--json")
    assert second.exit_code == 0
    summary = json.loads(second.stdout)
    assert summary["quick"] is True
    assert summary["complete"] is False
    assert summary["notes"] == {"vehicle": "synthetic stand-in of the same shape, not the real data"}
    assert {claim["verdict"] for claim in summary["claims"]} <= {"holds", "depends", "does not hold", "not tested"}
    assert page.read_text() == before


def test_published_figures_are_shown_beside_real_data_only(tmp_path):
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "benchmark_tables.csv").write_text(
        "metric,dataset,cost,method,mean,std,best_or_equivalent\nzoc_risk,vehicle,0.05,CE,0.036,0.0007,1\n"
    )
    done = call(*SMALL, "--published", str(folder), "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["published"] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["reproduce", "everything"], "unknown experiment 'everything'; there are synthetic, benchmark and all."),
        ([*SMALL, "--set", "speed=9"], "has no setting 'speed'"),
        ([*SMALL, "--methods", "SVM"], "unknown method 'SVM'"),
        ([*SMALL, "--device", "tpu"], "unknown device 'tpu'"),
        ([*SMALL, "--published", "/nowhere"], "/nowhere has no benchmark_tables.csv"),
        ([*SMALL, "--out", "/proc/nowhere"], "cannot write to /proc/nowhere"),
        ([*SMALL, "--scheduler", "slurm"], "scheduler must be 'local:N'"),
        ([*SMALL, "--tables-only"], "has no record of this"),
    ],
)
def test_wrong_calls(arguments, message):
    result = call(*arguments)
    assert isinstance(result.exception, CallError)
    assert message in str(result.exception)


def test_data_that_cannot_be_had_end_the_run_before_it_begins(monkeypatch):
    from demur.datasets import uci_download

    def refuse(url, output_file, pooch):
        raise ConnectionError("no network")

    monkeypatch.setattr(uci_download, "_downloader", lambda url: refuse)
    result = call("reproduce", "benchmark", "--problems", "letter", "--device", "cpu")
    assert isinstance(result.exception, CallError)
    assert "downloading it from https://archive.ics.uci.edu" in str(result.exception)


def test_work_that_fails_is_exit_code_one():
    result = call(*SMALL, "--set", "learning_rate=1e38")
    assert result.exit_code == 1
    assert "every network of CE on vehicle diverged" in result.output
    assert "1 of the units failed (CE on vehicle)" in result.output


def test_an_interrupt_says_how_to_continue(monkeypatch):
    from demur.paper import runner

    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "compute", stop)
    result = call(*SMALL)
    assert result.exit_code == 1
    assert "the same command continues" in result.output
