r"""Classifier and rejector for any number of classes: scores (g_1, ..., g_K, r), answer argmax g, accept iff r > 0.

The pairwise losses of Section 3 fail for K > 2 because their risk, with the class scores at their best, depends on how
eta is spread below its maximum. The risk of these losses depends on max eta alone: the minimum of the part that
multiplies the rejector is the error rate 1 - max eta.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Proof, score_of_label
from demur.losses.pairwise import RejectorLoss
from demur.losses.registry import register
from demur.margins import Logistic, MarginFunction, own_fact


def _slope_proof(phi: MarginFunction, cost: float, value: Callable[[Tensor, Tensor], Tensor]) -> Proof:
    return Proof(
        "a slope at r = 0",
        f"At every eta with max eta other than {1 - cost:g}, every minimiser rejects iff Chow's rule does, and answers "
        "the likeliest class: whatever r is, what it multiplies is at best 1 - max eta.",
        value,
        lambda scores: scores[:, -1],
        (_falls_at_zero(phi),),
    )


def _falls_at_zero(phi: MarginFunction) -> str | None:
    """Return a sentence about phi'(0) < 0; None where phi is not known to be convex or does not fall there."""
    slope = float(phi.slope(torch.zeros(1, dtype=torch.float64)))
    return f"phi is convex and phi'(0) = {slope:g} < 0" if own_fact(phi, "kernel") and slope < 0 else None


@register()
@dataclass(frozen=True)
class PredictorRejector(RejectorLoss):
    r"""Single stage with the mean absolute error: :math:`(1 - p_y)\,\phi(-\alpha r) + c\,\phi(\beta r)`.

    Mao et al. 2023 (predictor-rejector abstention), p the softmax of the class scores. For every r the risk is least
    with all probability on the likeliest class, where the first part is 1 - max eta; then its slope at r = 0 is
    :math:`-\phi'(0) (\alpha (1 - \max\eta) - \beta c)`, and phi is convex: r > 0 iff :math:`\max\eta > 1 - \beta c /
    \alpha`. So alpha = beta is calibrated for every K, and every other ratio is not.

    Parameters
    ----------
    phi : MarginFunction
        With phi'(0) < 0.
    alpha, beta : float or tensor, positive

    Examples
    --------
    >>> from demur.margins import Exponential
    >>> PredictorRejector(Exponential())(torch.zeros(5), torch.tensor(0), cost=0.25)  # (1 - 1/4) + 1/4
    tensor(1.)
    """

    phi: MarginFunction = Logistic()
    alpha: Hyper = 1.0
    beta: Hyper = 1.0
    ranges: ClassVar = {"alpha": "(0, inf)", "beta": "(0, inf)"}
    name = "pr+mae"
    equation = "Mao, Mohri & Zhong 2023, single stage"
    why = "with the mean absolute error the rejector weighs 1 - max eta against c, whatever the other classes are"

    def calibrated_for(self, n_classes: int) -> bool:
        return bool(torch.all(torch.as_tensor(self.alpha) == torch.as_tensor(self.beta)))

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        g, r = scores[..., :-1], scores[..., -1]
        error = -torch.expm1(score_of_label(g, y) - torch.logsumexp(g, -1))
        return error * self.phi(-self.alpha * r) + cost * self.phi(self.beta * r)

    def proof(self, n_classes: int, cost: float) -> Proof | None:
        def value(scores: Tensor, y: Tensor) -> Tensor:
            r = float(self.alpha) * scores[:, -1]
            error = 1 - score_of_label(torch.softmax(scores[:, :-1], -1), y)
            return error * self.phi(-r) + cost * self.phi(r)

        return _slope_proof(self.phi, cost, value) if self.calibrated_for(n_classes) else None


@register()
@dataclass(frozen=True)
class TwoStage(RejectorLoss):
    r"""Two stages in one: :math:`-\log p_y + [\arg\max g \ne y]\,\phi(-r) + c\,\phi(r)`.

    Mao et al. 2023: first a classifier by cross-entropy, then a rejector that learns from its mistakes. The indicator
    of a mistake has zero gradient, so only the cross-entropy trains the class scores, and the rejector adapts to them:
    both stages run at the same time. The cross-entropy is least at p = eta, where the error rate has its minimum,
    1 - max eta; then r > 0 iff max eta > 1 - c. The loss is discontinuous where the answer changes.

    Parameters
    ----------
    phi : MarginFunction
        With phi'(0) < 0.

    Examples
    --------
    >>> from demur.margins import Exponential
    >>> scores = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    >>> TwoStage(Exponential())(scores, torch.tensor([0, 1]), cost=0.25)  # log 2 + c, and one mistake more
    tensor([0.9431, 1.9431])
    """

    phi: MarginFunction = Logistic()
    smooth = False
    name = "pr+2stage"
    equation = "Mao, Mohri & Zhong 2023, two stages"
    why = "the classifier is cross-entropy's; its rejector weighs 1 - max eta against c"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        g, r = scores[..., :-1], scores[..., -1]
        mistaken = (g.argmax(-1) != y).to(g.dtype)
        answering = torch.logsumexp(g, -1) - score_of_label(g, y)
        return answering + mistaken * self.phi(-r) + cost * self.phi(r)

    def proof(self, n_classes: int, cost: float) -> Proof:
        def value(scores: Tensor, y: Tensor) -> Tensor:
            log_p, r = torch.log_softmax(scores[:, :-1], -1), scores[:, -1]
            return -score_of_label(log_p, y) + (log_p.argmax(-1) != y) * self.phi(-r) + cost * self.phi(r)

        return _slope_proof(self.phi, cost, value)
