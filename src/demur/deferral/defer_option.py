"""DeferOption: any classifier, with experts that can be asked instead."""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from demur.array_types import AnyArray, ByName, Estimator, Features, Label
from demur.calibration import TemperatureScaling
from demur.deferral.deferring_classifier import DeferringClassifier
from demur.deferral.expert_reliability import (
    ExpertReliability,
    ExpertRows,
    LogitModel,
    fit_reliability,
    log_odds,
    log_odds_of_best,
    recalibrated,
)
from demur.deferral.experts import Ballots, Expert, answers_to_learn_from, check_names, read_experts
from demur.errors import InputError
from demur.estimators.auto_classifier import AutoClassifier
from demur.estimators.base import checked_labels
from demur.estimators.cross_fitting import fit_clone, proba_of
from demur.estimators.reject_option import AroundAnEstimator
from demur.estimators.splitting import Fold, blocks_of, folds_of, folds_within
from demur.rules import check_proba

__all__ = ["DeferOption", "StoredProbabilities", "column_of"]


Floats = NDArray[np.float64]


class DeferOption(AroundAnEstimator, DeferringClassifier):
    r"""Add experts to any classifier: each row goes to the classifier or expert with the least expected cost.

    Answering class k costs :math:`1 - \eta_k(x)`; asking expert e costs its price plus the chance that it is wrong,
    :math:`c_e + P(M_e \ne Y \mid x)`. The cheapest action is taken, and ties ask. With one expert who is always right
    this is Chow's rule, and the class decides as :class:`~demur.RejectOption`.

    Parameters
    ----------
    estimator : classifier or "auto"
        As in :class:`~demur.RejectOption`: cloned and fitted, or kept when wrapped in
        ``sklearn.frozen.FrozenEstimator``. :class:`~demur.deferral.StoredProbabilities` reads probabilities that were
        computed elsewhere.
    experts : mapping
        From the name of each expert to its price, or to an :class:`~demur.deferral.Expert`. Names sort the experts
        where two of them are expected to cost the same.
    calibration : {"temperature", None}, default="temperature"
        How the class probabilities are calibrated, on rows that the estimator has not seen.
    combine : bool or "auto", default False
        What to answer once an expert was asked: False takes the expert's answer h as it is; True answers with the class
        of largest :math:`\eta_y(x) P(h \mid y)`, the model's probabilities times the expert's confusion matrix
        (Kerrigan et al. 2021); "auto" does so for those experts whose answers it makes right more often on the
        rows of ``fit``, by more than a standard error.
    cv : int, splitter or iterable, default=5
        The folds. Rows of one group stay on one side of every fold.
    reject_label : object, optional
        What ``predict`` returns where somebody is to be asked who has not answered yet; see
        :class:`~demur.RejectClassifier`.
    time_budget : float or None, default=90
        Seconds that "auto" may take, for the model and the experts together.

    Attributes
    ----------
    experts_ : dict
        The experts by name, in the given order. A price changed in ``experts`` counts at once; ``decide`` also takes
        prices of its own.
    estimator_ : fitted classifier
    calibrator_ : TemperatureScaling or None
    reliability_ : dict
        For each expert who was learned: how P(expert right) is estimated, and the log loss of every way that was tried.
    combines_ : dict
        Whether each expert's answers are combined with the model's probabilities.
    classes_, reject_label_

    Notes
    -----
    Both sides of the comparison are estimated from the same evidence. A first estimate of P(expert right) comes from a
    clone of the estimator that learns on which rows the expert is right, or from a stored column; a logistic regression
    corrects it given the model's confidence. The model's confidence is corrected in the same way, given the estimates
    for the experts: what tells when an expert errs often tells when the model does.

    An expert who never erred in 30 answers or more is taken to be always right. With fewer or worse answers the simpler
    ways win: one share of right answers, or one for each class.

    Answers may be missing, and the choice of the rows that an expert has seen may depend on the features. It must not
    depend on whether the expert would be right there: nothing in the rows could tell.

    References
    ----------
    Madras, Pitassi, Zemel (2018), Predict responsibly, NeurIPS. Mozannar, Sontag (2020), Consistent estimators for
    learning to defer to an expert, ICML. Kerrigan, Smyth, Steyvers (2021), Combining human predictions with model
    probabilities, NeurIPS.

    Examples
    --------
    A nurse who knows only two of the three classes, and a consultant who knows all:

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> nurse = np.where(y == 2, 1, y)
    >>> model = DeferOption(GaussianNB(), experts={"nurse": 0.01, "consultant": 0.1})
    >>> model.fit(X[:, :2], y, answers=np.column_stack([nurse, y])).route(X[[0, 70, 77], :2])
    array(['model', 'consultant', 'consultant'], dtype='<U10')
    """

    __metadata_request__fit: ClassVar = {"answers": True, "groups": True}
    __metadata_request__predict: ClassVar = {"answers": True}
    __metadata_request__score: ClassVar = {"answers": True}

    def __init__(
        self,
        estimator: Estimator,
        experts: Any,
        *,
        calibration: Any = "temperature",
        combine: Any = False,
        cv: Any = 5,
        reject_label: Label = None,
        time_budget: float | None = 90.0,
    ) -> None:
        self.estimator = estimator
        self.experts = experts
        self.calibration = calibration
        self.combine = combine
        self.cv = cv
        self.reject_label = reject_label
        self.time_budget = time_budget

    def fit(
        self,
        X: Features,
        y: ArrayLike,
        answers: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Learn the classes' probabilities, and on which rows each expert is right.

        Parameters
        ----------
        X, y : as the estimator takes them
        answers : array of shape (n_rows, n_experts), array of counts, table or mapping
            What the experts said, in the experts' order; a gap (NaN, None or a masked entry) where an expert has not
            seen the row. A table has columns of the experts' names. A mapping from names may hold, for one expert, an
            array of shape (n_rows, n_people) or :class:`~demur.deferral.Votes`. An array of shape (n_rows, n_experts,
            n_classes) holds counts of votes. Not needed where every expert has a known accuracy.
        sample_weight : array-like, optional
            Passed to the estimator, and used in calibration and in what is learned about the experts.
        groups : array-like of shape (n_rows,), optional
            Rows of one group stay on one side of every fold.
        **fit_params
            Passed to the estimator's ``fit``, or routed if metadata routing is enabled.
        """
        experts = self._check_parameters()
        if y is None:
            raise InputError("requires y to be passed, but the target y is None.")
        X, y, groups = indexable(X, y, groups)
        labels = checked_labels(y)
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            fit_params = {**fit_params, "sample_weight": weight}
        base = self._base(1 / (1 + len(experts)))
        if isinstance(base, StoredProbabilities):
            base = clone(base).fit(X, labels)
        known = isinstance(base, FrozenEstimator | StoredProbabilities)
        self._learn_classes(base.classes_ if known else np.unique(labels), labels)
        check_names(experts, self.classes_)
        to_learn = [name for name, one in experts.items() if one.accuracy is None or self.combine]
        ballots = answers_to_learn_from(answers, experts, self.classes_, len(labels), to_learn)
        fit_params = {} if known else self._routed(base, groups, fit_params)
        blocks = blocks_of(X, labels, groups)
        folds = folds_of(self.cv, X, labels, groups=groups, blocks=blocks)
        if isinstance(base, StoredProbabilities):
            self.estimator_ = base
            kept, proba = np.arange(len(labels)), proba_of(self.estimator_, X, self.classes_)
        else:
            rows, found = self._fit_model(base, X, labels, folds, fit_params)
            kept, first = np.unique(rows, return_index=True)
            proba = found[first]
        codes = np.searchsorted(self.classes_, labels)
        own_weight = np.ones(len(labels)) if weight is None else weight
        self.calibrator_ = None
        if self.calibration is not None:
            self.calibrator_ = TemperatureScaling().fit(
                proba, codes[kept], None if weight is None else own_weight[kept]
            )
            proba = np.asarray(self.calibrator_.transform(proba), dtype=np.float64)
        n_folds = int(self.cv) if isinstance(self.cv, Integral) else 5
        parts = folds_within(folds_of(n_folds, X, labels, groups=groups, blocks=blocks), kept)
        self.experts_ = experts
        self._fit_experts(base, _safe_indexing(X, kept), codes[kept], proba, ballots, kept, own_weight[kept], parts)
        return self

    def _check_parameters(self) -> dict[str, Expert]:
        if self.calibration not in ("temperature", None):
            raise InputError(f'calibration must be "temperature" or None, got {self.calibration!r}.')
        if self.combine not in (True, False, "auto"):
            raise InputError(f'combine must be True, False or "auto", got {self.combine!r}.')
        return read_experts(self.experts)

    def _fit_experts(
        self,
        base: Estimator,
        X: Features,
        y: NDArray[np.int64],
        proba: Floats,
        ballots: Ballots,
        kept: NDArray[np.int64],
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
            votes = ballots.counts[kept, list(self.experts_).index(name)]
            given = votes.sum(axis=1)
            right = votes[np.arange(len(y)), y] / np.maximum(given, 1)
            if self.combine:
                combined = _right_combined(votes, y, proba, folds)
                if self.combine is True or _is_larger(combined[given > 0] - right[given > 0]):
                    right, self.combines_[name], self.confusion_[name] = combined, True, _confusion(votes, y)
            estimates, learner = self._estimates_out_of_fold(base, name, X, right, given * weight, folds)
            fitted = fit_reliability(ExpertRows(right, given * weight, proba, y, estimates, folds))
            self.reliability_[name] = fitted
            if fitted.kind == "features":
                self.learners_[name] = learner
            if fitted.informs_model:
                informing.append(fitted.estimate(proba, estimates.get(fitted.kind)))
        self.correction_ = _corrected_model(proba, y, weight, informing)

    def _estimates_out_of_fold(
        self, base: Estimator, name: str, X: Features, right: Floats, weight: Floats, folds: list[Fold]
    ) -> tuple[dict[str, Floats], Any]:
        """Return what is estimated about an expert from features or a column on rows not seen before, and by whom."""
        model = self.experts_[name].model
        if isinstance(model, str | Integral):
            return {"stored": self._stored(name, X)}, None
        if model is None and isinstance(base, FrozenEstimator | StoredProbabilities):
            return {}, None
        learner = clone(base if model is None else model)
        target = (right > 0.5).astype(np.int64)
        answered = weight > 0
        if min(np.bincount(target[answered], minlength=2)) < 2 * len(folds):
            return {}, None  # too few mistakes, or too few right answers, to learn from features
        found = np.full(len(target), target[answered].mean())
        if isinstance(learner, AutoClassifier):
            seen = np.flatnonzero(answered)
            learner.fit(_safe_indexing(X, seen), target[seen])
            if not answered.all():
                found[~answered] = proba_of(learner, _safe_indexing(X, np.flatnonzero(~answered)), np.arange(2))[:, 1]
            found[seen[learner.held_out_rows_]] = learner.held_out_proba_[:, 1]
            return {"features": found}, learner
        for train, test in folds:
            seen = train[answered[train]]
            if len(np.unique(target[seen])) == 2:
                fitted = fit_clone(learner, _safe_indexing(X, seen), target[seen], {})
                found[test] = proba_of(fitted, _safe_indexing(X, test), np.arange(2))[:, 1]
        seen = np.flatnonzero(answered)
        return {"features": found}, fit_clone(learner, _safe_indexing(X, seen), target[seen], {})

    def _stored(self, name: str, X: Features) -> Floats:
        column = self.experts_[name].model
        values = column_of(X, column)
        if not ((values >= 0) & (values <= 1)).all():
            raise InputError(
                f"the column {column!r} is to hold the probability that {name!r} is right, in [0, 1]; it holds "
                f"{values[~((values >= 0) & (values <= 1))][0]:g}."
            )
        return values

    def _estimates(self, X: Features) -> tuple[Floats, Floats, Floats]:
        """Return the calibrated probabilities, the same given the experts, and P(expert right) for each expert."""
        check_is_fitted(self)
        plain = proba_of(self.estimator_, X, self.classes_)
        if self.calibrator_ is not None:
            plain = np.asarray(self.calibrator_.transform(plain), dtype=np.float64)
        right, informing = np.empty((len(plain), len(self.experts_))), []
        for name in sorted(self.experts_):
            column, fitted = list(self.experts_).index(name), self.reliability_.get(name)
            if fitted is None:
                right[:, column] = self.experts_[name].accuracy
                continue
            given = None
            if fitted.kind == "stored":
                given = self._stored(name, X)
            elif fitted.kind == "features":
                given = proba_of(self.learners_[name], X, np.arange(2))[:, 1]
            right[:, column] = fitted.predict(plain, given)
            if fitted.informs_model:
                informing.append(fitted.estimate(plain, given))
        if self.correction_ is None:
            return plain, plain, right
        odds = log_odds_of_best(plain)
        return plain, recalibrated(plain, self.correction_.predict(_evidence(odds, informing), odds)), right

    def _final_answer(self, name: str, answer: NDArray[np.int64], proba: Floats) -> NDArray[np.int64]:
        """Combine the answer with the model's probabilities where that pays."""
        if not self.combines_[name]:
            return answer
        combined: NDArray[np.int64] = (proba * self.confusion_[name][:, answer].T).argmax(axis=1)
        return combined


def _right_combined(votes: Floats, y: NDArray[np.int64], proba: Floats, folds: list[Fold]) -> Floats:
    """Return how often an answer is right once it is combined with the model's probabilities."""
    combined = np.zeros(len(y))
    for train, test in folds:
        table = _confusion(votes[train], y[train])
        for answer in np.flatnonzero(votes[test].any(axis=0)):
            hit = (proba[test] * table[:, answer]).argmax(axis=1) == y[test]
            combined[test] += votes[test, answer] * hit
    share: Floats = combined / np.maximum(votes.sum(axis=1), 1)
    return share


def _is_larger(gain: Floats) -> bool:
    """Return whether the mean is above 0 by more than its standard error."""
    return bool(gain.mean() > gain.std() / np.sqrt(len(gain)))


def _confusion(votes: Floats, y: NDArray[np.int64]) -> Floats:
    """Return P(answer | class), with one vote added to every cell."""
    counts = np.ones((votes.shape[1], votes.shape[1]))
    np.add.at(counts, y, votes)
    table: Floats = counts / counts.sum(axis=1, keepdims=True)
    return table


def _evidence(odds: Floats, informing: list[Floats]) -> Floats:
    return np.column_stack([odds, *(log_odds(one) for one in informing)])


def _corrected_model(proba: Floats, y: NDArray[np.int64], weight: Floats, informing: list[Floats]) -> LogitModel | None:
    """Fit when the model is right, given its confidence and what is estimated about the experts."""
    if not informing:
        return None
    odds = log_odds_of_best(proba)
    right = np.asarray(proba.argmax(axis=1) == y, dtype=np.float64)
    return LogitModel.fit(_evidence(odds, informing), odds, right, weight)


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
    """Return one column: of a table by its name, of an array by its index.

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
