"""Class probabilities of any scikit-learn classifier, fitted on all rows or out of fold."""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_method_params

from demur.array_types import AnyArray, ByName, Estimator, Features
from demur.estimators.base import proba_of
from demur.estimators.splitting import Fold, usable_folds

__all__ = ["CodedLabels", "FeaturesOfEstimator", "fit_clone", "out_of_fold_proba"]


def _inner_has(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(getattr(self, "estimator_", self.estimator), name)


class FeaturesOfEstimator(MetaEstimatorMixin):  # type: ignore[misc] # scikit-learn is untyped
    """The features of an estimator that wraps another, ``estimator_``."""

    estimator_: Estimator

    @property
    def n_features_in_(self) -> int:
        """The number of features that the fitted estimator saw."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> AnyArray:
        """The names of the columns that the fitted estimator saw, where they had names."""
        return np.asarray(self.estimator_.feature_names_in_)


class CodedLabels(ClassifierMixin, FeaturesOfEstimator, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that is fitted on class numbers 0, 1, ..., and predicts class names.

    Some classifiers, XGBoost's among them, take no other labels. :class:`~demur.RejectOption` puts them into this one
    when they refuse the labels as they are.

    Parameters
    ----------
    estimator : classifier

    Attributes
    ----------
    estimator_ : fitted classifier
        Its own ``classes_`` are 0, 1, ...
    classes_ : array
        The classes by their names.
    """

    def __init__(self, estimator: Estimator) -> None:
        self.estimator = estimator

    def fit(self, X: Features, y: AnyArray, **fit_params: Any) -> Self:
        """Fit the classifier on the numbers of the classes."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.estimator_ = clone(self.estimator).fit(X, codes, **fit_params)
        return self

    def predict(self, X: Features) -> AnyArray:
        """Return the name of the class that the classifier predicts."""
        names: AnyArray = self.classes_[np.asarray(self.estimator_.predict(X), dtype=np.int64)]
        return names

    @available_if(_inner_has("predict_proba"))  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def predict_proba(self, X: Features) -> Any:
        """Return the classifier's probabilities, a column per class in ``classes_``."""
        return self.estimator_.predict_proba(X)

    @available_if(_inner_has("decision_function"))  # type: ignore[untyped-decorator] # scikit-learn is untyped
    def decision_function(self, X: Features) -> Any:
        """Return the classifier's scores."""
        return self.estimator_.decision_function(X)


def fit_clone(estimator: Estimator, X: Features, y: AnyArray, fit_params: ByName) -> Any:
    """Return a fitted clone, with the classes as numbers 0, 1, ... if the estimator takes nothing else.

    There is no tag by which a classifier says that it refuses other labels, so it is asked: where it raises ValueError
    for the labels and not for their numbers, it gets the numbers.
    """
    try:
        return clone(estimator).fit(X, y, **fit_params)
    except ValueError:
        classes = np.unique(y)
        if classes.dtype.kind in "iu" and np.array_equal(classes, np.arange(len(classes))):
            raise
        try:
            return CodedLabels(estimator).fit(X, y, **fit_params)
        except ValueError:
            pass
        raise  # what was wrong at first was not the labels


def out_of_fold_proba(
    estimator: Estimator,
    X: Features,
    y: AnyArray,
    classes: AnyArray,
    folds: Sequence[Fold],
    fit_params: ByName,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return row numbers, and the probabilities of these rows by a model that was not fitted on them.

    Rows whose class does not occur in the training part of their fold are left out, as are folds whose training part
    has a single class.

    Parameters
    ----------
    estimator : classifier
    X, y, classes, folds
    fit_params : dict
        Passed to ``fit``, with the rows of each fold picked out of what has one value per row.
    """
    rows, probas = [], []
    for train, test in usable_folds(folds, y, at_least_one=True):
        seen, unseen = _safe_indexing(X, train), _safe_indexing(X, test)
        model = fit_clone(estimator, seen, y[train], _check_method_params(X, fit_params, indices=train))
        rows.append(test)
        probas.append(proba_of(model, unseen, classes))
    return np.concatenate(rows), np.concatenate(probas)
