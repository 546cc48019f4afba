"""Cost-sensitive one-versus-rest: the cost weighs the two kinds of mistake of each class's own binary problem."""

from __future__ import annotations

from dataclasses import dataclass

from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Loss, weighted_one_versus_all
from demur.losses.proof import Proof, falls_at_zero
from demur.losses.registry import register
from demur.margins import Logistic, MarginFunction, SquaredHinge
from demur.rules import Decision

__all__ = ["CostSensitiveOneVsAll"]


@register({"phi": Logistic()}, {"phi": SquaredHinge()})
@dataclass(frozen=True)
class CostSensitiveOneVsAll(Loss):
    r"""Cost-sensitive one-versus-all: :math:`c\,\phi(g_y) + (1-c) \sum_{k \ne y} \phi(-g_k)`.

    Charoenphakdee et al. 2021a. Class k's part of the risk has its minimum at g_k > 0 iff
    :math:`c\,\eta_k > (1-c)(1-\eta_k)`, that is iff eta_k > 1 - c, for every classification-calibrated phi. Accept iff
    exactly one score is positive: with c < 1/2 no two can be at the minimum, and where two are, the paper declines.
    (With the hinge and another threshold this is :class:`~demur.losses.OneVsAllHinge`.)

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

    @property
    def smooth(self) -> bool:
        return self.phi.smooth

    def n_outputs(self, n_classes: int) -> int:
        return n_classes

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        assert cost is not None
        return weighted_one_versus_all(self.phi, scores, y, cost)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        best = scores.topk(2, dim=-1).values
        return Decision.from_acceptance(scores.argmax(-1), torch.minimum(best[..., 0], -best[..., 1]))

    def proof(self, n_classes: int, cost: float) -> Proof:
        def acceptance(scores: Tensor) -> Tensor:
            ordered = scores.sort(-1, descending=True).values
            return torch.minimum(ordered[:, 0], -ordered[:, 1])

        return Proof(
            "a slope at the score 0",
            f"At every eta with max eta other than {1 - cost:g}, every minimiser decides as Chow's rule: the slope of "
            f"class k's part at 0 is phi'(0) (eta_k - {1 - cost:g}), so that score k is positive iff eta_k is larger.",
            lambda scores, y: weighted_one_versus_all(self.phi, scores, y, cost),
            acceptance,
            (falls_at_zero(self.phi),),
        )
