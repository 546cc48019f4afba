r"""Networks for tables, after RealMLP (Holzmüller, Grinsztajn and Steinwart 2024), many as one tensor program.

A layer is :math:`z = W a / \sqrt{\text{fan-in}} + b` (neural tangent parametrisation), a hidden unit's output
:math:`z + \alpha\,(\mathrm{selu}(z) - z)` with a trainable blend :math:`\alpha`. The features, or periodic functions of
them, are first scaled by trainable factors.

Parameters that learn faster or slower than the weights are stored divided by their factor: a step of Adam does not
depend on the scale of a gradient, so one learning rate then serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import pi, prod

from demur.lazy_torch import F, Tensor, nn, torch
from demur.rules import library_of
from demur.training.architecture import Architecture, Numbers, Stack, cut, generator_of, one_vector

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_SCALE, _SLOW = 6.0, 0.1
"""Learning rates of the features' scales, and of biases, blends and embeddings, relative to that of the weights."""
_ROWS_OF_BIAS = 5
"""Number of random rows through whose mean the initial hyperplane of a unit passes."""
_BITS_PER_CHOICE = 8
"""Number of random bits that decide whether a unit is dropped: rates are multiples of 2^-8."""


@dataclass(frozen=True)
class PeriodicEmbeddings:
    """Each feature x as x itself and a few linear functions of cos(2 pi f x + p), with trainable f, p and weights.

    Parameters
    ----------
    n_frequencies : int
        Frequencies f per feature.
    n_outputs : int
        Linear functions of the cosines per feature.
    spread : float
        The standard deviation of the initial frequencies.
    """

    n_frequencies: int = 16
    n_outputs: int = 3
    spread: float = 0.1


def _factor(part: str) -> float:
    """Return the factor of a part's learning rate."""
    return 1.0 if part.startswith("weight") else _SCALE if part == "scale" else _SLOW


@dataclass(frozen=True)
class TabularNet(Architecture):
    """A network for tables whose features are centred and of moderate size; see :func:`~demur.training.robust_scale`.

    Parameters
    ----------
    n_features, n_outputs : int
    hidden_units : tuple of int
        Units of each hidden layer.
    embeddings : PeriodicEmbeddings, optional
        None for features as they are.

    Examples
    --------
    >>> TabularNet(16, 26).n_parameters  # weights, biases and blends of 16-256-256-256-26
    143386
    """

    n_features: int
    n_outputs: int
    hidden_units: tuple[int, ...] = (256, 256, 256)
    embeddings: PeriodicEmbeddings | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """The inputs of the first layer, the units of each hidden layer, the outputs."""
        wide = 1 if self.embeddings is None else 1 + self.embeddings.n_outputs
        return (self.n_features * wide, *self.hidden_units, self.n_outputs)

    @property
    def n_parameters(self) -> int:
        return sum(prod(shape) for shape in self.folded_shapes().values())

    @property
    def n_activations(self) -> int:
        periodic = 0 if self.embeddings is None else 4 * self.n_features * self.embeddings.n_frequencies
        return 5 * sum(self.sizes) + periodic

    def folded_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each part of a trained network, in the order of its vector.

        The factors and the scales of the features are multiplied into the other parts.
        """
        return {name: shape for name, shape in self._trained_shapes.items() if name != "scale"}

    def folded(self, vectors: Numbers) -> dict[str, Numbers]:
        """Cut vectors (n_networks, n) of trained networks into their parts, each (n_networks, ...)."""
        shapes = self.folded_shapes()
        return dict(zip(shapes, cut(vectors, shapes.values()), strict=True))

    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> StackedTabularNet:
        return StackedTabularNet(self, seeds, n_groups, device)

    def scores(self, vectors: Numbers, x: Numbers) -> Numbers:
        library = library_of(x)
        parts = self.folded(vectors)
        activation = _inputs(self, parts, x if x.ndim == 3 else x[None])
        last = len(self.sizes) - 2
        for depth in range(last + 1):
            activation = activation @ parts[f"weight{depth}"].swapaxes(1, 2)
            activation += parts[f"bias{depth}"].swapaxes(1, 2)
            if depth < last:
                # selu(z) - z = scale (alpha (exp(min(z, 0)) - 1) - min(z, 0)) + (scale - 1) z
                negative = activation.clip(max=0)
                bend = (library.exp(negative) - 1) * (_SELU_SCALE * _SELU_ALPHA)  # ONNX has no expm1
                bend -= negative * _SELU_SCALE
                bend += activation * (_SELU_SCALE - 1)
                activation = activation + bend * parts[f"blend{depth}"].swapaxes(1, 2)
        return activation

    def module(self, vector: Tensor) -> nn.Module:
        net = self

        class TabularModule(nn.Module):
            """One trained network, with its vector as the only parameter."""

            def __init__(self) -> None:
                super().__init__()
                self.vector = nn.Parameter(vector.clone())

            def forward(self, x: Tensor) -> Tensor:
                return net.scores(self.vector[None], x)[0]

        return TabularModule()

    @property
    def _trained_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each part while it trains."""
        shapes: dict[str, tuple[int, ...]] = {
            f"weight{depth}": (fan_out, fan_in) for depth, (fan_in, fan_out) in enumerate(pairwise(self.sizes))
        }
        shapes["scale"] = (1, self.sizes[0])
        if self.embeddings is not None:
            d, f, e = self.n_features, self.embeddings.n_frequencies, self.embeddings.n_outputs
            shapes |= {"frequency": (d, f, 1), "phase": (d, f, 1), "mixing": (d, e, f), "mixing_bias": (d, e, 1)}
        shapes |= {f"blend{depth}": (units, 1) for depth, units in enumerate(self.hidden_units)}
        return shapes | {f"bias{depth}": (units, 1) for depth, units in enumerate(self.sizes[1:])}

    def _initial(self, seed: int) -> list[Tensor]:
        """Draw the initial numbers of one network, before :meth:`StackedTabularNet.adapt` has seen its rows."""
        generator = torch.Generator().manual_seed(seed)
        values = []
        for name, shape in self._trained_shapes.items():
            if name == "scale" or name.startswith("blend"):
                value = torch.ones(shape)
            elif name == "phase":
                value = torch.empty(shape).uniform_(-pi, pi, generator=generator)
            elif name.startswith("mixing") and self.embeddings is not None:
                bound = self.embeddings.n_frequencies**-0.5
                value = torch.empty(shape).uniform_(-bound, bound, generator=generator)
            else:
                value = torch.randn(shape, generator=generator)
                if name == "frequency" and self.embeddings is not None:
                    value *= self.embeddings.spread
            values.append(value / _factor(name))
        return values


