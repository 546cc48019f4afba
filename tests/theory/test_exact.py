"""The many-digit formulas and the float64 code are two implementations of the same risks."""

import numpy as np
import pytest
import torch

from demur.losses import AdditivePairwise, MultiplicativePairwise, available, get
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Logistic, Squared, SquaredHinge
from demur.theory import minimise_pointwise_risk, pointwise_risk
from demur.theory.exact import exact_minimum, has_exact_form
from demur.theory.facts import examine
from demur.theory.search import Failure
from demur.theory.witness import _best_right

PAIRWISE = [get(name) for name in available() if isinstance(get(name), PairwiseLoss)]
OTHERS = [
    AdditivePairwise(Logistic(), Exponential(), beta=2.0),
    AdditivePairwise(SquaredHinge(), beta=3.0, alpha=0.7),
    MultiplicativePairwise(Squared(), Exponential(), beta=1.5),
]


@pytest.mark.parametrize("loss", PAIRWISE + OTHERS, ids=str)
def test_both_find_the_same_minimum(loss):
    eta = np.array([0.7, 0.3]) if loss.binary_only else np.array([0.6, 0.2, 0.1, 0.1])
    assert has_exact_form(loss, eta)
    target = torch.from_numpy(eta)
    scores = minimise_pointwise_risk(loss, target[None], 0.3)
    found = exact_minimum(loss, eta, 0.3, start=scores[0].tolist())
    assert float(found.risk) == pytest.approx(float(pointwise_risk(loss, scores[0], target, 0.3)), abs=1e-13)
    assert float(found.rejector) == pytest.approx(float(scores[0, -1]), abs=1e-8)
    assert found.gradient < 1e-45


@pytest.mark.parametrize("loss", PAIRWISE, ids=str)
def test_the_float64_risks_are_within_the_error_they_state(loss):
    eta = np.array([0.9, 0.1]) if loss.binary_only else np.array([0.9, 0.05, 0.05])
    facts = examine(loss, len(eta), 0.2)
    target = torch.from_numpy(eta)
    scores = minimise_pointwise_risk(loss, target[None], 0.2)
    decision = 1 if float(scores[0, -1]) <= 0 else -1
    exact = exact_minimum(loss, eta, 0.2, rejector=0.0, start=[*scores[0, :-1].tolist(), 0.0])
    if decision == 1:  # the minimiser rejects where Chow's rule answers: r = 0 is the best that answers
        value, exactly = _best_right(loss, facts, target, scores, 0.2)
        assert exactly
        assert value == pytest.approx(float(exact.risk), abs=1e-12 * (1 + value) * len(eta))
    else:
        assert float(exact.risk) >= float(pointwise_risk(loss, scores[0], target, 0.2))


def test_what_it_does_not_know_is_left_to_float64():
    assert not has_exact_form(get("ce"), np.array([0.5, 0.5]))
    assert not has_exact_form(get("apc+log"), np.array([0.8, 0.2, 0.0]))


def test_a_failure_that_does_not_stand_is_dropped():
    from demur.theory.witness import verify

    loss = get("ce")
    eta = torch.tensor([0.9, 0.1], dtype=torch.float64)
    made_up = Failure("false_reject", eta, eta.log(), 0.1, 1.0)
    assert verify(loss, examine(loss, 2, 0.2), made_up, 0.2) is None
