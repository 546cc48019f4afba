"""A counterexample and its proof: the risks of both decisions, computed again and more exactly."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.losses.pairwise import PairwiseLoss
from demur.theory.bayes import chow_rejects
from demur.theory.exact import DIGITS, exact_minimum, has_exact_form
from demur.theory.facts import Facts
from demur.theory.pointwise import RiskProblem, pointwise_risk
from demur.theory.regions import REJECT, best_along_rays, best_in_region, decision_constraints
from demur.theory.search import Failure, judge
from demur.theory.ties import Ties, equal_values

__all__ = ["Witness", "verify"]

Risks: TypeAlias = tuple[float, float, float, str]
"""The least risk, the least risk with Chow's decision, their difference, and how exact they are."""


@dataclass(frozen=True)
class Witness:
    """Class probabilities at which a loss prefers a decision that costs more than Chow's.

    Parameters
    ----------
    kind : str
        "false_reject", "false_accept" or "misclassify".
    eta : array of shape (n_classes,)
    scores : array of shape (n_outputs,)
        The minimiser of the pointwise risk.
    chow, taken : str
        Both decisions in words.
    chow_risk, taken_risk : float
        Their 0-1-c risks.
    least_risk : float
        The surrogate's least risk, that of ``scores``.
    chow_least_risk : float
        Its least risk among scores that decide as Chow's rule does.
    gap : float
        The second minus the first: what the surrogate charges for the right decision.
    precision : str
        How the two risks were computed, and their error.
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
    precision: str


def verify(loss: Loss, facts: Facts, failure: Failure, cost: float) -> Witness | None:
    """Compute a failure again, in all scores and more exactly; None if it does not stand.

    Losses with known pairwise formulas are computed in mpmath, all others in float64 with a bound of its rounding.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.facts import examine
    >>> from demur.theory.search import search_simplex
    >>> loss = get("apc+log")
    >>> facts = examine(loss, 3, 0.2)
    >>> witness = verify(loss, facts, search_simplex(loss, facts, 3, 0.2).failures[0], 0.2)
    >>> witness.chow, witness.taken, witness.gap > 0
    ('answer class 0', 'reject', True)
    """
    eta = failure.eta.unsqueeze(0)
    scores = _minimise_in_full(loss, failure, cost)
    kinds, _ = judge(loss.rule(scores, cost), eta, cost)
    if kinds[0] == "":
        return None
    proba = failure.eta.numpy()
    risks = _exact_risks(loss, proba, scores, cost) if kinds[0] != "misclassify" else None
    if risks is None:
        risks = _float_risks(loss, facts, failure.eta, scores, cost)
    taken = loss.rule(scores, cost).numpy()
    return Witness(
        str(kinds[0]),
        proba,
        scores[0].numpy(),
        chow=_words(int(proba.argmax()), bool(chow_rejects(proba, cost))),
        taken=_words(int(taken.label[0]), bool(taken.reject[0])),
        chow_risk=float(min(cost, 1 - proba.max())),
        taken_risk=float(cost) if taken.reject[0] else float(1 - proba[taken.label[0]]),
        least_risk=risks[0],
        chow_least_risk=risks[1],
        gap=risks[2],
        precision=risks[3],
    )


def _exact_risks(loss: Loss, eta: NDArray[np.float64], scores: Tensor, cost: float) -> Risks | None:
    """Return both risks in many digits, or None where there is no such formula or it finds no such minimum."""
    if not has_exact_form(loss, eta):
        return None
    assert isinstance(loss, PairwiseLoss)
    beside = _at_rejector_zero(loss, torch.from_numpy(eta), cost)
    try:
        joint = exact_minimum(loss, eta, cost, start=scores[0].tolist())
        at_zero = exact_minimum(loss, eta, cost, rejector=0.0, start=beside)
    except (ValueError, ZeroDivisionError):  # how mpmath says that Newton's method went astray
        return None
    if (joint.rejector > 0) != bool(scores[0, -1] > 0):
        return None
    slope = max(joint.gradient, at_zero.gradient, 10.0 ** (5 - DIGITS))
    precision = f"mpmath, {DIGITS} digits; gradient below {slope:.0e}"
    return float(joint.risk), float(at_zero.risk), float(at_zero.risk - joint.risk), precision


def _float_risks(loss: Loss, facts: Facts, eta: Tensor, scores: Tensor, cost: float) -> Risks:
    least = float(pointwise_risk(loss, scores[0], eta, cost))
    right, exactly = _best_right(loss, facts, eta, scores, cost)
    error = 1e-12 * (1 + abs(least)) * len(eta)
    precision = f"float64, error below {error:.0e}" if exactly else "float64; the second is the best one found"
    return least, right, right - least, precision


def _words(label: int, reject: bool) -> str:
    return "reject" if reject else f"answer class {label}"


def _minimise_in_full(loss: Loss, failure: Failure, cost: float) -> Tensor:
    """Minimise with every score free, starting beside the minimiser that symmetry suggested."""
    scores = failure.scores.unsqueeze(0)
    if not loss.smooth:
        return scores
    problem = RiskProblem(loss, Ties.none(failure.eta.unsqueeze(0), scores.shape[-1]), cost)
    generator = torch.Generator().manual_seed(0)
    beside = scores + 1e-3 * torch.randn(scores.shape, generator=generator, dtype=torch.float64)
    again, _ = problem.minimise(beside)
    lower = problem.risk_of_scores(again) < problem.risk_of_scores(scores) - 1e-12
    return again if bool(lower) else scores


def _best_right(loss: Loss, facts: Facts, eta: Tensor, scores: Tensor, cost: float) -> tuple[float, bool]:
    """Return the least risk among scores that decide as Chow's rule, and whether it is exact or the best found."""
    decision = REJECT if bool(chow_rejects(eta.numpy(), cost)) else int(eta.argmax())
    exact = _best_by_newton(loss, facts, eta, scores, decision, cost) if loss.smooth else None
    if exact is not None:
        return exact, True

    def inside(candidates: Tensor) -> Tensor:
        taken = loss.rule(candidates, cost)
        return taken.reject if decision == REJECT else ~taken.reject & (taken.label == decision)

    best = best_along_rays(lambda g: pointwise_risk(loss, g, eta.expand(len(g), -1), cost), inside, scores[0])
    return (float("inf") if best is None else float(pointwise_risk(loss, best, eta, cost))), False


