"""Adding a loss takes one class and touches no other file."""

import json
import re
import sys
from dataclasses import dataclass
from math import exp, log
from typing import get_args

import pytest
import torch

from demur.errors import UserError
from demur.losses import CrossEntropy, Loss, available, get, register, resolve, unregister
from demur.losses.loss import Family
from demur.rules import Decision

DESIGN_KEYS = {
    *("ce", "ova+log", "ova+exp", "ova+sq", "ova+sqhin", "ova+hin", "cs+hin", "bep"),
    *("apc+log", "apc+exp", "mpc+log", "mpc+exp", "pb+log", "pb+exp", "mh"),
    *("margin+log", "margin+exp", "margin+sq", "margin+sqhin"),
    *("ms", "cao", "mao+exp", "mao+mae", "asm", "vn", "pr+mae", "pr+2stage", "csova+log", "csova+sqhin"),
    *("ls", "focal", "gce", "brier", "gamblers", "dac"),
}


def test_every_key_of_the_design_is_registered():
    assert set(available()) == DESIGN_KEYS
    for name in available():
        assert get(name).name == name


@pytest.mark.parametrize("name", sorted(DESIGN_KEYS))
def test_every_loss_states_its_facts(name):
    loss = get(name)
    assert loss.family in get_args(Family)
    assert loss.equation
    assert loss.why
    assert type(loss).__doc__


@dataclass(frozen=True)
class Toy(Loss):
    """Squared distance to the one-hot label, rejecting below a score of 1 - c."""

    family = "confidence"
    equation = "none"
    why = "the mean of one-hot labels is eta"
    has_link = True

    @property
    def name(self):
        return "toy"

    def n_outputs(self, n_classes):
        return n_classes

    def forward(self, scores, y, cost):
        return (scores - torch.nn.functional.one_hot(y, scores.shape[-1])).square().sum(-1)

    def inverse_link(self, scores):
        return scores

    def rule(self, scores, cost):
        return Decision.from_acceptance(scores.argmax(-1), scores.amax(-1) - (1 - cost))


@pytest.fixture
def toy():
    yield register()(Toy)
    unregister("toy")


def test_a_toy_loss_is_one_class(toy):
    assert "toy" in available(n_classes=3)
    loss = get("toy")
    assert loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item() == 0
    assert loss.decide(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), 0.2).reject.tolist() == [False, True]


def test_a_toy_loss_obeys_the_calibration_law(toy):
    from demur.theory import minimise_pointwise_risk

    eta = torch.tensor([[0.9, 0.05, 0.05], [0.5, 0.3, 0.2]], dtype=torch.float64)
    assert torch.allclose(minimise_pointwise_risk(get("toy"), eta, 0.2), eta)


def test_the_command_line_finds_it(toy, capsys):
    from demur.cli.losses import methods

    methods(as_json=True)
    assert "toy" in [row["name"] for row in json.loads(capsys.readouterr().out)]


def test_a_name_belongs_to_one_class(toy):
    register()(Toy)  # running the same cell of a notebook twice is fine

    @dataclass(frozen=True)
    class Thief(Toy):
        pass

    with pytest.raises(ValueError, match="'toy' is registered already"):
        register()(Thief)


def test_unknown_names_and_fields():
    with pytest.raises(ValueError, match=r"unknown loss 'crossentropy'\. .*Available: apc"):
        get("crossentropy")
    with pytest.raises(TypeError, match="tau"):
        get("ce", tau=1)
    assert isinstance(get("ce"), CrossEntropy)


OWN_FILE = """
from dataclasses import dataclass
from demur.losses import CrossEntropy, Loss

@dataclass(frozen=True)
class Sharp(CrossEntropy):
    sharpness: float = 2.0
    name = property(lambda self: f"sharp-{self.sharpness:g}")
    def forward(self, scores, y, cost):
        return super().forward(self.sharpness * scores, y, cost)

@dataclass(frozen=True)
class Needy(CrossEntropy):
    must: float
    name = "needy"

class Unfinished(Loss):
    pass

blunt = Sharp(0.5)

def flat(scores, y, cost):
    return scores.square().sum(-1)

number = 3
runs = []
"""


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_losses.py").write_text(OWN_FILE)
    (tmp_path / "broken.py").write_text("1 / 0")
    yield "own_losses.py"
    sys.modules.pop("own_losses", None)


def test_a_loss_is_found_by_its_name_its_file_or_itself(own_file):
    assert resolve("apc+log") == get("apc+log")
    assert resolve(CrossEntropy) == CrossEntropy()
    sharp = resolve(f"{own_file}:Sharp")
    assert sharp.name == "sharp-2"
    assert sharp(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).item() == pytest.approx(log(1 + exp(-2)))
    assert resolve(f"{own_file}:blunt").sharpness == 0.5
    assert resolve("own_losses:blunt").sharpness == 0.5
    flat = resolve(f"{own_file}:flat", rule="rejector")
    assert (flat.name, flat.n_outputs(3)) == ("flat", 4)
    assert resolve(flat) is flat


def test_a_file_is_run_once_and_takes_no_other_module_s_place(own_file, tmp_path):
    assert type(resolve(f"{own_file}:Sharp")) is type(resolve(f"./{own_file}:blunt"))
    (tmp_path / "json.py").write_text(OWN_FILE)
    assert resolve("json.py:blunt").sharpness == 0.5
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crossentropy", "unknown loss 'crossentropy'"),
        ("missing.py:Sharp", "there is no file missing.py"),
        ("broken.py:Sharp", "cannot import 'broken.py': ZeroDivisionError"),
        ("no_such_module:Sharp", "cannot import 'no_such_module'"),
        ("own_losses.py:Shrap", "has no object 'Shrap'. Did you mean 'Sharp'?"),
        ("own_losses.py:", "is not of the form"),
        ("own_losses.py:number", "a function of (scores, y, cost), got int"),
        ("own_losses.py:Path", "has no object"),
        ("own_losses.py:Needy", "cannot be made without arguments"),
        ("own_losses.py:Unfinished", "abstract methods forward, name"),
    ],
)
def test_what_is_not_a_loss_is_refused_in_words(own_file, name, words):
    with pytest.raises(UserError, match=re.escape(words)):
        resolve(name)
    assert "broken" not in sys.modules


def test_a_rule_goes_with_a_plain_function_only(own_file):
    with pytest.raises(TypeError, match="brings its own decision rule"):
        resolve("ce", rule="softmax")


def test_the_command_line_lists_a_loss_by_its_file(own_file, monkeypatch, capsys):
    from demur.cli.app import run

    monkeypatch.setattr(sys, "argv", ["demur", "methods", f"{own_file}:Sharp", "--json"])
    with pytest.raises(SystemExit) as leaving:
        run()
    assert not leaving.value.code
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == DESIGN_KEYS | {"sharp-2"}
    assert rows["sharp-2"]["calibrated"] == "yes"
    monkeypatch.setattr(sys, "argv", ["demur", "methods", f"{own_file}:Nothing"])
    with pytest.raises(SystemExit) as leaving:
        run()
    assert leaving.value.code == 2
    assert "has no object 'Nothing'" in capsys.readouterr().err


def test_the_gpu_program_knows_every_loss_and_margin_function_that_names_its_form_there():
    from pathlib import Path

    import demur.training
    from demur.margins import available_margins, get_margin

    source = (Path(demur.training.__file__).parent / "fused_kernels.py").read_text()
    named = [get(name).kernel for name in available()] + [get_margin(name).kernel for name in available_margins()]
    for kernel in {*named} - {None}:
        assert f'== "{kernel}"' in source
