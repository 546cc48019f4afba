"""Minimise many small functions at once: Newton's method, cutting planes, sampled gradients."""

from collections.abc import Callable
from time import thread_time
from typing import TypeAlias

import numpy as np
import torch
from scipy.optimize import linprog, nnls
from torch import Tensor

from demur.array_types import Floats
from demur.workers import single_threaded_kernels

Objective: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""Function of points (m, d) and the numbers of their rows (m,) that returns one value per row, independent of the other
rows."""

LONGEST_STEP = 20.0
"""Largest change of a score in one step, in addition to the size of the largest score."""


class Deadline:
    """When to stop.

    Parameters
    ----------
    seconds : float
        Limit of this thread's CPU time from now on; CPU time does not depend on the load of the machine.

    Examples
    --------
    >>> Deadline(60).passed, Deadline(0.0).passed, Deadline(float("inf")).passed
    (False, True, False)
    """

    def __init__(self, seconds: float) -> None:
        self._end = thread_time() + seconds

    @property
    def passed(self) -> bool:
        """Whether the time is up."""
        return thread_time() > self._end


ENDLESS = Deadline(float("inf"))


@single_threaded_kernels()
def minimise_rows(
    objective: Objective,
    start: Tensor,
    rows: Tensor,
    *,
    max_steps: int = 300,
    tolerance: float = 1e-12,
    noise: float = 1e-15,
    deadline: Deadline = ENDLESS,
) -> tuple[Tensor, Tensor]:
    """Run Levenberg-Marquardt on every row at once; rows leave when their gradient has vanished.

    Steps to NaN are not taken.

    Parameters
    ----------
    objective : callable
        See :data:`Objective`.
    start : tensor of shape (n_rows, n_unknowns), float64
    rows : integer tensor of shape (n_rows,)
        The numbers of the rows that the objective is given.
    max_steps : int
    tolerance : float
        Tolerance for the largest component of the gradient, relative to the value if that exceeds 1.
    noise : float
        The rounding error of a value, relative to 1 + its size.
    deadline : Deadline
        Time at which the points reached so far are returned.

    Returns
    -------
    points : tensor of shape (n_rows, n_unknowns)
    slope : tensor of shape (n_rows,)
        The largest component of the gradient that is left, in the same relative measure.

    Examples
    --------
    >>> targets = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    >>> distance = lambda u, rows: torch.cosh(u - targets[rows]).sum(-1)
    >>> points, slope = minimise_rows(distance, torch.zeros_like(targets), torch.arange(2))
    >>> bool(torch.allclose(points, targets)), bool((slope < 1e-12).all())
    (True, True)
    """
    points = start.detach().clone()
    n_rows, n_unknowns = points.shape
    slope, damping = points.new_full((n_rows,), torch.inf), points.new_full((n_rows,), 1e-4)
    identity = torch.eye(n_unknowns, dtype=points.dtype)
    active = torch.arange(n_rows)
    value, gradient, curvature = second_order(objective, points, rows)
    for _ in range(max_steps):
        # The slope must be finite even where the value is not.
        slope[active] = gradient.abs().amax(-1) / value.abs().clamp(1.0, 1e4)
        moving = (slope[active] > tolerance) & (damping[active] < 1e12) & value.isfinite()
        if not bool(moving.all()):
            active, value, gradient, curvature = active[moving], value[moving], gradient[moving], curvature[moving]
        if not len(active) or deadline.passed:
            break
        step = _damped_step(gradient, curvature, damping[active], identity)
        reach = LONGEST_STEP + points[active].abs().amax(-1, keepdim=True)
        step = step * (reach / step.abs().amax(-1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0)
        new_value, new_gradient, new_curvature = second_order(objective, points[active] - step, rows[active])
        doubt = noise * (1 + value.abs())
        calmer = new_gradient.abs().amax(-1) < gradient.abs().amax(-1)
        better = (new_value < value - doubt) | ((new_value <= value + doubt) & calmer)
        points[active] = torch.where(better[:, None], points[active] - step, points[active])
        damping[active] = torch.where(better, damping[active] / 10, damping[active] * 10).clamp(min=1e-14)
        value = torch.where(better, new_value, value)
        gradient = torch.where(better[:, None], new_gradient, gradient)
        curvature = torch.where(better[:, None, None], new_curvature, curvature)
    return points, slope.nan_to_num(nan=torch.inf)


def _damped_step(gradient: Tensor, curvature: Tensor, damping: Tensor, identity: Tensor) -> Tensor:
    """Solve (H + shift) step = gradient with a shift that makes the matrix positive."""
    rounding = 1e-14 * curvature.abs().amax((-2, -1))
    shift = torch.maximum(damping, rounding)
    factor, failed = torch.linalg.cholesky_ex(curvature + shift[:, None, None] * identity)
    if bool(failed.any()):
        lowest = _lowest_eigenvalue(curvature).clamp(max=0.0)
        shift = shift - lowest * (1 + 1e-8)
        step, _ = torch.linalg.solve_ex(curvature + shift[:, None, None] * identity, gradient)
    else:
        step = torch.cholesky_solve(gradient.unsqueeze(-1), factor).squeeze(-1)
    sound: Tensor = step.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return sound


def _lowest_eigenvalue(curvature: Tensor) -> Tensor:
    try:
        lowest: Tensor = torch.linalg.eigvalsh(curvature)[:, 0]
    except RuntimeError:  # too ill-conditioned to converge: Gershgorin's circles are below it
        diagonal = curvature.diagonal(dim1=-2, dim2=-1)
        lowest = (diagonal - (curvature.abs().sum(-1) - diagonal.abs())).amin(-1)
    return lowest


def second_order(objective: Objective, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return value, gradient and second derivatives of each row; an infinite value where one is not a number."""
    n_rows, n = points.shape
    free = points.detach().repeat(n, 1).requires_grad_()
    value = objective(free, rows.repeat(n))
    (gradient,) = torch.autograd.grad(value.sum(), free, create_graph=True, materialize_grads=True)
    curvature = points.new_zeros(n_rows, n, n)
    if gradient.requires_grad:
        # Copy i of every row is differentiated for the i-th component of its gradient.
        own = gradient.view(n, n_rows, n).diagonal(dim1=0, dim2=2)
        (columns,) = torch.autograd.grad(own.sum(), free, materialize_grads=True)
        curvature = columns.view(n, n_rows, n).permute(1, 2, 0)
    value, gradient = value[:n_rows].detach(), gradient[:n_rows].detach()
    sound = value.isfinite() & gradient.isfinite().all(-1) & curvature.isfinite().all(-1).all(-1)
    value = torch.where(sound, value, torch.inf)
    return value, gradient.nan_to_num(0.0, 0.0, 0.0), curvature.nan_to_num(0.0, 0.0, 0.0)


