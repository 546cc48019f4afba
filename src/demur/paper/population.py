"""Decisions of the population minimisers of the pairwise losses, on data with known class probabilities.

A trained network errs for two reasons: the minimiser of its loss may decide wrongly, and the network may not reach the
minimiser. Where eta(x) is known, the first kind can be counted separately, by minimising the pointwise risk at every
point. The rejector of the minimiser is positive iff the slope of the risk in r, at r = 0 and at the optimal class
scores, is negative (Theorem 4).
"""

from dataclasses import replace
from typing import NamedTuple, cast

import torch

from demur.array_types import Floats, Mask
from demur.losses import resolve
from demur.losses.pairwise import BetaSide, PairwiseLoss
from demur.margins import Exponential
from demur.paper.experiments import Experiment, SyntheticProtocol
from demur.paper.problems import gaussians_of, seed_for
from demur.theory import pointwise_risk

MOST_POINTS = 60_000
"""Largest number of test points."""


class PopulationErrors(NamedTuple):
    """Disagreements of population minimisers with the Bayes-optimal decisions.

    Parameters
    ----------
    n : int
        Number of points.
    false_accepts : int
        Points that are accepted although max eta <= 1 - c.
    false_rejects : int
        Points that are rejected although max eta > 1 - c.
    """

    n: int
    false_accepts: int
    false_rejects: int

    def __str__(self) -> str:
        return f"{_share(self.false_accepts, self.n)} / {_share(self.false_rejects, self.n)}"


def _share(count: int, n: int) -> str:
    """Return a percentage; "0" only if the count is zero."""
    if not count:
        return "0"
    percent = 100 * count / n
    return f"{percent:.1f}" if percent >= 0.05 else "<0.1"


def population_errors(experiment: Experiment) -> dict[tuple[str, float], PopulationErrors]:
    """Return the errors of the pairwise methods of a synthetic experiment on its test points, by name and cost.

    Examples
    --------
    >>> from demur.paper.experiments import SYNTHETIC
    >>> few = SYNTHETIC.with_settings({"n_test": "500", "costs": "0.2"}).only(methods=("APC+exp+acc", "APC+exp+rej"))
    >>> found = population_errors(few)
    >>> found["APC+exp+acc", 0.2].false_rejects, found["APC+exp+rej", 0.2].false_accepts
    (0, 0)
    """
    protocol = experiment.protocol
    assert isinstance(protocol, SyntheticProtocol)
    gaussians = gaussians_of(protocol)
    X, _ = gaussians.sample(n=protocol.n_test, seed=seed_for(protocol.seed, "synthetic", "test"))
    eta = gaussians.posterior(X[:MOST_POINTS])
    errors = {}
    for method in experiment.methods:
        if len(method.betas) == 1:
            loss = replace(cast(PairwiseLoss, resolve(method.loss)), beta=cast(BetaSide, method.betas[0]))
            slopes = slopes_at_zero(loss, eta)
            for cost in protocol.costs:
                reject, best = rejects(loss, slopes, eta.shape[1], cost), eta.max(axis=1) <= 1 - cost
                counts = int((~reject & best).sum()), int((reject & ~best).sum())
                errors[method.name, cost] = PopulationErrors(len(eta), *counts)
    return errors


def slopes_at_zero(loss: PairwiseLoss, eta: Floats) -> Floats:
    """Return the part of the risk's slope in r at r = 0 that depends on neither the cost nor beta.

    The class scores of the minimiser are log eta, or half of it with the exponential loss.
    """
    points = torch.from_numpy(eta)
    classes = points.log() * (0.5 if isinstance(loss.phi, Exponential) else 1.0)
    scores = torch.cat([classes, torch.zeros_like(points[:, :1])], -1).requires_grad_()
    (gradient,) = torch.autograd.grad(pointwise_risk(replace(loss, beta=1.0), scores, points, 0.5).sum(), scores)
    assert float(gradient[:, :-1].abs().max()) < 1e-10
    return gradient[:, -1].numpy() - 0.5 * _slope_of_rejecting(loss)


def _slope_of_rejecting(loss: PairwiseLoss) -> float:
    """Return psi'(0): the slope of c psi(beta r) at r = 0 is c beta times it."""
    return float(loss.psi_or_phi.slope(torch.zeros(1, dtype=torch.float64)))


def rejects(loss: PairwiseLoss, answering: Floats, n_classes: int, cost: float) -> Mask:
    """Return where the minimiser rejects, given what :func:`slopes_at_zero` returns.

    Examples
    --------
    With two classes these losses are calibrated; with three the minimiser of this one rejects too much:

    >>> import numpy as np
    >>> from demur.losses import get
    >>> loss, two, three = get("apc+log"), np.array([[0.81, 0.19], [0.79, 0.21]]), np.array([[0.82, 0.09, 0.09]])
    >>> rejects(loss, slopes_at_zero(loss, two), 2, 0.2), rejects(loss, slopes_at_zero(loss, three), 3, 0.2)
    (array([False,  True]), array([ True]))
    """
    beta = float(loss.beta_value(n_classes, cost))
    return answering + cost * beta * _slope_of_rejecting(loss) >= 0
