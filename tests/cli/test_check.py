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

def four(scores, y, cost):
    log_p = torch.log_softmax(scores, -1)
    return -log_p.gather(-1, y[:, None])[:, 0] - (1 - cost) * log_p[:, -1]

def four_rule(scores, cost):
    return scores.argmax(-1), scores.argmax(-1) == scores.shape[-1] - 1

def constant(scores, y, cost):
    return 1 + 0 * scores.sum(-1)


def flat(scores, y, cost):
    return torch.relu(torch.nn.functional.cross_entropy(scores, y, reduction="none") - 3)

class Own(CrossEntropy):
    name = "own ce"

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


@pytest.mark.slow
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
    assert (report["verdict"], report["evidence"]) == ("calibrated", "theorem")
    assert report["bound"]["theorem"] == "Theorem 8"
    for theorem, tightest in zip(report["tightest"]["theorem"], report["tightest"]["tightest"], strict=True):
        assert tightest > theorem


@pytest.mark.slow
def test_options_reach_the_loss(demur, tmp_path):
    picture = tmp_path / "decisions.png"
    result = demur("apc+exp", "--classes", 2, "--beta", 4.4, "--alpha", 1.0, "--json", "--figure", picture)
    assert result.returncode == 3, result.stderr
    report = json.loads(result.stdout)
    assert report["loss"] == "apc+exp (beta = 4.4)"
    assert report["fails"] == ["false_accept"]
    assert report["beta"] == {"value": 4.4, "acc": 4.0, "rej": 4.0, "some_beta_works": True}
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("name", "title"), [("own:brier", "brier"), ("own:wrapped", "my own"), ("own.py:Own", "own ce")]
)
@pytest.mark.slow
def test_a_loss_of_ones_own(demur, name, title, folder):
    result = demur(name, "--classes", 2, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"CALIBRATED: {title}")


@pytest.mark.slow
def test_any_number_of_scores(demur, folder):
    call = ("own.py:four", "--classes", 3, "--cost", 0.2, "--rule", "own.py:four_rule")
    result = demur(*call, "--outputs", 4, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert "with 4 scores" in result.stdout
    plain = demur("own.py:four", "--outputs", 4, "--classes", 3, "--cost", 0.2, cwd=folder)
    assert plain.returncode == 0, plain.stderr
    assert "score 4 was used as the score of declining" in plain.stderr
    assumed = demur(*call, cwd=folder)
    assert assumed.returncode in (3, 4)
    assert "never answered class 2" in assumed.stderr
    assert "--outputs" in assumed.stderr


def test_an_inconclusive_check_is_exit_code_4_and_says_what_would_settle_it(demur, folder):
    result = demur("own.py:flat", "--classes", 2, "--json", cwd=folder)
    assert result.returncode == 4, result.stderr
    report = json.loads(result.stdout)
    assert report["verdict"] == "inconclusive"
    assert report["would_settle"]
    assert report["witnesses"] == []


@pytest.mark.slow
def test_a_constant_loss_is_refuted_and_written_as_latex_with_a_script(demur, folder, tmp_path):
    result = demur("own.py:constant", "--classes", 2, "--latex", tmp_path / "proof.tex", "--repair", cwd=folder)
    assert result.returncode == 3, result.stderr
    assert "No rule exists" in result.stdout
    assert r"\begin{proof}" in (tmp_path / "proof.tex").read_text()
    assert "import torch" in (tmp_path / "proof.py").read_text()


@pytest.mark.slow
def test_other_costs(demur, folder, tmp_path):
    assert demur("ce", "--cost", "0.1,0.3,0.3").returncode == 0
    matrix = tmp_path / "costs.csv"
    matrix.write_text("0,1,0.3\n10,0,0.3\n")
    result = demur("ce", "--classes", 2, "--cost-matrix", matrix, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["cost"] == [[0, 1, 0.3], [10, 0, 0.3]]
    matrix.write_text("true,a,b,reject\na,0,1,0.3\nb,10,0,0.3\n")
    assert demur("ce", "--classes", 2, "--cost-matrix", matrix).returncode == 0
    matrix.write_text("0,one,0.3\n")
    wrong = demur("ce", "--classes", 2, "--cost-matrix", matrix)
    assert wrong.returncode == 2
    assert "is not a matrix of numbers" in wrong.stderr


@pytest.mark.slow
def test_a_rule_of_ones_own(demur, folder):
    result = demur("own:brier", "--rule", "own:half", "--classes", 2, cwd=folder)
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
        (("apc+log", "--beta", "1,2"), "'acc', 'rej' or 'mean', got '1,2'"),
        (("ova+hin", "--tau", 3), "tau must be in (-1, 1), got 3"),
        (("own:missing",), "has no object 'missing'"),
        (("nowhere:loss",), "cannot import 'nowhere'"),
        (("broken:loss",), "no_such_module_at_all"),
        (("none.py:loss",), "there is no file"),
        (("own:number",), "a function of (scores, y, cost)"),
        (("own:shapeless",), "one loss per row"),
        (("own:nan",), "NaN or infinity"),
        (("own:detached",), "not differentiable"),
        (("ce", "--figure", "no/such/folder/x.png"), "No such file or directory"),
        (("mh", "--classes", 2, "--figure", "x.unknown"), "--figure x.unknown: Format 'unknown' is not supported"),
        (("ce", "--rule", "softmax"), "brings its own decision rule"),
        (("ce", "--outputs", 7), "outputs can be given for a plain function only"),
        (("own:brier", "--outputs", 6), "it needs a rule (rule=, --rule)"),
        (("ce", "--cost", "cheap"), "is not a number"),
        (("ce", "--cost", "0.1,0.2"), "3 numbers"),
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
