"""Risk-coverage curves: equal to brute force, ties and all, whatever the order of the rows."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import trapezoid
from sklearn.metrics import roc_auc_score

from demur.metrics import RiskCoverage, area_intervals
from demur.rules import Threshold

CONFIDENCES = st.integers(1, 5).map(lambda level: level / 8)
LOSSES = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 3))


@st.composite
def rows(draw: st.DrawFn, losses=LOSSES, max_size=25) -> tuple[np.ndarray, np.ndarray]:
    """Confidences with many ties, and losses."""
    pairs = draw(st.lists(st.tuples(CONFIDENCES, losses), min_size=1, max_size=max_size))
    confidence, loss = zip(*pairs, strict=True)
    return np.array(confidence), np.array(loss)


ERRORS = rows(losses=st.sampled_from([0.0, 1.0]))


def standard_aurc(losses) -> float:
    """The mean of the running means, for losses from the most confident row to the least."""
    return float(np.mean(np.cumsum(losses) / np.arange(1, len(losses) + 1)))


def all_orders_of_ties(confidence, loss):
    """Every order of the losses in which the confidence does not rise."""
    groups = [loss[confidence == value].tolist() for value in sorted(set(confidence), reverse=True)]
    for orders in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield list(itertools.chain(*orders))


def points(confidence, loss):
    """Coverage and risk of each set that a threshold can accept, from the smallest."""
    for value in sorted(set(confidence), reverse=True):
        accepted = confidence >= value
        yield accepted.mean(), loss[accepted].mean()


@given(rows())
def test_points_are_the_sets_that_a_threshold_can_accept(data):
    confidence, loss = data
    curve = RiskCoverage.from_confidence(confidence, loss)
    coverage, risk = zip(*points(confidence, loss), strict=True)
    assert curve.coverage == pytest.approx(coverage)
    assert curve.risk == pytest.approx(risk)
    assert curve.generalized_risk == pytest.approx(np.multiply(coverage, risk))


@given(ERRORS)
def test_thresholds_accept_the_rows_of_each_point(data):
    confidence, loss = data
    curve = RiskCoverage.from_confidence(confidence, loss)
    proba = np.c_[confidence, np.zeros((len(confidence), 6))]
    proba[:, 1:] += (1 - confidence[:, None]) / 6
    clear = confidence > 1 / 4  # elsewhere another class is the likelier one
    for threshold, coverage, risk in zip(curve.thresholds, curve.coverage, curve.risk, strict=True):
        accepted = confidence > threshold
        assert (accepted.mean(), loss[accepted].mean()) == (coverage, risk)
        rule = Threshold(float(threshold))
        for dtype in (np.float32, np.float64):
            assert (~rule.decide(proba.astype(dtype)).reject == accepted)[clear].all()


@given(rows(max_size=7))
def test_the_area_is_the_mean_over_all_orders_of_tied_rows(data):
    confidence, loss = data
    curve = RiskCoverage.from_confidence(confidence, loss)
    areas = [standard_aurc(order) for order in all_orders_of_ties(confidence, loss)]
    best = standard_aurc(np.sort(loss))
    assert curve.aurc == pytest.approx(np.mean(areas))
    assert curve.eaurc == pytest.approx(np.mean(areas) - best, abs=1e-12)


@given(st.lists(LOSSES, min_size=1, max_size=40), st.randoms(use_true_random=False))
def test_without_ties_it_is_the_usual_area(losses, random):
    confidence = np.array(random.sample(range(1000), len(losses)), dtype=float)
    order = np.argsort(-confidence)
    curve = RiskCoverage.from_confidence(confidence, losses)
    assert curve.aurc == pytest.approx(standard_aurc(np.array(losses)[order]))
    generalized = np.cumsum(np.array(losses)[order]) / len(losses)
    augrc = trapezoid(np.append(0, generalized), np.arange(len(losses) + 1) / len(losses))
    assert curve.augrc == pytest.approx(augrc)


@given(ERRORS.filter(lambda data: len(set(data[1])) == 2))
def test_the_augrc_of_errors_is_a_function_of_auroc_and_error_rate(data):
    confidence, wrong = data
    error, auroc = wrong.mean(), roc_auc_score(1 - wrong, confidence)
    expected = (1 - auroc) * error * (1 - error) + error**2 / 2
    assert RiskCoverage.from_confidence(confidence, wrong).augrc == pytest.approx(expected)


@given(rows())
def test_the_best_order_has_no_excess_and_no_order_has_less(data):
    confidence, loss = data
    assert RiskCoverage.from_confidence(-loss, loss).eaurc == pytest.approx(0, abs=1e-12)
    assert RiskCoverage.from_confidence(confidence, loss).eaurc >= 0


@given(rows(), st.floats(0, 3))
def test_coverage_at_looks_at_every_point(data, risk):
    curve = RiskCoverage.from_confidence(*data)
    good = [coverage for coverage, value in zip(curve.coverage, curve.risk, strict=True) if value <= risk]
    assert curve.coverage_at(risk=risk) == max(good, default=0.0)


@given(rows(), st.floats(0, 1, exclude_min=True))
def test_risk_at_takes_the_first_point_that_covers_enough(data, coverage):
    curve = RiskCoverage.from_confidence(*data)
    enough = [risk for share, risk in zip(curve.coverage, curve.risk, strict=True) if share >= coverage]
    assert curve.risk_at(coverage=coverage) == enough[0]


def test_both_take_arrays_and_decimal_numbers_mean_what_they_say():
    wrong = np.zeros(100, dtype=bool)
    wrong[55:] = True
    curve = RiskCoverage.from_confidence(np.arange(100.0)[::-1], wrong)
    assert curve.coverage_at(risk=0.45) == 1.0
    assert curve.risk_at(coverage=[0.55, 0.56]).tolist() == [0.0, 1 / 56]
    assert curve.coverage_at(risk=[0.0, 0.45]).tolist() == [0.55, 1.0]


@given(rows(), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_the_rows_never_matters(data, random, weighted):
    confidence, loss = data
    weight = np.array([random.choice([0.3, 1.0, 1.7]) for _ in loss]) if weighted else np.ones(len(loss))
    order = random.sample(range(len(loss)), len(loss))
    given_weight = (weight, weight[order]) if weighted else (None, None)
    one = RiskCoverage.from_confidence(confidence, loss, given_weight[0])
    other = RiskCoverage.from_confidence(confidence[order], loss[order], given_weight[1])
    assert (one.aurc, one.eaurc, one.augrc) == pytest.approx((other.aurc, other.eaurc, other.augrc), abs=1e-12)
    assert one.risk == pytest.approx(other.risk, abs=1e-12)


@given(rows(), st.data())
def test_a_whole_weight_repeats_the_row(data, drawn):
    confidence, loss = data
    n = len(loss)
    weight = np.array(drawn.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any)))
    one = RiskCoverage.from_confidence(confidence, loss, weight)
    other = RiskCoverage.from_confidence(np.repeat(confidence, weight), np.repeat(loss, weight))
    for name in ("coverage", "risk", "generalized_risk", "thresholds", "aurc", "eaurc", "augrc"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12)


@given(rows(), st.floats(1e-6, 1) | st.just(1e-300))
def test_equal_weights_below_one_change_nothing(data, weight):
    confidence, loss = data
    plain = RiskCoverage.from_confidence(confidence, loss)
    weighted = RiskCoverage.from_confidence(confidence, loss, np.full(len(loss), weight))
    for name in ("aurc", "eaurc", "augrc"):
        assert getattr(weighted, name) == pytest.approx(getattr(plain, name), abs=1e-12)


def test_errors_may_be_booleans_and_many_points_are_summed_in_chunks():
    rng = np.random.default_rng(0)
    confidence = rng.permutation(600_000) / 600_000
    wrong = rng.uniform(size=len(confidence)) > confidence
    curve = RiskCoverage.from_confidence(confidence, wrong)
    assert curve.aurc == pytest.approx(standard_aurc(wrong[np.argsort(-confidence)]), rel=1e-12)
    assert RiskCoverage.from_confidence(confidence, wrong.astype(float)).aurc == curve.aurc


def test_all_rows_equal():
    for loss in ([0, 0, 0], [1, 1, 1], [0.5, 0.5, 0.5]):
        curve = RiskCoverage.from_confidence([0.7] * 3, loss)
        assert curve.coverage.tolist() == [1]
        assert curve.aurc == pytest.approx(loss[0])
        assert curve.eaurc == 0


def test_repr():
    curve = RiskCoverage.from_confidence([-1.0, -2.0], [0, 1])
    assert repr(curve) == "RiskCoverage(2 rows, 2 points, augrc=0.125, aurc=0.25, eaurc=0)"
    assert curve.thresholds[-1] < -2.0


@pytest.mark.parametrize(
    ("confidence", "loss", "message"),
    [
        ([], [], r"same shape \(n,\) with n >= 1, got \(0,\) and \(0,\)"),
        ([0.1, 0.2], [1], r"got \(2,\) and \(1,\)"),
        ([[0.1]], [[1]], r"got \(1, 1\)"),
        ([0.1, np.nan], [0, 1], "confidence contains NaN or infinity"),
        ([0.1, 0.2], [0, np.inf], "loss contains NaN or infinity"),
    ],
)
def test_bad_rows(confidence, loss, message):
    with pytest.raises(ValueError, match=message):
        RiskCoverage.from_confidence(confidence, loss)


def test_bad_questions():
    curve = RiskCoverage.from_confidence([0.9, 0.8], [0, 1])
    for coverage in (0, -0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"coverage must be in \(0, 1\], got .*: without answers there is no risk"):
            curve.risk_at(coverage=coverage)
    with pytest.raises(ValueError, match="risk must be a number, got NaN"):
        curve.coverage_at(risk=[0.1, np.nan])
    with pytest.raises(ValueError, match="sample_weight is zero for every example"):
        RiskCoverage.from_confidence([0.1], [0], [0])


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
def test_confidences_that_differ_by_rounding_noise_tie(scale):
    """The same votes of a forest, added up in two orders, have one area and one interval."""
    rng = np.random.default_rng(0)
    votes = rng.integers(50, 101, size=400) / 100 * scale
    wrong = rng.random(400) < 0.1
    noisy = votes * (1 + rng.choice([-1, 0, 1], size=400) * 2e-16)
    assert len(np.unique(noisy)) > len(np.unique(votes))
    exact, found = (RiskCoverage.from_confidence(scores, wrong) for scores in (votes, noisy))
    assert len(found.coverage) == len(exact.coverage)
    assert found.aurc == pytest.approx(exact.aurc, rel=1e-12)
    intervals = [str(area_intervals(scores, wrong)["aurc"]) for scores in (votes, noisy)]
    assert intervals[0] == intervals[1]


def test_thresholds_accept_the_rows_of_their_points_where_confidences_tie_by_rounding():
    confidence = np.array([0.9, 0.1 + 0.2, 0.3, 0.3, 0.1])
    curve = RiskCoverage.from_confidence(confidence, [0, 1, 1, 0, 0])
    accepted = [(confidence > threshold).mean() for threshold in curve.thresholds]
    np.testing.assert_allclose(accepted, curve.coverage)


def test_ties_are_relative_to_the_confidences_beside_them():
    confidence = np.array([1e16, 3.0, 2.0, 1.0])
    assert len(RiskCoverage.from_confidence(confidence, [0, 1, 0, 1]).coverage) == 4


def test_sele_with_ties_halved_is_augrc():
    """Franc, Prusa and Voracek 2023: the mean over pairs of rows of the loss of the one that is kept longer."""
    rng = np.random.default_rng(5)
    confidence, losses = rng.integers(6, size=40) / 6, rng.random(40)
    kept_longer = (confidence[:, None] > confidence) + 0.5 * (confidence[:, None] == confidence)
    sele = (losses[:, None] * kept_longer).mean()
    assert RiskCoverage.from_confidence(confidence, losses).augrc == pytest.approx(sele)
