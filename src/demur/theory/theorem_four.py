"""Theorem 4 and Corollary 5: the slope of the risk in the rejector's direction, at r = 0.

A loss with a rejector r is calibrated for rejection iff that slope is never positive where Chow's rule answers
(else r is pushed below 0: a false reject) and never negative where it rejects (else a false accept). For the pairwise
losses this asks for two values of beta at once (Eqs. 6 and 9).

Also whether a loss keeps the order of the classes (Theorems 16 and 17, Corollary 18). A loss is order-preserving if its
pointwise risk has a minimiser that gives a less likely class no larger score, strictly if a smaller one. It then
answers the likeliest class.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from demur.array_types import Floats
from demur.errors import InputError, InputTypeError
from demur.losses import Loss, resolve
from demur.losses.pairwise import NoClosedFormError, PairwiseLoss
from demur.margins import MarginFunction, own_fact
from demur.theory.bayes import as_target, require_cost, require_n_classes
from demur.theory.descent import Deadline
from demur.theory.examined_loss import ExaminedLoss, LossLike, as_loss, examine
from demur.theory.pointwise_risk import RiskProblem, find_minima
from demur.theory.simplex import Region, extreme_over, over_all_classes, random_eta, structured_eta, tops_around
from demur.workers import single_threaded_kernels


@dataclass(frozen=True)
class TheoremFour:
    """Extremes of the slope h(eta) = dW/dr at r = 0.

    Parameters
    ----------
    sup_answer : float
        The largest h over max eta >= 1 - c; positive means false rejects.
    inf_reject : float
        The least h over max eta <= 1 - c; negative means false accepts.
    sup_boundary, inf_boundary : float
        The largest and least h over max eta = 1 - c, which must both be zero by Corollary 5.
    worst_answer, worst_reject : array of shape (n_classes,)
        The eta at which the first two are reached.
    least_curvature : float
        The least second derivative in r at r = 0, which the theorem assumes positive.
    tolerance : float
        Absolute values up to this count as zero.
    """

    sup_answer: float
    inf_reject: float
    sup_boundary: float
    inf_boundary: float
    worst_answer: Floats
    worst_reject: Floats
    least_curvature: float
    tolerance: float

    @property
    def fails(self) -> frozenset[str]:
        """The sides that fail, out of "false_reject" and "false_accept" (the paper's remark after Theorem 4)."""
        sides = {"false_reject": self.sup_answer > self.tolerance, "false_accept": self.inf_reject < -self.tolerance}
        return frozenset(side for side, failed in sides.items() if failed)

    @property
    def assumptions_hold(self) -> bool:
        """Whether the second derivative in r was positive at every eta tried, as the theorem assumes."""
        return self.least_curvature > 0


def theorem_four(subject: ExaminedLoss) -> TheoremFour:
    """Find the supremum and the infimum of Theorem 4 (Eq. 5) and of Corollary 5 (Eq. 6).

    The class scores are those that minimise the risk at r = 0. The theorem takes them from the joint minimiser;
    where the risk is convex in scores and rejector together, or a product as in MPC, the two slopes have the same
    sign, and this one is found without ever minimising over r.

    Parameters
    ----------
    subject : ExaminedLoss
        With a rejector, the last score (accept iff positive), and one price of rejecting.

    Examples
    --------
    >>> from demur.losses import get
    >>> found = theorem_four(ExaminedLoss.untried(get("apc+exp", beta="acc"), 3, 0.2, symmetric=True))
    >>> abs(round(found.sup_answer, 6)), round(found.inf_reject, 4), set(found.fails)
    (0.0, -0.5314, {'false_accept'})
    """
    curvatures: list[float] = []

    def slope(eta: Tensor) -> Tensor:
        h, curvature = rejector_slope(subject, eta)
        curvatures.append(float(curvature.min()))
        return h

    def extreme(region: Region, sign: float) -> tuple[float, Floats]:
        value, eta = extreme_over(lambda e: sign * slope(e), subject, region)
        return sign * value, eta

    sup_answer, worst_answer = extreme("answer", 1)
    inf_reject, worst_reject = extreme("reject", -1)
    return TheoremFour(
        sup_answer,
        inf_reject,
        extreme("boundary", 1)[0],
        extreme("boundary", -1)[0],
        worst_answer,
        worst_reject,
        least_curvature=min(curvatures),
        tolerance=1e-8 * max(subject.scale.unit, abs(sup_answer), abs(inf_reject)),
    )


def rejector_slope(subject: ExaminedLoss, eta: Tensor) -> tuple[Tensor, Tensor]:
    """Return dW/dr and d2W/dr2 at r = 0, with the class scores that are best there, for each row of eta.

    Examples
    --------
    At eta = (1-c, c) and with exponentials the slope is 2 sqrt(c(1-c)) - c beta (the paper's binary case):

    >>> from demur.losses import get
    >>> eta = torch.tensor([[0.8, 0.2]], dtype=torch.float64)
    >>> rejector_slope(ExaminedLoss.untried(get("apc+exp", beta=1.0), 2, 0.2), eta)[0].round(decimals=6)
    tensor([0.6000], dtype=torch.float64)
    """
    first, second = eta.new_empty(2, len(eta))
    for rows, problem in RiskProblem.batches(subject, eta):
        unknowns, _ = problem.minimise_without_last()
        r = unknowns[:, -1:].requires_grad_()
        risk = problem.risk(torch.cat([unknowns[:, :-1].detach(), r], -1), torch.arange(len(rows)))
        (slope,) = torch.autograd.grad(risk.sum(), r, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), r, materialize_grads=True)
        first[rows], second[rows] = slope.detach()[:, 0], curvature[:, 0]
    return first * subject.scale.unit, second * subject.scale.unit


