"""From the tree in a model file back to the model; what the tree may ask for is listed here and nowhere else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from demur.deploy.arrays import ArrayReader, array_of_items
from demur.deploy.classes import class_named, restore
from demur.deploy.errors import ModelFileError
from demur.losses import available, get

__all__ = ["Decoder"]

_TORCH_DTYPES = frozenset(
    {
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    }
)


class Decoder:
    """Decodes one model.

    Parameters
    ----------
    arrays : ArrayReader
    sklearn_parts : list of objects

    Examples
    --------
    >>> from demur.deploy.encoding import Encoder
    >>> encoder = Encoder()
    >>> tree = encoder.encode((1, {"a": np.float32(0.5)}, np.arange(3)))
    >>> Decoder(ArrayReader(encoder.arrays.to_bytes()), []).decode(tree)
    (1, {'a': np.float32(0.5)}, array([0, 1, 2]))
    """

    def __init__(self, arrays: ArrayReader, sklearn_parts: list[Any]) -> None:
        self._arrays, self._sklearn_parts = arrays, sklearn_parts
        self._objects: list[Any] = []
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "tuple": self._tuple,
            "set": self._set,
            "frozenset": self._frozenset,
            "dict": self._dict,
            "float": self._float,
            "scalar": self._scalar,
            "dtype": self._dtype,
            "array": self._array,
            "items": self._items,
            "tensor": self._tensor,
            "torch.dtype": self._torch_dtype,
            "torch.device": self._torch_device,
            "random_state": self._random_state,
            "sklearn": self._sklearn,
            "object": self._object,
            "loss": self._loss,
            "ref": self._ref,
        }

    def decode(self, node: Any) -> Any:
        """Return the value that a tree stands for."""
        if isinstance(node, list):
            return [self.decode(one) for one in node]
        if not isinstance(node, dict):
            return node
        kind = next(iter(node), "")
        if kind not in self._kinds:
            raise ModelFileError(f"the model holds a part of the unknown kind {kind!r}; a newer demur may know it.")
        return self._kinds[kind](node)

    def _tuple(self, node: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(self.decode(node["tuple"]))

    def _set(self, node: dict[str, Any]) -> set[Any]:
        return set(self.decode(node["set"]))

    def _frozenset(self, node: dict[str, Any]) -> frozenset[Any]:
        return frozenset(self.decode(node["frozenset"]))

    def _dict(self, node: dict[str, Any]) -> dict[Any, Any]:
        return {self.decode(key): self.decode(value) for key, value in node["dict"]}

    def _float(self, node: dict[str, Any]) -> float:
        return float(node["float"])

    def _scalar(self, node: dict[str, Any]) -> Any:
        dtype, value = np.dtype(node["dtype"]), self.decode(node["scalar"])
        if dtype.kind not in "biufUmM":
            raise ModelFileError(f"the model holds a scalar of {dtype}, which no model file may hold.")
        return np.array(value, dtype=np.int64).view(dtype)[()] if dtype.kind in "mM" else dtype.type(value)

    def _dtype(self, node: dict[str, Any]) -> Any:
        return np.dtype(node["dtype"])

    def _array(self, node: dict[str, Any]) -> Any:
        return self._arrays.array(node)

    def _items(self, node: dict[str, Any]) -> Any:
        items = self.decode(node["items"])
        if np.dtype(node["dtype"]).kind == "S":
            items = [item.encode("latin-1") for item in items]
        return array_of_items(items, node["dtype"], node["shape"])

    def _tensor(self, node: dict[str, Any]) -> Any:
        return self._arrays.tensor(node)

    def _torch_dtype(self, node: dict[str, Any]) -> Any:
        if node["torch.dtype"] not in _TORCH_DTYPES:
            raise ModelFileError(f"the model names the tensor type {node['torch.dtype']!r}, which does not exist.")
        return getattr(torch, node["torch.dtype"])

    def _torch_device(self, node: dict[str, Any]) -> torch.device:
        return torch.device(node["torch.device"])

    def _random_state(self, node: dict[str, Any]) -> np.random.RandomState:
        generator = np.random.RandomState()
        generator.set_state(self.decode(node["random_state"]))
        return generator

    def _sklearn(self, node: dict[str, Any]) -> Any:
        return self._sklearn_parts[node["sklearn"]]

    def _object(self, node: dict[str, Any]) -> Any:
        cls = class_named(node["object"])
        return self._remembered(restore(cls, {name: self.decode(part) for name, part in node["state"].items()}))

    def _loss(self, node: dict[str, Any]) -> Any:
        name = node["loss"]
        if name not in available():
            raise ModelFileError(
                f"the model was trained with the loss {name!r}, which is not registered here; import the module that "
                "registers it with demur.losses.register, then load again."
            )
        return self._remembered(get(name, **{field: self.decode(part) for field, part in node["fields"].items()}))

    def _ref(self, node: dict[str, Any]) -> Any:
        return self._objects[node["ref"]]

    def _remembered(self, value: Any) -> Any:
        self._objects.append(value)
        return value
