"""The models that ``RejectOption("auto")`` tries, and training them within a time budget.

Adding a model is one entry of :data:`CANDIDATES`. With a time budget, the candidates race on the first fold: forests,
boosting and regressions grow in steps, and a candidate that is too slow to finish is abandoned after a few of them.
Those that improve the blend then get as many further folds as there is time for, and networks get the rest of the time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from numpy.typing import ArrayLike
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped] # it has no types

from demur.array_types import Estimator, Features, Floats, Ints, Mask, Objects
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
from demur.training import PeriodicEmbeddings, Recipe, TabularTraining
from demur.workers import BusyClock, on_workers


@dataclass(frozen=True, eq=False)
class Task:
    """Properties of the table from which candidates are made.

    Parameters
    ----------
    categorical : array of bool, shape (n_features,)
        Which columns hold codes of categories.
    random_state : int
    n_jobs : int or None
        Threads of one fit.
    smallest_class : int
        Rows of the rarest class.
    n_other : int
        The number of columns that are not the dense view of text, which come first.
    """

    categorical: Mask
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
    """A model that "auto" tries.

    Parameters
    ----------
    name : str
    view : {"codes", "dense", "numbers", "text"}
        The input: "codes" of categories with missing values for trees; "dense", imputed numbers on one scale, for
        linear models and CatBoost; "numbers", indicators of categories with missing values, for networks, which scale
        and impute themselves, and which are trained as one stack for all folds and used as an ensemble; "text", n-grams
        with the "dense" numbers of the other columns beside them.
    make : callable
        Makes an unfitted classifier from a :class:`Task`.
    key : str
        Short name.
    least : float
        Smallest share of its training that must fit into the time budget; with less, the candidate is left out.
    library : str, optional
        Optional package that it needs.
    """

    name: str
    view: Literal["codes", "dense", "numbers", "text"]
    make: Callable[[Task], Any]
    key: str
    least: float = 0.4
    library: str | None = None

    @property
    def is_installed(self) -> bool:
        """Whether it can be trained here."""
        return self.library is None or is_installed(self.library)


ByCandidate: TypeAlias = dict[CandidateModel, float]


def dense_view(categorical: Mask, n_text: int = 0) -> Any:
    """Return a transformer of codes into numbers on one scale: indicators of categories, missing values imputed.

    Additional columns indicate missing values; rare categories share a column. The last ``n_text`` columns, a dense
    view of text, are unchanged.
    """
    numbers = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True), StandardScaler()
    )
    return _view(categorical, numbers, n_text)


_MOST_INDICATORS = 1_000
"""Indicators of all categories together that networks see: of one column all, of many columns the 50 most frequent."""


def numbers_view(categorical: Mask) -> Any:
    """Return a transformer that replaces categories by indicators and leaves the other columns unchanged."""
    return _view(categorical, "passthrough", most=int(np.clip(_MOST_INDICATORS // max(categorical.sum(), 1), 50, 255)))


def _view(categorical: Mask, numbers: Any, n_text: int = 0, most: int = 50) -> Any:
    indicators = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=most, sparse_output=False)
    columns = np.arange(len(categorical))
    text = columns >= len(columns) - n_text
    parts: list[Any] = [
        ("numbers", numbers, columns[~categorical & ~text]),
        ("categories", indicators, columns[categorical]),
        ("text", "passthrough", columns[text]),
    ]
    return ColumnTransformer([part for part in parts if len(part[2])]).set_output(transform="default")


_TREES = 300
_ITERATIONS = 100
_EPOCHS, _TEXT_EPOCHS = 100, 40
"""Number of epochs of networks (the recipe has 64); on a dense view of text, more epochs do not improve the result."""
_FEW_ROWS, _VERY_FEW_ROWS = 5_000, 1_000
"""Up to so many training rows, each fold gets two networks, or three: with few rows, networks differ more and train
faster."""

_RARE = 20
"""Number of rows of the smallest class below which gradient boosting gets a penalty on the values of its leaves."""

_ROWS_FOR_THREADS = 50_000
"""Number of rows from which a fit is faster with several threads than with one."""


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
            "n_jobs": task.n_jobs,
        },
        categorical=np.flatnonzero(task.categorical).tolist(),
    )  # fmt: skip


def _catboost(task: Task) -> BoostedTrees:
    return BoostedTrees(
        "catboost", {"iterations": 5 * _ITERATIONS, "random_seed": task.random_state, "thread_count": task.n_jobs}
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
    CandidateModel("linear model of text", "text", _text, "text"),
    CandidateModel("logistic regression", "dense", _logistic_regression, "lr", 0.1),
    CandidateModel("extra trees", "codes", _extra_trees, "et", 0.1),
    CandidateModel("lightgbm", "codes", _lightgbm, "lgbm", library="lightgbm"),
    CandidateModel("gradient boosting", "codes", _boosting, "hgb"),
    CandidateModel("random forest", "codes", _random_forest, "rf", 0.1),
    CandidateModel("catboost", "dense", _catboost, "cat", library="catboost"),
    CandidateModel("networks", "numbers", _networks, "nn"),
    CandidateModel("periodic networks", "numbers", _periodic_networks, "pnn"),
)
"""Candidates in the order in which they are tried: first those that improve the blend most for their time."""


def candidate_named(name: str) -> CandidateModel | None:
    """Return the candidate with this name or short name.

    Examples
    --------
    >>> candidate_named("et").name, candidate_named("extra trees").key
    ('extra trees', 'et')
    """
    return next((one for one in CANDIDATES if name in (one.name, one.key)), None)


_PIECES = {
    ExtraTreesClassifier: ("n_estimators", 4, True),
    RandomForestClassifier: ("n_estimators", 4, True),
    HistGradientBoostingClassifier: ("max_iter", 1, True),
    LogisticRegression: ("max_iter", 5, False),
}
"""For each kind of model, the parameter with its size, the size of the first step, and whether the model grows."""


def fit_in_pieces(
    model: Estimator,
    X: Features,
    y: Any,
    weight: Any,
    left: Callable[[], float],
    at_most: float = 1.0,
    at_least: float = 0.0,
) -> float:
    """Fit a model in the time that is left, plus at most one step; return the share of the training that was done.

    Parameters
    ----------
    model, X, y, weight
    left : callable
        Returns the seconds that are left.
    at_most : float
        Largest share of the training: that of the cross-fitted models, whose temperature was chosen for it. Boosting
        becomes more confident with more training.
    at_least : float
        Smallest share of the training that is useful: the fit ends early if the time will not suffice for it.

    Examples
    --------
    >>> X, y = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2
    >>> forest = ExtraTreesClassifier(20, random_state=0)
    >>> fit_in_pieces(forest, X, y, None, lambda: 0.0), len(forest.estimators_)
    (0.2, 4)
    """
    if isinstance(model, BoostedTrees):
        return model.fit_within(X, y, weight, left, at_most, at_least)
    pieces = _PIECES.get(type(model))
    if pieces is None or (not np.isfinite(left()) and at_most >= 1):
        model.fit(X, y, sample_weight=weight)
        return 1.0
    parameter, step, grows = pieces
    total, done = getattr(model, parameter), 0
    most = max(1, round(at_most * total))
    model.set_params(warm_start=True)
    while done < most:
        step, first = min(step, most - done), not done
        before = left()
        model.set_params(**{parameter: done + step if grows else step}).fit(X, y, sample_weight=weight)
        done, after = done + step, left()
        if not grows and np.max(model.n_iter_) < step:
            done = most = total  # it has converged
        affordable = np.inf if np.isinf(after) else after * step / max(before - after, 1e-9)
        too_slow = grows and not first and done + affordable < at_least * total
        if affordable < 1 or too_slow:
            break
        step = max(1, int(min(2 * done, 0.7 * affordable, total)))
    model.set_params(warm_start=False, **({} if grows else {parameter: total}))
    return float(done / total)


_SMALLEST = 1e-12
_LEAST = 0.05
"""Models with a smaller weight are left out."""


def mixture_weights(
    true_class_proba: Sequence[ArrayLike], sample_weight: ArrayLike | None = None, prior: float = 2.0
) -> tuple[float, ...]:
    """Return the weights of the mixture of models with the lowest log loss, with a prior that favours equal weights.

    The log loss of a mixture is convex in the weights, and expectation maximisation finds its minimum. It depends on
    the probabilities of the true classes only. There are as many weights as models, so they overfit little: by about
    (models - 1) / (2 rows). A Dirichlet prior keeps few rows from excluding a model.

    Parameters
    ----------
    true_class_proba : sequence of arrays of shape (n,)
        For each model, its out-of-fold probability of the true class of each row.
    sample_weight : array of shape (n,), optional
    prior : float
        Rows that the prior gives to each model.

    Examples
    --------
    Two models that are each good on half of the rows are better together than a third one that is mediocre on all rows:

    >>> [round(share, 2) for share in mixture_weights([[0.9, 0.3] * 500, [0.3, 0.9] * 500, [0.5, 0.5] * 500])]
    [0.5, 0.5, 0.0]
    """
    columns = np.maximum(np.array(list(true_class_proba), dtype=np.float64), _SMALLEST)
    rows = np.ones(columns.shape[1]) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    shares = np.full(len(columns), 1 / len(columns))
    for _ in range(2000):
        of_row = shares[:, None] * columns
        claimed = (of_row / of_row.sum(0)) @ rows + prior
        before, shares = shares, claimed / claimed.sum()
        if np.abs(shares - before).max() < 1e-6:
            break
    kept = shares - prior / (rows.sum() + prior * len(columns)) >= _LEAST
    if kept.any():
        shares = shares * kept
    return tuple((shares / shares.sum()).tolist())


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
    trained : float
        The share of its training that fitted into the time budget, times the share of the rows.
    seconds : float
        Time spent, including the last fit on all rows.
    outcome : str
        Description of the result.
    """

    name: str
    weight: float
    log_loss: float | None
    temperature: float | None
    trained: float
    seconds: float
    outcome: str


