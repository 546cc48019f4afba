"""Evaluation: every figure equals the metric of that name, for any labels, and what is odd is said."""

import json
import math

import numpy as np
import pytest

from demur import Chow, CostMatrix, Decision
from demur.metrics import (
    RiskCoverage,
    accepted_accuracy,
    confusion_matrix,
    coverage,
    precision_recall_f1,
    zero_one_c_risk,
)
from demur.tabular import Evaluation

NAMES = np.array(["ant", "bee", "cow", "doe"])


def problem(n_rows=400, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    proba = rng.dirichlet(np.full(n_classes, 0.4), size=n_rows)
    return proba, np.array([rng.choice(n_classes, p=row) for row in proba])


def evaluate(cost=0.2, **given):
    proba, y = problem()
    return Evaluation.of(
        NAMES[y], Chow(cost).decide(proba), classes=NAMES, cost=cost, proba=proba, cost_adjustable=True, **given
    )


@pytest.mark.parametrize("cost", [0.0, 0.05, 0.2, 0.45])
def test_figures_are_the_metrics(cost):
    proba, y = problem()
    decision = Chow(cost).decide(proba)
    result = evaluate(cost)
    answers = decision.labels(NAMES, "reject")
    assert result.risk == pytest.approx(zero_one_c_risk(NAMES[y], answers, cost=cost, reject_label="reject"), abs=1e-12)
    assert result.coverage == coverage(answers, reject_label="reject")
    expected = accepted_accuracy(NAMES[y], answers, reject_label="reject")
    assert result.accepted_accuracy == pytest.approx(expected, abs=1e-15, nan_ok=True)
    matrix = confusion_matrix(NAMES[y], answers, labels=NAMES, reject_label="reject")
    np.testing.assert_array_equal(result.confusion, matrix)
    scores = precision_recall_f1(NAMES[y], answers, labels=NAMES, reject_label="reject")
    shares = [one.intervals for one in result.by_class]
    for name in ("precision", "recall"):
        np.testing.assert_allclose([one[name].estimate for one in shares], getattr(scores, name))
    np.testing.assert_allclose([1 - one["rejection_rate"].estimate for one in shares], scores.coverage)
    curve = RiskCoverage.from_confidence(proba.max(axis=1), proba.argmax(axis=1) != y)
    assert (result.risk_coverage.aurc, result.risk_coverage.augrc) == (curve.aurc, curve.augrc)
    assert result.risk_if_all_answered == pytest.approx((proba.argmax(axis=1) != y).mean())


def test_another_cost_needs_no_new_decision():
    moved = evaluate(0.2).at(0.07)
    fresh = evaluate(0.07)
    np.testing.assert_array_equal(moved.decision.reject, fresh.decision.reject)
    assert moved.sentences() == fresh.sentences()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_another_cost_breaks_ties_as_chow_does(dtype):
    tenths = np.arange(5, 11) / 10
    proba = np.column_stack([tenths, 1 - tenths]).astype(dtype)
    result = Evaluation.of(
        np.zeros(6, dtype=int), Chow(0.25).decide(proba), classes=[0, 1], cost=0.25, proba=proba, cost_adjustable=True
    )
    for cost in (0.1, 0.2, 0.3, 0.4):
        np.testing.assert_array_equal(result.at(cost).decision.reject, Chow(cost).decide(proba).reject)


def test_intervals_hold_their_figures_and_repeat():
    first, again = evaluate().figures, evaluate().figures
    areas = {"augrc", "aurc", "aurc_ranked"}
    assert set(first) == {"risk", "coverage", "accepted_accuracy", "risk_if_all_answered", *areas}
    for name, found in first.items():
        assert found.low < found.estimate < found.high, name
        assert (found.low, found.high) == (again[name].low, again[name].high)
    result = evaluate()
    assert first["risk"].estimate == pytest.approx(result.risk)
    assert first["accepted_accuracy"].estimate == pytest.approx(result.accepted_accuracy)
    half = 1.96 * math.sqrt(result.coverage * (1 - result.coverage) / result.n_rows)
    assert first["coverage"].high - result.coverage == pytest.approx(half, rel=0.2)


def test_a_label_that_is_no_class_is_an_error_when_answered():
    proba = [[0.9, 0.1], [0.55, 0.45], [0.1, 0.9]]
    result = Evaluation.of(["ant", "yak", "yak"], Chow(0.2).decide(proba), classes=["ant", "bee"], cost=0.2)
    assert (result.n_unknown, result.counts.n_wrong, result.counts.n_answered) == (2, 1, 2)
    assert result.confusion.tolist() == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    found = {one["code"]: one["found"] for one in result.findings}
    assert found["DM014"].startswith("2 rows have labels that the model does not know")
    assert result.worst_mistakes()[0].true == "none of the classes"
    assert [one.n_rows for one in result.by_class] == [1, 0]
    assert math.isnan(result.by_class[1].intervals["recall"].estimate)


def test_plain_data_is_json_also_where_nothing_is_answered():
    nothing = evaluate(0.0)
    assert nothing.counts.n_answered == 0
    for result in (nothing, evaluate(0.3)):
        data = json.loads(json.dumps(result.to_json(), allow_nan=False))
        assert data["n_rows"] == 400
        assert data["confusion"] == result.confusion.tolist()
        assert sum(data["calibration"]["n_rows"]) == 400
        assert data["counts"]["answered"] + data["counts"]["rejected"] == 400
    assert nothing.to_json()["figures"]["accepted_accuracy"] == {"estimate": None, "low": None, "high": None}


def test_without_probabilities_only_what_needs_them_is_missing():
    decision = Decision.from_acceptance(np.array([0, 1, 1]), np.array([2.5, -0.5, np.nan]))
    result = Evaluation.of([0, 1, 0], decision, classes=[0, 1], cost=0.1)
    assert result.reliability is None
    assert result.to_json()["calibration"] is None
    assert result.nearest_border()[0].second is None
    assert [case.row for case in result.nearest_border()] == ["2", "3"]  # undefined acceptance comes last
    assert result.risk_coverage.coverage.tolist() == pytest.approx([1 / 3, 2 / 3, 1])


def test_cases_are_the_right_rows_in_the_right_order():
    proba = [[0.95, 0.05], [0.79, 0.21], [0.6, 0.4], [0.1, 0.9], [0.15, 0.85]]
    result = Evaluation.of(
        ["b", "a", "a", "a", "b"], Chow(0.2).decide(proba), classes=["a", "b"], cost=0.2, proba=proba,
        rows={"age": [1, 2, 3, 4, 5], "sex": list("fmfmf")}, row_numbers=["p1", "p2", "p3", "p4", "p5"],
    )  # fmt: skip
    assert [case.row for case in result.nearest_border()] == ["p2", "p3"]
    worst = result.worst_mistakes()
    assert [(c.row, c.true, c.answer, c.confidence, c.second, dict(c.columns)) for c in worst] == [
        ("p1", "b", "a", 0.95, "b", {"age": 1, "sex": "f"}),
        ("p4", "a", "b", 0.9, "a", {"age": 4, "sex": "m"}),
    ]
    assert worst[0].second_confidence == pytest.approx(0.05)
    assert len(result.worst_mistakes(n=1)) == 1


def test_rows_may_be_a_table_of_arrow_or_columns_of_pandas():
    pyarrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    columns = {"age": [10, 20, 30], "name": ["x", None, "z"]}
    frame = pandas.DataFrame(columns, index=[7, 8, 9])
    for rows in (columns, pyarrow.table(columns), {name: frame[name] for name in frame}):
        decision = Chow(0.2).decide([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4]])
        result = Evaluation.of([0, 0, 0], decision, classes=[0, 1], cost=0.2, rows=rows)
        assert result.worst_mistakes()[0].columns["age"] == 20
        assert result.nearest_border()[0].columns["name"] == "z"


