"""Proofs of calibration: what makes the verdict CALIBRATED a theorem, with inequalities checked in interval arithmetic.

Three families are covered, each by a short argument whose numerical hypotheses are verified in :mod:`mpmath.iv`,
where every operation is rounded outwards. In all of them q = 1 - c, and "clear" means |max eta - q| >= 1e-9: nearer,
float64 cannot tell eta from the boundary.

**Cross-entropy, any K.** The loss is -log p_y with p its own inverse link, and the pointwise risk is the entropy of eta
plus the divergence of p from eta. By Gibbs' inequality its minimum is at p = eta and nowhere else; the rule on p is
Chow's rule on eta.

**One score per class, each on its own (one-versus-all with any K, and the binary margin losses).** The risk is a sum
of w_p(g) = p phi(g) + (1 - p) phi(-g) over the classes, p the probability of the class, phi convex. If w' < 0 at a
score b above the rule's threshold with p = q + 1e-9, then the minimisers for all p >= q + 1e-9 are above b, because
w' falls as p grows; if w' > 0 at a score a below the threshold with p = q - 1e-9, the minimisers for all p <= q -
1e-9 are below a. So the rule accepts iff max eta is above q, and since c < 1/2 at most one score is above the
threshold: the right one.

**Two classes and a rejector (pairwise losses, K = 2).** With the class scores at their best, the risk is convex in r,
and r* > 0 iff its slope h(max eta) at r = 0 is negative. h > 0 on [1/2, q - 1e-9] and h < 0 on [q + 1e-9, 1] are
proved by branch and bound over eta.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from mpmath import iv

from demur.array_types import ByName
from demur.losses import AdditivePairwise, CrossEntropy, Margin, MultiplicativePairwise, OneVsAll, PlusBound
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.theory.excess_bounds import phi_of
from demur.theory.subject import Subject

__all__ = ["CLEAR", "Certificate", "certify"]

CLEAR = 1e-9
"""How far max eta has to be from 1 - c for the certificates to speak about it."""


@dataclass(frozen=True)
class Certificate:
    """A proof that every minimiser of a loss decides as Chow's rule.

    Parameters
    ----------
    method : str
        How it was proved.
    statement : str
        What exactly was proved.
    checked : tuple of str
        The inequalities that were verified, with their numbers.
    n_boxes : int
        How many intervals branch and bound needed; 0 where it was not used.
    """

    method: str
    statement: str
    checked: tuple[str, ...]
    n_boxes: int = 0

    @property
    def lines(self) -> tuple[str, ...]:
        """The statement and what was checked, to print."""
        return (self.statement, *self.checked)

    def as_dict(self) -> ByName:
        """Return the fields as plain values, for JSON."""
        return {**asdict(self), "checked": list(self.checked)}


def certify(subject: Subject) -> Certificate | None:
    """Return a proof that a loss is calibrated, or None where no argument covers it or a hypothesis fails.

    A subclass is not covered: it may have changed the formula.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> from demur.theory.subject import examine
    >>> certificate = certify(examine(get("ova+log"), as_target(0.2, 4)))
    >>> certificate.method
    'interval arithmetic on one score'
    >>> print(certificate.checked[0])
    w' < 0 at the score 1.38629..., above the threshold, for p = 0.8 + 1e-09
    """
    loss, cost = subject.loss, subject.target.single
    if cost is None or not 0 < cost < 0.5:
        return None
    if type(loss) is CrossEntropy:
        return _cross_entropy(loss, subject.n_classes)
    if type(loss) in (OneVsAll, Margin):
        return _single_scores(phi_of(loss), cost)
    if type(loss) in (AdditivePairwise, MultiplicativePairwise, PlusBound) and subject.n_classes == 2:
        assert isinstance(loss, PairwiseLoss)
        return _two_classes(loss, cost)
    return None


_DERIVATIVES: dict[type[MarginFunction], Callable[[Any], Any]] = {
    Logistic: lambda z: -1 / (1 + iv.exp(z)),
    Exponential: lambda z: -iv.exp(-z),
    Squared: lambda z: -2 * (1 - z),
    SquaredHinge: lambda z: -2 * (1 - z) if (1 - z).a > 0 else None,
}
"""phi' in intervals, of the convex functions whose formulas are known here; None across a kink."""


