"""The interface of rejection losses: a value to train with and a rule to decide with."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, cast, final

from demur.array_types import CostLike, FloatArray
from demur.costs import check_cost
from demur.errors import InputError, InputTypeError
from demur.lazy_torch import Tensor, torch
from demur.margins import MarginFunction, NoInverseLinkError
from demur.rules import Decision, chow_acceptance

Hyper: TypeAlias = float | Tensor
"""A hyper-parameter: one number, or a tensor that broadcasts against ``y`` (one per network of a stack)."""

Value = TypeVar("Value")

Family: TypeAlias = Literal["confidence", "classifier-rejector", "score-based", "cost-sensitive", "hinge", "heuristic"]


CLEAR = 1e-9
"""Least distance of max eta from 1 - c that a proof covers."""

_MOST_CLASSES = 1 << 40
"""Largest number of classes of the search for the number of classes."""


@dataclass(frozen=True)
class Proof:
    """An argument for calibration at one cost, and its hypotheses.

    Parameters
    ----------
    method, statement : str
        Method of the proof, and the statement that it proves.
    value : callable
        The loss in the form of the argument: from scores (n, n_outputs) and labels (n,) to losses (n,).
    acceptance : callable
        The acceptance of the rule in the form of the argument: from scores to numbers (n,).
    checked : tuple of str or None
        Descriptions of the verified hypotheses; None for one that fails.
    """

    method: str
    statement: str
    value: Callable[[Tensor, Tensor], Tensor]
    acceptance: Callable[[Tensor], Tensor]
    checked: tuple[str | None, ...] = ()


class Trainable(ABC):
    """Interface of the losses that networks can be trained with.

    ``y`` is the target of each example, of shape (...) for a class, or (..., n) if a loss needs more than the class.
    """

    ranges: ClassVar[Mapping[str, str]] = {}
    """The interval of each hyper-parameter that has one, such as "[0, 1)"; None and words are not checked."""
    has_link: ClassVar[bool] = False
    """True if the scores determine class probabilities through :meth:`inverse_link`."""
    kernel: ClassVar[str | None] = None
    """Name of the loss in the GPU program (``training/fused_kernels.py``); None if it is not implemented there."""

    def __post_init__(self) -> None:
        for name, interval in self.ranges.items():
            value: Any = getattr(self, name)
            if value is None or isinstance(value, str):
                continue
            low, high = map(float, interval[1:-1].split(","))
            above = value >= low if interval[0] == "[" else value > low
            inside = above & (value <= high if interval[-1] == "]" else value < high)
            if not (inside if isinstance(inside, bool) else inside.all()):  # of every network of a stack
                raise InputError(f"{name} must be in {interval}, got {value}.")

    def margin_functions(self) -> tuple[MarginFunction, ...]:
        """Return the margin functions of the loss, which are fields of it."""
        return tuple(value for value in vars(self).values() if isinstance(value, MarginFunction))

    @abstractmethod
    def forward(self, scores: Tensor, y: Tensor, cost: CostLike) -> Tensor:
        """Return the loss of each example, unchecked; the cost is None where it is not needed."""

    def expected(self, scores: Tensor, weights: Tensor, cost: CostLike) -> Tensor:
        """Return the sum over classes k of ``weights[..., k]`` times the loss of label k, unchecked.

        With class probabilities as weights this is the loss of a soft label. The default evaluates :meth:`forward` for
        every class, which takes K times the memory of one label; a loss may override it with a formula, which is tested
        against the default.
        """
        n_classes = weights.shape[-1]
        labels = torch.arange(n_classes, device=scores.device).expand(weights.shape)
        wide = scores.unsqueeze(-2).expand(*scores.shape[:-1], n_classes, scores.shape[-1])
        return (weights * self.forward(wide, labels, over_classes(cost))).sum(-1)

    def __init_subclass__(cls) -> None:
        if "forward" in vars(cls) and "score_gradient" not in vars(cls):  # a formula is that of another loss
            cls.score_gradient = Trainable.score_gradient  # type: ignore[method-assign]

    def score_gradient(self, scores: Tensor, y: Tensor, cost: CostLike, weight: Tensor) -> Tensor:
        """Return the gradient of ``sum(weight * forward(scores, y, cost))`` with respect to the scores.

        Autograd computes it, and a loss may override it.
        """
        with torch.enable_grad():
            leaf = scores.detach().requires_grad_()
            (gradient,) = torch.autograd.grad((self.forward(leaf, y, cost) * weight).sum(), leaf)
        return gradient


@dataclass(frozen=True)
class BoundFacts:
    """Terms of the paper's excess risk bound of a loss (Theorems 7 and 8).

    Parameters
    ----------
    theorem : str
    multiplier, exponent : float
        A and s of (excess 0-1-c risk / A)^s <= excess risk of the loss.
    excess : callable
        From x and q to the least excess risk of scores at the threshold of probability q, at a class probability of
        q + x (an array, rounded down), or to None if no formula is known.
    two_scores : bool
        Whether a wrong answer requires two scores at the threshold.
    on_range : callable, optional
        From a bound of the scores and the number of classes to the Lipschitz constant and the largest value of the
        loss (Proposition 9).
    """

    theorem: str
    multiplier: float
    exponent: float
    excess: Callable[[FloatArray, float], FloatArray | None]
    two_scores: bool = False
    on_range: Callable[[float, int], tuple[float, float]] | None = None


@dataclass(frozen=True)
class Loss(Trainable):
    """A surrogate of the 0-1-c loss, with the rule that turns its scores into decisions.

    A subclass is a frozen dataclass whose fields are its hyper-parameters. It implements :meth:`forward`,
    :meth:`n_outputs` unless it takes one score per class, and :meth:`inverse_link` if its scores determine class
    probabilities, or else :meth:`rule`. It states its properties in the class variables, and
    :func:`demur.losses.register` registers it. Users call the loss itself, :meth:`decide` and :meth:`proba`, which
    check their input. Training engines call :meth:`forward` directly.

    Statements about the formula (:meth:`proof`, :meth:`bound_facts`, ``kernel``) hold for the class that makes them and
    not for its subclasses.

    Shapes: ``scores`` is (..., n_outputs), ``y`` is (...), every result is (...). ``cost`` and the
    hyper-parameters are numbers, or tensors that broadcast against ``y``, so that a stack of networks with
    different values is one tensor program.
    """

    family: ClassVar[Family]
    """The family of the loss."""
    equation: ClassVar[str]
    """The equation in the paper, or the source of the formula."""
    why: ClassVar[str]
    """One sentence: why it is calibrated for rejection, or why not."""
    softmax_link: ClassVar[bool] = False
    """True if the inverse link is the softmax of all scores, which can be computed without torch."""
    trained_for_cost: ClassVar[bool] = False
    """True if the cost enters the loss: another cost then needs another training."""
    has_rejector: ClassVar[bool] = False
    """True if the last score is a trained rejector r, so that Theorem 4 applies."""
    binary_only: ClassVar[bool] = False
    """True if the loss is defined for two classes only."""
    slope_decides: ClassVar[bool] = False
    """True if the slope in the rejector at r = 0 shows on which side the minimum is, even if the loss is not convex."""
    tau_candidates: ClassVar[tuple[float, ...]] = ()
    """The values of a threshold ``tau`` that model selection tries."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The registry key, the paper's name in lower case."""

    @property
    def smooth(self) -> bool:
        """True if the loss is continuously differentiable in the scores: if its margin functions are, by default."""
        return all(phi.smooth for phi in self.margin_functions())

    def n_outputs(self, n_classes: int) -> int:
        """Return how many scores a network needs for ``n_classes`` classes: one per class, unless a loss has others."""
        return n_classes

    def rule(self, scores: Tensor, cost: Hyper) -> Decision[Tensor]:
        """Decide for each example, unchecked: by Chow's rule on the inverse link, unless a loss has another rule."""
        confidence = self.inverse_link(scores).amax(-1)
        label = self.class_scores(scores, self._n_classes(scores.shape[-1])).argmax(-1)
        return Decision.from_acceptance(label, chow_acceptance(confidence, cost), confidence)

    def inverse_link(self, scores: Tensor) -> Tensor:
        """Return the class probabilities that the scores stand for, unchecked."""
        raise NoInverseLinkError(
            f"{self.name} has no inverse link, so no probabilities; use decide(), or a loss such as 'ce'."
        )

    def class_scores(self, scores: Tensor, n_classes: int) -> Tensor:
        """Return one number per class whose largest is the answer, of shape (..., n_classes), unchecked."""
        return scores[..., :n_classes]

    def calibrated_for(self, n_classes: int) -> bool:
        """Return whether the loss claims calibration for rejection with this many classes."""
        return n_classes == 2 or not self.binary_only

    def hyper_values(self, n_classes: int, cost: Hyper) -> dict[str, Hyper]:
        """Return the hyper-parameters whose values follow from the number of classes and the cost, by name."""
        return {}

    def proof(self, n_classes: int, cost: float) -> Proof | None:
        """Return the argument why the loss is calibrated at a cost in (0, 1/2), or None if there is none."""
        return None

    def bound_facts(self) -> BoundFacts | None:
        """Return the terms of the paper's excess risk bound, or None if the paper has no bound for the loss."""
        return None

    def for_classes(self, n_classes: int) -> Loss:
        """Return the loss for a problem of ``n_classes`` classes, or refuse if it cannot have that many."""
        if n_classes < 2:
            raise InputError(f"a classifier needs at least two classes, got {n_classes}.")
        if self.binary_only and n_classes != 2:
            raise InputError(f"{self.name} is for two classes only, got {n_classes}; 'ce' takes any number.")
        return self

    def variants_to_train(self) -> list[Loss]:
        """Return the variants to train if the user gives only the name of the loss."""
        return [self]

    def variants_to_decide(self) -> list[Loss]:
        """Return the variants to decide with, given scores trained with this loss."""
        return [replace(cast(Any, self), tau=tau) for tau in self.tau_candidates] or [self]

    @final
    def __call__(
        self, scores: Tensor, y: Tensor, cost: Hyper | None = None, *, class_axis: int | None = None
    ) -> Tensor:
        """Return the loss of each example, without reduction.

        Scores in half precision are converted to single precision, also under autocast. The values of scores and labels
        are checked, which waits for a GPU. They are not checked under ``torch.compile`` and ``vmap``, nor by
        :func:`demur.losses.as_module`.

        Parameters
        ----------
        scores : tensor of shape (..., n_outputs)
        y : tensor of shape (...), of any integer type
        cost : float or tensor broadcasting against ``y``, optional
            Needed by losses that are trained for a cost, ignored by the others.
        class_axis : int, optional
            The axis of ``scores`` that holds the classes, the last by default: 1 for images of shape
            (N, n_outputs, H, W). It has to be given for scores with more than three axes.

        Examples
        --------
        >>> from demur.losses import get
        >>> scores, y = torch.zeros(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.uint8)
        >>> get("ce")(scores, y, class_axis=1).shape
        torch.Size([2, 4, 4])
        """
        scores = self._checked_scores(scores, class_axis, y)
        if torch.compiler.is_compiling():
            labels = y.long()
        else:
            labels = checked_labels(scores, y, self._n_classes(scores.shape[-1]))
            if self.trained_for_cost or cost is not None:
                self.check_cost(cost)
        with full_precision(scores):
            return self.forward(at_least_single(scores), labels, at_least_single(cost))

    @final
    def decide(self, scores: Tensor, cost: Hyper, *, class_axis: int | None = None) -> Decision[Tensor]:
        """Decide for each example with the loss's own rule.

        Parameters
        ----------
        scores : tensor of shape (..., n_outputs)
        cost : float or tensor broadcasting against the examples
        class_axis : int, optional
            As for the loss itself.
        """
        scores = self._checked_scores(scores, class_axis)
        if not torch.compiler.is_compiling():
            self.check_cost(cost)
        with full_precision(scores):
            return self.rule(at_least_single(scores), at_least_single(cost))

    @final
    def proba(self, scores: Tensor, *, class_axis: int | None = None) -> Tensor:
        """Return the estimated class probabilities eta(x), of shape (..., n_classes).

        With ``class_axis``, the classes are on that axis of the result too.

        Raises
        ------
        NoInverseLinkError
            If the loss has no inverse link.
        """
        scores = self._checked_scores(scores, class_axis)
        with full_precision(scores):
            return self.inverse_link(at_least_single(scores)).movedim(-1, -1 if class_axis is None else class_axis)

    def _n_classes(self, n_outputs: int) -> int:
        """Return the largest number of classes that ``n_outputs`` scores can distinguish."""
        if self.binary_only:
            return 2
        fits, most = 2, 4  # doubled, because some losses have 2^K outputs
        while most < _MOST_CLASSES and self.n_outputs(most) <= n_outputs:
            fits, most = most, 2 * most
        while most - fits > 1:  # bisected here: torch.compile cannot trace the module bisect
            middle = (fits + most) // 2
            fits, most = (middle, most) if self.n_outputs(middle) <= n_outputs else (fits, middle)
        return fits

    def _checked_scores(self, scores: Tensor, class_axis: int | None, y: Tensor | None = None) -> Tensor:
        """Return the scores with the classes on the last axis, or refuse them."""
        if not torch.compiler.is_compiling():
            check_scores(scores)
        shape = tuple(scores.shape)
        if class_axis is None:
            either = isinstance(y, Tensor) and scores.ndim == 3 and y.shape == shape[:-1] == shape[:1] + shape[2:]
            if scores.ndim > 3 or either:
                raise InputError(
                    f"the axis of the classes in scores of shape {shape} is not known: pass class_axis=1 for images "
                    "of shape (N, classes, H, W), or class_axis=-1 for the last axis."
                )
        else:
            scores = scores.movedim(class_axis, -1)
        if not torch.compiler.is_compiling():
            self._check_values(scores)
        return scores

    def _check_values(self, scores: Tensor) -> None:
        n_outputs = scores.shape[-1] if scores.ndim else 0
        n_classes = self._n_classes(n_outputs)
        if n_outputs != self.n_outputs(n_classes):
            raise InputError(
                f"{self.name} needs scores of shape (..., n_outputs) with n_outputs = {self.n_outputs(n_classes)} for "
                f"{n_classes} classes, got shape {tuple(scores.shape)}."
            )

    def check_cost(self, cost: CostLike) -> None:
        """Refuse a cost that is missing, out of range, or 0 for a loss that is trained for it."""
        if cost is None:
            raise InputTypeError(f"{self.name} needs a cost: the price of one rejection, a number in [0, 1).")
        values = check_cost(at_least_single(cost).detach().cpu().numpy() if isinstance(cost, Tensor) else cost)
        if self.trained_for_cost and (values == 0).any():
            raise InputError(f"{self.name} cannot be trained for a cost of 0; use a small positive cost.")


