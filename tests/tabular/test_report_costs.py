"""The costs of the report: whatever the script counts from the page is what the metrics give, ties included."""

import json
import re

import numpy as np
import pytest
from report_samples import free

from demur.metrics import CostCurve, accepted_accuracy, coverage
from demur.tabular import report_html
from demur.tabular.evaluation_figures import per_hundred, percent
from demur.tabular.html_report import cost_grid


@pytest.mark.parametrize("cost", [0.0, 0.2, 0.1234, 0.5, 0.7])
def test_the_chosen_cost_is_on_the_grid_and_every_step_is_a_decimal(cost):
    grid = cost_grid(cost)
    assert cost in grid
    assert (np.diff(grid) > 0).all()
    decimals = [float(f"{k * 5 // 1000}.{k * 5 % 1000:03d}") for k in range(101)]
    assert set(decimals) <= set(grid.tolist())
    assert grid[-1] == (0.5 if cost <= 0.5 else 0.995)


def test_the_page_says_at_each_cost_what_the_metrics_say():
    """Ties included: some rows lie exactly on the border of a cost of the grid."""
    evaluation = free(unknown=(3, 4))
    data = json.loads(re.search(r'id="data">(.*?)</script>', report_html(evaluation, "Costs"))[1])
    curve = CostCurve.from_confidence(evaluation.decision.confidence, evaluation.wrong)
    assert len(data["costs"]) == len(data["states"]) == 101
    for cost, state in zip(data["costs"][:-1], data["states"][:-1], strict=True):  # 1/2 is legal but warned of
        tiles = {name: value.replace("\xa0", " ") for name, value, _ in state["tiles"]}
        answers = evaluation.at(cost).decision.labels(range(4))
        assert tiles["risk"] == per_hundred(curve.risk_at(cost))
        assert tiles["coverage"] == percent(coverage(answers))
        assert tiles["accepted_accuracy"] == percent(accepted_accuracy(evaluation.true, answers))
        assert state["headline"].replace("\xa0", " ") == evaluation.at(cost).headline()
