"""Metrics of classifiers with a reject option, in NumPy."""

from demur.metrics.pointwise import accepted_accuracy, coverage, rejection_rate, zero_one_c_loss, zero_one_c_risk
from demur.metrics.rejector_errors import false_accept_rate, false_reject_rate
from demur.metrics.scorer import zero_one_c_scorer

__all__ = [
    "accepted_accuracy",
    "coverage",
    "false_accept_rate",
    "false_reject_rate",
    "rejection_rate",
    "zero_one_c_loss",
    "zero_one_c_risk",
    "zero_one_c_scorer",
]
