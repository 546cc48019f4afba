"""Many multilayer perceptrons as one tensor program, with a hand-written backward pass.

Activations are stored as (network, unit, example): matrix products are fastest if the last axis is the longest, and the
first layers of a group of networks that share their batch are computed as one wide product without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from demur.lazy_torch import Tensor, nn, torch
from demur.training.architecture import Architecture, Numbers, Stack, cut, one_vector


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
        return 3 * sum(self.sizes)

    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> StackedMLP:
        return StackedMLP(self, seeds, n_groups, device)

    def layers(self, vectors: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Cut vectors (n_networks, n) into each layer's weights (n_networks, out, in) and biases (n_networks, out)."""
        shapes = [shape for fan_in, fan_out in pairwise(self.sizes) for shape in ((fan_out, fan_in), (fan_out,))]
        parts = cut(vectors, shapes)
        return list(zip(parts[::2], parts[1::2], strict=True))

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
        self.layers, self._slopes = self._views(self.parameters), self._views(self.gradients)
        self._activations: list[Tensor] = []

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cut the vector into each layer's weights (M, out, in) and biases (M, out, 1)."""
        parts = self.parts(flat)
        return list(zip(parts[::2], parts[1::2], strict=True))

    def parts(self, flat: Tensor) -> list[Tensor]:
        layers = pairwise(self.sizes)
        return cut(flat, [(self.n_networks, fan_out, width) for fan_in, fan_out in layers for width in (fan_in, 1)])

    def forward(self, x: Tensor) -> Tensor:
        self._activations = [x.transpose(1, 2)]
        for depth, (weight, bias) in enumerate(self.layers):
            below = self._activations[depth]
            n = len(below)  # one first layer for all networks of a group, which share their batch
            sums = torch.baddbmm(bias.view(n, -1, 1), weight.view(n, -1, below.shape[1]), below)
            sums = sums.view(self.n_networks, -1, x.shape[1])
            if depth < len(self.layers) - 1:
                self._activations.append(torch.relu_(sums))
        return sums.transpose(1, 2)

    def backward(self, score_gradient: Tensor) -> None:
        signal = score_gradient.transpose(1, 2)
        for depth in reversed(range(len(self.layers))):
            below, (weight_slope, bias_slope) = self._activations[depth], self._slopes[depth]
            wide = signal.reshape(len(below), -1, signal.shape[2])
            torch.bmm(wide, below.transpose(1, 2), out=weight_slope.view(len(below), -1, below.shape[1]))
            torch.sum(signal, 2, keepdim=True, out=bias_slope)
            if depth:
                if self._connected is not None:
                    weight_slope.mul_(self._connected)
                signal = torch.bmm(self.layers[depth][0].transpose(1, 2), signal)
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
