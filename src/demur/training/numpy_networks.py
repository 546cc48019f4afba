"""Trained networks on NumPy: what a model needs to decide on a CPU, without torch.

A row's scores must not depend, to the last bit, on the rows that it comes with. Matrix products keep that promise only
where the library takes the kernels that add up in one order, so that the promise is tried out on the machine at hand.
"""

import threading
from collections.abc import Callable
from itertools import pairwise
from math import pi, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NumpyNetworks", "numpy_networks"]

_Single = NDArray[np.float32]

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805
_OUTPUTS = 16
"""Outputs are filled up to a multiple of this: products with fewer columns add up in other orders."""

PIECE = 512
"""Rows at a time: what they leave behind stays in the processor's cache."""

_TILE = 64
_ALL = slice(None)
_TRIED = (*range(2, 10), 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 255, 256, 300, 511)
"""Numbers of rows whose scores are compared with those of a whole piece."""


class NumpyNetworks:
    """Several trained networks of one kind, from scaled inputs to scores in single precision.

    Parameters
    ----------
    weights : list of arrays of shape (n_networks, n_in, n_out)
        The layers.
    biases : list of arrays of shape (n_networks, n_out)
    bend : callable
        From the depth, the sums of a hidden layer and which networks they are of, to its outputs.
    waves : _Waves, optional
        What the first layer sees of each feature after the features themselves.

    Attributes
    ----------
    least : int or None
        From so many rows on a row's scores are the same whatever the others are; None where they are not, so that the
        rows go through in tiles of 64, always as many.

    Examples
    --------
    >>> weights = [np.array([[[1.0, -1.0]]]), np.array([[[1.0], [2.0]]])]
    >>> biases = [np.zeros((1, 2)), np.array([[0.5]])]
    >>> networks = NumpyNetworks(weights, biases, lambda depth, sums, which: np.maximum(sums, 0))
    >>> networks.scores(np.array([[3.0], [-1.0]], dtype=np.float32))  # max(x, 0) + 2 max(-x, 0) + 0.5
    array([[[3.5],
            [2.5]]], dtype=float32)
    """

    def __init__(
        self,
        weights: list[NDArray[Any]],
        biases: list[NDArray[Any]],
        bend: Callable[[int, _Single, slice], _Single],
        waves: "_Waves | None" = None,
    ) -> None:
        self.n_networks, _, self.n_outputs = weights[-1].shape
        extra = -self.n_outputs % _OUTPUTS
        weights[-1] = np.pad(weights[-1], ((0, 0), (0, 0), (0, extra)))
        biases[-1] = np.pad(biases[-1], ((0, 0), (0, extra)))
        self._weights = [np.ascontiguousarray(one, dtype=np.float32) for one in weights]
        self._biases = [np.ascontiguousarray(one[:, None], dtype=np.float32) for one in biases]
        self._bend, self._waves = bend, waves
        self.n_inputs = self._weights[0].shape[1] if waves is None else waves.n_features
        self.least = self._least_rows()

    def scores(self, inputs: _Single) -> _Single:
        """Return the scores (n_networks, n_rows, n_outputs).

        The networks share the rows; in three dimensions, each has rows of its own.
        """
        n_rows = inputs.shape[-2]
        if self.least is None:
            filled = _filled(inputs, n_rows + -n_rows % _TILE)
            tiles = [self._run(filled[..., start : start + _TILE, :]) for start in range(0, filled.shape[-2], _TILE)]
            return np.concatenate(tiles, axis=1)[:, :n_rows]
        if n_rows <= _TILE or self.n_networks == 1:
            return self._run(_filled(inputs, max(n_rows, self.least)))[:, :n_rows]
        each = [slice(number, number + 1) for number in range(self.n_networks)]  # what one leaves stays in the cache
        return np.concatenate([self._run(inputs[one] if inputs.ndim == 3 else inputs, one) for one in each])

    def _run(self, inputs: _Single, which: slice = _ALL) -> _Single:
        activation = inputs if inputs.ndim == 3 else inputs[None]
        if self._waves is not None:
            activation = self._waves.joined(activation, which)
        last = len(self._weights) - 1
        with np.errstate(all="ignore"):  # whoever decides looks at what comes out
            for depth, (weight, bias) in enumerate(zip(self._weights, self._biases, strict=True)):
                shape = (len(weight[which]), activation.shape[1], weight.shape[2])
                sums = np.matmul(activation, weight[which], out=_scratch(depth % 2, shape) if depth < last else None)
                sums += bias[which]
                activation = self._bend(depth, sums, which) if depth < last else sums
        return activation[..., : self.n_outputs]

    def _least_rows(self) -> int | None:
        """Try out, on one network, from how many rows on each row has the scores that it has in a whole piece."""
        rng, one = np.random.default_rng(0), slice(0, 1)
        tried = rng.normal(size=(1, PIECE, self.n_inputs)).astype(np.float32)
        expected = self._run(tried, one)
        least = 2
        for n_rows in _TRIED:
            if not np.array_equal(self._run(tried[:, :n_rows], one), expected[:, :n_rows]):
                least = n_rows + 1
        return least if least <= _TILE else None


