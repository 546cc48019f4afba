"""A drawing of risk-coverage curves."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from demur.errors import InputError
from demur.metrics.curves import RiskCoverage
from demur.metrics.display.axes import axes_or_new, labelled
from demur.metrics.display.curve_display import CurveDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RiskCoverageDisplay"]

_MOST_POINTS = 5000
"""More points than this cannot be told apart on a screen."""


class RiskCoverageDisplay(CurveDisplay[RiskCoverage]):
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
            raise InputError(f"quantity must be 'risk' or 'generalized_risk', got {quantity!r}.")
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

    @classmethod
    def _curve(cls, confidence: Any, wrong: Any, sample_weight: ArrayLike | None) -> RiskCoverage:
        return RiskCoverage.from_confidence(confidence, wrong, sample_weight)
