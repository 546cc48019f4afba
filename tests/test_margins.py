"""Margin functions: facts of the paper's Table 1, checked against autograd."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from demur.losses import OneVsAll
from demur.margins import (
    Exponential,
    Hinge,
    Logistic,
    NoInverseLinkError,
    Squared,
    SquaredHinge,
    available_margins,
    get_margin,
    register_margin,
    unregister_margin,
)

ALL = [get_margin(name) for name in available_margins()]
LINKED = [margin for margin in ALL if margin.bound_exponent is not None]
ids = lambda margin: margin.name  # noqa: E731 - pytest wants a function here


def derivative(margin, z):
    z = z.clone().requires_grad_()
    (slope,) = torch.autograd.grad(margin(z).sum(), z)
    return slope


@pytest.mark.parametrize("margin", ALL, ids=ids)
def test_convex_and_above_its_value_at_zero_times_the_zero_one_loss(margin):
    z = torch.linspace(-50, 50, 4001, dtype=torch.float64)
    value = margin(z)
    at_zero = margin(torch.zeros(1, dtype=torch.float64)).item()
    assert at_zero > 0
    assert (value >= at_zero * (z <= 0).double() - 1e-12).all()
    middle = margin((z[:-1] + z[1:]) / 2)
    assert (middle <= (value[:-1] + value[1:]) / 2 * (1 + 1e-12)).all()


@pytest.mark.parametrize("margin", ALL, ids=ids)
def test_strictly_decreasing_means_a_negative_slope(margin):
    z = torch.linspace(-20, 20, 201, dtype=torch.float64)
    assert margin.strictly_decreasing == bool((derivative(margin, z) < 0).all())


@pytest.mark.parametrize("margin", LINKED, ids=ids)
def test_inverse_link_is_the_ratio_of_slopes(margin):
    z = torch.linspace(-0.99, 0.99, 199, dtype=torch.float64)
    minus, plus = derivative(margin, -z), derivative(margin, z)
    assert torch.allclose(margin.inverse_link(z), minus / (minus + plus))


@pytest.mark.parametrize("margin", LINKED, ids=ids)
def test_inverse_link_increases_and_is_a_probability(margin):
    z = torch.linspace(-30, 30, 6001, dtype=torch.float64)
    proba = margin.inverse_link(z)
    assert (proba.diff() >= 0).all()
    assert (margin.inverse_link(z[(z > -0.99) & (z < 0.99)]).diff() > 0).all()
    assert ((proba >= 0) & (proba <= 1)).all()
    assert torch.allclose(margin.inverse_link(-z), 1 - proba)


@pytest.mark.parametrize("margin", LINKED, ids=ids)
@given(cost=st.floats(1e-6, 0.499))
def test_the_threshold_is_where_the_link_is_one_minus_c(margin, cost):
    theta = margin.threshold(cost)
    assert float(margin.inverse_link(theta)) == pytest.approx(1 - cost, abs=1e-12)
    assert theta > 0


@pytest.mark.parametrize("margin", LINKED, ids=ids)
@given(eta=st.floats(0, 1), cost=st.floats(0.01, 0.49))
def test_assumption_15_of_theorem_7_holds_with_the_constants(margin, eta, cost):
    """The excess of the score theta over the best score is at least (|eta - (1-c)| / C)^s."""
    theta = margin.threshold(cost)
    z = torch.linspace(-12, 12, 4801, dtype=torch.float64)
    risk = lambda z: eta * margin(z) + (1 - eta) * margin(-z)  # noqa: E731
    excess = float(risk(theta) - risk(z).min())
    bound = (abs(eta - (1 - cost)) / margin.bound_constant) ** margin.bound_exponent
    assert excess >= bound - 2e-4  # the grid's step


def test_table_1_prints_a_constant_for_the_logistic_that_its_derivation_does_not_give():
    eta, cost = 0.5, 0.4
    excess = eta * torch.log(torch.tensor(eta / 0.6)) + (1 - eta) * torch.log(torch.tensor((1 - eta) / 0.4))
    assert excess == pytest.approx(0.0204, abs=1e-4)
    assert excess < (abs(eta - (1 - cost)) / 0.5) ** 2
    assert excess > (abs(eta - (1 - cost)) / Logistic().bound_constant) ** 2


def test_table_1_by_hand():
    assert Logistic().threshold(0.2).item() == pytest.approx(1.3862943611)
    assert Exponential().threshold(0.2).item() == pytest.approx(1.3862943611 / 2)
    assert Squared().threshold(0.2).item() == pytest.approx(0.6)
    assert SquaredHinge().threshold(0.2).item() == pytest.approx(0.6)
    assert {margin.name: margin.bound_exponent for margin in LINKED} == {"exp": 2, "log": 2, "sq": 2, "sqhin": 2}
    constants = {margin.name: margin.bound_constant for margin in LINKED}
    assert constants == pytest.approx({"exp": 0.5**0.5, "log": 0.5**0.5, "sq": 0.5, "sqhin": 0.5})


def test_the_hinge_has_no_link_no_threshold_no_constants():
    hinge = Hinge()
    assert hinge.bound_constant is None
    assert hinge.bound_exponent is None
    with pytest.raises(NoInverseLinkError, match="no inverse link"):
        hinge.inverse_link(torch.zeros(1))
    with pytest.raises(NoInverseLinkError, match="no threshold"):
        hinge.threshold(0.2)


def test_the_exponential_goes_on_as_its_tangent():
    z = torch.tensor([-29.999, -30.001], dtype=torch.float64)
    slopes = derivative(Exponential(), z).tolist()
    assert slopes[0] == pytest.approx(slopes[1], rel=2e-3)
    assert derivative(Exponential(), torch.tensor([-1000.0])).item() == pytest.approx(
        -float(torch.exp(torch.tensor(30.0)))
    )


@pytest.fixture
def scaled():
    @register_margin
    @dataclass(frozen=True)
    class Scaled(Logistic):
        """The logistic of a scaled margin."""

        scale: float = 1.0
        name = "scaled"

        def __call__(self, z):
            return super().__call__(self.scale * z)

    yield Scaled
    unregister_margin("scaled")


def test_a_margin_function_of_ones_own_is_one_class(scaled):
    assert "scaled" in available_margins()
    assert get_margin("scaled", scale=2.0) == scaled(2.0)
    assert OneVsAll(scaled(2.0))(torch.zeros(1, 3), torch.tensor([0])).item() == pytest.approx(3 * 0.693147, abs=1e-5)
    assert register_margin(scaled) is scaled

    class Thief(scaled):
        """Another class of the same name."""

    with pytest.raises(ValueError, match="'scaled' is registered already"):
        register_margin(Thief)


def test_unknown_margin_functions_are_refused():
    with pytest.raises(ValueError, match="Did you mean 'log'"):
        get_margin("logg")
    with pytest.raises(ValueError, match="unknown margin function 'scaled'"):
        unregister_margin("scaled")
