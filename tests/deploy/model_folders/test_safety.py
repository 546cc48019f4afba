"""Nothing in a model folder is executed or unpickled, and what cannot be loaded is one sentence."""

import io
import json
import os
import pickle
import random
import shutil
import sys
import zipfile

import numpy as np
import pytest
import service_samples
import skops.io
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from skops.io import _trusted_types

from demur import Chow, RejectClassifier, RejectOption
from demur.deploy import ModelFileError, load, model_folder, save

from .forging import attributes, forge_archive, forge_manifest, forge_schema, plain

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    parts = [
        RandomForestClassifier(2, random_state=0).fit(X, Y),
        HistGradientBoostingClassifier(max_iter=1).fit(X, Y),
        RejectClassifier(epochs=1, hidden_units=3, random_state=0).fit(X, Y),
        Chow(0.2),
    ]
    save(parts, path := tmp_path_factory.mktemp("models") / "model")
    return path


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def forbidden(*_, **__):
    raise AssertionError("loading must not come here")


def assert_one_sentence(folder, match=None):
    with pytest.raises(ModelFileError, match=match) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_loading_uses_no_pickle(model, monkeypatch):
    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, forbidden)
    import joblib

    monkeypatch.setattr(joblib, "load", forbidden)
    assert load(model)[0].predict(X[:1]).shape == (1,)


def described(cls, loader="ObjectNode", module="demur", **state):
    """Return the description of an object with these plain attributes."""
    kinds = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
    content = {
        "__class__": "dict",
        "__module__": "builtins",
        "__loader__": "DictNode",
        "content": {key: plain(value) for key, value in state.items()},
        "key_types": {**kinds, "content": [text for _ in state]},
    }
    return {"__class__": cls, "__module__": module, "__loader__": loader, "content": content}


FORGED = {
    "a function of the system": described("system", "FunctionNode", "os"),
    "an object of another module": described("Popen", module="subprocess"),
    "a call of exec": described("exec", "ConstructorFromReduceNode", "builtins"),
    "a name that is on no list": described("eval", module="demur.rules"),
    "an abstract class": described("Loss", module="demur.losses.loss"),
    "a module's name": described("os.system"),
    "no name": described(""),
    "a number for a name": described(3),
    "an unknown loader": described("Chow", "PickleNode", "demur.rules"),
    "a method": {
        **described("GaussianNB", "MethodNode", "sklearn.naive_bayes"),
        "content": {"func": "fit", "obj": described("GaussianNB", module="sklearn.naive_bayes")},
    },
    "a caller of methods": {**described("methodcaller", "OperatorFuncNode", "operator"), "attrs": plain(["fit"])},
    "no loader": {"__class__": "Chow", "__module__": "demur.rules"},
    "no content": {"__class__": "Chow", "__module__": "demur.rules", "__loader__": "ObjectNode", "content": 3},
    "a number": 3,
}


@pytest.mark.parametrize("case", FORGED)
def test_a_type_outside_the_trusted_list_is_refused(model, case, monkeypatch):
    monkeypatch.setattr(os, "system", forbidden)
    forge_schema(model, lambda schema: schema["content"].append(FORGED[case]))
    assert_one_sentence(model)


def test_the_estimators_of_scikit_learn_are_those_that_skops_knows():
    known = {name for name in _trusted_types.SKLEARN_ESTIMATOR_TYPE_NAMES if name.startswith("sklearn.")}
    loaded = [module for name, module in sys.modules.items() if name.startswith("sklearn.")]
    classes = {part for module in loaded for part in vars(module).values() if isinstance(part, type)}
    paths = {f"{cls.__module__}.{cls.__qualname__}" for cls in classes} | {"os.system", "sklearn.nothing", "sklearn"}
    assert {path for path in paths if model_folder._is_estimator(path)} == known


class Runs:
    """What a pickle would use to run a command."""

    def __reduce__(self):
        return os.system, ("echo pwned",)


def test_an_archive_with_an_untrusted_type_names_it(model, monkeypatch):
    monkeypatch.setattr(Runs, "__new__", forbidden)
    forge_archive(model, skops.io.dumps([object.__new__(Runs)]))
    assert_one_sentence(model, r"holds .*Runs, which is neither")