@dataclass(eq=False)
class CrossFitted:
    """A candidate with its calibrated out-of-fold probabilities.

    Parameters
    ----------
    candidate : CandidateModel
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
    folds : list of arrays of shape (n_held_out, n_classes)
        Probabilities of the held-out rows of each fold.
    tops : list of arrays of shape (n_held_out,)
        The largest one-versus-rest score of each row, of the candidate "text".
    scaling : TemperatureScaling
    proba : array of shape (n_held_out, n_classes)
    true_class : array of shape (n_held_out,)
    log_loss : float
    """

    candidate: CandidateModel
    trained: float = 1.0
    share_of_rows: float = 1.0
    model: Estimator | None = None
    last_fit: float = 0.0
    seconds: float = 0.0
    folds: list[Floats] = field(default_factory=list)
    tops: list[Floats] = field(default_factory=list)
    scaling: TemperatureScaling = field(init=False)
    proba: Floats = field(init=False)
    true_class: Floats = field(init=False)
    log_loss: float = field(init=False)

    @property
    def is_worth_it(self) -> bool:
        """Whether it had enough training."""
        return bool(self.folds) and self.trained >= self.candidate.least

    def keep(self, proba: Floats, top: Any, trained: float, seconds: float) -> None:
        """Add the result of a fold."""
        self.folds.append(proba)
        self.tops += [] if top is None else [top]
        self.trained = min(self.trained, trained)
        self.last_fit, self.seconds = max(self.last_fit, seconds), self.seconds + seconds

    def calibrate(self, labels: Ints, weight: Floats | None) -> None:
        """Fit the temperature on the held-out rows, of the first folds if there are fewer."""
        proba = np.concatenate(self.folds)[: len(labels)]
        self.scaling = TemperatureScaling().fit(proba, labels, weight)
        self.proba = np.asarray(self.scaling.transform(proba), dtype=np.float64)
        self.true_class = self.proba[np.arange(len(labels)), labels]
        self.log_loss = float(-np.average(np.log(np.maximum(self.true_class, _SMALLEST)), weights=weight))

    def report(self, share: float) -> Tried:
        """Return the result, given the share of the blend."""
        outcome = f"{share:.0%} of the blend" if share else "does not improve the blend"
        if self.trained < 0.995 or self.share_of_rows < 1:
            outcome += f"; cut short by the time budget ({self.trained:.0%} of its training"
            outcome += f", {self.share_of_rows:.0%} of the rows)" if self.share_of_rows < 1 else ")"
        trained, temperature = self.trained * self.share_of_rows, self.scaling.temperature_
        return Tried(self.candidate.name, share, self.log_loss, temperature, trained, self.seconds, outcome)


