"""Training steps on a CUDA device as replays of one graph."""

from __future__ import annotations

from collections.abc import Callable

from demur.lazy_torch import Tensor, torch


class GraphedSteps:
    """Training steps on a CUDA device, run eagerly in the first call of :meth:`take` and then as replays of one graph.

    Parameters
    ----------
    step : callable
        Function of one tensor of each of the inputs of :meth:`take`. It must not wait for the device, and must keep its
        results in memory that its first call has allocated.
    longest : int
        Maximum number of steps of one call.
    device : torch.device
    """

    def __init__(self, step: Callable[..., None], longest: int, device: torch.device) -> None:
        self._step, self._longest, self._device = step, longest, device
        self._places: list[Tensor] = []
        self._staging: list[Tensor | None] = []
        self._graph: torch.cuda.CUDAGraph | None = None

    def take(self, *inputs: Tensor) -> None:
        """Take one step for each entry of the inputs' first axis, on the current stream."""
        with torch.cuda.device(self._device):
            self._load(inputs)
            for _ in range(len(inputs[0])):
                if self._graph is None:
                    self._next()
                else:
                    self._graph.replay()
            if self._graph is None:
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._next()
                self._graph = graph

    def _load(self, inputs: tuple[Tensor, ...]) -> None:
        """Copy the inputs to the device; the host waits only while the last copy is unfinished."""
        if not self._places:
            for part in inputs:
                shape = (self._longest, *part.shape[1:])
                self._places.append(part.new_empty(shape, device=self._device))
                self._staging.append(None if part.is_cuda else part.new_empty(shape, pin_memory=True))
            self._position = torch.zeros(1, dtype=torch.int64, device=self._device)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's stubs
        self._copied.synchronize()
        for part, place, staging in zip(inputs, self._places, self._staging, strict=True):
            n = len(part)
            place[:n].copy_(part if staging is None else staging[:n].copy_(part), non_blocking=True)
        self._copied.record()
        self._position.zero_()

    def _next(self) -> None:
        """Run the step given by the counter on the device."""
        self._step(*(part.index_select(0, self._position).squeeze(0) for part in self._places))
        self._position.add_(1)
