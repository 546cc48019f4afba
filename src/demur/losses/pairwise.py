r"""Classifier-rejector losses: the last score is a rejector r, trained together with the class scores (Section 3).

For more than two classes no beta makes them calibrated (Corollary 5). Each side of Corollary 5 gives a value of
beta / alpha: ``"acc"`` makes false rejects impossible and over-accepts, ``"rej"`` makes false accepts impossible
and over-rejects, ``"mean"`` lies between them. At K = 2 all three agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any, ClassVar, Literal, TypeAlias, get_args

from demur.errors import InputError
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import CLEAR, Hyper, Loss, Proof, over_classes, rejector_rule, score_of_label
from demur.losses.registry import register
from demur.margins import Exponential, Logistic, MarginFunction
from demur.rules import Decision

BetaSide: TypeAlias = Literal["acc", "rej", "mean"]
Beta: TypeAlias = Hyper | BetaSide


class NoClosedFormError(InputError):
    """No closed form of the beta conditions is known for these margin functions."""


@dataclass(frozen=True)
class RejectorLoss(Loss):
    """A loss with scores (g_1, ..., g_K, r): answer argmax g, accept iff r > 0."""

    family = "classifier-rejector"
    trained_for_cost = True

    def n_outputs(self, n_classes: int) -> int:
        return n_classes + 1

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        return rejector_rule(scores)


@dataclass(frozen=True)
class PairwiseLoss(RejectorLoss):
    """Base class of the pairwise losses: two margin functions, and beta from one side of Corollary 5."""

    phi: MarginFunction = Logistic()
    psi: MarginFunction | None = None
    alpha: Hyper = 1.0
    beta: Beta = "rej"

    has_rejector = True
    slope_decides = True
    _slopes: ClassVar[Callable[..., Any]]
    """From scores and y to the slopes of the pairs, and that of their sum in -alpha r; None if it is their sum."""
    closed_forms: ClassVar[Mapping[tuple[str, str], Callable[[str, int, Hyper], Hyper]]] = {}
    """beta / alpha by side, number of classes and cost, for each known pair of names of phi and psi."""
    ranges: ClassVar = {"alpha": "(0, inf)", "beta": "(0, inf)"}
    why = "no beta satisfies both conditions of Corollary 5 for K > 2; calibrated at K = 2"

    def __post_init__(self) -> None:
        if isinstance(self.beta, str) and self.beta not in get_args(BetaSide):
            raise InputError(f"beta must be a positive number, 'acc', 'rej' or 'mean', got {self.beta!r}.")
        super().__post_init__()

    @property
    def psi_or_phi(self) -> MarginFunction:
        """The function of the rejector's part: psi, or phi where psi is None."""
        return self.phi if self.psi is None else self.psi

    def calibrated_for(self, n_classes: int) -> bool:
        return n_classes == 2 and isinstance(self.beta, str)

    def margin_functions(self) -> tuple[MarginFunction, ...]:
        return (self.phi, self.psi_or_phi)

    def hyper_values(self, n_classes: int, cost: Hyper) -> dict[str, Hyper]:
        return {"beta": self.beta_value(n_classes, cost)}

    def variants_to_train(self) -> list[Loss]:
        return [replace(self, beta=side) for side in ("acc", "rej", "mean")]

    def beta_value(self, n_classes: int, cost: Hyper) -> Hyper:
        """Return beta as numbers, from Corollary 5's conditions where it is given by the name of a side."""
        if not isinstance(self.beta, str):
            return self.beta
        sides = ("acc", "rej") if self.beta == "mean" else (self.beta,)
        ratios = [self.beta_ratio(side, n_classes, cost) for side in sides]
        return sum(ratios[1:], ratios[0]) / len(ratios) * self.alpha

    def beta_ratio(self, side: str, n_classes: int, cost: Hyper) -> Hyper:
        """Return beta / alpha on one side of Corollary 5, "acc" or "rej", in closed form.

        Raises
        ------
        NoClosedFormError
            If none is known for this phi and psi.
        """
        formula = self.closed_forms.get((self.phi.name, self.psi_or_phi.name))
        if formula is None:
            raise NoClosedFormError(
                f"no closed form of beta is known for phi = {self.phi} and psi = {self.psi_or_phi}; give beta as a "
                "number (demur.theory.beta_bounds computes both sides numerically)."
            )
        return formula(side, n_classes, cost)

    def pair(self, difference: Tensor, r: Tensor) -> Tensor:
        """Return the part of one pair of classes with scores g_y - g_y' and r."""
        raise NotImplementedError

    def proof(self, n_classes: int, cost: float) -> Proof | None:
        r"""Prove calibration for two classes; a subclass that is covered by the argument states it as its own.

        With the class scores at their best, the slope of the risk in r at r = 0 has the sign of x ratio(x) - c beta /
        alpha, where x = 1 - max eta and ratio is the closed form of beta / alpha for two classes. For the functions
        with a closed form, x ratio(x) increases on (0, 1/2]: it is 2 sqrt(x (1-x)), 4 x (1-x) or the entropy of x.
        """
        if n_classes != 2:
            return None
        try:
            low, high = (x * float(self.beta_ratio("rej", 2, x)) for x in (cost - CLEAR, cost + CLEAR))
        except NoClosedFormError:
            return None
        beta = float(self.beta_value(2, cost))
        at = cost * beta / float(self.alpha)
        turns = low + 1e-13 < at < high - 1e-13  # a thousand rounding errors

        def value(scores: Tensor, y: Tensor) -> Tensor:
            lead = scores[:, -2] - (scores[:, 0] if scores.shape[-1] == 3 else 0)  # of class 1; or it is the score f
            r = scores[:, -1]
            return self.pair(torch.where(y == 1, lead, -lead), r) + cost * self.psi_or_phi(beta * scores[:, -1])

        return Proof(
            "the slope at r = 0",
            f"For two classes and every eta with |max eta - {1 - cost:g}| >= {CLEAR:g}, every minimiser rejects iff "
            "Chow's rule does, and answers the likelier class.",
            value,
            lambda scores: scores[:, -1],
            (f"the slope changes its sign within {CLEAR:g} of max eta = {1 - cost:g}" if turns else None,),
        )

    def _arguments(self, scores: Tensor, y: Tensor, shift: Tensor | float = 0.0) -> Tensor:
        """Return alpha (g_y - shift - g_y') for every class y', of shape (..., n_classes)."""
        g = scores[..., :-1]
        own = self.alpha * (score_of_label(g, y) - shift)
        return torch.addcmul(own.unsqueeze(-1), g, -torch.as_tensor(over_classes(self.alpha), dtype=g.dtype))

    def _rejecting(self, r: Tensor, n_classes: int, cost: Hyper) -> Tensor:
        return cost * self.psi_or_phi(self.beta_value(n_classes, cost) * r)

    def score_gradient(self, scores: Tensor, y: Tensor, cost: Hyper, weight: Tensor) -> Tensor:
        r, own, outer = scores[..., -1], y.unsqueeze(-1), weight * self.alpha
        slopes, of_r = self._slopes(scores, y)
        slopes = (slopes * outer.unsqueeze(-1)).scatter_(-1, own, 0.0)
        total, beta = slopes.sum(-1), self.beta_value(slopes.shape[-1], cost)
        gradient = torch.empty_like(scores)
        torch.neg(slopes, out=gradient[..., :-1]).scatter_add_(-1, own, total.unsqueeze(-1))
        rejecting = cost * beta * self.psi_or_phi.slope(beta * r) * weight
        gradient[..., -1] = rejecting - (total if of_r is None else of_r * outer)
        return gradient


