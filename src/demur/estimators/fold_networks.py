"""Networks for tables, one or more per fold: trained as one stack, and compared on rows that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

from demur.array_types import AnyArray, ByName
from demur.calibration import TemperatureScaling
from demur.errors import InputError
from demur.estimators.network_selection import (
    Candidate,
    FittedNetworks,
    GridEntry,
    HeldOut,
    best_of,
    judged,
    scaled_inputs,
    with_indicators,
)
from demur.estimators.splitting import Fold
from demur.lazy_torch import Tensor, torch
from demur.losses import Loss
from demur.training import (
    NetworkSpec,
    PeriodicEmbeddings,
    Recipe,
    SmoothRobustScaler,
    TabularNet,
    TabularTraining,
    Trained,
    TrainingData,
    train_tabular,
)

__all__ = [
    "FeatureScale",
    "FoldData",
    "FoldNetworks",
    "Rows",
    "Trainer",
    "fit_fold_networks",
    "parts_of",
    "recipe_for",
    "train_for_tables",
]

_VISITS = 400_000
"""Training examples that a network sees in all epochs together, on a large table."""

_MOST_EPOCHS, _FEWEST_EPOCHS = 64, 6


def recipe_for(n_rows: int, *, epochs: int | None = None, batch_size: int | None = None, **others: Any) -> Recipe:
    """Return the recipe for so many rows: smaller batches on small tables, fewer epochs on large ones.

    Examples
    --------
    >>> [(recipe.epochs, recipe.batch_size) for recipe in map(recipe_for, (120, 800, 12_000, 300_000))]
    [(64, 32), (64, 64), (33, 256), (6, 256)]
    """
    own_epochs = int(np.clip(_VISITS // max(n_rows, 1), _FEWEST_EPOCHS, _MOST_EPOCHS))
    own_size = int(np.clip(2 ** np.floor(np.log2(max(n_rows, 1) / 10)), 32, 256))
    given = {name: value for name, value in others.items() if value is not None}
    return Recipe(epochs=epochs or own_epochs, batch_size=batch_size or own_size, **given)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to learn from: features that may be missing (NaN), numbers of classes, and weights or None."""

    X: AnyArray
    y: NDArray[np.int64]
    weight: NDArray[np.float64] | None = None

    @property
    def incomplete(self) -> NDArray[np.int64]:
        """Which features are missing in some row."""
        return np.flatnonzero(np.isnan(self.X).any(axis=0))


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """Scaling of features to network inputs, fitted without the labels.

    Parameters
    ----------
    mean, scale : arrays of shape (n_inputs,)
    clip : float or None
        Where the scaled values are smoothly clipped.
    indicators : array of int
        Features for which a column tells where they are missing.
    """

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    clip: float | None
    indicators: NDArray[np.int64]

    @classmethod
    def learn(
        cls,
        X: AnyArray,
        weight: NDArray[np.float64],
        *,
        indicators: NDArray[np.int64],
        scaled: bool,
        robust: bool,
    ) -> FeatureScale:
        """Learn medians and quartiles, or means and standard deviations, or leave the features as they are."""
        joined = with_indicators(X, indicators).astype(np.float64)
        mean, scale, clip = np.zeros(joined.shape[1]), np.ones(joined.shape[1]), None
        with np.errstate(over="ignore", invalid="ignore"):
            if scaled and robust:
                scaler = SmoothRobustScaler().fit(joined, sample_weight=weight)
                mean, clip = scaler.center_, scaler.clip
                scale = np.divide(1.0, scaler.scale_, out=np.full_like(mean, np.inf), where=scaler.scale_ > 0)
            elif scaled:
                scaler = StandardScaler().fit(joined, sample_weight=weight)
                mean, scale = scaler.mean_, scaler.scale_
        if not (np.abs(mean) < 1e150).all() or (np.isfinite(scale) & (scale > 1e150)).any() or np.isnan(scale).any():
            raise InputError(
                "a feature is too large to be standardised in double precision; rescale the features first."
            )
        return cls(mean, scale, clip, indicators)

    def of(self, X: AnyArray) -> torch.Tensor:
        """Return the inputs of the networks for these rows."""
        joined = with_indicators(X, self.indicators)
        return torch.from_numpy(scaled_inputs(joined, self.mean, self.scale, self.clip))


