"""Networks on folds: the grid of hyper-parameters, training as one stack, the choice on held-out rows, the result."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from sklearn.preprocessing import StandardScaler

from demur.array_types import AnyArray, ByName, CostLike, Floats, Ints, Mask
from demur.calibration import TemperatureScaling, at_temperature, softmax_at
from demur.errors import InputError
from demur.estimators.base import Examples
from demur.estimators.splitting import Fold
from demur.lazy_torch import Tensor, torch
from demur.losses import Loss, resolve
from demur.losses.loss import Trainable
from demur.margins import own_fact
from demur.rules import Decision, chow_acceptance, library_of
from demur.training import (
    NetworkSpec,
    PeriodicEmbeddings,
    Pieces,
    Recipe,
    TabularNet,
    TabularTraining,
    Trained,
    TrainingData,
    robust_scale,
    train_tabular,
)
from demur.training.architecture import Numbers
from demur.training.robust_scaling import CLIP
from demur.workers import on_workers

_ROWS_AT_A_TIME = 1 << 10
"""Number of rows that are computed at a time, so that the activations fit into the processor's cache."""


@dataclass(frozen=True)
class GridEntry:
    """One combination of hyper-parameters to train, and the losses that can decide with its scores."""

    loss: Loss
    weight_decay: float
    hyper: dict[str, float]
    deciders: tuple[Loss, ...]

    def network(self, rows: Ints, seed: int, cost: float) -> NetworkSpec:
        """Return the specification of a network with these hyper-parameters."""
        return NetworkSpec(rows, seed, self.weight_decay, cost, self.hyper)


@dataclass(frozen=True)
class Candidate:
    """Hyper-parameters that were tried, and their results on held-out rows; a log loss only for losses with a link."""

    loss: Loss
    weight_decay: float
    members: tuple[int, ...]
    risk: float
    coverage: float
    failed: bool
    log_loss: float | None = None


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Classes and weights of rows that networks have not seen, and their decisions for these rows.

    Parameters
    ----------
    y, label : arrays of int
    reject : array of bool
    scores : array of shape (n_rows, n_classes)
        Normalised probabilities, or the scores of losses without a link.
    weight : array
    """

    y: Ints
    label: Ints
    reject: Mask
    scores: Floats
    weight: Floats


class AnswersNothingWarning(UserWarning):
    """Warning that a fitted model declines every row at its cost."""


def warn_if_nothing_answered(chosen: Candidate, cost: float) -> None:
    """Warn if the chosen networks answered none of the held-out rows."""
    if chosen.coverage == 0:
        warnings.warn(
            f"the chosen networks decline every held-out row at the cost {cost:g}: no answer has a confidence above "
            f"{1 - cost:.0%}. Train longer (epochs), give more rows, or use a higher cost.",
            AnswersNothingWarning,
            stacklevel=3,
        )


def all_diverged(loss: str) -> InputError:
    """Return the error for a training in which every network diverged."""
    return InputError(
        "all networks diverged: their weights overflowed. Lower learning_rate, standardise the features, or choose "
        f"another loss than {loss!r}."
    )


def grid_of(loss: str | Loss, n_classes: int, weight_decay: float | Sequence[float], cost: float) -> list[GridEntry]:
    """Return all combinations to train.

    A loss given by name or as "file.py:Class" has its own candidates (beta, tau); a :class:`Loss` object is used
    unchanged.
    """
    named = isinstance(loss, str)
    base = resolve(loss).for_classes(n_classes)
    decays = np.atleast_1d(np.asarray(weight_decay))
    if not decays.size or decays.dtype.kind not in "iuf" or not ((decays >= 0) & (decays < np.inf)).all():
        raise InputError(f"weight_decay must be one or more numbers of at least 0, got {weight_decay!r}.")
    entries: list[GridEntry] = []
    for variant in base.variants_to_train() if named else [base]:
        hyper = {name: float(value) for name, value in variant.hyper_values(n_classes, cost).items()}
        if any(hyper and np.isclose(hyper["beta"], entry.hyper["beta"], rtol=1e-12) for entry in entries):
            continue  # with two classes all sides of Corollary 5 agree
        deciders = tuple(variant.variants_to_decide()) if named else (variant,)
        entries += [GridEntry(variant, float(decay), hyper, deciders) for decay in decays.ravel()]
    return entries


def judged(entry: GridEntry, loss: Loss, members: Sequence[int], held_out: HeldOut, cost: float) -> Candidate:
    """Return the results of networks on held-out rows.

    The risk is computed from counts, so that equally good candidates have exactly equal risks.

    Parameters
    ----------
    entry : GridEntry
    loss : Loss
        The one that decides.
    members : sequence of int
        The networks that did not diverge.
    held_out : HeldOut
    cost : float
    """
    y, reject, weights = held_out.y, held_out.reject, held_out.weight
    if not len(y):
        risk = np.nan if members else np.inf
        return Candidate(loss, entry.weight_decay, tuple(members), risk, np.nan, failed=not members, log_loss=risk)
    wrong = weights @ (~reject & (held_out.label != y)) / weights.sum()
    rejected = weights @ reject / weights.sum()
    log_loss = None
    if loss.has_link:
        true_class = held_out.scores[np.arange(len(y)), y]
        log_loss = float(np.average(-np.log(np.maximum(true_class, 1e-12)), weights=weights))
    risk, coverage = float(wrong + cost * rejected), float(1 - rejected)
    return Candidate(loss, entry.weight_decay, tuple(members), risk, coverage, failed=False, log_loss=log_loss)


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate of least log loss for losses with a link, else of least risk; the first of equals.

    For losses with a link, the 0-1-c risk at one cost is a poor criterion: with few rows, declining every row is hard
    to beat, and the network serves every cost.

    Raises
    ------
    InputError
        If all networks diverged.
    """
    usable = [one for one in candidates if not one.failed]
    if not usable:
        raise all_diverged(candidates[0].loss.name)
    return min(usable, key=lambda one: one.risk if one.log_loss is None else one.log_loss)


