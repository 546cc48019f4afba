"""Boosted trees of CatBoost, LightGBM and XGBoost, kept as text in the format of their library.

The text is what predicts, is saved and is checked: no object of these libraries is ever pickled. They are imported
only where trees are trained or asked, so that demur works without them.
"""

import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from demur.array_types import AnyArray, ByName, Estimator, Features
from demur.errors import InputError, MissingExtraError

__all__ = ["LIBRARIES", "BoostedTrees", "BoostedTreesError", "is_installed", "library_of"]


class BoostedTreesError(InputError):
    """Boosted trees cannot be kept, or a text holds none that can be used."""


class BoostedTrees(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """A classifier of CatBoost, LightGBM or XGBoost that can be saved without pickle.

    Parameters
    ----------
    library : {"catboost", "lightgbm", "xgboost"}
    parameters : dict, optional
        For the library's own classifier.
    categorical : sequence of int, optional
        Columns that hold codes 0, 1, ... of categories; for LightGBM.

    Attributes
    ----------
    classes_ : array
    n_features_in_ : int
    content_ : array of uint8
        The fitted trees: LightGBM's text, or the JSON of the other two.
    """

    def __init__(
        self, library: str = "lightgbm", parameters: ByName | None = None, *, categorical: Sequence[int] | None = None
    ) -> None:
        self.library = library
        self.parameters = parameters
        self.categorical = categorical

    @classmethod
    def of(cls, estimator: Estimator) -> Self:
        """Return the same classifier, fitted if the given one of a library is, as text.

        Raises
        ------
        BoostedTreesError
            If it has parts that the text cannot hold, or that cannot be checked when it is read.
        """
        found = library_of(estimator)
        assert found is not None
        trees = cls(found, _plain_parameters(estimator))
        is_fitted = estimator.is_fitted() if hasattr(estimator, "is_fitted") else hasattr(estimator, "classes_")
        if not is_fitted:
            return trees
        text = _LIBRARIES[found].text(estimator)
        return trees._adopt(text, np.asarray(estimator.classes_), int(estimator.n_features_in_))

    def fit(self, X: Features, y: AnyArray, sample_weight: AnyArray | None = None) -> Self:
        """Train the trees."""
        self.fit_within(X, y, {"sample_weight": sample_weight}, np.inf)
        return self

    def fit_within(self, X: Features, y: AnyArray, parameters: ByName, seconds: float, at_most: float = 1.0) -> float:
        """Train for so many seconds and one more tree, and a share of the trees, at most; return which share it was."""
        library = self._library()
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise InputError(f"y holds only one class, {classes[0]!r}; a classifier needs at least two.")
        if self.categorical and self.library != "lightgbm":
            raise InputError(f"{self.library} takes no codes of categories here; give it numbers, or use lightgbm.")
        model = library.make(dict(self.parameters or {}))
        wanted = library.n_trees(model)
        watch = _Watch(time.monotonic() + seconds, max(1, round(at_most * wanted)))
        named = {"categorical_feature": list(self.categorical)} if self.categorical else {}
        library.fit(model, rows, codes, {"sample_weight": parameters.get("sample_weight"), **named}, watch)
        self._adopt(library.text(model), classes, rows.shape[1])
        return min(1.0, watch.done / wanted)

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Return the probabilities of the classes."""
        check_is_fitted(self, "content_")
        proba = np.asarray(self._library().proba(self.booster(), X))
        both = np.column_stack([1 - proba, proba]) if proba.ndim == 1 else proba
        return np.asarray(both, dtype=np.float64)

    def predict(self, X: Features) -> AnyArray:
        """Return the likeliest class of each row."""
        likeliest: AnyArray = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return likeliest

    def booster(self) -> Any:
        """Return the trees as an object of their library, made from the text."""
        if not hasattr(self, "_booster"):
            self._booster = self._library().load(self.content_.tobytes().decode())
        return self._booster

    def check(self) -> None:
        """Look whether the text holds trees that fit this classifier, and point nowhere outside themselves.

        The libraries follow the indices in a text without looking.

        Raises
        ------
        BoostedTreesError
        """
        if self.library not in _LIBRARIES:
            raise BoostedTreesError(
                f"there are no boosted trees of {self.library!r}; there are {', '.join(LIBRARIES)}."
            )
        if not hasattr(self, "content_"):
            return
        content, classes = self.content_, self.classes_
        _demand(isinstance(content, np.ndarray) and content.dtype == np.uint8 and content.ndim == 1)
        _demand(isinstance(self.n_features_in_, int) and isinstance(classes, np.ndarray) and len(classes) >= 2)
        try:
            self._library().check(content.tobytes().decode(), self.n_features_in_, len(classes))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise BoostedTreesError(f"its {self.library} trees cannot be read; {_NOT_GENUINE}") from error

    def _library(self) -> "_Library":
        if self.library not in _LIBRARIES:
            raise InputError(f"library must be one of {', '.join(LIBRARIES)}, got {self.library!r}.")
        if not is_installed(self.library):
            raise MissingExtraError(f"this model needs {self.library}: pip install demur[boost]")
        return _LIBRARIES[self.library]

    def _adopt(self, text: str, classes: AnyArray, n_features: int) -> Self:
        self.__dict__.pop("_booster", None)
        self.content_ = np.frombuffer(text.encode(), dtype=np.uint8)
        self.classes_, self.n_features_in_ = classes, n_features
        self.check()
        return self

    def __getstate__(self) -> ByName:
        return {name: value for name, value in super().__getstate__().items() if name != "_booster"}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


def is_installed(library: str) -> bool:
    """Say whether a library can be imported, without importing it."""
    return importlib.util.find_spec(library) is not None


def library_of(estimator: Estimator) -> str | None:
    """Return the library whose classifier this is; None for anything else.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> library_of(GaussianNB()) is None
    True
    """
    names = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(estimator).__mro__}
    found = [name for name, library in _LIBRARIES.items() if (name, library.classifier) in names]
    return found[0] if found else None


class _Watch:
    """Counts the trees, and says when there are enough or the time is over."""

    def __init__(self, ends: float, most: int) -> None:
        self.ends, self.most, self.done = ends, most, 0

    def over(self, done: int) -> bool:
        self.done = done
        return done >= self.most or time.monotonic() >= self.ends


@dataclass(frozen=True)
class _Library:
    """How one library trains, writes, reads and asks its trees."""

    classifier: str
    make: Callable[[ByName], Any]
    n_trees: Callable[[Any], int]
    fit: Callable[[Any, AnyArray, AnyArray, ByName, _Watch], None]
    text: Callable[[Any], str]
    load: Callable[[str], Any]
    proba: Callable[[Any, Features], AnyArray]
    check: Callable[[str, int, int], None]


_NOT_GENUINE = "it is not genuine."
_OUTSIDE = f"it holds a decision tree that points outside itself; {_NOT_GENUINE}"


def _demand(condition: object, words: str = _OUTSIDE) -> None:
    if not condition:
        raise BoostedTreesError(words)


def _plain_parameters(estimator: Estimator) -> ByName:
    """Return the parameters that are plain values; a function has no place in a text."""
    plain: ByName = {}
    for name, value in estimator.get_params().items():
        if value is None or (isinstance(value, float) and np.isnan(value)):
            continue
        if not isinstance(value, (bool, int, float, str, list, tuple, np.integer, np.floating)):
            raise BoostedTreesError(f"its parameter {name} is a {type(value).__name__}, which no model may hold.")
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain


def _check_children(left: Sequence[int], right: Sequence[int], n_leaves: int | None) -> None:
    """Check that children come after their parents, so that no way leads round in circles.

    With ``n_leaves`` a negative child -1 - k is the leaf k, else a node whose children are both -1 is a leaf.
    """
    own = np.arange(len(left))
    first, second = np.asarray(left, dtype=np.int64), np.asarray(right, dtype=np.int64)
    _demand(first.shape == second.shape == own.shape)
    if n_leaves is None:
        leaf = first == -1
        _demand((second[leaf] == -1).all())
        own, first, second = own[~leaf], first[~leaf], second[~leaf]
        n_leaves = 0
    for child in (first, second):
        inner = child >= 0
        _demand((child[inner] > own[inner]).all() and (child < len(left)).all() and (child >= -n_leaves).all())


# LightGBM: one line "name=value" after another, a blank line after each tree


def _lightgbm_make(parameters: ByName) -> Any:
    return import_module("lightgbm").LGBMClassifier(**{"verbose": -1, **parameters})


def _lightgbm_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, watch: _Watch) -> None:
    stop = import_module("lightgbm").callback.EarlyStopException

    def after_each(env: Any) -> None:
        if watch.over(env.iteration + 1):
            raise stop(env.iteration, [])

    model.fit(X, y, **named, callbacks=[after_each])


def _lightgbm_text(model: Any) -> str:
    booster = model.booster_
    written: str = booster.model_to_string(num_iteration=booster.best_iteration or -1)
    return written


def _lightgbm_load(text: str) -> Any:
    return import_module("lightgbm").Booster(model_str=text)


def _lightgbm_proba(booster: Any, X: Features) -> AnyArray:
    proba: AnyArray = booster.predict(X, num_threads=1)
    return proba


def _lightgbm_check(text: str, n_features: int, n_classes: int) -> None:
    head, *trees = text.split("\nTree=")
    facts = _lines(head)
    per_iteration = 1 if n_classes == 2 else n_classes
    _demand(int(facts["max_feature_idx"]) + 1 == n_features and int(facts["num_class"]) == per_iteration)
    _demand(int(facts["num_tree_per_iteration"]) == per_iteration and len(trees) % per_iteration == 0)
    _demand(facts["objective"].split()[0] == ("binary" if n_classes == 2 else "multiclass"), "it predicts no classes.")
    if trees:
        trees[-1] = trees[-1].partition("end of trees")[0]
    sizes = [len(f"Tree={tree}".encode()) + 1 for tree in trees[:-1]] + [
        len(f"Tree={tree}".encode()) for tree in trees[-1:]
    ]
    _demand([int(size) for size in facts["tree_sizes"].split()] == sizes)
    for tree in trees:
        _lightgbm_check_tree(_lines(tree), n_features)


def _lightgbm_check_tree(facts: Mapping[str, str], n_features: int) -> None:
    n_leaves, n_sets = int(facts["num_leaves"]), int(facts["num_cat"])
    _demand(
        facts.get("is_linear", "0") == "0", "its trees have linear models in their leaves, which are not supported."
    )
    values = _numbers(facts["leaf_value"])
    _demand(n_leaves >= 1 and values.shape == (n_leaves,) and np.isfinite(values).all())
    if n_leaves == 1:
        return
    left, right, asked, kinds = (
        _numbers(facts[name]).astype(np.int64)
        for name in ("left_child", "right_child", "split_feature", "decision_type")
    )
    thresholds = _numbers(facts["threshold"])
    _demand(all(len(one) == n_leaves - 1 for one in (left, right, asked, kinds, thresholds)))
    _check_children(left.tolist(), right.tolist(), n_leaves)
    _demand(((asked >= 0) & (asked < n_features)).all())
    by_set = thresholds[(kinds & 1) == 1]
    if n_sets or len(by_set):
        bounds, words = (_numbers(facts[name]).astype(np.int64) for name in ("cat_boundaries", "cat_threshold"))
        _demand(
            len(bounds) == n_sets + 1 and bounds[0] == 0 and (np.diff(bounds) >= 0).all() and bounds[-1] == len(words)
        )
        _demand(((by_set >= 0) & (by_set < n_sets)).all())


def _lines(text: str) -> dict[str, str]:
    return {name: value for name, sign, value in (line.partition("=") for line in text.splitlines()) if sign}


def _numbers(text: str) -> NDArray[np.float64]:
    return np.array(text.split(), dtype=np.float64)


# XGBoost: its JSON


def _xgboost_make(parameters: ByName) -> Any:
    return import_module("xgboost").XGBClassifier(**parameters)


def _xgboost_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, watch: _Watch) -> None:
    class AfterEach(import_module("xgboost").callback.TrainingCallback):  # type: ignore[misc] # known when it is there
        def after_iteration(self, booster: Any, epoch: int, log: Any) -> bool:
            return watch.over(epoch + 1)

    model.set_params(callbacks=[AfterEach()])
    model.fit(X, y, **named)
    model.set_params(callbacks=None)


def _xgboost_text(model: Any) -> str:
    booster = model.get_booster()
    if booster.attr("best_iteration") is not None:
        booster = booster[: int(booster.attr("best_iteration")) + 1]
    return bytes(booster.save_raw("json")).decode()


def _xgboost_load(text: str) -> Any:
    booster = import_module("xgboost").Booster({"nthread": 1})
    booster.load_model(bytearray(text.encode()))
    return booster


def _xgboost_proba(booster: Any, X: Features) -> AnyArray:
    rows = import_module("xgboost").DMatrix(X, enable_categorical=True, nthread=1)
    proba: AnyArray = booster.predict(rows, validate_features=False)
    return proba


def _xgboost_check(text: str, n_features: int, n_classes: int) -> None:
    learner = json.loads(text)["learner"]
    model, facts = learner["gradient_booster"], learner["learner_model_param"]
    _demand(model["name"] == "gbtree", f"its booster is {model['name']}; only gbtree is supported.")
    objective = "binary:logistic" if n_classes == 2 else "multi:softprob"
    named = learner["objective"]["name"]
    _demand(named == objective, f"it was trained with {named}, which gives no probabilities; use {objective}.")
    _demand(int(facts["num_feature"]) == n_features and int(facts["num_class"]) == (0 if n_classes == 2 else n_classes))
    trees, of_class, ends = (model["model"][name] for name in ("trees", "tree_info", "iteration_indptr"))
    _demand(int(model["model"]["gbtree_model_param"]["num_trees"]) == len(trees) == len(of_class))
    _demand(all(0 <= one < max(1, int(facts["num_class"])) for one in of_class))
    _demand(ends[0] == 0 and ends[-1] == len(trees) and sorted(ends) == ends)
    for number, tree in enumerate(trees):
        _demand(tree["id"] == number)
        _xgboost_check_tree(tree, n_features)


def _xgboost_check_tree(tree: ByName, n_features: int) -> None:
    n_nodes = int(tree["tree_param"]["num_nodes"])
    left, right = tree["left_children"], tree["right_children"]
    _demand(n_nodes >= 1 and int(tree["tree_param"]["size_leaf_vector"]) <= 1)
    _demand(int(tree["tree_param"]["num_feature"]) == n_features)
    names = ("base_weights", "default_left", "left_children", "right_children", "parents", "split_conditions")
    for name in (*names, "split_indices", "split_type", "loss_changes", "sum_hessian"):
        _demand(len(tree[name]) == n_nodes)
    _check_children(left, right, None)
    _demand(all(0 <= one < n_features for one in tree["split_indices"]) and set(tree["split_type"]) <= {0, 1})
    _demand(np.isfinite(np.asarray(tree["split_conditions"], dtype=np.float64)).all())
    nodes, starts, sizes = (tree[f"categories_{name}"] for name in ("nodes", "segments", "sizes"))
    _demand(len(nodes) == len(starts) == len(sizes) and all(0 <= one < n_nodes for one in nodes))
    inside = (0 <= start <= start + size <= len(tree["categories"]) for start, size in zip(starts, sizes, strict=True))
    _demand(all(inside) and {k for k, kind in enumerate(tree["split_type"]) if kind} <= set(nodes))


# CatBoost: its JSON


def _catboost_make(parameters: ByName) -> Any:
    quiet = {"verbose": False, "allow_writing_files": False}
    return import_module("catboost").CatBoostClassifier(**{**quiet, **parameters})


def _catboost_fit(model: Any, X: AnyArray, y: AnyArray, named: ByName, watch: _Watch) -> None:
    class AfterEach:
        def after_iteration(self, info: Any) -> bool:
            return not watch.over(info.iteration)

    model.fit(X, y, **named, callbacks=[AfterEach()])


def _catboost_n_trees(model: Any) -> int:
    given = model.get_params()
    return int(next((given[name] for name in ("iterations", "n_estimators", "num_trees") if name in given), 1000))


def _catboost_text(model: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        model.save_model(str(path), format="json")
        written = json.loads(path.read_text())
    for name in ("model_guid", "train_finish_time", "training"):  # which no prediction needs, and differ each time
        written["model_info"].pop(name, None)
    return json.dumps(written, separators=(",", ":"))


def _catboost_load(text: str) -> Any:
    model = import_module("catboost").CatBoostClassifier()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.json")
        path.write_text(text)
        model.load_model(str(path), format="json")
    return model


def _catboost_proba(model: Any, X: Features) -> AnyArray:
    proba: AnyArray = model.predict_proba(X, thread_count=1)
    return proba


def _catboost_check(text: str, n_features: int, n_classes: int) -> None:
    model = json.loads(text)
    _demand("oblivious_trees" in model, "its trees are not symmetric, which is not supported; leave grow_policy out.")
    known = {"features_info", "model_info", "oblivious_trees", "scale_and_bias"}
    _demand(
        set(model) <= known and set(model["features_info"]) == {"float_features"},
        "it learnt from categories or texts by itself, which is not supported; give it numbers.",
    )
    borders: list[list[float]] = []
    for position, feature in enumerate(model["features_info"]["float_features"]):
        _demand(feature["feature_index"] == feature["flat_feature_index"] == position < n_features)
        borders.append([float(border) for border in feature.get("borders") or ()])
    width = 1 if n_classes == 2 else n_classes
    scale, bias = model["scale_and_bias"]
    _demand(np.isfinite([float(scale), *map(float, bias)]).all() and len(bias) in (0, 1, width))
    starts = np.cumsum([0, *map(len, borders)]).tolist()
    for tree in model["oblivious_trees"]:
        splits = tree["splits"] or []
        values = np.asarray(tree["leaf_values"], dtype=np.float64)
        _demand(len(splits) <= 16 and values.shape == (width * 2 ** len(splits),) and np.isfinite(values).all())
        for split in splits:
            _demand(split["split_type"] == "FloatFeature", "it learnt from categories, which is not supported.")
            asked = split["float_feature_index"]
            _demand(isinstance(asked, int) and 0 <= asked < len(borders))
            place = split["split_index"] - starts[asked]
            _demand(0 <= place < len(borders[asked]) and borders[asked][place] == float(split["border"]))
        _demand(len(tree.get("leaf_weights") or values) * width in (len(values), len(values) * width))


_LIBRARIES = {
    "catboost": _Library(
        "CatBoostClassifier", _catboost_make, _catboost_n_trees, _catboost_fit, _catboost_text, _catboost_load,
        _catboost_proba, _catboost_check,
    ),
    "lightgbm": _Library(
        "LGBMClassifier", _lightgbm_make, lambda model: int(model.n_estimators), _lightgbm_fit, _lightgbm_text,
        _lightgbm_load, _lightgbm_proba, _lightgbm_check,
    ),
    "xgboost": _Library(
        "XGBClassifier", _xgboost_make, lambda model: int(model.n_estimators or 100), _xgboost_fit, _xgboost_text,
        _xgboost_load, _xgboost_proba, _xgboost_check,
    ),
}  # fmt: skip

LIBRARIES = tuple(_LIBRARIES)
