r"""Gaussian classes: a distribution whose class probabilities, and so whose best decisions, are known exactly.

The figures of the Bayes-optimal rule come from deterministic quadrature where the centres lie on a line or in a plane.
There the region where Chow's rule answers class k is convex: :math:`\sum_{j \ne k} e^{\ell_j - \ell_k} < c / (1 - c)`,
with log-odds linear in x. So a ray from a point inside leaves the region once, the mass of a Gaussian up to
there is a formula, and a trapezoid sum over all directions converges exponentially. Elsewhere the figures are means
over random examples.
"""

from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, softmax

from demur.errors import InputError, InputTypeError
from demur.rules import Chow

__all__ = ["BayesSummary", "Estimate", "GaussianClasses", "make_gaussian_classes", "paper_gaussians"]

Floats = NDArray[np.float64]
Seed = int | np.random.Generator | None
"""As for :func:`numpy.random.default_rng`."""


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


@dataclass(frozen=True, init=False, eq=False)
class GaussianClasses:
    r"""Classes with Gaussian inputs, :math:`x \mid y \sim \mathcal N(\mu_y, \sigma^2 I)`.

    Parameters
    ----------
    means : array of shape (n_classes, n_features)
        The centres of the classes.
    variance : float, default 0.2
        The variance of each feature within a class.
    prior : array of shape (n_classes,), optional
        The class frequencies; equal by default.

    Examples
    --------
    With centres at -1 and 1 the log-odds are 10 x, so at c = 0.2 the rule rejects where 10 |x| <= log 4:

    >>> two = GaussianClasses([[-1.0], [1.0]])
    >>> two.posterior([[0.0], [0.1 * np.log(4)]]).round(4)
    array([[0.5, 0.5], [0.2, 0.8]])
    >>> print(two.bayes_summary(cost=0.2).rejection_rate)
    0.0215996 ± 1e-10
    """

    means: Floats
    variance: float
    prior: Floats

    def __init__(self, means: ArrayLike, variance: float = 0.2, prior: ArrayLike | None = None) -> None:
        centres = np.array(means, dtype=np.float64)
        if centres.ndim != 2 or centres.shape[0] < 2 or centres.shape[1] < 1:
            raise InputError(
                f"means must have shape (n_classes, n_features) with at least two classes, got {centres.shape}."
            )
        if not np.isfinite(centres).all():
            raise InputError("means must be finite, got NaN or infinity.")
        if not isinstance(variance, (int, float, np.number)) or not 0 < variance < np.inf:
            raise InputError(
                f"variance must be one positive number (the covariance is variance * I), got {variance!r}."
            )
        frequencies = _check_prior(prior, len(centres))
        for array in (centres, frequencies):
            array.setflags(write=False)
        object.__setattr__(self, "means", centres)
        object.__setattr__(self, "variance", float(variance))
        object.__setattr__(self, "prior", frequencies)

    def posterior(self, X: ArrayLike) -> Floats:
        r"""Return the exact class probabilities :math:`\eta(x)`, shape (n, n_classes).

        :math:`|x|^2` is common to all classes, so the log-odds are linear in x and nothing underflows, however
        far x lies from every centre.
        """
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2 or points.shape[1] != self.means.shape[1]:
            raise InputError(f"X must have shape (n, {self.means.shape[1]}) like the means, got {points.shape}.")
        if not np.isfinite(points).all():
            raise InputError("X must be finite, got NaN or infinity.")
        origin = self.means.mean(axis=0)
        centres = self.means - origin
        logits = ((points - origin) @ centres.T - (centres**2).sum(axis=1) / 2) / self.variance + np.log(self.prior)
        return np.asarray(softmax(logits, axis=1))

    def sample(
        self, *, n: int | None = None, n_per_class: int | ArrayLike | None = None, seed: Seed = None
    ) -> tuple[Floats, NDArray[np.int64]]:
        """Draw examples, in random order.

        Parameters
        ----------
        n : int, optional
            Draw this many independent examples, with classes drawn from the prior.
        n_per_class : int or array of n_classes int, optional
            Draw exactly this many of each class instead, whatever the prior, as the paper does for training.
        seed : int, numpy.random.Generator or None
            As for :func:`numpy.random.default_rng`; equal integers give equal samples.

        Returns
        -------
        X : array of shape (n, n_features)
        y : array of shape (n,)
            Classes 0, ..., n_classes - 1.

        Examples
        --------
        >>> X, y = GaussianClasses([[-1.0, 0.0], [1.0, 0.0]]).sample(n_per_class=20, seed=0)
        >>> X.shape, np.bincount(y).tolist()
        ((40, 2), [20, 20])
        """
        if (n is None) == (n_per_class is None):
            raise InputTypeError("give either n (independent draws) or n_per_class (exact counts), and not both.")
        rng = np.random.default_rng(seed)
        n_classes, n_features = self.means.shape
        if n is not None:
            y = rng.choice(n_classes, size=_check_count("n", n), p=self.prior)
        else:
            given: list[object] = np.atleast_1d(np.asarray(n_per_class)).tolist()
            counts = [_check_count("n_per_class", count) for count in given]
            if len(counts) not in (1, n_classes):
                raise InputError(f"n_per_class must be one number or {n_classes}, one per class, got {counts}.")
            y = rng.permutation(np.repeat(np.arange(n_classes), counts if len(counts) > 1 else counts[0]))
        noise = rng.standard_normal((len(y), n_features))
        return self.means[y] + np.sqrt(self.variance) * noise, y

    def bayes_risk(self, cost: float) -> float:
        """Return the smallest 0-1-c risk that any classifier can reach; :meth:`bayes_summary` adds its error."""
        return self.bayes_summary(cost).risk.value

    def bayes_summary(
        self,
        cost: float,
        *,
        method: Literal["auto", "quadrature", "monte_carlo"] = "auto",
        n_draws: int = 1_000_000,
        seed: Seed = 0,
    ) -> BayesSummary:
        """Return risk, rejection rate, coverage and accuracy of the Bayes-optimal rule, each with its error.

        Parameters
        ----------
        cost : float
            The price c of one rejection.
        method : {"auto", "quadrature", "monte_carlo"}
            Quadrature is good to 1e-6. It needs centres on a line or in a plane, in a space of any dimension,
            since across that plane the classes do not differ. "auto" uses it where it can.
        n_draws, seed : int
            Number and seed of the random examples, for Monte Carlo.

        Examples
        --------
        >>> best = GaussianClasses([[-1.0, 0.0], [1.0, 0.0]]).bayes_summary(cost=0.2)
        >>> round(best.rejection_rate.value, 3), best.method
        (0.022, 'quadrature')
        """
        if np.ndim(cost) != 0:
            raise InputError(f"cost must be a single number here, got an array of shape {np.shape(cost)}.")
        if method not in ("auto", "quadrature", "monte_carlo"):
            raise InputError(f"method must be 'auto', 'quadrature' or 'monte_carlo', got {method!r}.")
        rule = Chow(cost)
        seen = self._in_span_of_means()
        n_dimensions = seen.means.shape[1]
        if method == "quadrature" and n_dimensions > 2:
            raise InputError(
                f"quadrature needs centres in a plane, these span {n_dimensions} dimensions; use method='monte_carlo'."
            )
        if method == "monte_carlo" or n_dimensions > 2:
            return _by_monte_carlo(seen, rule, n_draws=_check_count("n_draws", n_draws), seed=seed)
        return _by_quadrature(seen, rule)

    def _in_span_of_means(self) -> "GaussianClasses":
        """Return the classes in the smallest space that holds the centres, in standard deviations; eta is the same."""
        centres = (self.means - self.means.mean(axis=0)) / np.sqrt(self.variance)
        _, sizes, directions = np.linalg.svd(centres, full_matrices=False)
        rank = max(1, int(np.sum(sizes > 1e-9)))
        return GaussianClasses(centres @ directions[:rank].T, 1.0, self.prior)


