"""scikit-learn models, pipelines and calibrations under a RejectOption."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.base
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from demur import CostMatrix, Coverage, RejectClassifier, RejectOption, RiskControl, Threshold
from demur.calibration import TemperatureScaling
from demur.deploy import ModelFileError, ModelVersionWarning, load, save
from demur.deploy.model_folder import from_archive, to_archive
from demur.estimators import AutoClassifier

X, Y = load_iris(return_X_y=True)
TABLE = pd.DataFrame(
    {"long": X[:, 0], "wide": np.where(X[:, 1] > 4, np.nan, X[:, 1]), "kind": np.array(list("ab"))[Y % 2]}
)

ESTIMATORS = {
    "histogram boosting": HistGradientBoostingClassifier(max_iter=3),
    "extra trees": ExtraTreesClassifier(4, random_state=0),
    "random forest": RandomForestClassifier(4, random_state=0),
    "logistic": LogisticRegression(max_iter=1000),
    "svc": SVC(),
    "neighbours": KNeighborsClassifier(),
    "neighbours, ball tree": KNeighborsClassifier(algorithm="ball_tree", metric="manhattan"),
    "bayes": GaussianNB(),
    "perceptron": MLPClassifier((3,), solver="lbfgs", max_iter=3000, random_state=0),
    "perceptron, adam": MLPClassifier((30,), learning_rate_init=0.1, max_iter=400, tol=1e-2, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "pipeline": make_pipeline(StandardScaler(), SimpleImputer(), LogisticRegression()),
    "calibrated, sigmoid": CalibratedClassifierCV(GaussianNB(), cv=2),
    "calibrated, isotonic": CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2),
}
if "temperature" in next(iter(CalibratedClassifierCV._parameter_constraints["method"])).options:  # since 1.8
    ESTIMATORS["calibrated, temperature"] = CalibratedClassifierCV(GaussianNB(), method="temperature", cv=2)
CALIBRATIONS = {
    "none": None,
    "temperature": "temperature",
    "isotonic": "isotonic",
    "sigmoid": "sigmoid",
    "object": TemperatureScaling(biases=True),
}
RULES = {
    "chow": None,
    "threshold": Threshold(0.9),
    "matrix": CostMatrix(np.c_[1 - np.eye(3), np.full(3, 0.2)]),
    "coverage": Coverage(0.7),
    "risk": RiskControl(0.3, delta=0.2),
}


def assert_survives(model, rows, folder):
    save(model, folder / "one")
    loaded = load(folder / "one")
    for field in ("label", "reject", "acceptance", "confidence"):
        np.testing.assert_array_equal(getattr(loaded.decide(rows), field), getattr(model.decide(rows), field))
    np.testing.assert_array_equal(loaded.predict_proba(rows), model.predict_proba(rows))
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.reject_label_ == model.reject_label_
    assert re.sub("0x[0-9a-f]+", "", repr(loaded)) == re.sub("0x[0-9a-f]+", "", repr(model))
    return loaded


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator(name, tmp_path):
    names = np.array(["x", "y", "z"]) if len(name) % 2 else np.array([4, 6, 9])
    model = RejectOption(ESTIMATORS[name], calibration="temperature", cv=2).fit(X, names[Y])
    assert_survives(model, X, tmp_path)


@pytest.mark.parametrize(("calibration", "rule"), list(zip(CALIBRATIONS, RULES, strict=True)))
def test_every_calibration_and_every_rule(calibration, rule, tmp_path):
    model = RejectOption(GaussianNB(), calibration=CALIBRATIONS[calibration], rule=RULES[rule], cv=StratifiedKFold(3))
    assert_survives(model.fit(X, Y), X, tmp_path)


def test_a_table_with_missing_numbers_and_categories(tmp_path):
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["long", "wide"]),
            ("one-hot", OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_include=object)),
            ("codes", OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), ["kind"]),
            ("log", FunctionTransformer(np.log1p), slice(0, 1)),
        ],
        remainder="drop",
    )
    table = TABLE.astype({"kind": object})
    model = RejectOption(make_pipeline(columns, LogisticRegression()), cv=2).fit(table, Y)
    loaded = assert_survives(model, table, tmp_path)
    np.testing.assert_array_equal(
        loaded.set_params(cost=0.01).fit(table, Y).predict(table),
        model.set_params(cost=0.01).fit(table, Y).predict(table),
    )


@pytest.mark.slow
def test_an_automatic_model_of_a_table(tmp_path):
    names = ("logistic regression", "gradient boosting", "networks")
    table = TABLE[::3]
    blend = AutoClassifier(names, time_budget=None, cv=2, n_jobs=1, random_state=0).fit(table, Y[::3])
    model = RejectOption(FrozenEstimator(blend), cost=0.3).fit(table, Y[::3])
    loaded = assert_survives(model, table, tmp_path)
    assert loaded.estimator.estimator.tried_ == blend.tried_
    assert loaded.estimator.estimator.encoding_.schema == blend.encoding_.schema


def test_boosting_on_a_category_column(tmp_path):
    table = TABLE.astype({"kind": "category"})
    booster = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5, categorical_features="from_dtype")
    assert_survives(RejectOption(booster, calibration=None).fit(table, Y), table, tmp_path)


def test_a_frozen_estimator_is_one_object_as_before(tmp_path):
    frozen = FrozenEstimator(GaussianNB().fit(X, Y))
    loaded = assert_survives(RejectOption(frozen).fit(X, Y), X, tmp_path)
    assert loaded.estimator_ is loaded.estimator


def test_a_pipeline_may_end_in_a_reject_classifier(tmp_path):
    inner = make_pipeline(StandardScaler(), RejectClassifier(epochs=2, hidden_units=4, random_state=0))
    model = RejectOption(FrozenEstimator(inner.fit(X, Y)), cost=0.3).fit(X, Y)
    assert_survives(model, X, tmp_path)


def test_metadata_requests_are_refused(tmp_path):
    with sklearn.config_context(enable_metadata_routing=True):
        model = RejectOption(GaussianNB().set_fit_request(sample_weight=True))
    with pytest.raises(ModelFileError, match=r"model\.estimator\..*(contains itself; leave out set_fit_|MetadataReq)"):
        save(model, tmp_path / "model")


def test_another_version_of_scikit_learn_gives_one_warning_of_ours(tmp_path, monkeypatch):
    model = RejectOption(GaussianNB(), calibration=None).fit(X, Y)
    for module in (sklearn, sklearn.base):
        monkeypatch.setattr(module, "__version__", "1.2.9")
    save(model, tmp_path / "old")
    monkeypatch.undo()
    with pytest.warns(ModelVersionWarning, match=r"scikit-learn 1\.2\.9") as caught:
        loaded = load(tmp_path / "old")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_another_patch_of_scikit_learn_gives_none(tmp_path, monkeypatch):
    patch = ".".join([*sklearn.__version__.split(".")[:2], "99"])
    for module in (sklearn, sklearn.base):
        monkeypatch.setattr(module, "__version__", patch)
    save(RejectOption(GaussianNB(), calibration=None).fit(X, Y), tmp_path / "old")
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(tmp_path / "old")


def test_files_are_compressed():
    forest = ExtraTreesClassifier(20, random_state=0).fit(X, Y)
    data = to_archive(forest)
    assert len(data) < len(skops.io.dumps(forest)) / 5
    np.testing.assert_array_equal(from_archive(data).predict_proba(X), forest.predict_proba(X))