_of_thread = threading.local()


def _scratch(number: int, shape: tuple[int, ...]) -> _Single:
    """Return memory of this thread's to compute in, since asking for it anew takes longer than computing."""
    if not hasattr(_of_thread, "held"):
        _of_thread.held = {}
    held: dict[int, _Single] = _of_thread.held
    found = held.get(number)
    size = prod(shape)
    if found is None or found.size < size:
        found = held[number] = np.empty(size, dtype=np.float32)
    return found[:size].reshape(shape)


def _filled(inputs: _Single, n_rows: int) -> _Single:
    missing = n_rows - inputs.shape[-2]
    if not missing:
        return inputs
    filled = np.zeros((*inputs.shape[:-2], n_rows, inputs.shape[-1]), dtype=np.float32)
    filled[..., :-missing, :] = inputs
    return filled


def numpy_networks(architecture: Any, vectors: _Single) -> NumpyNetworks | None:
    """Return networks from their vectors, or None where only torch knows how they compute.

    Parameters
    ----------
    architecture : Architecture
    vectors : array of shape (n_networks, n)

    Examples
    --------
    >>> from demur.training import MLP
    >>> networks = numpy_networks(MLP((1, 1, 1)), np.array([[2.0, -1.0, 3.0, 0.5]], dtype=np.float32))
    >>> networks.scores(np.array([[1.0]], dtype=np.float32))  # 3 max(2 x - 1, 0) + 0.5
    array([[[3.5]]], dtype=float32)
    """
    make = {"MLP": _perceptrons, "TabularNet": _tabular}.get(type(architecture).__name__)
    return None if make is None else make(architecture, vectors)


def _perceptrons(architecture: Any, vectors: _Single) -> NumpyNetworks:
    weights, biases, start, n_networks = [], [], 0, len(vectors)
    for fan_in, fan_out in pairwise(architecture.sizes):
        middle, end = start + fan_in * fan_out, start + (fan_in + 1) * fan_out
        weights.append(vectors[:, start:middle].reshape(n_networks, fan_out, fan_in).transpose(0, 2, 1))
        biases.append(vectors[:, middle:end])
        start = end
    return NumpyNetworks(weights, biases, lambda depth, sums, which: np.maximum(sums, 0, out=sums))


def _tabular(architecture: Any, vectors: _Single) -> NumpyNetworks:
    parts, start = {}, 0
    for name, shape in architecture.folded_shapes().items():
        parts[name] = vectors[:, start : start + prod(shape)].reshape(len(vectors), *shape)
        start += prod(shape)
    n_layers = len(architecture.sizes) - 1
    weights = [parts[f"weight{depth}"].transpose(0, 2, 1) for depth in range(n_layers)]
    biases = [parts[f"bias{depth}"] for depth in range(n_layers)]
    waves = None
    if architecture.embeddings is not None:
        waves = _Waves(parts["frequency"], parts["phase"], parts["mixing"], parts["mixing_bias"])
        weights[0] = waves.reordered(weights[0])
    return NumpyNetworks(weights, biases, _Blends([parts[f"blend{depth}"] for depth in range(n_layers - 1)]), waves)


