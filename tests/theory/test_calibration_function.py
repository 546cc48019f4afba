"""The tightest xi: above the paper's bound, below every sample, equal to closed forms where there are any."""

import numpy as np
import pytest
from samples import BINARY, BOUNDED, excesses, random_points

from demur.losses import get
from demur.theory import NoBoundError, calibration_function
from demur.theory.calibration_function import least_gaps

Z = np.array([0.01, 0.03, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])


def room(xi, z):
    """How many times the paper's bound the function is."""
    return xi(z) / xi.bound.xi(z)


def kl(p, q):
    """The divergence of a coin with probability p from one with probability q."""
    tails = np.where(p < 1, (1 - p) * np.log(np.where(p < 1, 1 - p, 1) / (1 - q)), 0)
    return np.where(p > 0, p * np.log(np.where(p > 0, p, 1) / q), 0) + tails


@pytest.mark.parametrize("n_classes", [2, 3, 12])
@pytest.mark.parametrize("cost", [0.05, 0.4])
def test_cross_entropy_in_closed_form(n_classes, cost):
    """The cheapest mistake is a false accept or, from z = 1 - 2c on, the wrong one of two classes."""
    expected = kl(np.maximum(1 - cost - Z, (1 - Z) / 2), 1 - cost)
    xi = calibration_function("ce", n_classes, cost, n_nodes=8)
    assert xi.pointwise(Z) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("cost", [0.05, 0.3, 0.49])
def test_the_curve_is_below_the_truth_and_close_to_it(cost):
    """The largest convex function below delta, by brute force; 12.5 % too high at c = 0.49, z = 0.02 before."""
    z = np.r_[0.0, np.geomspace(1e-4, 1, 40_001)]
    delta = kl(np.maximum(1 - cost - z, (1 - z) / 2), 1 - cost)
    asked = np.append(Z, 0.02)
    xi = calibration_function("ce", 3, cost)
    assert np.all(xi(Z) <= xi.pointwise(Z) + 1e-15)
    hull_above = np.interp(asked, *hull(z, delta))
    assert np.all(xi(asked) <= hull_above * (1 + 1e-9))
    assert np.all(xi(asked) >= hull_above * (1 - 2e-3))


def hull(x, y):
    """The lower convex hull of many points, by Andrew's algorithm."""
    kept = []
    for point in zip(x, y, strict=True):
        while len(kept) > 1:
            (a, b), (c, d) = kept[-2:]
            if (d - b) * (point[0] - a) < (point[1] - b) * (c - a):
                break
            kept.pop()
        kept.append(point)
    return np.array(kept).T


def test_a_value_does_not_depend_on_the_other_arguments():
    xi = calibration_function("ce", 3, 0.49)
    together = xi(np.array([0.02, 0.0201, 0.5]))
    assert float(xi(0.02)) == together[0]


def test_closed_form_and_computation_agree():
    for name in ("ce", "ova+exp"):
        xi = calibration_function(name, 3, 0.3)
        z = np.array([0.05, 0.3, 0.6])
        assert least_gaps(xi.subject, 0.3, z) == pytest.approx(xi.pointwise(z), abs=1e-6)


@pytest.mark.parametrize("name", ["ova+sq", "ova+sqhin"])
def test_squared_losses_in_closed_form(name):
    cost = 0.3
    expected = np.where(1 - 2 * cost >= Z, 4 * Z**2, 2 * Z**2 + 2 * (1 - 2 * cost) ** 2)
    assert calibration_function(name, 3, cost, n_nodes=8).pointwise(Z) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("name", BOUNDED + BINARY)
def test_xi_is_above_the_paper_and_below_every_sample(name):
    loss = get(name)
    n_classes, cost = (2 if loss.binary_only else 4), 0.3
    xi = calibration_function(loss, n_classes, cost, n_nodes=24)
    assert np.all(xi(Z) >= xi.bound.xi(Z) - 1e-12)
    eta, scores, costs = random_points(loss, n_classes, 4_000, seed=1)
    costs[:] = cost
    zero_one_c, surrogate = excesses(loss, eta, scores, costs)
    wrong = zero_one_c > 1e-6
    zero_one_c, surrogate = zero_one_c[wrong], surrogate[wrong]
    assert np.all(surrogate >= xi(zero_one_c) - 1e-12)
    assert xi.certified


@pytest.mark.parametrize("name", ["ce", "ova+exp"])
def test_xi_is_convex_increasing_and_zero_at_zero(name):
    xi = calibration_function(name, 3, 0.2, n_nodes=16)
    z = np.linspace(0, 1, 21)
    values = xi(z)
    assert values[0] == 0
    assert np.all(np.diff(values) > 0)
    assert np.all(np.diff(values, 2) >= -1e-9)
    assert np.all(values <= xi.pointwise(z) + 1e-12)


def test_the_paper_is_tight_for_cross_entropy_as_c_goes_to_one_half_only():
    small = np.array([0.05])
    assert room(calibration_function("ce", 3, 0.4999, n_nodes=8), small) == pytest.approx(1.0, abs=0.02)
    # For c below 1/2 the room at small z is 1 / (c (1 - c)).
    assert room(calibration_function("ce", 3, 0.2, n_nodes=8), np.array([1e-3])) == pytest.approx(6.25, rel=0.01)


def test_theorem_7_leaves_a_factor_of_two_at_least():
    for name in ("ova+log", "ova+sq"):
        xi = calibration_function(name, 3, 0.4999, n_nodes=8)
        assert room(xi, np.array([0.02])) == pytest.approx(2.0, abs=0.02)
        assert np.all(room(xi, Z) >= 2 - 4e-3)


@pytest.mark.slow
def test_small_excesses_cost_an_uncalibrated_loss_nothing():
    xi = calibration_function("apc+exp", 3, 0.2, n_nodes=6)
    assert float(xi(0.05)) == pytest.approx(0, abs=1e-9)
    assert xi.bound is None


def test_the_inverse_is_never_worse_than_the_paper():
    xi = calibration_function("ce", 3, 0.2, n_nodes=12)
    for excess in (1e-3, 0.02):
        tight = xi.zero_one_c(excess)
        assert tight < xi.bound.zero_one_c(excess)
        assert float(xi(tight)) >= excess - 1e-9
    assert xi.zero_one_c(100.0) == 1.0


@pytest.mark.parametrize("name", ["ova+hin", "bep", "pb+log"])
def test_losses_it_cannot_be_computed_for_are_refused(name):
    with pytest.raises(NoBoundError, match="calibration function is computed for"):
        calibration_function(name, 2, 0.2)


@pytest.mark.parametrize("z", [-0.1, 1.5])
def test_an_excess_outside_0_and_1_is_refused(z):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        calibration_function("ova+sq", 2, 0.2, n_nodes=4)(z)