def with_indicators(X: Numbers, indicators: Ints | None) -> Numbers:
    """Return the features, followed by a column for each of some of them that is 1 where it is missing.

    Examples
    --------
    >>> with_indicators(np.array([[1.0, np.nan]]), np.array([1]))
    array([[ 1., nan,  1.]])
    """
    if indicators is None or not len(indicators):
        return X
    library, own = library_of(X), X[:, indicators]
    missing = library.where(library.isnan(own), library.ones_like(own), library.zeros_like(own))
    joined: Numbers = library.concatenate([X, missing], 1)
    return joined


def scaled_inputs(X: Numbers, mean: Floats, scale: Floats, clip: float | None) -> Numbers:
    """Centre and scale in double precision, and clip smoothly to (-clip, clip); missing values become 0.

    Arrays and tensors are scaled alike, so that torch can translate these operations to ONNX.

    Examples
    --------
    >>> scaled_inputs(np.array([[3.0], [np.nan]]), np.array([1.0]), np.array([2.0]), None).ravel()
    array([1., 0.], dtype=float32)
    """
    library = library_of(X)
    with np.errstate(over="ignore"):
        values = (X - library.asarray(mean)) / library.asarray(scale)
        if clip is not None:
            values = library.clip(values, -1e100, 1e100)
            values = values / library.sqrt(1 + (values / clip) ** 2)
        values = library.where(library.isnan(values), 0.0, values)
        single: Numbers = values.astype(np.float32) if library is np else values.float()
        return single


