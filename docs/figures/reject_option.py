"""Draw the figure of the home page: ``python docs/figures/reject_option.py``.

Two classes of equal frequency, one measurement x, normal with means -1 and 1 and deviation 1. Everything is exact:
the second class has probability 1 / (1 + exp(-2x)), so Chow's rule declines where |x| <= log((1 - c) / c) / 2.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure
from scipy.special import expit
from scipy.stats import norm

COST = 0.2
INK, QUIET, LINE, ACCENT = "#1d2329", "#59636e", "#dde1e6", "#0b5fa5"
STYLE = {
    "font.size": 10.5,
    "font.family": "sans-serif",
    "axes.edgecolor": "#8a949e",
    "axes.labelcolor": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11.5,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "svg.hashsalt": "demur",
    "svg.fonttype": "path",
}


def edge(cost: Any) -> Any:
    """Return the largest |x| that is declined."""
    return np.maximum(np.log((1 - cost) / cost) / 2, 0)


def declined(cost: Any) -> Any:
    """Return the share of cases that are declined."""
    return norm.cdf(edge(cost) - 1) - norm.cdf(-edge(cost) - 1)


def wrong(cost: Any) -> Any:
    """Return the share of cases that are answered, and wrongly."""
    return norm.cdf(-edge(cost) - 1)


def average_cost(cost: Any) -> Any:
    """Return what one case costs on average: 1 for a mistake, c for declining."""
    return wrong(cost) + cost * declined(cost)


def draw() -> Figure:
    """Draw both halves: where the rule declines, and what a case costs on average."""
    figure = Figure(figsize=(10.4, 4.5), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(1.12, 1), wspace=0.06)
    classes, sure = left.subplots(2, 1, sharex=True, height_ratios=(1.5, 1))
    _draw_classes(classes)
    _draw_certainty(sure)
    _draw_costs(right.subplots())
    return figure


def _draw_classes(axes: Any) -> None:
    x = np.linspace(-4, 4, 161)
    first, second = norm.pdf(x, -1) / 2, norm.pdf(x, 1) / 2
    _shade(axes)
    axes.fill_between(x, first, color=ACCENT, alpha=0.16, linewidth=0)
    axes.fill_between(x, second, color=QUIET, alpha=0.16, linewidth=0)
    axes.plot(x, first, color=ACCENT, linewidth=2)
    axes.plot(x, second, color=QUIET, linewidth=2)
    axes.text(-2.15, 0.155, "class A", color=ACCENT, ha="right")
    axes.text(2.15, 0.155, "class B", color=QUIET, ha="left")
    for place, words in ((-2.6, "answer A"), (0, "decline"), (2.6, "answer B")):
        axes.text(
            place,
            0.243,
            words,
            ha="center",
            va="center",
            weight="bold" if place == 0 else "normal",
        )
    axes.set(
        ylim=(0, 0.265),
        yticks=[],
        ylabel="density",
        title="Decisions: decline where the classes overlap",
    )
    axes.spines["left"].set_visible(False)


def _draw_certainty(axes: Any) -> None:
    x = np.linspace(-4, 4, 161)
    _shade(axes)
    axes.plot(x, expit(2 * np.abs(x)), color=INK, linewidth=2)
    axes.axhline(1 - COST, color=ACCENT, linewidth=1.5, linestyle=(0, (5, 3)))
    axes.text(-3.9, 1 - COST - 0.025, f"1 - c = {1 - COST:g}", color=ACCENT, va="top")
    axes.set(ylim=(0.48, 1.03), yticks=[0.5, 0.8, 1.0], xlim=(-4, 4), xticks=[])
    axes.set_yticklabels(["50 %", "80 %", "100 %"])
    axes.set(xlabel="the measurement x", ylabel="confidence")


def _draw_costs(axes: Any) -> None:
    cost = np.linspace(1e-3, 0.4999, 120)
    always = float(norm.cdf(-1))
    axes.plot(
        cost,
        np.full_like(cost, always),
        color=QUIET,
        linewidth=2,
        linestyle=(0, (5, 3.5)),
    )
    axes.plot(
        cost,
        cost,
        color=QUIET,
        linewidth=2.2,
        linestyle=(0, (0.5, 2)),
        dash_capstyle="round",
    )
    axes.plot(cost, average_cost(cost), color=ACCENT, linewidth=2.5)
    mine = float(average_cost(COST))
    axes.plot([COST, COST], [0, mine], color=ACCENT, linewidth=1)
    axes.plot(
        [COST],
        [mine],
        "o",
        color="white",
        markeredgecolor=ACCENT,
        markeredgewidth=2.5,
        markersize=8,
    )
    axes.text(
        0.5, always + 0.004, "answer everything", ha="right", va="bottom", color=QUIET
    )
    axes.text(0.185, 0.203, "decline everything", ha="right", va="center", color=QUIET)
    shares = (
        f"at c = {COST:g}: declines {declined(COST):.0%},\n"
        f"is wrong in {wrong(COST) / (1 - declined(COST)):.1%} of its answers\n"
        f"instead of {always:.1%}, and a case\ncosts {mine:.3f} instead of {always:.3f}"
    )
    axes.text(
        COST + 0.015,
        0.082,
        shares.replace("%", " %"),
        color=ACCENT,
        va="top",
        linespacing=1.4,
        size=10,
    )
    axes.set(
        xlim=(0, 0.5),
        ylim=(0, 0.225),
        title="Average cost, with and without a reject option",
    )
    axes.set(
        xlabel="c, the price of declining (a mistake costs 1)",
        ylabel="average cost of a case",
    )
    axes.set(xticks=np.arange(0, 0.51, 0.1), yticks=np.arange(0, 0.21, 0.05))


def _shade(axes: Any) -> None:
    axes.axvspan(-edge(COST), edge(COST), color=LINE, alpha=0.55, linewidth=0)


def main() -> None:
    """Write the drawing beside this file."""
    with rc_context(STYLE):
        draw().savefig(
            Path(__file__).with_name("reject-option.svg"),
            metadata={"Date": None},
            facecolor="white",
        )


if __name__ == "__main__":
    main()
