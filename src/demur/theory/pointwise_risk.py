"""The pointwise risk W(g; eta) = sum_y eta_y L(g, y) of any loss, and its minimisers (Section 2.1).

A convex loss that is symmetric in the classes has a minimiser that gives equal scores to classes of equal probability.
A row of eta with three different values is then a problem in three unknowns, whatever K is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from demur.losses import Loss
from demur.losses.loss import Hyper
from demur.theory.descent import Objective, minimise_convex_kinks, minimise_kinked_rows, minimise_rows
from demur.theory.examined_loss import ELEMENTS_AT_ONCE, ExaminedLoss

STUCK = 1e-7
"""Slope above which a minimisation has not converged."""
STUCK_AT_KINK = 1e-4
"""The same for gradients that are sampled around a kink."""
FAR_OUT = 3e4
"""If scores exceed this and the slope is not zero, the risk is taken to have no lower bound."""


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
    return loss.expected(scores, eta, cost)


def minimise_pointwise_risk(loss: Loss, eta: Tensor, cost: Hyper, *, symmetric: bool = False) -> Tensor:
    """Return scores that minimise the pointwise risk at each eta.

    Smooth losses: damped Newton steps in float64, many rows at once. Convex losses with kinks: cutting planes in a box,
    exact up to the linear program's tolerance. If the infimum lies at infinity (an eta with zeros), the result has
    scores at which the gradient vanishes numerically. There is one starting point; for a loss with several minima use
    :func:`demur.theory.check_calibration`, which tries many.

    Parameters
    ----------
    loss : Loss
        With plain numbers as hyper-parameters.
    eta : tensor of shape (n_rows, n_classes)
    cost : float, or tensor of shape (n_rows,)
    symmetric : bool
        Whether the loss is symmetric in the classes; then classes of equal probability share a score, and a row with
        few different values is a small problem however many classes there are.

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
    result = eta.new_zeros(len(eta), loss.n_outputs(eta.shape[-1]))
    each = torch.as_tensor(cost, dtype=torch.float64).expand(len(eta))
    for price in torch.unique(each).tolist():
        rows = (each == price).nonzero()[:, 0]
        subject = ExaminedLoss.untried(loss, eta.shape[-1], price, symmetric=symmetric)
        result[rows] = find_minima(subject, eta[rows]).scores
    return result


def equal_values(eta: Tensor) -> Tensor:
    """Return group numbers (n_rows, n_classes): classes of exactly equal probability share one.

    Examples
    --------
    >>> equal_values(torch.tensor([[0.7, 0.1, 0.2], [0.5, 0.25, 0.25]]))
    tensor([[2, 0, 1],
            [1, 0, 0]])
    """
    ordered = eta.sort(-1)
    fresh = torch.zeros_like(eta, dtype=torch.long)
    fresh[:, 1:] = (ordered.values.diff(dim=-1) > 0).long()
    return torch.zeros_like(fresh).scatter(-1, ordered.indices, fresh.cumsum(-1))