def _inputs(net: TabularNet, parts: Mapping[str, Numbers], x: Numbers) -> Numbers:
    """Return the inputs of the first layer for rows x of each network: (n_networks, n_rows, sizes[0])."""
    if net.embeddings is None:
        return x
    library = library_of(x)
    frequency, phase, mixing_bias = (parts[name][..., 0][:, None] for name in ("frequency", "phase", "mixing_bias"))
    angle = 2 * pi * frequency * x[..., None] + phase
    waves: Numbers = library.cos(angle).swapaxes(1, 2)  # (n_networks, n_features, n_rows, n_frequencies)
    mixed = (waves @ parts["mixing"].swapaxes(2, 3)).swapaxes(1, 2) + mixing_bias
    n_networks, n_rows = len(parts["mixing"]), x.shape[1]
    own = library.broadcast_to(x[..., None], (n_networks, n_rows, net.n_features, 1))
    joined: Numbers = library.concatenate([own, mixed], -1).reshape(n_networks, n_rows, net.sizes[0])
    return joined


class StackedTabularNet(Stack):
    """Networks for tables while they train, with their gradients and their dropout.

    Parameters
    ----------
    net : TabularNet
    seeds : sequence of int
        One per network: its initial numbers, and which units are dropped when.
    n_groups : int
        The networks form this many groups of equal size; a group shares its batches.
    device : torch.device

    Attributes
    ----------
    drop : tensor of shape (n_networks,)
        The share of hidden units that the next ``forward`` drops, 0 at first.
    """

    def __init__(self, net: TabularNet, seeds: Sequence[int], n_groups: int, device: torch.device) -> None:
        self.net, self.n_networks, self.n_groups = net, len(seeds), n_groups
        self.parameters = torch.cat([one_vector(net._initial(seed), device) for seed in seeds])
        self.gradients = torch.zeros_like(self.parameters)
        self._seeds = tuple(seeds)
        self._parts = self._views(self.parameters)
        self._slopes = self._views(self.gradients)
        self._last = len(net.sizes) - 2
        self._alpha = [fan_in**-0.5 for fan_in in net.sizes[:-1]]
        self._choices = _Choices(self._seeds, device)
        self.drop = torch.zeros(self.n_networks, device=device)
        self.dropping = False

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        """Cut the vector into parts of shape (n_networks, ...)."""
        shapes = self.net._trained_shapes
        return dict(zip(shapes, cut(flat.view(self.n_networks, -1), shapes.values()), strict=True))

    def adapt(self, rows: Sequence[Tensor]) -> None:
        """Fit the initial weights and biases of each network to some of its rows (n_rows, n_features).

        Every unit's sum gets a standard deviation of 1 over the rows, and a bias with which it is 0 at a random mean of
        five of them: its hyperplane passes through the data.
        """
        for number, (seed, x) in enumerate(zip(self._seeds, rows, strict=True)):
            generator = generator_of(seed, "biases")
            parts = {name: part[number : number + 1] for name, part in self._parts.items()}
            folded = {name: part[number : number + 1] for name, part in self.folded().items()}
            activation = _inputs(self.net, folded, x.unsqueeze(0))[0].T
            for depth in range(self._last + 1):
                weight = parts[f"weight{depth}"][0]
                sums = (weight @ activation) * self._alpha[depth]
                spread = sums.std(1, correction=0, keepdim=True)
                spread = torch.where(spread > 0, spread, 1.0)
                weight.div_(spread)
                sums.div_(spread)
                shape = (len(sums), _ROWS_OF_BIAS)
                chosen = torch.randint(sums.shape[1], shape, generator=generator).to(sums.device)
                share = torch.empty(shape).exponential_(generator=generator)
                share = (share / share.sum(1, keepdim=True)).to(sums.device)
                bias = -(sums.gather(1, chosen) * share).sum(1, keepdim=True)
                parts[f"bias{depth}"][0] = bias / _SLOW
                activation = F.selu(sums + bias)

    def parts(self, flat: Tensor) -> list[Tensor]:
        return [flat.view(self.n_networks, -1)]

    def vectors(self) -> Tensor:
        parts = self.folded()
        return torch.cat([parts[name].reshape(self.n_networks, -1) for name in self.net.folded_shapes()], 1)

    def folded(self) -> dict[str, Tensor]:
        """Return the networks as they are now, in the shapes of :meth:`TabularNet.folded_shapes`."""
        folded = {name: part * _factor(name) for name, part in self._parts.items()}
        for depth, alpha in enumerate(self._alpha):
            folded[f"weight{depth}"] *= alpha
        folded["weight0"] = folded["weight0"] * folded.pop("scale")
        return folded

    def decay(self, shares: Tensor) -> None:
        """Shrink each network's weights by a share times the factor of their rate; biases do not decay."""
        for name, part in self._parts.items():
            if not name.startswith("bias"):
                part.mul_(1 - _factor(name) * shares.view(-1, *[1] * (part.ndim - 1)))

    def forward(self, x: Tensor) -> Tensor:
        if self.n_groups < self.n_networks:
            x = x.repeat_interleave(self.n_networks // self.n_groups, 0)
        shapes = [(self.n_networks, units, x.shape[1]) for units in self.net.hidden_units]
        self._keep = self._choices.draw(shapes, self.drop) if self.dropping else []
        self._first_weight = self._parts["weight0"] * (self._parts["scale"] * _SCALE)
        self._below, self._units = [self._embed(x)], []
        for depth in range(self._last + 1):
            weight = self._parts[f"weight{depth}"] if depth else self._first_weight
            z = torch.baddbmm(
                self._parts[f"bias{depth}"], weight, self._below[-1], beta=_SLOW, alpha=self._alpha[depth]
            )
            if depth < self._last:
                bent = F.selu(z)
                out = torch.lerp(z, bent, self._parts[f"blend{depth}"] * _SLOW)
                self._below.append(out.mul_(self._keep[depth]) if self.dropping else out)
                self._units.append((z, bent))
        return z.transpose(1, 2)

    def backward(self, score_gradient: Tensor) -> None:
        signal = score_gradient.transpose(1, 2)
        for depth in reversed(range(self._last + 1)):
            if depth < self._last:
                signal = self._through_unit(depth, signal)
            torch.sum(signal, 2, keepdim=True, out=self._slopes[f"bias{depth}"]).mul_(_SLOW)
            slope, below = self._slopes[f"weight{depth}"], self._below[depth].transpose(1, 2)
            torch.baddbmm(slope, signal, below, beta=0.0, alpha=self._alpha[depth], out=slope)
            if depth:
                signal = torch.bmm(self._parts[f"weight{depth}"].transpose(1, 2), signal).mul_(self._alpha[depth])
        self._through_inputs(signal)

    def _through_unit(self, depth: int, signal: Tensor) -> Tensor:
        """Turn the gradient with respect to a layer's outputs into that with respect to its sums z."""
        z, bent = self._units[depth]
        if self.dropping:
            signal.mul_(self._keep[depth])
        blend = self._parts[f"blend{depth}"] * _SLOW
        torch.sub(bent, z, out=z).mul_(signal)
        torch.sum(z, 2, keepdim=True, out=self._slopes[f"blend{depth}"]).mul_(_SLOW)
        bend = torch.ops.aten.elu_backward.grad_input
        bend(signal, _SELU_ALPHA, _SELU_SCALE, 1.0, True, bent, grad_input=bent)
        return torch.lerp(signal, bent, blend, out=z)

    def _through_inputs(self, signal: Tensor) -> None:
        """Fill the gradients of the scales and of the embeddings; that of the first weight holds the folded one."""
        slope, weight, scale = self._slopes["weight0"], self._parts["weight0"], self._parts["scale"]
        torch.sum(slope * weight, 1, keepdim=True, out=self._slopes["scale"]).mul_(_SCALE)
        slope.mul_(scale * _SCALE)
        if self.net.embeddings is None:
            return
        d, angle = self.net.n_features, self._angle
        back = torch.bmm(self._first_weight.transpose(1, 2), signal).mul_(self._alpha[0])
        mixed = back.view(self.n_networks, d, -1, signal.shape[2])[:, :, 1:]
        self._slopes["mixing_bias"].copy_(mixed.sum(3, keepdim=True).mul_(_SLOW))
        self._slopes["mixing"].copy_((mixed @ torch.cos(angle).transpose(2, 3)).mul_(_SLOW))
        turn = (self._parts["mixing"].transpose(2, 3) @ mixed).mul_(-_SLOW).mul_(torch.sin(angle))
        self._slopes["phase"].copy_(turn.sum(3, keepdim=True).mul_(_SLOW))
        turn.mul_(self._columns)
        self._slopes["frequency"].copy_(turn.sum(3, keepdim=True).mul_(2 * pi * _SLOW))

    def _embed(self, x: Tensor) -> Tensor:
        columns = x.transpose(1, 2)
        if self.net.embeddings is None:
            return columns
        self._columns = columns.unsqueeze(2)
        phase = self._parts["phase"] * _SLOW
        self._angle = torch.addcmul(phase, self._parts["frequency"] * (2 * pi * _SLOW), self._columns)
        inputs = columns.new_empty(*columns.shape[:2], 1 + self.net.embeddings.n_outputs, columns.shape[2])
        inputs[:, :, 0] = columns
        torch.add(
            (self._parts["mixing"] * _SLOW) @ torch.cos(self._angle),
            self._parts["mixing_bias"],
            alpha=_SLOW,
            out=inputs[:, :, 1:],
        )
        return inputs.view(self.n_networks, -1, columns.shape[2])


class _Choices:
    """Random choices of units, from separate random bits for each network.

    Every network has 64-bit xorshift generators (Marsaglia 2003), one for every eight choices, started from its seed.
    They give the same bits on every device, inside a CUDA graph, and independently of the other networks in the stack.
    """

    def __init__(self, seeds: Sequence[int], device: torch.device) -> None:
        self._seeds, self._device = seeds, device
        self._lanes: Tensor | None = None

    def draw(self, shapes: Sequence[tuple[int, ...]], drop: Tensor) -> list[Tensor]:
        """Return tensors with 0 where a unit is dropped, and with 1 over the share that is kept elsewhere."""
        per_lane = 64 // _BITS_PER_CHOICE
        n_lanes = sum(-(-prod(shape[1:]) // per_lane) for shape in shapes)
        if self._lanes is None:
            self._lanes = self._start(n_lanes)
        lanes = self._lanes
        shifted = torch.empty_like(lanes)
        lanes.bitwise_xor_(torch.bitwise_left_shift(lanes, 13, out=shifted))
        torch.bitwise_right_shift(lanes, 7, out=shifted).bitwise_and_(2**57 - 1)  # the shift repeats the sign
        lanes.bitwise_xor_(shifted)
        lanes.bitwise_xor_(torch.bitwise_left_shift(lanes, 17, out=shifted))
        steps = 2**_BITS_PER_CHOICE
        dropped = (drop * steps).round().clamp(max=steps - 1).view(-1, 1, 1)
        least, scale = (dropped - steps // 2).to(torch.int8), steps / (steps - dropped)
        numbers, start, keep = lanes.view(torch.int8), 0, []
        for shape in shapes:
            size = prod(shape[1:])
            keep.append((numbers[:, start : start + size].view(shape) >= least) * scale)
            start += -(-size // per_lane) * per_lane
        return keep

    def _start(self, n_lanes: int) -> Tensor:
        lanes = torch.empty(len(self._seeds), n_lanes, dtype=torch.int64)
        for own, seed in zip(lanes, self._seeds, strict=True):
            own.random_(1, None, generator=generator_of(seed, "dropped units"))
        return lanes.to(self._device)
