"""Excess risk bounds: what a small surrogate risk promises about the 0-1-c risk (Theorems 7 and 8), and Table 1.

Beside each bound of the paper stands a sharper one with the same proof counted more carefully; Table 1 is derived again
with numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sqrt
from typing import TypeAlias, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from demur.errors import InputError
from demur.losses import CrossEntropy, Loss, Margin, OneVsAll, available, get
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.theory.bayes import NoBoundError, require_cost
from demur.theory.descent import minimise_rows
from demur.workers import single_threaded_kernels

__all__ = [
    "DivergenceBound",
    "ExcessRiskBound",
    "LowerCurve",
    "TableOne",
    "TableOneRow",
    "closed_pieces",
    "excess_risk_bound",
    "margin_excess",
    "phi_of",
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
    >>> curve = LowerCurve.below([(lambda z: z**2, 0.0, 1.0)])
    >>> z = np.linspace(0, 1, 101)
    >>> bool(np.all(curve(z) <= z**2)), bool(np.all(curve(z[1:]) >= 0.999 * z[1:] ** 2))
    (True, True)
    """

    nodes: NDArray[np.float64] = field(repr=False)
    values: NDArray[np.float64] = field(repr=False)

    @classmethod
    def below(cls, pieces: list[Piece], n_nodes: int = 2000) -> "LowerCurve":
        """Return the greatest such curve on a fixed grid below several convex functions.

        Between two nodes a convex function lies above the chords on either side, extended; the corners of those are
        below it, and so is the largest convex function below all corners.
        """
        corners: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for function, low, high in pieces:
            if high <= low:
                continue
            start = max(low, 1e-7)
            grid = (
                start * (high / start) ** np.linspace(0, 1, n_nodes) if low < 1e-3 else np.linspace(low, high, n_nodes)
            )
            corners.append(_corners_below(grid, function(grid)))
        x, y = (np.concatenate(parts) for parts in zip(*corners, strict=True))
        return cls(*_lower_hull(np.r_[x, 1.0], np.r_[np.maximum(y, 0.0), np.inf]))

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


