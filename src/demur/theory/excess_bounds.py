"""Bounds of the 0-1-c risk: by the surrogate risk (Theorems 7 and 8, Table 1) and by a sample (Proposition 9).

The constants of Table 1 are computed again. Proposition 9 is repaired: the paper's Lemma 12 replaces one example of n
and bounds the change of the one-versus-all loss by 4 M / n. Its last step cancels phi(-g_k(x_i)) against
phi(-g_k(x_i')), two different inputs: the K - 2 terms do not cancel, and the change is up to K M / n. With 4 M the
lemma is false for many classes; with K M, which is used here, it is true.

Proposition 9 is also improved: its 8 K L R_n is 4 K L R_n here. The one-versus-all loss of example i is the sum over k
of phi(a_ik g_k(x_i)) with a_ik = 1 if k is its class and -1 otherwise. The supremum of a sum is at most the sum of
suprema, and each t -> phi(a_ik t) is L-Lipschitz whatever the sign, so that Talagrand's contraction lemma, which allows
another function for each example, bounds each of the K terms by L R_n. The loss class has a Rademacher complexity of at
most K L R_n; symmetrisation doubles it, and the empirical minimiser is off by at most twice the largest deviation.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from math import log, sqrt
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from sklearn.isotonic import isotonic_regression

from demur.array_types import Floats
from demur.errors import InputError
from demur.losses import Loss, resolve
from demur.losses.loss import BoundFacts
from demur.margins import MarginFunction, available_margins, get_margin, own_fact
from demur.theory.bayes import NoBoundError, require_cost, require_n_classes

Piece: TypeAlias = tuple[Callable[[Floats], Floats], float, float]
"""A non-decreasing convex function of z, and the ends of the interval on which it applies."""


@dataclass(frozen=True)
class ExcessRiskBound:
    r"""The statement :math:`(\Delta R_{0-1-c} / A)^s \le \Delta R` for all scores and all distributions.

    Parameters
    ----------
    loss : str
    cost : float
    multiplier : float
        A: 2 C for Theorem 7, the square root of 2 for Theorem 8.
    exponent : float
        s.
    theorem : str
        The theorem that states the bound.

    Examples
    --------
    >>> bound = excess_risk_bound("ce", cost=0.2)
    >>> round(bound.zero_one_c(0.02), 6)  # sqrt(2 * 0.02)
    0.2
    """

    loss: str
    cost: float
    multiplier: float
    exponent: float
    theorem: str

    def zero_one_c(self, surrogate_excess: float) -> float:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows, never more than 1.

        Parameters
        ----------
        surrogate_excess : float
            Excess of the surrogate risk over the least possible one; not negative.
        """
        return min(1.0, self.multiplier * float(require_excess(surrogate_excess) ** (1 / self.exponent)))

    def xi(self, zero_one_c_excess: ArrayLike) -> Floats:
        """Return the least surrogate excess risk that this bound allows at an excess 0-1-c risk (xi of Eq. 13).

        Parameters
        ----------
        zero_one_c_excess : float or array
        """
        value: Floats = (np.asarray(zero_one_c_excess, float) / self.multiplier) ** self.exponent
        return value

    def __str__(self) -> str:
        root = "the square root of" if self.exponent == 2 else f"the 1/{self.exponent:g} power of"
        return (
            f"excess 0-1-c risk <= {self.multiplier:.6g} x {root} the excess risk of {self.loss} "
            f"({self.theorem}; c = {self.cost:g})"
        )


