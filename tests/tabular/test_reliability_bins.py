"""ReliabilityBins: bins, the calibration error, and intervals that cover."""

import numpy as np
import pytest

from demur.tabular import ReliabilityBins


def test_edges_and_ends():
    found = ReliabilityBins.from_confidence([0.0, 0.1, 0.3, 1.0, 1.0005], [False, True, True, True, True])
    assert found.n_rows.tolist() == [1, 1, 0, 1, 0, 0, 0, 0, 0, 2]  # 0.1 and 0.3 belong to the bins above them
    assert np.isnan(found.accuracy.estimate[2])


def test_calibrated_rows_have_a_small_error_and_shifted_ones_that_shift():
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.2, 0.9, size=200_000)
    right = rng.uniform(size=len(confidence)) < confidence
    assert ReliabilityBins.from_confidence(confidence, right).ece < 0.01
    assert ReliabilityBins.from_confidence(confidence + 0.1, right).ece == pytest.approx(0.1, abs=0.01)


def test_intervals_of_the_bins_are_exact():
    """For 8 of 10 the Clopper-Pearson interval is [0.444, 0.975]."""
    found = ReliabilityBins.from_confidence(np.full(10, 0.75), np.arange(10) < 8, n_bins=1)
    low, high = found.accuracy.low, found.accuracy.high
    assert (low[0], high[0]) == pytest.approx((0.444, 0.975), abs=1e-3)
    certain = ReliabilityBins.from_confidence([0.9], [True], n_bins=2)
    low, high = certain.accuracy.low, certain.accuracy.high
    assert high[1] == 1
    assert np.isnan(low[0])
