"""The calibration theory as running code."""

from demur.theory.pointwise import minimise_pointwise_risk, pointwise_risk

__all__ = ["minimise_pointwise_risk", "pointwise_risk"]
