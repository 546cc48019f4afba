"""A loaded model is the saved one: decisions, probabilities, parameters, and every key of a dictionary."""

import importlib
import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from demur import Chow, CostMatrix, Coverage, RejectClassifier, RejectOption, RiskControl, Threshold
from demur.calibration import TemperatureScaling
from demur.deploy import ModelFileError, load, save
from demur.deploy.model_folder import _PARTS, from_archive, registered_types, to_archive
from demur.label_shift import LabelShift
from demur.losses import FunctionLoss, Loss, available, get
from demur.margins import MarginFunction
from demur.rules import Rule

X, Y = load_iris(return_X_y=True)
X, Y = X[::2], Y[::2]


def round_trip(model, folder):
    save(model, folder / "one")
    return load(folder / "one")


def assert_same_decisions(one, other, rows):
    for field in ("label", "reject", "acceptance", "confidence"):
        np.testing.assert_array_equal(getattr(one.decide(rows), field), getattr(other.decide(rows), field))
    answers, again = one.predict(rows), other.predict(rows)
    assert answers.dtype == again.dtype
    np.testing.assert_array_equal(answers, again)
    if hasattr(one, "predict_proba"):
        np.testing.assert_array_equal(one.predict_proba(rows), other.predict_proba(rows))
    assert one.reject_label_ == other.reject_label_
    assert type(one.reject_label_) is type(other.reject_label_)
    assert one.classes_.dtype == other.classes_.dtype
    np.testing.assert_array_equal(one.classes_, other.classes_)


@pytest.mark.parametrize("name", available())
def test_every_loss(name, tmp_path):
    rows = slice(None) if name in available(n_classes=3) else Y < 2
    model = RejectClassifier(name, epochs=1, n_members=1, hidden_units=(4,), random_state=0).fit(X[rows], Y[rows])
    loaded = round_trip(model, tmp_path)
    assert_same_decisions(model, loaded, X)
    assert loaded.get_params() == model.get_params()
    assert loaded.candidates_ == model.candidates_
    assert loaded.loss_ is loaded.best_candidate_.loss  # one object stays one object


CLASS_NAMES = {
    "text": np.array(["setosa", "Färöer", "virginica"]),
    "objects": np.array(["a", "bb", "ccc"], dtype=object),
    "integers": np.array([3, 5, 7], dtype=np.int32),
    "booleans": np.array([False, True, True]),
    "floats": np.array([0.0, 1.0, 2.0]),
}


@pytest.mark.parametrize("kind", CLASS_NAMES)
def test_every_kind_of_class(kind, tmp_path):
    model = RejectClassifier(epochs=2, hidden_units=4, cost=0.4, random_state=0).fit(X, CLASS_NAMES[kind][Y])
    assert_same_decisions(model, round_trip(model, tmp_path), X)


def test_ensemble_with_temperature_and_feature_names(tmp_path):
    frame = load_iris(as_frame=True).data.iloc[::2]
    model = RejectClassifier(
        "ova+log", epochs=2, n_members=3, calibration="temperature", weight_decay=[1e-4], reject_label=np.int64(-9),
        random_state=np.random.RandomState(0), hidden_units=np.array([4, 3]),
    ).fit(frame, Y)  # fmt: skip
    loaded = round_trip(model, tmp_path)
    assert_same_decisions(model, loaded, frame)
    assert loaded.feature_names_in_.tolist() == list(frame.columns)
    assert loaded.networks_.temperature == model.networks_.temperature
    assert loaded.random_state.randint(1000) == model.random_state.randint(1000)


def test_a_loaded_model_takes_another_cost_and_can_be_refitted(tmp_path):
    model = RejectClassifier(epochs=3, hidden_units=4, random_state=0).fit(X, Y)
    loaded = round_trip(model, tmp_path)
    np.testing.assert_array_equal(
        loaded.set_params(cost=0.05).decide(X).reject, model.set_params(cost=0.05).decide(X).reject
    )
    assert_same_decisions(clone(loaded).fit(X, Y), clone(model).fit(X, Y), X)


