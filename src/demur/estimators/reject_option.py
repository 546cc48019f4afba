"""RejectOption: a reject option for any classifier."""

import warnings
from copy import copy
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.metadata_routing import (
    _routing_enabled,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.validation import _check_method_params, _check_sample_weight, check_is_fitted, has_fit_parameter

from demur.array_types import AnyArray, ByName, CostLike, Estimator, Features, Label
from demur.calibration import OneVsRestCalibration, TemperatureScaling
from demur.costs import check_cost
from demur.errors import InputError, InputTypeError
from demur.estimators.auto_classifier import AutoClassifier
from demur.estimators.base import AroundAnEstimator, RejectingClassifier, checked_labels, choose_reject_label
from demur.estimators.cross_fitting import fit_clone, out_of_fold_proba, proba_of
from demur.estimators.splitting import (
    Blocks,
    EqualRowsWarning,
    Fold,
    Partition,
    blocks_of,
    folds_of,
    folds_within,
    set_aside,
)
from demur.estimators.table_encoding import KnownRows
from demur.label_shift import LabelShift
from demur.rules import Chow, CostMatrix, Decision, Rule

__all__ = ["RejectOption"]

_HeldOut = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Row numbers, and probabilities from a model that was not fitted on these rows."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one fit: ``train`` for the estimator, ``aside`` for the rule."""

    X: Features
    y: AnyArray
    groups: Any
    fit_params: ByName
    blocks: Blocks
    folds: list[Fold] | None
    train: NDArray[np.int64]
    aside: NDArray[np.int64]
    copies: NDArray[np.bool_] | None = None

    def part(self) -> tuple[Any, AnyArray, ByName]:
        """Return what the estimator is fitted on: rows, labels and parameters of ``fit``."""
        own = _check_method_params(self.X, self.fit_params, indices=self.train)
        return _safe_indexing(self.X, self.train), self.y[self.train], own

    def folds_of_train(self, cv: Any) -> list[Fold]:
        """Return the folds of the estimator's rows, as positions among them."""
        folds = self.folds
        if folds is None:
            folds = folds_of(cv, self.X, self.y, groups=self.groups, blocks=self.blocks)
        return folds_within(folds, self.train)


class RejectOption(AroundAnEstimator, RejectingClassifier):
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
        needs no refit. A rule decides by its own price, if it has one; ``cost`` then counts nowhere. With a rule
        that has no price it counts in ``score`` alone, except for a cost matrix, which has its own costs.
    rule : Rule, optional
        Chow's rule at ``cost`` by default; or ``Chow`` with a cost of its own, ``Threshold``, ``CostMatrix``, or a rule
        that is fitted on held-out rows, for which a share of 1 / cv of the rows is then set aside. Read when
        predicting; only a rule that must be fitted needs another ``fit`` or :meth:`fit_rule`.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None} or object, default="auto"
        "auto" is temperature scaling, chosen on out-of-fold probabilities. An object has ``fit(proba, y)`` and
        ``transform(proba)``, or is a scikit-learn regressor that is fitted per class.
    cv : int, splitter or iterable, default=5
        The folds of the calibration. Rows of one group, where ``fit`` is told the groups, stay on one side of a fold.
    reject_label : object, optional
        What ``predict`` returns where it declines; see :class:`~demur.RejectClassifier`.
    novelty : "auto", float or None, default="auto"
        Out-of-distribution rows to decline, found by :class:`~demur.novelty.Novelty`. "auto": only rows far outside the
        training data. A number such as 0.01: rows more unusual than all but that share of ordinary rows. None: no
        detection. It is read when predicting, so changing it with ``set_params`` needs no refit unless it was None.
    time_budget : float or None, default=90
        Seconds that "auto" may take, None for no limit; other estimators ignore it.
    random_state : int, RandomState or None, default=0
        The seed of "auto"; no other estimator looks at it.

    Attributes
    ----------
    estimator_ : fitted classifier
        Its ``classes_`` are those of ``y``; one that takes no other labels than 0, 1, ... is wrapped so that they are.
    calibrator_ : object or None
        None where the estimator is calibrated out of fold by itself, as "auto" is.
    fitted_rule_ : Rule or None
        The rule that was fitted, None if the rule needs no fitting.
    class_prior_ : array of shape (n_classes,)
        The class frequencies among the rows that ``fit`` was given.
    label_shift_ : LabelShift or None
        The correction that :meth:`adapt` found.
    known_rows_ : KnownRows or None
        What tells rows that are unlike those of training.
    equal_rows_ : int
        How many rows had the features of an earlier row.
    classes_, reject_label_

    Notes
    -----
    What :class:`~demur.RiskControl` guarantees holds for rows like those that it was fitted on, if the estimator has
    not seen them. ``fit`` takes care of that. It cannot know on which rows a frozen estimator was trained: give ``fit``
    other rows than those, or the guarantee is void.

    Equal rows are separate observations, unless ``groups`` are given or nearly all rows occur k >= 2 times, which are
    then taken for copies. Where some rows may be copies, :class:`~demur.RiskControl` must pass with and without them,
    and an :class:`EqualRowsWarning` says so.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RejectOption(LogisticRegression(max_iter=1000), cost=0.05).fit(X, y)
    >>> model.predict(X[[0, 77]])
    array([ 0, -1])
    """

    __metadata_request__fit: ClassVar = {"groups": True}  # asks for groups where metadata are routed

    def __init__(
        self,
        estimator: Estimator,
        *,
        cost: float = 0.2,
        rule: Rule | None = None,
        calibration: Any = "auto",
        cv: Any = 5,
        reject_label: Label = None,
        novelty: float | str | None = "auto",
        time_budget: float | None = 90.0,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.cost = cost
        self.rule = rule
        self.calibration = calibration
        self.cv = cv
        self.reject_label = reject_label
        self.novelty = novelty
        self.time_budget = time_budget
        self.random_state = random_state

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the estimator and calibrate it on rows it has not seen.

        Parameters
        ----------
        X, y : as the estimator takes them
        sample_weight : array-like, optional
            Passed to the estimator and used in the calibration.
        groups : array-like of shape (n_rows,), optional
            Rows of one group (a patient, a machine) stay on one side of every split. Passed to ``cv``, and to the
            estimator if it takes groups.
        **fit_params
            Passed to the estimator's ``fit``, or routed if metadata routing is enabled.
        """
        self._check_parameters()
        X, y, groups = indexable(X, y, groups)
        labels = checked_labels(y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            fit_params = {**fit_params, "sample_weight": weight}
        base = self._base()
        self._learn_classes(base, labels, weight)
        rows = self._split(base, X, labels, weight, groups, fit_params)
        if isinstance(base, FrozenEstimator):
            held_out = self._fit_frozen(base, rows)
        elif isinstance(base, AutoClassifier):
            held_out = self._fit_auto(base, rows)
        else:
            held_out = self._fit_cross(base, rows)
        self.equal_rows_ = rows.blocks.equal_rows
        self.label_shift_: LabelShift | None = None
        self.calibrator_ = None
        if held_out is not None:
            of_rows, proba = held_out
            codes = np.searchsorted(self.classes_, labels[of_rows])
            self.calibrator_ = self._calibrate(proba, codes, None if weight is None else weight[of_rows])
        self.known_rows_ = None
        if self.novelty is not None:
            train = rows.train
            self.known_rows_ = KnownRows.learn(_safe_indexing(X, train), self.novelty, rows.blocks.of_row[train])
        self.fitted_rule_: Any = None
        if _needs_fit(self.rule):
            self._warn_of_copies(rows.blocks)
            aside = _safe_indexing(X, rows.aside)
            dependent = {"clusters": None if groups is None else np.asarray(groups)[rows.aside], "copies": rows.copies}
            self._fit_rule(_of_rows(self.rule, rows.aside), aside, labels[rows.aside], self._novel(aside), dependent)
        return self

    def fit_rule(
        self,
        X: Features,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        novel: ArrayLike | None = None,
        copies: ArrayLike | None = None,
    ) -> Self:
        """Fit ``rule`` alone, on rows that you kept apart yourself; estimator and calibration stay as they are.

        Parameters
        ----------
        X, y : as for :meth:`fit`
            Rows that neither the estimator nor its calibration has seen. A guarantee about them is void otherwise, and
            nothing in the rows tells.
        groups : array-like of shape (n_rows,), optional
            Rows of one group (a patient, a machine). A guarantee of :class:`~demur.RiskControl` is then about one
            answer per group.
        novel : array of bool, optional
            Rows that will be declined as novel whatever the rule says; by default those that ``novelty`` tells.
        copies : array of bool, optional
            Rows that may be copies of others; by default ``fit_rule`` looks for equal rows itself.

        Examples
        --------
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.naive_bayes import GaussianNB
        >>> from demur import RiskControl
        >>> X, y = make_blobs(900, centers=[[0], [2]], random_state=0)
        >>> model = RejectOption(GaussianNB()).fit(X[:500], y[:500])
        >>> model.set_params(rule=RiskControl(0.1)).fit_rule(X[500:], y[500:]).rule_.explain()
        'Answers where ...
        """
        check_is_fitted(self)
        if not _needs_fit(self.rule):
            raise InputError(f"{_name(self.rule)} needs no rows to be fitted on; it decides as it is.")
        X, y, groups = indexable(X, y, groups)
        labels = checked_labels(y)
        self._check_known(labels)
        declined = self._novel(X) if novel is None else np.asarray(novel, dtype=bool)
        rows = np.arange(len(labels))
        if copies is None:
            blocks = blocks_of(X, labels, groups)
            self._warn_of_copies(blocks)
            rows = blocks.without_copies(rows)
            copies = blocks.copies(rows)
        dependent = {"clusters": None if groups is None else np.asarray(groups)[rows], "copies": copies}
        declined = None if declined is None else declined[rows]
        self._fit_rule(_of_rows(self.rule, rows), _safe_indexing(X, rows), labels[rows], declined, dependent)
        return self

    def decide(self, X: Features, cost: CostLike = None) -> Decision[AnyArray]:
        return self.decide_and_score(X, cost)[0]

    def decide_and_score(self, X: Features, cost: CostLike = None) -> tuple[Decision[AnyArray], NDArray[np.float64]]:
        proba = self.predict_proba(X)
        decision, novel = self.decide_proba(proba, cost), self._novel(X)
        return (decision if novel is None else decision.declining(novel)), proba

    def decide_proba(self, proba: ArrayLike, cost: CostLike = None) -> Decision[AnyArray]:
        """Decide from the probabilities that :meth:`predict_proba` gave, which spares computing them again.

        They do not tell which rows are novel: only :meth:`decide` does.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        cost : as in :meth:`decide`
        """
        rule = self.rule_
        if cost is not None:
            if not self.cost_adjustable:
                raise InputError(f"{_name(rule)} decides without this cost; drop cost={cost!r}, or leave out the rule.")
            rule = Chow(cost)
        return (Chow(self.cost) if rule is None else rule).decide(proba)

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the calibrated class probabilities."""
        check_is_fitted(self)
        proba = self._calibrated_proba(X)
        return proba if self.label_shift_ is None else self.label_shift_.transform(proba)

    @property
    def rule_(self) -> Rule | None:
        """The rule that decides now, fitted if it needs to be; None for Chow's rule at ``cost``."""
        check_is_fitted(self)
        if not _needs_fit(self.rule):
            return self.rule
        if not _is_fit_of(self.fitted_rule_, self.rule):
            raise InputError(
                f"the rule was changed to {self.rule!r} after fit, and it has to be fitted on rows: fit again, or call "
                "fit_rule with labelled rows that the model has not seen."
            )
        fitted: Rule = self.fitted_rule_
        return fitted

    @property
    def has_proba(self) -> bool:
        return True

    @property
    def effective_cost(self) -> float | None:
        price = self.cost if self.rule is None else self.rule.cost
        return None if price is None or np.ndim(price) else float(price)

    @property
    def why_cost_fixed(self) -> str | None:
        if self.rule is None or isinstance(self.rule, Chow):
            return None
        name = _name(self.rule)
        return f"it decides by {name}, which does not look at a cost; fit again with a cost and without {name}"

    def explain(self) -> str | None:
        rule = self.rule_
        return None if rule is None else rule.explain()

    def adapt(self, X: Features) -> Self:
        """Return a copy for rows whose classes have other frequencies than in training (Saerens et al. 2002).

        The new frequencies are estimated from rows without labels. This is right where only the mix of classes has
        changed and not what each class looks like; ``label_shift_.explain()`` of the copy says what was found and
        how sure it is. The model itself does not change. A rule that was fitted under the old frequencies guarantees
        nothing under new ones, and is refused.

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
        if _needs_fit(self.rule):
            raise InputError(
                f"{_name(self.rule)} was fitted under the class frequencies of training and guarantees nothing "
                "under others; use a cost (Chow's rule), or fit again on labelled rows as they come now."
            )
        unseen = self.classes_[self.class_prior_ == 0].tolist()
        if unseen:
            raise InputError(
                f"fit saw no row of class {unseen[0]!r}, so that its new frequency cannot be estimated; fit "
                "with rows of every class."
            )
        adapted: Self = copy(self)
        adapted.label_shift_ = LabelShift(self.class_prior_).fit(self._calibrated_proba(X))
        return adapted

    def _wrapped(self) -> Estimator:
        return self._base()

    def _scores(self, X: Features) -> NDArray[np.float64]:
        return self.predict_proba(X)

    def _mean_cost(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None) -> float:
        rule = self.rule_
        if not isinstance(rule, CostMatrix):
            return super()._mean_cost(X, y, sample_weight)
        labels = checked_labels(y)
        self._check_known(labels)
        decision = self.decide(X)
        answers = np.where(decision.reject, len(self.classes_), decision.label)
        costs, codes = np.asarray(rule.costs), np.searchsorted(self.classes_, labels)
        charged = costs[codes, answers] if costs.ndim == 2 else costs[np.arange(len(codes)), codes, answers]
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, labels, dtype=np.float64)
        return float(np.average(charged, weights=weight))

    def _check_parameters(self) -> None:
        if check_cost(self.cost).ndim:
            raise InputError(f"cost must be one number to fit, got {self.cost!r}; decide() takes one per row.")
        if not (self.rule is None or isinstance(self.rule, Rule)):
            raise InputTypeError(f"rule must be a demur rule such as Chow(0.2), got {self.rule!r}.")

    def _learn_classes(self, base: Estimator, labels: AnyArray, weight: NDArray[np.float64] | None) -> None:
        if isinstance(base, FrozenEstimator):
            self.classes_ = base.classes_
            self._check_known(labels)
        else:
            self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise InputError(f"y holds only one class, {self.classes_[0]!r}; a classifier needs at least two.")
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label)
        counts = np.bincount(np.searchsorted(self.classes_, labels), weight, minlength=len(self.classes_))
        self.class_prior_ = counts / counts.sum()

    def _check_known(self, labels: AnyArray) -> None:
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InputError(f"y has classes that the fitted estimator does not know: {unknown.tolist()}.")

    def _split(
        self,
        base: Estimator,
        X: Features,
        labels: AnyArray,
        weight: NDArray[np.float64] | None,
        groups: Any,
        fit_params: ByName,
    ) -> _Rows:
        """Split the rows between the estimator and the rule. ``cv`` may be a generator, so its folds are drawn once."""
        own = {} if isinstance(base, FrozenEstimator) else self._routed(base, groups, fit_params)
        blocks = blocks_of(X, labels, groups)
        uses_folds = self.calibration is not None or isinstance(base, AutoClassifier) or _needs_fit(self.rule)
        folds = None
        if uses_folds and self.cv is not None and not isinstance(self.cv, Integral):
            folds = folds_of(self.cv, X, labels, groups=groups, blocks=blocks)
        parts = Partition(np.arange(len(labels)), np.array([], dtype=np.int64), blocks.equal_rows)
        if _needs_fit(self.rule):
            if weight is not None:
                raise InputError(
                    f"{_name(self.rule)} counts rows and cannot weigh them; leave sample_weight out, or decide by a "
                    "cost."
                )
            parts = set_aside(self.cv, X, labels, groups=groups, blocks=blocks, folds=folds)
        return _Rows(X, labels, groups, own, blocks, folds, parts.train, parts.aside, parts.copies)

    def _fit_frozen(self, base: Estimator, rows: _Rows) -> _HeldOut | None:
        """Keep an estimator that is fitted already; all rows are new to it."""
        self.estimator_ = base
        if self.calibration is None:
            return None
        return rows.train, self._proba(_safe_indexing(rows.X, rows.train))

    def _fit_cross(self, base: Estimator, rows: _Rows) -> _HeldOut | None:
        """Fit fold by fold to see rows as new ones, and then on all rows."""
        X, y, fit_params = rows.part()
        held_out = None
        if self.calibration is not None:
            positions, proba = out_of_fold_proba(base, X, y, self.classes_, rows.folds_of_train(self.cv), fit_params)
            held_out = rows.train[positions], proba
        self.estimator_ = fit_clone(base, X, y, fit_params)
        return held_out

    def _fit_auto(self, base: AutoClassifier, rows: _Rows) -> _HeldOut | None:
        """Fit a blend, which cross-fits and calibrates itself; another calibration comes on top."""
        X, y, fit_params = rows.part()
        blend = clone(base)
        if rows.folds is not None:
            blend.set_params(cv=rows.folds_of_train(self.cv))
        blend.fit(X, y, **fit_params)
        self.estimator_ = blend.set_params(cv=base.cv)
        if self.calibration is None or self.calibration == "auto":
            return None
        return rows.train[blend.held_out_rows_], blend.held_out_proba_

    def _fit_rule(
        self, rule: Any, X: Features, labels: AnyArray, novel: NDArray[np.bool_] | None, dependent: ByName
    ) -> None:
        """Fit the rule on rows, of which novel ones are declined in any case.

        A guarantee about answers is about the others. A share of answers is one of all rows, so that the novel ones
        count there as the least certain.
        """
        rows = np.arange(len(labels))
        if novel is not None and getattr(rule, "about_answers", True):
            rows = np.flatnonzero(~novel)
        proba = self._calibrated_proba(_safe_indexing(X, rows))
        if novel is not None:
            proba[novel[rows]] = 1 / proba.shape[1]
        codes = np.searchsorted(self.classes_, labels[rows])
        known = {
            name: value for name, value in dependent.items() if value is not None and has_fit_parameter(rule, name)
        }
        given = {name: np.asarray(value)[rows] for name, value in known.items()}
        self.fitted_rule_ = clone(_of_rows(rule, rows)).fit(proba, codes, **given)
        groups = getattr(self.rule, "groups", None)
        if groups is not None:
            missing = {str(group) for group in groups} - set(self.fitted_rule_.group_certificates_)
            if missing:
                raise InputError(
                    f"no calibration row is of the group {min(missing)!r}, so that nothing can be guaranteed for it; "
                    "give more of its rows, or join it with another group."
                )
            self.fitted_rule_.groups = groups

    def _warn_of_copies(self, blocks: Blocks) -> None:
        if (blocks.times > 1 or blocks.suspects is not None) and has_fit_parameter(self.rule, "copies"):
            warnings.warn(blocks.explain() or "", EqualRowsWarning, stacklevel=3)

    def _novel(self, X: Features) -> NDArray[np.bool_] | None:
        known = getattr(self, "known_rows_", None)
        return None if known is None or self.novelty is None else known.novel(X, self.novelty)

    def _base(self) -> Any:
        if isinstance(self.estimator, str):
            if self.estimator != "auto":
                raise InputError(f'estimator must be a classifier or "auto", got {self.estimator!r}.')
            return AutoClassifier(
                time_budget=self.time_budget,
                cv=self.cv if isinstance(self.cv, Integral) else 5,
                random_state=self.random_state,
            )
        return self.estimator

    def _routed(self, base: Estimator, groups: Any, fit_params: ByName) -> ByName:
        """Return what the estimator's ``fit`` gets beside rows and labels."""
        if _routing_enabled():
            given = fit_params if groups is None else {**fit_params, "groups": groups}
            routed: ByName = process_routing(self, "fit", **given).estimator.fit
            return routed
        if "sample_weight" in fit_params and not has_fit_parameter(base, "sample_weight"):
            raise InputTypeError(f"{type(base).__name__} takes no sample_weight; leave it out.")
        if groups is None or isinstance(base, Pipeline):
            return fit_params
        takes_groups = get_routing_for_object(base).consumes("fit", ["groups"])
        return {**fit_params, "groups": groups} if takes_groups else fit_params

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

    def _proba(self, X: Features) -> NDArray[np.float64]:
        try:
            return proba_of(self.estimator_, X, self.classes_)
        except NotFittedError:
            raise NotFittedError(
                "the frozen estimator is not fitted; fit it, or pass it without FrozenEstimator."
            ) from None

    def _calibrated_proba(self, X: Features) -> NDArray[np.float64]:
        proba = self._proba(X)
        return proba if self.calibrator_ is None else np.asarray(self.calibrator_.transform(proba), dtype=np.float64)


def _needs_fit(rule: Any) -> bool:
    return rule is not None and bool(rule.needs_fit)


def _of_rows(rule: Any, rows: NDArray[np.int64]) -> Any:
    """Return a rule with the groups of these rows, where it has groups."""
    return rule.of_rows(rows) if getattr(rule, "groups", None) is not None else rule


def _name(rule: Any) -> str:
    return "Chow" if rule is None else type(rule).__name__


def _is_fit_of(fitted: Any, rule: Any) -> bool:
    """Say whether a fitted rule was made from a rule with these parameters."""
    if type(fitted) is not type(rule):
        return False
    then, now = fitted.get_params(deep=False), rule.get_params(deep=False)
    return all(np.array_equal(then[name], value) for name, value in now.items())
