"""A model file runs no code: no pickle, no class that is not on a list, no index outside a tree."""

import io
import os
import pickle
import shutil

import numpy as np
import pytest
import skops.io
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from demur import Chow, RejectClassifier, RejectOption
from demur.deploy import ModelFileError, load, save

from .forging import forge_file, forge_manifest, forge_skops

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    parts = [
        RandomForestClassifier(2, random_state=0).fit(X, Y),
        HistGradientBoostingClassifier(max_iter=1).fit(X, Y),
        RejectClassifier(epochs=1, hidden_units=3, random_state=0).fit(X, Y),
    ]
    save(parts, path := tmp_path_factory.mktemp("models") / "model")
    return path


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def forbidden(*_, **__):
    raise AssertionError("loading must not come here")


def test_loading_uses_no_pickle(model, monkeypatch):
    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, forbidden)
    import joblib

    monkeypatch.setattr(joblib, "load", forbidden)
    assert load(model)[0].predict(X[:1]).shape == (1,)


@pytest.mark.parametrize(
    "name",
    ["os.system", "builtins.eval", "eval", "sklearn.svm._classes.SVC", "SVC", "demur.rules.Chow", "Loss", "", None, 3],
)
def test_a_class_that_is_not_on_the_list_is_refused(model, name, monkeypatch):
    monkeypatch.setattr(os, "system", forbidden)
    forge_manifest(model, lambda document: document.update(model={"object": name, "state": {}}))
    with pytest.raises(ModelFileError, match="which no model file may hold"):
        load(model)


FORGED_TREES = [
    {"object": "Chow", "state": {"cost": 0.2, "decide": 1}},
    {"object": "Chow", "state": {}},
    {"object": "RejectOption", "state": {"estimator": 1, "__class__": 3}},
    {"object": "RejectOption", "state": {"estimator": 1, "not a name": 3}},
    {"object": "Chow", "state": 3},
    {"object": "Chow"},
    {"python": "os.system"},
    {},
    {"array": "model.nothing"},
    {"array": ["x"]},
    {"tensor": 3},
    {"sklearn": 99},
    {"sklearn": "os"},
    {"ref": 0},
    {"loss": "my own", "fields": {}},
    {"loss": "ce", "fields": {"no such": 1}},
    {"scalar": 10**400, "dtype": "<i8"},
    {"scalar": 10**9, "dtype": "V"},
    {"items": [1], "dtype": "O", "shape": [2]},
    {"items": [1], "dtype": "<f8", "shape": [1]},
    {"torch.dtype": "load"},
    {"torch.device": "nowhere"},
    {"random_state": 1},
    {"dict": [1]},
    {"dict": [[{"dict": []}, 1]]},
    {"set": [[1]]},
    {"float": "one"},
    {"dtype": "nonsense"},
]


@pytest.mark.parametrize("tree", FORGED_TREES, ids=lambda tree: str(tree)[:50])
def test_a_forged_tree_is_one_error(model, tree):
    forge_manifest(model, lambda document: document.update(model=[tree]))
    with pytest.raises(ModelFileError):
        load(model)


@pytest.mark.parametrize(
    "files",
    [{"../secret": {"sha256": "", "size": 1}}, {"model.json": {}}, {"notes.txt": {}}, [1], {"sklearn.skops": 3}, {}, 3],
    ids=str,
)
def test_a_forged_list_of_files_is_one_error(model, files):
    (model.parent / "secret").write_text("x")
    forge_manifest(model, lambda document: document.update(files=files))
    with pytest.raises(ModelFileError):
        load(model)


class Runs:
    """What a pickle would use to run a command."""

    def __reduce__(self):
        return os.system, ("echo pwned",)


def test_a_skops_file_with_an_untrusted_type_is_refused(model, monkeypatch):
    monkeypatch.setattr(Runs, "__new__", forbidden)
    forge_file(model, "sklearn.skops", skops.io.dumps([object.__new__(Runs)]))
    with pytest.raises(ModelFileError, match=r"Runs, which no model file may hold; nothing of it was loaded"):
        load(model)


