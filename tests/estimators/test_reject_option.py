"""RejectOption: any classifier, calibrated, with a rule that may decline."""

import pickle

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_iris, make_blobs, make_classification
from sklearn.ensemble import ExtraTreesClassifier, IsolationForest, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from demur import Chow, CostMatrix, Coverage, RejectOption, RiskControl, Threshold
from demur.errors import InputError, InputTypeError
from demur.estimators import PrecomputedProbabilities
from demur.estimators.base import CodedLabels, proba_of, score_scale
from demur.metrics import zero_one_c_risk, zero_one_c_scorer

X, Y = load_iris(return_X_y=True)
REASON = "demands argmax(predict_proba) == predict, which cannot hold where a classifier declines"


@parametrize_with_checks(
    [RejectOption(LogisticRegression(), calibration="temperature", cv=2)],
    expected_failed_checks=lambda estimator: {"check_classifiers_train": REASON},
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def hard():
    """Classes that overlap, so that forests are overconfident or underconfident."""
    data, labels = make_classification(
        1500, n_features=10, n_informative=6, n_classes=4, class_sep=0.8, flip_y=0.1, random_state=0
    )
    return train_test_split(data, labels, random_state=0)


@pytest.fixture(scope="module", params=[GaussianNB(), ExtraTreesClassifier(25, random_state=0)], ids=["nb", "trees"])
def raw(hard, request):
    return RejectOption(request.param, calibration=None).fit(*hard[::2])


@pytest.mark.parametrize("calibration", ["auto", "isotonic", "sigmoid"])
def test_calibration_lowers_the_brier_score_of_unseen_rows(hard, raw, calibration):
    X_train, X_test, y_train, y_test = hard
    calibrated = RejectOption(raw.estimator, calibration=calibration).fit(X_train, y_train)
    brier = lambda model: np.square(model.predict_proba(X_test) - np.eye(4)[y_test]).sum(1).mean()  # noqa: E731
    assert brier(calibrated) < brier(raw)
    assert calibrated.predict_proba(X_test).sum(1) == pytest.approx(1)


def test_auto_is_about_as_good_as_the_best_calibration_that_is_tried(hard, raw):
    X_train, X_test, y_train, y_test = hard
    loss = {}
    for name in ("auto", "temperature", "sigmoid"):
        model = RejectOption(raw.estimator, calibration=name).fit(X_train, y_train)
        loss[name] = log_loss(y_test, model.predict_proba(X_test))
    assert loss["auto"] <= 1.01 * min(loss.values())


def test_forests_with_exact_zeros_and_ones():
    model = RejectOption(RandomForestClassifier(20, random_state=0), cost=0.1).fit(X, Y)
    raw = model.estimator_.predict_proba(X)
    assert ((raw == 0) | (raw == 1)).any()
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(
    ("calibration", "n_rare"), [("auto", 1), ("auto", 4), ("isotonic", 1), ("sigmoid", 2), (None, 1)]
)
def test_classes_with_fewer_rows_than_folds(calibration, n_rare):
    """In yeast one class has five rows; here one has even fewer."""
    names = np.array(["a", "b", "c", "rare"])
    rows = np.r_[X, X[:n_rare] + 10]
    labels = names[np.r_[Y, np.full(n_rare, 3)]]
    model = RejectOption(LogisticRegression(max_iter=500), calibration=calibration)
    with np.errstate(all="raise"):
        model.fit(rows, labels)
    assert model.predict_proba(rows).shape == (150 + n_rare, 4)
    assert set(model.predict(rows)) <= {*names, "reject"}


@pytest.mark.parametrize("estimator", [LinearSVC(), RidgeClassifier(), SVC()])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_without_predict_proba(estimator, n_classes):
    kept = n_classes > Y
    model = RejectOption(make_pipeline(StandardScaler(), estimator), cost=0.1).fit(X[kept], Y[kept])
    proba = model.predict_proba(X[kept])
    assert proba.sum(1) == pytest.approx(1)
    assert -model.score(X[kept], Y[kept]) < 0.1


def test_scores_that_a_classifier_keeps_are_not_changed():
    class Stored:
        classes_ = np.array([0, 1])
        scores = np.array([10.0, -20.0])

        def decision_function(self, X):
            return self.scores

    found = proba_of(Stored(), np.zeros((2, 1)), np.array([0, 1]), scale=10.0)
    assert np.allclose(found[:, 1], 1 / (1 + np.exp([-1.0, 2.0])))
    assert np.array_equal(Stored.scores, [10.0, -20.0])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("frozen", [False, True])
def test_the_unit_of_the_scores_of_a_classifier_does_not_matter(frozen, n_classes):
    """A score of 100,000 is no certainty: features in small units have such scores."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=600)
    rows = np.eye(n_classes)[y] + rng.normal(size=(600, n_classes))
    losses = []
    for unit in (1.0, 1e5):
        model = FrozenEstimator(Scored(unit).fit(rows[:200], y[:200])) if frozen else Scored(unit)
        option = RejectOption(model, novelty=None).fit(rows[:400], y[:400])
        losses.append(log_loss(y[400:], option.predict_proba(rows[400:])))
        assert option.predict_proba(rows).max(axis=1).std() > 0.05
    assert losses[1] == pytest.approx(losses[0], rel=0.02)


class Scored(ClassifierMixin, BaseEstimator):
    """Scores of a linear model in another unit."""

    def __init__(self, unit=1.0):
        self.unit = unit

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X):
        return self.unit * self.model_.decision_function(X)


class Unsorted(ClassifierMixin, BaseEstimator):
    """A classifier that keeps its classes in another order than the sorted one."""

    def fit(self, X, y):
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = np.roll(self.model_.classes_, 1)
        return self

    def predict_proba(self, X):
        return np.roll(self.model_.predict_proba(X), 1, axis=1)


@pytest.mark.parametrize("calibration", ["auto", None])
def test_classes_in_any_order_are_matched_by_their_names(calibration):
    names = np.array(["c", "a", "b"])[Y]
    expected = RejectOption(GaussianNB(), calibration=calibration).fit(X, names)
    for estimator in (Unsorted(), FrozenEstimator(Unsorted().fit(X, names))):
        model = RejectOption(estimator, calibration=calibration).fit(X, names)
        assert model.classes_.tolist() == ["a", "b", "c"]
        if calibration is None:
            np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X))
        assert (model.classes_[model.decide(X).label] == names).mean() > 0.9


def test_one_versus_one_scores_are_refused():
    four = np.r_[X, X[:40] + 3]
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        RejectOption(SVC(decision_function_shape="ovo")).fit(four, np.r_[Y, np.full(40, 3)])
    with pytest.raises(TypeError, match="neither predict_proba nor decision_function"):
        RejectOption(Silent()).fit(X, Y)


class Silent(ClassifierMixin, BaseEstimator):
    """A classifier that says nothing about its confidence."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))


class GivenColumns(ClassifierMixin, BaseEstimator):
    """A classifier whose features are its probabilities, for classes in an order of its own."""

    def __init__(self, classes):
        self.classes = classes

    def fit(self, X, y):
        self.classes_ = np.array(self.classes)
        return self

    def predict_proba(self, X):
        return X


@pytest.mark.parametrize("calibration", [None, "temperature"])
@pytest.mark.parametrize(
    ("estimator", "other"),
    [
        (GivenColumns(["dog", "cat"]), []),
        (FrozenEstimator(GivenColumns(["dog", "cat"]).fit([], [])), []),
        (PrecomputedProbabilities(["dog", "cat"]), []),
        (PrecomputedProbabilities(["dog", "cat", "fox"]), [0.0]),
    ],
)
def test_probabilities_belong_to_the_class_that_the_estimator_names(estimator, other, calibration):
    labels = np.array(["cat", "dog"] * 20)
    rows = np.where((labels == "dog")[:, None], [0.7, 0.3, *other], [0.3, 0.7, *other])
    model = RejectOption(estimator, cost=0.4, calibration=calibration).fit(rows, labels)
    assert model.classes_.tolist() == sorted(model.classes_)
    assert model.predict(rows).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("estimator", "words"),
    [
        (GivenColumns(["cat", "dog", "fox"]), r"predict_proba of GivenColumns has the shape \(\d+, 2\) for 3 classes"),
        (GivenColumns(["cat", "fox"]), r"GivenColumns knows the classes \['fox'\], which y lacks"),
        (LinearRegression(), "LinearRegression has no classes_, or neither"),
        (IsolationForest(n_estimators=10), "IsolationForest has no classes_, or neither"),
    ],
)
def test_an_estimator_whose_confidence_is_unknown_is_refused_by_its_name(estimator, words):
    with pytest.raises((InputError, InputTypeError), match=words):
        RejectOption(estimator, cv=2).fit(np.full((20, 2), 0.5), ["cat", "dog"] * 10)


