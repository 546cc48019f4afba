"""The 0-1-c loss and the figures around it: laws, values by hand, errors."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.costs import CostWarning
from demur.metrics import accepted_accuracy, coverage, rejection_rate, zero_one_c_loss, zero_one_c_risk

N_CLASSES = 3
COSTS = st.floats(0, 0.49)


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels 0 to 2, and predictions with -1 for a rejection."""
    n = draw(st.integers(1, 30))
    y_true = draw(st.lists(st.integers(0, N_CLASSES - 1), min_size=n, max_size=n))
    y_pred = draw(st.lists(st.integers(-1, N_CLASSES - 1), min_size=n, max_size=n))
    return np.array(y_true), np.array(y_pred)


@given(predictions(), COSTS)
def test_the_risk_is_wrong_answers_plus_paid_rejections(data, cost):
    y_true, y_pred = data
    accuracy = accepted_accuracy(y_true, y_pred)
    wrong = 0.0 if math.isnan(accuracy) else (1 - accuracy) * coverage(y_pred)
    expected = wrong + cost * rejection_rate(y_pred)
    assert zero_one_c_risk(y_true, y_pred, cost=cost) == pytest.approx(expected)


@given(predictions(), COSTS)
def test_the_risk_is_the_mean_of_the_loss_and_the_loss_takes_three_values(data, cost):
    y_true, y_pred = data
    loss = zero_one_c_loss(y_true, y_pred, cost=cost)
    assert zero_one_c_risk(y_true, y_pred, cost=cost) == pytest.approx(loss.mean())
    for true, pred, value in zip(y_true, y_pred, loss, strict=True):
        assert value == (cost if pred == -1 else float(true != pred))


@given(predictions())
def test_coverage_and_rejection_rate_add_to_one(data):
    _, y_pred = data
    assert coverage(y_pred) + rejection_rate(y_pred) == pytest.approx(1)


@given(predictions(), COSTS)
def test_without_rejection_the_risk_is_the_error_rate_whatever_the_cost(data, cost):
    y_true, y_pred = data[0], np.abs(data[1])
    assert zero_one_c_risk(y_true, y_pred, cost=cost) == pytest.approx(np.mean(y_true != y_pred))
    assert coverage(y_pred) == 1


@given(predictions(), COSTS, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(data, cost, random):
    y_true, y_pred = data
    order = list(range(len(y_true)))
    random.shuffle(order)
    assert zero_one_c_risk(y_true[order], y_pred[order], cost=cost) == pytest.approx(
        zero_one_c_risk(y_true, y_pred, cost=cost)
    )
    np.testing.assert_allclose(accepted_accuracy(y_true[order], y_pred[order]), accepted_accuracy(y_true, y_pred))


@given(predictions(), COSTS, st.data())
def test_a_whole_weight_repeats_the_row(data, cost, drawn):
    y_true, y_pred = data
    n = len(y_true)
    weights = np.array(drawn.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any)))
    repeated_true, repeated_pred = np.repeat(y_true, weights), np.repeat(y_pred, weights)
    assert zero_one_c_risk(y_true, y_pred, cost=cost, sample_weight=weights) == pytest.approx(
        zero_one_c_risk(repeated_true, repeated_pred, cost=cost)
    )
    assert coverage(y_pred, sample_weight=weights) == pytest.approx(coverage(repeated_pred))
    assert rejection_rate(y_pred, sample_weight=weights) == pytest.approx(rejection_rate(repeated_pred))
    np.testing.assert_allclose(
        accepted_accuracy(y_true, y_pred, sample_weight=weights), accepted_accuracy(repeated_true, repeated_pred)
    )


