"""Base classes of the estimators, checks of their input, probabilities, out-of-distribution rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import _safe_indexing, assert_all_finite, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, _check_sample_weight, check_consistent_length, validate_data

from demur.array_types import AnyArray, ByName, CostLike, Estimator, Features, Floats, Ints, Mask, Objects
from demur.costs import check_cost
from demur.errors import InputError, InputTypeError, UserError
from demur.estimators.splitting import Blocks, Fold, blocks_of, folds_of, usable_folds, validation_rows
from demur.metrics import zero_one_c_risk
from demur.metrics.predictions import is_missing
from demur.novelty import FEWEST_ROWS, UNSEEN, Novelty
from demur.rules import Decision
from demur.workers import progress_bar

if TYPE_CHECKING:
    from demur.columns import Schema


class ProbabilityClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that has probabilities and predicts the likeliest class."""

    def predict(self, X: Features) -> AnyArray:
        """Return the likeliest class of each row."""
        best = self.predict_proba(X).argmax(axis=1)  # which checks that the classifier is fitted
        likeliest: AnyArray = self.classes_[best]
        return likeliest


class NothingToFit(ProbabilityClassifier):
    """Base class of classifiers that were fitted elsewhere."""

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Features, y: Any = None) -> Self:
        """Return the classifier as it is: it learns nothing from rows."""
        return self


class RejectingClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier that may decline: :class:`~demur.RejectClassifier` and :class:`~demur.RejectOption`.

    Both have these methods and properties, so that code that uses them works with either.

    Attributes
    ----------
    classes_ : array
    reject_label_ : object
        Label that ``predict`` returns for declined rows.
    """

    cost: CostLike
    novelty: float | str | None
    classes_: AnyArray
    reject_label_: Any
    predict_proba: Any

    def decide(self, X: Features, cost: CostLike = None) -> Decision[AnyArray]:
        """Decide for each row: which class, and whether to answer.

        Parameters
        ----------
        X : array or table of shape (n_rows, n_features)
        cost : float or array of one per row, optional
            Cost to use instead of the classifier's, if ``cost_adjustable``.
        """
        return self.decide_and_score(X, cost)[0]

    @abstractmethod
    def decide_and_score(self, X: Features, cost: CostLike = None) -> tuple[Decision[AnyArray], Floats]:
        """Return the decisions, and for each row one score per class.

        The scores are probabilities where ``has_proba``, else the scores that were trained.

        Parameters
        ----------
        X, cost
            As for :meth:`decide`.
        """

    def explain(self) -> str | None:
        """Explain how the rule decides and what it guarantees; None for Chow's rule at ``cost``."""
        return None

    @property
    @abstractmethod
    def has_proba(self) -> bool:
        """Whether there are class probabilities."""

    @property
    @abstractmethod
    def effective_cost(self) -> float | None:
        """The cost of one rejection that decisions are based on; None if there is no single cost."""

    @property
    @abstractmethod
    def why_cost_fixed(self) -> str | None:
        """The reason why another cost needs a refit; None if it needs none."""

    @property
    def cost_adjustable(self) -> bool:
        """Whether ``decide`` accepts another cost without a refit."""
        return self.why_cost_fixed is None

    def predict(self, X: Features) -> AnyArray:
        """Return a class for each row, or ``reject_label_`` where the classifier declines."""
        return self.decide(X).labels(self.classes_, self.reject_label_)

    def decision_function(self, X: Features) -> Floats:
        """Return a score per class, or for two classes one score that is positive for the second.

        Log probabilities (two classes: log odds) where there are probabilities, else the trained scores.
        """
        scores: Floats
        if self.has_proba:
            scores = np.log(np.maximum(self.predict_proba(X), np.finfo(np.float64).tiny))
        else:
            scores = self.decide_and_score(X, self.effective_cost)[1]
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def score(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cost: greater is better.

        This is the 0-1-c risk at ``effective_cost``, or at the parameter ``cost`` where the rule has no cost of its
        own; with a cost matrix it is the mean cost that the matrix assigns.

        Scores at different costs are not comparable: the lower the cost of a rejection, the better the score, so a
        search over ``cost`` that uses this score always picks the lowest one. To compare models with different costs or
        rules, score all of them at the same cost: ``GridSearchCV(..., scoring=demur.metrics.zero_one_c_scorer(0.2))``.
        """
        return 0.0 - self._mean_cost(X, y, sample_weight)

    def _check_cost(self) -> None:
        if check_cost(self.cost).ndim:
            raise InputError(f"cost must be one number to fit, got {self.cost!r}; decide() takes one per row.")

    def _novel(self, X: Features) -> Mask | None:
        """Return which rows are novel; None if novelty is not checked."""
        known = getattr(self, "known_rows_", None)
        return None if known is None or self.novelty is None else known.novel(X, self.novelty)

    def _mean_cost(self, X: Features, y: ArrayLike, sample_weight: ArrayLike | None) -> float:
        price = self.cost if self.effective_cost is None else self.effective_cost
        answers = self.predict(X)
        return float(
            zero_one_c_risk(y, answers, cost=price, reject_label=self.reject_label_, sample_weight=sample_weight)
        )


def choose_reject_label(classes: AnyArray, wanted: Any = None, out_of_scope: Any = None) -> Any:
    """Return the label that ``predict`` returns for declined rows, or refuse one that is a class.

    A number that is chosen also differs from the label of out-of-scope rows.

    Examples
    --------
    >>> choose_reject_label(np.array([0, 1]))
    -1
    >>> choose_reject_label(np.array([-1, 1]))
    -2
    >>> choose_reject_label(np.array(["cat", "dog"]))
    'reject'
    >>> choose_reject_label(np.array([False, True])) is None
    True
    >>> choose_reject_label(np.array([0, 1]), wanted=1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: reject_label 1 is also a class; choose another label for declined rows.
    """
    known = set(classes.tolist())
    if wanted is not None:
        if wanted in known:
            raise InputError(f"reject_label {wanted!r} is also a class; choose another label for declined rows.")
        return wanted
    if classes.dtype.kind == "b":
        return None  # -1 would count as True in a condition
    if classes.dtype.kind in "iuf":
        return next(label for label in count(-1, -1) if label not in {*known, out_of_scope})
    if "reject" in known:
        raise InputError("one of the classes is called 'reject'; set reject_label to another label for declined rows.")
    return "reject"


def checked_labels(y: Any) -> AnyArray:
    """Return the labels as an array, or raise an error where they are not class labels."""
    if y is None:
        raise InputError("requires y to be passed, but the target y is None.")
    if not isinstance(y, np.ndarray) or y.dtype == object:
        values = np.asarray(y, dtype=object)
        if any(map(is_missing, values.ravel())):
            raise InputError("y contains missing values (None or NaN); remove those rows first.")
        if len({isinstance(value, str) for value in values.ravel()}) > 1:
            raise InputError("y mixes text with other labels; make them all text or all numbers.")
        plain = np.asarray(values.tolist())
        if plain.ndim == 1 and plain.dtype.kind in "biu":  # as objects, or of pandas' nullable types
            y = plain
    labels: AnyArray = column_or_1d(y, warn=True)
    if labels.dtype == np.uint64 and (labels <= np.iinfo(np.int64).max).all():
        labels = labels.astype(np.int64)  # NumPy joins uint64 and -1 as floats
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    if not len(labels):
        raise InputError("X and y are empty: 0 rows, at least two classes are needed.")
    return labels


def check_two_classes(classes: AnyArray) -> AnyArray:
    """Return the classes, or raise an error if there is only one."""
    if len(classes) < 2:
        found = f"only one class, {classes.tolist()[0]!r}" if len(classes) else "no row in scope"
        raise InputError(f"y holds {found}; a classifier needs at least two classes.")
    return classes


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples with their weights, blocks that stay on one side of a split, additional columns, and row numbers."""

    X: AnyArray
    y: Ints
    weight: Floats
    blocks: Blocks
    more: Floats
    rows: Ints


def row_weights(features: Features, sample_weight: ArrayLike | None) -> Floats | None:
    """Return a checked weight for each row; None where none are given."""
    if sample_weight is None:
        return None
    weight: Floats = _check_sample_weight(sample_weight, features, dtype=np.float64, ensure_non_negative=True)
    return weight


def checked_examples(
    X: AnyArray,
    y: Ints,
    weight: Floats | None,
    groups: ArrayLike | None,
    more: Floats | None = None,
) -> Examples:
    """Return the examples with a positive weight, sorted by their values, so that their order does not affect the fit.

    Parameters
    ----------
    X, y, weight, groups
    more : array of shape (n, m), optional
        Further columns of the rows.

    Examples
    --------
    >>> rows, weight = np.array([[1.0], [2.0], [0.0]]), np.array([1.0, 2.0, 0.0])
    >>> examples = checked_examples(rows, np.array([0, 1, 0]), weight, None)
    >>> examples.X.ravel(), examples.y, examples.weight
    (array([2., 1.]), array([1, 0]), array([2., 1.]))
    """
    weight = np.ones(len(X)) if weight is None else weight
    more = np.empty((len(X), 0)) if more is None else more
    keys = np.ascontiguousarray(np.column_stack([X + 0.0, y, more, weight]))  # + 0.0: -0.0 is 0.0
    order = np.argsort(keys.view(np.dtype((np.void, keys.itemsize * keys.shape[1]))).ravel(), kind="stable")
    order = order[weight[order] > 0]
    if groups is not None:
        check_consistent_length(X, groups)
        groups = np.asarray(groups)[order]
    X, y = X[order] + 0.0, y[order]
    if len(np.unique(y)) < 2:
        raise InputError("only one class has rows with a positive weight; a classifier needs at least two.")
    return Examples(X, y, weight[order], blocks_of(X, y, groups), more[order], order)


def check_whole(name: str, value: Any) -> None:
    """Refuse a parameter that is neither None nor an integer of at least 1."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}.")


_MOST_DENSE = 1 << 27
"""The largest dense size of a sparse matrix: 2^27 numbers, one gigabyte."""


def filled_up(X: Features) -> AnyArray:
    """Return a sparse matrix as a dense array."""
    if not sparse.issparse(X):
        return np.asarray(X)
    X = cast(Any, X)
    if X.shape[0] * X.shape[1] > _MOST_DENSE:
        raise InputError(
            f"a sparse matrix of {X.shape[0]:,} x {X.shape[1]:,} is too large to be filled up for networks; reduce its "
            "columns first (TruncatedSVD, SelectKBest), or take RejectOption around a linear model."
        )
    return np.asarray(X.toarray())


_FOLDS = 5
"""Folds that the networks of an ensemble hold out in turn."""


class TrainsNetworks:
    """Shared by classifiers that train networks: their parameters, and checks of their input."""

    hidden_units: int | Sequence[int] | None
    epochs: int | None
    batch_size: int | None
    n_members: int | None
    learning_rate: float | None
    validation_fraction: float
    reject_label: Any
    verbose: int

    def _learn_classes(self, X: Features, y: ArrayLike) -> tuple[AnyArray, AnyArray, Ints]:
        """Check features and labels, and return them with the numbers of the classes."""
        features, labels = self._read(X, y)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        check_two_classes(self.classes_)
        self.reject_label_ = choose_reject_label(self.classes_, self.reject_label)
        return features, labels, codes.astype(np.int64)

    def _read(self, X: Features, y: ArrayLike) -> tuple[AnyArray, AnyArray]:
        """Return the features as a matrix of numbers, and the labels."""
        features, labels = validate_data(self, X, checked_labels(y), **_NUMBERS)
        return filled_up(features), labels

    def _validated(self, X: Features) -> AnyArray:
        return filled_up(validate_data(self, X, reset=False, **_NUMBERS))

    def _hidden_units(self) -> Sequence[int] | None:
        return None if self.hidden_units is None else np.atleast_1d(self.hidden_units).tolist()

    def _check_training(self) -> None:
        """Raise an error for training parameters out of range."""
        for name in ("epochs", "batch_size", "n_members"):
            check_whole(name, getattr(self, name))
        for unit in self._hidden_units() or ():
            check_whole("hidden_units", unit)
        rate = 0.04 if self.learning_rate is None else self.learning_rate
        for name, value, most in (
            ("learning_rate", rate, np.inf),
            ("validation_fraction", self.validation_fraction, 1),
        ):
            if not isinstance(value, Real):
                raise InputTypeError(f"{name} must be a number, got {value!r}.")
            if not 0 < value < most:
                raise InputError(f"{name} must lie between 0 and {most}, got {value!r}.")

    def _folds(self, examples: Examples, rng: np.random.RandomState) -> list[Fold]:
        """Return the folds that the networks hold out in turn; none where the rows are too few."""
        if len(np.unique(examples.blocks.of_row)) < 4:
            return []
        if self.n_members == 1:
            fold = validation_rows(examples.y, examples.blocks.of_row, self.validation_fraction, rng)
            return [fold] if len(fold[0]) + len(fold[1]) == len(examples.y) else []
        return folds_of(min(_FOLDS, self.n_members or _FOLDS), examples.X, examples.y, blocks=examples.blocks)

    def _progress(self, total: int) -> Any:
        return progress_bar("training", total) if self.verbose else nullcontext()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc] # the class beside this one is scikit-learn's
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        return tags


_NUMBERS: ByName = {"dtype": [np.float64, np.float32], "ensure_all_finite": "allow-nan", "accept_sparse": "csr"}
"""Input of networks: numbers, which may be missing, also in a sparse matrix."""


def proba_of(estimator: Estimator, X: Features, classes: AnyArray, scale: float = 1.0) -> Floats:
    """Return probabilities with one column per class in ``classes``, zero for classes the estimator does not know.

    Without ``predict_proba`` the scores of ``decision_function`` are divided by ``scale`` and linked: the logistic
    function for two classes, softmax for more. Such scores are not log odds by themselves; calibration makes them.
    """
    name = type(estimator).__name__
    method = next((one for one in ("predict_proba", "decision_function") if hasattr(estimator, one)), None)
    if method is None or not hasattr(estimator, "classes_"):
        raise InputTypeError(
            f"{name} has no classes_, or neither predict_proba nor decision_function, so its confidence is unknown; "
            "use another classifier."
        )
    own, proba = np.asarray(estimator.classes_), np.asarray(getattr(estimator, method)(X), dtype=np.float64)
    if method == "decision_function":
        proba = softmax(proba / scale, axis=1) if proba.ndim > 1 else expit(np.outer(proba / scale, [-1, 1]))
    if proba.shape[1:] != own.shape:
        raise InputError(
            f"{method} of {name} has the shape {proba.shape} for {len(own)} classes; it must have a column for each "
            "(in SVC, set decision_function_shape='ovr')."
        )
    if len(unknown := np.setdiff1d(own, classes)):
        raise InputError(f"{name} knows the classes {unknown.tolist()}, which y lacks; wrap it in FrozenEstimator.")
    return aligned(proba, own, classes)


def aligned(proba: Floats, known: ArrayLike, classes: AnyArray) -> Floats:
    """Return probabilities of the classes ``known``, in any order, with one column per class in ``classes``.

    Examples
    --------
    >>> aligned(np.array([[0.8, 0.2]]), ["dog", "cat"], np.array(["bird", "cat", "dog"]))
    array([[0. , 0.2, 0.8]])
    """
    found = np.zeros((len(proba), len(classes)))
    found[:, np.searchsorted(classes, known)] = proba
    return found


def score_scale(estimator: Estimator, X: Features) -> float:
    """Return the number by which scores of a classifier without probabilities are divided before they are linked.

    At least half of the scores are then from -5 to 5. Larger ones, such as those of features in large units, would
    become probabilities of exactly 0 and 1, which no calibration can tell apart.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> X, y = [[-3.0], [-1.0], [1.0], [3.0]], [0, 0, 1, 1]
    >>> score_scale(LinearSVC().fit(X, y), X), score_scale(LinearSVC().fit(X, y), np.multiply(X, 1000)) > 100
    (1.0, True)
    """
    if hasattr(estimator, "predict_proba") or not hasattr(estimator, "decision_function"):
        return 1.0
    return max(1.0, float(np.median(np.abs(estimator.decision_function(X)))) / 5)


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Detector of out-of-distribution rows, learned from the training rows.

    Parameters
    ----------
    schema : Schema or None
        The columns of a DataFrame that does not hold numbers alone.
    novelty : Novelty
    names : list, optional
        The columns of a DataFrame of numbers, which other rows may have in another order.
    """

    schema: "Schema | None"
    novelty: Novelty
    names: list[str] | None = None

    @classmethod
    def learn(
        cls,
        X: Features,
        rate: float | str | None,
        blocks: ArrayLike | None = None,
        categorical: Mask | None = None,
    ) -> "KnownRows | None":
        """Learn from the training rows; None without a rate, or with "auto" if rows cannot be compared.

        Parameters
        ----------
        X : array or table
        rate : float, "auto" or None
            As for :class:`~demur.novelty.Novelty`.
        blocks : array of int, optional
            Rows of one block belong together.
        categorical : array of bool, optional
            Which columns of an array hold codes of categories.
        """
        if rate is None:
            return None
        found = _comparable(X)
        if found is None or len(found[1]) < FEWEST_ROWS:
            if rate == "auto":
                return None
            raise InputError(
                f"novelty={rate!r} needs at least {FEWEST_ROWS} rows of numbers, categories or dates: use None."
            )
        schema, codes = found
        kinds = categorical if schema is None else schema.categorical
        return cls(schema, Novelty(rate).fit(codes, kinds, blocks), _names(X))

    def novel(self, X: Features, rate: float | str | None) -> Mask:
        """Return which rows are unlike the training rows, at this rate."""
        if self.schema is None:
            if self.names and set(self.names) <= set(_names(X)):
                X = cast(Any, X)[self.names]
            return self.novelty.novel(np.asarray(X, dtype=np.float64), rate)
        from demur.columns import as_table

        return self.novelty.novel(self.schema.encode(as_table(X), unseen=UNSEEN), rate)


def _names(X: Any) -> list[str]:
    """Return the names of the columns of a DataFrame of pandas or polars; none for anything else."""
    return [name for name in getattr(X, "columns", ()) if isinstance(name, str)]


def _comparable(X: Features) -> "tuple[Schema | None, Floats] | None":
    """Return rows as numbers and codes, with the schema of a DataFrame that holds more than numbers; or None."""
    try:
        if is_numeric(X):
            return None, np.asarray(X, dtype=np.float64)
        if is_frame(X):
            from demur.columns import Schema, as_table

            table = as_table(X)
            schema = Schema.from_frame(table)
            return None if schema.text.all() else (schema, schema.encode(table))  # text is for the scope
    except (TypeError, ValueError, UserError):  # no table, or one that holds something else
        pass
    return None


def is_numeric(X: Features) -> bool:
    """Say whether rows are a dense matrix of numbers; a sparse one may be too large as a dense one."""
    array = np.asarray(X)  # of a sparse matrix, an array without dimensions
    return array.ndim == 2 and array.size > 0 and array.dtype.kind in "biuf"


def is_frame(X: Features) -> bool:
    """Say whether the columns can have different types."""
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "column_names") or hasattr(X, "columns")


class FeaturesOfEstimator(MetaEstimatorMixin):  # type: ignore[misc] # scikit-learn is untyped
    """The features of an estimator that wraps another, ``estimator_``."""

    estimator_: Estimator

    @property
    def n_features_in_(self) -> int:
        """The number of features that the fitted estimator saw."""
        return int(self.estimator_.n_features_in_)

    @property
    def feature_names_in_(self) -> AnyArray:
        """The names of the columns that the fitted estimator saw, where they had names."""
        return np.asarray(self.estimator_.feature_names_in_)


@dataclass(eq=False, repr=False)
class CodedLabels(FeaturesOfEstimator, ProbabilityClassifier):
    """A classifier that is fitted on class numbers 0, 1, ..., and predicts class names.

    Some classifiers, such as XGBoost's, accept no other labels. :class:`~demur.RejectOption` wraps them in this class
    if they refuse the labels.

    Parameters
    ----------
    estimator : classifier

    Attributes
    ----------
    estimator_ : fitted classifier
        The classifier, whose ``classes_`` are 0, 1, ...
    classes_ : array
        The classes by their names.
    """

    estimator: Estimator

    def fit(self, X: Features, y: AnyArray, **fit_params: Any) -> Self:
        """Fit the classifier on the numbers of the classes."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.estimator_ = clone(self.estimator).fit(X, codes, **fit_params)
        self.score_scale_ = score_scale(self.estimator_, X)
        return self

    def predict_proba(self, X: Features) -> Floats:
        """Return the classifier's probabilities, a column per class in ``classes_``."""
        return proba_of(self.estimator_, X, np.arange(len(self.classes_)), self.score_scale_)


def fit_clone(estimator: Estimator, X: Features, y: AnyArray, fit_params: ByName) -> Any:
    """Return a fitted clone, with the classes as numbers 0, 1, ... if the estimator takes nothing else.

    scikit-learn has no tag for classifiers that refuse other labels. If the fit raises ValueError for the labels and
    not for their numbers, the numbers are used.
    """
    try:
        return clone(estimator).fit(X, y, **fit_params)
    except ValueError:
        with suppress(ValueError):
            return CodedLabels(estimator).fit(X, y, **fit_params)
        raise  # the error was not about the labels


def out_of_fold_proba(
    estimator: Estimator,
    X: Features,
    y: AnyArray,
    classes: AnyArray,
    folds: Sequence[Fold],
    fit_params: ByName,
    scale: float = 1.0,
) -> tuple[Ints, Floats]:
    """Return row numbers, and the probabilities of these rows by a model that was not fitted on them.

    Rows whose class does not occur in the training part of their fold are left out, as are folds whose training part
    has a single class.

    Parameters
    ----------
    estimator : classifier
    X, y, classes, folds
    fit_params : dict
        Passed to ``fit``; arguments with one value per row are restricted to the rows of each fold.
    scale : float
        As for :func:`proba_of`.
    """
    rows, probas = [], []
    for train, test in usable_folds(folds, y, at_least_one=True):
        seen, unseen = _safe_indexing(X, train), _safe_indexing(X, test)
        model = fit_clone(estimator, seen, y[train], _check_method_params(X, fit_params, indices=train))
        rows.append(test)
        probas.append(proba_of(model, unseen, classes, scale))
    return np.concatenate(rows), np.concatenate(probas)


_LONGEST = 20_000
"""Number of characters that are read of the texts of a row; its columns of text share them."""


def joined(texts: AnyArray) -> Objects:
    """Return the text of each row: its text columns one after the other, the empty text for missing ones.

    Examples
    --------
    >>> joined(np.array([["dear all", None], ["hello", "world"]], dtype=object)).tolist()
    ['dear all', 'hello world']
    """
    longest = _LONGEST // max(texts.shape[1], 1)
    rows = ([str(one)[:longest] for one in row if one is not None and one == one] for row in texts.tolist())
    return np.array([" ".join(row) for row in rows], dtype=object)
