"""Order preservation: Theorems 16 and 17 on the paper's losses, and a search on any."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from samples import PAPER

from demur.losses import AdditivePairwise, MultiplicativePairwise, get
from demur.margins import Exponential, Hinge, Logistic, Squared, SquaredHinge
from demur.theory import FunctionLoss, is_order_preserving

ONE_SCORE_EACH = [name for name in PAPER if get(name).n_outputs(4) >= 4]


QUICK = ("ce", "ova+log", "apc+log")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in ONE_SCORE_EACH]
)
def test_every_registered_loss_with_a_score_per_class_keeps_the_order(name):
    loss = get(name)
    report = is_order_preserving(name, 4, 0.2)
    assert report
    assert report.strict == loss.smooth
    assert (report.theorem is not None) == name.startswith(("apc", "mpc"))
    if report.theorem is not None:
        assert loss.phi.strictly_decreasing  # Corollary 18
        assert report.theorem.strict


@pytest.mark.parametrize("kind", [AdditivePairwise, pytest.param(MultiplicativePairwise, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("phi", "preserving", "strict"),
    [
        (Logistic(), True, True),
        (Exponential(), True, True),
        (SquaredHinge(), True, True),
        (Squared(), False, False),  # it rises again beyond 1, so the theorems are silent
    ],
)
def test_the_conditions_of_theorems_16_and_17(kind, phi, preserving, strict):
    report = is_order_preserving(kind(phi, Logistic(), beta=2.0), 3, 0.2)
    assert report.theorem.name == ("Theorem 16" if kind is AdditivePairwise else "Theorem 17")
    assert (report.theorem.preserving, report.theorem.strict) == (preserving, strict)
    assert report.preserving or not report.theorem.preserving
    assert report.strict or not report.theorem.strict


def test_the_hinge_is_order_preserving_for_mpc_but_not_strictly_by_the_theorem():
    from demur.theory.theorem_four import _conditions

    assert _conditions(Hinge(), torch.zeros(1, dtype=torch.float64)) == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("differentiable", [True, False])
def test_weston_watkins_keeps_the_order_but_not_strictly(differentiable):
    """Where no class has the majority its best scores are all equal; no row may be dropped on the way to that."""

    def weston_watkins(scores, y, cost):
        margins = scores - scores.gather(-1, y[:, None])
        return F.relu(1 + margins).sum(-1) - 1

    report = is_order_preserving(FunctionLoss(weston_watkins, differentiable=differentiable), 3, 0.2)
    assert report.verdict == "preserving"
    assert report.n_unresolved == 0
    eta, scores = report.counterexample, report.scores
    assert any(eta[i] > eta[j] + 1e-3 and abs(scores[i] - scores[j]) < 1e-3 for i in range(3) for j in range(3))


def test_a_loss_that_cannot_be_minimised_is_inconclusive():
    report = is_order_preserving(lambda scores, y, cost: scores.gather(-1, y[:, None])[:, 0], 3, 0.2)
    assert report.verdict == "inconclusive"
    assert not report
    assert report.n_unresolved == report.n_eta


def test_a_loss_that_swaps_classes_is_caught():
    def swapped(scores, y, cost):
        """Cross-entropy that takes class 0 for class 1 and back."""
        wrong = torch.where(y == 0, 1, torch.where(y == 1, 0, y))
        return F.cross_entropy(scores, wrong, reduction="none")

    report = is_order_preserving(swapped, 3, 0.2)
    assert not report
    eta, scores = report.counterexample, report.scores
    assert any(eta[i] < eta[j] and scores[i] > scores[j] for i in range(3) for j in range(3))


def test_a_loss_with_equal_scores_for_different_probabilities_is_not_strict():
    def coarse(scores, y, cost):
        """Cannot tell classes 0 and 1 apart."""
        pooled = torch.stack([scores[:, 0] + scores[:, 1], scores[:, 2]], -1)
        return F.cross_entropy(pooled, (y == 2).long(), reduction="none") + 0.1 * scores.square().sum(-1)

    report = is_order_preserving(coarse, 3, 0.2)
    assert not report.strict
    assert report.counterexample is not None
    assert np.isclose(report.scores[0], report.scores[1], atol=1e-6)


@pytest.mark.parametrize("name", ["bep", "mh", "margin+log"])
def test_losses_without_a_score_per_class_are_refused(name):
    with pytest.raises(ValueError, match="one score per class"):
        is_order_preserving(name, 2 if get(name).binary_only else 5, 0.2)