@dataclass(frozen=True)
class LowerCurve:
    """A convex, piecewise linear function on [0, 1] with the value 0 at 0, below given functions.

    Parameters
    ----------
    nodes, values : arrays
        Corners of the function.

    Examples
    --------
    >>> z = np.linspace(0, 1, 101)
    >>> curve = LowerCurve.through_steps(z, z**2)
    >>> bool(np.all(curve(z) <= z**2))
    True
    """

    nodes: Floats = field(repr=False)
    values: Floats = field(repr=False)

    @classmethod
    def below(cls, pieces: list[Piece]) -> "LowerCurve":
        """Return such a curve below several non-decreasing functions, within a thousandth of the largest one."""
        # Close together near 0, where the functions are squares, and near 1, where a divergence is steep.
        nodes = np.unique(np.r_[np.geomspace(1e-7, 1, 40_000), 1 - np.geomspace(1e-7, 0.1, 4_000)])
        return cls.through_steps(nodes, least_of(pieces, nodes))

    @classmethod
    def through_steps(cls, nodes: Floats, values: Floats) -> "LowerCurve":
        """Return the largest such curve below a non-decreasing function with these values at these nodes.

        Up to the next node the function is known only to be at least the last value.
        """
        known = np.isfinite(values[:-1])
        ends = nodes[1:][known]
        steps = np.diff(ends, prepend=0.0)
        slopes = isotonic_regression(np.diff(values[:-1][known], prepend=0.0) / steps, sample_weight=steps)
        return cls(np.append(0.0, ends), np.append(0.0, np.cumsum(slopes * steps)))

    def __call__(self, z: ArrayLike) -> Floats:
        result: Floats = np.interp(np.asarray(z, dtype=np.float64), self.nodes, self.values)
        return result

    def inverse(self, value: float) -> float:
        """Return the largest z at which the curve is at most ``value``, never more than 1."""
        return 1.0 if value >= self.values[-1] else float(np.interp(value, self.values, self.nodes))


def least_of(pieces: list[Piece], z: Floats) -> Floats:
    """Return the least value at or above z of non-decreasing functions, each on its interval."""
    parts = [np.where(z <= high, f(np.clip(z, low, high)), np.inf) for f, low, high in pieces if high > low]
    least: Floats = np.where(z > 0, np.minimum.reduce(parts), 0.0)
    return least


def require_excess(surrogate_excess: float) -> float:
    """Return an excess risk, or refuse a negative one."""
    if not surrogate_excess >= 0:
        raise InputError(f"an excess risk is a number >= 0, got {surrogate_excess:g}.")
    return surrogate_excess


def excess_risk_bound(loss: str | Loss, cost: float) -> ExcessRiskBound:
    """Return the paper's excess risk bound for a loss.

    :func:`demur.theory.calibration_function` gives the tightest one there is.

    Parameters
    ----------
    loss : str or Loss
        ``ce`` (Theorem 8), a smooth ``ova+...`` (Theorem 7), or the binary ``margin+...``, to which the proof of
        Theorem 7 applies with its one score.
    cost : float
        In (0, 1/2).

    Raises
    ------
    NoBoundError
        If the paper has no bound for the loss.
    CostRangeError
        If the cost is outside (0, 1/2).

    Notes
    -----
    C is the constant that the paper's appendix derives. For the logistic loss Table 1 prints another one; see
    :func:`demur.theory.table_one`.

    Examples
    --------
    >>> print(excess_risk_bound("ova+sq", cost=0.2))
    excess 0-1-c risk <= 1 x the square root of the excess risk of ova+sq (Theorem 7; c = 0.2)
    """
    subject = resolve(loss)
    cost, facts = require_cost(cost), bound_facts_of(subject)
    if facts is None:
        raise NoBoundError(
            f"the paper proves no excess risk bound for {subject.name}; it has one for 'ce' and for the smooth "
            "'ova+...'. demur.theory.calibration_function computes the tightest one for any smooth loss."
        )
    return ExcessRiskBound(subject.name, cost, facts.multiplier, facts.exponent, facts.theorem)


def bound_facts_of(loss: Loss) -> BoundFacts | None:
    """Return the terms of the bound of a loss; None if the paper has no bound for its class."""
    stated = own_fact(loss, "bound_facts")
    return None if stated is None else stated()


