"""A counterexample and its proof: the least risk, and the least risk among scores with the right decision.

Both risks are computed again, one row at a time, before a counterexample counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum, inf, isfinite
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from demur.array_types import Floats
from demur.theory.bayes import REJECT
from demur.theory.examined_loss import ExaminedLoss, draw_towards, wide_scores
from demur.theory.pointwise_risk import RiskProblem, equal_values

MOST_UNKNOWNS = 30
"""Maximum number of unknowns for which a search is exact enough to refute a loss."""
Constraints: TypeAlias = Callable[[Tensor], Tensor]
"""From scores (m, n_outputs) to numbers (m, n_constraints) that are all >= 0 on the closure of a decision region."""


@dataclass(frozen=True)
class Witness:
    """Class probabilities at which a loss prefers a decision that costs more than the best one.

    Parameters
    ----------
    kind : str
        "false_reject", "false_accept" or "misclassify".
    eta : array of shape (n_classes,)
    scores : array of shape (n_outputs,)
        Scores with a lower risk than any with the right decision: the minimiser, or close to it.
    chow, taken : str
        Descriptions of the best decision and of the decision at these scores.
    chow_risk, taken_risk : float
        Mean cost of the two decisions.
    least_risk : float
        The surrogate's risk at ``scores``.
    chow_least_risk : float
        The surrogate's least risk among scores with the right decision; infinite if there are none.
    gap : float
        ``chow_least_risk`` minus ``least_risk``, the additional risk of the right decision; larger than ``error``.
    error : float
        Error of the gap, estimated from the disagreement of the ways in which it was computed.
    precision : str
        Method by which the two risks were computed.
    """

    kind: str
    eta: Floats
    scores: Floats
    chow: str
    taken: str
    chow_risk: float
    taken_risk: float
    least_risk: float
    chow_least_risk: float
    gap: float
    error: float
    precision: str


@dataclass(frozen=True)
class ConstrainedMinimum:
    """The least risk found among scores with one decision.

    Parameters
    ----------
    risk : float
        In units of the loss's scale; infinite if no scores with such a decision were found.
    scores : tensor of shape (n_outputs,)
    error : float
        Difference between two searches, or between a search and Newton's method.
    """

    risk: float
    scores: Tensor
    error: float = 0.0


def verify(
    subject: ExaminedLoss, eta: Tensor, scores: Tensor, known: Tensor
) -> tuple[Witness | None, ConstrainedMinimum]:
    """Compute a supposed failure again; return it as a witness only if its gap is positive beyond its error.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_classes,)
    scores : tensor of shape (n_outputs,)
        Scores with a wrong decision that seem to minimise the risk.
    known : tensor of shape (m, n_outputs)
        Scores worth trying.

    Returns
    -------
    witness : Witness or None
    right : ConstrainedMinimum
        The best scores with the right decision; where there is no witness, they are as good as those given, or better.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject = examine(get("apc+log"), as_target(0.2, 3))
    >>> eta = torch.tensor([0.83, 0.085, 0.085], dtype=torch.float64)
    >>> scores = torch.tensor([1.43, -0.84, -0.84, -0.14], dtype=torch.float64)
    >>> witness, _ = verify(subject, eta, scores, scores[None])
    >>> witness.chow, witness.taken, witness.gap > witness.error
    ('answer class 0', 'reject', True)
    """
    best, taken = int(subject.target.best(eta)), int(subject.decide(scores[None])[0])
    right = Region(subject, eta, best, scores).best(known)
    at_scores = float(subject.risk(scores[None], eta)[0])
    unit = subject.scale.unit
    # Newton's method on a convex risk is exact; a search among many minima is not.
    floor = subject.tolerance if subject.convex else max(subject.tolerance, 5e-7)
    error = floor * (1 + abs(at_scores)) + 2 * right.error
    if taken == best or not right.risk - at_scores > 2 * error:
        return None, right
    least, least_right, precision = _again(subject, eta, scores, best, right)
    error = error * unit + 1e-12 * (abs(least) + unit)
    if not least_right - least > error:
        return None, right
    return witnessed(subject, eta, scores, (least, least_right), error, precision), right


def witnessed(
    subject: ExaminedLoss, eta: Tensor, scores: Tensor, risks: tuple[float, float], error: float, precision: str
) -> Witness:
    """Describe a wrong decision: its risk, the risk with the right decision, and the costs of both decisions."""
    target, costs = subject.target, subject.target.expected(eta)
    best, taken = int(target.best(eta)), int(subject.decide(scores[None])[0])
    return Witness(
        target.kind(best, taken),
        eta.numpy(),
        scores.numpy(),
        chow=target.words(best),
        taken=target.words(taken),
        chow_risk=float(costs[best]),
        taken_risk=float(costs[taken]),
        least_risk=risks[0],
        chow_least_risk=risks[1],
        gap=risks[1] - risks[0],
        error=error,
        precision=precision,
    )


def _again(
    subject: ExaminedLoss, eta: Tensor, scores: Tensor, best: int, right: ConstrainedMinimum
) -> tuple[float, float, str]:
    """Compute both risks from the loss itself, one row at a time."""

    def risk(g: Tensor) -> float:
        losses = subject.loss.forward(g.expand(len(eta), -1), torch.arange(len(eta)), subject.target.cost)
        return fsum(float(p) * float(v) for p, v in zip(eta, losses, strict=True) if p > 0)

    least = risk(scores)
    if not isfinite(right.risk):
        return least, inf, f"no scores that {subject.target.words(best)} were found"
    return least, risk(right.scores), "float64, each risk summed row by row"


def decision_constraints(subject: ExaminedLoss, decision: int) -> Constraints:
    """Return the constraints under which a loss's rule rejects (-1) or answers the given class.

    A rule of least cost on an inverse link is written with the cost of each decision, which is smooth; a rule of
    another kind with its own acceptance. Where the answer is the largest score, differences of scores are used.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> answer_0 = decision_constraints(examine(get("ce"), as_target(0.2, 2)), 0)
    >>> answer_0(torch.tensor([[0.9, 0.1]]).log()).round(decimals=3)  # 0.9 - 0.8 and log 9
    tensor([[0.1000, 2.1970]])
    """
    loss, target = subject.loss, subject.target
    others = [k for k in range(subject.n_classes) if k != decision]

    def constraints(scores: Tensor) -> Tensor:
        if subject.linked:
            proba = loss.inverse_link(scores)
            if target.single is None:
                costs = proba @ target.matrix.to(scores.dtype)
            else:  # one-versus-all probabilities need not sum to 1
                costs = pad(1 - proba, (0, 1), value=target.single)
            accepted = costs[:, [-1]] - costs[:, [decision]]
            ahead = costs[:, others] - costs[:, [decision]]
        else:
            accepted = loss.rule(scores, target.cost).acceptance.unsqueeze(-1)
            ahead = accepted[:, :0]
        if decision == REJECT:
            return ahead if subject.linked else -accepted
        if subject.answers_argmax and target.single is not None:
            # Differences of scores keep their slope where those of probabilities have lost it.
            ahead = scores[:, [decision]] - scores[:, others]
        return torch.cat([accepted, ahead], -1)

    return constraints


def best_in_region(problem: RiskProblem, constraints: Constraints, start: Tensor) -> tuple[Tensor, Tensor]:
    """Minimise each row's risk subject to the constraints, by an augmented Lagrangian and Newton steps.

    Parameters
    ----------
    problem : RiskProblem
        A problem with a smooth loss.
    constraints : callable
    start : tensor of shape (n_rows, n_unknowns)
        Unknowns in or near the region.

    Returns
    -------
    unknowns : tensor of shape (n_rows, n_unknowns)
    violation : tensor of shape (n_rows,)
        Violation of the worst constraint; if it is not small, no scores of the region were found.

    Examples
    --------
    The best cross-entropy of scores that reject (0.9, 0.1) at c = 0.2 is that of the probabilities (0.8, 0.2):

    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject, eta = examine(get("ce"), as_target(0.2, 2)), torch.tensor([[0.9, 0.1]], dtype=torch.float64)
    >>> reject = decision_constraints(subject, REJECT)
    >>> unknowns, violation = best_in_region(RiskProblem(subject, eta), reject, torch.zeros(1, 2, dtype=torch.float64))
    >>> subject.loss.proba(unknowns).round(decimals=6), bool(violation < 1e-8)
    (tensor([[0.8000, 0.2000]], dtype=torch.float64), True)
    """
    unknowns = start.clone()
    active = torch.arange(len(start))
    with torch.no_grad():
        multipliers = torch.zeros_like(constraints(problem.scores(start)))
    violation = start.new_full((len(start),), torch.inf)
    stiffness = 100.0

    def lagrangian(u: Tensor, rows: Tensor) -> Tensor:
        push = torch.relu(multipliers[rows] - stiffness * constraints(problem.scores(u, rows)))
        return problem.risk(u, rows) + (push.square() - multipliers[rows].square()).sum(-1) / (2 * stiffness)

    for _ in range(14):
        # A stiff penalty multiplies rounding errors: a smaller slope than this could not be reached.
        unknowns[active], _ = problem.descend(lagrangian, unknowns[active], active, max_steps=60, tolerance=1e-9)
        with torch.no_grad():
            slack = constraints(problem.scores(unknowns[active], active))
        multipliers[active] = torch.relu(multipliers[active] - stiffness * slack)
        violation[active] = torch.relu(-slack).amax(-1)
        residual = torch.maximum(torch.relu(-slack), (multipliers[active] * slack).abs()).amax(-1)
        active = active[residual > 1e-10]
        if not len(active) or problem.subject.deadline.passed:
            break
        stiffness = min(stiffness * 4, 1e4)
    return unknowns, violation


class Region:
    """The scores that take one decision, at one eta whose minimiser takes another.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_classes,)
    decision : int
    minimiser : tensor of shape (n_outputs,)
        Minimiser of the risk at eta, which has another decision.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject, eta = examine(get("ce"), as_target(0.2, 2)), torch.tensor([0.9, 0.1], dtype=torch.float64)
    >>> found = Region(subject, eta, REJECT, eta.log()).best(eta.log()[None])
    >>> subject.loss.proba(found.scores).round(decimals=4)
    tensor([0.8000, 0.2000], dtype=torch.float64)
    """

    def __init__(self, subject: ExaminedLoss, eta: Tensor, decision: int, minimiser: Tensor) -> None:
        self.subject, self.eta, self.decision, self.minimiser = subject, eta, decision, minimiser
        self.generator = subject.generator()
        row = eta.unsqueeze(0)
        many = subject.n_outputs > MOST_UNKNOWNS
        # Classes of equal probability may share a score where that loses nothing, or where there are too many.
        self.groups = equal_values(row) if subject.symmetric and (subject.convex or many) else None
        self.columns = RiskProblem(subject, row, self.groups if subject.convex else None).columns[0]

    def best(self, known: Tensor) -> ConstrainedMinimum:
        """Search for the least risk; ``known``, of shape (m, n_outputs), are scores worth trying.

        Scores of many sizes, and those known, are drawn towards the minimiser as far as their decision stays, varied,
        and drawn again; free descents that end inside count too. Where loss and rule are smooth, Newton's method with
        multipliers is tried as well.
        """
        subject = self.subject
        pool = self._pool(known)
        exact = self._by_newton(pool)
        found = [] if exact is None else [exact]
        if not len(pool) and exact is None:
            return ConstrainedMinimum(inf, self.minimiser)
        if len(pool):
            found.append(self._descend_freely(pool))
            at_minimiser, *so_far = subject.risk(torch.stack([self.minimiser, *found]), self.eta).tolist()
            if min(so_far) <= at_minimiser + subject.tolerance:  # as good as the minimiser: nothing is left to show
                return ConstrainedMinimum(min(so_far), found[so_far.index(min(so_far))])
            found += [self._along_rays(pool) for _ in range(2)]
        risks = subject.risk(torch.stack(found), self.eta)
        best = int(risks.argmin())
        error = 0.0
        if len(pool) and (exact is None or risks[best] < risks[0] - subject.tolerance):
            # Two searches tell how exact they are, in few dimensions; Newton's method, where it is exact, needs none.
            few = int(self.columns.max()) < MOST_UNKNOWNS
            error = float((risks[-1] - risks[-2]).abs()) if few else inf
        return ConstrainedMinimum(float(risks[best]), found[best], error)

    def _inside(self, scores: Tensor) -> Tensor:
        return self.subject.decide(scores) == self.decision

    def _lowest(self, scores: Tensor, n: int) -> Tensor:
        return scores[self.subject.risk(scores, self.eta).argsort()[:n]]

    def _noise(self, n: int) -> Tensor:
        draws = torch.randn(n, int(self.columns.max()) + 1, generator=self.generator, dtype=torch.float64)
        return draws[:, self.columns]

    def _pool(self, known: Tensor) -> Tensor:
        """Return the best of many scores inside: of all sizes, near the minimiser, near multiples of log eta.

        If a risk is discontinuous or has many minima, descent is unreliable; in few dimensions random search is not.
        """
        subject, n_outputs = self.subject, len(self.minimiser)
        shuffled = torch.stack([torch.randperm(n_outputs, generator=self.generator) for _ in range(100)])
        n = 400 if subject.convex else min(15_000, 1_500_000 // (subject.n_classes * n_outputs))
        sizes = torch.tensor([0.03, 0.1, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64)[torch.arange(n) % 6].unsqueeze(-1)
        points = [known, wide_scores(n_outputs, self.generator), self.minimiser[shuffled]]
        points.append(self.minimiser + sizes * self._noise(n))
        if n_outputs >= subject.n_classes and not subject.convex:
            around = torch.zeros_like(self.minimiser)
            around[: subject.n_classes] = self.eta.clamp(min=1e-6).log()
            factor = 10 ** (2 * torch.rand(n, 1, generator=self.generator, dtype=torch.float64) - 1)
            points.append(factor * (around + sizes.clamp(max=2.0) * self._noise(n)))
        scores = torch.cat(points)
        return self._lowest(scores[self._inside(scores)], 400)

    def _by_newton(self, pool: Tensor) -> Tensor | None:
        """Return the best scores of the closed region by Newton's method with multipliers; None without derivatives."""
        subject = self.subject
        constraints = decision_constraints(subject, self.decision)
        if not (subject.twice and subject.loss.smooth):
            return None
        if not constraints(self.minimiser.unsqueeze(0).clone().requires_grad_()).requires_grad:
            return None
        starts = torch.stack([torch.zeros_like(self.minimiser), self.minimiser, *pool[:3]])
        problem = self._problem(len(starts))
        unknowns, violation = best_in_region(problem, constraints, problem.unknowns(starts))
        scores = problem.scores(unknowns)
        risks = torch.where(violation < 1e-8, subject.risk(scores, self.eta), torch.inf)
        return scores[risks.argmin()] if bool(risks.isfinite().any()) else None

    def _problem(self, n_rows: int) -> RiskProblem:
        groups = None if self.groups is None else self.groups.expand(n_rows, -1)
        return RiskProblem(self.subject, self.eta.expand(n_rows, -1), groups)

    def _descend_freely(self, pool: Tensor) -> Tensor:
        """Descend from some scores inside without constraints; return the best of the starts and the ends inside."""
        starts = pool[:: max(1, len(pool) // 24)]
        problem = self._problem(len(starts))
        unknowns = problem.unknowns(starts)
        if self.subject.twice:
            unknowns, _ = problem.descend(problem.risk, unknowns, max_steps=80)
        else:
            unknowns, _ = problem.descend_kinks(unknowns, max_steps=60)
        ends = problem.scores(unknowns)
        return self._lowest(torch.cat([ends[self._inside(ends)], starts]), 1)[0]

    def _along_rays(self, pool: Tensor) -> Tensor:
        """Vary the best scores, and draw them towards the minimiser, in ever smaller steps."""
        scale = 2.0
        centres = self._lowest(torch.cat([draw_towards(self.minimiser, pool[:200], self._inside), pool[:50]]), 12)
        for _ in range(40 if int(self.columns.max()) < MOST_UNKNOWNS else 10):
            spread = torch.rand(300, 1, generator=self.generator, dtype=torch.float64) ** 2
            points = centres[torch.arange(300) % len(centres)] + scale * spread * self._noise(300)
            points = torch.cat([points[self._inside(points)], centres])
            before = centres[0]
            centres = self._lowest(torch.cat([draw_towards(self.minimiser, points, self._inside), centres]), 6)
            if float((centres[0] - before).abs().amax()) < 0.5 * scale:
                scale *= 0.7
            if scale < 1e-7 or self.subject.deadline.passed:
                break
        return centres[0]
