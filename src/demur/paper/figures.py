"""The paper's figures, drawn from means over trials."""

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from demur.array_types import ByName
from demur.datasets import BayesSummary
from demur.errors import MissingExtraError
from demur.paper.trial_means import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIGURE_2 = (("satimage", "yeast", "letter"), ("APC+log", "MPC+log", "OVA+log", "CE", "OVA+hin"))
"""Data sets and methods of the paper's Figure 2."""

FIGURE_1_COSTS = (0.05, 0.2, 0.4)

STYLES: dict[str, ByName] = {
    "APC+log": {"color": "#E69F00", "linestyle": "--", "marker": "o"},
    "APC+exp": {"color": "#B97A00", "linestyle": "--", "marker": "s"},
    "MPC+log": {"color": "#D55E00", "linestyle": "--", "marker": "^"},
    "OVA+log": {"color": "#0072B2", "linestyle": "-", "marker": "v"},
    "OVA+exp": {"color": "#56B4E9", "linestyle": "-", "marker": "D"},
    "CE": {"color": "#009E73", "linestyle": "-", "marker": "o", "linewidth": 2.5},
    "OVA+hin": {"color": "#CC79A7", "linestyle": ":", "marker": "x"},
}
SIDES = {"acc": "--", "rej": ":"}
"""Line styles of the two sides of beta."""


def _style(method: str) -> ByName:
    loss, _, side = method.rpartition("+")
    return {**STYLES[loss], "linestyle": SIDES[side]} if side in SIDES else STYLES.get(method, {})


def check_matplotlib() -> None:
    """Raise an error if matplotlib is not installed.

    Raises
    ------
    MissingExtraError
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            'the figures need matplotlib: pip install "demur[paper]". Without it, --records-only computes the records '
            "and draws nothing."
        ) from error


def draw_figures(
    synthetic: Results | None, benchmark: Results | None, bayes: dict[float, BayesSummary]
) -> dict[str, bytes]:
    """Return the figures as PNG and SVG files, by name."""
    drawn = {}
    if synthetic is not None:
        drawn["figure-1"] = synthetic_figure(synthetic, bayes)
    if benchmark is not None:
        some = [problem for problem in FIGURE_2[0] if problem in benchmark.problems] or benchmark.problems
        title = "Figure 2: 0-1-c risk against cost, standard error shaded"
        drawn["figure-2"] = benchmark_figure(benchmark, some, FIGURE_2[1], title)
        title = "Figure 4: 0-1-c risk against cost, all data sets and methods"
        drawn["figure-4"] = benchmark_figure(benchmark, benchmark.problems, benchmark.methods, title)
    return {f"figures/{name}.{kind}": render(figure, kind) for name, figure in drawn.items() for kind in ("png", "svg")}


def synthetic_figure(results: Results, bayes: dict[float, BayesSummary]) -> "Figure":
    """Draw the test risk against the training size, a panel per cost, with the Bayes risk: Figure 1."""
    costs = [cost for cost in FIGURE_1_COSTS if cost in bayes] or list(bayes)[:3]
    figure, panels = _panels(len(costs), "Figure 1: 0-1-c risk on synthetic data against training size", results)
    for panel, cost in zip(panels, costs, strict=True):
        for method in results.methods:
            means = [results.paper_numbers.mean("zoc_risk", size, cost, method) for size in results.problems]
            sizes = [int(size) for size in results.problems]
            panel.plot(sizes, np.array(means, float), label=method, markersize=4, **_style(method))
        panel.axhline(bayes[cost].risk.value, color="black", linewidth=1, label="Bayes-optimal")
        panel.set(xscale="log", xlabel="training points per class", title=f"c = {cost:g}")
    _finish(figure, panels[0])
    return figure


def benchmark_figure(results: Results, problems: Sequence[str], methods: Sequence[str], title: str) -> "Figure":
    """Draw the test risk against the cost, a panel per data set, with shaded standard errors: Figures 2 and 4."""
    figure, panels = _panels(len(problems), title, results)
    for panel, problem in zip(panels, problems, strict=True):
        for method in methods:
            points = [
                (cost, value.mean, (value.std or 0) / value.n**0.5)
                for cost in results.experiment.protocol.costs
                if (value := results.paper_numbers.values.get(("zoc_risk", problem, cost, method)))
                and value.mean is not None
            ]
            if not points:
                continue
            x, y, error = zip(*points, strict=True)
            style = _style(method)
            panel.plot(x, y, label=method, markersize=4, **style)
            panel.fill_between(
                x, np.subtract(y, error), np.add(y, error), color=style.get("color"), alpha=0.15, linewidth=0
            )
        panel.set(xlabel="rejection cost c", title=problem)
        if note := results.notes.get(problem):
            panel.text(0.5, -0.24, note, transform=panel.transAxes, ha="center", fontsize=7)
    _finish(figure, panels[0])
    return figure


def render(figure: "Figure", kind: str) -> bytes:
    """Return a figure as "png" or "svg"; the same figure always gives the same bytes."""
    from matplotlib import rc_context

    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "demur", "svg.fonttype": "none"}):
        metadata: dict[str, str | None] = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(content, format=kind, dpi=150, metadata=metadata)
    return content.getvalue()


def _panels(number: int, title: str, results: Results) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.6 * number, 4.4), layout="constrained")
    panels = list(figure.subplots(1, number, squeeze=False)[0])
    figure.suptitle(title + " (quick run)" * results.experiment.quick, fontsize=10)
    return figure, panels


def _finish(figure: "Figure", panel: "Axes") -> None:
    panel.set_ylabel("0-1-c risk on test data")
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8, frameon=False)
