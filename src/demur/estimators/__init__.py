"""Estimators in scikit-learn's conventions."""

from demur.estimators.auto import AutoClassifier
from demur.estimators.auto_search import Tried
from demur.estimators.network_selection import Candidate
from demur.estimators.reject_classifier import RejectClassifier
from demur.estimators.reject_option import RejectOption

__all__ = ["AutoClassifier", "Candidate", "RejectClassifier", "RejectOption", "Tried"]