def beta_bounds(loss: str | PairwiseLoss, n_classes: int, cost: float) -> tuple[float, float]:
    """Return the least beta without false rejects and the greatest without false accepts, (acc, rej).

    A calibrated loss needs a beta that is at least the first and at most the second. At K = 2 both are equal to the
    value of Cortes et al.; for K > 2 the first is larger, so no beta is calibrated.

    Parameters
    ----------
    loss : str or PairwiseLoss
        Any ``apc``, ``mpc`` or ``pb`` loss; its alpha is used, its beta is not.
    n_classes : int
    cost : float
        In (0, 1/2).

    Returns
    -------
    acc, rej : float
        In closed form where one is known (logistic and exponential pairs), else computed.

    Examples
    --------
    >>> beta_bounds("apc+exp", 2, 0.2)  # 2 sqrt((1-c)/c), twice
    (4.0, 4.0)
    >>> acc, rej = beta_bounds("apc+log", 8, 0.2)
    >>> round(acc, 4), round(rej, 4)
    (9.8621, 3.2)
    """
    subject, n_classes, cost = _pairwise(loss, n_classes, cost)
    if own_fact(subject, "closed_forms") is None:
        return numeric_beta_bounds(subject, n_classes, cost)
    try:
        acc, rej = (subject.beta_ratio(side, n_classes, cost) for side in ("acc", "rej"))
    except NoClosedFormError:
        return numeric_beta_bounds(subject, n_classes, cost)
    alpha = float(subject.alpha)
    return float(acc) * alpha, float(rej) * alpha


def with_number_for_beta(loss: Loss, n_classes: int, cost: float) -> Loss:
    """Return a pairwise loss with beta as a number, where the name of a side has no closed form."""
    assert isinstance(loss, PairwiseLoss)
    acc, rej = beta_bounds(loss, n_classes, cost)
    return replace(loss, beta={"acc": acc, "rej": rej, "mean": (acc + rej) / 2}[str(loss.beta)])


