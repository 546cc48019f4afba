"""torch, imported at first use: models that predict with NumPy start without it, in half the time.

Modules of demur take ``torch`` and its most used names from here. What is annotated with them is not evaluated, so
that importing those modules loads nothing.
"""

import importlib
import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

__all__ = ["F", "Tensor", "nn", "torch", "without_gradients"]

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

if TYPE_CHECKING:
    import torch as torch
    import torch.nn.functional as F  # as everybody calls it
    from torch import Tensor as Tensor
    from torch import nn as nn
else:

    class _Lazy:
        """A module that is imported when it is asked for the first of its names."""

        def __init__(self, name: str) -> None:
            self.__dict__["_name"] = name

        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module(self._name), name)
            self.__dict__[name] = value  # found without coming here from now on
            return value

    class _OfTorch(type):
        """A class whose instances are torch's tensors; before torch is loaded there are none."""

        def __instancecheck__(cls, instance: object) -> bool:
            loaded = sys.modules.get("torch")
            return loaded is not None and isinstance(instance, loaded.Tensor)

    class Tensor(metaclass=_OfTorch):
        """Stands for ``torch.Tensor`` in annotations and in ``isinstance``."""

    torch, nn, F = _Lazy("torch"), _Lazy("torch.nn"), _Lazy("torch.nn.functional")


def without_gradients(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorate a function to run under ``torch.no_grad()``."""

    @wraps(function)
    def run(*arguments: _Parameters.args, **named: _Parameters.kwargs) -> _Result:
        with torch.no_grad():
            return function(*arguments, **named)

    return run
