"""Deferral: each row goes to whoever answers it at the least expected cost, the model or one of several experts."""

from demur.deferral.capacity import Capacity
from demur.deferral.cascade import Cascade, CascadeRun
from demur.deferral.defer_option import DeferOption
from demur.deferral.deferral_metrics import (
    DeferralCurve,
    DeferralCurveDisplay,
    ExpertCalibration,
    expert_load,
    regret,
    system_accuracy,
    system_risk,
)
from demur.deferral.experts import Expert, Votes
from demur.deferral.reliability import Reliability
from demur.deferral.stored import StoredProbabilities

__all__ = [
    "Capacity",
    "Cascade",
    "CascadeRun",
    "DeferOption",
    "DeferralCurve",
    "DeferralCurveDisplay",
    "Expert",
    "ExpertCalibration",
    "Reliability",
    "StoredProbabilities",
    "Votes",
    "expert_load",
    "regret",
    "system_accuracy",
    "system_risk",
]
