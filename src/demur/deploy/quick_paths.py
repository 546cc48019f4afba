"""The model as the service asks it: the same decisions, sooner.

For one row most of the time is scikit-learn's overhead per step and per tree, which the quick ways leave out.
"""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from demur.array_types import AnyArray, Estimator
from demur.deferral import DeferOption
from demur.errors import InputError
from demur.estimators import AutoClassifier, RejectOption
from demur.tabular import TableModel

__all__ = ["QuickDense", "QuickForest", "quick_model"]


def quick_model(model: TableModel) -> TableModel:
    """Return a model that decides as the given one, to the last bit, which stays as it is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": [0, 0, 0, 1, 1, 1] * 9})
    >>> quick = quick_model(fit_table(table, "y", model="lr"))
    >>> type(quick.dense).__name__, quick.answers(table)["prediction"][:6].to_pylist()
    ('QuickDense', [0, 0, 0, 1, 1, 1])
    """
    classifier = model.classifier
    if isinstance(classifier, RejectOption | DeferOption):
        classifier = copy(classifier)
        classifier.estimator_ = _quick(classifier.estimator_)
    if isinstance(classifier, DeferOption):
        classifier.learners_ = {name: _quick(learner) for name, learner in classifier.learners_.items()}
    return replace(model, classifier=classifier, dense=None if model.dense is None else _quick_dense(model.dense))


def _quick(estimator: Estimator) -> Any:
    if isinstance(estimator, AutoClassifier):
        blend = copy(estimator)
        blend.models_ = tuple(_quick(member) for member in blend.models_)
        blend.dense_ = _quick_dense(blend.dense_)
        return blend
    is_forest = isinstance(estimator, RandomForestClassifier | ExtraTreesClassifier)
    return QuickForest(estimator) if is_forest and estimator.n_outputs_ == 1 else estimator


def _quick_dense(dense: Any) -> Any:
    try:
        return QuickDense(dense)
    except ValueError:  # it says why; the view itself always works
        return dense


class QuickDense:
    """Turns codes into numbers on one scale exactly as a fitted :func:`~demur.estimators.candidates.dense_view`.

    Numbers are filled up, joined by columns that tell what was missing, and scaled; the indicators of a category
    are looked up in a table with a row for each code and one for what is missing.

    Parameters
    ----------
    dense : ColumnTransformer
        A fitted dense view.

    Examples
    --------
    >>> from demur.estimators.candidates import dense_view
    >>> codes = np.array([[1.5, 0.0], [np.nan, 1.0], [2.0, 0.0], [0.5, np.nan]])
    >>> dense = dense_view(np.array([False, True])).fit(codes)
    >>> bool((QuickDense(dense).transform(codes) == dense.transform(codes)).all())
    True
    """

    def __init__(self, dense: Any) -> None:
        (_, numbers, self._numbers), (_, categories, self._categories) = dense.transformers_[:2]
        if len(self._numbers):
            imputer, scaler = numbers[0], numbers[1]
            self._fill, self._told = imputer.statistics_, imputer.indicator_.features_
            if np.isnan(self._fill).any():
                raise InputError("a column of the dense view held no value when it was fitted, and is left out there.")
            self._mean, self._scale = scaler.mean_, scaler.scale_
        self._tables = _tables(categories) if len(self._categories) else []

    def transform(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the dense view of rows of codes."""
        parts = []
        if len(self._numbers):
            values = codes[:, self._numbers]
            missing = np.isnan(values)
            joined = np.hstack([np.where(missing, self._fill, values), missing[:, self._told]])
            joined -= self._mean
            joined /= self._scale
            parts.append(joined)
        for position, table in zip(self._categories, self._tables, strict=True):
            column = codes[:, position]
            # a code beyond the table is one that the encoder has never seen: the row before the last
            known = np.where(np.isnan(column), len(table) - 1, np.minimum(column, len(table) - 2))
            parts.append(table[known.astype(np.intp)])
        return np.hstack(parts)


def _tables(encoder: Any) -> list[NDArray[np.float64]]:
    """Return the indicators of each code of each category, of an unseen one, and of what is missing."""
    tables, start = [], 0
    for number, found in enumerate(encoder.categories_):
        rare = encoder.infrequent_categories_[number]
        width = len(found) if rare is None else len(found) - len(rare) + 1
        n_codes = int(np.nanmax(found, initial=-1)) + 1
        tried = np.tile([other[0] for other in encoder.categories_], (n_codes + 2, 1))
        tried[:, number] = [*range(n_codes + 1), np.nan]
        tables.append(np.asarray(encoder.transform(tried), dtype=np.float64)[:, start : start + width])
        start += width
    return tables


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
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    >>> bool((QuickForest(forest).predict_proba(X) == forest.predict_proba(X)).all())
    True
    """

    def __init__(self, forest: Any) -> None:
        self.classes_: AnyArray = forest.classes_
        self._trees = [tree.tree_ for tree in forest.estimators_]
        self._width = forest.n_features_in_

    def predict_proba(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the trees."""
        with np.errstate(over="ignore"):  # it is refused just below
            rows = np.ascontiguousarray(X, dtype=np.float32)
        if rows.shape[1] != self._width:  # a tree follows its indices without looking
            raise InputError(f"the forest takes {self._width} columns, got {rows.shape[1]}.")
        if np.isinf(rows).any():
            raise InputError("the rows hold infinity, or a number too large for single precision.")
        total = np.zeros((len(rows), len(self.classes_)))
        for tree in self._trees:
            total += tree.predict(rows)
        return total / len(self._trees)
