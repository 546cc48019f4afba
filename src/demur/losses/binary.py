"""Losses for two classes, with the score f > 0 for class 1 and f < 0 for class 0."""

from __future__ import annotations

from dataclasses import dataclass

from demur.lazy_torch import F, Tensor, torch
from demur.losses.loss import BoundFacts, Hyper, Loss, check_inverse_link
from demur.losses.pairwise import AdditivePairwise, PairwiseLoss
from demur.losses.registry import register
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.rules import Decision


@register({"phi": Logistic()}, {"phi": Exponential()})
@dataclass(frozen=True)
class PlusBound(PairwiseLoss):
    r"""Plus-bound: :math:`\phi(\alpha(y f - r)) + c\,\psi(\beta r)` with y in {-1, +1} (Eq. 4; Cortes et al. 2016).

    The scores are (f, r). It is the additive pairwise loss at K = 2, with f = g_1 - g_0.

    Parameters
    ----------
    phi : MarginFunction
    psi : MarginFunction, optional
        The same as phi if None, also after ``dataclasses.replace(loss, phi=...)``.
    alpha : float or tensor
    beta : float, tensor, "acc", "rej" or "mean"
        The three names mean the same value here: with two classes both sides of Corollary 5 agree.

    Examples
    --------
    >>> PlusBound(Exponential(), beta=1.0)(torch.zeros(2), torch.tensor(1), cost=0.2)
    tensor(1.2000)
    """

    binary_only = True
    equation = "Eq. 4; Cortes et al. 2016"
    why = "at K = 2 one beta satisfies both conditions of Corollary 5"
    closed_forms = AdditivePairwise.closed_forms
    pair = AdditivePairwise.pair
    proof = PairwiseLoss.proof

    @property
    def name(self) -> str:
        return f"pb+{self.phi.name}"

    def n_outputs(self, n_classes: int) -> int:
        return 2

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        f, r = scores[..., 0], scores[..., 1]
        return self.phi(self.alpha * (_sign(y, f) * f - r)) + self._rejecting(r, 2, cost)

    def class_scores(self, scores: Tensor, n_classes: int) -> Tensor:
        return _two_sided(scores)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        return Decision.from_acceptance((scores[..., 0] > 0).long(), scores[..., 1])


@dataclass(frozen=True)
class _OneScore(Loss):
    """A loss of one score f."""

    binary_only = True

    def n_outputs(self, n_classes: int) -> int:
        return 1

    def class_scores(self, scores: Tensor, n_classes: int) -> Tensor:
        return _two_sided(scores)


@register()
@dataclass(frozen=True)
class ModifiedHinge(_OneScore):
    r"""Modified hinge of z = y f: 1 - a z for z < 0, 1 - z for 0 <= z < 1, then 0, with a = (1-c)/c.

    Accept iff :math:`|f| > 1/2` (Bartlett & Wegkamp 2008).

    Examples
    --------
    >>> ModifiedHinge()(torch.tensor([[-1.0], [0.5]]), torch.tensor([1, 1]), cost=0.2)  # a = 4
    tensor([5.0000, 0.5000])
    """

    family = "hinge"
    name = "mh"
    equation = "Bartlett & Wegkamp 2008"
    why = "its minimiser is f = 0 iff max eta < 1 - c, else the sign of the likelier class"
    trained_for_cost = True
    smooth = False

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        f = scores[..., 0]
        z = _sign(y, f) * f
        return F.relu(1 - z) + ((1 - cost) / cost - 1) * F.relu(-z)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        f = scores[..., 0]
        return Decision.from_acceptance((f > 0).long(), f.abs() - 0.5, f.abs())


@register({"phi": Logistic()}, {"phi": Exponential()}, {"phi": Squared()}, {"phi": SquaredHinge()})
@dataclass(frozen=True)
class Margin(_OneScore):
    r"""One score f and the loss :math:`\phi(y f)`; accept iff :math:`|f| > \theta(c)` (Eq. 3; Yuan & Wegkamp 2010).

    One training serves every cost.

    Parameters
    ----------
    phi : MarginFunction
        With an inverse link.

    Examples
    --------
    >>> Margin(Squared()).proba(torch.tensor([0.6]))
    tensor([0.2000, 0.8000])
    """

    phi: MarginFunction = Logistic()
    family = "confidence"
    equation = "Eq. 3; Yuan & Wegkamp 2010"
    why = "the link of the minimiser is eta, so |f| > theta(c) iff max eta > 1 - c"
    has_link = True

    def __post_init__(self) -> None:
        check_inverse_link(self, self.phi, otherwise="ModifiedHinge")

    @property
    def name(self) -> str:
        return f"margin+{self.phi.name}"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        f = scores[..., 0]
        return self.phi(_sign(y, f) * f)

    def inverse_link(self, scores: Tensor) -> Tensor:
        return torch.cat([self.phi.inverse_link(-scores), self.phi.inverse_link(scores)], -1)

    def bound_facts(self) -> BoundFacts | None:
        constant, exponent = self.phi.bound_constant, self.phi.bound_exponent
        if constant is None or exponent is None:
            return None
        theorem = "the proof of Theorem 7, with one score"
        return BoundFacts(theorem, 2 * constant, exponent, self.phi.excess)


def _sign(y: Tensor, like: Tensor) -> Tensor:
    """Return +1 for class 1 and -1 for class 0."""
    return 2 * y.to(like.dtype) - 1


def _two_sided(scores: Tensor) -> Tensor:
    """Return (-f, f), a score for each class."""
    f = scores[..., :1]
    return torch.cat([-f, f], -1)