def _cross_entropy(loss: CrossEntropy, n_classes: int) -> Certificate | None:
    generator = torch.Generator().manual_seed(0)
    scores = 4 * torch.randn(1000, n_classes, generator=generator, dtype=torch.float64)
    y = torch.arange(1000) % n_classes
    own = loss.inverse_link(scores).gather(-1, y.unsqueeze(-1)).squeeze(-1)
    difference = float((loss.forward(scores, y, None) + own.log()).abs().max())
    if difference > 1e-11:
        return None
    return Certificate(
        "Gibbs' inequality",
        "At every eta the risk is least where the softmax of the scores is eta, and nowhere else; the rule on it is "
        "Chow's.",
        (f"the code's loss is -log of its inverse link to within {difference:.0e} at 1,000 random scores",),
    )


def _single_scores(phi: MarginFunction, cost: float) -> Certificate | None:
    derivative = _DERIVATIVES.get(type(phi))
    if derivative is None or not _code_has_this_derivative(phi, derivative):
        return None
    threshold = float(phi.threshold(cost))
    room = 1e-11 * (1 + abs(threshold))
    below, above = threshold - room, threshold + room
    link = phi.inverse_link(torch.tensor([below, above], dtype=torch.float64))
    if not (float(link[0]) < 1 - cost < float(link[1])):
        return None  # the rule does not turn between the two scores
    q = 1 - iv.mpf(repr(cost))
    high, low = _slope(derivative, above, q + CLEAR), _slope(derivative, below, q - CLEAR)
    falls = [_sum(derivative, score) for score in (below, above)]
    if high is None or low is None or any(f is None or f.b >= 0 for f in falls):
        return None
    if not (high.b < 0 < low.a):
        return None
    return Certificate(
        "interval arithmetic on one score",
        f"For every K and every eta with |max eta - {1 - cost:g}| >= {CLEAR:g}, every minimiser decides as Chow's "
        "rule.",
        (
            f"w' < 0 at the score {above:.12g}, above the threshold, for p = {1 - cost:g} + {CLEAR:g}",
            f"w' > 0 at the score {below:.12g}, below it, for p = {1 - cost:g} - {CLEAR:g}",
            "w' falls as p grows at both scores, and the code's link crosses 1 - c between them",
        ),
    )


def _slope(derivative: Callable[[Any], Any], score: float, p: Any) -> Any:
    """Return w'_p(score) = p phi'(score) - (1 - p) phi'(-score) as an interval."""
    z = iv.mpf(score)
    right, left = derivative(z), derivative(-z)
    return None if right is None or left is None else p * right - (1 - p) * left


def _sum(derivative: Callable[[Any], Any], score: float) -> Any:
    z = iv.mpf(score)
    right, left = derivative(z), derivative(-z)
    return None if right is None or left is None else right + left


def _code_has_this_derivative(phi: MarginFunction, derivative: Callable[[Any], Any]) -> bool:
    z = torch.linspace(-6, 0.9, 60, dtype=torch.float64)
    _, slopes = phi.value_and_slope(z)
    for at, slope in zip(z.tolist(), slopes.tolist(), strict=True):
        enclosure = derivative(iv.mpf(at))
        if enclosure is None or abs(float(enclosure.mid) - slope) > 1e-11 * (1 + abs(slope)):
            return False
    return True