class RiskProblem:
    """The pointwise risks of many rows as functions of their unknowns, in units of the loss's scale.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_rows, n_classes)
    groups : integer tensor of shape (n_rows, n_classes), optional
        Classes with the same number share a score, which is then one unknown; outputs beyond the classes stay free.
        Every score is an unknown by default.

    Examples
    --------
    >>> from demur.losses import get
    >>> eta = torch.tensor([[0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
    >>> problem = RiskProblem(ExaminedLoss.untried(get("apc+log"), 4, 0.2), eta, torch.tensor([[0, 1, 1, 1]]))
    >>> problem.columns, problem.labels, problem.weights.round(decimals=3)
    (tensor([[0, 1, 1, 1, 2]]), tensor([[0, 1]]), tensor([[0.7000, 0.3000]], dtype=torch.float64))
    """

    def __init__(self, subject: ExaminedLoss, eta: Tensor, groups: Tensor | None = None) -> None:
        n_rows, n_classes = eta.shape
        if groups is None:
            groups = torch.arange(n_classes).expand(n_rows, -1)
        n_groups = int(groups.max()) + 1
        member = groups.unsqueeze(-1) == torch.arange(n_groups)
        free = torch.arange(n_groups, n_groups + max(0, subject.n_outputs - n_classes)).expand(n_rows, -1)
        self.subject, self.eta = subject, eta
        self.columns = torch.cat([groups, free], -1)[:, : subject.n_outputs]  # the unknown that each score is
        self.labels = member.to(torch.int8).argmax(-2)  # one class of each group
        self.weights = (member * eta.unsqueeze(-1)).sum(-2)  # the probability of the whole group
        self.n_unknowns = n_groups + subject.n_outputs - n_classes

    @classmethod
    def batches(cls, subject: ExaminedLoss, eta: Tensor) -> Iterator[tuple[Tensor, "RiskProblem"]]:
        """Yield the numbers of some rows and their problem; those with few unknowns are solved together."""
        if not subject.symmetric:
            yield torch.arange(len(eta)), cls(subject, eta)
            return
        groups = equal_values(eta)
        few = groups.amax(-1) < 4
        for part in (few, ~few):
            rows = part.nonzero()[:, 0]
            if len(rows):
                yield rows, cls(subject, eta[rows], groups[rows])

    def scores(self, unknowns: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return the scores (m, n_outputs) for the unknowns (m, n_unknowns) of some or all rows."""
        return unknowns.gather(-1, self.columns if rows is None else self.columns[rows])

    def unknowns(self, scores: Tensor) -> Tensor:
        """Return the mean of the scores (m, n_outputs) that are copies of each unknown of the first row."""
        member = (self.columns[0].unsqueeze(-1) == torch.arange(self.n_unknowns)).to(scores.dtype)
        return scores @ (member / member.sum(0))

    def risk(self, unknowns: Tensor, rows: Tensor) -> Tensor:
        """Return the risk of each row at its unknowns (m, n_unknowns); ``rows`` (m,) says which rows they are."""
        return (self.weights[rows] * self._losses(self.scores(unknowns, rows), rows)).sum(-1)

    def guess(self) -> list[Tensor]:
        """Return starting points for all rows: the best of three, the origin, and log eta as class scores.

        The three are the origin, log eta and half of it: the last two minimise the logarithmic and the exponential
        loss. From the origin a class of probability zero would take many Newton steps on its way to minus infinity.
        """
        origin = self.eta.new_zeros(len(self.eta), self.n_unknowns)
        n_groups = self.weights.shape[-1]
        if self.n_unknowns < n_groups:
            return [origin]
        likely = self.eta.gather(-1, self.labels).clamp(min=1e-300).log()
        beyond = (0, self.n_unknowns - n_groups)
        starts = [origin]
        starts += [pad((factor * likely).clamp(min=-28.0), beyond) for factor in (0.5, 1.0)]  # exp(-28) is negligible
        risks = torch.stack([self.subject.risk(self.scores(start), self.eta) for start in starts])
        best = torch.stack(starts)[risks.argmin(0), torch.arange(len(self.eta))]
        return [best, origin, starts[-1]]

    def minimise_without_last(self) -> tuple[Tensor, Tensor]:
        """Minimise the risk over all unknowns but the last, which is held at 0: the unknowns, and the slope left."""

        def held(unknowns: Tensor, rows: Tensor) -> Tensor:
            return self.risk(pad(unknowns, (0, 1)), rows)

        unknowns, slope = self.descend(held, self.guess()[0][:, :-1])
        return pad(unknowns, (0, 1)), slope

    def descend(
        self,
        objective: Objective,
        start: Tensor,
        rows: Tensor | None = None,
        *,
        max_steps: int = 300,
        tolerance: float = 1e-12,
    ) -> tuple[Tensor, Tensor]:
        """Minimise an objective made from the risk by Newton steps, a bounded number of rows at once."""
        names = torch.arange(len(start)) if rows is None else rows
        if not len(start):
            return start, start[:, 0]
        per_row = self.weights.shape[-1] * self.columns.shape[-1] * start.shape[-1]
        parts = [
            minimise_rows(
                objective,
                start[part],
                names[part],
                max_steps=max_steps,
                tolerance=tolerance,
                noise=self.subject.scale.noise,
                deadline=self.subject.deadline,
            )
            for part in torch.split(torch.arange(len(start)), max(1, ELEMENTS_AT_ONCE // per_row))
        ]
        return torch.cat([points for points, _ in parts]), torch.cat([slope for _, slope in parts])

    def descend_kinks(
        self, start: Tensor, rows: Tensor | None = None, *, max_steps: int = 140
    ) -> tuple[Tensor, Tensor]:
        """Minimise the risk by sampled gradients: the points, and the slope that is left."""
        subject = self.subject
        return minimise_kinked_rows(
            self.risk,
            start,
            rows,
            max_steps=max_steps,
            noise=subject.scale.noise,
            seed=subject.seed,
            deadline=subject.deadline,
        )

    def cut_planes(self, row: int) -> tuple[Tensor, float]:
        """Minimise one row's convex risk by cutting planes; return the unknowns and a bound of the error."""
        rows = torch.full((self.weights.shape[-1],), row)

        def terms(unknowns: Tensor) -> Tensor:
            return self.subject.values(self.scores(unknowns, rows), self.labels[row])

        return minimise_convex_kinks(terms, self.weights[row], self.n_unknowns, deadline=self.subject.deadline)

    def _losses(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of each group's class, (m, n_groups), calling the loss with one row per example."""
        labels = self.labels[rows]
        flat = scores.repeat_interleave(labels.shape[-1], 0)
        return self.subject.values(flat, labels.reshape(-1)).reshape(labels.shape)


@dataclass(frozen=True)
class Minima:
    """The least risk found at each eta.

    Parameters
    ----------
    scores : tensor of shape (n_rows, n_outputs)
        Where.
    risk : tensor of shape (n_rows,)
        The least risk, in units of the loss's scale.
    converged : boolean tensor of shape (n_rows,)
        Whether the slope there vanishes, or surrounds zero at a kink.
    rival : tensor of shape (n_rows, n_outputs)
        Other scores with the same risk but another decision, if any were found; else the same scores.
    """

    scores: Tensor
    risk: Tensor
    converged: Tensor
    rival: Tensor


def find_minima(subject: ExaminedLoss, eta: Tensor) -> Minima:
    """Minimise the pointwise risk at each eta; rows left at the deadline are unresolved.

    Newton's method from one start for a convex loss, from many for others, single large scores among them, because the
    infimum may lie at infinity. At kinks it falls back on cutting planes (convex) and sampled gradients.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_rows, n_classes)

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
    >>> subject = examine(get("ce"), as_target(0.2, 3))
    >>> found = find_minima(subject, torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64))
    >>> subject.loss.proba(found.scores).round(decimals=6), found.converged
    (tensor([[0.7000, 0.2000, 0.1000]], dtype=torch.float64), tensor([True]))
    """
    scores, rival = eta.new_zeros(2, len(eta), subject.n_outputs)
    converged = torch.zeros(len(eta), dtype=torch.bool)
    for rows, problem in RiskProblem.batches(subject, eta):
        starts = torch.stack(problem.guess()[:1] if subject.convex else _useful_starts(problem))
        best, slope, ends = _descend_all(problem, starts, torch.arange(len(rows)))
        converged[rows] = _repair(problem, best, slope)
        scores[rows] = problem.scores(best)
        rival[rows] = _rivals(subject, eta[rows], scores[rows], ends)
    risk = subject.risk(scores, eta)
    return Minima(scores, risk, converged & risk.isfinite(), rival)


def _descend_all(problem: RiskProblem, starts: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Descend from starts (n_starts, n_rows, n_unknowns); return the best ends, their slopes, all ends and risks."""
    n_starts, n_rows, n_unknowns = starts.shape
    flat, names = starts.reshape(-1, n_unknowns), rows.repeat(n_starts)
    if problem.subject.twice:
        points, slope = problem.descend(problem.risk, flat, names, max_steps=60)
    else:
        points, slope = problem.descend_kinks(flat, names, max_steps=60)
    scores = problem.scores(points, names)
    risk = problem.subject.risk(scores, problem.eta[names]).reshape(n_starts, n_rows)
    lowest, everywhere = risk.argmin(0), torch.arange(n_rows)
    best, slope = points.reshape(starts.shape)[lowest, everywhere], slope.reshape(n_starts, n_rows)[lowest, everywhere]
    return best, slope, (scores.reshape(n_starts, n_rows, -1), risk)


def _repair(problem: RiskProblem, best: Tensor, slope: Tensor) -> Tensor:
    """Continue descents that have not converged, changing ``best``; return the rows with a minimum."""
    subject = problem.subject
    converged = slope <= STUCK if subject.twice else (slope <= STUCK_AT_KINK) & (not subject.convex)
    runaway = (best.abs().amax(-1) > FAR_OUT) & ~converged  # far out, and it still falls
    if subject.twice and subject.loss.smooth:
        rows = (~converged & ~runaway).nonzero()[:, 0]
        best[rows], slope[rows] = problem.descend(problem.risk, best[rows], rows)
        converged = slope <= STUCK
    # Cutting planes are exact and slow: they come first only where kinks are declared.
    for planes in (False, True, False) if subject.loss.smooth else (True, False):
        rows = (~converged & ~runaway).nonzero()[:, 0]
        if planes and subject.convex:
            for row in rows.tolist():
                point, gap = problem.cut_planes(row)
                if gap <= 1e-9:
                    best[row], converged[row] = point, True
        elif not planes and len(rows):
            best[rows], slope[rows] = problem.descend_kinks(best[rows], rows)
            converged[rows] = slope[rows] <= STUCK_AT_KINK
    return converged


def _useful_starts(problem: RiskProblem) -> list[Tensor]:
    """Return the starts that find the least risk of at least one of a few rows, and the default ones."""
    n_rows, d = len(problem.eta), problem.n_unknowns
    generator = problem.subject.generator()
    likely = problem.guess()
    sizes = torch.tensor([3.0, 30.0, -3.0], dtype=torch.float64)
    single = torch.einsum("s,ij->isj", sizes, torch.eye(d, dtype=torch.float64)[:10]).reshape(-1, 1, d)
    starts = [*likely, *single.expand(-1, n_rows, -1)]
    starts += [size * torch.randn(n_rows, d, generator=generator, dtype=torch.float64) for size in (1.0, 3.0, 10.0)]
    few = torch.arange(0, n_rows, max(1, n_rows // 24))
    _, _, (_, risk) = _descend_all(problem, torch.stack(starts)[:, few], few)
    lowest = torch.cummin(risk, 0).values
    lower = (lowest[1:] < lowest[:-1] - problem.subject.tolerance).any(-1).tolist()
    return [start for i, start in enumerate(starts) if i < len(likely) or lower[i - 1]]


def _rivals(subject: ExaminedLoss, eta: Tensor, scores: Tensor, ends: tuple[Tensor, Tensor]) -> Tensor:
    """Return other ends with the same risk but a better or worse decision, if there are any."""
    highest = subject.risk(scores, eta) + subject.tolerance
    wrong = subject.is_wrong(scores, eta)
    rival = scores.clone()
    for other, risk in zip(*ends, strict=True):
        differs = (risk <= highest) & (subject.is_wrong(other, eta) != wrong)
        rival[differs] = other[differs]
    return rival


def settle(subject: ExaminedLoss, eta: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """Descend from several scores of each row to the limit of rounding, also with lowered scores of rare classes.

    A class of probability 1e-4 hardly changes the risk, so that a descent may stop before its score is low enough.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_rows, n_classes)
    candidates : tensor of shape (n_candidates, n_rows, n_outputs)

    Returns
    -------
    scores : tensor of shape (n_rows, n_outputs)
        The lowest.
    right : boolean tensor of shape (n_rows,)
        Whether all scores with the same risk and slope, up to rounding, take a best decision.
    """
    starts = [candidates, 10 * candidates, 1000 * candidates]
    if subject.n_outputs >= subject.n_classes:
        beyond = (0, subject.n_outputs - subject.n_classes)
        rare = ((eta > 0) & (eta < 0.01)).double()
        lowered = [pad(never * (eta == 0) + less * rare, beyond) for never in (0, 30, 100) for less in (0, 1, 2, 4)]
        starts += [candidates - less for less in lowered[1:]]
    ends = torch.cat(starts)
    n_starts = len(ends)
    flat, rows = ends.flatten(0, 1), eta.repeat(n_starts, 1)
    slope = eta.new_zeros(len(flat))
    if subject.twice:
        problem = RiskProblem(subject, rows)
        flat, slope = problem.descend(problem.risk, flat, max_steps=100, tolerance=0.0)
    risks, wrong, slope = (
        each.reshape(n_starts, -1) for each in (subject.risk(flat, rows), subject.is_wrong(flat, rows), slope)
    )
    lowest = risks.min(0)
    as_low = risks <= lowest.values + 4 * subject.scale.noise * (1 + lowest.values.abs())
    level = torch.where(as_low, slope, torch.inf)
    as_level = level <= level.amin(0)
    best = flat.reshape(ends.shape)[lowest.indices, torch.arange(len(eta))]
    return best, ~(wrong & as_low & as_level).any(0)
