"""Intervals cover what they say, also at 0 of n and n of n."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta, multinomial

from demur.guarantees.risk_control import upper_bound
from demur.metrics import (
    RiskCoverage,
    area_intervals,
    mean_interval,
    proportion_interval,
    risk_interval,
)
from demur.metrics.intervals import _upper, ranked_areas

SIZES, RATES, N_DRAWS = (10, 20, 100, 1000), (0, 0.01, 0.1, 0.5), 2000
LEAST_COVERAGE = 0.93


def covers(interval, truth):
    return np.mean((interval.low <= truth + 1e-9) & (truth - 1e-9 <= interval.high))


# --- proportions


def test_twenty_of_twenty_is_not_certain():
    found = proportion_interval(20, 20)
    assert (found.estimate, round(found.low, 4), found.high) == (1.0, 0.8316, 1.0)
    assert proportion_interval(0, 20).high == pytest.approx(1 - 0.025 ** (1 / 20))
    assert proportion_interval(0, 20, 0.9).high == pytest.approx(float(upper_bound(0, 20, 0.05)))
    assert np.isnan([proportion_interval(0, 0).estimate, proportion_interval(0, 0).low]).all()


@pytest.mark.parametrize("n", SIZES)
def test_shares_cover(n):
    """Coverage, and the error rate if all were answered; exactly, as a sum over all counts."""
    counts = np.arange(n + 1)
    found = proportion_interval(counts, n)
    assert found.low[1:] == pytest.approx(beta.ppf(0.025, counts[1:], n - counts[1:] + 1))
    for rate in RATES:
        chance = multinomial.pmf(np.stack([counts, n - counts], -1), n, [rate, 1 - rate])
        assert chance[(found.low <= rate) & (rate <= found.high)].sum() >= 0.95


@pytest.mark.parametrize(("n", "rate"), list(product(SIZES, RATES)))
def test_accuracy_among_the_answered_covers(n, rate):
    rng = np.random.default_rng(0)
    answered = rng.binomial(n, 0.7, size=N_DRAWS)
    found = proportion_interval(answered - rng.binomial(answered, rate), answered)
    defined = answered > 0
    assert (np.isnan(found.low) == ~defined).all()
    assert np.mean((found.low <= 1 - rate)[defined] & (1 - rate <= found.high)[defined]) >= LEAST_COVERAGE


# --- means


@pytest.mark.parametrize(("n", "cost"), list(product((10, 20, 40), (0.05, 0.2, 0.5))))
def test_the_risk_covers_for_every_rate(n, cost):
    """Exactly, as a sum over all outcomes: no draw, no luck."""
    rejected, wrong = (counts.ravel() for counts in np.mgrid[: n + 1, : n + 1])
    rejected, wrong = rejected[rejected + wrong <= n], wrong[rejected + wrong <= n]
    outcomes = np.stack([n - rejected - wrong, rejected, wrong], -1)
    found = risk_interval(wrong, rejected, n, cost)
    for p_wrong, p_rejected in product((0, 0.01, 0.03, 0.1, 0.5, 0.9), (0, 0.01, 0.05, 0.1, 0.5, 0.99)):
        if p_wrong + p_rejected <= 1:
            chance = multinomial.pmf(outcomes, n, [max(1 - p_wrong - p_rejected, 0), p_rejected, p_wrong])
            truth = p_wrong + cost * p_rejected
            assert chance[(found.low <= truth + 1e-12) & (truth - 1e-12 <= found.high)].sum() >= 0.94


@pytest.mark.parametrize(("n", "p_wrong", "p_rejected"), list(product(SIZES, RATES, (0, 0.1, 0.5))))
def test_the_risk_covers(n, p_wrong, p_rejected):
    draws = np.random.default_rng(0).multinomial(n, [1 - p_wrong - p_rejected, p_rejected, p_wrong], size=N_DRAWS)
    assert covers(risk_interval(draws[:, 2], draws[:, 1], n, 0.2), p_wrong + 0.2 * p_rejected) >= LEAST_COVERAGE


def test_the_risk_does_not_collapse_where_all_rows_agree():
    for wrong, rejected in ((0, 0), (0, 20), (20, 0)):
        found = risk_interval(wrong, rejected, 20, 0.2)
        assert found.high - found.low > 0.15
        assert found.low <= found.estimate <= found.high
    assert np.isnan(risk_interval(0, 0, 0, 0.2).high)
    assert risk_interval(0, 20, 20, 0.2).low < 0.2 < risk_interval(0, 20, 20, 0.2).high


def test_two_values_are_a_share_and_many_rows_the_normal_interval():
    share = proportion_interval(7, 30)
    for found in (mean_interval([0, 1], [23, 7]), risk_interval(7, 0, 30, 0.2), risk_interval(7, 12, 30, 0.0)):
        assert (found.low, found.high) == pytest.approx((share.low, share.high))
    found = risk_interval(40_000, 250_000, 1_000_000, 0.2)
    spread = 1.96 * np.sqrt((0.04 + 0.04 * 0.25 - 0.09**2) / 1e6)
    assert (found.low, found.high) == pytest.approx((0.09 - spread, 0.09 + spread), rel=1e-3)


def test_the_mean_of_a_cost_matrix_covers():
    """A mistake that costs 10 is rare: many samples of 20 rows have none."""
    costs, chances = np.array([0, 0.3, 1, 10]), np.array([0.65, 0.2, 0.1, 0.05])
    draws = np.random.default_rng(0).multinomial(20, chances, size=500)
    found = [mean_interval(costs, counts) for counts in draws]
    truth = costs @ chances
    assert np.mean([one.low <= truth <= one.high for one in found]) >= LEAST_COVERAGE
    assert np.mean([truth <= one.high for one, counts in zip(found, draws, strict=True) if counts[3] == 0]) == 1
    as_matrix = mean_interval(costs.reshape(2, 2), draws[0].reshape(2, 2))
    assert as_matrix.high == pytest.approx(found[0].high)


def test_arrays_broadcast_and_a_grid_is_its_single_calls():
    costs = np.linspace(0, 0.45, 10)
    rejected = np.arange(10)[::-1]
    grid = risk_interval(np.arange(10), rejected, 50, costs)
    for k in range(10):
        one = risk_interval(k, int(rejected[k]), 50, float(costs[k]))
        assert (grid.estimate[k], grid.low[k], grid.high[k]) == pytest.approx((one.estimate, one.low, one.high))


# --- areas


def uninformative(rate):
    return lambda rank: np.full_like(rank, rate), {"aurc": rate, "aurc_ranked": rate, "augrc": rate / 2}


def informative(rate):
    """The error grows with the rank: 2 rate u, so that AURC = int -2 rate u log u du."""
    return lambda rank: 2 * rate * rank, {"aurc": rate / 2, "aurc_ranked": rate / 2, "augrc": rate / 3}


def perverse(rate):
    """All errors are at the top."""
    top = rate - rate * np.log(rate) if rate else 0.0
    return lambda rank: (rank < rate) * 1.0, {"aurc": top, "augrc": rate - rate**2 / 2}


@pytest.mark.parametrize("population", [uninformative, informative, perverse], ids=lambda one: one.__name__)
@pytest.mark.parametrize("n", SIZES)
def test_areas_cover(population, n):
    rng = np.random.default_rng(0)
    ranks = np.sort(rng.uniform(size=(N_DRAWS if n < 1000 else 500, n)), axis=1)
    uniform = rng.uniform(size=ranks.shape)
    for rate in RATES:
        error, truths = population(rate)
        found = ranked_areas((uniform < error(ranks)).astype(float), np.arange(n), 0.025)
        for area, truth in truths.items():
            _, low, high = found[area]
            assert np.mean((low <= truth + 1e-9) & (truth - 1e-9 <= high)) >= LEAST_COVERAGE, (rate, area)


@pytest.mark.parametrize("n_levels", [1, 3, 1000])
@pytest.mark.parametrize("rate", [0, 0.3, 1])
@pytest.mark.parametrize("n", [1, 2, 30, 200])
def test_areas_are_those_of_the_curve_and_lie_within(n_levels, rate, n):
    rng = np.random.default_rng(n)
    confidence, wrong = rng.integers(n_levels, size=n) / n_levels, rng.uniform(size=n) < rate
    curve = RiskCoverage.from_confidence(confidence, wrong)
    for name, found in area_intervals(confidence, wrong).items():
        assert found.estimate == pytest.approx(getattr(curve, name.removesuffix("_ranked")), abs=1e-12)
        assert 0 <= found.low + 1e-12 <= found.estimate + 2e-12 <= found.high + 3e-12 <= 1 + 4e-12
        assert found.high - found.low > 1 / (2 * n) if name == "aurc" else found.high > found.low


@pytest.mark.parametrize("n_wrong", [0, 6, 30])
def test_with_equal_weights_the_beta_quantile_is_clopper_pearson(n_wrong):
    share, variance = n_wrong / 30, n_wrong / 30 * (1 - n_wrong / 30) / 29
    high = float(_upper(np.array(share), np.array(variance), 1 / 30, 0.025))
    assert high == pytest.approx(proportion_interval(n_wrong, 30).high, abs=2e-4)


@pytest.mark.parametrize(
    ("shares", "errors"),
    [((0.3, 0.6, 1.0), (0.0, 0.05, 0.3)), ((0.9, 1.0), (0.01, 0.4)), ((0.05, 1.0), (1.0, 0.0))],
)
@pytest.mark.parametrize("n", [10, 20, 100])
def test_areas_cover_where_rows_tie(shares, errors, n):
    """The last: one row in twenty is above the others and wrong, so that a third of the samples of 20 see none."""
    rng = np.random.default_rng(n)
    area_up_to = np.array([0.0, *(u - u * np.log(u) for u in shares)])
    truth = float(np.diff(area_up_to) @ errors)
    hits = 0
    for _ in range(200):
        level = np.searchsorted(shares, rng.uniform(size=n))
        found = area_intervals(-level.astype(float), rng.uniform(size=n) < np.array(errors)[level])["aurc"]
        hits += found.low <= truth <= found.high
    assert hits / 200 >= LEAST_COVERAGE


# --- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: proportion_interval(3, 2), "count must not exceed n"),
        (lambda: proportion_interval(-1, 2), "whole and not negative; got -1"),
        (lambda: proportion_interval(0.5, 2), "whole and not negative; got 0.5"),
        (lambda: proportion_interval(1, 2, 95), r"confidence_level must be in \(0, 1\), got 95"),
        (lambda: risk_interval(3, 3, 5, 0.2), "right, rejected and wrong answers must be numbers of rows"),
        (lambda: risk_interval(1, 1, 5, 20), r"cost must be in \[0, 1\)"),
        (lambda: mean_interval([0, 1], [1]), "values and counts need one shape"),
        (lambda: mean_interval([0, np.inf], [1, 1]), "values must be finite"),
        (lambda: area_intervals([0.5], [1]), "wrong must be boolean"),
        (lambda: area_intervals([np.nan], [True]), "confidence contains NaN"),
        (lambda: area_intervals([], np.empty(0, dtype=bool)), "with n >= 1"),
    ],
)
def test_bad_counts(call, message):
    with pytest.raises(ValueError, match=message):
        call()