def test_cost_changes_without_refit():
    model = RejectOption(GaussianNB(), cost=0.3).fit(X, Y)
    rates = [model.set_params(cost=c).decide(X).reject.mean() for c in (0.4, 0.05, 0.001)]
    assert rates == sorted(rates)
    assert (model.decide(X, cost=0.05).reject == Chow(0.05).decide(model.predict_proba(X)).reject).all()
    assert model.score(X, Y) == pytest.approx(-zero_one_c_risk(Y, model.predict(X), cost=0.001))


@pytest.mark.parametrize("rule", [Threshold(0.9), CostMatrix([[0, 1, 1, 0.2], [5, 0, 1, 0.2], [5, 1, 0, 0.2]])])
def test_rules_without_fit(rule):
    model = RejectOption(GaussianNB(), rule=rule).fit(X, Y)
    assert (model.decide(X).reject == rule.decide(model.predict_proba(X)).reject).all()
    with pytest.raises(ValueError, match=r"leave out cost=0\.1, or the rule"):
        model.decide(X, cost=0.1)


def test_a_fitted_classifier_is_kept():
    fitted = GaussianNB().fit(X[::2], Y[::2])
    model = RejectOption(FrozenEstimator(fitted)).fit(X[1::2], Y[1::2])
    assert (model.estimator_.predict_proba(X) == fitted.predict_proba(X)).all()
    assert model.calibrator_.temperature_ > 0
    assert (
        RejectOption(FrozenEstimator(fitted), calibration=None).fit(X, Y).predict_proba(X) == fitted.predict_proba(X)
    ).all()


