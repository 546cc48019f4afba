"""A model runs no code of its file: no pickle, no class that is not on a list, no index outside a part, no bomb."""

import io
import json
import os
import pickle
import shutil
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import skops.io
import torch
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

from demur import Chow, RejectClassifier, RejectOption
from demur.deploy import ModelFileError, load, save
from demur.tabular import fit_table

from .forging import attributes, forge_archive, forge_manifest, forge_schema, plain

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    parts = [
        RandomForestClassifier(2, random_state=0).fit(X, Y),
        HistGradientBoostingClassifier(max_iter=1).fit(X, Y),
        RejectClassifier(epochs=1, hidden_units=3, random_state=0).fit(X, Y),
        GradientBoostingClassifier(n_estimators=1).fit(X, Y),
        KNeighborsClassifier(algorithm="kd_tree").fit(X, Y),
        SVC().fit(X, Y),
        OneHotEncoder(max_categories=3).fit(X.round()),
        Chow(0.2),
    ]
    save(parts, path := tmp_path_factory.mktemp("models") / "model")
    return path


FOREST, BOOSTING, NETWORKS, STAGES, NEIGHBOURS, MACHINE, ENCODER, RULE = range(8)


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


def described(cls, loader="ObjectNode", **state):
    """Return the description of an object of demur's with these plain attributes."""
    kinds = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    text = {"__class__": "str", "__module__": "builtins", "__loader__": "TypeNode"}
    content = {
        "__class__": "dict",
        "__module__": "builtins",
        "__loader__": "DictNode",
        "content": {key: plain(value) for key, value in state.items()},
        "key_types": {**kinds, "content": [text for _ in state]},
    }
    return {"__class__": cls, "__module__": "demur", "__loader__": loader, "content": content}


@pytest.mark.parametrize(
    "name", ["os.system", "part:eval", "part:", ":", "part:Chow", "loss:Loss", "rule:Rule", "", None, 3, ["part:MLP"]]
)
def test_a_class_that_is_not_on_the_list_is_refused(model, name, monkeypatch):
    monkeypatch.setattr(os, "system", forbidden)
    forge_schema(model, lambda schema: schema["content"].append(described(name)))
    with pytest.raises(ModelFileError):
        load(model)


