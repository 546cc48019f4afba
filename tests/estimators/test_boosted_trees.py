"""Boosted trees of other libraries: as candidates of "auto", as wrapped models, and in model folders.

These tests need the libraries, which are no dependency of the tests: ``pip install catboost lightgbm xgboost``.
"""

import pickle
from copy import deepcopy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import demur
from demur import AutoClassifier, RejectOption
from demur.deploy import ModelFileError
from demur.errors import MissingExtraError
from demur.estimators import boosted_trees, candidates
from demur.estimators.boosted_trees import BoostedTrees, is_installed

SIZE = {"catboost": "iterations", "lightgbm": "n_estimators", "xgboost": "n_estimators"}
CLASSIFIER = {"catboost": "CatBoostClassifier", "lightgbm": "LGBMClassifier", "xgboost": "XGBClassifier"}
QUIET = {"catboost": {"verbose": False, "allow_writing_files": False}, "lightgbm": {"verbose": -1, "n_jobs": 1}}


def needs(library):
    reason = f"{library} is not installed (pip install {library})"
    return pytest.param(library, marks=pytest.mark.skipif(not is_installed(library), reason=reason))


each_library = pytest.mark.parametrize("library", [needs(name) for name in SIZE])


@pytest.fixture(scope="module", params=["two classes", "three classes"])
def rows(request):
    load = load_breast_cancer if request.param == "two classes" else load_iris
    X, y = load(return_X_y=True)
    X, y = X[::2], y[::2]
    X[::7, 1] = np.nan
    return X, np.array(["no", "yes", "perhaps"])[y]


def native(library, size=4):
    cls = getattr(pytest.importorskip(library), CLASSIFIER[library])
    return cls(**{SIZE[library]: size}, **QUIET.get(library, {}))


@each_library
def test_the_stored_model_predicts_what_the_library_does(library, rows):
    X, labels = rows
    classes, y = np.unique(labels, return_inverse=True)
    own = native(library).fit(X, y)
    stored = BoostedTrees.of(own, library)
    np.testing.assert_allclose(stored.predict_proba(X), own.predict_proba(X), rtol=1e-6, atol=1e-9)
    fitted = BoostedTrees(library, {SIZE[library]: 4}).fit(X, labels)
    assert fitted.classes_.tolist() == classes.tolist()
    assert (fitted.predict(X) == labels).mean() > 0.9
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    assert not hasattr(pickle.loads(pickle.dumps(fitted)), "_booster")


@each_library
def test_a_deadline_stops_after_a_tree(library, rows):
    trees = BoostedTrees(library, {SIZE[library]: 200})
    assert trees.fit_within(*rows, None, lambda: 0.0) <= 0.02
    assert trees.fit_within(*rows, None, lambda: np.inf, at_most=0.05) == 0.05
    assert np.isfinite(trees.predict_proba(rows[0])).all()


@pytest.mark.parametrize("name", ["n_estimators", "num_iterations", "num_boost_round"])
def test_all_trees_are_trained_whatever_their_number_is_called(name, rows):
    lightgbm = pytest.importorskip("lightgbm")
    trees = BoostedTrees("lightgbm", {name: 120, "verbose": -1, "max_depth": 1}).fit(*rows)
    assert lightgbm.Booster(model_str=trees.content_.tobytes().decode()).current_iteration() == 120


@each_library
def test_a_wrapped_model_is_saved_and_decides_the_same(library, rows, tmp_path):
    X, labels = rows
    model = RejectOption(make_pipeline(StandardScaler(), native(library)), cost=0.1, cv=2).fit(X, labels)
    demur.save(model, tmp_path / "model")
    again = demur.load(tmp_path / "model")
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-6, atol=1e-9)
    assert not isinstance(model.estimator.steps[-1][1], BoostedTrees)  # the model itself stays as it was
    parameters = again.estimator.steps[-1][1].parameters
    assert parameters[SIZE[library]] == 4
    demur.save(again, tmp_path / "second")
    np.testing.assert_array_equal(demur.load(tmp_path / "second").predict_proba(X), again.predict_proba(X))


