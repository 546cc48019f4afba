r"""Table 1 of the paper, derived again with numbers: theta, C and s of each margin function (Eqs. 14 and 15)."""

from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import OneVsAll, available, get
from demur.margins import MarginFunction
from demur.theory.newton import minimise_rows
from demur.workers import single_threaded_kernels

__all__ = ["TableOne", "TableOneRow", "margin_excess", "table_one"]

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
    margins = [loss.phi for loss in losses if isinstance(loss, OneVsAll) and loss.phi.name in PRINTED]
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
