"""Losses for rejection, the paper's and those since, each with its rule and, where there is one, its inverse link."""

from demur.losses.binary import Margin, ModifiedHinge, PlusBound
from demur.losses.confidence import CostSensitiveOneVsAll, CrossEntropy, OneVsAll
from demur.losses.hinge import BinaryEncodedHinge, CrammerSingerHinge, OneVsAllHinge
from demur.losses.loss import Loss
from demur.losses.pairwise import AdditivePairwise, MultiplicativePairwise, NoClosedFormError
from demur.losses.predictor_rejector import PredictorRejector, TwoStage
from demur.losses.registry import FunctionLoss, as_module, available, get, register, resolve, unregister
from demur.losses.reshaped import Brier, Focal, GeneralisedCrossEntropy, LabelSmoothing
from demur.losses.score_based import (
    AbstainingClassifier,
    AsymmetricSoftmax,
    DeepGamblers,
    MaoScores,
    MozannarSontag,
    VermaNalisnick,
)
from demur.margins import NoInverseLinkError

__all__ = [
    "AbstainingClassifier",
    "AdditivePairwise",
    "AsymmetricSoftmax",
    "BinaryEncodedHinge",
    "Brier",
    "CostSensitiveOneVsAll",
    "CrammerSingerHinge",
    "CrossEntropy",
    "DeepGamblers",
    "Focal",
    "FunctionLoss",
    "GeneralisedCrossEntropy",
    "LabelSmoothing",
    "Loss",
    "MaoScores",
    "Margin",
    "ModifiedHinge",
    "MozannarSontag",
    "MultiplicativePairwise",
    "NoClosedFormError",
    "NoInverseLinkError",
    "OneVsAll",
    "OneVsAllHinge",
    "PlusBound",
    "PredictorRejector",
    "TwoStage",
    "VermaNalisnick",
    "as_module",
    "available",
    "get",
    "register",
    "resolve",
    "unregister",
]
