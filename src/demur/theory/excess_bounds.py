"""Excess risk bounds: what a small surrogate risk guarantees about the 0-1-c risk (Theorems 7 and 8), and Table 1.

Beside each bound of the paper stands a sharper one with the same proof counted more carefully; the constants of Table 1
are computed again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.losses import Loss, get
from demur.losses.loss import BoundFacts
from demur.margins import MarginFunction, available_margins, get_margin, own_fact
from demur.theory.bayes import NoBoundError, require_cost

__all__ = [
    "DivergenceBound",
    "ExcessRiskBound",
    "LowerCurve",
    "TableOne",
    "TableOneRow",
    "bound_facts_of",
    "closed_pieces",
    "excess_risk_bound",
    "least_of",
    "table_one",
]

Piece: TypeAlias = tuple[Callable[[NDArray[np.float64]], NDArray[np.float64]], float, float]
"""A convex function of z that never decreases, and the ends of the interval on which it counts."""


@dataclass(frozen=True)
class ExcessRiskBound:
    r"""The statement :math:`(\Delta R_{0-1-c} / A)^s \le \Delta R` for all scores and all distributions.

    Parameters
    ----------
    loss : str
    cost : float
    multiplier : float
        A: 2 C for Theorem 7, the square root of 2 for Theorem 8.
    exponent : float
        s.
    theorem : str
        Whose statement it is.

    Examples
    --------
    >>> bound = excess_risk_bound("ce", cost=0.2)
    >>> round(bound.zero_one_c(0.02), 6)  # sqrt(2 * 0.02)
    0.2
    """

    loss: str
    cost: float
    multiplier: float
    exponent: float
    theorem: str

    @overload
    def zero_one_c(self, surrogate_excess: float) -> float: ...
    @overload
    def zero_one_c(self, surrogate_excess: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def zero_one_c(self, surrogate_excess: ArrayLike) -> float | NDArray[np.float64]:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows, never more than 1.

        Parameters
        ----------
        surrogate_excess : float or array
            How far the surrogate risk is above the least possible; not negative.
        """
        excess = np.asarray(surrogate_excess, dtype=np.float64)
        if not np.all(excess >= 0):
            raise InputError(f"an excess risk is a number >= 0, got {float(np.min(excess)):g}.")
        bound = np.minimum(1.0, self.multiplier * excess ** (1 / self.exponent))
        return float(bound) if bound.ndim == 0 else bound

    @overload
    def xi(self, zero_one_c_excess: float) -> float: ...
    @overload
    def xi(self, zero_one_c_excess: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def xi(self, zero_one_c_excess: ArrayLike) -> float | NDArray[np.float64]:
        """Return the least surrogate excess risk that this bound allows at an excess 0-1-c risk (xi of Eq. 13).

        Parameters
        ----------
        zero_one_c_excess : float or array
        """
        value = (np.asarray(zero_one_c_excess, dtype=np.float64) / self.multiplier) ** self.exponent
        return float(value) if value.ndim == 0 else value

    def __str__(self) -> str:
        root = "the square root of" if self.exponent == 2 else f"the 1/{self.exponent:g} power of"
        return (
            f"excess 0-1-c risk <= {self.multiplier:.6g} x {root} the excess risk of {self.loss} "
            f"({self.theorem}; c = {self.cost:g})"
        )


@dataclass(frozen=True)
class LowerCurve:
    """A convex function on [0, 1] that starts at 0, made of straight pieces that lie below given functions.

    Parameters
    ----------
    nodes, values : arrays
        Its corners.

    Examples
    --------
    >>> z = np.linspace(0, 1, 101)
    >>> curve = LowerCurve.through_steps(z, z**2)
    >>> bool(np.all(curve(z) <= z**2))
    True
    """

    nodes: NDArray[np.float64] = field(repr=False)
    values: NDArray[np.float64] = field(repr=False)

    @classmethod
    def below(cls, pieces: list[Piece]) -> "LowerCurve":
        """Return such a curve below several functions that never decrease, within a thousandth of the greatest."""
        # Close together near 0, where the functions are squares, and near 1, where a divergence is steep.
        nodes = np.unique(np.r_[np.geomspace(1e-7, 1, 40_000), 1 - np.geomspace(1e-7, 0.1, 4_000)])
        return cls.through_steps(nodes, least_of(pieces, nodes))

    @classmethod
    def through_steps(cls, nodes: NDArray[np.float64], values: NDArray[np.float64]) -> "LowerCurve":
        """Return the greatest such curve below a function that never decreases and has these values at these nodes.

        Up to the next node the function is known only to be at least the last value.
        """
        return cls(*_lower_hull(np.r_[nodes[1:], nodes[-1]], np.r_[values[:-1], values[-1]]))

    def __call__(self, z: ArrayLike) -> NDArray[np.float64]:
        result: NDArray[np.float64] = np.interp(np.asarray(z, dtype=np.float64), self.nodes, self.values)
        return result

    def inverse(self, value: float) -> float:
        """Return the largest z at which the curve is at most ``value``, never more than 1."""
        if self.values[-1] <= value:
            return 1.0
        after = int(np.argmax(self.values > value))
        x0, x1, y0, y1 = *self.nodes[after - 1 : after + 1], *self.values[after - 1 : after + 1]
        return float(x0 + (value - y0) / (y1 - y0) * (x1 - x0))


def least_of(pieces: list[Piece], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the least value at z or beyond of functions that never decrease, each on its interval."""
    parts = [np.where(z <= high, f(np.clip(z, low, high)), np.inf) for f, low, high in pieces if high > low]
    least: NDArray[np.float64] = np.where(z > 0, np.minimum.reduce(parts), 0.0)
    return least


def _lower_hull(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of the largest convex function below the points, which starts at the origin."""
    order = np.lexsort((y, x))
    hull: list[tuple[float, float]] = [(0.0, 0.0)]
    for point in zip(x[order].tolist(), y[order].tolist(), strict=True):
        if not np.isfinite(point[1]) or point[0] <= hull[-1][0]:
            if not np.isfinite(point[1]) or point[1] >= hull[-1][1]:
                continue
            hull.pop()
        while len(hull) > 1 and _above(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    corners = np.array(hull)
    return corners[:, 0], corners[:, 1]


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Return whether b lies on or above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


@dataclass(frozen=True)
class DivergenceBound:
    r"""The statement :math:`\xi(\Delta R_{0-1-c}) \le \Delta R` with a convex :math:`\xi` that no other can exceed.

    For cross-entropy :math:`\xi` is the largest convex function below kl(max(1-c-z, (1-z)/2), 1-c), the divergence
    between two coins: a wrong decision that loses z moves the probability of one class across 1 - c, and the
    data-processing inequality bounds what that costs.

    Parameters
    ----------
    loss : str
    cost : float
    curve : LowerCurve
    theorem : str

    Examples
    --------
    >>> bound = excess_risk_bound("ce", cost=0.2, sharp=True)
    >>> round(bound.zero_one_c(0.01), 3), round(excess_risk_bound("ce", cost=0.2).zero_one_c(0.01), 3)
    (0.058, 0.141)
    """

    loss: str
    cost: float
    curve: LowerCurve = field(repr=False)
    theorem: str

    def zero_one_c(self, surrogate_excess: float) -> float:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows, never more than 1."""
        if not surrogate_excess >= 0:
            raise InputError(f"an excess risk is a number >= 0, got {surrogate_excess:g}.")
        return self.curve.inverse(surrogate_excess)

    def xi(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return the least surrogate excess risk that this bound allows at an excess 0-1-c risk (xi of Eq. 13)."""
        return self.curve(zero_one_c_excess)

    def __str__(self) -> str:
        return f"xi(excess 0-1-c risk) <= the excess risk of {self.loss}, xi the largest there is ({self.theorem})"


@overload
def excess_risk_bound(loss: str | Loss, cost: float) -> ExcessRiskBound: ...
@overload
def excess_risk_bound(loss: str | Loss, cost: float, *, sharp: bool) -> ExcessRiskBound | DivergenceBound: ...
def excess_risk_bound(loss: str | Loss, cost: float, *, sharp: bool = False) -> ExcessRiskBound | DivergenceBound:
    """Return the paper's excess risk bound for a loss, or the sharper one that its proof gives.

    Parameters
    ----------
    loss : str or Loss
        ``ce`` (Theorem 8), a smooth ``ova+...`` (Theorem 7), or the binary ``margin+...``, to which the proof of
        Theorem 7 applies with its one score.
    cost : float
        In (0, 1/2).
    sharp : bool
        For cross-entropy, the divergence bound instead of z^2 / 2. For one-versus-all, 2^(1-1/s) C instead of 2 C:
        where a wrong class is answered, two scores have to move, and the paper's proof counts one of them.

    Raises
    ------
    NoBoundError
        If the paper has no bound for the loss.
    CostRangeError
        If the cost is outside (0, 1/2).

    Notes
    -----
    C is the constant that the paper's appendix derives. For the logistic loss Table 1 prints another one; see
    :func:`demur.theory.table_one`.

    Examples
    --------
    >>> print(excess_risk_bound("ova+sq", cost=0.2))
    excess 0-1-c risk <= 1 x the square root of the excess risk of ova+sq (Theorem 7; c = 0.2)
    >>> round(excess_risk_bound("ova+sq", cost=0.2, sharp=True).multiplier, 4)
    0.7071
    """
    subject = get(loss) if isinstance(loss, str) else loss
    cost, facts = require_cost(cost), bound_facts_of(subject)
    if facts is None:
        raise NoBoundError(
            f"the paper proves no excess risk bound for {subject.name}; it has one for 'ce' and for the smooth "
            "'ova+...'. demur.theory.calibration_function computes the tightest one for any smooth loss."
        )
    if not sharp:
        return ExcessRiskBound(subject.name, cost, facts.multiplier, facts.exponent, facts.theorem)
    if facts.sharper is not None:
        theorem = facts.theorem + (", sharper" if facts.sharper < facts.multiplier else "")
        return ExcessRiskBound(subject.name, cost, facts.sharper, facts.exponent, theorem)
    pieces = closed_pieces(facts, 3, cost)
    assert pieces is not None
    return DivergenceBound(subject.name, cost, LowerCurve.below(pieces), f"{facts.theorem}, sharper; c = {cost:g}")


def bound_facts_of(loss: Loss) -> BoundFacts | None:
    """Return what the bound of a loss is made of; None if the paper has none for its class itself."""
    stated = own_fact(loss, "bound_facts")
    return None if stated is None else stated()


def closed_pieces(facts: BoundFacts, n_classes: int, cost: float) -> list[Piece] | None:
    r"""Return the least surrogate excess of each kind of wrong decision as a function of z, in closed form.

    With q = 1 - c and D(p) the excess of one score (or one probability) held at the threshold: a false accept costs
    D(q - z), a false reject D(q + z), and a wrong class D((1-z)/2), for one-versus-all plus D((1+z)/2). None where no
    formula is known.

    Examples
    --------
    >>> facts = bound_facts_of(get("ova+sq"))
    >>> [round(float(f(np.array(0.1))), 4) for f, low, high in closed_pieces(facts, 3, 0.2)][:2]  # 4 z^2
    [0.04, 0.04]
    """
    q = 1 - cost
    if facts.excess(np.zeros(1), q) is None:
        return None

    def excess(x: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(facts.excess(x, q), dtype=np.float64)

    def wrong_class(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return excess((1 - z) / 2 - q) + (excess((1 + z) / 2 - q) if facts.two_scores else 0.0)

    return [
        (lambda z: excess(-z), 0.0, q if n_classes > 2 else 1 - 2 * cost),
        (excess, 0.0, cost),
        (wrong_class, 1 - 2 * cost, 1.0),
    ]


@dataclass(frozen=True)
class TableOneRow:
    """One margin function: the constant C of Table 1, computed and printed.

    Parameters
    ----------
    margin : MarginFunction
    constant : float
        The least C for which assumption (15) holds for every eta and c.
    printed : float
        C as Table 1 prints it.
    sharp_constant : float
        The least C for which the conclusion (16) of Theorem 7 holds, from the tightest xi.
    """

    margin: MarginFunction
    constant: float
    printed: float
    sharp_constant: float

    @property
    def agrees(self) -> bool:
        """Whether the printed C is the least one for which assumption (15) holds."""
        return abs(self.constant - self.printed) < 1e-3


@dataclass(frozen=True)
class TableOne:
    """All rows; ``print`` shows them as a table."""

    rows: tuple[TableOneRow, ...]

    def __str__(self) -> str:
        lines = [f"{'phi':<14}{'least C for (15)':>18}{'C printed':>11}{'agrees':>8}{'least C for (16)':>18}"]
        lines += [
            f"{type(row.margin).__name__:<14}{row.constant:>18.4f}{row.printed:>11.4f}"
            f"{'yes' if row.agrees else 'NO':>8}{row.sharp_constant:>18.4f}"
            for row in self.rows
        ]
        return "\n".join(lines)


def table_one() -> TableOne:
    """Compute the constants of Table 1 for every margin function in it, and compare them with those printed.

    Examples
    --------
    >>> from demur.theory import table_one
    >>> for row in table_one().rows:
    ...     print(row.margin.name, round(row.constant, 3), round(row.printed, 3), row.agrees)
    exp 0.707 0.707 True
    log 0.707 0.5 False
    sq 0.5 0.5 True
    sqhin 0.5 0.5 True
    """
    margins = [get_margin(name) for name in available_margins()]
    return TableOne(tuple(_row(phi) for phi in margins if own_fact(phi, "exact") and phi.printed_constant))


def _row(phi: MarginFunction) -> TableOneRow:
    """Take the largest |x| / excess^(1/2), and for the conclusion z / (2 delta(z)^(1/2)), over costs and excesses."""
    constant = sharp = 0.0
    for cost in (0.01, 0.1, 0.2, 0.3, 0.4, 0.49, 0.49999):
        x = np.r_[np.linspace(-(1 - cost), cost, 999), -1e-3, 1e-3]
        x = x[np.abs(x) > 5e-4]
        constant = max(constant, float(np.max(np.abs(x) / np.sqrt(np.asarray(phi.excess(x, 1 - cost))))))
        facts = BoundFacts("", 1.0, 2.0, None, phi.excess, two_scores=True)
        for piece, low, high in closed_pieces(facts, 3, cost) or []:
            z = np.linspace(max(low, 5e-4), high, 999)
            sharp = max(sharp, float(np.max(z / (2 * np.sqrt(piece(z))))))
    assert phi.printed_constant is not None
    return TableOneRow(phi, constant, phi.printed_constant, sharp)
