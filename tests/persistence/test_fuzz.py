"""Model folders changed at random, in every field and every array: refused in words, or a model that decides."""

import io
import json
import random
import warnings
import zipfile
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from demur import RejectClassifier, RejectOption
from demur.deploy import ModelFileError, load, save
from demur.tabular import fit_table

from .forging import forge_archive

X, Y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 3
ROWS = pa.table({"a": X[:, 0] + Y, "b": X[:, 1], "c": np.array(list("xyz"))[np.arange(60) % 3], "y": Y.astype(str)})

ESTIMATORS = {
    "trees": RandomForestClassifier(3, random_state=0),
    "tree": DecisionTreeClassifier(random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=2, random_state=0),
    "histograms": HistGradientBoostingClassifier(max_iter=3),
    "regression": make_pipeline(StandardScaler(), LogisticRegression()),
    "descent": SGDClassifier(loss="log_loss", random_state=0),
    "bayes": GaussianNB(),
    "neighbours": KNeighborsClassifier(3),
    "machine": SVC(random_state=0),
    "perceptron": MLPClassifier((4,), max_iter=30, random_state=0),
}


def fitted(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name in ("lr", "rf", "hgb"):
            return fit_table(ROWS, "y", model=name)
        if name == "networks":
            return RejectClassifier("ce", hidden_units=(4,), epochs=2, random_state=0, n_members=1).fit(X, Y)
        return RejectOption(ESTIMATORS[name], cv=2).fit(X, Y)


def ask(model):
    return model.answers(ROWS.drop(["y"])).to_pydict() if hasattr(model, "answers") else model.predict(X).tolist()


WILD = (None, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1e308, float("nan"), "x", "", [], {}, True, [1, 2, 3])


def changed_json(value, rng):
    """Return a description with one of its values replaced, removed, or doubled."""
    places = []

    def walk(node):
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, inner in items:
            places.append((node, key))
            walk(inner)

    walk(value)
    node, key = rng.choice(places)
    how = rng.random()
    if how < 0.2 and isinstance(node, dict):
        del node[key]
    elif how < 0.4 and isinstance(node, list):
        node.append(node[key])
    elif isinstance(node[key], str) and how < 0.8:
        node[key] = json.dumps(rng.choice(WILD))
    else:
        node[key] = rng.choice(WILD)
    return value


def changed_array(content, rng):
    array = np.load(io.BytesIO(content), allow_pickle=False)
    how = rng.randrange(6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if how == 0 and array.size:
            flat = array.copy().reshape(-1)
            name = rng.choice(flat.dtype.names) if flat.dtype.names else ...
            part = flat if name is ... else flat[name]
            wild = np.nan if part.dtype.kind == "f" else rng.choice((0, 1, 7, 2**31 - 1))
            part[rng.randrange(len(flat))] = wild
            array = flat.reshape(array.shape)
        elif how == 1:
            array = array[:-1] if array.ndim and len(array) else np.array(array)[None]
        elif how == 2:
            array = np.concatenate([array, array]) if array.ndim else np.array([array, array])
        elif how == 3 and array.dtype.names is None and array.dtype.kind in "fiub":
            array = array.astype(rng.choice([np.float32, np.float64, np.int8, np.int64, np.uint64, np.complex128]))
        elif how == 4:
            array = array.reshape(-1) if array.ndim > 1 else array[None]
        elif array.dtype.kind == "f":
            array = np.full_like(array, np.nan)
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return written.getvalue()


def forged(folder, rng):
    written = io.BytesIO()
    with zipfile.ZipFile(folder / "model.skops") as old:
        contents = {name: old.read(name) for name in old.namelist()}
    arrays = [name for name in contents if name.endswith(".npy")]
    if arrays and rng.random() < 0.5:
        name = rng.choice(arrays)
        contents[name] = changed_array(contents[name], rng)
    else:
        contents["schema.json"] = json.dumps(changed_json(json.loads(contents["schema.json"]), rng)).encode()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in contents.items():
            new.writestr(name, content)
    return written.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ESTIMATORS, "lr", "rf", "hgb", "networks"])
def test_issue_17_a_changed_model_is_refused_or_decides(tmp_path, name):
    save(fitted(name), tmp_path / "model")
    original = (tmp_path / "model" / "model.skops").read_bytes()
    rng, refused = random.Random(name), 0
    n_changes = 40 if name in ("rf", "hgb") else 150  # large archives
    for _ in range(n_changes):
        content = forged(tmp_path / "model", rng)
        forge_archive(tmp_path / "model", content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model = load(tmp_path / "model")
            except ModelFileError:  # anything else is a failure
                refused += 1
                model = None
            if model is not None:
                with suppress(Exception):  # whatever Python says of it, the process lives
                    ask(model)
        forge_archive(tmp_path / "model", original)
    assert refused > n_changes / 8
