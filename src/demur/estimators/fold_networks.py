"""Networks for tables, one or more per fold: all trained as one stack, each judged on rows that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray
from demur.calibration import TemperatureScaling
from demur.errors import InputError
from demur.estimators.network_selection import (
    Candidate,
    FittedNetworks,
    GridEntry,
    all_diverged,
    scaled_inputs,
    with_indicators,
)
from demur.estimators.splitting import Fold
from demur.lazy_torch import torch
from demur.rules import chow_acceptance
from demur.training import NetworkSpec, Recipe, SmoothRobustScaler, TabularNet, TrainingData, train_tabular

__all__ = ["FeatureScale", "FoldNetworks", "Rows", "fit_fold_networks", "recipe_for", "tempered"]

_VISITS = 400_000
"""How many rows a network sees in all, repetitions included, on a large table."""

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
    """What networks see of the features; learnt without a look at the classes.

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
        """Return what the networks see of these rows."""
        joined = with_indicators(X, self.indicators)
        return torch.from_numpy(scaled_inputs(joined, self.mean, self.scale, self.clip))


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """What came of the training.

    Parameters
    ----------
    networks : FittedNetworks
        Those of the chosen candidate, of all folds, whose scores are averaged; without a temperature.
    candidates : list of Candidate
    chosen : Candidate
    held_out_rows : array of int
    held_out_proba : array of shape (n_held_out, n_classes)
        What the chosen networks that have not seen these rows say of them.
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


def tempered(found: FoldNetworks, rows: Rows) -> FittedNetworks:
    """Return the networks with a temperature, chosen on the rows that they have not seen."""
    if not len(found.held_out_rows):
        return found.networks
    weight = None if rows.weight is None else rows.weight[found.held_out_rows]
    scaling = TemperatureScaling().fit(found.held_out_proba, rows.y[found.held_out_rows], weight)
    return replace(found.networks, temperature=scaling)


def fit_fold_networks(
    rows: Rows,
    folds: Sequence[Fold],
    grid: Sequence[GridEntry],
    seeds: Sequence[int],
    n_classes: int,
    *,
    cost: float,
    recipe: Recipe,
    scaled: bool = True,
    hidden_units: tuple[int, ...] = (256, 256, 256),
    embeddings: Any = None,
    device: torch.device | str = "cpu",
    deadline: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> FoldNetworks:
    """Train one network per seed and entry of the grid, each on all rows but those of one fold, as one stack.

    The held-out rows of a network choose its best epoch, and those of all networks the entry of the grid, by log loss.
    How features are scaled is learnt from the rows that a network trains on.

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
        For what is reported of the candidates.
    recipe : Recipe
    scaled : bool
    hidden_units, embeddings
        As in :class:`TabularNet`.
    device, deadline, progress
        As in :func:`demur.training.train_tabular`.
    """
    everything = np.arange(len(rows.y))
    if rows.weight is not None:
        everything = everything[rows.weight > 0]
    parts = [_part(fold, everything, rows.y) for fold in list(folds)[: len(seeds)]] or [(everything, everything[:0])]
    parts = [part for part in parts if len(np.unique(rows.y[part[0]])) > 1] or [(everything, everything[:0])]
    indicators = rows.incomplete
    weights = [None if rows.weight is None else rows.weight[train] for train, _ in parts]
    scales = [
        FeatureScale.robust(rows.X[train], weight, indicators, scaled=scaled)
        for (train, _), weight in zip(parts, weights, strict=True)
    ]
    seen = [scale.of(rows.X) for scale in scales]
    data = TrainingData(
        torch.cat(seen),
        torch.from_numpy(np.tile(rows.y, len(parts))),
        None if rows.weight is None else torch.from_numpy(np.tile(rows.weight, len(parts)).astype(np.float32)),
    )
    fold_of = [number % len(parts) for number in range(len(seeds))]
    specs = [
        _spec(entry, parts[fold], fold * len(rows.y), seed, cost)
        for entry in grid
        for seed, fold in zip(seeds, fold_of, strict=True)
    ]
    loss = grid[0].loss
    net = TabularNet(data.X.shape[1], loss.n_outputs(n_classes), hidden_units, embeddings)
    run = train_tabular(loss, net, data, specs, recipe=recipe, device=device, deadline=deadline, progress=progress)
    trained = run.trained.to("cpu")
    if bool(trained.failed.all()):
        raise all_diverged(len(specs), loss.name)
    best: tuple[Candidate, NDArray[np.int64], NDArray[np.float64]] | None = None
    candidates = []
    for number, entry in enumerate(grid):
        members = [number * len(seeds) + m for m in range(len(seeds)) if not trained.failed[number * len(seeds) + m]]
        held_out, proba, raw = _out_of_fold(entry, trained, members, fold_of, parts, seen, len(seeds), n_classes)
        candidate = _judged(entry, members, rows, held_out, proba, raw, cost)
        candidates.append(candidate)
        if best is None or best[0].failed or (candidate.log_loss or 0.0) < (best[0].log_loss or 0.0):
            best = candidate, held_out, proba
    assert best is not None
    chosen, held_out, proba = best
    mine = list(chosen.members)
    folds_of_mine = [fold_of[m % len(seeds)] for m in mine]
    mean, scale = (np.stack([getattr(scales[fold], name) for fold in folds_of_mine]) for name in ("mean", "scale"))
    networks = FittedNetworks(
        trained.take(mine), mean, scale, scales[0].clip, indicators, "scores", loss=chosen.loss
    )  # fmt: skip
    curves = run.training_loss[mine], run.validation_loss[mine]
    return FoldNetworks(networks, candidates, chosen, held_out, proba, *curves, run.complete)


def _part(fold: Fold, everything: NDArray[np.int64], y: NDArray[np.int64]) -> Fold:
    """Return the rows of a fold that count, without held-out rows of classes that its training part does not have."""
    train, test = (part[np.isin(part, everything)] for part in fold)
    return train, test[np.isin(y[test], np.unique(y[train]))]


def _spec(entry: GridEntry, part: Fold, offset: int, seed: int, cost: float) -> NetworkSpec:
    train, test = part
    validation = test + offset if len(test) else None
    return replace(entry.network(train + offset, seed, cost), validation=validation)


def _out_of_fold(
    entry: GridEntry,
    trained: Any,
    members: Sequence[int],
    fold_of: Sequence[int],
    parts: Sequence[Fold],
    seen: Sequence[torch.Tensor],
    n_seeds: int,
    n_classes: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return the held-out rows, their probabilities divided by their sum, and as the loss estimates them."""
    held_out, estimates = [np.empty(0, np.int64)], [np.empty((0, n_classes))]
    for fold, (_, test) in enumerate(parts):
        own = [m for m in members if fold_of[m % n_seeds] == fold]
        if len(test) and own:
            scores = trained.take(own).scores(seen[fold][torch.from_numpy(test)])
            held_out.append(test)
            estimates.append(entry.loss.inverse_link(scores.mean(0)).double().numpy())
    raw = np.concatenate(estimates)
    total = raw.sum(1, keepdims=True)
    proba = np.divide(raw, total, out=np.full_like(raw, 1 / n_classes), where=total > 0)
    return np.concatenate(held_out), proba, raw


def _judged(
    entry: GridEntry,
    members: Sequence[int],
    rows: Rows,
    held_out: NDArray[np.int64],
    proba: NDArray[np.float64],
    raw: NDArray[np.float64],
    cost: float,
) -> Candidate:
    if not members:
        return Candidate(entry.loss, entry.weight_decay, (), np.inf, np.nan, failed=True, log_loss=np.inf)
    if not len(held_out):
        nothing = np.nan
        return Candidate(entry.loss, entry.weight_decay, tuple(members), nothing, nothing, failed=False)
    weight = np.ones(len(held_out)) if rows.weight is None else rows.weight[held_out]
    labels = rows.y[held_out]
    reject = chow_acceptance(raw.max(1), cost) <= 0
    wrong = ~reject & (raw.argmax(1) != labels)
    log_loss = -np.log(np.maximum(proba[np.arange(len(labels)), labels], 1e-12))
    return Candidate(
        entry.loss,
        entry.weight_decay,
        tuple(members),
        float(np.average(wrong + cost * reject, weights=weight)),
        float(1 - np.average(reject, weights=weight)),
        failed=False,
        log_loss=float(np.average(log_loss, weights=weight)),
    )