def closed_pieces(facts: BoundFacts, n_classes: int, cost: float) -> list[Piece] | None:
    r"""Return the least surrogate excess of each kind of wrong decision as a function of z, in closed form.

    With q = 1 - c and D(p) the excess of one score (or one probability) held at the threshold: a false accept costs
    D(q - z), a false reject D(q + z), and a wrong class D((1-z)/2), for one-versus-all plus D((1+z)/2). None where no
    formula is known.

    Examples
    --------
    >>> facts = bound_facts_of(resolve("ova+sq"))
    >>> [round(float(f(np.array(0.1))), 4) for f, low, high in closed_pieces(facts, 3, 0.2)][:2]  # 4 z^2
    [0.04, 0.04]
    """
    q = 1 - cost
    if facts.excess(np.zeros(1), q) is None:
        return None

    def excess(x: Floats) -> Floats:
        return np.asarray(facts.excess(x, q), dtype=np.float64)

    def wrong_class(z: Floats) -> Floats:
        return excess((1 - z) / 2 - q) + (excess((1 + z) / 2 - q) if facts.two_scores else 0.0)

    return [
        (lambda z: excess(-z), 0.0, q if n_classes > 2 else 1 - 2 * cost),
        (excess, 0.0, cost),
        (wrong_class, 1 - 2 * cost, 1.0),
    ]


@dataclass(frozen=True)
class TableOneRow:
    """One margin function: the constant C of Table 1, computed and printed.

    Parameters
    ----------
    margin : MarginFunction
    constant : float
        The least C for which assumption (15) holds for every eta and c.
    printed : float
        C as Table 1 prints it.
    sharp_constant : float
        The least C for which the conclusion (16) of Theorem 7 holds, from the tightest xi.
    """

    margin: MarginFunction
    constant: float
    printed: float
    sharp_constant: float

    @property
    def agrees(self) -> bool:
        """Whether the printed C is the least one for which assumption (15) holds."""
        return abs(self.constant - self.printed) < 1e-3


@dataclass(frozen=True)
class TableOne:
    """All rows; ``print`` shows them as a table."""

    rows: tuple[TableOneRow, ...]

    def __str__(self) -> str:
        lines = [f"{'phi':<14}{'least C for (15)':>18}{'C printed':>11}{'agrees':>8}{'least C for (16)':>18}"]
        lines += [
            f"{type(row.margin).__name__:<14}{row.constant:>18.4f}{row.printed:>11.4f}"
            f"{'yes' if row.agrees else 'NO':>8}{row.sharp_constant:>18.4f}"
            for row in self.rows
        ]
        return "\n".join(lines)


def table_one() -> TableOne:
    """Compute the constants of Table 1 for every margin function in it, and compare them with those printed.

    Examples
    --------
    >>> from demur.theory import table_one
    >>> for row in table_one().rows:
    ...     print(row.margin.name, round(row.constant, 3), round(row.printed, 3), row.agrees)
    exp 0.707 0.707 True
    log 0.707 0.5 False
    sq 0.5 0.5 True
    sqhin 0.5 0.5 True
    """
    margins = [get_margin(name) for name in available_margins()]
    return TableOne(tuple(_row(phi) for phi in margins if own_fact(phi, "kernel") and phi.printed_constant))


def _row(phi: MarginFunction) -> TableOneRow:
    """Take the largest |x| / excess^(1/2), and for the conclusion z / (2 delta(z)^(1/2)), over costs and excesses."""
    constant = sharp = 0.0
    for cost in (0.01, 0.1, 0.2, 0.3, 0.4, 0.49, 0.49999):
        x = np.r_[np.linspace(-(1 - cost), cost, 999), -1e-3, 1e-3]
        x = x[np.abs(x) > 5e-4]
        constant = max(constant, float(np.max(np.abs(x) / np.sqrt(np.asarray(phi.excess(x, 1 - cost))))))
        facts = BoundFacts("", 1.0, 2.0, phi.excess, two_scores=True)
        for piece, low, high in closed_pieces(facts, 3, cost) or []:
            z = np.linspace(max(low, 5e-4), high, 999)
            sharp = max(sharp, float(np.max(z / (2 * np.sqrt(piece(z))))))
    assert phi.printed_constant is not None
    return TableOneRow(phi, constant, phi.printed_constant, sharp)


