"""Whether a loss keeps the order of the classes (Theorems 16 and 17, Corollary 18).

A loss is order-preserving if its pointwise risk has a minimiser that gives a less likely class no larger score,
strictly if a smaller one. It then answers the likeliest class.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.errors import InputError
from demur.losses import Loss
from demur.margins import MarginFunction, own_fact
from demur.theory.bayes import as_target, require_cost, require_n_classes
from demur.theory.descent import Deadline
from demur.theory.examined_loss import ExaminedLoss, LossLike, as_loss, examine
from demur.theory.pointwise_risk import find_minima
from demur.theory.simplex import over_all_classes, random_eta, structured_eta, tops_around
from demur.workers import single_threaded_kernels

__all__ = ["OrderReport", "OrderTheorem", "is_order_preserving"]


@dataclass(frozen=True)
class OrderTheorem:
    """What Theorem 16 (APC) or 17 (MPC) says.

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
    """Whether a loss was found to keep the order of the classes; true in a condition if it was.

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
        How many eta were tried, and at how many of them the minimisation did not converge.
    """

    loss: str
    verdict: str
    counterexample: NDArray[np.float64] | None
    scores: NDArray[np.float64] | None
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
    """Search for an eta at which a loss loses the order of the classes, and consult Theorems 16 and 17.

    Parameters
    ----------
    loss : str, Loss or callable
        A loss with one score per class.
    n_classes : int
    cost : float
        In (0, 1 - 1/K).
    outputs : int, optional
        How many scores a plain function takes.
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
    >>> report = is_order_preserving("ova+hin", 4, 0.2)  # every class below 1 - c gets the score -1
    >>> bool(report), report.verdict
    (True, 'preserving')
    """
    n_classes = require_n_classes(n_classes)
    cost = require_cost(cost, below=1 - 1 / n_classes)
    made = as_loss(loss, n_classes, cost, outputs=outputs)
    if made.n_outputs(n_classes) < n_classes:
        raise InputError(f"the order of scores needs one score per class; {made.name} has fewer.")
    subject = examine(made, as_target(cost, n_classes), deadline=Deadline(seconds))
    eta = _trials(subject, seed)
    found = find_minima(subject, eta, seed=seed)
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


def _trials(subject: ExaminedLoss, seed: int) -> Tensor:
    """Return structured eta with every class on top, and random ones."""
    n_classes, target = subject.n_classes, subject.target
    assert target.single is not None
    limit = 24 if not subject.loss.smooth else max(16, min(120, 100_000 // n_classes**3))
    structured = over_all_classes(structured_eta(tops_around(target.single, n_classes), n_classes), limit)
    return torch.cat([structured, random_eta(target, limit // 8, torch.Generator().manual_seed(seed))])


def _order(eta: Tensor, scores: Tensor, *, room: float) -> tuple[Tensor, Tensor]:
    """Return which rows give a less likely class a larger score, and which give a clearly less likely one an equal."""
    lead = eta.unsqueeze(-1) - eta.unsqueeze(-2)
    gap = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    allowed = room * (1 + scores.abs().amax(-1))[:, None, None]
    swapped = ((lead > 1e-9) & (gap < -allowed)).flatten(1).any(-1)
    tied = ((lead > 1e-3) & (gap.abs() <= allowed)).flatten(1).any(-1)
    return swapped, tied


def _can_be_sorted(subject: ExaminedLoss, eta: Tensor, scores: Tensor) -> bool:
    """Return whether the scores, dealt out in the order of eta, have as small a risk: then they are a minimiser too."""
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
