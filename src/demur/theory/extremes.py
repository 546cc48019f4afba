"""The largest value of a function of eta over a part of the simplex."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.theory.simplex import over_all_classes, structured_eta, tops_around
from demur.theory.ties import equal_values

__all__ = ["Region", "extreme_over"]

Region: TypeAlias = Literal["answer", "reject", "boundary"]
"""Where max eta >= 1 - c, where it is <= 1 - c, and where it equals 1 - c."""


def extreme_over(
    function: Callable[[Tensor], Tensor],
    n_classes: int,
    cost: float,
    region: Region,
    *,
    symmetric: bool,
    seed: int = 0,
    rounds: int = 2,
) -> tuple[float, NDArray[np.float64]]:
    """Return the largest value of a function of eta over a region, and where: structured rows, then local search.

    Like any search it gives a lower bound of the supremum; for the paper's losses the supremum is at one of the
    structured rows.

    Examples
    --------
    >>> value, eta = extreme_over(lambda eta: eta[:, 1], 3, 0.2, "boundary", symmetric=True)
    >>> round(value, 6), eta.round(6)
    (0.2, array([0.8, 0.2, 0. ]))
    """
    generator = torch.Generator().manual_seed(seed)
    eta = _candidates(n_classes, cost, region, symmetric=symmetric)
    values = function(eta)
    best, at = float(values.max()), eta[values.argmax()]
    for round_number in range(rounds):
        leaders = eta[values.topk(min(6, len(eta))).indices]
        eta = _neighbours(leaders, 0.3 * 0.1**round_number, cost, region, generator)
        if not len(eta):
            break
        values = function(eta)
        if float(values.max()) > best:
            best, at = float(values.max()), eta[values.argmax()]
    return best, at.numpy()


def _candidates(n_classes: int, cost: float, region: Region, *, symmetric: bool) -> Tensor:
    threshold = torch.tensor([1 - cost], dtype=torch.float64)
    tops = torch.cat([threshold, tops_around(cost, n_classes)])
    inside = {"answer": tops >= threshold, "reject": tops <= threshold, "boundary": tops == threshold}[region]
    eta = structured_eta(tops[inside], n_classes)
    return eta if symmetric else over_all_classes(eta, limit=max(40 * n_classes, 240))


def _neighbours(leaders: Tensor, scale: float, cost: float, region: Region, generator: torch.Generator) -> Tensor:
    """Vary each leader, keeping its ties and its region."""
    eta = leaders.repeat_interleave(8, 0)
    groups = equal_values(eta)
    noise = torch.randn(eta.shape, generator=generator, dtype=torch.float64).gather(-1, groups) * scale
    place = eta.argmax(-1, keepdim=True)
    top = eta.gather(-1, place)
    if region != "boundary":
        top = 1 - cost + (top - (1 - cost)) * torch.exp(noise.gather(-1, place))
        top = top.clamp(min=1 - cost if region == "answer" else 1 / eta.shape[-1], max=1 - 1e-9)
        top = top if region == "answer" else top.clamp(max=1 - cost)
    others = (eta * torch.exp(noise)).scatter(-1, place, 0.0)
    total = others.sum(-1, keepdim=True)
    others = others / total.clamp(min=1e-300) * (1 - top)
    varied = others.scatter(-1, place, top)
    return varied[(total[:, 0] > 0) & (others.amax(-1) < top[:, 0])]
