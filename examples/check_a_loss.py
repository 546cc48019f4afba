"""Is a loss calibrated for rejection? Check it before training with it."""

import torch

from demur.theory import check_calibration


def focal(scores, y, cost, gamma=2.0):
    """Return the focal loss (Lin et al. 2017): cross-entropy with less weight on confidently classified rows."""
    log_proba = torch.log_softmax(scores, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
    return -((1 - log_proba.exp()) ** gamma) * log_proba


def cross_entropy(scores, y, cost):
    return -torch.log_softmax(scores, -1).gather(-1, y.unsqueeze(-1)).squeeze(-1)


for loss in (cross_entropy, focal):
    # the decision rule is Chow's rule on the softmax, unless another one is given
    report = check_calibration(loss, n_classes=3, cost=0.2)
    print(f"{loss.__name__}: {'no counterexample found' if report.calibrated else 'refuted'}")

# The focal loss ranks the classes correctly, but its softmax is underconfident: too many rows are declined.
where = report.counterexample.round(3)
print(f"\nfails by {', '.join(sorted(report.fails))}, for example at class probabilities {where}")
print("so calibrate its probabilities before deciding with them, or train with cross-entropy")
