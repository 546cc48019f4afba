"""Calibrators, label shift and rules."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from demur import Chow, CostMatrix, Coverage, RejectOption, RiskControl, Threshold
from demur.calibration import OneVsRestCalibration
from demur.deploy.onnx import ExportError, compare_onnx, onnx_model
from demur.rules import Rule

from .running import assert_agrees, mixed_rows, run

X, Y = load_wine(return_X_y=True)
ROWS = mixed_rows(X, 500)
RULES = [
    Threshold(0.7),
    Threshold(0.0),
    CostMatrix([[0, 1, 2, 0.3], [5, 0, 1, 0.3], [1, 1, 0, 0.2]]),
    Coverage(0.8),
    Coverage(1.0),
    RiskControl(0.3),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("calibration", [None, "temperature"])
def test_rules_agree_and_take_no_cost(rule, calibration):
    forest = RandomForestClassifier(15, random_state=0)
    model = RejectOption(forest, rule=rule, calibration=calibration, cv=3).fit(X, Y)
    assert_agrees(model, ROWS)
    assert "cost" not in [value.name for value in onnx_model(model).graph.input]


@pytest.mark.parametrize("calibration", ["isotonic", "sigmoid"])
@pytest.mark.parametrize("estimator", [GaussianNB(), DecisionTreeClassifier(max_depth=2)])
def test_calibration_curves_agree(calibration, estimator):
    """A shallow tree and isotonic steps give many classes of exactly equal probability."""
    model = RejectOption(estimator, calibration=calibration, cv=3).fit(X, Y)
    assert_agrees(model, ROWS, costs=(0.05, 0.45))


def test_a_class_without_calibration_rows():
    """Class 2 has one row, which no fold can hold out: its curve is the constant 0."""
    rows = np.r_[0:120, 140:141]
    model = RejectOption(GaussianNB(), calibration="isotonic", cv=3).fit(X[rows], Y[rows])
    assert 0.0 in model.calibrator_.models_
    assert_agrees(model, ROWS)


def test_a_row_that_calibration_leaves_without_any_class_stays_as_it_was():
    curves = OneVsRestCalibration("isotonic").fit([[0.1, 0.9], [0.9, 0.1]] * 5, [1, 0] * 5)
    curves.models_[0].y_thresholds_[:] = curves.models_[1].y_thresholds_[:] = 0.0
    model = RejectOption(GaussianNB(), calibration=None).fit(X[:120], Y[:120])
    model.calibrator_ = curves
    for one in curves.models_:
        one._build_f(one.X_thresholds_, one.y_thresholds_)
    np.testing.assert_array_equal(model.predict_proba(X), model.estimator_.predict_proba(X))
    assert_agrees(model, X)


def test_the_correction_of_label_shift():
    model = RejectOption(GaussianNB(), cv=3).fit(X, Y).adapt(np.r_[X[:100], X[-10:]])
    assert model.label_shift_.distance_ > 0.1
    assert_agrees(model, ROWS, costs=(0.05,))


def test_chows_rule_with_its_own_cost_takes_another():
    model = RejectOption(GaussianNB(), rule=Chow(0.1), calibration=None).fit(X, Y)
    plain = RejectOption(GaussianNB(), cost=0.1, calibration=None).fit(X, Y)
    assert_agrees(model, ROWS)
    found = run(model, ROWS, cost=np.array(0.01))
    np.testing.assert_array_equal(found["reject"], plain.decide(ROWS, 0.01).reject)


def test_the_cost_is_read_when_exporting():
    model = RejectOption(GaussianNB(), calibration=None).fit(X, Y).set_params(cost=0.03)
    assert_agrees(model, ROWS)
    assert not compare_onnx(model, onnx_model(model.set_params(cost=0.4)), ROWS, 0.03).n_different


class Never(Rule):
    def _decide(self, proba):
        raise AssertionError


class Doubled:
    def fit(self, proba, y):
        return self

    def transform(self, proba):
        return proba


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rule": Never(), "calibration": None}, "the rule Never is not one of demur's own; use Chow"),
        ({"rule": Threshold(np.full(len(X), 0.5)), "calibration": None}, "one per row; give one for all rows"),
        ({"rule": Chow(np.full(len(X), 0.2)), "calibration": None}, "one per row; give one for all rows"),
        ({"rule": CostMatrix(np.ones((len(X), 3, 4))), "calibration": None}, "one per row; give one for all rows"),
        ({"calibration": Doubled()}, "calibration by Doubled is not supported; use"),
    ],
)
def test_what_has_no_equal_is_refused_with_a_reason(options, reason):
    model = RejectOption(GaussianNB(), cv=3, **options).fit(X, Y)
    with pytest.raises(ExportError, match=reason):
        onnx_model(model)
