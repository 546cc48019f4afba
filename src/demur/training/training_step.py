"""One training step of a stack: its minibatches, its loss and its update.

Every group of networks has its own rows in its own order, and every parameter has its own weight decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any, TypeVar, cast

import numpy as np

from demur.array_types import Ints
from demur.lazy_torch import Tensor, torch
from demur.losses.loss import Trainable
from demur.training.architecture import Stack, generator_of
from demur.training.jobs import NetworkSpec, TrainingData

T = TypeVar("T", bound=Trainable)


class Batches:
    """The rows of each group, shuffled anew each epoch by the group's own generator, and divided into batches.

    Empty positions of a batch are filled with one of its rows at weight 0.

    Parameters
    ----------
    rows : sequence of arrays of int
        One per group; all groups have batches of the same shape.
    seeds : sequence of int
        One per group.
    batch_size : int
    even : bool
        Whether the rows are divided evenly into about n_rows / batch_size batches. By default all batches but the last
        are full.

    Attributes
    ----------
    n_steps, batch_size : int
        The number of batches in an epoch, and the rows of the largest.
    weight : tensor of shape (n_groups, n_steps, batch_size)
        For each place 1 / the number of rows in its batch; 0 for empty places.
    """

    def __init__(self, rows: Sequence[Ints], seeds: Sequence[int], batch_size: int, *, even: bool = False) -> None:
        self._rows = [torch.as_tensor(np.ascontiguousarray(part), dtype=torch.int64) for part in rows]
        self._generators = [generator_of(seed, "order of rows") for seed in seeds]
        self.n_rows = len(rows[0])
        self.n_steps, self.batch_size = batch_shape(self.n_rows, batch_size, even=even)
        lengths, steps = torch.tensor([[len(part)] for part in rows]), torch.arange(self.n_steps + 1)
        starts = steps * lengths // self.n_steps if even else (steps * self.batch_size).clamp(max=lengths)
        first = starts[:, :-1, None]
        places = first + torch.arange(self.batch_size)
        empty = places >= starts[:, 1:, None]
        self._places = torch.where(empty, first, places)
        self.weight = torch.where(empty, 0.0, 1 / starts.diff()[:, :, None])
        self._order = torch.zeros(self.weight.shape, dtype=torch.int64)

    def shuffle(self) -> Tensor:
        """Return the next epoch's rows, (n_groups, n_steps, batch_size); the next call overwrites them."""
        for order, rows, places, generator in zip(self._order, self._rows, self._places, self._generators, strict=True):
            order.copy_(rows[torch.randperm(len(rows), generator=generator)][places])
        return self._order


def batch_shape(n_rows: int, batch_size: int, *, even: bool) -> tuple[int, int]:
    """Return the number of batches in an epoch, and the rows of the largest."""
    if even:
        n_steps = max(1, round(n_rows / batch_size))
        return n_steps, ceil(n_rows / n_steps)
    return ceil(n_rows / min(batch_size, n_rows)), min(batch_size, n_rows)


def stacked_loss(loss: T, members: Sequence[NetworkSpec], device: torch.device) -> T:
    """Put each network's own hyper-parameters into one loss, as tensors of shape (n_networks, 1)."""
    names = {name for network in members for name in network.hyper}
    values = {
        name: torch.tensor([[network.hyper[name]] for network in members], dtype=torch.float32, device=device)
        for name in names
    }
    return replace(cast(Any, loss), **values) if values else loss


class TrainingStep:
    """Forward, loss, backward, update: for all networks of a stack at once.

    Parameters
    ----------
    loss : Trainable
        With hyper-parameters of shape (n_networks, 1).
    stack : Stack
    data : TrainingData
    networks : sequence of NetworkSpec
        The specifications of the stack's networks.
    learning_rate : float
    """

    def __init__(
        self,
        loss: Trainable,
        stack: Stack,
        data: TrainingData,
        networks: Sequence[NetworkSpec],
        learning_rate: float,
    ) -> None:
        self._loss, self._stack, self._data = loss, stack, data
        device = stack.parameters.device
        self._cost = torch.tensor([[network.cost] for network in networks], device=device)
        decay = torch.tensor([network.weight_decay or 0.0 for network in networks], device=device)
        self._decay = stack.per_parameter(decay)
        self._adam, self._learning_rate = Adam(stack.parameters, stack.gradients), learning_rate

    def examples(self, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the examples of the rows (n_groups, n), whose losses have the weights ``weight`` (n,).

        Returns features (n_groups, n, n_features), targets (n_networks, n, ...) and weights (n_networks, n).
        """
        x, *of_group = self._data.take(rows, weight.expand(rows.shape))
        y, weight = (part.repeat_interleave(self._stack.n_networks // self._stack.n_groups, 0) for part in of_group)
        return x, y, weight

    def __call__(self, x: Tensor, y: Tensor, weight: Tensor) -> None:
        """Train on a batch of examples."""
        scores = self._stack.forward(x)
        self._stack.backward(self._loss.score_gradient(scores, y, self._cost, weight))
        self._stack.gradients.addcmul_(self._stack.parameters, self._decay)  # the gradient of an L2 penalty
        self._adam.step(self._learning_rate)

    def outcome(self) -> tuple[Tensor, Tensor]:
        """Return the trained vectors, and which networks failed: their numbers or their moments overflowed."""
        vectors = self._stack.vectors()
        worst = self._stack.per_network(self._adam.largest_square).amax(1)
        return vectors, ~(vectors.isfinite().all(1) & worst.isfinite())


_CUDA_PIECES = 30
"""The fused CUDA kernel gives each tensor of a list to one block, and takes 30 tensors at a time."""


class Adam:
    """Adam on one vector, as ``torch.optim.Adam`` computes it, without weight decay.

    Parameters
    ----------
    parameters, gradients : tensor
        Updated and read in place.
    betas : pair of float
    amsgrad : bool
        Whether to divide by the running maximum of the second moments (Reddi et al. 2018).

    Attributes
    ----------
    largest_square : tensor like ``parameters``
        That maximum, with ``amsgrad``.
    """

    def __init__(
        self, parameters: Tensor, gradients: Tensor, betas: tuple[float, float] = (0.9, 0.999), *, amsgrad: bool = True
    ) -> None:
        self._betas, self._amsgrad, self._on_cuda = betas, amsgrad, parameters.is_cuda
        self.largest_square = torch.zeros_like(parameters)
        moments = torch.zeros_like(parameters), torch.zeros_like(parameters), self.largest_square
        pieces = _CUDA_PIECES if parameters.is_cuda else 1
        self._pieces = tuple(list(vector.chunk(pieces)) for vector in (parameters, gradients, *moments))
        self._steps = [torch.zeros((), device=parameters.device) for _ in self._pieces[0]]

    def step(self, learning_rate: float | Tensor) -> None:
        """Update the parameters from the gradients; inside a CUDA graph the rate is a tensor on the device."""
        from torch.optim.adam import adam

        parameters, gradients, means, squares, largest = self._pieces
        adam(
            parameters,
            gradients,
            means,
            squares,
            largest if self._amsgrad else [],
            self._steps,
            fused=True,
            capturable=self._on_cuda,
            amsgrad=self._amsgrad,
            beta1=self._betas[0],
            beta2=self._betas[1],
            lr=learning_rate if self._on_cuda else float(learning_rate),
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
