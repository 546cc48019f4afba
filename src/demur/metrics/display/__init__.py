"""Displays in scikit-learn's style: made from an estimator, from predictions, or from a curve; drawn by ``plot``."""

from demur.metrics.display.confusion import RejectConfusionMatrixDisplay
from demur.metrics.display.cost_curve import CostCurveDisplay
from demur.metrics.display.risk_coverage import RiskCoverageDisplay

__all__ = ["CostCurveDisplay", "RejectConfusionMatrixDisplay", "RiskCoverageDisplay"]
