"""A deferral problem whose best decisions are known: a person is needed on one side of a plane."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Seed = int | np.random.Generator | None
"""As for :func:`numpy.random.default_rng`."""

_PROBES = 10_000
_LEAST, _MOST = 0.2, 0.8
_TRIES = 10_000


class DeferralRows(NamedTuple):
    """Rows with their classes, and what the person says of them."""

    X: Floats
    y: Integers
    human: Integers


@dataclass(frozen=True, eq=False)
class LinearDeferral:
    r"""Two classes, one human expert, and a plane that bounds the rows on which a model needs the expert.

    On one side of the plane, r(x) = 1 and the class is a fair coin toss, independent of x. On the other side, r(x) = 0
    and the class is that of a linear classifier m(x) with probability 1 - e_m, and a coin toss otherwise, so that m
    errs with probability e_m / 2. The person errs with probability e_d where r(x) = 1 and e_n where r(x) = 0, for both
    classes.

    Parameters
    ----------
    rejector, classifier : arrays of shape (n_features + 1,)
        The planes of r and m: weights, then the constant.
    errors : (e_d, e_n, e_m)

    Examples
    --------
    The person is needed where the first feature is large; the second tells the class elsewhere:

    >>> problem = LinearDeferral(np.array([1, 0, -0.5]), np.array([0, 1, -0.5]), errors=(0.1, 0.3, 0.2))
    >>> problem.posterior([[0.9, 0.9], [0.1, 0.9]])
    array([[0.5, 0.5], [0.1, 0.9]])
    >>> problem.human_accuracy([[0.9, 0.9], [0.1, 0.9]])
    array([0.9, 0.7])
    >>> round(problem.bayes_risk([[0.9, 0.9], [0.1, 0.9]]), 12)  # the person where needed, the classifier elsewhere
    0.1
    """

    rejector: Floats
    classifier: Floats
    errors: tuple[float, float, float]

    def __post_init__(self) -> None:
        if len(self.errors) != 3 or not all(0 <= rate <= 1 for rate in self.errors):
            raise InputError(f"errors must be three numbers in [0, 1] (e_d, e_n, e_m), got {self.errors!r}.")

    def features(self, n: int, seed: Seed = None) -> Floats:
        """Draw the features of n rows, uniformly in [0, 1]."""
        return np.random.default_rng(seed).uniform(size=(n, len(self.rejector) - 1))

    def sample(self, n: int, seed: Seed = None) -> DeferralRows:
        """Draw n rows with their classes and the person's answers.

        Examples
        --------
        >>> make_linear_deferral(seed=0).sample(5, seed=0).X.shape
        (5, 30)
        """
        rng = np.random.default_rng(seed)
        X = self.features(n, rng)
        y = (rng.random(n) < self.posterior(X)[:, 1]).astype(np.int64)
        right = rng.random(n) < self.human_accuracy(X)
        return DeferralRows(X, y, np.where(right, y, 1 - y))

    def needs_human(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Return r(x): whether the class is a coin toss to a model."""
        return _side(self.rejector, X)

    def posterior(self, X: ArrayLike) -> Floats:
        """Return the exact class probabilities, of shape (n, 2)."""
        error = np.where(self.needs_human(X), 0.5, self.errors[2] / 2)
        second = np.where(_side(self.classifier, X), 1 - error, error)
        return np.column_stack([1 - second, second])

    def human_accuracy(self, X: ArrayLike) -> Floats:
        """Return the exact probability that the person is right, of shape (n,)."""
        return np.where(self.needs_human(X), 1 - self.errors[0], 1 - self.errors[1])

    def system_risk(self, X: ArrayLike, label: ArrayLike, ask: ArrayLike, price: float = 0.0) -> float:
        """Return the exact expected cost of decisions on these rows: mistakes, and the price where the person is asked.

        Parameters
        ----------
        X : array of shape (n, n_features)
        label : array of int
            The class that the model would answer.
        ask : array of int
            0 where the person is asked, -1 where the model answers, as in ``Decision.ask``.
        price : float
        """
        rows = np.arange(len(np.asarray(label)))
        answering = 1 - self.posterior(X)[rows, np.asarray(label)]
        asking = price + 1 - self.human_accuracy(X)
        return float(np.where(np.asarray(ask) >= 0, asking, answering).mean())

    def bayes_risk(self, X: ArrayLike, price: float = 0.0) -> float:
        """Return the least expected cost that any system can have on these rows."""
        answering = 1 - self.posterior(X).max(axis=1)
        return float(np.minimum(answering, price + 1 - self.human_accuracy(X)).mean())


def make_linear_deferral(
    n_features: int = 30, errors: tuple[float, float, float] = (0.0, 0.3, 0.0), *, seed: Seed = None
) -> LinearDeferral:
    r"""Draw a random :class:`LinearDeferral` problem.

    Weights and constants of the planes are uniform in :math:`\pm 1/\sqrt{d}`. A plane is drawn again until between 20 %
    and 80 % of the rows lie on each side; for the classifier's plane, only rows that do not need the person count.

    Parameters
    ----------
    n_features : int
    errors : (e_d, e_n, e_m)
        Error rates, as in :class:`LinearDeferral`.
    seed : int, Generator or None

    Examples
    --------
    >>> problem = make_linear_deferral(10, (0.1, 0.3, 0.2), seed=1)
    >>> rows = problem.sample(20_000, seed=0)
    >>> bool(0.2 < problem.needs_human(rows.X).mean() < 0.8)
    True
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(_PROBES, n_features))
    rejector = _plane(X, rng)
    return LinearDeferral(rejector, _plane(X[~_side(rejector, X)], rng), errors)


def _plane(X: Floats, rng: np.random.Generator) -> Floats:
    bound = X.shape[1] ** -0.5
    for _ in range(_TRIES):
        plane: Floats = rng.uniform(-bound, bound, size=X.shape[1] + 1)
        if _LEAST <= _side(plane, X).mean() <= _MOST:
            return plane
    raise InputError(f"no plane with 20 to 80 % of the rows on each side was found in {_TRIES:,} draws.")


def _side(plane: Floats, X: ArrayLike) -> NDArray[np.bool_]:
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(plane) - 1:
        raise InputError(f"X must have shape (n, {len(plane) - 1}), got {values.shape}.")
    side: NDArray[np.bool_] = values @ plane[:-1] + plane[-1] > 0
    return side