def _without_own(pairs: Tensor, y: Tensor) -> Tensor:
    """Return the values of the other classes, and 0 for y itself, as a copy."""
    return pairs.scatter(-1, y.unsqueeze(-1), 0.0)


def _exponential_ratio(side: str, n_classes: int, cost: Hyper) -> Hyper:
    """Eq. 9, reached at eta = (1-c, c/(K-1), ...) for "acc" and at (1-c, c, 0, ...) for "rej"."""
    odds = (1 - cost) / cost
    if side == "rej":
        return 2 * odds**0.5
    return (n_classes - 2) + 2 * ((n_classes - 1) * odds) ** 0.5


def _additive_logistic_ratio(side: str, n_classes: int, cost: Hyper) -> Hyper:
    """Corollary 5 for Eq. 8 with logistic phi and psi, at the same two extremes."""
    if side == "rej":
        return 4 * (1 - cost)
    spread = (n_classes - 1) * (1 - cost)
    return 4 * spread / (spread + cost) + (n_classes - 2)


def _multiplicative_logistic_ratio(side: str, n_classes: int, cost: Hyper) -> Hyper:
    """Corollary 5 for Eq. 7 with logistic phi and psi, at the same two extremes."""
    c = torch.as_tensor(cost, dtype=None if isinstance(cost, Tensor) else torch.float64)
    rest = c / (n_classes - 1) if side == "acc" else c
    both = 1 - c + rest
    with_top = (1 - c) * torch.log(both / (1 - c)) + rest * torch.log(both / rest)
    total = with_top
    if side == "acc":
        total = (n_classes - 1) * with_top + (n_classes - 2) * c * log(2)
    ratio = total / c
    return ratio if isinstance(cost, Tensor) else float(ratio)