COPIES = {
    "itself": lambda model: model,
    "a deep copy": deepcopy,
    "a clone": clone,
    "a pickle": lambda model: pickle.loads(pickle.dumps(model)),
}


@each_library
@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_a_frozen_model_can_be_saved(library, copied, tmp_path):
    X, y = load_iris(return_X_y=True)
    frozen = FrozenEstimator(native(library).fit(X, y))
    models = {
        "around": RejectOption(COPIES[copied](frozen), calibration=None).fit(X, y),
        "inside": COPIES[copied](RejectOption(frozen, calibration=None)).fit(X, y),
    }
    for name, model in models.items():
        demur.save({"a": [model, model]}, tmp_path / name)
        one, other = demur.load(tmp_path / name)["a"]
        assert one is other
        np.testing.assert_allclose(one.predict_proba(X), frozen.predict_proba(X), atol=1e-6)


@each_library
def test_trees_of_every_shape_are_saved(library, tmp_path):
    X, y = load_iris(return_X_y=True)
    odd = {
        "lightgbm": {"linear_tree": True}, "xgboost": {"booster": "gblinear"}, "catboost": {"grow_policy": "Depthwise"}
    }[library]  # fmt: skip
    model = native(library).set_params(**odd).fit(X, y)
    demur.save(model, tmp_path / "model")
    np.testing.assert_allclose(demur.load(tmp_path / "model").predict_proba(X), model.predict_proba(X), atol=1e-6)


def test_a_model_with_a_function_is_not_saved(tmp_path):
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(objective=lambda y, score: (score, score), n_estimators=1)
    with pytest.raises(ModelFileError, match=r"cannot save model: its parameter objective is a function"):
        demur.save(model, tmp_path / "model")


@each_library
def test_onnx_export_refuses_in_words(library):
    pytest.importorskip("onnx")
    from demur.deploy.onnx import ExportError, onnx_model

    X, y = load_iris(return_X_y=True)
    for model in (native(library), BoostedTrees(library, {SIZE[library]: 2})):
        with pytest.raises(ExportError, match="has no ONNX form in demur; fit another model"):
            onnx_model(RejectOption(model, calibration=None).fit(X, y))


@pytest.mark.parametrize("name", [needs("lightgbm"), needs("catboost")])
def test_a_candidate_of_auto_is_blended_saved_and_keeps_its_time(name, monkeypatch, tmp_path):
    monkeypatch.setattr(candidates, "_ITERATIONS", 8)
    X, y = load_iris(return_X_y=True)
    codes = np.c_[X[:, :3], np.digitize(X[:, 3], [0.8, 1.7])]
    model = AutoClassifier((name, "lr"), time_budget=None, cv=2, categorical_features=[3], random_state=0)
    model.fit(codes, y)
    assert {one.name for one in model.tried_ if one.weight} == {name, "logistic regression"}
    demur.save(RejectOption(model, cv=2), tmp_path / "unfitted")
    option = RejectOption(model, calibration=None).fit(codes, y)
    demur.save(option, tmp_path / "model")
    np.testing.assert_array_equal(demur.load(tmp_path / "model").predict_proba(codes), option.predict_proba(codes))
    short = AutoClassifier((name,), time_budget=1e-3, random_state=0).fit(codes, y)
    assert short.tried_[0].trained < 0.2
    assert "cut short" in short.tried_[0].outcome


def test_without_the_library_a_candidate_is_left_out_and_a_model_says_what_to_install(monkeypatch):
    for module in (boosted_trees, candidates):
        monkeypatch.setattr(module, "is_installed", lambda library: False)
    X, y = load_iris(return_X_y=True)
    with pytest.raises(MissingExtraError, match=r"pip install demur\[boost\]"):
        AutoClassifier(("catboost",)).fit(X, y)
    with pytest.raises(MissingExtraError, match="lightgbm: pip install"):
        BoostedTrees("lightgbm").fit(X, y)
    assert not {"catboost", "lightgbm"} & {one.name for one in AutoClassifier()._wanted(False, 1)}
