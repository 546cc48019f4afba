"""AutoClassifier: several models, cross-fitted and blended, as a strong default for tables."""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length, check_is_fitted, check_random_state, validate_data
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped] # it has no types

from demur.array_types import AnyArray, ByName, Estimator, Features, Floats, Ints, Mask, Objects
from demur.calibration import TemperatureScaling
from demur.errors import InputError, MissingExtraError
from demur.estimators.base import (
    ProbabilityClassifier,
    check_two_classes,
    checked_labels,
    is_frame,
    joined,
    proba_of,
    row_weights,
)
from demur.estimators.boosted_trees import is_installed
from demur.estimators.candidates import (
    CANDIDATES,
    CandidateModel,
    CandidateSearch,
    Task,
    Tried,
    candidate_named,
    dense_view,
    mixture_weights,
)
from demur.estimators.network_selection import Rows
from demur.estimators.splitting import Fold, blocks_of, folds_of
from demur.estimators.text_features import DenseText, beside, top_score
from demur.training.robust_scaling import LARGEST
from demur.workers import BusyClock, on_workers, progress_bar

if TYPE_CHECKING:
    from demur.columns import Schema

_ROWS_AT_A_TIME = 1 << 14
"""Number of rows that are predicted at a time, on several threads."""

_MANY_ROWS, _MOST_HELD_OUT = 50_000, 20_000
"""Number of rows from which one fold is enough, and the maximum number of its rows."""

_MOST_CODES = 255
"""Maximum number of categories that gradient boosting supports."""

_SECONDS_OF_FAST = 10.0
"""Time limit of the preset "fast" in seconds."""

_PRESETS = {
    "fast": ("lr", "boosting"),
    "default": ("text", "lr", "et", "boosting", "cat", "nn", "pnn"),
    "best": tuple(one.key for one in CANDIDATES),
}
"""Candidates of each preset; "boosting" is LightGBM where it is installed."""

_FOR_TEXT = {"text", "lr", "boosting", "nn"}
"""Forests and one-versus-rest trees are slow and weak on hundreds of columns with little information each."""


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """The encoding of a table as a matrix: numbers unchanged, categories as codes 0, 1, ..., missing values as NaN.

    Parameters
    ----------
    schema : Schema or None
        Columns of a DataFrame and their types; None for numeric arrays, which are not encoded.
    categorical : array of bool, shape (n_columns,)
        Which columns of the matrix hold codes.
    text : array of bool
        Which columns of the table or array are text. The matrix has a dense view of them, after the other columns.
    dense_text : DenseText or None
    """

    schema: "Schema | None"
    categorical: Mask
    text: Mask
    dense_text: DenseText | None = None

    @classmethod
    def learn(
        cls,
        estimator: Estimator,
        X: Features,
        y: AnyArray,
        categorical_features: ArrayLike | None,
        text_features: ArrayLike | None = None,
    ) -> Self:
        """Learn the columns, and set ``n_features_in_`` and ``feature_names_in_`` of the estimator."""
        if not is_frame(X):
            array = validate_data(estimator, X, **_numbers(text_features is not None), ensure_min_samples=2)
            check_consistent_length(array, y)
            text = _mask(array.shape[1], text_features, "text_features")
            codes = array[:, ~text].astype(np.float64)
            categorical = _mask(array.shape[1], categorical_features, "categorical_features")[~text]
            known = codes[:, categorical][~np.isnan(codes[:, categorical])]
            if ((known < 0) | (known >= _MOST_CODES) | (known != np.floor(known))).any():
                raise InputError(
                    f"categorical columns of an array must hold codes from 0 to {_MOST_CODES - 1}; pass a DataFrame "
                    "with columns of type category instead, which may hold anything."
                )
            return cls(None, categorical, text)._with_text(joined(array[:, text]))
        if categorical_features is not None:
            raise InputError(
                f"categorical_features={categorical_features!r} is for arrays; a DataFrame says by its column types "
                "which are categories: give those the type category or text, and leave categorical_features out."
            )
        from demur.columns import Schema, as_table  # Arrow is imported where there is a table to read

        validate_data(estimator, X, skip_check_array=True)
        check_consistent_length(X, y)
        table = as_table(X)
        named: list[str] = [] if text_features is None else [str(name) for name in np.asarray(text_features)]
        # all columns of a DataFrame are used: the user has chosen them
        schema = Schema.learn(table, keep=table.column_names, text=named)
        schema = replace(schema, remarks={})  # numbers beyond 1e30 are clipped, as in arrays, and not missing
        return cls(schema, schema.categorical[~schema.text], schema.text)._with_text(joined(schema.texts(table)))

    def _with_text(self, texts: Objects) -> Self:
        """Learn the dense view of the texts, where there are any."""
        if not self.text.any():
            return self
        dense = DenseText.learn(texts)
        width = dense.transform(texts[:1]).shape[1]
        return replace(self, categorical=np.append(self.categorical, np.zeros(width, dtype=bool)), dense_text=dense)

    @property
    def n_other(self) -> int:
        """The number of columns of the matrix that are not the dense view of text."""
        return int((~self.text).sum())

    def encode(self, estimator: Estimator, X: Features) -> "Encoded":
        """Return the matrix for this table, and its texts if it has any."""
        if self.schema is None:
            array = validate_data(estimator, X, reset=False, **_numbers(bool(self.text.any())))
            codes, texts = array[:, ~self.text].astype(np.float64, copy=False), joined(array[:, self.text])
        elif is_frame(X):
            from demur.columns.frames import as_table, has_infinity

            validate_data(estimator, X, reset=False, skip_check_array=True)
            table = as_table(X)
            for name in table.column_names:
                if has_infinity(table[name]):
                    raise InputError(f"column {name!r} holds an infinite value; use NaN for a missing one.")
            codes, texts = self.schema.encode(table)[:, ~self.text], joined(self.schema.texts(table))
        else:
            raise InputError(
                f"the model was fitted on a table, got a {type(X).__name__}; give a table with the same columns."
            )
        codes = np.clip(codes, -LARGEST, LARGEST)
        if self.dense_text is None:
            return Encoded(codes)
        points, ngrams = self.dense_text.with_ngrams(texts)
        return Encoded(np.hstack([codes, points]), texts, ngrams)


