"""Certificates: for every registered loss that is calibrated but the hinges, and for none that is not."""

from dataclasses import replace

import pytest
import torch

from demur.losses import available, get
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Logistic
from demur.theory.bayes import as_target
from demur.theory.certificate import CLEAR, certify
from demur.theory.subject import examine

SMOOTH = [name for name in available() if get(name).family != "hinge"]
"""Asymmetric softmax and two stages, which are not smooth, have proofs too."""


@pytest.mark.parametrize(
    "cost", [0.2, pytest.param(0.01, marks=pytest.mark.slow), pytest.param(0.49, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "n_classes", [pytest.param(2, marks=pytest.mark.slow), 3, pytest.param(4, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", SMOOTH)
def test_every_loss_that_claims_calibration_has_a_proof(name, n_classes, cost):
    loss = get(name)
    n_classes = 2 if loss.binary_only else n_classes
    certificate = certify(examine(loss.for_classes(n_classes), as_target(cost, n_classes)))
    assert (certificate is not None) == loss.calibrated_for(n_classes)


@pytest.mark.parametrize("name", [name for name in SMOOTH if isinstance(get(name), PairwiseLoss)])
def test_a_beta_that_is_a_little_off_has_none(name):
    right = get(name)
    beta = float(right.beta_value(2, 0.2))
    for factor in (1 - 1e-6, 1 + 1e-6):
        assert certify(examine(replace(right, beta=beta * factor), as_target(0.2, 2))) is None


def test_a_link_that_is_a_little_off_has_none():
    class Tilted(Logistic):
        def inverse_link(self, z):
            return torch.sigmoid(z * (1 + 1e-6))

    assert certify(examine(replace(get("ova+log"), phi=Tilted()), as_target(0.2, 3))) is None


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("ms", {"alpha": 1 + 1e-6}),
        ("pr+mae", {"alpha": 1 + 1e-6}),
        ("dac", {"alpha": 0.3}),
        ("gamblers", {"tau": 0.99}),
    ],
)
def test_parameters_that_lose_calibration_have_none(name, changed):
    assert certify(examine(replace(get(name), **changed), as_target(0.2, 2))) is None


@pytest.mark.parametrize("name", ["ls", "brier", "gce", "focal"])
def test_a_link_of_another_loss_has_none(name):
    """The loss is proper, but what it takes for probabilities is not eta."""
    loss = get(name)
    tilted = type(loss)(**vars(loss))
    object.__setattr__(tilted, "inverse_link", lambda scores: torch.softmax(1.001 * scores, -1))
    assert certify(examine(loss, as_target(0.2, 3))) is not None
    assert certify(examine(tilted, as_target(0.2, 3))) is None


@pytest.mark.parametrize("name", ["ce", "cao", "mao+exp", "mao+mae", "asm", "pr+2stage", "csova+log", "vn"])
def test_a_formula_that_is_a_little_off_has_none(name):
    loss = get(name)
    changed = type(loss)(**vars(loss))
    object.__setattr__(changed, "forward", lambda s, y, c: loss.forward(s, y, c) + 1e-4 * s.square().sum(-1))
    assert certify(examine(loss, as_target(0.2, 3))) is not None
    assert certify(examine(changed, as_target(0.2, 3))) is None


def test_other_costs_have_none():
    assert certify(examine(get("ce"), as_target([0.1, 0.2, 0.3], 3))) is None


def test_it_says_what_it_proves():
    certificate = certify(examine(get("apc+log"), as_target(0.2, 2)))
    assert certificate.n_boxes > 10
    assert f">= {CLEAR:g}" in certificate.statement
    assert certificate.as_dict()["checked"] == list(certificate.checked)
