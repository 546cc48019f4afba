"""The cost curve is Chow's rule and the 0-1-c risk at every cost at once."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.costs import CostWarning
from demur.metrics import CostCurve, accepted_accuracy, coverage, zero_one_c_risk
from demur.rules import Chow


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of three classes in steps of 1/8, so that ties and breakpoints at simple costs are common."""
    cells = draw(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 2)), min_size=1, max_size=25))
    proba = np.array([[min(a, b), abs(a - b), 8 - max(a, b)] for a, b, _ in cells]) / 8
    return proba, np.array([y for *_, y in cells])


COSTS = st.one_of(st.integers(0, 3).map(lambda eighths: eighths / 8), st.floats(0, 0.49))


@given(predictions(), COSTS)
def test_it_is_chows_rule_at_every_cost(data, cost):
    proba, y = data
    curve, answers = CostCurve.from_proba(proba, y), Chow(cost).decide(proba).labels([0, 1, 2])
    assert curve.risk_at(cost) == pytest.approx(zero_one_c_risk(y, answers, cost=cost))
    assert curve.coverage_at(cost) == coverage(answers)
    np.testing.assert_allclose(curve.accuracy_at(cost), accepted_accuracy(y, answers))


@given(predictions(), COSTS)
def test_float32_probabilities_decide_as_the_rule_does(data, cost):
    proba = (data[0] + 0.1).astype(np.float32)
    proba /= proba.sum(axis=1, keepdims=True)
    curve = CostCurve.from_proba(proba, data[1])
    assert curve.coverage_at(cost) == (~Chow(cost).decide(proba).reject).mean()


@given(predictions())
def test_between_breakpoints_the_risk_is_a_straight_line(data):
    curve = CostCurve.from_proba(*data)
    ends = np.unique(np.clip(np.concatenate(([0], curve.breakpoints, [0.49])), 0, 0.49))
    for low, high in itertools.pairwise(ends):
        inside = low + (high - low) * np.array([0.25, 0.5, 0.75])
        risks = curve.risk_at(inside)
        assert risks[1] == pytest.approx((risks[0] + risks[2]) / 2)
        assert len(set(curve.coverage_at(inside))) == 1
        assert curve.coverage_at(low) <= curve.coverage_at(high) == curve.coverage_at(inside[0])


@given(predictions())
def test_the_mean_risk_is_exact(data):
    proba, y = data
    curve = CostCurve.from_proba(proba, y)
    pieces = np.unique(np.concatenate(([0.1], curve.breakpoints[(curve.breakpoints > 0.1)], [0.4])).clip(0.1, 0.4))
    integral = sum((b - a) * curve.risk_at((a + b) / 2) for a, b in itertools.pairwise(pieces))
    assert curve.mean_risk(0.1, 0.4) == pytest.approx(integral / 0.3)
    breakpoint_, wrong = 1 - proba.max(axis=1), proba.argmax(axis=1) != y
    assert curve.mean_risk(0, 1) == pytest.approx(np.mean(breakpoint_**2 / 2 + (1 - breakpoint_) * wrong))


@given(predictions(), st.data())
def test_a_whole_weight_repeats_the_row_and_names_do_not_matter(data, drawn):
    proba, y = data
    weight = np.array(drawn.draw(st.lists(st.integers(0, 3), min_size=len(y), max_size=len(y)).filter(any)))
    names = np.array(["ant", "bee", "cat"])
    one = CostCurve.from_proba(proba, names[y], classes=names, sample_weight=weight)
    other = CostCurve.from_proba(np.repeat(proba, weight, axis=0), np.repeat(y, weight))
    costs = np.linspace(0, 0.49, 9)
    np.testing.assert_allclose(one.risk_at(costs), other.risk_at(costs))
    assert one.mean_risk() == pytest.approx(other.mean_risk())
    assert one.error_rate == pytest.approx(other.error_rate)


def test_a_cost_at_which_nothing_is_answered():
    curve = CostCurve.from_proba([[0.6, 0.4]], [0])
    assert curve.risk_at(0.3) == 0.3
    assert curve.coverage_at(0.3) == 0
    assert math.isnan(curve.accuracy_at(0.3))


@pytest.mark.parametrize(
    ("proba", "y", "classes", "message"),
    [
        ([[0.5, 0.6]], [0], None, r"row 1 sums to 1\.1"),
        ([[0.5, np.nan]], [0], None, "NaN or infinity"),
        (np.empty((0, 2)), [], None, r"at least one row, got \(0, 2\)"),
        ([[0.5, 0.5]], [0, 1], None, r"y must have shape \(1,\), one class per row of proba, got \(2,\)"),
        ([[0.5, 0.5]], [2], None, "y contains 2, which is none of the 2 columns of proba; pass classes="),
        ([[0.5, 0.5]], ["a"], ["b", "c"], "y contains 'a', which is none of"),
        ([[0.5, 0.5]], [0], [0, 1, 2], "classes must name the 2 columns"),
    ],
)
def test_bad_predictions(proba, y, classes, message):
    with pytest.raises(ValueError, match=message):
        CostCurve.from_proba(proba, y, classes=classes)


def test_bad_questions():
    curve = CostCurve.from_proba([[0.6, 0.4]], [0])
    with pytest.raises(ValueError, match=r"cost must be in \[0, 1\), got 1"):
        curve.risk_at(1.0)
    with pytest.warns(CostWarning):
        curve.coverage_at([0.1, 0.7])
    with pytest.raises(ValueError, match=r"0 <= low < high <= 1, got 0\.5 and 0\.2"):
        curve.mean_risk(0.5, 0.2)
    for margin in (-0.5, 2.5):
        with pytest.raises(ValueError, match=rf"probabilities of being right, in \[0, 1\]; got {margin:g}"):
            CostCurve.from_confidence([0.5, margin], [True, False])
