"""The command line as a stranger meets it."""

import json
import subprocess
import sys

import pytest


def as_process(*arguments):
    return subprocess.run([sys.executable, "-m", "demur", *arguments], capture_output=True, text=True, check=False)


def test_methods_lists_every_loss(demur):
    from demur.losses import available

    result = demur("methods")
    assert result.code == 0
    for name in available():
        assert f" {name} " in result.text
    rows = json.loads(demur("methods", "--json").text)
    assert {row["name"] for row in rows} == set(available())
    by_name = {row["name"]: row for row in rows}
    assert by_name["ce"]["calibrated"] == "yes"
    assert by_name["apc+log"]["calibrated"] == "K = 2 only"
    assert by_name["ova+hin"]["refit_when_cost_changes"]
    assert not by_name["ova+log"]["refit_when_cost_changes"]


@pytest.mark.slow
def test_demo_is_the_whole_journey(tmp_path):
    result = as_process("demo", "--out", str(tmp_path / "tour"))
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    for command in ("fit", "evaluate", "predict"):
        assert f"$ demur {command} " in result.stdout
    assert "At cost 0.1, the model answers" in result.stdout
    for name in ("report.html", "decisions.csv", "model"):
        assert str(tmp_path / "tour" / name) in result.stdout
        assert (tmp_path / "tour" / name).exists()
    assert len((tmp_path / "tour" / "decisions.csv").read_text().splitlines()) == 101
    again = as_process("demo", "--out", str(tmp_path / "tour"))
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.slow
def test_it_is_a_program(demur):
    """What runs in this process for the other tests is what ``python -m demur`` runs."""
    for arguments in (("--version",), ("methods", "--wrong")):
        here, there = demur(*arguments), as_process(*arguments)
        assert there.returncode == here.code
        assert there.stdout == here.text
        assert bool(there.stderr) == bool(here.errors)


def test_help_and_version(demur):
    from demur import __version__

    assert demur("--version").text.strip() == f"demur {__version__}"
    assert "Usage" in demur("--help").text


@pytest.mark.parametrize("arguments", [("nonsense",), ("methods", "--wrong"), ("demo", "extra", "and", "more")])
def test_a_wrong_call_is_exit_code_2_without_a_traceback(demur, arguments):
    result = demur(*arguments)
    assert result.code == 2
    assert "Traceback" not in result.errors
    assert result.errors.strip()


@pytest.mark.parametrize("command", ["demo", "methods"])
def test_every_help_has_an_example(demur, command):
    assert f"Example: demur {command}" in demur(command, "--help").text
