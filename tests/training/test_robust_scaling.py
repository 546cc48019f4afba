"""Robust scales and pieces of features."""

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

from demur.training import Pieces, robust_scale


def scales(X):
    return robust_scale(X, np.ones(len(X)))


def test_it_is_robust_scaling():
    X = np.random.default_rng(0).standard_t(2, size=(401, 4))  # n = 1 mod 4: every quartile is a value
    found, (center, scale) = RobustScaler().fit(X), scales(X)
    assert center == pytest.approx(found.center_)
    assert scale == pytest.approx(found.scale_)


def test_weights_are_rows_that_are_there_more_than_once():
    rng = np.random.default_rng(0)
    for n in (5, 20, 101):
        X, weight = rng.normal(size=(n, 3)), rng.integers(0, 4, size=n)
        np.testing.assert_allclose(robust_scale(X, weight), scales(np.repeat(X, weight, axis=0)))
        np.testing.assert_allclose(scales(np.repeat(X, 3, axis=0)), scales(X))


def test_columns_without_quartiles_and_constant_ones():
    X = np.array([[0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [0.0, 7.0], [1.0, 7.0]])
    center, scale = scales(X)
    assert center.tolist() == [0.0, 7.0]
    assert scale.tolist() == [0.5, np.inf]


def test_missing_values_are_left_out():
    center, scale = scales(np.array([[1.0, np.nan], [2.0, np.nan], [np.nan, np.nan], [9.0, np.nan]]))
    assert center.tolist() == [2.0, 0.0]
    assert np.isinf(scale[1])


def test_pieces_of_a_feature_sum_to_its_distance_from_the_least_value():
    rng = np.random.default_rng(0)
    X = rng.lognormal(size=(200, 3))
    X[:, 1] = rng.integers(2, size=200)  # has no pieces
    X[rng.random(X.shape) < 0.1] = np.nan
    y = (np.nan_to_num(X[:, 0]) > 1).astype(np.int64)
    for train in (np.arange(150), np.arange(50, 200)):
        (pieces,) = Pieces.learn(X, y, np.ones(200), [train])
        inputs = pieces.beside(X)
        np.testing.assert_array_equal(inputs[:, :3], X)
        known = inputs[train][:, 3:]
        assert ((known >= 0) & (known <= 1) | np.isnan(known)).all()
        assert {*pieces.columns} == {0, 2}
        for column in (0, 2):
            own = (pieces.columns == column) & np.isfinite(pieces.width)
            rebuilt = pieces.beside(X[train])[:, 3:][:, own] @ pieces.width[own]
            np.testing.assert_allclose(rebuilt, X[train, column] - np.nanmin(X[train, column]))


def test_pieces_of_extreme_tables():
    y = np.array([0, 1, 0, 1])
    nothing = Pieces.learn(np.array([[np.nan, 0.0], [np.nan, 1.0]] * 2), y, np.ones(4), [np.arange(4)])[0]
    assert nothing.beside(np.zeros((2, 2))).shape == (2, 2)
    huge = np.array([[-1e300], [0.0], [1.0], [1e300]])
    assert np.isfinite(Pieces.learn(huge, y, np.ones(4), [np.arange(4)])[0].beside(huge)).all()
