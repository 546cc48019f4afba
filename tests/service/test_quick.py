"""The quick ways give what scikit-learn gives, and each row what it would get alone, to the last bit."""

import joblib
import numpy as np
import pytest
from service_samples import dense_of_sample, model, table, wrapped

from demur import RejectClassifier, RejectOption
from demur.estimators.candidates import dense_view, numbers_view
from demur.estimators.quick_paths import QuickClassifier, QuickForest, QuickView, quick_proba
from demur.training import MLP, PeriodicEmbeddings, TabularNet
from demur.training.numpy_networks import numpy_networks


@pytest.mark.parametrize("name", ["forest", "extra trees"])
@pytest.mark.parametrize("rows", [slice(0, 1), slice(0, 7), slice(None)])
def test_a_quick_forest_is_the_forest(name, rows):
    served = wrapped(name)
    forest, codes = served.classifier.estimator_, served.features(table())[rows]
    with joblib.parallel_config("sequential"):
        expected = forest.predict_proba(codes)
    np.testing.assert_array_equal(QuickForest(forest)(codes), expected)


def test_a_quick_forest_refuses_what_single_precision_cannot_hold():
    served = wrapped("forest")
    codes = served.features(table())[:1].copy()
    codes[0, 0] = 1e39
    with pytest.raises(ValueError, match="too large for single precision"):
        QuickForest(served.classifier.estimator_)(codes)


def test_issue_17_a_quick_forest_refuses_rows_of_another_width():
    served = wrapped("forest")
    with pytest.raises(ValueError, match="the forest takes 7 columns, got 6"):
        QuickForest(served.classifier.estimator_)(served.features(table())[:1, :6])


@pytest.mark.parametrize("name", ["forest", "extra trees", "boosting", "blend"])
def test_quick_probabilities_are_scikit_learns(name):
    estimator = wrapped(name).classifier.estimator_
    codes = wrapped(name).schema.encode(table())
    codes[:, 2] = np.where(np.arange(len(codes)) % 5, codes[:, 2], np.nan)
    np.testing.assert_allclose(quick_proba(estimator)(codes), estimator.predict_proba(codes), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", ["forest", "extra trees", "boosting", "blend", "lr"])
def test_a_row_does_not_mind_the_others(name):
    served = model() if name == "lr" else wrapped(name)
    features = served.features(table())
    quick = QuickClassifier(served.classifier)
    assert quick.is_quick
    decision, scores = quick.decide_and_score(features)
    for rows in (slice(3, 4), slice(0, 2), slice(10, 75)):
        some, own = quick.decide_and_score(features[rows].copy(), np.full(len(features[rows]), served.cost))
        np.testing.assert_array_equal(own, scores[rows])
        np.testing.assert_array_equal(some.acceptance, decision.acceptance[rows])


def test_a_classifier_that_was_fitted_again_is_noticed():
    X, y = np.arange(12.0)[:, None], np.arange(12) % 2
    option = RejectOption(wrapped("forest").classifier.estimator, cv=2, calibration=None).fit(X, y)
    quick = QuickClassifier(option)
    before = quick.decide_and_score(X)[1]
    option.fit(X, 1 - y)
    np.testing.assert_array_equal(quick.decide_and_score(X)[1], option.predict_proba(X))
    assert not np.array_equal(quick.decide_and_score(X)[1], before)


@pytest.mark.parametrize("architecture", [
    MLP((7, 9, 3)), TabularNet(7, 3, (32, 16)), TabularNet(7, 3, (32,), PeriodicEmbeddings(4, 3)),
])  # fmt: skip
def test_networks_on_numpy_are_those_of_torch(architecture):
    import torch

    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, architecture.vector_length)).astype(np.float32) / 3
    rows = rng.normal(size=(2, 300, 7)).astype(np.float32)
    networks = numpy_networks(architecture, vectors)
    scores = networks.scores(rows)
    expected = np.stack([architecture.scores(torch.from_numpy(vectors[k : k + 1]), torch.from_numpy(rows[k]))[0]
                         for k in range(2)])  # fmt: skip
    np.testing.assert_allclose(scores, expected, rtol=2e-5, atol=2e-5)
    for n_rows in (1, 2, 3, 5, 17, 64, 65, 100):
        np.testing.assert_array_equal(networks.scores(rows[:, :n_rows]), scores[:, :n_rows])
    networks.least = None  # as on a machine whose products do not keep the promise
    np.testing.assert_array_equal(networks.scores(rows[:, :1]), networks.scores(rows)[:, :1])


@pytest.mark.parametrize("loss", ["ce", "ova+log", "mpc+log", "apc+log"])
def test_decisions_and_scores_of_networks_come_from_one_run(loss):
    X, y = np.random.default_rng(0).normal(size=(70, 3)), np.arange(70) % 3
    X[:, 0] += y
    X[::9, 1] = np.nan
    fitted = RejectClassifier(loss, cost=0.2, epochs=2, hidden_units=(8,), random_state=0, n_members=1).fit(X, y)
    decision, scores = fitted.decide_and_score(X)
    np.testing.assert_array_equal(scores, fitted._scores(X))
    np.testing.assert_array_equal(decision.acceptance, fitted.decide(X).acceptance)
    for rows in (slice(0, 1), slice(9, 12)):
        one, own = fitted.decide_and_score(X[rows])
        np.testing.assert_array_equal(own, scores[rows])
        np.testing.assert_array_equal(one.confidence, decision.confidence[rows])
        np.testing.assert_array_equal(one.label, decision.label[rows])


def test_a_quick_view_is_the_view():
    dense, codes = dense_of_sample()
    rng = np.random.default_rng(0)
    other = np.where(rng.random(codes.shape) < 0.3, np.nan, rng.permuted(codes, axis=0))
    unseen = codes.copy()
    unseen[:, [1, 2]] = 77  # codes that the encoder has never met
    for view in (dense, numbers_view(np.isin(np.arange(7), [1, 2])).fit(codes)):
        quick = QuickView(view)
        for matrix in (codes, codes[:1], other, unseen, np.full((1, codes.shape[1]), np.nan)):
            np.testing.assert_array_equal(quick.transform(matrix), view.transform(matrix))


@pytest.mark.parametrize("n_codes", [2, 60])
@pytest.mark.parametrize("with_missing", [True, False])
@pytest.mark.parametrize("kinds", [(False, False), (True, True), (True, False)])
def test_a_quick_view_of_each_shape(n_codes, with_missing, kinds):
    rng = np.random.default_rng(n_codes)
    codes = np.floor(rng.random((400, 2)) ** 3 * n_codes)
    codes[0] = n_codes + 3  # a code between is never met
    if with_missing:
        codes[rng.random(codes.shape) < 0.2] = np.nan
    dense = dense_view(np.array(kinds)).fit(codes)
    tried = np.vstack([codes, np.column_stack([np.arange(-0.0, n_codes + 9)] * 2), [[np.nan, np.nan]]])
    np.testing.assert_array_equal(QuickView(dense).transform(tried), dense.transform(tried))


def test_a_view_that_is_none_of_ours_stays():
    dense, codes = dense_of_sample()
    dense.transformers_[0][1][1].mean_[0] += 1  # the copy that the view holds is what counts
    assert QuickView.of(dense).transform(codes).shape == dense.transform(codes).shape
    assert QuickView.of("no view") == "no view"
