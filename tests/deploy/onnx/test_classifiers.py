"""Classifiers and transformers of scikit-learn: the graph decides as they do, also for values on a threshold."""

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import BernoulliNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

from demur import Chow, RejectOption
from demur.deploy.onnx import ExportError, onnx_model
from demur.estimators import AutoClassifier, candidates

from .running import TOLERANCE, assert_agrees, mixed_rows, run

_CANCER = load_breast_cancer(return_X_y=True)
DATA = {2: (_CANCER[0][::3, :10], _CANCER[1][::3]), 3: load_wine(return_X_y=True)}
SCALED = {k: (StandardScaler().fit_transform(X), y) for k, (X, y) in DATA.items()}
SEED = {"random_state": 0}

TREES = [
    DecisionTreeClassifier(min_samples_leaf=4, **SEED),
    ExtraTreeClassifier(min_samples_leaf=4, **SEED),
    RandomForestClassifier(10, **SEED),  # pure leaves: probabilities are tenths, and 0.8 ties with a cost of 0.2
    ExtraTreesClassifier(40, min_samples_leaf=3, **SEED),
    GradientBoostingClassifier(n_estimators=40, **SEED),
    GradientBoostingClassifier(n_estimators=5, init="zero", **SEED),
    HistGradientBoostingClassifier(max_iter=10, **SEED),
]
OTHERS = [
    BernoulliNB(),
    ComplementNB(),
    GaussianNB(),
    LinearDiscriminantAnalysis(),
    LinearSVC(C=0.01, **SEED),
    LogisticRegression(),
    MLPClassifier((8,), "tanh", solver="lbfgs", max_iter=20, **SEED),
    MLPClassifier((8, 4), "logistic", solver="lbfgs", max_iter=20, **SEED),
    MLPClassifier((8,), "relu", solver="lbfgs", max_iter=20, **SEED),
    MultinomialNB(),
    Perceptron(**SEED),
    QuadraticDiscriminantAnalysis(reg_param=0.5),
    RidgeClassifier(),
    SGDClassifier(loss="hinge", **SEED),
    SGDClassifier(loss="log_loss", **SEED),
    SGDClassifier(loss="modified_huber", **SEED),
    VotingClassifier([("a", GaussianNB()), ("b", LogisticRegression())], voting="soft", weights=[2, 1]),
    make_pipeline(RobustScaler(), MinMaxScaler(), LogisticRegression()),
]


LINEAR = (LinearSVC, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier)
"""With two classes they have one score instead of a score for each class."""


