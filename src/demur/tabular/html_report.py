"""The report as one HTML page, with the data that its script needs for other costs and prices."""

import base64
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur import __version__
from demur.array_types import ByName, FloatArray
from demur.deferral import ExpertCalibration
from demur.metrics import Interval, proportion_interval, risk_interval
from demur.rules import Decision, chow_acceptance
from demur.tabular.evaluation import Evaluation
from demur.tabular.evaluation_figures import ReliabilityBins
from demur.tabular.evaluation_words import (
    FEW,
    FIGURES,
    MOST,
    SENTENCES,
    UNDEFINED,
    cost_words,
    interval_words,
    matrix_words,
    per_hundred,
    percent,
)
from demur.tabular.expert_evaluation import ASKING_SENTENCES, ExpertEvaluation
from demur.tabular.html_pages import asset, content_policy, embedded_json, page_environment
from demur.whole_file import write_whole

__all__ = [
    "Axis",
    "Chart",
    "cells",
    "cost_grid",
    "n_rejections",
    "report_html",
    "shown_confusion",
    "thin",
    "write_report",
]

Floats = NDArray[np.float64]

_PACKAGE = "demur.tabular"
_STEPS = 200
"""Steps of 0.005; k / 200 is the double nearest to its decimal, so that it equals a cost typed as text."""

_MOST_ROWS = 20_000
"""Rows whose estimates go into the page; of more, as many are drawn."""

_GAP = 255
"""Stands for an answer that an expert has not given."""


