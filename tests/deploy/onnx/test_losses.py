"""Every registered loss exports, and its graph decides as the estimator on every row."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import load_breast_cancer, load_wine

from demur import AutoClassifier, RejectClassifier, RejectOption
from demur.deploy import load, save
from demur.deploy.onnx import ExportError, compare_onnx, onnx_model
from demur.losses import CrossEntropy, OneVsAllHinge, available, get

from .running import TOLERANCE, assert_agrees, mixed_rows

_CANCER = load_breast_cancer(return_X_y=True)
DATA = {2: (_CANCER[0][::3, :10], _CANCER[1][::3]), 3: load_wine(return_X_y=True)}
HUGE = (1e6, -1e6, 1e12, -1e12, 1e20, -1e20)


def with_huge_values(X, seed=0):
    """Return rows in which one feature is far out."""
    rng = np.random.default_rng(seed)
    rows = X[rng.integers(len(X), size=300)].copy()
    rows[np.arange(300), rng.integers(X.shape[1], size=300)] = rng.choice(HUGE, 300)
    return rows


LATER = pytest.mark.slow
ONE_OF_EACH_KIND = ("apc+log", "bep", "brier", "ce", "cs+hin", "focal", "gamblers", "mpc+exp", "ms", "ova+log", "vn")
QUICK_AND_SLOW = [pytest.param(name, 3, marks=() if name in ONE_OF_EACH_KIND else LATER) for name in available(3)]
QUICK_AND_SLOW += [pytest.param(name, 2, marks=() if name in ("margin+log", "mh") else LATER) for name in available(2)]


@pytest.mark.parametrize(("name", "n_classes"), QUICK_AND_SLOW)
def test_every_loss_agrees_on_every_row(name, n_classes):
    loss = get(name)
    X, y = DATA[n_classes]
    options = {"epochs": 10, "batch_size": 32, "learning_rate": 0.01, "hidden_units": 8, "weight_decay": 1e-4}
    model = RejectClassifier(name, cost=0.1, random_state=0, **options).fit(X, y)
    costs = (0.0, 0.01, 0.3, 0.49) if loss.has_link else ()
    rows = mixed_rows(X, 300)
    proto = onnx_model(model)
    assert_agrees(model, rows, TOLERANCE if loss.has_link else 1e-4, costs, proto)
    assert compare_onnx(model, proto, with_huge_values(X)).n_different == 0
    if loss.has_link:  # the test is about something
        assert 0 < model.decide(rows).reject.mean() < 1


@pytest.mark.parametrize("name", ["ce", "ova+log", *(pytest.param(one, marks=LATER) for one in ("ova+exp", "ova+sq"))])
def test_ensembles_with_temperature_agree(name):
    X, y = DATA[3]
    model = RejectClassifier(
        name, epochs=20, hidden_units=(8, 6), n_members=3, calibration="temperature", batch_size=32, random_state=0
    ).fit(X, y)
    assert_agrees(model, mixed_rows(X, 300), TOLERANCE, costs=(0.0, 0.05, 0.4))


def test_saturated_probabilities_are_told_apart_by_the_scores():
    X, y = DATA[3]
    model = RejectClassifier("ova+log", epochs=30, hidden_units=8, batch_size=32, novelty=None, random_state=0).fit(
        X, y
    )
    far = X.mean(axis=0) + 1e4 * (X - X.mean(axis=0))
    assert np.sum(model.decide(far).confidence == 1) > 50
    assert_agrees(model, far, TOLERANCE)


def test_without_standardisation_and_with_single_precision_rows():
    X, y = DATA[3]
    model = RejectClassifier(epochs=5, standardize=False, random_state=0).fit(X.astype(np.float32), y)
    assert_agrees(model, X.astype(np.float32), TOLERANCE)


@given(arrays(np.float64, (1, 2), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_any_finite_row(row):
    with np.errstate(all="ignore"):
        assert compare_onnx(_SMALL, _SMALL_GRAPH, row).n_different == 0


_RNG = np.random.default_rng(0)
_SMALL = RejectClassifier(epochs=20, hidden_units=4, cost=0.3, random_state=0).fit(
    _RNG.normal(size=(200, 2)), _RNG.integers(3, size=200)
)
_SMALL_GRAPH = onnx_model(_SMALL)


@pytest.mark.slow
def test_networks_inside_a_reject_option():
    X, y = DATA[3]
    model = RejectOption(RejectClassifier(epochs=20, batch_size=32, random_state=0), cv=2).fit(X, y)
    assert_agrees(model, mixed_rows(X, 200), TOLERANCE)


def test_a_tensor_as_tau():
    X, y = DATA[3]
    model = RejectClassifier(OneVsAllHinge(tau=torch.tensor(0.25)), epochs=10, batch_size=32, random_state=0).fit(X, y)
    assert_agrees(model, X, 1e-4)


@dataclass(frozen=True)
class Halved(CrossEntropy):
    """A loss of the user's own, whose link differs from that of cross-entropy."""

    def inverse_link(self, scores):
        return torch.softmax(scores / 2, -1)


def test_a_loss_of_ones_own_agrees():
    X, y = DATA[3]
    assert_agrees(RejectClassifier(Halved(), epochs=5, random_state=0).fit(X, y), X)


def test_a_module_of_ones_own_is_refused():
    X, y = DATA[3]
    model = RejectClassifier(module=torch.nn.Linear, epochs=1).fit(X, y)
    with pytest.raises(ExportError, match=r"torch cannot translate the networks .*; use the built-in ones"):
        onnx_model(model)


def test_a_loss_without_link_inside_a_reject_option_is_refused():
    X, y = DATA[3]
    model = RejectOption(RejectClassifier("ova+hin", epochs=2), calibration=None).fit(X, y)
    with pytest.raises(ExportError, match=r"ova\+hin has no probabilities.*export the RejectClassifier itself"):
        onnx_model(model)


@pytest.mark.parametrize("name", ["ce", "ova+log"])
def test_the_default_networks_agree_with_missing_values_too(name):
    X, y = DATA[3]
    gaps = X.copy()
    gaps[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    gaps[:, 3] = 1.0  # constant
    model = RejectClassifier(name, epochs=6, random_state=0).fit(gaps, y)
    assert len(model.networks_.networks) == 5
    proto = onnx_model(model)
    assert_agrees(model, gaps, TOLERANCE, (0.0, 0.05, 0.4), proto)
    assert_agrees(model, mixed_rows(X, 100), TOLERANCE, proto=proto)


@pytest.mark.slow
def test_a_blend_of_networks_agrees_and_survives_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("demur.estimators.candidates._EPOCHS", 4)
    X, y = DATA[3]
    codes = np.c_[X, np.arange(len(X)) % 4]
    auto = AutoClassifier(("nn", "pnn", "lr"), time_budget=None, cv=3, categorical_features=[13], random_state=0)
    model = RejectOption(auto, cost=0.1).fit(codes, y)
    assert {"numbers"} <= set(model.estimator_.views_)
    assert_agrees(model, codes, TOLERANCE)
    save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict_proba(codes), model.predict_proba(codes))
