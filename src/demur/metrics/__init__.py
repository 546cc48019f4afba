"""Metrics of classifiers with a reject option, in NumPy. The displays, which draw, are imported on first use."""

from typing import TYPE_CHECKING

import lazy_loader as _lazy

from demur.metrics.classification import ClassScores, confusion_matrix, precision_recall_f1
from demur.metrics.cost_curve import CostCurve
from demur.metrics.intervals import (
    Interval,
    area_intervals,
    bootstrap,
    mean_interval,
    proportion_interval,
    risk_interval,
)
from demur.metrics.risk_coverage import RiskCoverage
from demur.metrics.zero_one_c import (
    accepted_accuracy,
    coverage,
    false_accept_rate,
    false_reject_rate,
    rejection_rate,
    zero_one_c_loss,
    zero_one_c_risk,
    zero_one_c_scorer,
)

if TYPE_CHECKING:
    from demur.metrics.displays import (
        CostCurveDisplay,
        LossCurveDisplay,
        RejectConfusionMatrixDisplay,
        RiskCoverageDisplay,
    )

__getattr__, _, _ = _lazy.attach(
    __name__,
    submod_attrs={
        "displays": ["CostCurveDisplay", "LossCurveDisplay", "RejectConfusionMatrixDisplay", "RiskCoverageDisplay"]
    },
)

__all__ = [
    "ClassScores",
    "CostCurve",
    "CostCurveDisplay",
    "Interval",
    "LossCurveDisplay",
    "RejectConfusionMatrixDisplay",
    "RiskCoverage",
    "RiskCoverageDisplay",
    "accepted_accuracy",
    "area_intervals",
    "bootstrap",
    "confusion_matrix",
    "coverage",
    "false_accept_rate",
    "false_reject_rate",
    "mean_interval",
    "precision_recall_f1",
    "proportion_interval",
    "rejection_rate",
    "risk_interval",
    "zero_one_c_loss",
    "zero_one_c_risk",
    "zero_one_c_scorer",
]
