"""Gaussian classes: exact posterior, samples, and the figures of the Bayes-optimal rule."""

import pickle
from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, multivariate_normal, norm

from demur.datasets import BayesSummary, GaussianClasses, make_gaussian_classes, paper_gaussians
from demur.metrics import accepted_accuracy, coverage, rejection_rate, zero_one_c_risk
from demur.rules import Chow

FIGURES = ("risk", "rejection_rate", "coverage", "accepted_accuracy")


def random_classes(seed: int, n_features: int = 2) -> GaussianClasses:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.integers(2, 7))
    means = rng.uniform(-1, 1, size=(n_classes, n_features)) * rng.uniform(1, 3)
    return GaussianClasses(means, variance=float(rng.uniform(0.1, 1)), prior=rng.dirichlet(np.full(n_classes, 3.0)))


@given(st.integers(0, 10_000), st.integers(1, 4))
@settings(max_examples=50)
def test_the_posterior_is_bayes_formula(seed, n_features):
    classes = random_classes(seed, n_features)
    X, _ = classes.sample(n=20, seed=seed)
    joint = np.stack(
        [
            prior * multivariate_normal(mean, classes.variance * np.eye(n_features)).pdf(X)
            for mean, prior in zip(classes.means, classes.prior, strict=True)
        ],
        axis=1,
    )
    np.testing.assert_allclose(classes.posterior(X), joint / joint.sum(axis=1, keepdims=True), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(classes.posterior(X).sum(axis=1), 1)


def test_the_posterior_is_finite_far_away_and_exact_far_from_the_origin():
    classes = GaussianClasses([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    far = classes.posterior([[1e6, 0.0], [0.0, 1e150], [-1e6, -1e6]])
    np.testing.assert_allclose(far, [[0, 1, 0], [0, 0, 1], [1, 0, 0]], atol=1e-300)
    X = np.array([[0.25, 0.5], [0.75, 0.125]])
    moved = GaussianClasses(classes.means + 2.0**30)
    np.testing.assert_allclose(moved.posterior(X + 2.0**30), classes.posterior(X))


def two_gaussians_by_hand(distance: float, sigma: float, prior: float, cost: float) -> tuple[float, float]:
    """Return risk and rejection rate for classes at -distance/2 and distance/2, the second with frequency ``prior``.

    The log-odds of the second class are x distance / sigma^2 + log(prior / (1 - prior)); they are rejected
    between -theta and theta, theta = log((1 - c) / c).
    """
    theta, shift = log((1 - cost) / cost), log(prior / (1 - prior))
    low, high = (sigma**2 / distance * (edge - shift) for edge in (-theta, theta))
    first, second = norm(-distance / 2, sigma), norm(distance / 2, sigma)
    rejected = (1 - prior) * (first.cdf(high) - first.cdf(low)) + prior * (second.cdf(high) - second.cdf(low))
    wrong = (1 - prior) * first.sf(high) + prior * second.cdf(low)
    return wrong + cost * rejected, rejected


@pytest.mark.parametrize("cost", [0.001, 0.2, 0.499])
@pytest.mark.parametrize(("n_features", "prior"), [(1, 0.9), (5, 0.5)])
@pytest.mark.parametrize("distance", [0.3, 3.0])
def test_two_classes_agree_with_the_closed_form(n_features, cost, prior, distance):
    direction = np.ones(n_features) / sqrt(n_features)
    centres = np.outer([-distance / 2, distance / 2], direction)
    best = GaussianClasses(centres, variance=0.36, prior=[1 - prior, prior]).bayes_summary(cost, n_draws=2**18)
    risk, rejected = two_gaussians_by_hand(distance, 0.6, prior, cost)
    assert best.risk.value == pytest.approx(risk, abs=1e-5)
    assert best.rejection_rate.value == pytest.approx(rejected, abs=1e-4)


def test_just_below_one_half_almost_nothing_is_rejected_and_the_risk_is_the_error_rate():
    classes = GaussianClasses([[-1.0, 0.0], [1.0, 0.0]], variance=1.0)
    assert classes.bayes_risk(0.5 - 1e-9) == pytest.approx(norm.cdf(-1.0), abs=1e-5)


@given(st.integers(0, 10_000), st.floats(0.02, 0.48))
@settings(max_examples=8)
def test_laws_of_the_bayes_optimal_rule(seed, cost):
    classes = random_classes(seed)
    less, here, more = (classes.bayes_summary(c, n_draws=2**16) for c in (cost - 0.01, cost, cost + 0.01))
    slack = 1e-9
    assert 0 <= here.risk.value <= cost + slack, "rejecting everything costs c"
    assert more.rejection_rate.value <= here.rejection_rate.value + slack, "the dearer, the rarer"
    # The risk is concave in c with the rejection rate as its derivative, between those of the neighbours.
    slope = (more.risk.value - less.risk.value) / 0.02
    assert more.rejection_rate.value - slack <= slope <= less.rejection_rate.value + slack
    assert here.coverage.value + here.rejection_rate.value == pytest.approx(1)
    if here.coverage.value > 1e-2:
        wrong = (1 - here.accepted_accuracy.value) * here.coverage.value
        assert here.risk.value == pytest.approx(wrong + cost * here.rejection_rate.value, abs=1e-4)
        assert here.accepted_accuracy.value > 1 - cost


def test_free_rejection_rejects_everything():
    best = paper_gaussians().bayes_summary(0.0, n_draws=2**10)
    assert best.risk.value == 0
    assert best.rejection_rate.value == 1
    assert np.isnan(best.accepted_accuracy.value)
    assert np.isnan(best.accepted_accuracy.error)


def test_equal_means_are_told_apart_by_the_prior_alone():
    best = GaussianClasses([[1.0, 2.0]] * 2, prior=[0.9, 0.1]).bayes_summary(0.2, n_draws=2**10)
    assert best.risk.value == pytest.approx(0.1)
    assert best.rejection_rate.value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("n_features", [2, 4])
def test_the_summary_is_what_independent_examples_measure(n_features):
    classes = make_gaussian_classes(6, n_features, spread=1.0, seed=1)
    best = classes.bayes_summary(0.2, n_draws=2**17)
    assert best == classes.bayes_summary(0.2, n_draws=2**17), "the same seed by default"
    X, y = classes.sample(n=50_000, seed=7)
    predicted = Chow(0.2).decide(classes.posterior(X)).labels(np.arange(6))
    measured = (
        zero_one_c_risk(y, predicted, cost=0.2),
        rejection_rate(predicted),
        coverage(predicted),
        accepted_accuracy(y, predicted),
    )
    for figure, value in zip(FIGURES, measured, strict=True):
        assert value == pytest.approx(getattr(best, figure).value, abs=0.01), figure


def test_the_standard_errors_are_honest():
    classes = paper_gaussians()
    exact = classes.bayes_summary(0.2)
    runs = [classes.bayes_summary(0.2, n_draws=2**12, seed=seed) for seed in range(40)]
    for figure in FIGURES:
        estimates = [getattr(run, figure) for run in runs]
        z = [(estimate.value - getattr(exact, figure).value) / estimate.error for estimate in estimates]
        assert abs(np.mean(z)) < 0.5, figure
        assert 0.7 < np.std(z) < 1.6, figure  # t-distributed, with seven degrees of freedom


def test_the_paper_means_come_from_the_stated_seed():
    drawn = make_gaussian_classes(8, 2, spread=3.0, variance=0.2, seed=3925)
    np.testing.assert_array_equal(paper_gaussians().means, drawn.means.round(2))


def test_exact_counts_in_random_order():
    classes = GaussianClasses([[0.0], [100.0], [200.0]], prior=[0.8, 0.1, 0.1])
    X, y = classes.sample(n_per_class=50, seed=0)
    assert np.bincount(y).tolist() == [50, 50, 50]
    assert len(set(y[:20].tolist())) == 3, "shuffled"
    np.testing.assert_array_equal(np.rint(X[:, 0] / 100), y)
    _, y = classes.sample(n_per_class=[3, 1, 2], seed=0)
    assert np.bincount(y).tolist() == [3, 1, 2]


def test_independent_draws_follow_prior_mean_and_variance():
    classes = GaussianClasses([[0.0, 1.0], [2.0, 3.0], [5.0, 5.0]], variance=0.5, prior=[0.6, 0.3, 0.1])
    X, y = classes.sample(n=20_000, seed=0)
    assert chisquare(np.bincount(y), 20_000 * classes.prior).pvalue > 1e-4
    for k, mean in enumerate(classes.means):
        within = X[y == k]
        np.testing.assert_allclose(within.mean(axis=0), mean, atol=5 * sqrt(0.5 / len(within)))
        np.testing.assert_allclose(np.cov(within.T), 0.5 * np.eye(2), atol=0.06)


def test_a_seed_fixes_the_sample_and_a_generator_moves_on():
    classes = paper_gaussians()
    for counts in ({"n": 10}, {"n_per_class": 2}):
        one, same, other = (classes.sample(**counts, seed=seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(one[0], same[0])
        np.testing.assert_array_equal(one[1], same[1])
        assert not np.array_equal(one[0], other[0])
    rng = np.random.default_rng(0)
    assert not np.array_equal(classes.sample(n=5, seed=rng)[0], classes.sample(n=5, seed=rng)[0])
    np.testing.assert_array_equal(make_gaussian_classes(seed=3).means, make_gaussian_classes(seed=3).means)


def test_classes_can_be_pickled():
    classes = paper_gaussians()
    copy = pickle.loads(pickle.dumps(classes))
    np.testing.assert_array_equal(copy.means, classes.means)
    assert isinstance(pickle.loads(pickle.dumps(classes.bayes_summary(0.2, n_draws=2**10))), BayesSummary)


def test_means_given_stay_the_callers_own():
    means = np.zeros((2, 2))
    GaussianClasses(means)
    means[0] = 1  # still writable


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianClasses([0.0, 1.0]), "Expected 2D array, got 1D array"),
        (lambda: GaussianClasses([[0.0, 1.0]]), "a minimum of 2 is required"),
        (lambda: GaussianClasses([[0.0], [np.nan]]), "Input means contains NaN"),
        (lambda: GaussianClasses([[0.0], [1.0]], variance=0.0), "variance must be one positive number .* got 0.0"),
        (lambda: GaussianClasses([[0.0], [1.0]], variance=-1), "variance must be one positive number .* got -1"),
        (lambda: GaussianClasses([[0.0], [1.0]], variance=[1, 2]), r"variance must be .* got \[1, 2\]"),
        (lambda: GaussianClasses([[0.0], [1.0]], prior=[1.0]), r"each of the 2 classes, got \(1,\)"),
        (lambda: GaussianClasses([[0.0], [1.0]], prior=[0.5, 0.6]), r"frequencies that sum to 1, got"),
        (lambda: GaussianClasses([[0.0], [1.0]], prior=[1.5, -0.5]), "prior must be frequencies that sum to 1"),
        (lambda: paper_gaussians().posterior([[0.0]]), r"X must have shape \(n, 2\) like the means, got \(1, 1\)"),
        (lambda: paper_gaussians().posterior([0.0, 0.0]), "Expected 2D array, got 1D array"),
        (lambda: paper_gaussians().posterior([[0.0, np.inf]]), "Input X contains infinity"),
        (lambda: paper_gaussians().sample(n=0), "n must be a positive integer, got 0"),
        (lambda: paper_gaussians().sample(n=2.5), "n must be a positive integer, got 2.5"),
        (lambda: paper_gaussians().sample(n_per_class=-3), "n_per_class must be a positive integer, got -3"),
        (lambda: paper_gaussians().sample(n_per_class=[1, 2]), r"one number or 8, one per class, got \[1, 2\]"),
        (lambda: paper_gaussians().bayes_summary(1.0), r"cost must be in \[0, 1\), got 1"),
        (lambda: paper_gaussians().bayes_summary(0.2, n_draws=0), "n_draws must be a positive integer, got 0"),
        (lambda: make_gaussian_classes(1), "a minimum of 2 is required"),
        (lambda: make_gaussian_classes(2, 0), "a minimum of 1 is required"),
        (lambda: make_gaussian_classes(spread=-1.0), "spread must be a positive number, got -1.0"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_exactly_one_way_to_count():
    for counts in ({}, {"n": 5, "n_per_class": 5}):
        with pytest.raises(TypeError, match=r"give either n .* or n_per_class .* and not both"):
            paper_gaussians().sample(**counts)
