"""Bootstrap intervals: they cover as often as they say, and rows stay together."""

import math

import numpy as np
import pytest

from demur.metrics import RiskCoverage, bootstrap


def test_the_interval_of_a_mean_is_the_normal_one():
    x = np.random.default_rng(0).normal(size=2000)
    interval = bootstrap(np.mean, x, n_resamples=2000, confidence_level=0.9, seed=1)
    half = 1.645 * x.std() / math.sqrt(len(x))
    assert interval.estimate == x.mean()
    assert interval.low == pytest.approx(x.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(x.mean() + half, abs=0.1 * half)


@pytest.mark.slow
def test_it_covers_about_as_often_as_it_says():
    """The population is ten thousand rows, so that the truth is known."""
    rng = np.random.default_rng(0)
    confidence = rng.uniform(size=10_000)
    wrong = rng.uniform(size=10_000) > confidence

    def risk(confidence, wrong):
        return RiskCoverage.from_confidence(confidence, wrong).risk_at(coverage=0.5)

    truth, covered = risk(confidence, wrong), 0
    for seed in range(100):
        rows = rng.integers(10_000, size=200)
        interval = bootstrap(risk, confidence[rows], wrong[rows], n_resamples=100, confidence_level=0.8, seed=seed)
        covered += interval.low <= truth <= interval.high
    assert 68 <= covered <= 92  # three standard deviations of a binomial


def test_rows_stay_together_whatever_the_arrays():
    numbers, names = np.arange(50), np.array([f"row {i}" for i in range(50)])

    def agree(x, name, matrix):
        assert [f"row {i}" for i in x] == name.tolist()
        assert (matrix[:, 1] == 2 * x).all()
        return 0.0

    assert bootstrap(agree, numbers, names, np.c_[numbers, 2 * numbers], n_resamples=5).high == 0


def test_equal_seeds_give_equal_intervals():
    x = np.random.default_rng(0).normal(size=50)
    one, other = (bootstrap(np.median, x, n_resamples=50, seed=3) for _ in range(2))
    assert (one.low, one.high) == (other.low, other.high)
    assert str(one) == f"{one.estimate:.4g} [{one.low:.4g}, {one.high:.4g}]"


def test_a_band_and_undefined_resamples():
    """The risk above a threshold that one row in ten exceeds is undefined in a third of the resamples."""
    confidence, wrong = np.r_[0.9, np.full(9, 0.2)], np.r_[True, np.zeros(9, dtype=bool)]

    def risks(confidence, wrong):
        above = confidence > np.array([[0.1], [0.5], [0.95]])
        return (above * wrong).sum(axis=1) / np.where(above.any(axis=1), above.sum(axis=1), np.nan)

    band = bootstrap(risks, confidence, wrong, n_resamples=300, seed=0)
    assert band.estimate[:2].tolist() == [0.1, 1.0]
    assert band.low[1] == band.high[1] == 1
    assert math.isnan(band.estimate[2])
    assert math.isnan(band.low[2])
    assert "nan" in str(band)


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ((), {}, "one or more arrays"),
        (([],), {}, "at least one; got lengths"),
        (([1, 2], [1]), {}, r"same number of rows, at least one; got lengths \[2, 1\]"),
        ((3.0,), {}, "one or more arrays"),
        (([1, 2],), {"n_resamples": 0}, "n_resamples must be a positive integer, got 0"),
        (([1, 2],), {"confidence_level": 95}, r"confidence_level must be in \(0, 1\), got 95"),
    ],
)
def test_bad_calls(arrays, options, message):
    with pytest.raises(ValueError, match=message):
        bootstrap(lambda *rows: 0.0, *arrays, **options)
