"""The models that ``RejectOption("auto")`` tries, and trying them within a time budget.

Adding a model is one entry of :data:`CANDIDATES`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from demur.calibration import TemperatureScaling
from demur.estimators.cross_fitting import out_of_fold_proba
from demur.estimators.reject_classifier import RejectClassifier, batch_size_for
from demur.estimators.splitting import Fold

__all__ = [
    "CANDIDATES",
    "CandidateModel",
    "CandidateSearch",
    "CrossFitted",
    "Task",
    "TimeBudget",
    "Tried",
    "batch_size_for",
    "dense_view",
    "forecast_fit",
]


@dataclass(frozen=True, eq=False)
class Task:
    """What a candidate may know of the problem before it is fitted.

    Parameters
    ----------
    n_rows : int
    categorical : array of bool, shape (n_features,)
        Which columns hold codes of categories.
    random_state : int
    n_jobs : int or None
    """

    n_rows: int
    categorical: NDArray[np.bool_]
    random_state: int
    n_jobs: int | None


@dataclass(frozen=True)
class CandidateModel:
    """A model to try.

    Parameters
    ----------
    name : str
    view : {"codes", "dense"}
        Trees take codes of categories, and missing values as they are; the others take numbers on one scale.
    make : callable
        From a :class:`Task` to an unfitted classifier.
    key : str
        A short name by which it can be asked for alone; empty if it cannot.
    """

    name: str
    view: Literal["codes", "dense"]
    make: Callable[[Task], Any]
    key: str = ""

    def prepared(self, task: Task) -> Any:
        """Return an unfitted classifier that takes codes in any case, and makes its own view of them.

        So what the view learns (medians, scales, which categories are rare) is learnt from the rows that the
        classifier is fitted on, and from no others.
        """
        model = self.make(task)
        return model if self.view == "codes" else make_pipeline(dense_view(task.categorical), model)


def dense_view(categorical: NDArray[np.bool_]) -> ColumnTransformer:
    """Return a transformer of codes into numbers on one scale: indicators of categories, missing values imputed.

    That a value was missing becomes a column of its own; rare categories share one.
    """
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
    return ColumnTransformer(
        [("numbers", numbers, np.flatnonzero(~categorical)), ("categories", indicators, np.flatnonzero(categorical))]
    )


_STEPS = 5000
"""Optimiser steps of each network: on scikit-learn's tables, more made networks more certain rather than better."""


_TREES = 300