def write_report(
    evaluation: Evaluation,
    path: str | os.PathLike[str],
    *,
    title: str,
    made: Mapping[str, str] | None = None,
    watched: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report of an evaluation to one HTML file, whole or not at all, and return its path.

    Parameters
    ----------
    evaluation : Evaluation
    path : str or path
        The file to write.
    title : str
    made, watched : mapping, optional
        As for :func:`~demur.tabular.report_html`.
    overwrite : bool, default False
        Whether a file that is there already may be replaced.

    Examples
    --------
    >>> import tempfile
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> result = Evaluation.of([0, 0, 1], Chow(0.3).decide(proba), classes=[0, 1], cost=0.3, proba=proba)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(result, f"{folder}/report.html", title="Digits").name
    'report.html'
    """
    return write_whole(path, report_html(evaluation, title, made=made, watched=watched), overwrite=overwrite)


def report_html(
    evaluation: Evaluation,
    title: str,
    *,
    made: Mapping[str, str] | None = None,
    watched: Mapping[str, Any] | None = None,
) -> str:
    """Return the report of an evaluation as one HTML page that loads nothing from anywhere.

    Parameters
    ----------
    evaluation : Evaluation
    title : str
    made : mapping of str to str, optional
        How model and data came about, shown at the end: ``{"Model": "...", "Data": "...", "Date": "..."}``.
    watched : mapping, optional
        What a monitor found since the model is at work: :meth:`Monitor.to_json <demur.deploy.Monitor.to_json>`.

    Returns
    -------
    str
        To be stored as UTF-8. Equal evaluations give equal pages.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> result = Evaluation.of(["a", "a", "b"], Chow(0.3).decide(proba), classes=["a", "b"], cost=0.3, proba=proba,
    ...                        cost_adjustable=True)
    >>> page = report_html(result, "Sorting letters")
    >>> "<h1>Sorting letters</h1>" in page, "://" in page
    (True, False)
    """
    environment = page_environment(_PACKAGE, needed_by="the report", extra="report")
    shown, charts = shown_confusion(evaluation), [risk_coverage_chart(evaluation)]
    asking: ByName = {}
    grid, script, data = np.empty(0), "", None
    if evaluation.cost is not None:
        grid = cost_grid(evaluation.cost)
        if evaluation.cost_adjustable:
            script = asset(_PACKAGE, "report.js")
            charts, live = _live(evaluation, evaluation.cost, grid)
            data = embedded_json(live | {"row_of": shown["row_of"], "n_named": shown["n_named"]})
        else:
            charts.append(cost_chart(evaluation, evaluation.cost, grid, None))
    if evaluation.asking is not None:
        script, chart = asset(_PACKAGE, "asking.js"), deferral_chart(evaluation.asking)
        charts.append(chart)
        asking, data = _experts(evaluation.asking), embedded_json(_expert_data(evaluation.asking, chart))
    style = asset(_PACKAGE, "report.css")
    context = {
        **asking,
        "title": title,
        "policy": content_policy(style, script),
        "style": style,
        "script": script,
        "data": data,
        "evaluation": evaluation,
        "figures": [(*FIGURES[name], found) for name, found in evaluation.figures.items()],
        "tiles": list(_tiles(evaluation)),
        "grid": grid,
        "position": int(np.searchsorted(grid, evaluation.risk_if_all_rejected)),
        "charts": charts,
        "reliability": None if evaluation.reliability is None else reliability_chart(evaluation.reliability),
        "shown": shown,
        "made": dict(made or {}),
        "watched": watched,
        "version": __version__,
    }
    return str(environment.get_template("report.html").render(context))


def _live(evaluation: Evaluation, cost: float, grid: Floats) -> "tuple[list[Chart], ByName]":
    """Return the charts with the whole cost curve, and what the script needs for every cost."""
    rejections = n_rejections(evaluation.decision.confidence, grid)
    n_rows, wrong = evaluation.n_rows, evaluation.wrong
    n_answered, n_wrong = (
        np.cumsum(np.bincount(rows, minlength=len(grid) + 1))[:-1] for rows in (rejections, rejections[wrong])
    )
    bands = {
        "risk": (risk_interval(n_wrong, n_rows - n_answered, n_rows, grid), per_hundred),
        "coverage": (proportion_interval(n_answered, n_rows), percent),
        "accuracy": (proportion_interval(n_answered - n_wrong, n_answered), percent),
    }
    risks = np.asarray(bands["risk"][0].estimate)
    charts = [risk_coverage_chart(evaluation), cost_chart(evaluation, cost, grid, risks)]
    return charts, {
        "n_classes": len(evaluation.class_names),
        "costs": grid.tolist(),
        "cost_words": [cost_words(float(one)) for one in grid],
        "chosen": int(np.searchsorted(grid, cost)),
        "n_wrong_if_all": int(wrong.sum()),
        "cells": cells(evaluation, rejections),
        "intervals": {
            name: [interval_words(*ends, write) for ends in zip(band.low.tolist(), band.high.tolist(), strict=True)]
            for name, (band, write) in bands.items()
        },
        "sentences": SENTENCES | {"undefined": UNDEFINED},
        "few": FEW,
        "most": MOST,
        "axes": {chart.name: {"x": chart.x.ends, "y": chart.y.ends} for chart in charts},
    }


def _tiles(evaluation: Evaluation) -> Iterator[tuple[str, str, float, str, str]]:
    """Yield identifier, name, value, text and interval of each large figure."""
    assumed = f", declining priced at {cost_words(evaluation.cost or 0.0)}" if evaluation.cost_assumed else ""
    tiles = {
        "system_risk": ("system-risk", "Cost per 100 rows", per_hundred),
        "system_accuracy": ("system-accuracy", "Correct in the end", percent),
        "mean_cost": ("mean-cost", "Cost of 100 rows by the cost matrix", matrix_words),
        "risk": ("risk", f"Cost per 100 rows{assumed}", per_hundred),
        "coverage": ("coverage", "Rows answered", percent),
        "accepted_accuracy": ("accuracy", "Correct among the answers", percent),
        "mean_cost_if_all_answered": ("everything", "Cost of 100 rows, all answered", matrix_words),
        "risk_if_all_answered": ("everything", "Cost per 100 rows, all answered", per_hundred),
    }
    if evaluation.asking is not None:
        tiles["coverage"] = ("coverage", "Answered by the model", percent)
        del tiles["accepted_accuracy"]
        tiles["risk_if_all_answered"] = ("everything", "Cost per 100 rows, nobody asked", per_hundred)
    elif evaluation.cost is None or evaluation.mean_costs:
        del tiles["risk_if_all_answered"]
    for figure, (key, name, write) in tiles.items():
        if figure in evaluation.figures:
            found = evaluation.figures[figure]
            value = float(found.estimate)
            text = UNDEFINED if np.isnan(value) else write(value)
            yield key, name, value, text, interval_words(found.low, found.high, write)


def shown_confusion(evaluation: Evaluation, limit: int = 20) -> ByName:
    """Return a confusion matrix small enough to read: the classes most often mistaken by name, the others together.

    Returns
    -------
    dict
        ``rows`` and ``columns``, the headings; ``row_of``, the row of each class; ``counts``; ``looks``, the style of
        each cell; ``n_named``, the number of classes with a row of their own.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]]
    >>> result = Evaluation.of([0, 1, 2, 2], Chow(0.2).decide(proba), classes=[0, 1, 2], cost=0.2)
    >>> shown = shown_confusion(result, limit=2)
    >>> shown["rows"], shown["columns"]
    (['1', '2', 'Other classes'], ['1', '2', 'Other classes', 'Declined'])
    >>> shown["counts"]
    array([[1, 0, 0, 0],
           [1, 0, 0, 1],
           [0, 0, 1, 0]])
    """
    names, n_classes = evaluation.class_names, len(evaluation.class_names)
    named = list(range(n_classes))
    if n_classes > limit:
        parts = (evaluation.true[evaluation.wrong], evaluation.decision.label[evaluation.wrong])
        mistakes = np.bincount(np.concatenate(parts), minlength=n_classes + 1)[:n_classes]
        named = sorted(np.argsort(-mistakes, kind="stable")[:limit].tolist())
    headings = [names[k] for k in named] + (["Other classes"] if len(named) < n_classes else [])
    unknown = ["None of the classes"] if evaluation.n_unknown else []
    place = {code: k for k, code in enumerate(named)}
    row_of = [place.get(code, len(named)) for code in range(n_classes)] + [len(headings)] * len(unknown)
    counts = np.zeros((len(headings) + len(unknown), len(headings) + 1), dtype=np.int64)
    np.add.at(counts, np.ix_(row_of, [*row_of[:n_classes], len(headings)]), evaluation.confusion)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shades = np.searchsorted([0, 0.01, 0.05, 0.15, 0.3], shares)  # a darker cell holds a larger share of its row
    looks = [
        ["right" if row == column < len(named) else f"shade-{shade}" for column, shade in enumerate(line)]
        for row, line in enumerate(shades.tolist())
    ]
    away = "Declined" if evaluation.asking is None else "Asked about"
    return {
        "rows": headings + unknown,
        "columns": [*headings, away],
        "row_of": row_of,
        "counts": counts,
        "looks": looks,
        "n_named": len(named),
    }


def cost_grid(cost: float) -> Floats:
    """Return costs from 0 to 1/2 in steps of 0.005, up to 1 if the cost is above 1/2, with the cost itself.

    Examples
    --------
    >>> cost_grid(0.123)[23:27]
    array([0.115, 0.12 , 0.123, 0.125])
    """
    last = _STEPS // 2 if cost <= 0.5 else _STEPS - 1
    return np.union1d(np.arange(last + 1) / _STEPS, [cost])


def n_rejections(confidence: FloatArray, grid: Floats) -> NDArray[np.int64]:
    """Return at how many of the costs Chow's rule rejects each row: it is accepted from that position on.

    Examples
    --------
    At cost 0.1 a confidence of 0.9 is a tie, and ties reject:

    >>> n_rejections(np.array([0.95, 0.9, 0.2]), np.array([0.05, 0.1, 0.2]))
    array([1, 2, 3])
    """
    total = np.zeros(len(confidence), dtype=np.int64)
    for cost in grid:
        total += Decision.from_acceptance(confidence, chow_acceptance(confidence, cost)).reject
    return total


def cells(evaluation: Evaluation, n_rejections: NDArray[np.int64]) -> dict[str, str]:
    """Return the distinct (true class, answer, number of rejections) with their counts, as little-endian base64.

    The script computes the confusion matrix of any cost from these. Rows that share all three are one cell, so that the
    page stays small, and no single row can be read from it.
    """
    triples = np.stack([evaluation.true, evaluation.decision.label, n_rejections])
    (true, answer, rejections), counts = np.unique(triples, axis=1, return_counts=True)
    return {
        "true": _base64(true, "<u2"),
        "answer": _base64(answer, "<u2"),
        "rejections": _base64(rejections, "<u2"),
        "count": _base64(counts, "<u4"),
    }


def _experts(asking: ExpertEvaluation) -> ByName:
    """Return what the page shows about the experts."""
    answering = []
    for number, name in enumerate(("the model itself", *asking.names), start=-1):
        chosen = asking.ask == number
        found = proportion_interval(int(chosen.sum()), asking.n_rows)
        right = float(asking.model_right[chosen].mean()) if number < 0 and chosen.any() else float("nan")
        answering.append(
            {
                "name": name,
                "count": int(chosen.sum()),
                "load": found.estimate,
                "interval": f"{percent(found.low)} to {percent(found.high)}",
                "right": right if number < 0 else asking.right_when_asked(number).estimate,
                "always": (asking.nobody if number < 0 else asking.always(number)).estimate,
                "undefined": UNDEFINED,
            }
        )
    charts = []
    for number, name in enumerate(asking.names):
        estimates = asking.calibration(number)
        if estimates is not None:
            n_answered = int((~np.isnan(asking.expert_right[:, number])).sum())
            charts.append((expert_chart(name, number, estimates), estimates.error, n_answered))
    top = float(asking.prices.max())
    return {
        "experts": [{"name": name, "price": float(asking.prices[k])} for k, name in enumerate(asking.names)],
        "answering": answering,
        "expert_charts": charts,
        "highest_price": 0.5 if top <= 0.5 else max(1.0, top),
        "sampled": _MOST_ROWS if asking.n_rows > _MOST_ROWS else 0,
    }


def _expert_data(asking: ExpertEvaluation, chart: "Chart") -> ByName:
    """Return what the script needs to decide every row at other prices as the model would."""
    some = np.arange(asking.n_rows)
    if len(some) > _MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(len(some), _MOST_ROWS, replace=False))
    errors = [float(asking.always(k).estimate) - float(asking.prices[k]) for k in range(len(asking.names))]
    seen = np.where(np.isnan(asking.expert_right), _GAP, np.nan_to_num(asking.expert_right))
    return {
        "names": list(asking.names),
        "by_name": np.argsort(asking.names, kind="stable").tolist(),
        "prices": asking.prices.tolist(),
        "price_words": [cost_words(float(price)) for price in asking.prices],
        "sure": _base64(asking.sure[some], "<f8"),
        "expected": [_base64(column, "<f8") for column in asking.expected[some].T],
        "model_right": _base64(asking.model_right[some], "<u1"),
        "expert_right": [_base64(column, "<u1") for column in seen[some].T],
        "nobody": float(asking.nobody.estimate),
        "errors": [None if np.isnan(error) else error for error in errors],
        "sentences": ASKING_SENTENCES,
        "undefined": UNDEFINED,
        "axes": {"x": chart.x.ends, "y": chart.y.ends},
    }


def _base64(numbers: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(numbers.astype(dtype).tobytes()).decode("ascii")


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
    def ends(self) -> list[float]:
        """The largest value and the positions of both ends, for the script of the page."""
        return [self.high, self.start, self.end]

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


def thin(xs: Floats, ys: Floats, n_points: int = 400) -> tuple[Floats, Floats]:
    """Keep about ``n_points`` points of a curve, evenly spread, the first and the last included.

    Examples
    --------
    >>> kept, _ = thin(np.linspace(0, 1, 100_000), np.zeros(100_000))
    >>> len(kept), float(kept[0]), float(kept[-1])
    (400, 0.0, 1.0)
    """
    kept = np.unique(np.linspace(0, len(xs) - 1, min(n_points, len(xs))).astype(np.int64))
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
    filled = reliability.n_rows > 0
    radius = 2.5 + 6.5 * (reliability.n_rows / reliability.n_rows.max()) ** 0.5
    axes = ("Confidence", "Correct among rows of this confidence")
    description = "Share of correct answers against the confidence given, with 95 % intervals."
    dots = (reliability.confidence[filled], reliability.accuracy, filled, radius)
    return _dots_chart("reliability", description, axes, *dots)


def expert_chart(name: str, number: int, found: ExpertCalibration) -> Chart:
    """Draw how often an expert was right against how likely that was estimated to be, one dot for each bin."""
    every = np.ones(len(found.estimated), dtype=bool)
    description = f"How often {name} was right against how likely that was estimated to be, with 95 % intervals."
    axes = ("Estimated to be right", "Right")
    return _dots_chart(
        f"expert-{number}", description, axes, found.estimated, found.right, every, np.full(len(every), 5.0)
    )


def _dots_chart(
    name: str,
    description: str,
    titles: tuple[str, str],
    estimated: Floats,
    seen: Interval,
    filled: NDArray[np.bool_],
    radius: Floats,
) -> Chart:
    """Draw shares seen against estimated ones, with their intervals and the diagonal."""
    x = Axis(titles[0], 1.0, _LEFT, _RIGHT, 100, " %")
    y = Axis(titles[1], 1.0, _BOTTOM, _TOP, 100, " %")
    ends = (np.asarray(one, dtype=np.float64)[filled].tolist() for one in (seen.estimate, seen.low, seen.high, radius))
    dots: list[dict[str, float]] = [
        {"x": x.at(a), "y": y.at(b), "low": y.at(low), "high": y.at(high), "radius": round(size, 2)}
        for a, b, low, high, size in zip(estimated.tolist(), *ends, strict=True)
    ]
    both = np.array([0.0, 1.0])
    return Chart(name, description, x, y, (("everything", path(both, both, x, y)),), None, tuple(dots))


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


def _risk_axis(title: str, highest: float, unit: str) -> Axis:
    """Return an axis with a little room above the highest risk, and some height even if all risks are zero."""
    return Axis(title, min(max(1.12 * highest, 0.01), 1.0), _BOTTOM, _TOP, 100, unit)
