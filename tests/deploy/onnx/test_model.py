"""The file and the graph as a whole: what it is called, what it says of itself, what it refuses."""

import json
import sys

import numpy as np
import onnx
import pytest
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from demur import RejectClassifier, RejectOption, __version__
from demur.deploy.onnx import ExportError, compare_onnx, export_onnx, onnx_model
from demur.deploy.onnx.onnx_export import _distance

from .running import run, session

X, Y = load_wine(return_X_y=True)


@pytest.fixture(scope="module")
def model():
    return RejectOption(GaussianNB(), cost=0.05, cv=3).fit(X, Y)


def test_a_number_that_is_missing_on_one_side_is_a_difference():
    gap = np.array([np.nan, 0.5])
    assert _distance(gap, gap) == 0
    assert _distance(gap, np.array([0.5, 0.5])) == np.inf


def test_the_graph_says_what_it_is(model):
    proto = onnx_model(model)
    assert (proto.producer_name, proto.producer_version) == ("demur", __version__)
    assert {one.domain: one.version for one in proto.opset_import} == {"": 18, "ai.onnx.ml": 3}
    assert proto.ir_version == 8
    props = {entry.key: entry.value for entry in proto.metadata_props}
    assert json.loads(props["classes"]) == [0, 1, 2]
    assert float(props["cost"]) == 0.05
    assert "exceeds 1 - cost" in props["rule"]
    onnx.checker.check_model(proto, full_check=True)


def test_the_cost_may_be_left_out(model):
    assert [value.name for value in session(model).get_inputs()] == ["features"]
    np.testing.assert_array_equal(run(model, X)["reject"], model.decide(X).reject)
    np.testing.assert_array_equal(run(model, X, cost=np.array(0.4))["reject"], model.decide(X, 0.4).reject)
    assert (run(model, X)["reject"] != run(model, X, cost=np.array(0.4))["reject"]).any()


@pytest.mark.parametrize(
    ("classes", "kind"),
    [
        (np.array(["a", "ü", "reject?"]), np.object_),
        (np.array(["a", "b", "c"], dtype=object), np.object_),
        (np.array([3, -1, 2**40]), np.int64),
        (np.array([0, 1, 255], dtype=np.uint8), np.int64),
        (np.array([0.0, 1.0, 2.0]), np.float64),
        (np.array([True, False, True]), np.bool_),
    ],
    ids=["text", "objects", "integers", "bytes", "floats", "bools"],
)
def test_labels_keep_their_type(classes, kind):
    labels = classes[Y]
    model = RejectOption(GaussianNB(), calibration=None).fit(X, labels)
    found = run(model, X)["label"]
    assert found.dtype == kind
    np.testing.assert_array_equal(found, model.classes_[model.decide(X).label])


def test_a_row_that_the_model_refuses_is_rejected():
    model = RejectClassifier(epochs=2, random_state=0).fit(X, Y)
    row = np.full((1, X.shape[1]), np.inf)
    assert run(model, row)["reject"].tolist() == [True]


def test_a_file_and_nothing_else_beside_it(model, tmp_path):
    path = export_onnx(model, tmp_path / "model.onnx")
    assert [one.name for one in tmp_path.iterdir()] == ["model.onnx"]
    assert compare_onnx(model, path, X).decisions_agree
    with pytest.raises(FileExistsError, match="exists already"):
        export_onnx(model, path)
    before = path.read_bytes()
    assert export_onnx(model, path, overwrite=True).read_bytes() == before  # the same model gives the same bytes
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        export_onnx(model, tmp_path)
    assert export_onnx(model, tmp_path / "new" / "model.onnx").read_bytes() == before


def test_a_refused_model_leaves_no_file(tmp_path):
    with pytest.raises(ExportError):
        export_onnx(GaussianNB(), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_unfitted_and_foreign_models():
    with pytest.raises(NotFittedError):
        onnx_model(RejectOption(GaussianNB()))
    with pytest.raises(ExportError, match=r"only a fitted RejectClassifier.*got LogisticRegression"):
        onnx_model(LogisticRegression())


@pytest.mark.parametrize(("package", "call"), [("onnx", "export"), ("onnxruntime", "compare")])
def test_a_missing_package_is_named_with_the_extra(model, monkeypatch, package, call):
    proto = onnx_model(model)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"{package}; install it with: pip install demur\[onnx\]"):
        _ = onnx_model(model) if call == "export" else compare_onnx(model, proto, X)


def test_a_graph_of_another_model_is_distinguished(model):
    """The comparison itself can fail."""
    other = RejectOption(GaussianNB(), cost=0.3, calibration=None).fit(X[:, ::-1], 2 - Y)
    found = compare_onnx(model, onnx_model(other), X)
    assert found.n_different > 0
    assert found.confidence > 1e-3
