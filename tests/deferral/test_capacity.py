"""Capacity: exact assignments within the limits, and loads that stay within their limits."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from scipy.stats import binom
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from demur import Capacity, Decision, DeferOption
from demur.errors import InputError, InputTypeError


def decision_of(gains):
    """Two classes, of which the first costs 1/2, and experts who save so much."""
    gains = np.asarray(gains, dtype=float)
    costs = np.column_stack([np.full(len(gains), 0.5), np.full(len(gains), 0.6), 0.5 - gains])
    zero = np.zeros(len(gains))
    return Decision(zero.astype(int), zero.astype(bool), zero, zero, zero.astype(int) - 1, costs)


def best_total(gains, room):
    n, j = gains.shape
    once, loads = sparse.kron(sparse.eye(n), np.ones((1, j))), sparse.kron(np.ones((1, n)), sparse.eye(j))
    result = linprog(
        -gains.ravel(), A_ub=sparse.vstack([once, loads]), b_ub=np.r_[np.ones(n), room], bounds=(0, 1), method="highs"
    )
    return -result.fun


def total(gains, ask):
    asked = np.flatnonzero(ask >= 0)
    return gains[asked, ask[asked]].sum()


@pytest.mark.parametrize("decimals", [None, 1], ids=["different rows", "ties"])
@pytest.mark.parametrize("seed", range(6))
def test_the_assignment_is_the_best_of_all(seed, decimals):
    rng = np.random.default_rng(seed)
    n, j = int(rng.integers(5, 150)), int(rng.integers(1, 6))
    gains = 0.3 * rng.normal(size=(n, j)) + 0.2 * rng.normal(size=(n, 1))
    gains = gains if decimals is None else gains.round(decimals)
    names = [f"e{i}" for i in range(j)]
    room = rng.integers(0, n // 2 + 1, j)
    found = Capacity(dict(zip(names, room, strict=True))).assign(decision_of(gains), names)
    assert (np.bincount(found.ask + 1, minlength=j + 1)[1:] <= room).all()
    assert total(gains, found.ask) == pytest.approx(best_total(gains, room), abs=1e-9)
    assert (found.reject == (found.ask >= 0)).all()


def test_many_rows_and_chains_of_moves():
    rng = np.random.default_rng(0)
    for digits in (6, 1):
        gains = (0.3 * rng.normal(size=(600, 3))).round(digits)
        found = Capacity({"a": 50, "b": 0.1, "c": 7}).assign(decision_of(gains), "abc")
        assert total(gains, found.ask) == pytest.approx(best_total(gains, [50, 60, 7]), abs=1e-9)


def test_limits_that_do_not_bind_change_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    model = DeferOption(LogisticRegression(), {"nurse": 0.05, "doctor": 0.1})
    model.fit(X, y, answers=np.column_stack([np.where(X[:, 1] > 0, y, 1 - y), y]))
    free = model.decide(X)
    assert (model.decide(X, capacity=Capacity({"nurse": 400})).ask == free.ask).all()
    tight = model.decide(X, capacity=Capacity({"doctor": 5}))
    assert (tight.ask == 1).sum() == 5 < (free.ask == 1).sum()
    assert (model.route(X, capacity=Capacity({"doctor": 0})) != "doctor").all()
    said = model.predict(X, capacity=Capacity({"doctor": 0, "nurse": 0}))
    assert (said != model.reject_label_).all()


@pytest.mark.parametrize("limits", [{"a": 0.1}, {"a": 0.1, "b": 0.2}, {"a": 0.05, "b": 0.3, "c": 0.1}])
@pytest.mark.slow
def test_loads_of_a_stream_exceed_their_limits_no_more_often_than_delta(limits):
    """100 calibration samples at delta = 0.2; with that probability at most, some long-run load is above its limit."""
    rng = np.random.default_rng(0)
    names = list("abc")

    def draw(n):
        return 0.1 + 0.2 * rng.normal(size=(n, 3)) + 0.2 * rng.normal(size=(n, 1))

    new = decision_of(draw(8000))
    capacity = Capacity(limits, delta=0.2)
    loads = []
    for _ in range(100):
        fitted = clone(capacity).fit(decision_of(draw(400)), names)
        ask = fitted.assign(new, names).ask
        loads.append([(ask == names.index(name)).mean() for name in limits])
    exceeded = (np.array(loads) > list(limits.values())).any(axis=1).mean()
    assert exceeded <= 0.2 + 3 * np.sqrt(0.2 * 0.8 / 100)
    assert np.mean(loads, axis=0).max() > 0.04  # and the room is used


def test_a_stream_with_ties_stays_within_its_limits():
    rng = np.random.default_rng(1)
    exceeded = []
    for _ in range(100):
        fitted = Capacity({"a": 0.2}, delta=0.1).fit(decision_of(rng.integers(-3, 4, (200, 1)) / 10), "a")
        exceeded.append((fitted.assign(decision_of(rng.integers(-3, 4, (5000, 1)) / 10), "a").ask == 0).mean() > 0.2)
    assert np.mean(exceeded) <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / 100)


@pytest.mark.parametrize("spread", [0.0, 0.02], ids=["equal", "nearly equal"])
def test_experts_who_can_replace_each_other_all_reach_their_limits(spread):
    """What the first may not take goes to the next: each load is, in the mean, all that so many rows can show."""
    rng, limits = np.random.default_rng(0), np.array([0.05, 0.1, 0.3])
    gains = np.abs(rng.normal(size=(10_000, 1))) + spread * rng.normal(size=(10_000, 3))
    loads = []
    for _ in range(10):
        stream = Capacity(dict(zip("abc", limits.tolist(), strict=True)), delta=0.1)
        stream.fit(decision_of(gains[rng.integers(10_000, size=1000)]), "abc")
        decision = stream.assign(decision_of(gains), "abc")
        loads.append(np.bincount(decision.ask + 1, minlength=4)[1:] / len(gains))
        assert (decision.reject == (decision.acceptance < 0)).all()
    parts = 0.1 * (1 / limits - 1) ** 2 / ((1 / limits - 1) ** 2).sum()
    assert (np.mean(loads, axis=0) > 0.97 * (binom.ppf(parts, 900, limits) - 1) / 900).all()


def test_a_stream_without_limits_changes_nothing():
    decision = decision_of(np.random.default_rng(0).normal(size=(50, 2)))
    free = Capacity({"a": 50, "b": 50}).assign(decision, "ab")
    for limits in ({}, {"a": 50}):
        assert (Capacity(limits).fit(decision, "ab", rows_per_period=50).assign(decision, "ab").ask == free.ask).all()


def test_an_expert_with_a_limit_of_zero_is_never_asked():
    gains = np.random.default_rng(0).normal(size=(300, 2))
    for limits in ({"a": 0.0}, {"a": 0.0, "b": 0.2}, {"a": 0.0, "b": 0.0}):
        fitted = Capacity(limits).fit(decision_of(gains), "ab")
        assert (fitted.assign(decision_of(gains), "ab").ask != 0).all()


def test_small_limits_get_more_of_delta():
    """Each load, of the limit: with delta in equal parts that of the small limit would be 0.76, at most."""
    gains = np.abs(np.random.default_rng(0).normal(size=(1000, 2)))
    limits = {"a": 0.05, "b": 0.2}
    ask = Capacity(limits, delta=0.1).fit(decision_of(gains), "ab").assign(decision_of(gains[100:]), "ab").ask
    loads = np.bincount(ask + 1, minlength=3)[1:] / len(ask) / list(limits.values())
    assert (loads > [0.7, 0.8]).all()


def test_a_limit_in_rows_needs_the_rows_per_period():
    gains = np.random.default_rng(0).normal(size=(500, 1))
    with pytest.raises(InputError, match="give rows_per_period"):
        Capacity({"a": 40}).fit(decision_of(gains), "a")
    by_count = Capacity({"a": 40}).fit(decision_of(gains), "a", rows_per_period=400)
    assert by_count.scarcity_ == Capacity({"a": 0.1}).fit(decision_of(gains), "a").scarcity_


@pytest.mark.parametrize(
    ("limits", "error", "message"),
    [
        ({"a": -1}, InputError, "must be a whole number of rows, or a share"),
        ({"a": 1.5}, InputError, "must be a whole number of rows, or a share"),
        ({"a": float("nan")}, InputError, "must be a whole number of rows, or a share"),
        ({"a": "many"}, InputTypeError, "must be a number, got 'many'"),
        (["a"], InputTypeError, "limits must be a mapping"),
        ({"z": 3}, InputError, "there is a limit for 'z'; the experts are a"),
    ],
)
def test_invalid_limits_raise_clear_errors(limits, error, message):
    with pytest.raises(error, match=message):
        Capacity(limits).assign(decision_of([[0.1]]), "a")


def test_other_invalid_calls_raise_clear_errors():
    few = decision_of(np.ones((10, 1)))
    with pytest.raises(InputError, match="10 calibration rows cannot show"):
        Capacity({"a": 0.01}).fit(few, "a")
    with pytest.raises(InputError, match="rows_per_period must be at least 1, got 0"):
        Capacity({"a": 3}).fit(few, "a", rows_per_period=0)
    with pytest.raises(InputError, match="delta must be in"):
        Capacity({"a": 3}, delta=0)
    with pytest.raises(InputError, match="does not hold the costs"):
        Capacity({"a": 3}).assign(Decision(*np.zeros((4, 3))), "a")
    with pytest.raises(InputError, match="was fitted for a, not for b"):
        Capacity({"a": 0.5}).fit(few, "a").assign(few, "b")


@pytest.mark.parametrize(
    ("limits", "n_rows", "enough"),
    [({"a": 0.9, "b": 0.05}, 60, 66), ({"a": 0.2, "b": 0.1}, 0, 35), ({"a": 0.5, "b": 0.4}, 1, 8)],
)
def test_the_number_of_rows_in_the_message_is_enough_for_all_limits(limits, n_rows, enough):
    """With 59 rows 0.95^59 is below 0.05, the part of delta that b gets; a tenth more are for the prices."""
    with pytest.raises(InputError, match=rf"loads stay within their limits .* give at least {enough}\."):
        Capacity(limits).fit(decision_of(np.ones((n_rows, 2))), "ab")
    Capacity(limits).fit(decision_of(np.ones((enough, 2))), "ab")


@pytest.mark.parametrize("delta", [0.05, 0.1])
@pytest.mark.parametrize("limits", [(0.2, 0.1), (0.3, 0.1, 0.05), (0.3, 0.02), (0.2, 0.2, 0.2)])
def test_no_other_parts_of_delta_raise_the_smallest_load_by_much(limits, delta):
    """The mean loads are (k + 1) / (n + 1). The largest possible smallest one uses all rows, and equal shares."""
    rng, n = np.random.default_rng(0), 2000
    shares, names = np.array(limits), "abc"[: len(limits)]
    gains = decision_of(np.abs(rng.normal(size=(n, len(limits)))))
    fitted = Capacity(dict(zip(names, limits, strict=True)), delta=delta).fit(gains, names)
    new = decision_of(np.abs(rng.normal(size=(100_000, len(limits)))))
    loads = np.bincount(fitted.assign(new, names).ask + 1, minlength=len(limits) + 1)[1:] / 100_000
    parts = np.linspace(0, 1, 2001)[:, None] * shares
    possible = binom.cdf(np.floor(parts * n), n, shares).sum(axis=1) <= delta
    best = ((np.floor(parts[possible][-1] * n) + 1) / (n + 1) / shares).min()
    spread = 3 * np.sqrt((1 - shares) / shares / n)  # of one calibration sample
    assert (loads / shares > best - 0.02 - spread).all()
