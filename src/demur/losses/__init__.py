"""The paper's losses, each with its decision rule and, where there is one, its inverse link."""

from demur.losses.base import Hyper, Loss
from demur.losses.binary import Margin, ModifiedHinge, PlusBound
from demur.losses.confidence import CrossEntropy, OneVsAll
from demur.losses.hinge import BinaryEncodedHinge, CrammerSingerHinge, OneVsAllHinge
from demur.losses.pairwise import AdditivePairwise, MultiplicativePairwise, NoClosedFormError
from demur.losses.registry import available, get, register, unregister
from demur.margins import NoInverseLinkError

__all__ = [
    "AdditivePairwise",
    "BinaryEncodedHinge",
    "CrammerSingerHinge",
    "CrossEntropy",
    "Hyper",
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
    "unregister",
]
