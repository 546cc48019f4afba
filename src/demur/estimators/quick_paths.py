"""Fitted classifiers as a table asks them, a row or a million at a time: without overhead, and the same for each row.

scikit-learn checks its input at every step and every tree, which takes longer than deciding for one row; and some of
its products and sums round a row's numbers differently when other rows come with it. What is here leaves out the
first and mends the second: a row's numbers are the same, to the last bit, whatever rows are asked for with it. What
stands for a part of scikit-learn is compared with it when it is made, and is not used if it differs.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from demur.array_types import AnyArray, CostLike, Estimator
from demur.calibration import TemperatureScaling, at_temperature
from demur.errors import InputError
from demur.estimators.auto_classifier import AutoClassifier
from demur.estimators.reject_classifier import RejectClassifier
from demur.estimators.reject_option import RejectOption
from demur.rules import Chow, Decision, chow_acceptance

__all__ = [
    "QuickBlend",
    "QuickBoosting",
    "QuickClassifier",
    "QuickForest",
    "QuickLinear",
    "QuickParts",
    "QuickView",
    "quick_proba",
]

Floats = NDArray[np.float64]
Proba = Callable[[Floats], Floats]
"""From features to probabilities."""

TILE = 64
_FEW = 64
"""Up to so many rows all trees are asked at once, beyond it one after the other."""


class QuickParts:
    """A view and a classifier of codes, as :class:`~demur.tabular.TableModel` holds them.

    Parameters
    ----------
    dense : fitted transformer or None
    classifier : RejectingClassifier
    """

    def __init__(self, dense: Any, classifier: Any) -> None:
        self._view = None if dense is None else QuickView.of(dense)
        self.classifier = QuickClassifier(classifier)

    def features(self, codes: Floats) -> Floats:
        """Return the numbers that the classifier takes."""
        return codes if self._view is None else np.asarray(self._view.transform(codes), dtype=np.float64)


class QuickClassifier:
    """A classifier with a reject option, for features that are known to be right.

    Parameters
    ----------
    classifier : RejectingClassifier
        Fitted. Its cost and its rule may change; another fit is noticed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = RejectOption(LogisticRegression(max_iter=500), cost=0.05).fit(X, y)
    >>> quick = QuickClassifier(model)
    >>> one, all_rows = quick.decide_and_score(X[77:78])[1], quick.decide_and_score(X)[1]
    >>> quick.is_quick, bool((one[0] == all_rows[77]).all())
    (True, True)
    """

    def __init__(self, classifier: Any) -> None:
        self.classifier = classifier
        self._made_of: Any = None
        self._proba: Proba | None = None
        self.refresh()

    def refresh(self) -> None:
        """Look at the fitted parts again, if they are others than before."""
        fitted = getattr(self.classifier, "networks_", None) or getattr(self.classifier, "estimator_", None)
        if fitted is not self._made_of:
            self._made_of = fitted
            self._proba = quick_proba(self.classifier.estimator_) if type(self.classifier) is RejectOption else None

    @property
    def is_quick(self) -> bool:
        """Whether there is a quick way, on which a row does not mind the others."""
        return self._proba is not None or type(self.classifier) is RejectClassifier

    def decide_and_score(self, features: Floats, cost: CostLike = None) -> tuple[Decision[AnyArray], Floats]:
        """Return what the classifier's own method does.

        Parameters
        ----------
        features : array of shape (n_rows, n_features)
            As the classifier takes them.
        cost : float, or array of one per row, optional
            One that is known to be right.
        """
        self.refresh()
        decision, scores = self._decided(features, cost)
        known = getattr(self.classifier, "known_rows_", None)
        if known is None or self.classifier.novelty is None:
            return decision, scores
        return decision.declining(known.novel(features, self.classifier.novelty)), scores

    def _decided(self, features: Floats, cost: CostLike) -> tuple[Decision[AnyArray], Floats]:
        classifier = self.classifier
        if not self.is_quick or not len(features) or np.isinf(features).any():
            return self._in_full_pieces(features, cost)
        if self._proba is None:
            price = classifier.effective_cost if cost is None else cost
            decided: tuple[Decision[AnyArray], Floats] = classifier.networks_.decide_and_score(
                features, price, len(classifier.classes_)
            )
            return decided
        proba = self._calibrated(_aligned(self._proba(features), classifier.estimator_, classifier.classes_))
        rule = classifier.rule
        if rule is not None and type(rule) is not Chow:
            return classifier.decide_proba(proba, cost), proba
        if cost is None:
            cost = classifier.cost if rule is None else rule.cost
        confidence = proba.max(axis=1)
        acceptance = chow_acceptance(confidence, np.asarray(cost, dtype=np.float64))
        return Decision.from_acceptance(proba.argmax(axis=1), acceptance, confidence), proba

    def _calibrated(self, proba: Floats) -> Floats:
        calibrator, shift = self.classifier.calibrator_, self.classifier.label_shift_
        if type(calibrator) is TemperatureScaling and not calibrator.from_logits:
            proba = np.asarray(at_temperature(proba, calibrator.temperature_), dtype=np.float64)
        elif calibrator is not None:
            proba = np.asarray(calibrator.transform(proba), dtype=np.float64)
        return proba if shift is None else shift.transform(proba)

    def _in_full_pieces(self, features: Floats, cost: CostLike) -> tuple[Decision[AnyArray], Floats]:
        """Ask the classifier itself, with rows of zeros up to a multiple of 64: small products use other kernels."""
        n_rows, missing = len(features), -len(features) % TILE
        filled = np.concatenate([features, np.zeros((missing, features.shape[1]))])
        if np.ndim(cost):
            cost = np.concatenate([np.asarray(cost), np.zeros(missing)])
        decision, scores = self.classifier.decide_and_score(filled, cost)
        parts = (decision.label, decision.reject, decision.acceptance, decision.confidence)
        return Decision(*(part[:n_rows] for part in parts)), scores[:n_rows]


def _aligned(proba: Floats, estimator: Estimator, classes: AnyArray) -> Floats:
    """Return probabilities of all classes, zero for those that the estimator does not know."""
    if len(estimator.classes_) == len(classes):
        return proba
    aligned = np.zeros((len(proba), len(classes)))
    aligned[:, np.searchsorted(classes, estimator.classes_)] = proba
    return aligned


def quick_proba(estimator: Estimator) -> Proba | None:
    """Return the probabilities of a fitted classifier as a function of features; None for one without a quick way.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> quick_proba(GaussianNB().fit([[0.0], [1.0]], [0, 1])) is None
    True
    """
    kind = type(estimator)
    if kind is RejectClassifier and estimator.has_proba:
        return lambda X: np.asarray(estimator.networks_.proba(X, normalised=True))
    if kind in (RandomForestClassifier, ExtraTreesClassifier) and estimator.n_outputs_ == 1:
        return QuickForest(estimator)
    if kind is HistGradientBoostingClassifier:
        return QuickBoosting(estimator)
    if kind is LogisticRegression:
        return QuickLinear(estimator)
    if kind is AutoClassifier and estimator.codes_.schema is None:
        return QuickBlend(estimator)
    return None


class QuickBlend:
    """The probabilities of a fitted :class:`AutoClassifier` for rows of codes, as its own method finds them."""

    def __init__(self, blend: AutoClassifier) -> None:
        self._classes = np.arange(len(blend.classes_))
        self._scaling = blend.scaling_
        self._dense = QuickView.of(blend.dense_) if "dense" in blend.views_ else None
        self._numbers = None if blend.numbers_ is None else QuickView.of(blend.numbers_)
        parts = zip(blend.models_, blend.weights_, blend.scalings_, blend.views_, strict=True)
        self._members = [(_proba_of(model), model, *rest) for model, *rest in parts]

    def __call__(self, codes: Floats) -> Floats:
        views: dict[str, Floats] = {"codes": codes}
        if self._dense is not None:
            views["dense"] = self._dense.transform(codes)
        views["numbers"] = codes if self._numbers is None else self._numbers.transform(codes)
        mixture = np.zeros((len(codes), len(self._classes)))
        for proba, model, share, scaling, view in self._members:
            own = _aligned(proba(views[view]), model, self._classes)
            mixture += share * at_temperature(own, scaling.temperature_)
        return np.asarray(at_temperature(mixture, self._scaling.temperature_))


def _proba_of(estimator: Estimator) -> Proba:
    return quick_proba(estimator) or (lambda X: np.asarray(estimator.predict_proba(X), dtype=np.float64))


class QuickLinear:
    """The probabilities of a fitted logistic regression, in tiles of always 64 rows.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> model = LogisticRegression().fit(X, y)
    >>> bool(np.allclose(QuickLinear(model)(X), model.predict_proba(X), rtol=1e-14, atol=0))
    True
    """

    def __init__(self, model: LogisticRegression) -> None:
        self._weights = np.ascontiguousarray(model.coef_.T, dtype=np.float64)
        self._intercept = np.asarray(model.intercept_, dtype=np.float64)

    def __call__(self, X: Floats) -> Floats:
        n_rows, width = X.shape
        filled = np.zeros((n_rows + -n_rows % TILE, width))
        filled[:n_rows] = X
        tiles = np.matmul(filled.reshape(-1, TILE, width), self._weights)
        return _linked(tiles.reshape(len(filled), -1)[:n_rows] + self._intercept)


def _linked(scores: Floats) -> Floats:
    """Return the logistic function for two classes, where there is one score, and softmax for more."""
    if scores.shape[1] == 1:
        second = expit(scores[:, 0])
        return np.column_stack([1 - second, second])
    by_class = np.array(scores.T, order="C")
    by_class -= by_class.max(axis=0)
    np.exp(by_class, out=by_class)
    by_class /= np.add.accumulate(by_class, axis=0)[-1]  # one after the other, also for a single row
    return by_class.T


class QuickForest:
    """The probabilities of a fitted forest: the mean over its trees, added up in their order.

    For a few rows all trees are one: above them stands a tree that leads copy number k of a row to tree k.

    Parameters
    ----------
    forest : RandomForestClassifier or ExtraTreesClassifier
        Fitted, for one target.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1]
    >>> forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    >>> bool((QuickForest(forest)(X) == forest.predict_proba(X)).all())
    True
    """

    def __init__(self, forest: Any) -> None:
        self._trees = [tree.tree_ for tree in forest.estimators_]
        self._width, self._n_classes = forest.n_features_in_, len(forest.classes_)
        self._joined, self._leaves = _joined_trees(self._trees, self._width)
        tried = _tried_rows(self._width, [(tree.feature, tree.threshold) for tree in self._trees])
        if not np.array_equal(self(tried[:_FEW]), self._one_by_one(tried[:_FEW].astype(np.float32))):
            self._joined = None

    def __call__(self, X: Floats) -> Floats:
        with np.errstate(over="ignore"):  # it is refused just below
            rows = np.ascontiguousarray(X, dtype=np.float32)
        if rows.shape[1] != self._width:  # a tree follows its indices without looking
            raise InputError(f"the forest takes {self._width} columns, got {rows.shape[1]}.")
        if np.isinf(rows).any():
            raise InputError("the rows hold infinity, or a number too large for single precision.")
        if self._joined is None or len(rows) > _FEW:
            return self._one_by_one(rows)
        leaves = self._joined.apply(_copies(rows, len(self._trees))).reshape(len(rows), -1)
        total = np.add.accumulate(self._leaves[leaves], axis=1)[:, -1]
        return np.asarray(total / len(self._trees))

    def _one_by_one(self, rows: NDArray[np.float32]) -> Floats:
        total = np.zeros((len(rows), self._n_classes))
        for tree in self._trees:
            total += tree.predict(rows)
        return total / len(self._trees)


class QuickBoosting:
    """The probabilities of fitted histogram gradient boosting, the trees joined as those of :class:`QuickForest`.

    Parameters
    ----------
    model : HistGradientBoostingClassifier

    Examples
    --------
    >>> X, y = np.arange(60.0).reshape(-1, 1), [0, 1, 2] * 20
    >>> model = HistGradientBoostingClassifier(max_iter=3).fit(X, y)
    >>> bool(np.allclose(QuickBoosting(model)(X), model.predict_proba(X), rtol=1e-14, atol=0))
    True
    """

    def __init__(self, model: HistGradientBoostingClassifier) -> None:
        self._width, self._n_outputs = model._n_features, model.n_trees_per_iteration_
        self._start = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(1, 1, -1)
        self._predictors = [one for iteration in model._predictors for one in iteration]
        self._known, self._places = model._bin_mapper.make_known_categories_bitsets()
        self._order, self._tables = _preprocessing(model)
        self._joined = _joined_predictors(self._predictors, self._width)
        self._wide_places = np.append(self._places, self._places.dtype.type(0))
        splits = [(one.nodes["feature_idx"], one.nodes["num_threshold"]) for one in self._predictors]
        tried = _tried_rows(self._width, splits)[:_FEW]
        for column in np.flatnonzero(model._bin_mapper.is_categorical_):
            tried[:, column] = np.where(np.arange(len(tried)) % 9 == 8, np.nan, np.arange(len(tried)) % 60)
        if not np.array_equal(self._together(tried), self._one_by_one(tried)):
            self._joined = None

    def __call__(self, X: Floats) -> Floats:
        rows = np.ascontiguousarray(X[:, self._order], dtype=np.float64)
        if rows.shape[1] != self._width:
            raise InputError(f"the boosted trees take {self._width} columns, got {rows.shape[1]}.")
        for column, table in enumerate(self._tables):
            rows[:, column] = table[_places_in(table, rows[:, column])]
        few = self._joined is not None and len(rows) <= _FEW
        return _linked(self._together(rows) if few else self._one_by_one(rows))

    def _together(self, rows: Floats) -> Floats:
        if not self._predictors:
            return np.repeat(self._start[0], len(rows), axis=0)
        found = self._joined.predict(_copies(rows, len(self._predictors)), self._known, self._wide_places, 1)
        steps = np.concatenate(
            [np.repeat(self._start, len(rows), axis=0), found.reshape(len(rows), -1, self._n_outputs)], axis=1
        )
        return np.asarray(np.add.accumulate(steps, axis=1)[:, -1])

    def _one_by_one(self, rows: Floats) -> Floats:
        total = np.repeat(self._start[0], len(rows), axis=0)
        for number, predictor in enumerate(self._predictors):
            total[:, number % self._n_outputs] += predictor.predict(rows, self._known, self._places, 1)
        return total


def _copies(rows: Any, n_trees: int) -> Any:
    """Return so many copies of each row, each followed by its number."""
    copies = np.empty((len(rows), n_trees, rows.shape[1] + 1), dtype=rows.dtype)
    copies[:, :, :-1] = rows[:, None]
    copies[:, :, -1] = np.arange(n_trees)
    return copies.reshape(-1, rows.shape[1] + 1)


def _leading(n_trees: int, starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Return the children and thresholds of n_trees - 1 nodes above the trees: copies up to a number go left.

    ``starts`` are the numbers of the trees' first nodes. The nodes stand in front of them, the root first.
    """
    left, right = np.zeros(n_trees - 1, dtype=np.int64), np.zeros(n_trees - 1, dtype=np.int64)
    threshold = np.zeros(n_trees - 1)
    free = 1
    waiting = [(0, 0, n_trees)] if n_trees > 1 else []
    while waiting:
        node, first, end = waiting.pop()
        middle = (first + end) // 2
        threshold[node] = middle - 0.5
        for children, low, high in ((left, first, middle), (right, middle, end)):
            if high - low == 1:
                children[node] = starts[low]
            else:
                children[node], free = free, free + 1
                waiting.append((int(children[node]), low, high))
    return left, right, threshold


