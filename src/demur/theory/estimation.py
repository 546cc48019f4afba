"""Proposition 9: from a finite sample to the 0-1-c risk, with every term of the bound."""

from dataclasses import asdict, dataclass
from math import log, sqrt

import torch

from demur.errors import InputError
from demur.losses import Loss, OneVsAll, get
from demur.margins import MarginFunction
from demur.theory.bounds import excess_risk_bound
from demur.theory.errors import NoBoundError, require_n_classes
from demur.theory.rademacher import FunctionClass

__all__ = ["EstimationErrorBound", "estimation_error_bound"]


@dataclass(frozen=True)
class EstimationErrorBound:
    r"""The terms of :math:`2C (a + 8 K L R_n + 4 M \sqrt{2 \log(2/\delta) / n})^{1/s}` (Proposition 9).

    Parameters
    ----------
    multiplier, exponent : float
        2 C and s of Theorem 7.
    lipschitz, largest : float
        L and M: the Lipschitz constant of phi, and its largest value, on the range of the class.
    rademacher : float
        R_n, the bound of the class's Rademacher complexity.
    approximation : float
        a: how far the best function of the class is from the best of all.
    complexity : float
        8 K L R_n.
    deviation : float
        4 M sqrt(2 log(2/delta) / n).
    surrogate_excess : float
        The sum of the last three: the bound of the excess surrogate risk.
    total : float
        The bound of the excess 0-1-c risk, at most 1.
    """

    multiplier: float
    exponent: float
    lipschitz: float
    largest: float
    rademacher: float
    approximation: float
    complexity: float
    deviation: float
    surrogate_excess: float
    total: float

    @property
    def says_something(self) -> bool:
        """Whether the bound is below 1, the largest excess there can be."""
        return self.total < 1

    def as_dict(self) -> dict[str, float]:
        """Return every term by name."""
        return asdict(self)


def estimation_error_bound(
    loss: str | Loss,
    cost: float,
    *,
    n_samples: int,
    n_classes: int,
    function_class: FunctionClass,
    approximation: float = 0.0,
    delta: float = 0.05,
) -> EstimationErrorBound:
    """Return the bound that holds with probability 1 - delta for the empirical minimiser (Proposition 9).

    Parameters
    ----------
    loss : str or Loss
        A smooth ``ova+...``, the losses of the proposition.
    cost : float
        In (0, 1/2).
    n_samples : int
    n_classes : int
    function_class : FunctionClass
        The class of each score: :class:`~demur.theory.NormBoundedLinear` or
        :class:`~demur.theory.NormBoundedNetwork`.
    approximation : float
        The excess surrogate risk of the best functions of the class, if known.
    delta : float
        The probability with which the bound may fail.

    Notes
    -----
    phi is not Lipschitz on the whole line for the exponential and the squared losses; on the bounded range of the
    class it is, and that constant is used. The class contains -g with each g, so that M bounds phi(-g) too.

    Examples
    --------
    >>> from demur.theory import NormBoundedLinear
    >>> bound = estimation_error_bound(
    ...     "ova+sq", 0.2, n_samples=10**8, n_classes=3, function_class=NormBoundedLinear(weight_norm=1, input_norm=1)
    ... )
    >>> bound.rademacher, bound.lipschitz, bound.largest  # 1/sqrt(n), |phi'(-1)|, phi(-1)
    (0.0001, 4.0, 4.0)
    >>> round(bound.complexity, 4), round(bound.deviation, 4), round(bound.total, 4)
    (0.0096, 0.0043, 0.1181)
    """
    subject = get(loss) if isinstance(loss, str) else loss
    if not isinstance(subject, OneVsAll):
        raise NoBoundError(f"Proposition 9 is about the smooth one-versus-all losses, not about {subject.name}.")
    n_classes = require_n_classes(n_classes)
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1, got {n_samples}.")
    if not 0 < delta < 1:
        raise InputError(f"delta is a probability in (0, 1), got {delta}.")
    if not approximation >= 0:
        raise InputError(f"the approximation error is an excess risk, at least 0, got {approximation}.")
    bound = excess_risk_bound(subject, cost)
    lipschitz, largest = _on_range(subject.phi, function_class.range_bound())
    rademacher = function_class.rademacher(n_samples)
    complexity = 8 * n_classes * lipschitz * rademacher
    deviation = 4 * largest * sqrt(2 * log(2 / delta) / n_samples)
    surrogate = float(approximation) + complexity + deviation
    return EstimationErrorBound(
        multiplier=bound.multiplier,
        exponent=bound.exponent,
        lipschitz=lipschitz,
        largest=largest,
        rademacher=rademacher,
        approximation=float(approximation),
        complexity=complexity,
        deviation=deviation,
        surrogate_excess=surrogate,
        total=bound.zero_one_c(surrogate),
    )


def _on_range(phi: MarginFunction, radius: float) -> tuple[float, float]:
    """Return the Lipschitz constant and the largest value of a convex phi on [-radius, radius]: both at an end."""
    ends = torch.tensor([-radius, radius], dtype=torch.float64, requires_grad=True)
    values = phi(ends)
    (slopes,) = torch.autograd.grad(values.sum(), ends)
    return float(slopes.abs().max()), float(values.detach().max())
