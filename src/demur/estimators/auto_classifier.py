"""AutoClassifier: several models, cross-fitted and blended, as a strong default for tables."""

import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length, check_is_fitted, check_random_state, validate_data
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # it has no types

from demur.array_types import AnyArray, Estimator, Features, FloatArray
from demur.calibration import TemperatureScaling
from demur.errors import InputError, MissingExtraError
from demur.estimators.base import check_two_classes, checked_labels, is_frame, proba_of, row_weights
from demur.estimators.candidates import (
    CANDIDATES,
    CandidateModel,
    CandidateSearch,
    Task,
    Tried,
    candidate_named,
    dense_view,
)
from demur.estimators.network_selection import Rows
from demur.estimators.splitting import Fold, blocks_of, folds_of
from demur.workers import free_cores, on_workers, progress_bar

if TYPE_CHECKING:
    from demur.columns import Schema

__all__ = ["AutoClassifier", "TableEncoding", "UninformativeModelWarning", "mixture_weights"]

_ROWS_AT_A_TIME = 1 << 14
"""Prediction works through the rows in pieces of this size, on several threads."""

_MANY_ROWS, _MOST_HELD_OUT = 50_000, 20_000
"""From so many rows on one fold is enough, and this many rows of it."""

_MOST_CODES = 255
"""As many categories as gradient boosting can tell apart."""

