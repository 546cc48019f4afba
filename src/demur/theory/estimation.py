"""Proposition 9 repaired: from a finite sample to the 0-1-c risk, with every term of the bound.

The paper's Lemma 12 replaces one example of n and bounds the change of the one-versus-all loss by 4 M / n. Its last
step cancels phi(-g_k(x_i)) against phi(-g_k(x_i')), two different inputs: the K - 2 terms do not cancel, and the
change is up to K M / n. With 4 M the lemma is false for many classes (:func:`lemma_12_violations` counts how often);
with K M it is true, and is what is used here.
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from math import log, sqrt

import numpy as np

from demur.errors import InputError
from demur.losses import Loss, get
from demur.theory.bayes import NoBoundError, require_n_classes
from demur.theory.excess_bounds import bound_facts_of, excess_risk_bound

__all__ = [
    "EstimationErrorBound",
    "FunctionClass",
    "NormBoundedLinear",
    "NormBoundedNetwork",
    "estimation_error_bound",
    "lemma_12_violations",
]


@dataclass(frozen=True)
class FunctionClass(ABC):
    """A set of functions from inputs of bounded Euclidean norm to the reals."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"{field.name} must be positive, got {value}.")

    @abstractmethod
    def range_bound(self) -> float:
        """Return a bound of the absolute value of g(x), over the class and the inputs."""

    @abstractmethod
    def rademacher(self, n_samples: int) -> float:
        """Return a bound of the Rademacher complexity for ``n_samples`` examples."""


@dataclass(frozen=True)
class NormBoundedLinear(FunctionClass):
    r"""Linear functions :math:`x \mapsto w \cdot x` with :math:`\|w\|_2 \le B` on inputs with :math:`\|x\|_2 \le X`.

    :math:`R_n \le B X / \sqrt n` (Mohri, Rostamizadeh and Talwalkar, Foundations of Machine Learning, second edition
    2018, Theorem 5.10; a constant feature makes room for an intercept).

    Parameters
    ----------
    weight_norm : float
        B.
    input_norm : float
        X.

    Examples
    --------
    >>> NormBoundedLinear(weight_norm=2.0, input_norm=3.0).rademacher(100)
    0.6
    """

    weight_norm: float
    input_norm: float

    def range_bound(self) -> float:
        return self.weight_norm * self.input_norm

    def rademacher(self, n_samples: int) -> float:
        return self.weight_norm * self.input_norm / sqrt(n_samples)


@dataclass(frozen=True)
class NormBoundedNetwork(FunctionClass):
    r"""One hidden layer of rectifiers, :math:`x \mapsto u \cdot \max(0, V x)`, of any width.

    With :math:`\|V\|_F \le B_1`, :math:`\|u\|_2 \le B_2` and :math:`\|x\|_2 \le X`,
    :math:`R_n \le (\sqrt{2 \log 2 \cdot 2} + 1) B_1 B_2 X / \sqrt n` (Golowich, Rakhlin and Shamir, Size-Independent
    Sample Complexity of Neural Networks, COLT 2018, Theorem 1 with two layers of weights).

    Parameters
    ----------
    hidden_norm : float
        B_1, the Frobenius norm of the first layer's weights.
    output_norm : float
        B_2.
    input_norm : float
        X.

    Examples
    --------
    >>> network = NormBoundedNetwork(hidden_norm=2.0, output_norm=1.0, input_norm=3.0)
    >>> round(network.rademacher(100), 4)
    1.5991
    """

    hidden_norm: float
    output_norm: float
    input_norm: float

    def range_bound(self) -> float:
        return self.hidden_norm * self.output_norm * self.input_norm

    def rademacher(self, n_samples: int) -> float:
        return (sqrt(2 * log(2) * 2) + 1) * self.range_bound() / sqrt(n_samples)


