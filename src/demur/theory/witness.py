"""A counterexample and its proof: the risks of both decisions, computed again by other means.

Pairwise losses have formulas of their own in mpmath, so that a refutation does not rest on float64. With the classes
grouped into n_a classes of probability eta_a and common score u_a, the risk of Eq. 8 is

    sum_a n_a eta_a [sum_b (n_b - 1[a = b]) phi(alpha (u_a - u_b - r))] + c psi(beta r),

and that of Eq. 7 has phi(alpha (u_a - u_b)) psi(-alpha r) in the brackets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from demur.losses import AdditivePairwise, Loss, MultiplicativePairwise, PlusBound
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.theory.bayes import REJECT
from demur.theory.decided_risk import DecidedRisk, best_with_decision
from demur.theory.pointwise_risk import RiskProblem, Ties, equal_values, pointwise_risk
from demur.theory.subject import Subject

__all__ = ["ExactMinimum", "Witness", "exact_minimum", "has_exact_form", "kind_of", "verify"]


@dataclass(frozen=True)
class Witness:
    """Class probabilities at which a loss prefers a decision that costs more than the best one.

    Parameters
    ----------
    kind : str
        "false_reject", "false_accept" or "misclassify".
    eta : array of shape (n_classes,)
    scores : array of shape (n_outputs,)
        Scores whose risk is lower than that of any that decide rightly: the minimiser, or near it.
    chow, taken : str
        The best decision and the one that these scores take, in words.
    chow_risk, taken_risk : float
        What the two cost on average.
    least_risk : float
        The surrogate's risk at ``scores``.
    chow_least_risk : float
        Its least risk among scores that decide rightly; infinite if there are none.
    gap : float
        The second minus the first: what the surrogate charges for the right decision. Larger than ``error``.
    error : float
        How wrong the gap may be, by the disagreement of the ways in which it was computed.
    precision : str
        How the two risks were computed.
    """

    kind: str
    eta: NDArray[np.float64]
    scores: NDArray[np.float64]
    chow: str
    taken: str
    chow_risk: float
    taken_risk: float
    least_risk: float
    chow_least_risk: float
    gap: float
    error: float
    precision: str


def kind_of(best: int, taken: int) -> str:
    """Return what kind of wrong decision this is.

    Examples
    --------
    >>> kind_of(-1, 2), kind_of(2, -1), kind_of(0, 1)
    ('false_accept', 'false_reject', 'misclassify')
    """
    if best == REJECT:
        return "false_accept"
    return "false_reject" if taken == REJECT else "misclassify"


def verify(
    subject: Subject, eta: Tensor, scores: Tensor, known: Tensor, *, seed: int = 0
) -> tuple[Witness | None, DecidedRisk]:
    """Compute a supposed failure again; return it as a witness only if its gap is positive beyond its error.

    Parameters
    ----------
    subject : Subject
    eta : tensor of shape (n_classes,)
    scores : tensor of shape (n_outputs,)
        What seemed to minimise the risk, with a wrong decision.
    known : tensor of shape (m, n_outputs)
        Scores worth trying.
    seed : int

    Returns
    -------
    witness : Witness or None
    right : DecidedRisk
        The best scores with the right decision; where there is no witness, they are as good as those given, or better.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.subject import examine
    >>> subject = examine(get("apc+log"), as_target(0.2, 3))
    >>> eta = torch.tensor([0.83, 0.085, 0.085], dtype=torch.float64)
    >>> scores = torch.tensor([1.43, -0.84, -0.84, -0.14], dtype=torch.float64)
    >>> witness, _ = verify(subject, eta, scores, scores[None])
    >>> witness.chow, witness.taken, witness.gap > witness.error
    ('answer class 0', 'reject', True)
    """
    best, taken = int(subject.target.best(eta)), int(subject.decide(scores[None])[0])
    right = best_with_decision(subject, eta, best, scores, known, seed=seed)
    at_scores = float(subject.risk(scores[None], eta)[0])
    unit = subject.scale.unit
    # Newton's method on a convex risk is exact; a search among many minima is not.
    floor = subject.tolerance if subject.facts.convex else max(subject.tolerance, 5e-7)
    error = floor * (1 + abs(at_scores)) + 2 * right.error
    if taken == best or not right.risk - at_scores > 2 * error:
        return None, right
    exact = _in_many_digits(subject, eta.numpy(), scores) if {best, taken} & {REJECT} else None
    if exact is not None:
        least, least_right, gap, error, precision = exact
    else:
        least, least_right, precision = _again(subject, eta, scores, best, right)
        error = error * unit + 1e-12 * (abs(least) + unit)
        gap = least_right - least
    if not gap > error:
        return None, right
    costs = subject.target.expected(eta)
    return Witness(
        kind_of(best, taken),
        eta.numpy(),
        scores.numpy(),
        chow=_words(best),
        taken=_words(taken),
        chow_risk=float(costs[best]),
        taken_risk=float(costs[taken]),
        least_risk=least,
        chow_least_risk=least_right,
        gap=gap,
        error=error,
        precision=precision,
    ), right


def _words(decision: int) -> str:
    return "reject" if decision == REJECT else f"answer class {decision}"


def _again(subject: Subject, eta: Tensor, scores: Tensor, best: int, right: DecidedRisk) -> tuple[float, float, str]:
    """Compute both risks from the loss itself, one row at a time, and let scipy try to lower the second."""

    def risk(g: Tensor) -> float:
        losses = subject.loss.forward(g.expand(len(eta), -1), torch.arange(len(eta)), subject.target.cost)
        return fsum(float(p) * float(v) for p, v in zip(eta, losses, strict=True) if p > 0)

    least = risk(scores)
    if not isfinite(right.risk):
        return least, inf, f"no scores that {_words(best)} were found"
    least_right = risk(right.scores)
    if subject.n_outputs > 12:
        return least, least_right, "float64, Newton's method with multipliers"

    def barred(g: NDArray[np.float64]) -> float:
        point = torch.from_numpy(np.asarray(g, dtype=np.float64))
        value = risk(point) if int(subject.decide(point[None])[0]) == best else inf
        return value if isfinite(value) else 1e300

    generator = np.random.default_rng(1)
    for spread in (0.0, 0.1, 1.0):
        start = right.scores.numpy() + spread * generator.normal(size=subject.n_outputs)
        again = minimize(barred, start, method="Nelder-Mead", options={"maxfev": 400, "xatol": 1e-10, "fatol": 1e-14})
        least_right = min(least_right, float(again.fun))
    return least, least_right, "float64; the second risk searched again with Nelder and Mead's simplex"


def _in_many_digits(
    subject: Subject, eta: NDArray[np.float64], scores: Tensor
) -> tuple[float, float, float, float, str] | None:
    """Return both risks, gap and error in many digits, or None without a formula or a minimum of it."""
    loss, cost = subject.loss, subject.target.single
    if cost is None or not has_exact_form(loss, eta):
        return None
    assert isinstance(loss, PairwiseLoss)
    if not _formula_is_the_losses(loss, eta, cost):
        return None
    beside = _at_rejector_zero(subject, torch.from_numpy(eta))
    try:
        joint = exact_minimum(loss, eta, cost, start=scores.tolist())
        at_zero = exact_minimum(loss, eta, cost, rejector=0.0, start=beside)
    except (ValueError, ZeroDivisionError):  # how mpmath says that Newton's method went astray
        return None
    if (joint.rejector > 0) != bool(scores[-1] > 0):
        return None
    slope = max(joint.gradient, at_zero.gradient, 10.0 ** (5 - DIGITS))
    precision = f"mpmath, {DIGITS} digits; gradient below {slope:.0e}"
    error = max(1e-30, 100 * slope)
    return float(joint.risk), float(at_zero.risk), float(at_zero.risk - joint.risk), error, precision


def _formula_is_the_losses(loss: PairwiseLoss, eta: NDArray[np.float64], cost: float) -> bool:
    """Return whether the formula below and the loss give the same risk at a few scores."""
    with mpmath.workdps(DIGITS):
        problem = _Grouped(loss, eta, cost)
        for seed in range(3):
            group_scores = np.random.default_rng(seed).normal(size=len(problem.sizes) + 1)
            group_scores[-1] /= 1 + float(problem.beta)  # beta r stays where an exponential is exact
            each = group_scores[np.searchsorted(np.unique(eta), eta)]
            scores = np.r_[each[1] - each[0] if problem.binary_scores else each, group_scores[-1]]
            theirs = float(pointwise_risk(loss, torch.from_numpy(scores), torch.from_numpy(eta), cost))
            ours = float(problem.risk([mpmath.mpf(float(v)) for v in group_scores]))
            if abs(theirs - ours) > 1e-9 * (1 + abs(ours)):
                return False
    return True


def _at_rejector_zero(subject: Subject, eta: Tensor) -> list[float]:
    """Return class scores that minimise the risk at r = 0, and that r."""
    row = eta.unsqueeze(0)
    groups = equal_values(row) if subject.facts.symmetric else None
    problem = RiskProblem.of(subject, Ties.of(row, groups, subject.n_outputs))

    def risk(unknowns: Tensor, rows: Tensor) -> Tensor:
        return problem.risk(torch.cat([unknowns, unknowns.new_zeros(len(unknowns), 1)], -1), rows)

    unknowns, _ = problem.descend_from_guess(risk, problem.ties.n_unknowns - 1)
    at_zero = torch.cat([unknowns, unknowns.new_zeros(1, 1)], -1)
    return [float(score) for score in problem.ties.scores(at_zero, torch.zeros(1, dtype=torch.long))[0]]


DIGITS = 50

_PHI: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "log": (lambda z: mpmath.log1p(mpmath.exp(-z)), lambda z: -1 / (1 + mpmath.exp(z))),
    "exp": (lambda z: mpmath.exp(-z), lambda z: -mpmath.exp(-z)),
    "sq": (lambda z: (1 - z) ** 2, lambda z: -2 * (1 - z)),
    "sqhin": (lambda z: max(1 - z, 0) ** 2, lambda z: -2 * max(1 - z, 0)),
}
"""phi and its derivative, by the name of the margin function."""
_MARGINS: dict[str, type[MarginFunction]] = {
    "log": Logistic,
    "exp": Exponential,
    "sq": Squared,
    "sqhin": SquaredHinge,
}


@dataclass(frozen=True)
class ExactMinimum:
    """A minimum of the pointwise risk, to about :data:`DIGITS` digits.

    Parameters
    ----------
    risk : mpf
    rejector : mpf
        r at the minimum.
    gradient : float
        The largest component of the gradient there.
    """

    risk: Any
    rejector: Any
    gradient: float


def has_exact_form(loss: Loss, eta: NDArray[np.float64]) -> bool:
    """Return whether :func:`exact_minimum` knows the loss and the minimum is finite and small enough to compute."""
    # A subclass may have changed the formula: only the classes themselves are known.
    if type(loss) not in (AdditivePairwise, MultiplicativePairwise, PlusBound):
        return False
    assert isinstance(loss, PairwiseLoss)
    margins = (loss.phi, loss.psi_or_phi)
    known = all(type(m) is _MARGINS.get(m.name) for m in margins)
    return known and bool((eta > 0).all()) and len(np.unique(eta)) <= 6


def exact_minimum(
    loss: PairwiseLoss, eta: NDArray[np.float64], cost: float, *, rejector: float | None = None, start: Sequence[float]
) -> ExactMinimum:
    """Minimise the pointwise risk in many digits, over scores and rejector or with the rejector held.

    Parameters
    ----------
    loss : PairwiseLoss
    eta : array of shape (n_classes,)
        Positive, with few different values. Each entry is read as the decimal number it prints as, and the largest
        takes up what then lacks to a sum of 1.
    cost : float
    rejector : float, optional
        Hold r at this value.
    start : sequence of float
        One score per class and r, near the minimum: what float64 found.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> loss = get("apc+exp", beta=1.0)
    >>> eta = np.array([0.8, 0.2])
    >>> found = exact_minimum(loss, eta, 0.2, rejector=0.0, start=[0.3, -0.3, 0.0])
    >>> mpmath.nstr(found.risk, 12)  # 2 sqrt(0.16) + 0.2
    '1.0'
    """
    with mpmath.workdps(DIGITS + 10):
        problem = _Grouped(loss, eta, cost)
        point = problem.solve(start, rejector)
        gradient = problem.gradient(point)
        free = gradient[1:] if rejector is None else gradient[1:-1]
        return ExactMinimum(problem.risk(point), point[-1], float(max(map(abs, free), default=0)))


class _Grouped:
    """The risk and its gradient in (u_1, ..., u_G, r)."""

    def __init__(self, loss: PairwiseLoss, eta: NDArray[np.float64], cost: float) -> None:
        values, self.first, self.sizes = np.unique(eta, return_index=True, return_counts=True)
        self.eta = [mpmath.mpf(repr(float(v))) for v in values]
        lacking = 1 - sum(n * e for n, e in zip(self.sizes.tolist(), self.eta, strict=True))
        self.eta[-1] += lacking / int(self.sizes[-1])
        self.phi, self.phi_slope = _PHI[loss.phi.name]
        self.psi, self.psi_slope = _PHI[loss.psi_or_phi.name]
        self.cost = mpmath.mpf(repr(float(cost)))
        self.alpha = mpmath.mpf(repr(float(loss.alpha)))
        self.beta = mpmath.mpf(repr(float(loss.beta_value(len(eta), cost))))
        self.additive = not isinstance(loss, MultiplicativePairwise)
        self.binary_scores = isinstance(loss, PlusBound)

    def pairs(self) -> list[tuple[int, int, int]]:
        """Return (a, b, how many ordered pairs of classes these groups make)."""
        sizes = [int(n) for n in self.sizes]
        every = [(a, b, n * (m - (a == b))) for a, n in enumerate(sizes) for b, m in enumerate(sizes)]
        return [pair for pair in every if pair[2]]

    def risk(self, point: list[Any]) -> Any:
        *u, r = point
        answering = mpmath.mpf(0)
        for a, b, count in self.pairs():
            answering += count * self.eta[a] * self.phi(self.alpha * (u[a] - u[b] - (r if self.additive else 0)))
        factor = 1 if self.additive else self.psi(-self.alpha * r)
        return answering * factor + self.cost * self.psi(self.beta * r)

    def gradient(self, point: list[Any]) -> list[Any]:
        *u, r = point
        factor = 1 if self.additive else self.psi(-self.alpha * r)
        slopes = [mpmath.mpf(0) for _ in point]
        value = mpmath.mpf(0)
        for a, b, count in self.pairs():
            z = self.alpha * (u[a] - u[b] - (r if self.additive else 0))
            rate = count * self.eta[a] * self.alpha * self.phi_slope(z) * factor
            slopes[a] += rate
            slopes[b] -= rate
            slopes[-1] -= rate if self.additive else 0
            value += count * self.eta[a] * self.phi(z)
        if not self.additive:
            slopes[-1] = -self.alpha * self.psi_slope(-self.alpha * r) * value
        slopes[-1] += self.cost * self.beta * self.psi_slope(self.beta * r)
        return slopes

    def solve(self, start: Sequence[float], rejector: float | None) -> list[Any]:
        """Return a zero of the gradient near the start; the first score stays, since only differences count."""
        scores = [-start[0] / 2, start[0] / 2] if self.binary_scores else start
        u = [mpmath.mpf(float(scores[i])) for i in self.first]
        r = mpmath.mpf(float(start[-1] if rejector is None else rejector))

        def point_of(free: tuple[Any, ...]) -> list[Any]:
            return [u[0], *free, r] if rejector is not None else [u[0], *free]

        def equations(*free: Any) -> list[Any]:
            gradient = self.gradient(point_of(free))[1:]
            return gradient if rejector is None else gradient[:-1]

        unknowns = u[1:] if rejector is not None else [*u[1:], r]
        if not unknowns:
            return point_of(())
        root = mpmath.findroot(equations, unknowns, solver="mdnewton", tol=mpmath.mpf(10) ** (-2 * DIGITS))
        return point_of(tuple(root))
