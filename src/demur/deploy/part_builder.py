"""Builds the parts of a model's archive without skops, whose import loads all of scikit-learn, and torch with it.

Each kind of part is built as skops builds it, from classes on fixed lists: demur's own, and scikit-learn's estimators
with what they hold. An archive with any other part is left to skops, which has lists of its own.
"""

import functools
import io
import json
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from demur.array_types import ByName
from demur.deploy.part_checks import Archive, PartError

__all__ = ["OtherPartsError", "build"]

Node = ByName

_INSIDE_SKLEARN = (
    "sklearn._loss.link.HalfLogitLink",
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.LogLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
)
"""Classes of scikit-learn that are no estimators and are built all the same."""

_LOSSES = ("sklearn._loss._loss.CyHalfBinomialLoss", "sklearn._loss._loss.CyHalfMultinomialLoss")
_CHECK = "sklearn.utils.validation.check_array"
_KEYS: Mapping[str, Callable[[str], Any]] = {"builtins.str": str, "builtins.int": int, "builtins.float": float}


class OtherPartsError(Exception):
    """The archive holds a part that is not built here."""


def build(archive: Archive, own_module: str, class_named: Callable[[str], type]) -> Any:
    """Return the model in an archive whose description was checked.

    Parameters
    ----------
    archive : Archive
    own_module : str
        What the description gives as the module of demur's classes.
    class_named : callable
        From the name of such a class to the class.

    Raises
    ------
    OtherPartsError
        Before anything is built.
    """
    builder = _Builder(archive, own_module, class_named)
    builder.look(archive.schema)
    return builder.built(archive.schema)


def _path(node: Node) -> str:
    return f"{node['__module__']}.{node['__class__']}"


class _Builder:
    def __init__(self, archive: Archive, own_module: str, class_named: Callable[[str], type]) -> None:
        self._archive, self._own, self._class_named = archive, own_module, class_named
        self._done: dict[int, Any] = {}

    # What there is, before anything is built ---------------------------------------------------------------------

    def look(self, schema: Node) -> None:
        from demur.deploy.part_checks import nodes_of

        for node, _ in nodes_of(schema):
            kind, path = node["__loader__"], _path(node)
            if kind not in _KINDS or not _KINDS[kind](self, path, node):
                raise OtherPartsError(f"{kind} {path}")

    def _is_object(self, path: str, node: Node) -> bool:
        if node["__module__"] == self._own or path in _INSIDE_SKLEARN:
            return True
        return path.startswith("sklearn.") and self._is_estimator(node)

    def _is_estimator(self, node: Node) -> bool:
        """Say whether a class is one of scikit-learn's estimators; importing its module runs nothing of the file's."""
        from sklearn.base import BaseEstimator

        module, name = node["__module__"], node["__class__"]
        if name.startswith("_") or not all(part.isidentifier() for part in module.split(".")) or "tests" in module:
            return False
        try:
            found = getattr(import_module(module), name, None)
        except ImportError:
            return False
        return isinstance(found, type) and issubclass(found, BaseEstimator) and found.__module__ == module

    # Building ----------------------------------------------------------------------------------------------------

    def built(self, node: Node) -> Any:
        number = node.get("__id__")
        if number is not None and number in self._done and node["__loader__"] not in ("JsonNode", "TypeNode"):
            return self._done[number]
        value = getattr(self, f"_{node['__loader__']}")(node)
        if number is not None:
            self._done[number] = value
        return value

    def _class(self, node: Node) -> type:
        if node["__module__"] == self._own:
            return self._class_named(node["__class__"])
        found: type = getattr(import_module(node["__module__"]), node["__class__"])
        return found

    def _JsonNode(self, node: Node) -> Any:  # noqa: N802 # these are called as skops calls the kinds
        return json.loads(node["content"])

    def _DictNode(self, node: Node) -> dict[Any, Any]:  # noqa: N802
        kinds = node["key_types"]["content"]
        if len(kinds) < len(node["content"]):
            raise PartError("a dictionary has more keys than types of keys.")
        keys = (_KEYS[_path(kind)](key) for kind, key in zip(kinds, node["content"], strict=False))
        return dict(zip(keys, map(self.built, node["content"].values()), strict=True))

    def _ListNode(self, node: Node) -> list[Any]:  # noqa: N802
        return [self.built(item) for item in node["content"]]

    def _TupleNode(self, node: Node) -> Any:  # noqa: N802
        content = tuple(self.built(item) for item in node["content"])
        return content if _path(node) == "builtins.tuple" else self._class(node)(*content)

    def _SliceNode(self, node: Node) -> slice:  # noqa: N802
        content = node["content"]
        return slice(content["start"], content["stop"], content["step"])

    def _TypeNode(self, node: Node) -> type:  # noqa: N802
        found: type = getattr(import_module(node["__module__"]), node["__class__"])
        return found

    def _NdArrayNode(self, node: Node) -> Any:  # noqa: N802
        if node["type"] == "json":
            shape, items = self.built(node["shape"]), [self.built(item) for item in node["content"]]
            if len(shape) != 1:
                return np.array(items, dtype="O")
            array = np.ndarray(shape=len(items), dtype="O")
            for position, item in enumerate(items):
                array[position] = item
            return array
        array = np.load(io.BytesIO(self._archive.members[node["file"]]), allow_pickle=False)
        return array if node["__class__"] == "ndarray" else getattr(np, node["__class__"])(array)

    def _DTypeNode(self, node: Node) -> Any:  # noqa: N802
        return self.built(node["content"]).dtype

    def _ObjectNode(self, node: Node) -> Any:  # noqa: N802
        cls: Any = self._class(node)
        instance = cls.__new__(cls)
        attributes = None if node.get("content") is None else self.built(node["content"])
        if attributes is None:
            return instance
        if hasattr(instance, "__setstate__"):
            instance.__setstate__(attributes)
        else:
            instance.__dict__.update(attributes)
        return instance

    def _TreeNode(self, node: Node) -> Any:  # noqa: N802
        from sklearn.tree._tree import Tree

        tree = Tree(*self.built(node["__reduce__"]["args"]))
        tree.__setstate__(self.built(node["content"]))
        return tree

    def _LossNode(self, node: Node) -> Any:  # noqa: N802
        loss = self._class(node)(*self.built(node["__reduce__"]["args"]))
        state = self.built(node["content"])
        if state:
            raise PartError("a loss of scikit-learn's has a state, which none has.")
        return loss

    def _FunctionNode(self, node: Node) -> Any:  # noqa: N802
        from sklearn.utils.validation import check_array

        return check_array

    def _PartialNode(self, node: Node) -> Any:  # noqa: N802
        content = node["content"]
        arguments, named = self.built(content["args"]), self.built(content["kwds"])
        if self.built(content["namespace"]):
            raise PartError("a function has attributes, which none has.")
        return functools.partial(self.built(content["func"]), *arguments, **named)

    def _RandomGeneratorNode(self, node: Node) -> Any:  # noqa: N802
        state = self.built(node["content"]["bit_generator"])
        generator = np.random.PCG64(np.random.SeedSequence(**self.built(node["content"]["seed_seq"])))
        if state["bit_generator"] != "PCG64":
            raise PartError("a generator of random numbers is not of the usual kind.")
        generator.state = state
        return np.random.Generator(generator)