def check_scores(scores: Tensor) -> None:
    """Refuse scores that are not a tensor of floats, or contain NaN."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise InputTypeError(f"scores must be a tensor of floats, got {kind}.")
    if _holds(scores.sum().isnan()) and _holds(scores.isnan().any()):  # summing is cheaper, but inf - inf is NaN too
        raise InputError("scores contain NaN: the network has diverged; lower the learning rate or scale the features.")


def checked_labels(scores: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Return the labels as torch indices, or refuse them."""
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        kind = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise InputTypeError(f"y must be a tensor of integer class numbers, got {kind}.")
    if y.shape != scores.shape[:-1]:
        raise InputError(
            f"y must have shape {tuple(scores.shape[:-1])} to match scores {tuple(scores.shape)}, got {tuple(y.shape)}."
        )
    y = y.long()
    if y.numel() and _holds(((y < 0) | (y >= n_classes)).any()):
        raise InputError(
            f"labels must be in 0 ... {n_classes - 1} for these scores, got {int(y.min())} ... {int(y.max())}."
        )
    return y


def _holds(condition: Tensor) -> bool:
    """Return whether a condition holds; False if its value is not available, as under ``vmap``."""
    try:
        return bool(condition)
    except RuntimeError:
        return False


def at_least_single(value: Value) -> Value:
    """Convert half precision to single precision, and leave everything else unchanged.

    Examples
    --------
    >>> at_least_single(torch.zeros(1, dtype=torch.bfloat16)).dtype, at_least_single(0.2)
    (torch.float32, 0.2)
    """
    if isinstance(value, Tensor) and value.is_floating_point() and value.dtype.itemsize < 4:
        return value.float()  # type: ignore[return-value] # a tensor stays one
    return value


