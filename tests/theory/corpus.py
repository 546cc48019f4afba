"""Losses with known answers: calibrated, wrong, or undecidable by minimising; the checker has to be right about each.

Each case is a plain function of (scores, y, cost) and a rule, written out here without help from the library, so that a
test can minimise it again by itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from demur.rules import Decision

CALIBRATED, REFUTED, INCONCLUSIVE = "calibrated", "refuted", "inconclusive"


@dataclass(frozen=True)
class Case:
    """One loss with its rule and the verdict it deserves."""

    name: str
    verdict: str
    loss: Callable[..., Any]
    rule: Any = "softmax"
    outputs: int | None = None
    classes: int = 3
    cost: Any = 0.2
    smooth: bool = True
    fails: frozenset = field(default_factory=frozenset)
    quick: bool = False


def own(values, y):
    return values.gather(-1, y[:, None])[:, 0]


def others(values, y):
    """The same with a zero for the true class."""
    return values.masked_fill(F.one_hot(y, values.shape[-1]).bool(), 0.0)


def one_hot(y, like):
    return F.one_hot(y, like.shape[-1]).to(like.dtype)


def ce(s, y, c):
    return F.cross_entropy(s, y, reduction="none")


def times(loss, factor=1.0, plus=0.0):
    def scaled(s, y, c):
        return factor * loss(s, y, c) + plus

    return scaled


def chow_on(link):
    """Chow's rule on an inverse link."""

    def rule(s, c):
        p = link(s)
        return p.argmax(-1), p.amax(-1) <= 1 - c

    return rule


def least_cost_on(link):
    def rule(s, costs):
        expected = link(s) @ costs
        return expected[:, :-1].argmin(-1), expected[:, -1] <= expected[:, :-1].amin(-1)

    return rule


def last_wins(s, c):
    """K + 1 scores: reject where the last is the largest."""
    label = s.argmax(-1)
    return label, label == s.shape[-1] - 1


def softmax(s):
    return torch.softmax(s, -1)


def brier(s, y, c):
    return (softmax(s) - one_hot(y, s)).square().sum(-1)


def spherical(s, y, c):
    p = softmax(s)
    return -own(p, y) / p.norm(dim=-1)


def mae(s, y, c):
    return 1 - own(softmax(s), y)


def absolute(s, y, c):
    return (softmax(s) - one_hot(y, s)).abs().sum(-1)


def gce(q):
    return lambda s, y, c: (1 - own(torch.log_softmax(s, -1), y).mul(q).exp()) / q


def gce_link(q):
    return lambda s: torch.softmax((1 - q) * s, -1)


def focal(gamma):
    def loss(s, y, c):
        log_p = own(torch.log_softmax(s, -1), y)
        return -((1 - log_p.exp()) ** gamma) * log_p

    return loss


def focal_link(gamma):
    """The inverse link of the focal loss (Charoenphakdee et al. 2021b)."""

    def link(s):
        p = softmax(s).clamp(1e-12, 1 - 1e-12)
        h = p / ((1 - p) ** gamma - gamma * (1 - p) ** (gamma - 1) * p * p.log())
        return h / h.sum(-1, keepdim=True)

    return link


def smoothing(n, epsilon, circular):
    if circular:
        right = torch.eye(n, dtype=torch.float64).roll(1, 0)
        return (1 - epsilon) * torch.eye(n, dtype=torch.float64) + epsilon / 2 * (right + right.T)
    return (1 - epsilon) * torch.eye(n, dtype=torch.float64) + epsilon / n


def smoothed_ce(n, epsilon, circular=False):
    matrix = smoothing(n, epsilon, circular)
    return lambda s, y, c: -(matrix[y] * torch.log_softmax(s, -1)).sum(-1)


def smoothed_link(n, epsilon, circular=False):
    inverse = torch.linalg.inv(smoothing(n, epsilon, circular))
    return lambda s: softmax(s) @ inverse


def sparsemax_link(s):
    ordered = s.sort(-1, descending=True).values
    total = ordered.cumsum(-1)
    number = torch.arange(1, s.shape[-1] + 1, dtype=s.dtype)
    size = (1 + number * ordered > total).sum(-1, keepdim=True)
    threshold = (total.gather(-1, size - 1) - 1) / size
    return (s - threshold).clamp(min=0)


def sparsemax(s, y, c):
    p = sparsemax_link(s)
    return (p * (s - p / 2)).sum(-1) - own(s, y) + 0.5


