"""The pointwise risk W(g; eta) = sum_y eta_y L(g, y) of any loss, and its minimisers (Section 2.1).

A convex loss that treats the classes alike has a minimiser that gives equal scores to classes of equal probability. A
row of eta with three different values is then a problem in three unknowns, whatever K is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor
from torch.nn.functional import pad

from demur.losses import Loss
from demur.losses.loss import Hyper
from demur.theory.descent import (
    ENDLESS,
    Deadline,
    Objective,
    minimise_convex_kinks,
    minimise_kinked_rows,
    minimise_rows,
)
from demur.theory.examined_loss import ExaminedLoss, Scale, scale_of

__all__ = [
    "Minima",
    "RiskProblem",
    "Ties",
    "equal_values",
    "find_minima",
    "minimise_pointwise_risk",
    "pointwise_risk",
    "settle",
]

ELEMENTS_AT_ONCE = 200_000
"""How many scores one evaluation may hold: about 100 MB with the graph of two derivatives."""
WRONG = 1e-8
"""A decision that costs no more than this above the best one is right."""
STUCK = 1e-7
"""A minimisation that ends with a larger slope than this has not converged."""
FAR_OUT = 3e4
"""Scores beyond this with a slope left say that the risk has no lower bound."""
STUCK_AT_KINK = 1e-4
"""The same where gradients are sampled around a kink."""


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


def minimise_pointwise_risk(loss: Loss, eta: Tensor, cost: Hyper, *, symmetric: bool = False) -> Tensor:
    """Return scores that minimise the pointwise risk at each eta.

    Smooth losses: damped Newton steps in float64, many rows at once. Convex losses with kinks: cutting planes in a box,
    exact up to the linear program's tolerance. Where the infimum lies at infinity (an eta with zeros), the scores are
    those at which the gradient has vanished numerically. One start: a loss with several minima needs
    :func:`demur.theory.check_calibration`, which tries many.

    Parameters
    ----------
    loss : Loss
        With plain numbers as hyper-parameters.
    eta : tensor of shape (n_rows, n_classes)
    cost : float, or tensor of shape (n_rows,)
    symmetric : bool
        Whether the loss treats the classes alike; then classes of equal probability share a score, and a row with
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
    n_outputs = loss.n_outputs(eta.shape[-1])
    scale = scale_of(loss, eta.shape[-1], float(cost.mean()) if isinstance(cost, Tensor) else cost)
    result = torch.zeros(len(eta), n_outputs, dtype=torch.float64)
    for rows, ties in Ties.batches(eta, n_outputs, symmetric=symmetric):
        problem = RiskProblem(loss, ties, cost[rows] if isinstance(cost, Tensor) else cost, scale)
        result[rows] = _one_minimum(problem)[0]
    return result


