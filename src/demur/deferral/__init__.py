"""Deferral: each row goes to whoever answers it at the least expected cost, the model or one of several experts."""

from demur.deferral.capacity import Capacity
from demur.deferral.cascade import Cascade, CascadeRun
from demur.deferral.defer_classifier import DeferClassifier
from demur.deferral.defer_option import DeferOption
from demur.deferral.deferral_check import DeferralReport, check_deferral
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
from demur.deferral.joint_losses import (
    AsymmetricDeferral,
    DecoupledDeferral,
    JointLoss,
    OneVsAllDeferral,
    RealizableDeferral,
    SoftmaxDeferral,
    TwoStageDeferral,
    available_joint,
    get_joint,
    register_joint,
    resolve_joint,
)
from demur.deferral.reliability import Reliability
from demur.deferral.stored import StoredProbabilities

__all__ = [
    "AsymmetricDeferral",
    "Capacity",
    "Cascade",
    "CascadeRun",
    "DecoupledDeferral",
    "DeferClassifier",
    "DeferOption",
    "DeferralCurve",
    "DeferralCurveDisplay",
    "DeferralReport",
    "Expert",
    "ExpertCalibration",
    "JointLoss",
    "OneVsAllDeferral",
    "RealizableDeferral",
    "Reliability",
    "SoftmaxDeferral",
    "StoredProbabilities",
    "TwoStageDeferral",
    "Votes",
    "available_joint",
    "check_deferral",
    "expert_load",
    "get_joint",
    "register_joint",
    "regret",
    "resolve_joint",
    "system_accuracy",
    "system_risk",
]