def ova(phi):
    def loss(s, y, c):
        return phi(own(s, y)) + others(phi(-s), y).sum(-1)

    return loss


def logistic(z):
    return F.softplus(-z)


def exponential(z):
    return torch.exp(-z)


def squared(z):
    return (1 - z).square()


def squared_hinge(z):
    return F.relu(1 - z).square()


def hinge(z):
    return F.relu(1 - z)


def sigmoid_loss(z):
    return torch.sigmoid(-z)


def weighted_ova(phi):
    """c phi(g_y) + (1 - c) sum of phi(-g_k): Charoenphakdee et al. 2021a, answer iff the largest score is positive."""

    def loss(s, y, c):
        return c * phi(own(s, y)) + (1 - c) * others(phi(-s), y).sum(-1)

    return loss


def positive(s, c):
    return s.argmax(-1), s.amax(-1) <= 0


def normalised_sigmoid(s):
    p = torch.sigmoid(s)
    return p / p.sum(-1, keepdim=True)


def mozannar_sontag(s, y, c):
    """Cross-entropy over K + 1 scores, the last with weight 1 - c; also Cao et al.'s logarithmic limit."""
    log_p = torch.log_softmax(s, -1)
    return -own(log_p, y) - (1 - c) * log_p[:, -1]


def cao(q):
    def loss(s, y, c):
        p = torch.log_softmax(s, -1).mul(q).exp()
        return (1 - own(p, y)) / q + (1 - c) * (1 - p[:, -1]) / q

    return loss


def mao_scores(s, y, c):
    """Mao et al. 2024: the mean absolute error over K + 1 scores."""
    p = softmax(s)
    return 1 - own(p, y) + (1 - c) * (1 - p[:, -1])


def mao_rejector(s, y, c):
    """Mao et al. 2023, single stage: mean absolute error times a sigmoid of the rejector."""
    accept = torch.sigmoid(s[:, -1])
    return (1 - own(softmax(s[:, :-1]), y)) * accept + c * (1 - accept)


def verma_nalisnick(s, y, c):
    g, d = s[:, :-1], s[:, -1]
    return ova(logistic)(g, y, c) + (1 - c) * logistic(d) + c * logistic(-d)


def asymmetric_softmax(s, y, c):
    """Cao et al. 2023: the reject score against all but the largest class score."""
    g, d = s[:, :-1], s[:, -1]
    rest = torch.logsumexp(g.masked_fill(F.one_hot(g.argmax(-1), g.shape[-1]).bool(), -torch.inf), -1)
    return ce(g, y, c) + (1 - c) * F.softplus(rest - d) + c * F.softplus(d - rest)


def deep_gamblers(s, y, c):
    log_p = torch.log_softmax(s, -1)
    return -torch.logaddexp(own(log_p, y), log_p[:, -1] + np.log(1 - c))


def squared_error(s, y, c):
    return (s - one_hot(y, s)).square().sum(-1)


def exponential_pairs(s, y, c):
    return others(torch.exp(s - own(s, y)[:, None]), y).sum(-1)


def weston_watkins(s, y, c):
    return others(F.relu(1 + s - own(s, y)[:, None]), y).sum(-1)


def crammer_singer(s, y, c):
    rest = s.masked_fill(F.one_hot(y, s.shape[-1]).bool(), -torch.inf).amax(-1)
    return F.relu(1 + rest - own(s, y))


def weighted_crammer_singer(s, y, c):
    m = s.masked_fill(F.one_hot(y, s.shape[-1]).bool(), -torch.inf).amax(-1) - own(s, y)
    kept = torch.clamp(m, min=-1.0)
    return 2 * torch.maximum(c * kept, (1 - c) * kept) + 2 * c


def wide_lead(s, c):
    two = s.topk(2, -1).values
    return s.argmax(-1), two[:, 0] - two[:, 1] <= 0.5


def pairwise(beta, sign=-1.0, weight=1.0):
    """Eq. 8 with logistic functions."""

    def loss(s, y, c):
        g, r = s[:, :-1], s[:, -1:]
        pairs = F.softplus(-(own(g, y)[:, None] - g + sign * r))
        return others(pairs, y).sum(-1) + weight * c * F.softplus(-beta * s[:, -1])

    return loss


