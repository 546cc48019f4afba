r"""Margin functions phi(z): the binary losses from which the multiclass losses are built.

Each defines its value, slope, inverse link of the one-versus-all loss, threshold theta(c), the constants C and s of the
excess risk bound (Theorem 7 and Table 1 of the paper), and the excess of a score at the threshold. Training, theory and
the GPU program use these definitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from demur.array_types import CostLike, FloatArray
from demur.errors import InputTypeError
from demur.lazy_torch import F, Tensor, torch
from demur.named_classes import NamedClasses

__all__ = [
    "Exponential",
    "Hinge",
    "Logistic",
    "MarginFunction",
    "NoInverseLinkError",
    "Squared",
    "SquaredHinge",
    "available_margins",
    "get_margin",
    "own_fact",
    "register_margin",
    "unregister_margin",
]


class NoInverseLinkError(InputTypeError):
    """The minimiser of the loss does not determine the class probabilities."""


@dataclass(frozen=True)
class MarginFunction(ABC):
    """A convex function phi of a margin z, large where z is negative.

    Subclasses are frozen dataclasses that implement :meth:`__call__`; those with an inverse link also
    :meth:`inverse_link` and :meth:`threshold`, and set the constants below. :meth:`excess` is optional.
    :func:`register_margin` registers a margin function.
    """

    name: ClassVar[str]
    """The suffix of registry keys, as in ``ova+log``."""
    smooth: ClassVar[bool] = True
    """Whether phi is continuously differentiable."""
    strictly_decreasing: ClassVar[bool] = False
    """Whether phi' < 0 everywhere: then the pairwise losses preserve the order of classes (Corollary 18)."""
    bound_constant: ClassVar[float | None] = None
    """C of Theorem 7, None without an inverse link."""
    bound_exponent: ClassVar[float | None] = None
    """s of Theorem 7, None without an inverse link."""
    printed_constant: ClassVar[float | None] = None
    """C as Table 1 of the paper prints it."""
    kernel: ClassVar[str | None] = None
    """The name of phi in the GPU program (``training/fused_kernels.py``), None if the program does not have it."""

    def __init_subclass__(cls) -> None:
        if "__call__" in vars(cls) and "slope" not in vars(cls):  # a formula of the slope is that of another function
            cls.slope = MarginFunction.slope  # type: ignore[method-assign]

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """Return phi(z), elementwise."""

    def slope(self, z: Tensor) -> Tensor:
        """Return phi'(z), elementwise, by autograd unless the margin function has a formula, which trains faster.

        Examples
        --------
        >>> Logistic().slope(torch.tensor([0.0, 1.0]))
        tensor([-0.5000, -0.2689])
        """
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self(leaf).sum(), leaf)
        return slope

    def inverse_link(self, z: Tensor) -> Tensor:
        """Return phi'(-z) / (phi'(-z) + phi'(z)), the probability that a score z stands for (Eq. 12)."""
        raise NoInverseLinkError(
            f"the {type(self).__name__} margin has no inverse link; use a smooth one such as Logistic()."
        )

    def threshold(self, cost: CostLike) -> Any:
        """Return theta(c), the score at which the inverse link is 1 - c (Eq. 14)."""
        raise NoInverseLinkError(
            f"the {type(self).__name__} margin has no threshold; use a smooth one such as Logistic()."
        )

    def excess(self, x: FloatArray, q: float) -> FloatArray | None:
        """Return the excess risk of the score of probability q if the true probability is q + x.

        This is the left side of assumption (15) of the paper, where theta is the score whose inverse link is q, rounded
        down by a bound of the rounding error. None if no formula is known.
        """
        return None


def own_fact(thing: object, name: str) -> Any:
    """Return an attribute that the class of a margin function or a loss defines itself; None if it is inherited.

    A subclass may have changed the formula, so it has to define such an attribute again.

    Examples
    --------
    >>> class Shifted(Logistic):
    ...     def __call__(self, z):
    ...         return super().__call__(z - 1)
    >>> own_fact(Logistic(), "kernel"), own_fact(Shifted(), "kernel")
    ('log', None)
    """
    return getattr(thing, name) if name in vars(type(thing)) else None


