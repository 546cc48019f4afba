"""Calibration: one number, or one curve per class."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from demur import calibration
from demur.calibration import OneVsRestCalibration, TemperatureScaling, best_calibration
from demur.errors import InputError
from demur.guarantees import Coverage, RiskControl
from demur.label_shift import LabelShift, correct_proba
from demur.metrics import CostCurve, CostCurveDisplay, RiskCoverageDisplay
from demur.rules import Chow, CostMatrix, Threshold


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


def test_zeros_of_classes_that_occur_are_smoothed_away():
    """Five neighbours: a class without any of them is not impossible."""
    proba, y = sample(0, k=8)
    votes = np.array([np.random.default_rng(row).multinomial(5, p) / 5 for row, p in enumerate(proba)])
    log_loss = lambda found: -np.log(found.transform(votes)[np.arange(len(y)), y]).mean()  # noqa: E731
    best = best_calibration(votes, y)
    assert best.smooth
    assert 0 < best.smoothing_.sum() < 1
    assert log_loss(best) < log_loss(TemperatureScaling().fit(votes, y))
    assert not best_calibration(proba, y).get_params().get("smooth")
    with pytest.raises(ValueError, match="leave it out with from_logits"):
        TemperatureScaling(smooth=True, from_logits=True)


def test_exact_zeros_and_bad_temperatures():
    assert np.isfinite(TemperatureScaling(2.0).transform([[1.0, 0.0]])).all()
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ValueError, match="temperature must be positive"):
            TemperatureScaling(wrong)


@pytest.mark.parametrize("model", ["isotonic", "sigmoid"])
def test_curves_per_class_undo_overconfidence(model):
    proba, y = sample(2)
    sharp = TemperatureScaling(0.3).transform(proba)
    calibrated = OneVsRestCalibration(model).fit(sharp, y).transform(sharp)
    assert calibrated.sum(1) == pytest.approx(1)
    assert np.abs(calibrated - proba).mean() < np.abs(sharp - proba).mean()


def test_other_curves_are_refused():
    with pytest.raises(ValueError, match="model must be 'isotonic' or 'sigmoid', got 'spline'"):
        OneVsRestCalibration("spline").fit(*sample(0))


def test_a_class_without_rows():
    """It keeps a small probability: the rows do not show that it never occurs."""
    proba, y = sample(3)
    with pytest.warns(UserWarning, match="isotonic calibration overfits .* fewer than 200 rows, and the rarest has 0"):
        fitted = OneVsRestCalibration("isotonic").fit(proba[y != 2], y[y != 2])
    assert fitted.models_[2] == pytest.approx(proba[y != 2, 2].mean() / ((y != 2).sum() + 1))
    assert (fitted.transform(proba)[:, 2] > 0).all()
    few = best_calibration([[0.5, 0.3, 0.2]] * 6, [0] * 6)
    assert (few.transform([[0.5, 0.3, 0.2]]) > 0).all()


def test_rows_without_errors_give_a_moderate_temperature():
    """The log loss alone would choose the lowest temperature there is."""
    proba = np.array([[0.9, 0.1], [0.2, 0.8]] * 100)
    temperature = TemperatureScaling().fit(proba, [0, 1] * 100).temperature_
    assert 0.2 < temperature < 1


def test_the_penalty_is_negligible_with_many_rows():
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], size=20_000)
    y = (proba.cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    sharp = proba**3 / (proba**3).sum(axis=1, keepdims=True)
    assert TemperatureScaling().fit(sharp, y).temperature_ == pytest.approx(3, rel=0.03)


# --- logits

LOGITS = 3 * np.random.default_rng(0).normal(size=(500, 3))
CLASSES = (softmax(LOGITS / 3, axis=1).cumsum(axis=1) > np.random.default_rng(1).random((500, 1))).argmax(axis=1)


def test_temperature_refuses_logits():
    with pytest.raises(ValueError, match=r"lie in \[0, 1\], got .* logits, use TemperatureScaling\(from_logits=True\)"):
        TemperatureScaling().fit(LOGITS, CLASSES)
    with pytest.raises(ValueError, match="from_logits=True"):
        TemperatureScaling(2.0).transform(LOGITS)
    with pytest.raises(ValueError, match=r"sum to 1 in each row; row 1 sums to 1\.1.*from_logits=True"):
        TemperatureScaling().fit([[0.5, 0.6]], [0])


def test_the_temperature_of_logits_is_that_of_their_softmax():
    of_logits = TemperatureScaling(from_logits=True).fit(LOGITS, CLASSES)
    of_proba = TemperatureScaling().fit(softmax(LOGITS, axis=1), CLASSES)
    assert of_logits.temperature_ == pytest.approx(of_proba.temperature_, rel=1e-6)
    assert of_logits.temperature_ == pytest.approx(3, rel=0.2)
    np.testing.assert_allclose(of_logits.transform(LOGITS), of_proba.transform(softmax(LOGITS, axis=1)), atol=1e-9)
    np.testing.assert_allclose(of_logits.transform(LOGITS), softmax(LOGITS / of_logits.temperature_, axis=1))
    before = LOGITS.copy()
    of_logits.transform(LOGITS)
    np.testing.assert_array_equal(LOGITS, before)  # the caller's array is not written to


def test_probabilities_given_as_logits_are_refused():
    with pytest.raises(ValueError, match="look like probabilities"):
        TemperatureScaling(from_logits=True).fit(softmax(LOGITS, axis=1), CLASSES)
    with pytest.raises(ValueError, match="logits contain NaN or infinity"):
        TemperatureScaling(from_logits=True).fit([[0.0, np.inf]], [0])


SIBLINGS = {
    "OneVsRestCalibration.fit": lambda p: OneVsRestCalibration().fit(p, CLASSES),
    "OneVsRestCalibration.transform": lambda p: OneVsRestCalibration().fit(*sample(0)).transform(p),
    "LabelShift.fit": lambda p: LabelShift(np.full(3, 1 / 3)).fit(p),
    "correct_proba": lambda p: correct_proba(p, np.full(3, 1 / 3), np.full(3, 1 / 3)),
    "RiskControl.fit": lambda p: RiskControl(0.4).fit(p, CLASSES),
    "Coverage.fit": lambda p: Coverage(0.4).fit(p),
    "Chow": lambda p: Chow(0.2).decide(p),
    "Threshold": lambda p: Threshold(0.2).decide(p),
    "CostMatrix": lambda p: CostMatrix(np.c_[1 - np.eye(3), np.full(3, 0.2)]).decide(p),
    "CostCurve": lambda p: CostCurve.from_proba(p, CLASSES),
    "CostCurveDisplay": lambda p: CostCurveDisplay.from_predictions(CLASSES, p),
    "RiskCoverageDisplay": lambda p: RiskCoverageDisplay.from_predictions(CLASSES, p),
}


@pytest.mark.parametrize("name", SIBLINGS)
def test_functions_of_probabilities_refuse_logits(name):
    with pytest.raises(ValueError, match=r"probabilities must lie in \[0, 1\]"):
        SIBLINGS[name](LOGITS)
    with pytest.raises(ValueError, match="probabilities must sum to 1 in each row"):
        SIBLINGS[name](0.9 * softmax(LOGITS, axis=1))


# --- calibrators are estimators


@pytest.mark.parametrize(
    "calibrator",
    [
        TemperatureScaling(),
        TemperatureScaling(from_logits=False),
        OneVsRestCalibration("sigmoid"),
        LabelShift(np.full(3, 1 / 3)),
    ],
    ids=repr,
)
def test_calibrators_are_estimators(calibrator):
    proba, y = sample(0)
    fitted = clone(calibrator)
    with pytest.raises(NotFittedError):
        fitted.transform(proba)
    with pytest.raises(NotFittedError):
        check_is_fitted(fitted)
    before = repr(fitted.get_params())
    assert fitted.fit(proba, y) is fitted
    check_is_fitted(fitted)
    assert repr(fitted.get_params()) == before
    assert fitted.transform(proba).sum(axis=1) == pytest.approx(1)


def test_another_fit_forgets_the_biases():
    proba, y = sample(0)
    scaling = TemperatureScaling(biases=True).fit(proba, y)
    assert scaling.set_params(biases=False).fit(proba, y) == TemperatureScaling().fit(proba, y)
    assert scaling.biases_ is None


@pytest.mark.filterwarnings("ignore:isotonic calibration overfits")
@pytest.mark.parametrize("model", ["isotonic", "sigmoid"])
def test_curves_do_not_see_rows_of_weight_zero(model):
    proba, y = sample(0)
    counted = y != 2
    without = OneVsRestCalibration(model).fit(proba[counted], y[counted]).transform(proba)
    for weight in (counted * 1.0, counted * 1e-9):  # weights that are not counts have no scale
        weighted = OneVsRestCalibration(model).fit(proba, y, weight)
        np.testing.assert_allclose(weighted.transform(proba), without, atol=1e-6)
        assert (weighted.transform(proba)[:, 2] > 0).all()


def test_a_given_temperature_is_used_as_it_is():
    proba, y = sample(0)
    fixed = TemperatureScaling(2.0)
    assert fixed.temperature_ == 2
    assert fixed.fit(proba, y).temperature_ == 2
    assert fixed.set_params(temperature=3.0).temperature_ == 3
    assert TemperatureScaling(1.5) == TemperatureScaling(1.5) != TemperatureScaling(2.0)
    found = TemperatureScaling().fit(proba, y)
    assert found == TemperatureScaling().fit(proba, y) != TemperatureScaling()


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), OneVsRestCalibration()], ids=repr)
@pytest.mark.parametrize(
    ("y", "kind", "message"),
    [
        ([0], ValueError, r"y must have shape \(2,\)"),
        ([0, -1], ValueError, "column numbers from 0 to 1, got -1"),
        (["a", "b"], TypeError, "column numbers of proba"),
    ],
)
def test_true_classes_are_column_numbers(calibrator, y, kind, message):
    with pytest.raises(kind, match=message):
        calibrator.fit([[0.5, 0.5], [0.2, 0.8]], y)


def test_calibrators_refuse_other_shapes_and_bad_weights():
    with pytest.raises(ValueError, match=r"at least one row, got \(0, 2\)"):
        TemperatureScaling().fit(np.empty((0, 2)), np.empty(0, dtype=int))
    with pytest.raises(ValueError, match=r"at least one row, got \(2,\)"):
        OneVsRestCalibration().fit([0.5, 0.5], [0])
    with pytest.raises(ValueError, match=r"shape \(n, 3\), as in fit, got \(1, 2\)"):
        OneVsRestCalibration().fit(*sample(0)).transform([[0.5, 0.5]])
    with pytest.raises(ValueError, match="sample_weight must be finite and not negative"):
        TemperatureScaling().fit([[0.5, 0.5], [0.2, 0.8]], [0, 1], [1, -1])


# --- logits of any scale


def logits_sample(n=800, k=4, seed=5):
    rng = np.random.default_rng(seed)
    logits = 2 * rng.normal(size=(n, k))
    y = (softmax(logits, axis=1).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return logits, y


@given(exponent=st.floats(-4, 4), seed=st.integers(0, 20))
def test_the_temperature_scales_with_the_logits(exponent, seed):
    logits, y = logits_sample(seed=seed)
    scale = 10.0**exponent
    found = TemperatureScaling(from_logits=True).fit(scale * logits, y)
    assert found.temperature_ / scale == pytest.approx(1.0, rel=0.2)
    unscaled = TemperatureScaling(from_logits=True).fit(logits, y)
    np.testing.assert_allclose(found.transform(scale * logits), unscaled.transform(logits), atol=0.01)


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_the_scale_of_logits_does_not_matter(scale):
    logits, y = logits_sample(4000)
    proba = TemperatureScaling(from_logits=True).fit(scale * logits, y).transform(scale * logits)
    decision = Chow(0.2).decide(proba)
    expected = Chow(0.2).decide(softmax(logits, axis=1))
    assert (decision.reject == expected.reject).mean() > 0.97


def test_a_temperature_at_the_end_of_the_search_warns():
    """Where the lower score is always right, the higher the temperature the better."""
    with pytest.warns(UserWarning, match="at the end of the range"):
        TemperatureScaling(from_logits=True).fit(np.array([[0.0, 2.0]] * 20_000), np.zeros(20_000, dtype=int))
    assert TemperatureScaling(from_logits=True).fit(np.zeros((9, 3)), [0, 1, 2] * 3).temperature_ == pytest.approx(
        1, rel=1e-5
    )


@pytest.mark.parametrize("mask", [-1e4, -1e9, -3e38])
def test_a_masked_class_does_not_move_the_temperature(mask):
    logits, y = logits_sample()
    masked = np.column_stack([logits, np.full(len(logits), mask)])
    expected = TemperatureScaling(from_logits=True).fit(logits, y).temperature_
    assert TemperatureScaling(from_logits=True).fit(masked, y).temperature_ == pytest.approx(expected, rel=1e-3)


def test_weights_that_sum_to_one_are_not_counts():
    logits, y = logits_sample()
    expected = TemperatureScaling(from_logits=True).fit(8 * logits, y).temperature_
    share = np.full(len(y), 1 / len(y))
    assert TemperatureScaling(from_logits=True).fit(8 * logits, y, share).temperature_ == pytest.approx(expected)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(precision):
    logits, y = logits_sample()
    half = torch.tensor(logits).to(precision)
    scaling = TemperatureScaling(from_logits=True).fit(half, y)
    proba = scaling.transform(half)
    assert proba.dtype == np.float32
    np.testing.assert_allclose(proba, scaling.transform(half.double()), atol=1e-6)
    rounded = torch.tensor(proba).half()  # bfloat16 would not sum to 1
    decision = Chow(0.003).decide(rounded)
    assert decision.confidence.dtype == np.float32
    np.testing.assert_array_equal(decision.reject, (rounded.double().amax(1) <= 1 - 0.003).numpy())


@pytest.mark.parametrize(("scale", "masked"), [(1e-6, False), (1e6, False), (1.0, True)])
def test_a_sample_of_many_rows_is_enough(scale, masked, monkeypatch):
    rng = np.random.default_rng(3)
    y = rng.integers(50, size=8_000)
    logits = rng.normal(size=(len(y), 50))
    logits[np.arange(len(y)), y] += 3
    logits *= 2 * scale
    if masked:
        logits[:, 7] = np.where(y == 7, logits[:, 7], -1e9 * scale)
    weights = np.where(rng.random(len(y)) < 0.5, 0.0, rng.integers(1, 4, len(y)))
    found = TemperatureScaling(from_logits=True).fit(logits, y, weights).temperature_
    monkeypatch.setattr(calibration, "_MOST_NUMBERS", 1 << 16)
    of_some = TemperatureScaling(from_logits=True, biases=True).fit(logits, y, weights)
    assert of_some.temperature_ == pytest.approx(found, rel=0.1)
    assert np.median(np.abs(of_some.biases_)) < 1
    assert found == pytest.approx(2 * scale / 3, rel=0.05)


def test_a_temperature_that_is_set_later_is_checked():
    scaling = TemperatureScaling(2.0)
    with pytest.raises(InputError, match="temperature must be positive, got -1"):
        scaling.set_params(temperature=-1)
    assert scaling.temperature_ == 2


@pytest.mark.parametrize("from_logits", [False, True])
@pytest.mark.parametrize("temperature", [None, 1.5])
def test_biases_are_those_of_least_penalised_log_loss(temperature, from_logits):
    """No step away from what was found lowers the log loss; weights count as so many rows."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * 3
    y = rng.integers(3, size=400)
    y[:250] = (logits / 2 + [1.0, 0.0, -1.0]).argmax(axis=1)[:250]
    given = logits if from_logits else np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    scaling = TemperatureScaling(temperature, from_logits=from_logits, biases=True).fit(given, y)

    def penalised(log_temperature, biases):
        scores = logits / np.exp(log_temperature) + biases
        loss = np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(400), y]
        return loss.sum() + np.hypot(1, log_temperature) + biases @ biases / 2

    own, biases = np.log(scaling.temperature_), scaling.biases_
    least = penalised(own, biases)
    for step in 0.01 * rng.normal(size=(50, 4)):
        moved = own + step[0] * (temperature is None)
        assert penalised(moved, biases + step[1:]) > least
    assert scaling.temperature_ == temperature or temperature is None
    twice = TemperatureScaling(temperature, from_logits=from_logits, biases=True)
    np.testing.assert_allclose(
        twice.fit(given, y, np.full(400, 2.0)).biases_,
        twice.fit(np.tile(given, (2, 1)), np.tile(y, 2)).biases_,
        atol=1e-3,
    )


@pytest.mark.parametrize(("n_rows", "tilt", "kind"), [(3000, [8, 1, 1], True), (40, [1.1, 1, 1], False)])
def test_the_best_calibration_has_few_parameters_where_there_are_few_rows(n_rows, tilt, kind):
    rng = np.random.default_rng(1)
    proba = rng.dirichlet([1, 1, 1], size=n_rows)
    y = (rng.random((n_rows, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    tilted = proba * tilt / (proba * tilt).sum(axis=1, keepdims=True)
    found = best_calibration(tilted, y)
    assert (isinstance(found, OneVsRestCalibration) or found.biases) == kind
    assert best_calibration(tilted[:3], y[:3]).transform(tilted).shape == (n_rows, 3)


def test_rows_of_weight_zero_choose_no_calibration():
    proba, y = sample(0, n=60)
    weight = (np.arange(60) < 8) * 1.0
    found, alone = best_calibration(proba, y, weight), best_calibration(proba[:8], y[:8])
    assert type(found) is type(alone)
    assert best_calibration(proba, y, (np.arange(60) == 7) * 1.0).transform(proba).shape == (60, 3)
