"""The cost curve: risk, coverage and accuracy of one set of probabilities at every rejection cost."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import FloatArray, Floats, Mask
from demur.costs import check_cost
from demur.errors import InputError
from demur.metrics.risk_coverage import RiskCoverage, as_given
from demur.rules import check_rows

_SLACK = 1e-3
"""As for the sum of probabilities: rounding may take the largest above one."""


@dataclass(frozen=True, eq=False)
class CostCurve:
    r"""0-1-c risk, coverage and accuracy of Chow's rule as exact functions of the cost c.

    Made by :meth:`from_proba`. Chow's rule answers a row iff c > 1 - max eta, so a row changes its decision once,
    at its own breakpoint. Between two breakpoints coverage and accuracy are constant and the 0-1-c risk is a
    straight line,

    .. math:: R(c) = g + c\,(1 - \kappa),

    where :math:`\kappa` is the coverage and g the errors among the accepted, over all rows. At a breakpoint itself
    the row is still rejected, since ties reject: the pieces are the intervals :math:`(b_i, b_{i+1}]`.

    Parameters
    ----------
    curve : RiskCoverage
        Risk-coverage curve of the largest probability and the 0-1 loss.

    Examples
    --------
    At c = 0.2 the first row is answered correctly and the second is rejected: (0 + 0.2) / 2. Above c = 0.4 both are
    answered, the second one wrongly:

    >>> curve = CostCurve.from_proba([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    >>> curve.risk_at([0.05, 0.2, 0.4, 0.45])
    array([0.05, 0.1 , 0.2 , 0.5 ])
    >>> curve.coverage_at(0.2), curve.accuracy_at(0.2), curve.accuracy_at(0.05)
    (0.5, 1.0, nan)
    >>> curve.breakpoints.round(6)
    array([0.1, 0.4])
    """

    curve: RiskCoverage

    @classmethod
    def from_proba(
        cls, proba: ArrayLike, y: ArrayLike, *, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> "CostCurve":
        """Make the curve from class probabilities.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        y : array of shape (n,)
            True classes: column numbers, or entries of ``classes``.
        classes : array of shape (n_classes,), optional
            Name of each column, if ``y`` holds names.
        sample_weight : array of shape (n,), optional
            Weight of each row.
        """
        confidence, wrong = confidence_and_errors(proba, y, classes)
        return cls.from_confidence(confidence, wrong, sample_weight)

    @classmethod
    def from_confidence(
        cls, confidence: ArrayLike, wrong: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> "CostCurve":
        """Make the curve from the probability that each answer is right, and from whether it was wrong.

        Parameters
        ----------
        confidence : array of shape (n,)
            Probability that each answer is right.
        wrong : array of bool, shape (n,)
        sample_weight : array of shape (n,), optional
        """
        curve = RiskCoverage.from_confidence(confidence, wrong, sample_weight)
        most, least = float(curve.groups.confidence[0]), float(curve.groups.confidence[-1])
        if least < 0 or most > 1 + _SLACK:
            raise InputError(
                f"a cost curve needs probabilities of being right, in [0, 1]; got {least if least < 0 else most:g}. "
                "Use RiskCoverage for a confidence on another scale."
            )
        return cls(curve)

    @cached_property
    def breakpoints(self) -> Floats:
        """The costs at which a row, or a group of tied rows, changes from rejected to accepted; ascending."""
        return 1 - self.curve.groups.confidence

    def risk_at(self, cost: ArrayLike) -> Any:
        """Return the 0-1-c risk at each cost in [0, 1)."""
        prices, risk, coverage = check_cost(cost), *self._at(cost, 0.0, "generalized_risk", "coverage")
        return as_given(risk + prices * (1 - coverage), cost)

    def coverage_at(self, cost: ArrayLike) -> Any:
        """Return the share of rows answered at each cost."""
        return as_given(self._at(cost, 0.0, "coverage")[0], cost)

    def accuracy_at(self, cost: ArrayLike) -> Any:
        """Return the share of right answers among those given at each cost; NaN if none is given."""
        return as_given(1 - self._at(cost, np.nan, "risk")[0], cost)

    def mean_risk(self, low: float = 0.0, high: float = 0.5) -> float:
        """Return the exact mean of the 0-1-c risk over costs spread evenly between ``low`` and ``high``.

        A row with breakpoint b costs c up to b and then 1 if it is wrong. Over [0, 1], the mean is therefore the mean
        of b^2 / 2 + (1 - b) [wrong].

        Examples
        --------
        One correctly answered row with breakpoint 0.1: it costs c up to 0.1 and nothing above, 0.1^2 / 2 over a length
        of 0.5.

        >>> round(CostCurve.from_proba([[0.9, 0.1]], [0]).mean_risk(), 6)
        0.01
        """
        if not 0 <= low < high <= 1:
            raise InputError(f"low and high must satisfy 0 <= low < high <= 1, got {low!r} and {high!r}.")
        groups = self.curve.groups
        switch = np.clip(self.breakpoints, low, high)
        share, errors = np.diff(groups.weight, prepend=0.0), np.diff(groups.loss, prepend=0.0)
        paid = share * (switch**2 - low**2) / 2 + errors * (high - switch)
        return float(paid.sum() / groups.weight[-1] / (high - low))

    @property
    def error_rate(self) -> float:
        """The share of wrong answers if every row were answered."""
        return float(self.curve.risk[-1])

    def _at(self, cost: ArrayLike, without_answers: float, *names: str) -> list[Floats]:
        """Return these figures of the risk-coverage curve at the threshold of Chow's rule for each cost."""
        place = self.curve.n_points_above(1 - check_cost(cost))
        return [np.append(without_answers, getattr(self.curve, name))[place] for name in names]


def confidence_and_errors(proba: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> tuple[FloatArray, Mask]:
    """Return the largest probability of each row, and whether its class is not the true one.

    Examples
    --------
    >>> confidence_and_errors([[0.9, 0.1], [0.2, 0.8]], ["cat", "cat"], classes=["cat", "dog"])
    (array([0.9, 0.8]), array([False,  True]))
    """
    values, true = check_rows(proba), np.asarray(y)
    names = np.arange(values.shape[1]) if classes is None else np.asarray(classes)
    if true.shape != values.shape[:1]:
        raise InputError(f"y must have shape {values.shape[:1]}, one class per row of proba, got {true.shape}.")
    if names.shape != values.shape[1:]:
        raise InputError(f"classes must name the {values.shape[1]} columns of proba, got shape {names.shape}.")
    unknown = ~np.isin(true, names)
    if unknown.any():
        raise InputError(
            f"y contains {true[unknown].tolist()[0]!r}, which is none of the {len(names)} columns of proba; pass "
            "classes= if y holds class names."
        )
    return values.max(axis=1), names[values.argmax(axis=1)] != true
