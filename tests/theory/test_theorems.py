"""Theorems for plain functions: well-known calibrated losses get one, and losses that only look like them do not.

Each is written as a researcher writes it. The sources: cross-entropy (Good 1952), Brier 1950, Tsallis 1988, the
spherical score (Roby 1965), generalised cross-entropy (Zhang & Sabuncu 2018), focal (Lin et al. 2017), label smoothing
(Szegedy et al. 2016), logit adjustment (Menon et al. 2021), one-versus-all (Zhang 2004), cost-sensitive (Charoenphakdee
et al. 2021a), over K + 1 scores Mozannar & Sontag 2020, Verma & Nalisnick 2022, Cao et al. 2022, Mao et al. 2024.
"""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from demur.losses import FunctionLoss, available, get
from demur.theory import LossContractError, check_calibration
from demur.theory.calibration_check import certify
from demur.theory.structure import NotProvedError, P, S, exact, negative

pytestmark = pytest.mark.slow

PRIOR = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 3.0, 0.5], dtype=torch.float64)


def ce(s, y):
    return F.cross_entropy(s, y, reduction="none")


def by_hand(s, y):
    e = torch.exp(s - s.max(-1, keepdim=True).values)
    p = e / e.sum(-1, keepdim=True)
    return -torch.log(p[torch.arange(len(y)), y])


def own(s, y):
    return s.gather(-1, y[:, None]).squeeze(-1)


def brier(s, y):
    return (torch.softmax(s, -1) - F.one_hot(y, s.shape[-1])).square().sum(-1)


def tsallis(s, y):
    p = torch.softmax(s, -1)
    return -3 * own(p, y).sqrt() + p.pow(1.5).sum(-1)


def spherical(s, y):
    p = torch.softmax(s, -1)
    return -own(p, y) / p.norm(dim=-1)


def gce(s, y):
    return (1 - own(torch.softmax(s, -1), y) ** 0.7) / 0.7


def focal(s, y):
    log_p = own(F.log_softmax(s, -1), y)
    return -((1 - log_p.exp()) ** 2) * log_p


def focal_link(s):
    p = torch.softmax(s, -1)
    h = p / ((1 - p) ** 2 - 2 * (1 - p) * p * torch.log(p))
    return h / h.sum(-1, keepdim=True)


def smoothed(s, y):
    return F.cross_entropy(s, y, reduction="none", label_smoothing=0.1)


def corrected(s, c):
    p = torch.softmax(s, -1)
    return p.argmax(-1), p.amax(-1) <= 0.9 * (1 - c) + 0.1 / 3


def sides(s, y):
    return 2 * F.one_hot(y, s.shape[-1]) - 1


def one_versus_all(phi):
    return lambda s, y: phi(sides(s, y) * s).sum(-1)


def weighted(phi):
    def loss(s, y, c):
        target = F.one_hot(y, s.shape[-1]).to(s.dtype)
        return (c * target * phi(s) + (1 - c) * (1 - target) * phi(-s)).sum(-1)

    return loss


def logistic(z):
    return F.softplus(-z)


def hinge(z):
    return torch.clamp(1 - z, min=0)


def squared_hinge(z):
    return F.relu(1 - z) ** 2


def bce(s, y):
    return F.binary_cross_entropy_with_logits(s, F.one_hot(y, 3).to(s), reduction="none").sum(-1)


def chow(link):
    def rule(s, c):
        p = link(s)
        return p.argmax(-1), p.max(-1).values <= 1 - c

    return rule


def positive(s, c):
    return s.argmax(-1), s.amax(-1) <= 0


def last_wins(s, c):
    label = s.argmax(-1)
    return label, label == s.shape[-1] - 1


def mozannar_sontag(s, y, c):
    log_p = F.log_softmax(s, -1)
    return -own(log_p, y) - (1 - c) * log_p[:, -1]


def cao(s, y, c):
    p = torch.softmax(s, -1)
    return (1 - own(p, y) ** 0.7) / 0.7 + (1 - c) * (1 - p[:, -1] ** 0.7) / 0.7


def mao(s, y, c):
    p = torch.softmax(s, -1)
    return 1 - own(p, y) + (1 - c) * (1 - p[:, -1])


def verma_nalisnick(s, y, c):
    g, d = s[:, :-1], s[:, -1]
    return one_versus_all(logistic)(g, y) + (1 - c) * logistic(d) + c * logistic(-d)


def pairs(s, y):
    return torch.where(F.one_hot(y, 3).bool(), 0.0, logistic(own(s, y)[:, None] - s)).sum(-1)


def sigmoid_twice(s):
    return torch.sigmoid(2 * s)


