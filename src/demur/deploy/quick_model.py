"""The model as the service asks it: the same decisions, sooner."""

from copy import copy
from dataclasses import replace
from typing import Any

from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from demur.deploy.quick_dense import QuickDense
from demur.deploy.quick_forest import QuickForest
from demur.estimators import AutoClassifier, RejectOption
from demur.tabular import TableModel

__all__ = ["quick_model"]


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
    if isinstance(classifier, RejectOption):
        classifier = copy(classifier)
        classifier.estimator_ = _quick(classifier.estimator_)
    return replace(model, classifier=classifier, dense=None if model.dense is None else _quick_dense(model.dense))


def _quick(estimator: Any) -> Any:
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
