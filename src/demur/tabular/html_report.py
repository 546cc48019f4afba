"""HTML pages: the report of an evaluation, and the templates and content security policy that all pages share."""

import base64
import hashlib
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from demur import __version__
from demur.array_types import ByName, FilePath, Floats, Names
from demur.costs import CostWarning
from demur.errors import MissingExtraError
from demur.metrics import Interval
from demur.tabular.evaluation import Evaluation
from demur.tabular.evaluation_figures import (
    FIGURES,
    UNDEFINED,
    ReliabilityBins,
    cost_words,
    interval_words,
    matrix_words,
    per_hundred,
    percent,
)
from demur.whole_file import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment

SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache"}
"""Sent with every page, beside its policy."""

_PACKAGE = "demur.tabular"
_STEPS = 200
"""Steps of 0.005; k / 200 is the double nearest to its decimal, so that it equals a cost typed as text."""

_TILES = {
    "system_risk": ("Cost per 100 rows", per_hundred),
    "system_accuracy": ("Correct final answers", percent),
    "mean_cost": ("Cost of 100 rows by the cost matrix", matrix_words),
    "risk": ("Cost per 100 rows", per_hundred),
    "coverage": ("Rows answered by the model", percent),
    "accepted_accuracy": ("Correct among its answers", percent),
    "risk_if_all_answered": ("Wrong if it answered all rows", percent),
}
"""The large figures at the top of the page: the title and format of each."""


def write_report(
    evaluation: Evaluation,
    path: FilePath,
    *,
    title: str,
    made: Mapping[str, str] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the report of an evaluation to one HTML file, whole or not at all, and return its path.

    Parameters
    ----------
    evaluation : Evaluation
    path : str or path
        The file to write.
    title : str
    made : mapping, optional
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
    return write_whole(path, report_html(evaluation, title, made=made), overwrite=overwrite)


def report_html(
    evaluation: Evaluation,
    title: str,
    *,
    made: Mapping[str, str] | None = None,
) -> str:
    """Return the report of an evaluation as one self-contained HTML page.

    Parameters
    ----------
    evaluation : Evaluation
    title : str
    made : mapping of str to str, optional
        Origin of model and data, shown at the end: ``{"Model": "...", "Data": "...", "Date": "..."}``.

    Returns
    -------
    str
        The page, to be stored as UTF-8. Equal evaluations give equal pages.

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
    cost, charts, grid, script, data = evaluation.cost, [risk_coverage_chart(evaluation)], np.empty(0), "", None
    if evaluation.asking is None and cost is not None:
        grid = cost_grid(cost)
        states = _states(evaluation, grid) if evaluation.cost_adjustable else []
        charts.append(cost_chart(evaluation, cost, grid, [state["markers"][1][1] for state in states]))
        for state in states:
            places = zip(charts, state["markers"], strict=True)
            state["markers"] = [[chart.name, chart.place(*values)] for chart, values in places]
        if states:
            script, data = asset(_PACKAGE, "report.js"), {"costs": grid.tolist(), "states": states}
    style = asset(_PACKAGE, "report.css")
    context = {
        "title": title,
        "policy": content_policy(style, script),
        "style": style,
        "script": script,
        "data": data,
        "evaluation": evaluation,
        "figures": [(FIGURES[name], found) for name, found in evaluation.figures.items()],
        "tiles": {name: _tile(name, evaluation.figures[name]) for name in _TILES if name in evaluation.figures},
        "grid": grid,
        "position": int(np.searchsorted(grid, cost or 0.0)),
        "charts": charts,
        "reliability": None if evaluation.reliability is None else reliability_chart(evaluation.reliability),
        "shown": shown_confusion(evaluation),
        "made": dict(made or {}),
        "version": __version__,
    }
    page = environment.get_template("report.html").render(context)
    return page.encode(errors="replace").decode()  # without halves of surrogate pairs, which UTF-8 does not have


def _tile(name: str, found: Interval) -> tuple[str, str, str]:
    """Return title, value and interval of a large figure."""
    title, write = _TILES[name]
    return title, unbroken(write(found.estimate)), unbroken(interval_words(found.low, found.high, write))


def _states(evaluation: Evaluation, grid: Floats) -> list[dict[str, Any]]:
    """Return the content of the page at each cost: headline, large figures, and the marker positions of both charts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CostWarning)  # nothing is decided here
        return [
            {
                "cost": cost_words(cost),
                "headline": unbroken(moved.headline()),
                "tiles": [[name, *_tile(name, found)[1:]] for name, found in moved.answer_figures.items()],
                "markers": [(moved.coverage, 1 - moved.accepted_accuracy), (cost, moved.risk)],
            }
            for cost, moved in ((cost, evaluation.at(cost)) for cost in grid.tolist())
        ]