@dataclass(frozen=True, eq=False)
class ScaledNetworks:
    """Fitted networks, from raw features to scores.

    Parameters
    ----------
    networks : Trained
    mean, scale : arrays of shape (n_inputs,) or (n_members, n_inputs)
        The centre and the scale of the inputs, of each member if they differ.
    clip : float, optional
        The scaled inputs are clipped smoothly to (-clip, clip).
    indicators : array of int, optional
        Features with an additional input that is 1 where the feature is missing; these inputs come last.
    mean_of : {"proba", "scores"}
        Quantity that is averaged over the members. The mean of the probabilities of calibrated members is
        underconfident; the mean of their scores is not.
    pieces : Pieces, optional
        Further inputs, after the indicators.
    """

    networks: Trained
    mean: Floats
    scale: Floats
    clip: float | None = None
    indicators: Ints | None = None
    mean_of: Literal["proba", "scores"] = "proba"
    pieces: Pieces | None = None

    def over_pieces(self, X: AnyArray, function: Callable[[AnyArray], tuple[AnyArray, ...]]) -> tuple[AnyArray, ...]:
        """Apply a function to the scores (n_members, n_rows, n_outputs), some rows at a time.

        The function returns arrays with one entry per row, which are concatenated.
        """

        def results(rows: AnyArray) -> tuple[AnyArray, ...]:
            with np.errstate(all="ignore"):  # decisions handle scores that overflow
                return function(self.scores(rows))

        if len(X) <= _ROWS_AT_A_TIME:
            return results(X)
        pieces = [X[start : start + _ROWS_AT_A_TIME] for start in range(0, len(X), _ROWS_AT_A_TIME)]
        return tuple(map(np.concatenate, zip(*on_workers(results, pieces), strict=True)))

    def of_scores(self, X: AnyArray, function: Callable[[Tensor], Tensor]) -> AnyArray:
        """Apply a function of the scores as a tensor (n_members, n_rows, n_outputs) to all rows."""
        return self.over_pieces(X, lambda scores: (function(torch.from_numpy(scores)).numpy(),))[0]

    def scores(self, rows: Numbers) -> Numbers:
        """Return the scores of rows in an array or a tensor, of shape (n_members, n_rows, n_outputs)."""
        mean, scale = (one if one.ndim == 1 else one[:, None] for one in (self.mean, self.scale))
        joined = with_indicators(rows, self.indicators)
        joined = joined if self.pieces is None else self.pieces.beside(joined)
        inputs: Any = scaled_inputs(joined, mean, scale, self.clip)
        scores: Any
        if isinstance(inputs, np.ndarray):
            scores = self.networks.scores_of_arrays(inputs)
        else:
            scores = self.networks.scores(inputs).double()
        return scores.mean(0, keepdims=True) if self.mean_of == "scores" else scores  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedNetworks(ScaledNetworks):
    """Fitted networks, from raw features to decisions.

    Parameters
    ----------
    loss : Loss
    temperature : TemperatureScaling, optional
    """

    loss: Loss
    temperature: TemperatureScaling | None = None

    def proba(self, X: AnyArray) -> AnyArray:
        """Return the class probabilities in float64, averaged over the members and divided by their sum."""
        return self.over_pieces(X, self.label_confidence_proba)[2]

    def _estimates(self, scores: Any) -> Any:
        """Return the inverse link of the scores, averaged over the members and calibrated: (n_rows, n_classes)."""
        if own_fact(self.loss, "softmax_link"):
            proba: Any = softmax_at(scores, 1.0)
        else:
            proba = _of_tensors(self.loss.inverse_link, scores)
        proba = proba[0] if len(proba) == 1 else proba.mean(0)
        if self.temperature is None:
            return proba
        # in double precision, where small probabilities do not underflow
        return at_temperature(_doubles(proba), self.temperature.temperature_)

    def decide_and_score(self, X: AnyArray, cost: CostLike, n_classes: int) -> tuple[Decision[AnyArray], Floats]:
        """Return the decisions and one score per class: normalised probabilities, or scores for losses without a link.

        Decisions are those of the averaged probabilities, or of the loss's own rule where there are none.
        """
        if self.loss.has_link:
            label, confidence, scores = self.over_pieces(X, self.label_confidence_proba)
            acceptance = chow_acceptance(confidence, np.asarray(cost, dtype=np.float64))
            return Decision.from_acceptance(label, acceptance, confidence), scores

        def by_rule(scores: AnyArray) -> tuple[AnyArray, ...]:
            own = torch.from_numpy(scores[0])
            found, of_classes = self.loss.rule(own, float(np.ravel(cost)[0])), self.loss.class_scores(own, n_classes)
            return tuple(part.numpy() for part in (found.label, found.acceptance, found.confidence, of_classes))

        label, acceptance, confidence, scores = self.over_pieces(X, by_rule)
        return Decision.from_acceptance(label, acceptance, confidence), scores.astype(np.float64)

    def label_confidence_proba(self, scores: Any) -> tuple[Any, Any, Any]:
        """Return the likeliest class (of the largest mean score in a tie), its estimate, and all the estimates."""
        library, proba = library_of(scores), self._estimates(scores)
        confidence = library.amax(proba, axis=1)
        likeliest = proba == confidence[:, None]
        if library is np and (likeliest.sum(axis=1) == 1).all():
            label = likeliest.argmax(axis=1)
        else:
            by_class = _of_tensors(lambda own: self.loss.class_scores(own, proba.shape[1]), scores).mean(0)
            label = library.where(likeliest, by_class, -np.inf).argmax(axis=1)
        return label, confidence, _normalised(proba)