M = TypeVar("M", bound=MarginFunction)

_margins: NamedClasses[MarginFunction] = NamedClasses("margin function")
registered_classes = _margins.classes


def register_margin(cls: type[M]) -> type[M]:
    """Register a margin function under its ``name``, so that models that use it can be saved; a class decorator.

    Raises
    ------
    InputError
        If another class already has the name.

    Examples
    --------
    >>> @register_margin
    ... @dataclass(frozen=True)
    ... class Savage(MarginFunction):
    ...     "phi(z) = 4 / (1 + exp(z))^2, bounded: large mistakes count no more than moderate ones."
    ...     name = "savage"
    ...     def __call__(self, z):
    ...         return 4 * torch.sigmoid(-z).square()
    >>> get_margin("savage")(torch.tensor(0.0))
    tensor(1.)
    >>> unregister_margin("savage")
    """
    _margins.add(cls.name, cls)
    return cls


def unregister_margin(name: str) -> None:
    """Remove a margin function from the registry."""
    del _margins[name]


def get_margin(name: str, **fields: Any) -> MarginFunction:
    """Return the registered margin function of that name, with its fields as given.

    Examples
    --------
    >>> get_margin("log")
    Logistic()
    >>> get_margin("logg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: unknown margin function 'logg'. Did you mean 'log'? Available: exp, hin, log, sq, sqhin.
    """
    return _margins.make(name, **fields)


def available_margins() -> list[str]:
    """Return the names of all registered margin functions.

    Examples
    --------
    >>> available_margins()
    ['exp', 'hin', 'log', 'sq', 'sqhin']
    """
    return list(_margins)


@register_margin
@dataclass(frozen=True)
class Logistic(MarginFunction):
    r"""phi(z) = log(1 + exp(-z)), with the natural logarithm (Table 1).

    Notes
    -----
    Table 1 prints C = 1/2, but the derivation in the paper's appendix ends in
    :math:`\inf \Delta W \ge 2 (\eta_y - (1-c))^2`, which is C = 1/\sqrt 2; with C = 1/2 assumption (15) of
    Theorem 7 is false (at c = 0.4 and eta_y = 0.5 the left side is 0.0204, the right side 0.04). The constant
    here is the derived one.

    Examples
    --------
    >>> Logistic()(torch.tensor(0.0))
    tensor(0.6931)
    >>> Logistic().inverse_link(torch.tensor(0.0))
    tensor(0.5000)
    """

    name = kernel = "log"
    strictly_decreasing = True
    bound_constant = 0.5**0.5
    bound_exponent = 2.0
    printed_constant = 0.5

    def __call__(self, z: Tensor) -> Tensor:
        return F.softplus(-z, threshold=40.0)  # beyond 40 the two sides agree to the last bit of float64

    def slope(self, z: Tensor) -> Tensor:
        return -torch.sigmoid(-z)

    def inverse_link(self, z: Tensor) -> Tensor:
        return torch.sigmoid(z)

    def threshold(self, cost: CostLike) -> Any:
        return _log_odds(1 - torch.as_tensor(cost, dtype=torch.float64))

    def excess(self, x: FloatArray, q: float) -> FloatArray:
        return divergence(x, q)