def _best_by_newton(loss: Loss, facts: Facts, eta: Tensor, scores: Tensor, decision: int, cost: float) -> float | None:
    row = eta.unsqueeze(0)
    constraints = decision_constraints(loss, facts, len(eta), cost, decision)
    if not constraints(scores.clone().requires_grad_()).requires_grad:
        return None
    groups = equal_values(row) if facts.symmetric else None
    problem = RiskProblem(loss, Ties.of(row, groups, scores.shape[-1]), cost)
    origin = torch.zeros(1, problem.ties.n_unknowns, dtype=torch.float64)
    minimiser, _ = problem.descend_from_guess(problem.risk, problem.ties.n_unknowns)
    risks = []
    for start in (minimiser, origin):
        unknowns, violation = best_in_region(problem, constraints, start)
        if float(violation) < 1e-8:
            risks.append(float(problem.risk(unknowns, torch.zeros(1, dtype=torch.long))))
    return min(risks, default=None)


def _at_rejector_zero(loss: Loss, eta: Tensor, cost: float) -> list[float]:
    """Return class scores that minimise the risk at r = 0, and that r."""
    row = eta.unsqueeze(0)
    n_outputs = loss.n_outputs(len(eta))
    problem = RiskProblem(loss, Ties.none(row, n_outputs), cost)

    def risk(unknowns: Tensor, rows: Tensor) -> Tensor:
        return problem.risk(torch.cat([unknowns, unknowns.new_zeros(len(unknowns), 1)], -1), rows)

    unknowns, _ = problem.descend_from_guess(risk, n_outputs - 1)
    return [*unknowns[0].tolist(), 0.0]
