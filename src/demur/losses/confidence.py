"""Confidence-based losses: train a classifier, then compare its probabilities with 1 - c (Section 4).

Cost-sensitive one-versus-all instead weights the two kinds of errors of each class's binary problem by the cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, log1p

from demur.lazy_torch import Tensor, torch
from demur.losses.loss import (
    BoundFacts,
    Hyper,
    Loss,
    check_inverse_link,
    one_versus_all,
    score_of_label,
    weighted_one_versus_all,
)
from demur.losses.registry import register
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge, divergence
from demur.rules import Decision


@dataclass(frozen=True)
class ConfidenceLoss(Loss):
    """One score per class and an inverse link, by default softmax; the rule is Chow's on the linked scores (Eq. 10)."""

    family = "confidence"
    has_link = True

    def inverse_link(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1)


@register()
@dataclass(frozen=True)
class CrossEntropy(ConfidenceLoss):
    r"""Cross-entropy: :math:`-g_y + \log \sum_{y'} \exp g_{y'}`, inverse link softmax (Eq. 12).

    Strictly proper, and calibrated for rejection with :math:`\tfrac12 (\Delta R_{0-1-c})^2 \le \Delta R`
    (Theorem 8). One training serves every cost.

    Examples
    --------
    >>> CrossEntropy()(torch.zeros(26), torch.tensor(3))  # log 26
    tensor(3.2581)
    >>> CrossEntropy().proba(torch.zeros(4))
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    name = kernel = "ce"
    equation = "Section 4, Theorem 8"
    why = "strictly proper: softmax of the minimiser is eta, so Chow's rule applies"
    softmax_link = True

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        return -score_of_label(torch.log_softmax(scores, -1), y)

    def score_gradient(self, scores: Tensor, y: Tensor, cost: Hyper | None, weight: Tensor) -> Tensor:
        weight = weight.unsqueeze(-1)
        return (torch.softmax(scores, -1) * weight).scatter_add_(-1, y.unsqueeze(-1), -weight)

    def bound_facts(self) -> BoundFacts:
        def on_range(radius: float, n_classes: int) -> tuple[float, float]:
            # Lipschitz in all scores at once with constant sqrt 2; theory/excess_bounds.py has the other sqrt 2.
            return 2.0, log1p((n_classes - 1) * exp(2 * radius)) if radius < 300 else 2 * radius + log(n_classes)

        return BoundFacts("Theorem 8", 2**0.5, 2.0, divergence, on_range=on_range)


@register({"phi": Logistic()}, {"phi": Exponential()}, {"phi": Squared()}, {"phi": SquaredHinge()})
@dataclass(frozen=True)
class OneVsAll(ConfidenceLoss):
    r"""One-versus-all: :math:`\phi(g_y) + \sum_{y' \ne y} \phi(-g_{y'})` (Eq. 11).

    The inverse link works on each score alone (Eq. 12), so the probabilities need not sum to 1; the paper's
    rule uses them as they are. One training serves every cost (Theorem 7).

    Parameters
    ----------
    phi : MarginFunction
        With an inverse link.

    Examples
    --------
    >>> OneVsAll()(torch.zeros(8), torch.tensor(0))  # 8 log 2
    tensor(5.5452)
    >>> OneVsAll(Exponential()).proba(torch.tensor([0.0, 1.0]))  # sigmoid(2 g)
    tensor([0.5000, 0.8808])
    """

    phi: MarginFunction = Logistic()
    kernel = "ova"
    equation = "Eq. 11, Theorem 7"
    why = "each score's link is the class's own probability, so Chow's rule applies"

    def __post_init__(self) -> None:
        check_inverse_link(self, self.phi, otherwise="OneVsAllHinge")

    @property
    def name(self) -> str:
        return f"ova+{self.phi.name}"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        return one_versus_all(self.phi, scores, y)

    def expected(self, scores: Tensor, weights: Tensor, cost: Hyper | None) -> Tensor:
        others = weights.sum(-1, keepdim=True) - weights
        return (weights * self.phi(scores) + others * self.phi(-scores)).sum(-1)

    def inverse_link(self, scores: Tensor) -> Tensor:
        return self.phi.inverse_link(scores)

    def bound_facts(self) -> BoundFacts | None:
        constant, exponent = self.phi.bound_constant, self.phi.bound_exponent
        if constant is None or exponent is None:
            return None

        def on_range(radius: float, n_classes: int) -> tuple[float, float]:
            ends = torch.tensor([-radius, radius], dtype=torch.float64)
            return float(self.phi.slope(ends).abs().max()), n_classes * float(self.phi(ends).max())

        return BoundFacts("Theorem 7", 2 * constant, exponent, self.phi.excess, True, on_range)


@register({"phi": Logistic()}, {"phi": SquaredHinge()})
@dataclass(frozen=True)
class CostSensitiveOneVsAll(Loss):
    r"""Cost-sensitive one-versus-all: :math:`c\,\phi(g_y) + (1-c) \sum_{k \ne y} \phi(-g_k)`.

    Charoenphakdee et al. 2021a. Class k's part of the risk has its minimum at g_k > 0 iff :math:`c\,\eta_k >
    (1-c)(1-\eta_k)`, that is iff eta_k > 1 - c, for every classification-calibrated phi. Accept iff exactly one score
    is positive: with c < 1/2 two scores cannot be positive at the minimum, and if two are, the paper declines. (With
    the hinge and another threshold this is :class:`~demur.losses.OneVsAllHinge`.)

    Parameters
    ----------
    phi : MarginFunction

    Examples
    --------
    >>> loss = CostSensitiveOneVsAll()
    >>> loss(torch.zeros(3), torch.tensor(0), cost=0.2)  # (0.2 + 2 * 0.8) log 2
    tensor(1.2477)
    >>> loss.decide(torch.tensor([[1.0, -1.0], [-1.0, -1.0], [2.0, 1.0]]), cost=0.2).reject
    tensor([False,  True,  True])
    """

    phi: MarginFunction = Logistic()
    family = "cost-sensitive"
    equation = "Charoenphakdee et al. 2021a"
    why = "the minimiser of score k is positive iff eta_k > 1 - c"
    trained_for_cost = True

    @property
    def name(self) -> str:
        return f"csova+{self.phi.name}"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        return weighted_one_versus_all(self.phi, scores, y, cost)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        best = scores.topk(2, dim=-1).values
        return Decision.from_acceptance(scores.argmax(-1), torch.minimum(best[..., 0], -best[..., 1]))
