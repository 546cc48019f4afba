"""DeferOption: any classifier, with experts who can be asked instead."""

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_is_fitted

from demur.array_types import ByName, Estimator, Features, Floats, Ints, Label
from demur.calibration import TemperatureScaling
from demur.deferral.expert_reliability import (
    ExpertReliability,
    ExpertRows,
    chance,
    evidence,
    fit_reliability,
    fit_shares,
    recalibrated,
)
from demur.deferral.experts import DeferringClassifier, read_answers, read_experts
from demur.errors import InputError
from demur.estimators.auto_classifier import AutoClassifier
from demur.estimators.base import checked_labels, fit_clone, out_of_fold_proba, proba_of, row_weights
from demur.estimators.reject_option import AroundAnEstimator
from demur.estimators.splitting import Fold, blocks_of, folds_of, folds_within

_BOTH = np.arange(2)
"""The classes of the estimates about an expert: wrong and right."""


@dataclass(eq=False, repr=False)
class DeferOption(AroundAnEstimator, DeferringClassifier):
    r"""Add experts to any classifier: each row goes to the classifier or expert with the least expected cost.

    The expected cost of answering class k is :math:`1 - \eta_k(x)`; that of asking expert e is its price plus the
    probability that it is wrong, :math:`c_e + P(M_e \ne Y \mid x)`. The cheapest action is taken; in a tie an expert is
    asked. With one expert who is always right this is Chow's rule, and the decisions are those of
    :class:`~demur.RejectOption`.

    Parameters
    ----------
    estimator : classifier or "auto"
        Classifier as in :class:`~demur.RejectOption`: cloned and fitted, or kept if wrapped in
        ``sklearn.frozen.FrozenEstimator``. :class:`~demur.estimators.PrecomputedProbabilities` reads probabilities that
        were computed elsewhere.
    experts : mapping
        Price of each expert by its name, or an :class:`~demur.deferral.Expert`. If two experts have the same expected
        cost, the first in alphabetical order is asked.
    calibration : {"temperature", None}, default="temperature"
        Calibration of the class probabilities on out-of-fold rows.
    combine : bool, default False
        Whether to combine the expert's answer with the model's probabilities. False takes the expert's answer h as it
        is. True answers with the class of largest :math:`\eta_y(x) P(h \mid y)`, the model's probabilities times the
        expert's confusion matrix (Kerrigan et al. 2021). It applies only to experts for whom this increases the share
        of right answers on the rows of ``fit`` by more than a standard error.
    cv : int, splitter or iterable, default=5
        Folds of the out-of-fold estimates. Rows of one group stay on one side of every fold.
    reject_label : object, optional
        Label that ``predict`` returns if the expert to ask has not answered the row yet; see
        :class:`~demur.RejectClassifier`.
    time_budget : float or None, default=90
        Time limit of "auto" in seconds, for the model and the experts together; None for no limit.

    Attributes
    ----------
    experts_ : dict
        The experts by name, in the given order. A price that is changed in ``experts`` is used immediately; ``decide``
        also accepts other prices.
    estimator_ : fitted classifier
    calibrator_ : TemperatureScaling or None
    reliability_ : dict
        Estimate of P(expert right) for each expert with answers, and the log loss of every method that was tried.
    combines_ : dict
        Whether each expert's answers are combined with the model's probabilities.
    classes_, reject_label_

    Notes
    -----
    The probabilities that the model and that each expert is right are estimated from the same inputs. A first estimate
    of P(expert right) comes from a clone of the estimator that is trained to predict on which rows the expert is right;
    a logistic regression corrects it, given the model's confidence. The model's confidence is corrected in the same
    way, given the estimates for the experts, because features that predict errors of an expert often predict errors of
    the model.

    An expert without an error in at least 30 answers is taken to be always right. With fewer answers or some errors,
    the estimate is usually one of the simpler ones: one share of right answers, or one per class.

    Answers may be missing, and which rows an expert has seen may depend on the features. It must not depend on whether
    the expert would be right: the data cannot show this.

    References
    ----------
    Madras, Pitassi, Zemel (2018), Predict responsibly, NeurIPS. Mozannar, Sontag (2020), Consistent estimators for
    learning to defer to an expert, ICML. Kerrigan, Smyth, Steyvers (2021), Combining human predictions with model
    probabilities, NeurIPS.

    Examples
    --------
    A nurse who recognises only two of the three classes, and a consultant who recognises all of them:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> nurse = np.where(y == 2, 1, y)
    >>> model = DeferOption(GaussianNB(), experts={"nurse": 0.01, "consultant": 0.1})
    >>> model.fit(X[:, :2], y, answers=np.column_stack([nurse, y])).route(X[[0, 70, 77], :2])
    array(['model', 'consultant', 'consultant'], dtype='<U10')
    """

    estimator: Estimator
    experts: Any
    _: KW_ONLY
    calibration: Any = "temperature"
    combine: bool = False
    cv: Any = 5
    reject_label: Label = None
    time_budget: float | None = 90.0

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        answers: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Learn the class probabilities, and on which rows each expert is right.

        Parameters
        ----------
        X, y : as the estimator takes them
        answers : array of shape (n_rows, n_experts), table or mapping
            Answers of the experts, in the experts' order; a gap (NaN, None or a masked entry) if an expert has not seen
            the row. A table has columns of the experts' names. A mapping from names may hold, for one expert, an array
            of shape (n_rows, n_people) or :class:`~demur.deferral.Votes`. Not needed if every expert has a known
            accuracy.
        sample_weight : array-like, optional
            Weight of each row: passed to the estimator, and used in the calibration and in the estimates for the
            experts.
        groups : array-like of shape (n_rows,), optional
            Rows of one group stay on one side of every fold.
        **fit_params
            Passed to the estimator's ``fit``, or routed if metadata routing is enabled.
        """
        if self.calibration not in ("temperature", None):
            raise InputError(f'calibration must be "temperature" or None, got {self.calibration!r}.')
        experts = read_experts(self.experts)
        labels = checked_labels(y)
        X, labels, groups = indexable(X, labels, groups)
        weight = row_weights(X, sample_weight)
        if weight is not None:
            fit_params = {**fit_params, "sample_weight": weight}
        base = self._base(1 / (1 + len(experts)))
        self._learn_classes(base, labels)
        to_learn = [name for name, one in experts.items() if one.accuracy is None or self.combine]
        ballots = read_answers(answers, experts, self.classes_, len(labels), to_learn)
        folds = folds_of(self.cv, X, labels, groups=groups, blocks=blocks_of(X, labels, groups))
        rows, proba = self._fit_model(base, X, labels, folds, self._routed(base, groups, fit_params))
        kept, first, _ = np.intersect1d(rows, np.concatenate([test for _, test in folds]), return_indices=True)
        proba, codes = proba[first], np.searchsorted(self.classes_, labels[kept])
        self.calibrator_ = None
        if self.calibration is not None:
            self.calibrator_ = TemperatureScaling().fit(proba, codes, None if weight is None else weight[kept])
            proba = np.asarray(self.calibrator_.transform(proba), dtype=np.float64)
        self.experts_ = experts
        own_weight = np.ones(len(kept)) if weight is None else weight[kept]
        seen, inner = _safe_indexing(X, kept), folds_within(folds, kept)
        if not all(len(side) for fold in inner for side in fold):  # "auto" held out some of the folds only
            inner = folds_of(self.cv, seen, labels[kept], groups=None if groups is None else np.asarray(groups)[kept])
        self._fit_experts(base, seen, codes, proba, ballots.counts[kept], own_weight, inner)
        return self

    def _fit_experts(
        self,
        base: Estimator,
        X: Features,
        y: Ints,
        proba: Floats,
        counts: Floats,
        weight: Floats,
        folds: list[Fold],
    ) -> None:
        """Learn when each expert is right, and when the model is; experts in the order of their names."""
        self.reliability_: dict[str, ExpertReliability] = {}
        self.learners_: ByName = {}
        self.confusion_: dict[str, Floats] = {}
        self.combines_ = dict.fromkeys(self.experts_, False)
        informing = []
        for name in sorted(self.experts_):
            if self.experts_[name].accuracy is not None and not self.combine:
                continue
            votes = counts[:, list(self.experts_).index(name)]
            given = votes.sum(axis=1)
            right = votes[np.arange(len(y)), y] / np.maximum(given, 1)
            if self.combine:
                combined = _right_combined(votes, y, proba, folds)
                gain = (combined - right)[given > 0]
                if gain.mean() > gain.std() / np.sqrt(len(gain)):
                    right, self.combines_[name], self.confusion_[name] = combined, True, _confusion(votes, y)
            estimates, learner = self._estimates_out_of_fold(base, name, X, right, given * weight, folds)
            fitted = fit_reliability(ExpertRows(right, given * weight, proba, y, estimates, folds))
            self.reliability_[name] = fitted
            if fitted.kind == "features":
                self.learners_[name] = learner
            if fitted.kind in estimates:
                informing.append(estimates[fitted.kind])
        self.correction_ = None
        if informing:
            model_right = np.asarray(proba.argmax(axis=1) == y, dtype=np.float64)
            self.correction_ = fit_shares(evidence(proba, *informing), model_right, weight)

    def _estimates_out_of_fold(
        self, base: Estimator, name: str, X: Features, right: Floats, weight: Floats, folds: list[Fold]
    ) -> tuple[dict[str, Floats], Any]:
        """Return out-of-fold estimates of P(expert right) from features, and the fitted classifier."""
        model = self.experts_[name].model
        if model is None and isinstance(base, FrozenEstimator):
            return {}, None
        target, answered = (right > 0.5).astype(np.int64), weight > 0
        if min(np.bincount(target[answered], minlength=2)) < 2 * len(folds):
            return {}, None  # too few mistakes, or too few right answers, to learn from features
        seen, others = np.flatnonzero(answered), np.flatnonzero(~answered)
        rows, inside = _safe_indexing(X, seen), folds_within(folds, seen)
        learner = clone(base if model is None else model)
        if isinstance(learner, AutoClassifier):
            learner.fit(rows, target[seen])
            which, proba = learner.held_out_rows_, learner.held_out_proba_
        else:
            which, proba = out_of_fold_proba(learner, rows, target[seen], _BOTH, inside, {})
            learner = fit_clone(learner, rows, target[seen], {})
        found = np.full(len(target), target[seen].mean())
        found[seen[which]] = proba[:, 1]
        if len(others):
            found[others] = proba_of(learner, _safe_indexing(X, others), _BOTH)[:, 1]
        return {"features": found}, learner

    def _estimates(self, X: Features) -> tuple[Floats, Floats, Floats]:
        """Return the calibrated probabilities, the same given the experts, and P(expert right) for each expert."""
        check_is_fitted(self)
        plain = self._calibrated_proba(X)
        right, informing = {name: np.full(len(plain), one.accuracy) for name, one in self.experts_.items()}, []
        for name, fitted in self.reliability_.items():
            given = None
            if fitted.kind == "features":
                given = proba_of(self.learners_[name], X, _BOTH)[:, 1]
            right[name] = fitted.predict(plain, given)
            if given is not None:
                informing.append(given)
        proba, found = plain, np.column_stack(list(right.values()))
        if self.correction_ is not None:
            proba = recalibrated(plain, chance(self.correction_, evidence(plain, *informing)))
        return plain, proba, found

    def _final_answer(self, name: str, answer: Ints, proba: Floats) -> Ints:
        """Combine the answer with the model's probabilities if that improves the accuracy."""
        if not self.combines_[name]:
            return answer
        return np.asarray((proba * self.confusion_[name][:, answer].T).argmax(axis=1))


def _right_combined(votes: Floats, y: Ints, proba: Floats, folds: list[Fold]) -> Floats:
    """Return how often an answer is right once it is combined with the model's probabilities."""
    combined = np.zeros(len(y))
    for train, test in folds:
        table = _confusion(votes[train], y[train])
        for answer in np.flatnonzero(votes[test].any(axis=0)):
            hit = (proba[test] * table[:, answer]).argmax(axis=1) == y[test]
            combined[test] += votes[test, answer] * hit
    return np.asarray(combined / np.maximum(votes.sum(axis=1), 1))


def _confusion(votes: Floats, y: Ints) -> Floats:
    """Return P(answer | class), with one vote added to every cell."""
    counts = np.ones((votes.shape[1], votes.shape[1]))
    np.add.at(counts, y, votes)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
