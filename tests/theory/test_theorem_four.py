"""Theorem 4's slope: the form used here and the paper's, and the sign that both share."""

import numpy as np
import pytest
import torch

from demur.losses import available, get
from demur.theory import minimise_pointwise_risk, pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.examined_loss import ExaminedLoss, examine
from demur.theory.simplex import random_eta
from demur.theory.theorem_four import rejector_slope, theorem_four

WITH_REJECTOR = [name for name in available() if get(name).has_rejector]


def slope_at_joint_minimiser(loss, eta, cost):
    """dW/dr at r = 0 with the class scores of the joint minimiser, as the theorem writes it; and r there."""
    joint = minimise_pointwise_risk(loss, eta, cost)
    scores = torch.cat([joint[:, :-1], torch.zeros(len(eta), 1, dtype=torch.float64)], -1).requires_grad_()
    (gradient,) = torch.autograd.grad(pointwise_risk(loss, scores, eta, cost).sum(), scores)
    return gradient[:, -1], joint[:, -1]


@pytest.mark.parametrize("beta", ["acc", "rej", 1.0, 12.0])
@pytest.mark.parametrize("name", WITH_REJECTOR)
def test_both_slopes_have_the_sign_that_decides(name, beta):
    loss = get(name, beta=beta)
    n_classes = 2 if loss.binary_only else 4
    eta = random_eta(as_target(0.2, n_classes), 6, torch.Generator().manual_seed(0))
    subject = ExaminedLoss.untried(loss, n_classes, 0.2, symmetric=not loss.binary_only)
    here, curvature = rejector_slope(subject, eta)
    paper, r = slope_at_joint_minimiser(loss, eta, 0.2)
    clear = r.abs() > 1e-6
    assert bool(clear.any())
    assert torch.equal(here[clear] < 0, r[clear] > 0)
    assert torch.equal(paper[clear] < 0, r[clear] > 0)
    assert bool((curvature > 0).all())


@pytest.mark.parametrize("n_classes", [2, 4, 9])
def test_the_exponential_slope_in_closed_form(n_classes):
    """alpha ((sum of square roots)^2 - 1) - c beta, the paper's multiclass case."""
    eta = random_eta(as_target(0.2, n_classes), 4, torch.Generator().manual_seed(1))
    loss = get("apc+exp", alpha=0.8, beta=3.0)
    expected = 0.8 * (eta.sqrt().sum(-1).square() - 1) - 0.2 * 3.0
    for symmetric in (True, False):
        subject = ExaminedLoss.untried(loss, n_classes, 0.2, symmetric=symmetric)
        assert torch.allclose(rejector_slope(subject, eta)[0], expected, atol=1e-9)


def test_the_same_search_finds_the_same_without_symmetry():
    loss = get("mpc+log")
    assert examine(loss, as_target(0.2, 3)).symmetric
    tied, free = (theorem_four(ExaminedLoss.untried(loss, 3, 0.2, symmetric=s)) for s in (True, False))
    assert tied.fails == free.fails
    assert free.sup_answer == pytest.approx(tied.sup_answer, abs=1e-6)
    assert np.sort(free.worst_answer) == pytest.approx(np.sort(tied.worst_answer), abs=1e-3)
