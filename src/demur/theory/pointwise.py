"""The pointwise risk W(g; eta) = sum_y eta_y L(g, y) of any loss, and its minimiser (Section 2.1)."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from demur.losses import Loss
from demur.losses.loss import Hyper
from demur.theory.cutting_planes import minimise_kinked
from demur.theory.newton import Objective, minimise_rows
from demur.theory.ties import Ties

__all__ = ["RiskProblem", "minimise_pointwise_risk", "pointwise_risk"]

ELEMENTS_AT_ONCE = 200_000
"""How many scores one evaluation may hold: about 100 MB with the graph of two derivatives."""


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

    Smooth losses: damped Newton steps in float64, many rows at once. Piecewise linear losses:
    cutting planes in a box, exact up to the linear program's tolerance. Where the infimum lies at infinity (an
    eta with zeros), the scores are those at which the gradient has vanished numerically.

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
    result = torch.zeros(len(eta), n_outputs, dtype=torch.float64)
    for rows, ties in Ties.batches(eta, n_outputs, symmetric=symmetric):
        result[rows] = RiskProblem(loss, ties, cost[rows] if isinstance(cost, Tensor) else cost).minimise()[0]
    return result


class RiskProblem:
    """The pointwise risks of many rows as functions of their unknowns.

    Parameters
    ----------
    loss : Loss
    ties : Ties
        Which scores of each row are one unknown, and the probabilities.
    cost : float, or tensor of shape (n_rows,)

    Examples
    --------
    >>> from demur.losses import get
    >>> eta = torch.tensor([[0.8, 0.1, 0.1]], dtype=torch.float64)
    >>> problem = RiskProblem(get("ce"), Ties.from_groups(eta, torch.tensor([[0, 1, 1]]), 3), cost=0.2)
    >>> scores, slope = problem.minimise()
    >>> get("ce").proba(scores).round(decimals=6)
    tensor([[0.8000, 0.1000, 0.1000]], dtype=torch.float64)
    """

    def __init__(self, loss: Loss, ties: Ties, cost: Hyper) -> None:
        self.loss = loss
        self.ties = ties
        self.cost = cost
        self.n_rows, self.n_groups = ties.weights.shape

    def risk(self, unknowns: Tensor, rows: Tensor) -> Tensor:
        """Return the risk of each row at its unknowns (m, n_unknowns); ``rows`` (m,) says which rows they are."""
        return (self.ties.weights[rows] * self._losses_at(self.ties.scores(unknowns, rows), rows)).sum(-1)

    def risk_of_scores(self, scores: Tensor) -> Tensor:
        """Return the risk of each row at its scores (n_rows, n_outputs)."""
        result = torch.empty(self.n_rows, dtype=torch.float64)
        with torch.no_grad():
            for rows in self._parts():
                result[rows] = (self.ties.weights[rows] * self._losses_at(scores[rows], rows)).sum(-1)
        return result

    def minimise(self, start: Tensor | None = None, *, kinked: bool | None = None) -> tuple[Tensor, Tensor]:
        """Return the minimising scores (n_rows, n_outputs) and the slope that is left (n_rows,).

        Parameters
        ----------
        start : tensor of shape (n_rows, n_unknowns), optional
            By default the best of a few guesses. Cutting planes need none.
        kinked : bool, optional
            Whether to use cutting planes; by default, what the loss says of itself.
        """
        everywhere = torch.arange(self.n_rows)
        if not self.loss.smooth if kinked is None else kinked:
            weights, n_unknowns = self.ties.weights, self.ties.n_unknowns
            points = [minimise_kinked(self._terms(row), weights[row], n_unknowns) for row in range(self.n_rows)]
            return self.ties.scores(torch.stack(points), everywhere), torch.zeros(self.n_rows, dtype=torch.float64)
        if start is not None:
            unknowns, slope = self.descend(self.risk, start)
        else:
            unknowns, slope = self.descend_from_guess(self.risk, self.ties.n_unknowns)
        return self.ties.scores(unknowns, everywhere), slope

    def descend_from_guess(self, objective: Objective, n_unknowns: int) -> tuple[Tensor, Tensor]:
        """Minimise an objective of the first unknowns from the best guess; rows that get nowhere, from the origin."""
        points, slope = self.descend(objective, self.guess()[:, :n_unknowns], max_steps=60)
        stuck = (slope > 1e-10).nonzero()[:, 0]
        if len(stuck):
            origin = torch.zeros(len(stuck), n_unknowns, dtype=torch.float64)
            points[stuck], slope[stuck] = self.select(stuck).descend(lambda u, rows: objective(u, stuck[rows]), origin)
        return points, slope

    def select(self, rows: Tensor) -> "RiskProblem":
        """Return the problem of some rows."""
        return RiskProblem(self.loss, self.ties.select(rows), self.cost_of(rows))

    def cost_of(self, rows: Tensor) -> Hyper:
        """Return the cost of some rows."""
        return self.cost[rows] if isinstance(self.cost, Tensor) else self.cost

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
                lowest = self.risk(best[rows], rows)
                log_eta = self.ties.each[rows].clamp(min=1e-300).log()
                for factor in (0.5, 1.0):
                    start = torch.zeros(len(rows), self.ties.n_unknowns, dtype=torch.float64)
                    start[:, : self.n_groups] = (factor * log_eta).clamp(min=-28.0)  # exp(-28) is nothing
                    risk = self.risk(start, rows)
                    best[rows] = torch.where((risk < lowest).unsqueeze(-1), start, best[rows])
                    lowest = torch.minimum(risk, lowest)
        return best

    def descend(
        self, objective: Objective, start: Tensor, *, max_steps: int = 300, tolerance: float = 1e-12
    ) -> tuple[Tensor, Tensor]:
        """Minimise an objective made from the risk by Newton steps, a bounded number of rows at once."""
        points = torch.empty_like(start)
        slope = torch.empty(self.n_rows, dtype=torch.float64)
        for rows in self._parts():
            points[rows], slope[rows] = minimise_rows(
                _shifted(objective, rows[0]), start[rows], max_steps=max_steps, tolerance=tolerance
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
        return self.loss.forward(scores, y, self.cost_of(rows))

    def _terms(self, row: int) -> Callable[[Tensor], Tensor]:
        rows = torch.full((self.n_groups,), row)
        return lambda unknowns: self._loss(self.ties.scores(unknowns, rows), self.ties.labels[row], rows)


def _shifted(objective: Objective, first: Tensor) -> Objective:
    return lambda points, rows: objective(points, rows + first)
