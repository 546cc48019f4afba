"""A loss of the user's own is saved by name: its code stays with the user."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from demur import RejectClassifier
from demur.deploy import ModelFileError, load, save
from demur.losses import Loss, register, unregister
from demur.rules import Decision, chow_acceptance

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
    with pytest.raises(ModelFileError, match=r"the loss 'tempered-2', which is not registered here; import the module"):
        load(tmp_path / "model")


def test_a_loss_that_is_not_registered_cannot_be_saved(tmp_path):
    with pytest.raises(ModelFileError, match=r"model\.loss: the loss Tempered is not registered"):
        save(RejectClassifier(Tempered(3.0)), tmp_path / "model")
