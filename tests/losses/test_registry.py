"""Adding a loss takes one class and touches no other file."""

from dataclasses import dataclass

import pytest
import torch

from demur.losses import CrossEntropy, Loss, available, get, register, unregister
from demur.rules import Decision

DESIGN_KEYS = {
    *("ce", "ova+log", "ova+exp", "ova+sq", "ova+sqhin", "ova+hin", "cs+hin", "bep"),
    *("apc+log", "apc+exp", "mpc+log", "mpc+exp", "pb+log", "pb+exp", "mh"),
    *("margin+log", "margin+exp", "margin+sq", "margin+sqhin"),
}


def test_every_key_of_the_design_is_registered():
    assert set(available()) == DESIGN_KEYS
    for name in available():
        assert get(name).name == name


@pytest.mark.parametrize("name", sorted(DESIGN_KEYS))
def test_every_loss_states_its_facts(name):
    loss = get(name)
    assert loss.family in ("confidence", "classifier-rejector", "hinge")
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
    from demur.cli.methods import methods

    methods(as_json=True)
    assert '"toy"' in capsys.readouterr().out


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
