"""The report as one HTML page: what goes into it, what its script counts at every cost and price, how it is written."""

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur._version import __version__
from demur.array_types import ByName, FloatArray
from demur.metrics import Interval, proportion_interval, risk_interval
from demur.rules import Decision, chow_acceptance
from demur.tabular.evaluation import Evaluation
from demur.tabular.evaluation_figures import AnswerCounts
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
from demur.tabular.report_charts import (
    Axis,
    Chart,
    cost_chart,
    deferral_chart,
    expert_chart,
    reliability_chart,
    risk_coverage_chart,
)
from demur.whole_file import write_whole

__all__ = [
    "ShownClasses",
    "asking_data",
    "asking_parts",
    "cells",
    "cost_grid",
    "counts_along",
    "highest_price",
    "n_rejections",
    "report_html",
    "write_report",
]


_PACKAGE = "demur.tabular"
_STEPS = 200
"""Steps of 0.005; k / 200 is the double nearest to its decimal, so that it equals a cost typed as text."""


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
    style = asset(_PACKAGE, "report.css")
    script = asset(_PACKAGE, "report.js") if evaluation.cost_adjustable else ""
    asking: ByName = {}
    shown = ShownClasses.of(evaluation)
    charts = [risk_coverage_chart(evaluation)]
    grid, data = np.empty(0), None
    if evaluation.cost is not None:
        grid = cost_grid(evaluation.cost)
        if evaluation.cost_adjustable:
            charts, live = _live(evaluation, evaluation.cost, grid)
            data = embedded_json(live | {"row_of": shown.row_of, "n_named": shown.n_named})
        else:
            charts.append(cost_chart(evaluation, evaluation.cost, grid, None))
    if evaluation.asking is not None:
        script = asset(_PACKAGE, "asking.js")
        charts.append(deferral_chart(evaluation.asking))
        asking, data = asking_parts(evaluation.asking), embedded_json(asking_data(evaluation.asking))
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


def _live(evaluation: Evaluation, cost: float, grid: NDArray[np.float64]) -> tuple[list[Chart], dict[str, object]]:
    """Return the charts with the whole cost curve, and what the script needs to count at every cost."""
    rejections = n_rejections(evaluation.decision.confidence, grid)
    counts = counts_along(rejections, evaluation.wrong, len(grid))
    n_rows = evaluation.n_rows
    n_answered, n_wrong = np.array([(found.n_answered, found.n_wrong) for found in counts]).T
    bands = {
        "risk": risk_interval(n_wrong, n_rows - n_answered, n_rows, grid),
        "coverage": proportion_interval(n_answered, n_rows),
        "accuracy": proportion_interval(n_answered - n_wrong, n_answered),
    }
    charts = [risk_coverage_chart(evaluation), cost_chart(evaluation, cost, grid, np.asarray(bands["risk"].estimate))]
    return charts, {
        "n_classes": len(evaluation.class_names),
        "costs": grid.tolist(),
        "cost_words": [cost_words(float(one)) for one in grid],
        "chosen": int(np.searchsorted(grid, cost)),
        "n_wrong_if_all": int(evaluation.wrong.sum()),
        "cells": cells(evaluation, rejections),
        "intervals": {
            name: [
                interval_words(float(low), float(high), percent if name != "risk" else per_hundred)
                for low, high in zip(band.low, band.high, strict=True)
            ]
            for name, band in bands.items()
        },
        "sentences": SENTENCES | {"undefined": UNDEFINED},
        "few": FEW,
        "most": MOST,
        "axes": {chart.name: {"x": _ends(chart.x), "y": _ends(chart.y)} for chart in charts},
    }