@dataclass(frozen=True)
class Ties:
    """The unknowns behind the scores of each row.

    Parameters
    ----------
    columns : integer tensor of shape (n_rows, n_outputs)
        The unknown that each score is a copy of.
    labels : integer tensor of shape (n_rows, n_groups)
        One class of each group.
    weights : tensor of shape (n_rows, n_groups)
        The probability of the whole group.
    each : tensor of shape (n_rows, n_groups)
        The probability of one class of the group.
    n_unknowns : int
    """

    columns: Tensor
    labels: Tensor
    weights: Tensor
    each: Tensor
    n_unknowns: int

    @classmethod
    def none(cls, eta: Tensor, n_outputs: int) -> "Ties":
        """Every score an unknown of its own, every class a group of its own."""
        n_rows, n_classes = eta.shape
        return cls(
            columns=torch.arange(n_outputs).expand(n_rows, -1),
            labels=torch.arange(n_classes).expand(n_rows, -1),
            weights=eta,
            each=eta,
            n_unknowns=n_outputs,
        )

    @classmethod
    def from_groups(cls, eta: Tensor, groups: Tensor, n_outputs: int) -> "Ties":
        """Classes with the same group number share a score; outputs beyond the classes stay free.

        Examples
        --------
        >>> eta = torch.tensor([[0.7, 0.1, 0.1, 0.1]], dtype=torch.float64)
        >>> ties = Ties.from_groups(eta, torch.tensor([[0, 1, 1, 1]]), n_outputs=5)
        >>> ties.columns, ties.labels, ties.weights.round(decimals=3)
        (tensor([[0, 1, 1, 1, 2]]), tensor([[0, 1]]), tensor([[0.7000, 0.3000]], dtype=torch.float64))
        """
        n_rows, n_classes = eta.shape
        n_groups = int(groups.max()) + 1
        n_free = n_outputs - n_classes
        member = groups.unsqueeze(-1) == torch.arange(n_groups)
        free = torch.arange(n_groups, n_groups + n_free).expand(n_rows, -1)
        labels = member.to(torch.int8).argmax(-2)
        return cls(
            columns=torch.cat([groups, free], -1),
            labels=labels,
            weights=(member * eta.unsqueeze(-1)).sum(-2),
            each=eta.gather(-1, labels),
            n_unknowns=n_groups + n_free,
        )

    @classmethod
    def of(cls, eta: Tensor, groups: Tensor | None, n_outputs: int) -> "Ties":
        """Return the ties of the groups, or none without groups."""
        return cls.none(eta, n_outputs) if groups is None else cls.from_groups(eta, groups, n_outputs)

    @classmethod
    def batches(cls, eta: Tensor, n_outputs: int, *, symmetric: bool) -> Iterator[tuple[Tensor, "Ties"]]:
        """Split the rows into parts of similar size, each with its ties: (numbers of the rows, ties).

        Parameters
        ----------
        eta : tensor of shape (n_rows, n_classes)
        n_outputs : int
        symmetric : bool
            Whether classes of equal probability may share a score.
        """
        if not symmetric:
            yield torch.arange(len(eta)), cls.none(eta, n_outputs)
            return
        groups = equal_values(eta)
        n_groups = groups.amax(-1) + 1
        few = n_groups <= 4
        for part in (few, ~few):
            rows = part.nonzero()[:, 0]
            if len(rows):
                yield rows, cls.from_groups(eta[rows], groups[rows], n_outputs)

    def select(self, rows: Tensor) -> "Ties":
        """Return the ties of some rows."""
        return Ties(self.columns[rows], self.labels[rows], self.weights[rows], self.each[rows], self.n_unknowns)

    def scores(self, unknowns: Tensor, rows: Tensor) -> Tensor:
        """Return the scores (m, n_outputs) that the unknowns (m, n_unknowns) of some rows stand for."""
        return unknowns.gather(-1, self.columns[rows])


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
    loss : Loss
    ties : Ties
        Which scores of each row are one unknown, and the probabilities.
    cost : float, or tensor of shape (n_rows,)
        Or, for costs that are not one price, whatever the loss takes.
    scale : Scale
    per_row : bool
        Whether a tensor of costs has one per row.
    deadline : Deadline
        When minimisations return what they have.

    Examples
    --------
    >>> from demur.losses import get
    >>> eta = torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64)
    >>> problem = RiskProblem(get("ce"), Ties.from_groups(eta, torch.tensor([[0, 1, 1]]), 3), cost=0.2)
    >>> problem.risk(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([0]))  # log 3
    tensor([1.0986], dtype=torch.float64)
    """

    def __init__(
        self,
        loss: Loss,
        ties: Ties,
        cost: Hyper,
        scale: Scale | None = None,
        *,
        per_row: bool = True,
        deadline: Deadline = ENDLESS,
    ) -> None:
        self.deadline = deadline
        self.loss = loss
        self.ties = ties
        self.cost = cost
        self.scale = scale or Scale()
        self.per_row = per_row and isinstance(cost, Tensor)
        self.n_rows, self.n_groups = ties.weights.shape

    @classmethod
    def of(cls, subject: ExaminedLoss, ties: Ties) -> "RiskProblem":
        """Return the problem of a loss whose facts and scale are known."""
        return cls(subject.loss, ties, subject.target.cost, subject.scale, per_row=False, deadline=subject.deadline)

    def risk(self, unknowns: Tensor, rows: Tensor) -> Tensor:
        """Return the risk of each row at its unknowns (m, n_unknowns); ``rows`` (m,) says which rows they are."""
        return (self.ties.weights[rows] * self._losses_at(self.ties.scores(unknowns, rows), rows)).sum(-1)

    def risk_of_scores(self, scores: Tensor) -> Tensor:
        """Return the risk of each row at its scores (n_rows, n_outputs)."""
        result = torch.empty(self.n_rows, dtype=torch.float64)
        with torch.no_grad():
            for rows in self._parts():
                weights, each = self.ties.weights[rows], self._losses_at(scores[rows], rows)
                result[rows] = torch.where(weights > 0, weights * each, torch.zeros_like(each)).sum(-1)
        return result.nan_to_num(nan=torch.inf)

    def cut_planes(self, row: int) -> tuple[Tensor, float]:
        """Minimise one row's risk, which must be convex, by cutting planes: its unknowns, and how far it may be off."""
        rows = torch.full((self.n_groups,), row)

        def terms(unknowns: Tensor) -> Tensor:
            return self._loss(self.ties.scores(unknowns, rows), self.ties.labels[row], rows)

        return minimise_convex_kinks(terms, self.ties.weights[row], self.ties.n_unknowns, deadline=self.deadline)

    def descend_kinks(self, start: Tensor, *, max_steps: int = 140, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Minimise the risk by sampled gradients: the points, and the slope that is left."""
        return minimise_kinked_rows(
            self.risk, start, max_steps=max_steps, noise=self.scale.noise, seed=seed, deadline=self.deadline
        )

    def descend_from_guess(self, objective: Objective, n_unknowns: int) -> tuple[Tensor, Tensor]:
        """Minimise an objective of the first unknowns from the best guess; rows that get nowhere, from the origin."""
        points, slope = self.descend(objective, self.guess()[:, :n_unknowns], max_steps=60)
        stuck = (slope > 1e-10).nonzero()[:, 0]
        if len(stuck):
            origin = torch.zeros(len(stuck), n_unknowns, dtype=torch.float64)
            other, other_slope = self.select(stuck).descend(lambda u, rows: objective(u, stuck[rows]), origin)
            with torch.no_grad():
                lower = objective(other, stuck) <= objective(points[stuck], stuck) + 1e-12
            lower |= other_slope < 1e-10
            points[stuck[lower]], slope[stuck[lower]] = other[lower], other_slope[lower]
        return points, slope

    def select(self, rows: Tensor) -> "RiskProblem":
        """Return the problem of some rows."""
        ties, cost = self.ties.select(rows), self.cost_of(rows)
        return RiskProblem(self.loss, ties, cost, self.scale, per_row=self.per_row, deadline=self.deadline)

    def cost_of(self, rows: Tensor) -> Hyper:
        """Return the cost of some rows."""
        return self.cost[rows] if self.per_row and isinstance(self.cost, Tensor) else self.cost

    def guess(self) -> Tensor:
        """Return the best of three starts for each row: the origin, and log eta or half of it as class scores.

        The last two are the minimisers of the logarithmic and the exponential losses; from the origin a class of
        probability zero would take a Newton step for every unit of its way to minus infinity.
        """
        best = torch.zeros(self.n_rows, self.ties.n_unknowns, dtype=torch.float64)
        if self.ties.n_unknowns < self.n_groups:
            return best
        with torch.no_grad():
            for rows in self._parts():
                lowest = self.risk(best[rows], rows).nan_to_num(nan=torch.inf)
                for start in self.likely(rows):
                    risk = self.risk(start, rows).nan_to_num(nan=torch.inf)
                    best[rows] = torch.where((risk < lowest).unsqueeze(-1), start, best[rows])
                    lowest = torch.minimum(risk, lowest)
        return best

    def likely(self, rows: Tensor) -> list[Tensor]:
        """Return log eta and half of it as class scores."""
        starts = []
        log_eta = self.ties.each[rows].clamp(min=1e-300).log()
        for factor in (0.5, 1.0):
            start = torch.zeros(len(rows), self.ties.n_unknowns, dtype=torch.float64)
            start[:, : self.n_groups] = (factor * log_eta).clamp(min=-28.0)  # exp(-28) is nothing
            starts.append(start)
        return starts

    def descend(
        self, objective: Objective, start: Tensor, *, max_steps: int = 300, tolerance: float = 1e-12
    ) -> tuple[Tensor, Tensor]:
        """Minimise an objective made from the risk by Newton steps, a bounded number of rows at once."""
        points = torch.empty_like(start)
        slope = torch.empty(self.n_rows, dtype=torch.float64)
        for rows in self._parts():
            points[rows], slope[rows] = minimise_rows(
                _shifted(objective, rows[0]),
                start[rows],
                max_steps=max_steps,
                tolerance=tolerance,
                noise=self.scale.noise,
                deadline=self.deadline,
            )
        return points, slope

    def _parts(self) -> Sequence[Tensor]:
        per_row = self.n_groups * self.ties.columns.shape[-1]
        return torch.split(torch.arange(self.n_rows), max(1, ELEMENTS_AT_ONCE // per_row))

    def _losses_at(self, scores: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of each group's class, (m, n_groups), calling the loss with one row per example."""
        flat = scores.unsqueeze(1).expand(-1, self.n_groups, -1).reshape(-1, scores.shape[-1])
        each_row = rows.unsqueeze(-1).expand(-1, self.n_groups).reshape(-1)
        return self._loss(flat, self.ties.labels[rows].reshape(-1), each_row).reshape(-1, self.n_groups)

    def _loss(self, scores: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        raw = self.loss.forward(scores, y, self.cost_of(rows)).to(torch.float64)
        return (raw - self.scale.offset) / self.scale.unit


def _shifted(objective: Objective, first: Tensor) -> Objective:
    return lambda points, rows: objective(points, rows + first)


@dataclass(frozen=True)
class Minima:
    """The least risk found at each eta.

    Parameters
    ----------
    scores : tensor of shape (n_rows, n_outputs)
        Where.
    risk : tensor of shape (n_rows,)
        How large, in units of the loss's scale.
    converged : boolean tensor of shape (n_rows,)
        Whether the slope there vanishes, or surrounds zero at a kink.
    rival : tensor of shape (n_rows, n_outputs)
        Other scores whose risk is as small but with another decision, where some were met; else the same scores.
    """

    scores: Tensor
    risk: Tensor
    converged: Tensor
    rival: Tensor


def find_minima(subject: ExaminedLoss, eta: Tensor, *, seed: int = 0, helpful: dict[int, int] | None = None) -> Minima:
    """Minimise the pointwise risk at each eta, in the way that suits the loss; rows left at the deadline stay open.

    Convex: Newton's method, at kinks cutting planes and sampled gradients. Not convex: the same from many starts,
    single large scores among them, because the infimum may lie at infinity.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_rows, n_classes)
    seed : int
    helpful : dict, optional
        How many starts it takes to find the least risk, by the number of unknowns; what is found out is added to it.

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
    facts = subject.facts
    shape = (len(eta), subject.n_outputs)
    scores, rival = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.float64)
    converged = torch.zeros(len(eta), dtype=torch.bool)
    enough = {} if helpful is None else helpful
    for rows, ties in Ties.batches(eta, subject.n_outputs, symmetric=facts.symmetric):
        problem = RiskProblem.of(subject, ties)
        if facts.convex:
            scores[rows], converged[rows] = _one_minimum(problem, twice=facts.twice)
            rival[rows] = scores[rows]
        else:
            if ties.n_unknowns not in enough:
                enough[ties.n_unknowns] = _starts_that_help(subject, problem, seed)
            found = _many_starts(subject, problem, eta[rows], enough[ties.n_unknowns], seed)
            scores[rows], converged[rows], rival[rows] = found
    parts = range(0, len(eta), 2000)
    risk = torch.cat([subject.risk(scores[i : i + 2000], eta[i : i + 2000]) for i in parts])
    return Minima(scores, risk, converged & risk.isfinite(), rival)


def settle(subject: ExaminedLoss, eta: Tensor, candidates: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Descend from several scores of each row until rounding stops it, also with the scores of rare classes lowered.

    A class of probability 1e-4 hardly changes the risk, so that a descent may stop before its score is low enough.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_rows, n_classes)
    candidates : sequence of tensors of shape (n_rows, n_outputs)

    Returns
    -------
    scores : tensor of shape (n_rows, n_outputs)
        The lowest.
    right : boolean tensor of shape (n_rows,)
        Whether all scores that are as low, up to rounding, and as level take a best decision.
    """
    lowered = [torch.zeros(len(eta), subject.n_outputs, dtype=torch.float64)]
    if subject.n_outputs >= subject.n_classes:
        beyond = (0, subject.n_outputs - subject.n_classes)
        rare = ((eta > 0) & (eta < 0.01)).double()
        lowered = [pad(never * (eta == 0) + less * rare, beyond) for never in (0, 30, 100) for less in (0, 1, 2, 4)]
    starts = [scores - less for scores in candidates for less in lowered]
    starts += [factor * scores for scores in candidates for factor in (10.0, 1000.0)]
    problem = RiskProblem.of(subject, Ties.none(eta, subject.n_outputs))
    slopes = [torch.zeros(len(eta), dtype=torch.float64)] * len(starts)
    if subject.facts.twice:
        descents = [problem.descend(problem.risk, start, max_steps=100, tolerance=0.0) for start in starts]
        starts, slopes = [end for end, _ in descents], [slope for _, slope in descents]
    ends, slope = torch.stack(starts), torch.stack(slopes)
    risks = torch.stack([subject.risk(end, eta) for end in ends])
    wrong = torch.stack([subject.target.excess(subject.decide(end), eta) > WRONG for end in ends])
    lowest = risks.min(0)
    as_low = risks <= lowest.values + 4 * subject.scale.noise * (1 + lowest.values.abs())
    level = torch.where(as_low, slope, torch.inf)
    as_level = level <= level.amin(0)
    return ends[lowest.indices, torch.arange(len(eta))], ~(wrong & as_low & as_level).any(0)


def _one_minimum(problem: RiskProblem, *, twice: bool = True) -> tuple[Tensor, Tensor]:
    """Minimise convex risks by Newton's method; where it meets a kink, by cutting planes and by sampled gradients."""
    n_rows, n_unknowns = problem.n_rows, problem.ties.n_unknowns
    unknowns = torch.zeros(n_rows, n_unknowns, dtype=torch.float64)
    converged = torch.zeros(n_rows, dtype=torch.bool)
    lost = torch.zeros(n_rows, dtype=torch.bool)
    if twice:
        unknowns, slope = problem.descend_from_guess(problem.risk, n_unknowns)
        converged, lost = slope <= STUCK, _runaway(unknowns, slope)
    ways = [_by_samples, _by_planes] if problem.loss.smooth else [_by_planes, _by_samples]
    for way in ways:
        stuck = (~converged & ~lost).nonzero()[:, 0]
        if len(stuck) and not problem.deadline.passed:
            unknowns[stuck], converged[stuck] = way(problem.select(stuck), unknowns[stuck])
    return problem.ties.scores(unknowns, torch.arange(n_rows)), converged


def _runaway(points: Tensor, slope: Tensor) -> Tensor:
    """Return the rows that are far out and still fall: their risk has no lower bound."""
    return (points.abs().amax(-1) > FAR_OUT) & (slope > STUCK)


def _by_samples(problem: RiskProblem, start: Tensor) -> tuple[Tensor, Tensor]:
    points, slope = problem.descend_kinks(start)
    return points, slope <= STUCK_AT_KINK


def _by_planes(problem: RiskProblem, start: Tensor) -> tuple[Tensor, Tensor]:
    points, converged = start.clone(), torch.zeros(problem.n_rows, dtype=torch.bool)
    for row in range(problem.n_rows):
        if problem.deadline.passed:
            break
        point, gap = problem.cut_planes(row)
        if gap <= 1e-9:
            points[row], converged[row] = point, True
    return points, converged


def _descend_from(problem: RiskProblem, start: Tensor, seed: int, *, newton: bool) -> tuple[Tensor, Tensor]:
    if newton:
        return problem.descend(problem.risk, start, max_steps=60)
    return problem.descend_kinks(start, max_steps=60, seed=seed)


def _many_starts(
    subject: ExaminedLoss, problem: RiskProblem, eta: Tensor, enough: int, seed: int
) -> tuple[Tensor, Tensor, Tensor]:
    everywhere = torch.arange(problem.n_rows)
    best = torch.zeros(problem.n_rows, problem.ties.n_unknowns, dtype=torch.float64)
    lowest = torch.full((problem.n_rows,), torch.inf, dtype=torch.float64)
    slope = lowest.clone()
    ends: list[tuple[Tensor, Tensor]] = []
    newton = subject.facts.twice
    for start in islice(_starts(problem, seed), enough):
        if problem.deadline.passed:
            break
        points, left = _descend_from(problem, start, seed, newton=newton)
        scores = problem.ties.scores(points, everywhere)
        risk = problem.risk_of_scores(scores)
        ends.append((scores, risk))
        lower = risk < lowest - 1e-12
        best[lower], lowest[lower], slope[lower] = points[lower], risk[lower], left[lower]
    converged = slope <= (STUCK if newton else STUCK_AT_KINK)
    again = (~converged & lowest.isfinite() & ~_runaway(best, slope)).nonzero()[:, 0]
    if len(again) and not problem.deadline.passed:
        part = problem.select(again)
        if newton:
            best[again], slope[again] = part.descend(part.risk, best[again])
            converged[again] = slope[again] <= STUCK
        kept = again[~converged[again]]
        if len(kept):
            best[kept], converged[kept] = _by_samples(problem.select(kept), best[kept])
    scores = problem.ties.scores(best, everywhere)
    return scores, converged, _rivals(subject, eta, scores, ends)


def _starts_that_help(subject: ExaminedLoss, problem: RiskProblem, seed: int) -> int:
    """Try every start on a few rows; return how many of them, in their order, it takes to find the least risk."""
    few = problem.select(torch.arange(0, problem.n_rows, max(1, problem.n_rows // 24)))
    lowest = torch.full((few.n_rows,), torch.inf, dtype=torch.float64)
    enough = 3
    for number, start in enumerate(_starts(few, seed), 1):
        if problem.deadline.passed:
            break
        points, _ = _descend_from(few, start, seed, newton=subject.facts.twice)
        risk = few.risk_of_scores(few.ties.scores(points, torch.arange(few.n_rows)))
        if bool((risk < lowest - subject.tolerance).any()):
            enough = max(enough, number)
        lowest = torch.minimum(lowest, risk)
    return enough


def _starts(problem: RiskProblem, seed: int) -> Iterator[Tensor]:
    """Yield starts for all rows: likely ones, single large scores, and random ones."""
    everywhere = torch.arange(problem.n_rows)
    d = problem.ties.n_unknowns
    yield problem.guess()
    yield torch.zeros(problem.n_rows, d, dtype=torch.float64)
    if d >= problem.n_groups:
        yield problem.likely(everywhere)[1]
    generator = torch.Generator().manual_seed(seed)
    shapes = [sign * size * torch.eye(d, dtype=torch.float64)[i] for i in range(min(d, 10)) for size, sign in _SIZES]
    for shape in shapes:
        yield shape.expand(problem.n_rows, -1).clone()
    for size in (1.0, 3.0, 10.0):
        yield size * torch.randn(problem.n_rows, d, generator=generator, dtype=torch.float64)


_SIZES = ((3.0, 1.0), (30.0, 1.0), (3.0, -1.0))


def _rivals(subject: ExaminedLoss, eta: Tensor, scores: Tensor, ends: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return other ends of as small a risk but a decision of another quality, where there are any."""
    risk = subject.risk(scores, eta)
    right = subject.target.excess(subject.decide(scores), eta) <= 1e-9
    rival = scores.clone()
    for other, other_risk in ends:
        as_low = other_risk <= risk + subject.tolerance
        differs = (subject.target.excess(subject.decide(other), eta) <= 1e-9) != right
        rival[as_low & differs] = other[as_low & differs]
    return rival
