"""Decision trees from a file: scikit-learn follows their indices without looking, so they are looked at here.

A file cannot run code, but a forged tree could point outside its own memory and bring the process down.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble._forest import BaseForest
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.tree._tree import Tree

from demur.deploy.errors import ModelFileError

__all__ = ["check_trees"]


def check_trees(value: Any) -> None:
    """Check every decision tree inside a scikit-learn object, however deep.

    Raises
    ------
    ModelFileError
        If a tree has a child that does not come after it, or asks for a feature that is not there.
    """
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (str, bytes, int, float)):
            continue
        seen.add(id(one))
        if isinstance(one, (list, tuple, set)):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, np.ndarray):
            waiting.extend(one.ravel().tolist() if one.dtype == object else ())
        elif isinstance(one, Tree):
            _check_tree(one)
        elif type(one).__module__.startswith("sklearn.") and hasattr(one, "__dict__"):
            _check_owner(one)
            waiting.extend(vars(one).values())


def _check_tree(tree: Any) -> None:
    _demand(0 <= tree.node_count <= tree.capacity)
    inner = tree.children_left != -1
    _check_nodes(inner, tree.children_left, tree.children_right, tree.feature, tree.n_features)


def _check_owner(owner: Any) -> None:
    """Check that trees are as wide as the estimator that will hand them its rows."""
    width = getattr(owner, "n_features_in_", None)
    if isinstance(getattr(owner, "tree_", None), Tree):
        _demand(owner.tree_.n_features == width)
    elif isinstance(owner, BaseForest):
        _demand(all(tree.n_features_in_ == width for tree in getattr(owner, "estimators_", ())))
    elif isinstance(owner, BaseHistGradientBoosting):
        for predictor in (one for iteration in getattr(owner, "_predictors", ()) for one in iteration):
            nodes = predictor.nodes
            inner = ~nodes["is_leaf"].astype(bool)
            _demand(len(nodes) > 0)
            _check_nodes(inner, nodes["left"], nodes["right"], nodes["feature_idx"], width)
            categorical = inner & nodes["is_categorical"].astype(bool)
            n_sets = min(len(predictor.raw_left_cat_bitsets), len(predictor.binned_left_cat_bitsets))
            _demand(bool((nodes["bitset_idx"][categorical] < n_sets).all()))


def _check_nodes(
    inner: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any], feature: NDArray[Any], n_features: Any
) -> None:
    own = np.flatnonzero(inner)
    for child in (left[inner].astype(np.int64), right[inner].astype(np.int64)):
        _demand(bool(((child > own) & (child < len(inner))).all()))  # after its parent: no way round in circles
    asked = feature[inner].astype(np.int64)
    _demand(bool(((asked >= 0) & (asked < n_features)).all()))


def _demand(condition: bool) -> None:
    if not condition:
        raise ModelFileError("sklearn.skops holds a decision tree that points outside itself; it is not genuine.")