def test_an_unfitted_model_and_a_loss_object(tmp_path):
    loss = get("apc+exp", beta=1.5)
    loaded = round_trip(RejectClassifier(loss, cost=0.1), tmp_path)
    assert loaded.get_params() == RejectClassifier(loss, cost=0.1).get_params()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_model_trained_on_a_gpu_is_loaded_on_the_cpu(tmp_path):
    model = RejectClassifier(epochs=2, device="cuda", random_state=0).fit(X, Y)
    loaded = round_trip(model, tmp_path)
    assert loaded.networks_.networks.vectors.device.type == "cpu"
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), atol=1e-5)


PROBA = np.repeat([[0.99, 0.01], [0.6, 0.4]], [200, 100], axis=0)
LABELS = np.r_[np.zeros(250, dtype=int), np.ones(50, dtype=int)]


@pytest.mark.parametrize(
    "value",
    [
        Chow(0.2),
        Chow(np.array([0.1, 0.2])),
        Threshold(0.7),
        CostMatrix(np.asfortranarray([[0.0, 1.0, 0.3], [10.0, 0.0, 0.3]])),
        Coverage(0.5),
        Coverage(0.5).fit(PROBA),
        RiskControl(0.05).fit(PROBA, LABELS),
        RiskControl(0.4).fit_confidence(np.linspace(0.5, 1, 99), np.zeros(99, dtype=bool)),
        TemperatureScaling(1.25),
        LabelShift([0.5, 0.5]).fit([[0.9, 0.1]] * 30 + [[0.1, 0.9]] * 70),
        Chow(0.2).decide(PROBA),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rules_and_calibrations_alone(value, tmp_path):
    loaded = round_trip(value, tmp_path)
    assert repr(loaded) == repr(value)
    if hasattr(value, "explain"):
        assert loaded.explain() == value.explain()


VALUES = [
    None, True, 3, -0.0, float("nan"), float("-inf"), 10**40, "é\ud800\n", [1, [2.5]], (1, ()), {"a": 1, 2: (None,)},
    {1: {"b"}, 2.5: 1}, {1, 2}, frozenset({"x", "y", "z"}),
    np.float32(0.1), np.float64("inf"), np.int8(-3), np.bool_(True), np.str_("x"), np.datetime64("2024-02-29", "s"),
    np.timedelta64(5, "D"), np.dtype("<f4"), torch.device("cpu"),
]  # fmt: skip


def same(one, other):
    """Say whether two values are alike; a set has no order, and NaN is unlike itself."""
    alike = one == other if isinstance(one, (set, frozenset)) else repr(one) == repr(other)
    return type(one) is type(other) and alike


@pytest.mark.parametrize("value", VALUES, ids=[f"{k}-{type(value).__name__}" for k, value in enumerate(VALUES)])
def test_plain_values(value, tmp_path):
    assert same(round_trip(value, tmp_path), value)


ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.arange(6.0, dtype=">f8"), np.asfortranarray(np.arange(6).reshape(2, 3)),
    np.arange(10)[::3], np.array(2.5), np.zeros((0, 3), np.float32), np.array([True, False]), np.array([1 + 2j], "c8"),
    np.array(["2024-01-01", "NaT"], "M8[ns]"), np.array([1], "m8[D]"), np.array([["a", "bcd"]]), np.array([b"a\xff"]),
    np.array([None, "a", 1.5, [1, 2]], dtype=object), np.array([[1], [2]], dtype=object), np.array([2**63], np.uint64),
    np.array([], dtype="U3"), np.array([1.5], np.float16),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays(array, tmp_path):
    loaded = round_trip({"array": array, "again": array}, tmp_path)
    assert loaded["array"].dtype == array.dtype
    assert loaded["array"].shape == array.shape
    assert loaded["array"].flags.writeable
    assert loaded["array"].flags.f_contiguous == (array.flags.f_contiguous or array.ndim < 2)
    np.testing.assert_array_equal(loaded["array"], array)


RESERVED = ("file", "__id__", "__loader__", "__class__", "__module__", "content", "key_types", "protocol", "type")
"""Words that skops uses in its own descriptions."""
KEYS = st.sampled_from(RESERVED) | st.text(max_size=4) | st.integers(-9, 9) | st.floats(allow_nan=False)
PLAIN = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.sampled_from(RESERVED)
NESTED = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4))
PLACES = {
    "alone": lambda value: value,
    "in a list": lambda value: [value, (value,)],
    "as a parameter": lambda value: LogisticRegression(class_weight=value),
    "in a pipeline": lambda value: RejectOption(
        make_pipeline(StandardScaler(), LogisticRegression(class_weight=value))
    ),
    "as a parameter of demur's": lambda value: RejectClassifier(class_weight=value),
    "as an argument of a function": lambda value: FunctionTransformer(np.log1p, kw_args=value),
    "as an attribute": lambda value: with_attributes(GaussianNB(), value),
    "in an array": lambda value: np.array([value, None], dtype=object),
}