def _starts(sizes: Sequence[int]) -> NDArray[np.int64]:
    return np.cumsum([max(len(sizes) - 1, 0), *sizes[:-1]]).astype(np.int64)


def _joined_trees(trees: Sequence[Any], width: int) -> tuple[Any, Floats]:
    """Return one tree of scikit-learn's that holds all of these, and what each of its nodes holds."""
    from sklearn.tree._tree import Tree

    states = [tree.__getstate__()["nodes"] for tree in trees]
    starts = _starts([len(one) for one in states])
    n_nodes, n_classes = int(starts[-1]) + len(states[-1]), trees[0].value.shape[2]
    nodes, values = np.zeros(n_nodes, dtype=states[0].dtype), np.zeros((n_nodes, n_classes))
    left, right, threshold = _leading(len(trees), starts)
    above = slice(0, len(left))
    nodes["left_child"][above], nodes["right_child"][above] = left, right
    nodes["feature"][above], nodes["threshold"][above] = width, threshold
    for start, own, tree in zip(starts, states, trees, strict=True):
        place = slice(start, start + len(own))
        nodes[place] = own
        inner = own["left_child"] != -1
        for child in ("left_child", "right_child"):
            nodes[child][place] = np.where(inner, own[child] + start, own[child])
        values[place] = tree.value[:, 0]
    joined = Tree(width + 1, np.array([1], dtype=np.intp), 1)
    nothing = np.zeros((n_nodes, 1, 1))
    depth = max(tree.max_depth for tree in trees) + len(trees)
    joined.__setstate__({"max_depth": depth, "node_count": n_nodes, "nodes": nodes, "values": nothing})
    return joined, values


