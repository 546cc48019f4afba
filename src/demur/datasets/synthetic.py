"""Gaussian classes: synthetic data with known class probabilities and optimal decisions."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from scipy.stats import qmc
from sklearn.utils import check_array

from demur.array_types import Floats, Ints
from demur.errors import InputError, InputTypeError
from demur.label_shift import check_prior
from demur.rules import Chow

Seed = int | np.random.Generator | None
"""As for :func:`numpy.random.default_rng`."""


class Estimate(NamedTuple):
    """A number and its standard error.

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
    """Figures of the Bayes-optimal rule (Chow's, with the true posterior) at one cost.

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
    """

    cost: float
    risk: Estimate
    rejection_rate: Estimate
    coverage: Estimate
    accepted_accuracy: Estimate


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
    >>> round(two.bayes_summary(cost=0.2).rejection_rate.value, 4)
    0.0216
    """

    def __init__(self, means: ArrayLike, variance: float = 0.2, prior: ArrayLike | None = None) -> None:
        centres = check_array(means, dtype=np.float64, copy=True, ensure_min_samples=2, input_name="means")
        if not isinstance(variance, (int, float, np.number)) or not 0 < variance < np.inf:
            raise InputError(
                f"variance must be one positive number (the covariance is variance * I), got {variance!r}."
            )
        equal = np.full(len(centres), 1 / len(centres))
        self.means, self.variance = centres, float(variance)
        self.prior = equal if prior is None else check_prior("prior", prior, len(centres))

    def posterior(self, X: ArrayLike) -> Floats:
        r"""Return the exact class probabilities :math:`\eta(x)`, shape (n, n_classes).

        :math:`|x|^2` is common to all classes, so the log-odds are linear in x and nothing underflows, however
        far x lies from every centre.
        """
        points = check_array(X, dtype=np.float64, ensure_min_samples=0, input_name="X")
        if points.shape[1] != self.means.shape[1]:
            raise InputError(f"X must have shape (n, {self.means.shape[1]}) like the means, got {points.shape}.")
        origin = self.means.mean(axis=0)
        centres = self.means - origin
        logits = ((points - origin) @ centres.T - (centres**2).sum(axis=1) / 2) / self.variance + np.log(self.prior)
        return np.asarray(softmax(logits, axis=1))

    def sample(
        self, *, n: int | None = None, n_per_class: int | ArrayLike | None = None, seed: Seed = None
    ) -> tuple[Floats, Ints]:
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
            counts = [_check_count("n_per_class", count) for count in np.atleast_1d(np.asarray(n_per_class)).tolist()]
            if len(counts) not in (1, n_classes):
                raise InputError(f"n_per_class must be one number or {n_classes}, one per class, got {counts}.")
            y = rng.permutation(np.repeat(np.arange(n_classes), np.broadcast_to(counts, n_classes)))
        noise = rng.standard_normal((len(y), n_features))
        return self.means[y] + np.sqrt(self.variance) * noise, y

    def bayes_risk(self, cost: float) -> float:
        """Return the smallest 0-1-c risk that any classifier can reach; :meth:`bayes_summary` adds its error."""
        return self.bayes_summary(cost).risk.value

    def bayes_summary(self, cost: float, *, n_draws: int = 2**20, seed: int = 0) -> BayesSummary:
        """Return risk, rejection rate, coverage and accuracy of the Bayes-optimal rule, each with its standard error.

        The figures are means over scrambled Sobol points of each class, in the smallest space that holds the centres.
        In a plane, the risk is accurate to about 1e-6 and the rejection rate to about 1e-4.

        Parameters
        ----------
        cost : float
            The price c of one rejection.
        n_draws : int
            Largest number of points; it is rounded down so that each class has the same power of two.
        seed : int

        Examples
        --------
        >>> best = GaussianClasses([[-1.0, 0.0], [1.0, 0.0]]).bayes_summary(cost=0.2)
        >>> round(best.rejection_rate.value, 3), best.risk.error < 1e-5
        (0.022, True)
        """
        rule, seen = Chow(float(cost)), self._in_span_of_means()
        n_classes, n_dimensions = seen.means.shape
        doublings = int(np.log2(max(1, _check_count("n_draws", n_draws) // (SCRAMBLES * n_classes))))
        found = np.zeros((SCRAMBLES, 3))
        for scramble in range(SCRAMBLES):
            generator = np.random.default_rng([seed, scramble])
            sobol = qmc.Sobol(n_dimensions, seed=generator)
            points = qmc.MultivariateNormalQMC(np.zeros(n_dimensions), engine=sobol).random(2**doublings)
            for mean, frequency in zip(seen.means, seen.prior, strict=True):
                decision = rule.decide(seen.posterior(mean + points))
                accept = ~decision.reject  # the label is not drawn: its mean given x is the posterior
                right = np.where(accept, decision.confidence, 0.0)
                price = np.where(accept, 1 - decision.confidence, cost)
                found[scramble] += frequency * np.array([price.mean(), accept.mean(), right.mean()])
        risk, covered, _ = (_mean(values) for values in found.T)
        answered = found[found[:, 1] > 0]
        return BayesSummary(
            cost=float(cost),
            risk=risk,
            rejection_rate=Estimate(1 - covered.value, covered.error),
            coverage=covered,
            accepted_accuracy=_mean(answered[:, 2] / answered[:, 1]),
        )

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
"""Centres of the classes of :func:`paper_gaussians`."""


def make_gaussian_classes(
    n_classes: int = 8, n_features: int = 2, *, spread: float = 3.0, variance: float = 0.2, seed: Seed = None
) -> GaussianClasses:
    """Place centres at random, uniformly in the cube [-spread, spread]^n_features, with equal class frequencies.

    Examples
    --------
    >>> make_gaussian_classes(5, 3, seed=0).means.shape
    (5, 3)
    """
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


def _check_count(name: str, value: object) -> int:
    """Check that a number of things is a positive integer, and return it."""
    if not isinstance(value, (int, np.integer)) or value <= 0:
        raise InputError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


SCRAMBLES = 8
"""Independent sets of Sobol points; the deviation between them gives the standard errors."""


def _mean(values: Floats) -> Estimate:
    if len(values) < SCRAMBLES:
        return Estimate(np.nan, np.nan)
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))))
