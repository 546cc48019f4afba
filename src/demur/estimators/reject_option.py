"""RejectOption: a reject option for any classifier."""

import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _routing_enabled,
    get_routing_for_object,
    process_routing,
)
from sklearn.utils.validation import _check_method_params, _num_samples, check_is_fitted, has_fit_parameter

from demur.array_types import AnyArray, ByName, CostLike, Estimator, Features, Floats, Ints, Label, Mask
from demur.calibration import OneVsRestCalibration, TemperatureScaling, best_calibration
from demur.errors import InputError, InputTypeError
from demur.estimators.auto_classifier import AutoClassifier
from demur.estimators.base import (
    FeaturesOfEstimator,
    KnownRows,
    NothingToFit,
    RejectingClassifier,
    aligned,
    check_two_classes,
    checked_labels,
    choose_reject_label,
    filled_up,
    fit_clone,
    is_numeric,
    out_of_fold_proba,
    proba_of,
    row_weights,
    score_scale,
)
from demur.estimators.candidates import dense_view
from demur.estimators.scope import DEFAULT_SHARE, FEWEST_OUTSIDE, Scope, ScopeInput
from demur.estimators.splitting import (
    Blocks,
    EqualRowsWarning,
    Fold,
    blocks_of,
    folds_of,
    folds_within,
    set_aside,
    share_for_rule,
)
from demur.guarantees.coverage import Coverage, check_share
from demur.label_shift import LabelShift
from demur.rules import Chow, CostMatrix, Decision, Rule, check_proba

_AT_ONCE = 1 << 22
"""Largest number of probabilities that a rule is fitted on at once."""

_MOST_OUT_OF_FOLD = 5000
"""The most out-of-fold rows from which a guarantee predicts where its threshold will be."""


class AroundAnEstimator(FeaturesOfEstimator):
    """An estimator that wraps another, fits it, and gets probabilities of rows that it has not seen."""

    classes_: AnyArray
    out_of_scope: Label = None
    random_state: Any = 0
    score_scale_: float = 1.0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self._base()).input_tags
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing: ``fit`` passes metadata that it does not use to the estimator's ``fit``."""
        mapping = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        return router.add(estimator=self._base(), method_mapping=mapping)

    def _base(self, share: float = 1.0) -> Any:
        """Return the estimator to fit: the given one, or an AutoClassifier with a share of the time budget."""
        if isinstance(self.estimator, NothingToFit):
            return FrozenEstimator(self.estimator)
        if not isinstance(self.estimator, str):
            return self.estimator
        if self.estimator != "auto":
            raise InputError(f'estimator must be a classifier or "auto", got {self.estimator!r}.')
        budget = None if self.time_budget is None else share * self.time_budget
        cv = self.cv if isinstance(self.cv, Integral) else 5
        return AutoClassifier(time_budget=budget, cv=cv, random_state=self.random_state)

    def _learn_classes(self, base: Estimator, labels: AnyArray) -> None:
        """Set the classes: those of a frozen estimator, which the labels must be among, or those of the labels."""
        self.classes_ = check_two_classes(np.unique(base.classes_ if isinstance(base, FrozenEstimator) else labels))
        self._check_known(labels)
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label, self.out_of_scope)

    def _check_known(self, labels: AnyArray) -> None:
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise InputError(f"y has classes that the fitted estimator does not know: {unknown.tolist()}.")

    def _routed(self, base: Estimator, groups: Any, fit_params: ByName) -> ByName:
        """Return the arguments of the estimator's ``fit`` other than rows and labels."""
        if isinstance(base, FrozenEstimator):
            return {}
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

    def _fit_model(
        self,
        base: Estimator,
        X: Features,
        y: AnyArray,
        folds: Sequence[Fold],
        fit_params: ByName,
        held_out: bool = True,
    ) -> tuple[Ints, Floats]:
        """Fit the estimator; return rows, and their probabilities from models that have not seen them.

        There may be no such rows if they are not needed (``held_out`` false).
        """
        if isinstance(base, AutoClassifier):
            blend = clone(base)
            if not isinstance(self.cv, Integral):
                blend.set_params(cv=folds)
            self.estimator_ = blend.fit(X, y, **fit_params).set_params(cv=base.cv)
            return blend.held_out_rows_, aligned(blend.held_out_proba_, blend.classes_, self.classes_)
        frozen = isinstance(base, FrozenEstimator)
        self.estimator_ = base if frozen else fit_clone(base, X, y, fit_params)
        self.score_scale_ = score_scale(self.estimator_, X) if held_out else 1.0
        if not held_out:
            return np.empty(0, dtype=np.int64), np.empty((0, len(self.classes_)))
        if frozen:
            return np.arange(len(y)), proba_of(base, X, self.classes_, self.score_scale_)
        return out_of_fold_proba(base, X, y, self.classes_, folds, fit_params, self.score_scale_)

    def _calibrated_proba(self, X: Features) -> Floats:
        return self._calibrated(proba_of(self.estimator_, X, self.classes_, self.score_scale_))

    def _calibrated(self, proba: Floats) -> Floats:
        return proba if self.calibrator_ is None else np.asarray(self.calibrator_.transform(proba), dtype=np.float64)


