"""Pairwise risks in many digits: formulas of their own in mpmath, so that a refutation does not rest on float64.

With the classes grouped into n_a classes of probability eta_a and common score u_a, the risk of Eq. 8 is

    sum_a n_a eta_a [sum_b (n_b - 1[a = b]) phi(alpha (u_a - u_b - r))] + c psi(beta r),

and that of Eq. 7 has phi(alpha (u_a - u_b)) psi(-alpha r) in the brackets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

from demur.losses import AdditivePairwise, Loss, MultiplicativePairwise, PlusBound
from demur.losses.pairwise import PairwiseLoss

__all__ = ["ExactMinimum", "exact_minimum", "has_exact_form"]

DIGITS = 50

_PHI: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "log": (lambda z: mpmath.log1p(mpmath.exp(-z)), lambda z: -1 / (1 + mpmath.exp(z))),
    "exp": (lambda z: mpmath.exp(-z), lambda z: -mpmath.exp(-z)),
    "sq": (lambda z: (1 - z) ** 2, lambda z: -2 * (1 - z)),
    "sqhin": (lambda z: max(1 - z, 0) ** 2, lambda z: -2 * max(1 - z, 0)),
}
"""phi and its derivative, by the name of the margin function."""


@dataclass(frozen=True)
class ExactMinimum:
    """A minimum of the pointwise risk, to about :data:`DIGITS` digits.

    Parameters
    ----------
    risk : mpf
    rejector : mpf
        r at the minimum.
    gradient : float
        The largest component of the gradient there.
    """

    risk: Any
    rejector: Any
    gradient: float


def has_exact_form(loss: Loss, eta: NDArray[np.float64]) -> bool:
    """Return whether :func:`exact_minimum` knows the loss and the minimum is finite and small enough to compute."""
    if not isinstance(loss, AdditivePairwise | MultiplicativePairwise | PlusBound):
        return False
    known = loss.phi.name in _PHI and loss.psi_or_phi.name in _PHI
    return known and bool((eta > 0).all()) and len(np.unique(eta)) <= 6


def exact_minimum(
    loss: PairwiseLoss, eta: NDArray[np.float64], cost: float, *, rejector: float | None = None, start: Sequence[float]
) -> ExactMinimum:
    """Minimise the pointwise risk in many digits, over scores and rejector or with the rejector held.

    Parameters
    ----------
    loss : PairwiseLoss
    eta : array of shape (n_classes,)
        Positive, with few different values. Each entry is read as the decimal number it prints as, and the largest
        takes up what then lacks to a sum of 1.
    cost : float
    rejector : float, optional
        Hold r at this value.
    start : sequence of float
        One score per class and r, near the minimum: what float64 found.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> loss = get("apc+exp", beta=1.0)
    >>> eta = np.array([0.8, 0.2])
    >>> found = exact_minimum(loss, eta, 0.2, rejector=0.0, start=[0.3, -0.3, 0.0])
    >>> mpmath.nstr(found.risk, 12)  # 2 sqrt(0.16) + 0.2
    '1.0'
    """
    with mpmath.workdps(DIGITS + 10):
        problem = _Grouped(loss, eta, cost)
        point = problem.solve(start, rejector)
        gradient = problem.gradient(point)
        free = gradient[1:] if rejector is None else gradient[1:-1]
        return ExactMinimum(problem.risk(point), point[-1], float(max(map(abs, free), default=0)))


class _Grouped:
    """The risk and its gradient in (u_1, ..., u_G, r)."""

    def __init__(self, loss: PairwiseLoss, eta: NDArray[np.float64], cost: float) -> None:
        values, self.first, self.sizes = np.unique(eta, return_index=True, return_counts=True)
        self.eta = [mpmath.mpf(repr(float(v))) for v in values]
        lacking = 1 - sum(n * e for n, e in zip(self.sizes.tolist(), self.eta, strict=True))
        self.eta[-1] += lacking / int(self.sizes[-1])
        self.phi, self.phi_slope = _PHI[loss.phi.name]
        self.psi, self.psi_slope = _PHI[loss.psi_or_phi.name]
        self.cost = mpmath.mpf(repr(float(cost)))
        self.alpha = mpmath.mpf(repr(float(loss.alpha)))
        self.beta = mpmath.mpf(repr(float(loss.beta_value(len(eta), cost))))
        self.additive = not isinstance(loss, MultiplicativePairwise)
        self.binary_scores = isinstance(loss, PlusBound)

    def pairs(self) -> list[tuple[int, int, int]]:
        """Return (a, b, how many ordered pairs of classes these groups make)."""
        sizes = [int(n) for n in self.sizes]
        every = [(a, b, n * (m - (a == b))) for a, n in enumerate(sizes) for b, m in enumerate(sizes)]
        return [pair for pair in every if pair[2]]

    def risk(self, point: list[Any]) -> Any:
        *u, r = point
        answering = mpmath.mpf(0)
        for a, b, count in self.pairs():
            answering += count * self.eta[a] * self.phi(self.alpha * (u[a] - u[b] - (r if self.additive else 0)))
        factor = 1 if self.additive else self.psi(-self.alpha * r)
        return answering * factor + self.cost * self.psi(self.beta * r)

    def gradient(self, point: list[Any]) -> list[Any]:
        *u, r = point
        factor = 1 if self.additive else self.psi(-self.alpha * r)
        slopes = [mpmath.mpf(0) for _ in point]
        value = mpmath.mpf(0)
        for a, b, count in self.pairs():
            z = self.alpha * (u[a] - u[b] - (r if self.additive else 0))
            rate = count * self.eta[a] * self.alpha * self.phi_slope(z) * factor
            slopes[a] += rate
            slopes[b] -= rate
            slopes[-1] -= rate if self.additive else 0
            value += count * self.eta[a] * self.phi(z)
        if not self.additive:
            slopes[-1] = -self.alpha * self.psi_slope(-self.alpha * r) * value
        slopes[-1] += self.cost * self.beta * self.psi_slope(self.beta * r)
        return slopes

    def solve(self, start: Sequence[float], rejector: float | None) -> list[Any]:
        """Return a zero of the gradient near the start; the first score stays, since only differences count."""
        scores = [-start[0] / 2, start[0] / 2] if self.binary_scores else start
        u = [mpmath.mpf(float(scores[i])) for i in self.first]
        r = mpmath.mpf(float(start[-1] if rejector is None else rejector))

        def point_of(free: tuple[Any, ...]) -> list[Any]:
            return [u[0], *free, r] if rejector is not None else [u[0], *free]

        def equations(*free: Any) -> list[Any]:
            gradient = self.gradient(point_of(free))[1:]
            return gradient if rejector is None else gradient[:-1]

        unknowns = u[1:] if rejector is not None else [*u[1:], r]
        if not unknowns:
            return point_of(())
        root = mpmath.findroot(equations, unknowns, solver="mdnewton", tol=mpmath.mpf(10) ** (-2 * DIGITS))
        return point_of(tuple(root))