def _of_tensors(function: Callable[[Tensor], Tensor], values: Any) -> Any:
    """Apply a function of tensors to an array or a tensor, and return the same kind."""
    return function(torch.from_numpy(values)).numpy() if isinstance(values, np.ndarray) else function(values)


def _doubles(values: Any) -> Any:
    return values.astype(np.float64, copy=False) if isinstance(values, np.ndarray) else values.double()


def _normalised(estimates: Any) -> Any:
    """Return probabilities in double precision, each row divided by its sum; equal ones where the sum is 0."""
    library, proba = library_of(estimates), _doubles(estimates)
    total = proba.sum(axis=1, keepdims=True)
    return library.where(total == 0, 1 / proba.shape[1], proba / library.where(total == 0, 1.0, total))


_VISITS = 400_000
"""Number of training examples of a network over all epochs, on a large table."""

_MOST_EPOCHS, _FEWEST_EPOCHS = 64, 6


def recipe_for(n_rows: int, *, epochs: int | None = None, batch_size: int | None = None, **others: Any) -> Recipe:
    """Return the recipe for so many rows: smaller batches on small tables, fewer epochs on large ones.

    Examples
    --------
    >>> [(recipe.epochs, recipe.batch_size) for recipe in map(recipe_for, (120, 800, 12_000, 300_000))]
    [(64, 32), (64, 64), (33, 256), (6, 256)]
    """
    own_epochs = int(np.clip(_VISITS // n_rows, _FEWEST_EPOCHS, _MOST_EPOCHS))
    own_size = int(np.clip(2 ** np.floor(np.log2(n_rows / 10)), 32, 256))
    given = {name: value for name, value in others.items() if value is not None}
    return Recipe(epochs=epochs or own_epochs, batch_size=batch_size or own_size, **given)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows to learn from: features that may be missing (NaN), numbers of classes, and weights or None."""

    X: AnyArray
    y: Ints
    weight: Floats | None = None

    @classmethod
    def of(cls, examples: Examples) -> Rows:
        """Return the rows of examples, without weights if all are equal."""
        weight = examples.weight
        return cls(examples.X, examples.y, None if (weight == weight[0]).all() else weight)

    @property
    def incomplete(self) -> Ints:
        """Which features are missing in some row."""
        return np.flatnonzero(np.isnan(self.X).any(axis=0))


def _learn_scale(X: AnyArray, weight: Floats, *, scaled: bool, robust: bool) -> tuple[Floats, Floats, float | None]:
    """Return centre and scale of each input, and where the scaled inputs are smoothly clipped."""
    mean, scale, clip = np.zeros(X.shape[1]), np.ones(X.shape[1]), None
    with np.errstate(over="ignore", invalid="ignore"):
        if scaled and robust:
            mean, scale = robust_scale(X.astype(np.float64), weight)
            clip = CLIP
        elif scaled:
            scaler = StandardScaler().fit(X.astype(np.float64), sample_weight=weight)
            mean, scale = scaler.mean_, scaler.scale_
    if not (np.abs(mean) < 1e150).all() or (np.isfinite(scale) & (scale > 1e150)).any() or np.isnan(scale).any():
        raise InputError("a feature is too large to be standardised in double precision; rescale the features first.")
    return mean, scale, clip


class FoldData:
    """Rows scaled for the networks of each part of a split, stacked so that all networks train as one stack.

    The scaling is fitted on the training rows of each part.

    Parameters
    ----------
    rows : Rows
    parts : sequence of (train, test)
        Row numbers.
    target : array of shape (n_rows, ...), optional
        Target of each row for the loss; the classes by default.
    scaled, robust : bool
        Whether the features are scaled; by medians and quartiles if ``robust``, else by means and standard deviations.
    pieces : bool
        Whether the networks of every second part also get :class:`Pieces` of the features, which help to learn
        thresholds. The two kinds of networks together are better than either alone.
    """

    def __init__(
        self,
        rows: Rows,
        parts: Sequence[Fold],
        target: AnyArray | None = None,
        *,
        scaled: bool = True,
        robust: bool = True,
        pieces: bool = False,
    ) -> None:
        self.rows, self.parts = rows, parts
        self.weight = np.ones(len(rows.y)) if rows.weight is None else rows.weight
        joined = with_indicators(rows.X, rows.incomplete)
        self._pieces = Pieces.learn(joined, rows.y, self.weight, [train for train, _ in parts]) if pieces else []
        self._pieces[1::2] = [replace(one, width=np.full_like(one.width, np.inf)) for one in self._pieces[1::2]]
        self._scales, inputs = [], []
        for number, (train, _) in enumerate(parts):
            values = self._pieces[number].beside(joined) if pieces else joined
            self._scales.append(_learn_scale(values[train], self.weight[train], scaled=scaled, robust=robust))
            inputs.append(torch.from_numpy(scaled_inputs(values, *self._scales[-1])))
        relative = np.concatenate([self.weight / self.weight[train].mean() for train, _ in parts])
        self.data = TrainingData(
            torch.cat(inputs),
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

    def scaling(self, part_of: Sequence[int]) -> ByName:
        """Return the arguments of :class:`ScaledNetworks` that scale the inputs of networks of these parts."""

        def own(of_parts: Sequence[Floats]) -> Floats:
            chosen = [of_parts[part] for part in part_of]
            return chosen[0] if len(set(part_of)) == 1 else np.stack(chosen)

        means, scales, clips = zip(*self._scales, strict=True)
        pieces = None
        if self._pieces:
            low, width = ([getattr(one, name) for one in self._pieces] for name in ("low", "width"))
            pieces = Pieces(self._pieces[0].columns, own(low), own(width))
        scaled: ByName = {"mean": own(means), "scale": own(scales), "clip": clips[0]}
        return {**scaled, "indicators": self.rows.incomplete, "pieces": pieces}


@dataclass(frozen=True, eq=False)
class FoldNetworks:
    """The result of :func:`fit_fold_networks`.

    Parameters
    ----------
    networks : FittedNetworks
        The networks of the chosen candidate for all parts, without a temperature.
    candidates : list of Candidate
    chosen : Candidate
    held_out : HeldOut
        The held-out rows, and the decisions of the chosen networks that have not seen them.
    run : TabularTraining or None
        Loss curves of all networks, of :func:`demur.training.train_tabular` only.
    """

    networks: FittedNetworks
    candidates: list[Candidate]
    chosen: Candidate
    held_out: HeldOut
    run: TabularTraining | None

    def temperature(self) -> TemperatureScaling | None:
        """Return the temperature fitted on the held-out rows; None if there are none."""
        found = self.held_out
        return TemperatureScaling().fit(found.scores, found.y, found.weight) if len(found.y) else None


Trainer: TypeAlias = "Callable[[Trainable, FoldData, int, Sequence[NetworkSpec]], Trained | TabularTraining]"
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
        Data whose parts are assigned to the networks in turn.
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
        none = np.empty(0, np.int64)
        found = [(none, none, none == 0, np.empty((0, n_classes)), data.weight[:0])]
        for part, (_, test) in enumerate(data.parts):
            own = [member for member in members if part_of[member] == part]
            if own and len(test):
                decision, scores = fitted(loss, own).decide_and_score(data.rows.X[test], cost, n_classes)
                found.append((data.rows.y[test], decision.label, decision.reject, scores, data.weight[test]))
        return HeldOut(*map(np.concatenate, zip(*found, strict=True)))

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
    """Return the trainer of networks for tables.

    Parameters
    ----------
    embeddings : PeriodicEmbeddings, optional
        As in :class:`TabularNet`.
    **training
        Passed to :func:`demur.training.train_tabular`.
    """

    def train(loss: Trainable, data: FoldData, n_outputs: int, specs: Sequence[NetworkSpec]) -> TabularTraining:
        net = TabularNet(data.n_inputs, n_outputs, embeddings=embeddings)
        return train_tabular(loss, net, data.data, specs, **training)

    return train
