"""Population minimisers on the known Gaussians: the sign that decides is that of the minimiser itself."""

import numpy as np
import pytest
import torch

from demur.datasets import paper_gaussians
from demur.losses import get
from demur.paper.experiments import SYNTHETIC
from demur.paper.population import PopulationErrors, population_errors, rejects, slopes_at_zero
from demur.theory import minimise_pointwise_risk


@pytest.fixture(scope="module")
def eta():
    gaussians = paper_gaussians()
    X, _ = gaussians.sample(n=300, seed=5)
    eta = gaussians.posterior(X)
    return eta[eta.max(axis=1) < 0.999]  # nearer to certainty the minimum is too far out for the slow way


@pytest.mark.parametrize("beta", ["acc", "rej"])
@pytest.mark.parametrize("name", ["apc+log", "apc+exp", "mpc+log"])
def test_the_sign_of_the_slope_is_that_of_the_minimising_rejector(name, beta, eta):
    loss = get(name, beta=beta)
    scores = minimise_pointwise_risk(loss, torch.from_numpy(eta), 0.2)
    clear = scores[:, -1].abs().numpy() > 1e-6
    assert clear.sum() > 50
    found = rejects(loss, slopes_at_zero(loss, eta), eta.shape[1], 0.2)
    assert np.array_equal(found[clear], (scores[:, -1] <= 0).numpy()[clear])


def test_each_beta_errs_on_its_own_side_only():
    found = population_errors(SYNTHETIC.with_settings({"n_test": "3000"}))
    assert len(found) == 6 * 5
    for (method, _), errors in found.items():
        own, other = errors.false_accepts, errors.false_rejects
        own, other = (own, other) if method.endswith("acc") else (other, own)
        assert own > 0
        assert other == 0
        assert errors.n == 3000


def test_none_at_all_is_told_from_hardly_any():
    assert str(PopulationErrors(60_000, 0, 3)) == "0 / <0.1"
    assert str(PopulationErrors(1000, 125, 1)) == "12.5 / 0.1"
