r"""Why a loss is calibrated: the argument, its hypotheses, and the formulas that the code has to agree with.

In all arguments q = 1 - c. Where max eta is nearer to q than 1e-9, float64 cannot tell on which side it is. Where an
infimum is not attained, "minimiser" means every sequence of scores whose risk tends to it, from some place on.

**Convex on the simplex, any K (cross-entropy, generalised cross-entropy, focal; ms, cao and mao over K + 1 actions).**
The risk is a sum of w_a l(p_a), p the softmax, w = eta or w = (eta, 1 - c), l convex and decreasing. Where l is
strictly convex, the minimum is unique, and w_a l'(p_a) is the same for all a there. So w is proportional to
-1 / l'(p), which is the inverse link and increases with p: the largest of K + 1 scores is the best action. Where l is
linear, all of p goes to the best action.

**One score per class, each on its own (one-versus-all with any K, and the binary margin losses).** The risk is a sum
of w_p(g) = p phi(g) + (1 - p) phi(-g) over the classes, p the probability of the class, phi convex. If w' < 0 at a
score b above the rule's threshold with p = q + 1e-9, then the minimisers for all p >= q + 1e-9 are above b, because
w' falls as p grows; if w' > 0 at a score a below the threshold with p = q - 1e-9, the minimisers for all p <= q -
1e-9 are below a. So the rule accepts iff max eta is above q, and since c < 1/2 at most one score is above the
threshold: the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from demur.lazy_torch import Tensor, torch
from demur.margins import MarginFunction, own_fact

__all__ = [
    "CLEAR",
    "Part",
    "Proof",
    "above_last",
    "falls_at_zero",
    "last_score",
    "on_simplex",
    "separable_part",
    "turns_at_threshold",
]

CLEAR = 1e-9
"""How far max eta has to be from 1 - c for a proof to cover it."""
ROOM = 1e-11
"""How far from the threshold the two scores are between which minimisers change sides, relative to 1 + its size."""

Part: TypeAlias = Callable[[Tensor], Tensor]
"""A loss l(p) of one probability as a function of the surprise -log p."""


@dataclass(frozen=True)
class Proof:
    """An argument for calibration at one cost, and what has to hold for it.

    Parameters
    ----------
    method, statement : str
        How it is proved, and what exactly.
    value : callable
        The loss as the argument writes it: from scores (n, n_outputs) and labels (n,) to losses (n,).
    acceptance : callable
        The acceptance of the rule as the argument writes it: from scores to numbers (n,).
    checked : tuple of str or None
        The hypotheses that were verified, in words; None for one that fails.
    """

    method: str
    statement: str
    value: Callable[[Tensor, Tensor], Tensor]
    acceptance: Callable[[Tensor], Tensor]
    checked: tuple[str | None, ...] = ()


def last_score(scores: Tensor) -> Tensor:
    """Return the rejector r, which accepts where it is positive."""
    return scores[:, -1]


def above_last(scores: Tensor) -> Tensor:
    """Return how far the largest class score is above the score of rejecting."""
    return scores[:, :-1].amax(-1) - scores[:, -1]


def on_simplex(part: Part, cost: float, *, over_actions: bool) -> Proof:
    """Prove a loss that is l(p_y), or l(p_y) + (1 - c) l(p_(K+1)) over K + 1 actions, with l convex and decreasing."""

    def weight(surprise: Tensor) -> Tensor:
        """Return -1 / l'(p), which increases with p iff l is convex."""
        with torch.enable_grad():
            leaf = surprise.detach().requires_grad_()
            (slope,) = torch.autograd.grad(part(leaf).sum(), leaf)
        return torch.exp(-surprise) / slope

    def value(scores: Tensor, y: Tensor) -> Tensor:
        each = part(-torch.log_softmax(scores, -1))
        own = each[torch.arange(len(y)), y]
        return own + (1 - cost) * each[:, -1] if over_actions else own

    def linked(scores: Tensor) -> Tensor:
        weights = weight(-torch.log_softmax(scores, -1))
        return weights.amax(-1) / weights.sum(-1) - (1 - cost)

    weights = weight(-torch.linspace(0.001, 0.999, 999, dtype=torch.float64).log())
    convex = bool((weights > 0).all() and (weights.diff() >= -1e-12 * weights[1:]).all())
    where = "over the K + 1 actions the softmax of the minimiser has the order of (eta, 1 - c), or is all on the best"
    link = "the risk has one minimiser on the simplex, and the inverse link gives eta there"
    return Proof(
        "convexity on the simplex",
        f"At every eta with max eta other than {1 - cost:g}, every minimiser decides as Chow's rule: "
        f"{where if over_actions else link}.",
        value,
        above_last if over_actions else linked,
        ("l is convex and decreasing in p: -1 / l' increases at 999 values of p" if convex else None,),
    )