FORGED = {
    "an attribute more": described("part:Column", name="a", kind="number", decide=1),
    "an attribute less": described("part:Column", name="a"),
    "a parameter less": described("rule:Chow"),
    "a dunder": described("part:RejectOption", estimator=1, __class__=3),
    "no name": described("part:RejectOption", estimator=1) | {"content": {"not a name": plain(1)}},
    "called": described("rule:Chow", "ConstructorFromReduceNode"),
    "as a function": described("rule:Chow", "FunctionNode"),
    "no content": {"__class__": "rule:Chow", "__module__": "demur", "__loader__": "ObjectNode", "content": 3},
    "no loader": {"__class__": "rule:Chow", "__module__": "demur"},
    "unknown loader": described("rule:Chow", "PickleNode"),
    "a reference": {"__class__": None, "__module__": None, "__loader__": "CachedNode", "__id__": 1},
    "a call of exec": {
        "__class__": "exec",
        "__module__": "builtins",
        "__loader__": "ConstructorFromReduceNode",
        "content": plain(["1"]),
    },
    "a call of an estimator": {
        "__class__": "GaussianNB",
        "__module__": "sklearn.naive_bayes",
        "__loader__": "ConstructorFromReduceNode",
        "content": {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []},
    },
    "a tree without nodes": {
        "__class__": "Tree",
        "__module__": "sklearn.tree._tree",
        "__loader__": "ConstructorFromReduceNode",
        "content": plain([1, [1], 1]),
    },
    "a method": {
        "__class__": "GaussianNB",
        "__module__": "sklearn.naive_bayes",
        "__loader__": "MethodNode",
        "content": {"func": "fit", "obj": plain(1)},
    },
    "a number": 3,
    "nothing": {},
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_description_is_one_error(model, case):
    forge_schema(model, lambda schema: schema["content"].append(FORGED[case]))
    with pytest.raises(ModelFileError):
        load(model)


@pytest.mark.parametrize(
    "files",
    [{"../secret": {"sha256": "", "size": 1}}, {"model.json": {}}, {"notes.txt": {}}, [1], {"model.skops": 3}, {}, 3],
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


def test_an_archive_with_an_untrusted_type_is_refused(model, monkeypatch):
    monkeypatch.setattr(Runs, "__new__", forbidden)
    forge_archive(model, renamed(skops.io.dumps([object.__new__(Runs)])))
    with pytest.raises(ModelFileError, match=r"Runs, which no model may hold; nothing of it was loaded"):
        load(model)


def renamed(data):
    """Return an archive of skops with members named as demur names them."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(written, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return written.getvalue()


def test_an_archive_that_names_a_function_of_the_system_is_refused(model, monkeypatch):
    monkeypatch.setattr(os, "system", forbidden)
    function = {"__class__": "system", "__module__": "os", "__loader__": "FunctionNode"}
    forge_schema(model, lambda schema: schema["content"].append(function))
    with pytest.raises(ModelFileError, match=r"os\.system"):
        load(model)


@pytest.mark.parametrize("protocol", [0, 1, 99, None, "x"])
def test_an_archive_of_another_protocol_is_refused(model, protocol):
    forge_schema(model, lambda schema: schema.update(protocol=protocol))
    with pytest.raises(ModelFileError, match="cannot be read"):
        load(model)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", pickle.dumps(1)], ids=["empty", "zip", "pickle"])
def test_a_file_that_is_not_an_archive_is_one_error(model, content):
    forge_archive(model, content)
    with pytest.raises(ModelFileError, match="cannot be read"):
        load(model)


def test_two_parts_of_one_number_are_refused(model):
    """skops builds the first of them in place of the second, which then is not what was looked at."""

    def change(schema):
        first = schema["content"][FOREST]["__id__"]
        schema["content"][RULE]["__id__"] = first

    forge_schema(model, change)
    with pytest.raises(ModelFileError, match="one number"):
        load(model)


# Bombs ----------------------------------------------------------------------------------------------------------------


def test_issue_17_an_archive_that_unpacks_to_gigabytes_is_refused(model):
    forge_schema(model, files={"999.bin": bytes(1 << 26)})
    assert (model / "model.skops").stat().st_size < 1 << 20
    with pytest.raises(ModelFileError, match=r"would unpack to 6\d,\d{3},\d{3}"):
        load(model)


@pytest.mark.parametrize("dtype", ["<U100000000", "|S2000000000", "<f8"])
def test_issue_17_an_array_that_is_shorter_than_it_says_is_refused(model, dtype):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": dtype, "fortran_order": False, "shape": (10**9,)})
    forge_schema(model, files={"0.npy": content.getvalue()})
    with pytest.raises(ModelFileError, match=r"does not have its size|holds items of [\d,]+ bytes each"):
        load(model)


def test_what_demur_writes_never_looks_like_a_bomb(tmp_path):
    save([np.zeros(10**6), [0] * 2_000], tmp_path / "model")
    assert load(tmp_path / "model")[0].sum() == 0


def test_too_little_memory_is_one_error(model, monkeypatch):
    monkeypatch.setattr(skops.io, "loads", lambda *_, **__: np.empty(1 << 60))
    with pytest.raises(ModelFileError, match="memory"):
        load(model)


# Parts that scikit-learn follows without looking ----------------------------------------------------------------------


def nodes_of(folder, fields):
    """Return the name and the content of the first array of tree nodes that has these fields."""
    with zipfile.ZipFile(folder / "model.skops") as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                array = np.load(io.BytesIO(archive.read(name)))
                if array.dtype.names and set(fields) <= set(array.dtype.names):
                    return name, array
    raise AssertionError(fields)


def as_npy(array):
    content = io.BytesIO()
    np.save(content, array)
    return content.getvalue()


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
    forge_schema(model, files={name: as_npy(nodes)})
    with pytest.raises(ModelFileError, match="points outside itself"):
        load(model)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 2)], ids=str)
@pytest.mark.parametrize("field", ["left_child", "left"])
def test_issue_17_nodes_of_another_shape_are_refused_before_a_tree_is_built(model, field, shape):
    name, nodes = nodes_of(model, [field])
    forge_schema(model, files={name: as_npy(np.resize(nodes, shape))})
    with pytest.raises(ModelFileError):
        load(model)


def change_array(path, function):
    """Return a change of a schema's array, by its place: numbers for items, names for attributes."""

    def change(schema, folder):
        node = schema
        for step in path:
            node = node["content"][step] if isinstance(step, int) else attributes(node)[step]
        with zipfile.ZipFile(folder / "model.skops") as archive:
            return node["file"], as_npy(function(np.load(io.BytesIO(archive.read(node["file"])))))

    return change


def set_to(position, value):
    def change(array):
        array.flat[position] = value
        return array

    return change


WILD = {
    "a label of a neighbour": ((NEIGHBOURS, "_y"), set_to(0, 10**9)),
    "labels too few": ((NEIGHBOURS, "_y"), lambda y: y[:5]),
    "neighbours too wide": ((NEIGHBOURS, "_fit_X"), lambda rows: np.hstack([rows, rows])),
    "support": ((MACHINE, "support_"), set_to(0, 10**8)),
    "support vectors too narrow": ((MACHINE, "support_vectors_"), lambda rows: rows[:, :2].copy()),
    "numbers of support vectors": ((MACHINE, "_n_support"), set_to(0, 10**6)),
    "coefficients too few": ((MACHINE, "_dual_coef_"), lambda values: values[:, :3].copy()),
    "intercepts too few": ((MACHINE, "_intercept_"), lambda values: values[:1]),
    "a group of categories": ((ENCODER, "_default_to_infrequent_mappings", 0), set_to(0, 10**7)),
    "weights that are not numbers": ((NETWORKS, "networks_", "networks", "vectors"), lambda w: w * np.nan),
    "weights too few": ((NETWORKS, "networks_", "networks", "vectors"), lambda w: w[:, :4].copy()),
}


@pytest.mark.parametrize("case", WILD)
def test_issue_17_a_part_that_does_not_fit_is_refused(model, case):
    path, function = WILD[case]
    with zipfile.ZipFile(model / "model.skops") as archive:
        schema = json.loads(archive.read("schema.json"))
    name, content = change_array(path, function)(schema, model)
    forge_schema(model, files={name: content})
    with pytest.raises(ModelFileError):
        load(model)


def test_issue_17_a_tree_of_neighbours_that_points_outside_itself_is_refused(model):
    def order(schema):
        return attributes(schema["content"][NEIGHBOURS])["_tree"]["content"]["content"][1]["file"]

    with zipfile.ZipFile(model / "model.skops") as archive:
        name = order(json.loads(archive.read("schema.json")))
        rows = np.load(io.BytesIO(archive.read(name)))
    rows[0] = 10**9
    forge_schema(model, files={name: as_npy(rows)})
    with pytest.raises(ModelFileError, match="tree of neighbours that points outside itself"):
        load(model)


def test_issue_17_a_sparse_matrix_whose_indices_nobody_checks_is_refused(model):
    sparse = {"__class__": "spmatrix", "__module__": "scipy.sparse._matrix", "__loader__": "SparseMatrixNode"}
    forge_schema(model, lambda schema: schema["content"].append(sparse | {"type": "scipy", "file": "0.npy"}))
    with pytest.raises(ModelFileError, match="SparseMatrixNode"):
        load(model)


def nested(schema, *path):
    node = schema["content"][path[0]]
    for step in path[1:]:
        node = node["content"][step] if isinstance(step, int) else attributes(node)[step]
    return node


CHANGES = {
    "a tree that claims fewer nodes": lambda schema: attributes(
        attributes(nested(schema, FOREST, "estimators_", 0))["tree_"]
    ).update(node_count=plain(1)),
    "a forest narrower than its trees": lambda schema: attributes(nested(schema, FOREST)).update(
        n_features_in_=plain(3)
    ),
    "a forest that forgot its width": lambda schema: attributes(nested(schema, FOREST)).pop("n_features_in_"),
    "stages wider than the table": lambda schema: attributes(nested(schema, STAGES)).update(n_features_in_=plain(9)),
    "stages for more classes": lambda schema: attributes(nested(schema, STAGES)).update(
        n_trees_per_iteration_=plain(1)
    ),
    "stages that start elsewhere": lambda schema: attributes(nested(schema, STAGES)).update(
        init_=nested(schema, FOREST)
    ),
    "boosting of another width": lambda schema: attributes(nested(schema, BOOSTING)).update(_n_features=plain(2)),
    "an encoder twice as wide": lambda schema: attributes(nested(schema, ENCODER)).update(
        _n_features_outs=plain([1, 1, 1, 1])
    ),
    "an encoder of fewer columns": lambda schema: attributes(nested(schema, ENCODER)).update(n_features_in_=plain(2)),
    "neighbours of another width": lambda schema: attributes(nested(schema, NEIGHBOURS)).update(
        n_features_in_=plain(9)
    ),
    "a machine of another width": lambda schema: attributes(nested(schema, MACHINE)).update(n_features_in_=plain(9)),
}


@pytest.mark.parametrize("case", CHANGES)
def test_issue_17_parts_that_do_not_fit_together_are_refused(model, case):
    forge_schema(model, CHANGES[case])
    with pytest.raises(ModelFileError):
        load(model)


def test_issue_17_a_classifier_wider_than_its_table_is_refused(tmp_path):
    rows = pa.table({"a": X[:, 2], "b": X[:, 3], "y": Y.astype(str)})
    save(fit_table(rows, "y", model="lr"), tmp_path / "model")
    forge_schema(tmp_path / "model", lambda schema: columns_of(schema).pop())
    with pytest.raises(ModelFileError, match="it reads 1 columns, and its classifier takes 2"):
        load(tmp_path / "model")


def columns_of(schema):
    return attributes(attributes(schema)["schema"])["columns"]["content"]


# What cannot be saved -------------------------------------------------------------------------------------------------


class Foreign:
    """Somebody else's estimator."""


CANNOT = {
    "a lambda": (lambda: RejectOption(Chow(0.1), cv=lambda: 1), r"model\.cv: .*<lambda> is code"),
    "a module": (
        lambda: RejectClassifier(module=torch.nn.Linear, epochs=1).fit(X, Y),
        r"model\.networks_.*state_dict",
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
    "keys that are truth values": (lambda: {True: 1, False: 2}, r"model: .* keys .*use text"),
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
