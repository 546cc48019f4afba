"""The best risk among scores that take one given decision.

Where a loss is not calibrated, two numbers show it: the least risk overall, and the least risk of scores that decide as
they should. The tightest calibration function is made of the same numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from demur.theory.bayes import REJECT
from demur.theory.examined_loss import ExaminedLoss, wide_scores
from demur.theory.pointwise_risk import RiskProblem, Ties, equal_values

__all__ = ["ConstrainedMinimum", "Constraints", "best_in_region", "best_with_decision", "decision_constraints"]

MOST_UNKNOWNS = 30
"""A search among more unknowns than this is not exact enough to refute anything."""
Constraints: TypeAlias = Callable[[Tensor], Tensor]
"""From scores (m, n_outputs) to numbers (m, n_constraints) that are all >= 0 on the closure of a decision region."""


def decision_constraints(subject: ExaminedLoss, decision: int) -> Constraints:
    """Return the constraints under which a loss's rule rejects (-1) or answers the given class.

    Chow's rule on an inverse link is written with the probability of each class alone, which is smooth; a rule of
    another kind with its own acceptance and, where the answer is the largest score, with differences of scores.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> answer_0 = decision_constraints(examine(get("ce"), as_target(0.2, 2)), 0)
    >>> answer_0(torch.tensor([[0.9, 0.1]]).log()).round(decimals=3)  # 0.9 - 0.8 and log 9
    tensor([[0.1000, 2.1970]])
    """
    loss, facts, target = subject.loss, subject.facts, subject.target
    others = [k for k in range(subject.n_classes) if k != decision]
    single = target.single

    def on_costs(scores: Tensor) -> Tensor:
        costs = loss.inverse_link(scores) @ target.matrix
        own = costs[:, decision : decision + 1] if decision != REJECT else costs[:, -1:]
        rest = others if decision == REJECT else [*others, subject.n_classes]
        return costs[:, rest] - own

    def on_link(scores: Tensor) -> Tensor:
        assert single is not None
        proba = loss.inverse_link(scores)
        if decision == REJECT:
            return (1 - single) - proba
        # Differences of scores keep their slope where those of probabilities have lost it.
        compared = scores if facts.answers_argmax else proba
        ahead = compared[:, decision : decision + 1] - compared[:, others]
        return torch.cat([proba[:, decision : decision + 1] - (1 - single), ahead], -1)

    def on_acceptance(scores: Tensor) -> Tensor:
        acceptance = loss.rule(scores, target.cost).acceptance.unsqueeze(-1)
        if decision == REJECT:
            return -acceptance
        if not facts.answers_argmax:
            return acceptance
        return torch.cat([acceptance, scores[:, decision : decision + 1] - scores[:, others]], -1)

    if single is None and loss.has_link:
        return on_costs
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
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject, eta = examine(get("ce"), as_target(0.2, 2)), torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    >>> problem, loss = RiskProblem.of(subject, Ties.none(eta, 2)), subject.loss
    >>> reject = decision_constraints(subject, REJECT)
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
        if not len(active) or problem.deadline.passed:
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


@dataclass(frozen=True)
class ConstrainedMinimum:
    """The least risk found among scores with one of some decisions.

    Parameters
    ----------
    risk : float
        In units of the loss's scale; infinite if no scores with such a decision were found.
    scores : tensor of shape (n_outputs,)
    error : float
        By how much two searches, or a search and Newton's method, disagree.
    n_inside : int
        How many scores with such a decision were tried.
    """

    risk: float
    scores: Tensor
    error: float
    n_inside: int


def best_with_decision(
    subject: ExaminedLoss, eta: Tensor, decision: int, minimiser: Tensor, known: Tensor, *, seed: int = 0
) -> ConstrainedMinimum:
    """Look for the least risk at one eta among scores that take a decision, with every means there is.

    Scores of many sizes, and those that are best at other eta, are drawn towards the minimiser as far as their decision
    stays, varied, and drawn again; free descents that end inside count too. Where loss and rule are smooth, Newton's
    method with multipliers has the last word.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_classes,)
    decision : int
    minimiser : tensor of shape (n_outputs,)
        Of the risk at eta, with another decision.
    known : tensor of shape (m, n_outputs)
        Scores worth trying, such as the minimisers at other eta.
    seed : int

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject, eta = examine(get("ce"), as_target(0.2, 2)), torch.tensor([0.9, 0.1], dtype=torch.float64)
    >>> found = best_with_decision(subject, eta, REJECT, eta.log(), eta.log()[None])
    >>> subject.loss.proba(found.scores).round(decimals=4)
    tensor([0.8000, 0.2000], dtype=torch.float64)
    """
    columns = _columns(subject, eta, len(minimiser))
    pool = _pool(subject, eta, decision, minimiser, known, columns, seed)
    exact = _by_newton(subject, eta, decision, minimiser, pool)
    if not len(pool) and exact is None:
        return ConstrainedMinimum(float("inf"), minimiser, 0.0, 0)
    found = [exact] if exact is not None else []
    if len(pool):
        found += [_descend_freely(subject, eta, decision, pool, columns)]
        at_minimiser, *so_far = subject.risk(torch.stack([minimiser, *found]), eta).tolist()
        if min(so_far) <= at_minimiser + subject.tolerance:  # as good as the minimiser: nothing is left to show
            best = so_far.index(min(so_far))
            return ConstrainedMinimum(so_far[best], found[best], 0.0, len(pool))
        found += [_along_rays(subject, eta, decision, minimiser, pool, columns, seed + i) for i in range(2)]
    risks = subject.risk(torch.stack(found), eta)
    best = int(risks.argmin())
    spread = 0.0
    if len(pool) and (exact is None or risks[best] < risks[0] - subject.tolerance):
        # Two searches tell how exact they are, in few dimensions; Newton's method, where it is exact, needs none.
        few = int(columns.max()) < MOST_UNKNOWNS
        spread = float((risks[-1] - risks[-2]).abs()) if few else float("inf")
    return ConstrainedMinimum(float(risks[best]), found[best], spread, len(pool))


def _inside(subject: ExaminedLoss, scores: Tensor, decision: int) -> Tensor:
    return subject.decide(scores) == decision


def _columns(subject: ExaminedLoss, eta: Tensor, n_outputs: int) -> Tensor:
    """Return which unknown each score is a copy of: with a symmetric convex loss, equal probabilities share."""
    if not (subject.facts.symmetric and subject.facts.convex):
        return torch.arange(n_outputs)
    return Ties.of(eta.unsqueeze(0), equal_values(eta.unsqueeze(0)), n_outputs).columns[0]


def _unknowns(scores: Tensor, columns: Tensor) -> Tensor:
    """Return the mean of the scores (m, n_outputs) that are copies of each unknown."""
    member = (columns.unsqueeze(-1) == torch.arange(int(columns.max()) + 1)).to(scores.dtype)
    return scores @ (member / member.sum(0))


def _noise(n_rows: int, columns: Tensor, generator: torch.Generator) -> Tensor:
    n_unknowns = int(columns.max()) + 1
    return torch.randn(n_rows, n_unknowns, generator=generator, dtype=torch.float64)[:, columns]


def _pool(
    subject: ExaminedLoss, eta: Tensor, decision: int, minimiser: Tensor, known: Tensor, columns: Tensor, seed: int
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    around = minimiser + torch.cat([size * _noise(100, columns, generator) for size in (0.1, 0.5, 2.0, 8.0)])
    shuffled = minimiser[torch.stack([torch.randperm(len(minimiser), generator=generator) for _ in range(100)])]
    points = torch.cat([known, wide_scores(len(minimiser), generator), around, shuffled])
    if not subject.facts.convex:
        points = torch.cat([points, _by_chance(subject, eta, minimiser, generator)])
    points = points[_inside(subject, points, decision)]
    return points[subject.risk(points, eta).argsort()[:400]]


def _by_chance(subject: ExaminedLoss, eta: Tensor, minimiser: Tensor, generator: torch.Generator) -> Tensor:
    """Return many random scores: multiples of log eta, disturbed, and the minimiser, disturbed.

    Where a risk jumps or has many minima, descents are not to be relied on; in few dimensions chance is.
    """
    n_outputs = len(minimiser)
    n = min(15_000, 1_500_000 // (subject.n_classes * n_outputs))
    draws = torch.randn(2, n, n_outputs, generator=generator, dtype=torch.float64)
    sizes = torch.tensor([0.03, 0.1, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64)[torch.arange(n) % 6].unsqueeze(-1)
    near = minimiser + sizes * draws[0]
    if n_outputs < subject.n_classes:
        return near
    factor = 10 ** (2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1)
    scores = draws[1]
    scores[:, : subject.n_classes] = eta.clamp(min=1e-6).log() + sizes.clamp(max=2.0) * scores[:, : subject.n_classes]
    return torch.cat([near, factor * scores])


def _descend_freely(subject: ExaminedLoss, eta: Tensor, decision: int, pool: Tensor, columns: Tensor) -> Tensor:
    """Descend from the best scores inside without constraints; keep the ends that are still inside."""
    starts = pool[sorted({round(i * (len(pool) - 1) / 23) for i in range(24)})]
    rows = eta.expand(len(starts), -1)
    ties = Ties.of(rows, None, len(columns))
    if subject.facts.symmetric and (subject.facts.convex or len(columns) > MOST_UNKNOWNS):
        ties = Ties.of(rows, equal_values(rows), len(columns))
        columns = ties.columns[0]
    problem = RiskProblem.of(subject, ties)
    unknowns = _unknowns(starts, columns)
    if subject.facts.twice:
        ends, _ = problem.descend(problem.risk, unknowns, max_steps=80)
    else:
        ends, _ = problem.descend_kinks(unknowns, max_steps=60)
    ends = ends[:, columns]
    ends = torch.cat([ends[_inside(subject, ends, decision)], starts])
    return ends[subject.risk(ends, eta).argmin()]


def _along_rays(
    subject: ExaminedLoss, eta: Tensor, decision: int, minimiser: Tensor, pool: Tensor, columns: Tensor, seed: int
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres, scale = _towards(subject, pool[:200], minimiser, decision), 2.0
    centres = torch.cat([centres, pool[:50]])
    centres = centres[subject.risk(centres, eta).argsort()[:12]]
    for _ in range(40 if int(columns.max()) < MOST_UNKNOWNS else 10):
        noise = _noise(300, columns, generator)
        spread = torch.rand(300, 1, generator=generator, dtype=torch.float64) ** 2
        points = centres[torch.arange(300) % len(centres)] + scale * spread * noise
        points = points[_inside(subject, points, decision)]
        points = torch.cat([points, centres])
        points = torch.cat([_towards(subject, points, minimiser, decision), centres])
        centres, before = points[subject.risk(points, eta).argsort()[:6]], centres[:1]
        moved = float((centres[0] - before[0]).abs().amax())
        scale = scale * 0.7 if moved < 0.5 * scale else scale
        if scale < 1e-7 or subject.deadline.passed:
            break
    return centres[0]


def _towards(subject: ExaminedLoss, points: Tensor, target: Tensor, decision: int) -> Tensor:
    """Move each point straight towards the target as far as its decision stays, by bisection."""
    near = torch.zeros(len(points), 1, dtype=points.dtype)
    far = torch.ones_like(near)
    for _ in range(30):
        middle = (near + far) / 2
        still = _inside(subject, points + middle * (target - points), decision).unsqueeze(-1)
        near, far = torch.where(still, middle, near), torch.where(still, far, middle)
    return points + near * (target - points)


def _by_newton(subject: ExaminedLoss, eta: Tensor, decision: int, minimiser: Tensor, pool: Tensor) -> Tensor | None:
    """Return the best scores of the closed region by Newton's method with multipliers; None without derivatives."""
    if not (subject.facts.twice and subject.loss.smooth):
        return None
    constraints = decision_constraints(subject, decision)
    if not constraints(minimiser.unsqueeze(0).clone().requires_grad_()).requires_grad:
        return None
    row = eta.unsqueeze(0)
    tied = subject.facts.symmetric and (subject.facts.convex or subject.n_classes > 8)
    problem = RiskProblem.of(subject, Ties.of(row, equal_values(row) if tied else None, len(minimiser)))
    columns, n_unknowns = problem.ties.columns[0], problem.ties.n_unknowns
    starts = [torch.zeros(n_unknowns, dtype=torch.float64)]
    starts += [torch.zeros(n_unknowns, dtype=torch.float64).scatter(0, columns, s) for s in (minimiser, *pool[:3])]
    together = RiskProblem.of(subject, problem.ties.select(torch.zeros(len(starts), dtype=torch.long)))
    unknowns, violation = best_in_region(together, constraints, torch.stack(starts))
    scores = together.ties.scores(unknowns, torch.arange(len(starts)))
    risks = torch.where(violation < 1e-8, subject.risk(scores, eta), torch.inf)
    return scores[risks.argmin()] if bool(risks.isfinite().any()) else None
