"""Decisions of the population minimisers of the pairwise losses, on data with known class probabilities.

A trained network errs for two reasons: the minimiser of its loss may decide wrongly, and the network may not reach the
minimiser. Where eta(x) is known, the first can be examined separately: minimise the pointwise risk at every point, and
count. The rejector of the minimiser is positive iff the slope of the risk in r, at r = 0 and at the optimal class
scores, is negative (Theorem 4).
"""

from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from demur.array_types import Floats, Mask
from demur.losses import resolve
from demur.losses.pairwise import BetaSide, PairwiseLoss
from demur.paper.experiments import Experiment, SyntheticProtocol
from demur.paper.problems import gaussians_of, seed_for
from demur.theory import pointwise_risk
from demur.theory.examined_loss import ExaminedLoss
from demur.theory.theorem_four import rejector_slope

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
    """Return a percentage; 0 only if the count is zero."""
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
    slopes: dict[PairwiseLoss, Floats] = {}
    errors = {}
    for method in experiment.methods:
        loss = resolve(method.loss)
        if not isinstance(loss, PairwiseLoss) or len(method.betas) != 1:
            continue
        if loss not in slopes:
            slopes[loss] = slopes_at_zero(loss, eta)
        for cost in protocol.costs:
            beta = cast(BetaSide, method.betas[0])
            reject = rejects(replace(loss, beta=beta), slopes[loss], eta.shape[1], cost)
            best = eta.max(axis=1) <= 1 - cost
            errors[method.name, cost] = PopulationErrors(
                len(eta), int((~reject & best).sum()), int((reject & ~best).sum())
            )
    return errors


def slopes_at_zero(loss: PairwiseLoss, eta: Floats) -> Floats:
    """Return the part of the risk's slope in r at r = 0 that depends on neither the cost nor beta."""
    unit, rejecting = replace(loss, beta=1.0), _slope_of_rejecting(loss)
    parts = []
    for rows in torch.split(torch.from_numpy(np.ascontiguousarray(eta)), 5_000):
        slope = _slope_at_likely_scores(unit, rows)
        if slope is None:
            subject = ExaminedLoss.untried(unit, rows.shape[1], 0.5, symmetric=True)
            slope, _ = rejector_slope(subject, rows)
        parts.append(slope)
    return torch.cat(parts).numpy() - 0.5 * rejecting


def _slope_at_likely_scores(loss: PairwiseLoss, eta: Tensor) -> Tensor | None:
    """Return the slope in r at log eta, or at half of it, if the gradient in the class scores is zero there; else None.

    These are the minimisers of the logarithmic and of the exponential loss.
    """
    for factor in (1.0, 0.5):
        scores = torch.cat([factor * eta.log(), torch.zeros(len(eta), 1, dtype=eta.dtype)], -1).requires_grad_()
        (gradient,) = torch.autograd.grad(pointwise_risk(loss, scores, eta, 0.5).sum(), scores)
        if float(gradient[:, :-1].abs().max()) < 1e-10:
            return gradient[:, -1]
    return None


def _slope_of_rejecting(loss: PairwiseLoss) -> float:
    """Return psi'(0): the slope of c psi(beta r) at r = 0 is c beta times it."""
    zero = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss.psi_or_phi(zero).sum(), zero)
    return float(slope)


def rejects(loss: PairwiseLoss, answering: Floats, n_classes: int, cost: float) -> Mask:
    """Return where the minimiser rejects, given what :func:`slopes_at_zero` returns.

    Examples
    --------
    With two classes these losses are calibrated; with three the minimiser of this one rejects too much:

    >>> from demur.losses import get
    >>> loss, two, three = get("apc+log"), np.array([[0.81, 0.19], [0.79, 0.21]]), np.array([[0.82, 0.09, 0.09]])
    >>> rejects(loss, slopes_at_zero(loss, two), 2, 0.2), rejects(loss, slopes_at_zero(loss, three), 3, 0.2)
    (array([False,  True]), array([ True]))
    """
    beta = float(loss.beta_value(n_classes, cost))
    return answering + cost * beta * _slope_of_rejecting(loss) >= 0
