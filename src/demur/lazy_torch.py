"""torch, imported at first use: models that predict with NumPy start without it, in half the time.

Modules of demur take ``torch`` and its most used names from here. What is annotated with them is not evaluated, so
that importing those modules loads nothing.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["F", "Tensor", "nn", "torch"]

if TYPE_CHECKING:
    import torch as torch
    import torch.nn.functional as F  # the usual name
    from torch import Tensor as Tensor
    from torch import nn as nn
else:

    class _Lazy(ModuleType):
        """A module that is imported when one of its names is first used.

        It is a module itself so that ``torch.compile`` finds its names in its dictionary.
        """

        def __getattr__(self, name: str) -> Any:
            module = importlib.import_module(self.__name__)
            self.__dict__.update({**vars(module), "__doc__": self.__doc__})  # found without coming here from now on
            return getattr(module, name)

    class _OfTorch(type):
        """A class whose instances are torch's tensors; before torch is loaded there are none."""

        def __instancecheck__(cls, instance: object) -> bool:
            loaded = sys.modules.get("torch")
            return loaded is not None and isinstance(instance, loaded.Tensor)

    class Tensor(metaclass=_OfTorch):
        """Stands for ``torch.Tensor`` in annotations and in ``isinstance``."""

    torch, nn, F = (_Lazy(name, _Lazy.__doc__) for name in ("torch", "torch.nn", "torch.nn.functional"))