def test_strings_pipelines_clones_pickles_searches():
    names = np.array(["setosa", "versicolor", "virginica"])[Y]
    model = RejectOption(make_pipeline(StandardScaler(), LogisticRegression()), cost=0.05, cv=2).fit(X, names)
    assert "reject" in model.predict(X)
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()
    outside = make_pipeline(StandardScaler(), RejectOption(LogisticRegression())).fit(X, names)
    assert set(outside.predict(X)) <= {*names, "reject"}
    search = GridSearchCV(
        RejectOption(LogisticRegression(max_iter=1000), calibration="temperature", cv=2),
        {"estimator__C": [0.01, 1.0]},
        scoring=zero_one_c_scorer(0.1),
        cv=3,
    )
    assert search.fit(X, names).best_params_ == {"estimator__C": 1.0}
    assert cross_val_score(clone(model), X, names, scoring=zero_one_c_scorer(0.1)).mean() > -0.1


def test_sample_weight_and_routing():
    weight = np.where(Y == 0, 0.0, 1.0)
    model = RejectOption(LogisticRegression(max_iter=500)).fit(X, Y, sample_weight=weight)
    assert model.predict_proba(X)[:, 0].max() < 0.5
    with pytest.raises(TypeError, match="takes no sample_weight"):
        RejectOption(KNeighborsClassifier()).fit(X, Y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = RejectOption(LogisticRegression(max_iter=500).set_fit_request(sample_weight=True))
        routed.set_fit_request(sample_weight=True)
        assert routed.fit(X, Y, sample_weight=weight).predict_proba(X) == pytest.approx(model.predict_proba(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cost": 1.5}, "cost must be in"),
        ({"calibration": "platt"}, "got 'platt'"),
        ({"reject_label": 1}, "is also a class"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        RejectOption(GaussianNB(), **parameters).fit(X, Y)


def test_every_class_once():
    model = RejectOption(GaussianNB(), calibration=None).fit(X[[0, 60, 120]], [0, 1, 2])
    assert model.predict_proba(X).shape == (150, 3)
    with pytest.raises(ValueError, match="no fold has two classes to train on"):
        RejectOption(GaussianNB(), cv=2).fit(X[[0, 60]], [0, 1])


def test_bad_targets():
    with pytest.raises(ValueError, match="only one class"):
        RejectOption(GaussianNB()).fit(X, np.zeros(150))
    with pytest.raises(ValueError, match="y to be passed"):
        RejectOption(GaussianNB()).fit(X, None)


@pytest.mark.parametrize("frozen", [False, True])
def test_rules_that_are_fitted_get_rows_of_their_own(frozen):
    data, labels = make_blobs(3000, centers=4, cluster_std=2.5, random_state=1)
    X_train, X_test, y_train, y_test = train_test_split(data, labels, random_state=0)
    naive = GaussianNB().fit(X_train[:800], y_train[:800])
    rows = slice(800, None) if frozen else slice(None)
    rule = RiskControl(target_risk=0.08, delta=0.1)
    model = RejectOption(FrozenEstimator(naive) if frozen else naive, rule=rule).fit(X_train[rows], y_train[rows])
    decision = model.decide(X_test)
    assert 0 < decision.reject.mean() < 1
    assert (decision.label != y_test)[~decision.reject].mean() < 0.08
    assert "0.08" in model.rule_.explain()
    assert model.rule is rule
    half = RejectOption(naive, rule=Coverage(0.5)).fit(X_train[rows], y_train[rows])
    assert 0.4 < (~half.decide(X_test).reject).mean() < 0.6


# Label shift


@pytest.fixture(scope="module")
def shifted():
    centers = [[0, 0], [2, 0], [0, 2]]
    X, y = make_blobs([600, 600, 600], centers=centers, random_state=0)
    X_new, y_new = make_blobs([1500, 300, 200], centers=centers, random_state=1)
    return RejectOption(GaussianNB(), cost=0.2).fit(X, y), X_new, y_new


def test_adapt_finds_the_new_frequencies_and_pays_less(shifted):
    model, X, y = shifted
    adapted = model.adapt(X)
    np.testing.assert_allclose(adapted.label_shift_.new_prior_, [0.75, 0.15, 0.1], atol=0.03)
    assert adapted.score(X, y) > model.score(X, y) + 0.01
    assert "0.333 to 0.7" in adapted.label_shift_.explain()


def test_adapt_leaves_the_model_as_it_was(shifted):
    model, X, _ = shifted
    before = model.predict_proba(X)
    adapted = model.adapt(X)
    assert model.label_shift_ is None
    np.testing.assert_array_equal(model.predict_proba(X), before)
    np.testing.assert_allclose(adapted.predict_proba(X), adapted.label_shift_.transform(before))
    # adapting twice starts from the training frequencies again
    np.testing.assert_allclose(adapted.adapt(X).label_shift_.new_prior_, adapted.label_shift_.new_prior_)


def test_adapt_refuses_where_a_guarantee_would_be_void(shifted):
    _, X, y = shifted
    model = RejectOption(GaussianNB(), rule=RiskControl(0.2, 0.1)).fit(X, y)
    with pytest.raises(ValueError, match="guarantees nothing under others"):
        model.adapt(X)
    fixed = RejectOption(GaussianNB(), rule=Threshold(0.6)).fit(X, y)
    assert fixed.adapt(X).label_shift_.distance_ < 0.05


def test_decide_proba_is_decide(shifted):
    model, X, _ = shifted
    for cost in (None, 0.1):
        one, two = model.decide(X, cost), model.decide_proba(model.predict_proba(X), cost)
        np.testing.assert_array_equal(one.reject, two.reject)
        np.testing.assert_array_equal(one.confidence, two.confidence)


# Rows that a rule is fitted on


def test_a_rule_does_not_weigh_rows():
    with pytest.raises(ValueError, match="does not support sample_weight"):
        RejectOption(GaussianNB(), rule=Coverage(0.8)).fit(X, Y, sample_weight=np.ones(len(Y)))


class Remembers(GaussianNB):
    """Keeps the first feature of the rows that it was fitted on."""

    seen: list = []  # noqa: RUF012 # shared on purpose: clones are what is fitted

    def fit(self, X, y, sample_weight=None):
        self.seen.append(np.asarray(X)[:, 0])
        return super().fit(X, y)


@pytest.mark.parametrize("kind", ["list", "splitter"])
def test_a_rule_keeps_to_the_folds_it_is_given(kind):
    rng = np.random.default_rng(0)
    data = np.column_stack([np.arange(200.0), rng.normal(size=200)])
    labels = rng.integers(2, size=200)
    folds = [(np.arange(100), np.arange(100, 150)), (np.arange(150), np.arange(150, 200))]
    cv = folds if kind == "list" else TimeSeriesSplit(2, test_size=50)
    Remembers.seen.clear()
    model = RejectOption(Remembers(), cv=cv, rule=Coverage(0.5)).fit(data, labels)
    assert all(rows.max() < 150 for rows in Remembers.seen)  # the last fold's test rows belong to the rule
    assert all((np.diff(rows) > 0).all() for rows in Remembers.seen)
    assert model.rule_.explain()


def test_names_of_features_are_the_estimators():
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    assert RejectOption(GaussianNB()).fit(frame, Y).feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert not hasattr(RejectOption(GaussianNB()), "feature_names_in_")


def test_weights_calibrate_a_frozen_estimator(hard):
    data, rest, labels, rest_labels = hard
    fitted = FrozenEstimator(GaussianNB().fit(data, labels))
    weight = np.arange(len(rest_labels)) % 3
    weighted = RejectOption(fitted).fit(rest, rest_labels, sample_weight=weight)
    repeated = RejectOption(fitted).fit(np.repeat(rest, weight, axis=0), np.repeat(rest_labels, weight))
    assert weighted.calibrator_.temperature_ == pytest.approx(repeated.calibrator_.temperature_, rel=1e-6)
    np.testing.assert_allclose(weighted.class_prior_, repeated.class_prior_)


def test_adapt_names_a_class_without_training_rows(hard):
    data, rest, labels, rest_labels = hard
    known = rest_labels != 2
    model = RejectOption(FrozenEstimator(GaussianNB().fit(data, labels))).fit(rest[known], rest_labels[known])
    with pytest.raises(ValueError, match="frequency of class 2 cannot be estimated"):
        model.adapt(rest)


def test_scores_of_a_wrapped_classifier_may_have_any_unit():
    """Labels that are coded for a classifier do not change the scale of its scores."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 1)) * 1e4, rng.integers(2, size=200)
    X[:, 0] += 5e3 * (2 * y - 1)
    plain = LinearScores().fit(X, y)
    coded = CodedLabels(LinearScores()).fit(X, np.array(["no", "yes"])[y])
    expected = proba_of(plain, X, plain.classes_, score_scale(plain, X))
    np.testing.assert_allclose(coded.predict_proba(X), expected)
    assert coded.predict_proba(X).min() > 1e-12  # unscaled scores give exactly 0


class LinearScores(ClassifierMixin, BaseEstimator):
    """Scores in the unit of the feature, and no probabilities."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def decision_function(self, X):
        return X[:, 0]
