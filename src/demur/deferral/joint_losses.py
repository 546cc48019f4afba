r"""Joint losses: K + J scores, one for each class and one for each expert, trained together.

With :math:`\eta_k = P(Y = k \mid x)`, :math:`\rho_j = P(M_j = Y \mid x)` and prices :math:`c_j`, the best action has
the largest worth among :math:`\eta_1, ..., \eta_K, \rho_1 - c_1, ..., \rho_J - c_J`. A joint loss is consistent if its
least risk is reached only by scores that choose such an action. Most losses here do more: their scores determine
:math:`\eta` and :math:`\rho`, so that prices count only when they decide and can change without another training.

A missing answer of an expert (NaN) does not change the loss: its term is left out, or its score is taken out of
the softmax, which keeps the minimiser where it is as long as the choice of the rows that an expert sees depends on the
features alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, TypeVar, final

from numpy.typing import ArrayLike

from demur.array_types import AnyMapping
from demur.errors import InputError, InputTypeError
from demur.lazy_torch import F, Tensor, torch
from demur.losses import CrossEntropy
from demur.losses.loss import (
    Hyper,
    Trainable,
    at_least_single,
    check_scores,
    checked_labels,
    full_precision,
    one_versus_all,
    score_of_label,
)
from demur.losses.registry import load_object
from demur.margins import Logistic
from demur.named_classes import NamedClasses
from demur.rules import Decision

Prices: TypeAlias = Sequence[float] | Tensor | ArrayLike

_OUT = -1e30
"""The score of an action that is out of the race: its exponential is 0, and so is its gradient."""


@dataclass(frozen=True)
class JointLoss(Trainable):
    """A surrogate for deferral: K + J scores, trained with classes and with which experts were right.

    A subclass is a frozen dataclass whose fields are its hyper-parameters. It implements :meth:`forward`, and
    :meth:`inverse_link` if its scores determine the probabilities; it states its facts in the class variables; and it
    is made known with :func:`register_joint`.

    Shapes: ``scores`` is (..., K + J), ``y`` is (...), ``right`` is (..., J) with 1 where an expert's answer was right,
    0 where it was wrong, a share where several answered, NaN where there is no answer; ``prices`` is (J,).
    """

    equation: ClassVar[str]
    """Whose formula it is."""
    why: ClassVar[str]
    """One sentence: why it is calibrated for deferral, or why not."""
    trained_for_prices: ClassVar[bool] = False
    """True if the prices enter the loss: other prices then need another training."""
    has_estimates: ClassVar[bool] = True
    """True if the scores determine class probabilities and P(expert right) through :meth:`inverse_link`."""
    calibrated: ClassVar[bool] = True
    """True if the loss claims calibration for deferral."""
    smooth: ClassVar[bool] = True
    """True if the loss is continuously differentiable in the scores."""
    stages: ClassVar[bool] = False
    """True if the class scores are trained first, by cross-entropy, and the experts' scores afterwards, given them."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The registry key."""

    @abstractmethod
    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        """Return the loss of each example for targets of shape (..., 1 + J), unchecked; ``cost`` is not used.

        Targets are made by :meth:`targets`: the class, then for each expert whether it was right, less its price if the
        loss is trained for prices.
        """

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        """Return the class probabilities and P(expert right) that the scores stand for, unchecked."""
        raise InputError(
            f"{self.name} has no inverse link, so no probabilities; use decide(), or a loss such as 'decoupled'."
        )

    @final
    def targets(self, y: Tensor, right: Tensor, prices: Prices) -> Tensor:
        """Return the targets of :meth:`forward`, of shape (..., 1 + J)."""
        worth = right - _checked_prices(prices, right) if self.trained_for_prices else right
        return torch.cat([y.unsqueeze(-1).to(right.dtype), worth], -1)

    @final
    def __call__(self, scores: Tensor, y: Tensor, right: Tensor, prices: Prices) -> Tensor:
        """Return the loss of each example, without reduction.

        Parameters
        ----------
        scores : tensor of floats, shape (..., K + J)
        y : integer tensor of shape (...)
        right : tensor of floats, shape (..., J)
            1 where the expert was right, 0 where it was wrong, a share between, NaN where it was not asked.
        prices : J numbers
        """
        n_experts = self._check(scores, prices)
        y = checked_labels(scores, y, scores.shape[-1] - n_experts)
        shape = (*y.shape, n_experts)
        if not isinstance(right, Tensor) or right.shape != shape or ((right < 0) | (right > 1)).any():
            raise InputError(
                f"right must be a tensor of shape {shape} with numbers in [0, 1], 1 where the expert was right and NaN "
                "where it was not asked."
            )
        scores = at_least_single(scores)
        with full_precision(scores):
            return self.forward(scores, self.targets(y, right.to(scores.dtype), prices), None)

    def values(self, scores: Tensor, prices: Prices) -> tuple[Tensor, Tensor]:
        """Return the value of each class and each expert on one scale; the largest is the best action. Unchecked.

        With estimates these are eta and P(expert right) less the price; else the softmax of the scores.
        """
        charged = _checked_prices(prices, scores)
        n_experts = len(charged)
        if self.has_estimates:
            proba, right = self.inverse_link(scores, n_experts)
            return proba, right - charged
        return _split(torch.softmax(scores, -1), n_experts)

    @final
    def decide(self, scores: Tensor, prices: Prices) -> Decision[Tensor]:
        """Decide for each example: the class to answer, or the expert to ask; in a tie the first expert.

        Parameters
        ----------
        scores : tensor of floats, shape (..., K + J)
        prices : J numbers
            Not used if the loss is trained for prices, since its scores then include them.
        """
        self._check(scores, prices)
        with full_precision(scores):
            classes, experts = self.values(at_least_single(scores), prices)
        best, asked = classes.max(-1), experts.max(-1)
        decision = Decision.from_acceptance(best.indices, best.values - asked.values)
        costs = 1 - torch.cat([classes, experts], -1) if self.has_estimates else None
        return replace(decision, ask=torch.where(decision.reject, asked.indices, -1), costs=costs)

    def _check(self, scores: Tensor, prices: Prices) -> int:
        """Refuse scores and prices that do not fit; return the number of experts."""
        check_scores(scores)
        n_experts = len(_checked_prices(prices, scores))
        if scores.ndim == 0 or scores.shape[-1] < 2 + n_experts:
            raise InputError(
                f"{self.name} needs a score for each of at least two classes and each of {n_experts} experts, got "
                f"scores of shape {tuple(scores.shape)}."
            )
        return n_experts


