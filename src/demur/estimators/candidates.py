"""The models that ``RejectOption("auto")`` tries, and training them within a time budget.

Adding a model is one entry of :data:`CANDIDATES`. Every candidate gets a slice of the time that is left. Forests,
boosting and regressions are trained in pieces (some trees, some iterations) and stop when their time is over; networks
shorten their schedule. Where a table is too large for the slice, a small share of its rows shows how many fit in.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from demur.array_types import Estimator, Features
from demur.calibration import TemperatureScaling
from demur.estimators.base import proba_of
from demur.estimators.boosted_trees import BoostedTrees, is_installed
from demur.estimators.network_selection import (
    FoldData,
    Rows,
    fit_fold_networks,
    grid_of,
    recipe_for,
    train_for_tables,
)
from demur.estimators.reject_classifier import RejectClassifier
from demur.estimators.splitting import Fold, usable_folds
from demur.estimators.text_features import Ngrams, beside, top_score
from demur.training import PeriodicEmbeddings, TabularTraining
from demur.workers import free_cores, n_cores, on_workers

__all__ = [
    "CANDIDATES",
    "CandidateModel",
    "CandidateSearch",
    "CrossFitted",
    "Task",
    "Tried",
    "candidate_named",
    "dense_view",
    "fit_in_pieces",
    "numbers_view",
]


@dataclass(frozen=True, eq=False)
class Task:
    """The facts about the table that candidates are made from.

    Parameters
    ----------
    n_rows : int
    categorical : array of bool, shape (n_features,)
        Which columns hold codes of categories.
    random_state : int
    n_jobs : int or None
    smallest_class : int
        Rows of the rarest class.
    n_other : int
        The number of columns that are not the dense view of text, which come first.
    """

    n_rows: int
    categorical: NDArray[np.bool_]
    random_state: int
    n_jobs: int | None
    smallest_class: int
    n_other: int

    @property
    def n_text(self) -> int:
        """The number of columns of the dense view of text."""
        return len(self.categorical) - self.n_other


@dataclass(frozen=True)
class CandidateModel:
    """A model to try.

    Parameters
    ----------
    name : str
    view : {"codes", "dense", "numbers", "text"}
        The input: "codes" of categories with missing values for trees; "dense", imputed numbers on one scale, for
        linear models and CatBoost; "numbers", indicators of categories with missing values, for networks, which scale
        and impute themselves; "text", n-grams with the "dense" numbers of the other columns beside them.
    make : callable
        Makes an unfitted classifier from a :class:`Task`.
    key : str
        Its short name.
    share : float
        Its share of the time, relative to the other candidates.
    library : str, optional
        The package that it needs, if that is an optional one.
    """

    name: str
    view: Literal["codes", "dense", "numbers", "text"]
    make: Callable[[Task], Any]
    key: str
    share: float = 1.0
    library: str | None = None

    @property
    def is_network(self) -> bool:
        """Whether all its folds train as one stack, and stay as an ensemble."""
        return self.view == "numbers"

    @property
    def is_linear(self) -> bool:
        """Whether its fits run on one thread, so that folds are fitted side by side."""
        return self.key in ("lr", "text")

    @property
    def is_installed(self) -> bool:
        """Whether it can be trained here."""
        return self.library is None or is_installed(self.library)


def dense_view(categorical: NDArray[np.bool_], n_text: int = 0) -> ColumnTransformer:
    """Return a transformer of codes into numbers on one scale: indicators of categories, missing values imputed.

    That a value was missing becomes a column of its own; rare categories share one. The last ``n_text`` columns, a
    dense view of text, stay as they are.
    """
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    return _view(categorical, numbers, n_text)


def numbers_view(categorical: NDArray[np.bool_]) -> ColumnTransformer:
    """Return a transformer of codes into numbers: indicators of categories, all else as it is, missing values too."""
    return _view(categorical, "passthrough")


def _view(categorical: NDArray[np.bool_], numbers: Any, n_text: int = 0) -> ColumnTransformer:
    indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
    columns = np.arange(len(categorical))
    text = columns >= len(columns) - n_text
    parts: list[Any] = [
        ("numbers", numbers, columns[~categorical & ~text]),
        ("categories", indicators, columns[categorical]),
        ("text", "passthrough", columns[text]),
    ]
    return ColumnTransformer([part for part in parts if len(part[2])])


_TREES = 300
_ITERATIONS = 100
_EPOCHS, _TEXT_EPOCHS = 100, 40
"""Epochs of networks, of 64 in their recipe; on a dense view of text more of them take longer and help no more."""
_FEW_ROWS, _VERY_FEW_ROWS = 5_000, 1_000
"""Rows up to which two, and three, networks are trained for each fold."""

_RARE = 20
"""Rows of a class below which gradient boosting needs a penalty on the values of its leaves."""

_ROWS_FOR_THREADS = 5_000
"""Rows from which boosting is faster with several threads than with one."""


def _members_per_fold(n_train: int) -> int:
    """Return how many networks each fold gets: more on small tables, where they differ more and take less time."""
    return 1 if n_train > _FEW_ROWS else 3 if n_train <= _VERY_FEW_ROWS else 2


def _networks(task: Task) -> RejectClassifier:
    return RejectClassifier("ce", novelty=None, random_state=task.random_state)


def _periodic_networks(task: Task) -> RejectClassifier:
    return RejectClassifier("ce", embeddings=PeriodicEmbeddings(), random_state=task.random_state)


def _lightgbm(task: Task) -> BoostedTrees:
    return BoostedTrees(
        "lightgbm",
        {
            "n_estimators": 2 * _ITERATIONS, "learning_rate": 0.05, "min_child_samples": 10,
            "subsample": 0.8, "subsample_freq": 1, "colsample_bytree": 0.7,
            "random_state": task.random_state, "deterministic": True, "force_row_wise": True,
            "n_jobs": free_cores() if task.n_rows >= _ROWS_FOR_THREADS else 1,
        },
        categorical=np.flatnonzero(task.categorical).tolist(),
    )  # fmt: skip


def _catboost(task: Task) -> BoostedTrees:
    threads = free_cores() if task.n_rows >= _ROWS_FOR_THREADS else 1
    return BoostedTrees(
        "catboost", {"iterations": 5 * _ITERATIONS, "random_seed": task.random_state, "thread_count": threads}
    )


def _boosting(task: Task) -> HistGradientBoostingClassifier:
    mask = task.categorical if task.categorical.any() else None
    # early stopping would hold rows out by class, which a class of one row does not survive
    # features drawn at each split make trees differ, and the blend better, for less time
    # without a penalty, a leaf with one row of a class of two makes all others of the leaf that class
    return HistGradientBoostingClassifier(
        max_iter=_ITERATIONS, max_features=0.5, min_samples_leaf=10,
        l2_regularization=1.0 if task.smallest_class < _RARE else 0.0,
        categorical_features=mask, early_stopping=False, random_state=task.random_state,
    )  # fmt: skip


def _extra_trees(task: Task) -> ExtraTreesClassifier:
    return ExtraTreesClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _random_forest(task: Task) -> RandomForestClassifier:
    return RandomForestClassifier(_TREES, n_jobs=task.n_jobs, random_state=task.random_state)


def _logistic_regression(task: Task) -> LogisticRegression:
    return LogisticRegression(max_iter=300, random_state=task.random_state)


def _text(_: Task) -> LinearSVC:
    return LinearSVC(dual=False, tol=0.01)  # which draws no random numbers, and threads share those of the other solver


CANDIDATES: tuple[CandidateModel, ...] = (
    CandidateModel("extra trees", "codes", _extra_trees, "et", 1.5),
    CandidateModel("logistic regression", "dense", _logistic_regression, "lr", 0.5),
    CandidateModel("gradient boosting", "codes", _boosting, "hgb", 2.0),
    CandidateModel("random forest", "codes", _random_forest, "rf", 1.0),
    CandidateModel("lightgbm", "codes", _lightgbm, "lgbm", 1.5, "lightgbm"),
    CandidateModel("catboost", "dense", _catboost, "cat", 2.0, "catboost"),
    CandidateModel("networks", "numbers", _networks, "nn", 5.0),
    CandidateModel("periodic networks", "numbers", _periodic_networks, "pnn", 4.5),
    CandidateModel("linear model of text", "text", _text, "text", 3.0),
)
"""Candidates in the order in which they are tried. Time that one does not use goes to the later ones."""


def candidate_named(name: str) -> CandidateModel | None:
    """Return the candidate with this name or short name.

    Examples
    --------
    >>> candidate_named("et").name, candidate_named("extra trees").key
    ('extra trees', 'et')
    """
    found = [candidate for candidate in CANDIDATES if name in (candidate.name, candidate.key)]
    return found[0] if found else None


class _Pieces(NamedTuple):
    """How a kind of model grows: the parameter with its size, and how much of it the first piece has.

    Boosting and regressions become more confident the longer they are trained; forests do not.
    """

    parameter: str
    first: int
    grows: bool
    gains_confidence: bool


_PIECES: dict[type, _Pieces] = {
    ExtraTreesClassifier: _Pieces("n_estimators", 4, True, False),
    RandomForestClassifier: _Pieces("n_estimators", 4, True, False),
    HistGradientBoostingClassifier: _Pieces("max_iter", 1, True, True),
    LogisticRegression: _Pieces("max_iter", 5, False, True),
}


def fit_in_pieces(model: Estimator, X: Features, y: Any, weight: Any, seconds: float, at_most: float = 1.0) -> float:
    """Fit a model, at most for so many seconds and one more piece; return which share of it was trained.

    Parameters
    ----------
    model, X, y, weight
    seconds : float
    at_most : float
        The share of the training that the cross-fitted models had. A model that becomes more confident with training
        gets no more than that, because its temperature was chosen for that share.

    Examples
    --------
    >>> X, y = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2
    >>> forest = ExtraTreesClassifier(20, random_state=0)
    >>> fit_in_pieces(forest, X, y, None, seconds=0.0), len(forest.estimators_)
    (0.2, 4)
    """
    if isinstance(model, BoostedTrees):
        return model.fit_within(X, y, weight, seconds, at_most)
    pieces = _PIECES.get(type(model))
    if pieces is None or (not np.isfinite(seconds) and at_most >= 1):
        model.fit(X, y, sample_weight=weight)
        return 1.0
    started = time.monotonic()
    total, done, step = getattr(model, pieces.parameter), 0, pieces.first
    most = max(1, round(at_most * total)) if pieces.gains_confidence else total
    model.set_params(warm_start=True)
    while done < most:
        step = min(step, most - done)
        before = time.monotonic()
        model.set_params(**{pieces.parameter: done + step if pieces.grows else step}).fit(X, y, sample_weight=weight)
        done += step
        if not pieces.grows and np.max(model.n_iter_) < step:
            done = most = total  # it has converged
        each = (time.monotonic() - before) / step
        affordable = (started + seconds - time.monotonic()) / max(each, 1e-9)
        if affordable < 1:
            break
        step = max(1, int(min(2 * done, 0.7 * affordable, total)))
    model.set_params(warm_start=False, **({} if pieces.grows else {pieces.parameter: total}))
    return float(done / total)


@dataclass(frozen=True)
class Tried:
    """The result of one candidate.

    Parameters
    ----------
    name : str
    weight : float
        Its share of the blend; 0 if it is not part of it.
    log_loss : float or None
        Out of fold, after its own temperature; None if it was not tried.
    temperature : float or None
        Above 1 for an overconfident candidate, below 1 for an underconfident one.
    seconds : float
        Time spent, including the last fit on all rows.
    outcome : str
        A sentence for people.
    """

    name: str
    weight: float
    log_loss: float | None
    temperature: float | None
    seconds: float
    outcome: str


@dataclass(eq=False)
class CrossFitted:
    """A candidate with the calibrated probabilities it gives to rows it has not seen.

    Parameters
    ----------
    candidate : CandidateModel
    scaling : TemperatureScaling
    proba : array of shape (n_held_out, n_classes)
    true_class : array of shape (n_held_out,)
    trained : float
        The share of its training that fitted into the time budget.
    share_of_rows : float
        The share of the training rows that were used.
    model : classifier or None
        Ready for use; None if it is still to be fitted on all rows.
    last_fit : float
        Seconds of the last fold, which are reserved for the fit on all rows.
    seconds : float
        Time spent so far.
    top : array of shape (n_held_out,), optional
        The largest one-versus-rest score of each row, of the candidate "text".
    """

    candidate: CandidateModel
    scaling: TemperatureScaling
    proba: NDArray[np.float64]
    true_class: NDArray[np.float64]
    trained: float
    share_of_rows: float
    model: Estimator
    last_fit: float
    seconds: float = 0.0

    top: NDArray[np.float64] | None = None

    def report(self, share: float, weight: NDArray[np.float64] | None) -> Tried:
        """Return the result, given the share of the blend."""
        outcome = f"{share:.0%} of the blend" if share else "does not improve the blend"
        if self.trained < 0.995 or self.share_of_rows < 1:
            outcome += f"; cut short by the time budget ({self.trained:.0%} of its training"
            outcome += f", {self.share_of_rows:.0%} of the rows)" if self.share_of_rows < 1 else ")"
        log_loss = float(-np.average(np.log(np.maximum(self.true_class, 1e-12)), weights=weight))
        return Tried(self.candidate.name, share, log_loss, self.scaling.temperature_, self.seconds, outcome)


_MANY_ROWS = 50_000
"""Training rows from which a share of them shows first how long all of them would take."""

_PROBE_SHARE = 0.1
"""How much of a fit's time that may take."""


