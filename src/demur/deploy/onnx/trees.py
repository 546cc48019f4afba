"""Decision trees as one operator that tells which leaf each row falls into.

ONNX's tree operators return single precision. That is too coarse for a rule that compares a probability with a cost,
but exact for the number of a leaf; what the leaf holds is looked up afterwards, in double precision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.deploy.onnx.errors import ExportError
from demur.deploy.onnx.graph import DOMAIN_ML, Graph

__all__ = ["MOST_BYTES", "Tree", "check_size", "leaf_numbers"]

MOST_BYTES = 2**31 - 1
"""No protobuf message, and so no ONNX file without files beside it, can be larger."""

_BYTES_PER_NODE = 40
_EXACT = 2**24
"""Whole numbers up to here are exact in single precision."""


@dataclass(frozen=True, eq=False)
class Tree:
    """A binary tree in arrays, one entry per node, the root first.

    Parameters
    ----------
    feature : array of int
        The column that a node looks at.
    threshold : array of float
        Rows at or below it go left.
    left, right : arrays of int
        The children.
    is_leaf, missing_left : arrays of bool
        Whether a row without a value goes left.
    content : array of int
        What a leaf holds: the number to return.
    """

    feature: NDArray[Any]
    threshold: NDArray[np.float64]
    left: NDArray[Any]
    right: NDArray[Any]
    is_leaf: NDArray[np.bool_]
    missing_left: NDArray[np.bool_]
    content: NDArray[Any]


def check_size(n_nodes: int, what: str) -> None:
    """Refuse trees that fit into no ONNX file, before they are written out."""
    if n_nodes * _BYTES_PER_NODE > MOST_BYTES:
        raise ExportError(
            f"{what} has {n_nodes:,} nodes, and more than about {MOST_BYTES // _BYTES_PER_NODE:,} do not fit into an "
            "ONNX file (2 GB); fit fewer or smaller trees (n_estimators, max_leaf_nodes, min_samples_leaf)."
        )


def leaf_numbers(graph: Graph, X: str, trees: Sequence[Tree]) -> str:
    """Return the content of each row's leaf in each tree, as int64 of shape (rows, trees).

    X is in double precision, and so are the comparisons.
    """
    helper, sizes = graph.onnx.helper, [len(tree.feature) for tree in trees]
    if max(int(tree.content.max()) for tree in trees) >= _EXACT:
        raise ExportError(f"the trees have more than {_EXACT:,} different leaves; fit fewer or smaller trees.")
    is_leaf = np.concatenate([tree.is_leaf for tree in trees])
    tree_ids = np.repeat(np.arange(len(trees)), sizes)
    node_ids = np.concatenate([np.arange(size) for size in sizes])

    def inner(name: str) -> NDArray[Any]:
        return np.where(is_leaf, 0, np.concatenate([getattr(tree, name) for tree in trees]))

    content = np.concatenate([tree.content for tree in trees])[is_leaf]
    attributes: dict[str, NDArray[Any]] = {
        "nodes_treeids": tree_ids,
        "nodes_nodeids": node_ids,
        "nodes_featureids": inner("feature"),
        "nodes_truenodeids": inner("left"),
        "nodes_falsenodeids": inner("right"),
        "nodes_missing_value_tracks_true": inner("missing_left"),
        "target_treeids": tree_ids[is_leaf],
        "target_nodeids": node_ids[is_leaf],
        "target_ids": tree_ids[is_leaf],
    }
    numbers = graph.op("TreeEnsembleRegressor", X, domain=DOMAIN_ML, n_targets=len(trees))
    node = graph.nodes[-1]
    for name, values in attributes.items():
        node.attribute.append(graph.onnx.AttributeProto(name=name, type=graph.onnx.AttributeProto.INTS))
        node.attribute[-1].ints.extend(values.astype(np.int64).tolist())
    modes = [b"LEAF" if leaf else b"BRANCH_LEQ" for leaf in is_leaf.tolist()]
    node.attribute.append(helper.make_attribute("nodes_modes", modes))
    for name, values in (("nodes_values", inner("threshold")), ("target_weights", content)):
        tensor = graph.onnx.numpy_helper.from_array(values.astype(np.float64), name)
        node.attribute.append(helper.make_attribute(f"{name}_as_tensor", tensor))
    return graph.cast(numbers, np.int64)
