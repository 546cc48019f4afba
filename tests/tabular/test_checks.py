"""The verdict: what is worse is said, what chance explains is not, and every code has an entry in the documentation."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from demur import AutoClassifier, Chow, CostMatrix, RejectOption, RiskControl
from demur.tabular import Evaluation, TableModel, evaluate_table, fit_table
from demur.tabular.checks import CHECKS, Comparison, ignored_codes
from demur.tabular.evaluation_figures import ExpertEvaluation, mean_of, rows_needed

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "checks.md"


def judged(y, proba, cost=0.2, classes=None, **more):
    proba = np.asarray(proba, dtype=float)
    names = [f"c{k}" for k in range(proba.shape[1])] if classes is None else classes
    labels = [names[k] for k in y]
    given = {"classes": names, "cost": cost, "proba": proba, "cost_adjustable": True, **more}
    return Evaluation.of(labels, Chow(cost).decide(proba), **given)


def codes(result):
    return {one["code"] for one in result.findings}


def drawn(rng, n_rows, n_classes=3, sharpness=0.4):
    proba = rng.dirichlet(np.full(n_classes, sharpness), size=n_rows)
    return (proba.cumsum(axis=1) > rng.uniform(size=(n_rows, 1))).argmax(axis=1), proba


def test_every_code_has_its_entry_in_the_documentation():
    text = PAGE.read_text(encoding="utf-8")
    plain = " ".join(text.split())
    assert list(CHECKS) == sorted(CHECKS) == [f"DM{number:03}" for number in range(1, len(CHECKS) + 1)]
    assert text.count("\n## DM") == len(CHECKS)
    for one in CHECKS.values():
        assert f"({one.code.lower()})=\n## {one.code} {one.title} ({one.severity})\n" in text
        assert one.advice in plain


def test_a_good_model_is_better_than_both_baselines_and_calibrated():
    y, proba = drawn(np.random.default_rng(0), 4000)
    result = judged(y, proba)
    assert [one.verdict for one in result.compared] == ["better", "better"]
    assert result.findings == []
    assert "Calibrated" in result.verdict[-1]
    found = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert found["checks"] == []
    assert found["verdict"][0]["difference"]["high"] < 0


def test_worse_than_a_baseline():
    y = np.zeros(400, dtype=int)
    timid = judged(y, np.full((400, 2), [0.6, 0.4]))  # right, and always declines
    assert {"DM001", "DM008", "DM016"} <= codes(timid)
    assert timid.compared[1].verdict == "the same"
    bold = judged(np.arange(400) % 2, np.full((400, 2), [0.95, 0.05]))
    assert {"DM002", "DM008", "DM012"} <= codes(bold)
    severities = [one["severity"] for one in bold.findings]
    assert severities == sorted(severities, key=["problem", "warning", "note"].index)
    assert "DM002" not in codes(Evaluation(**{**vars_of(bold), "ignored": ("DM002",)}))


def vars_of(result):
    return {name: getattr(result, name) for name in result.__dataclass_fields__}


def test_few_rows_are_inconclusive():
    y, proba = drawn(np.random.default_rng(1), 20, 2, 5.0)
    result = judged(y, proba)
    assert "DM003" in codes(result)
    assert any(one.verdict == "no significant difference" for one in result.compared)
    assert "on 20 rows" in " ".join(result.verdict)


@pytest.mark.parametrize("n_rows", [1, 2, 20])
@pytest.mark.parametrize("cost", [0.0, 0.3])
def test_extremes_have_a_verdict(n_rows, cost):
    for proba in (np.full((n_rows, 3), [1.0, 0.0, 0.0]), np.full((n_rows, 3), 1 / 3)):
        result = judged([0] * n_rows, proba, cost)
        assert all("nan" not in sentence for sentence in result.sentences())
        assert "DM013" in codes(result)  # two classes have no row
        json.dumps(result.to_json(), allow_nan=False)
        assert {"DM004", "DM005", "DM006", "DM012"}.isdisjoint(codes(result))


def test_a_single_model_and_a_starved_blend():
    y, proba = drawn(np.random.default_rng(2), 500, 2)
    good = judged(y, proba)
    worse = judged(y, proba[:, ::-1])
    result = judged(y, proba[:, ::-1], single=("lr", good.decision), starved="Starved by the time budget.")
    assert {"DM004", "DM007"} <= codes(result)
    assert "lr" in next(one["found"] for one in result.findings if one["code"] == "DM004")
    assert len(result.at(0.1).compared) == 2
    assert judged(y, proba, single=("lr", worse.decision)).compared[2].verdict == "better"
    assert judged(y, proba, single=("lr", good.decision)).compared[2].verdict == "the same"


def test_a_class_with_few_correct_answers_is_named():
    """Nearly all rows are answered correctly, and nearly none of those of the rare class."""
    proba = np.tile([0.99, 0.01], (1056, 1))
    proba[:50] = [0.5, 0.5]
    y = np.array([1] * 56 + [0] * 1000)
    found = next(one for one in judged(y, proba, 0.1, ["well", "sick"]).findings if one["code"] == "DM005")
    assert found["found"] == "Class sick: 0 of 56 rows answered correctly, 50 declined, 6 answered wrongly."
    assert "DM005" not in codes(judged(y[54:70], proba[54:70], 0.1))  # two rows prove nothing
    many = np.repeat(np.arange(30), 60)
    proba = np.full((1800, 30), 0.001)
    proba[np.arange(1800), np.where(np.arange(1800) < 600, 29, many)] = 0.971
    words = next(one["found"] for one in judged(many, proba, 0.1).findings if one["code"] == "DM005")
    assert words.startswith("10 classes have less than half the share of correct answers of all rows: 'c0', 'c1', ")


def test_groups_and_guarantees():
    y, proba = drawn(np.random.default_rng(3), 900, 2, 0.2)
    y[:100] = 1 - proba[:100].argmax(axis=1)
    group = ["bad"] * 100 + ["good"] * 800
    assert "Group bad" in " ".join(judged(y, proba, group="site", group_of_row=group).sentences())
    broken = Evaluation.of(y, Chow(0.2).decide(proba), classes=[0, 1], proba=proba, rule=RiskControl(0.01))
    assert "DM009" in codes(broken)
    assert broken.compared == []  # no cost, nothing to compare


def test_a_cost_matrix_and_experts_are_compared_by_their_own_costs():
    costs = np.array([[0, 1, 0.3], [10, 0, 0.3]])
    y, proba = drawn(np.random.default_rng(4), 3000, 2)
    decision = CostMatrix(costs).decide(proba)
    result = Evaluation.of(y, decision, classes=[0, 1], proba=proba, rule=CostMatrix(costs))
    all_answered = result.compared[0].difference.estimate
    assert all_answered == pytest.approx(result.mean_cost.estimate - costs[y, decision.label].mean())
    assert result.compared[1].verdict == "better"
    right = np.array([[1.0]] * 30 + [[np.nan]] * 10)
    asking = ExpertEvaluation(
        ("nurse",), np.array([0.1]), np.array([0] * 20 + [-1] * 20), np.full((40, 1), 0.8),
        np.arange(40) >= 20, right,
    )  # fmt: skip
    decision = Chow(0.2).decide(np.full((40, 2), [0.9, 0.1]))
    result = Evaluation.of([1] * 20 + [0] * 20, decision, classes=[0, 1], asking=asking)
    assert [one.other for one in result.compared] == ["asking nobody", "always asking nurse"]
    assert result.compared[0].verdict == "better"
    assert result.compared[0].difference.estimate == pytest.approx(-0.45)


def test_more_novel_rows_than_false_alarms():
    y, proba = drawn(np.random.default_rng(5), 200, 2)
    many = judged(y, proba, cost_adjustable=False, false_alarms=(2.0, 400.0))
    for n_novel, is_found in ((0, False), (2, False), (40, True)):
        decision = many.decision.declining(np.arange(200) < n_novel)
        found = Evaluation(**{**vars_of(many), "decision": decision})
        assert ("DM011" in codes(found)) == is_found


def test_novel_rows_count_neither_in_the_mean_confidence_nor_as_evidence_of_calibration():
    result = judged((np.arange(400) % 10 == 0).astype(int), np.full((400, 2), [0.9, 0.1]))
    for n_novel, words in ((300, "Calibrated, as far as these rows show; the mean confidence is 90.0 %."), (310, None)):
        novel = Evaluation(**{**vars_of(result), "decision": result.decision.declining(np.arange(400) < n_novel)})
        assert [one for one in novel.verdict if "Calibrated" in one] == [words] * (words is not None)


def test_unknown_codes_are_refused():
    assert ignored_codes(" dm003 ,DM007,") == ["DM003", "DM007"]
    with pytest.raises(ValueError, match="there is no check 'DM999'"):
        ignored_codes("DM999")


def rates(sample, n_tables=200):
    """Return how often each check finds something."""
    found = [codes(sample(np.random.default_rng(seed))) for seed in range(n_tables)]
    return {code: np.mean([code in one for one in found]) for code in CHECKS}


@pytest.mark.slow
@pytest.mark.parametrize(("n_rows", "n_classes", "sharpness"), [(20, 2, 1.0), (200, 3, 0.4), (500, 15, 0.1)])
def test_a_calibrated_model_is_rarely_called_worse_or_miscalibrated(n_rows, n_classes, sharpness):
    found = rates(lambda rng: judged(*drawn(rng, n_rows, n_classes, sharpness)))
    assert max(found[code] for code in ("DM001", "DM002", "DM008")) <= 0.05  # its decisions are the best ones


@pytest.mark.slow
def test_equal_classes_and_groups_are_rarely_called_worse():
    def sample(rng):
        y = rng.integers(10, size=400)
        proba = np.full((400, 10), 0.01)
        answer = np.where(rng.uniform(size=400) < 0.3, y, (y + 1) % 10)
        proba[np.arange(400), answer] = 0.91
        return judged(y, proba, group="site", group_of_row=[str(one) for one in rng.integers(8, size=400)])

    found = rates(sample)
    assert max(found["DM005"], found["DM006"]) <= 0.05


@pytest.mark.slow
def test_models_that_differ_by_chance_are_rarely_called_different():
    def sample(rng):
        y = rng.integers(2, size=150)
        sides = []
        for _ in range(2):
            sure, right = rng.uniform(0.5, 1, size=150), rng.uniform(size=150) < 0.85
            first = np.where(right, y, 1 - y)
            sides.append(np.where(np.arange(2) == first[:, None], sure[:, None], 1 - sure[:, None]))
        return judged(y, sides[0], single=("other", judged(y, sides[1]).decision))

    assert rates(sample)["DM004"] <= 0.05


def table(n_rows=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n_rows)
    return pa.table(
        {
            "signal": rng.normal(size=n_rows) + 4 * y,
            "noise": rng.normal(size=n_rows),
            "colour": np.where(rng.uniform(size=n_rows) < 0.9, np.array(["blue", "red"])[y], "green"),
            "y": np.array(["no", "yes"])[y],
        }
    )


@pytest.fixture(scope="module")
def model():
    return fit_table(table(), "y", model="lr")


def test_importances_are_those_of_the_decision_cost(model):
    result = evaluate_table(model, table(seed=1), importances=True)
    names = list(result.importances)
    assert names[0] == "signal"
    assert set(names) == {"signal", "noise", "colour"}
    assert result.importances["signal"].low > 0
    noise = result.importances["noise"]
    assert noise.low <= 0 <= noise.high
    assert result.to_json()["importances"]["signal"]["estimate"] == result.importances["signal"].estimate
    assert evaluate_table(model, table(seed=1)).importances == {}
    assert result.at(0.1).importances == {}


@pytest.mark.slow
def test_a_blend_is_compared_with_its_best_member():
    rows = table(n_rows=150).to_pandas()
    blend = AutoClassifier(("lr", "et"), cv=2, n_jobs=1, random_state=0)
    model = TableModel.wrap(
        RejectOption(blend, cost=0.2, novelty=None).fit(rows.drop(columns="y"), rows["y"]), rows, target="y"
    )
    result = evaluate_table(model, table(seed=1))
    members = [one for one in model.classifier.estimator_.tried_ if one.weight]
    best = min(members, key=lambda one: one.log_loss)
    assert len(members) == 2
    assert result.single[0] == best.name
    assert result.compared[2].other == f"its best single model ({best.name})"
    assert model.classifier.estimator_.weights_ != (1.0,)  # the model itself is as it was


def test_a_comparison_leaves_out_rows_without_a_price():
    own, other = np.array([0.0, np.nan, 0.2]), np.array([1.0, 1.0, np.nan])
    found = Comparison.of("x", own, other, [-1, 1], 0.95)
    assert found.difference.estimate == -1


@pytest.mark.parametrize("seed", range(20))
def test_more_rows_are_needed_than_were_inconclusive(seed):
    rng = np.random.default_rng(seed)
    found = mean_of(rng.choice([-0.2, 0.0, 0.8], p=[0.5, 0.38, 0.12], size=200), [-0.2, 0.8])
    rows = int(re.search(r"about ([\d,]+) rows", rows_needed(found, 200))[1].replace(",", ""))
    assert (rows >= 200) == (found.low <= 0 <= found.high)


def test_a_difference_of_rounding_size_is_no_difference():
    words = Comparison.of("another", np.array([0.3, 0.1]), np.array([0.1 + 0.2, 0.1]), [-1.0, 1.0], 0.95).sentence
    assert "100 rows cost 0.0 " in words