def _tiles(evaluation: Evaluation) -> Iterator[tuple[str, str, float, str, str]]:
    """Yield identifier, name, value, text and interval of each large figure, the one that was decided by first."""
    assumed = f", declining priced at {cost_words(evaluation.cost or 0.0)}" if evaluation.cost_assumed else ""
    tiles = {
        "system_risk": ("system-risk", "Cost per 100 rows", per_hundred),
        "system_accuracy": ("system-accuracy", "Right in the end", percent),
        "mean_cost": ("mean-cost", "Cost of 100 rows by the cost matrix", matrix_words),
        "risk": ("risk", f"Cost per 100 rows{assumed}", per_hundred),
        "coverage": ("coverage", "Rows answered", percent),
        "accepted_accuracy": ("accuracy", "Right among the answers", percent),
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


def _ends(axis: Axis) -> list[float]:
    return [axis.high, axis.start, axis.end]


@dataclass(frozen=True, eq=False)
class ShownClasses:
    """A confusion matrix small enough to read: some classes by name, the others together.

    Parameters
    ----------
    rows, columns : list of str
        The headings.
    row_of : list of int
        The row of each class, and of labels that are not a class where there are any; also its column.
    counts : array of int, shape (n_rows, n_columns)
    n_named : int
        How many classes have a row of their own.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]]
    >>> result = Evaluation.of([0, 1, 2, 2], Chow(0.2).decide(proba), classes=[0, 1, 2], cost=0.2)
    >>> shown = ShownClasses.of(result, limit=2)
    >>> shown.rows, shown.columns
    (['1', '2', 'Other classes'], ['1', '2', 'Other classes', 'Declined'])
    >>> shown.counts
    array([[1, 0, 0, 0],
           [1, 0, 0, 1],
           [0, 0, 1, 0]])
    """

    rows: list[str]
    columns: list[str]
    row_of: list[int]
    counts: NDArray[np.int64]
    n_named: int

    @classmethod
    def of(cls, evaluation: Evaluation, limit: int = 20) -> "ShownClasses":
        """Name the classes most often mistaken, as truth or as answer, if every row were answered."""
        names, true, answer = evaluation.class_names, evaluation.true, evaluation.decision.label
        n_classes = len(names)
        named = list(range(n_classes))
        if n_classes > limit:
            wrong = evaluation.wrong
            mistakes = sum(np.bincount(codes[wrong], minlength=n_classes + 1)[:n_classes] for codes in (true, answer))
            named = sorted(np.argsort(-np.asarray(mistakes), kind="stable")[:limit].tolist())
        others = ["Other classes"] if len(named) < n_classes else []
        headings = [names[k] for k in named] + others
        unknown = ["None of the classes"] if evaluation.n_unknown else []
        place = {code: k for k, code in enumerate(named)}
        row_of = [place.get(code, len(named)) for code in range(n_classes)] + [len(headings)] * len(unknown)
        counts = np.zeros((len(headings) + len(unknown), len(headings) + 1), dtype=np.int64)
        column_of = [*row_of[:n_classes], len(headings)]
        np.add.at(counts, np.ix_(row_of, column_of), evaluation.confusion)
        away = "Declined" if evaluation.asking is None else "Asked about"
        return cls(headings + unknown, [*headings, away], row_of, counts, len(named))

    def cell(self, row: int, column: int) -> dict[str, int | str]:
        """Return the count of a cell and how it looks: right answers, or one of six shades by share of the row."""
        count, total = int(self.counts[row, column]), int(self.counts[row].sum())
        if row == column and row < self.n_named:
            return {"count": count, "look": "right"}
        share = count / total if total else 0.0
        shade = sum(share > edge for edge in (0, 0.01, 0.05, 0.15, 0.3))
        return {"count": count, "look": f"shade-{shade}"}


def cost_grid(cost: float) -> NDArray[np.float64]:
    """Return costs from 0 to 1/2 in steps of 0.005, up to 1 if the cost is above 1/2, with the cost itself.

    Examples
    --------
    >>> cost_grid(0.123)[23:27]
    array([0.115, 0.12 , 0.123, 0.125])
    """
    last = _STEPS // 2 if cost <= 0.5 else _STEPS - 1
    return np.union1d(np.arange(last + 1) / _STEPS, [cost])


def n_rejections(confidence: FloatArray, grid: NDArray[np.float64]) -> NDArray[np.int64]:
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


def counts_along(n_rejections: NDArray[np.int64], wrong: NDArray[np.bool_], n_costs: int) -> list[AnswerCounts]:
    """Count rows, answers and wrong answers at each cost.

    Examples
    --------
    >>> counts_along(np.array([0, 1]), np.array([False, True]), 2)
    [AnswerCounts(n_rows=2, n_answered=1, n_wrong=0), AnswerCounts(n_rows=2, n_answered=2, n_wrong=1)]
    """
    answered, errors = (
        np.cumsum(np.bincount(rows, minlength=n_costs + 1)).tolist() for rows in (n_rejections, n_rejections[wrong])
    )
    return [AnswerCounts(len(wrong), answered[k], errors[k]) for k in range(n_costs)]


def cells(evaluation: Evaluation, n_rejections: NDArray[np.int64]) -> dict[str, str]:
    """Return the distinct (true class, answer, number of rejections) with their counts, as little-endian base64.

    The script counts the confusion matrix of any cost from these exactly; rows that share all three are one cell, so
    that the page stays small however many rows there are, and no row can be told from it.
    """
    # One number for each triple: sorting those is ten times as fast as sorting rows.
    width, height = int(n_rejections.max()) + 1, len(evaluation.class_names)
    triples = (evaluation.true * height + evaluation.decision.label) * width + n_rejections
    found, counts = np.unique(triples, return_counts=True)
    pairs, rejections = np.divmod(found, width)
    true, answer = np.divmod(pairs, height)
    return {
        "true": _base64(true, "<u2"),
        "answer": _base64(answer, "<u2"),
        "rejections": _base64(rejections, "<u2"),
        "count": _base64(counts, "<u4"),
    }


MOST_ROWS = 20_000
"""Rows whose estimates go into the page; of more, as many are drawn."""

_GAP = 255


def asking_parts(asking: ExpertEvaluation) -> ByName:
    """Return what the page shows about the experts, whether a script runs or not."""
    load = asking.load
    own = float((asking.ask < 0).mean())
    right = asking.model_right[asking.ask < 0]
    answering: list[ByName] = [
        {
            "name": "the model itself",
            "count": int((asking.ask < 0).sum()),
            "load": own,
            "interval": _between(proportion_interval(int((asking.ask < 0).sum()), asking.n_rows)),
            "right": float(right.mean()) if len(right) else float("nan"),
            "always": float(asking.nobody.estimate),
            "undefined": UNDEFINED,
        }
    ]
    answering += [
        {
            "name": name,
            "count": int((asking.ask == number).sum()),
            "load": float(load.estimate[number]),
            "interval": f"{percent(float(load.low[number]))} to {percent(float(load.high[number]))}",
            "right": float(asking.right_when_asked(number).estimate),
            "always": float(asking.always(number).estimate),
            "undefined": UNDEFINED,
        }
        for number, name in enumerate(asking.names)
    ]
    charts: list[tuple[Chart, float, int]] = []
    for number, name in enumerate(asking.names):
        found = asking.calibration(number)
        if found is not None:
            n_answered = int((~np.isnan(asking.expert_right[:, number])).sum())
            charts.append((expert_chart(name, number, found), found.error, n_answered))
    return {
        "experts": [{"name": name, "price": float(asking.prices[k])} for k, name in enumerate(asking.names)],
        "answering": answering,
        "expert_charts": charts,
        "highest_price": highest_price(asking.prices),
        "sampled": MOST_ROWS if asking.n_rows > MOST_ROWS else 0,
    }


def _between(found: Interval) -> str:
    return f"{percent(found.low)} to {percent(found.high)}"


def highest_price(prices: NDArray[np.float64]) -> float:
    """Return where the sliders end: at 1/2, at 1, or at the highest price.

    Examples
    --------
    >>> highest_price(np.array([0.05, 0.2])), highest_price(np.array([0.7])), highest_price(np.array([3.0]))
    (0.5, 1.0, 3.0)
    """
    top = float(prices.max())
    return 0.5 if top <= 0.5 else max(1.0, top)


def asking_data(asking: ExpertEvaluation) -> ByName:
    """Return what the script needs to decide every row at other prices exactly as the model would."""
    some = np.arange(asking.n_rows)
    if len(some) > MOST_ROWS:
        some = np.sort(np.random.default_rng(0).choice(len(some), MOST_ROWS, replace=False))
    chart = deferral_chart(asking)
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
        "axes": {name: [axis.high, axis.start, axis.end] for name, axis in (("x", chart.x), ("y", chart.y))},
    }


def _base64(numbers: NDArray[Any], dtype: str) -> str:
    return base64.b64encode(numbers.astype(dtype).tobytes()).decode("ascii")
