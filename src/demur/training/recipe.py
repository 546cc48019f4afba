"""The training recipe of networks for tables: AdamW on a cyclic schedule, dropout that fades, the best epoch kept.

The stacks of networks are trained in turn, a few steps at a time, so that they advance and stop together.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np

from demur.array_types import Floats, Ints
from demur.lazy_torch import Tensor, nn, torch
from demur.losses.loss import Trainable
from demur.training.cuda import GraphedSteps
from demur.training.engine import stack_size
from demur.training.jobs import Job, NetworkSpec, Trained, TrainingData
from demur.training.tabular_net import TabularNet
from demur.training.training_step import Adam, Batches, batch_shape, stacked_loss
from demur.workers import n_cores, on_workers

_STEPS_PER_TURN = 32
_ROWS_AT_A_TIME = 512
_ROWS_TO_ADAPT = 1024
_WIDTHS = (0.3, 0.1)
"""Distance of the search to both sides of the last epoch's temperature, in its logarithm."""


@dataclass(frozen=True)
class Recipe:
    r"""The training recipe of a :class:`TabularNet`; the defaults are those of RealMLP (Holzmüller et al. 2024).

    With t from 0 to 1 over the training, the learning rate is
    :math:`\tfrac12 (1 - \cos(2\pi \log_2(1 + 15 t)))` times ``learning_rate``: four cycles, each twice as long as the
    one before. Dropout and weight decay are constant until t = 1/2 and then fade to 0 along a cosine.

    Parameters
    ----------
    epochs : int
    batch_size : int
        Approximate batch size: the rows are divided evenly into round(n_rows / batch_size) batches.
    learning_rate : float
        Learning rate of the weights. The scales of the features have 6 times this rate, biases, blends and embeddings a
        tenth of it.
    weight_decay : float
        A step shrinks all numbers but the biases by the factor 1 - rate x decay, each with its own rate.
    dropout : float
        Share of the hidden units that are dropped in a step.
    betas : pair of float
        Decay rates of Adam's moments.
    patience : int, optional
        Stop a network after this many epochs without a lower validation loss. The learning rate rises again with every
        cycle, and the loss with it, so a patience of less than half of the epochs may stop too early.

    Examples
    --------
    >>> recipe = Recipe()
    >>> recipe.rate(np.array([0.0, 1 / 15, 1.0])).round(12) + 0.0  # the cycles end at t = 1/15, 3/15, 7/15 and 1
    array([0., 0., 0.])
    >>> recipe.fade(np.array([0.0, 0.5, 0.75, 1.0])).round(12)
    array([1. , 1. , 0.5, 0. ])
    """

    epochs: int = 256
    batch_size: int = 256
    learning_rate: float = 0.04
    weight_decay: float = 0.02
    dropout: float = 0.15
    betas: tuple[float, float] = (0.9, 0.95)
    patience: int | None = None

    def rate(self, t: Floats) -> Floats:
        """Return the factor of the learning rate at times t in [0, 1]."""
        return 0.5 - 0.5 * np.cos(2 * np.pi * np.log2(1 + 15 * t))

    def fade(self, t: Floats) -> Floats:
        """Return the factor of dropout and weight decay at times t in [0, 1]."""
        return 0.5 + 0.5 * np.cos(np.pi * np.clip(2 * t - 1, 0, 1))


@dataclass(frozen=True, eq=False)
class TabularTraining:
    """Networks after their best epochs, and their loss curves.

    Parameters
    ----------
    trained : Trained
        Every network after the epoch whose validation loss was least; after the last epoch where it has no validation
        rows.
    best_epoch : array of int
        Best epoch of each network, counted from 1; 0 if the deadline left no time for one.
    training_loss, validation_loss : arrays of shape (n_networks, n_epochs)
        The loss curves: NaN where a network had fewer epochs, or no validation rows.
    complete : bool
        False if a deadline shortened the training.
    """

    trained: Trained
    best_epoch: Ints
    training_loss: Floats
    validation_loss: Floats
    complete: bool


