"""Folds for cross-fitting that rare classes cannot break."""

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, check_cv, train_test_split

__all__ = ["Fold", "folds_within", "set_aside", "stratified_folds"]

Fold: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows to train on, and rows to predict."""


def stratified_folds(cv: Any, X: Any, y: NDArray[Any]) -> list[Fold]:
    """Return the folds that ``cv`` stands for in scikit-learn; a number gives as many as the largest class allows.

    A number stands for shuffled folds, always the same; for rows whose order matters give a splitter. A class with
    fewer rows than folds is missing from some of them, which is for the caller to handle.

    Examples
    --------
    >>> X, y = np.zeros((5, 1)), np.array([0, 0, 0, 0, 1])
    >>> [test.tolist() for train, test in stratified_folds(2, X, y)]
    [[2, 3, 4], [0, 1]]
    """
    if isinstance(cv, Integral):
        n_folds = max(2, min(cv, int(np.unique(y, return_counts=True)[1].max())))
        cv = StratifiedKFold(n_folds, shuffle=True, random_state=0)  # rows of real tables are rarely in random order
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return list(check_cv(cv, y, classifier=True).split(X, y))


def set_aside(cv: Any, X: Any, y: NDArray[Any]) -> Fold:
    """Return the rows to train on and the rows that a rule is fitted on, both in order.

    A number of folds sets a share of 1 / cv aside, drawn at random and by class where the classes are large enough. A
    splitter or a list knows which rows belong together: the test part of its last fold is set aside.

    Examples
    --------
    >>> train, aside = set_aside(5, np.zeros((10, 1)), np.array([0, 1] * 5))
    >>> len(train), len(aside)
    (8, 2)
    """
    rows = np.arange(len(y))
    if not isinstance(cv, Integral) and cv is not None:
        aside = np.sort(stratified_folds(cv, X, y)[-1][1])
        return np.setdiff1d(rows, aside), aside
    share = 0.2 if cv is None else 1 / max(2, int(cv))
    counts = np.unique(y, return_counts=True)[1]
    stratify = y if counts.min() >= 2 and share * len(y) >= len(counts) else None
    train, aside = train_test_split(rows, test_size=share, random_state=0, stratify=stratify)
    return np.sort(train), np.sort(aside)


def folds_within(folds: Sequence[Fold], rows: NDArray[np.int64]) -> list[Fold]:
    """Return the folds of some rows alone, as positions among these rows, which are in order.

    Examples
    --------
    >>> folds_within([(np.array([0, 1, 3]), np.array([2, 4]))], np.array([1, 2, 3]))
    [(array([0, 2]), array([1]))]
    """
    parts = ([part[np.isin(part, rows)] for part in fold] for fold in folds)
    return [(np.searchsorted(rows, train), np.searchsorted(rows, test)) for train, test in parts]
