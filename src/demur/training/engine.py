"""The stacked engine: trains many independent networks as few tensor programs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import torch

from demur.losses import Loss
from demur.training.architecture import Architecture
from demur.training.batches import Batches, TrainingData
from demur.training.cuda import train_with_graphs
from demur.training.machine import schedule_for
from demur.training.networks import Chunk, Network, plan_chunks
from demur.training.step import TrainingStep
from demur.training.trained import Trained

__all__ = ["train"]


def train(
    loss: Loss,
    architecture: Architecture,
    data: TrainingData,
    networks: Sequence[Network],
    *,
    epochs: int = 150,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    device: torch.device | str = "cpu",
    stack_size: int | None = None,
    n_workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Trained:
    """Train every network with AMSGrad on minibatches of its own rows.

    The result of a network depends on its specification and the device alone, not on which networks it is
    trained with, nor on the stack size. Memory stays bounded by the data, the trained vectors, and
    ``n_workers`` stacks of ``stack_size`` networks at a time.

    Parameters
    ----------
    loss : Loss
        Its hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of Network
    epochs, batch_size : int
    learning_rate : float
    device : torch.device or str
    stack_size, n_workers : int, optional
        Chosen from the machine by default.
    progress : callable, optional
        Called with the number of network-epochs just finished, from any thread.

    Returns
    -------
    Trained
        In the order of ``networks``. One whose numbers overflowed is marked in ``failed`` and holds zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> from demur.training import MLP, Network, TrainingData
    >>> X, y = torch.randn(64, 2), torch.randint(3, (64,))
    >>> grid = [Network(np.arange(64), seed=0, weight_decay=w) for w in (1e-7, 1e-4, 1e-1)]
    >>> trained = train(get("ce"), MLP((2, 5, 3)), TrainingData(X, y), grid, epochs=2)
    >>> trained.scores(X).shape
    torch.Size([3, 64, 3])
    """
    device = torch.device(device)
    data = data.to(device)
    schedule = schedule_for(architecture, batch_size=batch_size, n_networks=len(networks), device=device)
    stack_size, n_workers = stack_size or schedule.stack_size, n_workers or schedule.n_workers
    chunks = plan_chunks(networks, stack_size=stack_size, n_workers=n_workers)
    stop = threading.Event()

    def prepare(chunk: Chunk) -> tuple[TrainingStep, Batches]:
        members = [networks[position] for position in chunk.members]
        leaders = members[:: len(members) // chunk.n_groups]
        batches = Batches([one.rows for one in leaders], [one.seed for one in leaders], batch_size)
        stack = architecture.stack([one.seed for one in members], chunk.n_groups, device)
        return TrainingStep(_stacked_loss(loss, members, device), stack, data, members, learning_rate), batches

    def run(chunk: Chunk) -> TrainingStep:
        with torch.no_grad():
            step, batches = prepare(chunk)
            size = batches.batch_size
            for order in batches.epochs(epochs):
                for start in range(0, batches.n_steps * size, size):
                    if stop.is_set():
                        raise KeyboardInterrupt
                    step(order[:, start : start + size], batches.weight[start : start + size])
                if progress is not None:
                    progress(len(chunk.members))
            return step

    results = Trained.empty(architecture, len(networks), device)
    if device.type == "cuda" and architecture.graphable:
        with torch.no_grad():
            for chunk, step in train_with_graphs(chunks, prepare, epochs, n_streams=n_workers, progress=progress):
                results.put(chunk.members, *step.outcome())
    else:
        for chunk, step in _in_parallel(run, chunks, n_workers, stop):
            results.put(chunk.members, *step.outcome())
    return results


def _stacked_loss(loss: Loss, members: Sequence[Network], device: torch.device) -> Loss:
    """Put each network's own hyper-parameters into one loss, as tensors of shape (n_networks, 1)."""
    names = {name for network in members for name in network.hyper}
    values = {
        name: torch.tensor([[network.hyper[name]] for network in members], dtype=torch.float32, device=device)
        for name in names
    }
    return replace(loss, **values)


def _in_parallel(
    run: Callable[[Chunk], TrainingStep], chunks: Sequence[Chunk], n_workers: int, stop: threading.Event
) -> Iterator[tuple[Chunk, TrainingStep]]:
    """Train the chunks on worker threads with single-threaded kernels; an interrupt ends all of them."""
    with _single_threaded_kernels():
        if n_workers == 1 or len(chunks) == 1:
            yield from ((chunk, run(chunk)) for chunk in chunks)
            return
        with ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            futures = {pool.submit(run, chunk): chunk for chunk in chunks}
            try:
                pending = set(futures)
                while pending:
                    finished, pending = wait(pending, return_when=FIRST_EXCEPTION)
                    for future in finished:
                        future.result()
            except BaseException:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise
            yield from ((chunk, future.result()) for future, chunk in futures.items())


@contextmanager
def _single_threaded_kernels() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