L = TypeVar("L", bound=JointLoss)

_joint: NamedClasses[JointLoss] = NamedClasses("joint loss")


def register_joint(*variants: AnyMapping) -> Callable[[type[L]], type[L]]:
    """Make a joint loss known under the name of each of its variants, as :func:`demur.losses.register` does losses.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @register_joint({"weight": 3.0})
    ... @dataclass(frozen=True)
    ... class Weighty(DecoupledDeferral):
    ...     name = property(lambda self: f"weighty-{self.weight:g}")
    >>> get_joint("weighty-3")
    Weighty(weight=3.0)
    >>> del _joint["weighty-3"]
    """
    return _joint.variants(*variants)


def available_joint() -> list[str]:
    """Return the names of all registered joint losses.

    Examples
    --------
    >>> available_joint()
    ['asm', 'decoupled', 'ms', 'ova', 'rl2d', 'rl2d-0.7', 'rs', 'two-stage']
    """
    return list(_joint)


def get_joint(name: str, **fields: Any) -> JointLoss:
    """Return the registered joint loss of that name, with some hyper-parameters replaced if given.

    Examples
    --------
    >>> get_joint("rl2d", q=0.5).name
    'rl2d-0.5'
    >>> get_joint("mss")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown joint loss 'mss'. Did you mean 'ms'? Available: asm, decoupled, ms, ...
    """
    return _joint.make(name, **fields)


def resolve_joint(loss: str | JointLoss | type[JointLoss]) -> JointLoss:
    """Return the joint loss that a name, "file.py:Class", a class or an object means; such a file is run.

    Examples
    --------
    >>> resolve_joint("ms")
    SoftmaxDeferral()
    """
    subject: Any = loss
    if isinstance(loss, str):
        subject = load_object(loss) if ":" in loss else get_joint(loss)
    if isinstance(subject, type) and issubclass(subject, JointLoss):
        subject = subject()
    if not isinstance(subject, JointLoss):
        raise InputTypeError(f"a joint loss is one of {', '.join(_joint)}, or a JointLoss, got {subject!r}.")
    return subject


