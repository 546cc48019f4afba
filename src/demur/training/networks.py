"""What to train: one specification per network, and the stacks they are trained in."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Chunk", "Network", "plan_chunks"]


@dataclass(frozen=True, eq=False)
class Network:
    """One network to train: its rows, its seed and its own hyper-parameters.

    Parameters
    ----------
    rows : array of int
        The rows of the data it trains on.
    seed : int
        Decides its initial weights and the order of its minibatches. Networks with the same rows and seed see
        the same batches, which the engine uses.
    weight_decay : float
        The coefficient of the L2 penalty, on all weights and biases, as in ``torch.optim.Adam``.
    cost : float
        The rejection cost, for losses that are trained for one.
    hyper : mapping of str to float
        Values for fields of the loss, such as ``alpha`` and ``beta``.

    Examples
    --------
    >>> Network(rows=np.arange(100), seed=0, weight_decay=1e-4, cost=0.2, hyper={"beta": 2.0}).seed
    0
    """

    rows: NDArray[np.int64]
    seed: int = 0
    weight_decay: float = 0.0
    cost: float = 0.2
    hyper: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Chunk:
    """Networks that train as one stack: ``n_groups`` groups that share their batches, of equal size.

    ``members`` are positions in the caller's list, group after group.
    """

    members: tuple[int, ...]
    n_groups: int


def plan_chunks(networks: Sequence[Network], *, stack_size: int, n_workers: int = 1) -> list[Chunk]:
    """Cut the networks into stacks of at most ``stack_size``, keeping those together that share their batches.

    What a network learns does not depend on the plan, only the time does.

    Parameters
    ----------
    networks : sequence of Network
    stack_size : int
    n_workers : int
        With more than one, stacks are made a little smaller where that lets every worker have one.

    Returns
    -------
    list of Chunk
        Each network is in exactly one; all networks of a chunk have equally many rows.

    Examples
    --------
    >>> rows = [np.arange(10), np.arange(10, 20)]
    >>> grid = [Network(rows[trial], seed=trial) for trial in (0, 1) for _ in range(3)]
    >>> plan_chunks(grid, stack_size=4)
    [Chunk(members=(0, 1, 2), n_groups=1), Chunk(members=(3, 4, 5), n_groups=1)]
    """
    groups: dict[Any, list[int]] = defaultdict(list)
    for position, network in enumerate(networks):
        groups[len(network.rows), network.seed, network.rows.tobytes()].append(position)
    if len(networks) >= 8 * n_workers:
        stack_size = min(stack_size, ceil(len(networks) / n_workers))
    pieces: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for (n_rows, *_), members in groups.items():
        for piece in np.array_split(members, ceil(len(members) / stack_size)):
            pieces[n_rows, len(piece)].append(piece.tolist())
    chunks = []
    for (_, length), same in pieces.items():
        n_chunks = ceil(len(same) / max(1, stack_size // length))
        for part in np.array_split(np.arange(len(same)), n_chunks):
            members = [position for index in part for position in same[index]]
            chunks.append(Chunk(tuple(members), n_groups=len(part)))
    return chunks
