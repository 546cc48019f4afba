"""The registry: the one list of losses, from which tests, command line, docs and experiments read.

Losses that are not on the list are found by the file they are in.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from demur.errors import InputError, InputTypeError
from demur.losses.function_loss import FunctionLoss, LossFunction, RuleFunction, RuleName
from demur.losses.loss import Loss
from demur.named_classes import NamedClasses

__all__ = ["available", "get", "load_object", "register", "resolve", "unregister"]

L = TypeVar("L", bound=Loss)

_classes: NamedClasses[type[Loss]] = NamedClasses("loss")


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
    >>> "tempered-2" in available()
    True
    >>> get("tempered-2").decide(torch.tensor([[4.0, 0.0]]), cost=0.2).reject
    tensor([False])
    >>> unregister("tempered-2")
    """

    def decorate(cls: type[L]) -> type[L]:
        for fields in variants or ({},):
            name = cls(**fields).name
            _classes.add(name, cls, fields)
        return cls

    return decorate


def unregister(name: str) -> None:
    """Remove a loss from the registry.

    Examples
    --------
    >>> unregister("no such loss")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown loss 'no such loss'. Available: apc+exp, apc+log, ...
    """
    del _classes[name]


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
    loss: Loss = _classes.make(name, **fields)
    return loss


def available(n_classes: int | None = None) -> list[str]:
    """Return the names of all registered losses, or of those that take ``n_classes`` classes.

    Examples
    --------
    >>> "ce" in available()
    True
    >>> "mh" in available(n_classes=3)
    False
    """
    return [name for name in _classes if n_classes in (None, 2) or not _classes[name].binary_only]


def registered_classes() -> set[type[Loss]]:
    """Return the classes of all registered losses."""
    return _classes.classes()


def resolve(loss: str | Loss | type[Loss] | LossFunction, *, rule: RuleName | RuleFunction | None = None) -> Loss:
    """Return the loss that a name, a file, a class, a function or an object means.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        A registered name such as "ova+log"; or "file.py:Name" or "module:Name", where the name is that of a class, an
        object or a plain function of (scores, y, cost). **The file is run** (once per process): name only files that
        you trust as your own programs. A class is made with its default fields; a function becomes a
        :class:`~demur.losses.FunctionLoss`.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        How a plain function decides, "softmax" by default; every other loss brings its own rule.

    Raises
    ------
    InputError, InputTypeError
        If there is no such loss, file or object, if the file cannot be run, or if the object is not a loss.

    Examples
    --------
    >>> resolve("ce")
    CrossEntropy()
    >>> resolve("my_losses.py:Brier")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: cannot import 'my_losses.py': there is no file my_losses.py.
    """
    subject: Any = loss
    if isinstance(loss, str):
        subject = load_object(loss) if ":" in loss else get(loss)
    if isinstance(subject, type) and issubclass(subject, Loss):
        subject = _with_default_fields(subject)
    if isinstance(subject, Loss):
        if rule is not None:
            raise InputTypeError(
                f"{subject.name} brings its own decision rule; a rule can be given for a plain function only."
            )
        return subject
    if isinstance(subject, type):
        raise InputTypeError(
            f"a loss is a registered name, a Loss, or a function of (scores, y, cost), got the class "
            f"{subject.__name__}; name an object, such as {subject.__name__}(reduction='none') for a loss of torch."
        )
    if not callable(subject):
        raise InputTypeError(
            f"a loss is a registered name, a Loss, or a function of (scores, y, cost), got {type(subject).__name__}."
        )
    return FunctionLoss(subject, rule or "softmax")


def load_object(path: str) -> Any:
    """Return the object that "file.py:name" or "module:name" names; modules of the working directory count.

    The file or module is run, once per process.
    """
    source, _, attribute = path.rpartition(":")
    if not source or not attribute:
        raise InputError(f"{path!r} is not of the form file.py:name or module:name.")
    try:
        target: Any = _run_file(Path(source)) if source.endswith(".py") else _import(source)
    except Exception as error:  # a user's file may raise anything while it runs
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"cannot import {source!r}: {reason}") from error
    for part in attribute.split("."):
        if not hasattr(target, part):
            close = get_close_matches(part, vars(target), n=1) if hasattr(target, "__dict__") else []
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InputError(f"{source!r} has no object {attribute!r}.{hint}")
        target = getattr(target, part)
    return target


def _import(module: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(module)


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise InputError(f"there is no file {file}.")
    name = file.stem
    known = sys.modules.get(name)
    if known is not None and not _is_from(known, file):
        name = f"{file.stem}:{file.resolve()}"  # a file of yours may have the name of a module that is in use
        known = sys.modules.get(name)
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _is_from(module: ModuleType, file: Path) -> bool:
    source = getattr(module, "__file__", None)
    return source is not None and Path(source).resolve() == file.resolve()


def _with_default_fields(cls: type[Loss]) -> Loss:
    if inspect.isabstract(cls):
        missing = ", ".join(sorted(cls.__abstractmethods__))
        raise InputTypeError(f"{cls.__name__} is not complete: it does not define {missing}.")
    try:
        return cls()
    except TypeError as error:
        raise InputTypeError(
            f"{cls.__name__} cannot be made without arguments ({error}); name an object of it."
        ) from error
