"""torch, imported at first use: models that predict with NumPy start without it, in half the time.

Modules of demur take ``torch`` and its most used names from here. What is annotated with them is not evaluated, so
that importing those modules loads nothing.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["F", "Tensor", "nn", "torch"]

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