def _corners_below(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return corners of a broken line below a convex function with these values."""
    slope = np.diff(y) / np.diff(x)
    left, right = slope[:-2], slope[2:]  # of the chords before and after each inner interval
    x0, x1, y0, y1 = x[1:-2], x[2:-1], y[1:-2], y[2:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = (y1 - y0 + left * x0 - right * x1) / (left - right)
    cross = np.where(np.isfinite(cross), np.clip(cross, x0, x1), x0)
    inner = np.minimum(y0 + left * (cross - x0), y1 + right * (cross - x1))
    # The first interval lies above the chord after it; the last one above the chord before it.
    first = y[1] + slope[1] * (x[0] - x[1])
    last = y[-2] + slope[-2] * (x[-1] - x[-2])
    return np.r_[x[0], x[1:-1], cross, x[-1]], np.r_[min(y[0], max(first, 0.0)), y[1:-1], inner, last]


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
    cost = require_cost(cost)
    # A subclass may have changed what the theorems are about.
    if type(subject) is CrossEntropy:
        if sharp:
            pieces = closed_pieces(subject, 3, cost)
            assert pieces is not None
            return DivergenceBound(subject.name, cost, LowerCurve.below(pieces), f"Theorem 8, sharper; c = {cost:g}")
        return ExcessRiskBound(subject.name, cost, 2**0.5, 2.0, "Theorem 8")
    if type(subject) in (OneVsAll, Margin):
        phi = phi_of(subject)
        if phi.bound_constant is not None and phi.bound_exponent is not None:
            theorem = "Theorem 7" if isinstance(subject, OneVsAll) else "the proof of Theorem 7, with one score"
            power = 1.0
            if sharp and isinstance(subject, OneVsAll):  # with one score only one can move: 2 C is what it takes
                power = 1 - 1 / phi.bound_exponent
                theorem += ", sharper"
            return ExcessRiskBound(subject.name, cost, 2**power * phi.bound_constant, phi.bound_exponent, theorem)
    raise NoBoundError(
        f"the paper proves no excess risk bound for {subject.name}; it has one for 'ce' and for the smooth 'ova+...'. "
        "demur.theory.calibration_function computes the tightest one for any smooth loss."
    )


def phi_of(loss: Loss) -> MarginFunction:
    """Return the margin function of a one-versus-all or binary margin loss."""
    assert isinstance(loss, OneVsAll | Margin)
    return loss.phi


def closed_pieces(loss: Loss, n_classes: int, cost: float) -> list[Piece] | None:
    r"""Return the least surrogate excess of each kind of wrong decision as a function of z, in closed form.

    With q = 1 - c and D(p) the excess of one score (or one probability) held at the threshold: a false accept costs
    D(q - z), a false reject D(q + z), and a wrong class D((1-z)/2), for one-versus-all plus D((1+z)/2). Values are
    rounded down by a bound of their rounding error. None where no formula is known.

    Examples
    --------
    >>> from demur.losses import get
    >>> [round(float(f(np.array(0.1))), 4) for f, low, high in closed_pieces(get("ova+sq"), 3, 0.2)][:2]  # 4 z^2
    [0.04, 0.04]
    """
    q = 1 - cost
    if type(loss) is CrossEntropy:
        excess: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda x: _divergence(x, q)  # noqa: E731
        both = False
    elif type(loss) in (OneVsAll, Margin):
        known = _EXCESS.get(type(phi_of(loss)))
        if known is None:
            return None
        excess = lambda x: known(x, q)  # noqa: E731
        both = isinstance(loss, OneVsAll)
    else:
        return None

    def wrong_class(z: NDArray[np.float64]) -> NDArray[np.float64]:
        return excess((1 - z) / 2 - q) + (excess((1 + z) / 2 - q) if both else 0.0)

    reach = q if n_classes > 2 else 1 - 2 * cost
    return [
        (lambda z: excess(-z), 0.0, min(reach, 1.0)),
        (lambda z: excess(z), 0.0, cost),
        (wrong_class, 1 - 2 * cost, 1.0),
    ]


def _rounded_down(value: NDArray[np.float64], size: NDArray[np.float64]) -> NDArray[np.float64]:
    lower: NDArray[np.float64] = np.maximum(value - 8 * np.finfo(np.float64).eps * size, 0.0)
    return lower


def _divergence(x: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    """Return kl(q + x, q), stable for small x, rounded down."""
    p, c = q + x, 1 - q
    heads = p * np.log1p(np.where(x > -q, x / q, 0.0))
    tails = (1 - p) * np.log1p(np.where(x < c, -x / c, 0.0))
    return _rounded_down(heads + tails, np.abs(heads) + np.abs(tails))


def _exponential_excess(x: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    p, c = np.clip(q + x, 0, 1), 1 - q
    value = x**2 / (np.sqrt(q * c) * (np.sqrt(p * c) + np.sqrt((1 - p) * q)) ** 2)
    return _rounded_down(value, value)


def _squared_excess(x: NDArray[np.float64], q: float) -> NDArray[np.float64]:
    return _rounded_down(4 * x**2, 4 * x**2)


_EXCESS: dict[type, Callable[[NDArray[np.float64], float], NDArray[np.float64]]] = {
    Logistic: _divergence,
    Exponential: _exponential_excess,
    Squared: _squared_excess,
    SquaredHinge: _squared_excess,
}
"""D(q + x) of each margin function; the two squared ones agree, since no probability asks for a score beyond 1."""


PRINTED: dict[str, float] = {"log": 0.5, "exp": sqrt(0.5), "sq": 0.5, "sqhin": 0.5}
"""C as the paper's Table 1 prints it, by the name of the margin function."""

COSTS = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45, 0.49, 0.4999])


