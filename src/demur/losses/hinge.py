"""Multiclass hinge losses that depend on the cost (Ramaswamy et al. 2018), with a free threshold tau."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, log2
from typing import ClassVar

from demur.lazy_torch import F, Tensor, torch
from demur.losses.loss import Hyper, Loss, score_of_label, weighted_one_versus_all
from demur.losses.registry import register
from demur.rules import Decision


@dataclass(frozen=True)
class _HingeLoss(Loss):
    """A piecewise linear loss with a free threshold tau in an open interval."""

    tau: Hyper = 0.5

    family = "hinge"
    trained_for_cost = True
    smooth = False
    ranges: ClassVar = {"tau": "(0, 1)"}
    tau_candidates = (0.05, 0.25, 0.5, 0.75, 0.95)


@register()
@dataclass(frozen=True)
class OneVsAllHinge(_HingeLoss):
    r"""OVA+hin: :math:`c\,(1 - g_y)_+ + (1-c) \sum_{i \ne y} (1 + g_i)_+`; accept iff max g > tau.

    Class i's part of the pointwise risk is least at g_i = 1 if eta_i > 1 - c and at g_i = -1 otherwise.

    Parameters
    ----------
    tau : float or tensor in (-1, 1)

    Examples
    --------
    >>> OneVsAllHinge()(torch.zeros(3), torch.tensor(0), cost=0.2)  # 0.2 + 2 * 0.8
    tensor(1.8000)
    """

    tau: Hyper = 0.0
    ranges: ClassVar = {"tau": "(-1, 1)"}
    tau_candidates = (-0.95, -0.5, 0.0, 0.5, 0.95)
    name, kernel = "ova+hin", "ova_hinge"
    equation = "Section 5; Ramaswamy et al. 2018"
    why = "the minimiser of score i is +1 iff eta_i > 1 - c, for every tau in (-1, 1)"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        return weighted_one_versus_all(lambda g: F.relu(1 - g), scores, y, cost)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        return Decision.from_acceptance(scores.argmax(-1), scores.amax(-1) - self.tau)


@register()
@dataclass(frozen=True)
class CrammerSingerHinge(_HingeLoss):
    r"""CS+hin: a kinked hinge of :math:`m = \max_{j \ne y} g_j - g_y`.

    Accept iff the best score is ahead of the second by more than tau. The loss is
    :math:`2 \max(c\,\gamma(m), (1-c)\,\gamma(m)) + 2c` with :math:`\gamma(m) = \max(m, -1)`: 0 for a clear right
    answer, 2c with no preference, 2 for a clear wrong answer.

    Parameters
    ----------
    tau : float or tensor in (0, 1)

    Examples
    --------
    >>> loss = CrammerSingerHinge()
    >>> scores = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    >>> loss(scores, torch.tensor([0, 0, 0]), cost=0.2)
    tensor([0.0000, 0.4000, 2.0000])
    """

    name, kernel = "cs+hin", "cs_hinge"
    equation = "Ramaswamy et al. 2018"
    why = "its minimum is all-equal scores at 2c or a clear answer at 2 (1 - max eta), whichever is less"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        best_other = scores.scatter(-1, y.unsqueeze(-1), -torch.inf).amax(-1)
        return _kinked_hinge(best_other - score_of_label(scores, y), cost)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        best = scores.topk(2, dim=-1).values
        return Decision.from_acceptance(scores.argmax(-1), best[..., 0] - best[..., 1] - self.tau)


@register()
@dataclass(frozen=True)
class BinaryEncodedHinge(_HingeLoss):
    r"""BEP: ceil(log2 K) scores; class y has the code B(y) of its binary digits, in {-1, +1}.

    The loss is the kinked hinge of :class:`CrammerSingerHinge` at :math:`m = \max_j B_j(y) g_j`. The answer is the
    class with the least m, which is the class whose code is sign(-g); accept iff -m > tau, which for that class
    is min_j |g_j| > tau. Where K is not a power of two and sign(-g) is not the code of a class, every m is positive and
    the example is rejected.

    Parameters
    ----------
    tau : float or tensor in (0, 1)
    n_classes : int, optional
        Number of the 2^L codes that are classes; all of them by default.

    Examples
    --------
    >>> loss = BinaryEncodedHinge(n_classes=3)
    >>> decision = loss.decide(torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), cost=0.2)
    >>> decision.label, decision.reject  # (-1, -1) is the code of class 0, (+1, +1) of no class
    (tensor([0, 0]), tensor([False,  True]))
    """

    n_classes: int | None = None
    name = kernel = "bep"
    equation = "Ramaswamy et al. 2018"
    why = "its minimum is g = 0 at 2c or minus the best class's code at 2 (1 - max eta), whichever is less"

    def n_outputs(self, n_classes: int) -> int:
        return ceil(log2(n_classes))

    def for_classes(self, n_classes: int) -> BinaryEncodedHinge:
        super().for_classes(n_classes)
        return replace(self, n_classes=n_classes)

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        return _kinked_hinge((self._code(y, scores) * scores).amax(-1), cost)

    def class_scores(self, scores: Tensor, n_classes: int) -> Tensor:
        classes = torch.arange(n_classes, device=scores.device)
        return -(self._code(classes, scores) * scores.unsqueeze(-2)).amax(-1)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        best = self.class_scores(scores, self._n_classes(scores.shape[-1])).max(-1)
        return Decision.from_acceptance(best.indices, best.values - self.tau)

    def _n_classes(self, n_outputs: int) -> int:
        return self.n_classes or 2 ** max(n_outputs, 1)

    def _code(self, y: Tensor, scores: Tensor) -> Tensor:
        digits = torch.arange(scores.shape[-1], device=scores.device)
        return ((y.unsqueeze(-1) >> digits) & 1).to(scores.dtype) * 2 - 1


def _kinked_hinge(m: Tensor, cost: Hyper) -> Tensor:
    gamma = m.clamp(min=-1)
    return 2 * torch.maximum(cost * gamma, (1 - cost) * gamma) + 2 * cost