def halves(loss):
    """Two scores for each class, added."""
    return lambda s, y, c: loss(s[:, : s.shape[-1] // 2] + s[:, s.shape[-1] // 2 :], y, c)


def halves_link(s):
    return softmax(s[:, : s.shape[-1] // 2] + s[:, s.shape[-1] // 2 :])


def best_of_two(s):
    return torch.logsumexp(s.reshape(len(s), -1, 2), -1)


def masked_last_class(s, y, c):
    return torch.where(y == s.shape[-1] - 1, torch.zeros_like(s[:, 0]), ce(s, y, c))


def swapped_labels(s, y, c):
    return ce(s, torch.where(y == 0, 1, torch.where(y == 1, 0, y)), c)


def reject_weighted(weight):
    """Mozannar and Sontag's loss with another weight on the reject score."""

    def loss(s, y, c):
        log_p = torch.log_softmax(s, -1)
        return -own(log_p, y) - weight(c) * log_p[:, -1]

    return loss


def class_costs(s, y, c):
    """Mozannar and Sontag's loss where rejecting class y costs c_y."""
    log_p = torch.log_softmax(s, -1)
    return -own(log_p, y) - (1 - c[y]) * log_p[:, -1]


def threshold_at(value):
    def rule(s, c):
        p = softmax(s)
        return p.argmax(-1), p.amax(-1) <= (value(c) if callable(value) else value)

    return rule


def never_two(s, c):
    """Answers class 0 or 1 only."""
    p = softmax(s)
    return p[:, :2].argmax(-1), p.amax(-1) <= 1 - c


def tsallis(q):
    """The proper score of Tsallis's entropy: Brier's at q = 2, the logarithm's towards q = 1."""

    def loss(s, y, c):
        p = softmax(s)
        return (-q * own(p, y) ** (q - 1) + (q - 1) * (p**q).sum(-1)) / (q - 1)

    return loss


def tilted(t):
    """Tilted cross-entropy, (p^-t - 1) / t, whose minimiser has p proportional to eta^(1 / (1 + t))."""
    return lambda s, y, c: torch.expm1(t * ce(s, y, c)) / t


def normalised_logits(s, y, c):
    """Cross-entropy of scores divided by their length: it cannot know how long they are, and the rule reads that."""
    return ce(10 * s / (s.norm(dim=-1, keepdim=True) + 1e-7), y, c)


def rounded_hinge(z):
    """The hinge with its corner rounded over a tenth."""
    u = 1 - z
    return torch.where(u <= 0, torch.zeros_like(u), torch.where(u < 0.1, u.square() / 0.2, u - 0.05))


def huber(s, y, c):
    return F.huber_loss(s, 2 * one_hot(y, s) - 1, reduction="none", delta=0.5).sum(-1)


def answer_and_doubt(s, y, c):
    """2K scores: cross-entropy for the answer, and for each class whether it would be worth answering."""
    g, h = s[:, : s.shape[-1] // 2], s[:, s.shape[-1] // 2 :]
    return ce(g, y, c) + weighted_ova(logistic)(h, y, c)


def doubt_of_answer(s, c):
    g, h = s[:, : s.shape[-1] // 2], s[:, s.shape[-1] // 2 :]
    return g.argmax(-1), own(h, g.argmax(-1)) <= 0


def doubt_of_all(s, c):
    g, h = s[:, : s.shape[-1] // 2], s[:, s.shape[-1] // 2 :]
    return g.argmax(-1), h.sum(-1) <= 0


def share_of_answers(s, c):
    """K + 1 scores, but Chow's rule on what the classes have among themselves."""
    p = softmax(s)[:, :-1]
    share = p / p.sum(-1, keepdim=True)
    return share.argmax(-1), share.amax(-1) <= 1 - c


def nearly_last(s, c):
    return s[:, :-1].argmax(-1), s[:, -1] >= s[:, :-1].amax(-1) - 0.1


WEIGHTS = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)


def weighted_classes(s, y, c):
    return ce(s, y, c) * WEIGHTS[y]


def unweighted(s):
    p = softmax(s) / WEIGHTS
    return p / p.sum(-1, keepdim=True)


def jumping(s, y, c):
    """Cross-entropy and a fine for a wrong argmax: it jumps, but away from the minimum."""
    return ce(s, y, c) + 0.3 * (s.argmax(-1) != y).to(s.dtype)


def arctangent_rejector(s, y, c):
    accept = 0.5 + torch.atan(s[:, -1]) / np.pi
    return (1 - own(softmax(s[:, :-1]), y)) * accept + c * (1 - accept)


def doubted_ce(s, y, c):
    """Cross-entropy instead of an error, times the acceptance: declines by the entropy of eta."""
    accept = torch.sigmoid(s[:, -1])
    return ce(s[:, :-1], y, c) * accept + c * (1 - accept)


def evidence(s):
    return 1 + F.softplus(s)


def evidential(s, y, c):
    """The expected logarithm under a Dirichlet distribution; its minimum is where the evidence is endless."""
    a = evidence(s)
    return torch.digamma(a.sum(-1)) - torch.digamma(own(a, y))


def steep_hinge(s, y, c):
    """Bartlett and Wegkamp 2008: two classes, one score."""
    z = (2 * y - 1).to(s.dtype) * s[:, 0]
    return torch.where(z < 0, 1 - (1 - c) / c * z, F.relu(1 - z))


def never_answers(s, c):
    return s.argmax(-1), torch.ones(len(s), dtype=torch.bool)


def slightly_smoothed_brier(s, y, c):
    """Labels mixed with a thousandth of the uniform distribution, which the softmax does not undo."""
    return (softmax(s) - 0.999 * one_hot(y, s) - 0.001 / s.shape[-1]).square().sum(-1)


def of_length_5(s):
    return 5 * s / (s.norm(dim=-1, keepdim=True) + 1e-9)


def softmax_of_length_5(s):
    return softmax(of_length_5(s))


def softmax_of_tanh(s):
    """No class gets less than about exp(-8) of the largest."""
    return softmax(4 * s.tanh())


MATRIX = np.array([[0.0, 1.0, 2.0, 0.3], [3.0, 0.0, 1.0, 0.3], [1.0, 1.0, 0.0, 0.2]])
PRICES = np.array([0.1, 0.3, 0.4])


def scaled(a):
    return lambda s, y, c: ce(a * s, y, c)


def weighted(weights):
    w = torch.tensor(weights, dtype=torch.float64)
    return lambda s, y, c: ce(s, y, c) * w[y]


def undone(weights):
    w = torch.tensor(weights, dtype=torch.float64)
    return lambda s: softmax(s) / w / (softmax(s) / w).sum(-1, keepdim=True)


def trained_for(loss, cost):
    return lambda s, y, c: loss(s, y, cost)


MARGINS = {
    "log": (logistic, torch.sigmoid),
    "exp": (exponential, lambda s: torch.sigmoid(2 * s)),
    "sq": (squared, lambda s: (1 + s) / 2),
    "sqhin": (squared_hinge, lambda s: (1 + s) / 2),
}
WEIGHTS_OF_CLASSES = ([1.0, 2.0, 4.0], [1.0, 0.2, 0.9], [5.0, 5.0, 1.0])


def families():
    """Losses of well-known families at several costs, numbers of classes and parameters, right and wrong."""
    for k, c in ((2, 0.05), (2, 0.4), (3, 0.1), (3, 0.45), (4, 0.05), (4, 0.3), (6, 0.1), (6, 0.4)):
        yield Case(f"ce, K = {k}, c = {c}", CALIBRATED, ce, classes=k, cost=c)
    for k, c in ((2, 0.1), (3, 0.05), (3, 0.4), (5, 0.1), (6, 0.3)):
        yield Case(f"ms, K = {k}, c = {c}", CALIBRATED, mozannar_sontag, last_wins, k + 1, k, c)
        wrong = reject_weighted(lambda c: 1 - c - 0.03)
        yield Case(f"ms with less weight, K = {k}, c = {c}", REFUTED, wrong, last_wins, k + 1, k, c)
    for name, (phi, link) in MARGINS.items():
        for c in (0.1, 0.35):
            yield Case(f"ova+{name}, c = {c}", CALIBRATED, ova(phi), chow_on(link), cost=c)
            yield Case(
                f"ova+{name} for c + .02, c = {c}",
                REFUTED,
                ova(phi),
                lambda s, c, k=link: chow_on(k)(s, c + 0.02),
                cost=c,
            )
    for a, c in ((0.5, 0.1), (0.5, 0.3), (2.0, 0.1), (2.0, 0.3), (5.0, 0.4)):
        yield Case(f"ce of {a} s, c = {c}", CALIBRATED, scaled(a), chow_on(lambda s, a=a: softmax(a * s)), cost=c)
        yield Case(f"ce of {a} s read as s, c = {c}", REFUTED, scaled(a), cost=c)
    for i, (weights, c) in enumerate(zip(WEIGHTS_OF_CLASSES * 2, (0.1, 0.1, 0.1, 0.35, 0.35, 0.35), strict=True)):
        yield Case(f"class weights {i} undone", CALIBRATED, weighted(weights), chow_on(undone(weights)), cost=c)
        yield Case(f"class weights {i}", REFUTED, weighted(weights), cost=c)
    for epsilon, c in ((0.05, 0.1), (0.2, 0.3), (0.4, 0.2)):
        smoothed = smoothed_ce(3, epsilon)
        yield Case(f"smoothing {epsilon} inverted", CALIBRATED, smoothed, chow_on(smoothed_link(3, epsilon)), cost=c)
        yield Case(f"smoothing {epsilon}", REFUTED, smoothed, cost=c)
        yield Case(
            f"tilted {epsilon}", CALIBRATED, tilted(epsilon), chow_on(lambda s, t=epsilon: softmax((1 + t) * s)), cost=c
        )
        yield Case(f"tilted {epsilon} read as softmax", REFUTED, tilted(epsilon), cost=c)
    for c in (0.1, 0.3, 0.45):
        yield Case(f"pairwise, K = 2, c = {c}", CALIBRATED, pairwise(4 * (1 - c)), "rejector", classes=2, cost=c)
        yield Case(
            f"pairwise, K = 2, beta off, c = {c}", REFUTED, pairwise(4.2 * (1 - c)), "rejector", classes=2, cost=c
        )
        yield Case(f"pairwise, K = 4, c = {c}", REFUTED, pairwise(4 * (1 - c)), "rejector", classes=4, cost=c)
        yield Case(f"weighted ova+log, c = {c}", CALIBRATED, weighted_ova(logistic), positive, cost=c)
        yield Case(
            f"weighted ova+log for another cost, c = {c}",
            REFUTED,
            trained_for(weighted_ova(logistic), 0.25),
            positive,
            cost=c,
        )
        for off in (0.003, -0.003, 0.03, -0.03):
            yield Case(
                f"threshold off by {off}, c = {c}", REFUTED, ce, threshold_at(lambda c, off=off: 1 - c + off), cost=c
            )
    for most in (3.0, 4.0, 6.0):
        yield Case(f"ce at most {most}", REFUTED, lambda s, y, c, m=most: ce(s, y, c).clamp(max=m))
    yield Case("threshold off at one shape", REFUTED, ce, dented)
    yield Case("ce reweighted by confidence", REFUTED, reweighted)
    yield Case("declining by entropy, K = 2", CALIBRATED, ce, by_entropy, classes=2)
    yield Case("declining by entropy, K = 3", REFUTED, ce, by_entropy)


def dented(s, c):
    """A threshold that is too low where the second class has 73 % of the rest."""
    p = softmax(s)
    two = p.topk(2, -1).values
    share = two[:, 1] / (1 - two[:, 0])
    acceptance = two[:, 0] - (1 - c) + 0.01 * torch.exp(-((share - 0.73) / 0.05).square())
    return Decision.from_acceptance(p.argmax(-1), acceptance)


def reweighted(s, y, c):
    """AURC as a reweighted risk (Zhou et al. 2025), with the confidence in the place of its rank."""
    return -torch.log(1 - 0.99 * softmax(s).amax(-1)) * ce(s, y, c)


def by_entropy(s, c):
    """Density-ratio rejection with the log loss (Soen et al. 2024) declines where the entropy is large."""
    p = softmax(s)
    entropy = -(p * p.clamp(min=1e-300).log()).sum(-1)
    return p.argmax(-1), entropy >= -c * np.log(c) - (1 - c) * np.log(1 - c)


CASES = [
    # What is calibrated.
    Case("ce", CALIBRATED, ce),
    Case("ce, two classes", CALIBRATED, ce, classes=2),
    Case("ce, eight classes", CALIBRATED, ce, classes=8),
    Case("ce x 1e-9", CALIBRATED, times(ce, 1e-9)),
    Case("ce x 1e9", CALIBRATED, times(ce, 1e9)),
    Case("ce x 1e10", CALIBRATED, times(ce, 1e10), quick=True),
    Case("ce + 1000", CALIBRATED, times(ce, plus=1000.0)),
    Case("ce - 1e6", CALIBRATED, times(ce, plus=-1e6)),
    Case("ce, kinks suspected", CALIBRATED, ce, smooth=False),
    Case("clamp(ce, min=.1)", CALIBRATED, lambda s, y, c: ce(s, y, c).clamp(min=0.1)),
    Case(
        "ce of half the scores", CALIBRATED, times(lambda s, y, c: ce(s / 2, y, c)), chow_on(lambda s: softmax(s / 2))
    ),
    Case("ce with anchored sum", CALIBRATED, lambda s, y, c: ce(s, y, c) + 0.01 * s.sum(-1).square()),
    Case("ce of 2K scores", CALIBRATED, halves(ce), chow_on(halves_link), outputs=6),
    Case("brier", CALIBRATED, brier),
    Case("brier, kinks suspected", CALIBRATED, brier, smooth=False),
    Case("spherical", CALIBRATED, spherical),
    Case("squared error", CALIBRATED, squared_error, chow_on(lambda s: s)),
    Case(
        "circular smoothing, K = 4",
        CALIBRATED,
        smoothed_ce(4, 0.3, True),
        chow_on(smoothed_link(4, 0.3, True)),
        classes=4,
        quick=True,
    ),
    Case(
        "circular smoothing, K = 5",
        CALIBRATED,
        smoothed_ce(5, 0.2, True),
        chow_on(smoothed_link(5, 0.2, True)),
        classes=5,
    ),
    Case("uniform smoothing, inverted", CALIBRATED, smoothed_ce(3, 0.1), chow_on(smoothed_link(3, 0.1))),
    Case("sparsemax", CALIBRATED, sparsemax, chow_on(sparsemax_link)),
    Case("gce .7 with its link", CALIBRATED, gce(0.7), chow_on(gce_link(0.7))),
    Case(
        "ce of a thousandth of the scores",
        CALIBRATED,
        lambda s, y, c: ce(s / 1000, y, c),
        chow_on(lambda s: softmax(s / 1000)),
    ),
    Case("ce in float32", CALIBRATED, lambda s, y, c: ce(s.float(), y, c)),
    Case("threshold .6, K = 50", REFUTED, ce, threshold_at(0.6), classes=50),
    Case("gce .3 with its link", CALIBRATED, gce(0.3), chow_on(gce_link(0.3))),
    Case("focal 2 with its link", CALIBRATED, focal(2.0), chow_on(focal_link(2.0))),
    Case("ova+log", CALIBRATED, ova(logistic), chow_on(torch.sigmoid)),
    Case("ova+log x 1e-9", CALIBRATED, times(ova(logistic), 1e-9), chow_on(torch.sigmoid)),
    Case("ova+log, normalised", CALIBRATED, ova(logistic), chow_on(normalised_sigmoid)),
    Case("ova+exp", CALIBRATED, ova(exponential), chow_on(lambda s: torch.sigmoid(2 * s))),
    Case("ova+sq", CALIBRATED, ova(squared), chow_on(lambda s: (1 + s) / 2)),
    Case("ova+sqhin", CALIBRATED, ova(squared_hinge), chow_on(lambda s: (1 + s) / 2)),
    Case("weighted ova+log", CALIBRATED, weighted_ova(logistic), positive),
    Case("weighted ova+sqhin", CALIBRATED, weighted_ova(squared_hinge), positive),
    Case("weighted ova+hin", CALIBRATED, weighted_ova(hinge), positive, smooth=False),
    Case("weighted ova+sigmoid", CALIBRATED, weighted_ova(sigmoid_loss), positive),
    Case("weighted crammer-singer", CALIBRATED, weighted_crammer_singer, wide_lead, smooth=False),
    Case("exponential pairs", CALIBRATED, exponential_pairs, chow_on(lambda s: softmax(2 * s))),
    Case("mozannar-sontag", CALIBRATED, mozannar_sontag, last_wins, outputs=4, quick=True),
    Case("mozannar-sontag, K = 5", CALIBRATED, mozannar_sontag, last_wins, outputs=6, classes=5, cost=0.35),
    Case("cao .5", CALIBRATED, cao(0.5), last_wins, outputs=4),
    Case("cao .7", CALIBRATED, cao(0.7), last_wins, outputs=4),
    Case("mao's scores", CALIBRATED, mao_scores, last_wins, outputs=4),
    Case("mao's rejector", CALIBRATED, mao_rejector, "rejector"),
    Case("verma-nalisnick", CALIBRATED, verma_nalisnick, last_wins, outputs=4),
    Case("asymmetric softmax", CALIBRATED, asymmetric_softmax, last_wins, outputs=4),
    Case("pairwise, K = 2", CALIBRATED, pairwise(3.2), "rejector", classes=2, quick=True),
    Case("ce, cost matrix", CALIBRATED, ce, cost=MATRIX),
    Case("brier, cost matrix", CALIBRATED, brier, least_cost_on(softmax), cost=MATRIX),
    Case("prices by class", CALIBRATED, class_costs, last_wins, outputs=4, cost=PRICES, quick=True),
    Case("tsallis 1.5", CALIBRATED, tsallis(1.5)),
    Case("tsallis 3, K = 4", CALIBRATED, tsallis(3.0), classes=4),
    Case("tilted ce with its link", CALIBRATED, tilted(0.5), chow_on(lambda s: softmax(1.5 * s))),
    Case("rounded hinge, weighted", CALIBRATED, weighted_ova(rounded_hinge), positive),
    Case("answer and doubt, 2K scores", CALIBRATED, answer_and_doubt, doubt_of_answer, outputs=6),
    Case("share of the answers", CALIBRATED, mozannar_sontag, share_of_answers, outputs=4),
    Case("class weights undone", CALIBRATED, weighted_classes, chow_on(unweighted), quick=True),
    Case(
        "scores in another order",
        CALIBRATED,
        lambda s, y, c: ce(s.roll(1, -1), y, c),
        chow_on(lambda s: softmax(s.roll(1, -1))),
    ),
    Case("jumping", CALIBRATED, jumping),
    Case("arctangent rejector", CALIBRATED, arctangent_rejector, "rejector"),
    Case("evidential", CALIBRATED, evidential, chow_on(lambda s: evidence(s) / evidence(s).sum(-1, keepdim=True))),
    Case(
        "steep hinge",
        CALIBRATED,
        steep_hinge,
        lambda s, c: ((s[:, 0] > 0).long(), s[:, 0].abs() <= 0.5),
        1,
        2,
        smooth=False,
    ),
    Case(
        "steep hinge, kinks unsuspected",
        CALIBRATED,
        steep_hinge,
        lambda s, c: ((s[:, 0] > 0).long(), s[:, 0].abs() <= 0.5),
        1,
        2,
    ),
    # What is wrong, each as people get it wrong.
    Case("tilted ce", REFUTED, tilted(0.5)),
    Case("ce with a polynomial term", REFUTED, lambda s, y, c: ce(s, y, c) + 2 * mae(s, y, c)),
    Case("margins added to the scores", REFUTED, lambda s, y, c: ce(s - 0.5 * one_hot(y, s), y, c)),
    Case("huber for squared", REFUTED, huber, chow_on(lambda s: (1 + s) / 2)),
    Case("doubt of all classes", REFUTED, answer_and_doubt, doubt_of_all, outputs=6),
    Case("nearly the last", REFUTED, mozannar_sontag, nearly_last, outputs=4),
    Case("scores in another order, unnoticed", REFUTED, lambda s, y, c: ce(s.roll(1, -1), y, c)),
    Case("ce times the acceptance", REFUTED, doubted_ce, "rejector"),
    Case("never answers", REFUTED, ce, never_answers),
    Case("threshold 1 - c + .001", REFUTED, ce, threshold_at(lambda c: 1 - c + 0.001)),
    Case("no rejection term", REFUTED, pairwise(3.2, weight=0.0), "rejector"),
    Case("rejector with the wrong sign", REFUTED, pairwise(3.0, sign=1.0), "rejector"),
    Case("pairwise, K = 3", REFUTED, pairwise(3.2), "rejector"),
    Case("pairwise, half the rejection term", REFUTED, pairwise(3.2, weight=0.5), "rejector", classes=2),
    Case("pairwise trained for c = .4", REFUTED, lambda s, y, c: pairwise(2.4)(s, y, 0.4), "rejector", classes=2),
    Case(
        "against the rejector",
        REFUTED,
        pairwise(3.2),
        lambda s, c: (s[:, :-1].argmax(-1), s[:, -1] > 0),
        outputs=3,
        classes=2,
    ),
    Case("threshold .6", REFUTED, ce, threshold_at(0.6), quick=True),
    Case("threshold c", REFUTED, ce, threshold_at(lambda c: c)),
    Case("threshold 1 - c + .01", REFUTED, ce, threshold_at(lambda c: 1 - c + 0.01)),
    Case("last class masked", REFUTED, masked_last_class),
    Case("labels swapped", REFUTED, swapped_labels),
    Case("softmax twice", REFUTED, lambda s, y, c: ce(softmax(s), y, c)),
    Case("temperature forgotten", REFUTED, lambda s, y, c: ce(s / 2, y, c)),
    Case(
        "class weights",
        REFUTED,
        lambda s, y, c: ce(s, y, c) * torch.tensor([1.0, 2.0, 1.0], dtype=s.dtype)[y],
    ),
    Case("uniform smoothing", REFUTED, smoothed_ce(3, 0.3)),
    Case("circular smoothing", REFUTED, smoothed_ce(4, 0.3, True), classes=4),
    Case("focal 2", REFUTED, focal(2.0)),
    Case("gce .7", REFUTED, gce(0.7)),
    Case("mae", REFUTED, mae),
    Case("absolute", REFUTED, absolute),
    Case("squared error read as logits", REFUTED, squared_error),
    Case("ova+exp read with a sigmoid", REFUTED, ova(exponential), chow_on(torch.sigmoid)),
    Case("ova+log read with a softmax", REFUTED, ova(logistic), chow_on(softmax)),
    Case("exponential pairs read as logits", REFUTED, exponential_pairs),
    Case("unweighted ova+hin", REFUTED, ova(hinge), positive, smooth=False),
    Case("weston-watkins", REFUTED, weston_watkins, wide_lead, smooth=False),
    Case("crammer-singer", REFUTED, crammer_singer, wide_lead, smooth=False),
    Case("deep gamblers", REFUTED, deep_gamblers, last_wins, outputs=4),
    Case("reject score with weight c", REFUTED, reject_weighted(lambda c: c), last_wins, outputs=4),
    Case("reject score with weight 1", REFUTED, reject_weighted(lambda c: 1.0), last_wins, outputs=4),
    Case(
        "expert always right",
        REFUTED,
        lambda s, y, c: ova(logistic)(s[:, :-1], y, c) + logistic(s[:, -1]),
        last_wins,
        outputs=4,
    ),
    Case("mao's scores with weight c", REFUTED, lambda s, y, c: mao_scores(s, y, 1 - c), last_wins, outputs=4),
    Case("mao's rejector, double price", REFUTED, lambda s, y, c: mao_rejector(s, y, 2 * c), "rejector"),
    Case("class 2 is never answered", REFUTED, ce, never_two, outputs=3),
    Case("one price for a matrix", REFUTED, ce, lambda s, costs: chow_on(softmax)(s, 0.2), cost=MATRIX),
    Case(
        "prices of other classes",
        REFUTED,
        lambda s, y, c: class_costs(s, y, c.flip(0)),
        last_wins,
        outputs=4,
        cost=PRICES,
    ),
    Case("clamp(ce, max=5)", REFUTED, lambda s, y, c: ce(s, y, c).clamp(max=5.0), quick=True),
    Case("threshold 1 - c + 3e-4", REFUTED, ce, threshold_at(lambda c: 1 - c + 3e-4)),
    # What is wrong by so little that a search near the boundary cannot prove it.
    Case("clamp(ce, max=8)", INCONCLUSIVE, lambda s, y, c: ce(s, y, c).clamp(max=8.0)),
    Case("brier with a little smoothing", INCONCLUSIVE, slightly_smoothed_brier),
    Case("scores of length 5", INCONCLUSIVE, lambda s, y, c: ce(of_length_5(s), y, c), chow_on(softmax_of_length_5)),
    Case("4 tanh of the scores", INCONCLUSIVE, lambda s, y, c: ce(4 * s.tanh(), y, c), chow_on(softmax_of_tanh)),
    # What minimising alone cannot decide: the loss does not tell right from wrong.
    Case("constant", REFUTED, lambda s, y, c: 1 + 0 * s.sum(-1), quick=True),
    Case("normalised logits", INCONCLUSIVE, normalised_logits),
    Case("rounded to tenths", INCONCLUSIVE, lambda s, y, c: (10 * ce(s, y, c)).round() / 10),
    Case("a step", INCONCLUSIVE, lambda s, y, c: (s.argmax(-1) != y).to(s.dtype) + 0 * s.sum(-1)),
    Case("flat where it matters", INCONCLUSIVE, lambda s, y, c: F.relu(ce(s, y, c) - 3.0)),
    *families(),
]
