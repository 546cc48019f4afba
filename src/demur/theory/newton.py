"""Minimise many small smooth functions at once."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

__all__ = ["Objective", "minimise_rows"]

Objective: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Takes points (m, d) and the numbers of their rows (m,); returns one value per row, none depending on another's."""


def minimise_rows(
    objective: Objective, start: Tensor, *, max_steps: int = 300, tolerance: float = 1e-12
) -> tuple[Tensor, Tensor]:
    """Run Levenberg-Marquardt on every row at once; rows leave when their gradient has vanished.

    Second derivatives come from differentiating the gradient once per unknown, so memory grows with the size of
    one gradient and not with its square.

    Parameters
    ----------
    objective : callable
        See :data:`Objective`.
    start : tensor of shape (n_rows, n_unknowns), float64
    max_steps : int
    tolerance : float
        For the largest component of the gradient, relative to the value where that exceeds 1.

    Returns
    -------
    points : tensor of shape (n_rows, n_unknowns)
    slope : tensor of shape (n_rows,)
        The largest component of the gradient that is left, in the same relative measure.

    Examples
    --------
    >>> targets = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    >>> points, slope = minimise_rows(lambda u, rows: torch.cosh(u - targets[rows]).sum(-1), torch.zeros_like(targets))
    >>> bool(torch.allclose(points, targets)), bool((slope < 1e-12).all())
    (True, True)
    """
    points = start.detach().clone()
    n_rows, n_unknowns = points.shape
    slope = torch.full((n_rows,), torch.inf, dtype=points.dtype)
    damping = torch.full((n_rows,), 1e-4, dtype=points.dtype)
    identity = torch.eye(n_unknowns, dtype=points.dtype)
    rows = torch.arange(n_rows)
    for _ in range(max_steps):
        value, gradient, curvature = _second_order(objective, points[rows], rows)
        slope[rows] = _relative(gradient, value)
        moving = (slope[rows] > tolerance) & (damping[rows] < 1e12)
        rows, value, gradient, curvature = rows[moving], value[moving], gradient[moving], curvature[moving]
        if not len(rows):
            break
        lowest = torch.linalg.eigvalsh(curvature)[:, 0].clamp(max=0.0)
        shift = damping[rows] - lowest
        step = torch.linalg.solve(curvature + shift[:, None, None] * identity, gradient)
        new_value, new_gradient = _first_order(objective, points[rows] - step, rows)
        rounding = 1e-15 * (1 + value.abs())
        calmer = new_gradient.abs().amax(-1) < gradient.abs().amax(-1)
        better = (new_value < value - rounding) | ((new_value <= value + rounding) & calmer)
        points[rows] = torch.where(better[:, None], points[rows] - step, points[rows])
        damping[rows] = torch.where(better, damping[rows] / 10, damping[rows] * 10).clamp(min=1e-14)
    return points, slope


def _relative(gradient: Tensor, value: Tensor) -> Tensor:
    return gradient.abs().amax(-1) / value.abs().clamp(min=1.0)


def _first_order(objective: Objective, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    free = points.detach().requires_grad_()
    value = objective(free, rows)
    (gradient,) = torch.autograd.grad(value.sum(), free, materialize_grads=True)
    return value.detach(), gradient


def _second_order(objective: Objective, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    free = points.detach().requires_grad_()
    value = objective(free, rows)
    (gradient,) = torch.autograd.grad(value.sum(), free, create_graph=True, materialize_grads=True)
    n_unknowns = points.shape[-1]
    curvature = torch.zeros(*points.shape, n_unknowns, dtype=points.dtype)
    if gradient.requires_grad:
        for i in range(n_unknowns):
            (column,) = torch.autograd.grad(
                gradient[:, i].sum(), free, retain_graph=i < n_unknowns - 1, materialize_grads=True
            )
            curvature[:, :, i] = column
    return value.detach(), gradient.detach(), curvature
