"""Classifiers of CatBoost, LightGBM and XGBoost, stored in the formats of their libraries.

No object of these libraries is pickled: each writes its trained model to bytes and reads it back. The libraries are
imported only where a model is trained or predicts, so that demur works without them.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from demur.array_types import AnyArray, ByName, Estimator, Features, Floats
from demur.errors import InputError, MissingExtraError
from demur.estimators.base import ProbabilityClassifier, check_two_classes


class BoostedTreesError(InputError):
    """A classifier of another library cannot be stored, or its stored model cannot be read."""


@dataclass(eq=False, repr=False)
class BoostedTrees(ProbabilityClassifier):
    """A classifier of CatBoost, LightGBM or XGBoost that can be saved without pickle.

    Parameters
    ----------
    library : {"catboost", "lightgbm", "xgboost"}
    parameters : dict, optional
        Parameters of the library's own classifier.
    categorical : sequence of int, optional
        Columns that hold category codes 0, 1, ...; for LightGBM only.

    Attributes
    ----------
    classes_ : array
    n_features_in_ : int
    content_ : array of uint8
        The trained model in its library's format: LightGBM's text, XGBoost's UBJSON or CatBoost's binary format.
    """

    library: str = "lightgbm"
    parameters: ByName | None = None
    _: KW_ONLY
    categorical: Sequence[int] | None = None

    @classmethod
    def of(cls, estimator: Estimator, library: str) -> Self:
        """Return a classifier of one of the libraries in this form, fitted if the given one is.

        Raises
        ------
        BoostedTreesError
            If a parameter is not a plain value.
        """
        trees = cls(library, _plain_parameters(estimator))
        is_fitted = estimator.is_fitted() if hasattr(estimator, "is_fitted") else hasattr(estimator, "classes_")
        if not is_fitted:
            return trees
        content = _LIBRARIES[library].content(estimator)
        trees._adopt(content, np.asarray(estimator.classes_), int(estimator.n_features_in_))
        return trees

    def fit(self, X: Features, y: AnyArray, sample_weight: AnyArray | None = None) -> Self:
        """Train the trees."""
        self.fit_within(X, y, sample_weight, lambda: np.inf)
        return self

    def fit_within(
        self,
        X: Features,
        y: AnyArray,
        weight: Any,
        left: Callable[[], float],
        at_most: float = 1.0,
        at_least: float = 0.0,
    ) -> float:
        """Train within a time limit and a share of the trees, at least one tree; return the share that was trained.

        ``left`` returns the seconds that are left. The training ends early if they will not suffice for a share
        ``at_least`` of the trees.
        """
        library = self._library()
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        classes, codes = np.unique(labels, return_inverse=True)
        check_two_classes(classes)
        given = self.parameters or {}
        model = getattr(import_module(self.library), library.classifier)(**{**library.quiet, **given})
        wanted = int(given.get("iterations") or given.get("n_estimators") or 100)
        # the number of trees has other names as well, and the library knows when all are trained
        watch = _Watch(left, max(1, round(at_most * wanted)) if at_most < 1 else np.inf, at_least * wanted)
        named = {"categorical_feature": list(self.categorical)} if self.categorical else {}
        library.fit(model, rows, codes, {"sample_weight": weight, **named}, watch)
        self._adopt(library.content(model), classes, rows.shape[1])
        return min(1.0, watch.done / wanted)

    def predict_proba(self, X: Features) -> Floats:
        """Return class probabilities of shape (n_rows, n_classes)."""
        check_is_fitted(self, "content_")
        proba = np.asarray(self._library().proba(self._read(), X), dtype=np.float64)
        return np.column_stack([1 - proba, proba]) if proba.ndim == 1 else proba

    def _read(self) -> Any:
        """Return the model as an object of its library."""
        if not hasattr(self, "_booster"):
            self._booster = self._library().load(self.content_.tobytes())
        return self._booster

    def _library(self) -> "_Library":
        if not is_installed(self.library):
            raise MissingExtraError(f"this model needs {self.library}: pip install demur[boost]")
        return _LIBRARIES[self.library]

    def _adopt(self, content: bytes, classes: AnyArray, n_features: int) -> None:
        self.__dict__.pop("_booster", None)
        self.content_ = np.frombuffer(content, dtype=np.uint8)
        self.classes_, self.n_features_in_ = classes, n_features

    def __getstate__(self) -> ByName:
        return {name: value for name, value in super().__getstate__().items() if name != "_booster"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def is_installed(library: str) -> bool:
    """Return whether a library can be imported, without importing it."""
    return importlib.util.find_spec(library) is not None


_TREES_OF_A_FORECAST = 5
"""Number of trees after which the time per tree is used to predict how many can be trained."""


class _Watch:
    """Callback that stops training after a number of trees, or if the time is up or will not suffice."""

    def __init__(self, left: Callable[[], float], most: float, least: float) -> None:
        self.left, self.most, self.least = left, most, least
        self.start, self.done = left(), most

    def over(self, done: float) -> bool:
        self.done, left = done, self.left()
        if done >= self.most or left <= 0:
            return True
        return done >= _TREES_OF_A_FORECAST and done * self.start < self.least * (self.start - left)


@dataclass(frozen=True)
class _Library:
    """Functions to train, store, read and call the models of one library."""

    classifier: str
    quiet: ByName
    fit: Callable[[Any, AnyArray, AnyArray, ByName, _Watch], None]
    content: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    proba: Callable[[Any, Features], AnyArray]


def _plain_parameters(estimator: Estimator) -> ByName:
    """Return the parameters that are set; each must be a plain value, because functions cannot be stored."""
    plain: ByName = {}
    for name, value in estimator.get_params().items():
        if value is None or (isinstance(value, float) and np.isnan(value)):
            continue
        if not isinstance(value, (bool, int, float, str, list, tuple, np.integer, np.floating)):
            raise BoostedTreesError(f"its parameter {name} is a {type(value).__name__}, which cannot be saved.")
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain


def _lightgbm_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, watch: _Watch) -> None:
    stop = import_module("lightgbm").callback.EarlyStopException

    def after_each(env: Any) -> None:
        if watch.over(env.iteration + 1):
            raise stop(env.iteration, [])

    model.fit(X, y, **named, callbacks=[after_each])


def _lightgbm_content(model: Any) -> bytes:
    booster = model.booster_
    text: str = booster.model_to_string(num_iteration=booster.best_iteration or -1)
    return text.encode()


def _xgboost_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, _: _Watch) -> None:
    model.fit(X, y, **named)  # it is no candidate of "auto", so that no time limits it


def _xgboost_content(model: Any) -> bytes:
    booster = model.get_booster()
    if booster.attr("best_iteration") is not None:
        booster = booster[: int(booster.attr("best_iteration")) + 1]
    return bytes(booster.save_raw("ubj"))


def _xgboost_load(content: bytes) -> Any:
    booster = import_module("xgboost").Booster({"nthread": 1})
    booster.load_model(bytearray(content))
    return booster


def _catboost_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, watch: _Watch) -> None:
    class AfterEach:
        def after_iteration(self, info: Any) -> bool:
            return not watch.over(info.iteration)

    model.fit(X, y, **named, callbacks=[AfterEach()])


def _catboost_content(model: Any) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.cbm")
        model.save_model(str(path), format="cbm")
        return path.read_bytes()


def _xgboost_proba(booster: Any, X: Features) -> Any:
    rows = import_module("xgboost").DMatrix(X, enable_categorical=True, nthread=1)
    return booster.predict(rows, validate_features=False)


_LIBRARIES = {
    "catboost": _Library(
        "CatBoostClassifier",
        {"verbose": False, "allow_writing_files": False},
        _catboost_fit,
        _catboost_content,
        lambda content: import_module("catboost").CatBoostClassifier().load_model(blob=content),
        lambda model, X: model.predict_proba(X, thread_count=1),
    ),
    "lightgbm": _Library(
        "LGBMClassifier",
        {"verbose": -1},
        _lightgbm_fit,
        _lightgbm_content,
        lambda content: import_module("lightgbm").Booster(model_str=content.decode()),
        lambda booster, X: booster.predict(X, num_threads=1),
    ),
    "xgboost": _Library("XGBClassifier", {}, _xgboost_fit, _xgboost_content, _xgboost_load, _xgboost_proba),
}
"""The classifier of each library, and its functions."""

LIBRARIES = {name: library.classifier for name, library in _LIBRARIES.items()}
"""The name of the classifier of each library."""
