"""The stacked engine: trains many independent networks as few tensor programs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from demur.errors import InputError
from demur.lazy_torch import Tensor, torch
from demur.losses import Loss
from demur.training.architecture import Architecture
from demur.training.cuda import train_with_graphs
from demur.training.fused import can_fuse, train_fused
from demur.training.jobs import Job, NetworkSpec, Trained, TrainingData
from demur.training.planning import Chunk, plan_chunks, stack_plan
from demur.training.training_step import Batches, TrainingStep, stacked_loss
from demur.workers import on_workers, single_threaded_kernels

__all__ = ["CudaPath", "train", "train_all"]

CudaPath = Literal["tf32", "tf32x3", "ieee", "graph"]
"""How networks are trained on a GPU."""


def train(
    loss: Loss,
    architecture: Architecture,
    data: TrainingData,
    networks: Sequence[NetworkSpec],
    *,
    epochs: int = 150,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    device: torch.device | str = "cpu",
    stack_size: int | None = None,
    n_workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    on_cuda: CudaPath = "tf32",
) -> Trained:
    """Train every network with AMSGrad on minibatches of its own rows.

    The result of a network depends on its specification and the device alone, not on which networks it is
    trained with, nor on the stack size. Memory stays bounded by the data, the trained vectors, and
    ``n_workers`` stacks of ``stack_size`` networks at a time, each with one shuffled copy of the rows per group of
    networks that share their batches.

    Parameters
    ----------
    loss : Loss
        Its hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : Architecture
    data : TrainingData
    networks : sequence of NetworkSpec
    epochs, batch_size : int
    learning_rate : float
    device : torch.device or str
    stack_size, n_workers : int, optional
        Chosen from the machine by default.
    progress : callable, optional
        Called with the number of network-epochs just finished, from any thread.
    on_cuda : {"tf32", "tf32x3", "ieee", "graph"}, default="tf32"
        On a GPU, networks with one hidden layer and a loss of demur's own are trained by one program each; this is how
        its products round: factors of 11 bits, of about 22, or of 24. "graph" replays the steps of the CPU instead, as
        all other networks do.

    Returns
    -------
    Trained
        In the order of ``networks``. One whose numbers overflowed is marked in ``failed`` and holds zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from demur.losses import get
    >>> from demur.training import MLP, NetworkSpec, TrainingData
    >>> X, y = torch.randn(64, 2), torch.randint(3, (64,))
    >>> grid = [NetworkSpec(np.arange(64), seed=0, weight_decay=w) for w in (1e-7, 1e-4, 1e-1)]
    >>> trained = train(get("ce"), MLP((2, 5, 3)), TrainingData(X, y), grid, epochs=2)
    >>> trained.scores(X).shape
    torch.Size([3, 64, 3])
    """
    job = Job(loss, architecture, data, networks)
    (trained,) = train_all(
        [job],
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        device=device,
        stack_size=stack_size,
        n_workers=n_workers,
        progress=progress,
        on_cuda=on_cuda,
    )
    return trained


def train_all(
    jobs: Sequence[Job],
    *,
    epochs: int = 150,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    device: torch.device | str = "cpu",
    stack_size: int | None = None,
    n_workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    on_cuda: CudaPath = "tf32",
) -> list[Trained]:
    """Train several jobs at once, as :func:`train` does each.

    Small stacks leave most of a GPU idle; stacks of different jobs then run side by side.
    """
    device = torch.device(device)
    for network in (network for job in jobs for network in job.networks):
        if any(own is not None for own in (network.validation, network.learning_rate, network.dropout)):
            raise InputError(
                "validation rows, a learning rate and dropout of a network's own are for train_tabular; leave them out."
            )
    if device.type == "cuda" and on_cuda != "graph":
        return _train_on_cuda(
            jobs, on_cuda, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, device=device,
            stack_size=stack_size, n_workers=n_workers, progress=progress,
        )  # fmt: skip
    stop = threading.Event()
    work: list[_Work] = []
    workers = [1]
    for position, job in enumerate(jobs):
        plan = stack_plan(
            job.architecture, batch_size=batch_size, n_networks=sum(len(one.networks) for one in jobs), device=device
        )
        workers.append(plan.n_workers)
        splitting = 1 if device.type == "cuda" else plan.n_workers  # a GPU prefers one large stack to several small
        chunks = plan_chunks(job.networks, stack_size=stack_size or plan.stack_size, n_workers=splitting)
        on_device = replace(job, data=job.data.to(device))
        work += [_Work(position, on_device, chunk) for chunk in chunks]
    n_workers = n_workers or (1 if any(job.architecture.one_by_one for job in jobs) else max(workers))

    def prepare(one: _Work) -> tuple[TrainingStep, Batches]:
        return one.prepare(batch_size, learning_rate, device)

    def run(one: _Work) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            step, batches = prepare(one)
            size, last = batches.batch_size, batches.n_rows
            if one.job.architecture.one_by_one and last % size == 1 and last > 1:
                last -= 1  # batch normalisation has no statistics of a single row
            for order in batches.epochs(epochs):
                x, y, weight = step.examples(order, batches.weight)
                for start in range(0, last, size):
                    if stop.is_set():
                        raise KeyboardInterrupt
                    batch = slice(start, min(start + size, last))
                    step(x[:, batch], y[:, batch], weight[:, batch])
                if progress is not None:
                    progress(len(one))
            return step.outcome()

    results = [Trained.empty(job.architecture, len(job.networks), device) for job in jobs]
    if device.type == "cuda" and all(job.architecture.graphable for job in jobs):
        with torch.no_grad(), single_threaded_kernels():
            for one, step in train_with_graphs(work, prepare, epochs, n_streams=n_workers, progress=progress):
                results[one.job_number].put(one.chunk.members, *step.outcome())
    else:
        for one, outcome in zip(work, on_workers(run, work, n_workers=n_workers, stop=stop), strict=True):
            results[one.job_number].put(one.chunk.members, *outcome)
    return results


def _train_on_cuda(
    jobs: Sequence[Job], precision: CudaPath, *, device: torch.device, epochs: int, batch_size: int,
    learning_rate: float, stack_size: int | None, n_workers: int | None, progress: Callable[[int], None] | None,
) -> list[Trained]:  # fmt: skip
    """Train the jobs that one program per network can take, and the others by graphs."""
    jobs = [replace(job, data=job.data.to(device)) for job in jobs]
    is_fused = [can_fuse(job) for job in jobs]
    results: list[Trained | None] = [None] * len(jobs)
    fused = [job for job, fits in zip(jobs, is_fused, strict=True) if fits]
    if fused:
        found = iter(
            train_fused(
                fused, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, device=device,
                precision=precision, progress=progress,
            )
        )  # fmt: skip
        for number, job in enumerate(jobs):
            if is_fused[number]:
                trained = Trained.empty(job.architecture, len(job.networks), device)
                trained.put(range(len(job.networks)), *next(found))
                results[number] = trained
    others = [job for job, fits in zip(jobs, is_fused, strict=True) if not fits]
    rest = iter(
        train_all(
            others, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, device=device,
            stack_size=stack_size, n_workers=n_workers, progress=progress, on_cuda="graph",
        )
        if others
        else []
    )  # fmt: skip
    return [next(rest) if one is None else one for one in results]


@dataclass(frozen=True, eq=False)
class _Work:
    """One chunk of one job."""

    job_number: int
    job: Job
    chunk: Chunk

    def __len__(self) -> int:
        return len(self.chunk.members)

    def prepare(self, batch_size: int, learning_rate: float, device: torch.device) -> tuple[TrainingStep, Batches]:
        members = [self.job.networks[position] for position in self.chunk.members]
        leaders = members[:: len(members) // self.chunk.n_groups]
        batches = Batches([one.rows for one in leaders], [one.seed for one in leaders], batch_size)
        stack = self.job.architecture.stack([one.seed for one in members], self.chunk.n_groups, device)
        loss = stacked_loss(self.job.loss, members, device)
        return TrainingStep(loss, stack, self.job.data, members, learning_rate), batches