def train_tabular(
    loss: Trainable,
    architecture: TabularNet,
    data: TrainingData,
    networks: Sequence[NetworkSpec],
    *,
    recipe: Recipe | None = None,
    device: torch.device | str = "cpu",
    n_workers: int | None = None,
    deadline: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> TabularTraining:
    """Train every network on minibatches of its rows, and keep its best epoch on its validation rows.

    The result of a network depends on its specification, the recipe and the device, not on the other networks: all
    folds and members of a cross-fitting can be trained by one call. Only the effect of a deadline depends on the clock.

    Parameters
    ----------
    loss : Trainable
        Loss whose hyper-parameters are replaced by those in each network's ``hyper``.
    architecture : TabularNet
    data : TrainingData
        Training data. Weights are relative to the mean over a network's rows: a row of weight 2 counts as two equal
        rows.
    networks : sequence of NetworkSpec
    recipe : Recipe, optional
    device : torch.device or str
    n_workers : int, optional
        Threads; one per core by default.
    deadline : float, optional
        Time of ``time.monotonic()``. If the epochs do not fit, the rest of the schedule is compressed to end by then;
        the networks stop at that time at the latest, up to one step and one evaluation on the validation rows.
    progress : callable, optional
        Called with the number of network-epochs just finished, from any thread.

    Returns
    -------
    TabularTraining
        The trained networks, in the order of ``networks``.

    Examples
    --------
    >>> from demur.losses import get
    >>> X, y = torch.randn(90, 2), torch.randint(3, (90,))
    >>> fold = np.arange(90) % 3
    >>> specs = [
    ...     NetworkSpec(np.flatnonzero(fold != k), seed=k, validation=np.flatnonzero(fold == k)) for k in range(3)
    ... ]
    >>> net = TabularNet(2, 3, hidden_units=(16, 16))
    >>> run = train_tabular(get("ce"), net, TrainingData(X, y), specs, recipe=Recipe(epochs=4))
    >>> run.trained.scores(X).shape, run.validation_loss.shape
    (torch.Size([3, 90, 3]), (3, 4))
    """
    recipe, device = recipe or Recipe(), torch.device(device)
    data = data.to(device)
    stop, pace = threading.Event(), _Pace(deadline, len(networks))
    n_workers = 1 if device.type == "cuda" else n_workers or n_cores()
    runs = [
        _Run(Job(loss, architecture, data, [networks[position] for position in members]), members, recipe, progress)
        for members in _plan(architecture, networks, recipe, device, n_workers)
    ]
    waiting = deque(runs)

    def take_turns(worker: int) -> None:
        while not stop.is_set():
            try:
                run = waiting.popleft()
            except IndexError:
                return
            with torch.no_grad():
                if run.turn(pace, stop):
                    waiting.append(run)
        raise KeyboardInterrupt

    n_workers = min(n_workers, len(runs))
    on_workers(take_turns, range(n_workers), n_workers=n_workers, stop=stop)
    with torch.no_grad():
        return _collect(architecture, runs, len(networks), device)


def _plan(
    architecture: TabularNet,
    networks: Sequence[NetworkSpec],
    recipe: Recipe,
    device: torch.device,
    n_workers: int,
) -> list[list[int]]:
    """Put networks into one stack whose epochs have equally many steps, of equally many rows."""
    shapes: dict[tuple[int, int], list[int]] = {}
    for position, network in enumerate(networks):
        shapes.setdefault(batch_shape(len(network.rows), recipe.batch_size, even=True), []).append(position)
    chunks = []
    for (_, n_rows), members in shapes.items():
        # rounded down: workers that take turns with more stacks than workers end together
        size = min(stack_size(architecture, n_rows, device), max(1, len(members) // n_workers))
        chunks += [part.tolist() for part in np.array_split(members, ceil(len(members) / size))]
    return chunks


class _Pace:
    """Estimate of the number of steps until the deadline, at the speed so far."""

    def __init__(self, deadline: float | None, n_networks: int) -> None:
        self.deadline, self._unfinished = deadline, n_networks
        self._start, self._done, self._lock = time.monotonic(), 0, threading.Lock()

    def passed(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    def took(self, network_steps: int) -> None:
        with self._lock:
            self._done += network_steps

    def finished(self, n_networks: int) -> None:
        with self._lock:
            self._unfinished -= n_networks

    def affordable(self) -> float:
        """Return how many more steps every unfinished network can take."""
        if self.deadline is None or not self._done:
            return float("inf")
        now = time.monotonic()
        speed = self._done / max(now - self._start, 1e-9)
        return max(0.0, 0.97 * speed * (self.deadline - now) / max(self._unfinished, 1))


class _Run:
    """The training of one stack over the epochs."""

    def __init__(
        self, job: Job, members: Sequence[int], recipe: Recipe, progress: Callable[[int], None] | None
    ) -> None:
        specs, device = job.networks, job.data.X.device
        self.members, self._recipe, self._data, self._progress = tuple(members), recipe, job.data, progress
        self._step = _Step(job, recipe)
        rows, seeds = [spec.rows for spec in specs], [spec.seed for spec in specs]
        self._batches = Batches(rows, seeds, recipe.batch_size, even=True)
        self._weight = self._batches.weight.to(device)
        if job.data.weight is not None:
            means = [job.data.weight[torch.as_tensor(spec.rows, device=device)].double().mean() for spec in specs]
            self._weight = (self._weight / torch.stack(means)[:, None, None]).float()
        self._validation = _Validation(self._step, job.data, specs)
        decays = [recipe.weight_decay if spec.weight_decay is None else spec.weight_decay for spec in specs]
        self._decay = np.array(decays, np.float64)
        self._step.stack.dropping = recipe.dropout > 0
        self.epoch, self._position, self.share, self.complete = 0, 0, 0.0, True
        self._left = recipe.epochs * self._batches.n_steps
        self._graphed = GraphedSteps(self._step, min(_STEPS_PER_TURN, self._batches.n_steps), device)
        self.training_loss: list[Tensor] = []
        self.validation_loss: list[Tensor] = []
        self.best = torch.full((len(specs),), torch.inf, device=device)
        self.best_epoch = torch.zeros(len(specs), dtype=torch.int64, device=device)
        self._stopped = torch.zeros(len(specs), dtype=torch.bool, device=device)
        self.vectors = self._step.stack.vectors()

    def turn(self, pace: _Pace, stop: threading.Event) -> bool:
        """Take the next few steps; return False after the last."""
        left = 0.0 if pace.passed() else min(self._left, pace.affordable())
        self.complete = self.complete and left >= self._left
        if left < 1:
            if self._position:
                self._end_epoch()
            pace.finished(len(self.members))
            return False
        if self._position == 0:
            self._order = self._batches.shuffle()
        n = int(min(_STEPS_PER_TURN, left, self._batches.n_steps - self._position))
        t = self.share + (1 - self.share) * np.linspace(0.5, n - 0.5, n, dtype=np.float64) / left
        rate, fade = self._recipe.learning_rate * self._recipe.rate(t)[:, None], self._recipe.fade(t)[:, None]
        knobs = np.stack(np.broadcast_arrays(rate, rate * fade * self._decay, self._recipe.dropout * fade), 1)
        taken = self._steps(n, torch.from_numpy(knobs.astype(np.float32)), pace, stop)
        self.share += (1 - self.share) * taken / left
        self._left -= taken
        self._position += taken
        pace.took(taken * len(self.members))
        if self._position == self._batches.n_steps:
            self._end_epoch()
        return True

    def _steps(self, n: int, knobs: Tensor, pace: _Pace, stop: threading.Event) -> int:
        """Take n steps with these rates, decays and dropouts (n, 3, n_networks); return how many were taken in time."""
        turn = slice(self._position, self._position + n)
        rows, weight = self._order[:, turn].transpose(0, 1), self._weight[:, turn].transpose(0, 1)
        if self._data.X.is_cuda:
            self._graphed.take(rows, weight, knobs)
            if pace.deadline is not None:
                torch.cuda.synchronize()
            return n
        for k in range(n):
            if stop.is_set() or pace.passed():
                return k
            self._step(rows[k], weight[k], knobs[k])
        return n

    def _end_epoch(self) -> None:
        self.epoch += 1
        self.training_loss.append(torch.where(self._stopped, torch.nan, self._step.sum / self._position))
        self._step.sum.zero_()
        self._position = 0
        value, vectors = self._validation.look()
        value = torch.where(self._stopped, torch.nan, value)
        self.validation_loss.append(value)
        better = (value < self.best) | self._validation.without
        self.best = torch.where(better, value, self.best)
        self.best_epoch = torch.where(better, self.epoch, self.best_epoch)
        self.vectors = torch.where(better[:, None], vectors, self.vectors)
        if self._recipe.patience is not None:
            self._stopped |= self.epoch - self.best_epoch >= self._recipe.patience
            if bool(self._stopped.all()):
                self._left = 0  # as if trained alone: independent of the other networks
        if self._progress is not None:
            self._progress(len(self.members))


class _Step:
    """Forward, loss, backward, update: for all networks of a stack at once; ``sum`` adds up their losses."""

    def __init__(self, job: Job, recipe: Recipe) -> None:
        specs, device = job.networks, job.data.X.device
        self.architecture, self._data = cast(TabularNet, job.architecture), job.data
        self.stack = self.architecture.stack([spec.seed for spec in specs], len(specs), device)
        self.stack.adapt([job.data.X[_sample(spec, job.data)] for spec in specs])
        self.loss = stacked_loss(job.loss, specs, device)
        self.cost = torch.tensor([[spec.cost] for spec in specs], device=device)
        self.sum = torch.zeros(len(specs), device=device)
        self._adam = Adam(self.stack.parameters, self.stack.gradients, recipe.betas, amsgrad=False)

    def __call__(self, rows: Tensor, weight: Tensor, knobs: Tensor) -> None:
        """Train on rows (n_networks, n) with weights; the knobs are rates, decays and dropouts, (3, n_networks)."""
        x, y, weight = self._data.take(rows, weight)
        self.stack.drop.copy_(knobs[2])
        scores = self.stack.forward(x)
        self.sum.add_((self.loss.forward(scores, y, self.cost) * weight).sum(1))
        self.stack.backward(self.loss.score_gradient(scores, y, self.cost, weight))
        self.stack.decay(knobs[1])
        self._adam.step(knobs[0, 0])


def _sample(spec: NetworkSpec, data: TrainingData) -> Tensor:
    """Return a few random rows of a network, none of weight 0."""
    rows = spec.rows if data.weight is None else spec.rows[(data.weight.cpu().numpy() > 0)[spec.rows]]
    chosen = np.random.default_rng([spec.seed, 4]).permutation(rows)[:_ROWS_TO_ADAPT]
    return torch.as_tensor(chosen, device=data.X.device)


class _Validation:
    """The mean loss of every network on its validation rows.

    If the loss has a link, at its best temperature: the least along the line of scaled scores, followed from epoch to
    epoch by parabolas in the logarithm of the scale.
    """

    def __init__(self, step: _Step, data: TrainingData, specs: Sequence[NetworkSpec]) -> None:
        self._step, self._data, self._tempered = step, data, step.loss.has_link
        device = data.X.device
        rows = [np.array([] if spec.validation is None else spec.validation, np.int64) for spec in specs]
        self._rows, self._weight = (
            nn.utils.rnn.pad_sequence([torch.from_numpy(own) for own in parts], batch_first=True).to(device)
            for parts in (rows, [np.ones(len(own), np.float32) for own in rows])
        )
        self.without = self._weight.sum(1) == 0
        if data.weight is not None:
            self._weight *= data.weight[self._rows]
        self._labels = data.y[self._rows]
        self._sharpness = torch.zeros(len(specs), device=device)

    def look(self) -> tuple[Tensor, Tensor]:
        """Return the mean losses, NaN without rows, and the networks' vectors."""
        vectors = self._step.stack.vectors()
        if not self._rows.shape[1]:
            return torch.full_like(self._sharpness, torch.nan), vectors
        scores = self._scores(vectors)
        if not self._tempered:
            return self._mean_loss(scores), vectors

        def loss_at(sharpness: Tensor) -> Tensor:
            return self._mean_loss(scores * sharpness.exp()[:, None, None])

        best = loss_at(self._sharpness)
        for width in _WIDTHS:
            low, high = loss_at(self._sharpness - width), loss_at(self._sharpness + width)
            bend = low + high - 2 * best
            move = torch.where(bend > 0, width * (low - high) / (2 * bend), width * torch.sign(low - high))
            moved = self._sharpness + move.nan_to_num(0.0).clamp(-2 * width, 2 * width)
            value = loss_at(moved)
            better = value < best
            best, self._sharpness = torch.where(better, value, best), torch.where(better, moved, self._sharpness)
        return best, vectors

    def _scores(self, vectors: Tensor) -> Tensor:
        scores = []
        for start in range(0, self._rows.shape[1], _ROWS_AT_A_TIME):
            rows = self._rows[:, start : start + _ROWS_AT_A_TIME]
            x = self._data.X.index_select(0, rows.reshape(-1)).view(*rows.shape, -1)
            scores.append(self._step.architecture.scores(vectors, x))
        return torch.cat(scores, 1)

    def _mean_loss(self, scores: Tensor) -> Tensor:
        values = self._step.loss.forward(scores, self._labels, self._step.cost) * self._weight
        return torch.where(self._weight > 0, values, 0.0).sum(1) / self._weight.sum(1)


def _collect(architecture: TabularNet, runs: Sequence[_Run], n_networks: int, device: torch.device) -> TabularTraining:
    trained = Trained.empty(architecture, n_networks, device)
    n_epochs = max([run.epoch for run in runs], default=0)
    training, validation = (np.full((n_networks, n_epochs), np.nan) for _ in range(2))
    best_epoch = np.zeros(n_networks, np.int64)
    for run in runs:
        members = list(run.members)
        never = (run.best_epoch == 0) & (run.epoch > 0)  # the numbers overflowed in the first epoch
        trained.put(members, run.vectors, never | ~run.vectors.isfinite().all(1))
        best_epoch[members] = run.best_epoch.cpu().numpy()
        for curve, values in ((training, run.training_loss), (validation, run.validation_loss)):
            if values:
                curve[members, : run.epoch] = torch.stack(values, 1).double().cpu().numpy()
    return TabularTraining(trained, best_epoch, training, validation, all(run.complete for run in runs))
