"""Coverage and RiskControl: the guarantees hold over many calibration samples, and the choices match brute force."""

import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.exceptions import NotFittedError

from demur.guarantees import Coverage, NoGuaranteeError, RiskControl
from demur.guarantees.risk_control import Sample, fixed_sequence, fixed_thresholds, p_value, rows_needed, upper_bound
from demur.rules import Rule, Threshold

CONFIDENCES = st.lists(st.integers(1, 8).map(lambda eighths: eighths / 8), min_size=1, max_size=30)


def probabilities(confidence, n_classes):
    """Class 0 with the confidence given; the others share the rest."""
    proba = np.repeat((1 - np.asarray(confidence)[:, None]) / (n_classes - 1), n_classes, axis=1)
    proba[:, 0] = confidence
    return proba


# --- exact binomial statements


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.01, 0.9), st.floats(0.001, 0.5))
def test_bound_and_p_value_are_those_of_the_binomial_distribution(errors, n, risk, delta):
    errors = min(errors, n)
    p, bound = float(p_value(errors, n, risk)), float(upper_bound(errors, n, delta))
    assert p == pytest.approx(binom.cdf(errors, n, risk))
    assert (bound <= risk) == (p <= delta)  # two sides of one test
    if errors < n:
        assert binom.cdf(errors, n, bound) == pytest.approx(delta)
    else:
        assert bound == 1


@given(st.floats(0.005, 0.5), st.floats(0.001, 0.5))
def test_rows_needed_is_the_first_number_that_suffices(risk, delta):
    n = rows_needed(risk, delta)
    assert upper_bound(0, n, delta) <= risk + 1e-12
    assert n == 1 or upper_bound(0, n - 1, delta) > risk - 1e-12


# --- Coverage


@given(CONFIDENCES, st.one_of(st.floats(0.01, 1), st.sampled_from([0.1, 0.2, 0.3, 0.55, 0.7])))
def test_coverage_accepts_the_smallest_set_that_reaches_the_target(confidence, target):
    confidence = np.array(confidence)
    achievable = [(confidence >= value).mean() for value in sorted(set(confidence), reverse=True)]
    wanted = min(share for share in achievable if share >= target)
    rule = Coverage(target).fit_confidence(confidence)
    accepted = confidence[confidence > rule.threshold_]
    assert len(accepted) / len(confidence) == wanted == rule.n_accepted_ / len(confidence)
    assert np.sum(accepted > accepted.min()) / len(confidence) < target  # without the last tied group it is too few


def test_coverage_on_probabilities_and_new_rows():
    proba = np.random.default_rng(0).dirichlet(np.ones(4), size=4000)
    rule = Coverage(0.7).fit(proba[:2000], y=np.zeros(2000, dtype=int))
    assert (~rule.decide(proba[:2000]).reject).mean() == 0.7
    assert (~rule.decide(proba[2000:]).reject).mean() == pytest.approx(0.7, abs=0.05)
    assert (rule.decide(proba).reject == Threshold(rule.threshold_).decide(proba).reject).all()
    assert (rule.decide(proba).label == proba.argmax(axis=1)).all()
    assert not Coverage(1.0).fit(proba).decide(proba).reject.any()
    assert "1,400 of 2,000 calibration rows (70.0 %)" in rule.explain()
    single = proba.astype(np.float32)
    assert (~Coverage(0.7).fit(single[:2000]).decide(single[:2000]).reject).mean() == 0.7


def test_coverage_of_a_confidence_on_another_scale():
    rule = Coverage(1.0).fit_confidence([-3.0, 0.0, 2.0])
    assert rule.threshold_ == -np.inf


# --- RiskControl: the guarantee


def calibrated(u):
    return u


def overconfident(u):
    return np.sqrt(u)


def wrong_at_the_top(u):
    """Errors where the confidence is highest, as with mislabelled rows: the risk falls as the coverage grows."""
    return np.where(u < 0.02, 0.6, u / 2)


SETTINGS = {
    "calibrated, K = 2": (calibrated, 2, 300, 0.15, 0.1),
    "calibrated, K = 3, few rows": (calibrated, 3, 60, 0.25, 0.2),
    "calibrated, K = 5": (calibrated, 5, 500, 0.25, 0.1),
    "calibrated, K = 10": (calibrated, 10, 1000, 0.2, 0.05),
    "overconfident, K = 3": (overconfident, 3, 200, 0.4, 0.1),
    "overconfident, K = 5": (overconfident, 5, 500, 0.4, 0.1),
}
N_SAMPLES = 1000


def most_violations(delta):
    """Exceeded with probability 0.001 if each sample violates with probability delta."""
    return binom.isf(0.001, N_SAMPLES, delta)


def samples(error, n_classes, n, seed=0):
    """Calibration samples, where the uncertainty u = 1 - confidence is uniform on (0, 1 - 1/K)."""
    rng = np.random.default_rng(seed)
    u = rng.uniform(0, 1 - 1 / n_classes, size=(N_SAMPLES, n))
    return 1 - u, rng.uniform(size=u.shape) < error(u)


