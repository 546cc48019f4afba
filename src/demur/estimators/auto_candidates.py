"""The models that ``RejectOption("auto")`` tries. Adding one is one entry of :data:`CANDIDATES`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from demur.estimators.reject_classifier import RejectClassifier

__all__ = ["CANDIDATES", "CandidateModel", "Task", "batch_size_for", "dense_view"]


@dataclass(frozen=True, eq=False)
class Task:
    """What a candidate may know of the problem before it is fitted.

    Parameters
    ----------
    n_rows : int
    categorical : array of bool, shape (n_features,)
        Which columns hold codes of categories.
    random_state : int
    n_jobs : int or None
    """

    n_rows: int
    categorical: NDArray[np.bool_]
    random_state: int
    n_jobs: int | None


@dataclass(frozen=True)
class CandidateModel:
    """A model to try.

    Parameters
    ----------
    name : str
    view : {"codes", "dense"}
        Trees take codes of categories, and missing values as they are; the others take numbers on one scale.
    make : callable
        From a :class:`Task` to an unfitted classifier.
    key : str
        A short name by which it can be asked for alone; empty if it cannot.
    """

    name: str
    view: Literal["codes", "dense"]
    make: Callable[[Task], Any]
    key: str = ""


def dense_view(categorical: NDArray[np.bool_]) -> ColumnTransformer:
    """Return a transformer of codes into numbers on one scale: indicators of categories, missing values imputed.

    That a value was missing becomes a column of its own; rare categories share one.
    """
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
    return ColumnTransformer(
        [("numbers", numbers, np.flatnonzero(~categorical)), ("categories", indicators, np.flatnonzero(categorical))]
    )


_STEPS = 5000
"""Optimiser steps of each network: on scikit-learn's tables, more made networks more certain rather than better."""


_TREES = 300


def batch_size_for(n_rows: int) -> int:
    """Return the size of batches that gives small tables enough of them: 128, the paper's, from 6,400 rows on.

    Examples
    --------
    >>> batch_size_for(150), batch_size_for(15_000)
    (16, 128)
    """
    return int(np.clip(n_rows // 50, 16, 128))


def _networks(task: Task, weight_decay: float = 1e-3) -> RejectClassifier:
    batch_size = batch_size_for(task.n_rows)
    epochs = int(np.clip(_STEPS * batch_size // max(task.n_rows, 1), 10, 150))
    return RejectClassifier(
        "ce",
        hidden_units=(128, 128),
        n_members=5,
        epochs=epochs,
        batch_size=batch_size,
        weight_decay=weight_decay,
        random_state=task.random_state,
    )


def _smooth_networks(task: Task) -> RejectClassifier:
    """Return networks for few or noisy rows, where the others learn the noise."""
    return _networks(task, weight_decay=1e-2)


def _boosting(task: Task) -> HistGradientBoostingClassifier:
    mask = task.categorical if task.categorical.any() else None
    # early stopping would hold rows out by class, which a class of one row does not survive
    return HistGradientBoostingClassifier(
        categorical_features=mask, early_stopping=False, random_state=task.random_state
    )


def _extra_trees(task: Task) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _random_forest(task: Task) -> RandomForestClassifier:
    return RandomForestClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _logistic_regression(task: Task) -> LogisticRegression:
    return LogisticRegression(max_iter=300, random_state=task.random_state)


CANDIDATES: tuple[CandidateModel, ...] = (
    CandidateModel("extra trees", "codes", _extra_trees, "et"),
    CandidateModel("networks", "dense", _networks),
    CandidateModel("logistic regression", "dense", _logistic_regression, "lr"),
    CandidateModel("random forest", "codes", _random_forest, "rf"),
    CandidateModel("gradient boosting", "codes", _boosting, "hgb"),
    CandidateModel("smooth networks", "dense", _smooth_networks),
)
"""In the order in which they are tried, so that a short time budget goes to what pays most."""
