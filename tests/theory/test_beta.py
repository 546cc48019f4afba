"""Corollary 5's two values of beta: closed forms, computed values, and the paper's and Cortes et al.'s constants."""

import numpy as np
import pytest

from demur.losses import AdditivePairwise, MultiplicativePairwise, PlusBound, available, get
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Hinge, Logistic, Squared, SquaredHinge
from demur.theory import beta_bounds, check_calibration, numeric_beta_bounds

PAIRWISE = [name for name in available() if isinstance(get(name), PairwiseLoss)]


@pytest.mark.parametrize("name", [name for name in PAIRWISE if not get(name).binary_only])
def test_computed_and_closed_form_agree_for_2_to_26_classes(name):
    for n_classes in (2, 3, 4, 5, 13, 26):
        cost = (0.05, 0.1, 0.2, 0.3, 0.4, 0.49)[n_classes % 6]
        closed = beta_bounds(name, n_classes, cost)
        computed = numeric_beta_bounds(name, n_classes, cost, rounds=0)
        assert computed == pytest.approx(closed, abs=1e-6), n_classes


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "apc+log" else pytest.mark.slow) for name in PAIRWISE]
)
def test_the_local_search_finds_nothing_beyond_the_closed_form(name):
    n_classes = 2 if get(name).binary_only else 6
    closed, computed = beta_bounds(name, n_classes, 0.3), numeric_beta_bounds(name, n_classes, 0.3, rounds=4)
    assert computed == pytest.approx(closed, abs=1e-6)


@pytest.mark.parametrize("cost", [0.05, 0.2, 0.4])
def test_the_paper_and_cortes_et_al(cost):
    odds = (1 - cost) / cost
    for name in ("apc+exp", "mpc+exp"):
        for n_classes in (2, 5, 26):
            acc, rej = beta_bounds(name, n_classes, cost)
            assert acc == pytest.approx(n_classes - 2 + 2 * np.sqrt((n_classes - 1) * odds))
            assert rej == pytest.approx(2 * np.sqrt(odds))
    assert beta_bounds("pb+exp", 2, cost) == pytest.approx((2 * np.sqrt(odds),) * 2)
    assert beta_bounds("pb+log", 2, cost) == pytest.approx((4 * (1 - cost),) * 2)


@pytest.mark.parametrize(
    ("kind", "phi", "psi"),
    [
        (AdditivePairwise, Logistic(), Exponential()),
        pytest.param(AdditivePairwise, SquaredHinge(), Logistic(), marks=pytest.mark.slow),
        pytest.param(AdditivePairwise, Squared(), Exponential(), marks=pytest.mark.slow),
        pytest.param(MultiplicativePairwise, Exponential(), Logistic(), marks=pytest.mark.slow),
        pytest.param(MultiplicativePairwise, Squared(), Exponential(), marks=pytest.mark.slow),
    ],
)
def test_any_phi_and_psi(kind, phi, psi):
    """At two classes the bounds meet and their value is calibrated; at three they part."""
    loss = kind(phi, psi)
    acc, rej = numeric_beta_bounds(loss, 2, 0.3)
    assert acc == pytest.approx(rej, abs=1e-6)
    assert check_calibration(kind(phi, psi, beta=acc), 2, 0.3).calibrated
    acc, rej = beta_bounds(loss, 3, 0.3)
    assert acc > rej + 0.1


def test_beta_scales_with_alpha():
    once, twice = (beta_bounds(AdditivePairwise(alpha=a), 4, 0.2) for a in (1.0, 2.0))
    assert twice == pytest.approx(tuple(2 * b for b in once))
    computed = numeric_beta_bounds(AdditivePairwise(alpha=2.0), 4, 0.2)
    assert computed == pytest.approx(twice, abs=1e-6)


@pytest.mark.slow
def test_a_side_without_closed_form_is_computed_for_the_check():
    report = check_calibration(AdditivePairwise(SquaredHinge(), beta="rej"), 3, 0.2)
    assert report.fails == {"false_reject"}
    assert report.beta.value == pytest.approx(report.beta.rej)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: beta_bounds("ce", 3, 0.2), "has no beta"),
        (lambda: beta_bounds("apc+log", 1, 0.2), "at least two classes"),
        (lambda: beta_bounds("apc+log", 3, 0.5), r"\(0, 0.5\)"),
        (lambda: beta_bounds(PlusBound(), 3, 0.2), "two classes only"),
        (lambda: numeric_beta_bounds(AdditivePairwise(Hinge()), 3, 0.2), "differentiable phi and psi"),
    ],
)
def test_what_has_no_bounds_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()
