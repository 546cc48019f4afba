"""What to train: the data, one specification per network, and both together with a loss and an architecture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.training.architecture import Architecture

__all__ = ["Job", "NetworkSpec", "TrainingData"]


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
    loss : Loss
        Its hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of NetworkSpec
    """

    loss: Loss
    architecture: Architecture
    data: TrainingData
    networks: Sequence[NetworkSpec]
