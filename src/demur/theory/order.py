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
from demur.losses import AdditivePairwise, Loss, MultiplicativePairwise
from demur.losses.pairwise import PairwiseLoss
from demur.margins import MarginFunction
from demur.theory.adapter import LossLike, as_loss
from demur.theory.errors import require_cost, require_n_classes
from demur.theory.facts import examine
from demur.theory.pointwise import pointwise_risk
from demur.theory.search import minimisers
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
    preserving, strict : bool
    counterexample : array or None
        An eta at which the order is lost.
    scores : array or None
        The class scores of the minimiser there.
    theorem : OrderTheorem or None
        For the pairwise losses, what the paper's theorem says.
    n_eta : int
    """

    loss: str
    preserving: bool
    strict: bool
    counterexample: NDArray[np.float64] | None
    scores: NDArray[np.float64] | None
    theorem: OrderTheorem | None
    n_eta: int

    def __bool__(self) -> bool:
        return self.preserving


@single_threaded_kernels()
def is_order_preserving(loss: LossLike, n_classes: int, cost: float, *, seed: int = 0) -> OrderReport:
    """Search for an eta at which a loss loses the order of the classes, and consult Theorems 16 and 17.

    Parameters
    ----------
    loss : str, Loss or callable
        With one score per class.
    n_classes : int
    cost : float
        In (0, 1 - 1/K).
    seed : int

    Returns
    -------
    OrderReport

    Examples
    --------
    >>> report = is_order_preserving("apc+log", 4, 0.2)
    >>> bool(report), report.strict, report.theorem.name, report.theorem.strict
    (True, True, 'Theorem 16', True)
    >>> report = is_order_preserving("ova+hin", 4, 0.2)  # every class below 1 - c gets the score -1
    >>> bool(report), report.strict
    (True, False)
    """
    n_classes = require_n_classes(n_classes)
    cost = require_cost(cost, below=1 - 1 / n_classes)
    subject = as_loss(loss, n_classes, cost)
    if subject.n_outputs(n_classes) < n_classes:
        raise InputError(f"the order of scores needs one score per class; {subject.name} has fewer.")
    facts = examine(subject, n_classes, cost)
    eta = _trials(subject, n_classes, cost, seed)
    scores, resolved = minimisers(subject, facts, eta, cost, seed=seed)
    eta, scores = eta[resolved], scores[resolved]
    classes = scores[:, :n_classes]
    swapped, tied = _order(eta, classes)
    broken = [int(row) for row in swapped.nonzero()[:, 0] if not _can_be_sorted(subject, eta, scores, int(row), cost)]
    bad = broken[:1] or tied.nonzero()[:1, 0].tolist()
    return OrderReport(
        subject.name,
        preserving=not broken,
        strict=not broken and not bool(tied.any()) and not bool(swapped.any()),
        counterexample=eta[bad[0]].numpy() if bad else None,
        scores=classes[bad[0]].numpy() if bad else None,
        theorem=_theorem(subject, scores),
        n_eta=len(eta),
    )


def _trials(loss: Loss, n_classes: int, cost: float, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    limit = 24 if not loss.smooth else max(16, min(200, 100_000 // n_classes**3))
    structured = over_all_classes(structured_eta(tops_around(cost, n_classes), n_classes), limit)
    return torch.cat([structured, random_eta(limit, n_classes, cost, generator)])


def _order(eta: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return which rows give a less likely class a larger score, and which give a clearly less likely one an equal."""
    lead = eta.unsqueeze(-1) - eta.unsqueeze(-2)
    gap = scores.unsqueeze(-1) - scores.unsqueeze(-2)
    room = 1e-6 * (1 + scores.abs().amax(-1))[:, None, None]
    swapped = ((lead > 1e-9) & (gap < -room)).flatten(1).any(-1)
    tied = ((lead > 1e-3) & (gap.abs() <= room)).flatten(1).any(-1)
    return swapped, tied


def _can_be_sorted(loss: Loss, eta: Tensor, scores: Tensor, row: int, cost: float) -> bool:
    """Return whether the scores, dealt out in the order of eta, have as small a risk: then they are a minimiser too."""
    n_classes = eta.shape[-1]
    dealt = scores[row].clone()
    dealt[eta[row].argsort()] = scores[row, :n_classes].sort().values
    before, after = (float(pointwise_risk(loss, g, eta[row], cost)) for g in (scores[row], dealt))
    return after <= before + 1e-9 * (1 + abs(before))


def _theorem(loss: Loss, scores: Tensor) -> OrderTheorem | None:
    if not isinstance(loss, AdditivePairwise | MultiplicativePairwise):
        return None
    assert isinstance(loss, PairwiseLoss)
    if isinstance(loss, AdditivePairwise):
        shifts = torch.unique((float(loss.alpha) * scores[:, -1]).round(decimals=6))
        return OrderTheorem("Theorem 16", *_conditions(loss.phi, shifts))
    return OrderTheorem("Theorem 17", *_conditions(loss.phi, torch.zeros(1, dtype=torch.float64)))


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