@dataclass(eq=False, repr=False)
class RejectOption(AroundAnEstimator, RejectingClassifier):
    """Give any classifier a reject option: calibrated probabilities, and a rule that may decline.

    Parameters
    ----------
    estimator : classifier or "auto"
        Classifier or pipeline with scikit-learn's interface; it is cloned and fitted. To keep a classifier that is
        already fitted, wrap it in ``sklearn.frozen.FrozenEstimator``: ``fit`` then only calibrates it, as it does a
        :class:`TorchClassifier`. "auto" is an :class:`AutoClassifier`: a blend of several models, a strong default for
        tables.
    cost : float, default=0.2
        Cost c of declining a row; a wrong answer costs 1. It is used at prediction time, so ``set_params(cost=...)``
        needs no refit. A rule with its own cost ignores it; if the rule has no cost, only ``score`` uses it.
    rule : Rule, optional
        Decision rule; by default Chow's rule at ``cost``. It may be ``Chow`` with its own cost, ``Threshold``,
        ``CostMatrix``, or a rule that is fitted, for which rows are set aside (``guarantee_share``). It is used at
        prediction time; after a change, only a rule that is fitted needs another ``fit`` or :meth:`fit_rule`.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None} or object, default="auto"
        Calibration of the probabilities. "auto" chooses between none, a temperature, a temperature with class biases
        and sigmoids by the log loss of out-of-fold probabilities (:func:`~demur.calibration.best_calibration`), and
        smooths probabilities of 0. An object has ``fit(proba, y)`` and ``transform(proba)``.
    cv : int, splitter or iterable, default=5
        Folds of the calibration. If ``fit`` gets ``groups``, rows of one group stay on one side of every fold.
    reject_label : object, optional
        Label that ``predict`` returns for declined rows; see :class:`~demur.RejectClassifier`.
    novelty : "auto", float or None, default="auto"
        Out-of-distribution rows to decline, found by :class:`~demur.novelty.Novelty`. "auto": only rows far outside the
        training data. A number such as 0.01: rows more unusual than all but that share of ordinary rows. None: no
        detection. It is read when predicting, so changing it with ``set_params`` needs no refit unless it was None; a
        rule that is fitted needs another :meth:`fit_rule`.
    out_of_scope : label, optional
        Label in ``y`` of rows that belong to no class; any answer to such a row costs 1. The label is not learned as a
        class. Instead, a second model estimates from scores and distances the probability that a row is in scope, and
        the confidence is multiplied by it (:class:`~demur.estimators.Scope`).
    out_of_scope_share : float, optional
        Expected share of out-of-scope rows, 0 for none. By default it is the share in ``y``, but at least 0.1, if
        ``out_of_scope`` is given or "auto" reads text, and 0 otherwise. If ``y`` has fewer than 10 such rows, the
        probability of being in scope is estimated from scores and distances alone.
    guarantee_share : "auto" or float, default="auto"
        Share of the rows that is set aside for a fitted rule; nothing else is learned from them. "auto" is a fifth, but
        for a guarantee with a ``delta`` at least 750 rows (or half of the rows, if there are fewer than 1,500), and
        four fifths if the estimator is frozen. If ``cv`` is a splitter, "auto" takes the test part of its last fold.
    time_budget : float or None, default=90
        Time limit of "auto" in seconds, None for no limit; other estimators ignore it.
    random_state : int, RandomState or None, default=0
        Random seed of "auto"; other estimators ignore it.

    Attributes
    ----------
    estimator_ : fitted classifier
        The fitted estimator. Its ``classes_`` are those of ``y``; a classifier that accepts only the labels 0, 1, ...
        is wrapped.
    calibrator_ : object or None
        Fitted calibration; None if the estimator calibrates itself, as "auto" does.
    fitted_rule_ : Rule or None
        The rule that was fitted, None if the rule needs no fitting.
    score_scale_ : float
        Divisor of the scores of ``decision_function``; 1 for an estimator with ``predict_proba``.
    out_of_fold_ : pair of arrays, or None
        Out-of-fold confidences and errors of training rows, from which a guarantee predicts its threshold.
    class_prior_ : array of shape (n_classes,)
        The class frequencies among the rows that ``fit`` was given.
    label_shift_ : LabelShift or None
        The correction that :meth:`adapt` found.
    known_rows_ : KnownRows or None
        The detector of out-of-distribution rows.
    scope_ : Scope or None
        The probability of being in scope.
    equal_rows_ : int
        Number of rows with the features of an earlier row.
    classes_, reject_label_

    Notes
    -----
    A guarantee of :class:`~demur.RiskControl` holds for rows like those that the rule was fitted on, if the estimator
    was not trained on these. ``fit`` ensures this, except for a frozen estimator, whose training rows it does not know:
    give ``fit`` other rows, otherwise the guarantee does not hold.

    Equal rows count as separate observations, unless ``groups`` are given, or nearly all rows occur k >= 2 times and
    are therefore treated as copies. If only some rows may be copies, the test of :class:`~demur.RiskControl` must
    succeed with and without them, and there is an :class:`EqualRowsWarning`.

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

    estimator: Estimator
    _: KW_ONLY
    cost: float = 0.2
    rule: Rule | None = None
    calibration: Any = "auto"
    cv: Any = 5
    reject_label: Label = None
    novelty: float | str | None = "auto"
    out_of_scope: Label = None
    out_of_scope_share: float | None = None
    guarantee_share: float | str = "auto"
    time_budget: float | None = 90.0
    random_state: Any = 0

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
            Group of each row (a patient, a machine): rows of one group stay on one side of every split. Passed to
            ``cv``, and to the estimator if it takes groups.
        **fit_params
            Passed to the estimator's ``fit``, or routed if metadata routing is enabled.
        """
        self._check_parameters()
        X, y, groups = indexable(X, y, groups)
        labels = checked_labels(y)
        weight = row_weights(X, sample_weight)
        if weight is not None:
            fit_params = {**fit_params, "sample_weight": weight}
        every = X, labels, groups
        X, outside, inside = self._without_outside(X, labels)
        if outside is not None:
            fit_params = _check_method_params(labels, fit_params, indices=inside)
            groups, weight = (None if one is None else _safe_indexing(one, inside) for one in (groups, weight))
            labels = labels[inside]
        base = self._base()
        self._learn_classes(base, labels)
        codes = np.searchsorted(self.classes_, labels)
        counts = np.bincount(codes, weight, minlength=len(self.classes_))
        self.class_prior_ = counts / counts.sum()
        blocks = blocks_of(X, labels, groups)
        calibrate = self.calibration is not None
        folds = folds_of(self.cv, X, labels, groups=groups, blocks=blocks)  # once, because cv may be a generator
        train, copies = np.arange(len(labels)), None
        if _needs_fit(self.rule):
            share = self._share_for_rule(base, folds, len(labels) // blocks.times, weight)
            train, aside, copies = set_aside(share, labels, blocks)
        seen = _safe_indexing(X, train)
        own = _check_method_params(X, self._routed(base, groups, fit_params), indices=train)
        scoped = self.out_of_scope is not None or bool(self.out_of_scope_share)
        held_out, proba = self._fit_model(
            base, seen, labels[train], folds_within(folds, train), own, calibrate or scoped
        )
        self.equal_rows_ = blocks.equal_rows
        self.label_shift_: LabelShift | None = None
        self.calibrator_ = None
        self.fitted_rule_: Any = None
        if calibrate and not (isinstance(base, AutoClassifier) and self.calibration == "auto"):
            rows = train[held_out]
            self.calibrator_ = self._calibrate(proba, codes[rows], None if weight is None else weight[rows])
        self.known_rows_ = KnownRows.learn(seen, self.novelty, blocks.of_row[train])
        proba = self._calibrated(proba)
        self.scope_ = self._learn_scope(seen, codes[train], held_out, proba, outside)
        some = np.random.RandomState(0).permutation(len(held_out))[:_MOST_OUT_OF_FOLD]
        wrong = proba[some].argmax(axis=1) != codes[train[held_out[some]]]
        self.out_of_fold_ = (proba[some].max(axis=1), wrong) if len(some) and self.scope_ is None else None
        if _needs_fit(self.rule):
            self._warn_of_copies(blocks)
            novel = self._novel(_safe_indexing(X, aside))
            self._fit_rule(*every, inside[aside], copies, novel)  # the rule may have one group per given row
        return self

    def fit_rule(
        self,
        X: Features,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        novel: ArrayLike | None = None,
        copies: ArrayLike | None = None,
    ) -> Self:
        """Fit only ``rule``, on rows that you set aside yourself; estimator and calibration do not change.

        Parameters
        ----------
        X, y : as for :meth:`fit`
            Rows that neither the estimator nor its calibration has seen. Otherwise a guarantee does not hold, and demur
            cannot detect this. Out-of-scope rows are left out: a guarantee is about rows in scope. The answer to a row
            of a class that the estimator does not know is wrong.
        groups : array-like of shape (n_rows,), optional
            Group of each row (a patient, a machine). A guarantee of :class:`~demur.RiskControl` is then about one
            answer per group.
        novel : array of bool, optional
            Rows that are declined as novel, regardless of the rule; by default those that ``novelty`` finds.
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
        rows = np.flatnonzero(labels != self.out_of_scope)
        declined = self._novel(X) if novel is None else np.asarray(novel, dtype=bool)
        if copies is None:
            blocks = blocks_of(X, labels, groups)
            self._warn_of_copies(blocks)
            rows = blocks.without_copies(rows)
            copies = blocks.copies(rows)
        else:
            copies = np.asarray(copies)[rows]
        self._fit_rule(X, labels, groups, rows, copies, None if declined is None else declined[rows])
        return self

    def decide_and_score(self, X: Features, cost: CostLike = None) -> tuple[Decision[AnyArray], Floats]:
        check_is_fitted(self)
        inputs = ScopeInput(self._calibrated_proba(X)) if self.scope_ is None else self._scope_input(X)
        proba = inputs.proba if self.label_shift_ is None else self.label_shift_.transform(inputs.proba)
        decision, novel = self.decide_proba(proba, cost), self._novel(X)
        if self.scope_ is not None:
            decision = self._within(decision, proba, self.scope_.probability(inputs))
        return (decision if novel is None else decision.declining(novel)), proba

    def decide_proba(self, proba: ArrayLike, cost: CostLike = None) -> Decision[AnyArray]:
        """Decide from probabilities that :meth:`predict_proba` returned.

        Novel rows are not declined here, because probabilities do not show which rows are novel.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        cost : as in :meth:`decide`
        """
        rule = self.rule_
        if cost is not None:
            if not self.cost_adjustable:
                raise InputError(f"{_name(rule)} does not use a cost; leave out cost={cost!r}, or the rule.")
            rule = Chow(cost)
        return (Chow(self.cost) if rule is None else rule).decide(proba)

    def _within(self, decision: Decision[AnyArray], proba: Floats, in_scope: Floats) -> Decision[AnyArray]:
        """Return the decisions, given the probability that each row is in scope."""
        rule, loss = self.rule_, None
        if isinstance(rule, CostMatrix):  # an answer out of scope costs 1, declining what it costs on average
            declining = np.einsum("ik,...ik->i", proba, np.broadcast_to(np.asarray(rule.costs)[..., -1], proba.shape))
            loss = (1 - in_scope) * (decision.acceptance + 1 - declining)
        found = decision.within(in_scope, loss)
        if not _needs_fit(rule):
            return found
        hopeless = in_scope * proba.max(axis=1) <= 1 - in_scope  # the rule was fitted without in_scope
        return replace(found, reject=found.reject | hopeless, acceptance=np.where(hopeless, 0.0, found.acceptance))

    def _scope_input(self, X: Features) -> ScopeInput:
        """Return the calibrated probabilities of rows and the other inputs of the scope."""
        if isinstance(self.estimator_, AutoClassifier):
            inputs = ScopeInput(*self.estimator_.predict_with_points(X))
            return inputs._replace(proba=self._calibrated(inputs.proba))
        return ScopeInput(
            self._calibrated_proba(X), None if self.points_ is None else self.points_.transform(filled_up(X))
        )

    def _without_outside(self, X: Features, labels: AnyArray) -> tuple[Features, Features | None, Ints]:
        """Return the rows in scope, those out of scope if there are any, and which rows the first are."""
        one, label = labels.tolist()[0], self.out_of_scope
        if label is not None and (np.ndim(label) or isinstance(label, str) != isinstance(one, str)):
            raise InputError(f"out_of_scope must be one label of the type of y, such as {one!r}, got {label!r}.")
        outside = np.zeros(len(labels), dtype=bool) if label is None else labels == label
        inside = np.flatnonzero(~outside)
        if not outside.any():
            return X, None, inside
        return _safe_indexing(X, inside), _safe_indexing(X, np.flatnonzero(outside)), inside

    def _learn_scope(
        self,
        X: Features,
        y: Ints,
        held_out: Ints,
        proba: Floats,
        outside: Features | None,
    ) -> Scope | None:
        """Learn which rows are in scope from training rows with out-of-fold probabilities, and out-of-scope rows."""
        model, share = self.estimator_, self.out_of_scope_share
        reads_text = isinstance(model, AutoClassifier) and model.encoding_.dense_text is not None
        self.points_ = None
        n_outside = 0 if outside is None else _num_samples(outside)
        if share is None:
            expected = self.out_of_scope is not None or reads_text
            share = max(DEFAULT_SHARE, n_outside / (n_outside + len(y))) if expected else 0.0
        if not share or len(held_out) < FEWEST_OUTSIDE:
            return None
        if 0 < n_outside < FEWEST_OUTSIDE:
            warnings.warn(
                f"fewer than {FEWEST_OUTSIDE} out-of-scope rows are not learned from: the probability of being in "
                "scope is estimated from scores and distances alone.",
                stacklevel=3,
            )
        if not isinstance(model, AutoClassifier) and is_numeric(X):
            self.points_ = dense_view(np.zeros(np.shape(X)[1], dtype=bool)).fit(filled_up(X))
        held = self._scope_input(_safe_indexing(X, held_out))
        top = model.held_out_top_ if reads_text else None
        inside = held._replace(proba=proba, top=top)
        others = self._scope_input(outside) if n_outside >= FEWEST_OUTSIDE else None
        in_svd = reads_text and model.encoding_.dense_text.embeddings is None
        return Scope.learn(inside, y[held_out], others, share, in_svd)

    def predict_proba(self, X: Features) -> Floats:
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
        fitted_with = clone(self.fitted_rule_, safe=False), getattr(self, "rule_novelty_", self.novelty)
        if fitted_with != (clone(self.rule), self.novelty):
            raise InputError(
                f"the rule was changed to {self.rule!r}, or novelty to {self.novelty!r}, after fit, and it must be "
                "fitted on rows: fit again, or call fit_rule with labelled rows that the model has not seen."
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
        return f"it decides by {name}, which does not use a cost; fit again with a cost and without {name}"

    def explain(self) -> str | None:
        rule = self.rule_
        return None if rule is None else rule.explain()

    def adapt(self, X: Features) -> Self:
        """Return a copy that is corrected for other class frequencies than in training (Saerens et al. 2002).

        The new frequencies are estimated from rows without labels. This is correct if only the class frequencies have
        changed, and not the distribution of the features in each class; ``label_shift_.explain()`` of the copy
        describes the estimate and its uncertainty. The model itself does not change. A fitted rule is refused: its
        guarantee does not hold under other frequencies.

        Parameters
        ----------
        X : as the estimator takes it
            Current rows, without labels.

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
                "under others; use a cost (Chow's rule), or fit again on current labelled rows."
            )
        unseen = self.classes_[self.class_prior_ == 0].tolist()
        if unseen:
            raise InputError(
                f"the new frequency of class {unseen[0]!r} cannot be estimated; fit with rows of every class."
            )
        adapted: Self = copy(self)
        adapted.label_shift_ = LabelShift(self.class_prior_).fit(self._calibrated_proba(X))
        return adapted

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
        return float(np.average(charged, weights=row_weights(labels, sample_weight)))

    def _check_parameters(self) -> None:
        self._check_cost()
        if self.out_of_scope_share is not None and not 0 <= self.out_of_scope_share < 1:
            raise InputError(f"out_of_scope_share must be from 0 to below 1, got {self.out_of_scope_share!r}.")
        if self.guarantee_share != "auto":
            check_share("guarantee_share", self.guarantee_share, closed=False)
        if not (self.rule is None or isinstance(self.rule, Rule)):
            raise InputTypeError(f"rule must be a demur rule such as Chow(0.2), got {self.rule!r}.")

    def _fit_rule(
        self,
        X: Features,
        labels: AnyArray,
        groups: Any,
        rows: Ints,
        copies: ArrayLike | None,
        novel: Mask | None,
    ) -> None:
        """Fit the rule on some rows; novel rows are declined in any case.

        A guarantee about answers does not cover novel rows. A coverage is a share of all rows, so for it novel rows
        count as the least confident ones.
        """
        rule: Any = self.rule
        true, n_classes = labels[rows], len(self.classes_)
        if not np.isin(true, self.classes_).any():
            self._check_known(true)
        declined = np.zeros(len(rows), dtype=bool) if novel is None else novel.copy()
        sample: tuple[AnyArray, AnyArray]
        if by_confidence := hasattr(rule, "fit_confidence"):  # the probabilities of all rows may not fit in memory
            parts = np.array_split(rows, 1 + len(rows) * n_classes // _AT_ONCE)
            found = (self._proba_in_scope(_safe_indexing(X, part)) for part in parts)
            confidence, label = map(
                np.concatenate, zip(*((p.max(axis=1), p.argmax(axis=1)) for p in found), strict=True)
            )
            declined |= label == n_classes
            confidence[declined] = 0
            sample = confidence, self.classes_[np.minimum(label, n_classes - 1)] != true
        else:
            self._check_known(true)
            proba = self._proba_in_scope(_safe_indexing(X, rows))
            declined |= proba.argmax(axis=1) == n_classes
            proba[declined] = 1 / proba.shape[1]
            sample = proba, np.searchsorted(self.classes_, true)
        kept = ~declined | (not getattr(rule, "about_answers", True))
        dependent = {"clusters": None if groups is None else np.asarray(groups)[rows], "copies": copies}
        given: dict[str, Any] = {
            name: np.asarray(value)[kept]
            for name, value in dependent.items()
            if value is not None and has_fit_parameter(rule, name)
        }
        if has_fit_parameter(rule, "out_of_fold"):
            given["out_of_fold"] = self.out_of_fold_
        by_group = getattr(rule, "groups", None)
        if by_group is not None:
            if np.shape(by_group) != labels.shape:
                raise InputError(f"the rule's groups need shape {labels.shape}, one per row; got {np.shape(by_group)}.")
            rule = rule.of_rows(rows[kept])
        fit = clone(rule).fit_confidence if by_confidence else clone(rule).fit
        fitted = fit(*(values[kept] for values in sample), **given)
        if by_group is not None:
            missing = {*np.asarray(by_group).astype(str).tolist()} - set(fitted.group_certificates_)
            if missing:
                raise InputError(
                    f"the group {min(missing)!r} has no calibration row; give more of its rows or merge groups."
                )
            fitted.groups = by_group
        if isinstance(fitted, Coverage) and declined.any() and fitted.n_accepted_ == fitted.n_rows_:
            raise InputError(
                f"{int(declined.sum()):,} of {len(rows):,} rows are declined as novel or out of scope in any case, so "
                f"that {rule!r} is out of reach: give a smaller target, or novelty=None (--novelty off)."
            )
        self.fitted_rule_, self.rule_novelty_ = fitted, self.novelty

    def _proba_in_scope(self, X: Features) -> Floats:
        """Return the calibrated probabilities, with that of being out of scope as one more column where it is known."""
        if self.scope_ is None:
            return np.asarray(check_proba(self._calibrated_proba(X)))
        inputs = self._scope_input(X)
        share = self.scope_.probability(inputs)[:, None]
        return np.hstack([inputs.proba * share, 1 - share])

    def _share_for_rule(self, base: Any, folds: Sequence[Fold], n_rows: int, weight: Floats | None) -> float | Fold:
        if weight is not None:
            raise InputError(f"{_name(self.rule)} does not support sample_weight; leave it out, or decide by a cost.")
        if self.guarantee_share != "auto":
            return float(self.guarantee_share)
        if not isinstance(self.cv, Integral | None):
            return folds[-1]
        frozen = isinstance(base, FrozenEstimator) and self.calibration not in ("isotonic", "sigmoid")
        return share_for_rule(self.rule, n_rows, frozen=frozen)

    def _warn_of_copies(self, blocks: Blocks) -> None:
        if (blocks.times > 1 or blocks.suspects is not None) and has_fit_parameter(self.rule, "copies"):
            warnings.warn(blocks.explain() or "", EqualRowsWarning, stacklevel=3)

    def _calibrate(self, proba: Floats, y: Ints, weight: Floats | None) -> Any:
        if self.calibration == "auto":
            return best_calibration(proba, y, weight)
        if self.calibration == "temperature":
            return TemperatureScaling().fit(proba, y, weight)
        if self.calibration in ("isotonic", "sigmoid"):
            return OneVsRestCalibration(self.calibration).fit(proba, y, weight)
        if not hasattr(self.calibration, "transform"):
            raise InputError(
                'calibration must be "auto", "temperature", "isotonic", "sigmoid", None, or a calibrator with '
                f"fit(proba, y) and transform(proba), got {self.calibration!r}."
            )
        own = clone(self.calibration, safe=False)
        weighted = weight is not None and has_fit_parameter(own, "sample_weight")
        return own.fit(proba, y, sample_weight=weight) if weighted else own.fit(proba, y)


def _needs_fit(rule: Any) -> bool:
    return rule is not None and bool(rule.needs_fit)


def _name(rule: Any) -> str:
    return "Chow" if rule is None else type(rule).__name__