def _joined_predictors(predictors: Sequence[Any], width: int) -> Any:
    """Return one predictor of scikit-learn's gradient boosting that holds all of these."""
    if not predictors:
        return None
    starts = _starts([len(one.nodes) for one in predictors])
    nodes = np.zeros(int(starts[-1]) + len(predictors[-1].nodes), dtype=predictors[0].nodes.dtype)
    left, right, threshold = _leading(len(predictors), starts)
    above = slice(0, len(left))
    nodes["left"][above], nodes["right"][above] = left, right
    nodes["feature_idx"][above], nodes["num_threshold"][above] = width, threshold
    bitsets, n_sets = [], 0
    for start, one in zip(starts, predictors, strict=True):
        place = slice(start, start + len(one.nodes))
        nodes[place] = one.nodes
        inner = one.nodes["is_leaf"] == 0
        for child in ("left", "right"):
            nodes[child][place] = np.where(inner, one.nodes[child] + start, 0)
        nodes["bitset_idx"][place] = one.nodes["bitset_idx"] + n_sets
        bitsets.append(one.raw_left_cat_bitsets)
        n_sets += len(one.raw_left_cat_bitsets)
    joined = copy(predictors[0])
    joined.nodes, joined.raw_left_cat_bitsets = nodes, np.ascontiguousarray(np.concatenate(bitsets))
    return joined


