"""From a model to a tree that JSON can hold.

``None``, booleans, whole numbers, finite floats, strings and lists stand for themselves. Everything else is a JSON
object whose first key says what it is; :mod:`demur.deploy.decoding` has one function for each.
"""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from demur.deploy.arrays import ArrayWriter, items_node
from demur.deploy.classes import name_of, state_of
from demur.deploy.errors import ModelFileError
from demur.losses import Loss, available, get

__all__ = ["Encoder"]


class Encoder:
    """Encodes one model.

    Attributes
    ----------
    arrays : ArrayWriter
        The arrays and tensors met.
    sklearn_parts : list of (str, object)
        The scikit-learn objects met, and where.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> Encoder().encode({"rule": Chow(0.2), "costs": (0.1, float("inf"))})
    {'dict': [['rule', {'object': 'Chow', 'state': {'cost': 0.2}}], ['costs', {'tuple': [0.1, {'float': 'inf'}]}]]}
    """

    def __init__(self) -> None:
        self.arrays = ArrayWriter()
        self.sklearn_parts: list[tuple[str, Any]] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # an object that is gone may leave its id to another
        self._open: set[int] = set()
        self._by_type: dict[type, Callable[[Any, str], Any]] = {
            list: self._list,
            tuple: lambda value, where: {"tuple": self._list(value, where)},
            set: lambda value, where: {"set": self._sorted(value, where)},
            frozenset: lambda value, where: {"frozenset": self._sorted(value, where)},
            dict: self._dict,
            np.ndarray: self._array,
            np.random.RandomState: self._random_state,
            torch.Tensor: lambda value, where: self.arrays.add_tensor(value, where),
            torch.dtype: lambda value, where: {"torch.dtype": str(value).removeprefix("torch.")},
            torch.device: lambda value, where: {"torch.device": str(value)},
        }

    def encode(self, value: Any, where: str = "model") -> Any:
        """Return the tree of a value that has this place in the model."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, np.generic):
            return self._scalar(value, where)
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if id(value) in self._open:
            raise ModelFileError(f"cannot save {where}: it contains itself.")
        self._open.add(id(value))
        try:
            if kind in self._by_type:
                return self._by_type[kind](value, where)
            return self._object(value, where)
        finally:
            self._open.remove(id(value))

    def _object(self, value: Any, where: str) -> dict[str, Any]:
        name = name_of(type(value))
        if name is not None:
            return self._once(value, lambda: {"object": name, "state": self._state(value, where)})
        if isinstance(value, Loss):
            return self._once(
                value, lambda: {"loss": _registered_name(value, where), "fields": self._state(value, where)}
            )
        if type(value).__module__.startswith("sklearn.") and not isinstance(value, type) and not _is_function(value):
            return self._sklearn(value, where)
        raise ModelFileError(_why_not(value, where))

    def _once(self, value: Any, node: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Write an object where it is met first, and its number wherever it is met again."""
        if id(value) in self._numbers:
            return {"ref": self._numbers[id(value)]}
        written = node()
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        return written

    def _state(self, value: Any, where: str) -> dict[str, Any]:
        return {name: self.encode(part, f"{where}.{name}") for name, part in state_of(value).items()}

    def _sklearn(self, value: Any, where: str) -> dict[str, Any]:
        for number, (_, known) in enumerate(self.sklearn_parts):
            if known is value:
                return {"sklearn": number}
        self.sklearn_parts.append((where, value))
        return {"sklearn": len(self.sklearn_parts) - 1}

    def _list(self, values: Any, where: str) -> list[Any]:
        return [self.encode(value, f"{where}[{position}]") for position, value in enumerate(values)]

    def _sorted(self, values: Any, where: str) -> list[Any]:
        """Sort what a set holds, whose own order differs from run to run, unless that would renumber objects."""
        before = len(self._numbers)
        items = self._list(values, where)
        return sorted(items, key=json.dumps) if len(self._numbers) == before else items

    def _dict(self, values: dict[Any, Any], where: str) -> dict[str, Any]:
        pairs = [[self.encode(key, where), self.encode(value, f"{where}[{key!r}]")] for key, value in values.items()]
        return {"dict": pairs}

    def _array(self, array: NDArray[Any], where: str) -> dict[str, Any]:
        if array.dtype.kind not in "USO":
            return self.arrays.add_array(array, where)
        items = array.ravel().tolist()
        if array.dtype.kind == "S":
            items = [item.decode("latin-1") for item in items]
        return items_node(array, self._list(items, where))

    def _scalar(self, scalar: np.generic, where: str) -> dict[str, Any]:
        dtype = scalar.dtype
        if dtype.kind not in "biufUmM" or isinstance(scalar, np.longdouble):
            raise ModelFileError(f"cannot save {where}: a NumPy scalar of {dtype} has no place in a model file.")
        plain = int(scalar.astype(np.int64)) if dtype.kind in "mM" else scalar.item()
        return {"scalar": self.encode(plain, where), "dtype": dtype.str}

    def _random_state(self, value: np.random.RandomState, where: str) -> dict[str, Any]:
        state: Any = value.get_state(legacy=False)
        if state["bit_generator"] != "MT19937":
            raise ModelFileError(f"cannot save {where}: a RandomState of {state['bit_generator']}; use an integer.")
        return {"random_state": self.encode(state, where)}


def _registered_name(loss: Loss, where: str) -> str:
    """Return a name under which a user's loss is registered: the file has its fields, the registry its code."""
    cls = type(loss)
    for name in available():
        known = type(get(name))
        if (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__):
            return name
    raise ModelFileError(
        f"cannot save {where}: the loss {cls.__name__} is not registered, so that no other program could find its "
        "code; decorate the class with demur.losses.register."
    )


def _is_function(value: Any) -> bool:
    return callable(value) and hasattr(value, "__name__")


def _why_not(value: Any, where: str) -> str:
    cls = type(value)
    if isinstance(value, type) or _is_function(value):
        hint = (
            "leave module=None for the built-in network, or save networks_.networks.module(0).state_dict() yourself"
            if where.endswith(".module")
            else "give a name or an object of demur or scikit-learn instead"
        )
        return f"cannot save {where}: {value!r} is code, and a model file holds only data; {hint}."
    return (
        f"cannot save {where}: {cls.__module__}.{cls.__qualname__} is neither demur's nor scikit-learn's; save that "
        "object with its own library, and put the model together again after loading."
    )
