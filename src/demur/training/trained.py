"""The result of training: one vector per network."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from demur.training.architecture import Architecture

__all__ = ["Trained"]


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

    @classmethod
    def empty(cls, architecture: Architecture, n_networks: int, device: torch.device) -> "Trained":
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

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, members: Sequence[int]) -> "Trained":
        """Return some of the networks, in the given order."""
        index = torch.as_tensor(members, device=self.vectors.device)
        return Trained(self.architecture, self.vectors[index], self.failed[index])

    def to(self, device: torch.device | str) -> "Trained":
        """Return the networks on another device."""
        return Trained(self.architecture, self.vectors.to(device), self.failed.to(device))

    def __getstate__(self) -> dict[str, Any]:
        """Give the tensors as NumPy arrays, so that whatever stores plain objects can store networks."""
        arrays = {name: getattr(self, name).detach().cpu().numpy() for name in ("vectors", "failed")}
        return {"architecture": self.architecture, **arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tensors = {name: torch.tensor(state[name]) for name in ("vectors", "failed")}  # in torch's own, aligned memory
        self.__dict__.update(architecture=state["architecture"], **tensors)

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """Return the scores of every network for the rows x, of shape (n_networks, n_rows, n_outputs).

        They are computed in the precision of x.
        """
        return self.architecture.scores(self.vectors.to(x.dtype), x.to(self.vectors.device))

    def module(self, member: int) -> nn.Module:
        """Return one network as a plain torch module, on the CPU."""
        return self.architecture.module(self.vectors[member].detach().cpu())
