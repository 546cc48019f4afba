"""Decisions and rules, by law and by hand."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.utils.validation import check_is_fitted

from demur import RejectOption
from demur.guarantees import Coverage, RiskControl
from demur.rules import (
    Chow,
    CostMatrix,
    Decision,
    Relinked,
    Rule,
    Threshold,
    available_rules,
    check_proba,
    get_rule,
    register_rule,
    unregister_rule,
)

PROBA = np.array([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2], [0.8, 0.1, 0.1]])


def dirichlet(seed, n=200, k=4):
    return np.random.default_rng(seed).dirichlet(np.full(k, 0.5), size=n)


def chow_matrix(n_classes, cost):
    return np.c_[1 - np.eye(n_classes), np.full(n_classes, cost)]


def test_chow_by_hand_ties_reject():
    decision = Chow(0.25).decide([[0.75, 0.25], [0.76, 0.24], [0.74, 0.26]])
    assert decision.reject.tolist() == [True, False, True]
    assert decision.label.tolist() == [0, 0, 0]
    assert decision.acceptance == pytest.approx([0, 0.01, -0.01])
    assert decision.confidence == pytest.approx([0.75, 0.76, 0.74])


@given(cost=st.floats(0.01, 0.49), seed=st.integers(0, 2**16))
def test_threshold_and_cost_matrix_contain_chow(cost, seed):
    proba = dirichlet(seed)
    chow = Chow(cost).decide(proba)
    for other in (Threshold(1 - cost).decide(proba), CostMatrix(chow_matrix(4, cost)).decide(proba)):
        clear = np.abs(chow.acceptance) > 1e-9
        assert (other.reject == chow.reject)[clear].all()
        assert (other.label == chow.label).all()


@given(seed=st.integers(0, 2**16))
def test_chow_has_the_least_expected_cost(seed):
    proba, cost = dirichlet(seed), 0.3
    decision = Chow(cost).decide(proba)
    paid = np.where(decision.reject, cost, 1 - proba[np.arange(len(proba)), decision.label])
    assert (paid <= np.minimum(cost, 1 - proba.max(1)) + 1e-12).all()


@given(seed=st.integers(0, 2**16))
def test_cost_matrix_takes_the_cheapest_column(seed):
    rng = np.random.default_rng(seed)
    matrix = np.c_[rng.uniform(1, 2, (4, 4)) * (1 - np.eye(4)), rng.uniform(0.05, 0.2, 4)]
    proba = dirichlet(seed)
    decision = CostMatrix(matrix).decide(proba)
    columns = np.where(decision.reject, 4, decision.label)
    expected = proba @ matrix
    assert expected[np.arange(len(proba)), columns] == pytest.approx(expected.min(1))


def test_costs_per_example():
    per_row = Chow(np.array([0.05, 0.6 - 0.15, 0.3])).decide(PROBA)
    assert per_row.reject.tolist() == [True, True, False]
    stack = np.stack([chow_matrix(3, c) for c in (0.05, 0.45, 0.3)])
    assert CostMatrix(stack).decide(PROBA).reject.tolist() == per_row.reject.tolist()


def test_a_free_rejection_rejects_all_that_is_uncertain_and_certainty_is_a_tie():
    assert Chow(0.0).decide([[0.999, 0.001], [0.5, 0.5], [1.0, 0.0]]).reject.tolist() == [True, True, True]


@pytest.mark.parametrize("cost", [-0.1, 1, 2, np.nan])
def test_costs_outside_the_domain(cost):
    with pytest.raises(ValueError, match=r"cost must be in \[0, 1\)"):
        Chow(cost)


def test_costs_of_the_wrong_shape():
    with pytest.raises(ValueError, match=r"one per row, of shape \(3,\)"):
        Chow(np.full((3, 1), 0.1)).decide(PROBA)


def test_costs_from_one_half_on_warn():
    with pytest.warns(UserWarning, match=r"cost 0\.5 is 1/2 or more"):
        Chow(0.5)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, np.nan])
def test_thresholds_outside_the_domain(threshold):
    with pytest.raises(ValueError, match=r"threshold must be in \[0, 1\]"):
        Threshold(threshold)


@pytest.mark.parametrize(
    ("proba", "message"),
    [
        ([[0.5, np.nan]], "NaN or infinity"),
        ([[0.5, 0.6]], r"row 1 sums to 1\.1"),
        ([[1.5, -0.5]], r"lie in \[0, 1\], got 1\.5"),
        ([[1.0]], "at least two classes"),
        (0.3, "at least two classes"),
    ],
)
def test_bad_probabilities(proba, message):
    with pytest.raises(ValueError, match=message):
        Chow(0.2).decide(proba)


def test_float16_and_integer_probabilities_are_fine():
    assert check_proba(np.eye(3, dtype=int)).dtype == np.float64
    soft = np.full((2, 7), 1 / 7, dtype=np.float16)
    assert Chow(0.2).decide(soft).reject.all()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((3, 3)), r"shape \(K, K \+ 1\)"),
        (np.zeros(3), r"shape \(K, K \+ 1\)"),
        ([[0, 1, np.inf], [1, 0, 0.1]], "must be finite"),
    ],
)
def test_bad_cost_matrices(matrix, message):
    with pytest.raises(ValueError, match=message):
        CostMatrix(matrix)


@pytest.mark.parametrize(
    "matrix",
    [[[0, 1, 0.3], [1e9, 0, 0.3]], 1e-9 * np.array([[0, 1, 0.3], [10, 0, 0.3]]), [[0, 1e-6, 1e-9], [1e6, 0, 1e-9]]],
)
def test_costs_of_very_different_sizes_are_fine(matrix):
    assert CostMatrix(matrix).decide([[0.5, 0.5]]).reject.all()


def test_cost_matrix_for_other_shapes_than_the_probabilities():
    with pytest.raises(ValueError, match="for 2 classes, the probabilities have 3"):
        CostMatrix([[0, 1, 0.2], [1, 0, 0.2]]).decide(PROBA)
    with pytest.raises(ValueError, match="for 2 rows"):
        CostMatrix(np.stack([chow_matrix(3, 0.1)] * 2)).decide(PROBA)


def test_decision_from_torch_to_numpy_and_to_names():
    acceptance = torch.tensor([0.1, 0.0, -0.1, torch.nan])
    decision = Decision.from_acceptance(torch.tensor([1, 0, 1, 0]), acceptance)
    assert decision.reject.tolist() == [False, True, True, True]
    assert isinstance(decision.numpy().label, np.ndarray)
    assert decision.labels([10, 20]).tolist() == [20, -1, -1, -1]
    assert decision.labels(["no", "yes"], "reject").tolist() == ["yes", "reject", "reject", "reject"]
    for large in (2**63 - 1, 2**64 - 1):  # more digits than a float has
        assert decision.labels(np.array([0, large], np.uint64)).tolist() == [large, -1, -1, -1]


# --- rules are estimators, and a rule of one's own is one class

CALIBRATION = np.repeat([[0.99, 0.01], [0.6, 0.4]], [200, 100], axis=0)
TRUE = np.r_[np.zeros(250, dtype=int), np.ones(50, dtype=int)]
EXAMPLES = {
    "chow": Chow(0.2),
    "threshold": Threshold(0.7),
    "cost-matrix": CostMatrix([[0, 1, 0.3], [10, 0, 0.3]]),
    "coverage": Coverage(0.5),
    "risk-control": RiskControl(0.05, delta=0.1),
    "relinked": Relinked(0.2, "power", slope=0.5),
}


def test_every_rule_has_an_example_here():
    assert list(EXAMPLES) == ["chow", "threshold", "cost-matrix", "coverage", "risk-control", "relinked"]
    assert set(EXAMPLES) == set(available_rules())


@pytest.mark.parametrize("name", EXAMPLES)
def test_rules_are_estimators(name):
    rule = EXAMPLES[name]
    copy = clone(rule)
    assert copy is not rule
    assert copy == rule
    assert type(get_rule(name, **rule.get_params())) is type(rule)
    assert all(getattr(copy, key) == value for key, value in rule.get_params().items())
    assert repr(copy) == repr(rule)
    assert repr(rule).startswith(type(rule).__name__ + "(")
    assert rule.explain()
    assert rule.needs_fit == hasattr(rule, "fit")
    assert rule.cost == (0.2 if name in ("chow", "relinked") else None)


@pytest.mark.parametrize("name", ["coverage", "risk-control"])
def test_fit_changes_the_rule_itself_and_no_parameter(name):
    rule = clone(EXAMPLES[name])
    before = rule.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(rule)
    assert rule.fit(CALIBRATION, TRUE) is rule
    check_is_fitted(rule)
    assert rule.get_params() == before
    assert not any(key.endswith("_") for key in before)
    assert rule != EXAMPLES[name]
    assert rule == clone(rule).fit(CALIBRATION, TRUE) == pickle.loads(pickle.dumps(rule))
    assert (rule.decide(CALIBRATION).reject == Threshold(rule.threshold_).decide(CALIBRATION).reject).all()
    assert rule.fit(CALIBRATION[:250], TRUE[:250]) == clone(rule).fit(CALIBRATION[:250], TRUE[:250])  # starts afresh


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (Chow(0.2), {"cost": 20}),
        (Threshold(0.5), {"threshold": 1.5}),
        (CostMatrix([[0, 1, 0.3], [1, 0, 0.3]]), {"costs": [[0, 1, np.inf], [1, 0, 2]]}),
        (Coverage(0.5), {"target": 90}),
        (RiskControl(0.1), {"target_risk": 0}),
    ],
)
def test_set_params_checks_and_leaves_the_rule_as_it_was(rule, change):
    before = clone(rule)
    with pytest.raises(ValueError, match="must be"):
        rule.set_params(**change)
    assert rule == before
    with pytest.raises(ValueError, match="Invalid parameter 'nonsense'"):
        rule.set_params(nonsense=1)


def test_set_params_decides_anew():
    rule = Chow(0.2)
    assert rule.decide([[0.75, 0.25]]).reject.all()
    assert not rule.set_params(cost=0.3).decide([[0.75, 0.25]]).reject.any()
    rule.cost = 7  # past set_params
    with pytest.raises(ValueError, match="cost must be in"):
        rule.decide([[0.75, 0.25]])


def test_arrays_stay_as_given_and_are_compared_by_value():
    costs = np.array([0.1, 0.2])
    assert Chow(costs).cost is costs
    assert Chow(costs) == Chow(costs.copy()) != Chow(0.1)
    matrix = [[0, 1, 0.3], [10, 0, 0.3]]
    assert CostMatrix(matrix).costs is matrix
    assert Chow(0.2) != Threshold(0.2)


def test_a_grid_search_reaches_into_the_rule():
    X, y = load_iris(return_X_y=True)
    option = RejectOption(GaussianNB(), rule=RiskControl(0.2, delta=0.2), calibration=None, cv=2)
    search = GridSearchCV(option, {"rule__target_risk": [0.2, 0.4]}, cv=2).fit(X, y)
    assert search.best_params_["rule__target_risk"] in (0.2, 0.4)
    assert search.best_estimator_.rule_.target_risk == search.best_params_["rule__target_risk"]
    assert option.rule == RiskControl(0.2, delta=0.2)  # neither fitted nor changed


class Lead(Rule):
    """Answer iff the two largest probabilities differ by more than ``lead``."""

    name = "lead"

    def __init__(self, lead=0.5):
        self.lead = lead

    def _decide(self, proba):
        second, first = np.sort(proba, axis=-1)[..., -2:].T
        return Decision.from_acceptance(proba.argmax(axis=-1), first - second - self.lead)

    def explain(self):
        return f"It answers where the likeliest class leads by {self.lead}."


def test_a_rule_of_ones_own_is_one_class():
    register_rule(Lead)
    try:
        assert "lead" in available_rules()
        assert get_rule("lead", lead=0.3).decide([[0.6, 0.4]]).reject.tolist() == [True]
        assert clone(Lead(0.2)) == Lead(0.2)
        X, y = load_iris(return_X_y=True)
        model = RejectOption(GaussianNB(), rule=Lead(0.9), calibration=None).fit(X, y)
        assert 0 < (model.predict(X) == -1).sum() < len(y)
        register_rule(Lead)  # a notebook's cell may run twice
        with pytest.raises(ValueError, match="a rule named 'lead' is registered already"):
            register_rule(type("Other", (Lead,), {"__module__": "elsewhere"}))
    finally:
        unregister_rule("lead")
    assert "lead" not in available_rules()
    with pytest.raises(ValueError, match=r"unknown rule 'lead'.*Available: chow"):
        get_rule("lead")
    assert Rule.explain(Lead(0.25)) == "It decides by the rule Lead(lead=0.25)."


def test_single_precision_decides_as_where_the_threshold_was_fitted():
    proba = np.array([[0.8, 0.2]], dtype=np.float32)  # just above 0.8 in double precision
    for rule in (Threshold(0.8), Chow(0.2)):
        assert rule.decide(proba).reject == rule.decide(np.float64(proba)).reject