def half(s):
    return (1 + s) / 2


def cut_half(s):
    return torch.clamp((1 + s) / 2, 0, 1)


WELL_KNOWN = {
    "cross-entropy": (ce, "softmax"),
    "cross-entropy by hand": (by_hand, chow(lambda s: torch.softmax(s, -1))),
    "cross-entropy by logsumexp": (lambda s, y: torch.logsumexp(s, 1) - own(s, y), "softmax"),
    "tempered": (lambda s, y: ce(s / 2.5, y), chow(lambda s: torch.softmax(s / 2.5, -1))),
    "logit adjustment": (lambda s, y: ce(s + PRIOR.log(), y), chow(lambda s: torch.softmax(s + PRIOR.log(), -1))),
    "label smoothing": (smoothed, corrected),
    "brier": (brier, "softmax"),
    "one-versus-all logistic": (one_versus_all(logistic), chow(torch.sigmoid)),
    "one-versus-all exponential": (one_versus_all(lambda z: torch.exp(-z)), chow(sigmoid_twice)),
    "one-versus-all squared": (one_versus_all(lambda z: (1 - z) ** 2), chow(half)),
    "one-versus-all squared hinge": (one_versus_all(squared_hinge), chow(cut_half)),
    "binary cross-entropies": (bce, chow(torch.sigmoid)),
    "squared error": (
        lambda s, y: F.mse_loss(s, F.one_hot(y, 3).to(s), reduction="none").sum(-1),
        chow(lambda s: s),
    ),
    "weighted hinges": (weighted(hinge), positive),
    "weighted logistics": (weighted(logistic), positive),
    "mozannar-sontag": (mozannar_sontag, last_wins),
    "cao": (cao, "reject-score"),
    "mao": (mao, "reject-score"),
    "verma-nalisnick": (verma_nalisnick, last_wins),
}
UNRECOGNISED = {"spherical": (spherical, "softmax"), "pairwise logistic": (pairs, "softmax")}
UNRECOGNISED |= {"gce": (gce, chow(lambda s: torch.softmax((1 - 0.7) * s, -1))), "focal": (focal, chow(focal_link))}
UNRECOGNISED["class weights"] = (
    lambda s, y: F.cross_entropy(s, y, weight=WEIGHTS, reduction="none"),
    chow(lambda s: (lambda p: p / p.sum(-1, keepdim=True))(torch.softmax(s, -1) / WEIGHTS)),
)
UNRECOGNISED["tsallis"] = (tsallis, "softmax")
FORMS = {
    "log(1 + e^-z)": (one_versus_all(lambda z: torch.log1p(torch.exp(-z))), chow(torch.sigmoid)),
    "soft margin": (lambda s, y: F.soft_margin_loss(s, sides(s, y), reduction="none").sum(-1), chow(torch.sigmoid)),
    "mean of binary cross-entropies": (
        lambda s, y: F.multilabel_soft_margin_loss(s, F.one_hot(y, 3), reduction="none"),
        chow(torch.sigmoid),
    ),
    "brier, mean over the classes": (lambda s, y: brier(s, y) / 3, "softmax"),
}
"""Other ways to write some of them."""
OVER_ACTIONS = {"mozannar-sontag", "cao", "mao", "verma-nalisnick"}


def prove(loss, rule="softmax", outputs=None, classes=3, cost=0.2):
    return certify(FunctionLoss(loss, rule, outputs), classes, cost)


@pytest.mark.parametrize("name", WELL_KNOWN)
def test_well_known_losses_as_plain_functions_have_a_theorem(name):
    outputs = 4 if name in OVER_ACTIONS else 3
    assert prove(*WELL_KNOWN[name], outputs) is not None
    assert prove(*WELL_KNOWN[name], outputs, cost=0.21 if name not in OVER_ACTIONS else 0.4) is not None


@pytest.mark.parametrize("name", FORMS)
def test_other_ways_to_write_them_have_a_theorem_too(name):
    assert prove(*FORMS[name]) is not None


def of_one_score(s, c):
    return (s[:, 0] > 0).long(), torch.maximum(torch.sigmoid(s[:, 0]), torch.sigmoid(-s[:, 0])) <= 1 - c


def test_two_classes_with_one_score_have_a_theorem():
    def loss(s, y):
        return F.softplus(-(2 * y - 1) * s[:, 0])

    assert prove(loss, of_one_score, 1, classes=2) is not None
    assert prove(loss, lambda s, c: of_one_score(s, c + 1e-6), 1, classes=2) is None
    assert prove(loss, lambda s, c: ((s[:, 0] > 0.1).long(), of_one_score(s, c)[1]), 1, classes=2) is not None
    assert prove(loss, lambda s, c: ((s[:, 0] > 2).long(), of_one_score(s, c)[1]), 1, classes=2) is None
    assert prove(loss, lambda s, c: ((s[:, 0] > 0).long(), s[:, 0] < 0), 1, classes=2) is None


