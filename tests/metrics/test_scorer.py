"""The scorer inside scikit-learn's model selection."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur.metrics import zero_one_c_risk, zero_one_c_scorer
from demur.rules import Chow


class Rejecting(ClassifierMixin, BaseEstimator):
    """Logistic regression with Chow's rule, and the attribute by which demur's estimators name their marker."""

    def __init__(self, cost=0.2, reject_label=-1, publish=True):
        self.cost = cost
        self.reject_label = reject_label
        self.publish = publish

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_
        if self.publish:
            self.reject_label_ = self.reject_label
        return self

    def predict(self, X):
        return Chow(self.cost).decide(self.model_.predict_proba(X)).labels(self.classes_, self.reject_label)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, size=200)
    return rng.normal(y[:, None] * 1.5, 1.0, size=(200, 2)), y


def test_it_is_minus_the_risk_with_the_estimators_own_marker(data):
    X, y = data
    names = np.array(["ham", "spam"])[y]
    for labels, marker in ((y, -1), (y, 99), (names, "reject"), (names, "?")):
        model = Rejecting(reject_label=marker).fit(X, labels)
        expected = -zero_one_c_risk(labels, model.predict(X), cost=0.2, reject_label=marker)
        assert zero_one_c_scorer(0.2)(model, X, labels) == expected
        assert zero_one_c_scorer(0.2)(make_pipeline(StandardScaler(), model).fit(X, labels), X, labels) < 0
        assert -0.2 < expected < 0


def test_the_estimators_marker_has_priority_over_the_given_one(data):
    X, y = data
    own = Rejecting(reject_label=-1).fit(X, y)
    silent = Rejecting(reject_label=-1, publish=False).fit(X, y)
    assert zero_one_c_scorer(0.2, reject_label=7)(own, X, y) == zero_one_c_scorer(0.2, reject_label=-1)(silent, X, y)
    assert zero_one_c_scorer(0.2)(silent, X, y) < zero_one_c_scorer(0.2, reject_label=-1)(silent, X, y)


@pytest.mark.parametrize("classes", [[-1, 1], ["reject", "accept"]])
def test_a_plain_classifier_never_rejects_whatever_its_classes(data, classes):
    X, y = data
    labels = np.array(classes)[y]
    model = LogisticRegression().fit(X, labels)
    assert zero_one_c_scorer(0.1)(model, X, labels) == pytest.approx(model.score(X, labels) - 1)


def test_weights(data):
    X, y = data
    model = Rejecting().fit(X, y)
    weights = np.arange(len(y))
    expected = -zero_one_c_risk(y, model.predict(X), cost=0.2, sample_weight=weights)
    assert zero_one_c_scorer(0.2)(model, X, y, sample_weight=weights) == expected


def test_model_selection(data):
    X, y = data
    scorer = zero_one_c_scorer(0.2)
    pipeline = make_pipeline(StandardScaler(), Rejecting())
    scores = cross_val_score(pipeline, X, y, scoring=scorer, cv=3, error_score="raise")
    assert ((scores <= 0) & (scores > -0.2)).all()
    search = GridSearchCV(pipeline, {"rejecting__cost": [0.01, 0.2, 0.45]}, scoring=scorer, cv=5, error_score="raise")
    search.fit(X, y)
    assert search.best_params_ == {"rejecting__cost": 0.2}, "deciding at the cost that is charged is best"
    assert scorer(search, X, y) == scorer(search.best_estimator_, X, y)


def test_it_can_be_pickled_and_cloned(data):
    X, y = data
    scorer, model = zero_one_c_scorer(0.2), Rejecting().fit(X, y)
    assert pickle.loads(pickle.dumps(scorer))(model, X, y) == scorer(model, X, y)
    assert clone(GridSearchCV(Rejecting(), {}, scoring=scorer)).scoring(model, X, y) == scorer(model, X, y)


def test_a_bad_cost_is_refused_at_once():
    with pytest.raises(ValueError, match=r"cost must be in \[0, 1\), got 2"):
        zero_one_c_scorer(2.0)
    with pytest.raises(ValueError, match=r"a scorer takes a single cost, got an array of shape \(2,\)"):
        zero_one_c_scorer([0.1, 0.2])
