"""The paper's losses, each with its decision rule and, where there is one, its inverse link."""

from demur.losses.binary import Margin, ModifiedHinge, PlusBound
from demur.losses.confidence import CrossEntropy, OneVsAll
from demur.losses.function_loss import FunctionLoss
from demur.losses.hinge import BinaryEncodedHinge, CrammerSingerHinge, OneVsAllHinge
from demur.losses.loss import Loss
from demur.losses.pairwise import AdditivePairwise, MultiplicativePairwise, NoClosedFormError
from demur.losses.registry import available, get, register, resolve, unregister
from demur.margins import NoInverseLinkError

__all__ = [
    "AdditivePairwise",
    "BinaryEncodedHinge",
    "CrammerSingerHinge",
    "CrossEntropy",
    "FunctionLoss",
    "Loss",
    "Margin",
    "ModifiedHinge",
    "MultiplicativePairwise",
    "NoClosedFormError",
    "NoInverseLinkError",
    "OneVsAll",
    "OneVsAllHinge",
    "PlusBound",
    "available",
    "get",
    "register",
    "resolve",
    "unregister",
]
