"""Is a loss calibrated for rejection? By its definition, by Theorem 4, and by a certificate where there is one.

By definition: minimise the pointwise risk at many eta, decide with the rule, compare with the decision of least cost. A
wrong decision refutes the loss only if it stands when everything is computed again (:mod:`demur.theory.witness`).
"""

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from demur.losses import FunctionLoss, Loss
from demur.losses.pairwise import PairwiseLoss
from demur.theory.bayes import (
    CostLike,
    CostRangeError,
    LossContractError,
    NoBoundError,
    RuleWarning,
    as_target,
    require_n_classes,
)
from demur.theory.calibration_report import BetaFindings, CalibrationReport, SearchFindings
from demur.theory.certificate import certify
from demur.theory.descent import Deadline
from demur.theory.examined_loss import ExaminedLoss, LossLike, RuleFunction, RuleName, as_loss, examine, weigh
from demur.theory.excess_bounds import ExcessRiskBound, excess_risk_bound
from demur.theory.pointwise_risk import FAR_OUT, WRONG, Minima, find_minima, settle
from demur.theory.simplex import (
    boundary_eta,
    over_all_classes,
    random_eta,
    random_tied_eta,
    structured_eta,
    tops_around,
)
from demur.theory.theorem_four import TheoremFour, beta_bounds, theorem_four
from demur.theory.witness import Witness, kind_of, verify
from demur.workers import single_threaded_kernels

__all__ = ["Search", "check_calibration", "describe"]