def test_there_are_25_and_six_are_left_to_the_search():
    assert len(WELL_KNOWN) + len(UNRECOGNISED) == 25
    for loss, rule in UNRECOGNISED.values():
        assert prove(loss, rule) is None


def test_the_report_says_theorem():
    report = check_calibration(brier, 3, 0.2)
    assert (report.verdict, report.evidence) == ("calibrated", "theorem")
    assert "operations" in report.certificate.checked[0]


def shifted(link, by):
    def rule(s, c):
        p = link(s)
        return p.argmax(-1), p.amax(-1) <= 1 - c + by

    return rule


def changed_in_place(s, y):
    p = torch.softmax(s, -1)
    p[:, 0] += 1e-6
    return -torch.log(own(p, y))


def branching(s, y):
    return ce(s, y) if float(s.detach().abs().max()) < 1e4 else ce(s, y).clamp(max=9)


def branching_on_numpy(s, y):
    return ce(s, y) * (1.0 if np.asarray(s.detach()).max() < 1e4 else 2.0)


def of_large_batches(s, y):
    return ce(s, y) if len(s) < 150 else ce(s, y) + 0.1 * s.square().sum(-1)


def first_class_only(s, c):
    return torch.zeros(len(s), dtype=torch.long), torch.softmax(s, -1).amax(-1) <= 1 - c


def projected(s, y):
    """Its minimiser is the projection of 1.2 eta - 0.2 / 3 on the simplex: an affine link only inside."""
    p = torch.softmax(s, -1)
    return p.square().sum(-1) - 2.4 * own(p, y)


