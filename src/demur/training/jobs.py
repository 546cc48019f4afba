"""What to train and what comes out: data, one specification per network, and a vector for each that is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.lazy_torch import Tensor, nn, torch, without_gradients
from demur.losses.loss import Trainable
from demur.training.architecture import Architecture
from demur.training.numpy_networks import NumpyNetworks, numpy_networks

__all__ = ["Job", "NetworkSpec", "Trained", "TrainingData"]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Features, labels and optional weights, as tensors on the device that trains.

    Parameters
    ----------
    X : tensor of shape (n_rows, n_features), float32
    y : tensor of shape (n_rows,), int64
        The classes; or of shape (n_rows, ...), whatever the loss takes as the target of a row.
    weight : tensor of shape (n_rows,), float32, optional
        Multiplies each example's loss.
    """

    X: Tensor
    y: Tensor
    weight: Tensor | None = None

    def to(self, device: torch.device) -> TrainingData:
        """Return the data on another device."""
        weight = None if self.weight is None else self.weight.to(device)
        return TrainingData(self.X.to(device), self.y.to(device), weight)


@dataclass(frozen=True, eq=False)
class NetworkSpec:
    """One network to train: its rows, its seed and its own hyper-parameters.

    Parameters
    ----------
    rows : array of int
        The rows of the data it trains on.
    seed : int
        Decides its initial weights and the order of its minibatches. Networks with the same rows and seed see
        the same batches, which the engine uses.
    weight_decay : float, optional
        In :func:`train` the coefficient of the L2 penalty, on all weights and biases, as in ``torch.optim.Adam``; 0 if
        None. In :func:`train_tabular` the decoupled decay of the weights; the recipe's if None.
    cost : float
        The rejection cost, for losses that are trained for one.
    hyper : mapping of str to float
        Values for fields of the loss, such as ``alpha`` and ``beta``.
    validation : array of int, optional
        Rows that choose the best epoch, in :func:`train_tabular` only.
    learning_rate, dropout : float, optional
        In :func:`train_tabular` only: the network's own, or the recipe's if None.

    Examples
    --------
    >>> NetworkSpec(rows=np.arange(100), seed=0, weight_decay=1e-4, cost=0.2, hyper={"beta": 2.0}).seed
    0
    """

    rows: NDArray[np.int64]
    seed: int = 0
    weight_decay: float | None = None
    cost: float = 0.2
    hyper: Mapping[str, float] = field(default_factory=dict)
    validation: NDArray[np.int64] | None = None
    learning_rate: float | None = None
    dropout: float | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """Networks of one loss and architecture to train on one data set.

    Parameters
    ----------
    loss : Trainable
        Its hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of NetworkSpec
    """

    loss: Trainable
    architecture: Architecture
    data: TrainingData
    networks: Sequence[NetworkSpec]


@dataclass(eq=False)
class Trained:
    """Trained networks of one architecture.

    Parameters
    ----------
    architecture : Architecture
    vectors : tensor of shape (n_networks, n)
        Everything each network has learnt.
    failed : tensor of bool, shape (n_networks,)
        Networks that diverged; their vectors are zeros and their scores mean nothing.
    """

    architecture: Architecture
    vectors: Tensor
    failed: Tensor
    _numpy: ClassVar[NumpyNetworks | None] = None  # of each object, once it was asked for

    @classmethod
    def empty(cls, architecture: Architecture, n_networks: int, device: torch.device) -> Trained:
        """Return a place for results."""
        length = architecture.vector_length
        return cls(
            architecture,
            torch.zeros(n_networks, length, device=device),
            torch.zeros(n_networks, dtype=torch.bool, device=device),
        )

    def put(self, members: Sequence[int], vectors: Tensor, failed: Tensor) -> None:
        """Store the outcome of some networks; what diverged becomes zeros."""
        index = torch.as_tensor(members, device=self.vectors.device)
        self.vectors[index] = torch.where(failed[:, None], 0.0, vectors)
        self.failed[index] = failed
        self.__dict__.pop("_numpy", None)

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, members: Sequence[int]) -> Trained:
        """Return some of the networks, in the given order."""
        index = torch.as_tensor(members, device=self.vectors.device)
        return Trained(self.architecture, self.vectors[index], self.failed[index])

    def to(self, device: torch.device | str) -> Trained:
        """Return the networks on another device."""
        return Trained(self.architecture, self.vectors.to(device), self.failed.to(device))

    def arrays(self) -> dict[str, AnyArray]:
        """Return the vectors and what failed as NumPy arrays, without torch where they came as such."""
        held = self.__dict__.get("_arrays")
        return held or {name: getattr(self, name).detach().cpu().numpy() for name in ("vectors", "failed")}

    def __getstate__(self) -> ByName:
        """Give the tensors as NumPy arrays, so that whatever stores plain objects can store networks."""
        return {"architecture": self.architecture, **self.arrays()}

    def __setstate__(self, state: ByName) -> None:
        arrays = {name: np.array(state[name]) for name in ("vectors", "failed")}
        self.__dict__.update(architecture=state["architecture"], _arrays=arrays)

    def __getattr__(self, name: str) -> Tensor:
        """Make the tensors of arrays that were loaded, when somebody asks for them."""
        arrays = self.__dict__.get("_arrays")
        if arrays is None or name not in arrays:
            raise AttributeError(name)
        for own, array in arrays.items():
            self.__dict__[own] = torch.tensor(array)  # in torch's own, aligned memory
        del self.__dict__["_arrays"]  # they may change from now on
        tensor: Tensor = self.__dict__[name]
        return tensor

    @without_gradients
    def scores(self, x: Tensor) -> Tensor:
        """Return the scores of every network for the rows x, of shape (n_networks, n_rows, n_outputs).

        They are computed in the precision of x.
        """
        return self.architecture.scores(self.vectors.to(x.dtype), x.to(self.vectors.device))

    def on_numpy(self) -> NumpyNetworks | None:
        """Return the networks as NumPy runs them; None on a GPU, and for modules of the user's own."""
        is_here = "_arrays" in self.__dict__ or self.vectors.device.type == "cpu"
        if self._numpy is None and is_here:
            self.__dict__["_numpy"] = numpy_networks(self.architecture, self.arrays()["vectors"])
        return self._numpy

    def module(self, member: int) -> nn.Module:
        """Return one network as a plain torch module, on the CPU."""
        return self.architecture.module(self.vectors[member].detach().cpu())