def _tried_rows(width: int, splits: Sequence[tuple[AnyArray, AnyArray]]) -> Floats:
    """Return 64 rows that meet the trees where they part: thresholds themselves, numbers about them, missing ones."""
    rng = np.random.default_rng(0)
    feature, threshold = (np.concatenate(parts) for parts in zip(*splits, strict=True)) if splits else ([], [])
    rows = rng.normal(size=(_FEW, width))
    for column in range(width):
        own = np.asarray(threshold, dtype=np.float64)[np.asarray(feature) == column]
        own = own[np.isfinite(own)]
        if len(own):
            chosen = rng.choice(own, _FEW)
            rows[:, column] = np.where(rng.random(_FEW) < 0.5, chosen, chosen + rng.normal(size=_FEW) * (own.std() + 1))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    rows[0], rows[1] = np.nan, 0.0
    return np.clip(rows, -1e30, 1e30)


def _preprocessing(model: Any) -> tuple[NDArray[np.intp], list[Floats]]:
    """Return the order in which gradient boosting takes its columns, and a table of codes for each category."""
    if model._preprocessor is None:
        return np.arange(model._n_features), []
    is_category = np.asarray(model.is_categorical_, dtype=bool)
    order = np.r_[np.flatnonzero(is_category), np.flatnonzero(~is_category)]
    found = model._preprocessor.named_transformers_["encoder"].categories_
    tables = []
    for number, own in enumerate(found):
        n_codes = int(np.nanmax(own, initial=-1)) + 1
        tried = np.zeros((n_codes + 2, len(order)))
        tried[:, order[: len(found)]] = [other[0] for other in found]
        tried[:, order[number]] = [*range(n_codes + 1), np.nan]
        tables.append(np.asarray(model._preprocessor.transform(tried), dtype=np.float64)[:, number].copy())
    return order, tables


