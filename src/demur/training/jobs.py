"""Training data, the specification of each network, and the trained networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from demur.array_types import AnyArray, ByName, Ints
from demur.errors import InputTypeError
from demur.lazy_torch import Tensor, nn, torch
from demur.losses.loss import Trainable
from demur.training.architecture import Architecture

CudaPrecision = Literal["tf32", "tf32x3", "ieee"]
"""Precision of matrix products on a GPU."""


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features, labels and optional weights, as tensors on the device that trains.

    Parameters
    ----------
    X : tensor of shape (n_rows, n_features), float32
    y : tensor of shape (n_rows,), int64
        Classes; or the targets of the loss, of shape (n_rows, ...).
    weight : tensor of shape (n_rows,), float32, optional
        Weight of each example's loss.
    """

    X: Tensor
    y: Tensor
    weight: Tensor | None = None

    def to(self, device: torch.device) -> TrainingData:
        """Return the data on another device."""
        weight = None if self.weight is None else self.weight.to(device)
        return TrainingData(self.X.to(device), self.y.to(device), weight)

    def take(self, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features, targets and weights of some rows, whose own weights are multiplied by ``weight``."""
        flat = rows.reshape(-1)
        if self.weight is not None:
            weight = weight * self.weight.index_select(0, flat).view(rows.shape)
        x, y = (part.index_select(0, flat).view(*rows.shape, *part.shape[1:]) for part in (self.X, self.y))
        return x, y, weight


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """One network to train: its rows, its seed and its own hyper-parameters.

    Parameters
    ----------
    rows : array of int
        The rows of the data it trains on.
    seed : int
        Seed of its initial weights and of the order of its minibatches. Networks with the same rows and seed have the
        same batches, which the engine loads once.
    weight_decay : float, optional
        In :func:`train` the coefficient of the L2 penalty, on all weights and biases, as in ``torch.optim.Adam``; 0 if
        None. In :func:`train_tabular` the decoupled decay of the weights; the recipe's if None.
    cost : float
        The rejection cost, for losses that are trained for one.
    hyper : mapping of str to float
        Values for fields of the loss, such as ``alpha`` and ``beta``.
    validation : array of int, optional
        Rows on which the best epoch is chosen, in :func:`train_tabular` only.

    Examples
    --------
    >>> NetworkSpec(rows=np.arange(100), seed=0, weight_decay=1e-4, cost=0.2, hyper={"beta": 2.0}).seed
    0
    """

    rows: Ints
    seed: int = 0
    weight_decay: float | None = None
    cost: float = 0.2
    hyper: Mapping[str, float] = field(default_factory=dict)
    validation: Ints | None = None

    def __post_init__(self) -> None:
        for rows in map(np.asarray, (self.rows, self.validation)):
            if rows.dtype.kind in "bf" and rows.size:
                raise InputTypeError(
                    f"rows must be row numbers, got an array of {rows.dtype}; numpy.flatnonzero(mask) returns them."
                )


@dataclass(frozen=True, eq=False)
class Job:
    """Networks of one loss and architecture to train on one data set.

    Parameters
    ----------
    loss : Trainable
        Loss whose hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of NetworkSpec
    """

    loss: Trainable
    architecture: Architecture
    data: TrainingData
    networks: Sequence[NetworkSpec]


@dataclass(frozen=True)
class TrainingOptions:
    """The options of :func:`train` and :func:`train_all`.

    Parameters
    ----------
    epochs, batch_size : int
    learning_rate : float
    device : torch.device or str
    stack_size, n_workers : int, optional
        Networks in a stack, and stacks that train at a time; chosen from the machine by default.
    progress : callable, optional
        Called with the number of network-epochs just finished, from any thread.
    on_cuda : {"tf32", "tf32x3", "ieee"}
        Precision of matrix products on a GPU, for networks with one hidden layer and a loss of demur's own, which are
        trained by one program each: 11 bits, about 22 bits, or 24 bits.
    """

    epochs: int = 150
    batch_size: int = 128
    learning_rate: float = 1e-3
    device: torch.device | str = "cpu"
    stack_size: int | None = None
    n_workers: int | None = None
    progress: Callable[[int], None] | None = None
    on_cuda: CudaPrecision = "tf32"

    @property
    def where(self) -> torch.device:
        """The device."""
        return torch.device(self.device)


@dataclass(eq=False)
class Trained:
    """Trained networks of one architecture.

    Parameters
    ----------
    architecture : Architecture
    vectors : tensor of shape (n_networks, n)
        The trained numbers of each network.
    failed : tensor of bool, shape (n_networks,)
        Networks that diverged; their vectors are zeros and their scores are meaningless.
    """

    architecture: Architecture
    vectors: Tensor
    failed: Tensor

    @classmethod
    def empty(cls, architecture: Architecture, n_networks: int, device: torch.device) -> Trained:
        """Return zeros, to be filled by :meth:`put`."""
        vectors = torch.zeros(n_networks, architecture.vector_length, device=device)
        return cls(architecture, vectors, torch.zeros(n_networks, dtype=torch.bool, device=device))

    def put(self, members: Sequence[int], vectors: Tensor, failed: Tensor) -> None:
        """Store the outcome of some networks, with zeros for those that diverged."""
        index = torch.as_tensor(members, device=self.vectors.device)
        self.vectors[index] = torch.where(failed[:, None], 0.0, vectors)
        self.failed[index] = failed

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, members: Sequence[int]) -> Trained:
        """Return some of the networks, in the given order."""
        index = torch.as_tensor(members, device=self.vectors.device)
        return Trained(self.architecture, self.vectors[index], self.failed[index])

    def to(self, device: torch.device | str) -> Trained:
        """Return the networks on another device."""
        return Trained(self.architecture, self.vectors.to(device), self.failed.to(device))

    def __getstate__(self) -> ByName:
        """Return NumPy arrays instead of tensors, which are stored and used without torch."""
        loaded = self.__dict__.get("_arrays")
        arrays = loaded or {name: getattr(self, name).cpu().numpy() for name in ("vectors", "failed")}
        return {"architecture": self.architecture, **arrays}

    def __setstate__(self, state: ByName) -> None:
        arrays = {name: np.array(state[name]) for name in ("vectors", "failed")}
        self.__dict__.update(architecture=state["architecture"], _arrays=arrays)

    def __getattr__(self, name: str) -> Tensor:
        """Turn arrays that were loaded into tensors, at the first use of one."""
        arrays = self.__dict__.get("_arrays")
        if arrays is None or name not in arrays:
            raise AttributeError(name)
        del self.__dict__["_arrays"]  # the tensors may change from now on
        self.__dict__.update({own: torch.tensor(array) for own, array in arrays.items()})
        tensor: Tensor = self.__dict__[name]
        return tensor

    def scores(self, x: Tensor) -> Tensor:
        """Return the scores of every network for the rows x, of shape (n_networks, n_rows, n_outputs).

        They are computed in the precision of x, or in single precision for integers.
        """
        x = x if x.is_floating_point() else x.float()
        with torch.no_grad():
            return self.architecture.scores(self.vectors.to(x.dtype), x.to(self.vectors.device))

    def scores_of_arrays(self, x: AnyArray) -> AnyArray:
        """Return the scores for rows in an array: by NumPy on the CPU, by torch on a GPU or for a user's module."""
        loaded = self.__dict__.get("_arrays")
        if not self.architecture.is_module and (loaded or self.vectors.device.type == "cpu"):
            vectors = loaded["vectors"] if loaded else self.vectors.numpy()
            return self.architecture.scores(vectors, x)
        return self.scores(torch.from_numpy(x)).cpu().numpy()

    def module(self, member: int) -> nn.Module:
        """Return one network as a plain torch module, on the CPU."""
        return self.architecture.module(self.vectors[member].cpu())