@single_threaded_kernels()
def numeric_beta_bounds(
    loss: str | PairwiseLoss, n_classes: int, cost: float, *, rounds: int = 2
) -> tuple[float, float]:
    """Compute both bounds for any differentiable phi and psi from the slope of the risk at r = 0.

    At r = 0 the best class scores do not depend on beta, and the slope is A(eta) + B beta (B = c psi'(0) in the
    paper's losses): each eta has one beta at which it vanishes. The bounds are the largest of these where Chow's rule
    answers and the least where it rejects, over structured eta and ``rounds`` rounds of local search around the best.

    Examples
    --------
    >>> from demur.losses import AdditivePairwise
    >>> from demur.margins import Exponential, Logistic
    >>> acc, rej = numeric_beta_bounds(AdditivePairwise(Logistic(), Exponential()), 4, 0.2)
    >>> round(acc, 4), round(rej, 4)
    (2.8462, 1.6)
    """
    subject, n_classes, cost = _pairwise(loss, n_classes, cost)
    if not (subject.phi.smooth and subject.psi_or_phi.smooth):
        raise InputError(
            f"beta has no bounds for {subject.name}: Corollary 5 needs differentiable phi and psi, got {subject.phi} "
            f"and {subject.psi_or_phi}."
        )
    middle = torch.full((1, n_classes), 1 / n_classes, dtype=torch.float64)
    unit, double = (
        ExaminedLoss.untried(replace(subject, beta=beta), n_classes, cost, symmetric=not subject.binary_only)
        for beta in (1.0, 2.0)
    )
    once, twice = (float(rejector_slope(each, middle)[0]) for each in (unit, double))
    per_beta = twice - once
    if abs(per_beta) < 1e-12 * (1 + abs(once)):
        raise InputError(f"beta has no effect at r = 0 for psi = {subject.psi_or_phi}: its slope there is zero.")

    def beta_of(eta: Tensor) -> Tensor:
        slope, _ = rejector_slope(unit, eta)
        return (slope - per_beta) / -per_beta

    acc, _ = extreme_over(beta_of, unit, "answer", rounds=rounds)
    rej, _ = extreme_over(lambda eta: -beta_of(eta), unit, "reject", rounds=rounds)
    return acc, -rej


def _pairwise(loss: str | PairwiseLoss, n_classes: int, cost: float) -> tuple[PairwiseLoss, int, float]:
    subject, n_classes = resolve(loss), require_n_classes(n_classes)
    if not isinstance(subject, PairwiseLoss):
        raise InputTypeError(f"{subject.name} has no beta; beta_bounds is for the losses apc+..., mpc+... and pb+....")
    subject.for_classes(n_classes)
    return subject, n_classes, require_cost(cost)


@dataclass(frozen=True)
class OrderTheorem:
    """The statement of Theorem 16 (APC) or 17 (MPC).

    Parameters
    ----------
    name : str
    preserving, strict : bool
        Whether its conditions for each property hold, at every eta tried.
    """

    name: str
    preserving: bool
    strict: bool


@dataclass(frozen=True)
class OrderReport:
    """Whether a loss preserves the order of the classes.

    Parameters
    ----------
    loss : str
    verdict : str
        "strict", "preserving", "not preserving" or "inconclusive": no counterexample, but not every eta was resolved.
    counterexample : array or None
        An eta at which the order, or its strictness, is lost.
    scores : array or None
        The class scores of the minimiser there.
    theorem : OrderTheorem or None
        For the pairwise losses, what the paper's theorem says.
    n_eta, n_unresolved : int
        Number of eta tried, and of those at which the minimisation did not converge.
    """

    loss: str
    verdict: str
    counterexample: Floats | None
    scores: Floats | None
    theorem: OrderTheorem | None
    n_eta: int
    n_unresolved: int

    @property
    def preserving(self) -> bool:
        """Whether a less likely class never got a larger score."""
        return self.verdict in ("strict", "preserving")

    @property
    def strict(self) -> bool:
        """Whether a less likely class always got a smaller score."""
        return self.verdict == "strict"

    def __bool__(self) -> bool:
        return self.preserving


