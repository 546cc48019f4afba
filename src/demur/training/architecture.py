"""The interface between the training engine and network architectures; user-defined torch modules."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import TypeAlias, TypeVar

import numpy as np

from demur.array_types import AnyArray
from demur.errors import InputError, InputTypeError
from demur.lazy_torch import Tensor, nn, torch

Numbers = TypeVar("Numbers", "Tensor", AnyArray)
"""Tensors, or NumPy arrays where torch is not needed."""


_PURPOSES = ("order of rows", "dropped units", "biases")


def generator_of(seed: int, purpose: str) -> torch.Generator:
    """Return a random generator for one purpose of a network, independent of that of its initial weights."""
    own = np.random.SeedSequence([seed, 1 + _PURPOSES.index(purpose)]).generate_state(1)[0]
    return torch.Generator().manual_seed(int(own))


def one_vector(parts: Iterable[Tensor], device: torch.device) -> Tensor:
    """Join tensors into one vector, with zeros at its end up to a multiple of 64 numbers.

    The last few numbers of a vector are rounded by different instructions than full vector registers; because of the
    padding, a network's result does not depend on its position in the stack.
    """
    joined = torch.cat([part.flatten() for part in parts])
    return torch.nn.functional.pad(joined, (0, -len(joined) % 64)).to(device)


def cut(vectors: Numbers, shapes: Iterable[Sequence[int]]) -> list[Numbers]:
    """Cut the last axis of vectors (..., n) into one view per shape, of shape (..., *shape)."""
    views, start = [], 0
    for shape in shapes:
        end = start + prod(shape)
        views.append(vectors[..., start:end].reshape(vectors.shape[:-1] + tuple(shape)))
        start = end
    return views


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
    """A kind of network: how it is stacked for training, and how it is used afterwards."""

    is_module: bool = False
    """True for a user-defined torch module: its networks are trained one by one, and :meth:`scores` takes tensors
    only."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """The number of trainable parameters of one network."""

    @property
    def vector_length(self) -> int:
        """The length of a trained network's vector: its parameters, and buffers if it has any."""
        return self.n_parameters

    @property
    def n_activations(self) -> int:
        """The approximate number of values that a training step touches per example; 0 for modules, not stacked."""
        return 0

    @abstractmethod
    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> Stack:
        """Return new networks, one per seed."""

    @abstractmethod
    def scores(self, vectors: Numbers, x: Numbers) -> Numbers:
        """Return scores (n_networks, n_rows, n_outputs) of trained networks for the rows x.

        The networks share the rows; in an array with three dimensions, each network has its own rows.
        """

    @abstractmethod
    def module(self, vector: Tensor) -> nn.Module:
        """Return one trained network as a plain torch module."""


ModuleFactory: TypeAlias = "Callable[[int, int], nn.Module]"
"""Makes a network from the number of features and the number of outputs."""

_global_generator = threading.Lock()
"""Torch modules draw from one generator per process; only one worker at a time may set its seed and use it."""


class ModuleArchitecture(Architecture):
    """Networks made by a factory.

    Each network trains alone, in the same loop as all others: a module may have batch normalisation, dropout, buffers
    and frozen parameters (without ``requires_grad``). The result of a network depends on its seed alone.

    Parameters
    ----------
    factory : callable
        ``factory(n_features, n_outputs)`` returns a new module that maps (batch, n_features) to
        (batch, n_outputs).
    n_features, n_outputs : int

    Examples
    --------
    >>> def wide(n_features, n_outputs):
    ...     return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))
    >>> ModuleArchitecture(wide, 4, 3).n_parameters
    67
    """

    is_module = True

    def __init__(self, factory: ModuleFactory, n_features: int, n_outputs: int) -> None:
        self.factory, self.n_features, self.n_outputs = factory, n_features, n_outputs
        self._template = self.build(seed=0)
        self._check_output()
        parameters = dict(self._template.named_parameters())
        frozen = {name: part for name, part in parameters.items() if not part.requires_grad}
        self.shapes = {name: part.shape for name, part in parameters.items() if part.requires_grad}
        self.buffers = {**frozen, **dict(self._template.named_buffers())}

    def build(self, seed: int) -> nn.Module:
        """Return a new module whose initial weights the seed decides."""
        with _global_generator, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = None if isinstance(self.factory, nn.Module) else self.factory(self.n_features, self.n_outputs)
        if not isinstance(made, nn.Module):
            raise InputTypeError(
                "module must be a function of (n_features, n_outputs) that returns a new torch module; a module that "
                "is already trained goes into TorchClassifier."
            )
        return made.float()

    @property
    def n_parameters(self) -> int:
        return sum(shape.numel() for shape in self.shapes.values())

    @property
    def vector_length(self) -> int:
        return self.n_parameters + sum(part.numel() for part in self.buffers.values())

    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> Stack:
        (seed,) = seeds
        return _ModuleStack(self, seed, device)

    def scores(self, vectors: Tensor, x: Tensor) -> Tensor:  # type: ignore[override] # see is_module
        return torch.stack([self.module(vector).to(x.device, x.dtype)(x) for vector in vectors])

    def module(self, vector: Tensor) -> nn.Module:
        shapes = {**self.shapes, **{name: part.shape for name, part in self.buffers.items()}}
        module = self.build(seed=0)
        module.load_state_dict(dict(zip(shapes, cut(vector, shapes.values()), strict=True)), strict=False)
        return module.eval()

    def _check_output(self) -> None:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            found = self._template(torch.zeros(4, self.n_features))
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        if shape != (4, self.n_outputs):
            raise InputError(
                f"module(n_features={self.n_features}, n_outputs={self.n_outputs}) must map (batch, n_features) to "
                f"(batch, n_outputs), but four rows gave {shape}."
            )


class _ModuleStack(Stack):
    """One module while it trains."""

    n_networks = n_groups = 1

    def __init__(self, architecture: ModuleArchitecture, seed: int, device: torch.device) -> None:
        self._module = architecture.build(seed).to(device).train()
        self._shapes, self._buffer_names = architecture.shapes, tuple(architecture.buffers)
        trained = dict(self._module.named_parameters())
        self.parameters = one_vector((trained[name].detach() for name in self._shapes), device)
        self.gradients = torch.zeros_like(self.parameters)
        self._generator_state = torch.Generator().manual_seed(seed).get_state()
        self._leaf, self._scores = self.parameters, self.parameters

    def parts(self, flat: Tensor) -> list[Tensor]:
        return cut(flat[None], self._shapes.values())

    def forward(self, x: Tensor) -> Tensor:
        """Compute scores; random numbers such as those of dropout depend on this network alone."""
        with torch.enable_grad(), _global_generator, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._generator_state)
            self._leaf = self.parameters.detach().requires_grad_()
            named = {name: part[0] for name, part in zip(self._shapes, self.parts(self._leaf), strict=True)}
            self._scores = torch.func.functional_call(self._module, named, (x[0],)).unsqueeze(0)
            self._generator_state = torch.get_rng_state()
        return self._scores.detach()

    def backward(self, score_gradient: Tensor) -> None:
        (gradient,) = torch.autograd.grad(self._scores, self._leaf, score_gradient)
        self.gradients.copy_(gradient)

    def vectors(self) -> Tensor:
        kept = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        buffers = [kept[name].detach().reshape(1, -1).to(torch.float32) for name in self._buffer_names]
        return torch.cat([self.per_network(self.parameters), *buffers], 1)
