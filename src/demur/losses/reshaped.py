r"""Cross-entropy reshaped for training: label smoothing, focal, generalised cross-entropy; and the Brier score.

Except for the Brier score, their softmax does not estimate the class probabilities, and Chow's rule on it declines the
wrong rows. Each has its own inverse link, derived from its pointwise minimiser. With this link it is calibrated, and
one training serves every cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from demur.lazy_torch import Tensor, torch
from demur.losses.confidence import ConfidenceLoss
from demur.losses.loss import Hyper, Proof, score_of_label
from demur.losses.registry import register


def _on_simplex(part: Callable[[Tensor], Tensor], cost: float) -> Proof:
    """Prove a loss l(p_y), l strictly convex and decreasing, from l as a function of the surprise -log p.

    The risk is a sum of eta_k l(p_k), p the softmax. Its minimum is unique, and eta_k l'(p_k) is the same for all k
    there. So eta is proportional to -1 / l'(p), which is the inverse link and increases with p.
    """

    def acceptance(scores: Tensor) -> Tensor:
        with torch.enable_grad():
            surprise = (-torch.log_softmax(scores, -1)).requires_grad_()
            (slope,) = torch.autograd.grad(part(surprise).sum(), surprise)
        weights = torch.exp(-surprise.detach()) / slope
        return weights.amax(-1) / weights.sum(-1) - (1 - cost)

    return Proof(
        "convexity on the simplex",
        f"At every eta with max eta other than {1 - cost:g}, every minimiser decides as Chow's rule: the risk has one "
        "minimum on the simplex, and the inverse link gives eta there.",
        lambda scores, y: part(-score_of_label(torch.log_softmax(scores, -1), y)),
        acceptance,
    )


@register()
@dataclass(frozen=True)
class LabelSmoothing(ConfidenceLoss):
    r"""Cross-entropy against :math:`(1-\varepsilon)\,e_y + \varepsilon / K`.

    The minimiser has softmax :math:`p = (1-\varepsilon)\,\eta + \varepsilon/K`, so the inverse link is
    :math:`(p - \varepsilon/K) / (1-\varepsilon)`, cut off at 0 and made to sum to 1 where p is not of that form.

    Parameters
    ----------
    epsilon : float in [0, 1)

    Examples
    --------
    >>> loss = LabelSmoothing(0.25)
    >>> loss(torch.tensor([1.0, 0.0]), torch.tensor(0))  # log(1 + 1/e) + 1/8
    tensor(0.4383)
    >>> loss.proba(torch.tensor([0.625, 0.375]).log())  # (0.625 - 0.125) / 0.75
    tensor([0.6667, 0.3333])
    """

    epsilon: float = 0.1
    ranges: ClassVar = {"epsilon": "[0, 1)"}
    name = "ls"
    equation = "Szegedy et al. 2016, with its inverse link"
    why = "the minimiser's softmax is eta mixed with the uniform distribution, which the link undoes"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        target = (1 - self.epsilon) * score_of_label(scores, y) + self.epsilon * scores.mean(-1)
        return torch.logsumexp(scores, -1) - target

    def inverse_link(self, scores: Tensor) -> Tensor:
        p = torch.softmax(scores, -1)
        eta = ((p - self.epsilon / scores.shape[-1]) / (1 - self.epsilon)).clamp(min=0)
        return eta / eta.sum(-1, keepdim=True)


@register()
@dataclass(frozen=True)
class Focal(ConfidenceLoss):
    r"""Focal loss: :math:`-(1-p_y)^\gamma \log p_y`, p the softmax (Lin et al. 2017).

    On the simplex :math:`\sum_k \eta_k\,\ell(p_k)` is least where :math:`\eta_k\,\ell'(p_k)` is the same for all k, so
    :math:`\eta_k \propto -1/\ell'(p_k) = p_k / ((1-p_k)^\gamma - \gamma (1-p_k)^{\gamma-1} p_k \log p_k)`: the inverse
    link (Charoenphakdee et al. 2021b). The softmax itself is less certain than eta. The link takes 1 - p for at least
    1e-26.

    Parameters
    ----------
    gamma : float, at least 0

    Examples
    --------
    >>> loss = Focal(2.0)
    >>> loss(torch.zeros(2), torch.tensor(0))  # log 2 / 4
    tensor(0.1733)
    >>> loss.proba(torch.tensor([0.7, 0.2, 0.1]).log())
    tensor([0.9197, 0.0546, 0.0257])
    """

    gamma: float = 2.0
    ranges: ClassVar = {"gamma": "[0, inf)"}
    name = "focal"
    equation = "Lin et al. 2017, with the inverse link of Charoenphakdee et al. 2021b"
    why = "strictly order-preserving: its own inverse link, not the softmax, gives eta at the minimiser"
    least_rest: ClassVar[float] = 1e-26

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        total = torch.logsumexp(scores, -1)
        rest = torch.logsumexp(scores.scatter(-1, y.unsqueeze(-1), -torch.inf), -1)
        return torch.exp(self.gamma * (rest - total)) * (total - score_of_label(scores, y))

    def inverse_link(self, scores: Tensor) -> Tensor:
        shifted = scores - scores.amax(-1, keepdim=True)
        e = shifted.exp()
        total = e.sum(-1, keepdim=True)
        p = e / total
        # Of a class near certainty the rest is summed, because 1 - p would round to 0.
        below = torch.where(shifted < 0, e, torch.zeros_like(e)).sum(-1, keepdim=True)
        rest = (torch.where(p > 0.5, below, total - e) / total).clamp(min=self.least_rest)
        surprise = total.log() - shifted
        ratio = torch.where(rest < 1e-4, 1 + rest / 2, surprise / rest)  # -log p / (1 - p)
        return torch.softmax(-surprise - self.gamma * rest.log() - torch.log1p(self.gamma * p * ratio), -1)

    def proof(self, n_classes: int, cost: float) -> Proof:
        # l is convex for every gamma >= 0, because -log p <= (1 - p) / p.
        return _on_simplex(lambda surprise: (-torch.expm1(-surprise)) ** self.gamma * surprise, cost)


@register()
@dataclass(frozen=True)
class GeneralisedCrossEntropy(ConfidenceLoss):
    r"""Generalised cross-entropy: :math:`(1 - p_y^q)/q`, p the softmax (Zhang & Sabuncu 2018).

    The minimiser has :math:`p_k \propto \eta_k^{1/(1-q)}`, more certain than eta, so the inverse link is
    :math:`\mathrm{softmax}((1-q)\,g)`.

    Parameters
    ----------
    q : float in (0, 1)
        The limit 0 is cross-entropy; at 1 there is no link.

    Examples
    --------
    >>> loss = GeneralisedCrossEntropy(0.5)
    >>> loss(torch.zeros(4), torch.tensor(0))  # (1 - 1/2) / 0.5
    tensor(1.)
    >>> loss.proba(torch.tensor([0.64, 0.32, 0.04]).log())  # 0.8 : 0.5657 : 0.2
    tensor([0.5110, 0.3613, 0.1277])
    """

    q: float = 0.7
    ranges: ClassVar = {"q": "(0, 1)"}
    name = "gce"
    equation = "Zhang & Sabuncu 2018, with its inverse link"
    why = "the minimiser's softmax is eta^(1/(1-q)), normalised, which the link undoes"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        return -torch.expm1(self.q * (score_of_label(scores, y) - torch.logsumexp(scores, -1))) / self.q

    def inverse_link(self, scores: Tensor) -> Tensor:
        return torch.softmax((1 - self.q) * scores, -1)

    def proof(self, n_classes: int, cost: float) -> Proof:
        return _on_simplex(lambda surprise: -torch.expm1(-self.q * surprise) / self.q, cost)


@register()
@dataclass(frozen=True)
class Brier(ConfidenceLoss):
    r"""Brier score: :math:`\sum_k (p_k - [k = y])^2`, p the softmax (Brier 1950).

    The risk is :math:`\| p - \eta \|^2` plus a constant: p = eta at the minimiser. It is not convex in the
    scores.

    Examples
    --------
    >>> Brier()(torch.zeros(4), torch.tensor(2))  # (3/4)^2 + 3 (1/4)^2
    tensor(0.7500)
    """

    name = "brier"
    equation = "Brier 1950"
    why = "strictly proper: softmax of the minimiser is eta, so Chow's rule applies"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        p = torch.softmax(scores, -1)
        return 1 - 2 * score_of_label(p, y) + p.square().sum(-1)
