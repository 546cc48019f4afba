from .capacity import Capacity
from .cascade import Cascade, CascadeRun
from .defer_classifier import DeferClassifier
from .defer_option import DeferOption
from .deferral_check import DeferralReport, check_deferral
from .expert_reliability import ExpertReliability
from .experts import Expert, Votes
from .joint_losses import (
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

__all__ = [
    "AsymmetricDeferral",
    "Capacity",
    "Cascade",
    "CascadeRun",
    "DecoupledDeferral",
    "DeferClassifier",
    "DeferOption",
    "DeferralReport",
    "Expert",
    "ExpertReliability",
    "JointLoss",
    "OneVsAllDeferral",
    "RealizableDeferral",
    "SoftmaxDeferral",
    "TwoStageDeferral",
    "Votes",
    "available_joint",
    "check_deferral",
    "get_joint",
    "register_joint",
    "resolve_joint",
]
