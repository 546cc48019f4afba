"""Classifiers that were fitted elsewhere: wrapped, they answer as they did, and can be saved, judged and served."""

import asyncio
import json
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import demur
from demur import Coverage, RejectClassifier, RejectOption, RiskControl, Threshold
from demur.columns import Schema, TableError
from demur.deploy import create_app
from demur.deploy.answers import Answerer
from demur.deploy.onnx import ExportError, compare_onnx, onnx_model
from demur.errors import InputError, InputTypeError
from demur.tabular import DecideOptions, TableModel, decide_file, evaluate_table, report_html


def rows(n_rows=150, seed=0):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows)
    frame = pd.DataFrame(
        {
            "size": np.where(rng.random(n_rows) < 0.1, np.nan, size),
            "age": rng.integers(0, 9, n_rows),
            "pet": pd.Series(rng.choice(["cat", "dog", "newt"], n_rows), dtype=object),
            "tame": rng.random(n_rows) < 0.5,
            "said": rng.choice(["good fine", "bad awful", "so so"], n_rows),
        }
    )
    frame.loc[5, "pet"] = np.nan
    return frame, np.where(size + (frame["age"] > 4) + (frame["pet"] == "cat") > 0.9, 7, 3)


FRAME, Y = rows()

PREPARED = make_column_transformer(
    (make_pipeline(SimpleImputer(), StandardScaler()), ["size", "age"]),
    (OneHotEncoder(handle_unknown="ignore"), ["pet"]),
    ("passthrough", ["tame"]),
)

OWN = {
    "a pipeline": (make_pipeline(PREPARED, LogisticRegression()), FRAME.drop(columns="said"), "frame"),
    "categories by type": (
        HistGradientBoostingClassifier(max_iter=3, categorical_features="from_dtype"),
        FRAME[["pet", "size"]].astype({"pet": "category"}),
        "frame",
    ),
    "a matrix of numbers": (
        RandomForestClassifier(25, random_state=0, n_jobs=2),
        FRAME[["age", "tame"]].to_numpy(float),
        "numbers",
    ),
    "a matrix of texts": (
        make_pipeline(OneHotEncoder(), LogisticRegression()),
        FRAME[["pet"]].fillna("cat").to_numpy(object),
        "objects",
    ),
    "scores only": (LinearSVC(), FRAME[["age"]], "frame"),
    "one text": (
        make_pipeline(FeatureUnion([("words", TfidfVectorizer())]), SelectKBest(k=3), LogisticRegression()),
        FRAME["said"],
        "texts",
    ),
    "a search": (GridSearchCV(LogisticRegression(), {"C": [0.5, 1.0]}, cv=2), FRAME[["age"]], "frame"),
    "a reject option": (RejectOption(GaussianNB(), cost=0.1, cv=2), FRAME[["age"]], "frame"),
    "networks": (RejectClassifier("ce", epochs=1, random_state=0), FRAME[["age"]], "frame"),
    "no probabilities": (RejectClassifier("mpc+log", cost=0.3, epochs=1, random_state=0), FRAME[["age"]], "frame"),
}  # fmt: skip


def as_frame(X):
    if isinstance(X, pd.Series):
        return X.to_frame()
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])


SLOW = ("scores only", "a search", "networks", "categories by type")


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in OWN]
)
def own(request):
    estimator, X, reads = OWN[request.param]
    estimator.fit(X, Y)
    frame = as_frame(X)
    return estimator, X, frame, TableModel.wrap(estimator, frame.assign(kind=Y), target="kind"), reads


def test_it_answers_as_before(own):
    estimator, X, frame, model, reads = own
    assert (model.reads, model.target, model.label_type) == (reads, "kind", "integer")
    answers = model.answers(frame)
    if hasattr(estimator, "decide"):
        decision = estimator.decide(X)
        assert answers["rejected"].to_pylist() == decision.reject.tolist()
        assert answers["first_choice"].to_pylist() == estimator.classes_[decision.label].tolist()
    else:
        assert answers["first_choice"].to_pylist() == estimator.predict(X).tolist()
    if hasattr(estimator, "predict_proba") and model.has_proba:
        np.testing.assert_allclose(model.predict_proba(frame), estimator.predict_proba(X), rtol=0, atol=1e-6)


