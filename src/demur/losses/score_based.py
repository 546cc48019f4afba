r"""K + 1 scores: the last one is for declining; the largest score decides.

Each loss here is a surrogate from learning to defer or to abstain, at a constant price c: an expert who is right with
probability 1 - c. With :math:`w = (\eta_1, ..., \eta_K, 1 - c)` the best action is the largest weight, which is Chow's
rule. Each of the first four losses makes the scores follow the order of w, by an argument given in its docstring.

The last two are heuristics without a proof of calibration, used as baselines. Two other such methods cannot be losses
of this package, because neither has a pointwise risk. SelectiveNet (Geifman & El-Yaniv 2019) divides by the coverage of
the batch, so a single example has no loss. Self-adaptive training (Huang et al. 2020) replaces the label of a training
row by an average of the network's earlier answers to that row. At a price c instead of a coverage, SelectiveNet's
objective becomes a loss times the acceptance plus c times the rest; with the mean absolute error as that loss, it is
:class:`~demur.losses.PredictorRejector`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from demur.lazy_torch import Tensor, torch
from demur.losses.loss import (
    CLEAR,
    Family,
    Hyper,
    Loss,
    Proof,
    check_inverse_link,
    one_versus_all,
    reject_score_rule,
    score_of_label,
)
from demur.losses.registry import register
from demur.margins import Exponential, Logistic, MarginFunction
from demur.rules import Decision


def _above_last(scores: Tensor) -> Tensor:
    """Return how far the largest class score is above the score of rejecting."""
    return scores[:, :-1].amax(-1) - scores[:, -1]


@dataclass(frozen=True)
class PlusOneLoss(Loss):
    """Base class of losses with K + 1 scores: answer the largest class score, unless the last one is as large."""

    family: ClassVar[Family] = "score-based"
    trained_for_cost = True

    def n_outputs(self, n_classes: int) -> int:
        return n_classes + 1

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        return reject_score_rule(scores)


@register()
@dataclass(frozen=True)
class MozannarSontag(PlusOneLoss):
    r"""Cross-entropy over K + 1 scores: :math:`-(c + \alpha (1-c)) \log p_y - (1-c) \log p_{K+1}`, p their softmax.

    Mozannar & Sontag 2020, with the expert's correctness replaced by 1 - c. With alpha = 1 the risk is 2 - c times the
    cross-entropy against w / (2 - c), so by Gibbs' inequality the unique minimiser is p = w / (2 - c): calibrated. An
    alpha below 1, with which the classifier may ignore rows on which the expert is right, moves the threshold on max
    eta from 1 - c to (1 - c) / (c + alpha (1 - c)): such a loss declines too often and is refuted.

    Parameters
    ----------
    alpha : float or tensor, positive

    Examples
    --------
    >>> MozannarSontag()(torch.zeros(4), torch.tensor(0), cost=0.25)  # 1.75 log 4
    tensor(2.4260)
    """

    alpha: Hyper = 1.0
    name = "ms"
    equation = "Mozannar & Sontag 2020, at a constant cost"
    ranges: ClassVar = {"alpha": "(0, inf)"}
    why = "strictly proper over K + 1 actions: softmax of the minimiser is (eta, 1 - c) / (2 - c)"

    def calibrated_for(self, n_classes: int) -> bool:
        return bool(torch.all(torch.as_tensor(self.alpha) == 1))

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        total = torch.logsumexp(scores, -1)
        answering = (cost + self.alpha * (1 - cost)) * (total - score_of_label(scores, y))
        return answering + (1 - cost) * (total - scores[..., -1])


@register({"mu": 0.0}, {"mu": 1.7}, {"mu": 2.0})
@dataclass(frozen=True)
class MaoScores(PlusOneLoss):
    r"""The cross-entropy family over K + 1 scores: :math:`\ell_\mu(p_y) + (1-c)\,\ell_\mu(p_{K+1})`, p their softmax.

    Mao et al. 2024 (score-based abstention), :math:`\ell_\mu(t) = (t^{\mu-1} - 1)/(1 - \mu)`, :math:`-\log t` at mu =
    1. The sum of exponentials is mu = 0 ("mao+exp"), cross-entropy mu = 1 (the same as "ms"), the mean absolute error
    mu = 2 ("mao+mae"). Between 1 and 2 it is the generalised cross-entropy of Cao et al. 2022, with their q = mu - 1
    ("cao" is q = 0.7).

    For mu < 2 the risk is least where :math:`p_k \propto w_k^{1/(2-\mu)}` (set the derivative of :math:`\sum_k w_k
    \ell_\mu(p_k)` on the simplex to a constant): an increasing function of w, so that the largest probability is the
    best action. At mu = 2 the risk is linear in p, so it is least with all probability on the best action: this is also
    calibrated, but the scores of the minimiser are infinite.

    For mu < 1 the exponent :math:`-(1-\mu) \log p` goes on beyond 30 as its tangent, so that nothing overflows.

    Parameters
    ----------
    mu : float in [0, 2]

    Examples
    --------
    >>> MaoScores(mu=2.0)(torch.zeros(4), torch.tensor(0), cost=0.25)  # 1.75 (1 - 1/4)
    tensor(1.3125)
    >>> MaoScores(mu=1.5)(torch.zeros(4), torch.tensor(0), cost=0.25)  # 1.75 (1 - 1/2) / 0.5
    tensor(1.7500)
    >>> MaoScores(mu=0.0)(torch.zeros(4), torch.tensor(0), cost=0.25)  # 1.75 (4 - 1)
    tensor(5.2500)
    """

    mu: float = 2.0
    ranges: ClassVar = {"mu": "[0, 2]"}
    equation = "Mao, Mohri & Zhong 2024; Cao et al. 2022"
    why = "softmax of the minimiser follows the order of (eta, 1 - c), for every mu in [0, 2]"

    @property
    def name(self) -> str:
        named = {0.0: "mao+exp", 1.0: "mao+log", 1.7: "cao", 2.0: "mao+mae"}
        return named.get(self.mu, f"mao+{self.mu:g}")

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        total = torch.logsumexp(scores, -1)
        answering = _of_surprise(total - score_of_label(scores, y), self.mu)
        return answering + (1 - cost) * _of_surprise(total - scores[..., -1], self.mu)


def _of_surprise(surprise: Tensor, mu: float) -> Tensor:
    """Return l_mu(t) as a function of -log t."""
    if mu == 1:
        return surprise
    if mu < 1:
        return (Exponential()((mu - 1) * surprise) - 1) / (1 - mu)
    return -torch.expm1((1 - mu) * surprise) / (mu - 1)


@register()
@dataclass(frozen=True)
class AsymmetricSoftmax(PlusOneLoss):
    r"""Asymmetric softmax: cross-entropy of the class scores, and a separate binary part for declining.

    Cao et al. 2023. With p the softmax of the K class scores and
    :math:`s = e^{g_{K+1}} / (\sum_{k \le K+1} e^{g_k} - \max_{k \le K} e^{g_k})` the loss is
    :math:`-\log p_y - (1-c) \log s - c \log(1-s)`. The binary part does not influence p, since for every p its minimum
    is at s = 1 - c. So p = eta and :math:`e^{g_{K+1}} : e^{\max g} = (1-c)(1 - \max\eta) : c \max\eta`: the last score
    is the largest iff max eta <= 1 - c. There is a kink where the two largest class scores are equal.

    Examples
    --------
    >>> AsymmetricSoftmax()(torch.zeros(4), torch.tensor(0), cost=0.25)  # log 3 - 3/4 log(1/3) - 1/4 log(2/3)
    tensor(2.0239)
    """

    smooth = False
    name = "asm"
    equation = "Cao et al. 2023"
    why = "the class part is proper, and the reject score is above the best class iff max eta <= 1 - c"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        g, d = scores[..., :-1], scores[..., -1]
        others = g.scatter(-1, g.argmax(-1, keepdim=True), -torch.inf)
        ahead = d - torch.logsumexp(others, -1)  # the log odds of s
        answering = torch.logsumexp(g, -1) - score_of_label(g, y)
        phi = Logistic()
        return answering + (1 - cost) * phi(ahead) + cost * phi(-ahead)

    def proof(self, n_classes: int, cost: float) -> Proof:
        def value(scores: Tensor, y: Tensor) -> Tensor:
            log_p, d = torch.log_softmax(scores[:, :-1], -1), scores[:, -1]
            ahead = d - scores[:, :-1].sort(-1).values[:, :-1].logsumexp(-1)
            return torch.log1p(torch.exp(-ahead)) + cost * ahead - score_of_label(log_p, y)

        return Proof(
            "Gibbs' inequality, twice",
            f"At every eta with max eta other than {1 - cost:g}, every minimiser has the softmax eta over the classes "
            "and s = 1 - c, so that the last score is the largest iff Chow's rule rejects.",
            value,
            _above_last,
        )


@register()
@dataclass(frozen=True)
class VermaNalisnick(PlusOneLoss):
    r"""One-versus-all: :math:`\phi(g_y) + \sum_{k \ne y} \phi(-g_k) + (1-c)\,\phi(g_{K+1}) + c\,\phi(-g_{K+1})`.

    Verma & Nalisnick 2022, with the expert's correctness replaced by 1 - c. Each score is a binary problem: its link
    gives eta_k, and 1 - c for the last one, so that the largest score is the best action.

    Parameters
    ----------
    phi : MarginFunction
        With an inverse link.

    Examples
    --------
    >>> VermaNalisnick()(torch.zeros(4), torch.tensor(0), cost=0.2)  # 4 log 2
    tensor(2.7726)
    """

    phi: MarginFunction = Logistic()
    equation = "Verma & Nalisnick 2022, at a constant cost"
    why = "each score's link is the value of its action: eta_k, or 1 - c for declining"

    def __post_init__(self) -> None:
        check_inverse_link(self, self.phi)

    @property
    def name(self) -> str:
        return "vn" if self.phi == Logistic() else f"vn+{self.phi.name}"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        g, d = scores[..., :-1], scores[..., -1]
        return one_versus_all(self.phi, g, y) + (1 - cost) * self.phi(d) + cost * self.phi(-d)


@register()
@dataclass(frozen=True)
class DeepGamblers(PlusOneLoss):
    r"""Deep Gamblers: :math:`-\log(p_y + p_{K+1} / o)`, p the softmax of K + 1 scores (Liu et al. 2019).

    A gambler bets the share p_k of the capital on class k and keeps the share p_{K+1}; o is the payoff, here 1 / (1 -
    c). Accept iff p_{K+1} < tau, with tau chosen by validation, as there. By Kelly's argument the minimiser keeps
    everything iff max eta <= 1 - c; just above, at max eta = 1 - c + t, it bets only t / c. So every tau < 1 declines
    up to max eta = 1 - c + c (1 - tau), and tau = 1, which would be right, accepts everything, because a softmax never
    keeps all.

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
    ranges: ClassVar = {"tau": "(0, 1)"}
    tau_candidates = (0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
    why = "bets little just above max eta = 1 - c, so that every threshold tau < 1 declines too much"

    def calibrated_for(self, n_classes: int) -> bool:
        return False

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
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

    Thulasidasan et al. 2019. Their alpha rises during training by a schedule that does not depend on the cost; here it
    is a constant, since a loss does not depend on the epoch. With u = 1 - b and H the entropy of eta the risk is at
    best u H - alpha log u, least at u = min(1, alpha / H). The last score is the largest iff :math:`1 - u \ge u
    \max\eta`, that is iff H >= alpha (1 + max eta). With two classes H falls as max eta grows, so the default
    :math:`\alpha = H(c, 1-c) / (2-c)` is calibrated. With more, H depends on the spread below the maximum, and no alpha
    is.

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
    ranges: ClassVar = {"alpha": "(0, inf)"}
    why = "declines by the entropy of eta, which settles max eta at K = 2 only"

    def calibrated_for(self, n_classes: int) -> bool:
        return n_classes == 2 and self.alpha is None

    def alpha_value(self, cost: Hyper) -> Hyper:
        """Return alpha, from the cost where it is not given."""
        if self.alpha is not None:
            return self.alpha
        c = torch.as_tensor(cost, dtype=None if isinstance(cost, Tensor) else torch.float64)
        alpha = -(torch.xlogy(c, c) + torch.xlogy(1 - c, 1 - c)) / (2 - c)
        return alpha if isinstance(cost, Tensor) else float(alpha)

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        g = scores[..., :-1]
        classes, total = torch.logsumexp(g, -1), torch.logsumexp(scores, -1)
        answering = torch.exp(classes - total) * (classes - score_of_label(g, y))
        return answering + self.alpha_value(cost) * (total - classes)

    def proof(self, n_classes: int, cost: float) -> Proof | None:
        if not self.calibrated_for(n_classes):
            return None
        alpha = float(self.alpha_value(cost))

        def value(scores: Tensor, y: Tensor) -> Tensor:
            p = torch.softmax(scores, -1)
            answering = p[:, :-1].sum(-1)
            return answering * (answering / score_of_label(p, y)).log() - alpha * answering.log()

        return Proof(
            "the entropy of two classes",
            f"For two classes and every eta with |max eta - {1 - cost:g}| >= {CLEAR:g}, every minimiser decides as "
            "Chow's rule: it declines iff H(eta) >= alpha (1 + max eta), and the difference falls as max eta grows.",
            value,
            _above_last,
        )