PAPER_MEANS = (
    (2.28, -0.4),
    (1.41, -1.92),
    (-1.63, 2.93),
    (2.34, 2.82),
    (-1.85, -2.26),
    (-1.76, 2.73),
    (-0.26, -0.36),
    (-1.66, 1.38),
)
"""Of :func:`paper_gaussians`, whose docstring says where they come from."""


def make_gaussian_classes(
    n_classes: int = 8, n_features: int = 2, *, spread: float = 3.0, variance: float = 0.2, seed: Seed = None
) -> GaussianClasses:
    """Place centres at random, uniformly in the cube [-spread, spread]^n_features, with equal class frequencies.

    Examples
    --------
    >>> make_gaussian_classes(5, 3, seed=0).means.shape
    (5, 3)
    """
    _check_count("n_classes", n_classes)
    _check_count("n_features", n_features)
    if not 0 < spread < np.inf:
        raise InputError(f"spread must be a positive number, got {spread!r}.")
    means = np.random.default_rng(seed).uniform(-spread, spread, size=(n_classes, n_features))
    return GaussianClasses(means, variance)


def paper_gaussians() -> GaussianClasses:
    """Return eight classes in the plane, variance 0.2 and equal frequencies, as in the paper's synthetic experiment.

    The paper draws the eight means at random and does not print them. These come from
    ``make_gaussian_classes(8, 2, spread=3.0, seed=3925)``, rounded to two decimals; of the seeds 0 to 19,999 it is
    the one whose Bayes-optimal rejection rates come nearest, in squared distance, to the rates of the
    cross-entropy network in the paper's Table 2 (``benchmarks/choose_gaussian_means.py`` repeats the search):

    ====  ===============  ===========
    cost  Table 2, CE (%)  here (%)
    ====  ===============  ===========
    0.05  33.9             33.4
    0.2   28.3             28.5
    0.4   17.3             17.6
    ====  ===============  ===========

    Two of the centres nearly coincide, half a standard deviation apart: most of what is rejected at c = 0.4 is theirs.

    Examples
    --------
    >>> classes = paper_gaussians()
    >>> [round(100 * classes.bayes_summary(cost).rejection_rate.value, 1) for cost in (0.05, 0.2, 0.4)]
    [33.4, 28.5, 17.6]
    """
    return GaussianClasses(PAPER_MEANS, variance=0.2)


