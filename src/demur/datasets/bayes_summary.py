"""What the Bayes-optimal rule achieves on a known distribution: the figures, and their Monte Carlo estimate."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from demur.rules import Chow

if TYPE_CHECKING:
    from demur.datasets.gaussian_classes import GaussianClasses

__all__ = ["BayesSummary", "Estimate", "by_monte_carlo"]

BLOCK = 2**19
"""Numbers held in memory at a time, per array."""


class Estimate(NamedTuple):
    """A number and its error: the standard error of a Monte Carlo mean, or an estimate of a quadrature error.

    Examples
    --------
    >>> print(Estimate(0.123456789, 0.00012))
    0.123457 ± 0.0001
    """

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.6g} ± {self.error:.1g}"


@dataclass(frozen=True)
class BayesSummary:
    """What the Bayes-optimal rule (Chow's, with the true posterior) achieves at one cost.

    Parameters
    ----------
    cost : float
        The price c of one rejection.
    risk : Estimate
        The smallest 0-1-c risk that any classifier with a reject option can reach, E[min(1 - max eta, c)].
    rejection_rate, coverage : Estimate
        The share of examples that are declined, and the share that are answered.
    accepted_accuracy : Estimate
        The share of right answers among those given; NaN where nothing is accepted.
    method : {"quadrature", "monte_carlo"}
        How the figures were obtained, hence what their errors mean.
    """

    cost: float
    risk: Estimate
    rejection_rate: Estimate
    coverage: Estimate
    accepted_accuracy: Estimate
    method: Literal["quadrature", "monte_carlo"]


def by_monte_carlo(gaussians: "GaussianClasses", rule: Chow, *, n_draws: int, seed: Any) -> BayesSummary:
    """Average over ``n_draws`` random x. The label is not drawn: its average given x is the posterior."""
    rng = np.random.default_rng(seed)
    confidence = np.empty(n_draws)
    reject = np.empty(n_draws, dtype=bool)
    per_block = max(1, BLOCK // max(gaussians.means.shape))
    for start in range(0, n_draws, per_block):
        block = slice(start, min(start + per_block, n_draws))
        X, _ = gaussians.sample(n=block.stop - block.start, seed=rng)
        decision = rule.decide(gaussians.posterior(X))
        confidence[block], reject[block] = decision.confidence, decision.reject
    cost = float(rule.cost)
    rejection_rate = _mean(reject)
    return BayesSummary(
        cost=cost,
        risk=_mean(np.where(reject, cost, 1.0 - confidence)),
        rejection_rate=rejection_rate,
        coverage=Estimate(1.0 - rejection_rate.value, rejection_rate.error),
        accepted_accuracy=_mean(confidence[~reject]),
        method="monte_carlo",
    )


def _mean(values: Any) -> Estimate:
    if len(values) == 0:
        return Estimate(np.nan, np.nan)
    return Estimate(float(np.mean(values)), float(np.std(values) / np.sqrt(len(values))))