def _places_in(table: Floats, codes: Floats) -> NDArray[np.intp]:
    """Return the row of a table for each code: the last for what is missing, the one before for what was never seen."""
    return _places(len(table) - 1, codes)


def _places(last: Floats | int, codes: Floats) -> NDArray[np.intp]:
    places: Floats = np.where(np.isnan(codes), last, np.minimum(np.maximum(codes, 0), last - 1))
    return places.astype(np.intp)


class QuickView:
    """Turns codes into numbers exactly as a fitted :func:`~demur.estimators.candidates.dense_view` or ``numbers_view``.

    Numbers are filled up, joined by columns that tell what was missing, and scaled, or stay as they are; the
    indicators of a category are looked up in a table with a row for each code and one for what is missing.

    Parameters
    ----------
    view : ColumnTransformer
        Fitted.

    Raises
    ------
    InputError
        If it is not as those two functions make them.

    Examples
    --------
    >>> from demur.estimators.candidates import dense_view
    >>> codes = np.array([[1.5, 0.0], [np.nan, 1.0], [2.0, 0.0], [0.5, np.nan]])
    >>> dense = dense_view(np.array([False, True])).fit(codes)
    >>> bool((QuickView(dense).transform(codes) == dense.transform(codes)).all())
    True
    """

    def __init__(self, view: Any) -> None:
        (_, numbers, self._numbers), (_, categories, self._categories) = view.transformers_[:2]
        self._scaled = False
        if len(self._numbers) and hasattr(numbers, "steps"):
            imputer, scaler = numbers[0], numbers[1]
            self._scaled = True
            self._fill, self._told = imputer.statistics_, imputer.indicator_.features_
            if np.isnan(self._fill).any():
                raise InputError("a column of the dense view held no value when it was fitted, and is left out there.")
            self._mean, self._scale = scaler.mean_, scaler.scale_
        self._tables = _indicators(categories) if len(self._categories) else []
        self._lasts = np.array([len(table) - 1.0 for table in self._tables])
        self._check(view)

    @classmethod
    def of(cls, view: Any) -> Any:
        """Return a view that does the same, or the view itself, which always works."""
        try:
            return cls(view)
        except (InputError, AttributeError, TypeError, ValueError, IndexError):
            return view

    def transform(self, codes: Floats) -> Floats:
        """Return the view of rows of codes."""
        parts = []
        if len(self._numbers):
            values = codes[:, self._numbers]
            parts.append(self._on_one_scale(values) if self._scaled else values)
        if self._tables and len(codes) <= _FEW:  # all at once
            places = _places(self._lasts, codes[:, self._categories]).T
            parts += [table.take(own, axis=0) for table, own in zip(self._tables, places, strict=True)]
        else:
            for position, table in zip(self._categories, self._tables, strict=True):
                parts.append(table[_places_in(table, codes[:, position])])
        return np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def _on_one_scale(self, values: Floats) -> Floats:
        missing = np.isnan(values)
        joined = np.where(missing, self._fill, values)
        if len(self._told):
            joined = np.concatenate([joined, missing[:, self._told]], axis=1)
        joined -= self._mean
        joined /= self._scale
        return joined

    def _check(self, view: Any) -> None:
        """Compare with the view itself, on codes of all categories and numbers of all sizes."""
        rng = np.random.default_rng(0)
        codes = rng.normal(size=(_FEW, view.n_features_in_)) * 10.0 ** rng.integers(-3, 6, (_FEW, 1))
        for position, table in zip(self._categories, self._tables, strict=True):
            codes[:, position] = np.arange(_FEW) % len(table)
        codes[rng.random(codes.shape) < 0.1] = np.nan
        if not np.array_equal(
            self.transform(codes), np.asarray(view.transform(codes), dtype=np.float64), equal_nan=True
        ):
            raise InputError("the view is not as demur makes it.")


def _indicators(encoder: Any) -> list[Floats]:
    """Return the indicators of each code of each category, of an unseen one, and of what is missing."""
    tables, start = [], 0
    for number, found in enumerate(encoder.categories_):
        rare = encoder.infrequent_categories_[number]
        width = len(found) if rare is None else len(found) - len(rare) + 1
        n_codes = int(np.nanmax(found, initial=-1)) + 1
        tried = np.tile([other[0] for other in encoder.categories_], (n_codes + 2, 1))
        tried[:, number] = [*range(n_codes + 1), np.nan]
        tables.append(np.asarray(encoder.transform(tried), dtype=np.float64)[:, start : start + width])
        start += width
    return tables
