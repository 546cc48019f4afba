"""The drawings of the report: risk against coverage, cost and questions; accuracy against confidence."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from demur.deferral import ExpertCalibration
from demur.tabular.evaluation import Evaluation
from demur.tabular.evaluation_figures import ReliabilityBins
from demur.tabular.expert_evaluation import ExpertEvaluation

__all__ = [
    "Axis",
    "Chart",
    "cost_chart",
    "deferral_chart",
    "expert_chart",
    "path",
    "reliability_chart",
    "risk_coverage_chart",
    "thin",
]

Floats = NDArray[np.float64]

_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 506, 38, 284
"""The plot within a drawing of 520 by 340; the margins leave room for the larger letters of a narrow screen."""


@dataclass(frozen=True)
class Axis:
    """A straight scale from values to positions in the drawing.

    Parameters
    ----------
    title : str
    high : float
        The largest value; the smallest is 0.
    start, end : float
        Where 0 and ``high`` lie.
    factor : float
        What a value is multiplied by where it is written: 100 for per cent.
    unit : str
        Written after each number.

    Examples
    --------
    >>> axis = Axis("coverage", 1.0, 0, 100, factor=100, unit=" %")
    >>> axis.at(0.25), axis.ticks[1]
    (25.0, (20.0, '20 %'))
    """

    title: str
    high: float
    start: float
    end: float
    factor: float = 1.0
    unit: str = ""

    def at(self, value: float) -> float:
        """Return the position of a value, to a hundredth."""
        return round(self.start + (self.end - self.start) * value / self.high, 2)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Position and text of the marks, at round values, at least five and at most eleven."""
        written_high = self.high * self.factor
        power = 10.0 ** math.floor(math.log10(written_high / 4))
        step = max(m * power for m in (1, 2, 5) if m * power <= written_high / 4)
        digits = max(0, -math.floor(math.log10(power) + 0.5))
        written = [k * step for k in range(int(written_high / step + 1e-9) + 1)]
        return [(self.at(value / self.factor), f"{value:.{digits}f}{self.unit}") for value in written]


def path(xs: Floats, ys: Floats, x: Axis, y: Axis) -> str:
    """Return the line through the points as SVG path data.

    Examples
    --------
    >>> path(np.array([0.0, 1.0]), np.array([0.0, 0.5]), Axis("", 1, 0, 10), Axis("", 1, 10, 0))
    'M0 10L10 5'
    """
    points = [f"{x.at(a):g} {y.at(b):g}" for a, b in zip(xs.tolist(), ys.tolist(), strict=True)]
    return "M" + "L".join(points)


def thin(xs: Floats, ys: Floats, n_buckets: int = 100) -> tuple[Floats, Floats]:
    """Keep at most four points in each of ``n_buckets`` strips: the first, the last, the lowest and the highest.

    What lies between those is drawn over by the line through them, so that the curve looks the same.

    Parameters
    ----------
    xs : array of shape (n,)
        Ascending.
    ys : array of shape (n,)
    n_buckets : int, default 100

    Examples
    --------
    >>> x = np.linspace(0, 1, 100_000)
    >>> kept, _ = thin(x, np.sin(5000 * x))
    >>> len(kept)
    400
    """
    if len(xs) <= 4 * n_buckets:
        return xs, ys
    width = (xs[-1] - xs[0]) / n_buckets or 1.0
    bucket = np.minimum(((xs - xs[0]) / width).astype(np.int64), n_buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    ends = np.append(starts[1:], len(xs))
    order = np.lexsort((ys, bucket))
    kept = np.unique(np.concatenate([starts, ends - 1, order[starts], order[ends - 1]]))
    return xs[kept], ys[kept]


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


def cost_chart(evaluation: Evaluation, cost: float, grid: Floats, risks: Floats | None) -> Chart:
    """Draw the risk against the cost, beside answering everything and declining everything.

    Without risks, for a model whose cost is fixed, only its own point is drawn.
    """
    error_rate, high_cost = evaluation.risk_if_all_answered, float(grid[-1])
    highest = max(error_rate, evaluation.risk, 0.0 if risks is None else float(risks.max()))
    x = Axis("Cost of declining one row", high_cost, _LEFT, _RIGHT)
    y = _risk_axis("Cost per 100 rows", highest, "")
    ends = np.array([0.0, high_cost])
    lines = [("nothing", path(ends, ends, x, y)), ("everything", path(ends, np.full(2, error_rate), x, y))]
    if risks is not None:
        lines.append(("model", path(grid, risks, x, y)))
    description = "Cost per 100 rows against the cost of declining one row."
    return Chart("cost-curve", description, x, y, tuple(lines), (cost, evaluation.risk))


def reliability_chart(reliability: ReliabilityBins) -> Chart:
    """Draw accuracy against confidence, one dot for each bin that has rows; a larger dot stands for more rows."""
    x = Axis("Confidence", 1.0, _LEFT, _RIGHT, 100, " %")
    y = Axis("Right among rows of this confidence", 1.0, _BOTTOM, _TOP, 100, " %")
    low, high = reliability.accuracy.low, reliability.accuracy.high
    most = int(reliability.n_rows.max())
    dots: list[dict[str, float]] = [
        {
            "x": x.at(float(reliability.confidence[k])),
            "y": y.at(float(reliability.accuracy.estimate[k])),
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


def deferral_chart(asking: ExpertEvaluation) -> Chart:
    """Draw the share of wrong final answers against the share of rows that somebody is asked about."""
    curve = asking.curve
    alone, wrong = float(asking.nobody.estimate), 1 - float(asking.accuracy.estimate)
    x = Axis("Rows asked about", 1.0, _LEFT, _RIGHT, 100, " %")
    y = _risk_axis("Wrong among the final answers", max(float((1 - curve.accuracy).max()), alone, wrong), " %")
    xs, ys = thin(curve.deferred, 1 - curve.accuracy)
    lines = (
        ("everything", path(np.array([0.0, 1.0]), np.full(2, alone), x, y)),
        ("model", path(xs, ys, x, y)),
    )
    description = "Share of wrong final answers against the share of rows that an expert is asked about."
    return Chart("deferral", description, x, y, lines, (float((asking.ask >= 0).mean()), wrong))


def expert_chart(name: str, number: int, found: ExpertCalibration) -> Chart:
    """Draw how often an expert was right against how likely that was estimated to be, one dot for each bin."""
    x = Axis("Estimated to be right", 1.0, _LEFT, _RIGHT, 100, " %")
    y = Axis("Right", 1.0, _BOTTOM, _TOP, 100, " %")
    ends = (found.estimated, found.right.estimate, found.right.low, found.right.high)
    dots: list[dict[str, float]] = [
        {"x": x.at(a), "y": y.at(b), "low": y.at(low), "high": y.at(high), "radius": 5.0}
        for a, b, low, high in zip(*(np.asarray(one, dtype=np.float64).tolist() for one in ends), strict=True)
    ]
    both = np.array([0.0, 1.0])
    description = f"How often {name} was right against how likely that was estimated to be, with 95 % intervals."
    return Chart(f"expert-{number}", description, x, y, (("everything", path(both, both, x, y)),), None, tuple(dots))


def _risk_axis(title: str, highest: float, unit: str) -> Axis:
    """Return an axis with a little room above the highest risk, and some height even if all risks are zero."""
    return Axis(title, min(max(1.12 * highest, 0.01), 1.0), _BOTTOM, _TOP, 100, unit)
