"""Losses with a mistake in them, each of the kind that people make; and one without."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from demur.losses import AdditivePairwise, OneVsAll, get
from demur.margins import Exponential, MarginFunction
from demur.rules import Decision


def pairwise(scores, y, sign=-1.0):
    """The sum of the logistic loss over the pairs, with the rejector subtracted (or added: sign = +1)."""
    g, r = scores[:, :-1], scores[:, -1:]
    margin = g.gather(-1, y[:, None]) - g + sign * r
    return F.softplus(-margin).masked_fill(F.one_hot(y, g.shape[-1]).bool(), 0.0).sum(-1)


def dropped_rejection_term(scores, y, cost):
    return pairwise(scores, y)


def rejector_with_the_wrong_sign(scores, y, cost):
    return pairwise(scores, y, sign=1.0) + cost * F.softplus(-3 * scores[:, -1])


def blind_to_the_cost(scores, y, cost):
    """Trained for c = 0.4, whatever the cost is."""
    return AdditivePairwise(beta="rej").forward(scores, y, 0.4)


def constant_in_one_class(scores, y, cost):
    loss = F.cross_entropy(scores, y, reduction="none")
    return torch.where(y == scores.shape[-1] - 1, 1.0, loss)


def indifferent(scores, y, cost):
    return 1 + 0 * scores.sum(-1)


def cross_entropy(scores, y, cost):
    return F.cross_entropy(scores, y, reduction="none")


def fixed_threshold(scores, cost):
    """Reject below 0.6, whatever the cost is; no acceptance to differentiate, only yes or no."""
    best = torch.softmax(scores, -1).max(-1)
    return best.indices, best.values <= 0.6


def unweighted_hinge(scores, y, cost):
    """OVA+hin without the weights c and 1 - c: answers from max eta = 1/2 on."""
    own = F.one_hot(y, scores.shape[-1]).bool()
    return torch.where(own, F.relu(1 - scores), F.relu(1 + scores)).sum(-1)


def positive_score(scores, cost):
    return Decision.from_acceptance(scores.argmax(-1), scores.amax(-1))


def against_the_rejector(scores, cost):
    return Decision.from_acceptance(scores[:, :-1].argmax(-1), -scores[:, -1])


binary_pairwise = get("apc+exp").forward


@dataclass(frozen=True)
class SigmoidLinkForExponential(OneVsAll):
    """OVA+exp read with the logistic loss's link; its own is sigmoid(2 g)."""

    phi: MarginFunction = Exponential()

    def inverse_link(self, scores):
        return torch.sigmoid(scores)