def test_a_row_alone_gets_the_answer_that_it_gets_among_others(own):
    *_, frame, model, _ = own
    every = model.answers(frame, proba=model.has_proba)
    for row in (0, 5, 77):
        alone, among = model.answers(frame[row : row + 1], proba=model.has_proba), every.slice(row, 1)
        for name in every.column_names:
            if every[name].type == pa.float64():
                assert alone[name][0].as_py() == pytest.approx(among[name][0].as_py(), abs=1e-6)
            else:
                assert alone[name].equals(among[name])


def test_it_is_saved_evaluated_and_reported(own, tmp_path):
    *_, frame, model, _ = own
    demur.save(model, tmp_path / "model")
    again = demur.load(tmp_path / "model")
    labelled = pa.Table.from_pandas(frame.assign(kind=Y), preserve_index=False)
    judged = evaluate_table(again, labelled)
    assert judged.n_rows == len(Y)
    assert judged.n_unknown == 0
    assert again.answers(frame).equals(model.answers(frame))
    assert "<html" in report_html(judged, title="mine", made={})


def test_the_service_answers_like_the_model():
    model = TableModel.wrap(OWN["a pipeline"][0].fit(FRAME.drop(columns="said"), Y), FRAME, target="kind")
    row = {"size": None, "age": 3, "pet": "unicorn", "tame": True}
    found = json.loads(asyncio.run(Answerer(model).answer({"row": row})))["decisions"][0]
    expected = model.answers(pd.DataFrame([{**row, "size": np.nan}])).to_pylist()[0]
    assert found == expected
    assert "unicorn" not in model.schema.columns[2].categories
    assert create_app(model).openapi()["info"]["title"] == "demur: kind"


@pytest.fixture(scope="module")
def strict():
    """A pipeline that takes neither gaps nor categories that it has not seen."""
    X = FRAME[["age", "pet"]].fillna("cat")
    estimator = make_pipeline(
        make_column_transformer((OneHotEncoder(), ["pet"]), remainder="passthrough"), LogisticRegression()
    )
    return TableModel.wrap(estimator.fit(X, Y), X, target="kind", cost=0.4)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"age": 1, "pet": "unicorn"}, "new.csv: the Pipeline refuses these rows: Found unknown categories"),
        ({"age": None, "pet": "cat"}, "new.csv: the Pipeline refuses these rows: Input X contains NaN"),
    ],
)
def test_what_the_estimator_refuses_is_said_in_its_words(strict, row, words):
    with pytest.raises(TableError, match=words) as refused:
        strict.answers(pa.Table.from_pylist([row]), where="new.csv")
    assert "\n" not in str(refused.value)


def test_a_file_goes_through_it(strict, tmp_path):
    FRAME[["age", "pet"]].fillna("cat").to_csv(tmp_path / "new.csv", index=False)
    total = decide_file(strict, tmp_path / "new.csv", tmp_path / "out.csv", DecideOptions(proba=True))
    written = pd.read_csv(tmp_path / "out.csv")
    assert total.rows == len(FRAME)
    assert total.rejected == written["rejected"].sum()
    np.testing.assert_allclose(written["proba:3"] + written["proba:7"], 1)


def test_columns_that_it_was_not_fitted_on_are_set_aside(strict):
    assert strict.schema.names == ("age", "pet")
    wider = TableModel.wrap(strict.classifier.estimator_, FRAME.assign(kind=Y), target="kind")
    assert wider.schema.names == ("age", "pet")
    assert wider.schema.set_aside["said"] == "the model was not fitted on it"


@pytest.mark.filterwarnings("ignore::demur.estimators.splitting.EqualRowsWarning")  # rows without a size may be equal
def test_calibration_and_a_guarantee_from_new_rows():
    old, new = rows(400, 1), rows(2000, 2)
    sure = make_pipeline(PREPARED, LogisticRegression(C=1e6)).fit(old[0].drop(columns="said"), old[1])
    labelled = new[0].assign(kind=new[1])
    plain = TableModel.wrap(sure, labelled, target="kind")
    calibrated = TableModel.wrap(sure, labelled, target="kind", calibrate=labelled)
    losses = [-np.log(np.take_along_axis(model.predict_proba(new[0]), (new[1] == 7)[:, None] * 1, 1)).mean()
              for model in (calibrated, plain)]  # fmt: skip
    assert losses[0] <= losses[1]
    assert plain.facts["calibrated_on"] == 0
    assert calibrated.facts["calibrated_on"] == 2000
    promised = TableModel.wrap(sure, labelled, target="kind", rule=RiskControl(0.2), calibrate=labelled)
    assert "at most 0.2" in promised.explain()
    covering = TableModel.wrap(sure, labelled, target="kind", rule=Coverage(0.5), calibrate=labelled)
    assert abs(1 - covering.decide(new[0]).reject.mean() - 0.5) < 0.1