def _two_classes(loss: PairwiseLoss, cost: float) -> Certificate | None:
    slope = _slope_in_r(loss, cost)
    if slope is None or not _code_has_this_slope(loss, cost, slope):
        return None
    q = 1 - cost
    answered = _sign_on(slope, q + CLEAR, 1.0, positive=False)
    rejected = _sign_on(slope, 0.5, q - CLEAR, positive=True)
    if answered is None or rejected is None:
        return None
    return Certificate(
        "branch and bound over eta",
        f"For two classes and every eta with |max eta - {q:g}| >= {CLEAR:g}, every minimiser rejects iff Chow's rule "
        "does, and answers the likelier class.",
        (
            f"h > 0 on [0.5, {q:g} - {CLEAR:g}]: {rejected} intervals",
            f"h < 0 on [{q:g} + {CLEAR:g}, 1]: {answered} intervals",
        ),
        n_boxes=answered + rejected,
    )


def _slope_in_r(loss: PairwiseLoss, cost: float) -> Callable[[Any], Any] | None:
    """Return h(eta), the slope of the risk in r at r = 0 with the best scores, and h'(eta), both in intervals."""
    if type(loss.phi) is not type(loss.psi_or_phi) or float(loss.alpha) != 1:
        return None
    c = iv.mpf(repr(cost))
    beta = iv.mpf(repr(float(loss.beta_value(2, cost))))

    def exponential(eta: Any) -> tuple[Any, Any]:
        root = iv.sqrt(eta * (1 - eta))
        return 2 * root - c * beta, (1 - 2 * eta) / root if root.a > 0 else None

    def product(eta: Any) -> tuple[Any, Any]:
        return (_entropy(eta) - c * beta) / 2, iv.log((1 - eta) / eta) / 2 if eta.b < 1 else None

    def additive(eta: Any) -> tuple[Any, Any]:
        return 2 * eta * (1 - eta) - c * beta / 2, 2 * (1 - 2 * eta)

    if type(loss.phi) is Exponential:
        return exponential
    if type(loss.phi) is Logistic:
        return product if type(loss) is MultiplicativePairwise else additive
    return None


def _entropy(eta: Any) -> Any:
    def part(p: Any) -> Any:
        # -p log p on an interval that may touch 0, where it tends to 0.
        if p.a > 0:
            return -p * iv.log(p)
        top = min(iv.mpf(p.b), 1 / iv.e)
        peak = -iv.mpf(top) * iv.log(iv.mpf(top))
        return iv.mpf([0, peak.b])

    return part(eta) + part(1 - eta)


def _code_has_this_slope(loss: PairwiseLoss, cost: float, slope: Callable[[Any], Any]) -> bool:
    """Return whether the slope computed from the code itself, with its scores minimised, is the formula's."""
    from demur.theory.theorem_four import rejector_slope

    eta = torch.tensor([[0.55, 0.45], [0.7, 0.3], [0.9, 0.1], [0.97, 0.03]], dtype=torch.float64)
    theirs, _ = rejector_slope(loss, eta, cost, symmetric=False)
    ours = [float(slope(iv.mpf(p))[0].mid) for p in eta[:, 0].tolist()]
    return all(abs(a - b) <= 1e-7 * (1 + abs(a)) for a, b in zip(ours, theirs.tolist(), strict=True))


def _sign_on(function: Callable[[Any], Any], low: float, high: float, *, positive: bool) -> int | None:
    """Prove the sign of a function on an interval by halving it; return how many parts that took, None if it fails."""
    stack, n_boxes = [(low, high)], 0
    while stack:
        a, b = stack.pop()
        value, derivative = function(iv.mpf([a, b]))
        n_boxes += 1
        if (value.a > 0) if positive else (value.b < 0):
            continue
        if derivative is not None:  # the mean value form is tighter on small intervals
            middle = iv.mpf((a + b) / 2)
            value = function(middle)[0] + derivative * (iv.mpf([a, b]) - middle)
            if (value.a > 0) if positive else (value.b < 0):
                continue
        middle = (a + b) / 2
        if n_boxes > 2000 or not a < middle < b:
            return None
        stack += [(a, middle), (middle, b)]
    return n_boxes
