"""The costs of the report: whatever the script counts from the page is what the metrics give, ties included."""

import base64

import numpy as np
import pytest
from report_samples import free

from demur import Chow
from demur.metrics import CostCurve
from demur.tabular.html_report import cells, cost_grid, n_rejections


@pytest.mark.parametrize("cost", [0.0, 0.2, 0.1234, 0.5, 0.7])
def test_the_chosen_cost_is_on_the_grid_and_every_step_is_a_decimal(cost):
    grid = cost_grid(cost)
    assert cost in grid
    assert (np.diff(grid) > 0).all()
    decimals = [float(f"{k * 5 // 1000}.{k * 5 % 1000:03d}") for k in range(101)]
    assert set(decimals) <= set(grid.tolist())
    assert grid[-1] == (0.5 if cost <= 0.5 else 0.995)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_row_is_rejected_exactly_where_chow_rejects_it(dtype):
    grid = cost_grid(0.123)
    rng = np.random.default_rng(0)
    largest = np.concatenate([rng.uniform(0.5, 1, 200), 1 - grid]).astype(dtype)  # the second half are ties
    proba = np.column_stack([largest, 1 - largest])
    found = n_rejections(largest, grid)
    for position, cost in enumerate(grid[grid < 0.5]):
        np.testing.assert_array_equal(found > position, Chow(cost).decide(proba).reject)


def test_the_page_counts_what_the_cost_curve_does():
    evaluation = free()
    grid = cost_grid(0.2)
    found = n_rejections(evaluation.decision.confidence, grid)
    curve = CostCurve.from_confidence(evaluation.decision.confidence, evaluation.wrong)
    for position in np.flatnonzero(grid < 0.5):  # from 1/2 on a cost is legal but warned of
        rejected = found > position
        risk = np.where(rejected, grid[position], evaluation.wrong).mean()
        assert risk == pytest.approx(curve.risk_at(grid[position]), abs=1e-12)
    np.testing.assert_array_equal(found > int(np.searchsorted(grid, 0.2)), evaluation.decision.reject)


def test_cells_hold_every_row_once():
    evaluation = free(unknown=(3, 4))
    rejections = n_rejections(evaluation.decision.confidence, cost_grid(0.2))
    packed = cells(evaluation, rejections)
    true, answer, first, count = (
        np.frombuffer(base64.b64decode(packed[name]), dtype=dtype)
        for name, dtype in (("true", "<u2"), ("answer", "<u2"), ("rejections", "<u2"), ("count", "<u4"))
    )
    unpacked = np.repeat(np.column_stack([true, answer, first]), count, axis=0)
    rows = np.column_stack([evaluation.true, evaluation.decision.label, rejections])
    np.testing.assert_array_equal(unpacked, rows[np.lexsort(rows.T[::-1])])
    assert int(count[true != answer].sum()) == evaluation.wrong.sum()