def test_a_skops_file_that_names_a_function_of_the_system_is_refused(model, monkeypatch):
    monkeypatch.setattr(os, "system", forbidden)

    def change(schema):
        schema["content"][0] = {
            "__class__": "system",
            "__module__": "os",
            "__loader__": "ConstructorFromReduceNode",
        } | {"content": {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}}

    forge_skops(model, change)
    with pytest.raises(ModelFileError, match=r"os\.system"):
        load(model)


@pytest.mark.parametrize("protocol", [0, 1, 99, None, "x"])
def test_a_skops_file_of_another_protocol_is_refused(model, protocol):
    forge_skops(model, lambda schema: schema.update(protocol=protocol))
    with pytest.raises(ModelFileError, match=r"sklearn\.skops"):
        load(model)


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04", pickle.dumps(1), skops.io.dumps({"a": 1})], ids=["empty", "zip", "pickle", "dict"]
)
def test_a_file_that_is_no_skops_file_is_one_error(model, content):
    forge_file(model, "sklearn.skops", content)
    with pytest.raises(ModelFileError, match=r"sklearn\.skops"):
        load(model)


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, pickle.dumps(1)], ids=["empty", "long header", "pickle"])
def test_a_file_that_is_no_safetensors_file_is_one_error(model, content):
    forge_file(model, "arrays.safetensors", content)
    with pytest.raises(ModelFileError):
        load(model)


def nodes_of(folder, fields):
    """Return the name and the content of the first array of tree nodes that has these fields."""
    import zipfile

    with zipfile.ZipFile(folder / "sklearn.skops") as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                array = np.load(io.BytesIO(archive.read(name)))
                if array.dtype.names and set(fields) <= set(array.dtype.names):
                    return name, array
    raise AssertionError(fields)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("left_child", 10**9),
        ("right_child", 0),
        ("feature", 4),
        ("feature", -3),
        ("left", 10**6),
        ("right", 0),
        ("feature_idx", 4),
    ],
)
def test_a_tree_that_points_outside_itself_is_refused(model, field, value):
    """scikit-learn itself would follow the index, out of its memory or for ever in a circle."""
    name, nodes = nodes_of(model, [field])
    nodes[field][0] = value
    content = io.BytesIO()
    np.save(content, nodes)
    forge_skops(model, files={name: content.getvalue()})
    with pytest.raises(ModelFileError, match="points outside itself"):
        load(model)


def json_node(text):
    return {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "content": text, "is_json": True}


def test_a_tree_that_claims_fewer_nodes_than_it_has_is_refused(model):
    def change(schema):
        forest = schema["content"][0]["content"]["content"]
        tree = forest["estimators_"]["content"][0]["content"]["content"]["tree_"]
        tree["content"]["content"]["node_count"] = json_node("1")

    forge_skops(model, change)
    with pytest.raises(ModelFileError, match="points outside itself"):
        load(model)


def test_a_forest_narrower_than_its_trees_is_refused(model):
    def change(schema):
        schema["content"][0]["content"]["content"]["n_features_in_"] = json_node("3")

    forge_skops(model, change)
    with pytest.raises(ModelFileError, match="points outside itself"):
        load(model)


class Foreign:
    """Somebody else's estimator."""


CANNOT = {
    "a lambda": (lambda: RejectOption(Chow(0.1), cv=lambda: 1), r"model\.cv: <function .* is code"),
    "a module": (
        lambda: RejectClassifier(module=torch.nn.Linear, epochs=1).fit(X, Y),
        r"model\.module: <class 'torch.* leave module=None",
    ),
    "another library": (
        lambda: RejectOption(make_pipeline(StandardScaler(), Foreign())),
        r"model\.estimator\.steps\[1\]\[1\]: .*Foreign is neither demur's nor scikit-learn's",
    ),
    "inside scikit-learn": (
        lambda: [FunctionTransformer(np.log1p), FunctionTransformer(os.path.join)],
        r"model\[1\]: its FunctionTransformer holds posixpath\.join",
    ),
    "a generator": (lambda: RejectOption(Chow(0.1), cv=iter([])), r"model\.cv: builtins\.list_iterator"),
    "a long double": (lambda: {"a": np.longdouble(1)}, r"model\['a'\]: .*longdouble|float128"),
    "records": (lambda: np.zeros(2, [("a", "f8")]), "arrays of"),
    "a sparse tensor": (lambda: torch.eye(2).to_sparse(), "sparse"),
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