_SCALARS = tuple(f"numpy.{name}" for name in ("bool", "float32", "float64", "int32", "int64", "uint32", "uint64"))


def _is_generator(builder: _Builder, path: str, node: Node) -> bool:
    name = node["content"]["bit_generator"]["content"]["bit_generator"]["content"]
    return path == "numpy.random._generator.Generator" and name == '"PCG64"'


_KINDS: Mapping[str, Callable[[_Builder, str, Node], bool]] = {
    "JsonNode": lambda builder, path, node: isinstance(node["content"], str),
    "DictNode": lambda builder, path, node: (
        path == "builtins.dict" and all(_path(kind) in _KEYS for kind in node["key_types"]["content"])
    ),
    "ListNode": lambda builder, path, node: path == "builtins.list",
    "TupleNode": lambda builder, path, node: path == "builtins.tuple",
    "SliceNode": lambda builder, path, node: path == "builtins.slice",
    "TypeNode": lambda builder, path, node: path in (*_KEYS, *_SCALARS),
    "NdArrayNode": lambda builder, path, node: (
        path in ("numpy.ndarray", *_SCALARS) and node["type"] in ("json", "numpy")
    ),
    "DTypeNode": lambda builder, path, node: path == "numpy.dtype",
    "ObjectNode": _Builder._is_object,
    "TreeNode": lambda builder, path, node: path == "sklearn.tree._tree.Tree",
    "LossNode": lambda builder, path, node: path in _LOSSES,
    "FunctionNode": lambda builder, path, node: path == _CHECK,
    "PartialNode": lambda builder, path, node: path == "functools.partial" and _path(node["content"]["func"]) == _CHECK,
    "RandomGeneratorNode": _is_generator,
}
"""Which parts of each kind are built here."""
