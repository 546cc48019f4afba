r"""Losses with a score for declining that were made to work and not to be calibrated: the baselines that people use.

Of four such methods two are here. The other two cannot be losses of this package. SelectiveNet (Geifman & El-Yaniv
2019) divides by the coverage of the batch, so that an example has no loss of its own. Self-adaptive training (Huang et
al. 2020) replaces the label of a training row by an average of the network's earlier answers to that very row, so that
the loss depends on the history of the training. Neither has a pointwise risk, without which calibration cannot be asked
about, and a stack of networks trained as one tensor program keeps neither batches whole nor rows identified. At a price
c instead of a coverage, SelectiveNet's objective becomes a loss times the acceptance plus c times the rest; with the
mean absolute error as that loss, it is :class:`~demur.losses.PredictorRejector`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log

from demur.errors import InputError
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Loss, all_between, score_of_label
from demur.losses.proof import CLEAR, Proof
from demur.losses.registry import register
from demur.losses.score_based import PlusOneLoss
from demur.rules import Decision

__all__ = ["AbstainingClassifier", "DeepGamblers"]


@register()
@dataclass(frozen=True)
class DeepGamblers(PlusOneLoss):
    r"""Deep Gamblers: :math:`-\log(p_y + p_{K+1} / o)`, p the softmax of K + 1 scores (Liu et al. 2019).

    A gambler bets p_k on class k and keeps p_{K+1}; o is the payoff, here 1 / (1 - c). Accept iff p_{K+1} < tau, with
    tau chosen by validation, as there. By Kelly's argument the minimiser keeps everything iff max eta <= 1 - c; just
    above, at max eta = 1 - c + t, it bets only t / c. So every tau < 1 declines up to max eta = 1 - c + c (1 - tau),
    and tau = 1, which would be right, accepts everything, because a softmax never keeps all.

    Parameters
    ----------
    tau : float or tensor in (0, 1)

    Examples
    --------
    >>> DeepGamblers()(torch.zeros(4), torch.tensor(0), cost=0.25)  # -log(1/4 + 3/16)
    tensor(0.8267)
    """

    tau: Hyper = 0.5
    family = "heuristic"
    name = "gamblers"
    equation = "Liu et al. 2019"
    why = "bets little just above max eta = 1 - c, so that every threshold tau < 1 declines too much"

    def __post_init__(self) -> None:
        if not all_between(self.tau, 0, 1):
            raise InputError(f"tau must lie strictly between 0 and 1, got {self.tau}.")

    def calibrated_for(self, n_classes: int) -> bool:
        return False

    def variants_to_decide(self) -> list[Loss]:
        return [replace(self, tau=tau) for tau in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        assert cost is not None
        payoff = torch.log1p(-torch.as_tensor(cost, dtype=scores.dtype))
        won = torch.logaddexp(score_of_label(scores, y), scores[..., -1] + payoff)
        return torch.logsumexp(scores, -1) - won

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        kept = torch.softmax(scores, -1)[..., -1]
        return Decision.from_acceptance(scores[..., :-1].argmax(-1), self.tau - kept, 1 - kept)


@register()
@dataclass(frozen=True)
class AbstainingClassifier(PlusOneLoss):
    r"""Deep abstaining classifier: :math:`-(1-b) \log(p_y / (1-b)) - \alpha \log(1-b)`, :math:`b = p_{K+1}`.

    Thulasidasan et al. 2019. Their alpha rises during training by a schedule that knows no cost; here it is a constant,
    since a loss does not know the epoch. With u = 1 - b and H the entropy of eta the risk is at best u H - alpha log u,
    least at u = min(1, alpha / H). The last score is the largest iff :math:`1 - u \ge u \max\eta`, that is iff H >=
    alpha (1 + max eta). With two classes H falls as max eta grows, so the default
    :math:`\alpha = H(c, 1-c) / (2-c)` is calibrated. With more, H depends on the
    spread below the maximum, and no alpha is.

    Parameters
    ----------
    alpha : float or tensor, positive, optional
        H(c, 1 - c) / (2 - c) by default.

    Examples
    --------
    >>> AbstainingClassifier(alpha=1.0)(torch.zeros(4), torch.tensor(0), cost=0.2)  # 3/4 log 3 + log(4/3)
    tensor(1.1116)
    """

    alpha: Hyper | None = None
    family = "heuristic"
    name = "dac"
    equation = "Thulasidasan et al. 2019, at a constant alpha"
    why = "declines by the entropy of eta, which settles max eta at K = 2 only"

    def __post_init__(self) -> None:
        if self.alpha is not None and not all_between(self.alpha, 0):
            raise InputError(f"alpha must be positive, got {self.alpha}.")

    def calibrated_for(self, n_classes: int) -> bool:
        return n_classes == 2 and self.alpha is None

    def alpha_value(self, cost: Hyper) -> Hyper:
        """Return alpha, from the cost where it is not given."""
        if self.alpha is not None:
            return self.alpha
        c = torch.as_tensor(cost, dtype=None if isinstance(cost, Tensor) else torch.float64)
        alpha = -(torch.xlogy(c, c) + torch.xlogy(1 - c, 1 - c)) / (2 - c)
        return alpha if isinstance(cost, Tensor) else float(alpha)

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None) -> Tensor:
        assert cost is not None
        g = scores[..., :-1]
        classes, total = torch.logsumexp(g, -1), torch.logsumexp(scores, -1)
        answering = torch.exp(classes - total) * (classes - score_of_label(g, y))
        return answering + self.alpha_value(cost) * (total - classes)

    def proof(self, n_classes: int, cost: float) -> Proof | None:
        if n_classes != 2:
            return None
        alpha = float(self.alpha_value(cost))

        def ahead(top: float) -> float:
            """Return H(eta) - alpha (1 + max eta), which falls as max eta grows from 1/2."""
            return -top * log(top) - (1 - top) * log(1 - top) - alpha * (1 + top)

        turns = ahead(1 - cost - CLEAR) > 1e-13 and ahead(1 - cost + CLEAR) < -1e-13  # a thousand rounding errors
        return Proof(
            "the entropy of two classes",
            f"For two classes and every eta with |max eta - {1 - cost:g}| >= {CLEAR:g}, every minimiser decides as "
            "Chow's rule: it declines iff H(eta) >= alpha (1 + max eta), and the difference falls as max eta grows.",
            (f"H(eta) - alpha (1 + max eta) changes its sign within {CLEAR:g} of {1 - cost:g}" if turns else None,),
        )