@register_joint()
@dataclass(frozen=True)
class SoftmaxDeferral(JointLoss):
    r"""Cross-entropy over K + J scores: :math:`-\log p_y - \sum_j 1[M_j = y] \log p_{K+j}`, p their softmax.

    Mozannar & Sontag 2020 for one expert, Verma et al. 2023 for several. By Gibbs' inequality the minimiser's softmax
    is :math:`(\eta, \rho) / (1 + \sum_j \rho_j)`, and nothing else, so
    :math:`\rho_j = p_{K+j} / \sum_{k \le K} p_k`. Scores of a network may give more than 1, which is cut there.

    Examples
    --------
    >>> right = torch.tensor([1.0, 0.0])
    >>> SoftmaxDeferral()(torch.zeros(4), torch.tensor(0), right, prices=[0.0, 0.0])  # 2 log 4
    tensor(2.7726)
    """

    name = "ms"
    equation = "Mozannar & Sontag 2020; Verma et al. 2023"
    why = "strictly proper over K + J actions: softmax of the minimiser is proportional to (eta, rho)"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, right, asked = _parts(scores, y)
        own = torch.zeros_like(g).scatter(-1, label.unsqueeze(-1), 1.0)
        return _cross_entropy(g, d, own, right, asked)

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        g, d = _split(scores, n_experts)
        ahead = d - torch.logsumexp(g, -1, keepdim=True)
        return torch.softmax(g, -1), ahead.clamp(max=0.0).exp()


@register_joint()
@dataclass(frozen=True)
class OneVsAllDeferral(JointLoss):
    r"""One-versus-all: a logistic loss :math:`\phi` for each score.

    :math:`\phi(g_y) + \sum_{k \ne y} \phi(-g_k) + \sum_j \phi(\pm d_j)`, Verma & Nalisnick 2022. The sign of
    :math:`d_j` is that of "expert j was right". Every score is a binary problem of its own, whose sigmoid is
    :math:`\eta_k` or :math:`\rho_j`. The class probabilities need not sum to 1; the rule uses them as they are.

    Examples
    --------
    >>> OneVsAllDeferral()(torch.zeros(3), torch.tensor(0), torch.tensor([1.0]), prices=[0.0])  # 3 log 2
    tensor(2.0794)
    """

    name = "ova"
    equation = "Verma & Nalisnick 2022"
    why = "each score's sigmoid is the value of its action: eta_k or rho_j"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, right, asked = _parts(scores, y)
        return one_versus_all(Logistic(), g, label) + _logistic(d, right, asked)

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        return _split(torch.sigmoid(scores), n_experts)


@register_joint()
@dataclass(frozen=True)
class AsymmetricDeferral(JointLoss):
    r"""Asymmetric softmax: cross-entropy of the class scores, and for each expert a binary part of its own.

    Cao et al. 2023, here for any number of experts. With p the softmax of the class scores and
    :math:`s_j = e^{d_j} / (e^{d_j} + \sum_k e^{g_k} - \max_k e^{g_k})` the loss is
    :math:`-\log p_y - \sum_j (1[M_j = y] \log s_j + 1[M_j \ne y] \log(1 - s_j))`. For every p the binary parts are
    least at :math:`s_j = \rho_j`, so p = eta, and :math:`d_j` is above the largest class score iff
    :math:`\rho_j > \max_k \eta_k`. There is a kink where the two largest class scores are equal.

    Examples
    --------
    >>> AsymmetricDeferral()(torch.zeros(3), torch.tensor(0), torch.tensor([1.0]), prices=[0.0])  # 2 log 2
    tensor(1.3863)
    """

    name = "asm"
    smooth = False
    equation = "Cao et al. 2023"
    why = "the class part is proper, and so is each expert's: its sigmoid is rho_j whatever the class scores are"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, right, asked = _parts(scores, y)
        return CrossEntropy().forward(g, label, None) + _logistic(d - _all_but_best(g), right, asked)

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        g, d = _split(scores, n_experts)
        return torch.softmax(g, -1), torch.sigmoid(d - _all_but_best(g))


