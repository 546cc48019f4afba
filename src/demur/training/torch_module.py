"""A user's own torch module as an architecture: stacked with ``torch.func`` where that works, one by one where not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from demur.errors import InputError
from demur.lazy_torch import Tensor, nn, torch
from demur.training.architecture import Architecture, Stack, one_vector

__all__ = ["ModuleArchitecture", "ModuleFactory"]

ModuleFactory: TypeAlias = "Callable[[int, int], nn.Module]"
"""Makes a network from the number of features and the number of outputs."""

_global_generator = threading.Lock()
"""Torch modules draw from one generator per process; only one worker at a time may set its seed and use it."""


class ModuleArchitecture(Architecture):
    """Networks made by a factory.

    They are stacked if the module has neither buffers nor frozen parameters and draws no random numbers while it runs
    (so no batch normalisation and no dropout); otherwise each trains alone, in the same loop. Parameters without
    ``requires_grad`` stay as they are. Either way the result of a
    network depends on its seed and not on its company.

    Parameters
    ----------
    factory : callable
        ``factory(n_features, n_outputs)`` returns a new module that maps (batch, n_features) to
        (batch, n_outputs).
    n_features, n_outputs : int

    Examples
    --------
    >>> def wide(n_features, n_outputs):
    ...     return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))
    >>> ModuleArchitecture(wide, 4, 3).one_by_one
    False
    >>> def noisy(n_features, n_outputs):
    ...     return nn.Sequential(nn.Linear(n_features, 8), nn.Dropout(), nn.Linear(8, n_outputs))
    >>> ModuleArchitecture(noisy, 4, 3).one_by_one
    True
    """

    graphable, needs_torch = False, True

    def __init__(self, factory: ModuleFactory, n_features: int, n_outputs: int) -> None:
        self.factory, self.n_features, self.n_outputs = factory, n_features, n_outputs
        self._template = self.build(seed=0)
        self._check_output()
        parameters = dict(self._template.named_parameters())
        frozen = {name: part for name, part in parameters.items() if not part.requires_grad}
        self.shapes = {name: part.shape for name, part in parameters.items() if part.requires_grad}
        self.buffers = {**frozen, **dict(self._template.named_buffers())}
        self.one_by_one = bool(self.buffers) or not self._can_be_stacked()

    def build(self, seed: int) -> nn.Module:
        """Return a new module whose initial weights the seed decides."""
        with _global_generator, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.factory(self.n_features, self.n_outputs).float()

    @property
    def n_parameters(self) -> int:
        return sum(shape.numel() for shape in self.shapes.values())

    @property
    def vector_length(self) -> int:
        return self.n_parameters + sum(part.numel() for part in self.buffers.values())

    @property
    def n_activations(self) -> int:
        return 4 * (self.n_features + self.n_outputs + int(self.n_parameters**0.5))

    def stack(self, seeds: Sequence[int], n_groups: int, device: torch.device) -> Stack:
        return _StackedModule(self, seeds, n_groups, device)

    def scores(self, vectors: Tensor, x: Tensor) -> Tensor:  # type: ignore[override] # see needs_torch
        return torch.stack([self.module(vector).to(x.device, x.dtype)(x) for vector in vectors])

    def module(self, vector: Tensor) -> nn.Module:
        state: dict[str, Tensor] = {}
        start = 0
        parts = dict(self._template.named_parameters()) | self.buffers
        for name in (*self.shapes, *self.buffers):
            part = parts[name]
            state[name] = vector[start : start + part.numel()].view(part.shape).to(part.dtype)
            start += part.numel()
        module = self.build(seed=0)
        module.load_state_dict(state, strict=False)
        return module.eval()

    def _check_output(self) -> None:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            shape = self._template(torch.zeros(4, self.n_features)).shape
        if shape != (4, self.n_outputs):
            raise InputError(
                f"module(n_features={self.n_features}, n_outputs={self.n_outputs}) must map (batch, n_features) to "
                f"(batch, n_outputs), but four rows gave {tuple(shape)}."
            )

    def _can_be_stacked(self) -> bool:
        parameters, _ = torch.func.stack_module_state([self._template, self._template])
        call = torch.func.vmap(lambda p, x: torch.func.functional_call(self._template, p, (x,)), randomness="error")
        try:
            call(parameters, torch.zeros(2, 4, self.n_features))
        except RuntimeError:
            return False
        return True


class _StackedModule(Stack):
    """Modules while they train; alone (M = 1) without vmap, in training mode with buffers."""

    def __init__(
        self, architecture: ModuleArchitecture, seeds: Sequence[int], n_groups: int, device: torch.device
    ) -> None:
        modules = [architecture.build(seed) for seed in seeds]
        self._module = modules[0].to(device).train()
        self._shapes, self._buffer_names = architecture.shapes, tuple(architecture.buffers)
        self.n_networks, self.n_groups = len(seeds), n_groups
        states = [dict(module.named_parameters()) for module in modules]
        self.parameters = one_vector(
            (torch.stack([state[name].detach() for state in states]) for name in self._shapes), device
        )
        self.gradients = torch.zeros_like(self.parameters)
        self._generator_state = torch.Generator().manual_seed(seeds[0]).get_state()
        self._leaf, self._scores = self.parameters, self.parameters

    def _views(self, flat: Tensor) -> dict[str, Tensor]:
        views, start = {}, 0
        for name, shape in self._shapes.items():
            length = self.n_networks * shape.numel()
            views[name] = flat[start : start + length].view(self.n_networks, *shape)
            start += length
        return views

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            self._leaf = self.parameters.detach().requires_grad_()
            views = self._views(self._leaf)
            if self.n_networks == 1:
                self._scores = self._alone({name: part[0] for name, part in views.items()}, x[0]).unsqueeze(0)
            else:
                each = x.repeat_interleave(self.n_networks // self.n_groups, 0)
                self._scores = torch.func.vmap(self._call)(views, each)
        return self._scores.detach()

    def _call(self, parameters: dict[str, Tensor], x: Tensor) -> Any:
        return torch.func.functional_call(self._module, parameters, (x,))

    def _alone(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """Run with random numbers that depend on this network alone."""
        with _global_generator, torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self._generator_state)
            scores: Tensor = self._call(parameters, x)
            self._generator_state = torch.get_rng_state()
        return scores

    def backward(self, score_gradient: Tensor) -> None:
        (gradient,) = torch.autograd.grad(self._scores, self._leaf, score_gradient)
        self.gradients.copy_(gradient)

    def per_parameter(self, values: Tensor) -> Tensor:
        out = torch.zeros_like(self.parameters)
        for part in self._views(out).values():
            part.copy_(values.view(-1, *[1] * (part.ndim - 1)).expand_as(part))
        return out

    def per_network_max(self, values: Tensor) -> Tensor:
        return self._per_network(values).amax(1)

    def vectors(self) -> Tensor:
        kept = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        buffers = [kept[name].detach().flatten().to(torch.float32) for name in self._buffer_names]
        trained = self._per_network(self.parameters)
        return torch.cat([trained, torch.cat(buffers).unsqueeze(0)], 1) if buffers else trained

    def _per_network(self, flat: Tensor) -> Tensor:
        return torch.cat([part.reshape(self.n_networks, -1) for part in self._views(flat).values()], 1)
