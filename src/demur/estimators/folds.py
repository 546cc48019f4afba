"""Folds for cross-fitting that rare classes cannot break."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, check_cv

__all__ = ["stratified_folds"]


def stratified_folds(cv: Any, X: Any, y: NDArray[Any]) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Return the folds that ``cv`` stands for in scikit-learn; a number gives as many as the largest class allows.

    A number stands for shuffled folds, always the same; for rows whose order matters give a splitter. A class with
    fewer rows than folds is missing from some of them, which is for the caller to handle.

    Examples
    --------
    >>> X, y = np.zeros((5, 1)), np.array([0, 0, 0, 0, 1])
    >>> [test.tolist() for train, test in stratified_folds(2, X, y)]
    [[2, 3, 4], [0, 1]]
    """
    if isinstance(cv, int):
        n_folds = max(2, min(cv, int(np.unique(y, return_counts=True)[1].max())))
        cv = StratifiedKFold(n_folds, shuffle=True, random_state=0)  # rows of real tables are rarely in random order
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        return list(check_cv(cv, y, classifier=True).split(X, y))
