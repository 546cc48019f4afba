"""Certificates: for every registered loss that is calibrated but the hinges, and for none that is not."""

import functools
from dataclasses import replace

import pytest
import torch

from demur.losses import available, get
from demur.losses.loss import CLEAR
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Logistic
from demur.rules import Decision
from demur.theory.calibration_check import certify

SMOOTH = [name for name in available() if get(name).family != "hinge" or name in ("ova+hin", "mh")]
"""Asymmetric softmax and two stages, which are not smooth, have proofs too."""


EXTREMES = [pytest.param(k, cost, marks=pytest.mark.slow) for k in (2, 4) for cost in (0.01, 0.49)]


@pytest.mark.parametrize(("n_classes", "cost"), [(3, 0.2), *EXTREMES])
@pytest.mark.parametrize("name", SMOOTH)
def test_every_loss_that_claims_calibration_has_a_proof(name, n_classes, cost):
    loss = get(name)
    n_classes = 2 if loss.binary_only else n_classes
    certificate = certify(loss.for_classes(n_classes), n_classes, cost)
    assert (certificate is not None) == loss.calibrated_for(n_classes)


@pytest.mark.parametrize("name", [name for name in SMOOTH if isinstance(get(name), PairwiseLoss)])
def test_a_beta_that_is_a_little_off_has_none(name):
    right = get(name)
    beta = float(right.beta_value(2, 0.2))
    for factor in (1 - 1e-6, 1 + 1e-6):
        assert certify(replace(right, beta=beta * factor), 2, 0.2) is None


def test_a_link_that_is_a_little_off_has_none():
    class Tilted(Logistic):
        def inverse_link(self, z):
            return torch.sigmoid(z * (1 + 1e-6))

    assert certify(replace(get("ova+log"), phi=Tilted()), 3, 0.2) is None


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
    assert certify(replace(get(name), **changed), 2, 0.2) is None


@pytest.mark.parametrize("name", ["ls", "brier", "gce", "focal"])
def test_a_link_of_another_loss_has_none(name):
    """The loss is proper, but what it takes for probabilities is not eta."""
    loss = get(name)
    tilted = type(loss)(**vars(loss))
    object.__setattr__(tilted, "inverse_link", lambda scores: torch.softmax(1.001 * scores, -1))
    assert certify(loss, 3, 0.2) is not None
    assert certify(tilted, 3, 0.2) is None


@pytest.mark.parametrize("name", ["ce", "cao", "mao+exp", "mao+mae", "asm", "pr+2stage", "csova+log"])
def test_a_formula_that_is_a_little_off_has_none(name):
    loss = get(name)
    changed = type(loss)(**vars(loss))
    object.__setattr__(changed, "forward", lambda s, y, c: loss.forward(s, y, c) + 1e-4 * (s - 1).square().sum(-1))
    assert certify(loss, 3, 0.2) is not None
    assert certify(changed, 3, 0.2) is None


def test_a_quadratic_keeps_verma_nalisnick_calibrated_only_if_every_score_has_it():
    """The rejector's function stays q own + (1 - q) other: its minimiser is still where a class has probability q."""
    loss = get("vn")
    every, last = (type(loss)(**vars(loss)) for _ in range(2))
    object.__setattr__(every, "forward", lambda s, y, c: loss.forward(s, y, c) + 1e-4 * (s - 1).square().sum(-1))
    object.__setattr__(last, "forward", lambda s, y, c: loss.forward(s, y, c) + 1e-4 * (s[:, -1] - 1).square())
    assert certify(every, 3, 0.2) is not None
    assert certify(last, 3, 0.2) is None


PROVED = [name for name in SMOOTH if get(name).calibrated_for(2 if get(name).binary_only else 3)]


def classes_of(name):
    return 2 if get(name).binary_only else 3


@pytest.mark.parametrize("name", [name for name in PROVED if name not in ("ova+hin", "mh")])  # whose minimisers jump
def test_a_rule_for_another_cost_has_none_on_an_instance_or_on_a_class(name, monkeypatch):
    loss, n_classes = get(name), classes_of(name)
    assert certify(loss, n_classes, 0.2) is not None
    original = type(loss).rule

    def shifted(self, scores, cost):
        decision = original(self, scores, cost)
        return Decision.from_acceptance(decision.label, decision.acceptance + 0.001 * cost)

    changed = type(loss)(**vars(loss))
    object.__setattr__(changed, "rule", lambda scores, cost: shifted(loss, scores, cost))
    assert certify(changed, n_classes, 0.2) is None
    monkeypatch.setattr(type(loss), "rule", shifted)
    assert certify(loss, n_classes, 0.2) is None


@pytest.mark.parametrize("part", ["forward", "rule"])
@pytest.mark.parametrize("name", ["gce", "focal", "asm", "pr+mae"])
def test_a_change_of_a_thousandth_has_none_however_it_is_made(name, part, monkeypatch):
    loss = get(name)
    original = getattr(type(loss), part)

    @functools.wraps(original)
    def changed(self, scores, *others):
        if part == "forward":
            return 1.001 * original(self, scores, *others)
        decision = original(self, scores, *others)
        return Decision.from_acceptance(decision.label, 1.001 * decision.acceptance)

    class Changed(type(loss)):
        def proof(self, n_classes, cost):
            return super().proof(n_classes, cost)

    assert certify(Changed(), 3, 0.2) is not None
    setattr(Changed, part, changed)
    assert certify(Changed(), 3, 0.2) is None
    monkeypatch.setattr(type(loss), part, functools.partialmethod(changed))
    assert certify(loss, 3, 0.2) is None


def test_a_rule_that_reads_another_cost_has_none():
    loss = get("ce")
    changed = type(loss)()
    object.__setattr__(changed, "rule", lambda scores, cost: loss.rule(scores, 1.001 * cost))
    assert certify(changed, 3, 0.2) is None


@pytest.mark.parametrize("name", PROVED)
@pytest.mark.parametrize("part", ["forward", "rule", "label"])
def test_nan_and_other_answers_never_pass(name, part):
    loss, n_classes = get(name), classes_of(name)
    changed = type(loss)(**vars(loss))

    def nan_loss(scores, y, cost):
        return loss.forward(scores, y, cost) * torch.where(torch.arange(len(y)) == 7, torch.nan, 1.0)

    def changed_rule(scores, cost):
        decision = loss.rule(scores, cost)
        if part == "label":
            return Decision.from_acceptance((decision.label + 1) % n_classes, decision.acceptance)
        nan = torch.where(torch.arange(len(scores)) == 7, torch.nan, 1.0)
        return Decision.from_acceptance(decision.label, decision.acceptance * nan)

    object.__setattr__(
        changed, "forward" if part == "forward" else "rule", nan_loss if part == "forward" else changed_rule
    )
    assert certify(changed, n_classes, 0.2) is None


def test_costs_that_are_not_one_price_have_none():
    assert certify(get("ce"), 3, None) is None


def test_it_says_what_it_proves():
    certificate = certify(get("apc+log"), 2, 0.2)
    assert f">= {CLEAR:g}" in certificate.statement
    assert certificate.lines == (certificate.statement, *certificate.checked)