class Encoded(NamedTuple):
    """A table as a matrix of numbers, and its texts and their n-grams if it has any."""

    matrix: Floats
    texts: Objects | None = None
    ngrams: Any = None


def _numbers(with_text: bool) -> ByName:
    """Return how scikit-learn checks an array: numbers that may be missing, or any values."""
    return {"dtype": object if with_text else np.float64, "ensure_all_finite": False if with_text else "allow-nan"}


def _mask(n_columns: int, columns: ArrayLike | None, name: str) -> Mask:
    """Return the columns given by a mask or by numbers as a mask."""
    mask = np.zeros(n_columns, dtype=bool)
    wanted = np.asarray([] if columns is None else columns)
    if not wanted.size:
        return mask
    is_mask = wanted.dtype == bool and wanted.shape == mask.shape
    if not is_mask and (wanted.dtype.kind not in "iu" or wanted.max() >= mask.size or wanted.min() < 0):
        raise InputError(f"{name} must be a mask or numbers of the {mask.size} columns, got {columns!r}.")
    mask[wanted] = True
    return mask


@dataclass(eq=False, repr=False)
class AutoClassifier(ProbabilityClassifier):
    """Train several kinds of models, and blend those that improve the log loss of the blend.

    Each candidate is cross-fitted: the probabilities of every row come from a model, an imputer and a scaler that were
    not fitted on it. A temperature calibrates them, :func:`mixture_weights` finds the mixture with the lowest log loss,
    and a share of the class frequencies and another temperature calibrate the mixture. The networks of all folds are
    trained as one stack and used as an ensemble; the other members of the mixture are then fitted on all rows. Missing
    values, and the category, text and date columns of a DataFrame, need no preparation.

    ``RejectOption("auto")`` is this classifier with a reject option.

    Parameters
    ----------
    candidates : sequence of str, optional
        Candidates to try, by name or short name: "linear model of text" (text, on n-grams), "extra trees" (et),
        "logistic regression" (lr), "gradient boosting" (hgb), "random forest" (rf), "lightgbm" (lgbm), "catboost"
        (cat), "networks" (nn, as in :class:`~demur.RejectClassifier`) and "periodic networks" (pnn, with periodic
        functions of the features as further inputs). By default those of the preset that are installed; for tables with
        text, only "text", lr, nn and one of lgbm and hgb. ``pip install demur[boost]`` installs LightGBM and CatBoost,
        and ``demur[text]`` static embeddings of text.
    preset : {"default", "fast", "best"}
        Set of candidates. "fast" is the better of logistic regression and one kind of boosting, in at most 10 seconds.
        "default" leaves out random forests, and scikit-learn's gradient boosting if LightGBM is installed; "best" tries
        all candidates.
    time_budget : float or None, default=90
        Time limit of ``fit`` in seconds. All candidates are trained on the first fold; those that improve the blend are
        then trained on as many of the other folds as there is time for, and networks use the rest of the time.
        Candidates that would get less than 40 % of their training, or that are so slow that there would be too few
        held-out rows (below about 1,000), are left out; ``starved`` names them. On Linux, time
        in which other programs keep the cores busy does not count, but ``fit`` takes at most about twice the budget.
        None means no limit; the result then does not depend on the speed of the machine.
    cv : int, splitter or iterable, default=5
        Folds, or the number of shuffled folds, in which the rows of one group stay together. With a number, a table of
        more than 50,000 rows is not cross-fitted: up to 20,000 of its rows are held out once.
    categorical_features : array of bool or of int, optional
        Columns of an array that hold codes 0, 1, ... of categories. In a DataFrame the column types decide.
    text_features : array of bool, int or str, optional
        Columns that hold text: a mask or numbers for an array, names for a DataFrame, where columns of long texts that
        mostly differ are text in any case.
    n_jobs : int or None, default=-1
        Number of parallel fits, each with one thread. Inside ``joblib.parallel_config(backend="dask")`` they run on the
        workers of a Dask cluster, as with ``demur fit --scheduler``.
    random_state : int, RandomState or None
    verbose : int, default=0
        Whether to show a progress bar on a terminal.

    Attributes
    ----------
    tried_ : tuple of Tried
        The result of each candidate; those that were trained come first, in the order of ``models_``.
    models_, weights_, scalings_ : tuples
        The members of the blend, their shares and temperatures.
    scaling_ : TemperatureScaling
        Calibration of the blend: a share of the class frequencies, then a temperature.
    held_out_rows_, held_out_proba_ : arrays
        The out-of-fold probabilities of the calibrated blend, and the rows they belong to.
    equal_rows_ : int
        Number of rows with the features of an earlier row.
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

    candidates: Sequence[str] | None = None
    _: KW_ONLY
    preset: str = "default"
    time_budget: float | None = 90.0
    cv: Any = 5
    categorical_features: ArrayLike | None = None
    text_features: ArrayLike | None = None
    n_jobs: int | None = -1
    random_state: Any = None
    verbose: int = 0

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
        budget = self.time_budget or np.inf
        budget = min(budget, _SECONDS_OF_FAST) if self.preset == "fast" and self.time_budget else budget
        clock = BusyClock()
        labels = checked_labels(y)
        self.encoding_ = encoding = TableEncoding.learn(self, X, labels, self.categorical_features, self.text_features)
        wanted = self._wanted(encoding.dense_text is not None, encoding.n_other)
        encoded = encoding.encode(self, X)
        matrix = encoded.matrix
        self.classes_, codes = np.unique(labels, return_inverse=True)
        check_two_classes(self.classes_)
        weight = row_weights(matrix, sample_weight)
        blocks = blocks_of(matrix, codes, groups)
        self.equal_rows_ = blocks.equal_rows
        folds = folds_of(self.cv, matrix, codes, groups=groups, blocks=blocks)
        if isinstance(self.cv, Integral) and len(codes) > _MANY_ROWS:
            folds = [_one_fold(folds[0], blocks.of_row)]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        task = Task(encoding.categorical, seed, self.n_jobs, int(np.bincount(codes).min()), encoding.n_other)
        bar = progress_bar("training", 100 * len(wanted)) if self.verbose else None
        # OpenMP threads spin while they wait: two on a core that another process uses can take forty times as long.
        threads = ThreadpoolController().limit(limits=1)
        with bar or nullcontext() as advance, threads, warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=ConvergenceWarning)  # the held-out log loss shows its effect
            progress = advance or (lambda *_: None)
            search = CandidateSearch(Rows(matrix, codes, weight), folds, task, budget, clock, progress, encoded.texts)
            self._blend(search, wanted, encoded)
        return self

    def _blend(self, search: CandidateSearch, wanted: Sequence[CandidateModel], encoded: Encoded) -> None:
        fitted, found = search.run(wanted)
        rows, weight = search.held_out()
        weights = np.array(found)
        if encoded.texts is not None:
            # A held-out row is predicted by the one network that was not trained on it, and for text the ensemble is
            # much better than that: the models that improve the blend get weights halfway to equal ones.
            kept = np.flatnonzero(weights)
            weights[kept] = mixture_weights([fitted[k].true_class for k in kept], weight, len(rows) / len(kept))
        if self.preset == "fast":
            weights = np.eye(len(fitted))[np.argmin([one.log_loss for one in fitted])]
        shares = weights.tolist()
        members = [(one, share) for one, share in zip(fitted, shares, strict=True) if share]
        mixture = sum(share * one.proba for one, share in members)
        self.scaling_ = TemperatureScaling(smooth=True).fit(mixture, search.y[rows], weight)
        self.held_out_rows_, self.held_out_proba_ = rows, self.scaling_.transform(mixture)
        self.dense_: Any = None  # a dense view of text alone stays as it is
        if search.task.n_other:
            self.dense_ = dense_view(self.encoding_.categorical, search.task.n_text).fit(search.codes)
        self.numbers_ = search.numbers
        self.beside_text_ = search.other_view(np.arange(len(search.y))) if encoded.texts is not None else None
        views = self._views(encoded, {one.candidate.view for one, _ in members if one.model is None})
        self.held_out_top_ = next((np.concatenate(one.tops)[: len(rows)] for one, _ in members if one.tops), None)
        self.models_ = search.fit_all_rows([one for one, _ in members], views)
        self.weights_ = tuple(share for _, share in members)
        self.scalings_ = tuple(one.scaling for one, _ in members)
        self.views_ = tuple(one.candidate.view for one, _ in members)
        reports = [one.report(share) for one, share in zip(fitted, shares, strict=True)]
        late = [Tried(one.name, 0.0, None, None, 0.0, 0.0, "left out: the time budget is too short") for one in wanted]
        # those of the blend come first, in the order of models_
        self.tried_ = tuple({one.name: one for one in (*reports, *late, *search.rejected, *reports)}.values())

    @property
    def starved(self) -> str | None:
        """A sentence on candidates whose training the time budget shortened or prevented; None if there are none."""
        short = [f"{one.name} {one.trained:.0%}" for one in self.tried_ if one.trained < 0.995]
        if not short:
            return None
        return (
            f"The time budget allowed only part of the training: {', '.join(short)}. More time may improve the model."
        )

    def predict_proba(self, X: Features) -> Floats:
        """Return the calibrated probabilities of the blend."""
        return self._blended(X)[0]

    def predict_with_points(self, X: Features) -> tuple[Floats, Floats, Floats | None, Any]:
        """Return the probabilities, the points whose distances compare rows, and for text a score and the n-grams.

        The points are the embeddings of the texts, without embeddings their SVD, or else all columns on one scale. The
        score is the largest one-versus-rest score of the candidate "text"; None where that is not in the blend.
        """
        proba, encoded, views = self._blended(X)
        if not len(proba):
            return proba, np.empty((0, 1)), None, None
        if encoded.texts is None:
            return proba, (views if "dense" in views else self._views(encoded, {"dense"}))["dense"], None, None
        linear = next((model for model, view in zip(self.models_, self.views_, strict=True) if view == "text"), None)
        top = None if linear is None else top_score(linear, views["text"])
        dense = self.encoding_.dense_text
        assert dense is not None
        points = encoded.matrix[:, self.encoding_.n_other + (0 if dense.embeddings is None else dense.axes.shape[1]) :]
        return proba, points, top, encoded.ngrams

    def _blended(self, X: Features) -> tuple[Floats, Encoded, dict[str, Any]]:
        """Return the probabilities, the table as a matrix, and the views of it that the members read."""
        check_is_fitted(self)
        encoded = self.encoding_.encode(self, X)
        if not len(encoded.matrix):
            return np.empty((0, len(self.classes_))), encoded, {}
        views = self._views(encoded, set(self.views_))
        starts = range(0, len(encoded.matrix), _ROWS_AT_A_TIME)
        pieces = [{name: rows[start : start + _ROWS_AT_A_TIME] for name, rows in views.items()} for start in starts]
        mixture = np.concatenate(on_workers(self._mixture, pieces)) if len(pieces) > 1 else self._mixture(views)
        return np.asarray(self.scaling_.transform(mixture), dtype=np.float64), encoded, views

    def _mixture(self, views: dict[str, Any]) -> Floats:
        every = np.arange(len(self.classes_))
        mixture = np.zeros((len(views["codes"]), len(every)))
        for model, share, scaling, view in zip(self.models_, self.weights_, self.scalings_, self.views_, strict=True):
            mixture += share * scaling.transform(_proba_of(model, views[view], every))
        return mixture

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags

    def _wanted(self, with_text: bool, n_other: int) -> list[CandidateModel]:
        """Return the candidates to try, given whether there is text and the number of other columns."""
        if self.preset not in _PRESETS:
            raise InputError(f"preset must be one of {', '.join(_PRESETS)}, got {self.preset!r}.")
        if self.candidates is None:
            keys = {*_PRESETS[self.preset]}
            keys = keys & _FOR_TEXT if with_text else keys - {"text"}
            if "boosting" in keys and n_other:
                keys.add("lgbm" if is_installed("lightgbm") else "hgb")
            return [one for one in CANDIDATES if one.key in keys and one.is_installed]
        known = list(dict.fromkeys(filter(None, map(candidate_named, self.candidates))))
        if not known or not all(map(candidate_named, self.candidates)):
            names = ", ".join(f"{one.name} ({one.key})" for one in CANDIDATES)
            raise InputError(f"candidates must be some of {names}; got {self.candidates!r}.")
        if not with_text and any(one.view == "text" for one in known):
            raise InputError(
                "the candidate 'text' needs a column of text, with long texts that mostly differ: name a column with "
                "--text, or the text_features of an array, or choose other candidates."
            )
        missing = [one.name for one in known if not one.is_installed]
        if missing:
            raise MissingExtraError(f"the candidate {missing[0]!r} needs a package: pip install demur[boost]")
        return known

    def _views(self, encoded: Encoded, wanted: set[str]) -> dict[str, Any]:
        """Return the codes of the rows, and the wanted transformations of them."""
        codes = encoded.matrix
        views: dict[str, Any] = {"codes": codes}
        if "text" in wanted:
            views["text"] = beside(encoded.ngrams, self.beside_text_, codes[:, : self.encoding_.n_other])
        for name, transformer in (("dense", self.dense_), ("numbers", self.numbers_)):
            if name in wanted:
                views[name] = codes if transformer is None else transformer.transform(codes)
        return views


def _proba_of(model: Estimator, X: Features, classes: Ints) -> Floats:
    """Return the probabilities of a member; those of a forest without the threads, which are slow for one row."""
    if not hasattr(model, "estimators_") or len(model.classes_) < len(classes):
        return proba_of(model, X, classes)
    rows = np.ascontiguousarray(X, dtype=np.float32)
    total: Floats = sum(tree.tree_.predict(rows) for tree in model.estimators_)
    return total / len(model.estimators_)


def _one_fold(fold: Fold, block: Ints) -> Fold:
    """Return a fold that holds out a part of this fold's test rows, and trains on all rows of other blocks."""
    train, test = fold
    kept = test[:_MOST_HELD_OUT]
    rest = test[len(kept) :]
    return np.sort(np.r_[train, rest[~np.isin(block[rest], block[kept])]]), kept
