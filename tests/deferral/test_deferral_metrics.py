"""Metrics of model and experts together, against brute force and values to check by hand."""

import numpy as np
import pytest
from scipy.integrate import trapezoid

from demur.deferral import DeferralCurve, expert_load, system_accuracy
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


def test_accuracy_and_load_are_shares_of_the_rows():
    ask = [-1, 0, 1, 1]
    assert system_accuracy([0, 1, 2, 2], [0, 1, 2, 0]).estimate == 0.75
    load = expert_load(ask, 2)
    assert load.estimate.tolist() == [0.25, 0.5]
    assert (load.low < load.estimate).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: system_accuracy([0, 1], [0]), "must be of one shape"),
        (lambda: expert_load([2], 1), "numbers of experts from 0 to 0"),
        (lambda: expert_load([0.5], 1), "numbers of experts"),
        (lambda: DeferralCurve.from_confidence([0.1], [1, 0], [1]), "must be of one shape"),
    ],
)
def test_hostile_input_is_refused_in_words(call, message):
    with pytest.raises(InputError, match=message):
        call()
