"""Random (eta, scores, cost) and their exact excess risks, for the losses with a theorem."""

import numpy as np
import torch

from demur.losses import CrossEntropy, OneVsAll, available, get
from demur.theory import pointwise_risk

BOUNDED = [name for name in available() if isinstance(get(name), CrossEntropy | OneVsAll)]
PAPER = [
    name
    for name in available()
    if type(get(name)).__module__.rpartition(".")[2] in ("confidence", "pairwise", "hinge", "binary")
    and not name.startswith("csova")
]
"""The paper's own losses; those since are in test_modern_verdicts.py."""
BINARY = [name for name in available() if name.startswith("margin+")]


def random_points(loss, n_classes, n, seed):
    """Draw (eta, scores, cost): scores anywhere, near the minimiser, and at the threshold, where bounds are tight."""
    rng = np.random.default_rng(seed)
    eta = np.stack([rng.dirichlet(np.full(n_classes, a)) for a in rng.choice([0.1, 0.5, 1.0, 5.0], size=n)])
    eta = 0.999 * eta + 0.001 / n_classes
    cost = rng.uniform(0.001, 0.4999, size=n)
    best = best_scores(loss, eta)
    scores = best + rng.choice([0.05, 0.5, 3.0], size=n)[:, None] * rng.normal(size=best.shape)
    column = rng.integers(best.shape[1], size=n)
    at_threshold = rng.random(n) < 0.5
    scores[at_threshold] = best[at_threshold]
    edge = threshold_score(loss, best, cost, column) + rng.normal(scale=1e-3, size=n)
    scores[at_threshold, column[at_threshold]] = edge[at_threshold]
    return tuple(torch.from_numpy(x) for x in (eta, scores, cost))


def best_scores(loss, eta):
    """The minimiser in closed form: log eta for cross-entropy, else the score whose link is eta."""
    if isinstance(loss, CrossEntropy):
        return np.log(eta)
    phi = loss.phi
    scores = phi.threshold(torch.from_numpy(1 - eta)).numpy()
    return scores if isinstance(loss, OneVsAll) else scores[:, 1:]


def threshold_score(loss, best, cost, column):
    """The score of one class at which its probability is 1 - c, the others as they are."""
    if isinstance(loss, CrossEntropy):
        others = np.exp(best).sum(1) - np.exp(best)[np.arange(len(best)), column]
        return np.log(others) + np.log((1 - cost) / cost)
    phi = loss.phi
    return phi.threshold(torch.from_numpy(cost)).numpy()


def excesses(loss, eta, scores, cost):
    """Return the 0-1-c excess and the surrogate excess of each point."""
    decision = loss.rule(scores, cost)
    taken = decision.numpy()
    answering = 1 - np.take_along_axis(eta.numpy(), taken.label[:, None], 1)[:, 0]
    risk = np.where(taken.reject, cost.numpy(), answering)
    zero_one_c = risk - np.minimum(cost.numpy(), 1 - eta.numpy().max(1))
    best = torch.from_numpy(best_scores(loss, eta.numpy()))
    surrogate = pointwise_risk(loss, scores, eta, cost) - pointwise_risk(loss, best, eta, cost)
    return zero_one_c, surrogate.numpy()
