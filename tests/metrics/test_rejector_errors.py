"""False rejects and false accepts, against a known posterior."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.metrics import false_accept_rate, false_reject_rate
from demur.rules import Chow


def two_classes(confidence: list[float]) -> np.ndarray:
    top = np.asarray(confidence)
    return np.stack([top, 1 - top], axis=1)


ETA = two_classes([0.95, 0.9, 0.7, 0.6, 0.8])  # at c = 0.2: accept, accept, reject, reject, tie


@pytest.mark.parametrize(
    ("reject", "false_reject", "false_accept"),
    [
        ([False, False, True, True, True], 0, 0),
        ([False, False, True, True, False], 0, 0),
        ([True, False, True, True, True], 0.2, 0),
        ([True, True, True, True, True], 0.4, 0),
        ([False, False, False, False, False], 0, 0.4),
        ([True, True, False, False, False], 0.4, 0.4),
    ],
)
def test_values_by_hand(reject, false_reject, false_accept):
    assert false_reject_rate(reject, ETA, 0.2) == pytest.approx(false_reject)
    assert false_accept_rate(reject, ETA, 0.2) == pytest.approx(false_accept)


def test_weights_and_one_cost_per_example():
    reject = [True, False]
    eta = two_classes([0.8, 0.8])
    assert false_reject_rate(reject, eta, [0.3, 0.1]) == pytest.approx(0.5)
    assert false_accept_rate(reject, eta, [0.3, 0.1]) == pytest.approx(0.5)
    assert false_reject_rate(reject, eta, [0.3, 0.1], sample_weight=[3, 1]) == pytest.approx(0.75)
    assert false_accept_rate(reject, eta, [0.3, 0.1], sample_weight=[3, 1]) == pytest.approx(0.25)


@given(st.lists(st.floats(0.5, 1), min_size=1, max_size=20), st.floats(0.01, 0.49), st.data())
def test_laws(confidence, cost, data):
    eta = two_classes(confidence)
    bayes = Chow(cost).decide(eta).reject
    assert false_reject_rate(bayes, eta, cost) == 0
    assert false_accept_rate(bayes, eta, cost) == 0
    n = len(confidence)
    reject = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    mistakes = false_reject_rate(reject, eta, cost) + false_accept_rate(reject, eta, cost)
    clear = np.abs(eta.max(axis=1) - (1 - cost)) > 1e-12
    assert mistakes == pytest.approx(np.mean((reject != bayes) & clear))


@pytest.mark.parametrize("cost", [0.05, 0.1, 0.2, 0.3, 0.4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_survive_rounding(cost, dtype):
    eta = two_classes([1 - cost]).astype(dtype)
    for reject in ([True], [False]):
        assert false_reject_rate(reject, eta, cost) == 0
        assert false_accept_rate(reject, eta, cost) == 0


@pytest.mark.parametrize(
    ("reject", "eta", "cost", "error", "message"),
    [
        ([1, 0], [[0.9, 0.1]] * 2, 0.2, TypeError, "decision_reject must be a boolean mask, .* got dtype int64"),
        ([True], [[0.9, 0.1]] * 2, 0.2, ValueError, r"must have shape \(2,\), one per row of proba, got \(1,\)"),
        ([[True], [False]], [[0.9, 0.1]] * 2, 0.2, ValueError, r"must have shape \(2,\), .* got \(2, 1\)"),
        (np.zeros(0, bool), np.zeros((0, 2)), 0.2, ValueError, r"with at least one row, got \(0, 2\)"),
        ([True], [[0.9, 0.9]], 0.2, ValueError, "probabilities must sum to 1"),
        ([True], [[0.9, 0.1]], 1.0, ValueError, r"cost must be in \[0, 1\)"),
        ([True], [[0.9, 0.1]], [0.1, 0.2], ValueError, r"one per row, of shape \(1,\); got shape \(2,\)"),
    ],
)
def test_bad_input(reject, eta, cost, error, message):
    for rate in (false_reject_rate, false_accept_rate):
        with pytest.raises(error, match=message):
            rate(reject, eta, cost)