_ROWS_FOR_THREADS = 50_000
"""Rows from which several threads are faster than one: below, they mostly wait for each other."""


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """How a table becomes a matrix: numbers as they are, categories as codes 0, 1, ..., missing values as NaN.

    Parameters
    ----------
    schema : Schema or None
        Columns of a DataFrame and their types; None for numeric arrays, which are not encoded.
    categorical : array of bool, shape (n_columns,)
        Which columns of the matrix hold codes.
    """

    schema: "Schema | None"
    categorical: NDArray[np.bool_]

    @classmethod
    def learn(cls, estimator: Estimator, X: Features, y: AnyArray, categorical_features: ArrayLike | None) -> Self:
        """Learn the columns, and set ``n_features_in_`` and ``feature_names_in_`` of the estimator."""
        if not is_frame(X):
            array = validate_data(estimator, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
            check_consistent_length(array, y)
            return cls(None, _checked_codes(array, categorical_features))
        if categorical_features is not None:
            raise InputError(
                f"categorical_features={categorical_features!r} is for arrays; a DataFrame says by its column types "
                "which are categories: give those the type category or text, and leave categorical_features out."
            )
        from demur.columns import Schema, as_table  # Arrow is imported where there is a table to read

        validate_data(estimator, X, skip_check_array=True)
        check_consistent_length(X, y)
        table = as_table(X)
        schema = Schema.from_frame(table)  # whoever passes a DataFrame has chosen its columns
        return cls(schema, schema.categorical)

    def encode(self, estimator: Estimator, X: Features) -> NDArray[np.float64]:
        """Return the matrix for this table."""
        if self.schema is None:
            array: NDArray[np.float64] = validate_data(
                estimator, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
            )
            return array
        if not is_frame(X):
            raise InputError(
                f"fitted on a table with named columns, so it cannot read a {type(X).__name__}; give a table with the "
                "same columns."
            )
        from demur.columns import as_table

        validate_data(estimator, X, reset=False, skip_check_array=True)
        return self.schema.encode(as_table(X))


def _checked_codes(array: NDArray[np.float64], categorical_features: ArrayLike | None) -> NDArray[np.bool_]:
    mask = np.zeros(array.shape[1], dtype=bool)
    if categorical_features is None:
        return mask
    wanted = np.asarray(categorical_features)
    if not wanted.size:
        return mask
    is_mask = wanted.dtype == bool and wanted.shape == mask.shape
    if not is_mask and (wanted.dtype.kind not in "iu" or wanted.max() >= mask.size or wanted.min() < 0):
        raise InputError(
            f"categorical_features must be a mask or numbers of the {mask.size} columns, got {categorical_features!r}."
        )
    mask[wanted] = True
    codes = array[:, mask]
    known = codes[~np.isnan(codes)]
    if ((known < 0) | (known >= _MOST_CODES) | (known != np.floor(known))).any():
        raise InputError(
            f"categorical columns of an array must hold codes from 0 to {_MOST_CODES - 1}; pass a DataFrame with "
            "columns of type category instead, which may hold anything."
        )
    return mask


class AutoClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Train several kinds of model, and blend those that improve the log loss together.

    Each candidate is cross-fitted: every row gets probabilities from a model, an imputer and a scaler that were not
    fitted on it. A temperature calibrates them, :func:`mixture_weights` finds the mixture of least log loss, and one
    more temperature calibrates the mixture. The networks of all folds train as one stack and stay as an
    ensemble; other members of the mixture are then fitted on all rows. Missing values, and the category, text and date
    columns of a DataFrame, need no preparation.

    ``RejectOption("auto")`` is this classifier with a reject option.

    Parameters
    ----------
    candidates : sequence of str, optional
        Which to try, by name or short name: "extra trees" (et), "logistic regression" (lr), "gradient boosting" (hgb),
        "random forest" (rf), "lightgbm" (lgbm), "catboost" (cat), "networks" (nn: those of
        :class:`~demur.RejectClassifier`) and "periodic networks" (pnn: the same, which also see periodic functions of
        the features). By default all that are installed: ``pip install demur[boost]`` brings LightGBM and CatBoost.
    time_budget : float or None, default=90
        Time limit of ``fit`` in seconds. Each candidate gets a share of it, and is trained for fewer trees, iterations
        or epochs, or on fewer rows, where the time does not suffice; ``tried_`` reports that. None means no limit; the
        result then does not depend on the machine's speed.
    cv : int, splitter or iterable, default=5
        Folds. A number stands for shuffled folds, in which the rows of one group stay together. With a number, a table
        of more than 50,000 rows is not cross-fitted: up to 20,000 of its rows are held out once.
    categorical_features : array of bool or of int, optional
        Columns of an array that hold codes 0, 1, ... of categories. In a DataFrame the column types decide.
    n_jobs : int or None, default=-1
        Number of threads that train the forests, as in scikit-learn.
    random_state : int, RandomState or None
    verbose : int, default=0
        Whether to show a progress bar on a terminal.

    Attributes
    ----------
    tried_ : tuple of Tried
        The result of each candidate, in order.
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
    >>> model = AutoClassifier(("logistic regression", "extra trees"), cv=2, n_jobs=1, random_state=0).fit(X, y)
    >>> [one.name for one in model.tried_], round(sum(one.weight for one in model.tried_), 9)
    (['logistic regression', 'extra trees'], 1.0)
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
        self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
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
        started = time.monotonic()
        wanted = self._wanted()
        labels = checked_labels(y)
        self.encoding_ = TableEncoding.learn(self, X, labels, self.categorical_features)
        matrix = self.encoding_.encode(self, X)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        check_two_classes(self.classes_)
        weight = row_weights(matrix, sample_weight)
        blocks = blocks_of(matrix, codes, groups)
        self.equal_rows_ = blocks.equal_rows
        folds = folds_of(self.cv, matrix, codes, groups=groups, blocks=blocks)
        if isinstance(self.cv, Integral) and len(codes) > _MANY_ROWS:
            folds = [_one_fold(folds[0], blocks.of_row)]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        task = Task(len(matrix), self.encoding_.categorical, seed, self.n_jobs, int(np.bincount(codes).min()))
        bar = progress_bar("training", 100 * len(wanted)) if self.verbose and sys.stderr.isatty() else None
        # OpenMP threads spin while they wait: two on a core that another process uses can take forty times as long.
        threads = ThreadpoolController().limit(limits=free_cores() if len(matrix) >= _ROWS_FOR_THREADS else 1)
        with bar or nullcontext() as advance, threads, warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration judges what came of it
            seconds = np.inf if self.time_budget is None else self.time_budget - (time.monotonic() - started)
            search = CandidateSearch(Rows(matrix, codes, weight), folds, task, seconds, advance or (lambda *_: None))
            self._blend(search, wanted)
        return self

    def _blend(self, search: CandidateSearch, wanted: Sequence[CandidateModel]) -> None:
        fitted = search.run(wanted)
        rows, weight = search.held_out_rows, search.held_out_weight
        weights = mixture_weights([one.true_class for one in fitted], weight)
        members = [(one, share) for one, share in zip(fitted, weights, strict=True) if share]
        mixture = sum(share * one.proba for one, share in members)
        self.scaling_ = TemperatureScaling().fit(mixture, search.y[rows], weight)
        self.held_out_rows_, self.held_out_proba_ = rows, self.scaling_.transform(mixture)
        warn_if_uninformative(self.held_out_proba_, search.y[rows], weight)
        self.dense_ = dense_view(self.encoding_.categorical).fit(search.codes)
        self.numbers_ = search.numbers
        views = self._views(search.codes, {one.candidate.view for one, _ in members if one.model is None})
        self.models_ = tuple(
            search.fit_all_rows(one, views.get(one.candidate.view, search.codes)) for one, _ in members
        )
        self.weights_ = tuple(share for _, share in members)
        self.scalings_ = tuple(one.scaling for one, _ in members)
        self.views_ = tuple(one.candidate.view for one, _ in members)
        reports = {one.candidate.name: one.report(share, weight) for one, share in zip(fitted, weights, strict=True)}
        left_out = {one.name: Tried(one.name, 0.0, None, None, 0.0, "left out: no time was left") for one in wanted}
        self.tried_ = tuple((left_out | reports).values())

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the calibrated probabilities of the blend."""
        check_is_fitted(self)
        matrix = self.encoding_.encode(self, X)
        if not len(matrix):
            return np.empty((0, len(self.classes_)))
        views = self._views(matrix, set(self.views_))
        starts = range(0, len(matrix), _ROWS_AT_A_TIME)
        pieces = [{name: rows[start : start + _ROWS_AT_A_TIME] for name, rows in views.items()} for start in starts]
        mixture = np.concatenate(on_workers(self._mixture, pieces)) if len(pieces) > 1 else self._mixture(views)
        return np.asarray(self.scaling_.transform(mixture), dtype=np.float64)

    def _mixture(self, views: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        every = np.arange(len(self.classes_))
        mixture = np.zeros((len(views["codes"]), len(every)))
        for model, share, scaling, view in zip(self.models_, self.weights_, self.scalings_, self.views_, strict=True):
            mixture += share * scaling.transform(proba_of(model, views[view], every))
        return mixture

    def predict(self, X: Features) -> AnyArray:
        """Return the likeliest class of each row."""
        proba = self.predict_proba(X)
        likeliest: AnyArray = self.classes_[proba.argmax(axis=1)]
        return likeliest

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _wanted(self) -> list[CandidateModel]:
        if self.candidates is None:
            return [candidate for candidate in CANDIDATES if candidate.is_installed]
        known = [one for one in map(candidate_named, dict.fromkeys(self.candidates)) if one is not None]
        if not known or len(known) < len(set(self.candidates)):
            names = ", ".join(f"{one.name} ({one.key})" for one in CANDIDATES)
            raise InputError(f"candidates must be some of {names}; got {self.candidates!r}.")
        missing = [one.name for one in known if not one.is_installed]
        if missing:
            raise MissingExtraError(f"the candidate {missing[0]!r} needs a package: pip install demur[boost]")
        return list(dict.fromkeys(known))

    def _views(self, codes: NDArray[np.float64], wanted: set[str]) -> dict[str, NDArray[np.float64]]:
        """Return the codes of the rows, and the wanted transformations of them."""
        views = {"codes": codes}
        for name, transformer in (("dense", self.dense_), ("numbers", self.numbers_)):
            if name in wanted:
                views[name] = codes if transformer is None else np.asarray(transformer.transform(codes), np.float64)
        return views


class UninformativeModelWarning(UserWarning):
    """A model's probabilities for held-out rows are worse than the class frequencies."""


def warn_if_uninformative(proba: FloatArray, y: NDArray[np.int64], weight: NDArray[np.float64] | None) -> None:
    """Warn where the log loss of held-out rows is much higher than that of the class frequencies.

    The sums of the log losses must differ by 10 and by a tenth, because few rows prove nothing.

    Examples
    --------
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     warn_if_uninformative(np.array([[0.9, 0.1]] * 40), np.array([0, 1] * 20), None)
    >>> print(caught[0].message.args[0][:57])
    held-out rows are predicted worse than by the frequencies
    """
    log_loss = -np.average(np.log(np.maximum(proba[np.arange(len(y)), y], _SMALLEST)), weights=weight)
    frequency = np.bincount(y, weight) / (len(y) if weight is None else weight.sum())
    known = frequency[frequency > 0]
    entropy = -(known * np.log(known)).sum()
    if len(y) * (log_loss - 1.1 * entropy) > 10:
        warnings.warn(
            f"held-out rows are predicted worse than by the frequencies of the classes (log loss {log_loss:.3g}, not "
            f"{entropy:.3g}); try another model, more rows, or leave out classes that have few rows.",
            UninformativeModelWarning,
            stacklevel=3,
        )


def _one_fold(fold: Fold, block: NDArray[np.int64]) -> Fold:
    """Return a fold that holds out a part of what this one does, and trains on all the rest but what belongs to it."""
    train, test = fold
    kept = test[: max(1, min(len(test), _MOST_HELD_OUT))]
    rest = test[len(kept) :]
    return np.sort(np.r_[train, rest[~np.isin(block[rest], block[kept])]]), kept


_SMALLEST = 1e-12
_PRIOR = 2.0
"""Rows that the prior gives to each model."""
_LEAST = 0.02
"""Models with a smaller weight are left out."""


def mixture_weights(true_class_proba: Sequence[ArrayLike], sample_weight: ArrayLike | None = None) -> tuple[float, ...]:
    """Return the weights of the mixture of models that has the least log loss, with a prior that favours equal weights.

    The log loss of a mixture is convex in the weights, and expectation maximisation finds its minimum. It depends on
    the probabilities of the true classes only. There are as many weights as models, so they overfit little: by about
    (models - 1) / (2 rows). A Dirichlet prior of two rows per model keeps few rows from excluding a model.

    Parameters
    ----------
    true_class_proba : sequence of arrays of shape (n,)
        For each model, its out-of-fold probability of the true class of each row.
    sample_weight : array of shape (n,), optional

    Examples
    --------
    Two models that are each good on half of the rows are better together than the third, which is mediocre on all:

    >>> [round(share, 2) for share in mixture_weights([[0.9, 0.3] * 500, [0.3, 0.9] * 500, [0.5, 0.5] * 500])]
    [0.5, 0.5, 0.0]
    """
    columns = np.maximum(np.array([np.asarray(one, dtype=np.float64) for one in true_class_proba]), _SMALLEST)
    rows = np.ones(columns.shape[1]) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    shares = np.full(len(columns), 1 / len(columns))
    for _ in range(2000):
        of_row = shares[:, None] * columns
        claimed = (of_row / of_row.sum(0)) @ rows + _PRIOR
        after = claimed / claimed.sum()
        moved = np.abs(after - shares).max()
        shares = after
        if moved < 1e-6:
            break
    floor = _PRIOR / (rows.sum() + _PRIOR * len(columns))
    shares = np.where(shares - floor < _LEAST, 0.0, shares) if (shares - floor).max() >= _LEAST else shares
    return tuple((shares / shares.sum()).tolist())