@pytest.mark.parametrize(
    ("classes", "y"),
    [([3, 7], [3, 7, 9]), ([1.0, 2.0], [1, 2, 3]), ([False, True], [False, True, 2]), (["a", 1], ["a", 1, "2"])],
)
def test_classes_of_any_kind(classes, y):
    result = Evaluation.of(y, Chow(0.2).decide([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]), classes=classes, cost=0.2)
    assert result.counts.n_wrong == 1
    assert result.n_unknown == 1


def test_other_rules_are_evaluated_at_the_given_cost():
    proba, y = problem(n_classes=2)
    triage = CostMatrix([[0, 1, 0.3], [10, 0, 0.3]]).decide(proba)
    result = Evaluation.of(y, triage, classes=[0, 1], cost=0.3, proba=proba)
    assert result.risk == pytest.approx(zero_one_c_risk(y, triage.labels([0, 1]), cost=0.3))
    np.testing.assert_allclose(result.answer_confidence, proba[np.arange(len(y)), triage.label])
    with pytest.raises(ValueError, match=r"fit or decide again for cost 0\.1"):
        result.at(0.1)


def test_bad_input_is_one_clear_error():
    proba, y = problem(n_rows=20)
    good = {"classes": NAMES, "cost": 0.2, "proba": proba}
    decision = Chow(0.2).decide(proba)
    for wrong, message in [
        ({"cost": 1.5}, r"cost must be in \[0, 1\)"),
        ({"proba": proba[:10]}, r"proba must have shape \(20, 4\)"),
        ({"classes": NAMES[:3], "proba": None}, "must hold a position from 0 to 2"),
        ({"classes": ["a", "a", "b", "c"]}, "distinct"),
    ]:
        with pytest.raises(ValueError, match=message):
            Evaluation.of(NAMES[y], decision, **(good | wrong))
    with pytest.raises(ValueError, match="none that is missing"):
        Evaluation.of([*NAMES[y][:-1], None], decision, **good)
    with pytest.raises(ValueError, match=r"must hold a position"):
        Evaluation.of(NAMES[y][:5], decision, **good)


