"""Classes of functions with a known bound of their Rademacher complexity."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from math import log, sqrt

from demur.errors import InputError

__all__ = ["FunctionClass", "NormBoundedLinear", "NormBoundedNetwork"]


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