@dataclass(frozen=True)
class TableOneRow:
    """One margin function: what was derived beside what is printed.

    Parameters
    ----------
    margin : MarginFunction
    theta_error : float
        The largest difference between theta(c) solved from Eq. 14 and the formula of the table.
    exponent : float
        s, from the order at which the excess vanishes at theta.
    constant : float
        The least C for which assumption (15) holds for every eta and c.
    printed : float
        C as Table 1 prints it.
    shortfall : tuple of four floats, or None
        (eta_y, c, left side, right side) of (15) where the printed C fails worst; None if it never does.
    sharp_constant : float
        The least C for which the conclusion (16) of Theorem 7 holds, from the tightest xi.
    """

    margin: MarginFunction
    theta_error: float
    exponent: float
    constant: float
    printed: float
    shortfall: tuple[float, float, float, float] | None
    sharp_constant: float

    @property
    def agrees(self) -> bool:
        """Whether the printed C is the least one for which assumption (15) holds."""
        return abs(self.constant - self.printed) < 1e-3

    @property
    def conclusion_holds_as_printed(self) -> bool:
        """Whether Theorem 7's conclusion is true with the printed C, whatever its assumption."""
        return self.printed >= self.sharp_constant - 1e-3


@dataclass(frozen=True)
class TableOne:
    """All rows; ``print`` shows them as a table."""

    rows: tuple[TableOneRow, ...]

    def __str__(self) -> str:
        lines = [
            f"{'phi':<14}{'theta: largest error':>21}{'s':>7}{'C derived':>11}{'C printed':>11}{'agrees':>8}"
            f"{'least C for (16)':>18}"
        ]
        lines += [
            f"{type(row.margin).__name__:<14}{row.theta_error:>21.0e}{row.exponent:>7.3f}{row.constant:>11.4f}"
            f"{row.printed:>11.4f}{'yes' if row.agrees else 'NO':>8}{row.sharp_constant:>18.4f}"
            for row in self.rows
        ]
        for row in self.rows:
            if row.shortfall is not None:
                eta, cost, left, right = row.shortfall
                verdict = "true" if row.conclusion_holds_as_printed else "false too"
                lines.append(
                    f"{type(row.margin).__name__}: with C = {row.printed:g} assumption (15) is false; at eta_y = "
                    f"{eta:g}, c = {cost:g} it says {left:.4f} >= {right:.4f}. The conclusion (16) with that C is "
                    f"{verdict}."
                )
        return "\n".join(lines)


