"""The interface between the training engine and a kind of network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

from demur.array_types import AnyArray
from demur.lazy_torch import Tensor, nn, torch

__all__ = ["Architecture", "Numbers", "Stack", "one_vector"]

Numbers = TypeVar("Numbers", "Tensor", AnyArray)
"""Tensors, or NumPy arrays where torch is not needed."""


def one_vector(parts: Iterable[Tensor], device: torch.device) -> Tensor:
    """Join tensors into one vector, with zeros at its end up to a multiple of 64 numbers.

    The last few numbers of a vector are rounded by other instructions than full vector registers: with the zeros, a
    network's result does not depend on its place in the stack.
    """
    joined = torch.cat([part.flatten() for part in parts])
    return torch.nn.functional.pad(joined, (0, -len(joined) % 64)).to(device)


class Stack(ABC):
    """Several networks of one architecture while they train.

    Attributes
    ----------
    parameters, gradients : tensor of shape (n,)
        The trained numbers of all networks in one vector (see :func:`one_vector`), and their gradients.
    n_networks, n_groups : int
        The networks form ``n_groups`` groups of equal size; a group shares its batches.
    """

    parameters: Tensor
    gradients: Tensor
    n_networks: int
    n_groups: int

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Return scores (n_networks, batch, n_outputs) for batches x of shape (n_groups, batch, n_features)."""

    @abstractmethod
    def backward(self, score_gradient: Tensor) -> None:
        """Fill ``gradients`` from the gradient of the loss with respect to the scores of the last ``forward``."""

    @abstractmethod
    def parts(self, flat: Tensor) -> list[Tensor]:
        """Cut a vector like ``parameters`` into views of shape (n_networks, ...)."""

    def per_parameter(self, values: Tensor) -> Tensor:
        """Repeat one value per network over that network's parameters."""
        out = torch.zeros_like(self.parameters)
        for part in self.parts(out):
            part.copy_(values.view(-1, *[1] * (part.ndim - 1)).expand_as(part))
        return out

    def per_network(self, flat: Tensor) -> Tensor:
        """Return a vector like ``parameters`` as one row per network."""
        return torch.cat([part.reshape(self.n_networks, -1) for part in self.parts(flat)], 1)

    def vectors(self) -> Tensor:
        """Return each network as one vector, of shape (n_networks, vector length)."""
        return self.per_network(self.parameters)


class Architecture(ABC):
    """A kind of network: how to stack it for training, and how to use it afterwards."""

    is_module: bool = False
    """True for a torch module of the user's own: its networks are trained one by one, without CUDA graphs, and
    :meth:`scores` takes tensors only."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of trained numbers of one network."""

    @property
    def vector_length(self) -> int:
        """The length of a trained network's vector: its parameters, and buffers if it has any."""
        return self.n_parameters

    @property
    @abstractmethod
    def n_activations(self) -> int:
        """The approximate number of activations per example and network."""

    @abstractmethod
    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> Stack:
        """Return new networks, one per seed."""

    @abstractmethod
    def scores(self, vectors: Numbers, x: Numbers) -> Numbers:
        """Return scores (n_networks, n_rows, n_outputs) of trained networks for the rows x.

        The networks share the rows; in three dimensions, each network has rows of its own.
        """

    @abstractmethod
    def module(self, vector: Tensor) -> nn.Module:
        """Return one trained network as a plain torch module."""
