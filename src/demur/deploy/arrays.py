"""Arrays and tensors, kept in one safetensors file under the place they have in the model."""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load, save
from torch import Tensor

from demur.deploy.errors import ModelFileError

__all__ = ["ArrayReader", "ArrayWriter", "array_of_items", "items_node"]

_STORED = frozenset(
    {
        "bool",
        "complex64",
        "float16",
        "float32",
        "float64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
    }
)
"""What safetensors and NumPy both know; the rest is stored as one of these."""


class ArrayWriter:
    """Collects arrays and tensors, each once, and writes them.

    Examples
    --------
    >>> writer = ArrayWriter()
    >>> writer.add_array(np.eye(2), "model.eye")
    {'array': 'model.eye'}
    >>> ArrayReader(writer.to_bytes()).array({"array": "model.eye"})
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        self._nodes: dict[int, dict[str, Any]] = {}
        self._kept: list[Any] = []  # an object that is gone may leave its id to another

    def add_array(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        """Keep an array of numbers, booleans or dates, and return its node for the tree."""
        if id(array) in self._nodes:
            return self._nodes[id(array)]
        node: dict[str, Any] = {"array": where}
        values = array
        if array.dtype.kind in "mM":
            values = array.astype(array.dtype.newbyteorder("="), order="K").view(np.int64)
        elif not array.dtype.isnative:
            values = array.astype(array.dtype.newbyteorder("="), order="K")
        if values is not array:
            node["dtype"] = array.dtype.str
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            node["order"], values = "F", values.T  # products of other layouts may round otherwise
        return self._keep(array, values, node, where)

    def add_tensor(self, tensor: Tensor, where: str) -> dict[str, Any]:
        """Keep a tensor, moved to the CPU, and return its node for the tree."""
        if id(tensor) in self._nodes:
            return self._nodes[id(tensor)]
        if tensor.layout != torch.strided:
            raise ModelFileError(f"cannot save {where}: it is a sparse tensor; make it dense.")
        node: dict[str, Any] = {"tensor": where}
        values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if values.dtype == torch.bfloat16:
            node["dtype"], values = "bfloat16", values.view(torch.int16)
        if str(values.dtype).removeprefix("torch.") not in _STORED:
            raise ModelFileError(f"cannot save {where}: tensors of {values.dtype} have no place in a model file.")
        return self._keep(tensor, values.numpy(), node, where)

    def to_bytes(self) -> bytes:
        """Return the safetensors file."""
        return save(self._arrays)

    def _keep(self, original: Any, values: NDArray[Any], node: dict[str, Any], where: str) -> dict[str, Any]:
        if values.dtype.name not in _STORED:
            raise ModelFileError(f"cannot save {where}: arrays of {values.dtype} have no place in a model file.")
        while where in self._arrays:
            where += "+"  # two keys of a dictionary may look alike
        node[next(iter(node))] = where
        self._arrays[where] = np.require(values, requirements="C")
        self._nodes[id(original)] = node
        self._kept.append(original)
        return node


class ArrayReader:
    """Gives the arrays and tensors of a safetensors file back, each once."""

    def __init__(self, data: bytes) -> None:
        self._arrays: dict[str, NDArray[Any]] = load(data)
        self._read: dict[str, Any] = {}

    def array(self, node: dict[str, Any]) -> NDArray[Any]:
        """Return the array that a node of the tree stands for."""
        name = node["array"]
        if name not in self._read:
            dtype = np.dtype(node["dtype"]) if "dtype" in node else None
            values = self._arrays[name].copy()
            if dtype is not None and dtype.kind in "mM":
                values = values.view(dtype.newbyteorder("="))
            if dtype is not None:
                values = values.astype(dtype)
            self._read[name] = values.T if node.get("order") == "F" else values
        found: NDArray[Any] = self._read[name]
        return found

    def tensor(self, node: dict[str, Any]) -> Tensor:
        """Return the tensor that a node of the tree stands for, on the CPU."""
        name = node["tensor"]
        if name not in self._read:
            values = torch.from_numpy(self._arrays[name].copy()).clone()  # in torch's own, aligned memory
            self._read[name] = values.view(torch.bfloat16) if node.get("dtype") == "bfloat16" else values
        found: Tensor = self._read[name]
        return found


def items_node(array: NDArray[Any], items: list[Any]) -> dict[str, Any]:
    """Return the node of an array of names or objects, whose items are in the tree itself."""
    return {"items": items, "dtype": array.dtype.str, "shape": list(array.shape)}


def array_of_items(items: list[Any], dtype: str, shape: list[int]) -> NDArray[Any]:
    """Return the array of names or objects that :func:`items_node` was made of."""
    if np.dtype(dtype).kind not in "USO" or math.prod(shape) != len(items):
        raise ModelFileError(f"the model holds an array of {len(items)} items that cannot have the shape {shape}.")
    array = np.empty(len(items), dtype=dtype)
    for position, item in enumerate(items):  # NumPy would make a second axis of items that are lists
        array[position] = item
    return array.reshape(shape)
