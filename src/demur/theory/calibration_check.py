"""Is a loss calibrated for rejection? By its definition, by Theorem 4, and by a certificate where there is one.

By definition: minimise the pointwise risk at many eta, decide with the rule, compare with the decision of least cost. A
wrong decision refutes the loss only if it is confirmed by a second computation (:mod:`demur.theory.witness`).
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from demur.losses import Loss
from demur.losses.loss import Proof
from demur.losses.pairwise import PairwiseLoss
from demur.losses.registry import RuleFunction, RuleName
from demur.margins import own_fact
from demur.theory.bayes import (
    REJECT,
    WRONG,
    CostLike,
    CostRangeError,
    LossContractError,
    NoBoundError,
    RuleWarning,
    as_target,
    require_n_classes,
)
from demur.theory.calibration_report import BetaFindings, CalibrationReport, SearchFindings
from demur.theory.descent import ENDLESS, Deadline
from demur.theory.examined_loss import (
    ExaminedLoss,
    LossLike,
    as_loss,
    examine,
    weigh,
    wide_scores,
)
from demur.theory.excess_bounds import ExcessRiskBound, excess_risk_bound
from demur.theory.pointwise_risk import FAR_OUT, Minima, find_minima, settle
from demur.theory.simplex import adversarial_eta, over_all_classes, random_eta, structured_eta, tops_around
from demur.theory.structure import LEAST_COST, N_SCORES, Certificate, agrees, prove
from demur.theory.theorem_four import TheoremFour, beta_bounds, theorem_four
from demur.theory.witness import Witness, verify, witnessed
from demur.workers import single_threaded_kernels

NEAR = 1e-3
"""Distance to the boundary between two decisions below which a seemingly wrong decision is examined more thoroughly."""
SAMPLE = 24
"""Number of eta to try if a theorem proves that the loss is calibrated."""
PROVED_SECONDS = 5.0
"""Time limit in seconds for them."""


@single_threaded_kernels()
def check_calibration(
    loss: LossLike,
    n_classes: int,
    cost: CostLike,
    *,
    rule: RuleName | RuleFunction | None = None,
    outputs: int | None = None,
    seed: int = 0,
    seconds: float = 60.0,
) -> CalibrationReport:
    """Check whether minimising a loss leads to the decisions of least cost.

    There are three verdicts. REFUTED: there is an eta at which the loss's risk is lower with a wrong decision than with
    any right one, by more than the error of the computation. CALIBRATED: a certificate proves it, or a search resolved
    every eta it tried and found no wrong decision; the report says which. INCONCLUSIVE: neither, and the report says
    what would settle it.

    Parameters
    ----------
    loss : str, Loss or callable
        Loss to check: a registered name, a loss object, or a function of (scores, y, cost); see
        :class:`~demur.theory.FunctionLoss`.
    n_classes : int
        Number of classes K, at least 2.
    cost : float, array or CostMatrix
        Cost c of rejecting, in (0, 1 - 1/K); for larger c Chow's rule never rejects. Or K costs, one for rejecting each
        class; or a cost matrix of shape (K, K + 1). A function and its rule receive it as a float or a tensor; a loss
        with probabilities decides by the least expected cost.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        Decision rule of a plain function; see :class:`~demur.theory.FunctionLoss`. "softmax" by default, and
        "reject-score" where there is one score more than there are classes.
    outputs : int, optional
        Number of scores of a plain function. One per class by default, and one more with "rejector" and
        "reject-score".
    seed : int
        Random seed of the search.
    seconds : float
        Limit of CPU time, after which the result so far is reported. CPU time does not depend on the load of the
        machine.

    Returns
    -------
    CalibrationReport
        ``print`` it.

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
    RuleWarning
        If the rule can never answer some class.

    Examples
    --------
    >>> report = check_calibration("ce", n_classes=3, cost=0.2)
    >>> report.verdict, report.evidence
    ('calibrated', 'theorem')
    >>> report = check_calibration("apc+log", n_classes=3, cost=0.2)
    >>> report.verdict, sorted(report.fails), report.routes_agree
    ('refuted', ['false_reject'], True)
    >>> report.counterexample.round(3)
    array([0.83 , 0.085, 0.085])
    """
    n_classes = require_n_classes(n_classes)
    target = as_target(cost, n_classes)
    single = target.single
    made = as_loss(loss, n_classes, single, rule=rule, outputs=outputs)
    subject = examine(made, target, deadline=Deadline(seconds), seed=seed)
    certificate = certify(made, n_classes, single)
    _warn_if_never_answered(subject)
    slopes, why_not = _by_theorem_four(subject)
    stages = _stages(subject)
    if certificate is not None:
        subject = replace(subject, deadline=Deadline(min(seconds, PROVED_SECONDS)))
        first = next(stages)
        stages = iter([first[:: max(1, len(first) // SAMPLE)]])
    elif single is not None and subject.twice and made.smooth:
        stages = chain(stages, adversarial_eta(subject, single))
    search = Search(subject)
    if not search.refute_constant():
        search.run(stages)
    verdict = search.verdict
    if verdict == "calibrated" and slopes is not None and slopes.fails:
        verdict = "inconclusive"
    if certificate is not None and verdict != "refuted":
        verdict = "calibrated"
    calibrated = verdict == "calibrated"
    return CalibrationReport(
        describe(made, n_classes, single),
        n_classes,
        np.asarray(target.cost) if single is None else single,
        verdict=verdict,
        fails=frozenset(search.witnesses),
        witnesses=tuple(search.witnesses.values()),
        search=search.found,
        certificate=certificate if calibrated else None,
        theorem_four=slopes,
        no_theorem_four=why_not,
        beta=_beta(subject),
        bound=_bound(subject) if calibrated else None,
        n_outputs=subject.n_outputs,
        never_answers=subject.never_answers,
        convex=subject.convex,
        stepped=subject.stepped,
        subject=replace(subject, deadline=ENDLESS),
    )


def describe(loss: Loss, n_classes: int, cost: float | None) -> str:
    """Return the name of a loss with the hyper-parameters that matter.

    Examples
    --------
    >>> from demur.losses import get
    >>> describe(get("apc+log"), 3, 0.2), describe(get("ova+hin"), 3, 0.2)
    ('apc+log (beta = 3.2)', 'ova+hin (tau = 0)')
    """
    shown = {name: getattr(loss, name, None) for name in ("alpha", "tau")}
    shown |= {} if cost is None else loss.hyper_values(n_classes, cost)
    parts = [f"{name} = {float(value):.6g}" for name, value in shown.items() if value is not None]
    parts = [part for part in parts if part != "alpha = 1"]
    return f"{loss.name} ({', '.join(parts)})" if parts else loss.name


def certify(loss: Loss, n_classes: int, cost: float | None) -> Certificate | None:
    """Return a proof that a loss is calibrated, or None if there is none or its hypotheses do not hold.

    The code of the loss and of its rule is analysed, and proved calibrated if its structure is recognised
    (:mod:`demur.theory.structure`). A loss of another kind may state its own argument (``Loss.proof``); then its values
    and decisions are compared with the argument at random scores. A subclass is not covered by the argument of its
    parent, because it may have changed the formula.

    Parameters
    ----------
    loss : Loss
    n_classes : int
    cost : float or None
        One price of rejecting, in (0, 1/2); there are no proofs for other costs.

    Examples
    --------
    >>> from demur.losses import get
    >>> certificate = certify(get("ova+log"), 4, 0.2)
    >>> certificate.method
    'one score at a time'
    """
    stated = own_fact(loss, "proof")
    if cost is None or not LEAST_COST <= cost < 0.5:
        return None
    if stated is None:
        return prove(loss, n_classes, cost)
    proof: Proof | None = stated(n_classes, cost)
    if proof is None:
        return None

    def decide(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        acceptance = proof.acceptance(scores)
        return loss.class_scores(scores, n_classes).argmax(-1), acceptance <= 0, acceptance

    if None in proof.checked or not agrees(loss, n_classes, cost, proof.value, decide):
        return None
    compared = f"the code agrees with the argument at {N_SCORES} random scores"
    return Certificate(proof.method, proof.statement, (compared, *filter(None, proof.checked)))


def _warn_if_never_answered(subject: ExaminedLoss) -> None:
    missing = subject.never_answers
    if not missing:
        return
    which = ", ".join(map(str, missing))
    assumed = f" {subject.n_outputs} scores were assumed; say if the loss takes another number (outputs=, --outputs)."
    warnings.warn(
        f"the rule of {subject.loss.name} never answered class {which}, whatever the scores."
        f"{assumed * subject.outputs_assumed}",
        RuleWarning,
        stacklevel=4,
    )


@dataclass
class Search:
    """The search over eta: its results, the witnesses found, and how near to each boundary decisions were right."""

    subject: ExaminedLoss
    witnesses: dict[str, Witness] = field(default_factory=dict)
    found: SearchFindings = field(default_factory=SearchFindings)
    pool: list[Tensor] = field(default_factory=list)
    nearest: dict[tuple[float, float], float] = field(default_factory=dict)

    def run(self, stages: Iterable[Tensor]) -> None:
        """Try the stages of eta in order; stop when a failure is clear or the time is up."""
        deadline, found = self.subject.deadline, self.found
        self.pool = []
        for eta in filter(len, stages):
            if self.witnesses:
                break
            if deadline.passed:
                found.n_untried += len(eta)
            else:
                self._stage(eta)
        found.timed_out = deadline.passed and not self.witnesses
        if not (self.witnesses or found.n_right or found.timed_out or found.n_indifferent):
            raise LossContractError(
                f"the pointwise risk of {self.subject.loss.name} could not be minimised at any of {found.n_eta} "
                "distributions. Give a loss that has a lower bound; NLLLoss needs log_softmax(scores)."
            )

    def refute_constant(self) -> bool:
        """Refute a loss that is the same for all scores: a wrong decision then has the same risk as the right one."""
        subject, target = self.subject, self.subject.target
        scores = wide_scores(subject.n_outputs, subject.generator())
        each = subject.each_value(scores)
        if bool((each != each[0]).any()):
            return False
        for certainty in (0.99, 0.0):  # a rule that always takes one decision is wrong at one of them
            eta = torch.full((subject.n_classes,), (1 - certainty) / subject.n_classes, dtype=torch.float64)
            eta[0] += certainty
            excess = target.excess(subject.decide(scores), eta.expand(len(scores), -1))
            if float(excess.max()) > WRONG:
                risk = float(weigh(each[0], eta) * subject.scale.unit + subject.scale.offset)
                why = "exact: the loss is the same for all scores"
                found = witnessed(subject, eta, scores[excess.argmax()], (risk, risk), 0.0, why)
                self.witnesses[found.kind] = found
        return bool(self.witnesses)

    @property
    def verdict(self) -> str:
        """The verdict of the search alone."""
        if self.witnesses:
            return "refuted"
        settled = self.found.n_right == self.found.n_eta and not self.found.timed_out and not self.subject.stepped
        return "calibrated" if settled else "inconclusive"

    def _stage(self, eta: Tensor) -> None:
        subject = self.subject
        found = find_minima(subject, eta)
        self.pool.append(found.scores[found.risk.isfinite()])
        scores, risk = found.scores.clone(), found.risk.clone()
        if not subject.convex:
            self._lower(eta, scores, risk, self._known(300))
        endless = ~found.converged & (scores.abs().amax(-1) > FAR_OUT)
        wrong = subject.is_wrong(scores, eta) & ~endless
        self._verify(eta, scores, risk, wrong)
        torn = self._torn(eta, scores, risk, wrong, found)
        lost = ~found.converged & ~wrong
        near = subject.target.clearance(eta) < NEAR
        doubtful = ((lost | torn | wrong) & near & ~endless).nonzero()[:, 0]
        if len(doubtful) and not self.witnesses and not subject.deadline.passed:
            candidates = torch.stack([scores[doubtful], found.rival[doubtful]])
            scores[doubtful], right_after = settle(subject, eta[doubtful], torch.unique(candidates, dim=0))
            for mask in (lost, torn, wrong):
                mask[doubtful[right_after]] = False
        right = ~(lost | torn | wrong)
        count = self.found
        count.n_eta += len(eta)
        count.n_right += int(right.sum())
        count.n_near += int((~right & near).sum())
        count.n_indifferent += int((torn & ~lost & ~near).sum())
        count.n_unresolved += int((~right & ~near & (lost | ~torn)).sum())
        top = eta.argmax(-1) * (not subject.symmetric)
        sides = torch.stack([subject.target.best(eta) == REJECT, top, subject.target.clearance(eta)], -1)
        for rejecting, k, distance in sides[right].tolist():
            self.nearest[rejecting, k] = min(distance, self.nearest.get((rejecting, k), distance))
        count.resolution = max(self.nearest.values(), default=count.resolution)

    def _known(self, n: int) -> Tensor:
        """Return at most n of the scores that minimise the risk somewhere."""
        pool = torch.cat(self.pool)
        return pool[:: max(1, -(-len(pool) // n))]

    def _lower(self, eta: Tensor, scores: Tensor, risk: Tensor, others: Tensor) -> None:
        """Replace scores, in place, by other scores with a lower risk at the same eta."""
        each = self.subject.each_value(others)
        for row in range(len(eta)):
            least = weigh(each, eta[row]).min(0)
            if float(least.values) < float(risk[row]) - self.subject.tolerance:
                scores[row], risk[row] = others[least.indices], least.values

    def _verify(self, eta: Tensor, scores: Tensor, risk: Tensor, wrong: Tensor) -> None:
        """Verify wrong decisions, the clearest first; correct, in place, those that were no minimum."""
        subject, target = self.subject, self.subject.target
        decision = subject.decide(scores)
        excess = target.excess(decision, eta)
        clarity = excess * (1 - eta.amax(-1)).clamp(max=0.05) * torch.where((eta > 0).all(-1), 1.0, 1e-3)
        if target.single is not None:
            acceptance = subject.loss.rule(scores, target.cost).acceptance.detach()
            clarity = clarity * acceptance.abs().clamp(1e-6, 10.0)
        best = target.best(eta)
        failures = n_verified = 0
        for row in sorted(wrong.nonzero()[:, 0].tolist(), key=lambda r: -float(clarity[r])):
            if not wrong[row]:
                continue
            kind = target.kind(int(best[row]), int(decision[row]))
            if kind in self.witnesses or failures >= 5 or n_verified >= 30 or subject.deadline.passed:
                continue
            n_verified += 1
            witness, right = verify(subject, eta[row], scores[row], self._known(600))
            if subject.deadline.passed:  # it was cut short, so that its best right scores may not be the best
                continue
            if witness is not None and self._counts(witness, int(best[row])):
                self.witnesses[witness.kind] = witness
            elif right.risk < float(risk[row]) - subject.tolerance:
                self.pool.append(right.scores[None])
                rows = wrong.nonzero()[:, 0]
                lowered, lower_risk = scores[rows], risk[rows]
                self._lower(eta[rows], lowered, lower_risk, right.scores[None])
                scores[rows], risk[rows] = lowered, lower_risk
                wrong[rows] = subject.is_wrong(lowered, eta[rows])
            else:
                failures += float(excess[row]) > NEAR

    def _counts(self, witness: Witness, best: int) -> bool:
        """Return whether a witness refutes.

        It does not for a piecewise constant loss, whose lowest step may have been missed, nor if no scores answer some
        class because the assumed number of scores may be wrong.
        """
        subject = self.subject
        if witness.gap < float("inf"):
            return not subject.stepped
        return not (subject.outputs_assumed and best in subject.never_answers) or (
            len(subject.never_answers) == subject.n_classes
        )

    def _torn(self, eta: Tensor, scores: Tensor, risk: Tensor, wrong: Tensor, found: Minima) -> Tensor:
        """Return rows at which right and wrong decisions have equally small risks: the loss is indifferent."""
        subject = self.subject
        as_low = subject.risk(found.rival, eta) <= risk + subject.tolerance
        torn = (subject.is_wrong(found.rival, eta) != wrong) & as_low
        clear = ((subject.target.clearance(eta) >= NEAR) & ~wrong & ~torn).nonzero()[:, 0]
        generator = subject.generator()
        known = self._known(200)
        each_known = subject.each_value(known)
        n_tried = min(40, max(4, 6_000_000 // (60 * subject.n_classes * subject.n_outputs)))
        size = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64).repeat(20).unsqueeze(-1)
        for row in clear[:: max(1, len(clear) // n_tried)].tolist():
            around = scores[row] + size * torch.randn(60, subject.n_outputs, generator=generator, dtype=torch.float64)
            each = torch.cat([subject.each_value(around), each_known])
            low = weigh(each, eta[row]) <= risk[row] + subject.tolerance * 1e-3
            as_good = torch.cat([around, known])[low]
            if len(as_good):
                torn[row] |= bool(subject.is_wrong(as_good, eta[row].expand(len(as_good), -1)).any())
        return torn & ~wrong


def _stages(subject: ExaminedLoss) -> Iterator[Tensor]:
    """Yield the eta to try: first extreme ones, so that every kind of failure can be found, then random ones."""
    generator = subject.generator()
    n_classes, target = subject.n_classes, subject.target
    slow = not subject.loss.smooth or not subject.twice
    if target.single is None:
        corners = 0.9 * torch.eye(n_classes, dtype=torch.float64) + 0.1 / n_classes
        drawn = random_eta(target, 6 if slow else 40, generator)
        if not len(drawn):
            raise CostRangeError("with these costs one decision is the best for all class probabilities.")
        yield torch.cat([corners[target.clearance(corners) > NEAR], drawn])
        yield random_eta(target, 3 if slow else 20, generator)
        return
    structured = structured_eta(tops_around(target.single, n_classes), n_classes)
    if subject.symmetric:
        yield structured[:: 3 if slow else 1]
        yield random_eta(target, 3 if slow else 20, generator, tied=True)
    else:
        most = 96 if slow else max(240, min(24 * n_classes, 800))
        yield over_all_classes(structured, max(8 * n_classes, most))
    if slow and n_classes > 30:
        return  # a hundred free scores are a large linear program for each row
    n_pairs = min(max(40_000 // n_classes**3, 1), 2 if slow else 15)
    yield random_eta(target, n_pairs, generator)[:: 3 if slow else 1]


def _by_theorem_four(subject: ExaminedLoss) -> tuple[TheoremFour | None, str | None]:
    loss, cost = subject.loss, subject.target.single
    if cost is None:
        return None, "the theorem is about one price of rejecting"
    if not loss.has_rejector:
        return None, f"{loss.name} has no rejector; it decides from its class scores"
    if not subject.rejects_by_last_score:
        return None, f"the rule of {loss.name} does not reject iff the last score is <= 0"
    if not loss.smooth or not subject.twice:
        return None, f"{loss.name} is not continuously differentiable, which the theorem assumes"
    if not subject.convex and not loss.slope_decides:
        return None, f"{loss.name} is not convex, so that its slope at r = 0 does not tell where its minimum is"
    found = theorem_four(subject)
    return (None, "the time was up") if subject.deadline.passed else (found, None)


def _beta(subject: ExaminedLoss) -> BetaFindings | None:
    loss, cost = subject.loss, subject.target.single
    if cost is None or cost >= 0.5 or not isinstance(loss, PairwiseLoss):
        return None
    acc, rej = beta_bounds(loss, subject.n_classes, cost)
    return BetaFindings(float(loss.beta_value(subject.n_classes, cost)), acc, rej)


def _bound(subject: ExaminedLoss) -> ExcessRiskBound | None:
    if subject.target.single is None:
        return None
    try:
        return excess_risk_bound(subject.loss, subject.target.single)
    except (NoBoundError, CostRangeError):
        return None
