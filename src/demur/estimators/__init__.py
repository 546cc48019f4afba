"""Estimators in scikit-learn's conventions."""

from demur.estimators.answer_classifier import AnswerClassifier
from demur.estimators.auto_classifier import AutoClassifier, UninformativeModelWarning
from demur.estimators.base import RejectingClassifier
from demur.estimators.candidates import Tried
from demur.estimators.network_selection import AnswersNothingWarning, Candidate
from demur.estimators.precomputed_probabilities import PrecomputedProbabilities
from demur.estimators.reject_classifier import RejectClassifier
from demur.estimators.reject_option import RejectOption
from demur.estimators.scope import Scope
from demur.estimators.splitting import EqualRowsWarning
from demur.estimators.torch_classifier import TorchClassifier

__all__ = [
    "AnswerClassifier",
    "AnswersNothingWarning",
    "AutoClassifier",
    "Candidate",
    "EqualRowsWarning",
    "PrecomputedProbabilities",
    "RejectClassifier",
    "RejectOption",
    "RejectingClassifier",
    "Scope",
    "TorchClassifier",
    "Tried",
    "UninformativeModelWarning",
]
