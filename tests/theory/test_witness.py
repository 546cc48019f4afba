"""The many-digit formulas and the float64 code are two implementations of the same risks."""

import numpy as np
import pytest
import torch

from demur.losses import AdditivePairwise, MultiplicativePairwise, available, get
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Logistic, Squared, SquaredHinge
from demur.theory import minimise_pointwise_risk, pointwise_risk
from demur.theory.bayes import as_target
from demur.theory.examined_loss import examine
from demur.theory.witness import best_with_decision, exact_minimum, has_exact_form

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
    risk, slope = exact_minimum(loss, eta, 0.3, scores[0].tolist())
    assert float(risk) == pytest.approx(float(pointwise_risk(loss, scores[0], target, 0.3)), abs=1e-13)
    assert slope < 1e-45


@pytest.mark.parametrize("loss", PAIRWISE, ids=str)
def test_the_float64_risks_are_those_of_many_digits(loss):
    eta = np.array([0.9, 0.1]) if loss.binary_only else np.array([0.9, 0.05, 0.05])
    subject = examine(loss, as_target(0.2, len(eta)))
    target = torch.from_numpy(eta)
    scores = minimise_pointwise_risk(loss, target[None], 0.2)
    exact, _ = exact_minimum(loss, eta, 0.2, [*scores[0, :-1].tolist(), 0.0])
    if float(scores[0, -1]) <= 0:  # the minimiser rejects where Chow's rule answers: r = 0 is the best that answers
        found = best_with_decision(subject, target, 0, scores[0], scores)
        value = found.risk * subject.scale.unit + subject.scale.offset
        assert value == pytest.approx(float(exact), abs=1e-9)
    else:
        assert float(exact) >= float(pointwise_risk(loss, scores[0], target, 0.2))


def test_what_it_does_not_know_is_left_to_float64():
    assert not has_exact_form(get("ce"), np.array([0.5, 0.5]))
    assert not has_exact_form(get("apc+log"), np.array([0.8, 0.2, 0.0]))
