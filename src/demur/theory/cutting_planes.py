"""Minimise a convex pointwise risk with kinks: Kelley's cutting planes."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

__all__ = ["minimise_kinked"]


def minimise_kinked(
    losses: Callable[[Tensor], Tensor],
    weights: Tensor,
    n_unknowns: int,
    *,
    bound: float = 4.0,
    max_cuts: int = 500,
    tolerance: float = 1e-10,
) -> Tensor:
    """Return a minimiser of sum_i w_i L_i(u), each L_i convex, in a box that grows while that lowers the risk.

    Each round adds one tangent of every L_i and solves a linear program for the greatest lower bound; it ends
    when the bound meets the best value seen, so the result is exact up to ``tolerance``.

    Parameters
    ----------
    losses : callable
        Takes one copy of the unknowns per term, (n_terms, n_unknowns), and returns term i at copy i, (n_terms,).
    weights : tensor of shape (n_terms,)
    n_unknowns : int
    bound : float
        Half the width of the first box.
    max_cuts : int
    tolerance : float

    Examples
    --------
    >>> hinge = lambda u: torch.relu(1 - torch.tensor([1.0, -1.0]) * u[:, 0])
    >>> minimise_kinked(hinge, torch.tensor([0.7, 0.3], dtype=torch.float64), 1)
    tensor([1.], dtype=torch.float64)
    """
    planes = _Planes(weights.numpy(), n_unknowns)
    point, risk = planes.descend(losses, torch.zeros(n_unknowns, dtype=torch.float64), bound, max_cuts, tolerance)
    while bound < 1e4 and bool((point.abs() >= bound * (1 - 1e-9)).any()):
        bound *= 8
        farther, lower = planes.descend(losses, point, bound, max_cuts, tolerance)
        if lower > risk - 1e-9 * (1 + abs(risk)):
            break
        point, risk = farther, lower
    return point


class _Planes:
    """The tangents seen so far: a lower bound t_i >= s . u - l for each term."""

    def __init__(self, weights: NDArray[np.float64], n_unknowns: int) -> None:
        self.weights = weights
        self.n_unknowns = n_unknowns
        self.rows: list[NDArray[np.float64]] = []
        self.limits: list[NDArray[np.float64]] = []

    def descend(
        self, losses: Callable[[Tensor], Tensor], start: Tensor, bound: float, max_cuts: int, tolerance: float
    ) -> tuple[Tensor, float]:
        point, lower = start, -np.inf
        best, upper = start, np.inf
        for _ in range(max_cuts):
            risk = self._cut(losses, point)
            if risk < upper:
                best, upper = point, risk
            if upper - lower <= tolerance * (1 + abs(upper)):
                break
            point, lower = self._lowest(bound)
        return best, upper

    def _cut(self, losses: Callable[[Tensor], Tensor], point: Tensor) -> float:
        free = point.detach().expand(len(self.weights), -1).clone().requires_grad_()
        values = losses(free)
        (slope,) = torch.autograd.grad(values.sum(), free, materialize_grads=True)
        self.rows.append(np.hstack([slope.numpy(), -np.eye(len(slope))]))
        self.limits.append((slope @ point - values.detach()).numpy())
        return float(values.detach().numpy() @ self.weights)

    def _lowest(self, bound: float) -> tuple[Tensor, float]:
        result = linprog(
            np.r_[np.zeros(self.n_unknowns), self.weights],
            A_ub=np.vstack(self.rows),
            b_ub=np.concatenate(self.limits),
            bounds=[(-bound, bound)] * self.n_unknowns + [(None, None)] * len(self.weights),
        )
        if result.x is None or result.fun is None:
            raise RuntimeError(f"the linear program of the cutting planes failed: {result.message}")
        return torch.from_numpy(result.x[: self.n_unknowns].copy()), float(result.fun)