@pytest.mark.parametrize(
    ("estimator", "n_classes"),
    [(one, 3) for one in OTHERS]
    + [pytest.param(one, 2, marks=() if isinstance(one, LINEAR) else pytest.mark.slow) for one in OTHERS],
    ids=lambda one: one if isinstance(one, int) else type(one).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classifiers_agree(estimator, n_classes):
    X, y = SCALED[n_classes]
    if isinstance(estimator, (MultinomialNB, ComplementNB)):
        X = np.abs(X)
    if n_classes == 3:
        assert_agrees(RejectOption(estimator, cv=2).fit(X, y), mixed_rows(X, 200), costs=(0.01, 0.4))
    assert_agrees(RejectOption(estimator, calibration=None).fit(X, y), mixed_rows(X, 200))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classifiers_with_large_scores_agree(n_classes):
    X, y = SCALED[n_classes]
    model = RejectOption(Perceptron(**SEED), cv=2).fit(1000 * X, y)
    assert model.score_scale_ > 100
    assert_agrees(model, 1000 * mixed_rows(X, 200), costs=(0.01, 0.4))


def thresholds(model):
    """Return (feature, threshold) of every split."""
    if hasattr(model, "_predictors"):
        nodes = np.concatenate([one.nodes for step in model._predictors for one in step])
        nodes = nodes[~nodes["is_leaf"].astype(bool)]
        return nodes["feature_idx"], nodes["num_threshold"]
    members = np.ravel(getattr(model, "estimators_", [model])).tolist()
    trees = [one.tree_ for one in members]
    feature, threshold = (np.concatenate([getattr(tree, name) for tree in trees]) for name in ("feature", "threshold"))
    return feature[feature >= 0], threshold[feature >= 0]


def rows_on_thresholds(model, X, seed=0):
    """Return rows with a feature exactly on a threshold, and one bit beside it in either precision."""
    feature, threshold = thresholds(model)
    rng = np.random.default_rng(seed)
    chosen = rng.integers(len(feature), size=200)
    single = threshold[chosen].astype(np.float32)
    values = [threshold[chosen], single.astype(np.float64)]
    for direction in (-np.inf, np.inf):
        values.append(np.nextafter(threshold[chosen], direction))
        values.append(np.nextafter(single, np.float32(direction)).astype(np.float64))
    rows = np.repeat(X[rng.integers(len(X), size=200)][None], len(values), axis=0)
    rows[:, np.arange(200), feature[chosen]] = values
    return rows.reshape(-1, X.shape[1])


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", TREES, ids=lambda one: type(one).__name__)
def test_trees_agree_on_their_thresholds(estimator, n_classes):
    X, y = DATA[n_classes]
    model = RejectOption(estimator, calibration=None).fit(X, y)
    rows = np.vstack([rows_on_thresholds(model.estimator_, X), mixed_rows(X, 200)])
    assert_agrees(model, rows, costs=(0.1, 0.3))


def with_gaps(seed=0, n=600):
    """Return rows of rounded numbers and codes with gaps, their classes, and new rows with unseen codes."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 5)), 1)
    X[:, 3], X[:, 4] = rng.integers(0, 12, n), rng.integers(0, 100, n)
    y = (X[:, 0] > 0).astype(int) + (X[:, 3] % 3 == 0) * (X[:, 4] % 7 < 3)
    X[rng.random(X.shape) < 0.1] = np.nan
    new = np.take_along_axis(X, rng.integers(n, size=X.shape), 0)
    new[:60, 3] = rng.choice([-1, 50, 1.5, 99, 255, 300], 60)
    return X, y, new


@pytest.mark.parametrize("categorical", [None, [3, 4]])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_boosting_with_gaps_and_categories(categorical, n_classes):
    X, y, new = with_gaps()
    new[60:90, 0] = [np.inf, -np.inf, 1e300, -0.0, 5e-324] * 6
    estimator = HistGradientBoostingClassifier(max_iter=25, categorical_features=categorical, **SEED)
    model = RejectOption(estimator, calibration=None).fit(X, np.minimum(y, n_classes - 1))
    assert_agrees(model, new)


@pytest.mark.parametrize("kind", [RandomForestClassifier, ExtraTreesClassifier])
def test_forests_with_gaps(kind):
    X, y, new = with_gaps()
    assert_agrees(RejectOption(kind(10, min_samples_leaf=2, **SEED), calibration=None).fit(X, y), new)


@pytest.mark.parametrize("unknown", ["infrequent_if_exist", "ignore"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:Skipping features:UserWarning")
def test_a_pipeline_with_imputer_scaler_and_indicators(unknown):
    X, y, new = with_gaps(n=300)
    X[:, 2] = np.nan  # nothing to impute: the column goes
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    indicators = OneHotEncoder(handle_unknown=unknown, max_categories=20)
    columns = make_column_transformer((numbers, [0, 1, 2]), (indicators, [4, 3]), ("passthrough", []))
    assert_agrees(RejectOption(make_pipeline(columns, LogisticRegression(max_iter=60)), cv=2).fit(X, y), new)


def test_one_feature_is_scaled_in_double_precision():
    X, y = DATA[3]
    model = RejectOption(make_pipeline(StandardScaler(), LogisticRegression()), cv=2).fit(X[:, 6:7], y)
    assert_agrees(model, np.linspace(0, 6, 2001)[:, None])


def test_a_tie_with_the_cost_rejects():
    """Eight trees of ten say 1, and a cost of 0.2 asks for more than 0.8: a tie."""
    X, y = DATA[3]
    model = RejectOption(RandomForestClassifier(10, **SEED), rule=Chow(0.2), calibration=None).fit(X, y)
    rows = mixed_rows(X, 500)
    found = run(model, rows)
    tied = found["confidence"] == 0.8
    assert tied.sum() > 20
    assert found["reject"][tied].all()


def test_a_frozen_estimator():
    X, y = DATA[3]
    frozen = FrozenEstimator(GaussianNB().fit(X, y))
    assert_agrees(RejectOption(frozen).fit(X[::2], y[::2]), X)


def test_a_blend():
    X, y, new = with_gaps(n=150)
    options = {"categorical_features": [3, 4], "cv": 2, "time_budget": None, "random_state": 0}
    blend, other = (
        AutoClassifier(names, **options).fit(X, y) for names in (["logistic regression"], ["gradient boosting"])
    )
    for part in ("models_", "scalings_", "views_"):
        setattr(blend, part, getattr(blend, part) + getattr(other, part))
    blend.weights_ = (0.4, 0.6)
    assert set(blend.views_) == {"codes", "dense"}
    assert_agrees(RejectOption(FrozenEstimator(blend)).fit(X, y), new, costs=(0.05, 0.4))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one.key, marks=[pytest.mark.slow] if one.key in ("pnn", "et") else [])
        for one in candidates.CANDIDATES
        if one.library is None and one.view != "text"
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_every_candidate_of_auto_agrees(name, monkeypatch):
    """With missing values, categories that were never seen, and both kinds of calibration."""
    for part, size in (("_TREES", 30), ("_ITERATIONS", 20), ("_EPOCHS", 4)):
        monkeypatch.setattr(candidates, part, size)
    X, y, new = with_gaps(n=300)
    auto = AutoClassifier((name,), categorical_features=[3, 4], cv=2, time_budget=None, random_state=0).fit(X, y)
    for calibration in ("temperature", "isotonic"):
        model = RejectOption(FrozenEstimator(auto), calibration=calibration).fit(X, y)
        # networks compute in single precision, and steep parts of an isotonic curve multiply their rounding errors
        tolerance = 1e-3 if calibration == "isotonic" and "nn" in name else TOLERANCE
        assert_agrees(model, new, tolerance, costs=(0.4,))


REFUSED = [
    (KNeighborsClassifier(), "the classifier KNeighborsClassifier has no ONNX form"),
    (
        AdaBoostClassifier(n_estimators=2),
        "the classifier AdaBoostClassifier has no ONNX form in demur; fit another model",
    ),
    (make_pipeline(PolynomialFeatures(), GaussianNB()), "the transformer PolynomialFeatures is not supported;"),
    (SVC(), "the classifier SVC has no ONNX form in demur; fit another model"),
    (make_pipeline(OneHotEncoder(drop="first", sparse_output=False), GaussianNB()), "OneHotEncoder is supported"),
    (GradientBoostingClassifier(n_estimators=2, init=GaussianNB()), "default loss and init only"),
    (make_pipeline(SimpleImputer(missing_values=-1), GaussianNB()), "missing_values=-1"),
]


@pytest.mark.parametrize(("estimator", "reason"), REFUSED)
def test_what_has_no_equal_is_refused_with_a_reason(estimator, reason):
    X, y = DATA[3]
    model = RejectOption(estimator, calibration=None).fit((X.mean(axis=0) < X).astype(float), y)
    with pytest.raises(ExportError, match=reason) as refusal:
        onnx_model(model)
    assert ";" in str(refusal.value)  # what to do instead
