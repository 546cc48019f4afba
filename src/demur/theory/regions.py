"""The best risk among scores that take one given decision.

Where a loss is not calibrated, these two numbers show it: the least risk overall, and the least risk of scores that
decide as Chow's rule does. The tightest calibration function is made of the same numbers.
"""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from demur.losses import Loss
from demur.theory.facts import Facts
from demur.theory.pointwise import RiskProblem

__all__ = ["REJECT", "Constraints", "best_along_rays", "best_in_region", "decision_constraints"]

REJECT = -1
"""Stands for "reject" where other numbers stand for "answer this class"."""

Constraints: TypeAlias = Callable[[Tensor], Tensor]
"""From scores (m, n_outputs) to numbers (m, n_constraints) that are all >= 0 on the closure of a decision region."""


def decision_constraints(loss: Loss, facts: Facts, n_classes: int, cost: float, decision: int) -> Constraints:
    """Return the constraints under which a loss's rule rejects (:data:`REJECT`) or answers the given class.

    Chow's rule on an inverse link is written with the probability of each class alone, which is smooth; a rule of
    another kind with its own acceptance and, where the answer is the largest score, with differences of scores.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.facts import examine
    >>> loss = get("ce")
    >>> answer_0 = decision_constraints(loss, examine(loss, 2, 0.2), 2, 0.2, 0)
    >>> answer_0(torch.tensor([[0.9, 0.1]]).log()).round(decimals=3)  # 0.9 - 0.8 and log 9
    tensor([[0.1000, 2.1970]])
    """
    others = [k for k in range(n_classes) if k != decision]

    def on_link(scores: Tensor) -> Tensor:
        proba = loss.inverse_link(scores)
        if decision == REJECT:
            return (1 - cost) - proba
        # Differences of scores keep their slope where those of probabilities have lost it.
        compared = scores if facts.answers_argmax else proba
        ahead = compared[:, decision : decision + 1] - compared[:, others]
        return torch.cat([proba[:, decision : decision + 1] - (1 - cost), ahead], -1)

    def on_acceptance(scores: Tensor) -> Tensor:
        acceptance = loss.rule(scores, cost).acceptance.unsqueeze(-1)
        if decision == REJECT:
            return -acceptance
        if not facts.answers_argmax:
            return acceptance
        return torch.cat([acceptance, scores[:, decision : decision + 1] - scores[:, others]], -1)

    return on_link if facts.chow_on_link else on_acceptance


def best_in_region(
    problem: RiskProblem, constraints: Constraints, start: Tensor, *, rounds: int = 14
) -> tuple[Tensor, Tensor]:
    """Minimise each row's risk subject to the constraints, by an augmented Lagrangian and Newton steps.

    Parameters
    ----------
    problem : RiskProblem
        Of a smooth loss.
    constraints : callable
    start : tensor of shape (n_rows, n_unknowns)
        Unknowns in or near the region.
    rounds : int
        How often the multipliers are updated, at most.

    Returns
    -------
    unknowns : tensor of shape (n_rows, n_unknowns)
    violation : tensor of shape (n_rows,)
        By how much the worst constraint is missed; where it is not small, no scores of the region were found.

    Examples
    --------
    The best cross-entropy of scores that reject (0.9, 0.1) at c = 0.2 is that of the probabilities (0.8, 0.2):

    >>> from demur.losses import get
    >>> from demur.theory.facts import examine
    >>> from demur.theory.ties import Ties
    >>> loss, eta = get("ce"), torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    >>> problem = RiskProblem(loss, Ties.none(eta, 2), 0.2)
    >>> reject = decision_constraints(loss, examine(loss, 2, 0.2), 2, 0.2, REJECT)
    >>> unknowns, violation = best_in_region(problem, reject, torch.zeros(1, 2, dtype=torch.float64))
    >>> loss.proba(unknowns).round(decimals=6), bool(violation < 1e-8)
    (tensor([[0.8000, 0.2000]], dtype=torch.float64), True)
    """
    unknowns = start.clone()
    active = torch.arange(problem.n_rows)
    with torch.no_grad():
        multipliers = torch.zeros_like(constraints(problem.ties.scores(start, active)))
    violation = torch.full((problem.n_rows,), torch.inf, dtype=torch.float64)
    stiffness = 100.0
    for _ in range(rounds):
        part = problem.select(active)
        unknowns[active] = _descend_lagrangian(part, constraints, unknowns[active], multipliers[active], stiffness)
        with torch.no_grad():
            slack = constraints(problem.ties.scores(unknowns[active], active))
        multipliers[active] = torch.relu(multipliers[active] - stiffness * slack)
        violation[active] = torch.relu(-slack).amax(-1)
        residual = torch.maximum(torch.relu(-slack), (multipliers[active] * slack).abs()).amax(-1)
        active = active[residual > 1e-10]
        if not len(active):
            break
        stiffness = min(stiffness * 4, 1e4)
    return unknowns, violation


