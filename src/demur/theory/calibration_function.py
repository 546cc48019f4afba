r"""The tightest calibration function: how small a surrogate excess risk can be, given the 0-1-c excess (Eq. 13).

At one eta, a wrong decision that loses z of 0-1-c risk costs the surrogate at least

    delta(z) = min over eta and wrong decisions losing z of (best risk with that decision) - (least risk).

Distributions mix such points, so what holds for risks is the largest convex function below delta. No valid xi is
larger anywhere, and this one is valid.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.losses import Loss
from demur.theory.adapter import LossLike, as_loss
from demur.theory.bounds import ExcessRiskBound, excess_risk_bound
from demur.theory.errors import NoBoundError, require_cost, require_n_classes
from demur.theory.excess_gaps import least_gaps
from demur.theory.facts import Facts, examine

__all__ = ["CalibrationFunction", "calibration_function"]


@dataclass(frozen=True)
class CalibrationFunction:
    """The tightest xi of a loss, callable on 0-1-c excesses between 0 and 1.

    Parameters
    ----------
    loss : Loss
    facts : Facts
    n_classes : int
    cost : float
    bound : ExcessRiskBound or None
        The paper's, where it has one.
    nodes, values : arrays
        Excesses z and delta(z), from which the convex function is built; calls add their own z to them.

    Examples
    --------
    For the squared loss delta is 4 z^2 up to z = 1 - 2c; the paper's bound is z^2:

    >>> xi = calibration_function("ova+sq", 3, cost=0.2)
    >>> xi([0.1, 0.3]).round(6), xi.bound.xi(0.1)
    (array([0.04, 0.36]), 0.010000000000000002)
    """

    loss: Loss
    facts: Facts
    n_classes: int
    cost: float
    bound: ExcessRiskBound | None
    nodes: NDArray[np.float64] = field(repr=False)
    values: NDArray[np.float64] = field(repr=False)

    def pointwise(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return delta(z): the least surrogate excess at any one eta where at least z is lost."""
        z = _excesses(zero_one_c_excess)
        at_least = np.where(self.nodes[None, :] >= z[..., None], self.values, np.inf).min(-1)
        delta: NDArray[np.float64] = np.minimum(
            least_gaps(self.loss, self.facts, self.n_classes, self.cost, z), at_least
        )
        return delta

    def __call__(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return xi(z), the largest convex function below delta."""
        z = _excesses(zero_one_c_excess)
        delta = self.pointwise(z)
        nodes, values = np.r_[self.nodes, z.reshape(-1)], np.r_[self.values, delta.reshape(-1)]
        hull = _lower_hull(nodes, values)
        convex: NDArray[np.float64] = np.interp(z, *hull)
        return convex

    def room(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return xi(z) divided by the paper's bound: 1 where the paper is tight, more where it leaves room."""
        if self.bound is None:
            raise NoBoundError(f"the paper has no bound for {self.loss.name} to compare with.")
        ratio: NDArray[np.float64] = self(zero_one_c_excess) / self.bound.xi(_excesses(zero_one_c_excess))
        return ratio

    def zero_one_c(self, surrogate_excess: float) -> float:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows: no bound can promise less.

        Parameters
        ----------
        surrogate_excess : float
        """
        if not surrogate_excess >= 0:
            raise InputError(f"an excess risk is a number >= 0, got {surrogate_excess:g}.")
        low, high = 0.0, 1.0
        if float(self(1.0)) <= surrogate_excess:
            return 1.0
        for _ in range(4):
            z = np.linspace(low, high, 9)
            allowed = np.r_[True, self(z[1:-1]) <= surrogate_excess + 1e-12, False]
            last = int(np.flatnonzero(allowed).max())
            low, high = float(z[last]), float(z[last + 1])
        return high

    @property
    def blind_spot(self) -> float:
        """The largest excess that costs the surrogate nothing: 0 for a calibrated loss."""
        return self.zero_one_c(1e-10) if self.values[0] <= 1e-10 else 0.0


def calibration_function(loss: LossLike, n_classes: int, cost: float, *, n_nodes: int = 48) -> CalibrationFunction:
    """Compute the tightest calibration function of a smooth loss.

    The eta are of the form (p, q, rest): Chow's class, the class answered, and the rest spread evenly, on one class,
    or as unevenly as allowed. For cross-entropy and one-versus-all the rest does not matter and is spread evenly;
    for other losses the minimum is over this family.

    Parameters
    ----------
    loss : str, Loss or callable
        Smooth, and treating the classes alike (or binary).
    n_classes : int
    cost : float
        In (0, 1/2).
    n_nodes : int
        How many values of z the convex function is built on, besides those it is called with.

    Examples
    --------
    With two classes and c near 1/2, cross-entropy has the xi of plain classification (Pires & Szepesvari 2016):

    >>> xi = calibration_function("ce", 2, cost=0.4999)
    >>> z = 0.5
    >>> round(float(xi(z)), 3), round(float(0.5 * ((1 + z) * np.log(1 + z) + (1 - z) * np.log(1 - z))), 3)
    (0.131, 0.131)
    """
    n_classes, cost = require_n_classes(n_classes), require_cost(cost)
    subject = as_loss(loss, n_classes, cost)
    if not subject.smooth:
        raise NoBoundError(f"the calibration function is computed for smooth losses; {subject.name} has kinks.")
    facts = examine(subject, n_classes, cost)
    if not (facts.chow_on_link or facts.answers_argmax) or not (facts.symmetric or n_classes == 2):
        raise NoBoundError(
            f"the calibration function is computed for losses that treat the classes alike and answer the class with "
            f"the largest score or probability; {subject.name} does not."
        )
    try:
        bound = excess_risk_bound(subject, cost)
    except NoBoundError:
        bound = None
    corners = [cost, 1 - cost, 1 - 2 * cost]
    nodes = np.unique(np.r_[np.linspace(0, 1, n_nodes + 1)[1:], corners])
    values = np.minimum.accumulate(least_gaps(subject, facts, n_classes, cost, nodes)[::-1])[::-1]
    return CalibrationFunction(subject, facts, n_classes, cost, bound, nodes, values)


def _excesses(zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
    z = np.asarray(zero_one_c_excess, dtype=np.float64)
    if not np.all((z >= 0) & (z <= 1)):
        raise InputError(f"an excess 0-1-c risk lies in [0, 1], got {z}.")
    return z


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the largest convex function below the points, which starts at the origin."""
    order = np.argsort(x, kind="stable")
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(x[order], y[order], strict=True):
        while len(hull) > 1 and _above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    corners = np.array(hull)
    return corners[:, 0], corners[:, 1]


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Return whether b lies on or above the line from a to c."""
    return bool((b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0]))