def full_precision(scores: Tensor) -> AbstractContextManager[Any]:
    """Return a context without autocast, because that would compute parts of a loss in half precision."""
    kind = scores.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def over_classes(value: Hyper) -> Hyper:
    """Give a per-example value a last axis, so that it broadcasts over the classes."""
    return value.unsqueeze(-1) if isinstance(value, Tensor) else value


def score_of_label(scores: Tensor, y: Tensor) -> Tensor:
    """Return the score of the true class, of shape (...)."""
    return scores.gather(-1, y.unsqueeze(-1)).squeeze(-1)


def signs_of_label(scores: Tensor, y: Tensor) -> Tensor:
    """Return 1 at the class of each example, and -1 at all others.

    Examples
    --------
    >>> signs_of_label(torch.zeros(3), torch.tensor(1))
    tensor([-1.,  1., -1.])
    """
    return torch.full_like(scores, -1.0).scatter(-1, y.unsqueeze(-1), 1.0)


def one_versus_all(phi: MarginFunction, scores: Tensor, y: Tensor) -> Tensor:
    r"""Return :math:`\phi(g_y) + \sum_{k \ne y} \phi(-g_k)`.

    Examples
    --------
    >>> from demur.margins import Logistic
    >>> one_versus_all(Logistic(), torch.zeros(2), torch.tensor(0))  # 2 log 2
    tensor(1.3863)
    """
    return phi(signs_of_label(scores, y) * scores).sum(-1)


