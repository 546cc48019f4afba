"""Excess risk bounds: what a small surrogate risk promises about the 0-1-c risk (Theorems 7 and 8, Eq. 13)."""

from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.losses import CrossEntropy, Loss, Margin, OneVsAll, get
from demur.theory.errors import NoBoundError, require_cost

__all__ = ["ExcessRiskBound", "excess_risk_bound"]


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
        Whose statement it is.

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

    @overload
    def zero_one_c(self, surrogate_excess: float) -> float: ...
    @overload
    def zero_one_c(self, surrogate_excess: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def zero_one_c(self, surrogate_excess: ArrayLike) -> float | NDArray[np.float64]:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows, never more than 1.

        Parameters
        ----------
        surrogate_excess : float or array
            How far the surrogate risk is above the least possible; not negative.
        """
        excess = np.asarray(surrogate_excess, dtype=np.float64)
        if not np.all(excess >= 0):
            raise InputError(f"an excess risk is a number >= 0, got {float(np.min(excess)):g}.")
        bound = np.minimum(1.0, self.multiplier * excess ** (1 / self.exponent))
        return float(bound) if bound.ndim == 0 else bound

    @overload
    def xi(self, zero_one_c_excess: float) -> float: ...
    @overload
    def xi(self, zero_one_c_excess: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def xi(self, zero_one_c_excess: ArrayLike) -> float | NDArray[np.float64]:
        """Return the least surrogate excess risk that this bound allows at an excess 0-1-c risk (xi of Eq. 13).

        Parameters
        ----------
        zero_one_c_excess : float or array
        """
        value = (np.asarray(zero_one_c_excess, dtype=np.float64) / self.multiplier) ** self.exponent
        return float(value) if value.ndim == 0 else value

    def __str__(self) -> str:
        root = "the square root of" if self.exponent == 2 else f"the 1/{self.exponent:g} power of"
        return (
            f"excess 0-1-c risk <= {self.multiplier:.6g} x {root} the excess risk of {self.loss} "
            f"({self.theorem}; c = {self.cost:g})"
        )


def excess_risk_bound(loss: str | Loss, cost: float) -> ExcessRiskBound:
    """Return the paper's excess risk bound for a loss.

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
    subject = get(loss) if isinstance(loss, str) else loss
    cost = require_cost(cost)
    # A subclass may have changed what the theorems are about.
    if type(subject) is CrossEntropy:
        return ExcessRiskBound(subject.name, cost, 2**0.5, 2.0, "Theorem 8")
    if isinstance(subject, OneVsAll | Margin) and type(subject) in (OneVsAll, Margin):
        phi = subject.phi
        if phi.bound_constant is not None and phi.bound_exponent is not None:
            theorem = "Theorem 7" if isinstance(subject, OneVsAll) else "the proof of Theorem 7, with one score"
            return ExcessRiskBound(subject.name, cost, 2 * phi.bound_constant, phi.bound_exponent, theorem)
    raise NoBoundError(
        f"the paper proves no excess risk bound for {subject.name}; it has one for 'ce' and for the smooth 'ova+...'. "
        "demur.theory.calibration_function computes the tightest one for any smooth loss."
    )
