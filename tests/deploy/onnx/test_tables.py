"""Models of tables: text, gaps, dates and awkward names go into the graph as they are."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from demur import RejectOption
from demur.columns import Schema
from demur.deploy.onnx import ExportError, onnx_model
from demur.estimators import AutoClassifier
from demur.tabular import TableModel, fit_table
from demur.tabular.table_files import LabelledTable, label_type

from .running import TOLERANCE, assert_agrees, run, session

START = datetime.datetime(2020, 1, 1)


def table(n=200, seed=0, *, unseen=False):
    rng = np.random.default_rng(seed)
    size = np.round(rng.normal(size=n), 1)
    pet = rng.choice(["cat", "dog", "newt", "été", "a, b"], n)
    many = rng.choice([f"v{k}" for k in range(400)], n) if n > 1000 else rng.choice(["x", "y", "z"], n)
    y = (size > 0).astype(int) + (pet == "cat")
    size[rng.random(n) < 0.05] = np.inf
    if unseen:
        pet[:40], many[:40] = "unicorn", "never seen"

    def gaps(values, type_=None):
        return pa.array(values, type_, mask=rng.random(n) < 0.1)

    return pa.table(
        {
            "size (cm)/é": gaps(size),
            "pet": gaps(pet),
            "many": gaps(many),
            "cost": gaps(rng.normal(size=n)),
            "label": gaps(rng.random(n) < 0.5),
            "born": gaps(
                [START + datetime.timedelta(hours=int(h)) for h in rng.integers(9999, size=n)], pa.timestamp("us")
            ),
            "y": pa.array(np.array(["low", "middle", "high"])[y]),
        }
    )


def tree_of(rows):
    """Return a model that is fitted at once."""
    schema, labels = Schema.learn(rows, target="y"), LabelledTable.of(rows, "y").labels
    tree = RejectOption(DecisionTreeClassifier(max_depth=8, min_samples_leaf=3, random_state=0), calibration=None)
    return TableModel(schema, tree.fit(schema.encode(rows), labels), label_type(rows["y"], "y"))


@pytest.mark.parametrize(
    ("model", "tolerance"),
    [
        ("lr", TOLERANCE),
        ("ce", TOLERANCE),
        pytest.param("hgb", TOLERANCE, marks=pytest.mark.slow),
        pytest.param("ova+hin", 1e-4, marks=pytest.mark.slow),
    ],
)
def test_a_table_with_everything(model, tolerance):
    fitted = fit_table(table(), "y", model=model)
    assert_agrees(fitted, table(seed=1, unseen=True), tolerance)


def test_inputs_are_named_like_the_columns_unless_the_graph_needs_the_name():
    fitted = tree_of(table())
    inputs = {value.name: value.type for value in session(fitted).get_inputs()}
    assert inputs == {
        "size (cm)/é": "tensor(double)",
        "pet": "tensor(string)",
        "many": "tensor(string)",
        "column_cost": "tensor(double)",
        "column_label": "tensor(double)",
        "born": "tensor(double)",
    }
    assert [value.name for value in session(fitted).get_overridable_initializers()] == ["cost"]


def test_more_categories_than_codes_share_one():
    rows = table(1500, seed=3)
    fitted = tree_of(rows)
    assert next(column for column in fitted.schema.columns if column.name == "many").other
    assert_agrees(fitted, table(400, seed=4, unseen=True))
    new = table(50, seed=5)
    odd = new.set_column(2, "many", pa.array(["never seen"] * 50))
    assert_agrees(fitted, odd)
    gone = new.set_column(2, "many", pa.array([None] * 50, pa.string()))
    assert_agrees(fitted, gone)


def test_the_empty_text_is_missing_unless_it_is_a_category():
    rows = pa.table({"word": ["", "a", "b"] * 40, "y": [0, 1, 2] * 40})
    fitted = tree_of(rows)
    assert_agrees(fitted, rows)
    assert run(fitted, rows)["label"].tolist() == [0, 1, 2] * 40


def test_a_table_of_numbers_is_one_matrix_with_infinities_and_numbers_too_large_as_gaps():
    rng = np.random.default_rng(0)
    columns = {name: np.round(rng.normal(size=200), 1) for name in "abc"}
    rows = pa.table({**columns, "y": pa.array(columns["a"] > 0.3)})
    fitted = tree_of(rows)
    assert [value.name for value in session(fitted).get_inputs()] == ["features"]
    new = np.column_stack(list(columns.values()))
    new[:25, 0], new[25:50, 0], new[50:90, 1] = np.inf, 1e31, -np.inf
    found = session(fitted).run(["label", "reject", "confidence"], {"features": new})
    decision = fitted.decide(pa.table(dict(zip("abc", new.T, strict=True))))
    assert found[0].dtype == np.bool_
    np.testing.assert_array_equal(found[0], decision.label == 1)
    np.testing.assert_array_equal(found[1], decision.reject)
    np.testing.assert_allclose(found[2], decision.confidence, rtol=0, atol=TOLERANCE)


def test_labels_have_the_type_of_the_column():
    rows = pa.table({"word": ["a", "b"] * 50})
    for labels, kind in (([7, -(2**62)], np.int64), ([True, False], np.bool_), (["x", "y"], np.object_)):
        fitted = tree_of(rows.append_column("y", pa.array(labels * 50)))
        found = run(fitted, rows)["label"]
        assert found.dtype == kind
        assert found.tolist() == labels * 50


def test_a_frame_given_to_a_blend_itself():
    pandas = pytest.importorskip("pandas")
    rows, new = (one.to_pandas().replace([np.inf, -np.inf], np.nan) for one in (table(), table(seed=1, unseen=True)))
    auto = AutoClassifier(("logistic regression", "gradient boosting"), cv=2, time_budget=None, random_state=0)
    model = RejectOption(auto).fit(rows.drop(columns="y"), rows["y"])
    new = new.drop(columns="y")
    assert isinstance(new, pandas.DataFrame)
    assert_agrees(model, new)
    frozen = RejectOption(FrozenEstimator(model.estimator_)).fit(rows.drop(columns="y"), rows["y"])
    assert_agrees(frozen, new)
    nested = RejectOption(FrozenEstimator(model)).fit(rows.drop(columns="y"), rows["y"])
    with pytest.raises(ExportError, match="as a part of another estimator"):
        onnx_model(nested)


def test_the_metadata_names_columns_and_categories():
    proto = onnx_model(tree_of(table()))
    props = {entry.key: entry.value for entry in proto.metadata_props}
    assert '"size (cm)/é"' in props["columns"]
