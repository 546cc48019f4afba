"""Draw the figures of the theory page that no command draws: ``python docs/figures/theory_figures.py``."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from demur.theory import beta_bounds, calibration_function
from demur.theory.pictures import draw_xi

HERE = Path(__file__).parent
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
"""Colours of curves that colour-blind readers can distinguish (Okabe and Ito)."""


def main() -> None:
    """Write the drawings beside this file."""
    beta = _beta("apc+log", 0.2, [2, 3, 4, 6, 8, 10, 15, 20, 26])
    beta.savefig(HERE / "theory-beta.png", dpi=150)
    _cross_entropy().savefig(HERE / "theory-ce-costs.png", dpi=150)
    room = [
        calibration_function(name, 3, 0.2)
        for name in ("ce", "ova+log", "ova+exp", "ova+sq")
    ]
    room += [calibration_function(name, 3, 0.4999) for name in ("ce", "ova+log")]
    _room(room).savefig(HERE / "theory-room.png", dpi=150)


def _cross_entropy() -> Figure:
    """Draw the calibration functions of cross-entropy, and the one without rejection (Pires & Szepesvari 2016)."""
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    axis = figure.subplots()
    z = np.linspace(0, 1 - 1e-9, 61)
    plain = 0.5 * ((1 + z) * np.log1p(z) + (1 - z) * np.log1p(-z))
    axis.set_prop_cycle(color=COLOURS)
    draw_xi(
        axis,
        [calibration_function("ce", 8, cost) for cost in (0.05, 0.2, 0.4, 0.4999)],
    )
    axis.plot(z, plain, color="black", linestyle=":", label="xi_CE, without rejection")
    axis.legend(frameon=False)
    figure.suptitle("ce: tightest calibration function")
    return figure


def _beta(loss: str, cost: float, n_classes: list[int]) -> Figure:
    """Draw both bounds of beta against the number of classes."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    acc, rej = np.array([beta_bounds(loss, k, cost) for k in n_classes]).T
    axis.fill_between(
        n_classes,
        rej,
        acc,
        color="#d55e00",
        alpha=0.15,
        label="between the two, both fail",
    )
    axis.plot(
        n_classes,
        acc,
        "o-",
        color="#0072b2",
        label="least beta without false rejects (acc)",
    )
    axis.plot(
        n_classes,
        rej,
        "s-",
        color="#009e73",
        label="greatest beta without false accepts (rej)",
    )
    axis.set(
        xlabel="number of classes K",
        ylabel="beta",
        xticks=n_classes,
        title=f"{loss}, c = {cost:g}",
    )
    axis.legend(frameon=False)
    return figure


def _room(functions: list) -> Figure:
    """Draw how many times larger the tightest xi is than the paper's bound."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    z = np.linspace(0.02, 1, 50)
    for xi, colour in zip(functions, COLOURS, strict=True):
        label = f"{xi.loss.name}, c = {xi.cost:g}"
        axis.plot(z, xi(z) / xi.bound.xi(z), color=colour, label=label)
    axis.axhline(1, color="#666666", linestyle="--", linewidth=1)
    axis.set(
        xlabel="excess 0-1-c risk z",
        ylabel="ratio",
        xlim=(0, 1),
        ylim=(0, None),
    )
    axis.set_title("Tightest xi divided by the paper's bound; 1: the bound is tight")
    axis.legend(frameon=False)
    return figure


if __name__ == "__main__":
    main()
