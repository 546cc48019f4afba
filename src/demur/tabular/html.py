"""The report as one HTML page: what goes into it, and how it is kept from running anything but its own script."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from typing import Any

import numpy as np

from demur._version import __version__
from demur.errors import MissingExtraError
from demur.tabular.charts import Chart, cost_chart, reliability_chart, risk_coverage_chart
from demur.tabular.cost_grid import cells, cost_grid, counts_along, n_rejections
from demur.tabular.counts import counts_interval
from demur.tabular.evaluation import Evaluation
from demur.tabular.report_text import case_value, unbroken, visible
from demur.tabular.shown_classes import ShownClasses
from demur.tabular.words import SENTENCES, UNDEFINED, cost_words, per_hundred, percent

__all__ = ["report_html"]


def report_html(evaluation: Evaluation, title: str, *, made: Mapping[str, str] | None = None) -> str:
    """Return the report of an evaluation as one HTML page that loads nothing from anywhere.

    Parameters
    ----------
    evaluation : Evaluation
    title : str
    made : mapping of str to str, optional
        How model and data came about, shown at the end: ``{"Model": "...", "Data": "...", "Date": "..."}``.

    Returns
    -------
    str
        To be stored as UTF-8. Equal evaluations give equal pages.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]
    >>> result = Evaluation.of(["a", "a", "b"], Chow(0.3).decide(proba), classes=["a", "b"], cost=0.3, proba=proba,
    ...                        cost_is_free=True)
    >>> page = report_html(result, "Sorting letters")
    >>> "<h1>Sorting letters</h1>" in page, "://" in page
    (True, False)
    """
    environment = _environment()
    style, script = _asset("report.css"), _asset("report.js") if evaluation.cost_is_free else ""
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    grid = cost_grid(evaluation.cost)
    charts, live = _live(evaluation, grid) if evaluation.cost_is_free else (_fixed(evaluation, grid), None)
    shown = ShownClasses.of(evaluation)
    if live is not None:
        live |= {"row_of": shown.row_of, "n_named": shown.n_named}
    context = {
        "title": title,
        "policy": policy,
        "style": style,
        "script": script,
        "data": None if live is None else _embedded(live),
        "evaluation": evaluation,
        "figures": evaluation.figures,
        "tiles": list(_tiles(evaluation)),
        "grid": grid,
        "position": int(np.searchsorted(grid, evaluation.cost)),
        "charts": charts,
        "reliability": None if evaluation.reliability is None else reliability_chart(evaluation.reliability),
        "shown": shown,
        "made": dict(made or {}),
        "version": __version__,
    }
    return str(environment.get_template("report.html").render(context))


def _live(evaluation: Evaluation, grid: Any) -> tuple[list[Chart], dict[str, Any]]:
    """Return the charts with the whole cost curve, and what the script needs to count at every cost."""
    rejections = n_rejections(evaluation.decision.confidence, grid)
    counts = counts_along(rejections, evaluation.wrong, len(grid))
    risks = np.array([found.risk(float(cost)) for found, cost in zip(counts, grid, strict=True)])
    charts = [risk_coverage_chart(evaluation), cost_chart(evaluation, grid, risks)]
    band = counts_interval(rejections, evaluation.wrong, grid)
    intervals = {
        name: [
            _interval_words(float(low), float(high), per_hundred if name == "risk" else percent)
            for low, high in zip(band.low[k], band.high[k], strict=True)
        ]
        for k, name in enumerate(("risk", "coverage", "accuracy"))
    }
    data = {
        "n_classes": len(evaluation.class_names),
        "costs": grid.tolist(),
        "cost_words": [cost_words(float(cost)) for cost in grid],
        "chosen": int(np.searchsorted(grid, evaluation.cost)),
        "n_wrong_if_all": int(evaluation.wrong.sum()),
        "cells": cells(evaluation, rejections),
        "intervals": intervals,
        "sentences": SENTENCES | {"undefined": UNDEFINED},
        "axes": {chart.name: {"x": _ends(chart.x), "y": _ends(chart.y)} for chart in charts},
    }
    return charts, data


def _fixed(evaluation: Evaluation, grid: Any) -> list[Chart]:
    return [risk_coverage_chart(evaluation), cost_chart(evaluation, grid, None)]


def _tiles(evaluation: Evaluation) -> Iterator[tuple[str, str, float, str, str]]:
    """Yield identifier, name, value, text and interval of each large figure."""
    for key, name, figure, write in (
        ("risk", "Cost per 100 rows", "risk", per_hundred),
        ("coverage", "Rows answered", "coverage", percent),
        ("accuracy", "Right among the answers", "accepted_accuracy", percent),
        ("everything", "Cost per 100 rows, all answered", "risk_if_all_answered", per_hundred),
    ):
        if write is per_hundred and not evaluation.is_priced:
            continue
        value, found = getattr(evaluation, figure), evaluation.figures[figure]
        yield key, name, value, write(value), _interval_words(found.low, found.high, write)


def _interval_words(low: float, high: float, write: Callable[[float], str]) -> str:
    """Write a 95 % interval; nothing where it is undefined."""
    return "" if np.isnan(low) else f"95 % interval {write(low)} to {write(high)}"


def _ends(axis: Any) -> list[float]:
    return [axis.high, axis.start, axis.end]


def _embedded(data: dict[str, Any]) -> str:
    """Write JSON that cannot end the element it stands in, whatever the strings in it."""
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _asset(name: str) -> str:
    return files("demur.tabular").joinpath("page", name).read_text(encoding="utf-8")


def _hash(source: str) -> str:
    """Return the source expression by which the page's policy allows this script or style and no other."""
    if not source:
        return "'none'"
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _environment() -> Any:
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("the report needs Jinja2: pip install demur[report].") from None
    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {
        "percent": lambda share: unbroken(percent(share)),
        "per_hundred": per_hundred,
        "cost_words": cost_words,
        "unbroken": unbroken,
        "case_value": case_value,
    }
    return environment
