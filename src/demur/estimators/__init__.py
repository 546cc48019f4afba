"""Estimators in scikit-learn's conventions."""

from demur.estimators.reject_classifier import RejectClassifier
from demur.estimators.reject_option import RejectOption
from demur.estimators.selection import Candidate

__all__ = ["Candidate", "RejectClassifier", "RejectOption"]
