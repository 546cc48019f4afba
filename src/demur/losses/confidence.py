"""Confidence-based losses: train a classifier, then compare its probabilities with 1 - c (Section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Loss, check_inverse_link, one_versus_all, score_of_label, signs_of_label
from demur.losses.registry import register
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.rules import Decision, chow_acceptance

__all__ = ["CrossEntropy", "OneVsAll"]


@dataclass(frozen=True)
class ConfidenceLoss(Loss):
    """One score per class and an inverse link; the rule is Chow's on the linked scores (Eq. 10)."""

    family = "confidence"
    has_link = True

    def n_outputs(self, n_classes: int) -> int:
        return n_classes

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        confidence = self.inverse_link(scores).amax(-1)
        return Decision.from_acceptance(scores.argmax(-1), chow_acceptance(confidence, cost), confidence)


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

    equation = "Section 4, Theorem 8"
    why = "strictly proper: softmax of the minimiser is eta, so Chow's rule applies"
    softmax_link = True

    @property
    def name(self) -> str:
        return "ce"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        return torch.logsumexp(scores, -1) - score_of_label(scores, y)

    def score_gradient(self, scores: Tensor, y: Tensor, cost: Hyper | None, weight: Tensor) -> Tensor:
        # Written so that every operation keeps the memory layout of the scores, which softmax does not.
        gradient = (scores - scores.amax(-1, keepdim=True)).exp_()
        gradient.mul_((weight / gradient.sum(-1)).unsqueeze(-1))
        return gradient.scatter_add_(-1, y.unsqueeze(-1), -weight.expand(y.shape).unsqueeze(-1))

    def inverse_link(self, scores: Tensor) -> Tensor:
        if scores.ndim > 1 and scores.stride(-1) != 1:  # as the engine stores them; softmax would copy them first
            return torch.softmax(scores.transpose(-1, -2), -2).transpose(-1, -2)
        return torch.softmax(scores, -1)


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
    equation = "Eq. 11, Theorem 7"
    why = "each score's link is the class's own probability, so Chow's rule applies"

    def __post_init__(self) -> None:
        check_inverse_link(self, self.phi, otherwise="OneVsAllHinge")

    @property
    def name(self) -> str:
        return f"ova+{self.phi.name}"

    @property
    def smooth(self) -> bool:
        return self.phi.smooth

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        return one_versus_all(self.phi, scores, y)

    def score_gradient(self, scores: Tensor, y: Tensor, cost: Hyper | None, weight: Tensor) -> Tensor:
        sign = signs_of_label(scores, y)
        return self.phi.slope(sign * scores, sign * weight.unsqueeze(-1))

    def inverse_link(self, scores: Tensor) -> Tensor:
        return self.phi.inverse_link(scores)