@register_joint({"q": 0.0}, {"q": 0.7}, {"q": 1.0})
@dataclass(frozen=True)
class RealizableDeferral(JointLoss):
    r"""The realizable family: :math:`\Psi_q(p_y + \sum_{j: M_j = y} p_{K+j})`, p the softmax of all scores.

    RL2D of Mao, Mohri & Zhong 2024, with :math:`\Psi_q(u) = (1 - u^q)/q`. At q = 0, where :math:`\Psi_0(u) = -\log u`,
    it is the realizable surrogate RS of Mozannar et al. 2023. Where a pair of a classifier and a rejector without error
    is in reach, every q finds it.

    With prices the worth of asking is :math:`u_j = 1[M_j = y] - c_j`, and the loss is the layered sum
    :math:`\Psi(p_y) - \int_0^1 (\Psi(p_y) - \Psi(p_y + \sum_{u_j \ge t} p_{K+j})) dt
    + \int_{-\infty}^0 (\Psi(p_y) - \Psi(p_y + \sum_{u_j \le t} p_{K+j})) dt`, which for one expert is their
    :math:`(1 - u) \Psi(p_y) + u \Psi(p_y + p_{K+1})`. At q = 1 it is :math:`1 - p_y - \sum_j u_j p_{K+j}` for any
    prices: the risk is linear in p, and least with all probability on the best action.

    Below q = 1 it is not consistent for experts who err at random: with two equally likely classes and an expert who is
    right with probability :math:`\rho` in both, RS has its least risk at :math:`p_3 = 2\rho - 1` and
    :math:`p_1 = p_2 = 1 - \rho`, and so asks only for :math:`\rho \ge 2/3` instead of 1/2. (The authors' proof for
    every q is for an expert whose answer is a function of x.)

    Parameters
    ----------
    q : float in [0, 1]

    Examples
    --------
    >>> RealizableDeferral(q=0.0)(torch.zeros(4), torch.tensor(0), torch.tensor([1.0]), prices=[0.0])  # log 2
    tensor(0.6931)
    >>> RealizableDeferral()(torch.zeros(4), torch.tensor(0), torch.tensor([1.0]), prices=[0.2])  # 1 - 1/4 - 0.8/4
    tensor(0.5500)
    """

    q: float = 1.0
    ranges: ClassVar = {"q": "[0, 1]"}
    equation = "Mao, Mohri & Zhong 2024; Mozannar et al. 2023 at q = 0"
    why = "at q = 1 the risk is linear in the softmax; below, an expert who errs at random is asked too seldom"
    trained_for_prices = True
    has_estimates = False

    @property
    def name(self) -> str:
        return {0.0: "rs", 1.0: "rl2d"}.get(self.q, f"rl2d-{self.q:g}")

    @property
    def calibrated(self) -> bool:  # type: ignore[override] # it depends on q
        """Whether it is calibrated: at q = 1 alone."""
        return self.q == 1

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, worth, asked = _parts(scores, y)
        d = torch.where(asked, d, _OUT)
        total = torch.logsumexp(torch.cat([g, d], -1), -1)
        own = score_of_label(g, label)
        saved = self._saved(own, d, worth.clamp(min=0.0), total) - self._saved(own, d, (-worth).clamp(min=0.0), total)
        return self._psi(total - own) - saved

    def _saved(self, own: Tensor, d: Tensor, amount: Tensor, total: Tensor) -> Tensor:
        """Return the sum over layers of (Psi(p_y) - Psi(p_y + their experts' p)), each as thick as the layer."""
        sorted_amount = amount.sort(dim=-1, descending=True)
        thickness = -torch.diff(sorted_amount.values, dim=-1, append=torch.zeros_like(amount[..., :1]))
        pooled = torch.logcumsumexp(d.gather(-1, sorted_amount.indices), -1)
        surprise = total.unsqueeze(-1) - torch.logaddexp(own.unsqueeze(-1), pooled)
        return (thickness * (self._psi(total - own).unsqueeze(-1) - self._psi(surprise))).sum(-1)

    def _psi(self, surprise: Tensor) -> Tensor:
        """Return Psi as a function of -log u."""
        return surprise if self.q == 0 else -torch.expm1(-self.q * surprise) / self.q


@register_joint()
@dataclass(frozen=True)
class DecoupledDeferral(JointLoss):
    r"""Softmax and sigmoids: :math:`-\log p_y + \beta \sum_j \phi(\pm d_j)`, p the softmax of the class scores alone.

    Montreuil et al. 2026: the class probabilities by cross-entropy, "expert j is right" by a logistic loss each, and
    the two are compared when deciding: :math:`\max_k p_k` with :math:`\sigma(d_j) - c_j`. No score's gradient depends
    on another's, so further experts do not reduce the weight of the classes or of other experts.

    Parameters
    ----------
    weight : float, positive
        Their beta, the weight of each expert.

    Examples
    --------
    >>> DecoupledDeferral()(torch.zeros(3), torch.tensor(0), torch.tensor([1.0]), prices=[0.0])  # 2 log 2
    tensor(1.3863)
    """

    weight: float = 1.0
    ranges: ClassVar = {"weight": "(0, inf)"}
    name = "decoupled"
    equation = "Montreuil et al. 2026"
    why = "both parts are strictly proper: softmax is eta, each sigmoid is rho_j"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, right, asked = _parts(scores, y)
        return CrossEntropy().forward(g, label, None) + self.weight * _logistic(d, right, asked)

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        g, d = _split(scores, n_experts)
        return torch.softmax(g, -1), torch.sigmoid(d)


