"""Displays draw the numbers of their curves, for estimators with and without a reject option."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur.metrics import (
    CostCurve,
    CostCurveDisplay,
    RejectConfusionMatrixDisplay,
    RiskCoverage,
    RiskCoverageDisplay,
    confusion_matrix,
)
from demur.rules import Chow

mpl.use("agg")
NAMES = np.array(["ant", "bee", "cat"])


class Rejecting(ClassifierMixin, BaseEstimator):
    """Logistic regression with Chow's rule, as demur's estimators behave."""

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X, y)
        self.classes_, self.reject_label_ = self.model_.classes_, "reject"
        return self

    def predict_proba(self, X):
        return self.model_.predict_proba(X)

    def decide(self, X):
        return Chow(0.3).decide(self.predict_proba(X))

    def predict(self, X):
        return self.decide(X).labels(self.classes_, "reject")


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    from matplotlib import pyplot

    pyplot.close("all")


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, size=300)
    return rng.normal(y[:, None], 0.8, size=(300, 2)), NAMES[y]


@pytest.fixture(scope="module")
def model(data):
    return Rejecting().fit(*data)


def wrong(model, X, y):
    proba = model.predict_proba(X)
    return proba.max(axis=1), NAMES[proba.argmax(axis=1)] != y


def test_a_risk_coverage_curve_from_three_sides(data, model):
    X, y = data
    curve = RiskCoverage.from_confidence(*wrong(model, X, y))
    displays = [
        RiskCoverageDisplay.from_estimator(model, X, y),
        RiskCoverageDisplay.from_estimator(model.model_, X, y, name="Rejecting"),
        RiskCoverageDisplay.from_predictions(y, model.predict_proba(X), classes=NAMES, name="Rejecting"),
        RiskCoverageDisplay(curve, name="Rejecting").plot(),
    ]
    for display in displays:
        assert display.line_.get_xdata() == pytest.approx(curve.coverage)
        assert display.line_.get_ydata() == pytest.approx(curve.risk)
        assert display.line_.get_label() == f"Rejecting (AURC = {curve.aurc:#.3g})"
        assert display.ax_.get_legend() is not None
    assert len({id(display.figure_) for display in displays}) == 4


def test_given_axes_and_style(data, model):
    X, y = data
    first = RiskCoverageDisplay.from_estimator(model, X, y)
    second = RiskCoverageDisplay(first.curve).plot(first.ax_, color="red")
    assert second.figure_ is first.figure_
    assert second.line_.get_color() == "red"
    assert second.line_.get_label() == f"AURC = {first.curve.aurc:#.3g}"
    assert second.line_.get_ydata() == pytest.approx(first.curve.risk)


@pytest.mark.parametrize("first_is_higher", [True, False])
def test_two_curves_on_the_same_axes_are_both_in_view(first_is_higher):
    low, high = ([0.99, 0.98, 0.97], [0, 0, 1]), ([0.6, 0.55, 0.51], [1, 1, 1])
    order = (high, low) if first_is_higher else (low, high)
    for display, make in ((RiskCoverageDisplay, RiskCoverage), (CostCurveDisplay, CostCurve)):
        first, second = (display(make.from_confidence(*rows)) for rows in order)
        axes = second.plot(first.plot().ax_).ax_
        bottom, top = axes.get_ylim()
        assert bottom == 0
        assert max(line.get_ydata().max() for line in (first.line_, second.line_)) <= top


def test_many_points_are_thinned_but_the_ends_stay():
    curve = RiskCoverage.from_confidence(np.arange(20_000.0), np.arange(20_000) % 7 == 0)
    drawn = RiskCoverageDisplay(curve).plot().line_.get_xdata()
    assert len(drawn) <= 5000
    assert (drawn[0], drawn[-1]) == (curve.coverage[0], 1)


def test_a_cost_curve_from_three_sides(data, model):
    X, y = data
    curve = CostCurve.from_proba(model.predict_proba(X), y, classes=NAMES)
    displays = [
        CostCurveDisplay.from_estimator(model, X, y),
        CostCurveDisplay.from_estimator(model.model_, X, y, name="Rejecting"),
        CostCurveDisplay.from_predictions(y, model.predict_proba(X), classes=NAMES, name="Rejecting"),
        CostCurveDisplay(curve, name="Rejecting").plot(),
    ]
    for display in displays:
        costs = display.line_.get_xdata()
        assert display.line_.get_ydata() == pytest.approx(curve.risk_at(costs))
        assert display.line_.get_label() == f"Rejecting (mean risk = {curve.mean_risk():#.3g})"
        labels = [line.get_label() for line in display.ax_.lines]
        assert labels[1:] == ["Rejecting (answer all)", "reject all"]


def test_a_cost_curve_up_to_another_cost(data, model):
    display = CostCurveDisplay.from_estimator(model, *data, max_cost=0.3)
    assert display.ax_.get_xlim() == (0, 0.3)
    assert display.line_.get_label() == f"Rejecting (mean risk = {display.curve.mean_risk(0, 0.3):#.3g})"


def test_a_confusion_matrix_from_three_sides(data, model):
    X, y = data
    matrix = confusion_matrix(y, model.predict(X), reject_label="reject")
    assert matrix[:, -1].any()
    displays = [
        RejectConfusionMatrixDisplay.from_estimator(model, X, y),
        RejectConfusionMatrixDisplay.from_estimator(make_pipeline(StandardScaler(), Rejecting()).fit(X, y), X, y),
        RejectConfusionMatrixDisplay.from_predictions(y, model.predict(X), reject_label="reject"),
        RejectConfusionMatrixDisplay(matrix, display_labels=NAMES).plot(),
    ]
    for display in displays:
        assert display.confusion_matrix.shape == (3, 4)
        texts = [[int(cell.get_text()) for cell in row] for row in display.text_]
        assert texts == display.confusion_matrix.tolist()
        assert [tick.get_text() for tick in display.ax_.get_xticklabels()] == [*NAMES, "rejected"]
        assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == list(NAMES)
    for display in (displays[0], *displays[2:]):
        assert display.confusion_matrix.tolist() == matrix.tolist()


def test_a_classifier_that_never_rejects_has_an_empty_last_column(data, model):
    display = RejectConfusionMatrixDisplay.from_estimator(model.model_, *data, normalize="true")
    assert not display.confusion_matrix[:, -1].any()
    assert display.confusion_matrix.sum() == pytest.approx(3)
    assert display.text_[0, -1].get_text() == "0.00"


def test_errors(data, model):
    X, y = data
    ridge = RidgeClassifier().fit(X, y)
    with pytest.raises(TypeError, match="RidgeClassifier has neither decide nor predict_proba"):
        RiskCoverageDisplay.from_estimator(ridge, X, y)
    with pytest.raises(TypeError, match="RidgeClassifier has neither decide nor predict_proba"):
        CostCurveDisplay.from_estimator(ridge, X, y)
    with pytest.raises(ValueError, match=r"has shape \(K, K \+ 1\), got \(2, 2\)"):
        RejectConfusionMatrixDisplay(np.eye(2))


@pytest.mark.slow
def test_only_drawing_imports_matplotlib():
    code = (
        "import sys; from demur.metrics import RiskCoverage, RiskCoverageDisplay, RejectConfusionMatrixDisplay; "
        "import demur.metrics; assert 'CostCurveDisplay' in demur.metrics.__all__; "
        "print([m for m in ('matplotlib', 'torch') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'demur\[plot\]'"):
        RejectConfusionMatrixDisplay([[1, 0]]).plot()
