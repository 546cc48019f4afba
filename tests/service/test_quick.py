"""The quick ways give what scikit-learn gives, to the last bit."""

import joblib
import numpy as np
import pytest
from service_samples import dense_of_sample, model, table, wrapped

from demur.deploy.quick_paths import QuickDense, QuickForest, quick_model
from demur.estimators.candidates import dense_view


@pytest.mark.parametrize("name", ["forest", "extra trees"])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(0, 7), slice(None)])
def test_a_quick_forest_is_the_forest(name, rows):
    served = wrapped(name)
    forest, codes = served.classifier.estimator_, served.features(table())[rows]
    with joblib.parallel_config("sequential"):
        expected = forest.predict_proba(codes)
    np.testing.assert_array_equal(QuickForest(forest).predict_proba(codes), expected)


def test_a_quick_forest_refuses_what_single_precision_cannot_hold():
    served = wrapped("forest")
    codes = served.features(table())[:1].copy()
    codes[0, 0] = 1e39
    with pytest.raises(ValueError, match="too large for single precision"):
        QuickForest(served.classifier.estimator_).predict_proba(codes)


def test_issue_17_a_quick_forest_refuses_rows_of_another_width():
    served = wrapped("forest")
    with pytest.raises(ValueError, match="the forest takes 7 columns, got 6"):
        QuickForest(served.classifier.estimator_).predict_proba(served.features(table())[:1, :6])


def test_a_quick_dense_view_is_the_dense_view():
    dense, codes = dense_of_sample()
    quick = QuickDense(dense)
    rng = np.random.default_rng(0)
    other = np.where(rng.random(codes.shape) < 0.3, np.nan, rng.permuted(codes, axis=0))
    unseen = codes.copy()
    unseen[:, [1, 2]] = 77  # codes that the encoder has never met
    for matrix in (codes, codes[:1], other, unseen, np.full((1, codes.shape[1]), np.nan)):
        np.testing.assert_array_equal(quick.transform(matrix), dense.transform(matrix))


@pytest.mark.parametrize("n_codes", [2, 60])
@pytest.mark.parametrize("with_missing", [True, False])
@pytest.mark.parametrize("kinds", [(False, False), (True, True), (True, False)])
def test_a_quick_dense_view_of_each_shape(n_codes, with_missing, kinds):
    rng = np.random.default_rng(n_codes)
    codes = np.floor(rng.random((400, 2)) ** 3 * n_codes)
    codes[0] = n_codes + 3  # a code between is never met
    if with_missing:
        codes[rng.random(codes.shape) < 0.2] = np.nan
    dense = dense_view(np.array(kinds)).fit(codes)
    tried = np.vstack([codes, np.column_stack([np.arange(-0.0, n_codes + 9)] * 2), [[np.nan, np.nan]]])
    np.testing.assert_array_equal(QuickDense(dense).transform(tried), dense.transform(tried))


def test_the_model_itself_stays_as_it_is():
    for served in (model(), wrapped("forest"), wrapped("blend")):
        before = served.classifier.estimator_, served.dense, getattr(served.classifier.estimator_, "models_", None)
        quick = quick_model(served)
        assert quick.classifier is not served.classifier
        after = served.classifier.estimator_, served.dense, getattr(served.classifier.estimator_, "models_", None)
        assert all(one is other for one, other in zip(before, after, strict=True))