class FoldData:
    """Rows as the networks of each part of a split see them, stacked so that all networks train as one stack.

    The scaling is fitted on the training rows of each part.

    Parameters
    ----------
    rows : Rows
    parts : sequence of (train, test)
        Row numbers.
    target : array of shape (n_rows, ...), optional
        What the loss takes as the target of a row; the classes by default.
    scaled, robust : bool
        Whether the features are scaled; by medians and quartiles if ``robust``, else by means and standard deviations.
    """

    def __init__(
        self,
        rows: Rows,
        parts: Sequence[Fold],
        target: AnyArray | None = None,
        *,
        scaled: bool = True,
        robust: bool = True,
    ) -> None:
        self.rows, self.parts = rows, parts
        self.weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
        learn = partial(FeatureScale.learn, indicators=rows.incomplete, scaled=scaled, robust=robust)
        self.scales = [learn(rows.X[train], self.weight[train]) for train, _ in parts]
        self._inputs = [scale.of(rows.X) for scale in self.scales]
        relative = np.concatenate([self.weight / self.weight[train].mean() for train, _ in parts])
        self.data = TrainingData(
            torch.cat(self._inputs),
            torch.from_numpy(np.concatenate([rows.y if target is None else target] * len(parts))),
            None if rows.weight is None else torch.from_numpy(relative.astype(np.float32)),
        )

    @property
    def n_inputs(self) -> int:
        """The number of inputs of a network."""
        return int(self.data.X.shape[1])

    def spec(self, network: NetworkSpec, part: int) -> NetworkSpec:
        """Return a specification for the rows of a part, which hold out the rows of its test side."""
        train, test = self.parts[part]
        offset = part * len(self.rows.y)
        return replace(network, rows=train + offset, validation=test + offset if len(test) else None)

    def held_out_scores(self, trained: Trained, part_of: Sequence[int]) -> list[tuple[NDArray[np.int64], Tensor]]:
        """Return the held-out rows of each part, and their scores by the networks that have not seen them.

        ``part_of`` gives the part of each network; the scores have the shape (n_networks of the part, n_rows,
        n_outputs).
        """
        found = []
        for part, (_, test) in enumerate(self.parts):
            own = [number for number, of in enumerate(part_of) if of == part]
            if len(test) and own:
                found.append((test, trained.take(own).scores(self._inputs[part][torch.from_numpy(test)])))
        return found

    def scaling(self, part_of: Sequence[int]) -> ByName:
        """Return the arguments of :class:`ScaledNetworks` that scale the inputs of networks of these parts."""
        scales = [self.scales[part] for part in part_of]
        mean, scale = np.stack([one.mean for one in scales]), np.stack([one.scale for one in scales])
        if len(set(part_of)) == 1:
            mean, scale = mean[0], scale[0]
        return {"mean": mean, "scale": scale, "clip": scales[0].clip, "indicators": self.rows.incomplete}


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """The result of :func:`fit_fold_networks`.

    Parameters
    ----------
    networks : FittedNetworks
        Those of the chosen candidate, of all parts; without a temperature.
    candidates : list of Candidate
    chosen : Candidate
    held_out : HeldOut
        The held-out rows, and what the chosen networks that have not seen them decide.
    run : TabularTraining or None
        Loss curves of all networks, of :func:`demur.training.train_tabular` only.
    """

    networks: FittedNetworks
    candidates: list[Candidate]
    chosen: Candidate
    held_out: HeldOut
    run: TabularTraining | None

    def temperature(self) -> TemperatureScaling | None:
        """Return the temperature that the held-out rows choose, None where there are none."""
        found = self.held_out
        return TemperatureScaling().fit(found.scores, found.y, found.weight) if len(found.y) else None


Trainer: TypeAlias = "Callable[[Loss, FoldData, int, Sequence[NetworkSpec]], Trained | TabularTraining]"
"""Trains networks with a loss, on data, with a number of outputs, by their specifications."""