@single_threaded_kernels()
def is_order_preserving(
    loss: LossLike, n_classes: int, cost: float, *, outputs: int | None = None, seed: int = 0, seconds: float = 60.0
) -> OrderReport:
    """Search for an eta at which a loss does not preserve the order of the classes, and apply Theorems 16 and 17.

    Parameters
    ----------
    loss : str, Loss or callable
        A loss with one score per class.
    n_classes : int
    cost : float
        In (0, 1 - 1/K).
    outputs : int, optional
        Number of scores of a plain function.
    seed : int
    seconds : float
        Time limit in seconds.

    Returns
    -------
    OrderReport

    Examples
    --------
    >>> report = is_order_preserving("apc+log", 4, 0.2)
    >>> bool(report), report.strict, report.theorem.name, report.theorem.strict
    (True, True, 'Theorem 16', True)
    >>> report = is_order_preserving("ova+hin", 3, 0.2)  # every class below 1 - c gets the score -1
    >>> bool(report), report.verdict
    (True, 'preserving')
    """
    n_classes = require_n_classes(n_classes)
    cost = require_cost(cost, below=1 - 1 / n_classes)
    made = as_loss(loss, n_classes, cost, outputs=outputs)
    if made.n_outputs(n_classes) < n_classes:
        raise InputError(f"the order of scores needs one score per class; {made.name} has fewer.")
    subject = examine(made, as_target(cost, n_classes), deadline=Deadline(seconds), seed=seed)
    eta = _trials(subject)
    found = find_minima(subject, eta)
    classes = found.scores[:, :n_classes]
    swapped, tied = _order(eta, classes, room=1e-6 if subject.twice and made.smooth else 1e-4)
    at_kink = ~found.converged
    swapped &= ~at_kink
    broken = [
        row for row in swapped.nonzero()[:, 0].tolist() if not _can_be_sorted(subject, eta[row], found.scores[row])
    ]
    ties = (tied & ~at_kink).nonzero()[:1, 0].tolist()
    n_unresolved = int(at_kink.sum())
    verdict = "strict"
    if broken:
        verdict = "not preserving"
    elif n_unresolved:
        verdict = "inconclusive"
    elif ties or bool(swapped.any()):
        verdict = "preserving"
    shown = broken[:1] or ties
    return OrderReport(
        made.name,
        verdict,
        counterexample=eta[shown[0]].numpy() if shown else None,
        scores=classes[shown[0]].numpy() if shown else None,
        theorem=_theorem(made, found.scores),
        n_eta=len(eta),
        n_unresolved=n_unresolved,
    )


def _trials(subject: ExaminedLoss) -> Tensor:
    """Return structured eta with every class on top, and random ones."""
    n_classes, target = subject.n_classes, subject.target
    assert target.single is not None
    limit = 24 if not subject.loss.smooth else max(16, min(120, 100_000 // n_classes**3))
    structured = over_all_classes(structured_eta(tops_around(target.single, n_classes), n_classes), limit)
    return torch.cat([structured, random_eta(target, limit // 8, subject.generator())])


def _order(eta: Tensor, scores: Tensor, *, room: float) -> tuple[Tensor, Tensor]:
    """Return which rows give a less likely class a larger score, and which give a clearly less likely one an equal."""
    lead = eta.unsqueeze(-1) - eta.unsqueeze(-2)
    gap = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    allowed = room * (1 + scores.abs().amax(-1))[:, None, None]
    swapped = ((lead > 1e-9) & (gap < -allowed)).flatten(1).any(-1)
    tied = ((lead > 1e-3) & (gap.abs() <= allowed)).flatten(1).any(-1)
    return swapped, tied


def _can_be_sorted(subject: ExaminedLoss, eta: Tensor, scores: Tensor) -> bool:
    """Return whether the scores, reordered like eta, have as small a risk: then these are a minimiser too."""
    dealt = scores.clone()
    dealt[eta.argsort()] = scores[: len(eta)].sort().values
    before, after = subject.risk(torch.stack([scores, dealt]), eta).tolist()
    return bool(after <= before + subject.tolerance * (1 + abs(before)))


def _theorem(loss: Loss, scores: Tensor) -> OrderTheorem | None:
    theorem = own_fact(loss, "order_theorem")
    if theorem is None:
        return None
    name, shift = theorem()
    shifts = torch.unique(shift(scores[:, -1]).round(decimals=6))
    return OrderTheorem(name, *_conditions(loss.margin_functions()[0], shifts))


def _conditions(phi: MarginFunction, shifts: Tensor) -> tuple[bool, bool]:
    """Check, on a grid of z, that phi never increases and phi(z - s) < phi(-z - s); and that phi'(-s) < 0."""
    z = torch.linspace(-30, 30, 1201, dtype=torch.float64)
    never_increases = bool((phi(z).diff() <= 0).all())
    positive = torch.logspace(-3, 1.3, 60, dtype=torch.float64)
    falls = bool((phi(positive - shifts.unsqueeze(-1)) < phi(-positive - shifts.unsqueeze(-1))).all())
    at = (-shifts).clone().requires_grad_()
    (slope,) = torch.autograd.grad(phi(at).sum(), at)
    preserving = never_increases and falls
    return preserving, preserving and phi.smooth and bool((slope < 0).all())
