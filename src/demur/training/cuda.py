"""Training on a CUDA device: each stack's step is captured once as a graph and replayed, several stacks at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Generic, TypeVar

from demur.lazy_torch import Tensor, torch
from demur.training.training_step import Batches, TrainingStep

__all__ = ["GraphedSteps", "train_with_graphs"]


Work = TypeVar("Work", bound=Sized)


def train_with_graphs(
    work: Sequence[Work],
    prepare: Callable[[Work], tuple[TrainingStep, Batches]],
    epochs: int,
    *,
    n_streams: int,
    progress: Callable[[int], None] | None,
) -> Iterator[tuple[Work, TrainingStep]]:
    """Train the stacks, ``n_streams`` at a time on streams of their own, and yield each when it is done.

    One host thread feeds all streams, an epoch of one stack after an epoch of the next; within an epoch nothing
    waits for the device.
    """
    waiting = list(work)
    running: list[_Run[Work]] = []
    while waiting or running:
        while waiting and len(running) < n_streams:
            running.append(_Run(waiting.pop(0), prepare, epochs))
        for one in list(running):
            if one.next_epoch():
                if progress is not None:
                    progress(len(one.work))
            else:
                running.remove(one)
                yield one.work, one.step


class _Run(Generic[Work]):
    """One stack on its way through the epochs."""

    def __init__(self, work: Work, prepare: Callable[[Work], tuple[TrainingStep, Batches]], epochs: int) -> None:
        self.work = work
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch's stubs
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            warm_up, batches = prepare(work)
            self._feed = _Feed(batches)
            for _ in range(2):
                self._feed.rewind()
                warm_up(*warm_up.examples(*self._feed.next_batch()))
            self._stream.synchronize()
            del warm_up
            self.step, _ = prepare(work)
            self._feed.rewind()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph, stream=self._stream):
                self.step(*self.step.examples(*self._feed.next_batch()))
            self._feed.rewind()
        self._orders = batches.epochs(epochs)
        self._n_steps = batches.n_steps

    def next_epoch(self) -> bool:
        order = next(self._orders, None)
        if order is None:
            self._stream.synchronize()
            return False
        with torch.cuda.stream(self._stream):
            self._feed.load(order)
            for _ in range(self._n_steps):
                self._graph.replay()
        return True


class _Feed:
    """Batches that the device finds by itself: it counts the steps in its own memory."""

    def __init__(self, batches: Batches) -> None:
        self._staging = torch.empty(batches.order_shape, dtype=torch.int64, pin_memory=True)
        self._order = torch.zeros(batches.order_shape, dtype=torch.int64, device="cuda")
        self._weight = batches.weight.cuda()
        self._position = torch.arange(batches.batch_size, device="cuda")
        self._start = self._position.clone()
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's stubs

    def next_batch(self) -> tuple[Tensor, Tensor]:
        rows = self._order.index_select(1, self._position)
        weight = self._weight.index_select(0, self._position)
        self._position.add_(len(self._position))
        return rows, weight

    def rewind(self) -> None:
        self._position.copy_(self._start)

    def load(self, order: Tensor) -> None:
        """Copy an epoch's order to the device; the host waits only if the last copy is still under way."""
        self._copied.synchronize()
        self._staging.copy_(order)
        self._order.copy_(self._staging, non_blocking=True)
        self._copied.record()
        self.rewind()


class GraphedSteps:
    """Training steps on a CUDA device: the first few one kernel at a time, the others as replays of one graph.

    Parameters
    ----------
    step : callable
        ``step(rows, weight, knobs)`` with tensors of shapes (n_networks, n_rows), the same, and (3, n_networks), which
        neither waits for the device nor keeps what it computes outside memory that the first steps have allocated.
    longest : int
        How many steps a turn may have.
    """

    def __init__(self, step: Callable[[Tensor, Tensor, Tensor], None], longest: int) -> None:
        self._step, self._longest = step, longest
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def take(self, rows: Tensor, weight: Tensor, knobs: Tensor) -> None:
        """Take the steps of a turn; they are the first axis of the tensors."""
        with torch.cuda.device(weight.device):
            if not self._warm:
                self._make_room(rows, weight, knobs)
            self._load(rows, weight, knobs)
            for _ in range(len(rows)):
                if self._graph is None:
                    self._next()
                else:
                    self._graph.replay()
            if self._warm and self._graph is None:
                self._capture()
        self._warm = True

    def _make_room(self, rows: Tensor, weight: Tensor, knobs: Tensor) -> None:
        self._staging = [part.new_empty(self._longest, *part.shape[1:], pin_memory=True) for part in (rows, knobs)]
        self._rows, self._knobs = (part.cuda() for part in self._staging)
        self._weight = weight.new_empty(self._longest, *weight.shape[1:])
        self._position = torch.zeros(1, dtype=torch.int64, device="cuda")
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call] # torch's stubs

    def _load(self, rows: Tensor, weight: Tensor, knobs: Tensor) -> None:
        """Copy a turn to the device; the host waits only if the last copy is still under way."""
        n = len(rows)
        self._copied.synchronize()
        for staging, part, place in zip(self._staging, (rows, knobs), (self._rows, self._knobs), strict=True):
            staging[:n].copy_(part)
            place[:n].copy_(staging[:n], non_blocking=True)
        self._copied.record()
        self._weight[:n].copy_(weight)
        self._position.zero_()

    def _next(self) -> None:
        """Take the step that the device itself counts to."""
        parts = (part.index_select(0, self._position).squeeze(0) for part in (self._rows, self._weight, self._knobs))
        self._step(*parts)
        self._position.add_(1)

    def _capture(self) -> None:
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._next()
        self._graph = graph
