"""The three drawings of the report: risk against coverage, risk against cost, accuracy against confidence."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.tabular.axes import Axis, path, thin
from demur.tabular.evaluation import Evaluation
from demur.tabular.reliability import Reliability

__all__ = ["Chart", "cost_chart", "reliability_chart", "risk_coverage_chart"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 506, 38, 284
"""The plot within a drawing of 520 by 340; the margins leave room for the larger letters of a narrow screen."""


@dataclass(frozen=True)
class Chart:
    """Axes, lines and dots, ready to be written as SVG.

    Parameters
    ----------
    name : str
        Identifies the drawing in the page.
    description : str
        What it shows, for those who cannot see it.
    x, y : Axis
    lines : tuple of (str, str)
        A class of the style sheet and path data.
    marker : tuple of float, or None
        Where the chosen cost lies, in values.
    dots : tuple of dict
        Centre, radius and interval of each dot.
    """

    name: str
    description: str
    x: Axis
    y: Axis
    lines: tuple[tuple[str, str], ...]
    marker: tuple[float, float] | None = None
    dots: tuple[dict[str, float], ...] = field(default=())

    @property
    def marker_fits(self) -> bool:
        """Whether there is a marker and the axes reach it."""
        return self.marker is not None and self.marker[1] <= self.y.high


def risk_coverage_chart(evaluation: Evaluation) -> Chart:
    """Draw the share of wrong answers against the share of rows answered, the most confident first."""
    curve = evaluation.risk_coverage
    error_rate = evaluation.risk_if_all_answered
    # The first few rows alone can reach a risk of 1, which would flatten all the rest.
    steady = curve.risk[curve.coverage >= 0.02]
    x = Axis("Rows answered", 1.0, _LEFT, _RIGHT, 100, " %")
    y = _risk_axis("Wrong among the answers", max(float(steady.max()), error_rate), " %")
    xs, ys = thin(curve.coverage, curve.risk)
    lines = (
        ("everything", path(np.array([0.0, 1.0]), np.full(2, error_rate), x, y)),
        ("model", path(xs, ys, x, y)),
    )
    right = evaluation.accepted_accuracy
    marker = (evaluation.coverage, 1 - right) if evaluation.counts.n_answered else None
    description = "Share of wrong answers against share of rows answered, from the most confident rows to all rows."
    return Chart("risk-coverage", description, x, y, lines, marker)


def cost_chart(evaluation: Evaluation, grid: NDArray[np.float64], risks: NDArray[np.float64] | None) -> Chart:
    """Draw the risk against the cost, beside answering everything and handing on everything.

    Without risks, for a model whose cost is fixed, only its own point is drawn.
    """
    error_rate, high_cost = evaluation.risk_if_all_answered, float(grid[-1])
    highest = max(error_rate, evaluation.risk, 0.0 if risks is None else float(risks.max()))
    x = Axis("Cost of handing on one row", high_cost, _LEFT, _RIGHT)
    y = _risk_axis("Cost per 100 rows", highest, "")
    ends = np.array([0.0, high_cost])
    lines = [("nothing", path(ends, ends, x, y)), ("everything", path(ends, np.full(2, error_rate), x, y))]
    if risks is not None:
        lines.append(("model", path(grid, risks, x, y)))
    description = "Cost per 100 rows against the cost of handing on one row."
    return Chart("cost-curve", description, x, y, tuple(lines), (evaluation.cost, evaluation.risk))


def reliability_chart(reliability: Reliability) -> Chart:
    """Draw accuracy against confidence, one dot for each bin that has rows; a larger dot stands for more rows."""
    x = Axis("Confidence", 1.0, _LEFT, _RIGHT, 100, " %")
    y = Axis("Right among rows of this confidence", 1.0, _BOTTOM, _TOP, 100, " %")
    low, high = reliability.accuracy_interval()
    most = int(reliability.n_rows.max())
    dots: list[dict[str, Any]] = [
        {
            "x": x.at(float(reliability.confidence[k])),
            "y": y.at(float(reliability.accuracy[k])),
            "low": y.at(float(low[k])),
            "high": y.at(float(high[k])),
            "radius": round(2.5 + 6.5 * (n / most) ** 0.5, 2),
        }
        for k, n in enumerate(reliability.n_rows.tolist())
        if n
    ]
    ends = np.array([0.0, 1.0])
    description = "Share of right answers against the confidence given, with 95 % intervals."
    return Chart("reliability", description, x, y, (("everything", path(ends, ends, x, y)),), None, tuple(dots))


def _risk_axis(title: str, highest: float, unit: str) -> Axis:
    """Return an axis with a little room above the highest risk, and some height even if all risks are zero."""
    return Axis(title, min(max(1.12 * highest, 0.01), 1.0), _BOTTOM, _TOP, 100, unit)
