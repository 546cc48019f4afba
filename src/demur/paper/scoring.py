"""Counting what candidates get right, wrong and decline: all candidates at once, a block of rows at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.paper.grid import Candidate
from demur.rules import chow_acceptance
from demur.training import Trained

__all__ = ["Counts", "choose", "count"]

NUMBERS_AT_A_TIME = 2**24
"""Bounds the memory of one block: candidates x rows x hidden units."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counts:
    """How many of ``n`` rows each candidate declined, and how many it answered wrongly.

    ``false_accepts`` and ``false_rejects`` count disagreements with the best possible rule, where that is known.
    """

    n: int
    rejected: Ints
    wrong: Ints
    false_accepts: Ints | None = None
    false_rejects: Ints | None = None

    def risk(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the 0-1-c risk of each candidate at its cost.

        Examples
        --------
        >>> Counts(10, np.array([2]), np.array([1])).risk(np.array([0.2]))
        array([0.14])
        """
        return np.asarray((self.wrong + costs * self.rejected) / self.n)


@torch.no_grad()
def count(
    loss: Loss,
    trained: Trained,
    candidates: Sequence[Candidate],
    X: Tensor,
    y: Tensor,
    *,
    width: int,
    best_confidence: Tensor | None = None,
) -> Counts:
    """Decide every row with every candidate, by the loss's own rule, and count.

    Parameters
    ----------
    loss : Loss
    trained : Trained
    candidates : sequence of Candidate
    X, y : tensor
        On the device of the networks.
    width : int
        The largest number of values that a network computes for a row, to keep blocks small.
    best_confidence : tensor, optional
        max_y eta_y of each row.
    """
    wanted = [candidate.network for candidate in candidates]
    different = sorted(set(wanted))
    networks = trained.take(different)
    position = torch.tensor([different.index(network) for network in wanted], device=X.device)
    cost = _column([candidate.cost for candidate in candidates], X.device)
    if "tau" in candidates[0].hyper:
        taus = [float(candidate.hyper["tau"]) for candidate in candidates]
        loss = replace(loss, **{"tau": _column(taus, X.device)})
    totals = torch.zeros(4, len(candidates), dtype=torch.int64, device=X.device)
    n_rows = max(1, NUMBERS_AT_A_TIME // (len(candidates) * width))
    for start in range(0, len(X), n_rows):
        block = slice(start, start + n_rows)
        decision = loss.rule(networks.scores(X[block]).index_select(0, position), cost)
        accept = ~decision.reject
        totals[0] += decision.reject.sum(1)
        totals[1] += (accept & (decision.label != y[block])).sum(1)
        if best_confidence is not None:
            should_accept = chow_acceptance(best_confidence[block], cost.double()) > 0
            totals[2] += (accept & ~should_accept).sum(1)
            totals[3] += (decision.reject & should_accept).sum(1)
    rejected, wrong, false_accepts, false_rejects = totals.cpu().numpy()
    if best_confidence is None:
        return Counts(len(X), rejected, wrong)
    return Counts(len(X), rejected, wrong, false_accepts, false_rejects)


def choose(candidates: Sequence[Candidate], risks: NDArray[np.float64], costs: Sequence[float]) -> list[int]:
    """Return, for each cost, the position of the candidate with the least risk; the first one among equals.

    Examples
    --------
    >>> rivals = [Candidate(0, 0.1, {}), Candidate(0, 0.2, {}), Candidate(1, 0.1, {}), Candidate(1, 0.2, {})]
    >>> choose(rivals, np.array([0.05, 0.08, 0.05, 0.07]), costs=[0.1, 0.2])
    [0, 3]
    """
    chosen = []
    for cost in costs:
        positions = [position for position, candidate in enumerate(candidates) if candidate.cost == cost]
        chosen.append(positions[int(np.argmin(risks[positions]))])
    return chosen


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device).unsqueeze(1)
