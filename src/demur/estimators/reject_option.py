"""RejectOption: a reject option for any classifier."""

from copy import copy
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_method_params,
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
    has_fit_parameter,
)

from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.costs import check_cost
from demur.errors import InputError, InputTypeError
from demur.estimators.auto import AutoClassifier
from demur.estimators.folds import folds_within, set_aside, stratified_folds
from demur.estimators.labels import choose_reject_label
from demur.estimators.probabilities import out_of_fold_proba, proba_of
from demur.label_shift import LabelShift
from demur.metrics import zero_one_c_risk
from demur.rules import Chow, Decision, Rule

__all__ = ["RejectOption"]


class RejectOption(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Give any classifier a reject option: calibrated probabilities, and a rule that may decline.

    Parameters
    ----------
    estimator : classifier or "auto"
        Anything with scikit-learn's interface, pipelines included. It is cloned and fitted; one that is fitted
        already is kept as it is when wrapped in ``sklearn.frozen.FrozenEstimator``, and the rows given to ``fit``
        then only calibrate it. "auto" is an :class:`AutoClassifier`: a blend of several models, a strong default for
        tables.
    cost : float, default=0.2
        The price c of one rejection; one wrong answer costs 1. Read when predicting: ``set_params(cost=...)``
        needs no refit. With another rule than Chow's it only counts in ``score``.
    rule : Rule, optional
        Chow's rule at ``cost`` by default; or ``Threshold``, ``CostMatrix``, or a rule that is fitted on held-out
        rows, for which a share of 1 / cv of the rows is then set aside.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None} or object, default="auto"
        "auto" is temperature scaling, chosen on out-of-fold probabilities. An object has ``fit(proba, y)`` and
        ``transform(proba)``, or is a scikit-learn regressor that is fitted per class.
    cv : int, splitter or iterable, default=5
        The folds of the calibration.
    reject_label : object, optional
        What ``predict`` returns where it declines; see :class:`~demur.RejectClassifier`.
    time_budget : float or None, default=90
        Seconds that "auto" may take, None for no limit; no other estimator looks at it.

    Attributes
    ----------
    estimator_ : fitted classifier
    calibrator_ : object or None
        None where the estimator is calibrated out of fold by itself, as "auto" is.
    rule_ : Rule or None
        The fitted rule, None for Chow's.
    class_prior_ : array of shape (n_classes,)
        The class frequencies among the rows that ``fit`` was given.
    label_shift_ : LabelShift or None
        The correction that :meth:`adapt` found.
    classes_, reject_label_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RejectOption(LogisticRegression(max_iter=1000), cost=0.05).fit(X, y)
    >>> model.predict(X[[0, 77]])
    array([ 0, -1])
    """

    def __init__(
        self,
        estimator: Any,
        *,
        cost: float = 0.2,
        rule: Rule | None = None,
        calibration: Any = "auto",
        cv: Any = 5,
        reject_label: Any = None,
        time_budget: float | None = 90.0,
    ) -> None:
        self.estimator = estimator
        self.cost = cost
        self.rule = rule
        self.calibration = calibration
        self.cv = cv
        self.reject_label = reject_label
        self.time_budget = time_budget

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, **fit_params: Any) -> Self:
        """Fit the estimator and calibrate it on rows it has not seen.

        Parameters
        ----------
        X, y : as the estimator takes them
        sample_weight : array-like, optional
            Passed to the estimator and used in the calibration.
        **fit_params
            Passed to the estimator's ``fit``, or routed if metadata routing is enabled.
        """
        if check_cost(self.cost).ndim:
            raise InputError(f"cost must be one number to fit, got {self.cost!r}; decide() takes one per row.")
        if self.rule is not None and not hasattr(self.rule, "decide"):
            raise InputTypeError(f"rule must be a demur rule such as Chow(0.2), got {self.rule!r}.")
        X, y = indexable(X, y)
        labels = self._checked_labels(y)
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            fit_params = {**fit_params, "sample_weight": weights}
        base = self._base()
        frozen = isinstance(base, FrozenEstimator)
        parameters = {} if frozen else self._routed(fit_params)
        needs_rows = hasattr(self.rule, "fit")
        train = np.arange(_num_samples(X))
        if frozen:
            self.estimator_ = base
            self.classes_ = self.estimator_.classes_
            unknown = np.setdiff1d(labels, self.classes_)
            if len(unknown):
                raise InputError(f"y has classes that the fitted estimator does not know: {unknown.tolist()}.")
            held_out, proba = train, proba_of(self.estimator_, X, self.classes_)
        else:
            self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise InputError(f"y holds only one class, {self.classes_[0]!r}; a classifier needs at least two.")
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label)
        rule_rows = np.array([], dtype=np.int64)
        if needs_rows:
            if sample_weight is not None:
                raise InputError(
                    f"{type(self.rule).__name__} counts rows and cannot weigh them; leave sample_weight out, or decide "
                    "by a cost."
                )
            train, rule_rows = set_aside(self.cv, X, labels)
        cross_fits_itself = isinstance(base, AutoClassifier)
        if not frozen:
            part, own = _safe_indexing(X, train), _check_method_params(X, parameters, indices=train)
            if self.calibration is not None and not cross_fits_itself:
                folds = folds_within(stratified_folds(self.cv, X, labels), train)
                held_out, proba = out_of_fold_proba(base, part, labels[train], self.classes_, folds, own)
                held_out = train[held_out]
            self.estimator_ = clone(base)
            if cross_fits_itself and needs_rows and not isinstance(self.cv, Integral):
                self.estimator_.set_params(cv=folds_within(stratified_folds(self.cv, X, labels), train))
            self.estimator_.fit(part, labels[train], **own)
            if cross_fits_itself:
                held_out, proba = train[self.estimator_.held_out_rows_], self.estimator_.held_out_proba_
        elif needs_rows:
            held_out, proba = train, proba[train]
        weight = fit_params.get("sample_weight")
        counts = np.bincount(np.searchsorted(self.classes_, labels), weight, minlength=len(self.classes_))
        self.class_prior_ = counts / counts.sum()
        self.label_shift_: LabelShift | None = None
        self.calibrator_ = None
        if self.calibration is not None and not (cross_fits_itself and self.calibration == "auto"):
            codes = np.searchsorted(self.classes_, labels[held_out])
            self.calibrator_ = self._calibrate(proba, codes, None if weight is None else weight[held_out])
        self.rule_ = self.rule
        if needs_rows:
            aside = self._calibrated_proba(_safe_indexing(X, rule_rows))
            self.rule_ = clone(self.rule, safe=False).fit(aside, np.searchsorted(self.classes_, labels[rule_rows]))
        return self

    def decide(self, X: Any, cost: Any = None) -> Decision[NDArray[Any]]:
        """Decide for each row: which class, and whether to answer.

        Parameters
        ----------
        X : as the estimator takes it
        cost : float or array of one per row, optional
            Another rejection cost than the estimator's, for Chow's rule.
        """
        return self.decide_proba(self.predict_proba(X), cost)

    def decide_proba(self, proba: ArrayLike, cost: Any = None) -> Decision[NDArray[Any]]:
        """Decide from the probabilities that :meth:`predict_proba` gave, which spares computing them again.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        cost : as in :meth:`decide`
        """
        check_is_fitted(self)
        if self.rule_ is not None:
            if cost is not None:
                raise InputError(
                    f"{type(self.rule_).__name__} decides without this cost; drop cost={cost!r}, or leave out the rule."
                )
            return self.rule_.decide(proba)
        return Chow(self.cost if cost is None else cost).decide(proba)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return a class for each row, or ``reject_label_`` where the classifier declines."""
        return self.decide(X).labels(self.classes_, self.reject_label_)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the calibrated class probabilities."""
        check_is_fitted(self)
        proba = self._calibrated_proba(X)
        return proba if self.label_shift_ is None else self.label_shift_.transform(proba)

    def adapt(self, X: Any) -> Self:
        """Return a copy for rows whose classes have other frequencies than in training (Saerens et al. 2002).

        The new frequencies are estimated from rows without labels. This is right where only the mix of classes has
        changed and not what each class looks like; ``label_shift_.explain()`` of the copy says what was found and
        how sure it is. The model itself stays as it was, and so does what a rule promised: a rule that was fitted
        under the old frequencies promises nothing under new ones, and is refused.

        Parameters
        ----------
        X : as the estimator takes it
            Rows as they come now, without labels.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.naive_bayes import GaussianNB
        >>> X, y = make_blobs([900, 900], centers=[[0], [2]], random_state=0)
        >>> model = RejectOption(GaussianNB()).fit(X, y)
        >>> X_new, _ = make_blobs([900, 100], centers=[[0], [2]], random_state=1)
        >>> model.adapt(X_new).label_shift_.new_prior_.round(1)
        array([0.9, 0.1])
        """
        check_is_fitted(self)
        if hasattr(self.rule_, "fit"):
            raise InputError(
                f"{type(self.rule_).__name__} was fitted under the class frequencies of training and promises nothing "
                "under others; use a cost (Chow's rule), or fit again on labelled rows as they come now."
            )
        unseen = self.classes_[self.class_prior_ == 0].tolist()
        if unseen:
            raise InputError(
                f"fit saw no row of class {unseen[0]!r}, so that nobody can say how much more frequent it is now; fit "
                "with rows of every class."
            )
        adapted: Self = copy(self)
        adapted.label_shift_ = LabelShift(self.class_prior_).fit(self._calibrated_proba(X))
        return adapted

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return log probabilities, or for two classes the log odds of the second."""
        proba = self.predict_proba(X)
        scores: NDArray[np.float64] = np.log(np.maximum(proba, np.finfo(np.float64).tiny))
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the 0-1-c risk at the estimator's cost: greater is better."""
        risk = zero_one_c_risk(
            y, self.predict(X), cost=self.cost, reject_label=self.reject_label_, sample_weight=sample_weight
        )
        return 0.0 - float(risk)

    @property
    def n_features_in_(self) -> int:
        """The number of features that the fitted estimator saw."""
        if not hasattr(self, "estimator_"):
            raise AttributeError(f"{type(self).__name__} has no attribute n_features_in_ before fit.")
        count: int = self.estimator_.n_features_in_
        return count

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The names of the columns that the fitted estimator saw, where they had names."""
        if not hasattr(self, "estimator_"):
            raise AttributeError(f"{type(self).__name__} has no attribute feature_names_in_ before fit.")
        names: NDArray[Any] = self.estimator_.feature_names_in_
        return names

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._base())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.poor_score = inner.classifier_tags is not None and inner.classifier_tags.poor_score
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the routing of metadata: ``fit`` passes it to the estimator's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=type(self).__name__)
            .add_self_request(self)
            .add(estimator=self._base(), method_mapping=mapping)
        )

    def _base(self) -> Any:
        if isinstance(self.estimator, str):
            if self.estimator != "auto":
                raise InputError(f'estimator must be a classifier or "auto", got {self.estimator!r}.')
            return AutoClassifier(time_budget=self.time_budget, cv=self.cv, random_state=0)
        return self.estimator

    def _routed(self, fit_params: dict[str, Any]) -> dict[str, Any]:
        if _routing_enabled():
            routed: dict[str, Any] = process_routing(self, "fit", **fit_params).estimator.fit
            return routed
        if "sample_weight" in fit_params and not has_fit_parameter(self._base(), "sample_weight"):
            raise InputTypeError(f"{type(self.estimator).__name__} takes no sample_weight; leave it out.")
        return fit_params

    def _checked_labels(self, y: Any) -> NDArray[Any]:
        if y is None:
            raise InputError("requires y to be passed, but the target y is None.")
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        if not len(labels):
            raise InputError("X and y are empty: 0 rows, at least two classes are needed.")
        return labels

    def _calibrate(self, proba: NDArray[np.float64], y: NDArray[np.int64], weight: NDArray[np.float64] | None) -> Any:
        if self.calibration in ("auto", "temperature"):
            return TemperatureScaling().fit(proba, y, weight)
        if isinstance(self.calibration, str) and self.calibration not in ("isotonic", "sigmoid"):
            raise InputError(
                'calibration must be "auto", "temperature", "isotonic", "sigmoid", None or an object, '
                f"got {self.calibration!r}."
            )
        if hasattr(self.calibration, "transform") and not hasattr(self.calibration, "predict"):
            own = clone(self.calibration, safe=False)
            weighted = weight is not None and has_fit_parameter(own, "sample_weight")
            return own.fit(proba, y, sample_weight=weight) if weighted else own.fit(proba, y)
        return OneVsRestCalibration(self.calibration).fit(proba, y, weight)

    def _calibrated_proba(self, X: Any) -> NDArray[np.float64]:
        try:
            proba = proba_of(self.estimator_, X, self.classes_)
        except NotFittedError:
            raise NotFittedError(
                "the frozen estimator is not fitted; fit it, or pass it without FrozenEstimator."
            ) from None
        if self.calibrator_ is None:
            return proba
        return np.asarray(self.calibrator_.transform(proba), dtype=np.float64)
