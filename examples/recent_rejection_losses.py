"""Three recent rejection objectives as losses of one row: AURC, density ratios and SELE.

Check them with, for example,

    demur check recent_rejection_losses.py:cross_entropy --rule recent_rejection_losses.py:kl_of_log_loss
    demur check recent_rejection_losses.py:aurc_with_a_fixed_weight

The references: Zhou et al. 2025 (AURC as a reweighted risk), Soen et al. 2024 (rejection by density ratios), and Franc,
Prusa and Voracek 2023 (SELE). Quantities that depend on the data (the distribution of the confidence, the normaliser of
a density ratio) are constants here, because a loss of one row does not know them.
"""

import torch
import torch.nn.functional as F

LAMBDA, ALPHA = 0.5, 3.0


def cross_entropy(scores, y):
    """Return the loss with which the classifier of a density ratio is trained."""
    return F.cross_entropy(scores, y, reduction="none")


def aurc(scores, y):
    """Return the cross-entropy times the weight -log(1 - rank / n), with the rank of the confidence in the batch."""
    confidence = torch.softmax(scores, -1).amax(-1)
    rank = confidence.argsort().argsort()
    return -torch.log1p(-rank / len(y)) * cross_entropy(scores, y)


def aurc_with_a_fixed_weight(scores, y):
    """Return the same with confidences that are spread evenly between 1 / K and 1."""
    confidence = torch.softmax(scores, -1).amax(-1)
    n_classes = scores.shape[-1]
    return -torch.log((1 - confidence) * n_classes / (n_classes - 1)) * cross_entropy(scores, y)


def error_rate(scores):
    """Return the expected 0-1 loss of the likeliest class."""
    return 1 - torch.softmax(scores, -1).amax(-1)


def entropy(scores):
    """Return the expected log loss."""
    p = torch.softmax(scores, -1)
    return -torch.xlogy(p, p).sum(-1)


def log_loss_at(c):
    """Return the entropy of (1 - c, c): the threshold that is right for two classes."""
    return -(torch.xlogy(c, c) + torch.xlogy(1 - c, 1 - c))


def kl_ratio(expected_loss):
    """Return the density ratio up to a constant factor: exp(-L / lambda)."""
    return torch.exp(-expected_loss / LAMBDA)


def alpha_ratio(expected_loss):
    """Return the ratio of an alpha-divergence up to constants: a power of a decreasing linear function of the loss."""
    return torch.clamp(2 - expected_loss / LAMBDA / ALPHA, min=0) ** (1 / (ALPHA - 1))


def kl_of_zero_one_loss(scores, c):
    return scores.argmax(-1), kl_ratio(error_rate(scores)) <= kl_ratio(torch.tensor(c, dtype=torch.float64))


def kl_of_log_loss(scores, c):
    return scores.argmax(-1), kl_ratio(entropy(scores)) <= kl_ratio(log_loss_at(torch.tensor(c, dtype=torch.float64)))


def alpha_of_zero_one_loss(scores, c):
    return scores.argmax(-1), alpha_ratio(error_rate(scores)) <= alpha_ratio(torch.tensor(c, dtype=torch.float64))


def alpha_of_log_loss(scores, c):
    return scores.argmax(-1), alpha_ratio(entropy(scores)) <= alpha_ratio(
        log_loss_at(torch.tensor(c, dtype=torch.float64))
    )


def sele(scores, y):
    """Return each row's part of SELE: its mistake times the share of rows that are at least as uncertain."""
    mistake = (scores.argmax(-1) != y).to(scores.dtype)
    uncertainty = error_rate(scores)
    return mistake * torch.sigmoid(50 * (uncertainty - uncertainty[:, None])).mean(-1)


def regression_of_mistakes(scores, y):
    """Return the authors' alternative to SELE: the last score is the expected mistake, by least squares."""
    classes, uncertainty = scores[:, :-1], scores[:, -1]
    mistake = (classes.argmax(-1) != y).to(scores.dtype)
    return cross_entropy(classes, y) + (uncertainty - mistake).square()


def too_uncertain(scores, c):
    return scores[:, :-1].argmax(-1), scores[:, -1] >= c