@register({"phi": Logistic()}, {"phi": Exponential()})
@dataclass(frozen=True)
class AdditivePairwise(PairwiseLoss):
    r"""APC: :math:`\sum_{y' \ne y} \phi(\alpha(g_y - g_{y'} - r)) + c\,\psi(\beta r)` (Eq. 8).

    Convex in (g, r). It dominates min(phi(0), psi(0)) times the 0-1-c loss (Lemma 14; with the natural logarithm
    the logistic has phi(0) = log 2, not 1).

    Parameters
    ----------
    phi : MarginFunction
    psi : MarginFunction, optional
        The same as phi if None, also after ``dataclasses.replace(loss, phi=...)``.
    alpha : float or tensor
    beta : float, tensor, "acc", "rej" or "mean"

    Examples
    --------
    >>> loss = AdditivePairwise(Exponential(), beta=1.0)
    >>> loss(torch.zeros(4), torch.tensor(0), cost=0.2)  # K = 3: two pairs, and c
    tensor(2.2000)
    """

    equation = "Eq. 8, Corollary 5"
    proof = PairwiseLoss.proof
    score_gradient = PairwiseLoss.score_gradient
    closed_forms: ClassVar = {("exp", "exp"): _exponential_ratio, ("log", "log"): _additive_logistic_ratio}

    kernel = "apc"

    @property
    def name(self) -> str:
        return f"apc+{self.phi.name}"

    def pair(self, difference: Tensor, r: Tensor) -> Tensor:
        return self.phi(float(self.alpha) * (difference - r))

    def order_theorem(self) -> tuple[str, Callable[[Tensor], Tensor]]:
        """Return the theorem about the order of the scores, and by how much it shifts phi at each rejector score."""
        return "Theorem 16", lambda r: self.alpha * r

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        r = scores[..., -1]
        pairs = _without_own(self.phi(self._arguments(scores, y, shift=r)), y)
        return pairs.sum(-1) + self._rejecting(r, pairs.shape[-1], cost)

    def _slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        return self.phi.slope(self._arguments(scores, y, shift=scores[..., -1])), None


@register({"phi": Logistic()}, {"phi": Exponential()})
@dataclass(frozen=True)
class MultiplicativePairwise(PairwiseLoss):
    r"""MPC: :math:`\sum_{y' \ne y} \phi(\alpha(g_y - g_{y'}))\,\psi(-\alpha r) + c\,\psi(\beta r)` (Eq. 7).

    Convex in g and in r, not in both. It dominates psi(0) min(phi(0), 1) times the 0-1-c loss (Lemma 14). With
    exponentials it is the additive loss, as long as no exponent reaches the guard of
    :class:`~demur.margins.Exponential`.

    Parameters
    ----------
    phi : MarginFunction
    psi : MarginFunction, optional
        The same as phi if None, also after ``dataclasses.replace(loss, phi=...)``.
    alpha : float or tensor
    beta : float, tensor, "acc", "rej" or "mean"

    Examples
    --------
    >>> loss = MultiplicativePairwise(Exponential(), beta=1.0)
    >>> loss(torch.zeros(4), torch.tensor(0), cost=0.2)
    tensor(2.2000)
    """

    equation = "Eq. 7, Corollary 5"
    proof = PairwiseLoss.proof
    score_gradient = PairwiseLoss.score_gradient
    closed_forms: ClassVar = {
        ("exp", "exp"): _exponential_ratio,
        ("log", "log"): _multiplicative_logistic_ratio,
    }

    kernel = "mpc"

    @property
    def name(self) -> str:
        return f"mpc+{self.phi.name}"

    def pair(self, difference: Tensor, r: Tensor) -> Tensor:
        return self.phi(float(self.alpha) * difference) * self.psi_or_phi(-float(self.alpha) * r)

    def order_theorem(self) -> tuple[str, Callable[[Tensor], Tensor]]:
        """Return the theorem about the order of the scores, and by how much it shifts phi at each rejector score."""
        return "Theorem 17", torch.zeros_like

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        r = scores[..., -1]
        pairs = _without_own(self.phi(self._arguments(scores, y)), y)
        answering = pairs.sum(-1) * self.psi_or_phi(-self.alpha * r)
        return answering + self._rejecting(r, pairs.shape[-1], cost)

    def _slopes(self, scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor | None]:
        at, arguments = -self.alpha * scores[..., -1], self._arguments(scores, y)
        of_r = _without_own(self.phi(arguments), y).sum(-1) * self.psi_or_phi.slope(at)
        return self.phi.slope(arguments) * self.psi_or_phi(at).unsqueeze(-1), of_r
