"""The checker on joint losses: its three verdicts, and witnesses that stand."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
import torch

from demur.deferral import JointLoss, available_joint, check_deferral, get_joint
from demur.deferral.joint_losses import SoftmaxDeferral, TwoStageDeferral
from demur.errors import InputError


def risk_by_hand(loss, scores, outcomes, prices):
    """The mean loss over all outcomes, one by one."""
    total = 0.0
    for place in product(*map(range, outcomes.shape)):
        right = torch.tensor(place[1:], dtype=torch.float64)
        total += outcomes[place] * float(loss(torch.from_numpy(scores), torch.tensor(place[0]), right, prices))
    return total


def stands(report, loss):
    """Both sides of a witness, computed again from the loss itself."""
    witness = report.witness
    assert witness.gap > witness.error
    assert witness.taken_risk > witness.chow_risk + 1e-6
    assert risk_by_hand(loss, witness.scores, report.outcomes, report.prices) == pytest.approx(witness.least_risk)
    np.testing.assert_allclose(report.outcomes.sum(), 1)
    worth = np.concatenate([report.eta, report.accuracy - report.prices])
    assert 1 - worth.max() == pytest.approx(witness.chow_risk)


@pytest.mark.parametrize(
    "name", ["ms", "two-stage", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ova", "decoupled"))]
)
def test_proper_losses_are_calibrated(name):
    prices = [0.05, 0.2]
    report = check_deferral(name, 2, len(prices), prices)
    assert report.verdict == "calibrated"
    assert report.search.n_right > 200
    assert "calibrated for deferral" in str(report)


@pytest.mark.slow
def test_the_realizable_surrogate_is_refuted_with_a_witness():
    """At eta = (1/2, 1/2) and an expert who is right with probability 0.52; it would ask from 2/3 on."""
    report = check_deferral("rs", 2)
    assert report.verdict == "refuted"
    assert report.witness.chow == "ask expert 0"
    assert report.witness.taken.startswith("answer class")
    stands(report, get_joint("rs"))
    assert 0.5 < report.accuracy[0] < 2 / 3
    assert "P(expert right)" in str(report)


@dataclass(frozen=True)
class _Stingy(SoftmaxDeferral):
    """Asking is worth only 0.8 of what it is worth: refuted, at whatever prices."""

    @property
    def name(self):
        return "stingy"

    def forward(self, scores, y, cost=None):
        return super().forward(scores, torch.cat([y[..., :1], 0.8 * y[..., 1:]], -1), None)


@pytest.mark.slow
def test_a_loss_that_underrates_experts_is_refuted():
    report = check_deferral(_Stingy(), 2, 2)
    assert report.verdict == "refuted"
    stands(report, _Stingy())


@dataclass(frozen=True)
class _Indifferent(JointLoss):
    """It forgets the experts."""

    equation = why = "mine"
    name = "indifferent"

    def forward(self, scores, y, cost=None):
        return torch.logsumexp(scores[..., :-1], -1) - scores.gather(-1, y[..., :1].long())[..., 0]

    def inverse_link(self, scores, n_experts):
        return torch.softmax(scores[..., :-1], -1), torch.sigmoid(scores[..., -1:])


@pytest.mark.slow
def test_a_loss_that_ignores_the_experts_is_not_calibrated():
    assert check_deferral(_Indifferent(), 2, seconds=10).verdict != "calibrated"


def test_no_time_is_inconclusive():
    assert check_deferral("ms", 3, 2, seconds=0.0).verdict == "inconclusive"


@pytest.mark.parametrize(
    "arguments", [("ms", 1), ("ms", 2, 0), ("ms", 2, 1, [-0.1]), ("ms", 2, 2, [0.1]), ("ms", 10, 10), ("mss", 2)]
)
def test_refusals(arguments):
    with pytest.raises(InputError):
        check_deferral(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize("n_experts", [1, 2, 3])
@pytest.mark.parametrize("name", available_joint())
def test_claims_hold(name, n_experts):
    """No claim is contradicted: calibrated losses are not refuted, the others are."""
    report = check_deferral(name, 2, n_experts, seconds=60)
    print(report)
    assert report.verdict in (("calibrated", "inconclusive") if get_joint(name).calibrated else ("refuted",))


@dataclass(frozen=True)
class _OwnSecondStage(TwoStageDeferral):
    """Two stages, with an own part: ``worth`` times what the router learns of the experts."""

    worth: float = 1.0
    name = "own-stages"

    def forward(self, scores, y, cost=None):
        return super().forward(scores, torch.cat([y[..., :1], self.worth * y[..., 1:]], -1))


@dataclass(frozen=True)
class _OwnLink(TwoStageDeferral):
    """Two stages, with an inverse link that overrates the experts."""

    name = "own-link"

    def inverse_link(self, scores, n_experts):
        proba, right = super().inverse_link(scores, n_experts)
        return proba, (1.2 * right).clamp(max=1.0)


@dataclass(frozen=True)
class _Entangled(TwoStageDeferral):
    """Two stages, whose second one also looks at the probability of the chosen class, which moves no minimiser."""

    name = "entangled"

    def forward(self, scores, y, cost=None):
        return super().forward(scores, y) * (1 + torch.softmax(scores[..., : 1 - y.shape[-1]], -1).amax(-1))


@pytest.mark.parametrize("loss", [_OwnSecondStage(0.7), pytest.param(_OwnLink(), marks=pytest.mark.slow)])
def test_a_user_defined_second_stage_is_checked(loss):
    report = check_deferral(loss, 3)
    assert report.verdict == "refuted"
    stands(report, loss)


@pytest.mark.parametrize("loss", [_OwnSecondStage(), _Entangled()])
def test_a_sound_second_stage_of_ones_own_is_calibrated(loss):
    assert check_deferral(loss, 2).verdict == "calibrated"
