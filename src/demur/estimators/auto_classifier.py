"""AutoClassifier: several models, cross-fitted and blended, as a strong default for tables."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state, column_or_1d

from demur.calibration import TemperatureScaling
from demur.errors import InputError
from demur.estimators.candidates import (
    CANDIDATES,
    CandidateModel,
    CandidateSearch,
    CrossFitted,
    Task,
    TimeBudget,
    dense_view,
)
from demur.estimators.cross_fitting import proba_of
from demur.estimators.splitting import blocks_of, folds_of
from demur.estimators.table_codes import TableCodes
from demur.progress import no_progress, progress_bar

__all__ = ["AutoClassifier", "Blend", "greedy_blend"]

_ROWS_AT_A_TIME = 1 << 14
"""Prediction works through the rows in pieces of this size, on several threads."""


class AutoClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Train several kinds of model, and blend those that help each other (Caruana et al. 2004).

    Each candidate is cross-fitted: every row gets probabilities from a model that has not seen it, nor learnt from it
    how to impute and scale. A temperature calibrates them, a greedy search finds the mixture of least log loss, and
    one more temperature calibrates the mixture. The members of the mixture are then fitted on all rows. Missing
    values, and the category, text and date columns of a DataFrame, need no preparation.

    ``RejectOption("auto")`` is this classifier with a reject option.

    Parameters
    ----------
    candidates : sequence of str, optional
        Which to try out of "extra trees", "networks" (an ensemble of five trained with cross-entropy), "smooth
        networks" (the same with more weight decay), "logistic regression", "random forest" and "gradient boosting";
        all by default.
    time_budget : float or None, default=90
        Seconds. A candidate that would not fit in is left out, by a forecast from smaller fits; the cheapest is always
        trained. None tries all, and makes the result independent of the machine's speed.
    cv : int, splitter or iterable, default=5
        Rows with equal features never stand on both sides of a fold, nor do rows of one group where ``fit`` is told
        the groups.
    categorical_features : array of bool or of int, optional
        For arrays: which columns hold codes 0, 1, ... of categories. A DataFrame says so by its column types.
    n_jobs : int or None, default=-1
        For the forests, as in scikit-learn.
    random_state : int, RandomState or None
    verbose : int, default=0
        1 shows a progress bar on a terminal.

    Attributes
    ----------
    tried_ : tuple of Tried
        The table of what was tried, in order.
    models_, weights_, scalings_ : tuples
        The members of the blend, their shares and temperatures.
    scaling_ : TemperatureScaling
        Of the blend.
    held_out_rows_, held_out_proba_ : arrays
        The out-of-fold probabilities of the calibrated blend, and the rows they belong to.
    equal_rows_ : int
        How many rows had the features of an earlier row.
    classes_, n_features_in_

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AutoClassifier(("logistic regression", "random forest"), random_state=0).fit(X, y)
    >>> [(one.name, one.weight) for one in model.tried_]
    [('logistic regression', 1.0), ('random forest', 0.0)]
    >>> model.predict(X[:2])
    array([0, 0])
    """

    __metadata_request__fit: ClassVar = {"groups": True}  # asks for groups where metadata are routed

    def __init__(
        self,
        candidates: Sequence[str] | None = None,
        *,
        time_budget: float | None = 90.0,
        cv: Any = 5,
        categorical_features: ArrayLike | None = None,
        n_jobs: int | None = -1,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.candidates = candidates
        self.time_budget = time_budget
        self.cv = cv
        self.categorical_features = categorical_features
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Self:
        """Cross-fit the candidates, blend them, and fit the members of the blend on all rows.

        Parameters
        ----------
        X : DataFrame, Arrow table, or array of shape (n, n_features)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional
        groups : array of shape (n,), optional
            Rows of one group (a patient, a machine) stay in one fold.
        """
        if self.time_budget is not None and not self.time_budget > 0:
            raise InputError(f"time_budget must be a positive number of seconds or None, got {self.time_budget!r}.")
        budget = TimeBudget(self.time_budget)
        wanted = self._wanted()
        if y is None:
            raise InputError("requires y to be passed, but the target y is None.")
        labels: NDArray[Any] = column_or_1d(y, warn=True)
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        self.codes_ = TableCodes.learn(self, X, labels, self.categorical_features)
        matrix = self.codes_.of(self, X)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y holds only one class, {self.classes_[0]!r}; a classifier needs at least two.")
        weight = None
        if sample_weight is not None:
            weight = _check_sample_weight(sample_weight, matrix, dtype=np.float64, ensure_non_negative=True)
        blocks = blocks_of(matrix, codes, groups)
        self.equal_rows_ = blocks.equal_rows
        folds = folds_of(self.cv, matrix, codes, groups=groups, blocks=blocks)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        task = Task(len(matrix), self.codes_.categorical, seed, self.n_jobs)
        bar = progress_bar("training", len(wanted) * len(folds)) if self.verbose and sys.stderr.isatty() else None
        with bar or no_progress() as advance, warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration judges what came of it
            search = CandidateSearch(matrix, codes, weight, folds, task, budget, advance or (lambda steps: None))
            fitted = search.run(wanted)
            self._blend(search, fitted)
        return self

    def _blend(self, search: CandidateSearch, fitted: list[CrossFitted]) -> None:
        rows, weight = search.held_out_rows, search.held_out_weight
        blend = greedy_blend([one.true_class for one in fitted], weight)
        mixture = sum(share * one.proba for share, one in zip(blend.weights, fitted, strict=True) if share)
        self.scaling_ = TemperatureScaling().fit(mixture, search.y[rows], weight)
        self.held_out_rows_, self.held_out_proba_ = rows, self.scaling_.transform(mixture)
        shares = {one.candidate.name: share for share, one in zip(blend.weights, fitted, strict=True)}
        members = [one for one in fitted if shares[one.candidate.name] > 0]
        self.dense_ = dense_view(self.codes_.categorical).fit(search.codes)
        views = self._views(search.codes, {one.candidate.view for one in members})
        self.models_ = tuple(search.fit_all_rows(one.candidate, views[one.candidate.view]) for one in members)
        self.weights_ = tuple(shares[one.candidate.name] for one in members)
        self.scalings_ = tuple(one.scaling for one in members)
        self.views_ = tuple(one.candidate.view for one in members)
        by_name = {one.candidate.name: one for one in fitted}
        self.tried_ = tuple(
            search.report(name, by_name.get(name), shares.get(name, 0.0), weight) for name in search.seconds
        )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the calibrated probabilities of the blend."""
        check_is_fitted(self)
        matrix = self.codes_.of(self, X)
        if not len(matrix):
            return np.empty((0, len(self.classes_)))
        views = self._views(matrix, set(self.views_))
        pieces = [slice(start, start + _ROWS_AT_A_TIME) for start in range(0, len(matrix), _ROWS_AT_A_TIME)]
        work = (delayed(self._mixture)({name: rows[piece] for name, rows in views.items()}) for piece in pieces)
        mixture = np.concatenate(Parallel(n_jobs=self.n_jobs if len(pieces) > 1 else 1, prefer="threads")(work))
        return np.asarray(self.scaling_.transform(mixture), dtype=np.float64)

    def _mixture(self, views: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        every = np.arange(len(self.classes_))
        mixture = np.zeros((len(views["codes"]), len(every)))
        for model, share, scaling, view in zip(self.models_, self.weights_, self.scalings_, self.views_, strict=True):
            mixture += share * scaling.transform(proba_of(model, views[view], every))
        return mixture

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the likeliest class of each row."""
        proba = self.predict_proba(X)
        likeliest: NDArray[Any] = self.classes_[proba.argmax(axis=1)]
        return likeliest

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _wanted(self) -> list[CandidateModel]:
        by_name = {candidate.name: candidate for candidate in CANDIDATES}
        names = list(by_name) if self.candidates is None else list(self.candidates)
        unknown = [name for name in names if name not in by_name]
        if unknown or not names:
            raise InputError(f"candidates must be some of {', '.join(by_name)}; got {self.candidates!r}.")
        return [by_name[name] for name in dict.fromkeys(names)]

    def _views(self, codes: NDArray[np.float64], wanted: set[str]) -> dict[str, NDArray[np.float64]]:
        """Return the rows as trees take them, and where it is wanted as networks do."""
        if "dense" not in wanted:
            return {"codes": codes}
        return {"codes": codes, "dense": np.asarray(self.dense_.transform(codes), dtype=np.float64)}


_ROUNDS = 50
"""The number of draws: weights are multiples of 1/50 or coarser."""

_SMALLEST = 1e-12


@dataclass(frozen=True)
class Blend:
    """The weight of each model, summing to 1, and the log loss of their mean.

    Parameters
    ----------
    weights : tuple of float
    log_loss : float
    """

    weights: tuple[float, ...]
    log_loss: float


def greedy_blend(true_class_proba: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> Blend:
    """Add one model after another, repetitions allowed, always the one that lowers the log loss most.

    Ensemble selection of Caruana et al. (2004): of the 50 mixtures on that path the best is kept. A model that
    helps nobody gets the weight 0. Log loss sees a probability only at the true class, and the mean is linear,
    so one number per model and row is all it takes.

    Parameters
    ----------
    true_class_proba : sequence of arrays of shape (n,)
        For each model the probability that it gives the true class of each row, out of fold.
    sample_weight : array of shape (n,), optional

    References
    ----------
    Caruana, Niculescu-Mizil, Crew, Ksikes (2004), Ensemble selection from libraries of models, ICML.

    Examples
    --------
    Two models that are each right on half of the rows are worth more together than the even-handed third:

    >>> greedy_blend([[0.9, 0.3], [0.3, 0.9], [0.5, 0.5]]).weights
    (0.5, 0.5, 0.0)
    """
    models = [np.maximum(np.asarray(column, dtype=np.float64), _SMALLEST) for column in true_class_proba]
    if not models:
        raise InputError("there is no model to blend; give at least one.")
    weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    total = np.zeros_like(models[0])
    draws: list[int] = []
    losses: list[float] = []
    for size in range(1, _ROUNDS + 1):
        after = [_log_loss((total + one) / size, weights) for one in models]
        best = int(np.argmin(after))
        total += models[best]
        draws.append(best)
        losses.append(after[best])
    kept = int(np.argmin(losses)) + 1
    counts = np.bincount(draws[:kept], minlength=len(models))
    return Blend(tuple((counts / kept).tolist()), losses[kept - 1])


def _log_loss(true_class_proba: NDArray[np.float64], weight: NDArray[np.float64] | None) -> float:
    return float(-np.average(np.log(true_class_proba), weights=weight))
