"""Metrics of classifiers with a reject option, in NumPy. The displays, which draw, are imported on first use."""

from typing import TYPE_CHECKING

import lazy_loader as _lazy

from demur.metrics.bootstrap import Interval, bootstrap
from demur.metrics.classification import ClassScores, confusion_matrix, precision_recall_f1
from demur.metrics.cost_curve import CostCurve
from demur.metrics.curves import RiskCoverage
from demur.metrics.pointwise import accepted_accuracy, coverage, rejection_rate, zero_one_c_loss, zero_one_c_risk
from demur.metrics.rejector_errors import false_accept_rate, false_reject_rate
from demur.metrics.scorer import zero_one_c_scorer

if TYPE_CHECKING:
    from demur.metrics.display import CostCurveDisplay, RejectConfusionMatrixDisplay, RiskCoverageDisplay

__getattr__, _, _ = _lazy.attach(
    __name__, submod_attrs={"display": ["CostCurveDisplay", "RejectConfusionMatrixDisplay", "RiskCoverageDisplay"]}
)

__all__ = [
    "ClassScores",
    "CostCurve",
    "CostCurveDisplay",
    "Interval",
    "RejectConfusionMatrixDisplay",
    "RiskCoverage",
    "RiskCoverageDisplay",
    "accepted_accuracy",
    "bootstrap",
    "confusion_matrix",
    "coverage",
    "false_accept_rate",
    "false_reject_rate",
    "precision_recall_f1",
    "rejection_rate",
    "zero_one_c_loss",
    "zero_one_c_risk",
    "zero_one_c_scorer",
]
