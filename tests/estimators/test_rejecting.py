"""What both estimators with a reject option answer alike: which cost decides, may it change, what is a score."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur import Chow, CostMatrix, Coverage, RejectClassifier, RejectOption, RiskControl, Threshold
from demur.estimators import AutoClassifier, RejectingClassifier
from demur.metrics import zero_one_c_risk, zero_one_c_scorer

X, Y = load_iris(return_X_y=True)
TRIAGE = [[0, 1, 1, 0.2], [5, 0, 1, 0.2], [5, 1, 0, 0.2]]
QUICK = {"epochs": 8, "batch_size": 32, "n_members": 1, "random_state": 0, "cost": 0.3}
MODELS = {
    "ce": RejectClassifier(**QUICK),
    "ova+log": RejectClassifier("ova+log", **QUICK),
    "ova+hin": RejectClassifier("ova+hin", **QUICK),
    "default": RejectOption(GaussianNB(), cost=0.3),
    "chow": RejectOption(GaussianNB(), cost=0.2, rule=Chow(0.3)),
    "threshold": RejectOption(GaussianNB(), cost=0.2, rule=Threshold(0.9)),
    "matrix": RejectOption(GaussianNB(), cost=0.2, rule=CostMatrix(TRIAGE)),
    "coverage": RejectOption(GaussianNB(), cost=0.2, rule=Coverage(0.8)),
    "risk": RejectOption(GaussianNB(), cost=0.2, rule=RiskControl(0.3, 0.2)),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: clone(model).fit(X, Y) for name, model in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_two_estimators_answer_the_same_questions(name, fitted):
    model = fitted[name]
    assert isinstance(model, RejectingClassifier)
    decision, scores = model.decide_and_score(X)
    assert scores.shape == (150, 3)
    np.testing.assert_array_equal(decision.reject, model.decide(X).reject)
    np.testing.assert_array_equal(decision.labels(model.classes_, model.reject_label_), model.predict(X))
    assert model.has_proba == hasattr(model, "predict_proba")
    if model.has_proba:
        np.testing.assert_array_equal(scores, model.predict_proba(X))
        scores = np.log(scores)
    np.testing.assert_allclose(model.decision_function(X), scores)
    assert model.cost_adjustable == (model.why_cost_fixed is None)
    if model.cost_adjustable:
        assert model.decide(X, cost=0.01).reject.mean() >= decision.reject.mean()
    else:
        with pytest.raises(ValueError, match="cost"):
            model.decide(X, cost=0.01)


def test_the_cost_that_decides_is_the_rules_own(fitted):
    costs = {name: model.effective_cost for name, model in fitted.items()}
    assert costs == {
        "ce": 0.3, "ova+log": 0.3, "ova+hin": 0.3, "default": 0.3, "chow": 0.3,
        "threshold": None, "matrix": None, "coverage": None, "risk": None,
    }  # fmt: skip
    assert {name for name, model in fitted.items() if model.cost_adjustable} == {"ce", "ova+log", "default", "chow"}
    assert clone(fitted["default"]).set_params(cost=0.1).effective_cost == 0.1
    assert clone(fitted["chow"]).set_params(cost=0.1).effective_cost == 0.3
    assert "trained for the cost 0.3" in fitted["ova+hin"].why_cost_fixed
    assert "decides by Coverage" in fitted["coverage"].why_cost_fixed


def test_an_explicit_chow_decides_and_scores_as_the_same_cost(fitted):
    chow, default = fitted["chow"], fitted["default"]
    np.testing.assert_array_equal(chow.predict(X), default.predict(X))
    assert chow.score(X, Y) == default.score(X, Y) == -zero_one_c_risk(Y, chow.predict(X), cost=0.3)
    np.testing.assert_array_equal(chow.decide(X, cost=0.05).reject, default.decide(X, cost=0.05).reject)
    assert "0.3" in chow.explain()
    assert default.explain() is None


@pytest.mark.parametrize("name", ["threshold", "coverage", "risk"])
def test_a_rule_without_a_price_is_scored_at_the_parameter_cost(name, fitted):
    model = fitted[name]
    assert model.score(X, Y) == -zero_one_c_risk(Y, model.predict(X), cost=0.2)
    assert model.explain() == model.rule_.explain()


def test_a_cost_matrix_is_scored_by_what_it_charges(fitted):
    model, weight = fitted["matrix"], np.arange(150.0)
    decision = model.decide(X)
    answers = np.where(decision.reject, 3, decision.label)
    charged = np.array(TRIAGE)[Y, answers]
    assert charged.max() > 0
    assert model.score(X, Y) == pytest.approx(-charged.mean())
    assert model.score(X, Y, sample_weight=weight) == pytest.approx(-np.average(charged, weights=weight))
    each = clone(model).set_params(rule=CostMatrix(np.tile(TRIAGE, (150, 1, 1)))).fit(X, Y)
    assert each.score(X, Y) == pytest.approx(-charged.mean())
    with pytest.raises(ValueError, match=r"does not know: \[7\]"):
        model.score(X, np.where(Y == 0, 7, Y))


# a rule that is changed after fit


def test_a_rule_that_needs_no_fit_is_honoured_after_fit():
    model = RejectOption(GaussianNB(), cost=0.3).fit(X, Y)
    proba = model.predict_proba(X)
    for rule in (Threshold(0.99), Chow(0.01), CostMatrix(TRIAGE)):
        model.set_params(rule=rule)
        np.testing.assert_array_equal(model.decide(X).reject, rule.decide(proba).reject)
        assert model.rule_ is rule
    assert model.set_params(rule=None).rule_ is None
    np.testing.assert_array_equal(model.decide(X).reject, Chow(0.3).decide(proba).reject)


def test_a_rule_that_needs_fit_says_so():
    model = RejectOption(GaussianNB(), rule=Coverage(0.8)).fit(X, Y)
    before = model.predict(X)
    for change in ({"rule": RiskControl(0.1)}, {"rule": Coverage(0.5)}, {"rule__target": 0.6}):
        with pytest.raises(ValueError, match="after fit, and it must be fitted on rows: fit again, or call fit_rule"):
            clone(model).fit(X, Y).set_params(**change).predict(X)
    np.testing.assert_array_equal(model.set_params(rule=Coverage(0.8)).predict(X), before)  # the same as was fitted
    model.set_params(rule=Coverage(0.5)).fit_rule(X, Y)
    assert (~model.decide(X).reject).mean() == pytest.approx(0.5, abs=0.01)
    with pytest.raises(ValueError, match="needs no rows"):
        model.set_params(rule=Threshold(0.5)).fit_rule(X, Y)


def test_a_guarantee_is_void_when_other_rows_are_declined_as_novel():
    """Rows that were novel when the rule was fitted are not among those that it counted."""
    model = RejectOption(GaussianNB(), rule=Coverage(0.8)).fit(X, Y)
    before = model.predict(X)
    for novelty in (None, 0.05):
        with pytest.raises(ValueError, match=rf"or novelty to {novelty}, after fit, and it must be fitted on rows"):
            model.set_params(novelty=novelty).predict(X)
    np.testing.assert_array_equal(model.set_params(novelty="auto").predict(X), before)
    assert model.set_params(novelty=0.05).fit_rule(X, Y).decide(X + 1e6).novel.all()
    assert not RejectOption(GaussianNB()).fit(X, Y).set_params(novelty=None).decide(X + 1e6).reject.any()


@pytest.mark.filterwarnings("ignore::demur.estimators.EqualRowsWarning")
@pytest.mark.parametrize("estimator", [GaussianNB(), AutoClassifier(["lr"], time_budget=None)], ids=["nb", "auto"])
def test_rows_of_a_class_that_was_not_trained_on_count_as_wrong(estimator):
    """The last fold, which the rule gets, has all rows of the first class."""
    fold = np.where(Y == 0, 2, np.arange(150) % 3)
    names = np.array(["a", "b", "c"])[Y]
    model = RejectOption(estimator, cv=PredefinedSplit(fold), rule=Coverage(0.9), novelty=None).fit(X, names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.out_of_fold_[1].mean() < 0.2  # out of fold, b and c are told apart
    assert not (model.classes_[model.decide(X).label] == "a").any()
    with pytest.raises(ValueError, match="no threshold guarantees a risk"):
        model.set_params(rule=RiskControl(0.5)).fit_rule(X[Y < 2][20:], names[Y < 2][20:])
    other = RejectOption(GaussianNB(), rule=RiskControl(0.4)).fit(X[Y > 0], names[Y > 0])
    certificate = other.fit_rule(np.vstack([X[Y > 0], X[:5]]), np.append(names[Y > 0], ["new"] * 5)).rule_.certificate_
    assert certificate.n_wrong >= 5
    with pytest.raises(ValueError, match=r"does not know: \['x'\]"):
        other.fit_rule(X, np.full(150, "x"))


def test_a_coverage_that_novel_rows_rule_out_is_refused():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1000)
    rows = 2 * y[:, None] + rng.normal(size=(1000, 2))
    rows[500:530] *= 1e6
    model = RejectOption(GaussianNB(), novelty=0.01, rule=Coverage(0.95)).fit(rows[:500], y[:500])
    with pytest.raises(
        ValueError, match=r"of 500 rows are declined as novel .* Coverage\(target=0.95\) is out of reach"
    ):
        model.fit_rule(rows[500:], y[500:])
    model.set_params(rule=Coverage(0.9)).fit_rule(rows[500:], y[500:])
    assert 0.9 <= (~model.decide(rows[500:]).reject).mean() < 0.95


def test_a_rule_needs_one_group_for_each_row():
    site = np.array(["north", "south"])[np.arange(150) % 2]
    for wrong in (site[1:], np.append(site, "north"), site[:, None]):
        with pytest.raises(ValueError, match=r"the rule's groups need shape \(150,\), one per row; got \(1"):
            RejectOption(GaussianNB(), rule=RiskControl(0.4, groups=wrong)).fit(X, Y)
    mixed = [1, 2.5] * 75  # as an array 1.0 and 2.5
    model = RejectOption(GaussianNB(), rule=RiskControl(0.4, 0.2, groups=mixed)).fit(X, Y)
    assert set(model.rule_.group_certificates_) == {"1.0", "2.5"}


def test_a_fitted_rule_is_searched_over_by_its_parameters():
    search = GridSearchCV(RejectOption(GaussianNB(), rule=Coverage(0.5)), {"rule__target": [0.2, 0.9]}, cv=3)
    assert search.fit(X, Y).best_params_ == {"rule__target": 0.9}


def test_searching_over_the_cost_needs_one_cost_to_score_by():
    option, grid = RejectOption(GaussianNB(), calibration="temperature"), {"cost": [0.01, 0.1, 0.4]}
    search = GridSearchCV(option, grid, cv=3).fit(X, Y)
    assert search.best_params_ == {"cost": 0.01}  # each is scored at its own cost, as the docstring of score says
    assert "zero_one_c_scorer" in RejectOption.score.__doc__
    search = GridSearchCV(option, grid, cv=3, scoring=zero_one_c_scorer(0.4)).fit(X, Y)
    assert search.best_params_ == {"cost": 0.4}


@pytest.mark.parametrize(
    "make", [lambda: RejectOption(GaussianNB(), cost=0.02), lambda: RejectClassifier(**{**QUICK, "cost": 0.02})]
)
def test_a_declined_row_of_boolean_labels_is_not_true(make):
    labels = Y == 2
    model = clone(make()).fit(X, labels)
    answers, reject = model.predict(X), model.decide(X).reject
    assert 0 < reject.sum() < len(X)
    assert all(answer is None for answer in answers[reject])
    assert not any(answers[reject])
    assert {type(answer) for answer in answers[~reject]} == {bool}
    assert model.score(X, labels) == pytest.approx(-zero_one_c_risk(labels, answers, cost=0.02, reject_label=None))


# classifiers that take no other labels than 0, 1, ...


class OnlyCodes(GaussianNB):
    """Refuses labels as XGBoost's classifier does."""

    def fit(self, X, y, sample_weight=None):
        classes = np.unique(y)
        if classes.dtype.kind not in "iu" or not np.array_equal(classes, np.arange(len(classes))):
            raise ValueError(f"Invalid classes inferred from unique values of `y`. Expected: 0.., got {classes}")
        return super().fit(X, y, sample_weight)


