"""The networks that a method needs on a problem, and the candidates that validation chooses from."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from demur.losses import Loss, get
from demur.losses.pairwise import BetaSide, PairwiseLoss
from demur.paper.protocol import Method, Protocol
from demur.paper.seeds import seed_for
from demur.training import NetworkSpec

__all__ = ["Candidate", "Grid", "Split", "grid_size", "make_grid", "split_rows"]


@dataclass(frozen=True)
class Candidate:
    """One possible answer to "which network, which threshold, for this cost?".

    Parameters
    ----------
    network : int
        Its position among the trained networks.
    cost : float
        The cost it decides for.
    hyper : dict
        Everything that tells it from its rivals, by name; "beta" is the name of a side.
    """

    network: int
    cost: float
    hyper: dict[str, float | str]


@dataclass(frozen=True, eq=False)
class Split:
    """One trial's rows, and the seed of all its networks."""

    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    seed: int


@dataclass(frozen=True, eq=False)
class Grid:
    """All networks of some trials, and for each trial its candidates in the order of preference among equals."""

    networks: list[NetworkSpec] = field(default_factory=list)
    candidates: dict[int, list[Candidate]] = field(default_factory=dict)


def split_rows(n_rows: int, problem: str, trial: int, protocol: Protocol) -> Split:
    """Split the training rows of a trial at random, the same way for every method.

    Examples
    --------
    >>> split = split_rows(10, "vehicle", 0, Protocol())
    >>> len(split.train), len(split.validation), sorted({*split.train, *split.validation}) == list(range(10))
    (8, 2, True)
    """
    seed = seed_for(protocol.seed, problem, trial)
    order = np.random.default_rng(seed).permutation(n_rows).astype(np.int64)
    n_validation = round(protocol.validation_fraction * n_rows)
    return Split(train=order[n_validation:], validation=order[:n_validation], seed=seed)


def grid_size(method: Method, protocol: Protocol) -> int:
    """Return how many networks one trial of a method trains.

    Examples
    --------
    >>> grid_size(Method("CE"), Protocol()), grid_size(Method("APC+log", betas=("acc", "rej", "mean")), Protocol())
    (3, 45)
    """
    n_costs = len(protocol.costs) if get(method.loss).trained_for_cost else 1
    return n_costs * len(protocol.weight_decays) * max(1, len(method.betas))


def make_grid(method: Method, n_classes: int, protocol: Protocol, splits: dict[int, Split]) -> Grid:
    """Lay out the networks and candidates of some trials.

    A loss that is trained for a cost has networks of its own for every cost; one with a link is trained once, and
    each of its networks is a candidate at every cost. A threshold is tried after training, at no cost. All
    networks of a trial share their rows, their initial weights and the order of their minibatches.
    """
    loss = get(method.loss)
    grid = Grid()
    for trial, split in splits.items():
        candidates = grid.candidates.setdefault(trial, [])
        for trained_cost in protocol.costs if loss.trained_for_cost else (None,):
            for hyper, own in _settings(method, loss, n_classes, protocol, trained_cost):
                position = len(grid.networks)
                cost = protocol.costs[0] if trained_cost is None else trained_cost
                network = NetworkSpec(
                    split.train, split.seed, weight_decay=float(hyper["weight_decay"]), cost=cost, hyper=own
                )
                grid.networks.append(network)
                for decided_cost in protocol.costs if trained_cost is None else (trained_cost,):
                    for tau in _thresholds(loss):
                        candidates.append(Candidate(position, decided_cost, {**hyper, **tau}))
    return grid


def _settings(
    method: Method, loss: Loss, n_classes: int, protocol: Protocol, cost: float | None
) -> list[tuple[dict[str, float | str], dict[str, float]]]:
    """Return each network's hyper-parameters as a reader knows them, and those that enter the loss as numbers."""
    settings: list[tuple[dict[str, float | str], dict[str, float]]] = []
    for weight_decay in protocol.weight_decays:
        if not method.betas:
            settings.append(({"weight_decay": weight_decay}, {}))
        for side in method.betas:
            assert isinstance(loss, PairwiseLoss)
            assert cost is not None
            value = float(replace(loss, beta=cast(BetaSide, side)).beta_value(n_classes, cost))
            settings.append(({"weight_decay": weight_decay, "beta": side}, {"beta": value}))
    return settings


def _thresholds(loss: Loss) -> Sequence[dict[str, float | str]]:
    taus: tuple[float, ...] = getattr(loss, "tau_candidates", ())
    return [{"tau": tau} for tau in taus] or [{}]
