"""Minimise many small smooth functions at once."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from demur.workers import single_threaded_kernels

__all__ = ["Objective", "minimise_rows"]

Objective: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Takes points (m, d) and the numbers of their rows (m,); returns one value per row, none depending on another's."""


SMALL = 1000
"""Up to this many rows times unknowns, the time of an operation does not depend on its size."""


@single_threaded_kernels()
def minimise_rows(
    objective: Objective, start: Tensor, *, max_steps: int = 300, tolerance: float = 1e-12
) -> tuple[Tensor, Tensor]:
    """Run Levenberg-Marquardt on every row at once; rows leave when their gradient has vanished.

    Second derivatives come from differentiating the gradient once per unknown, so that for large problems memory
    grows with the size of one gradient and not with its square.

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
    value, gradient, curvature = _second_order(objective, points, rows)
    for _ in range(max_steps):
        slope[rows] = _relative(gradient, value)
        moving = (slope[rows] > tolerance) & (damping[rows] < 1e12)
        if not bool(moving.all()):
            rows, value, gradient, curvature = rows[moving], value[moving], gradient[moving], curvature[moving]
        if not len(rows):
            break
        step = _damped_step(gradient, curvature, damping[rows], identity)
        new_value, new_gradient, new_curvature = _second_order(objective, points[rows] - step, rows)
        noise = 1e-15 * (1 + value.abs())
        calmer = new_gradient.abs().amax(-1) < gradient.abs().amax(-1)
        better = (new_value < value - noise) | ((new_value <= value + noise) & calmer)
        points[rows] = torch.where(better[:, None], points[rows] - step, points[rows])
        damping[rows] = torch.where(better, damping[rows] / 10, damping[rows] * 10).clamp(min=1e-14)
        value = torch.where(better, new_value, value)
        gradient = torch.where(better[:, None], new_gradient, gradient)
        curvature = torch.where(better[:, None, None], new_curvature, curvature)
    return points, slope


def _damped_step(gradient: Tensor, curvature: Tensor, damping: Tensor, identity: Tensor) -> Tensor:
    """Solve (H + shift) step = gradient with a shift that makes the matrix positive."""
    rounding = 1e-14 * curvature.abs().amax((-2, -1))
    shift = torch.maximum(damping, rounding)
    factor, failed = torch.linalg.cholesky_ex(curvature + shift[:, None, None] * identity)
    if bool(failed.any()):
        lowest = torch.linalg.eigvalsh(curvature)[:, 0].clamp(max=0.0)
        shift = shift - lowest * (1 + 1e-8)
        step: Tensor = torch.linalg.solve(curvature + shift[:, None, None] * identity, gradient)
        return step
    return torch.cholesky_solve(gradient.unsqueeze(-1), factor).squeeze(-1)


def _relative(gradient: Tensor, value: Tensor) -> Tensor:
    return gradient.abs().amax(-1) / value.abs().clamp(min=1.0)


def _second_order(objective: Objective, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, gradient and second derivatives, those of a few rows in one pass and those of many one by one."""
    n_rows, n_unknowns = points.shape
    copies = n_unknowns if n_unknowns <= 16 and n_rows * n_unknowns <= SMALL else 1
    free = points.detach().repeat(copies, 1).requires_grad_()
    value = objective(free, rows.repeat(copies))
    (gradient,) = torch.autograd.grad(value.sum(), free, create_graph=True, materialize_grads=True)
    curvature = torch.zeros(n_rows, n_unknowns, n_unknowns, dtype=points.dtype)
    if gradient.requires_grad and copies > 1:
        # Copy i of every row is differentiated for the i-th component of its gradient.
        own = gradient.view(copies, n_rows, n_unknowns).diagonal(dim1=0, dim2=2)
        (columns,) = torch.autograd.grad(own.sum(), free, materialize_grads=True)
        curvature = columns.view(copies, n_rows, n_unknowns).permute(1, 2, 0)
    elif gradient.requires_grad:
        for i in range(n_unknowns):
            last = i == n_unknowns - 1
            (column,) = torch.autograd.grad(gradient[:, i].sum(), free, retain_graph=not last, materialize_grads=True)
            curvature[:, :, i] = column
    return value[:n_rows].detach(), gradient[:n_rows].detach(), curvature