@pytest.mark.parametrize("names", [np.array([1, 4, 7]), np.array(["a", "b", "c"]), np.array([0, 1, 2])], ids=str)
@pytest.mark.parametrize("wrap", [lambda model: model, lambda model: make_pipeline(StandardScaler(), model)])
def test_a_classifier_that_wants_codes_gets_them(names, wrap):
    model = RejectOption(wrap(OnlyCodes()), cost=0.1).fit(X, names[Y], sample_weight=None)
    usual = RejectOption(wrap(GaussianNB()), cost=0.1).fit(X, names[Y])
    np.testing.assert_allclose(model.predict_proba(X), usual.predict_proba(X))
    assert model.estimator_.classes_.tolist() == names.tolist()
    assert model.estimator_.predict(X[:1]).tolist() == names[:1].tolist()
    assert model.n_features_in_ == 4
    assert set(model.predict(X)) <= {*names.tolist(), model.reject_label_}


def test_a_fold_without_a_rare_class_has_codes_too():
    kept = np.r_[0:100, 100]  # one row of the third class, and another fourth
    rows, labels = np.r_[X[kept], X[:1] + 9, X[1:2] + 9.5], np.r_[Y[kept], 3, 3]
    assert RejectOption(OnlyCodes()).fit(rows, labels).predict_proba(rows).shape == (103, 4)