@dataclass(frozen=True)
class FunctionClass(ABC):
    """A set of functions from inputs of bounded Euclidean norm to the reals."""

    factor: ClassVar[float] = 1.0
    """The Rademacher complexity for n examples is at most this times the bound of the values divided by sqrt n."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise InputError(f"{each.name} must be positive, got {value}.")

    @abstractmethod
    def range_bound(self) -> float:
        """Return a bound of the absolute value of g(x), over the class and the inputs."""

    def rademacher(self, n_samples: int) -> float:
        """Return a bound of the Rademacher complexity for ``n_samples`` examples."""
        return self.factor * self.range_bound() / sqrt(n_samples)


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

    factor = sqrt(2 * log(2) * 2) + 1
    hidden_norm: float
    output_norm: float
    input_norm: float

    def range_bound(self) -> float:
        return self.hidden_norm * self.output_norm * self.input_norm


@dataclass(frozen=True)
class EstimationErrorBound:
    r"""The terms of :math:`A (a + 4 K L R_n + B \sqrt{2 \log(2/\delta) / n})^{1/s}` (Proposition 9, repaired).

    A and s are those of the excess risk bound.

    Parameters
    ----------
    lipschitz : float
        L: the Lipschitz constant of phi on the range of the class; 2 for cross-entropy.
    largest : float
        B: the largest value of the loss on that range. K M for one-versus-all, M the largest value of phi.
    rademacher : float
        R_n, the bound of the class's Rademacher complexity.
    approximation : float
        a: the excess surrogate risk of the best function of the class.
    complexity : float
        4 K L R_n.
    deviation : float
        B sqrt(2 log(2/delta) / n).
    surrogate_excess : float
        The sum of the last three: the bound of the excess surrogate risk.
    total : float
        The bound of the excess 0-1-c risk, at most 1, by the paper's theorem.
    sharper_total : float
        The same by the tightest calibration function, where it has a closed form.
    """

    lipschitz: float
    largest: float
    rademacher: float
    approximation: float
    complexity: float
    deviation: float
    surrogate_excess: float
    total: float
    sharper_total: float


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
    The paper prints 4 M where K M stands here, and 8 K L R_n where 4 K L R_n does; see
    :mod:`demur.theory.excess_bounds`. phi is not Lipschitz on the whole line for the exponential and the squared
    losses; on the bounded range of the class it is, and that constant is used. The class contains -g with each g, so
    that M bounds phi(-g) too.

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
    (0.0048, 0.0033, 0.0898)
    """
    subject = resolve(loss)
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
    bound = excess_risk_bound(subject, cost)
    lipschitz, largest = facts.on_range(function_class.range_bound(), n_classes)
    rademacher = function_class.rademacher(n_samples)
    complexity = 4 * n_classes * lipschitz * rademacher
    deviation = largest * sqrt(2 * log(2 / delta) / n_samples)
    surrogate = float(approximation) + complexity + deviation
    total = bound.zero_one_c(surrogate)
    pieces = closed_pieces(facts, n_classes, bound.cost)
    return EstimationErrorBound(
        lipschitz=lipschitz,
        largest=largest,
        rademacher=rademacher,
        approximation=float(approximation),
        complexity=complexity,
        deviation=deviation,
        surrogate_excess=surrogate,
        total=total,
        sharper_total=total if pieces is None else LowerCurve.below(pieces).inverse(surrogate),
    )
