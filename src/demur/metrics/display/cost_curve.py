"""A drawing of cost curves."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from demur.errors import InputError, InputTypeError
from demur.metrics.cost_curve import CostCurve
from demur.metrics.display.axes import axes_or_new, labelled
from demur.metrics.display.curve_display import CurveDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CostCurveDisplay"]

_N_COSTS = 1000
_YLABEL = {"risk": "0-1-c risk", "coverage": "coverage", "accuracy": "accuracy of the answers given"}


class CostCurveDisplay(CurveDisplay[CostCurve]):
    """Draw the 0-1-c risk, the coverage or the accuracy against the rejection cost.

    Parameters
    ----------
    curve : CostCurve
    name : str, optional
        For the legend.

    Attributes
    ----------
    ax_, figure_, line_
        What :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = CostCurve.from_proba([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    >>> CostCurveDisplay(curve, name="model").plot().line_.get_label()
    'model (mean risk = 0.185)'
    """

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        name: str | None = None,
        quantity: Literal["risk", "coverage", "accuracy"] = "risk",
        max_cost: float = 0.5,
        baselines: bool = True,
        **line: Any,
    ) -> Self:
        """Draw the curve, labelled with its own mean over the costs drawn.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        name : str, optional
            Instead of the display's own.
        quantity : {"risk", "coverage", "accuracy"}
        max_cost : float, default 0.5
            Costs from 0 up to this one are drawn.
        baselines : bool, default True
            With the risk, also draw those of answering every row and of rejecting every row.
        **line
            Passed on to matplotlib's ``plot``.
        """
        if quantity not in _YLABEL:
            raise InputError(f"quantity must be 'risk', 'coverage' or 'accuracy', got {quantity!r}.")
        axes = axes_or_new(ax)
        costs = np.linspace(0, max_cost, _N_COSTS, endpoint=False)
        values = getattr(self.curve, f"{quantity}_at")(costs)
        own = name or self.name
        label = labelled(own, f"mean risk = {self.curve.mean_risk(0, max_cost):#.3g}") if quantity == "risk" else own
        (self.line_,) = axes.plot(costs, values, **{"label": label, **line})
        if quantity == "risk" and baselines:
            axes.axhline(
                self.curve.error_rate,
                color=self.line_.get_color(),
                linestyle="--",
                linewidth=1,
                label=labelled(own, "answer all"),
            )
            if not any(one.get_label() == "reject all" for one in axes.lines):
                axes.plot([0, max_cost], [0, max_cost], color="0.6", linestyle=":", label="reject all")
        axes.set(xlabel="rejection cost c", ylabel=_YLABEL[quantity], xlim=(0, max_cost))
        if quantity == "risk":
            axes.set_ylim(bottom=0, auto=True)  # a second curve on the same axes may be higher
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self

    @classmethod
    def _curve(cls, confidence: Any, wrong: Any, sample_weight: ArrayLike | None) -> CostCurve:
        return CostCurve.from_confidence(confidence, wrong, sample_weight)

    @classmethod
    def _check(cls, estimator: Any) -> None:
        if not hasattr(estimator, "predict_proba"):
            raise InputTypeError(
                f"a cost curve needs probabilities, which {type(estimator).__name__} has not; draw its "
                "RiskCoverageDisplay instead."
            )