def with_attributes(estimator, value):
    for name in RESERVED:
        setattr(estimator, f"{name.strip('_')}_", value)
    return estimator


def content_of(value):
    """Return what a value holds, in plain values that can be compared."""
    if isinstance(value, dict):
        return [(type(key), key, content_of(inner)) for key, inner in value.items()]
    if isinstance(value, list | tuple):
        return [content_of(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return content_of(value.tolist())
    return (type(value), content_of(vars(value))) if hasattr(value, "get_params") else repr(value)


@pytest.mark.parametrize("place", PLACES)
@given(value=st.dictionaries(KEYS, NESTED, max_size=4))
@settings(max_examples=10)
def test_every_key_of_a_dictionary_is_saved(place, value):
    model = PLACES[place](value)
    try:
        content = to_archive(model)
    except ModelFileError as error:
        assert "keys that skops cannot store" in str(error)  # noqa: PT017 # two keys that are written alike
        return
    assert content_of(from_archive(content)) == content_of(model)


@pytest.mark.parametrize("vectorizer", [CountVectorizer(), TfidfVectorizer()], ids=lambda one: type(one).__name__)
@given(words=st.lists(st.sampled_from(RESERVED) | st.text("abc_", min_size=2, max_size=4), min_size=4, max_size=9))
@settings(max_examples=8)
def test_a_vocabulary_may_hold_any_word(vectorizer, words):
    texts = [f"{word} some" for word in words]
    model = make_pipeline(clone(vectorizer), LogisticRegression()).fit(texts, np.arange(len(texts)) % 2)
    loaded = from_archive(to_archive(model))
    assert loaded[0].vocabulary_ == model[0].vocabulary_
    np.testing.assert_array_equal(loaded.predict_proba(texts), model.predict_proba(texts))


def test_the_list_of_parts_is_true():
    """A class that has moved must be moved in this list too."""
    for path in _PARTS:
        module, _, name = path.rpartition(".")
        assert getattr(importlib.import_module(module), name).__module__ == module


@pytest.mark.parametrize("cls", [Loss, MarginFunction, Rule], ids=lambda cls: cls.__name__)
def test_every_class_of_demurs_own_is_registered(cls):
    own = [one for one in subclasses(cls) if one.__module__.startswith("demur.") and not inspect.isabstract(one)]
    assert own
    for one in own:
        if one not in (FunctionLoss, *helpers(cls)):
            assert f"{one.__module__}.{one.__name__}" in registered_types()


def helpers(cls):
    """Bases that are not abstract in Python's sense."""
    return [one for one in subclasses(cls) if one.__subclasses__()]


def subclasses(cls):
    return [one for below in cls.__subclasses__() for one in (below, *subclasses(below))]