def test_other_errors_are_shown_as_they_are():
    class Broken(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            raise ValueError(f"broken for {y[0]!r}")

    with pytest.raises(ValueError, match="broken for 'x'"):
        RejectOption(Broken()).fit(X, np.array(["x", "y", "z"], dtype=object)[Y])


def test_a_frozen_estimator_keeps_its_labels():
    names = np.array(["a", "b", "c"])
    model = RejectOption(FrozenEstimator(GaussianNB().fit(X, names[Y]))).fit(X, names[Y])
    assert model.estimator_.classes_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("kind", ["boolean", "category", object])
def test_booleans_of_pandas_decline_with_none(kind):
    pandas = pytest.importorskip("pandas")
    X, y = load_iris(return_X_y=True)
    model = RejectOption(GaussianNB(), cost=0.05).fit(X, pandas.Series(y == 1).astype(kind))
    assert model.classes_.tolist() == [False, True]
    assert model.reject_label_ is None


def test_a_group_without_calibration_rows_is_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    groups = np.where(np.arange(600) < 1, "rare", "common")
    with pytest.raises(ValueError, match="the group 'rare' has no calibration row"):
        RejectOption(GaussianNB(), rule=RiskControl(0.2, groups=groups), guarantee_share=0.2).fit(
            X, (X[:, 0] > 0).astype(int)
        )


def test_novelty_compares_the_columns_that_the_model_reads():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(90, 2)) * [1, 1000], columns=["near", "far"])
    by_name = make_pipeline(ColumnTransformer([("scale", StandardScaler(), ["near", "far"])]), GaussianNB())
    model = RejectOption(by_name).fit(X, X["near"] > 0)
    assert not model.decide(X).novel.any()
    assert not model.decide(X.assign(more=0.0)[["far", "more", "near"]]).novel.any()