def true_risk(error, n_classes, threshold):
    """The mean of the error over the accepted uncertainties, by the midpoint rule."""
    top = np.minimum(1 - threshold, 1 - 1 / n_classes)
    return error(top * (np.arange(2000) + 0.5) / 2000).mean()


def outcomes(error, n_classes, n, target, delta):
    """The true risk that each sample ends at; NaN without a guarantee."""
    found = []
    for confidence, wrong in zip(*samples(error, n_classes, n), strict=True):
        try:
            found.append(
                true_risk(error, n_classes, fixed_sequence(Sample(confidence, wrong), target, delta).threshold)
            )
        except NoGuaranteeError:
            found.append(math.nan)
    return np.array(found)


QUICK = "calibrated, K = 3, few rows", "overconfident, K = 3"


@pytest.mark.parametrize(
    "setting",
    [pytest.param(value, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, value in SETTINGS.items()],
)
def test_the_risk_exceeds_its_target_no_more_often_than_delta(setting):
    error, n_classes, n, target, delta = setting
    risk = outcomes(error, n_classes, n, target, delta)
    assert np.sum(risk > target) <= most_violations(delta)
    assert np.isfinite(risk).mean() > 0.2  # the guarantee is not kept by never giving it


@pytest.mark.parametrize(
    ("n", "target", "delta"), [(50, 0.3, 0.2), pytest.param(400, 0.1, 0.1, marks=pytest.mark.slow)]
)
def test_where_every_threshold_violates_hardly_any_is_returned(n, target, delta):
    """The hardest case: the risk is just above the target wherever the threshold lies, so any answer is wrong."""
    risk = outcomes(lambda u: np.full(u.shape, target * 1.0001), 4, n, target, delta)
    answered = np.isfinite(risk).sum()
    assert answered <= most_violations(delta)
    assert answered >= N_SAMPLES * delta / 20  # and the correction does not throw delta away


@pytest.mark.slow
def test_fixed_sequence_testing_needs_no_monotone_risk():
    for n, target in ((300, 0.15), (1500, 0.1)):
        risk = outcomes(wrong_at_the_top, 2, n, target, 0.1)
        assert np.sum(risk > target) <= most_violations(0.1)


@pytest.mark.slow
def test_ties_do_not_break_it():
    """Two confidences only; the risk of the upper one is just above the target, that of both together too."""
    rng = np.random.default_rng(0)
    answered = 0
    for _ in range(N_SAMPLES):
        confidence = rng.choice([0.9, 0.6], size=200)
        wrong = rng.uniform(size=200) < 0.2001
        try:
            fixed_sequence(Sample(confidence, wrong), 0.2, 0.1)
            answered += 1
        except NoGuaranteeError:
            pass
    assert answered <= most_violations(0.1)


# --- RiskControl: the choices


@given(st.integers(0, 2**16), st.integers(1, 400), st.sampled_from([0.05, 0.2, 0.6]))
@settings(max_examples=15)
def test_fixed_sequence_is_the_fallback_procedure(seed, n, target):
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.3, 1, size=n) ** 0.2
    wrong = rng.uniform(size=n) < (1 - confidence) / 2
    thresholds, parts = fixed_thresholds(target)
    level, rejected = 0.0, []
    for threshold, part in zip(thresholds, parts, strict=True):
        accepted = confidence > threshold
        level += 0.1 * part
        if binom.cdf(wrong[accepted].sum(), accepted.sum(), target) <= level and accepted.any():
            rejected.append((threshold, level))
        else:
            level = 0.0
    if not rejected:
        with pytest.raises(NoGuaranteeError) as caught:
            fixed_sequence(Sample(confidence, wrong), target, 0.1)
        assert caught.value.best.bound > target
        return
    found = fixed_sequence(Sample(confidence, wrong), target, 0.1)
    assert (found.threshold, found.level) == rejected[-1]
    assert found.bound <= target + 1e-12


@pytest.mark.parametrize("target", [1e-4, 0.01, 0.5, 0.99])
def test_the_thresholds_are_fixed_in_advance_and_descend_to_accepting_all(target):
    thresholds, parts = fixed_thresholds(target)
    assert (np.diff(thresholds) < 0).all()
    assert 0 == thresholds[-1] < thresholds[0] < 1
    assert parts.sum() == pytest.approx(1)
    assert thresholds[parts.argmax()] == pytest.approx(1 - target)


@pytest.mark.parametrize("n_classes", [2, 7])
def test_fit_decide_and_explain(n_classes):
    rng = np.random.default_rng(1)
    confidence = rng.uniform(1 / n_classes, 1, size=3000) ** 0.2
    proba = probabilities(confidence, n_classes)
    y = np.where(rng.uniform(size=3000) < confidence, 0, rng.integers(1, n_classes, size=3000))
    rule = RiskControl(0.05)
    assert "not fitted yet" in rule.explain()
    assert rule.fit(proba[:2000], y[:2000]) is rule
    assert isinstance(rule, Rule)
    assert rule.fit(proba[:2000], y[:2000]) == rule == pickle.loads(pickle.dumps(rule))
    decision = rule.decide(proba)
    assert decision.reject.tolist() == (proba.max(axis=1) <= rule.threshold_).tolist()
    assert np.sum(~decision.reject[:2000]) == rule.certificate_.n_accepted
    assert rule.certificate_.n_wrong / rule.certificate_.n_accepted < rule.certificate_.bound <= 0.05
    text = rule.explain()
    for words in ("0.95", "0.05", f"{rule.threshold_:.6g}", "2,000 calibration rows", "exchangeable"):
        assert words in text