def _check_prior(prior: ArrayLike | None, n_classes: int) -> Floats:
    if prior is None:
        return np.full(n_classes, 1.0 / n_classes)
    values = np.array(prior, dtype=np.float64)
    if values.shape != (n_classes,):
        raise InputError(f"prior must have one entry for each of the {n_classes} classes, got shape {values.shape}.")
    if not (values > 0).all() or abs(values.sum() - 1) > 1e-6:
        raise InputError(f"prior must be positive and sum to 1, got {values.tolist()}, which sums to {values.sum():g}.")
    return np.asarray(values / values.sum())


def _check_count(name: str, value: object) -> int:
    """Check that a number of things is a positive integer, and return it."""
    if not isinstance(value, (int, np.integer)) or value <= 0:
        raise InputError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


BLOCK = 2**19
"""Numbers held in memory at a time, per array, by Monte Carlo."""


def _by_monte_carlo(gaussians: GaussianClasses, rule: Chow, *, n_draws: int, seed: Seed) -> BayesSummary:
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


def _mean(values: NDArray[np.bool_] | Floats) -> Estimate:
    if len(values) == 0:
        return Estimate(np.nan, np.nan)
    return Estimate(float(np.mean(values)), float(np.std(values) / np.sqrt(len(values))))


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


def _by_quadrature(gaussians: GaussianClasses, rule: Chow) -> BayesSummary:
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


def _answers(gaussians: GaussianClasses, rule: Chow, k: int, X: Floats) -> NDArray[np.bool_]:
    decision = rule.decide(gaussians.posterior(X))
    return np.asarray(~decision.reject & (decision.label == k))


def _point_inside(gaussians: GaussianClasses, rule: Chow, k: int) -> Floats | None:
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


def _mass_of_region(gaussians: GaussianClasses, rule: Chow, k: int, inside: Floats, n_rays: int) -> Floats:
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


def _length_inside(gaussians: GaussianClasses, rule: Chow, k: int, inside: Floats, rays: Floats) -> Floats:
    """Bisect for the distance at which each ray leaves the region; one that never does keeps the whole reach."""
    low, high = np.zeros(len(rays)), np.full(len(rays), 4 * REACH)
    for _ in range(50):
        middle = (low + high) / 2
        still_inside = _answers(gaussians, rule, k, inside + middle[:, None] * rays)
        low, high = np.where(still_inside, middle, low), np.where(still_inside, high, middle)
    return low