def test_the_mean_cost_by_a_matrix_is_the_first_figure_with_its_interval():
    proba, y = problem(n_classes=2)
    costs = np.array([[0, 1, 0.3], [10, 0, 0.4]])
    decision = CostMatrix(costs).decide(proba)
    result = Evaluation.of(y, decision, classes=[0, 1], proba=proba, rule=CostMatrix(costs))
    by_hand = np.where(decision.reject, costs[y, 2], costs[y, decision.label]).mean()
    found = result.to_json()
    assert next(iter(found["figures"])) == "mean_cost"
    mean = found["figures"]["mean_cost"]
    assert mean["estimate"] == pytest.approx(by_hand)
    assert 0 <= mean["low"] < by_hand < mean["high"] <= 10
    all_answered, all_declined = (one["difference"]["estimate"] for one in found["verdict"])
    assert all_answered == pytest.approx(by_hand - costs[y, decision.label].mean())
    assert all_declined == pytest.approx(by_hand - costs[y, 2].mean())
    assert "risk" not in found["figures"]
    assert found["cost"] is None
    assert found["sentences"][0].startswith("By its cost matrix, the model answers ")
    assert f"each 100 rows cost {100 * by_hand:.4g}." in found["sentences"][0]


def test_rows_without_a_label_are_counted_in_words_and_figures():
    proba, y = problem()
    result = Evaluation.of(NAMES[y], Chow(0.2).decide(proba), classes=NAMES, cost=0.2, n_unlabelled=1)
    assert "1 row has no label and is left out." in result.sentences()
    assert result.to_json()["n_unlabelled"] == 1
    assert not [words for words in evaluate().remarks() if "label" in words]
