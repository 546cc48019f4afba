"""The registry of losses, which the estimators, the command line, tests, docs and experiments read.

Other losses are loaded from their file, and a plain function becomes a :class:`FunctionLoss`.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from demur.errors import InputError, InputTypeError
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Hyper, Loss, reject_score_rule, rejector_rule
from demur.named_classes import NamedClasses, suggestion
from demur.rules import Decision, Relinked

if TYPE_CHECKING:
    from demur.losses.loss_module import LossModule

L = TypeVar("L", bound=Loss)

LossFunction: TypeAlias = Callable[..., Tensor]
"""A function of (scores, y, cost), or of (scores, y) if the cost does not matter to it."""
RuleName: TypeAlias = Literal["softmax", "rejector", "reject-score"]
RuleFunction: TypeAlias = Callable[[Tensor, Any], Any]

_classes: NamedClasses[Loss] = NamedClasses("loss")
registered_classes = _classes.classes


def register(*variants: Mapping[str, Any]) -> Callable[[type[L]], type[L]]:
    """Register a loss class under the name of each of its variants.

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
    A user-defined loss is one class, in any file. This one is cross-entropy at a temperature:

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
    return _classes.variants(*variants)


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
    return _classes.make(name, **fields)


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


def resolve(loss: str | Loss | type[Loss] | LossFunction, *, rule: RuleName | RuleFunction | None = None) -> Loss:
    """Return the loss given by a name, a file, a class, a function or an object.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        Registered name such as "ova+log"; or "file.py:Name" or "module:Name" of a class, an object or a plain function
        of (scores, y, cost). **The file is executed** (once per process), so give only files that you trust. A class is
        instantiated with its default fields; a function becomes a :class:`~demur.losses.FunctionLoss`.
    rule : "softmax", "rejector", "reject-score" or callable, optional
        Decision rule of a plain function, "softmax" by default; other losses have their own rule.

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
        try:
            subject = subject()
        except TypeError as error:  # a method is missing, or a field has no default
            raise InputTypeError(f"{subject.__name__} cannot be made without arguments: {error}") from error
    if isinstance(subject, Loss):
        if rule is not None:
            raise InputTypeError(
                f"{subject.name} brings its own decision rule; a rule can be given for a plain function only."
            )
        return subject
    if isinstance(subject, type) or not callable(subject):
        kind = f"the class {subject.__name__}" if isinstance(subject, type) else type(subject).__name__
        raise InputTypeError(
            f"a loss is a registered name, a Loss, or a function of (scores, y, cost), got {kind}; name an object, "
            "such as nn.CrossEntropyLoss(reduction='none') for a loss of torch."
        )
    return FunctionLoss(subject, rule or "softmax")


def as_module(
    loss: str | Loss | type[Loss] | LossFunction,
    *,
    cost: Hyper | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    class_weight: Any = None,
    class_dim: int = 1,
) -> LossModule:
    """Return a loss as a ``torch.nn.Module`` of scores and labels, with the arguments of ``nn.CrossEntropyLoss``.

    It replaces ``nn.CrossEntropyLoss`` in skorch, Lightning, Hugging Face's ``Trainer`` and custom training loops. It
    computes in single precision under autocast, compiles with ``torch.compile(fullgraph=True)``, and does not wait for
    a GPU, because the values of labels and scores are not checked.

    Parameters
    ----------
    loss : str, Loss, Loss class or callable
        As for :func:`resolve`.
    cost : float or tensor broadcasting against the labels, optional
        The cost of one rejection, for losses that are trained for it.
    reduction : {"mean", "sum", "none"}
        Reduction of the losses. "mean" divides by the number of labels that are not ignored, or by the sum of their
        class weights.
    ignore_index : int
        Label of examples to ignore.
    label_smoothing : float in [0, 1)
        Weight of the uniform distribution in the labels. The probabilities of "ce" are corrected for it; those of
        other losses are then less certain than they should be.
    class_weight : array of shape (n_classes,), optional
        Weight of each class. The probabilities are then those of classes with such frequencies.
    class_dim : int, default=1
        Axis of the classes in the scores: 1 for (N, n_outputs) and for images (N, n_outputs, H, W), -1 for tokens
        (N, length, n_outputs).

    Returns
    -------
    LossModule
        A module of scores and integer labels, or soft labels: class probabilities on the axis ``class_dim``, for which
        it returns the expected loss. Its attribute ``loss`` decides: ``module.loss.decide(scores, cost)``.

    Examples
    --------
    >>> import torch
    >>> criterion = as_module("ce", ignore_index=255)
    >>> scores, y = torch.zeros(2, 4, 8, 8), torch.full((2, 8, 8), 255)
    >>> y[:, :4] = 3
    >>> criterion(scores, y)  # log 4
    tensor(1.3863)
    >>> as_module("ova+log", reduction="none")(torch.zeros(1, 3), torch.tensor([[0.5, 0.5, 0.0]]))  # 3 log 2
    tensor([2.0794])
    """
    from demur.losses.loss_module import LossModule  # it imports torch

    return LossModule(resolve(loss), cost, reduction, ignore_index, label_smoothing, class_weight, class_dim)


def load_object(path: str) -> Any:
    """Return the object that "file.py:name" or "module:name" names; modules of the working directory count.

    The file or module is executed, once per process.
    """
    source, _, attribute = path.rpartition(":")
    if not source or not attribute:
        raise InputError(f"{path!r} is not of the form file.py:name or module:name.")
    try:
        target: Any = _run_file(Path(source)) if source.endswith(".py") else _import(source)
    except Exception as error:  # a user's file may raise anything while it runs
        reason = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise InputError(f"cannot import {source!r}: {reason}") from error
    if not hasattr(target, attribute):
        raise InputError(f"{source!r} has no object {attribute!r}.{suggestion(attribute, vars(target))}")
    return getattr(target, attribute)


def _import(module: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(module)


def _run_file(file: Path) -> ModuleType:
    if not file.is_file():
        raise InputError(f"there is no file {file}.")
    path = str(file.resolve())
    name = file.stem
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != path:
        name = f"{name}:{path}"  # a file may have the name of a module that is in use
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
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


@dataclass(frozen=True)
class FunctionLoss(Loss):
    """A loss made from a plain function of (scores, y, cost) and a decision rule.

    Parameters
    ----------
    function : callable
        Function of scores (n, n_outputs), labels (n,) and the cost that returns one loss per row, (n,), in
        differentiable torch operations. It may leave the cost out, as ``torch.nn.CrossEntropyLoss(reduction="none")``
        does. A third argument with a default, such as ``gamma=2``, keeps its default unless its name is ``c`` or
        ``cost``.
    decision_rule : "softmax", "rejector", "reject-score", Relinked or callable
        "softmax": one score per class, Chow's rule on their softmax. "rejector": one score per class and a last
        score r; answer the largest, accept iff r > 0 (then Theorem 4 applies). "reject-score": one score per class
        and a last one for declining; answer the largest class score, accept iff it is above the last. Or a
        :class:`~demur.rules.Relinked`, on the softmax of one score per class. Or a function of (scores, cost) that
        returns a :class:`~demur.rules.Decision`, or a pair (label, reject).
    outputs : int, optional
        Number of scores; by default one per class, and one more with "rejector" and "reject-score".
    title : str, optional
        Name to print; by default the function's name.
    differentiable : bool
        False for a function with kinks, which Newton's method alone cannot minimise.

    Examples
    --------
    >>> def brier(scores, y, cost):
    ...     target = torch.nn.functional.one_hot(y, scores.shape[-1])
    ...     return (torch.softmax(scores, -1) - target).square().sum(-1)
    >>> loss = FunctionLoss(brier)
    >>> loss(torch.zeros(1, 4), torch.tensor([2]), cost=0.2)  # (3/4)^2 + 3 (1/4)^2
    tensor([0.7500])
    >>> loss.decide(torch.tensor([[0.0, 5.0, 0.0, 0.0]]), cost=0.2).label
    tensor([1])
    """

    function: LossFunction
    decision_rule: RuleName | RuleFunction | Relinked = "softmax"
    outputs: int | None = None
    title: str | None = None
    differentiable: bool = True

    family: ClassVar[Any] = "confidence"
    equation = "the user's own"
    why = "no claim: see check_calibration"

    def __post_init__(self) -> None:
        rule: Any = self.decision_rule
        if not (callable(rule) or isinstance(rule, Relinked) or rule in get_args(RuleName)):
            raise InputError(
                f"the decision rule must be 'softmax', 'rejector', 'reject-score' or a function of (scores, cost), "
                f"got {self.decision_rule!r}."
            )
        # Facts that a class of losses states once are, for a function, facts of this one object.
        object.__setattr__(self, "has_rejector", self.decision_rule == "rejector")
        object.__setattr__(
            self, "has_link", self.decision_rule == "softmax" or isinstance(self.decision_rule, Relinked)
        )
        object.__setattr__(self, "trained_for_cost", _takes_cost(self.function))

    @property
    def name(self) -> str:
        return self.title or str(getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def smooth(self) -> bool:
        return self.differentiable

    def n_outputs(self, n_classes: int) -> int:
        return self.outputs or n_classes + (self.decision_rule in ("rejector", "reject-score"))

    def forward(self, scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
        each = cost.expand(y.shape).reshape(-1) if isinstance(cost, Tensor) and scores.ndim != 2 else cost
        rows = scores.reshape(-1, scores.shape[-1]), y.reshape(-1)
        values = self.function(*rows, each) if self.trained_for_cost else self.function(*rows)
        if scores.ndim == 2:
            return values
        if values.numel() != y.numel():
            raise InputError(
                f"{self.name} must return one loss per row: do not reduce over the rows (torch's own losses take "
                "reduction='none')."
            )
        return values.reshape(y.shape)

    def inverse_link(self, scores: Tensor) -> Tensor:
        if isinstance(self.decision_rule, Relinked):
            given = scores if self.decision_rule.of_scores else torch.softmax(scores, -1)
            proba: Tensor = self.decision_rule.link(given)
            return proba
        return torch.softmax(scores, -1) if self.has_link else super().inverse_link(scores)

    def class_scores(self, scores: Tensor, n_classes: int) -> Tensor:
        if isinstance(self.decision_rule, Relinked):
            return self.inverse_link(scores)
        return super().class_scores(scores, n_classes)

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        if self.has_link:
            return super().rule(scores, cost)
        if self.decision_rule == "rejector":
            return rejector_rule(scores)
        if self.decision_rule == "reject-score":
            return reject_score_rule(scores)
        assert callable(self.decision_rule)
        decision = self.decision_rule(scores, cost)
        if isinstance(decision, Decision):
            return decision
        label, reject = decision
        certain = torch.where(torch.as_tensor(reject), -1.0, 1.0).to(torch.float64)
        return Decision.from_acceptance(label, certain)

    def _check_values(self, scores: Tensor) -> None:
        """Check nothing: the number of scores that a function takes is unknown."""


def _takes_cost(function: LossFunction) -> bool:
    """Return whether a function, or the forward method of a torch module, takes the cost as its third argument."""
    try:
        signature = inspect.signature(getattr(function, "forward", function))
        third = signature.parameters[[*signature.bind_partial(*range(3)).arguments][-1]]
    except (TypeError, ValueError):  # it takes two, or it is written in C without a signature
        return False
    return third.default is third.empty or third.name in ("c", "cost")
