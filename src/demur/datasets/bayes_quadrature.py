r"""The Bayes-optimal figures of Gaussian classes in one or two dimensions, by deterministic quadrature.

The region where Chow's rule answers class k is convex: there :math:`\sum_{j \ne k} e^{\ell_j - \ell_k} < c / (1 - c)`,
with log-odds linear in x. So a ray from a point inside leaves the region once, the mass of a Gaussian up to
there is a formula, and a trapezoid sum over all directions converges exponentially.
"""

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from demur.datasets.bayes_summary import BayesSummary, Estimate
from demur.rules import Chow

if TYPE_CHECKING:
    from demur.datasets.gaussian_classes import GaussianClasses

__all__ = ["by_quadrature"]

Floats = NDArray[np.float64]

REACH = 8.0
"""Standard deviations looked at around a mean; 1e-15 of the mass lies beyond."""
SEARCH_POINTS = 81
"""Per axis, in the search for a point inside a region."""
FEWEST_RAYS, MOST_RAYS = 2**8, 2**13
SETS = 4
"""The rays split into this many interleaved sets. Their largest deviation from the whole is the stated error."""
TARGET = 1e-6
FLOOR = 1e-10
"""No error below this is claimed, however well the sets agree."""


def by_quadrature(gaussians: "GaussianClasses", rule: Chow) -> BayesSummary:
    """Integrate over each class's region, doubling the rays until a quarter of them agrees with all of them.

    Parameters
    ----------
    gaussians : GaussianClasses
        With one or two features and unit variance.
    rule : Chow
        Its cost is a single number.
    """
    n_classes, n_features = gaussians.means.shape
    insides = [(k, inside) for k in range(n_classes) if (inside := _point_inside(gaussians, rule, k)) is not None]
    n_rays = FEWEST_RAYS if n_features == 2 else 2
    while True:
        joint = np.zeros((SETS, n_classes, n_classes))
        for k, inside in insides:
            joint[:, :, k] = gaussians.prior * _mass_of_region(gaussians, rule, k, inside, n_rays)
        right = _whole(joint.trace(axis1=1, axis2=2))
        covered = _whole(joint.sum(axis=(1, 2)))
        if max(right.error, covered.error) <= TARGET or n_rays == MOST_RAYS:
            return _summarise(float(rule.cost), right, covered)
        n_rays *= 2


def _whole(sets: Floats) -> Estimate:
    return Estimate(float(sets.mean()), float(np.abs(sets - sets.mean()).max()) + FLOOR)


def _summarise(cost: float, right: Estimate, covered: Estimate) -> BayesSummary:
    rejected = 1.0 - covered.value
    accuracy = Estimate(np.nan, np.nan)
    if covered.value > 0:
        share = right.value / covered.value
        accuracy = Estimate(share, min(1.0, (right.error + share * covered.error) / covered.value))
    return BayesSummary(
        cost=cost,
        risk=Estimate(covered.value - right.value + cost * rejected, right.error + (1.0 - cost) * covered.error),
        rejection_rate=Estimate(rejected, covered.error),
        coverage=covered,
        accepted_accuracy=accuracy,
        method="quadrature",
    )


def _answers(gaussians: "GaussianClasses", rule: Chow, k: int, X: Floats) -> NDArray[np.bool_]:
    decision = rule.decide(gaussians.posterior(X))
    return np.asarray(~decision.reject & (decision.label == k))


def _point_inside(gaussians: "GaussianClasses", rule: Chow, k: int) -> Floats | None:
    """Return the centroid of the grid points where class k is answered, or None where there is no such region.

    The centroid lies inside because the region is convex. A region that slips through the grid is looked for on
    finer grids, around the point that comes nearest to meeting both conditions: eta_k above 1 - c, and above every
    other class. The smaller of the two ratios has no second local maximum, since its level sets are convex.
    """
    centre, reach = gaussians.means[k], REACH
    for _ in range(4):
        axis = np.linspace(-reach, reach, SEARCH_POINTS)
        grid = centre + np.array(list(product(axis, repeat=gaussians.means.shape[1])))
        inside = _answers(gaussians, rule, k, grid)
        if inside.any():
            distance = ((grid[inside] - gaussians.means[k]) ** 2).sum(axis=1)
            return np.average(grid[inside], axis=0, weights=np.exp((distance.min() - distance) / 2))
        eta = gaussians.posterior(grid)
        with np.errstate(divide="ignore"):  # a class may have probability 0 in floating point
            against_others = np.log(eta[:, k]) - np.log(np.delete(eta, k, axis=1).max(axis=1))
            nearness = np.minimum(np.log(eta[:, k]) - np.log1p(-rule.cost), against_others)
        centre, reach = grid[nearness.argmax()], 2 * (axis[1] - axis[0])
    return None


def _mass_of_region(gaussians: "GaussianClasses", rule: Chow, k: int, inside: Floats, n_rays: int) -> Floats:
    """Return each class's probability of the region of k, shape (SETS, n_classes): once from each set of rays."""
    rays = _directions(len(inside), n_rays)
    length = _length_inside(gaussians, rule, k, inside, rays)[:, None]
    offset = inside - gaussians.means
    along = rays @ offset.T
    start, end = ndtr(along), ndtr(along + length)
    if len(inside) == 1:
        return np.tile((end - start).sum(axis=0), (SETS, 1))
    bell_start, bell_end = (np.exp(-(place**2) / 2) / np.sqrt(2 * np.pi) for place in (along, along + length))
    across = np.exp(-((offset**2).sum(axis=1) - along**2) / 2)
    sector = np.sqrt(2 * np.pi) * across * (bell_start - bell_end - along * (end - start))
    return np.stack([sector[first::SETS].mean(axis=0) for first in range(SETS)])


def _directions(n_features: int, n_rays: int) -> Floats:
    if n_features == 1:
        return np.array([[-1.0], [1.0]])
    angles = 2 * np.pi * np.arange(n_rays) / n_rays
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _length_inside(gaussians: "GaussianClasses", rule: Chow, k: int, inside: Floats, rays: Floats) -> Floats:
    """Bisect for the distance at which each ray leaves the region; one that never does keeps the whole reach."""
    low, high = np.zeros(len(rays)), np.full(len(rays), 4 * REACH)
    for _ in range(50):
        middle = (low + high) / 2
        still_inside = _answers(gaussians, rule, k, inside + middle[:, None] * rays)
        low, high = np.where(still_inside, middle, low), np.where(still_inside, high, middle)
    return low
