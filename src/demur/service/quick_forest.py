"""Forests without scikit-learn's overhead per tree, which for one row is most of the time."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from demur.estimators import AutoClassifier, RejectOption
from demur.table_model import TableModel

__all__ = ["QuickForest", "with_quick_forests"]


class QuickForest:
    """The probabilities of a fitted forest: the mean over its trees, added up in their order.

    scikit-learn checks its input and sets its configuration anew for each tree, and adds up in the order in which
    its threads end. The sums here are those that it finds with one thread, to the last bit.

    Parameters
    ----------
    forest : RandomForestClassifier or ExtraTreesClassifier
        Fitted, for one target.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    >>> bool((QuickForest(forest).predict_proba(X) == forest.predict_proba(X)).all())
    True
    """

    def __init__(self, forest: Any) -> None:
        self.classes_: NDArray[Any] = forest.classes_
        self._trees = [tree.tree_ for tree in forest.estimators_]

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the trees."""
        rows = np.ascontiguousarray(X, dtype=np.float32)
        if np.isinf(rows).any():
            raise ValueError("the rows hold infinity, or a number too large for single precision.")
        total = np.zeros((len(rows), len(self.classes_)))
        for tree in self._trees:
            total += tree.predict(rows)
        return total / len(self._trees)


def with_quick_forests(model: TableModel) -> TableModel:
    """Return a model that decides as the given one, which stays as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.table_model import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": [0, 0, 0, 1, 1, 1] * 9})
    >>> quick = with_quick_forests(fit_table(table, "y", model="rf"))
    >>> type(quick.classifier.estimator_).__name__, quick.answers(table)["prediction"][:6].to_pylist()
    ('QuickForest', [0, 0, 0, 1, 1, 1])
    """
    if not isinstance(model.classifier, RejectOption):
        return model
    classifier = copy(model.classifier)
    classifier.estimator_ = _quick(classifier.estimator_)
    return replace(model, classifier=classifier)


def _quick(estimator: Any) -> Any:
    if isinstance(estimator, AutoClassifier):
        blend = copy(estimator)
        blend.models_ = tuple(_quick(member) for member in blend.models_)
        return blend
    is_forest = isinstance(estimator, RandomForestClassifier | ExtraTreesClassifier)
    return QuickForest(estimator) if is_forest and estimator.n_outputs_ == 1 else estimator
