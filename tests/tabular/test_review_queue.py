"""The review desk: exactly as many rows as it reads, the best ones, and a threshold that keeps the budget."""

import itertools

import numpy as np
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur import Coverage
from demur.errors import InputError
from demur.rules import CostMatrix
from demur.tabular import DecideOptions, decide_file, fit_table, rows_to_review, savings


@given(st.lists(st.sampled_from([-0.2, 0.0, 0.1, 0.3, 0.31]), min_size=1, max_size=9), st.data())
def test_no_other_choice_of_so_many_rows_saves_more(saves, data):
    budget = data.draw(st.integers(0, len(saves) + 1))
    chosen = rows_to_review(saves, budget)
    n = min(budget, len(saves))
    assert chosen.sum() == n
    best = max(sum(saves[k] for k in some) for some in itertools.combinations(range(len(saves)), n))
    assert np.sum(np.array(saves)[chosen]) == pytest.approx(best)
    for k in np.flatnonzero(chosen):  # of rows that tie, the earlier one
        assert all(chosen[j] for j in range(k) if saves[j] == saves[k])


@pytest.mark.parametrize(
    ("budget", "n"), [(0, 0), (0.1, 1), (0.29, 2), (0.3, 3), (0.999, 9), (1, 1), (10, 10), (99, 10)]
)
def test_a_share_is_rounded_down(budget, n):
    assert rows_to_review(np.arange(10.0), budget).sum() == n


@pytest.mark.parametrize("budget", [-1, 2.5, float("nan"), float("inf")])
def test_a_budget_that_is_none(budget):
    with pytest.raises(InputError, match="review budget"):
        rows_to_review([0.1], budget)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=500)
    return pyarrow.table({"a": (rng.normal(size=500) + 2 * y).round(1), "b": rng.normal(size=500), "y": y})


@pytest.fixture(scope="module")
def model(rows):
    return fit_table(rows, "y", model="lr", cost=0.2)


def test_what_a_review_saves_follows_the_rule(rows, model):
    """It is above zero exactly where the rule declines, and its size is a difference of mean costs."""
    saves = savings(model, rows)
    assert (saves > 0).tolist() == model.decide(rows).reject.tolist()
    assert savings(model, rows, 0.05) == pytest.approx(saves + 0.15)
    costs = np.array([[0, 1, 0.3], [5, 0, 0.4]])
    by_matrix = fit_table(rows, "y", model="lr", rule=CostMatrix(costs.tolist()))
    proba = by_matrix.predict_proba(rows)
    means = np.array([[sum(p[y] * costs[y, j] for y in range(2)) for j in range(3)] for p in proba])
    assert savings(by_matrix, rows) == pytest.approx(means[:, :2].min(axis=1) - means[:, 2])
    without = fit_table(rows, "y", model="lr", rule=Coverage(0.8))
    assert savings(without, rows) == pytest.approx(1 - without.predict_proba(rows).max(axis=1))


@pytest.mark.slow
def test_scores_that_are_no_probabilities_are_refused(rows):
    trained = fit_table(rows, "y", model="cs+hin")
    with pytest.raises(InputError, match="class probabilities"):
        savings(trained, rows)


@pytest.mark.parametrize(("name", "chunk_rows"), [("out.csv", 7), ("out.parquet", 500)])
def test_a_file_gets_exactly_the_rows_of_the_budget(rows, model, tmp_path, name, chunk_rows):
    pyarrow.csv.write_csv(rows, tmp_path / "new.csv")
    with (tmp_path / "new.csv").open("rb") as stream:
        source = stream if name == "out.csv" else tmp_path / "new.csv"
        options = DecideOptions(keep=["b"], strict=False, review_budget=60, chunk_rows=chunk_rows)
        total = decide_file(model, source, tmp_path / name, options)
    assert (total.rows, total.rejected) == (500, 60)
    reader = pyarrow.csv.read_csv if name == "out.csv" else pyarrow.parquet.read_table
    found = reader(tmp_path / name)
    saves = savings(model, rows)
    assert found["saves"].to_numpy() == pytest.approx(saves)
    assert found["rejected"].to_pylist() == rows_to_review(saves, 60).tolist()
    choice = found["first_choice"].to_pylist()
    expected = [None if no else one for no, one in zip(found["rejected"].to_pylist(), choice, strict=True)]
    assert found["prediction"].to_pylist() == expected


def test_rows_out_of_scope_are_worth_a_review():
    """The saving follows the decision, also where it is declined because it may belong to no class."""
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "none"])[rng.integers(3, size=600)]
    x = np.where(y == "a", 0.0, np.where(y == "b", 10.0, rng.uniform(20, 40, size=600)))
    table = pyarrow.table({"x": x + rng.normal(size=600), "y": y})
    found = fit_table(table, "y", model="lr", out_of_scope="none")
    saves, decision = savings(found, table), found.decide(table)
    assert decision.reject[y == "none"].mean() > 0.5
    assert (saves > 0).tolist() == decision.reject.tolist()
