"""Networks for tables, one or more per fold: trained as one stack, and compared on rows that they have not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.calibration import TemperatureScaling
from demur.errors import InputError
from demur.estimators.network_selection import (
    Candidate,
    FittedNetworks,
    GridEntry,
    best_of,
    judged,
    scaled_inputs,
    with_indicators,
)
from demur.estimators.splitting import Fold
from demur.lazy_torch import Tensor, torch
from demur.losses import Loss
from demur.rules import Decision, chow_acceptance
from demur.training import (
    NetworkSpec,
    PeriodicEmbeddings,
    Recipe,
    SmoothRobustScaler,
    TabularNet,
    Trained,
    TrainingData,
    train_tabular,
)

__all__ = ["FeatureScale", "FoldData", "FoldNetworks", "Rows", "fit_fold_networks", "recipe_for"]

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
    def robust(
        cls, X: AnyArray, weight: NDArray[np.float64] | None, indicators: NDArray[np.int64], *, scaled: bool = True
    ) -> FeatureScale:
        """Learn medians and quartiles, or with ``scaled`` false leave the features as they are."""
        joined = with_indicators(X, indicators)
        if not scaled:
            return cls(np.zeros(joined.shape[1]), np.ones(joined.shape[1]), None, indicators)
        scaler = SmoothRobustScaler()
        with np.errstate(over="ignore", invalid="ignore"):
            scaler.fit(joined.astype(np.float64), sample_weight=weight)
            scale = np.divide(1.0, scaler.scale_, out=np.full_like(scaler.scale_, np.inf), where=scaler.scale_ > 0)
        if not (np.abs(scaler.center_) < 1e150).all() or ((scale > 1e150) & np.isfinite(scale)).any():
            raise InputError(
                "a feature is too large to be standardised in double precision; rescale the features first."
            )
        return cls(scaler.center_, scale, scaler.clip, indicators)

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
    scaled : bool, default True
    """

    def __init__(
        self, rows: Rows, parts: Sequence[Fold], target: AnyArray | None = None, *, scaled: bool = True
    ) -> None:
        self.rows, self.parts = rows, parts
        weights = [None if rows.weight is None else rows.weight[train] for train, _ in parts]
        self.scales = [
            FeatureScale.robust(rows.X[train], weight, rows.incomplete, scaled=scaled)
            for (train, _), weight in zip(parts, weights, strict=True)
        ]
        self._inputs = [scale.of(rows.X) for scale in self.scales]
        target = rows.y if target is None else target
        self.data = TrainingData(
            torch.cat(self._inputs),
            torch.from_numpy(np.concatenate([target] * len(parts))),
            None if rows.weight is None else torch.from_numpy(np.tile(rows.weight, len(parts)).astype(np.float32)),
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
        mean, scale = (np.stack([getattr(self.scales[part], name) for part in part_of]) for name in ("mean", "scale"))
        return {"mean": mean, "scale": scale, "clip": self.scales[0].clip, "indicators": self.rows.incomplete}


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """The result of :func:`fit_fold_networks`.

    Parameters
    ----------
    networks : FittedNetworks
        Those of the chosen candidate, of all folds, whose scores are averaged; without a temperature.
    candidates : list of Candidate
    chosen : Candidate
    held_out_rows : array of int
    held_out_proba : array of shape (n_held_out, n_classes)
        The probabilities of these rows by the chosen networks that have not seen them.
    training_loss, validation_loss : arrays of shape (n_members, n_epochs)
    complete : bool
        False if a deadline shortened the training.
    """

    networks: FittedNetworks
    candidates: list[Candidate]
    chosen: Candidate
    held_out_rows: NDArray[np.int64]
    held_out_proba: NDArray[np.float64]
    training_loss: NDArray[np.float64]
    validation_loss: NDArray[np.float64]
    complete: bool

    def tempered(self, rows: Rows) -> FittedNetworks:
        """Return the networks with a temperature chosen on the held-out rows."""
        if not len(self.held_out_rows):
            return self.networks
        weight = None if rows.weight is None else rows.weight[self.held_out_rows]
        scaling = TemperatureScaling().fit(self.held_out_proba, rows.y[self.held_out_rows], weight)
        return replace(self.networks, temperature=scaling)


def fit_fold_networks(
    rows: Rows,
    folds: Sequence[Fold],
    grid: Sequence[GridEntry],
    seeds: Sequence[int],
    n_classes: int,
    *,
    cost: float,
    scaled: bool = True,
    embeddings: PeriodicEmbeddings | None = None,
    **training: Any,
) -> FoldNetworks:
    """Train one network per seed and entry of the grid, each on all rows but those of one fold, as one stack.

    The held-out rows of a network choose its best epoch, and those of all networks the entry of the grid, by log loss.

    Parameters
    ----------
    rows : Rows
    folds : sequence of (train, test)
        The networks take them in turn. Without any, all rows train and nothing is held out.
    grid : sequence of GridEntry
        Of a loss with a link.
    seeds : sequence of int
    n_classes : int
    cost : float
        The cost at which the risk and the coverage of the candidates are reported.
    scaled : bool
        Whether to centre and scale the features.
    embeddings : PeriodicEmbeddings, optional
        As in :class:`TabularNet`.
    **training
        Passed to :func:`demur.training.train_tabular`.
    """
    data = FoldData(rows, _parts(rows, list(folds)[: len(seeds)]), scaled=scaled)
    part_of = [number % len(data.parts) for number in range(len(seeds))] * len(grid)
    networks = [entry.network(np.empty(0, np.int64), seed, cost) for entry in grid for seed in seeds]
    specs = [data.spec(network, part) for network, part in zip(networks, part_of, strict=True)]
    loss = grid[0].loss
    net = TabularNet(data.n_inputs, loss.n_outputs(n_classes), embeddings=embeddings)
    run = train_tabular(loss, net, data.data, specs, **training)
    trained = run.trained.to("cpu")
    candidates, held_out = [], []
    for number, entry in enumerate(grid):
        own = range(number * len(seeds), (number + 1) * len(seeds))
        members = [member for member in own if not trained.failed[member]]
        which, raw = _out_of_fold(entry.loss, data, trained.take(members), [part_of[m] for m in members], n_classes)
        total = raw.sum(1, keepdims=True)
        proba = np.divide(raw, total, out=np.full_like(raw, 1 / n_classes), where=total > 0)
        decision = Decision.from_acceptance(raw.argmax(1), chow_acceptance(raw.max(1), cost))
        weight = None if rows.weight is None else rows.weight[which]
        candidates.append(judged(entry, entry.loss, members, (decision, proba), rows.y[which], weight, cost))
        held_out.append((which, proba))
    chosen = best_of(candidates)
    mine = list(chosen.members)
    fitted = FittedNetworks(
        networks=trained.take(mine), **data.scaling([part_of[m] for m in mine]), mean_of="scores", loss=chosen.loss
    )
    curves = run.training_loss[mine], run.validation_loss[mine]
    return FoldNetworks(fitted, candidates, chosen, *held_out[candidates.index(chosen)], *curves, run.complete)


def _parts(rows: Rows, folds: Sequence[Fold]) -> list[Fold]:
    """Return the rows of each fold that have a weight, without held-out rows of classes that its training side lacks.

    All rows train where no fold has two classes to train on.
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


def _out_of_fold(
    loss: Loss, data: FoldData, trained: Trained, part_of: Sequence[int], n_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the held-out rows, and their probabilities as the loss estimates them."""
    rows, estimates = [np.empty(0, np.int64)], [np.empty((0, n_classes))]
    for test, scores in data.held_out_scores(trained, part_of):
        rows.append(test)
        estimates.append(loss.inverse_link(scores.mean(0)).double().numpy())
    return np.concatenate(rows), np.concatenate(estimates)