@register_margin
@dataclass(frozen=True)
class Exponential(MarginFunction):
    """phi(z) = exp(-z) (Table 1).

    For z < -30 the exponential is continued by its tangent, exp(30) (1 - z - 30). It is then still convex and
    decreasing with a continuous derivative, and finite in float32 even in the products of the multiplicative loss.

    Examples
    --------
    >>> Exponential()(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 0.3679])
    """

    name = kernel = "exp"
    strictly_decreasing = True
    bound_constant = printed_constant = 0.5**0.5
    bound_exponent = 2.0
    largest_exponent: ClassVar[float] = 30.0

    def __call__(self, z: Tensor) -> Tensor:
        exponent = torch.clamp(-z, max=self.largest_exponent)
        return torch.exp(exponent) * (1 + (-z - exponent))

    def slope(self, z: Tensor) -> Tensor:
        return -torch.exp(torch.clamp(-z, max=self.largest_exponent))

    def inverse_link(self, z: Tensor) -> Tensor:
        return torch.sigmoid(2 * z)

    def threshold(self, cost: CostLike) -> Any:
        return 0.5 * _log_odds(1 - torch.as_tensor(cost, dtype=torch.float64))

    def excess(self, x: FloatArray, q: float) -> FloatArray:
        p, c = np.clip(q + x, 0, 1), 1 - q
        value = x**2 / (np.sqrt(q * c) * (np.sqrt(p * c) + np.sqrt((1 - p) * q)) ** 2)
        return rounded_down(value, value)


@dataclass(frozen=True)
class _OfSquares(MarginFunction):
    """Base class of the squared margin functions, which share their link and bound."""

    bound_constant = printed_constant = 0.5
    bound_exponent = 2.0

    def inverse_link(self, z: Tensor) -> Tensor:
        return torch.clamp((1 + z) / 2, 0, 1)

    def threshold(self, cost: CostLike) -> Any:
        return 1 - 2 * torch.as_tensor(cost, dtype=torch.float64)

    def excess(self, x: FloatArray, q: float) -> FloatArray:
        return rounded_down(4 * x**2, 4 * x**2)


@register_margin
@dataclass(frozen=True)
class Squared(_OfSquares):
    """phi(z) = (1 - z)^2 (Table 1).

    The inverse link (1 + z) / 2 is clipped to [0, 1] for scores beyond -1 and 1, which are not minimisers.

    Examples
    --------
    >>> Squared().inverse_link(torch.tensor([-2.0, 0.0, 0.6]))
    tensor([0.0000, 0.5000, 0.8000])
    """

    name = kernel = "sq"

    def __call__(self, z: Tensor) -> Tensor:
        return (1 - z).square()


@register_margin
@dataclass(frozen=True)
class SquaredHinge(_OfSquares):
    """phi(z) = max(0, 1 - z)^2 (Table 1).

    Examples
    --------
    >>> SquaredHinge()(torch.tensor([0.0, 2.0]))
    tensor([1., 0.])
    """

    name = kernel = "sqhin"

    def __call__(self, z: Tensor) -> Tensor:
        return F.relu(1 - z).square()


@register_margin
@dataclass(frozen=True)
class Hinge(MarginFunction):
    """phi(z) = max(0, 1 - z), not differentiable at 1: no inverse link, no threshold, no constants.

    Examples
    --------
    >>> Hinge()(torch.tensor([0.0, 0.5, 2.0]))
    tensor([1.0000, 0.5000, 0.0000])
    """

    name = kernel = "hin"
    smooth = False

    def __call__(self, z: Tensor) -> Tensor:
        return F.relu(1 - z)


def divergence(x: FloatArray, q: float) -> FloatArray:
    """Return the Kullback-Leibler divergence kl(q + x, q) of two coins, stable for small x and rounded down.

    Examples
    --------
    >>> divergence(np.array([0.0, 0.1]), 0.5).round(4)  # 0.6 log 1.2 + 0.4 log 0.8
    array([0.    , 0.0201])
    """
    p, c = q + x, 1 - q
    heads = p * np.log1p(np.where(x > -q, x / q, 0.0))
    tails = (1 - p) * np.log1p(np.where(x < c, -x / c, 0.0))
    return rounded_down(heads + tails, np.abs(heads) + np.abs(tails))


def rounded_down(value: FloatArray, size: FloatArray) -> FloatArray:
    """Return a lower bound of the exact value, given the size of the computed terms."""
    return np.maximum(value - 8 * np.finfo(np.float64).eps * size, 0.0)


def _log_odds(p: Tensor) -> Tensor:
    return torch.log(p) - torch.log1p(-p)