def _networks(task: Task, weight_decay: float = 1e-3) -> RejectClassifier:
    batch_size = batch_size_for(task.n_rows)
    epochs = int(np.clip(_STEPS * batch_size // max(task.n_rows, 1), 10, 150))
    return RejectClassifier(
        "ce",
        hidden_units=(128, 128),
        n_members=5,
        epochs=epochs,
        batch_size=batch_size,
        weight_decay=weight_decay,
        random_state=task.random_state,
    )


def _smooth_networks(task: Task) -> RejectClassifier:
    """Return networks for few or noisy rows, where the others learn the noise."""
    return _networks(task, weight_decay=1e-2)


def _boosting(task: Task) -> HistGradientBoostingClassifier:
    mask = task.categorical if task.categorical.any() else None
    # early stopping would hold rows out by class, which a class of one row does not survive
    return HistGradientBoostingClassifier(
        categorical_features=mask, early_stopping=False, random_state=task.random_state
    )


def _extra_trees(task: Task) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _random_forest(task: Task) -> RandomForestClassifier:
    return RandomForestClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _logistic_regression(task: Task) -> LogisticRegression:
    return LogisticRegression(max_iter=300, random_state=task.random_state)


CANDIDATES: tuple[CandidateModel, ...] = (
    CandidateModel("extra trees", "codes", _extra_trees, "et"),
    CandidateModel("networks", "dense", _networks),
    CandidateModel("logistic regression", "dense", _logistic_regression, "lr"),
    CandidateModel("random forest", "codes", _random_forest, "rf"),
    CandidateModel("gradient boosting", "codes", _boosting, "hgb"),
    CandidateModel("smooth networks", "dense", _smooth_networks),
)
"""In the order in which they are tried, so that a short time budget goes to what pays most."""


_LITTLE_WORK = 40_000
"""Rows times classes up to which a table is fitted without a forecast: it would cost as much as it saves."""

_MOST_PILOT_ROWS = 20_000


@dataclass
class TimeBudget:
    """Seconds that may be spent, counted from when this object is made; None is no limit.

    Examples
    --------
    >>> TimeBudget(None).allows(1e9)
    True
    >>> TimeBudget(10.0).allows(20.0)
    False
    """

    seconds: float | None
    started: float = field(default_factory=lambda: time.perf_counter())

    def allows(self, forecast: float) -> bool:
        """Say whether this many more seconds fit in."""
        return self.seconds is None or time.perf_counter() - self.started + forecast <= self.seconds


def forecast_fit(fit_on: Callable[[int], float], n_rows: int, n_classes: int) -> float:
    """Return the seconds that a fit on ``n_rows`` will take, from two fits on fewer rows and a line through them.

    Parameters
    ----------
    fit_on : callable
        Fits on so many rows and returns the seconds it took.
    n_rows, n_classes : int

    Examples
    --------
    >>> forecast_fit(lambda n: 1 + n / 1000, 100_000, 2)
    101.0
    >>> forecast_fit(lambda n: 1 + n / 1000, 100, 2)
    0.0
    """
    if n_rows * n_classes <= _LITTLE_WORK:
        return 0.0
    many = min(max(n_rows // 8, 4), _MOST_PILOT_ROWS)
    few = many // 2
    short, long = fit_on(few), fit_on(many)
    return long + max(long - short, 0.0) / (many - few) * (n_rows - many)


@dataclass(frozen=True)
class Tried:
    """What became of one candidate.

    Parameters
    ----------
    name : str
    weight : float
        Its share of the blend; 0 if it is not part of it.
    log_loss : float or None
        Out of fold, after its own temperature; None if it was not tried.
    temperature : float or None
        Above 1: it was too confident; below 1: not confident enough.
    seconds : float
        Spent on it, the last fit on all rows included.
    outcome : str
        In words.
    """

    name: str
    weight: float
    log_loss: float | None
    temperature: float | None
    seconds: float
    outcome: str


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """A candidate with the calibrated probabilities it gives to rows it has not seen."""

    candidate: CandidateModel
    scaling: TemperatureScaling
    proba: NDArray[np.float64]
    true_class: NDArray[np.float64]

    def log_loss(self, weight: NDArray[np.float64] | None) -> float:
        """Return the mean log loss out of fold."""
        return float(-np.average(np.log(np.maximum(self.true_class, 1e-12)), weights=weight))


class _OutOfTimeError(Exception):
    """A candidate takes longer than the budget leaves."""


class CandidateSearch:
    """Cross-fits candidates within a time budget, and remembers what each took.

    Parameters
    ----------
    codes : array of shape (n, n_features)
        The rows, with codes of categories and missing values.
    y : array of int
    weight : array or None
    folds : list of (train, test)
    task : Task
    budget : TimeBudget
    advance : callable
        Called with the number of folds just done.
    """

    def __init__(
        self,
        codes: NDArray[np.float64],
        y: NDArray[np.int64],
        weight: NDArray[np.float64] | None,
        folds: list[Fold],
        task: Task,
        budget: TimeBudget,
        advance: Callable[[int], Any],
    ) -> None:
        self.codes, self.y, self.weight, self.folds, self.task = codes, y, weight, folds, task
        self.budget, self.advance = budget, advance
        self.n_classes = int(y.max()) + 1
        self.seconds: dict[str, float] = {}
        self.forecasts: dict[str, float] = {}
        self.reserved = 0.0
        self._dense_of_fold: dict[int, Any] = {}

    @property
    def held_out_weight(self) -> NDArray[np.float64] | None:
        """The weights of the rows that have out-of-fold probabilities."""
        return None if self.weight is None else self.weight[self.held_out_rows]

    def run(self, wanted: Sequence[CandidateModel]) -> list[CrossFitted]:
        """Cross-fit all that fit into the budget, and at least the one that is forecast to be cheapest."""
        fitted: list[CrossFitted] = []
        left_out: list[CandidateModel] = []
        for candidate in wanted:
            started = time.perf_counter()
            self.forecasts[candidate.name] = self._forecast(candidate) * (len(self.folds) + 1)
            done = None
            if self.budget.allows(self.forecasts[candidate.name] + self.reserved):
                done = self._cross_fit(candidate, may_give_up=bool(fitted))
            if done is None:
                left_out.append(candidate)
            else:
                fitted.append(done)
                took = time.perf_counter() - started
                self.reserved += took / len(self.folds)  # for its last fit, on all rows
            self.seconds[candidate.name] = time.perf_counter() - started
        if not fitted:
            cheapest = min(left_out, key=lambda candidate: self.forecasts[candidate.name])
            started = time.perf_counter()
            only = self._cross_fit(cheapest, may_give_up=False)
            self.seconds[cheapest.name] += time.perf_counter() - started
            fitted += [] if only is None else [only]
        return fitted

    def fit_all_rows(self, candidate: CandidateModel, view: NDArray[np.float64]) -> Any:
        """Return the candidate, fitted on all rows, in the view of them that it takes."""
        started = time.perf_counter()
        model = candidate.make(self.task).fit(view, self.y, **self._parameters())
        self.seconds[candidate.name] += time.perf_counter() - started
        if "n_jobs" in model.get_params():
            model.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
        return model

    def report(self, name: str, fitted: CrossFitted | None, share: float, weight: Any) -> Tried:
        """Return the line of the table about one candidate."""
        seconds = self.seconds[name]
        if fitted is None:
            forecast = self.forecasts[name]
            takes = (
                f"it would take about {forecast:.0f} s, more than is left" if np.isfinite(forecast) else "none is left"
            )
            outcome = f"left out for want of time: {takes}"
            return Tried(name, 0.0, None, None, seconds, outcome)
        outcome = f"{share:.0%} of the blend" if share else "does not improve the blend"
        return Tried(name, share, fitted.log_loss(weight), fitted.scaling.temperature_, seconds, outcome)

    def _cross_fit(self, candidate: CandidateModel, *, may_give_up: bool) -> CrossFitted | None:
        """Return the candidate, fitted fold by fold; None if that turns out to take longer than is left."""
        started, n_done = time.perf_counter(), 0

        def after_fold() -> None:
            nonlocal n_done
            n_done += 1
            self.advance(1)
            to_come = (time.perf_counter() - started) / n_done * (len(self.folds) + 1 - n_done)
            if may_give_up and not self.budget.allows(to_come + self.reserved):
                self.forecasts[candidate.name] = to_come + time.perf_counter() - started
                raise _OutOfTimeError

        try:
            rows, proba = out_of_fold_proba(
                candidate.make(self.task),
                self.codes,
                self.y,
                np.arange(self.n_classes),
                self.folds,
                self._parameters(),
                prepare=self._dense if candidate.view == "dense" else None,
                after_fold=after_fold,
            )
        except _OutOfTimeError:
            return None
        self.held_out_rows = rows
        scaling = TemperatureScaling().fit(proba, self.y[rows], self.held_out_weight)
        proba = np.asarray(scaling.transform(proba), dtype=np.float64)
        true_class = proba[np.arange(len(rows)), self.y[rows]]
        return CrossFitted(candidate, scaling, proba, true_class)

    def _dense(self, fold: int) -> Any:
        """Return the dense view that was learnt from the training rows of a fold; all candidates share it."""
        if fold not in self._dense_of_fold:
            self._dense_of_fold[fold] = dense_view(self.task.categorical).fit(self.codes[self.folds[fold][0]])
        return self._dense_of_fold[fold]

    def _forecast(self, candidate: CandidateModel) -> float:
        """Return the seconds that one fold will take; infinity where no time is left to find out."""
        if self.budget.seconds is None:
            return 0.0
        if self.forecasts and not self.budget.allows(self.reserved):
            return np.inf
        order = np.random.RandomState(self.task.random_state).permutation(len(self.y))

        def fit_on(n_rows: int) -> float:
            rows = order[:n_rows]
            if len(np.unique(self.y[rows])) < 2:
                return 0.0
            started = time.perf_counter()
            weights = {name: value[rows] for name, value in self._parameters().items()}
            view = self.codes[rows]
            if candidate.view == "dense":
                view = dense_view(self.task.categorical).fit_transform(view)
            candidate.make(self.task).fit(view, self.y[rows], **weights)
            return time.perf_counter() - started

        return forecast_fit(fit_on, len(self.folds[0][0]), self.n_classes)

    def _parameters(self) -> dict[str, Any]:
        return {} if self.weight is None else {"sample_weight": self.weight}
