"""Metrics of model and experts together, against brute force and values to check by hand."""

import numpy as np
import pytest
from scipy.integrate import trapezoid

from demur.deferral import (
    DeferralCurve,
    DeferralCurveDisplay,
    ExpertCalibration,
    expert_load,
    regret,
    system_accuracy,
    system_risk,
)
from demur.errors import InputError


def rows(n, seed, ties):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(0, 4, n) / 4 if ties else rng.random(n)
    return confidence, rng.random(n) < 0.7, rng.random(n) < 0.8


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_curve_is_that_of_brute_force(ties, seed):
    confidence, model, expert = rows(40, seed, ties)
    curve = DeferralCurve.from_confidence(confidence, model, expert)
    cuts = [-1.0, *np.unique(confidence)]
    shares = [(confidence <= cut).mean() for cut in cuts]
    accuracies = [np.where(confidence <= cut, expert, model).mean() for cut in cuts]
    np.testing.assert_allclose(curve.deferred, shares)
    np.testing.assert_allclose(curve.accuracy, accuracies)
    assert curve.area == pytest.approx(trapezoid(accuracies, shares))
    order = np.random.default_rng(seed).permutation(40)
    again = DeferralCurve.from_confidence(confidence[order], model[order], expert[order])
    assert again.area == pytest.approx(curve.area, abs=1e-12)


def test_the_areas_interval_contains_its_estimate():
    curve = DeferralCurve.from_confidence(*rows(300, 0, False))
    interval = curve.area_interval(n_resamples=100)
    assert interval.low < curve.area < interval.high
    assert interval.estimate == pytest.approx(curve.area)


def test_a_wrong_answer_costs_one_and_a_question_its_price():
    y, said, ask = [0, 1, 2, 2], [0, 1, 2, 0], [-1, 0, 1, 1]
    assert system_risk(y, said, ask, [0.1, 0.3]) == pytest.approx((0 + 0.1 + 0.3 + 1.3) / 4)
    assert system_accuracy(y, said).estimate == 0.75
    load = expert_load(ask, 2)
    assert load.estimate.tolist() == [0.25, 0.5]
    assert (load.low < load.estimate).all()


def test_the_oracle_has_no_regret():
    y, model = np.array([0, 1, 1]), np.array([0, 0, 0])
    answers = np.array([[0, 0], [1, 1], [0, 1]])
    assert regret(y, model, answers, [-1, 0, 1], [0.1, 0.2]) == pytest.approx(0)
    assert regret(y, model, answers, [0, 0, -1], [0.1, 0.2]) == pytest.approx((0.1 + 0 + 0.8) / 3)


def test_calibration_sees_what_is_off():
    rng = np.random.default_rng(0)
    estimate = rng.random(5000)
    right = rng.random(5000) < estimate
    honest = ExpertCalibration.from_estimates(estimate, right)
    boasting = ExpertCalibration.from_estimates(np.sqrt(estimate), right)
    assert honest.error < 0.03 < 0.1 < boasting.error
    inside = (honest.right.low <= honest.estimated) & (honest.estimated <= honest.right.high)
    assert inside.sum() >= 9


def test_the_display_draws_the_curve_and_names_its_area():
    confidence, model, expert = rows(50, 0, False)
    display = DeferralCurveDisplay(DeferralCurve.from_confidence(confidence, model, expert), name="nurse").plot()
    np.testing.assert_array_equal(display.line_.get_ydata(), display.curve.accuracy)
    assert f"{display.curve.area:#.3g}" in display.line_.get_label()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: system_accuracy([0, 1], [0]), "must be of one shape"),
        (lambda: system_risk([0], [0], [2], [0.1]), "numbers of experts from 0 to 0"),
        (lambda: expert_load([0.5], 1), "numbers of experts"),
        (lambda: DeferralCurve.from_confidence([0.1], [1, 0], [1]), "must be of one shape"),
        (lambda: ExpertCalibration.from_estimates([], []), "must be of one shape"),
    ],
)
def test_hostile_input_is_refused_in_words(call, message):
    with pytest.raises(InputError, match=message):
        call()
