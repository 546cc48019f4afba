"""Out-of-scope rows: the head on scores and distances, the model without such rows, and decisions."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline

from demur import AutoClassifier, RejectOption, RiskControl
from demur.errors import InputError
from demur.estimators.scope import Scope, ScopeInput
from demur.rules import Chow, CostMatrix, Threshold

from .text_rows import text_rows

X, GROUP = make_blobs(900, centers=[[0, 0], [4, 0], [2, 9]], random_state=0)
Y = np.array(["a", "b", "none"])[GROUP]
IN = GROUP < 2


def logistic(**options):
    return RejectOption(LogisticRegression(), novelty=None, **options)


def test_out_of_scope_rows_are_no_class_and_are_declined():
    model = logistic(out_of_scope="none").fit(X, Y)
    decision = model.decide(X)
    assert model.classes_.tolist() == ["a", "b"]
    assert decision.reject[~IN].all()
    assert set(decision.reason[~IN]) == {"out of scope"}
    assert decision.reject[IN].mean() < 0.1
    assert set(model.predict(X[~IN])) == {"reject"}
    assert model.score(X, Y) > -0.1  # an answer to an out-of-scope row counts as wrong


def test_without_such_rows_the_distance_to_the_predicted_class_is_used():
    model = logistic(out_of_scope_share=0.1).fit(X[IN], Y[IN])
    inside = model.decide(X).in_scope
    assert roc_auc_score(IN, inside) > 0.95
    assert np.median(inside[IN]) > 0.9
    assert logistic().fit(X[IN], Y[IN]).decide(X).in_scope is None


def test_a_larger_share_makes_every_row_less_probable_in_scope():
    shares = [logistic(out_of_scope_share=share).fit(X[IN], Y[IN]).decide(X).in_scope for share in (0.01, 0.3)]
    assert (shares[1] < shares[0]).all()


def test_the_confidence_is_that_of_the_class_times_that_of_the_scope():
    model = logistic(out_of_scope="none").fit(X, Y)
    decision, proba = model.decide(X), model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(decision.confidence, proba.max(axis=1) * decision.in_scope)
    np.testing.assert_array_equal(decision.reject, ~(decision.confidence > 0.8))
    assert model.decide(X, cost=0.4).reject.sum() <= decision.reject.sum()


@pytest.mark.parametrize("rule", [Threshold(0.9), Chow(0.3), RiskControl(0.1)])
def test_every_rule_declines_them(rule):
    model = logistic(out_of_scope="none", rule=rule).fit(X, Y)
    assert model.decide(X).reject[~IN].all()
    assert not model.decide(X).reject[IN].all()


def test_a_cost_matrix_prices_them_like_a_wrong_answer():
    costs = [[0, 1, 0.2], [1, 0, 0.2]]
    decision = logistic(out_of_scope="none", rule=CostMatrix(costs)).fit(X, Y).decide(X)
    assert decision.reject[~IN].all()
    assert not decision.reject[IN].all()


def test_few_out_of_scope_rows_are_left_to_the_distances():
    few = np.r_[np.flatnonzero(IN), np.flatnonzero(~IN)[:3]]
    with pytest.warns(UserWarning, match="fewer than 10 out-of-scope rows are not learned from"):
        model = logistic(out_of_scope="none").fit(X[few], Y[few])
    assert model.scope_.head is None
    assert model.decide(X).in_scope[~IN].mean() < 0.8


def test_no_out_of_scope_row_at_all_is_no_error():
    model = logistic(out_of_scope="none").fit(X[IN], Y[IN])
    assert model.scope_.share == 0.1
    assert model.scope_.head is None


def test_the_share_of_the_rows_is_the_expected_one_unless_it_is_given():
    assert logistic(out_of_scope="none").fit(X, Y).scope_.share == pytest.approx(1 / 3)
    assert logistic(out_of_scope="none", out_of_scope_share=0.02).fit(X, Y).scope_.share == 0.02
    with pytest.raises(InputError, match=r"out_of_scope_share must be from 0 to below 1, got 1\.5"):
        logistic(out_of_scope_share=1.5).fit(X, Y)


def test_weights_and_groups_of_out_of_scope_rows_are_left_out():
    weight, groups = np.where(IN, 1.0, 5.0), np.arange(len(Y)) // 2
    model = logistic(out_of_scope="none").fit(X, Y, sample_weight=weight, groups=groups)
    assert model.class_prior_.sum() == pytest.approx(1)
    assert model.decide(X).reject[~IN].all()


def test_a_rule_is_fitted_again_on_rows_in_scope():
    model = logistic(out_of_scope="none").fit(X[::2], Y[::2]).set_params(rule=RiskControl(0.1))
    assert model.fit_rule(X[1::2], Y[1::2]).decide(X).reject[~IN].all()


def test_the_scope_of_a_text_pipeline_uses_its_probabilities():
    rows = text_rows(n_outside=40)
    model = RejectOption(make_pipeline(TfidfVectorizer(), LogisticRegression()), out_of_scope="none", cost=0.3)
    decision = model.fit(rows["text"].tolist(), rows["y"]).decide(rows["text"].tolist())
    assert roc_auc_score(rows["y"] != "none", decision.in_scope) > 0.9


@pytest.mark.parametrize("learned", [True, False])
def test_auto_detects_texts_of_other_subjects(learned):
    rows, new = text_rows(n_outside=40 if learned else 0), text_rows(n_outside=40, seed=1)
    blend = AutoClassifier(("text", "lr"), cv=3, random_state=0)
    model = RejectOption(blend, out_of_scope="none" if learned else None).fit(rows[["text"]], rows["y"])
    decision = model.decide(new[["text"]])
    outside = (new["y"] == "none").to_numpy()
    assert roc_auc_score(~outside, decision.in_scope) > 0.97
    assert decision.reject[outside].mean() > 0.9
    assert decision.reject[~outside].mean() < 0.2


def test_p_values_without_out_of_scope_rows_follow_the_two_groups():
    proba = np.column_stack([np.linspace(0.6, 0.99, 99), 1 - np.linspace(0.6, 0.99, 99)])
    scope = Scope.learn(ScopeInput(proba), np.zeros(99, dtype=np.int64), None, 0.2)
    u = (1 + np.arange(1, 100)) / 100
    np.testing.assert_allclose(scope.probability(ScopeInput(proba)), 0.8 / (0.8 + 0.2 * 0.1 * u**-0.9))


def test_groups_of_a_guarantee_follow_their_rows_where_some_are_out_of_scope():
    order = np.argsort(-GROUP, kind="stable")  # out-of-scope rows come first
    rows, labels = X[order], Y[order]
    model = logistic(rule=RiskControl(0.2, groups=labels), out_of_scope="none")
    with pytest.raises(InputError, match="the group 'none' has no calibration row"):
        model.fit(rows, labels)
    model.rule = RiskControl(0.2, groups=np.where(labels == "none", "a", labels))
    found = model.fit(rows, labels).rule_.group_certificates_
    assert {name: one.n_rows for name, one in found.items()} == {"a": 150, "b": 150}


@pytest.mark.parametrize("label", [3, True, ["none", "b"]])
def test_a_label_that_no_row_can_have_is_refused(label):
    with pytest.raises(InputError, match="out_of_scope must be one label of the type of y, such as"):
        logistic(out_of_scope=label).fit(X, Y)


def test_rows_that_are_all_out_of_scope_are_refused():
    with pytest.raises(InputError, match="y holds no row in scope"):
        logistic(out_of_scope="none").fit(X[~IN], Y[~IN])


def test_many_out_of_scope_rows_are_represented_by_rows_of_all_kinds(monkeypatch):
    monkeypatch.setattr("demur.estimators.scope._MOST_OUTSIDE", 40)
    far = np.repeat([[2.0, 9.0], [2.0, -9.0]], [300, 100], axis=0)  # the second kind comes last
    rows, labels = np.r_[X[IN], far], np.r_[Y[IN], np.repeat("none", 400)]
    assert len(np.unique(logistic(out_of_scope="none").fit(rows, labels).scope_.outside, axis=0)) == 2