def weighted_one_versus_all(phi: Callable[[Tensor], Tensor], scores: Tensor, y: Tensor, cost: Hyper) -> Tensor:
    r"""Return :math:`c\,\phi(g_y) + (1-c) \sum_{k \ne y} \phi(-g_k)`.

    Examples
    --------
    >>> from demur.margins import Logistic
    >>> weighted_one_versus_all(Logistic(), torch.zeros(3), torch.tensor(0), 0.2)  # (0.2 + 2 * 0.8) log 2
    tensor(1.2477)
    """
    own = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, y.unsqueeze(-1), True)
    c = over_classes(cost)
    return torch.where(own, c * phi(scores), (1 - c) * phi(-scores)).sum(-1)


def rejector_rule(scores: Tensor) -> Decision[Tensor]:
    """Decide with scores (g_1, ..., g_K, r): answer the largest g, accept iff r > 0.

    Examples
    --------
    >>> rejector_rule(torch.tensor([[0.0, 5.0, -0.1]])).reject
    tensor([True])
    """
    return Decision.from_acceptance(scores[..., :-1].argmax(-1), scores[..., -1])


def reject_score_rule(scores: Tensor) -> Decision[Tensor]:
    """Decide with K + 1 scores: answer the largest class score, accept iff it is above the last score.

    Examples
    --------
    >>> reject_score_rule(torch.tensor([[0.0, 5.0, 4.0], [0.0, 5.0, 5.0]])).reject
    tensor([False,  True])
    """
    best = scores[..., :-1].max(-1)
    return Decision.from_acceptance(best.indices, best.values - scores[..., -1])


def check_inverse_link(loss: Loss, phi: MarginFunction, otherwise: str = "") -> None:
    """Refuse a margin function without an inverse link, for a loss that needs it for its probabilities."""
    if phi.bound_exponent is None:
        hint = f"; see {otherwise}" if otherwise else ""
        raise InputError(f"{type(loss).__name__} needs a phi with an inverse link, got {phi}{hint}.")