def test_novelty_compares_the_columns_of_polars_by_name():
    pl = pytest.importorskip("polars")
    X = np.random.default_rng(0).normal(size=(90, 2)) * [1, 1000]
    by_name = make_pipeline(ColumnTransformer([("scale", StandardScaler(), ["near", "far"])]), GaussianNB())
    frame = pl.DataFrame(X, schema=["near", "far"])
    model = RejectOption(by_name).fit(frame, X[:, 0] > 0)
    assert not model.decide(frame[["far", "near"]]).novel.any()


@pytest.mark.parametrize("kind", [object, "Int8", "category", "uint64"])
def test_integers_of_pandas_stay_integers(kind):
    model = RejectOption(GaussianNB()).fit(X, pd.Series(Y).astype(kind))
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.predict(X).dtype == np.int64


@pytest.mark.parametrize("first", [0, 2**62, 2**63])
@pytest.mark.parametrize("label", [None, float("nan")])
def test_large_labels_are_exact(first, label):
    """As floats, which NumPy makes of uint64 and -1, neighbouring labels would be one."""
    labels = Y.astype(np.uint64) + np.uint64(first)
    model = RejectOption(GaussianNB(), reject_label=label).fit(X, labels)
    answers, reject = model.predict(X), model.decide(X).reject
    assert [int(one) for one in answers[~reject]] == [int(one) + first for one in model.decide(X).label[~reject]]
    assert answers.dtype == (object if first and (label or first == 2**63) else float if label else int)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
@pytest.mark.parametrize("kind", [list, pd.Series, lambda labels: np.array(labels, dtype=object)])
def test_missing_labels_are_refused_in_one_sentence(kind, missing):
    labels = ["a", "b", "c", missing] * 5
    for model in (RejectClassifier(**QUICK), RejectOption(GaussianNB())):
        with pytest.raises(ValueError, match="y contains missing values"):
            model.fit(X[:20], kind(labels))


def test_labels_that_mix_text_and_numbers_are_refused():
    for model in (RejectClassifier(**QUICK), RejectOption(GaussianNB())):
        with pytest.raises(ValueError, match="y mixes text with other labels"):
            model.fit(X[:20], np.array(["a", 1] * 10, dtype=object))


def test_declined_rows_do_not_get_the_label_of_out_of_scope_rows():
    model = RejectOption(GaussianNB(), cost=0.01, out_of_scope=-1).fit(X, Y - 1)
    assert model.classes_.tolist() == [0, 1]
    assert model.reject_label_ == -2
    assert -1 <= model.score(X, Y - 1) < 0
