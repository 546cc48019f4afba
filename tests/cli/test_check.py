"""``demur check`` from outside: exit codes, one sentence for a wrong call, JSON, a loss of one's own."""

import json
import subprocess
import sys

import pytest

from demur.cli import run

OWN_LOSSES = """
import torch
from demur.losses import CrossEntropy, Loss
from demur.theory import FunctionLoss

def brier(scores, y, cost):
    target = torch.nn.functional.one_hot(y, scores.shape[-1])
    return (torch.softmax(scores, -1) - target).square().sum(-1)

def shapeless(scores, y, cost):
    return scores.sum()

def nan(scores, y, cost):
    return scores[:, 0] * float("nan")

def detached(scores, y, cost):
    return scores[:, 0].detach()

def half(scores, cost):
    best = torch.softmax(scores, -1).max(-1)
    return best.indices, best.values <= 0.5

wrapped = FunctionLoss(brier, title="my own")
number = 7
"""


@pytest.fixture
def demur(monkeypatch, capsys):
    """Run ``demur check`` in this process, through the program's own entry point."""

    def call(*arguments, cwd=None):
        monkeypatch.setattr(sys, "argv", ["demur", "check", *map(str, arguments)])
        if cwd is not None:
            monkeypatch.chdir(cwd)
        with pytest.raises(SystemExit) as leaving:
            run()
        printed = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, leaving.value.code or 0, printed.out, printed.err)

    return call


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("own")
    (path / "own.py").write_text(OWN_LOSSES)
    (path / "broken.py").write_text("import no_such_module_at_all\n")
    return path


def test_a_refuted_loss_is_exit_code_3_verdict_first():
    call = [sys.executable, "-m", "demur", "check", "apc+log", "--classes", "8", "--cost", "0.2"]
    result = subprocess.run(call, capture_output=True, text=True, check=False)
    assert result.returncode == 3, result.stderr
    assert result.stdout.startswith("REFUTED: apc+log")
    order = [result.stdout.index(words) for words in ("REFUTED", "By definition", "By Theorem 4", "Beta", "Bounds")]
    assert order == sorted(order)
    assert "no beta works" in result.stdout
    assert "beta >= 9.86207" in result.stdout
    assert "beta <= 3.2" in result.stdout


def test_a_calibrated_loss_is_exit_code_0_with_its_bounds(demur):
    result = demur("ce", "--classes", 3, "--cost", 0.2, "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["calibrated"]
    assert report["fails"] == []
    assert report["counterexample"] is None
    assert report["bound"]["theorem"] == "Theorem 8"
    for theorem, tightest in zip(report["tightest"]["theorem"], report["tightest"]["tightest"], strict=True):
        assert tightest > theorem


def test_options_reach_the_loss(demur, tmp_path):
    picture = tmp_path / "decisions.png"
    result = demur("apc+exp", "--classes", 2, "--beta", 4.4, "--alpha", 1.0, "--json", "--figure", picture)
    assert result.returncode == 3, result.stderr
    report = json.loads(result.stdout)
    assert report["loss"] == "apc+exp (beta = 4.4)"
    assert report["fails"] == ["false_accept"]
    assert report["beta"] == {"value": 4.4, "acc": 4.0, "rej": 4.0, "some_beta_works": True}
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["own:brier", "own.py:brier", "own:wrapped"])
def test_a_loss_of_ones_own(demur, name, folder):
    result = demur(name, "--classes", 3, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("CALIBRATED: " + ("my own" if name.endswith("wrapped") else "brier"))


def test_a_rule_of_ones_own(demur, folder):
    result = demur("own:brier", "--rule", "own:half", "--classes", 3, cwd=folder)
    assert result.returncode == 3, result.stderr
    assert "false accepts" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("no+such",), "unknown loss"),
        (("ce", "--cost", 0.9), "needs a cost in (0, 0.666667)"),
        (("ce", "--classes", 1), "at least two classes"),
        (("mh", "--classes", 3), "two classes only"),
        (("ce", "--beta", 2), "ce has no beta"),
        (("apc+log", "--beta", "some"), "'acc', 'rej' or 'mean'"),
        (("ova+hin", "--tau", 3), "tau must lie strictly between"),
        (("own:missing",), "has no object 'missing'"),
        (("nowhere:loss",), "cannot import 'nowhere'"),
        (("broken:loss",), "no_such_module_at_all"),
        (("none.py:loss",), "there is no file"),
        (("own:number",), "a function of (scores, y, cost)"),
        (("own:shapeless",), "one loss per row"),
        (("own:nan",), "NaN or infinity"),
        (("own:detached",), "not differentiable"),
        (("ce", "--figure", "no/such/folder/x.png"), "there is no folder"),
        (("ce", "--rule", "softmax"), "brings its own decision rule"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_exit_code_2(demur, arguments, words, folder):
    result = demur(*arguments, cwd=folder)
    assert result.returncode == 2
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_help_has_an_example(demur):
    result = demur("--help")
    assert "Example: demur check apc+log --classes 8 --cost 0.2" in result.stdout
    assert "refuted" in result.stdout
