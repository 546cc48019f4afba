"""A scorer for scikit-learn's model selection: minus the 0-1-c risk of whatever an estimator predicts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from demur.costs import check_cost
from demur.errors import InputError
from demur.metrics.labels import NEVER
from demur.metrics.pointwise import zero_one_c_risk

__all__ = ["ZeroOneCScorer", "zero_one_c_scorer"]


@dataclass(frozen=True)
class ZeroOneCScorer:
    """Score an estimator by minus its 0-1-c risk; made by :func:`zero_one_c_scorer`."""

    cost: float
    reject_label: Any = None

    def __post_init__(self) -> None:
        if np.ndim(self.cost) != 0:
            raise InputError(f"a scorer takes a single cost, got an array of shape {np.shape(self.cost)}.")
        check_cost(self.cost)

    def __call__(self, estimator: Any, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the 0-1-c risk on ``X``: zero at best, greater is better."""
        return -zero_one_c_risk(
            y,
            estimator.predict(X),
            cost=self.cost,
            reject_label=_marker_of(estimator, default=self.reject_label),
            sample_weight=sample_weight,
        )

    def __repr__(self) -> str:
        marker = "" if self.reject_label is None else f", reject_label={self.reject_label!r}"
        return f"zero_one_c_scorer({self.cost!r}{marker})"


def zero_one_c_scorer(cost: float, reject_label: Any = None) -> ZeroOneCScorer:
    """Make a scorer for ``cross_val_score``, ``GridSearchCV`` and the like: minus the 0-1-c risk.

    What counts as a rejection is taken from the estimator (or the last step of a pipeline, or the best estimator
    of a search): its attribute ``reject_label_``. An estimator without one rejects where it predicts the
    ``reject_label`` given here, and never if none is given, so that plain classifiers can compete.

    Parameters
    ----------
    cost : float
        The price c of one rejection.
    reject_label : number or str, optional
        The marker of estimators that have no ``reject_label_``.

    Returns
    -------
    callable
        ``scorer(estimator, X, y, sample_weight=None)``; greater is better.

    Examples
    --------
    A classifier that always answers 1 is wrong once in four:

    >>> from sklearn.dummy import DummyClassifier
    >>> scorer = zero_one_c_scorer(0.2)
    >>> constant = DummyClassifier(strategy="most_frequent").fit([[0]] * 4, [-1, 1, 1, 1])
    >>> scorer(constant, [[0]] * 4, [-1, 1, 1, 1])
    -0.25
    """
    return ZeroOneCScorer(cost, reject_label)


def _marker_of(estimator: Any, default: Any) -> Any:
    if hasattr(estimator, "reject_label_"):
        return estimator.reject_label_
    if hasattr(estimator, "best_estimator_"):
        return _marker_of(estimator.best_estimator_, default)
    if hasattr(estimator, "steps"):
        return _marker_of(estimator.steps[-1][1], default)
    return NEVER if default is None else default