_MANY_ROWS = 50_000
"""Number of training rows from which the training time is first measured on a share of them."""

_PROBE_SHARE = 0.1
"""Share of the fit's time for this measurement."""

_ENOUGH_HELD_OUT = 1_000
"""Number of held-out rows that weights and temperatures need. Slow candidates are left out if there is no time for so
many."""

_FIRST_EPOCHS = 3
"""Number of epochs of all networks after which the remaining time is predicted."""

_OF_ALL_ROWS = 1.3
"""Upper bound for the ratio of the time of a fit on all rows to that of a fit on one fold."""

_SECONDS_FOR_NETWORKS = 4.0
"""Least time in seconds for networks: the import of torch takes about two seconds."""


def _fitted(
    candidate: CandidateModel,
    task: Task,
    X: Features,
    y: Ints,
    weight: Floats | None,
    seconds: float = np.inf,
    at_most: float = 1.0,
    at_least: float = 0.0,
) -> tuple[Any, float, float]:
    """Fit a new model; return it, the share of the training that was done, and the time it took."""
    clock, model = BusyClock(), candidate.make(task)
    started = clock()
    if candidate.view == "codes":  # scikit-learn's histograms fail on a column without any value
        X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    with threadpool_limits(limits=task.n_jobs, user_api="openmp"):
        done = fit_in_pieces(model, X, y, weight, lambda: started + seconds - clock(), at_most, at_least)
    return model, done, clock() - started