class _Waves:
    """Linear functions of the cosines of each feature; eight features make one product of a size that is quick.

    Parameters
    ----------
    frequency, phase : arrays of shape (n_networks, n_features, n_waves)
    mixing : array of shape (n_networks, n_features, n_mixed, n_waves)
    offset : array of shape (n_networks, n_features, n_mixed)
    """

    _TOGETHER = 8

    def __init__(self, frequency: _Single, phase: _Single, mixing: _Single, offset: _Single) -> None:
        n_networks, self.n_features, self._n_mixed, n_waves = mixing.shape
        together, extra = self._TOGETHER, -self.n_features % self._TOGETHER
        self._extra = extra
        wide = ((0, 0), (0, extra), (0, 0))
        self._frequency = np.pad((2 * pi * frequency.astype(np.float64)).astype(np.float32), wide)[:, None]
        self._phase = np.pad(phase, wide)[:, None]
        n_groups = (self.n_features + extra) // together
        n_out = together * self._n_mixed
        blocks = np.zeros((n_networks, n_groups, together * n_waves, n_out + -n_out % _OUTPUTS), dtype=np.float32)
        by_group = np.pad(mixing, (*wide, (0, 0))).reshape(n_networks, n_groups, together, self._n_mixed, n_waves)
        for place in range(together):
            rows = slice(place * n_waves, (place + 1) * n_waves)
            outs = slice(place * self._n_mixed, (place + 1) * self._n_mixed)
            blocks[:, :, rows, outs] = by_group[:, :, place].transpose(0, 1, 3, 2)
        self._blocks, self._n_out = blocks, n_out
        self._offset = offset.reshape(n_networks, 1, -1)

    def reordered(self, weight: NDArray[Any]) -> NDArray[Any]:
        """Return the weights of a first layer whose inputs stand by feature, for inputs as ``joined`` gives them."""
        by_feature = weight.reshape(len(weight), self.n_features, 1 + self._n_mixed, -1)
        mixed = by_feature[:, :, 1:].reshape(len(weight), self.n_features * self._n_mixed, -1)
        return np.concatenate([by_feature[:, :, 0], mixed], axis=1)

    def joined(self, rows: _Single, which: slice) -> _Single:
        """Return rows (n_networks, n_rows, n_features), followed by what the first layer sees of their cosines."""
        frequency, blocks = self._frequency[which], self._blocks[which]
        n_networks, n_rows = len(frequency), rows.shape[1]
        filled = np.pad(rows, ((0, 0), (0, 0), (0, self._extra))) if self._extra else rows
        angle = filled[..., None] * frequency
        angle += self._phase[which]
        np.cos(angle, out=angle)
        in_groups = angle.reshape(n_networks, n_rows, blocks.shape[1], -1).transpose(0, 2, 1, 3)
        mixed = np.matmul(np.ascontiguousarray(in_groups), blocks)[..., : self._n_out].transpose(0, 2, 1, 3)
        mixed = mixed.reshape(n_networks, n_rows, -1)[..., : self._offset.shape[-1]] + self._offset[which]
        own = np.broadcast_to(rows, (n_networks, *rows.shape[1:]))
        return np.concatenate([own, mixed], axis=2)


class _Blends:
    """The hidden units of a network for tables: z + alpha (selu(z) - z), with a learnt blend alpha of each unit."""

    def __init__(self, blends: list[_Single]) -> None:
        wide = [one[:, None].astype(np.float64) for one in blends]
        self._above = [(1 + (_SELU_SCALE - 1) * one).astype(np.float32) for one in wide]
        self._below = [(_SELU_SCALE * _SELU_ALPHA * one).astype(np.float32) for one in wide]
        # beyond what the line for positive sums says already
        self._rest = [(-_SELU_SCALE * one).astype(np.float32) for one in wide]

    def __call__(self, depth: int, sums: _Single, which: slice) -> _Single:
        negative = np.minimum(sums, 0, out=_scratch(2, sums.shape))
        sums *= self._above[depth][which]
        curve = np.expm1(negative, out=_scratch(3, sums.shape))
        curve *= self._below[depth][which]
        sums += curve
        negative *= self._rest[depth][which]
        sums += negative
        return sums
