"""Gaussian classes: a distribution whose class probabilities, and so whose best decisions, are known exactly."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from demur.datasets.bayes_quadrature import by_quadrature
from demur.datasets.bayes_summary import BayesSummary, by_monte_carlo
from demur.errors import InputError, InputTypeError
from demur.rules import Chow

__all__ = ["GaussianClasses", "check_count"]

Floats = NDArray[np.float64]


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
        self, *, n: int | None = None, n_per_class: int | ArrayLike | None = None, seed: Any = None
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
            y = rng.choice(n_classes, size=check_count("n", n), p=self.prior)
        else:
            given: list[Any] = np.atleast_1d(np.asarray(n_per_class)).tolist()
            counts = [check_count("n_per_class", count) for count in given]
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
        seed: Any = 0,
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
            return by_monte_carlo(seen, rule, n_draws=check_count("n_draws", n_draws), seed=seed)
        return by_quadrature(seen, rule)

    def _in_span_of_means(self) -> "GaussianClasses":
        """Return the classes in the smallest space that holds the centres, in standard deviations; eta is the same."""
        centres = (self.means - self.means.mean(axis=0)) / np.sqrt(self.variance)
        _, sizes, directions = np.linalg.svd(centres, full_matrices=False)
        rank = max(1, int(np.sum(sizes > 1e-9)))
        return GaussianClasses(centres @ directions[:rank].T, 1.0, self.prior)


def _check_prior(prior: ArrayLike | None, n_classes: int) -> Floats:
    if prior is None:
        return np.full(n_classes, 1.0 / n_classes)
    values = np.array(prior, dtype=np.float64)
    if values.shape != (n_classes,):
        raise InputError(f"prior must have one entry for each of the {n_classes} classes, got shape {values.shape}.")
    if not (values > 0).all() or abs(values.sum() - 1) > 1e-6:
        raise InputError(f"prior must be positive and sum to 1, got {values.tolist()}, which sums to {values.sum():g}.")
    return np.asarray(values / values.sum())


def check_count(name: str, value: Any) -> int:
    """Check that a number of things is a positive integer, and return it."""
    if not isinstance(value, (int, np.integer)) or value <= 0:
        raise InputError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)