def _trained_networks(
    candidate: CandidateModel,
    task: Task,
    rows: Rows,
    folds: Sequence[Fold],
    n_members: int,
    recipe: Recipe,
    seconds: float | None,
    advance: Callable[[float, str], Any] | None = None,
) -> tuple[Any, Floats, float, list[float]]:
    """Train the networks of all folds as one stack; return them, held-out scores, the share done, and epochs' ends."""
    clock, n_classes, ends, model = BusyClock(), int(rows.y.max()) + 1, list[float](), candidate.make(task)
    seeds = np.random.RandomState(task.random_state).randint(np.iinfo(np.int32).max, size=n_members)

    def progress(steps: int) -> None:
        ends.append(clock())
        if advance is not None:
            advance(100 * steps / (n_members * recipe.epochs), candidate.name)

    data = FoldData(rows, folds, pieces=bool(task.categorical.any()))  # which imports torch, before the time starts
    deadline = None if seconds is None else time.monotonic() + seconds
    train = train_for_tables(model.embeddings, recipe=recipe, deadline=deadline, progress=progress)
    found = fit_fold_networks(data, grid_of("ce", n_classes, 0.02, 0.2), seeds.tolist(), n_classes, 0.2, train)
    run = cast(TabularTraining, found.run)
    done = recipe.epochs if run.complete else float(np.isfinite(run.training_loss).sum(1).mean())
    model.adopt(found, rows.X.shape[1], n_classes)
    return model, found.held_out.scores, done / recipe.epochs, ends