@dataclass(frozen=True)
class EstimationErrorBound:
    r"""The terms of :math:`A (a + 8 K L R_n + B \sqrt{2 \log(2/\delta) / n})^{1/s}` (Proposition 9, repaired).

    Parameters
    ----------
    multiplier, exponent : float
        A and s of the excess risk bound: 2 C and s of Theorem 7, or the square root of 2 and 2 of Theorem 8.
    lipschitz : float
        L: the Lipschitz constant of phi on the range of the class; 1 for cross-entropy.
    largest : float
        B: the largest value of the loss on that range. K M for one-versus-all, M the largest value of phi.
    rademacher : float
        R_n, the bound of the class's Rademacher complexity.
    approximation : float
        a: how far the best function of the class is from the best of all.
    complexity : float
        8 K L R_n.
    deviation : float
        B sqrt(2 log(2/delta) / n).
    surrogate_excess : float
        The sum of the last three: the bound of the excess surrogate risk.
    total : float
        The bound of the excess 0-1-c risk, at most 1, by the paper's theorem.
    sharper_total : float
        The same by the sharper excess risk bound.
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
    sharper_total: float

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
    """Return the bound that holds with probability 1 - delta for the empirical minimiser (Proposition 9, repaired).

    Parameters
    ----------
    loss : str or Loss
        A smooth ``ova+...``, the losses of the proposition, or ``ce``.
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
    The paper prints 4 M where K M stands here; see :mod:`demur.theory.estimation`. phi is not Lipschitz
    on the whole line for the exponential and the squared losses; on the bounded range of the class it is, and that
    constant is used. The class contains -g with each g, so that M bounds phi(-g) too.

    Cross-entropy is Lipschitz in all scores at once with constant sqrt 2, so that its class has a Rademacher complexity
    of at most sqrt 2 x sqrt 2 x K R_n (Maurer, A Vector-Contraction Inequality for Rademacher Complexities, ALT 2016,
    Corollary 4); it lies between 0 and log(1 + (K - 1) exp(2 r)) where no score exceeds r.

    Examples
    --------
    >>> from demur.theory import NormBoundedLinear
    >>> bound = estimation_error_bound(
    ...     "ova+sq", 0.2, n_samples=10**8, n_classes=3, function_class=NormBoundedLinear(weight_norm=1, input_norm=1)
    ... )
    >>> bound.rademacher, bound.lipschitz, bound.largest  # 1/sqrt(n), |phi'(-1)|, 3 phi(-1)
    (0.0001, 4.0, 12.0)
    >>> round(bound.complexity, 4), round(bound.deviation, 4), round(bound.total, 4)
    (0.0096, 0.0033, 0.1134)
    """
    subject = get(loss) if isinstance(loss, str) else loss
    facts = bound_facts_of(subject)
    if facts is None or facts.on_range is None:
        raise NoBoundError(
            f"Proposition 9 is about the smooth one-versus-all losses, and holds for 'ce' too, not for {subject.name}."
        )
    n_classes = require_n_classes(n_classes)
    if n_samples < 1:
        raise InputError(f"n_samples must be at least 1, got {n_samples}.")
    if not 0 < delta < 1:
        raise InputError(f"delta is a probability in (0, 1), got {delta}.")
    if not approximation >= 0:
        raise InputError(f"the approximation error is an excess risk, at least 0, got {approximation}.")
    bound, sharper = excess_risk_bound(subject, cost), excess_risk_bound(subject, cost, sharp=True)
    lipschitz, largest = facts.on_range(function_class.range_bound(), n_classes)
    rademacher = function_class.rademacher(n_samples)
    complexity = 8 * n_classes * lipschitz * rademacher
    deviation = largest * sqrt(2 * log(2 / delta) / n_samples)
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
        sharper_total=sharper.zero_one_c(surrogate),
    )


def lemma_12_violations(
    n_classes: int, *, n_samples: int = 400, n_trials: int = 2000, delta: float = 0.05, seed: int = 0
) -> tuple[float, float]:
    """Simulate Lemma 12: how often the deviation exceeds its bound, with 4 M as printed and with K M as repaired.

    The class of functions has one member per score, so that its Rademacher complexity is 0 and only the second term of
    the lemma is left: one input has all scores at 2, the other all at -2, each with probability 1/2, and the loss is
    one-versus-all with phi(z) = log(1 + exp(-z)).

    Parameters
    ----------
    n_classes : int
    n_samples, n_trials : int
        Examples in a sample, and samples.
    delta : float
        How often the lemma allows itself to fail.
    seed : int

    Returns
    -------
    printed, repaired : float
        The share of samples in which each bound fails.

    Examples
    --------
    >>> lemma_12_violations(4)[0] <= 0.05, lemma_12_violations(26)[0] > 0.4, lemma_12_violations(26)[1] <= 0.05
    (True, True, True)
    """
    phi = np.log1p(np.exp(np.array([-2.0, 2.0])))  # phi(2), phi(-2)
    low, high = phi.tolist()
    # At scores of 2 the true class has phi(2) and the others phi(-2); at scores of -2 the other way round.
    values = np.array([low + (n_classes - 1) * high, high + (n_classes - 1) * low])
    first = np.random.default_rng(seed).binomial(n_samples, 0.5, size=n_trials) / n_samples
    deviation = np.abs(first * values[0] + (1 - first) * values[1] - values.mean())
    per_unit = high * sqrt(log(2 / delta) / (2 * n_samples))
    printed, repaired = (float(np.mean(deviation > constant * per_unit)) for constant in (4, n_classes))
    return printed, repaired