@single_threaded_kernels()
def minimise_kinked_rows(
    objective: Objective,
    start: Tensor,
    rows: Tensor | None = None,
    *,
    max_steps: int = 140,
    noise: float = 1e-15,
    seed: int = 0,
    deadline: Deadline = ENDLESS,
) -> tuple[Tensor, Tensor]:
    """Minimise functions with kinks, convex or not, by sampled gradients (Burke, Lewis and Overton 2005).

    At each step the gradients at random nearby points are computed; the negative of the shortest vector in their convex
    hull is a descent direction for all of them. The neighbourhood shrinks if no step in this direction decreases the
    value.

    Parameters
    ----------
    objective, start, rows, max_steps, noise, deadline
        As for :func:`minimise_rows`.
    seed : int
        Random seed of the drawn points.

    Returns
    -------
    points : tensor of shape (n_rows, n_unknowns)
    slope : tensor of shape (n_rows,)
        The length of the shortest such vector over a small neighbourhood: 0 at a minimum, kink or not.

    Examples
    --------
    >>> top = lambda u, rows: (u[:, 0] - 1).abs() + (u[:, 1] + 2 * u[:, 0]).abs()
    >>> points, slope = minimise_kinked_rows(top, torch.zeros(1, 2, dtype=torch.float64))
    >>> points.round(decimals=4), bool(slope < 1e-3)
    (tensor([[ 1., -2.]], dtype=torch.float64), True)
    """
    generator = torch.Generator().manual_seed(seed)
    points = start.detach().clone()
    n_rows, d = points.shape
    radius = points.new_full((n_rows,), 0.5)
    slope = points.new_full((n_rows,), torch.inf)
    reach = torch.tensor([30.0, 10.0, 3.0, 1.0, 0.3, 0.1], dtype=torch.float64)
    names = torch.arange(n_rows) if rows is None else rows
    with torch.no_grad():
        value = objective(points, names)
    active = value.isfinite().nonzero()[:, 0]
    for _ in range(max_steps):
        if not len(active) or deadline.passed:
            break
        here, size = points[active], radius[active]
        offsets = 2 * torch.rand(len(active), 2 * d + 2, d, generator=generator, dtype=torch.float64) - 1
        offsets[:, 0] = 0
        cloud = here[:, None] + size[:, None, None] * offsets
        free = cloud.reshape(-1, d).requires_grad_()
        values = objective(free, names[active].repeat_interleave(cloud.shape[1]))
        (gradients,) = torch.autograd.grad(values.sum(), free, materialize_grads=True)
        shortest = _shortest_in_hull(gradients.nan_to_num(0.0, 0.0, 0.0).reshape(cloud.shape))
        length = shortest.norm(dim=-1)
        small = size <= 1e-4
        slope[active[small]] = torch.minimum(slope[active[small]], length[small])
        direction = -shortest / length.clamp(min=1e-300)[:, None]
        ladder = here[:, None] + (size[:, None] * reach)[:, :, None] * direction[:, None]
        with torch.no_grad():
            risks = objective(ladder.reshape(-1, d), names[active].repeat_interleave(len(reach)))
            risks = risks.reshape(len(active), -1)
        best = risks.nan_to_num(nan=torch.inf).min(-1)
        improved = best.values < value[active] - noise * (1 + value[active].abs())
        chosen = ladder[torch.arange(len(active)), best.indices]
        points[active] = torch.where(improved[:, None], chosen, here)
        value[active] = torch.where(improved, best.values, value[active])
        radius[active] = torch.where(improved, size * reach[best.indices].clamp(0.5, 4.0), size * 0.3).clamp(max=10.0)
        active = active[(radius[active] > 1e-10) & (points[active].abs().amax(-1) < 1e4)]
    return points, slope