@single_threaded_kernels()
def table_one() -> TableOne:
    """Derive Table 1 for every registered one-versus-all loss and compare it with what the paper prints.

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
    losses = [get(name) for name in available()]
    margins = [phi_of(loss) for loss in losses if isinstance(loss, OneVsAll) and phi_of(loss).name in PRINTED]
    return TableOne(tuple(_row(phi) for phi in margins))


def margin_excess(phi: MarginFunction, eta: Tensor, threshold: Tensor) -> Tensor:
    r"""Return :math:`\eta\phi(\theta) + (1-\eta)\phi(-\theta)` minus its minimum over theta: the left side of (15).

    Examples
    --------
    >>> from demur.margins import Squared
    >>> eta, theta = torch.tensor([0.5], dtype=torch.float64), torch.tensor([0.6], dtype=torch.float64)
    >>> margin_excess(Squared(), eta, theta)  # 4 (0.5 - 0.8)^2
    tensor([0.3600], dtype=torch.float64)
    """

    def risk(score: Tensor, rows: Tensor) -> Tensor:
        return eta[rows] * phi(score[:, 0]) + (1 - eta[rows]) * phi(-score[:, 0])

    best, _ = minimise_rows(risk, torch.zeros(len(eta), 1, dtype=torch.float64))
    everywhere = torch.arange(len(eta))
    return (risk(threshold.unsqueeze(-1), everywhere) - risk(best, everywhere)).detach()


def _row(phi: MarginFunction) -> TableOneRow:
    solved = _solve_threshold(phi, COSTS)
    formula = np.array([float(phi.threshold(c)) for c in COSTS])
    eta = np.r_[0.0005, np.arange(0.01, 1.0, 0.01), 0.9995]
    near = np.array([1e-3, 3e-3])
    eta_grid = np.concatenate([np.tile(eta, (len(COSTS), 1)), 1 - COSTS[:, None] - near, 1 - COSTS[:, None] + near], 1)
    cost_grid = np.broadcast_to(COSTS[:, None], eta_grid.shape)
    theta_grid = np.broadcast_to(solved[:, None], eta_grid.shape)
    excess = margin_excess(phi, *(torch.from_numpy(g.reshape(-1).copy()) for g in (eta_grid, theta_grid))).numpy()
    distance = np.abs(eta_grid - (1 - cost_grid)).reshape(-1)
    by_cost = excess.reshape(eta_grid.shape)
    s = float(np.mean(np.log(by_cost[2:, -1] / by_cost[2:, -2]) / np.log(3.0)))
    clear = distance > 5e-4
    constant = float(np.max(distance[clear] / excess[clear] ** (1 / round(s))))
    printed = PRINTED[phi.name]
    lacking = np.where(clear, (distance / printed) ** round(s) - excess, -np.inf)
    worst = int(lacking.argmax())
    shortfall = None
    if lacking[worst] > 1e-6:
        eta_y, cost = float(eta_grid.reshape(-1)[worst]), float(cost_grid.reshape(-1)[worst])
        shortfall = eta_y, cost, float(excess[worst]), float((distance[worst] / printed) ** round(s))
    return TableOneRow(phi, float(np.abs(solved - formula).max()), s, constant, printed, shortfall, _sharp(phi))


def _solve_threshold(phi: MarginFunction, costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve phi'(-theta) / (phi'(-theta) + phi'(theta)) = 1 - c by bisection (Eq. 14)."""
    low, high = torch.zeros(len(costs), dtype=torch.float64), torch.full((len(costs),), 40.0, dtype=torch.float64)
    target = 1 - torch.from_numpy(costs)
    for _ in range(80):
        middle = ((low + high) / 2).requires_grad_()
        opposite = (-middle.detach()).requires_grad_()
        (right,) = torch.autograd.grad(phi(middle).sum(), middle)
        (left,) = torch.autograd.grad(phi(opposite).sum(), opposite)
        above = left / (left + right) > target
        middle = middle.detach()
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    return ((low + high) / 2).numpy()


def _sharp(phi: MarginFunction) -> float:
    r"""Return the largest z / (2 delta(z)^(1/2)): what the conclusion (16) asks of C.

    The bound is convex, so it is enough that it holds at each eta. With D(p) the left side of (15), a false accept
    that loses z costs D(1-c-z), a false reject D(1-c+z), and a wrong class D(p) + D(p-z) for some p > 1-c with
    2p <= 1+z: the score of the wrong class has to rise to theta and that of the right one to fall to it.
    """
    z, share = np.meshgrid(np.array([0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 0.99]), np.linspace(0, 1, 33))
    worst = 0.0
    for cost in (0.1, 0.3, COSTS[-1]):
        theta = float(_solve_threshold(phi, np.array([cost]))[0])
        lowest, highest = np.maximum(1 - cost, z), (1 + z) / 2
        p = lowest + share * (highest - lowest)
        costs = [
            _excess_at(phi, 1 - cost - z, theta),
            _excess_at(phi, 1 - cost + z, theta),
            np.where(highest >= lowest, _excess_at(phi, p, theta) + _excess_at(phi, p - z, theta), np.inf),
        ]
        worst = max(worst, float(np.max(z / (2 * np.sqrt(np.minimum.reduce(costs))))))
    return worst


def _excess_at(phi: MarginFunction, eta: NDArray[np.float64], theta: float) -> NDArray[np.float64]:
    """Return D(eta), infinite where eta is no probability."""
    flat = torch.from_numpy(eta.reshape(-1).copy())
    excess = margin_excess(phi, flat.clamp(0, 1), torch.full_like(flat, theta)).numpy().reshape(eta.shape)
    return np.where((eta >= -1e-12) & (eta <= 1 + 1e-12), excess, np.inf)