def shown_confusion(evaluation: Evaluation, limit: int = 20) -> ByName:
    """Return a confusion matrix small enough to read: at most ``limit`` classes, those with the most errors.

    Returns
    -------
    dict
        ``rows`` and ``columns``, the headings; ``counts``; ``looks``, the style of each cell.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> proba = [[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.9, 0.1], [0.3, 0.3, 0.4]]
    >>> result = Evaluation.of([0, 1, 2, 2], Chow(0.2).decide(proba), classes=[0, 1, 2], cost=0.2)
    >>> shown = shown_confusion(result, limit=2)
    >>> shown["rows"], shown["columns"]
    (['1', '2'], ['1', '2', 'Declined'])
    >>> shown["counts"]
    array([[1, 0, 0],
           [1, 0, 1]])
    """
    n_classes, wrong = len(evaluation.class_names), evaluation.wrong
    mistaken = np.concatenate([evaluation.true[wrong], evaluation.decision.label[wrong]])
    mistakes = np.bincount(mistaken, minlength=n_classes + 1)[:n_classes]
    classes = sorted(np.argsort(-mistakes, kind="stable")[:limit].tolist())
    named = [*classes, n_classes] if len(evaluation.confusion) > n_classes else classes
    names = (*evaluation.class_names, "None of the classes")
    counts = evaluation.confusion[np.ix_(named, [*classes, n_classes])]
    totals = evaluation.confusion[named].sum(axis=1, keepdims=True)
    # A darker cell holds a larger share of its class.
    shades = np.searchsorted([0, 0.01, 0.05, 0.15, 0.3], counts / np.maximum(totals, 1))
    looks = [
        ["right" if row == column < len(classes) else f"shade-{shade}" for column, shade in enumerate(line)]
        for row, line in enumerate(shades.tolist())
    ]
    away = "Declined" if evaluation.asking is None else "Asked about"
    columns = [*(names[k] for k in classes), away]
    return {"rows": [names[k] for k in named], "columns": columns, "counts": counts, "looks": looks}


def cost_grid(cost: float) -> Floats:
    """Return costs from 0 to 1/2 in steps of 0.005, up to 1 if the cost is above 1/2, with the cost itself.

    Examples
    --------
    >>> cost_grid(0.123)[23:27]
    array([0.115, 0.12 , 0.123, 0.125])
    """
    last = _STEPS // 2 if cost <= 0.5 else _STEPS - 1
    return np.union1d(np.arange(last + 1) / _STEPS, [cost])


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
        Factor for the written values: 100 for percent.
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
        written = [k * step for k in range(int(written_high / step + 1e-9) + 1)]
        return [(self.at(value / self.factor), f"{value:g}{self.unit}") for value in written]


@dataclass(frozen=True)
class Chart:
    """Axes, lines and dots, ready to be written as SVG.

    Parameters
    ----------
    name : str
        Identifies the drawing in the page.
    description : str
        Text alternative of the drawing.
    x, y : Axis
    lines : mapping of str to points
        By class of the style sheet: the positions along both axes, in values.
    marker : tuple of float, or None
        Where the chosen cost lies, in values.
    dots : tuple of dict
        Centre, radius and interval of each dot.
    """

    name: str
    description: str
    x: Axis
    y: Axis
    lines: Mapping[str, tuple[ArrayLike, ArrayLike]]
    marker: tuple[float, float] | None = None
    dots: tuple[dict[str, float], ...] = ()

    def place(self, x: float, y: float) -> list[float] | None:
        """Return the position of a point; None where the axes do not reach it."""
        return [self.x.at(x), self.y.at(y)] if y <= self.y.high else None

    def paths(self) -> Iterator[tuple[str, str]]:
        """Yield the class and the SVG path of each line, through at most 400 of its points.

        Examples
        --------
        >>> square = Axis("", 1, 0, 10), Axis("", 1, 10, 0)
        >>> list(Chart("", "", *square, {"model": ([0.0, 1.0], [0.0, 0.5])}).paths())
        [('model', 'M0 10L10 5')]
        """
        for kind, points in self.lines.items():
            both = np.stack(points).T
            kept = np.unique(np.linspace(0, len(both) - 1, min(400, len(both))).astype(np.int64))
            yield kind, "M" + "L".join(f"{self.x.at(a):g} {self.y.at(b):g}" for a, b in both[kept].tolist())


def risk_coverage_chart(evaluation: Evaluation) -> Chart:
    """Draw the share of wrong answers against the share of rows answered, the most confident first."""
    curve, error_rate = evaluation.risk_coverage, evaluation.risk_if_all_answered
    # The first few rows alone can reach a risk of 1, which would flatten all the rest.
    highest = max(float(curve.risk[curve.coverage >= 0.02].max()), error_rate)
    marker = (evaluation.coverage, 1 - evaluation.accepted_accuracy) if evaluation.counts.n_answered else None
    return Chart(
        "risk-coverage",
        "Share of wrong answers against share of rows answered, from the most confident rows to all rows.",
        _share_axis("Rows answered"),
        _risk_axis("Wrong among the answers", highest, " %"),
        {"everything": ([0, 1], [error_rate] * 2), "model": (curve.coverage, curve.risk)},
        marker,
    )