@register_joint()
@dataclass(frozen=True)
class TwoStageDeferral(JointLoss):
    r"""Two stages: a classifier h by cross-entropy, then who is right, h or one of the experts.

    Mao et al. 2023, who give the classifier and train only the second stage,
    :math:`-1[h = y] \log s_0 - \sum_j 1[M_j = y] \log s_j` with s the softmax of :math:`(0, d_1, ..., d_J)`.
    :class:`~demur.deferral.DeferClassifier` trains both, the second on out-of-fold class scores: on its own training
    rows, a classifier is right more often than on new ones. This loss returns the sum of both stages, which must not
    be minimised as a whole: a wrong class makes the second stage cheaper. The softmax s of the second stage's minimiser
    is proportional to :math:`(\eta_h, \rho)`, so :math:`\rho_j = \max_k p_k\, e^{d_j}`, cut at 1.

    Examples
    --------
    >>> loss = TwoStageDeferral()
    >>> loss(torch.tensor([1.0, 0.0, 0.0]), torch.tensor(0), torch.tensor([0.0]), prices=[0.0])  # log(1 + 1/e) + log 2
    tensor(1.0064)
    """

    name = "two-stage"
    smooth = False
    stages = True
    equation = "Mao et al. 2023"
    why = "cross-entropy gives h = argmax eta, and the second stage is proper over (eta_h, rho)"

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper | None = None) -> Tensor:
        g, d, label, right, asked = _parts(scores, y)
        model_right = (g.argmax(-1) == label).to(scores.dtype).unsqueeze(-1)
        second = _cross_entropy(torch.zeros_like(model_right), d, model_right, right, asked)
        return CrossEntropy().forward(g, label, None) + second

    def inverse_link(self, scores: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
        g, d = _split(scores, n_experts)
        log_proba = torch.log_softmax(g, -1)
        return log_proba.exp(), (d + log_proba.amax(-1, keepdim=True)).clamp(max=0.0).exp()


def _parts(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return class scores, expert scores, labels, the value of asking (0 for a gap), and the mask of experts asked."""
    worth = target[..., 1:]
    asked = ~worth.isnan()
    g, d = _split(scores, worth.shape[-1])
    return g, d, target[..., 0].long(), torch.where(asked, worth, 0.0).to(scores.dtype), asked


def _split(values: Tensor, n_experts: int) -> tuple[Tensor, Tensor]:
    """Return the values of the classes, and those of the experts."""
    return values[..., :-n_experts], values[..., -n_experts:]


def _cross_entropy(g: Tensor, d: Tensor, own: Tensor, right: Tensor, asked: Tensor) -> Tensor:
    """Return minus the sum of weight times log softmax, over own scores and those of the experts who were asked."""
    total = torch.logsumexp(torch.cat([g, torch.where(asked, d, _OUT)], -1), -1, keepdim=True)
    return (own * (total - g)).sum(-1) + (right * (total - d)).sum(-1)


def _logistic(d: Tensor, right: Tensor, asked: Tensor) -> Tensor:
    """Return the sum over the experts who were asked of the logistic loss of "the expert was right"."""
    return torch.where(asked, F.softplus(d) - right * d, 0.0).sum(-1)


def _all_but_best(g: Tensor) -> Tensor:
    """Return log of the sum of exponentials of all but the largest score, with an axis for the experts."""
    others = g.scatter(-1, g.argmax(-1, keepdim=True), _OUT)
    return torch.logsumexp(others, -1, keepdim=True)


def _checked_prices(prices: Prices, like: Tensor) -> Tensor:
    values = torch.as_tensor(prices, dtype=like.dtype, device=like.device)
    if values.ndim != 1 or not len(values) or not bool(((values >= 0) & values.isfinite()).all()):
        raise InputError(f"prices must be one number of at least 0 for each expert, got {prices!r}.")
    return values