@pytest.mark.parametrize(
    "files",
    [{"../secret": {"sha256": "", "size": 1}}, {"model.json": {}}, {"notes.txt": {}}, [1], {"model.skops": 3}, {}, 3],
    ids=str,
)
def test_a_forged_list_of_files_is_one_error(model, files):
    (model.parent / "secret").write_text("x")
    forge_manifest(model, lambda document: document.update(files=files))
    assert_one_sentence(model)


@pytest.mark.parametrize("protocol", [99, None, "x"])
def test_an_archive_of_another_protocol_is_refused(model, protocol):
    forge_schema(model, lambda schema: schema.update(protocol=protocol, __loader__="FutureNode"))
    assert_one_sentence(model, "cannot be read")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", pickle.dumps(1)], ids=["empty", "zip", "pickle"])
def test_a_file_that_is_not_an_archive_is_one_error(model, content):
    forge_archive(model, content)
    assert_one_sentence(model, "cannot be read")


@pytest.mark.parametrize("dtype", ["<U100000000", "|S2000000000", "<f8"])
def test_an_array_that_is_shorter_than_it_says_is_one_error(model, dtype):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": dtype, "fortran_order": False, "shape": (10**9,)})
    with zipfile.ZipFile(model / "model.skops") as archive:
        name = next(name for name in archive.namelist() if name.endswith(".npy"))
    forge_schema(model, files={name: content.getvalue()})
    assert_one_sentence(model, "cannot be read")