def cost_chart(evaluation: Evaluation, cost: float, grid: Floats, risks: Sequence[float] = ()) -> Chart:
    """Draw the risk against the cost, beside answering everything and declining everything.

    Without risks, for a model whose cost is fixed, only its own point is drawn.
    """
    error_rate, last = evaluation.risk_if_all_answered, float(grid[-1])
    model = {"model": (grid, risks)} if len(risks) else {}
    return Chart(
        "cost-curve",
        "Cost per 100 rows against the cost of declining one row.",
        Axis("Cost of declining one row", last, _LEFT, _RIGHT),
        _risk_axis("Cost per 100 rows", max(error_rate, evaluation.risk, *risks), ""),
        {"nothing": ([0, last], [0, last]), "everything": ([0, last], [error_rate] * 2), **model},
        (cost, evaluation.risk),
    )


def reliability_chart(bins: ReliabilityBins) -> Chart:
    """Draw accuracy against confidence, one dot for each bin that has rows; a larger dot stands for more rows."""
    x, y = _share_axis("Confidence"), Axis("Correct among rows of this confidence", 1.0, _BOTTOM, _TOP, 100, " %")
    radius = 2.5 + 6.5 * (bins.n_rows / bins.n_rows.max()) ** 0.5
    columns = np.stack([bins.confidence, bins.accuracy.estimate, bins.accuracy.low, bins.accuracy.high, radius]).T
    dots = tuple(
        {"x": x.at(a), "y": y.at(b), "low": y.at(low), "high": y.at(high), "radius": round(size, 2)}
        for a, b, low, high, size in columns[bins.n_rows > 0].tolist()
    )
    description = "Share of correct answers against the probability given to them, with 95 % intervals."
    return Chart("reliability", description, x, y, {"everything": ([0, 1], [0, 1])}, None, dots)


def _share_axis(title: str) -> Axis:
    return Axis(title, 1.0, _LEFT, _RIGHT, 100, " %")


def _risk_axis(title: str, highest: float, unit: str) -> Axis:
    """Return an axis with a little room above the highest risk, and some height even if all risks are zero."""
    return Axis(title, min(max(1.12 * highest, 0.01), 1.0), _BOTTOM, _TOP, 100, unit)


def page_environment(package: str, *, needed_by: str, extra: str) -> "Environment":
    """Return the template engine for the pages in the folder ``page`` of a package.

    Everything that comes from data is escaped, and an undefined name is an error.

    Parameters
    ----------
    package : str
        Such as ``"demur.tabular"``.
    needed_by, extra : str
        For the error if Jinja2 is missing: the feature that needs it, and the extra to install.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError(f"{needed_by} needs Jinja2: pip install demur[{extra}].") from None
    environment = Environment(
        loader=FunctionLoader(lambda name: asset(package, name)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": lambda share: unbroken(percent(share)),
        "per_hundred": per_hundred,
        "cost_words": cost_words,
        "unbroken": unbroken,
        "case_value": case_value,
    }
    return environment


def asset(package: str, name: str) -> str:
    """Return the text of a file in the folder ``page`` of a package."""
    return files(package).joinpath("page", name).read_text(encoding="utf-8")


def content_policy(style: str | Names, script: str | Names, *more: str) -> str:
    """Return a content security policy that allows these styles and scripts, and nothing else from anywhere.

    Parameters
    ----------
    style, script : str, or several
        Their text; empty where there is none.
    *more : str
        Further directives, such as ``"connect-src 'self'"``.

    Examples
    --------
    >>> content_policy("", "")
    "default-src 'none'; style-src 'none'; script-src 'none'; img-src data:; base-uri 'none'; form-action 'none'"
    """
    rules = (
        "default-src 'none'",
        f"style-src {_source(style)}",
        f"script-src {_source(script)}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join((*rules, *more))


def _source(texts: str | Names) -> str:
    """Return the expressions by which a policy allows these texts and no others."""
    some = [text for text in ([texts] if isinstance(texts, str) else texts) if text]
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in some]
    return " ".join(f"'sha256-{one}'" for one in dict.fromkeys(digests)) or "'none'"


def own_parts(page: str) -> tuple[list[str], list[str]]:
    """Return the texts of the inline style and script elements of a page that have no attributes.

    Examples
    --------
    >>> own_parts("<style>p {}</style><script src='x.js'></script><script>go();</script><p onclick='no();'>")
    (['p {}'], ['go();'])
    """
    styles, scripts = (re.findall(f"<{tag}>(.+?)</{tag}>", page, re.DOTALL) for tag in ("style", "script"))
    return styles, scripts


def unbroken(text: str) -> str:
    r"""Keep a number and its percent sign on one line.

    Examples
    --------
    >>> unbroken("91.3 % of the rows")
    '91.3\xa0% of the rows'
    """
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def case_value(value: object, longest: int = 60) -> str:
    """Write a value of an original column: numbers to six digits, long text cut.

    Examples
    --------
    >>> case_value(0.123456789), case_value("a long story", longest=6), case_value(None) == UNDEFINED
    ('0.123457', 'a lon…', True)
    """
    if value is None or value != value:
        return UNDEFINED
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"
