r"""Is a joint loss calibrated for deferral? The checker of :mod:`demur.theory`, with experts.

At a point x only the joint distribution of the class and of which experts are right matters: a probability for each of
the :math:`K 2^J` outcomes, in the place of eta. Each outcome has a loss, and each of the K + J actions a cost in each
outcome: 1 for a wrong class; for an expert its price, plus 1 if it is wrong. The search, its witnesses and their
verification are those of :func:`demur.theory.check_calibration`.

A loss of two stages is not minimised as a sum: a wrong class may make the second stage cheaper. Its first stage is
cross-entropy, whose minimiser is :math:`g = \log\eta`. So the class scores are set to :math:`\log\eta` for several
eta, and the loss is checked as a function of the experts' scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from demur.array_types import Floats
from demur.deferral.joint_losses import JointLoss, resolve_joint
from demur.errors import InputError
from demur.lazy_torch import F, Tensor, torch
from demur.losses import FunctionLoss
from demur.rules import Decision
from demur.theory.bayes import Target, require_n_classes
from demur.theory.calibration_check import NEAR, Search
from demur.theory.calibration_report import SearchFindings
from demur.theory.descent import Deadline
from demur.theory.examined_loss import ExaminedLoss, examine
from demur.theory.simplex import random_eta
from demur.theory.witness import Witness
from demur.workers import single_threaded_kernels

_MOST_OUTCOMES = 400
_TOPS = (0.0, 0.15, 0.45, 0.8)
"""Positions of the likeliest class between equally likely (0) and certain (1), in the structured part of the search."""
_STEPS = (-0.1, -0.02, 0.02, 0.1)
"""Differences between the value of an expert and that of the likeliest class."""


@dataclass(frozen=True)
class DeferralReport:
    """What :func:`check_deferral` found; ``print`` it.

    Parameters
    ----------
    loss : str
    n_classes, n_experts : int
    prices : tuple of float
    verdict : str
        "calibrated", "refuted" or "inconclusive".
    witness : Witness or None
        Counterexample of a refutation: the scores, both risks, the gap between them and its error.
    outcomes : array of shape (n_classes, 2, ..., 2) or None
        The distribution at which it is refuted: of the class, and for each expert of being wrong (0) or right (1).
    search : SearchFindings
        Numbers of distributions tried, by outcome.
    """

    loss: str
    n_classes: int
    n_experts: int
    prices: tuple[float, ...]
    verdict: str
    witness: Witness | None
    outcomes: Floats | None
    search: SearchFindings

    @property
    def eta(self) -> Floats | None:
        """The class probabilities of the counterexample."""
        return None if self.outcomes is None else self.outcomes.reshape(self.n_classes, -1).sum(axis=1)

    @property
    def accuracy(self) -> Floats | None:
        """P(expert right) of each expert at the counterexample."""
        if self.outcomes is None:
            return None
        return np.array([self.outcomes.take(1, axis=1 + expert).sum() for expert in range(self.n_experts)])

    def __str__(self) -> str:
        prices = ", ".join(f"{price:g}" for price in self.prices)
        head = f"{self.loss}: {self.verdict} for deferral with {self.n_classes} classes and experts at {prices}"
        found = self.search
        tried = (
            f"  {found.n_eta} distributions of class and experts: {found.n_right} decided correctly, "
            f"{found.n_near} too close to a boundary, {found.n_unresolved + found.n_indifferent} unresolved, "
            f"{found.n_untried} untried."
        )
        witness = self.witness
        if witness is None or self.eta is None or self.accuracy is None:
            return f"{head}\n{tried}"
        return (
            f"{head}\n{tried}\n"
            f"  eta = {self.eta.round(4).tolist()}, P(expert right) = {self.accuracy.round(4).tolist()}: best is to "
            f"{witness.chow} (cost {witness.chow_risk:.4f}), the minimiser's decision is to {witness.taken} "
            f"({witness.taken_risk:.4f}).\n"
            f"  Least risk {witness.least_risk:.8g}; with the right decision at least {witness.chow_least_risk:.8g}; "
            f"gap {witness.gap:.2g}, error below {witness.error:.1g} ({witness.precision})."
        )


@single_threaded_kernels()
def check_deferral(
    loss: str | JointLoss | type[JointLoss],
    n_classes: int,
    n_experts: int = 1,
    prices: Sequence[float] | None = None,
    *,
    seed: int = 0,
    seconds: float = 60.0,
) -> DeferralReport:
    """Check whether minimising a joint loss leads to the cheapest action, for every class and expert.

    Verdicts as in :func:`demur.theory.check_calibration`. REFUTED: there is a distribution of class and experts at
    which the loss's risk is lower with a wrong action than with any right one, by more than the error of the
    computation, which is done again by other means. CALIBRATED: a search resolved every distribution it tried and
    found no wrong action. INCONCLUSIVE: neither.

    Parameters
    ----------
    loss : str, JointLoss or class
    n_classes, n_experts : int
    prices : sequence of float, optional
        0 for every expert by default.
    seed : int
    seconds : float
        Limit of computing time, after which the result so far is reported.

    Examples
    --------
    >>> report = check_deferral("ms", n_classes=2)
    >>> report.verdict, report.search.n_right == report.search.n_eta
    ('calibrated', True)
    """
    joint = resolve_joint(loss)
    n_classes = require_n_classes(n_classes)
    if not isinstance(n_experts, int) or not 1 <= n_experts <= np.log2(_MOST_OUTCOMES / n_classes):
        raise InputError(
            f"the number of experts must be a whole number from 1 on, with at most {_MOST_OUTCOMES} outcomes (classes "
            f"times 2 to the power of experts), got {n_experts!r} for {n_classes} classes."
        )
    asked = tuple(np.zeros(n_experts) if prices is None else np.asarray(prices, dtype=np.float64).tolist())
    if len(asked) != n_experts or not all(0 <= price < np.inf for price in asked):
        raise InputError(f"prices must be {n_experts} numbers of at least 0, got {prices!r}.")
    settings = [_Setting(joint, n_classes, asked)]
    if joint.stages:
        settings = [replace(settings[0], eta=_peaked(n_classes, top)) for top in _TOPS[1:]]
    deadline, generator = Deadline(seconds), torch.Generator().manual_seed(seed)
    subjects = [examine(one.loss(), one.target(), deadline=deadline, seed=seed) for one in settings]
    search = Search(subjects[0])
    for setting, search.subject in zip(settings, subjects, strict=True):
        search.run(setting.stages(search.subject, generator))
        if search.witnesses:
            break
    witness = next(iter(search.witnesses.values()), None)
    where = None
    if witness is not None:
        where = witness.eta.reshape(n_classes, *[2] * n_experts)
        witness = replace(witness, scores=setting.all_scores(torch.from_numpy(witness.scores)).numpy())
    return DeferralReport(joint.name, n_classes, n_experts, asked, search.verdict, witness, where, search.found)


@dataclass(frozen=True)
class _ActionTarget(Target):
    """The cost of each of K + J actions in each outcome; decisions are numbers of actions."""

    n_own: int

    def best(self, eta: Tensor) -> Tensor:
        return self.expected(eta).argmin(-1)

    def words(self, decision: int) -> str:
        return f"ask expert {decision - self.n_own}" if decision >= self.n_own else super().words(decision)


@dataclass(frozen=True)
class _Setting:
    """A joint loss to check: of all scores, or with ``eta`` of the experts' scores, at the class scores log(eta).

    Outcomes are numbered in this order: the class, then wrong (0) or right (1) for each expert.
    """

    joint: JointLoss
    n_classes: int
    prices: tuple[float, ...]
    eta: Tensor | None = None

    @property
    def outcomes(self) -> Tensor:
        """The class of each outcome, and which experts are right."""
        return torch.tensor(list(product(range(self.n_classes), *[(0, 1)] * len(self.prices))), dtype=torch.float64)

    def target(self) -> _ActionTarget:
        outcomes = self.outcomes
        wrong_class = 1 - F.one_hot(outcomes[:, 0].long(), self.n_classes).double()
        asking = torch.tensor(self.prices, dtype=torch.float64) + 1 - outcomes[:, 1:]
        matrix = torch.cat([wrong_class, asking], -1)
        return _ActionTarget(matrix, matrix, self.n_classes)

    def loss(self) -> FunctionLoss:
        """Return the joint loss as a function of the outcome's number, with its rule over actions."""
        joint, outcomes = self.joint, self.outcomes
        targets = joint.targets(outcomes[:, 0], outcomes[:, 1:], self.prices)

        def value(scores: Tensor, y: Tensor, cost: Any) -> Tensor:
            return joint.forward(self.all_scores(scores), targets[y].to(scores.dtype))

        def rule(scores: Tensor, cost: Any) -> Decision[Tensor]:
            found = joint.decide(self.all_scores(scores), self.prices)
            action = torch.where(found.reject, self.n_classes + torch.as_tensor(found.ask), found.label)
            return Decision.from_acceptance(action, torch.ones(action.shape, dtype=torch.float64))

        n_outputs = len(self.prices) + (self.n_classes if self.eta is None else 0)
        smooth = joint.smooth or joint.stages
        return FunctionLoss(value, rule, outputs=n_outputs, title=joint.name, differentiable=smooth)

    def all_scores(self, scores: Tensor) -> Tensor:
        """Return the scores of classes and experts."""
        if self.eta is None:
            return scores
        return torch.cat([self.eta.log().to(scores.dtype).expand(*scores.shape[:-1], -1), scores], -1)

    def stages(self, subject: ExaminedLoss, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield distributions to try: experts who err at random, about as good as the best class; then any."""
        step = 1 if subject.loss.smooth and subject.twice else 3
        tops = [_peaked(self.n_classes, top) for top in _TOPS] if self.eta is None else [self.eta]
        rows = torch.stack([row for eta in tops for row in self.about_as_good(eta)])
        yield rows[subject.target.clearance(rows) > NEAR][::step]
        if self.eta is None:
            yield random_eta(subject.target, 20 // step, generator)
            yield random_eta(subject.target, 20 // step, generator)
            return
        shares = torch.empty(60, self.n_classes, 2 ** len(self.prices), dtype=torch.float64)
        shares.exponential_(generator=generator).square_()
        rows = (self.eta[:, None] * shares / shares.sum(-1, keepdim=True)).flatten(1)
        yield rows[subject.target.clearance(rows) > NEAR]

    def about_as_good(self, eta: Tensor) -> Iterator[Tensor]:
        """Yield distributions in which experts err independently, one of them about as good as the likeliest class."""
        prices, outcomes = torch.tensor(self.prices, dtype=torch.float64), self.outcomes
        for step, expert in product(_STEPS, range(len(prices))):
            behind = torch.full_like(prices, step - 0.07)
            behind[expert] = step
            able = (eta.max() + prices + behind).clamp(0.02, 0.98)
            chances = torch.where(outcomes[:, 1:] == 1, able, 1 - able)
            yield eta[outcomes[:, 0].long()] * chances.prod(-1)


def _peaked(n_classes: int, top: float) -> Tensor:
    """Return equal class probabilities, moved so far towards the last class."""
    eta = torch.full((n_classes,), (1 - top) / n_classes, dtype=torch.float64)
    eta[-1] += top
    return eta
