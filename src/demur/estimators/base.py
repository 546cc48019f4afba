"""What the two estimators with a reject option share."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping

from demur.array_types import AnyArray, CostLike, Estimator, Features
from demur.errors import InputError
from demur.metrics import zero_one_c_risk
from demur.rules import Decision

__all__ = ["AroundAnEstimator", "RejectingClassifier", "choose_reject_label"]


class RejectingClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that may decline: :class:`~demur.RejectClassifier` and :class:`~demur.RejectOption`.

    Whoever uses one asks these methods and properties, and need not know which of the two it is.

    Attributes
    ----------
    classes_ : array
    reject_label_ : object
        What ``predict`` returns where it declines.
    """

    cost: CostLike
    classes_: AnyArray
    reject_label_: Any

    @abstractmethod
    def decide(self, X: Features, cost: CostLike = None) -> Decision[AnyArray]:
        """Decide for each row: which class, and whether to answer.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        cost : float or array of one per row, optional
            Another cost than the classifier's own, where ``cost_adjustable``.
        """

    @abstractmethod
    def decide_and_score(self, X: Features, cost: CostLike = None) -> tuple[Decision[AnyArray], NDArray[np.float64]]:
        """Return the decisions, and for each row one score per class.

        The scores are probabilities where ``has_proba``, else the scores that were trained.

        Parameters
        ----------
        X, cost
            As for :meth:`decide`.
        """

    @abstractmethod
    def explain(self) -> str | None:
        """Say in words how the rule decides and what it promises; None for Chow's rule at ``cost``."""

    @property
    @abstractmethod
    def has_proba(self) -> bool:
        """Whether there are class probabilities."""

    @property
    @abstractmethod
    def effective_cost(self) -> float | None:
        """The price of one rejection by which it decides; None where there is no single one."""

    @property
    @abstractmethod
    def why_cost_fixed(self) -> str | None:
        """Why another cost needs another fit, in words; None where it needs none."""

    @property
    def cost_adjustable(self) -> bool:
        """Whether ``decide`` takes another cost without another fit."""
        return self.why_cost_fixed is None

    def predict(self, X: Features) -> AnyArray:
        """Return a class for each row, or ``reject_label_`` where the classifier declines."""
        return self.decide(X).labels(self.classes_, self.reject_label_)

    def decision_function(self, X: Features) -> NDArray[np.float64]:
        """Return a score per class, or for two classes one score that is positive for the second.

        Log probabilities (two classes: log odds) where there are probabilities, else the trained scores.
        """
        scores = self._scores(X)
        if self.has_proba:
            scores = np.log(np.maximum(scores, np.finfo(np.float64).tiny))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cost: greater is better.

        That is the 0-1-c risk at ``effective_cost``, or at the parameter ``cost`` where the rule has no price of its
        own; with a cost matrix it is the mean of what the matrix charges.
        """
        return 0.0 - self._mean_cost(X, y, sample_weight)

    @abstractmethod
    def _scores(self, X: Features) -> NDArray[np.float64]:
        """Return one score per class, as :meth:`decide_and_score` does."""

    def _mean_cost(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None) -> float:
        price = self.cost if self.effective_cost is None else self.effective_cost
        answers = self.predict(X)
        return float(
            zero_one_c_risk(y, answers, cost=price, reject_label=self.reject_label_, sample_weight=sample_weight)
        )


def choose_reject_label(classes: AnyArray, wanted: Any = None) -> Any:
    """Return the label that stands for "declined" in what ``predict`` returns, or refuse one that is a class.

    Examples
    --------
    >>> choose_reject_label(np.array([0, 1]))
    -1
    >>> choose_reject_label(np.array([-1, 1]))
    -2
    >>> choose_reject_label(np.array(["cat", "dog"]))
    'reject'
    >>> choose_reject_label(np.array([0, 1]), wanted=1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: reject_label 1 is also a class; choose another label for declined rows.
    """
    known = set(classes.tolist())
    if wanted is not None:
        if wanted in known:
            raise InputError(f"reject_label {wanted!r} is also a class; choose another label for declined rows.")
        return wanted
    if classes.dtype.kind in "biuf":
        return -1 if -1 not in known else int(np.floor(min(known))) - 1
    if "reject" in known:
        raise InputError("one of the classes is called 'reject'; set reject_label to another label for declined rows.")
    return "reject"


class AroundAnEstimator(MetaEstimatorMixin):  # type: ignore[misc] # scikit-learn is untyped
    """What scikit-learn wants to know of an estimator that wraps another: features, tags, and who gets metadata."""

    estimator_: Estimator

    @abstractmethod
    def _wrapped(self) -> Estimator:
        """Return the estimator that is wrapped, not fitted."""

    @property
    def n_features_in_(self) -> int:
        """The number of features that the fitted estimator saw."""
        return int(self._of_fitted("n_features_in_"))

    @property
    def feature_names_in_(self) -> AnyArray:
        """The names of the columns that the fitted estimator saw, where they had names."""
        return np.asarray(self._of_fitted("feature_names_in_"))

    def _of_fitted(self, name: str) -> Any:
        if not hasattr(self, "estimator_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name} before fit.")
        return getattr(self.estimator_, name)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._wrapped())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.poor_score = inner.classifier_tags is not None and inner.classifier_tags.poor_score
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata: ``fit`` passes what it does not use itself to the estimator's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self._wrapped(), method_mapping=mapping)
