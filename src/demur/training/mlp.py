"""Many multilayer perceptrons as one tensor program, with a hand-written backward pass.

Activations are stored as (network, unit, example): the last axis is the long one, which matrix products like, and
a group of networks that share their batch has its first layer computed as one wide product without any copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from demur.lazy_torch import Tensor, nn, torch
from demur.training.architecture import Architecture, Numbers, Stack, one_vector


@dataclass(frozen=True)
class MLP(Architecture):
    """A multilayer perceptron with ReLU units.

    Parameters
    ----------
    sizes : tuple of int
        Features, hidden units of each layer, outputs.
    own_units : bool, default=False
        With one hidden layer: whether the last output uses only the second half of the hidden units and the other
        outputs the first half, like a separate network that decides what to reject.

    Examples
    --------
    >>> MLP((16, 50, 26)).n_parameters
    2176
    """

    sizes: tuple[int, ...]
    own_units: bool = False

    @property
    def n_parameters(self) -> int:
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    @property
    def n_activations(self) -> int:
        return sum(self.sizes)

    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> StackedMLP:
        return StackedMLP(self, seeds, n_groups, device)

    def layers(self, vectors: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Cut vectors (n_networks, n) into each layer's weights (n_networks, out, in) and biases (n_networks, out)."""
        layers, start = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            middle, end = start + fan_in * fan_out, start + (fan_in + 1) * fan_out
            layers.append((vectors[:, start:middle].reshape(-1, fan_out, fan_in), vectors[:, middle:end]))
            start = end
        return layers

    def scores(self, vectors: Numbers, x: Numbers) -> Numbers:
        activation = x
        for depth, (weight, bias) in enumerate(self.layers(vectors)):
            activation = activation @ weight.swapaxes(1, 2)
            activation += bias[:, None]
            if depth < len(self.sizes) - 2:
                activation = activation.clip(min=0)
        return activation

    def module(self, vector: Tensor) -> nn.Sequential:
        modules: list[nn.Module] = []
        for weight, bias in self.layers(vector[None]):
            linear = nn.Linear(weight.shape[2], weight.shape[1])
            linear.load_state_dict({"weight": weight[0], "bias": bias[0]})
            modules += [linear, nn.ReLU()]
        return nn.Sequential(*modules[:-1])


class StackedMLP(Stack):
    """M perceptrons with ReLU units and the same layer sizes, with their gradients.

    Parameters
    ----------
    architecture : MLP
    seeds : sequence of int
        One per network: its initial weights are, by default, those of ``torch.nn.Linear`` layers made after
        ``torch.manual_seed(seed)``.
    n_groups : int
        The networks form this many groups of equal size; a group shares its batches.
    device : torch.device

    Attributes
    ----------
    layers : list of pairs of tensors
        Weights (M, out, in) and biases (M, out, 1) of each layer, views into ``parameters``.
    """

    def __init__(self, architecture: MLP, seeds: Sequence[int], n_groups: int, device: torch.device) -> None:
        self.sizes = architecture.sizes
        self.n_networks = len(seeds)
        self.n_groups = n_groups
        self.parameters = one_vector(_initial_weights(architecture, seeds), device)
        self._connected = connected(architecture).to(device) if architecture.own_units else None
        self.gradients = torch.zeros_like(self.parameters)
        self.layers = self._views(self.parameters)
        gradients = self._views(self.gradients)
        self._wide_layers = [self._wide(depth, *layer) for depth, layer in enumerate(self.layers)]
        self._wide_gradients = [(self._wide(depth, *layer)[0], layer[1]) for depth, layer in enumerate(gradients)]
        self._transposed_weights = [weight.transpose(1, 2) for weight, _ in self.layers]
        self._activations: list[Tensor] = []

    def _wide(self, depth: int, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Join the first layers of a group's networks, which see the same batch, into one wide layer."""
        stacks = self.n_networks if depth else self.n_groups
        return weight.view(stacks, -1, weight.shape[-1]), bias.view(stacks, -1, 1)

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cut the vector into each layer's weights (M, out, in) and biases (M, out, 1)."""
        views, start = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            n_weights, n_biases = self.n_networks * fan_out * fan_in, self.n_networks * fan_out
            weight = flat[start : start + n_weights].view(self.n_networks, fan_out, fan_in)
            bias = flat[start + n_weights : start + n_weights + n_biases].view(self.n_networks, fan_out, 1)
            views.append((weight, bias))
            start += n_weights + n_biases
        return views

    def parts(self, flat: Tensor) -> list[Tensor]:
        return [part for layer in self._views(flat) for part in layer]

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[1]
        activation = x.transpose(1, 2)
        self._activations = [activation]
        for weight, bias in self._wide_layers[:-1]:
            activation = torch.baddbmm(bias, weight, activation).view(self.n_networks, -1, batch)
            torch.relu_(activation)
            self._activations.append(activation)
        weight, bias = self._wide_layers[-1]
        return torch.baddbmm(bias, weight, activation).view(self.n_networks, -1, batch).transpose(1, 2)

    def backward(self, score_gradient: Tensor) -> None:
        signal = score_gradient.transpose(1, 2)
        for depth in reversed(range(len(self.layers))):
            below = self._activations[depth]
            wide_gradient, bias_gradient = self._wide_gradients[depth]
            wide_signal = signal if depth else signal.reshape(self.n_groups, -1, signal.shape[-1])
            torch.bmm(wide_signal, below.transpose(1, 2), out=wide_gradient)
            if depth and self._connected is not None:
                wide_gradient.mul_(self._connected)
            torch.sum(signal, 2, keepdim=True, out=bias_gradient)
            if depth:
                signal = torch.bmm(self._transposed_weights[depth], signal)
                torch.ops.aten.threshold_backward.grad_input(signal, below, 0, grad_input=signal)


def connected(architecture: MLP) -> Tensor:
    """Return which hidden units each output of a network with ``own_units`` sees, as 1 or 0: (outputs, hidden)."""
    _, n_hidden, n_outputs = architecture.sizes
    is_last = torch.arange(n_outputs).unsqueeze(1) == n_outputs - 1
    return (is_last == (torch.arange(n_hidden) >= n_hidden // 2)).float()


def _initial_weights(architecture: MLP, seeds: Sequence[int]) -> list[Tensor]:
    """Return weights and biases layer by layer, each of shape (M, ...)."""
    per_network = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(seed)
        parts = []
        for depth, (fan_in, fan_out) in enumerate(pairwise(architecture.sizes)):
            halved = depth > 0 and architecture.own_units
            bound = (fan_in // 2 if halved else fan_in) ** -0.5  # as torch.nn.Linear, of the units that are seen
            weight = torch.empty(fan_out, fan_in).uniform_(-bound, bound, generator=generator)
            bias = torch.empty(fan_out).uniform_(-bound, bound, generator=generator)
            parts += [weight * connected(architecture) if halved else weight, bias]
        per_network.append(parts)
    return [torch.stack(part) for part in zip(*per_network, strict=True)]