def _shortest_in_hull(vectors: Tensor) -> Tensor:
    """Return the shortest vector in the convex hull of each row's vectors (n_rows, m, d).

    For weights w >= 0 with the sum t, the least squares of (w @ vectors, t) towards (0, 1) have their minimum where
    w / t are the weights of the shortest vector.
    """
    shortest = np.empty((len(vectors), vectors.shape[-1]))
    for place, row in zip(shortest, vectors.numpy(), strict=True):
        system = np.vstack([row.T / max(np.abs(row).max(), 1e-300), np.ones(len(row))])
        weights, _ = nnls(system, np.eye(len(system))[-1])
        place[:] = weights @ row / weights.sum()
    return torch.from_numpy(shortest)


def minimise_convex_kinks(
    losses: Callable[[Tensor], Tensor],
    weights: Tensor,
    n_unknowns: int,
    *,
    deadline: Deadline = ENDLESS,
) -> tuple[Tensor, float]:
    """Minimise sum_i w_i L_i(u), each L_i convex, by cutting planes in a box that grows while that lowers the risk.

    Each round adds one tangent of every L_i and solves a linear program for the greatest lower bound; it ends
    when the bound meets the best value seen.

    Parameters
    ----------
    losses : callable
        Takes one copy of the unknowns per term, (n_terms, n_unknowns), and returns term i at copy i, (n_terms,).
    weights : tensor of shape (n_terms,)
    n_unknowns : int
    deadline : Deadline
        When to return the point reached so far.

    Returns
    -------
    point : tensor of shape (n_unknowns,)
    gap : float
        Bound of the value minus the least value; infinite if a linear program failed or there is no least value.

    Examples
    --------
    >>> hinge = lambda u: torch.relu(1 - torch.tensor([1.0, -1.0]) * u[:, 0])
    >>> minimise_convex_kinks(hinge, torch.tensor([0.7, 0.3], dtype=torch.float64), 1)[0]
    tensor([1.], dtype=torch.float64)
    """
    slopes: list[Floats] = []
    limits: list[Floats] = []
    objective = np.r_[np.zeros(n_unknowns), weights.numpy()]

    def cut(point: Tensor) -> float:
        """Add the tangents t_i >= s . u - l at a point; return the risk there."""
        free = point.expand(len(weights), -1).clone().requires_grad_()
        values = losses(free)
        (slope,) = torch.autograd.grad(values.sum(), free, materialize_grads=True)
        slopes.append(np.hstack([slope.numpy(), -np.eye(len(slope))]))
        limits.append((slope @ point - values.detach()).numpy())
        return float(values.detach() @ weights)

    def descend(point: Tensor, bound: float) -> tuple[Tensor, float, float]:
        """Return the best point in the box, its risk, and how far that may be above the least risk in the box."""
        box = [(-bound, bound)] * n_unknowns + [(None, None)] * len(weights)
        best, upper, lower = point, np.inf, -np.inf
        for _ in range(60):
            risk = cut(point)
            if risk < upper:
                best, upper = point, risk
            if upper - lower <= 1e-10 * (1 + abs(upper)):
                break
            if deadline.passed or not np.isfinite(limits[-1]).all():
                return best, upper, np.inf
            found = linprog(objective, A_ub=np.vstack(slopes), b_ub=np.concatenate(limits), bounds=box)
            if found.x is None or found.fun is None:
                return best, upper, np.inf
            point, lower = torch.from_numpy(found.x[:n_unknowns].copy()), float(found.fun)
        return best, upper, max(upper - lower, 0.0)

    bound = 4.0
    point, risk, gap = descend(weights.new_zeros(n_unknowns), bound)
    while bool((point.abs() >= bound * (1 - 1e-9)).any()):
        if bound >= 1e4:
            return point, np.inf
        bound *= 8
        farther, lower, new_gap = descend(point, bound)
        if lower > risk - 1e-9 * (1 + abs(risk)):
            break
        point, risk, gap = farther, lower, new_gap
    return point, gap
