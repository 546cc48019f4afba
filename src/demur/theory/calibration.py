"""Is a loss calibrated for rejection? Two independent routes and one report."""

from demur.costs import check_cost
from demur.losses import Loss
from demur.losses.pairwise import PairwiseLoss
from demur.theory.adapter import LossLike, RuleFunction, RuleName, as_loss
from demur.theory.beta import beta_bounds
from demur.theory.bounds import ExcessRiskBound, excess_risk_bound
from demur.theory.conditions import TheoremFour, theorem_four
from demur.theory.errors import CostRangeError, LossContractError, NoBoundError, require_cost, require_n_classes
from demur.theory.facts import Facts, examine
from demur.theory.report import BetaFindings, CalibrationReport
from demur.theory.search import SearchFindings, search_simplex
from demur.theory.witness import Witness, verify
from demur.workers import single_threaded_kernels

__all__ = ["check_calibration"]


@single_threaded_kernels()
def check_calibration(
    loss: LossLike, n_classes: int, cost: float, *, rule: RuleName | RuleFunction | None = None, seed: int = 0
) -> CalibrationReport:
    """Check whether minimising a loss leads to Chow's decisions.

    Route (a), for any loss: search the simplex for an eta where the minimiser of the pointwise risk decides worse
    than Chow's rule. Route (b), for a loss with a rejector: the sup and the inf of Theorem 4. A counterexample is
    computed again in higher precision before it is reported.

    Parameters
    ----------
    loss : str, Loss or callable
        A registered name, a loss, or a function of (scores, y, cost); see :class:`~demur.theory.FunctionLoss`.
    n_classes : int
        K, at least 2.
    cost : float
        c in (0, 1 - 1/K): from there on Chow's rule never rejects.
    rule : "softmax", "rejector" or callable, optional
        For a plain function: how its scores decide. "softmax" by default.
    seed : int
        Of the random part of the search.

    Returns
    -------
    CalibrationReport
        ``print`` it. Its ``calibrated`` is False if refuted; True means not refuted, which is no proof.

    Raises
    ------
    LossContractError
        If the loss returns the wrong shape, NaN, or values without derivatives, or cannot be minimised.
    CostRangeError
        If the cost is not in (0, 1 - 1/K).

    Warns
    -----
    CostWarning
        If the cost is 1/2 or more, which the paper's statements do not cover.

    Examples
    --------
    >>> check_calibration("ce", n_classes=3, cost=0.2).calibrated
    True
    >>> report = check_calibration("apc+log", n_classes=3, cost=0.2)
    >>> report.calibrated, sorted(report.fails), report.routes_agree
    (False, ['false_reject'], True)
    >>> report.counterexample.round(3)
    array([0.83 , 0.085, 0.085])
    """
    n_classes = require_n_classes(n_classes)
    cost = require_cost(cost, below=1 - 1 / n_classes)
    check_cost(cost)
    subject = as_loss(loss, n_classes, cost, rule=rule)
    facts = examine(subject, n_classes, cost)
    found = search_simplex(subject, facts, n_classes, cost, seed=seed)
    if not found.n_eta:
        raise LossContractError(
            f"the pointwise risk of {subject.name} could not be minimised at any of {found.n_unresolved} class "
            "probabilities. If it has kinks, say so (differentiable=False); if it has no lower bound, it is no loss."
        )
    witness = _best_witness(subject, facts, found, cost)
    slopes, why_not = _route_b(subject, facts, n_classes, cost, seed)
    fails = found.fails | (frozenset() if slopes is None else slopes.fails)
    return CalibrationReport(
        describe(subject, n_classes, cost),
        n_classes,
        cost,
        calibrated=not fails,
        fails=fails,
        witness=witness,
        search=found,
        theorem_four=slopes,
        no_theorem_four=why_not,
        beta=_beta(subject, n_classes, cost),
        bound=None if fails else _bound(subject, cost),
    )


def describe(loss: Loss, n_classes: int, cost: float) -> str:
    """Return the name of a loss with the hyper-parameters that matter.

    Examples
    --------
    >>> from demur.losses import get
    >>> describe(get("apc+log"), 3, 0.2), describe(get("ova+hin"), 3, 0.2)
    ('apc+log (beta = 3.2)', 'ova+hin (tau = 0)')
    """
    parts = []
    if isinstance(loss, PairwiseLoss):
        if float(loss.alpha) != 1:
            parts.append(f"alpha = {float(loss.alpha):g}")
        parts.append(f"beta = {float(loss.beta_value(n_classes, cost)):.6g}")
    tau = getattr(loss, "tau", None)
    if tau is not None:
        parts.append(f"tau = {float(tau):g}")
    return f"{loss.name} ({', '.join(parts)})" if parts else loss.name


def _best_witness(loss: Loss, facts: Facts, found: SearchFindings, cost: float) -> Witness | None:
    """Return the clearest failure that stands when computed again, one without zeros in eta if there is one."""
    ranked = sorted(found.failures, key=lambda f: (not bool((f.eta > 0).all()), -f.separation))
    for failure in ranked:
        witness = verify(loss, facts, failure, cost)
        if witness is not None:
            return witness
    return None


def _route_b(loss: Loss, facts: Facts, n_classes: int, cost: float, seed: int) -> tuple[TheoremFour | None, str | None]:
    if not loss.has_rejector:
        return None, f"{loss.name} has no rejector of its own; it decides from its class scores"
    if not facts.rejects_by_last_score:
        return None, f"{loss.name} says it has a rejector, but its rule does not reject iff the last score is <= 0"
    if not loss.smooth:
        return None, f"{loss.name} is not continuously differentiable, which the theorem assumes"
    return theorem_four(loss, n_classes, cost, symmetric=facts.symmetric, seed=seed), None


def _beta(loss: Loss, n_classes: int, cost: float) -> BetaFindings | None:
    if not isinstance(loss, PairwiseLoss):
        return None
    try:
        return BetaFindings(float(loss.beta_value(n_classes, cost)), *beta_bounds(loss, n_classes, cost))
    except CostRangeError:
        return None


def _bound(loss: Loss, cost: float) -> ExcessRiskBound | None:
    try:
        return excess_risk_bound(loss, cost)
    except (NoBoundError, CostRangeError):
        return None
