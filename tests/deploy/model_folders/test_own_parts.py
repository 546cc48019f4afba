"""A loss, a margin function or a rule of the user's own is saved by name: its code stays with the user."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from demur import RejectClassifier, RejectOption
from demur.deploy import ModelFileError, load, save
from demur.losses import Loss, get, register, unregister
from demur.margins import MarginFunction, available_margins, register_margin, unregister_margin
from demur.rules import Decision, Rule, available_rules, chow_acceptance, register_rule, unregister_rule

X, Y = load_iris(return_X_y=True)


@dataclass(frozen=True)
class Tempered(Loss):
    """Cross-entropy at a temperature."""

    temperature: float = 1.0
    family = "confidence"
    equation = "a test's"
    why = "strictly proper"
    has_link = True
    name = property(lambda self: f"tempered-{self.temperature:g}")

    def n_outputs(self, n_classes):
        return n_classes

    def inverse_link(self, scores):
        return torch.softmax(scores / self.temperature, -1)

    def forward(self, scores, y, cost):
        return -torch.log(self.inverse_link(scores)).gather(-1, y[..., None])[..., 0]

    def rule(self, scores, cost):
        top = self.inverse_link(scores).amax(-1)
        return Decision.from_acceptance(scores.argmax(-1), chow_acceptance(top, cost), top)


@pytest.fixture
def registered():
    register({"temperature": 2.0})(Tempered)
    yield
    unregister("tempered-2")


def test_a_registered_loss_is_saved_by_name_and_fields(registered, tmp_path):
    model = RejectClassifier(Tempered(3.0), epochs=2, hidden_units=3, random_state=0).fit(X, Y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.loss_ == Tempered(3.0)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_where_it_is_not_registered_the_error_asks_for_it(tmp_path):
    register({"temperature": 2.0})(Tempered)
    save(RejectClassifier(Tempered(3.0)), tmp_path / "model")
    unregister("tempered-2")
    with pytest.raises(ModelFileError, match=r"Tempered, which is .* not registered here; .*import the module"):
        load(tmp_path / "model")


def test_a_loss_that_is_not_registered_cannot_be_saved(tmp_path):
    with pytest.raises(ModelFileError, match=r"model\.loss: .*Tempered is neither .* and is not registered"):
        save(RejectClassifier(Tempered(3.0)), tmp_path / "model")


@dataclass(frozen=True)
class Savage(MarginFunction):
    """1 / (1 + e^z)^2, at a scale."""

    scale: float = 1.0
    name = "savage"
    bound_constant = 1.0
    bound_exponent = 2.0

    def __call__(self, z):
        return torch.sigmoid(-z / self.scale) ** 2

    def inverse_link(self, z):
        return torch.sigmoid(z / self.scale)


class Lead(Rule):
    """Answer iff the two largest probabilities differ by more than ``lead``."""

    name = "lead"

    def __init__(self, lead):
        self.lead = lead

    def _decide(self, proba):
        second, first = np.moveaxis(np.sort(proba, axis=-1)[..., -2:], -1, 0)
        return Decision.from_acceptance(proba.argmax(axis=-1), first - second - self.lead)

    def explain(self):
        return f"It answers where the likeliest class leads by more than {self.lead}."


@pytest.fixture
def own_margin():
    register_margin(Savage)
    yield
    if "savage" in available_margins():
        unregister_margin("savage")


@pytest.fixture
def own_rule():
    register_rule(Lead)
    yield
    if "lead" in available_rules():
        unregister_rule("lead")


def test_a_margin_function_of_the_users_own_is_saved(own_margin, tmp_path):
    model = RejectClassifier(get("ova+log", phi=Savage(2.0)), epochs=2, hidden_units=3, random_state=0).fit(X, Y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.loss_.phi == Savage(2.0)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    unregister_margin("savage")
    with pytest.raises(ModelFileError, match=r"Savage, which is .* not registered here"):
        load(tmp_path / "model")


def test_a_rule_of_the_users_own_is_saved(own_rule, tmp_path):
    model = RejectOption(GaussianNB(), rule=Lead(0.5), cv=2).fit(X, Y)
    save(model, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert type(loaded.rule_) is Lead
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert 0 < loaded.decide(X).reject.sum() < len(X)
    unregister_rule("lead")
    with pytest.raises(ModelFileError, match=r"Lead, which is .* not registered here"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("part", "register_"), [(Savage(), "register_margin"), (Lead(0.5), "register_rule")], ids=["margin", "rule"]
)
def test_what_is_not_registered_cannot_be_saved(part, register_, tmp_path):
    with pytest.raises(ModelFileError, match=rf"model: .* is not registered; .*{register_}"):
        save(part, tmp_path / "model")