FITTED = GaussianNB().fit(FRAME[["age"]], Y)
GAPS = FRAME.assign(**{"age": np.nan, "class": Y})


class Duck:
    """What looks like a fitted classifier and is not scikit-learn's."""

    classes_ = np.array([3, 7])

    def predict_proba(self, X):
        return np.full((len(X), 2), 0.5)


@pytest.mark.parametrize(
    ("estimator", "options", "error", "words"),
    [
        (GaussianNB(), {}, InputTypeError, "is not a fitted classifier"),
        (KMeans(2, n_init=1).fit(FRAME[["age"]]), {}, InputTypeError, "predict_proba or decision_function"),
        ("ce", {}, InputTypeError, "this str is not a fitted classifier"),
        (FITTED, {"rule": Coverage(0.5)}, InputError, "Coverage is fitted on labelled rows"),
        (FITTED, {"cost": 2.0}, InputError, "cost must be in"),
        (RejectOption(FITTED, cv=2).fit(FRAME[["age"]], Y), {"cost": 0.1}, InputError, "leave out cost"),
        (GaussianNB().fit(FRAME[["age"]].rename(columns={"age": "years"}), Y), {}, TableError, "fitted on 'years'"),
        (GaussianNB().fit(FRAME[["age", "tame"]].to_numpy(float), Y), {}, TableError, "matrix of 2 columns"),
        (FITTED, {"calibrate": FRAME}, TableError, "there is no column 'class' to predict"),
        (FITTED, {"calibrate": FRAME.assign(**{"class": "x"})}, TableError, "which the model does not know"),
        (
            FITTED,
            {"calibrate": GAPS},
            TableError,
            "calibrate on: the GaussianNB refuses these rows: Input X contains NaN",
        ),
        (Duck(), {}, InputTypeError, "derived from scikit-learn's BaseEstimator"),
    ],
)
def test_what_cannot_be_wrapped_is_said_in_one_sentence(estimator, options, error, words):
    with pytest.raises(error, match=words):
        TableModel.wrap(estimator, FRAME[["age", "size", "pet"]], **options)


@pytest.mark.parametrize(
    ("labels", "kind", "written"),
    [
        (np.array(["no", "reject"]), "text", ["no", "reject"]),
        (np.array([False, True]), "boolean", [False, True]),
        (np.array([-1, 4]), "integer", [-1, 4]),
        (np.array([0.0, 2.0]), "integer", [0, 2]),
    ],
)
def test_labels_keep_their_type(labels, kind, written):
    estimator = GaussianNB().fit(FRAME[["age"]], labels[(Y == 7).astype(int)])
    model = TableModel.wrap(estimator, FRAME[["age"]], cost=0.45)
    assert model.label_type == kind
    assert set(model.answers(FRAME)["first_choice"].to_pylist()) <= set(written)
    judged = evaluate_table(model, pa.table({"age": FRAME["age"], "class": labels[(Y == 7).astype(int)]}))
    assert judged.n_unknown == 0


def test_numbers_go_to_onnx_and_texts_do_not(strict):
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(FRAME[["age"]], Y)
    model = TableModel.wrap(scaled, FRAME[["age"]])
    assert compare_onnx(model, onnx_model(model), FRAME[["age"]]).decisions_agree
    with pytest.raises(ExportError, match="column 'pet' is passed unchanged"):
        onnx_model(strict)


def test_a_schema_of_chosen_columns_takes_them_all():
    frame = pd.DataFrame({"id": range(30), "same": 1.0, "y": 0})
    assert Schema.from_frame(frame, target="y").names == ("id", "same")
    assert Schema.from_frame(frame, target="y", drop=["same"]).names == ("id",)


def test_a_rule_decides_for_a_wrapped_classifier():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TableModel.wrap(RidgeClassifier().fit(FRAME[["age"]], Y), FRAME[["age"]], rule=Threshold(0.6))
    assert not model.cost_adjustable
    decision, proba = model.decide_and_score(FRAME)
    assert (decision.reject == (proba.max(axis=1) <= 0.6)).all()
