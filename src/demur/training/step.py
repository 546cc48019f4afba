"""One training step of a stack."""

from collections.abc import Sequence

import torch
from torch import Tensor

from demur.losses import Loss
from demur.training.architecture import Stack
from demur.training.batches import TrainingData
from demur.training.networks import Network
from demur.training.optimiser import AMSGrad

__all__ = ["TrainingStep"]


class TrainingStep:
    """Forward, loss, backward, update: for all networks of a stack at once.

    Parameters
    ----------
    loss : Loss
        With hyper-parameters of shape (n_networks, 1).
    stack : Stack
    data : TrainingData
    networks : sequence of Network
        The specifications of the stack's networks.
    learning_rate : float
    """

    def __init__(
        self, loss: Loss, stack: Stack, data: TrainingData, networks: Sequence[Network], learning_rate: float
    ) -> None:
        self._loss, self._stack, self._data = loss, stack, data
        device = stack.parameters.device
        self._cost = torch.tensor([[network.cost] for network in networks], device=device)
        decay = torch.tensor([network.weight_decay for network in networks], device=device)
        self._optimiser = AMSGrad(stack.parameters, stack.gradients, stack.per_parameter(decay), learning_rate)

    @property
    def n_groups(self) -> int:
        """The number of groups that share their batches."""
        return self._stack.n_groups

    def examples(self, rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Fetch the rows (n_groups, n), whose losses count with ``weight`` (n,).

        Returns features (n_groups, n, n_features), and labels and weights (n_networks, n).
        """
        n_groups, n = rows.shape
        flat = rows.reshape(-1)
        x = self._data.X.index_select(0, flat).view(n_groups, n, -1)
        y = self._for_each_network(self._data.y.index_select(0, flat).view(n_groups, n))
        weight = weight.expand(self._stack.n_networks, n)
        if self._data.weight is not None:
            weight = weight * self._for_each_network(self._data.weight.index_select(0, flat).view(n_groups, n))
        return x, y, weight

    def _for_each_network(self, values: Tensor) -> Tensor:
        return values.repeat_interleave(self._stack.n_networks // self._stack.n_groups, 0)

    def __call__(self, x: Tensor, y: Tensor, weight: Tensor) -> None:
        """Train on a batch of examples."""
        scores = self._stack.forward(x)
        self._stack.backward(self._loss.score_gradient(scores, y, self._cost, weight))
        self._optimiser.step()

    def outcome(self) -> tuple[Tensor, Tensor]:
        """Return the trained vectors, and which networks failed: their numbers or their moments overflowed."""
        vectors = self._stack.vectors()
        worst = self._stack.per_network_max(self._optimiser.largest_square)
        return vectors, ~(vectors.isfinite().all(1) & worst.isfinite())
