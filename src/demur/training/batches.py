"""The data, and the minibatches of a stack: every group walks through its own rows in its own order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Batches", "TrainingData", "seed_of_order"]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features, labels and optional weights, as tensors on the device that trains.

    Parameters
    ----------
    X : tensor of shape (n_rows, n_features), float32
    y : tensor of shape (n_rows,), int64
    weight : tensor of shape (n_rows,), float32, optional
        Multiplies each example's loss.
    """

    X: Tensor
    y: Tensor
    weight: Tensor | None = None

    def to(self, device: torch.device) -> "TrainingData":
        """Return the data on another device."""
        weight = None if self.weight is None else self.weight.to(device)
        return TrainingData(self.X.to(device), self.y.to(device), weight)


def seed_of_order(seed: int) -> int:
    """Return the seed of a network's order of rows, so that it does not repeat the numbers of its initial weights."""
    return int(np.random.SeedSequence([seed, 1]).generate_state(1)[0])


class Batches:
    """The rows of each group, shuffled anew each epoch by the group's own generator.

    The last batch is smaller where the batch size does not divide the rows. A device that wants batches of one size
    fills it up from the end of the order, which repeats a row with weight zero.

    Parameters
    ----------
    rows : sequence of arrays of int
        One per group, all of the same length.
    seeds : sequence of int
        One per group.
    batch_size : int
    """

    def __init__(self, rows: Sequence[NDArray[np.int64]], seeds: Sequence[int], batch_size: int) -> None:
        self._rows = [torch.as_tensor(np.ascontiguousarray(part), dtype=torch.int64) for part in rows]
        self._generators = [torch.Generator().manual_seed(seed_of_order(seed)) for seed in seeds]
        self.n_rows = len(rows[0])
        self.batch_size = min(batch_size, self.n_rows)
        self.n_steps = ceil(self.n_rows / self.batch_size)
        self._order = torch.zeros(len(rows), self.n_steps * self.batch_size, dtype=torch.int64)
        in_last = self.n_rows - (self.n_steps - 1) * self.batch_size
        self.weight = torch.full((self.n_steps * self.batch_size,), 1 / self.batch_size)
        self.weight[-self.batch_size :] = 1 / in_last
        self.weight[self.n_rows :] = 0.0

    @property
    def order_shape(self) -> tuple[int, int]:
        """The shape of one epoch's order."""
        return len(self._rows), self.n_steps * self.batch_size

    def epochs(self, n_epochs: int) -> Iterator[Tensor]:
        """Yield the order of rows of each epoch, of shape (n_groups, n_steps * batch_size)."""
        for _ in range(n_epochs):
            for order, rows, generator in zip(self._order, self._rows, self._generators, strict=True):
                order[: self.n_rows] = rows[torch.randperm(self.n_rows, generator=generator)]
                order[self.n_rows :] = rows[0]
            yield self._order
