"""The pointwise risk W(g; eta) = sum_y eta_y L(g, y) of any loss, and its minimiser (Section 2.1)."""

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from demur.losses import Hyper, Loss

__all__ = ["minimise_pointwise_risk", "pointwise_risk"]


def pointwise_risk(loss: Loss, scores: Tensor, eta: Tensor, cost: Hyper) -> Tensor:
    """Return the expected loss of the scores when the classes have probabilities eta.

    Parameters
    ----------
    loss : Loss
    scores : tensor of shape (..., n_outputs)
    eta : tensor of shape (..., n_classes)
    cost : float or tensor of shape (...)

    Examples
    --------
    >>> from demur.losses import get
    >>> eta = torch.tensor([0.5, 0.25, 0.25])
    >>> pointwise_risk(get("ce"), torch.log(eta), eta, cost=0.2)  # the entropy of eta
    tensor(1.0397)
    """
    each_class = scores.unsqueeze(-2).expand(*scores.shape[:-1], eta.shape[-1], scores.shape[-1])
    y = torch.arange(eta.shape[-1], device=scores.device).expand(each_class.shape[:-1])
    c = cost.unsqueeze(-1) if isinstance(cost, Tensor) else cost
    return (eta * loss.forward(each_class, y, c)).sum(-1)


def minimise_pointwise_risk(loss: Loss, eta: Tensor, cost: Hyper) -> Tensor:
    """Return scores that minimise the pointwise risk at each eta.

    Smooth losses: damped Newton steps in float64 from the origin, all rows at once. Piecewise linear losses:
    cutting planes in the box [-4, 4], exact up to the linear program's tolerance. Where the infimum lies at
    infinity (an eta with zeros), the scores are those at which the gradient has vanished numerically.

    Parameters
    ----------
    loss : Loss
        With plain numbers as hyper-parameters.
    eta : tensor of shape (n_rows, n_classes)
    cost : float, or tensor of shape (n_rows,)

    Returns
    -------
    tensor of shape (n_rows, n_outputs), float64

    Examples
    --------
    >>> from demur.losses import get
    >>> eta = torch.tensor([[0.7, 0.2, 0.1]])
    >>> scores = minimise_pointwise_risk(get("ce"), eta, cost=0.2)
    >>> get("ce").proba(scores)
    tensor([[0.7000, 0.2000, 0.1000]], dtype=torch.float64)
    """
    eta = eta.to(torch.float64)
    costs = torch.as_tensor(cost, dtype=torch.float64).expand(eta.shape[0])
    n_outputs = loss.n_outputs(eta.shape[-1])
    if loss.smooth:
        return _newton(lambda g, e, c: pointwise_risk(loss, g, e, c), eta, costs, n_outputs)
    rows = [_cutting_planes(loss, e, c, n_outputs) for e, c in zip(eta, costs, strict=True)]
    return torch.stack(rows)


def _newton(
    risk: Callable[[Tensor, Tensor, Tensor], Tensor],
    eta: Tensor,
    costs: Tensor,
    n_outputs: int,
    *,
    max_steps: int = 300,
) -> Tensor:
    """Levenberg-Marquardt steps on every row at once; rows leave when their gradient has vanished."""
    value = torch.func.vmap(risk)
    gradient = torch.func.vmap(torch.func.grad(risk))
    hessian = torch.func.vmap(torch.func.hessian(risk))
    solution = torch.zeros(eta.shape[0], n_outputs, dtype=torch.float64)
    damping = torch.full((eta.shape[0],), 1e-4, dtype=torch.float64)
    active = torch.arange(eta.shape[0])
    identity = torch.eye(n_outputs, dtype=torch.float64)
    for _ in range(max_steps):
        g, e, c = solution[active], eta[active], costs[active]
        slope = gradient(g, e, c)
        steep = (slope.abs().amax(-1) > 1e-12) & (damping[active] < 1e12)
        active = active[steep]
        if not len(active):
            break
        g, e, c, slope = g[steep], e[steep], c[steep], slope[steep]
        curvature = hessian(g, e, c)
        lowest = torch.linalg.eigvalsh(curvature)[:, 0].clamp(max=0.0)
        shift = damping[active] - lowest
        step = torch.linalg.solve(curvature + shift[:, None, None] * identity, slope)
        better = value(g - step, e, c) < value(g, e, c)
        solution[active] = torch.where(better[:, None], g - step, g)
        damping[active] = torch.where(better, damping[active] / 10, damping[active] * 10).clamp(min=1e-14)
    return solution


def _cutting_planes(loss: Loss, eta: Tensor, cost: Tensor, n_outputs: int, *, bound: float = 4.0) -> Tensor:
    """Kelley's method with one cut per class and round: minimise sum_y eta_y t_y with t_y above every tangent."""
    n_classes = eta.shape[-1]
    y = torch.arange(n_classes)
    objective = np.r_[np.zeros(n_outputs), eta.numpy()]
    bounds = [(-bound, bound)] * n_outputs + [(0.0, None)] * n_classes
    rows: list[np.ndarray] = []
    limits: list[np.ndarray] = []
    g, lower = torch.zeros(n_outputs, dtype=torch.float64), -np.inf
    best, upper = g, np.inf
    for _ in range(500):
        values, slopes = _tangents(loss, g, y, cost)
        risk = float(values @ eta)
        if risk < upper:
            best, upper = g, risk
        if upper - lower <= 1e-10:
            break
        rows.append(np.hstack([slopes.numpy(), -np.eye(n_classes)]))
        limits.append((slopes @ g - values).numpy())
        result = linprog(objective, A_ub=np.vstack(rows), b_ub=np.concatenate(limits), bounds=bounds)
        if result.x is None or result.fun is None:
            raise RuntimeError(f"the linear program of the cutting planes failed: {result.message}")
        g, lower = torch.from_numpy(result.x[:n_outputs].copy()), float(result.fun)
    return best


def _tangents(loss: Loss, g: Tensor, y: Tensor, cost: Tensor) -> tuple[Tensor, Tensor]:
    """Return each class's loss at g and a subgradient of it."""

    def losses(scores: Tensor) -> Tensor:
        return loss.forward(scores.expand(len(y), -1), y, cost)

    values = losses(g)
    slopes: Tensor = torch.func.jacrev(losses)(g)
    return values, slopes
