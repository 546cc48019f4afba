"""A drawing of risk-coverage curves."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from demur.metrics.cost_curve import confidence_and_errors
from demur.metrics.curves import RiskCoverage
from demur.metrics.display.axes import axes_or_new, confidence_and_errors_of, labelled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RiskCoverageDisplay"]

_MOST_POINTS = 5000
"""More points than this cannot be told apart on a screen."""


class RiskCoverageDisplay:
    """Draw the risk of the answers given against the share of rows answered.

    Parameters
    ----------
    curve : RiskCoverage
    name : str, optional
        For the legend.

    Attributes
    ----------
    ax_, figure_, line_
        What :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = RiskCoverage.from_confidence([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 0])
    >>> RiskCoverageDisplay(curve, name="model").plot().line_.get_label()
    'model (AURC = 0.146)'
    """

    def __init__(self, curve: RiskCoverage, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **line: Any,
    ) -> Self:
        """Draw the curve of a fitted classifier, ordered by its own confidence.

        Parameters
        ----------
        estimator : classifier
            With ``decide`` (as those of demur) or ``predict_proba``.
        X, y, sample_weight
            Rows the classifier has not seen, their classes, and how much each counts.
        name : str, optional
            The class of the estimator by default.
        ax, **line
            As for :meth:`plot`.
        """
        curve = RiskCoverage.from_confidence(*confidence_and_errors_of(estimator, X, y), sample_weight)
        return cls(curve, name=name or type(estimator).__name__).plot(ax, **line)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        proba: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **line: Any,
    ) -> Self:
        """Draw the curve of class probabilities, ordered by the largest.

        Parameters
        ----------
        y_true : array of shape (n,)
            Column numbers, or entries of ``classes``.
        proba : array of shape (n, n_classes)
        classes, sample_weight
            As for :meth:`CostCurve.from_proba <demur.metrics.CostCurve.from_proba>`.
        name : str, optional
        ax, **line
            As for :meth:`plot`.
        """
        curve = RiskCoverage.from_confidence(*confidence_and_errors(proba, y_true, classes), sample_weight)
        return cls(curve, name=name).plot(ax, **line)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        name: str | None = None,
        quantity: Literal["risk", "generalized_risk"] = "risk",
        **line: Any,
    ) -> Self:
        """Draw the curve, labelled with its own area.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        name : str, optional
            Instead of the display's own.
        quantity : {"risk", "generalized_risk"}
            The risk, with the AURC in the label, or risk times coverage, with the AUGRC.
        **line
            Passed on to matplotlib's ``plot``.
        """
        if quantity not in ("risk", "generalized_risk"):
            raise ValueError(f"quantity must be 'risk' or 'generalized_risk', got {quantity!r}.")
        axes = axes_or_new(ax)
        area = f"AURC = {self.curve.aurc:#.3g}" if quantity == "risk" else f"AUGRC = {self.curve.augrc:#.3g}"
        values = getattr(self.curve, quantity)
        shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_POINTS)).astype(int))
        style = {"label": labelled(name or self.name, area), "marker": "o" if len(values) == 1 else None, **line}
        (self.line_,) = axes.plot(self.curve.coverage[shown], values[shown], **style)
        axes.set(
            xlabel="coverage (share of rows answered)",
            ylabel="risk of the answers given" if quantity == "risk" else "generalized risk (risk times coverage)",
            xlim=(0, 1),
        )
        if values.min() >= 0:
            axes.set_ylim(bottom=0, auto=True)  # a second curve on the same axes may be higher
        axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self