def _descend_lagrangian(
    problem: RiskProblem, constraints: Constraints, start: Tensor, multipliers: Tensor, stiffness: float
) -> Tensor:
    def lagrangian(unknowns: Tensor, rows: Tensor) -> Tensor:
        held = multipliers[rows]
        push = torch.relu(held - stiffness * constraints(problem.ties.scores(unknowns, rows)))
        return problem.risk(unknowns, rows) + (push.square() - held.square()).sum(-1) / (2 * stiffness)

    # A stiff penalty multiplies rounding errors: a smaller slope than this could not be reached.
    return problem.descend(lagrangian, start, max_steps=60, tolerance=1e-9)[0]


def best_along_rays(
    risk: Callable[[Tensor], Tensor], inside: Callable[[Tensor], Tensor], minimiser: Tensor, *, seed: int = 0
) -> Tensor | None:
    """Look for the best scores of a region with no more than its yes-or-no: for rules and losses without gradients.

    Random scores inside the region are drawn towards the minimiser of the risk as far as the region reaches; the
    best are varied and drawn again. The risk of the result is at least the best possible one.

    Parameters
    ----------
    risk : callable
        From scores (m, n_outputs) to (m,); convex.
    inside : callable
        From scores (m, n_outputs) to booleans (m,).
    minimiser : tensor of shape (n_outputs,)
        Of the risk, outside the region.

    Returns
    -------
    tensor of shape (n_outputs,), or None if no scores inside were found

    Examples
    --------
    >>> best = best_along_rays(lambda g: g.square().sum(-1), lambda g: g[:, 0] > 1, torch.zeros(2))
    >>> best.round(decimals=2).abs()
    tensor([1., 0.])
    """
    generator = torch.Generator().manual_seed(seed)
    centres, scale = torch.stack([minimiser, torch.zeros_like(minimiser)]), 8.0
    best: Tensor | None = None
    for _ in range(16):
        noise = torch.randn(1024, len(minimiser), generator=generator, dtype=minimiser.dtype)
        spread = torch.rand(1024, 1, generator=generator, dtype=minimiser.dtype)
        points = centres[torch.arange(1024) % len(centres)] + scale * spread * noise
        points = points[inside(points)]
        if best is not None:
            points = torch.cat([points, best.unsqueeze(0)])
        if not len(points):
            continue
        points = _towards(points, minimiser, inside)
        order = risk(points).argsort()
        best = points[order[0]]
        centres, scale = points[order[:8]], scale * 0.6
    return best


def _towards(points: Tensor, target: Tensor, inside: Callable[[Tensor], Tensor]) -> Tensor:
    """Move each point straight towards the target as far as it stays inside, by bisection."""
    near = torch.zeros(len(points), 1, dtype=points.dtype)
    far = torch.ones_like(near)
    for _ in range(40):
        middle = (near + far) / 2
        still = inside(points + middle * (target - points)).unsqueeze(-1)
        near, far = torch.where(still, middle, near), torch.where(still, far, middle)
    return points + near * (target - points)