NAMES = {
    "strings": (["ant", "bee", "cat"], "reject"),
    "strings with a number as marker": (["ant", "bee", "cat"], -1),
    "strings with None": (["ant", "bee", "cat"], None),
    "strings with NaN": (["ant", "bee", "cat"], math.nan),
    "floats": ([0.5, 1.5, 2.5], -0.5),
    "floats with NaN": ([0.5, 1.5, 2.5], math.nan),
    "numbers with a string as marker": ([7, 8, 9], "ask a doctor"),
    "classes that include -1": ([-1, 0, 1], 99),
    "booleans and a number": ([False, True, 2], -1),
}


@pytest.mark.parametrize("container", [list, tuple, lambda labels: np.array(labels, dtype=object)])
@pytest.mark.parametrize(("names", "marker"), NAMES.values(), ids=NAMES.keys())
@settings(max_examples=8)
@given(data=predictions(), cost=COSTS)
def test_the_names_of_classes_and_marker_do_not_matter(names, marker, container, data, cost):
    y_true, y_pred = data
    renamed_true = container([names[y] for y in y_true])
    renamed_pred = container([marker if y == -1 else names[y] for y in y_pred])
    renamed = zero_one_c_loss(renamed_true, renamed_pred, cost=cost, reject_label=marker)
    np.testing.assert_array_equal(renamed, zero_one_c_loss(y_true, y_pred, cost=cost))
    assert coverage(renamed_pred, reject_label=marker) == coverage(y_pred)


def test_values_by_hand():
    y_true, y_pred = [0, 1, 2, 2, 1], [0, 1, 1, -1, -1]
    np.testing.assert_array_equal(zero_one_c_loss(y_true, y_pred, cost=0.25), [0, 0, 1, 0.25, 0.25])
    assert zero_one_c_risk(y_true, y_pred, cost=0.25) == pytest.approx(0.3)
    assert coverage(y_pred) == pytest.approx(0.6)
    assert rejection_rate(y_pred) == pytest.approx(0.4)
    assert accepted_accuracy(y_true, y_pred) == pytest.approx(2 / 3)
    assert accepted_accuracy(y_true, y_pred, sample_weight=[1, 1, 6, 5, 5]) == pytest.approx(2 / 8)


def test_each_example_may_have_its_own_cost():
    assert zero_one_c_loss([0, 1], [-1, -1], cost=[0.1, 0.4]).tolist() == [0.1, 0.4]
    assert zero_one_c_risk([0, 1], [-1, -1], cost=[0.1, 0.4], sample_weight=[3, 1]) == pytest.approx(0.175)


def test_the_accuracy_of_no_answers_is_undefined_and_silent():
    assert math.isnan(accepted_accuracy([0, 1], [-1, -1]))
    assert math.isnan(accepted_accuracy([0, 1], [-1, 1], sample_weight=[1, 0]))


def test_a_cost_must_be_legal_and_fit():
    with pytest.raises(ValueError, match=r"cost must be in \[0, 1\), got 1.5"):
        zero_one_c_risk([0, 1], [0, 1], cost=1.5)
    with pytest.raises(ValueError, match=r"cost must be one number or one per row, of shape \(2,\); got shape \(3,\)"):
        zero_one_c_risk([0, 1], [0, 1], cost=[0.1, 0.2, 0.3])
    with pytest.warns(CostWarning):
        zero_one_c_risk([0, 1], [0, 1], cost=0.7)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"sample_weight must have shape \(2,\), one per example, got \(1,\)"),
        ([1.0, -2.0], "sample_weight must be finite and not negative, got -2"),
        ([0.0, 0.0], "sample_weight is zero for every example"),
        ([1.0, math.nan], "sample_weight must be finite"),
    ],
)
def test_bad_weights(weights, message):
    for measure in (
        lambda: zero_one_c_risk([0, 1], [0, 1], cost=0.2, sample_weight=weights),
        lambda: accepted_accuracy([0, 1], [0, 1], sample_weight=weights),
        lambda: coverage([0, 1], sample_weight=weights),
        lambda: rejection_rate([0, 1], sample_weight=weights),
    ):
        with pytest.raises(ValueError, match=message):
            measure()
