"""A fitted table model: laws of its answers."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from demur import CostMatrix
from demur.columns import TableError
from demur.tabular import evaluate_table, fit_table


def table_of(n=240, seed=0):
    rng = np.random.default_rng(seed)
    size, pet = rng.normal(size=n), rng.choice(["cat", "dog", "owl"], n)
    y = np.where(size + (pet == "dog") + rng.normal(size=n) * 0.5 > 0.3, "in", "out")
    return pa.table({"size": size, "pet": pet, "y": y})


@pytest.fixture(scope="module")
def table():
    return table_of()


@pytest.fixture(scope="module", params=["lr", "ce", "hgb"])
def model(request, table):
    return fit_table(table, "y", model=request.param)


def test_answers_do_not_depend_on_the_rows_beside_them(model, table):
    whole = model.answers(table)
    for start, length in ((0, 1), (17, 2), (100, 63), (5, 130)):
        alone, among = model.answers(table.slice(start, length)), whole.slice(start, length)
        assert alone.drop(["confidence"]).equals(among.drop(["confidence"]))
        np.testing.assert_allclose(alone["confidence"], among["confidence"], atol=1e-6)


def test_columns_may_stand_in_any_order_and_the_label_is_not_needed(model, table):
    assert model.answers(table.select(["pet", "size"])).equals(model.answers(table))


def test_missing_unseen_infinite_and_too_large_values_are_decided_the_same(model):
    odd = pa.table({"size": [None, float("inf"), -1e300, float("nan")], "pet": ["cat"] * 4})
    confidence = replace(model, novelty=None).answers(odd)["confidence"].to_pylist()
    assert len(set(confidence)) == 1
    assert 0.5 <= confidence[0] <= 1
    assert model.answers(odd)["reason"].to_pylist()[2] == "novel: size"
    assert model.answers(pa.table({"size": [0.0], "pet": ["newt"]})).num_rows == 1


def test_values_that_were_too_large_in_training_are_not_novel(table):
    filled = table.append_column("depth", pa.array(np.where(np.arange(table.num_rows) % 3, table["size"], -3.4e38)))
    model = fit_table(filled, "y", model="lr")
    assert model.decide(filled).novel.sum() == 0
    assert model.decide(filled.set_column(0, "size", pa.array([1e300] * table.num_rows))).novel.all()


def test_two_columns_of_one_name_are_refused(model, table):
    for call in (model.answers, lambda twice: fit_table(twice, "y"), lambda twice: evaluate_table(model, twice)):
        with pytest.raises(TableError, match="more than one column named 'size'"):
            call(table.append_column("size", table["size"]))


def test_a_higher_cost_never_declines_more(model, table):
    declined = [set(np.flatnonzero(model.decide(table, cost).reject)) for cost in (0.01, 0.1, 0.3)]
    assert declined[0] > declined[2]
    assert declined[0] >= declined[1] >= declined[2]


def test_a_cost_per_row(model, table):
    costs = np.where(np.arange(table.num_rows) % 2, 0.3, 0.01)
    mixed = model.decide(table, costs).reject
    np.testing.assert_array_equal(mixed[1::2], model.decide(table, 0.3).reject[1::2])
    np.testing.assert_array_equal(mixed[::2], model.decide(table, 0.01).reject[::2])


def test_the_confidence_of_a_cost_matrix_is_a_probability(table):
    model = fit_table(table, "y", model="lr", rule=CostMatrix([[0, 5, 0.5], [1, 0, 0.5]]))
    proba, answers = model.predict_proba(table), model.answers(table)
    label = np.searchsorted(model.classes, answers["first_choice"].to_pylist())
    np.testing.assert_array_equal(answers["confidence"].to_numpy(), proba[np.arange(len(proba)), label])
    assert (label != proba.argmax(axis=1)).any()  # the likeliest is not always the cheapest


def test_a_category_that_training_did_not_have_is_a_reason(model, table):
    odd = pa.table({"size": [3.0, 0.25, 3.0, None], "pet": ["newt", "newt", "cat", None]})
    answers = model.answers(odd, cost=0.05)
    for declined, reason in zip(*(answers[name].to_pylist()[:2] for name in ("rejected", "reason")), strict=True):
        assert reason in (("ambiguous; new category: pet", "novel: pet") if declined else ("new category: pet",))
    assert "new category" not in str(answers["reason"].to_pylist()[2:])
    assert model.answers(pa.table({"size": [-1.0], "pet": ["cat"]}))["reason"].to_pylist() in ([None], ["ambiguous"])


def test_predictions_and_the_report_show_one_confidence(table):
    for rule in (None, CostMatrix([[0, 1, 0.3], [1, 0, 0.3]])):
        model = fit_table(table, "y", model="lr", rule=rule)
        odd = pa.concat_tables([table, pa.table({"size": [1e9], "pet": ["cat"], "y": ["in"]})])
        judged = evaluate_table(model, odd)
        shown = model.answers(odd)["confidence"].to_numpy()
        np.testing.assert_array_equal(judged.answer_confidence, shown)
        assert shown[-1] == 0  # a novel row, however sure the probabilities look
        assert judged.reliability.n_rows.sum() == table.num_rows
        near = [case.row for case in judged.nearest_border(n=odd.num_rows)]
        assert str(odd.num_rows) not in near  # no price would have made it an answer
