"""A model with its columns, judged: one price, read in one place, in words, figures, JSON and on the page."""

import re
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from demur import Chow, CostMatrix, Coverage, RiskControl
from demur.cli.console import console, print_evaluation, print_fit
from demur.tabular import evaluate_table, fit_table, report_html

COSTS = [[0, 1, 0.3], [4, 0, 0.3]]
RULES = {
    "chow": Chow(0.3),
    "coverage": Coverage(0.8),
    "risk": RiskControl(0.3),
    "matrix": CostMatrix(COSTS),
    "none": None,
}


def sample(n_rows, seed):
    rng = np.random.default_rng(seed)
    size = rng.normal(size=n_rows)
    sick = rng.uniform(size=n_rows) < 1 / (1 + np.exp(-2 * size))
    return pa.table({"size": size, "y": np.where(sick, "sick", "well")})


@pytest.fixture(scope="module")
def models():
    table = sample(600, seed=0)
    return {name: fit_table(table, "y", model="lr", cost=0.2, rule=rule) for name, rule in RULES.items()}


@pytest.fixture(scope="module")
def new():
    return sample(400, seed=1)


def printed(evaluation):
    with console.capture() as caught:
        print_evaluation(evaluation, "on new rows")
    return " ".join(caught.get().split())


def page_text(evaluation):
    page = re.sub(r"<(script|style).*?</\1>", "", report_html(evaluation, "Title"), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split()).replace("\xa0", " ")


def test_an_explicit_rule_is_priced_by_its_own_cost(models, new):
    judged = evaluate_table(models["chow"], new)
    counts, found = judged.counts, judged.to_json()
    assert found["cost"] == 0.3
    assert found["figures"]["risk"]["estimate"] == pytest.approx((counts.n_wrong + 0.3 * counts.n_rejected) / 400)
    assert judged.headline().startswith("At cost 0.3, the model answers ")
    assert "a declined row 0.3" in printed(judged)
    for text in (printed(judged), page_text(judged)):
        assert "At cost 0.3, the model answers " in text
        assert not re.search(r"(cost|row) 0\.2\b", text)


@pytest.mark.parametrize("name", ["coverage", "risk", "matrix"])
def test_rules_without_a_price_have_none_anywhere(models, new, name):
    judged = evaluate_table(models[name], new)
    found = judged.to_json()
    assert found["cost"] is None
    assert found["cost_adjustable"] is False
    assert "risk" not in found["figures"]
    for text in (printed(judged), page_text(judged)):
        assert "At cost" not in text
        assert "declined row 0.2" not in text


@pytest.mark.parametrize("name", ["matrix", "coverage"])
def test_a_cost_for_a_rule_without_one_is_refused_in_words(models, new, name):
    with pytest.raises(ValueError, match="this model cannot decide for another cost: it decides by Co"):
        evaluate_table(models[name], new, cost=0.1)


def test_the_cost_by_the_matrix_is_first_in_every_place(models, new):
    judged = evaluate_table(models["matrix"], new)
    costs, true = np.array(COSTS), judged.true
    paid = np.where(judged.decision.reject, costs[true, 2], costs[true, judged.decision.label]).mean()
    found = judged.to_json()
    assert next(iter(found["figures"])) == "mean_cost"
    mean = found["figures"]["mean_cost"]
    assert mean["estimate"] == pytest.approx(paid)
    assert mean["low"] < paid < mean["high"]
    paid = mean["estimate"]  # the same to the last bit, which decides how it is rounded
    text = printed(judged)
    interval = f"{mean['low']:.4f} to {mean['high']:.4f}"
    assert text.index(f"Mean cost {paid:.4f} {interval}") < text.index("Coverage")
    assert f"each 100 rows cost {100 * paid:.4g}" in text
    page = page_text(judged)
    assert page.index(f"each 100 rows cost {100 * paid:.4g}") < page.index("Rows answered")
    assert page.index("Cost of 100 rows by the cost matrix") < page.index("Rows answered")


def test_the_guarantee_is_put_beside_what_is_seen(models, new):
    judged = evaluate_table(models["risk"], new)
    seen = judged.counts.n_wrong / judged.counts.n_answered
    words = f"at most 30.0 % of the answers wrong. Observed: {100 * seen:.1f} % of {judged.counts.n_answered:,}."
    for text in (printed(judged), page_text(judged), " ".join(judged.to_json()["sentences"])):
        assert words in text
    turned = new.set_column(1, "y", pa.array(np.where(np.array(new["y"]) == "sick", "well", "sick")))
    broken = evaluate_table(models["risk"], turned)
    assert broken.to_json()["guarantee"]["verdict"] == "broken"
    assert broken.to_json()["guarantee"]["chance"] < 1e-6
    assert "The guarantee is broken: if it held" in printed(broken)
    asked = evaluate_table(models["coverage"], new)
    assert "Target: at least 80.0 % of the rows answered. Observed: " in printed(asked)


def test_rows_without_a_label_are_told_and_rows_keep_their_numbers(models, new):
    labels = np.array(new["y"]).astype(object)
    labels[:3] = None
    judged = evaluate_table(models["none"], new.set_column(1, "y", pa.array(labels)))
    whole = evaluate_table(models["none"], new)
    assert judged.to_json()["n_unlabelled"] == 3
    for text in (printed(judged), page_text(judged)):
        assert "3 rows have no label and are left out." in text
    shared = [case.row for case in whole.worst_mistakes(1000) if int(case.row) > 3]
    assert [case.row for case in judged.worst_mistakes(1000)] == shared


def test_classes_and_notes_read_well():
    """A class called 2 with 166,795 rows does not read as 2,166,795, and one more note is not "1 more notes"."""
    facts = {
        "classes": {"2": 166_795, "7": 1},
        "rows": 166_796,
        "rows_without_label": 1,
        "model_in_words": "logistic regression",
    }
    aside = {f"column {k}": "note" for k in range(8)}
    schema = SimpleNamespace(describe=lambda: [f"note {k}" for k in range(9)], remarks={}, set_aside=aside)
    with console.capture() as caught:
        print_fit(SimpleNamespace(facts=facts, schema=schema, classifier=None), "data.csv", 1.0)
    words = " ".join(caught.get().split())
    assert "Classes and their rows: 2 (166,795), 7 (1)." in words
    assert "; 1 more without a label, left out." in words
    assert "Also not used or converted: 'column 7'." in words


def test_a_cost_that_can_move_does(models, new):
    judged = evaluate_table(models["none"], new, cost=0.05)
    assert (judged.cost, judged.cost_adjustable) == (0.05, True)
    assert judged.coverage < evaluate_table(models["none"], new).coverage