SIGMOID, LOGISTIC = chow(torch.sigmoid), one_versus_all(logistic)
NEAR_MISSES = {
    "clamp far out": (lambda s, y: ce(s, y).clamp(max=50), "softmax"),
    "probabilities clamped": (lambda s, y: -torch.log(own(torch.softmax(s, -1), y).clamp(min=1e-12)), "softmax"),
    "a bump": (lambda s, y: LOGISTIC(s, y) + 1e-3 * torch.exp(-100 * (s - 1.2) ** 2).sum(-1), SIGMOID),
    "a bump far out": (lambda s, y: LOGISTIC(s, y) + 30 * torch.exp(-((s - 15) ** 2)).sum(-1), SIGMOID),
    "a fall far out with a tiny factor": (
        lambda s, y: LOGISTIC(s, y) - (1e-13 * F.relu(s - 30) ** 20).sum(-1),
        SIGMOID,
    ),
    "a bump beside the threshold": (lambda s, y: LOGISTIC(s, y) - F.relu(1e-6 - (s - 1.5).abs()).sum(-1), SIGMOID),
    "a threshold off by 3e-4": (ce, shifted(lambda s: torch.softmax(s, -1), 3e-4)),
    "a threshold off by 1e-7": (LOGISTIC, shifted(torch.sigmoid, 1e-7)),
    "a threshold off by -1e-7": (LOGISTIC, shifted(torch.sigmoid, -1e-7)),
    "a threshold of hinges": (weighted(hinge), lambda s, c: (s.argmax(-1), s.amax(-1) <= 1)),
    "label smoothing read by the softmax": (smoothed, "softmax"),
    "focal read by the softmax": (focal, "softmax"),
    "gce with another power": (gce, chow(lambda s: torch.softmax(0.3001 * s, -1))),
    "weights that are not undone": (lambda s, y: ce(s, y) * WEIGHTS[y], "softmax"),
    "a temperature off by 1e-6": (lambda s, y: ce((1 + 1e-6) * s, y), "softmax"),
    "half precision": (lambda s, y: ce(s.half(), y).double(), "softmax"),
    "single precision": (lambda s, y: ce(s.float(), y).double(), "softmax"),
    "a branch": (branching, "softmax"),
    "a branch on numpy": (branching_on_numpy, "softmax"),
    "a branch in tensors": (lambda s, y: torch.where(s.amax(-1) < 1e4, ce(s, y), 0.5 * ce(s, y)), "softmax"),
    "another loss of large batches": (of_large_batches, "softmax"),
    "in place": (changed_in_place, "softmax"),
    "random": (lambda s, y: ce(s + 1e-9 * torch.randn_like(s), y), "softmax"),
    "random numbers of Python": (lambda s, y: ce(s, y) * (1 + 1e-3 * random.random()), "softmax"),
    "dropout": (lambda s, y: ce(F.dropout(s, 0.1), y), "softmax"),
    "cross-entropy of small scores": (lambda s, y: ce(s.clamp(-100, 100), y), "softmax"),
    "cross-entropy of tanh": (lambda s, y: ce(100 * torch.tanh(s / 100), y), "softmax"),
    "the mean of the batch": (lambda s, y: F.cross_entropy(s, y) + 0 * s[:, 0], "softmax"),
    "the batch's mean is subtracted": (lambda s, y: ce(s, y) - 0.1 * s.mean(), "softmax"),
    "detach": (lambda s, y: ce(s, y) + own(s, y) - own(s, y).detach(), "softmax"),
    "a minimum on a side of the simplex": (projected, chow(lambda s: (torch.softmax(s, -1) + 0.2 / 3) / 1.2)),
    "swapped labels": (lambda s, y: ce(s, torch.tensor([1, 0, 2])[y]), "softmax"),
    "an ignored label": (lambda s, y: F.cross_entropy(s, y, ignore_index=2, reduction="none"), "softmax"),
    "a class without loss": (lambda s, y: torch.where(y == 2, 0.0, ce(s, y)), "softmax"),
    "one answer only": (ce, first_class_only),
    "accepts all": (ce, lambda s, c: (s.argmax(-1), torch.zeros(len(s), dtype=torch.bool))),
    "a penalty of the scores": (lambda s, y: ce(s, y) + 1e-9 * s.square().sum(-1), "softmax"),
    "mean absolute error": (lambda s, y: 1 - own(torch.softmax(s, -1), y), "softmax"),
    "minus cross-entropy": (lambda s, y: -ce(s, y), "softmax"),
    "flat far below": (one_versus_all(lambda z: torch.clamp(F.softplus(-z), max=9.0)), SIGMOID),
    "a softplus with a low threshold": (one_versus_all(lambda z: F.softplus(-z, threshold=2)), SIGMOID),
    "not convex on the simplex": (lambda s, y: -own(torch.softmax(s, -1), y).square(), "softmax"),
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses_have_no_theorem(name):
    assert prove(*NEAR_MISSES[name]) is None


@pytest.mark.parametrize("weight", [lambda c: 1 - c + 1e-9, lambda c: 1.0])
def test_another_weight_of_rejecting_has_none(weight):
    def loss(s, y, c):
        log_p = F.log_softmax(s, -1)
        return -own(log_p, y) - weight(c) * log_p[:, -1]

    assert prove(loss, last_wins, 4) is None
    assert prove(mozannar_sontag, lambda s, c: (s[:, :-1].argmax(-1), s[:, -1] >= s[:, :-1].amax(-1) - 1e-9), 4) is None
    assert prove(mozannar_sontag, lambda s, c: (s[:, :-1].argmax(-1), torch.softmax(s, -1)[:, -1] >= 0.44), 4) is None


def test_a_theorem_does_not_hide_a_loss_that_cannot_be_trained():
    with pytest.raises(LossContractError, match="gradient"):
        check_calibration(NEAR_MISSES["detach"][0], 3, 0.2)


@pytest.mark.parametrize("name", [n for n in available(3) if not get(n).calibrated_for(3)])
@pytest.mark.parametrize("classes", [3, 5])
def test_no_registered_loss_that_is_wrong_has_one(name, classes):
    assert certify(get(name).for_classes(classes), classes, 0.2) is None


@pytest.mark.parametrize("cost", [1e-9, 0.5, 0.6])
def test_costs_outside_the_statement_have_none(cost):
    assert prove(ce, cost=cost) is None


def test_a_sign_is_proved_on_the_whole_line_or_not_at_all():
    negative(-1 - S**2, S, -torch.inf, torch.inf)
    negative(P - 1, P, 0.0, 1.0, last_piece=True)
    for form in (exact(-1e-3) + 2e-3 / (1 + 1e4 * (S - exact(0.7)) ** 2), S, -(S**2)):
        with pytest.raises(NotProvedError):
            negative(form, S, -torch.inf, torch.inf)


def test_a_long_iteration_in_a_loss_is_not_read():
    """Each round uses the scores of the last one K times: written out, the formula has more than 3^30 parts."""

    def iterated(scores, y):
        for _ in range(30):
            scores = scores / torch.exp(scores).sum(-1, keepdim=True)
        return torch.nn.functional.cross_entropy(scores, y, reduction="none")

    assert certify(FunctionLoss(iterated), 3, 0.2) is None
