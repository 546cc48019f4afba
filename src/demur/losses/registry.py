"""The registry: the one list of losses, from which tests, command line, docs and experiments read."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from demur.errors import InputError
from demur.losses.base import Loss

__all__ = ["available", "get", "register", "unregister"]

L = TypeVar("L", bound=Loss)

_variants: dict[str, tuple[type[Loss], Mapping[str, Any]]] = {}


def register(*variants: Mapping[str, Any]) -> Callable[[type[L]], type[L]]:
    """Make a loss class known under the name of each of its variants.

    Parameters
    ----------
    *variants : mappings of field values
        One registered loss per mapping; without any, the class with its default fields. The key is the
        ``name`` of the instance.

    Returns
    -------
    decorator
        It returns the class unchanged.

    Raises
    ------
    ValueError
        If another class already has the name.

    Examples
    --------
    A loss of your own is one class, in your own file. This one is cross-entropy at a temperature:

    >>> from dataclasses import dataclass
    >>> import torch
    >>> from demur.losses import Loss, available, get, register, unregister
    >>> from demur.rules import Decision, chow_acceptance
    >>> @register({"temperature": 2.0})
    ... @dataclass(frozen=True)
    ... class Tempered(Loss):
    ...     temperature: float = 1.0
    ...     family = "confidence"
    ...     equation = "mine"
    ...     why = "strictly proper: the minimiser's softmax is eta"
    ...     has_link = True
    ...     name = property(lambda self: f"tempered-{self.temperature:g}")
    ...     def n_outputs(self, n_classes):
    ...         return n_classes
    ...     def forward(self, scores, y, cost):
    ...         return -torch.log(self.inverse_link(scores)).gather(-1, y[..., None])[..., 0]
    ...     def inverse_link(self, scores):
    ...         return torch.softmax(scores / self.temperature, -1)
    ...     def rule(self, scores, cost):
    ...         top = self.inverse_link(scores).amax(-1)
    ...         return Decision.from_acceptance(scores.argmax(-1), chow_acceptance(top, cost), top)
    >>> "tempered-2" in available()
    True
    >>> get("tempered-2").decide(torch.tensor([[4.0, 0.0]]), cost=0.2).reject
    tensor([False])
    >>> unregister("tempered-2")
    """

    def decorate(cls: type[L]) -> type[L]:
        for fields in variants or ({},):
            name = cls(**fields).name
            known = _variants.get(name)
            if known is not None and _identity(known[0]) != _identity(cls):
                raise InputError(
                    f"a loss named {name!r} is registered already, by {known[0].__module__}.{known[0].__qualname__}; "
                    "give yours another name, or unregister that one first."
                )
            _variants[name] = (cls, dict(fields))
        return cls

    return decorate


def unregister(name: str) -> None:
    """Forget a registered loss.

    Examples
    --------
    >>> unregister("no such loss")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown loss 'no such loss'. Available: apc+exp, apc+log, ...
    """
    _find(name)
    del _variants[name]


def get(name: str, **fields: Any) -> Loss:
    """Return the registered loss of that name, with some hyper-parameters replaced if given.

    Examples
    --------
    >>> get("ce")
    CrossEntropy()
    >>> get("ova+hin", tau=0.5).tau
    0.5
    >>> get("ova+logg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown loss 'ova+logg'. Did you mean 'ova+log'? Available: ...
    """
    cls, defaults = _find(name)
    return cls(**{**defaults, **fields})


def available(n_classes: int | None = None) -> list[str]:
    """Return the names of all registered losses, or of those that take ``n_classes`` classes.

    Examples
    --------
    >>> "ce" in available()
    True
    >>> "mh" in available(n_classes=3)
    False
    """
    return sorted(name for name, (cls, _) in _variants.items() if n_classes in (None, 2) or not cls.binary_only)


def _find(name: str) -> tuple[type[Loss], Mapping[str, Any]]:
    if name not in _variants:
        close = get_close_matches(str(name), _variants, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"unknown loss {name!r}.{hint} Available: {', '.join(sorted(_variants))}.")
    return _variants[name]


def _identity(cls: type) -> tuple[str, str]:
    """Two runs of the same notebook cell define the same class."""
    return cls.__module__, cls.__qualname__
