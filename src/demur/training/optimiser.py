"""AMSGrad on one flat vector, with a weight decay of its own for every parameter."""

import torch
from torch import Tensor
from torch.optim.adam import adam

__all__ = ["AMSGrad"]


_CUDA_PIECES = 30
"""The fused CUDA kernel gives each tensor of a list to one block, and takes 30 tensors at a time."""


class AMSGrad:
    """Adam with the running maximum of second moments (Reddi et al. 2018), as in ``torch.optim.Adam(amsgrad=True)``.

    The L2 penalty is added to the gradient, as there; it may differ between parameters, which is what lets
    networks with different weight decays share one update.

    Parameters
    ----------
    parameters, gradients : tensor
        Updated and read in place.
    weight_decay : tensor like ``parameters``
    learning_rate : float
    """

    def __init__(self, parameters: Tensor, gradients: Tensor, weight_decay: Tensor, learning_rate: float) -> None:
        self._parameters, self._gradients, self._weight_decay = parameters, gradients, weight_decay
        self._learning_rate = learning_rate
        self.largest_square = torch.zeros_like(parameters)
        vectors = (
            parameters,
            gradients,
            torch.zeros_like(parameters),
            torch.zeros_like(parameters),
            self.largest_square,
        )
        pieces = _CUDA_PIECES if parameters.is_cuda else 1
        self._pieces = tuple(list(vector.chunk(pieces)) for vector in vectors)
        self._steps = [torch.zeros((), device=parameters.device) for _ in self._pieces[0]]

    def step(self) -> None:
        """Update the parameters from the gradients."""
        self._gradients.addcmul_(self._parameters, self._weight_decay)
        parameters, gradients, means, squares, largest = self._pieces
        adam(
            parameters,
            gradients,
            means,
            squares,
            largest,
            self._steps,
            fused=True,
            capturable=self._parameters.is_cuda,
            amsgrad=True,
            beta1=0.9,
            beta2=0.999,
            lr=self._learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
