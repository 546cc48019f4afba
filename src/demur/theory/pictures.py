"""Pictures of the theory. The only module here that imports matplotlib."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from demur.losses import Loss
from demur.theory.bayes import NoBoundError, as_target
from demur.theory.calibration_check import describe
from demur.theory.calibration_function import CalibrationFunction, calibration_function
from demur.theory.descent import Deadline
from demur.theory.examined_loss import LossLike, as_loss, examine
from demur.theory.pointwise_risk import find_minima

GREY = "#666666"


def draw_check(loss: LossLike, n_classes: int, cost: float, *, outputs: int | None = None) -> Figure:
    """Draw what the minimiser decides on two extreme lines through the simplex, and the calibration function.

    Parameters
    ----------
    loss : str, Loss or callable
    n_classes : int
    cost : float
    outputs : int, optional
        As for :func:`demur.theory.check_calibration`.

    Examples
    --------
    >>> len(draw_check("mh", 2, 0.2).axes)  # a loss with kinks has no second picture
    1
    """
    subject = as_loss(loss, n_classes, cost, outputs=outputs)
    try:
        xi = calibration_function(subject, n_classes, cost)
    except NoBoundError:
        xi = None
    figure = Figure(figsize=(10.5 if xi else 5.5, 4.2), layout="constrained")
    axes = figure.subplots(1, 2 if xi else 1, squeeze=False)[0]
    _draw_decisions(axes[0], subject, n_classes, cost)
    if xi is not None:
        draw_xi(axes[1], [xi])
    figure.suptitle(f"{describe(subject, n_classes, cost)}, {n_classes} classes, c = {cost:g}")
    return figure


def _draw_decisions(axis: Axes, loss: Loss, n_classes: int, cost: float) -> None:
    threshold = 1 - cost
    top = torch.cat([torch.linspace(1 / n_classes + 1e-3, 0.999, 60), threshold + torch.tensor([-1e-4, 1e-4])])
    top = top.double().sort().values
    subject = examine(loss, as_target(cost, n_classes), deadline=Deadline(60))
    shapes = [("rest spread evenly", "-", n_classes - 1), ("rest on one class", "--", 1)]
    for label, style, m in shapes[: min(n_classes - 1, 2)]:
        eta = top.new_zeros(len(top), n_classes)
        eta[:, 0], eta[:, 1 : m + 1] = top, ((1 - top) / m)[:, None]
        eta = eta[top > eta[:, 1] + 1e-6]
        found = find_minima(subject, eta)
        acceptance = loss.rule(found.scores, cost).acceptance.detach()
        axis.plot(eta[found.converged, 0], acceptance[found.converged], linestyle=style, label=label)
    axis.axhline(0, color=GREY, linewidth=1)
    axis.axvline(threshold, color=GREY, linewidth=1, linestyle="--")
    axis.text(0.03, 0.97, "false accept", transform=axis.transAxes, va="top", color=GREY)
    axis.text(0.97, 0.03, "false reject", transform=axis.transAxes, ha="right", color=GREY)
    axis.set(xlabel="max eta", ylabel="acceptance r of the minimiser", xlim=(1 / n_classes, 1))
    axis.legend(frameon=False, loc="center left")


def draw_xi(axis: Axes, functions: Sequence[CalibrationFunction]) -> None:
    """Draw calibration functions of one loss at several costs, with the paper's bound."""
    z = np.linspace(0, 1, 61)
    for xi in functions:
        axis.plot(z, xi(z), label=f"tightest xi, c = {xi.cost:g}")
    bound = functions[0].bound
    if bound is not None:
        axis.plot(z, bound.xi(z), color=GREY, linestyle="--", label=f"paper's bound ({bound.theorem})")
    axis.set(xlabel="excess 0-1-c risk z", ylabel="excess risk of the surrogate", xlim=(0, 1), ylim=(0, None))
    axis.legend(frameon=False)