NEAR = 1e-3
"""Nearer to the boundary between two decisions, an eta that seems wrong is settled with more work before it counts."""


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
        A registered name, a loss, or a function of (scores, y, cost); see :class:`~demur.theory.FunctionLoss`.
    n_classes : int
        K, at least 2.
    cost : float, array or CostMatrix
        One price c in (0, 1 - 1/K): from there on Chow's rule never rejects. Or the price of rejecting each class, K
        numbers. Or a whole cost matrix, (K, K + 1). A function and its rule receive what is given, as a float or a
        tensor; a loss with probabilities decides by their least expected cost.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        For a plain function: how its scores decide; see :class:`~demur.theory.FunctionLoss`. "softmax" by default, and
        "reject-score" where there is one score more than there are classes.
    outputs : int, optional
        For a plain function: how many scores it takes. One per class by default, and one more with "rejector" and
        "reject-score".
    seed : int
        Of the random part of the search.
    seconds : float
        When to stop and report what has been found: computing time, so that the verdict of a busy machine is that of an
        idle one.

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
    made = as_loss(loss, n_classes, target.single, rule=rule, outputs=outputs)
    subject = examine(made, target, deadline=Deadline(seconds))
    _warn_if_never_answered(subject)
    slopes, why_not = _by_theorem_four(subject, seed)
    certificate = certify(subject.loss, n_classes, target.single)
    stages = _stages(subject, slopes, seed)
    search = Search(subject, seed)
    if certificate is not None:  # of what is proved, a sample
        first = next(stages)
        stages = iter([first[:: max(1, min(4, len(first) // 20))]])
    search.run(stages)
    findings = search.findings()
    if not search.witnesses and not findings.n_right and not findings.timed_out and not findings.n_indifferent:
        raise LossContractError(
            f"the pointwise risk of {subject.loss.name} could not be minimised at any of {findings.n_unresolved} class "
            "probabilities. Does it have a lower bound? A loss without one cannot be minimised."
        )
    fails = frozenset(search.witnesses)
    if fails:
        certificate = None
    verdict = "calibrated" if certificate is not None else _verdict(subject, findings, fails, slopes)
    single = target.single
    return CalibrationReport(
        describe(subject.loss, n_classes, single),
        n_classes,
        cost if single is None else single,
        verdict=verdict,
        fails=fails,
        witnesses=tuple(search.witnesses.values()),
        search=findings,
        certificate=certificate,
        theorem_four=slopes,
        no_theorem_four=why_not,
        beta=_beta(subject),
        bound=_bound(subject) if verdict == "calibrated" else None,
        n_outputs=subject.n_outputs,
        never_answers=subject.facts.never_answers,
        convex=subject.facts.convex,
        stepped=subject.facts.stepped,
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


def _verdict(subject: ExaminedLoss, findings: SearchFindings, fails: frozenset[str], slopes: TheoremFour | None) -> str:
    if fails:
        return "refuted"
    open_rows = findings.n_unresolved + findings.n_indifferent
    by_slopes = slopes is not None and bool(slopes.fails)
    unsure = open_rows or findings.n_near or findings.timed_out or by_slopes or subject.facts.stepped
    return "inconclusive" if unsure else "calibrated"


def _outputs_assumed(loss: Loss) -> bool:
    return isinstance(loss, FunctionLoss) and loss.outputs is None


def _warn_if_never_answered(subject: ExaminedLoss) -> None:
    missing = subject.facts.never_answers
    if not missing:
        return
    which = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    hint = ""
    if _outputs_assumed(subject.loss):
        hint = (
            f" {subject.n_outputs} scores were assumed; if the loss takes another number, say so (outputs=, --outputs)."
        )
    warnings.warn(
        f"the rule of {subject.loss.name} never answered class {which}, whatever the scores.{hint}",
        RuleWarning,
        stacklevel=4,
    )


@dataclass
class Search:
    """The search over eta: what was tried, what came of it, and the witnesses that stand."""

    subject: ExaminedLoss
    seed: int
    witnesses: dict[str, Witness] = field(default_factory=dict)
    n_right: int = 0
    n_near: int = 0
    n_unresolved: int = 0
    n_indifferent: int = 0
    n_planned: int = 0
    nearest: float = float("inf")
    margin: float = float("inf")
    stopped_early: bool = False
    helpful: dict[int, int] = field(default_factory=dict)
    pool: Tensor = field(default_factory=lambda: torch.zeros(0))

    def run(self, stages: Iterable[Tensor]) -> None:
        """Try one stage of eta after the other; end when a failure is clear or the time is up."""
        self.pool = torch.zeros(0, self.subject.n_outputs, dtype=torch.float64)
        for eta in stages:
            self.n_planned += len(eta)
            if self.subject.deadline.passed:
                continue
            self._stage(eta)
            if self.witnesses:
                self.stopped_early = True
                return

    def findings(self) -> SearchFindings:
        """Return what was found, as numbers."""
        settled = self.n_right + self.n_near + self.n_unresolved + self.n_indifferent
        return SearchFindings(
            n_eta=settled,
            n_right=self.n_right,
            n_near=self.n_near,
            n_unresolved=self.n_unresolved,
            n_indifferent=self.n_indifferent,
            n_untried=0 if self.stopped_early else self.n_planned - settled,
            margin=self.margin if self.margin < float("inf") else None,
            nearest=self.nearest,
            stopped_early=self.stopped_early,
            timed_out=self.subject.deadline.passed and not self.stopped_early,
            fails=frozenset(self.witnesses),
        )

    def _stage(self, eta: Tensor) -> None:
        subject = self.subject
        found = find_minima(subject, eta, seed=self.seed, helpful=self.helpful)
        self.pool = torch.cat([self.pool, found.scores[found.risk.isfinite()]])
        scores, risk = self._lowered(eta, found)
        decision = subject.decide(scores)
        endless = ~found.converged & (scores.abs().amax(-1) > FAR_OUT)
        wrong = (subject.target.excess(decision, eta) > WRONG) & ~endless
        open_rows = self._weigh(eta, scores, decision, wrong)
        torn = self._torn(eta, scores, risk, wrong, found)
        lost = ~found.converged & ~wrong
        near = subject.target.clearance(eta) < NEAR
        doubtful = ((lost | torn | open_rows) & near & ~endless).nonzero()[:, 0]
        if len(doubtful) and not self.witnesses and not subject.deadline.passed:
            ways = torch.unique(torch.stack([scores[doubtful], found.rival[doubtful]]), dim=0)
            scores[doubtful], right_after = settle(subject, eta[doubtful], list(ways))
            for mask in (lost, torn, open_rows, wrong):
                mask[doubtful[right_after]] = False
        self.n_near += int(((lost | torn | open_rows) & near).sum())
        self.n_unresolved += int(((lost | (open_rows & ~torn)) & ~near).sum())
        self.n_indifferent += int((torn & ~lost & ~near).sum())
        right = ~(lost | torn | open_rows | wrong)
        self.n_right += int(right.sum())
        if bool(right.any()):
            self.nearest = min(self.nearest, float(subject.target.clearance(eta[right]).min()))
            if subject.target.single is not None:
                acceptance = subject.loss.rule(scores[right], subject.target.cost).acceptance
                self.margin = min(self.margin, float(acceptance.detach().abs().min()))

    def _lowered(self, eta: Tensor, found: Minima) -> tuple[Tensor, Tensor]:
        """Return the minimisers, replaced by those of other rows where these have a lower risk."""
        scores, risk = found.scores.clone(), found.risk.clone()
        if self.subject.facts.convex:
            return scores, risk
        pool = self._some_of_pool(300)
        each = self.subject.each_value(pool)
        for row in range(len(eta)):
            others = weigh(each, eta[row])
            least = int(others.argmin())
            if float(others[least]) < float(risk[row]) - self.subject.tolerance:
                scores[row], risk[row] = pool[least], others[least]
        return scores, risk

    def _some_of_pool(self, n: int) -> Tensor:
        if len(self.pool) <= n:
            return self.pool
        return self.pool[torch.linspace(0, len(self.pool) - 1, n).long()]

    def _weigh(self, eta: Tensor, scores: Tensor, decision: Tensor, wrong: Tensor) -> Tensor:
        """Verify wrong decisions, the clearest first; correct those that were no minimum; return those left open."""
        subject = self.subject
        open_rows = torch.zeros(len(eta), dtype=torch.bool)
        best = subject.target.best(eta)
        excess = subject.target.excess(decision, eta)
        rows = wrong.nonzero()[:, 0].tolist()
        if not rows:
            return open_rows
        clarity = excess * (1 - eta.amax(-1)).clamp(max=0.05) * torch.where((eta > 0).all(-1), 1.0, 1e-3)
        if subject.target.single is not None:
            acceptance = subject.loss.rule(scores, subject.target.cost).acceptance.detach()
            clarity = clarity * acceptance.abs().clamp(1e-6, 10.0)
        refuted: set[str] = set()
        failures = n_verified = 0
        for row in sorted(rows, key=lambda r: -float(clarity[r])):
            kind = kind_of(int(best[row]), int(decision[row]))
            if kind in refuted:
                open_rows[row] = True
                continue
            if failures >= 5 or n_verified >= 30 or subject.deadline.passed:
                open_rows[row] = True
                continue
            n_verified += 1
            witness, right = verify(subject, eta[row], scores[row], self._some_of_pool(600), seed=self.seed)
            if subject.deadline.passed:  # it was cut short, so that its best right scores may not be the best
                open_rows[row] = True
                continue
            if witness is not None and self._counts(witness, int(best[row])):
                self.witnesses[kind] = witness
                refuted.add(kind)
                open_rows[row] = True
                continue
            if right.risk < float(subject.risk(scores[row : row + 1], eta[row])[0]) - subject.tolerance:
                scores[row], wrong[row] = right.scores, False
                self.pool = torch.cat([self.pool, right.scores[None]])
                self._correct(eta, scores, wrong, right.scores)
                continue
            failures += float(excess[row]) > NEAR
            open_rows[row] = True
        return open_rows

    def _counts(self, witness: Witness, best: int) -> bool:
        """Return whether a witness refutes: not on a staircase, whose best step may have been missed."""
        if witness.gap == float("inf"):
            return not self._may_be_a_wrong_call(best)
        return not self.subject.facts.stepped

    def _may_be_a_wrong_call(self, best: int) -> bool:
        """Return whether no scores answer a class because the function takes another number of them than assumed."""
        missing = self.subject.facts.never_answers
        return _outputs_assumed(self.subject.loss) and best in missing and len(missing) < self.subject.n_classes

    def _correct(self, eta: Tensor, scores: Tensor, wrong: Tensor, better: Tensor) -> None:
        """Give newly found scores to the other wrong rows that they suit."""
        rows = wrong.nonzero()[:, 0]
        if not len(rows):
            return
        taken = self.subject.decide(better[None]).expand(len(rows))
        risk = self.subject.risk(better.expand(len(rows), -1), eta[rows])
        suits = risk < self.subject.risk(scores[rows], eta[rows]) - self.subject.tolerance
        suits &= self.subject.target.excess(taken, eta[rows]) <= WRONG
        scores[rows[suits]], wrong[rows[suits]] = better, False

    def _torn(self, eta: Tensor, scores: Tensor, risk: Tensor, wrong: Tensor, found: Minima) -> Tensor:
        """Return rows at which right and wrong decisions have equally small risks: the loss is indifferent."""
        subject = self.subject
        rival_wrong = subject.target.excess(subject.decide(found.rival), eta) > WRONG
        as_low = subject.risk(found.rival, eta) <= risk + subject.tolerance
        torn = (rival_wrong != wrong) & as_low
        clear = ((subject.target.clearance(eta) >= NEAR) & ~wrong & ~torn).nonzero()[:, 0]
        generator = torch.Generator().manual_seed(self.seed)
        pool = self._some_of_pool(200)
        of_pool, each_of_pool = subject.decide(pool), subject.each_value(pool)
        n_tried = min(40, max(4, 6_000_000 // (60 * subject.n_classes * subject.n_outputs)))
        for row in clear[:: max(1, len(clear) // n_tried)].tolist():
            noise = torch.randn(60, subject.n_outputs, generator=generator, dtype=torch.float64)
            size = torch.tensor([0.1, 1.0, 5.0], dtype=torch.float64).repeat(20).unsqueeze(-1)
            around = scores[row] + size * noise
            taken = torch.cat([subject.decide(around), of_pool])
            each = torch.cat([subject.each_value(around), each_of_pool])
            bad = subject.target.excess(taken, eta[row].expand(len(taken), -1)) > WRONG
            low = weigh(each, eta[row]) <= risk[row] + subject.tolerance * 1e-3
            torn[row] |= bool((bad & low).any())
        return torn & ~wrong


def _stages(subject: ExaminedLoss, slopes: TheoremFour | None, seed: int) -> Iterator[Tensor]:
    """Yield the eta to try: first the extreme ones, so that every kind of failure has its chance, then random ones."""
    generator = torch.Generator().manual_seed(seed)
    n_classes, cost, facts = subject.n_classes, subject.target.single, subject.facts
    slow = not subject.loss.smooth or not facts.twice
    many = 400_000 // n_classes**3
    if cost is None:
        rows = boundary_eta(subject.target, 40 if not slow else 6, generator)
        corners = 0.9 * torch.eye(n_classes, dtype=torch.float64) + 0.1 / n_classes
        yield torch.cat([corners[subject.target.clearance(corners) > NEAR], rows])
        yield boundary_eta(subject.target, 20 if not slow else 3, generator)
        return
    structured = structured_eta(tops_around(cost, n_classes), n_classes)
    extreme = _towards_failure(slopes, cost, n_classes)
    if facts.symmetric:
        yield torch.cat([structured[:: 3 if slow else 1], extreme])
        yield random_tied_eta(20 if slow else 200, n_classes, cost, generator)
    else:
        yield torch.cat([over_all_classes(structured, max(8 * n_classes, 96 if slow else 240)), extreme])
    if slow and n_classes > 30:
        return  # a hundred free scores are a large linear program for each row
    yield random_eta(min(max(many // (8 if slow else 1), 4), 16 if slow else 150), n_classes, cost, generator)


def _towards_failure(slopes: TheoremFour | None, cost: float, n_classes: int) -> Tensor:
    """Return the worst eta of Theorem 4, and the same a little further from the boundary."""
    rows = torch.zeros(0, n_classes, dtype=torch.float64)
    if slopes is None or not slopes.fails:
        return rows
    for worst, sign in ((slopes.worst_answer, 1), (slopes.worst_reject, -1)):
        eta = torch.from_numpy(worst.copy())
        place = int(eta.argmax())
        for step in (0.002, 0.01, 0.03):
            top = 1 - cost + sign * step * (cost if sign > 0 else 1 - cost)
            moved = eta * (1 - top) / (1 - eta[place]).clamp(min=1e-12)
            moved[place] = top
            rows = torch.cat([rows, moved[None]])
    return rows[(rows.sum(-1) - 1).abs() < 1e-9]


def _by_theorem_four(subject: ExaminedLoss, seed: int) -> tuple[TheoremFour | None, str | None]:
    loss, cost = subject.loss, subject.target.single
    if cost is None:
        return None, "the theorem is about one price of rejecting"
    if not loss.has_rejector:
        return None, f"{loss.name} has no rejector of its own; it decides from its class scores"
    if not subject.facts.rejects_by_last_score:
        return None, f"{loss.name} says it has a rejector, but its rule does not reject iff the last score is <= 0"
    if not loss.smooth or not subject.facts.twice:
        return None, f"{loss.name} is not continuously differentiable, which the theorem assumes"
    if not subject.facts.convex and not loss.slope_decides:
        return None, f"{loss.name} is not convex, so that its slope at r = 0 does not tell where its minimum is"
    found = theorem_four(
        loss, subject.n_classes, cost, symmetric=subject.facts.symmetric, seed=seed, deadline=subject.deadline
    )
    return (None, "the time was up") if subject.deadline.passed else (found, None)


def _beta(subject: ExaminedLoss) -> BetaFindings | None:
    loss, cost = subject.loss, subject.target.single
    if cost is None or not isinstance(loss, PairwiseLoss):
        return None
    try:
        acc, rej = beta_bounds(loss, subject.n_classes, cost)
    except CostRangeError:
        return None
    return BetaFindings(float(loss.beta_value(subject.n_classes, cost)), acc, rej)


def _bound(subject: ExaminedLoss) -> ExcessRiskBound | None:
    if subject.target.single is None:
        return None
    try:
        return excess_risk_bound(subject.loss, subject.target.single)
    except (NoBoundError, CostRangeError):
        return None
