"""A counterexample and its proof: the risks of both decisions, computed again by other means.

Pairwise losses have formulas in many digits (``PairwiseLoss.exact_risk``), so that a refutation of one of them does not
rest on float64.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite
from typing import Any

import mpmath
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.losses.pairwise import PairwiseLoss
from demur.margins import own_fact
from demur.theory.bayes import REJECT
from demur.theory.constrained_risk import ConstrainedMinimum, best_with_decision
from demur.theory.examined_loss import ExaminedLoss
from demur.theory.pointwise_risk import RiskProblem, Ties, equal_values, pointwise_risk

__all__ = ["Witness", "exact_minimum", "has_exact_form", "kind_of", "verify"]


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
    subject: ExaminedLoss, eta: Tensor, scores: Tensor, known: Tensor, *, seed: int = 0
) -> tuple[Witness | None, ConstrainedMinimum]:
    """Compute a supposed failure again; return it as a witness only if its gap is positive beyond its error.

    Parameters
    ----------
    subject : ExaminedLoss
    eta : tensor of shape (n_classes,)
    scores : tensor of shape (n_outputs,)
        What seemed to minimise the risk, with a wrong decision.
    known : tensor of shape (m, n_outputs)
        Scores worth trying.
    seed : int

    Returns
    -------
    witness : Witness or None
    right : ConstrainedMinimum
        The best scores with the right decision; where there is no witness, they are as good as those given, or better.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.examined_loss import examine
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


def _again(
    subject: ExaminedLoss, eta: Tensor, scores: Tensor, best: int, right: ConstrainedMinimum
) -> tuple[float, float, str]:
    """Compute both risks from the loss itself, one row at a time."""

    def risk(g: Tensor) -> float:
        losses = subject.loss.forward(g.expand(len(eta), -1), torch.arange(len(eta)), subject.target.cost)
        return fsum(float(p) * float(v) for p, v in zip(eta, losses, strict=True) if p > 0)

    least = risk(scores)
    if not isfinite(right.risk):
        return least, inf, f"no scores that {_words(best)} were found"
    return least, risk(right.scores), "float64, each risk summed row by row"


def _in_many_digits(
    subject: ExaminedLoss, eta: NDArray[np.float64], scores: Tensor
) -> tuple[float, float, float, float, str] | None:
    """Return both risks, gap and error in many digits, or None without a formula or a minimum of it."""
    loss, cost = subject.loss, subject.target.single
    if cost is None or not has_exact_form(loss, eta):
        return None
    assert isinstance(loss, PairwiseLoss)
    at_zero = _at_rejector_zero(subject, torch.from_numpy(eta))
    try:
        least_at_zero, slope = exact_minimum(loss, eta, cost, at_zero)
    except (ValueError, ZeroDivisionError):  # how mpmath says that Newton's method went astray
        return None
    with mpmath.workdps(DIGITS + 10):
        least = loss.exact_risk(*_grouped(eta, scores.tolist()), cost)
    theirs = float(pointwise_risk(loss, scores, torch.from_numpy(eta), cost))
    if not abs(theirs - float(least)) <= 1e-7 * (1 + abs(theirs)):
        return None  # the code does not compute this formula
    slope = max(slope, 10.0 ** (5 - DIGITS))
    precision = f"mpmath, {DIGITS} digits; gradient below {slope:.0e}"
    return float(least), float(least_at_zero), float(least_at_zero - least), max(1e-30, 100 * slope), precision


def _at_rejector_zero(subject: ExaminedLoss, eta: Tensor) -> list[float]:
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


def has_exact_form(loss: Loss, eta: NDArray[np.float64]) -> bool:
    """Return whether :func:`exact_minimum` knows the loss and the minimum is finite and small enough to compute."""
    known = own_fact(loss, "exact_pair") is not None and all(own_fact(phi, "exact") for phi in loss.margin_functions())
    return known and bool((eta > 0).all()) and len(np.unique(eta)) <= 6


def exact_minimum(
    loss: PairwiseLoss, eta: NDArray[np.float64], cost: float, start: Sequence[float]
) -> tuple[Any, float]:
    """Minimise the pointwise risk over the class scores in many digits; the rejector stays as it is.

    Parameters
    ----------
    loss : PairwiseLoss
    eta : array of shape (n_classes,)
        Positive, with few different values. Each entry is read as the decimal number it prints as, and the largest
        takes up what then lacks to a sum of 1.
    cost : float
    start : sequence of float
        One score per class and r, near the minimum: what float64 found.

    Returns
    -------
    risk : mpf
    slope : float
        The largest component of the gradient that is left.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> loss = get("apc+exp", beta=1.0)
    >>> risk, _ = exact_minimum(loss, np.array([0.8, 0.2]), 0.2, [0.3, -0.3, 0.0])
    >>> mpmath.nstr(risk, 12)  # 2 sqrt(0.16) + 0.2
    '1.0'
    """
    with mpmath.workdps(DIGITS + 10):
        groups, (first, *free, r) = _grouped(eta, start)  # the first score stays, since only differences count

        def risk(*others: Any) -> Any:
            return loss.exact_risk(groups, [first, *others, r], cost)

        def gradient(*others: Any) -> list[Any]:
            orders = np.eye(len(others), dtype=int).tolist()
            return [mpmath.diff(risk, others, tuple(order)) for order in orders]

        if free:
            tolerance = mpmath.mpf(10) ** (-2 * DIGITS)
            free = list(mpmath.findroot(gradient, free, solver="mdnewton", tol=tolerance))
        return risk(*free), float(max(map(abs, gradient(*free)), default=0))


def _grouped(eta: NDArray[np.float64], scores: Sequence[float]) -> tuple[list[tuple[int, Any]], list[Any]]:
    """Return (how many, probability) for each different probability, and the scores of those groups and r."""
    values, first, sizes = np.unique(eta, return_index=True, return_counts=True)
    groups = [(int(n), mpmath.mpf(repr(float(v)))) for n, v in zip(sizes, values, strict=True)]
    n, top = groups[-1]
    groups[-1] = n, top + (1 - sum(m * e for m, e in groups)) / n
    each = [-scores[0] / 2, scores[0] / 2] if len(scores) <= len(eta) else scores  # one score f for two classes
    return groups, [mpmath.mpf(float(s)) for s in (*(each[i] for i in first), scores[-1])]