def fit_fold_networks(
    data: FoldData,
    grid: Sequence[GridEntry],
    seeds: Sequence[int],
    n_classes: int,
    cost: float,
    train: Trainer,
    mean_of: Literal["proba", "scores"] = "scores",
) -> FoldNetworks:
    """Train one network per seed and entry of the grid, each on one part of the data, all as one stack.

    The held-out rows of all networks choose the entry of the grid, and the loss that decides with its scores.

    Parameters
    ----------
    data : FoldData
        The networks take its parts in turn.
    grid : sequence of GridEntry
    seeds : sequence of int
    n_classes : int
    cost : float
        The cost at which the candidates decide.
    train : callable
        See :data:`Trainer`.
    mean_of : {"proba", "scores"}
        As in :class:`ScaledNetworks`.
    """
    part_of = [number % len(data.parts) for number in range(len(seeds))] * len(grid)
    networks = [entry.network(np.empty(0, np.int64), seed, cost) for entry in grid for seed in seeds]
    specs = [data.spec(network, part) for network, part in zip(networks, part_of, strict=True)]
    run = train(grid[0].loss, data, grid[0].loss.n_outputs(n_classes), specs)
    trained = run.trained.to("cpu") if isinstance(run, TabularTraining) else run
    failed = trained.failed.tolist()

    def fitted(loss: Loss, members: Sequence[int]) -> FittedNetworks:
        scaling = data.scaling([part_of[member] for member in members])
        return FittedNetworks(networks=trained.take(members), **scaling, mean_of=mean_of, loss=loss)

    def held_out(loss: Loss, members: Sequence[int]) -> HeldOut:
        rows, found = [np.empty(0, np.int64)], [(np.empty(0, np.int64), np.empty(0, bool), np.empty((0, n_classes)))]
        for part, (_, test) in enumerate(data.parts):
            own = [member for member in members if part_of[member] == part]
            if own and len(test):
                decision, scores = fitted(loss, own).decide_and_score(data.rows.X[test], cost, n_classes)
                rows.append(test)
                found.append((decision.label, decision.reject, scores))
        which = np.concatenate(rows)
        return HeldOut(which, data.rows.y[which], *map(np.concatenate, zip(*found, strict=True)), data.weight[which])

    candidates, outcomes = [], []
    for number, entry in enumerate(grid):
        own = range(number * len(seeds), (number + 1) * len(seeds))
        members = [member for member in own if not failed[member]]
        for loss in entry.deciders:
            outcomes.append(held_out(loss, members))
            candidates.append(judged(entry, loss, members, outcomes[-1], cost))
    chosen = best_of(candidates)
    return FoldNetworks(
        fitted(chosen.loss, chosen.members), candidates, chosen, outcomes[candidates.index(chosen)],
        run if isinstance(run, TabularTraining) else None,
    )  # fmt: skip


def train_for_tables(embeddings: PeriodicEmbeddings | None = None, **training: Any) -> Trainer:
    """Return how networks for tables are trained.

    Parameters
    ----------
    embeddings : PeriodicEmbeddings, optional
        As in :class:`TabularNet`.
    **training
        Passed to :func:`demur.training.train_tabular`.
    """

    def train(loss: Loss, data: FoldData, n_outputs: int, specs: Sequence[NetworkSpec]) -> TabularTraining:
        net = TabularNet(data.n_inputs, n_outputs, embeddings=embeddings)
        return train_tabular(loss, net, data.data, specs, **training)

    return train


def parts_of(rows: Rows, folds: Sequence[Fold]) -> list[Fold]:
    """Return the rows of each fold that have a weight, without held-out rows of classes that its training side lacks.

    All rows train, and nothing is held out, where no fold has two classes to train on.
    """
    everything = np.arange(len(rows.y))
    if rows.weight is not None:
        everything = everything[rows.weight > 0]
    parts = []
    for fold in folds:
        train, test = (side[np.isin(side, everything)] for side in fold)
        known = np.unique(rows.y[train])
        if len(known) > 1:
            parts.append((train, test[np.isin(rows.y[test], known)]))
    return parts or [(everything, everything[:0])]