def falls_at_zero(phi: MarginFunction) -> str | None:
    """Return a sentence about phi'(0) < 0; None where phi is not known to be convex or does not fall there."""
    slope = float(phi.exact(0)[1]) if _is_exact(phi) else 0.0  # type: ignore[index] # it is not None
    return f"phi is convex and phi'(0) = {slope:g} < 0" if slope < 0 else None


def turns_at_threshold(phi: MarginFunction, cost: float) -> tuple[str | None, ...]:
    """Verify that minimisers of one score cross the threshold where its probability crosses 1 - c.

    The slopes differ from 0 by about 1e-9 times their size, which float64 resolves.
    """
    if not _is_exact(phi):
        return (None,)
    threshold, q = float(phi.threshold(cost)), 1 - cost
    room = ROOM * (1 + abs(threshold))
    below, above = threshold - room, threshold + room
    slopes = MarginFunction.slope(phi, torch.tensor([below, -below, above, -above], dtype=torch.float64))
    low_right, low_left, high_right, high_left = slopes.tolist()
    link = phi.inverse_link(torch.tensor([below, above], dtype=torch.float64)).tolist()
    rises = (q - CLEAR) * low_right - (1 - q + CLEAR) * low_left > 0
    falls = (q + CLEAR) * high_right - (1 - q - CLEAR) * high_left < 0
    steady = low_right + low_left < 0 and high_right + high_left < 0
    return (
        f"w' < 0 at the score {above:.12g}, above the threshold, for p = {q:g} + {CLEAR:g}" if falls else None,
        f"w' > 0 at the score {below:.12g}, below it, for p = {q:g} - {CLEAR:g}" if rises else None,
        "w' falls as p grows at both scores, and the code's link crosses 1 - c between them"
        if steady and link[0] < q < link[1]
        else None,
    )


def _is_exact(phi: MarginFunction) -> bool:
    """Return whether phi states a formula in many digits that its code agrees with, in value and slope."""
    exact = own_fact(phi, "exact")
    if exact is None:
        return False
    z = torch.linspace(-6, 6, 121, dtype=torch.float64)
    stated = torch.tensor([[float(number) for number in exact(at)] for at in z.tolist()], dtype=torch.float64)
    code = torch.stack([phi(z), MarginFunction.slope(phi, z)], -1)
    return bool(((code - stated).abs() <= 1e-11 * (1 + stated.abs())).all())  # NaN is not <= anything


def separable_part(loss: Any, n_classes: int, cost: float) -> Part | None:
    """Return l as a function of the surprise -log p if the loss is l(p_y), p the softmax of all scores; else None.

    Examples
    --------
    >>> from demur.losses import get
    >>> part = separable_part(get("gce"), 3, 0.2)
    >>> part(torch.tensor([1.0], dtype=torch.float64)).round(decimals=4)  # (1 - exp(-0.7)) / 0.7
    tensor([0.7192], dtype=torch.float64)
    """
    n_outputs = loss.n_outputs(n_classes)

    def part(surprise: Tensor) -> Tensor:
        rest = torch.log(torch.expm1(surprise).clamp(min=1e-300)) - torch.log(torch.tensor(n_outputs - 1.0))
        scores = torch.zeros(len(surprise), n_outputs, dtype=torch.float64)
        scores = torch.cat([scores[:, :1], scores[:, 1:] + rest[:, None]], 1)
        values: Tensor = loss.forward(scores, torch.zeros(len(surprise), dtype=torch.long), cost)
        return values.to(torch.float64)

    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(300, n_outputs, generator=generator, dtype=torch.float64)
    y = torch.arange(len(scores)) % n_classes
    with torch.no_grad():
        surprise = -torch.log_softmax(scores, -1)[torch.arange(len(y)), y]
        values, expected = loss.forward(scores, y, cost).to(torch.float64), part(surprise)
    same = (values - expected).abs() <= 1e-9 * (1 + expected.abs())
    return part if bool(same.all()) else None