class CandidateSearch:
    """Cross-fits candidates within a time budget.

    Parameters
    ----------
    rows : Rows
        With codes of categories and missing values.
    folds : list of (train, test)
    task : Task
    seconds : float
        The time budget, which starts now.
    advance : callable
        Called with the progress of a candidate in percent, and its name.
    texts : array of str, shape (n_rows,), optional
    """

    def __init__(
        self,
        rows: Rows,
        folds: list[Fold],
        task: Task,
        seconds: float,
        advance: Callable[[float, str], Any],
        texts: NDArray[np.object_] | None = None,
    ) -> None:
        self.texts = texts
        self.codes, self.y, self.weight, self.task = rows.X, rows.y, rows.weight, task
        self._seconds, self._ends, self._advance = seconds, time.monotonic() + seconds, advance
        self.folds = usable_folds(folds, rows.y, rows.weight, at_least_one=True)
        self.held_out_rows = np.concatenate([test for _, test in self.folds])
        self.held_out_weight = None if self.weight is None else self.weight[self.held_out_rows]
        self.n_classes = int(self.y.max()) + 1
        self._fitted: list[CrossFitted] = []
        self._dense_of_fold: dict[int, Any] = {}
        self.numbers = numbers_view(task.categorical).fit(self.codes) if task.categorical.any() else None

    def run(self, wanted: Sequence[CandidateModel]) -> list[CrossFitted]:
        """Cross-fit the candidates, each in its slice of the time; the first in any case."""
        for position, candidate in enumerate(wanted):
            started = time.monotonic()
            left = 0.95 * (self._ends - started) - self._reserved()
            self._advance(0, candidate.name)
            if self._fitted and left < 0.02 * self._seconds:
                self._advance(100, candidate.name)
                continue
            seconds = left * candidate.share / sum(one.share for one in wanted[position:])
            fit = self._fit_networks if candidate.is_network else self._cross_fit
            self._fitted.append(fit(candidate, seconds))
            self._fitted[-1].seconds = time.monotonic() - started
        return self._fitted

    def _reserved(self) -> float:
        """Return the seconds that fits on all rows will take."""
        return sum(one.last_fit for one in self._fitted if one.model is None)

    def fit_all_rows(self, fitted: CrossFitted, view: NDArray[np.float64]) -> Any:
        """Return the candidate for use: networks are an ensemble of the folds' own, others are fitted on all rows."""
        if fitted.model is not None:
            return fitted.model
        rows = self._sample(np.arange(len(self.y)), fitted.share_of_rows)
        left = self._ends - time.monotonic() - self._reserved() + fitted.last_fit  # the others' time stays theirs
        model, _, seconds = self._fit(fitted.candidate, view[rows], rows, max(left, 0.0), fitted.trained)
        if "n_jobs" in model.get_params():
            model.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
        fitted.model, fitted.seconds = model, fitted.seconds + seconds
        return model

    def _fit(
        self,
        candidate: CandidateModel,
        X: Features,
        rows: NDArray[np.int64],
        seconds: float,
        at_most: float = 1.0,
    ) -> tuple[Any, float, float]:
        """Fit a new model on some rows; return it, the share of the training that was done, and the time it took."""
        started = time.monotonic()
        model = candidate.make(self.task)
        weight = None if self.weight is None else self.weight[rows]
        if candidate.view == "codes":  # scikit-learn's histograms fail on a column without any value
            X = np.where(np.isnan(X).all(axis=0), 0.0, X)
        done = fit_in_pieces(model, X, self.y[rows], weight, seconds, at_most)
        if candidate.view == "text":  # in this order of memory a product with a sparse row copies nothing
            model.coef_ = np.asfortranarray(model.coef_, dtype=np.float32)
        return model, done, time.monotonic() - started

    def _cross_fit(self, candidate: CandidateModel, seconds: float) -> CrossFitted:
        """Fit the folds; the slice is for these and for one more fit, on all rows."""
        ends, n_fits, n_folds = time.monotonic() + seconds, len(self.folds) + 1, len(self.folds)
        side_by_side, is_text = candidate.is_linear and n_folds > 1, candidate.view == "text"
        n_workers, share = n_cores() if side_by_side else 1, 1.0
        if np.isfinite(seconds) and len(self.folds[0][0]) > _MANY_ROWS:
            share = self._affordable_share(candidate, self.folds[0][0], seconds / n_fits)

        def of_fold(number: int) -> tuple[Any, Any, float, float]:
            train, test = self.folds[number]
            rows, each = self._sample(train, share), n_workers * (ends - time.monotonic()) / (n_fits - number)
            seen, unseen = self._views(candidate, number, rows, test)
            model, done, taken = self._fit(candidate, seen, rows, each)
            self._advance(100 / n_folds, candidate.name)
            top = top_score(model, unseen) if is_text else None
            return proba_of(model, unseen, np.arange(self.n_classes)), top, done, taken

        numbers = range(n_folds)
        found = on_workers(of_fold, numbers) if side_by_side else [of_fold(number) for number in numbers]
        probas, tops, trained, taken = zip(*found, strict=True)
        fitted = self._calibrated(candidate, np.concatenate(probas), min(trained), share, None, max(taken))
        fitted.top = np.concatenate(tops) if is_text else None
        return fitted

    def _affordable_share(self, candidate: CandidateModel, train: NDArray[np.int64], seconds: float) -> float:
        """Return which share of the rows can be trained on in this time, by training on few of them first."""
        few = self._sample(train, max(0.02, 2000 / len(train)))
        view = self._views(candidate, 0, few, few[:1])[0]
        _, done, taken = self._fit(candidate, view, few, _PROBE_SHARE * seconds)
        forecast = max(taken, 1e-9) / max(done, 1e-9) * len(train) / len(few)
        return float(np.clip(0.8 * seconds / forecast, len(few) / len(train), 1.0))

    def other_view(self, rows: NDArray[np.int64]) -> ColumnTransformer | None:
        """Return what turns the columns beside text into numbers on one scale, learned from some rows."""
        other = self.task.categorical[: self.task.n_other]
        return dense_view(other).fit(self.codes[rows][:, : len(other)]) if len(other) else None

    def _fit_networks(self, candidate: CandidateModel, seconds: float) -> CrossFitted:
        """Train the networks of all folds as one stack, which then stays as it is."""
        numbers = self.codes if self.numbers is None else np.asarray(self.numbers.transform(self.codes), np.float64)
        n_train = len(self.folds[0][0])
        n_members = max(len(self.folds) * _members_per_fold(n_train), 2)
        usual = recipe_for(n_train)
        epochs = _TEXT_EPOCHS if self.task.n_text else _EPOCHS
        recipe = recipe_for(n_train, epochs=max(1, round(usual.epochs * epochs / 64)))
        total, name, model = n_members * recipe.epochs, candidate.name, candidate.make(self.task)
        seeds = np.random.RandomState(self.task.random_state).randint(np.iinfo(np.int32).max, size=n_members)
        train = train_for_tables(
            model.embeddings, recipe=recipe, deadline=time.monotonic() + seconds if np.isfinite(seconds) else None,
            progress=lambda steps: self._advance(100 * steps / total, name),
        )  # fmt: skip
        data = FoldData(Rows(numbers, self.y, self.weight), self.folds)
        grid = grid_of("ce", self.n_classes, 0.02, 0.2)
        found = fit_fold_networks(data, grid, seeds.tolist(), self.n_classes, 0.2, train)
        run = cast(TabularTraining, found.run)
        done = recipe.epochs if run.complete else np.isfinite(run.training_loss).sum(1).mean()
        model.adopt(found, numbers.shape[1], self.n_classes)
        return self._calibrated(candidate, found.held_out.scores, done / recipe.epochs, 1.0, model, 0.0)

    def _calibrated(
        self,
        candidate: CandidateModel,
        proba: NDArray[np.float64],
        trained: float,
        share: float,
        model: Estimator,
        last_fit: float,
    ) -> CrossFitted:
        labels = self.y[self.held_out_rows]
        scaling = TemperatureScaling().fit(proba, labels, self.held_out_weight)
        proba = np.asarray(scaling.transform(proba), dtype=np.float64)
        true_class = proba[np.arange(len(labels)), labels]
        return CrossFitted(candidate, scaling, proba, true_class, float(trained), share, model, last_fit)

    def _views(
        self, candidate: CandidateModel, fold: int, train: NDArray[np.int64], test: NDArray[np.int64]
    ) -> tuple[Any, Any]:
        """Return what the candidate sees of rows to train on and of rows to predict; each fold learns its own view."""
        if candidate.view == "text":
            assert self.texts is not None
            ngrams, other = Ngrams().fit(self.texts[train]), self.other_view(train)
            n_other = self.task.n_other
            found: list[Any] = [
                beside(ngrams.transform(self.texts[rows]), other, self.codes[rows, :n_other]) for rows in (train, test)
            ]
            return found[0], found[1]
        if candidate.view == "codes":
            return self.codes[train], self.codes[test]
        if fold not in self._dense_of_fold:
            self._dense_of_fold[fold] = dense_view(self.task.categorical, self.task.n_text).fit(
                self.codes[self.folds[fold][0]]
            )
        dense = self._dense_of_fold[fold]
        found = [np.asarray(dense.transform(self.codes[rows]), dtype=np.float64) for rows in (train, test)]
        return found[0], found[1]

    def _sample(self, rows: NDArray[np.int64], share: float) -> NDArray[np.int64]:
        """Return a share of the rows at random, with at least one of every class."""
        if share >= 1:
            return rows
        order = np.random.RandomState(self.task.random_state).permutation(rows)
        _, first = np.unique(self.y[order], return_index=True)
        chosen = np.union1d(np.arange(round(share * len(rows))), first)
        return np.sort(order[chosen])
