"""Class probabilities of any scikit-learn classifier, fitted on all rows or out of fold."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from demur.errors import InputError, InputTypeError

__all__ = ["out_of_fold_proba", "proba_of"]


def proba_of(estimator: Any, X: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return probabilities with one column per class in ``classes``, zero for classes the estimator does not know.

    Without ``predict_proba`` the scores of ``decision_function`` are linked: the logistic function for two
    classes, softmax for more. Such scores are no log odds by themselves; calibration gives them their scale.
    """
    if hasattr(estimator, "predict_proba"):
        proba = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    elif hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
        if scores.ndim == 1:
            proba = np.column_stack([expit(-scores), expit(scores)])
        elif scores.shape[1] == len(estimator.classes_):
            proba = softmax(scores, axis=1)
        else:
            raise InputError(
                f"decision_function of {type(estimator).__name__} has {scores.shape[1]} columns for "
                f"{len(estimator.classes_)} classes; set decision_function_shape='ovr'."
            )
    else:
        raise InputTypeError(
            f"{type(estimator).__name__} has neither predict_proba nor decision_function; no confidence, no rule."
        )
    if len(estimator.classes_) == len(classes):
        return proba
    aligned = np.zeros((len(proba), len(classes)))
    aligned[:, np.searchsorted(classes, estimator.classes_)] = proba
    return aligned


def out_of_fold_proba(
    estimator: Any,
    X: Any,
    y: NDArray[Any],
    classes: NDArray[Any],
    folds: Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]],
    parameters: dict[str, Any],
    after_fold: Callable[[], Any] = lambda: None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return row numbers and the probabilities that a model which has not seen them gives them.

    Rows whose class does not occur in their fold's training part are left out: a class with one row tells
    nothing about confidence. So is a fold whose training part has a single class.
    """
    rows, probas = [], []
    for train, test in folds:
        known = np.unique(y[train])
        test = test[np.isin(y[test], known)]
        if len(known) < 2 or not len(test):
            continue
        own = _check_method_params(X, parameters, indices=train)
        model = clone(estimator).fit(_safe_indexing(X, train), y[train], **own)
        rows.append(test)
        probas.append(proba_of(model, _safe_indexing(X, test), classes))
        after_fold()
    if not rows:
        raise InputError("no fold leaves two classes to train on; use fewer folds (cv), or calibration=None.")
    return np.concatenate(rows), np.concatenate(probas)
