"""The minimiser of the pointwise risk: it is one, however it was found."""

import numpy as np
import pytest
import torch
from samples import PAPER

from demur.losses import get
from demur.theory import minimise_pointwise_risk, pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.descent import minimise_convex_kinks, minimise_kinked_rows
from demur.theory.examined_loss import ExaminedLoss, examine
from demur.theory.pointwise_risk import RiskProblem, equal_values
from demur.theory.simplex import over_all_classes, random_eta, structured_eta, tops_around

SYMMETRIC = [name for name in PAPER if examine(get(name).for_classes(2), as_target(0.2, 2)).symmetric]


def some_eta(n_classes, cost=0.2, n=40):
    generator = torch.Generator().manual_seed(n_classes)
    return torch.cat(
        [
            structured_eta(tops_around(cost, n_classes), n_classes)[::7],
            random_eta(as_target(cost, n_classes), n, generator, tied=True)[:n],
        ]
    )


@pytest.mark.parametrize("name", [name for name in PAPER if get(name).has_link])
def test_the_link_of_the_minimiser_is_eta(name):
    loss = get(name)
    n_classes = 2 if loss.binary_only else 4
    eta = 0.99 * random_eta(as_target(0.2, n_classes), 5, torch.Generator().manual_seed(0)) + 0.01 / n_classes
    proba = loss.proba(minimise_pointwise_risk(loss, eta, 0.2))
    assert torch.allclose(proba, eta, atol=1e-9)


@pytest.mark.parametrize("name", SYMMETRIC)
def test_sharing_scores_among_equal_classes_does_not_raise_the_risk(name):
    loss = get(name).for_classes(4)
    eta = some_eta(4, n=40 if loss.smooth else 4)[:: 1 if loss.smooth else 5]
    free, shared = (minimise_pointwise_risk(loss, eta, 0.2, symmetric=s) for s in (False, True))
    risks = [pointwise_risk(loss, scores, eta, 0.2) for scores in (free, shared)]
    assert torch.allclose(*risks, atol=1e-8)


@pytest.mark.parametrize("name", [name for name in PAPER if get(name).smooth])
def test_no_nearby_scores_have_a_lower_risk(name):
    loss = get(name)
    n_classes = 2 if loss.binary_only else 3
    eta = random_eta(as_target(0.3, n_classes), 3, torch.Generator().manual_seed(1))
    scores = minimise_pointwise_risk(loss, eta, 0.3)
    least = pointwise_risk(loss, scores, eta, 0.3)
    generator = torch.Generator().manual_seed(2)
    for scale in (1e-3, 0.1, 2.0):
        other = scores + scale * torch.randn(scores.shape, generator=generator, dtype=torch.float64)
        assert bool((pointwise_risk(loss, other, eta, 0.3) >= least - 1e-12).all())


def test_a_cost_for_each_row_is_the_same_as_row_by_row():
    loss = get("apc+log")
    eta = random_eta(as_target(0.2, 3), 1, torch.Generator().manual_seed(0))
    costs = torch.linspace(0.1, 0.4, len(eta), dtype=torch.float64)
    together = minimise_pointwise_risk(loss, eta, costs)
    for row, cost in enumerate(costs.tolist()):
        alone = minimise_pointwise_risk(loss, eta[row : row + 1], cost)
        assert torch.allclose(
            pointwise_risk(loss, together[row], eta[row], cost),
            pointwise_risk(loss, alone[0], eta[row], cost),
            atol=1e-12,
        )


def test_cutting_planes_leave_their_box_when_the_minimum_is_outside():
    losses = lambda u: (u[:, 0] - torch.tensor([90.0, 110.0], dtype=torch.float64)).abs()  # noqa: E731
    point, gap = minimise_convex_kinks(losses, torch.tensor([0.7, 0.3], dtype=torch.float64), 1)
    assert float(point) == pytest.approx(90.0, abs=1e-6)
    assert gap < 1e-7


def test_sampled_gradients_find_kinks_in_valleys():
    """A narrow valley with a kink along it, and a bowl along the valley: where Newton's method gets stuck."""

    def valley(u, rows):
        return 10 * (u[:, 0] - u[:, 1] - u[:, 2]).abs() + (u[:, 0] - 1).square() + 0.1 * (u[:, 1] - rows).abs()

    points, slope = minimise_kinked_rows(valley, torch.zeros(3, 3, dtype=torch.float64))
    values = valley(points, torch.arange(3))
    assert bool((values < 0.01).all())
    assert bool((slope < 0.1).all())


def test_ties_are_what_equal_values_say():
    eta = torch.tensor([[0.4, 0.2, 0.2, 0.2], [0.5, 0.5, 0.0, 0.0]], dtype=torch.float64)
    problem = RiskProblem(ExaminedLoss.untried(get("apc+log"), 4, 0.2), eta, equal_values(eta))
    assert torch.allclose(problem.weights.sum(-1), torch.ones(2, dtype=torch.float64))
    scores = problem.scores(torch.arange(3.0, dtype=torch.float64).expand(2, -1), torch.arange(2))
    assert scores.tolist() == [[1, 0, 0, 0, 2], [1, 1, 0, 0, 2]]


@pytest.mark.parametrize("n_classes", [2, 3, 8, 100])
@pytest.mark.parametrize("cost", [0.01, 0.2, 0.49])
def test_every_eta_tried_is_a_distribution_on_one_side_of_the_boundary(n_classes, cost):
    generator = torch.Generator().manual_seed(0)
    tops = tops_around(cost, n_classes)
    assert float(tops.min()) < 1 - cost < float(tops.max())
    rows = [
        structured_eta(tops, n_classes),
        random_eta(as_target(cost, n_classes), 5, generator),
        random_eta(as_target(cost, n_classes), 5, generator, tied=True),
    ]
    for eta in rows:
        assert len(eta) > 5
        assert np.allclose(eta.sum(-1), 1)
        assert bool((eta >= 0).all())
        assert float((eta.amax(-1) - (1 - cost)).abs().min()) > 9e-7


def test_every_class_comes_on_top():
    eta = over_all_classes(structured_eta(tops_around(0.2, 7), 7), limit=40)
    assert set(eta.argmax(-1).tolist()) == set(range(7))