def test_a_model_swapped_for_another_is_one_error(model, tmp_path):
    save(Chow(0.2), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.skops", model / "model.skops")
    assert_one_sentence(model, "is damaged or was altered")


# After loading --------------------------------------------------------------------------------------------------------


def test_a_model_that_fails_on_a_dummy_row_is_one_error(tmp_path):
    save(RejectOption(LogisticRegression(max_iter=999), cv=2).fit(X, Y), tmp_path / "model")
    forge_schema(tmp_path / "model", lambda schema: attributes(attributes(schema)["estimator_"]).pop("coef_"))
    assert_one_sentence(tmp_path / "model", "fails on a dummy row .*coef_.*; it is damaged, or made by other library")


def test_a_model_with_weights_that_are_not_numbers_is_one_error(tmp_path):
    model = RejectOption(LogisticRegression(max_iter=999), calibration=None).fit(X, Y)
    save(model, tmp_path / "model")
    written = io.BytesIO()
    np.save(written, np.full_like(model.estimator_.coef_, np.nan))

    def coefficients(schema):
        return attributes(attributes(schema)["estimator_"])["coef_"]["file"]

    with zipfile.ZipFile(tmp_path / "model" / "model.skops") as archive:
        name = coefficients(json.loads(archive.read("schema.json")))
    forge_schema(tmp_path / "model", files={name: written.getvalue()})
    assert_one_sentence(tmp_path / "model", "fails on a dummy row")


def test_every_kind_of_column_has_a_value_for_the_dummy_row(tmp_path):
    save(service_samples.model(), tmp_path / "model")
    assert json.loads((tmp_path / "model" / "model.json").read_text())["predicts_dummy_row"]


def test_what_has_no_dummy_row_is_loaded_all_the_same(tmp_path):
    for number, value in enumerate((RejectOption(LogisticRegression()), StandardScaler().fit(X), Chow(0.3), [1, 2])):
        save(value, tmp_path / f"{number}")
        assert type(load(tmp_path / f"{number}")) is type(value)


WILD = (None, -1, 0, 2**63 - 1, 1e308, "x", "", [], {}, True, [1, 2, 3])


def changed(value, rng):
    """Replace, remove or repeat one value of a description."""
    places = []

    def walk(node):
        for key, inner in node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ():
            places.append((node, key))
            walk(inner)

    walk(value)
    node, key = rng.choice(places)
    if rng.random() < 0.2 and isinstance(node, dict):
        del node[key]
    else:
        node[key] = json.dumps(rng.choice(WILD)) if isinstance(node[key], str) else rng.choice(WILD)


@pytest.mark.parametrize("estimator", [LogisticRegression(), None], ids=["regression", "networks"])
def test_a_description_changed_at_random_is_one_sentence_or_a_model(tmp_path, estimator):
    networks = RejectClassifier(hidden_units=(4,), epochs=2, random_state=0, n_members=1)
    model = networks if estimator is None else RejectOption(make_pipeline(StandardScaler(), estimator), cv=2)
    save(model.fit(X, Y), tmp_path / "model")
    original, rng, refused = (tmp_path / "model" / "model.skops").read_bytes(), random.Random(0), 0
    for _ in range(40):
        forge_schema(tmp_path / "model", lambda schema: changed(schema, rng))
        try:
            load(tmp_path / "model")
        except ModelFileError:  # anything else is a failure
            refused += 1
        forge_archive(tmp_path / "model", original)
    assert refused > 7


# Parts that would read files or a cache of pickles --------------------------------------------------------------------

OUTSIDE = {
    "file names": (
        CountVectorizer(input="filename"),
        r"model\.steps\[0\]\[1\] has input='filename', which reads files",
    ),
    "open files": (TfidfVectorizer(input="file"), "has input='file'"),
    "hashed file names": (HashingVectorizer(input="filename"), "has input='filename'"),
    "a tokenizer": (TfidfVectorizer(tokenizer=np.char.upper), "tokenizer is code"),
    "a ufunc that splits": (CountVectorizer(tokenizer=np.log1p), "tokenizer is code"),
    "a preprocessor": (CountVectorizer(preprocessor=np.log1p), "preprocessor is code"),
    "an analyzer": (HashingVectorizer(analyzer=np.log1p), "analyzer is code"),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_vectorizer_that_reads_files_or_calls_code_is_refused(case, tmp_path):
    part, message = OUTSIDE[case]
    with pytest.raises(ModelFileError, match=message):
        save(make_pipeline(part, LogisticRegression()), tmp_path / "model")


def test_a_forged_vectorizer_that_reads_files_is_refused(tmp_path):
    texts = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["a file", "a door"] * 9, [0, 1] * 9)
    save(RejectOption(texts, calibration=None).fit(["a file", "a door"] * 9, [0, 1] * 9), tmp_path / "model")

    def change(schema):
        step = attributes(attributes(schema)["estimator_"])["steps"]["content"][0]["content"][1]
        attributes(step).update(input=plain("filename"))

    forge_schema(tmp_path / "model", change)
    assert_one_sentence(tmp_path / "model", "has input='filename', which reads files")


def test_a_pipeline_with_a_cache_of_pickles_is_refused(tmp_path):
    model = make_pipeline(StandardScaler(), LogisticRegression(), memory=str(tmp_path))
    with pytest.raises(ModelFileError, match=r"model\.estimator has a memory"):
        save(RejectOption(model), tmp_path / "model")


# What cannot be saved -------------------------------------------------------------------------------------------------


class Foreign:
    """Somebody else's estimator."""


CANNOT = {
    "a lambda": (lambda: RejectOption(Chow(0.1), cv=lambda: 1), r"model\.cv: .*<lambda> is code"),
    "a module": (
        lambda: RejectClassifier(module=torch.nn.Linear, epochs=1).fit(X, Y),
        r"model\.module: it belongs to torch.*TorchClassifier",
    ),
    "another library": (
        lambda: RejectOption(make_pipeline(StandardScaler(), Foreign())),
        r"model\.estimator\.steps\[1\]\[1\]: .*Foreign is neither demur's nor scikit-learn's",
    ),
    "inside scikit-learn": (
        lambda: [FunctionTransformer(np.log1p), FunctionTransformer(os.path.join)],
        r"model\[1\]\.func: posixpath\.join is code",
    ),
    "a generator": (lambda: RejectOption(Chow(0.1), cv=iter([])), r"model\.cv: .*list_iterator"),
    "objects in an array": (lambda: {"a": np.array([Foreign()])}, r"model\['a'\]\[0\]: .*Foreign"),
    "a tensor": (lambda: [torch.eye(2)], r"model\[0\].*NumPy array"),
    "keys that are pairs": (lambda: {"a": {(1, 2): 3}}, r"model\['a'\]: .* keys .*use text"),
    "boolean keys": (lambda: {True: 1, False: 2}, r"model: .* keys .*use text"),
    "keys that are written alike": (lambda: {"a": {1: "number", "1": "text"}}, r"model\['a'\]: .* keys .*use text"),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_cannot_be_saved_is_named(case, tmp_path):
    build, message = CANNOT[case]
    with pytest.raises(ModelFileError, match=message):
        save(build(), tmp_path / "model")
    assert os.listdir(tmp_path) == []


def test_a_model_that_contains_itself_is_refused(tmp_path):
    model = RejectOption(None)
    model.estimator = [model]
    with pytest.raises(ModelFileError, match=r"model\.estimator\[0\]: it contains itself"):
        save(model, tmp_path / "model")