# --- bad input


def test_no_threshold_can_give_the_guarantee():
    proba, y = probabilities(np.linspace(0.6, 1, 50), 3), np.zeros(50, dtype=int)
    with pytest.raises(
        NoGuaranteeError, match=r"at most 0\.01 with probability 0\.95: on these 50 .* bound is"
    ) as caught:
        RiskControl(0.01).fit(proba, y)
    assert caught.value.best.n_rows == 50
    assert caught.value.best.bound > 0.01
    assert caught.value.rows_needed >= rows_needed(0.01, 0.05) == 299
    assert f"at least {caught.value.rows_needed:,} accepted rows" in str(caught.value)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.best, str(copy)) == (caught.value.best, str(caught.value))
    with pytest.raises(NoGuaranteeError, match="bound is 1 "):
        RiskControl(0.3).fit(proba, y + 1)


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, math.nan])
def test_shares_outside_the_domain(value):
    with pytest.raises(ValueError, match=r"target_risk must be in \(0, 1\), got"):
        RiskControl(value)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), got"):
        RiskControl(0.1, delta=value)
    if value != 1:
        with pytest.raises(ValueError, match=r"target must be in \(0, 1\], got"):
            Coverage(value)


def test_a_share_must_be_a_number():
    with pytest.raises(TypeError, match=r"target_risk must be a number in \(0, 1\), got '5 %'"):
        RiskControl("5 %")
    with pytest.raises(TypeError, match="target must be a number"):
        Coverage(None)


@pytest.mark.parametrize(
    ("proba", "y", "kind", "message"),
    [
        (np.empty((0, 2)), np.empty(0, dtype=int), ValueError, "with at least one row"),
        ([[0.5, np.nan]], [0], ValueError, "NaN or infinity"),
        ([[0.5, 0.6]], [0], ValueError, r"row 1 sums to 1\.1"),
        ([0.5, 0.5], [0], ValueError, r"proba must have shape \(n, n_classes\) .* got \(2,\)"),
        ([[0.5, 0.5]], [0, 1], ValueError, r"y must have shape \(1,\)"),
        ([[0.5, 0.5]], [2], ValueError, "column numbers from 0 to 1, got 2"),
        ([[0.5, 0.5]], [-1], ValueError, "column numbers from 0 to 1, got -1"),
        ([[0.5, 0.5]], ["a"], TypeError, "column numbers of proba"),
        ([[0.5, 0.5]], [0.0], TypeError, "column numbers of proba"),
    ],
)
def test_bad_calibration_samples(proba, y, kind, message):
    with pytest.raises(kind, match=message):
        RiskControl(0.1).fit(proba, y)


def test_bad_confidences():
    with pytest.raises(ValueError, match="calibration sample is empty"):
        Coverage(0.5).fit(np.empty((0, 3)))
    with pytest.raises(ValueError, match="confidences contain NaN"):
        Coverage(0.5).fit_confidence([0.5, math.nan])
    with pytest.raises(ValueError, match=r"one confidence per row, got shape \(1, 1\)"):
        Coverage(0.5).fit_confidence([[0.5]])
    with pytest.raises(ValueError, match="wrong must be a boolean array of shape"):
        RiskControl(0.5).fit_confidence([0.5], [1])


def test_clusters_and_copies_are_of_all_rows():
    """Fewer would leave rows out without a word."""
    confidence, wrong = np.linspace(0.5, 1, 200), np.zeros(200, dtype=bool)
    for name in ("clusters", "copies"):
        for n_rows in (1, 199, 201):
            with pytest.raises(
                ValueError, match=rf"{name} must have shape \(200,\), one for each row, got \({n_rows},\)"
            ):
                RiskControl(0.1).fit_confidence(confidence, wrong, **{name: np.zeros(n_rows, dtype=bool)})


@pytest.mark.parametrize("unit", ["cluster", "row"])
def test_clusters_have_names_of_any_type(unit):
    confidence, wrong = np.linspace(0.5, 1, 400), np.zeros(400, dtype=bool)
    numbers = np.arange(400) // 2
    expected = RiskControl(0.2, unit=unit).fit_confidence(confidence, wrong, clusters=numbers).certificate_
    for names in ([None if i == 7 else f"p{i}" for i in numbers], numbers.astype(str), numbers.astype(float)):
        assert RiskControl(0.2, unit=unit).fit_confidence(confidence, wrong, clusters=names).certificate_ == expected


@pytest.mark.parametrize("rule", [Coverage(0.5), RiskControl(0.1)])
def test_a_rule_that_is_not_fitted(rule):
    with pytest.raises(NotFittedError, match="is not fitted yet"):
        rule.decide([[0.5, 0.5]])
    assert "not fitted yet" in rule.explain()
