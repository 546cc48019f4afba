"""Losses of one probability, l(p_y) with p the softmax: found in a plain function."""

import torch
from torch import Tensor

from demur.losses import Loss
from demur.losses.proof import Part

__all__ = ["separable_part"]


def separable_part(loss: Loss, n_classes: int, cost: float) -> Part | None:
    """Return l as a function of the surprise -log p if the loss is l(p_y), p the softmax of all scores; else None.

    Examples
    --------
    >>> from demur.losses import get
    >>> part = separable_part(get("gce"), 3, 0.2)
    >>> part(torch.tensor([0.0, 1.0], dtype=torch.float64)).round(decimals=4)  # (1 - exp(-0.7)) / 0.7
    tensor([0.0000, 0.7192], dtype=torch.float64)
    """
    n_outputs = loss.n_outputs(n_classes)

    def part(surprise: Tensor) -> Tensor:
        rest = torch.log(torch.expm1(surprise).clamp(min=1e-300)) - torch.log(torch.tensor(n_outputs - 1.0))
        scores = torch.zeros(len(surprise), n_outputs, dtype=torch.float64)
        scores = torch.cat([scores[:, :1], scores[:, 1:] + rest[:, None]], 1)
        return loss.forward(scores, torch.zeros(len(surprise), dtype=torch.long), cost).to(torch.float64)

    generator = torch.Generator().manual_seed(0)
    scores = 3 * torch.randn(300, n_outputs, generator=generator, dtype=torch.float64)
    y = torch.arange(len(scores)) % n_classes
    with torch.no_grad():
        surprise = -torch.log_softmax(scores, -1)[torch.arange(len(y)), y]
        values, expected = loss.forward(scores, y, cost).to(torch.float64), part(surprise)
    same = (values - expected).abs() <= 1e-9 * (1 + expected.abs())
    return part if bool(same.all()) else None
