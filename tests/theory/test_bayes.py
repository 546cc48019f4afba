"""Chow's rule is the best of all decisions, and its risk the least."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.theory import bayes_decision, bayes_risk


def risk_of(label, reject, eta, cost):
    """The 0-1-c risk of Eq. 2, by summing over the classes."""
    return sum(p * (cost if reject else float(label != y)) for y, p in enumerate(eta))


@given(st.integers(2, 6), st.floats(0.01, 0.49), st.integers(0, 10_000))
def test_no_decision_beats_the_bayes_decision(n_classes, cost, seed):
    eta = np.random.default_rng(seed).dirichlet(np.full(n_classes, 0.7))
    best = min(risk_of(label, reject, eta, cost) for label in range(n_classes) for reject in (False, True))
    chow = bayes_decision(eta, cost)
    assert risk_of(int(chow.label), bool(chow.reject), eta, cost) == pytest.approx(best)
    assert bayes_risk(eta, cost) == pytest.approx(best)
