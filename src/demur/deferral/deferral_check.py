r"""Is a joint loss calibrated for deferral? The checker of :mod:`demur.theory`, on what deferral can turn out to be.

At a point x nothing counts but the joint distribution of the class and of which experts are right: a probability for
each of the :math:`K 2^J` outcomes, in the place of eta. Each outcome has a loss, and each of the K + J actions a cost
in each outcome: 1 for a wrong class, the price and 1 more if it is wrong for an expert. From there the search, its
witnesses and their verification are those of :func:`demur.theory.check_calibration`.

A loss of two stages is not minimised as a sum: a wrong class may make the second stage cheaper. Its first stage is
cross-entropy, which is calibrated. The second is checked given the chosen class h: outcomes are whether h and whether
each expert is right, and one more score stands for the first stage's estimate of P(h right). The loss's own ``forward``
and ``inverse_link`` are called with class scores that choose h with that probability; what ``forward`` adds to the
cross-entropy of the class scores is the second stage, which may depend on h and on nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.deferral.joint_losses import JointLoss, resolve_joint
from demur.errors import InputError
from demur.lazy_torch import F, Tensor, torch
from demur.losses import FunctionLoss
from demur.losses.loss import score_of_label
from demur.rules import Decision
from demur.theory.bayes import LossContractError, Target, require_n_classes
from demur.theory.calibration_check import NEAR, Search
from demur.theory.calibration_report import SearchFindings
from demur.theory.descent import Deadline
from demur.theory.examined_loss import ExaminedLoss, examine
from demur.theory.simplex import random_eta
from demur.theory.witness import Witness
from demur.workers import single_threaded_kernels

__all__ = ["DeferralReport", "check_deferral"]

_MOST_OUTCOMES = 400
_TOPS = (0.0, 0.15, 0.45, 0.8)
"""How far the likeliest class is from equally likely towards certain, in the structured part of the search."""
_STEPS = (-0.1, -0.02, 0.02, 0.1)


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
        Of a refutation: the scores, both risks, the gap between them and its error.
    outcomes : array of shape (n_classes, 2, ..., 2) or None
        The distribution at which it is refuted: of the class, and for each expert of being wrong (0) or right (1). Of
        two stages the first axis is whether the chosen class is wrong (0) or right (1).
    search : SearchFindings
        How many distributions were tried, and what came of them.
    """

    loss: str
    n_classes: int
    n_experts: int
    prices: tuple[float, ...]
    verdict: str
    witness: Witness | None
    outcomes: NDArray[np.float64] | None
    search: SearchFindings

    @property
    def eta(self) -> NDArray[np.float64] | None:
        """The class probabilities of the counterexample."""
        if self.outcomes is None:
            return None
        found: NDArray[np.float64] = self.outcomes.reshape(len(self.outcomes), -1).sum(axis=1)
        return found

    @property
    def accuracy(self) -> NDArray[np.float64] | None:
        """P(expert right) of each expert at the counterexample."""
        if self.outcomes is None:
            return None
        each = [np.take(self.outcomes, 1, axis=1 + expert).sum() for expert in range(self.n_experts)]
        return np.array(each)

    def __str__(self) -> str:
        prices = ", ".join(f"{price:g}" for price in self.prices)
        many = "1 expert at price" if self.n_experts == 1 else f"{self.n_experts} experts at prices"
        head = f"{self.loss}: {self.verdict} for deferral with {self.n_classes} classes and {many} {prices}"
        found = self.search
        tried = (
            f"  {found.n_eta} distributions of class and experts: {found.n_right} decided rightly, {found.n_near} too "
            f"near a boundary to tell, {found.n_unresolved + found.n_indifferent} open, {found.n_untried} untried."
        )
        if self.witness is None or self.eta is None or self.accuracy is None:
            return f"{head}\n{tried}"
        witness = self.witness
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
        When to stop and report what has been found.

    Examples
    --------
    >>> report = check_deferral("ms", n_classes=2)
    >>> report.verdict, report.search.n_right == report.search.n_eta
    ('calibrated', True)
    """
    joint = resolve_joint(loss)
    n_classes = require_n_classes(n_classes)
    if isinstance(n_experts, bool) or int(n_experts) != n_experts or n_experts < 1:
        raise InputError(f"the number of experts must be a whole number from 1 on, got {n_experts!r}.")
    if n_classes * 2**n_experts > _MOST_OUTCOMES:
        raise InputError(
            f"{n_classes} classes and {n_experts} experts have {n_classes * 2**n_experts:,} outcomes, more than the "
            f"{_MOST_OUTCOMES} that are searched; check fewer of them."
        )
    asked = tuple(float(price) for price in (prices if prices is not None else [0.0] * n_experts))
    if len(asked) != n_experts or not all(0 <= price < np.inf for price in asked):
        raise InputError(f"prices must be {n_experts} numbers of at least 0, got {list(asked)}.")
    outcomes = _Outcomes(2 if joint.stages else n_classes, asked, n_classes if joint.stages else None)
    if joint.stages:
        outcomes.refuse_unless_second_stage(joint)
    subject = examine(outcomes.loss(joint), outcomes.target(), deadline=Deadline(seconds))
    search = Search(subject, seed)
    search.run(_stages(subject, outcomes, seed))
    witness = next(iter(search.witnesses.values()), None)
    where = None if witness is None else witness.eta.reshape(outcomes.n_classes, *[2] * n_experts)
    return DeferralReport(joint.name, n_classes, n_experts, asked, search.verdict, witness, where, search.found)


@dataclass(frozen=True)
class _ActionTarget(Target):
    """The cost of each of K + J actions in each outcome; decisions are numbers of actions."""

    n_own: int

    def best(self, eta: Tensor) -> Tensor:
        return self.expected(eta).argmin(-1)

    def words(self, decision: int) -> str:
        if decision >= self.n_own:
            return f"ask expert {decision - self.n_own}"
        return "answer" if self.n_own == 1 else super().words(decision)


@dataclass(frozen=True)
class _Outcomes:
    """All outcomes in order: the class (or whether the chosen one is right), then wrong or right for each expert.

    Parameters
    ----------
    n_classes : int
        How many classes there are; 2, the chosen class or not, for the second of two stages.
    prices : tuple of float
    n_choices : int, optional
        For the second stage: among how many classes the first stage chooses.
    """

    n_classes: int
    prices: tuple[float, ...]
    n_choices: int | None = None

    @property
    def second_stage(self) -> bool:
        return self.n_choices is not None

    @property
    def n_own(self) -> int:
        """How many actions are the model's own."""
        return 1 if self.second_stage else self.n_classes

    @property
    def all(self) -> list[tuple[int, ...]]:
        return list(product(range(self.n_classes), *[(0, 1)] * len(self.prices)))

    def target(self) -> _ActionTarget:
        rows = [
            ([1.0 - label] if self.second_stage else [float(k != label) for k in range(self.n_classes)])
            + [price + 1 - right for price, right in zip(self.prices, rights, strict=True)]
            for label, *rights in self.all
        ]
        matrix = torch.tensor(rows, dtype=torch.float64)
        return _ActionTarget(matrix, matrix, self.n_own)

    def loss(self, joint: JointLoss) -> FunctionLoss:
        """Return the joint loss as a function of the outcome's number, with its rule over actions."""
        table = torch.tensor(self.all, dtype=torch.float64)
        targets = joint.targets(table[:, 0], table[:, 1:], self.prices)
        prices = torch.tensor(self.prices, dtype=torch.float64)

        def value(scores: Tensor, y: Tensor, cost: Any) -> Tensor:
            if not self.second_stage:
                return joint.forward(scores, targets[y].to(scores.dtype), None)
            right = table[y, 0].to(scores.dtype)
            first = F.softplus(scores[:, 0]) - right * scores[:, 0]
            return first + self._second_stage(joint, scores, right, targets[y].to(scores.dtype))

        def rule(scores: Tensor, cost: Any) -> Decision[Tensor]:
            whole = scores
            if self.second_stage:
                whole = torch.cat([self._choosing_first(scores[:, 0]), scores[:, 1:]], -1)
            classes, experts = joint.values(whole, prices)
            best, asked = classes.max(-1), experts.max(-1)
            own = torch.zeros_like(best.indices) if self.second_stage else best.indices
            action = torch.where(best.values > asked.values, own, self.n_own + asked.indices)
            return Decision.from_acceptance(action, torch.ones(action.shape, dtype=torch.float64))

        smooth = joint.smooth or self.second_stage
        n_actions = self.n_own + len(self.prices)
        return FunctionLoss(value, rule, outputs=n_actions, title=joint.name, differentiable=smooth)

    def _choosing_first(self, log_odds: Tensor) -> Tensor:
        """Return class scores whose largest is the first, with the probability that these log odds stand for."""
        assert self.n_choices is not None
        ahead = log_odds + float(np.log(self.n_choices - 1))  # what the other classes have together
        return F.pad(ahead.clamp(min=1e-6).unsqueeze(-1), (0, self.n_choices - 1))

    def _second_stage(self, joint: JointLoss, scores: Tensor, right: Tensor, target: Tensor) -> Tensor:
        """Return what the loss adds to the cross-entropy of its class scores, where the first class was chosen."""
        classes, label = self._choosing_first(scores[:, 0]), (1 - right).long()
        whole = joint.forward(
            torch.cat([classes, scores[:, 1:]], -1), torch.cat([label.unsqueeze(-1), target[:, 1:]], -1), None
        )
        return whole - (torch.logsumexp(classes, -1) - score_of_label(classes, label))

    def refuse_unless_second_stage(self, joint: JointLoss) -> None:
        """Refuse a loss whose second stage depends on more of the class scores than which one is the largest."""
        generator = torch.Generator().manual_seed(0)
        table = torch.tensor(self.all, dtype=torch.float64).repeat(16, 1)
        scores = 2 * torch.randn(len(table), 1 + len(self.prices), generator=generator, dtype=torch.float64).abs()
        other = scores.clone()
        other[:, 0] += 1.5
        targets = joint.targets(table[:, 0], table[:, 1:], self.prices)
        one, two = (self._second_stage(joint, each, table[:, 0], targets) for each in (scores, other))
        chosen = joint.values(torch.cat([self._choosing_first(scores[:, 0]), scores[:, 1:]], -1), self.prices)[0]
        if not bool(((one - two).abs() <= 1e-9 * (1 + one.abs())).all()) or bool((chosen.argmax(-1) != 0).any()):
            raise LossContractError(
                f"{joint.name} says that it has two stages, but its forward is not the cross-entropy of the class "
                "scores plus a part that depends on them through the chosen class alone, or its inverse_link answers "
                "another class: its stages cannot be checked one after the other."
            )

    def possible(self, rows: Tensor) -> Tensor:
        """Return the distributions that can occur: the chosen class is the likeliest, so P(it is right) > 1 / K."""
        if self.n_choices is None:
            return rows
        right = torch.tensor(self.all, dtype=torch.float64)[:, 0]
        return rows[rows @ right > 1 / self.n_choices + 1e-3]

    def independent(self, eta: Tensor, rho: Tensor) -> Tensor:
        """Return the distribution of outcomes where experts err independently of class and of one another."""
        table = torch.tensor(self.all)
        chance = eta[table[:, 0]]
        for expert, able in enumerate(rho.tolist()):
            chance = chance * torch.where(table[:, 1 + expert] == 1, able, 1 - able)
        return chance


def _stages(subject: ExaminedLoss, outcomes: _Outcomes, seed: int) -> Iterator[Tensor]:
    """Yield distributions to try: experts who err at random, about as good as the best class; then any."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.stack(list(_structured(outcomes)))
    slow = not subject.loss.smooth or not subject.twice
    rows = rows[subject.target.clearance(rows) > NEAR]
    yield outcomes.possible(rows[:: 3 if slow else 1])
    yield outcomes.possible(random_eta(subject.target, 6 if slow else 20, generator))
    yield outcomes.possible(random_eta(subject.target, 3 if slow else 20, generator))


def _structured(outcomes: _Outcomes) -> Iterator[Tensor]:
    n_classes, prices = outcomes.n_classes, torch.tensor(outcomes.prices, dtype=torch.float64)
    for part in _TOPS:
        eta = torch.full((n_classes,), (1 - part) / n_classes, dtype=torch.float64)
        eta[-1] += part
        for step in _STEPS:
            for expert in range(len(prices)):
                behind = torch.full_like(prices, step - 0.07)
                behind[expert] = step
                rho = (eta.max() + prices + behind).clamp(0.02, 0.98)
                yield outcomes.independent(eta, rho)
