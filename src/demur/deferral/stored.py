"""Class probabilities that were computed elsewhere and stand in columns of the table."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from demur.array_types import AnyArray, Features
from demur.errors import InputError
from demur.rules import check_proba

__all__ = ["StoredProbabilities", "column_of"]


class StoredProbabilities(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that reads its probabilities from columns of X: for models that exist only as stored outputs.

    Parameters
    ----------
    columns : sequence of int or str, optional
        The columns of X that hold the probabilities, one per class in sorted order. All of them by default.
    classes : sequence, optional
        The classes in the order of the columns. By default 0, 1, ... where y holds such numbers, else what y holds.

    Attributes
    ----------
    classes_ : array

    Examples
    --------
    >>> X = [[0.9, 0.1], [0.4, 0.6]]
    >>> StoredProbabilities().fit(X, ["no", "yes"]).predict(X)
    array(['no', 'yes'], dtype='<U3')
    """

    def __init__(self, columns: Sequence[Any] | None = None, classes: Sequence[Any] | None = None) -> None:
        self.columns = columns
        self.classes = classes

    def fit(self, X: Features, y: ArrayLike) -> Self:
        """Learn the names of the classes; nothing else is to be learned.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_columns)
        y : array of shape (n_rows,)
        """
        proba = self._read(X)
        self.n_features_in_ = np.shape(X)[1]
        self.classes_ = self._named_classes(np.unique(np.asarray(y)), proba.shape[1])
        return self

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the probabilities as they stand in the columns, divided by their sum.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_columns)
        """
        check_is_fitted(self)
        proba = self._read(X)
        normalised: NDArray[np.float64] = proba / proba.sum(axis=1, keepdims=True)
        return normalised

    def predict(self, X: Features) -> AnyArray:
        """Return the likeliest class of each row."""
        likeliest: AnyArray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return likeliest

    def _read(self, X: Features) -> NDArray[np.float64]:
        if self.columns is None:
            values = np.asarray(X, dtype=np.float64)
        else:
            values = np.column_stack([column_of(X, column) for column in self.columns])
        return np.asarray(check_proba(values), dtype=np.float64)

    def _named_classes(self, seen: AnyArray, n_columns: int) -> AnyArray:
        if self.classes is not None:
            named = np.asarray(self.classes)
            if len(named) != n_columns or (np.sort(named) != named).any():
                raise InputError(f"classes must name the {n_columns} columns in sorted order, got {self.classes!r}.")
        elif seen.dtype.kind in "iu" and seen.min() >= 0 and seen.max() < n_columns:
            named = np.arange(n_columns)
        elif len(seen) == n_columns:
            named = seen
        else:
            raise InputError(f"y holds {len(seen)} classes for {n_columns} columns of probabilities; give classes=...")
        unknown = np.setdiff1d(seen, named)
        if len(unknown):
            raise InputError(f"y holds the class {unknown[0]!r}, for which there is no column of probabilities.")
        return named


def column_of(X: Features, column: Any) -> NDArray[np.float64]:
    """Return one column of a table, by its name, or of an array, by its number.

    Examples
    --------
    >>> column_of([[1.0, 2.0], [3.0, 4.0]], 1)
    array([2., 4.])
    """
    if hasattr(X, "columns") and not isinstance(column, int | np.integer):
        held = list(X.columns)
        if column not in held:
            raise InputError(f"there is no column {column!r}; the columns are {', '.join(map(str, held))}.")
        return np.asarray(X[column], dtype=np.float64)
    if not isinstance(column, int | np.integer):
        raise InputError(f"X has no named columns; give the number of the column instead of {column!r}.")
    if not hasattr(X, "shape"):
        X = np.asarray(X)
    if not -X.shape[1] <= column < X.shape[1]:
        raise InputError(f"there is no column number {column}; X has {X.shape[1]} columns.")
    if hasattr(X, "iloc"):
        return np.asarray(X.iloc[:, column], dtype=np.float64)
    one = X[:, [column]]
    return np.asarray(one.toarray() if hasattr(one, "toarray") else one, dtype=np.float64).ravel()
