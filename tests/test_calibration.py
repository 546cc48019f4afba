"""Calibration: one number, or one curve per class."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsRegressor

from demur.calibration import OneVsRestCalibration, TemperatureScaling


def sample(seed, n=2000, k=3):
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.ones(k), size=n)
    y = (proba.cumsum(1) > rng.random((n, 1))).argmax(1)
    return proba, y


@given(temperature=st.floats(0.2, 5), seed=st.integers(0, 1000))
def test_the_temperature_is_found_again(temperature, seed):
    proba, y = sample(seed)
    distorted = TemperatureScaling(1 / temperature).transform(proba)
    found = TemperatureScaling().fit(distorted, y)
    assert found.temperature_ == pytest.approx(temperature, rel=0.2)


def test_it_has_the_least_log_loss_of_a_grid():
    proba, y = sample(0)
    distorted = TemperatureScaling(0.4).transform(proba)
    log_loss = lambda t: -np.log(TemperatureScaling(t).transform(distorted)[np.arange(len(y)), y]).mean()  # noqa: E731
    best = TemperatureScaling().fit(distorted, y).temperature_
    assert log_loss(best) <= min(log_loss(t) for t in np.geomspace(0.1, 10, 400)) + 1e-7


@given(temperature=st.floats(0.1, 10), seed=st.integers(0, 1000))
def test_the_order_of_classes_stays(temperature, seed):
    proba, _ = sample(seed, n=50)
    scaled = TemperatureScaling(temperature).transform(proba)
    assert (scaled.argsort(1) == proba.argsort(1)).all()
    assert scaled.sum(1) == pytest.approx(1)


def test_weights_are_repetitions():
    proba, y = sample(1, n=300)
    weight = np.random.default_rng(0).integers(0, 4, size=300)
    weighted = TemperatureScaling().fit(proba, y, weight)
    repeated = TemperatureScaling().fit(proba.repeat(weight, 0), y.repeat(weight))
    assert weighted.temperature_ == pytest.approx(repeated.temperature_, rel=1e-3)


def test_exact_zeros_and_bad_temperatures():
    assert np.isfinite(TemperatureScaling(2.0).transform([[1.0, 0.0]])).all()
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="temperature must be positive"):
            TemperatureScaling(wrong)


@pytest.mark.parametrize("model", ["isotonic", "sigmoid", KNeighborsRegressor(50)])
def test_curves_per_class_undo_overconfidence(model):
    proba, y = sample(2)
    sharp = TemperatureScaling(0.3).transform(proba)
    calibrated = OneVsRestCalibration(model).fit(sharp, y).transform(sharp)
    assert calibrated.sum(1) == pytest.approx(1)
    assert np.abs(calibrated - proba).mean() < np.abs(sharp - proba).mean()


def test_a_class_without_rows():
    proba, y = sample(3)
    calibrated = OneVsRestCalibration("isotonic").fit(proba[y != 2], y[y != 2]).transform(proba)
    assert (calibrated[:, 2] == 0).all()


def test_a_row_alone_is_the_row_among_others_to_the_last_bit():
    proba = np.random.default_rng(0).dirichlet(np.ones(26), 50)
    scaling = TemperatureScaling(1.7)
    together = scaling.transform(proba)
    for k in range(50):
        np.testing.assert_array_equal(scaling.transform(proba[k : k + 1])[0], together[k])


def test_rows_without_an_error_do_not_make_certain():
    """The log loss alone would choose the lowest temperature there is."""
    proba = np.array([[0.9, 0.1], [0.2, 0.8]] * 100)
    temperature = TemperatureScaling().fit(proba, [0, 1] * 100).temperature_
    assert 0.2 < temperature < 1


def test_what_holds_the_temperature_vanishes_beside_many_rows():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], size=20_000)
    y = (proba.cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    sharp = proba**3 / (proba**3).sum(axis=1, keepdims=True)
    assert TemperatureScaling().fit(sharp, y).temperature_ == pytest.approx(3, rel=0.03)
