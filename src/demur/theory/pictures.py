"""Pictures of the theory. The only module here that imports matplotlib."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from demur.losses import Loss
from demur.theory.bayes import NoBoundError, as_target
from demur.theory.calibration_check import describe
from demur.theory.calibration_function import CalibrationFunction, calibration_function
from demur.theory.descent import Deadline
from demur.theory.examined_loss import LossLike, RuleFunction, RuleName, as_loss, examine
from demur.theory.pointwise_risk import find_minima

__all__ = ["draw_calibration_functions", "draw_check", "plain_xi", "save"]

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#666666"


def draw_check(
    loss: LossLike,
    n_classes: int,
    cost: float,
    *,
    rule: RuleName | RuleFunction | None = None,
    outputs: int | None = None,
) -> Figure:
    """Draw what the minimiser decides on two extreme lines through the simplex, and the calibration function.

    Parameters
    ----------
    loss : str, Loss or callable
    n_classes : int
    cost : float
    rule, outputs : optional
        As for :func:`demur.theory.check_calibration`.

    Examples
    --------
    >>> len(draw_check("mh", 2, 0.2).axes)  # a loss with kinks has no second picture
    1
    """
    subject = as_loss(loss, n_classes, cost, rule=rule, outputs=outputs)
    try:
        xi = calibration_function(subject, n_classes, cost)
    except NoBoundError:
        xi = None
    figure = Figure(figsize=(10.5 if xi else 5.5, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if xi else 1, squeeze=False)[0]
    _draw_decisions(axes[0], subject, n_classes, cost)
    if xi is not None:
        _draw_xi(axes[1], [xi])
    figure.suptitle(f"{describe(subject, n_classes, cost)}, {n_classes} classes, c = {cost:g}")
    return figure


def draw_calibration_functions(functions: Sequence[CalibrationFunction]) -> Figure:
    """Draw calibration functions of one loss at several costs, with the paper's bound.

    Examples
    --------
    >>> figure = draw_calibration_functions([calibration_function("ova+sq", 3, 0.2, n_nodes=4)])
    >>> figure.axes[0].get_ylabel()
    'excess risk of the surrogate'
    """
    figure = Figure(figsize=(6.4, 4.6), layout="constrained")
    _draw_xi(figure.subplots(), functions)
    figure.suptitle(f"{functions[0].loss.name}: tightest calibration function")
    return figure


def plain_xi(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the calibration function of cross-entropy without a reject option (Pires & Szepesvari 2016).

    Examples
    --------
    >>> plain_xi(np.array([0.0, 1.0])).round(4)  # log 2 at the end
    array([0.    , 0.6931])
    """
    inside = np.clip(z, 0, 1)
    rest = 1 - inside
    logs = np.log(np.where(rest > 0, rest, 1.0))
    value: NDArray[np.float64] = 0.5 * ((1 + inside) * np.log1p(inside) + rest * logs)
    return value


def save(figure: Figure, path: Path) -> None:
    """Write a figure; the ending of the name says in which format."""
    figure.savefig(path, dpi=150)


def _draw_decisions(axis: Axes, loss: Loss, n_classes: int, cost: float) -> None:
    threshold = 1 - cost
    top = torch.cat(
        [torch.linspace(1 / n_classes + 1e-3, 0.999, 60), torch.tensor([threshold - 1e-4, threshold + 1e-4])]
    )
    top = top.to(torch.float64).sort().values
    spread = torch.cat([top[:, None], ((1 - top) / (n_classes - 1))[:, None].expand(-1, n_classes - 1)], -1)
    lines = [("rest spread evenly", BLUE, "-", spread)]
    if n_classes > 2:
        upper = top[top > 0.5 + 1e-6]
        lone = torch.zeros(len(upper), n_classes, dtype=torch.float64)
        lone[:, 0], lone[:, 1] = upper, 1 - upper
        lines.append(("rest on one class", ORANGE, "--", lone))
    subject = examine(loss, as_target(cost, n_classes), deadline=Deadline(60))
    for label, colour, style, eta in lines:
        found = find_minima(subject, eta)
        acceptance = loss.rule(found.scores, cost).acceptance.detach()
        axis.plot(eta[found.converged, 0], acceptance[found.converged], color=colour, linestyle=style, label=label)
    axis.axhline(0, color=GREY, linewidth=1)
    axis.axvline(threshold, color=GREY, linewidth=1, linestyle="--")
    low, high = axis.get_ylim()
    low, high = min(low, -0.1 * high), max(high, -0.1 * low)
    axis.fill_between([1 / n_classes, threshold], 0, high, color=GREY, alpha=0.15, linewidth=0)
    axis.fill_between([threshold, 1], low, 0, color=GREY, alpha=0.15, linewidth=0)
    axis.text(0.03, 0.97, "false accept", transform=axis.transAxes, va="top", color=GREY)
    axis.text(0.97, 0.03, "false reject", transform=axis.transAxes, ha="right", color=GREY)
    axis.set(xlabel="max eta", ylabel="acceptance r of the minimiser", xlim=(1 / n_classes, 1), ylim=(low, high))
    axis.legend(frameon=False, loc="center left")


def _draw_xi(axis: Axes, functions: Sequence[CalibrationFunction]) -> None:
    z = np.linspace(0, 1, 61)
    for xi, colour in zip(functions, _colours(len(functions)), strict=True):
        axis.plot(z, xi(z), color=colour, label=f"tightest xi, c = {xi.cost:g}")
    bound = functions[0].bound
    if bound is not None:
        axis.plot(z, bound.xi(z), color=GREY, linestyle="--", label=f"paper's bound ({bound.theorem})")
    if functions[0].loss.name == "ce":
        axis.plot(z, plain_xi(z), color="black", linestyle=":", label="xi_CE, without rejection")
    axis.set(xlabel="excess 0-1-c risk z", ylabel="excess risk of the surrogate", xlim=(0, 1), ylim=(0, None))
    axis.legend(frameon=False)


def _colours(n: int) -> list[str]:
    return [BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9"][:n] if n <= 6 else [BLUE] * n