class CandidateSearch:
    """Cross-fits candidates within a time budget.

    Parameters
    ----------
    rows : Rows
        With codes of categories and missing values.
    folds : list of (train, test)
    task : Task
    budget : float
        The time budget in seconds of the clock.
    clock : BusyClock
    advance : callable
        Called with the progress of a candidate in percent, and its name.
    texts : array of str, shape (n_rows,), optional
    """

    def __init__(
        self,
        rows: Rows,
        folds: list[Fold],
        task: Task,
        budget: float,
        clock: BusyClock,
        advance: Callable[[float, str], Any],
        texts: Objects | None = None,
    ) -> None:
        self.texts: Any = texts
        self.codes, self.y, self.weight, self.task = rows.X, rows.y, rows.weight, task
        self._budget, self._clock, self._advance = budget, clock, advance
        self.folds = usable_folds(folds, rows.y, rows.weight, at_least_one=True)
        self.n_needed = min(len(self.folds), -(-_ENOUGH_HELD_OUT // len(self.folds[0][1])))
        self.n_classes = int(self.y.max()) + 1
        n_train = len(self.folds[0][0])
        self._per_fold = 1 if n_train > _FEW_ROWS else 3 if n_train <= _VERY_FEW_ROWS else 2
        self.rejected: list[Tried] = []
        self._n_workers, self._threads = int(effective_n_jobs(task.n_jobs)), 1
        self._dask: Any = getattr(get_active_backend()[0], "client", None)
        self.numbers = numbers_view(task.categorical).fit(self.codes) if task.categorical.any() else None

    def held_out(self, n_folds: int | None = None) -> tuple[Ints, Floats | None]:
        """Return the rows that the first folds hold out, and their weights."""
        rows = np.concatenate([test for _, test in self.folds[:n_folds]])
        return rows, None if self.weight is None else self.weight[rows]

    def run(self, wanted: Sequence[CandidateModel]) -> tuple[list[CrossFitted], tuple[float, ...]]:
        """Cross-fit the candidates that there is time for, at least one; return them and their weights.

        ``folds`` are then those that were used.
        """
        networks = [one for one in wanted if one.view == "numbers"]
        fitted = self._race([one for one in wanted if one not in networks])
        costs = self._costs(networks, fitted)
        if fitted and self._n_affordable(fitted, costs) < len(self.folds):
            shares = self._weights(fitted, 1)
            self.rejected += [one.report(0.0) for one, share in zip(fitted, shares, strict=True) if not share]
            useful = [one for one, share in zip(fitted, shares, strict=True) if share]
            fitted = self._without_slow(useful, 2 * self.n_needed)  # which leaves half of the time to networks
            # two kinds of networks, and several of a fold, only where there is time for enough folds
            while len(costs) > 1 and self._n_affordable(fitted, costs) < self.n_needed:
                del costs[max(costs, key=lambda one: costs[one])]
            while costs and self._per_fold > 1 and self._n_affordable(fitted, costs) < self.n_needed:
                costs = {one: seconds * (1 - 1 / self._per_fold) for one, seconds in costs.items()}
                self._per_fold -= 1
            if any(self._n_affordable(fitted, costs) < one.least for one in costs):
                costs = {}
            if not costs:
                fitted = self._without_slow(useful, self.n_needed)
        del self.folds[int(np.clip(self._n_affordable(fitted, costs), 1, len(self.folds))) :]
        self._fit_other_folds(fitted)
        for candidate in tuple(costs):
            started, left = self._clock(), (self._left() - self._reserved(fitted)) / sum(costs.values())
            model, scores, done, _ = self._train_networks(candidate, costs.pop(candidate) * left, self._recipe())
            fitted.append(CrossFitted(candidate, model=model, seconds=self._clock() - started))
            fitted[-1].keep(scores, None, done, 0.0)
        fitted = [one for one in fitted if one.is_worth_it] or fitted[:1]
        return fitted, self._weights(fitted)

    def _left(self) -> float:
        return self._budget - self._clock()

    def _reserved(self, fitted: Sequence[CrossFitted]) -> float:
        """Return the seconds that fits on all rows will take."""
        each: list[float] = [one.last_fit for one in fitted if one.model is None]
        return _OF_ALL_ROWS * max(sum(each) / self._n_workers, *each, 0.0)

    def _n_affordable(self, fitted: Sequence[CrossFitted], costs: ByCandidate) -> float:
        """Return how many folds there is time for, even more than there are; the first of those fitted is done."""
        done = sum(one.last_fit for one in fitted) / self._n_workers
        each = done + sum(costs.values()) / len(self.folds)
        return (self._left() - self._reserved(fitted) + done) / max(each, 1e-9)

    def _without_slow(self, fitted: Sequence[CrossFitted], n_folds: int) -> list[CrossFitted]:
        """Return the candidates without those of least use for their time, so that there is time for so many folds."""
        kept = list(fitted)
        weight = self.held_out(1)[1]

        def log_loss(members: Sequence[CrossFitted]) -> float:
            columns = [one.true_class for one in members]
            mixture: Floats = np.asarray(mixture_weights(columns, weight)) @ np.array(columns)
            return float(-np.average(np.log(np.maximum(mixture, _SMALLEST)), weights=weight))

        while len(kept) > 1 and self._n_affordable(kept, {}) < n_folds:
            without = {one: [other for other in kept if other is not one] for one in kept}
            kept = without[min(kept, key=lambda one: (log_loss(without[one]) - log_loss(kept)) / one.last_fit)]
        return kept

    def _race(self, candidates: Sequence[CandidateModel]) -> list[CrossFitted]:
        """Fit the first fold; return the candidates that got enough training, or else the first."""
        slice_of_time = 1 / (3 + self.n_needed)
        raced: list[CrossFitted] = []
        for name in {one.library for one in candidates if one.library}:
            import_module(name)  # one thread must not see what another has only imported in part

        def race(candidate: CandidateModel) -> CrossFitted:
            one, seconds = CrossFitted(candidate), self._left() - self._reserved(raced)
            if seconds > 0 or candidate is candidates[0]:
                share = 1 / (1 + _OF_ALL_ROWS) if candidate.view == "text" else slice_of_time
                one.keep(*self._fit_fold(one, 0, share * seconds, candidate.least))
                raced.append(one)
            self._advance(0, candidate.name)
            return one

        found = self._side_by_side(race, candidates)
        return [one for one in found if one.is_worth_it] or found[:1]

    def _costs(self, networks: Sequence[CandidateModel], fitted: Sequence[CrossFitted]) -> ByCandidate:
        """Return the seconds that all folds of the networks would take, without those for which there is no time."""
        if np.isinf(self._budget) or not fitted:
            return dict.fromkeys(networks, 1e-9)
        costs = {}
        for candidate in networks:
            left = self._left() - self._reserved(fitted)
            if left > _SECONDS_FOR_NETWORKS:
                ends = self._train_networks(candidate, left / 10, replace(self._recipe(), epochs=_FIRST_EPOCHS))[-1]
                each = (ends[-1] - ends[0]) / (_FIRST_EPOCHS - 1) if len(ends) > 1 else np.inf
                # the clock stands still while other programs have the cores
                costs[candidate] = max(each, 1e-9) * self._recipe().epochs
        return costs

    def _fit_other_folds(self, fitted: Sequence[CrossFitted]) -> None:
        """Fit the folds after the first while there is time; the folds that some candidate lacks are then left out."""

        def fit(job: tuple[int, CrossFitted]) -> tuple[Any, ...] | None:
            number, one = job
            return None if self._left() - self._reserved(fitted) < one.last_fit else self._fit_fold(one, number)

        jobs = [(number, one) for number in range(1, len(self.folds)) for one in fitted]
        for (number, one), found in zip(jobs, self._side_by_side(fit, jobs), strict=True):
            if found is not None and len(one.folds) == number:
                one.keep(*found)
        if fitted:
            del self.folds[min(len(one.folds) for one in fitted) :]

    def _weights(self, fitted: Sequence[CrossFitted], n_folds: int | None = None) -> tuple[float, ...]:
        """Calibrate on the held-out rows of the first folds; return the best mixture."""
        rows, weight = self.held_out(n_folds)
        for one in fitted:
            one.calibrate(self.y[rows], weight)
        return mixture_weights([one.true_class for one in fitted], weight)

    def fit_all_rows(self, members: Sequence[CrossFitted], views: dict[str, Any]) -> tuple[Any, ...]:
        """Return candidates for use: networks are an ensemble of the folds' own, others are fitted on all rows."""

        def fit(one: CrossFitted) -> Any:
            if one.model is not None:
                return one.model
            rows = self._sample(np.arange(len(self.y)), one.share_of_rows)
            model, _, seconds = self._fit(one.candidate, views[one.candidate.view][rows], rows, at_most=one.trained)
            one.seconds += seconds
            return model

        return tuple(self._side_by_side(fit, members))

    def _side_by_side(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Run the function for every item in parallel; large tables get several threads per item if possible."""
        spare = self._n_workers // max(len(items), 1) if len(self.y) >= _ROWS_FOR_THREADS else 1
        self._threads = max(1, spare)
        return on_workers(function, items, n_workers=self._n_workers)

    def _fit(self, candidate: CandidateModel, X: Features, rows: Ints, **limits: float) -> tuple[Any, float, float]:
        """Fit a new model on some rows; return it, the share of the training that was done, and the time it took."""
        weight, task = None if self.weight is None else self.weight[rows], replace(self.task, n_jobs=self._threads)
        model, done, taken = self._run(_fitted, candidate, task, X, self.y[rows], weight, **limits)
        if candidate.view == "text":  # in this order of memory a product with a sparse row copies nothing
            model.coef_ = np.asfortranarray(model.coef_, dtype=np.float32)
        return model, done, taken

    def _run(self, function: Callable[..., tuple[Any, ...]], *arguments: Any, **named: Any) -> tuple[Any, ...]:
        """Call a function, on a Dask worker where joblib uses Dask."""
        if self._dask is None:
            return function(*arguments, **named)
        return self._dask.submit(function, *arguments, **named, pure=False).result()  # type: ignore[no-any-return]

    def _fit_fold(
        self, one: CrossFitted, number: int, seconds: float = np.inf, at_least: float = 0.0
    ) -> tuple[Any, Any, float, float]:
        """Fit a fold; return probabilities, scores of text, the share of the training, and the seconds."""
        started, candidate = self._clock(), one.candidate
        train, test = self.folds[number]
        # the linear model of text does not grow in pieces, and its time rises with the rows, the terms and the classes
        if np.isfinite(seconds) and len(train) > (_FEW_ROWS if candidate.view == "text" else _MANY_ROWS):
            one.share_of_rows = self._affordable_share(candidate, train, seconds)
        rows = self._sample(train, one.share_of_rows)
        seen, unseen = self._views(candidate, rows, test)
        model, done, _ = self._fit(candidate, seen, rows, seconds=seconds, at_most=one.trained, at_least=at_least)
        proba = proba_of(model, unseen, np.arange(self.n_classes))
        top = top_score(model, unseen) if candidate.view == "text" else None
        self._advance(100 / len(self.folds), candidate.name)
        return proba, top, done, self._clock() - started

    def _affordable_share(self, candidate: CandidateModel, train: Ints, seconds: float) -> float:
        """Return the share of the rows that can be trained on in this time, estimated by training on a few of them."""
        few = self._sample(train, max(0.02, 2000 / len(train)))
        view = self._views(candidate, few, few[:1])[0]
        _, done, taken = self._fit(candidate, view, few, seconds=_PROBE_SHARE * seconds)
        forecast = max(taken, 1e-9) / max(done, 1e-9) * len(train) / len(few)
        return float(np.clip(0.8 * seconds / forecast, len(few) / len(train), 1.0))

    def other_view(self, rows: Ints) -> ColumnTransformer | None:
        """Return a transformer of the columns beside text into numbers on one scale, fitted on some rows."""
        other = self.task.categorical[: self.task.n_other]
        return dense_view(other).fit(self.codes[rows][:, : len(other)]) if len(other) else None

    def _recipe(self) -> Recipe:
        """Return how the networks are trained."""
        n_train = len(self.folds[0][0])
        epochs = _TEXT_EPOCHS if self.task.n_text else _EPOCHS
        return recipe_for(n_train, epochs=max(1, round(recipe_for(n_train).epochs * epochs / 64)))

    def _train_networks(self, candidate: CandidateModel, seconds: float, recipe: Recipe) -> tuple[Any, ...]:
        """Return the result of :func:`_trained_networks` within a number of seconds of the clock."""
        numbers = self.codes if self.numbers is None else self.numbers.transform(self.codes)
        rows, wall = Rows(numbers, self.y, self.weight), None
        if np.isfinite(seconds):
            wall = self._clock.in_wall_time(seconds)
        # progress is only seen where the networks are trained in this process
        advance = (self._advance,) if self._dask is None else ()
        n_members = max(len(self.folds) * self._per_fold, 2)
        return self._run(_trained_networks, candidate, self.task, rows, self.folds, n_members, recipe, wall, *advance)

    def _views(self, candidate: CandidateModel, train: Ints, test: Ints) -> list[Any]:
        """Return the candidate's view of the rows to train on, on which the view is fitted, and to predict."""
        if candidate.view == "text":
            ngrams, other = Ngrams(), self.other_view(train)
            weights = ngrams.fit_transform(self.texts[train]), ngrams.transform(self.texts[test])
            return [
                beside(one, other, self.codes[rows, : self.task.n_other])
                for one, rows in zip(weights, (train, test), strict=True)
            ]
        codes = [self.codes[train], self.codes[test]]
        if candidate.view == "codes":
            return codes
        dense = dense_view(self.task.categorical, self.task.n_text).fit(codes[0])
        return [dense.transform(one) for one in codes]

    def _sample(self, rows: Ints, share: float) -> Ints:
        """Return a share of the rows at random, with at least one of every class."""
        if share >= 1:
            return rows
        order = np.random.RandomState(self.task.random_state).permutation(rows)
        _, first = np.unique(self.y[order], return_index=True)
        chosen = np.union1d(np.arange(round(share * len(rows))), first)
        return np.sort(order[chosen])
