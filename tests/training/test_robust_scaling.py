"""Robust scaling with a smooth clip."""

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from demur.training import SmoothRobustScaler


@parametrize_with_checks([SmoothRobustScaler()])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def test_it_is_robust_scaling_then_the_clip():
    X = np.random.default_rng(0).standard_t(2, size=(401, 4))  # n = 1 mod 4: every quartile is a value
    z = RobustScaler().fit_transform(X)
    assert SmoothRobustScaler().fit_transform(X) == pytest.approx(z / np.sqrt(1 + (z / 3) ** 2))
    assert np.abs(SmoothRobustScaler(clip=2).fit_transform(1e6 * X**3)).max() <= 2


def test_weights_are_rows_that_are_there_more_than_once():
    rng = np.random.default_rng(0)
    for n in (5, 20, 101):
        X, weight = rng.normal(size=(n, 3)), rng.integers(0, 4, size=n)
        weighted = SmoothRobustScaler().fit(X, sample_weight=weight)
        repeated = SmoothRobustScaler().fit(np.repeat(X, weight, axis=0))
        assert weighted.center_ == pytest.approx(repeated.center_)
        assert weighted.scale_ == pytest.approx(repeated.scale_)
        assert SmoothRobustScaler().fit(np.repeat(X, 3, axis=0)).scale_ == pytest.approx(
            SmoothRobustScaler().fit(X).scale_
        )


def test_columns_without_quartiles_and_constant_ones():
    X = np.array([[0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [1.0, 7.0]])
    scaled = SmoothRobustScaler().fit_transform(X)
    assert scaled[4, 0] == pytest.approx(2 / np.sqrt(1 + 4 / 9))
    assert (scaled[:4, 0] == 0).all()
    assert (scaled[:, 1] == 0).all()


def test_missing_values_are_the_median():
    X = np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan], [9.0, np.nan]])
    scaled = SmoothRobustScaler().fit_transform(X)
    assert scaled[[1, 2], 0].tolist() == [0.0, 0.0]
    assert (scaled[:, 1] == 0).all()


def test_single_precision_stays():
    X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert SmoothRobustScaler().fit_transform(X).dtype == np.float32


def test_a_clip_of_zero_is_refused():
    with pytest.raises(ValueError, match="clip must be positive, got 0"):
        SmoothRobustScaler(clip=0).fit([[1.0], [2.0]])
