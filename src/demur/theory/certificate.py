"""Proofs of calibration: what makes the verdict CALIBRATED a theorem, with inequalities checked in interval arithmetic.

Each family is covered by a short argument. That the code is the formula of the argument is tried at random scores, and
numerical hypotheses are verified in :mod:`mpmath.iv`, where every operation is rounded outwards. In all of them q =
1 - c, and "clear" means |max eta - q| >= 1e-9: nearer, float64 cannot tell eta from the boundary. Where an infimum is
not attained, "minimiser" means every sequence of scores whose risk tends to it, from some place on.

**Proper losses, any K (cross-entropy, label smoothing, Brier).** The risk is, up to what does not depend on the
scores, the divergence (or the squared distance) of the softmax p from eta or from eta mixed with the uniform
distribution. By Gibbs' inequality its minimum is there and nowhere else; the link gives eta back, and the rule on it is
Chow's.

**Convex on the simplex, any K (generalised cross-entropy, focal; ms, cao and mao over K + 1 actions).** The risk is a
sum of w_a l(p_a), p the softmax, w = eta or w = (eta, 1 - c), l strictly convex and decreasing. Its minimum is unique,
and w_a l'(p_a) is the same for all a there. So w is proportional to -1 / l'(p), which is the inverse link; and p has
the order of w, so that the largest of K + 1 scores is the best action. (At mu = 2 the risk is linear in p, and all of p
goes to the best action.) The focal loss has l'' > 0 for every gamma >= 0, because -log p <= (1 - p) / p.

**A part of its own for declining, any K (asymmetric softmax, predictor and rejector, two stages).** Asymmetric
softmax: the part with the last score has the same least value whatever the class scores are, so these minimise the
cross-entropy. Predictor and rejector: the part that the rejector multiplies is at best 1 - max eta, whatever r is;
then the slope in r at 0 is phi'(0) alpha (c - 1 + max eta), and phi is convex.

**One score per class, each on its own (one-versus-all with any K, and the binary margin losses).** The risk is a sum
of w_p(g) = p phi(g) + (1 - p) phi(-g) over the classes, p the probability of the class, phi convex. If w' < 0 at a
score b above the rule's threshold with p = q + 1e-9, then the minimisers for all p >= q + 1e-9 are above b, because
w' falls as p grows; if w' > 0 at a score a below the threshold with p = q - 1e-9, the minimisers for all p <= q -
1e-9 are below a. So the rule accepts iff max eta is above q, and since c < 1/2 at most one score is above the
threshold: the right one. Verma and Nalisnick's last score minimises w_q, so it lies between a and b. With the costs as
weights of the two terms (cost-sensitive one-versus-all) the slope at 0 is phi'(0) (p - q).

**Two classes and a rejector (pairwise losses, K = 2).** With the class scores at their best, the risk is convex in r,
and r* > 0 iff its slope h(max eta) at r = 0 is negative. h > 0 on [1/2, q - 1e-9] and h < 0 on [q + 1e-9, 1] are
proved by branch and bound over eta; so are the signs of H(eta) - alpha (1 + max eta), which decide for the abstaining
classifier with two classes.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import torch
from mpmath import iv
from torch import Tensor
from torch.nn.functional import one_hot

from demur.array_types import ByName
from demur.losses import (
    AbstainingClassifier,
    AdditivePairwise,
    AsymmetricSoftmax,
    Brier,
    CaoRejection,
    CostSensitiveOneVsAll,
    CrossEntropy,
    Focal,
    GeneralisedCrossEntropy,
    LabelSmoothing,
    Loss,
    MaoScores,
    Margin,
    MozannarSontag,
    MultiplicativePairwise,
    OneVsAll,
    PlusBound,
    PredictorRejector,
    TwoStage,
    VermaNalisnick,
)
from demur.losses.pairwise import PairwiseLoss
from demur.margins import Exponential, Logistic, MarginFunction, Squared, SquaredHinge
from demur.theory.excess_bounds import phi_of
from demur.theory.subject import Subject

__all__ = ["CLEAR", "Certificate", "certify"]

CLEAR = 1e-9
"""How far max eta has to be from 1 - c for the certificates to speak about it."""
ROOM = 1e-11
"""How far from the threshold the scores are, relative to 1 + its size, between which the minimisers turn."""


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
    if type(loss) in _ARGUMENTS:
        return _ARGUMENTS[type(loss)](loss, subject.n_classes, cost)
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


Formula: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""From scores (n, n_outputs) and labels (n,) to losses (n,)."""
ANY_ETA = "At every eta with max eta other than {q:g}, every minimiser"


def _deviation(loss: Loss, n_classes: int, cost: float, formula: Formula) -> float:
    """Return by how much the code's values differ from a formula's, relative to 1 + their size, at 1,000 scores."""
    scores = _random_scores(loss.n_outputs(n_classes))
    y = torch.arange(len(scores)) % n_classes
    theirs, ours = loss.forward(scores, y, cost), formula(scores, y)
    return float(((theirs - ours).abs() / (1 + ours.abs())).max())


def _random_scores(n_outputs: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 4 * torch.randn(1000, n_outputs, generator=generator, dtype=torch.float64)


def _own(values: Tensor, y: Tensor) -> Tensor:
    return values.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def _proved(
    method: str, statement: str, loss: Loss, n_classes: int, cost: float, formula: Formula, *more: str | None
) -> Certificate | None:
    """Return the certificate if the code is the formula of the argument and nothing else that it needs is missing."""
    deviation = _deviation(loss, n_classes, cost, formula)
    if deviation > 1e-11 or None in more:
        return None
    same = f"the code's loss is the formula of the argument to within {deviation:.0e} at 1,000 random scores"
    return Certificate(method, statement, (same, *(line for line in more if line is not None)))


def _link_is(loss: Loss, n_classes: int, expected: Callable[[Tensor], Tensor]) -> str | None:
    """Return a line that says that the inverse link is a formula in the softmax; None if it is not."""
    scores = _random_scores(n_classes)
    difference = float((loss.inverse_link(scores) - expected(torch.softmax(scores, -1))).abs().max())
    return None if difference > 1e-9 else f"its inverse link is that of the minimiser to within {difference:.0e}"


def _proper(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove cross-entropy, label smoothing and Brier by Gibbs' inequality or a squared distance."""
    if isinstance(loss, Brier):
        return _proved(
            "a squared distance",
            "At every eta the risk is a constant plus the squared distance of the softmax from eta: least there, and "
            "nowhere else; the rule on it is Chow's.",
            loss,
            n_classes,
            cost,
            lambda scores, y: (torch.softmax(scores, -1) - one_hot(y, n_classes)).square().sum(-1),
            _link_is(loss, n_classes, lambda p: p),
        )
    epsilon = loss.epsilon if isinstance(loss, LabelSmoothing) else 0.0

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        target = (1 - epsilon) * one_hot(y, n_classes).to(scores.dtype) + epsilon / n_classes
        return -(target * torch.log_softmax(scores, -1)).sum(-1)

    def link(p: Tensor) -> Tensor:
        eta = ((p - epsilon / n_classes) / (1 - epsilon)).clamp(min=0)
        return eta / eta.sum(-1, keepdim=True)

    where = f"eta mixed with {epsilon:g} of the uniform distribution, which the link undoes" if epsilon else "eta"
    return _proved(
        "Gibbs' inequality",
        f"At every eta the risk is least where the softmax of the scores is {where}, and nowhere else; the rule on it "
        "is Chow's.",
        loss,
        n_classes,
        cost,
        formula,
        _link_is(loss, n_classes, link),
    )


def _convex_in_p(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove the generalised cross-entropy and the focal loss, whose links are -1 / l'(p) up to a factor."""
    if isinstance(loss, Focal):
        gamma = loss.gamma

        def formula(scores: Tensor, y: Tensor) -> Tensor:
            log_p = _own(torch.log_softmax(scores, -1), y)
            return -((-torch.expm1(log_p)) ** gamma) * log_p

        def weight(p: Tensor) -> Tensor:
            return p / ((1 - p) ** gamma - gamma * (1 - p) ** (gamma - 1) * p * p.log())
    else:
        assert isinstance(loss, GeneralisedCrossEntropy)
        q = loss.q

        def formula(scores: Tensor, y: Tensor) -> Tensor:
            return -torch.expm1(q * _own(torch.log_softmax(scores, -1), y)) / q

        def weight(p: Tensor) -> Tensor:
            return p ** (1 - q)

    def link(p: Tensor) -> Tensor:
        return weight(p) / weight(p).sum(-1, keepdim=True)

    return _proved(
        "convexity on the simplex",
        "At every eta the risk has one minimiser on the simplex, and the inverse link gives eta there; the rule on it "
        "is Chow's.",
        loss,
        n_classes,
        cost,
        formula,
        _link_is(loss, n_classes, link),
    )


def _over_actions(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove ms, cao and mao: a convex function of each of K + 1 probabilities, weighed by eta and 1 - c."""
    mu = 1.0
    if isinstance(loss, MozannarSontag) and float(loss.alpha) != 1:
        return None
    if isinstance(loss, CaoRejection):
        mu = 1 + loss.q
    elif isinstance(loss, MaoScores):
        mu = loss.mu

    def part(surprise: Tensor) -> Tensor:
        if mu == 1:
            return surprise
        # Beyond 30 the code goes on with the tangent of the exponential: convex and increasing all the same.
        exponent = (1 - mu) * surprise
        beyond = math.e**30 * (exponent - 30).clamp(min=0)
        return (torch.expm1(exponent.clamp(max=30.0)) + beyond) / (1 - mu)

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        surprise = -torch.log_softmax(scores, -1)
        return part(_own(surprise, y)) + (1 - cost) * part(surprise[:, -1])

    how = "goes to the best action" if mu == 2 else "has the order of (eta, 1 - c)"
    return _proved(
        "convexity on the simplex",
        f"{ANY_ETA.format(q=1 - cost)} decides as Chow's rule: over the K + 1 actions the softmax of the scores {how}.",
        loss,
        n_classes,
        cost,
        formula,
    )


def _asymmetric(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    def formula(scores: Tensor, y: Tensor) -> Tensor:
        g = scores[:, :-1]
        rest = torch.exp(g).sum(-1) - torch.exp(g.amax(-1))
        s = scores[:, -1].exp() / (scores[:, -1].exp() + rest)
        return -_own(torch.log_softmax(g, -1), y) - (1 - cost) * s.log() - cost * torch.log1p(-s)

    # The sum of exponentials loses digits where one score dominates; the code does not.
    if _deviation(loss, n_classes, cost, formula) > 1e-6:
        return None
    return Certificate(
        "Gibbs' inequality, twice",
        f"{ANY_ETA.format(q=1 - cost)} has the softmax eta over the classes and s = 1 - c, so that the last score is "
        "the largest iff Chow's rule rejects.",
        ("the code's loss is the formula of the argument at 1,000 random scores",),
    )


def _separate_rejector(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove predictor and rejector, in one stage or in two."""
    assert isinstance(loss, PredictorRejector | TwoStage)
    alpha = 1.0
    if isinstance(loss, PredictorRejector):
        if float(loss.alpha) != float(loss.beta):
            return None
        alpha = float(loss.alpha)
    falls = _falls_at_zero(loss.phi)
    phi = loss.phi

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        g, r = scores[:, :-1], scores[:, -1]
        if isinstance(loss, PredictorRejector):
            return (1 - _own(torch.softmax(g, -1), y)) * phi(-alpha * r) + cost * phi(alpha * r)
        return -_own(torch.log_softmax(g, -1), y) + (g.argmax(-1) != y) * phi(-r) + cost * phi(r)

    return _proved(
        "a slope at r = 0",
        f"{ANY_ETA.format(q=1 - cost)} rejects iff Chow's rule does, and answers the likeliest class: whatever r is, "
        "what it multiplies is at best 1 - max eta.",
        loss,
        n_classes,
        cost,
        formula,
        falls,
    )


def _falls_at_zero(phi: MarginFunction) -> str | None:
    """Return a line about phi'(0) < 0; None where phi is not known to be convex or does not fall there."""
    derivative = _DERIVATIVES.get(type(phi))
    if derivative is None or not _code_has_this_derivative(phi, derivative):
        return None
    slope = derivative(iv.mpf(0))
    return f"phi is convex and phi'(0) < 0: it lies in [{slope.a}, {slope.b}]" if slope.b < 0 else None


def _weighted_one_versus_all(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    assert isinstance(loss, CostSensitiveOneVsAll)
    phi = loss.phi

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        own = one_hot(y, n_classes).bool()
        return torch.where(own, cost * phi(scores), (1 - cost) * phi(-scores)).sum(-1)

    return _proved(
        "a slope at the score 0",
        f"{ANY_ETA.format(q=1 - cost)} decides as Chow's rule: score k is positive iff eta_k > {1 - cost:g}.",
        loss,
        n_classes,
        cost,
        formula,
        _falls_at_zero(phi),
    )


def _one_versus_all_with_reject(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove Verma and Nalisnick's: the scores of the classes as in one-versus-all, the last between the same limits."""
    assert isinstance(loss, VermaNalisnick)
    phi = loss.phi
    classes = _single_scores(phi, cost)
    if classes is None:
        return None
    derivative, threshold = _DERIVATIVES[type(phi)], float(phi.threshold(cost))
    room = ROOM * (1 + abs(threshold))
    q = 1 - iv.mpf(repr(cost))
    above, below = (_slope(derivative, threshold + sign * room, q) for sign in (1, -1))
    if above is None or below is None or not (below.b < 0 < above.a):
        return None

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        sign = 2.0 * one_hot(y, n_classes).to(scores.dtype) - 1
        g, d = scores[:, :-1], scores[:, -1]
        return phi(sign * g).sum(-1) + (1 - cost) * phi(d) + cost * phi(-d)

    between = f"the last score's minimiser is within {room:.0e} of the threshold, and so between those"
    return _proved(classes.method, classes.statement, loss, n_classes, cost, formula, *classes.checked, between)


def _abstaining(loss: Loss, n_classes: int, cost: float) -> Certificate | None:
    """Prove the deep abstaining classifier with two classes by branch and bound over eta."""
    assert isinstance(loss, AbstainingClassifier)
    if n_classes != 2:
        return None
    value = float(loss.alpha_value(cost))
    alpha = iv.mpf(repr(value))

    def ahead(m: Any) -> tuple[Any, Any]:
        return _entropy(m) - alpha * (1 + m), iv.log((1 - m) / m) - alpha if m.b < 1 else None

    rejected = _sign_on(ahead, 0.5, 1 - cost - CLEAR, positive=True)
    answered = _sign_on(ahead, 1 - cost + CLEAR, 1.0, positive=False)
    if rejected is None or answered is None:
        return None

    def formula(scores: Tensor, y: Tensor) -> Tensor:
        p = torch.softmax(scores, -1)
        u = p[:, :-1].sum(-1)
        return -u * (_own(p, y) / u).log() - value * u.log()

    found = _proved(
        "branch and bound over eta",
        f"For two classes and every eta with |max eta - {1 - cost:g}| >= {CLEAR:g}, every minimiser decides as Chow's "
        "rule.",
        loss,
        n_classes,
        cost,
        formula,
        f"H(eta) > alpha (1 + max eta) on [0.5, {1 - cost:g} - {CLEAR:g}]: {rejected} intervals",
        f"H(eta) < alpha (1 + max eta) on [{1 - cost:g} + {CLEAR:g}, 1]: {answered} intervals",
    )
    return None if found is None else replace(found, n_boxes=rejected + answered)


_ARGUMENTS: dict[type[Loss], Callable[[Loss, int, float], Certificate | None]] = {
    CrossEntropy: _proper,
    LabelSmoothing: _proper,
    Brier: _proper,
    GeneralisedCrossEntropy: _convex_in_p,
    Focal: _convex_in_p,
    MozannarSontag: _over_actions,
    CaoRejection: _over_actions,
    MaoScores: _over_actions,
    AsymmetricSoftmax: _asymmetric,
    PredictorRejector: _separate_rejector,
    TwoStage: _separate_rejector,
    CostSensitiveOneVsAll: _weighted_one_versus_all,
    VermaNalisnick: _one_versus_all_with_reject,
    AbstainingClassifier: _abstaining,
}
"""By the class itself: a subclass may have changed the formula."""


def _single_scores(phi: MarginFunction, cost: float) -> Certificate | None:
    derivative = _DERIVATIVES.get(type(phi))
    if derivative is None or not _code_has_this_derivative(phi, derivative):
        return None
    threshold = float(phi.threshold(cost))
    room = ROOM * (1 + abs(threshold))
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
    slopes = MarginFunction.slope(phi, z)  # by autograd, of the code itself
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
