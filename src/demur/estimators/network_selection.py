"""The grid of hyper-parameters, the choice among trained networks, and the networks that are kept."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from demur.array_types import AnyArray, CostLike
from demur.calibration import TemperatureScaling, at_temperature
from demur.errors import InputError
from demur.lazy_torch import Tensor, torch
from demur.losses import CrossEntropy, Loss, resolve
from demur.rules import Decision, chow_acceptance
from demur.training import NetworkSpec, Trained
from demur.training.numpy_networks import PIECE
from demur.workers import on_workers

__all__ = [
    "AnswersNothingWarning",
    "Candidate",
    "FittedNetworks",
    "GridEntry",
    "ScaledNetworks",
    "all_diverged",
    "grid_of",
    "least_log_loss",
    "least_risk",
    "scaled_inputs",
    "select",
    "try_out",
    "warn_if_silent",
    "with_indicators",
]

_ROWS_AT_A_TIME = 1 << 12
"""Prediction works through the rows in pieces of this size, which bounds its memory."""


@dataclass(frozen=True)
class GridEntry:
    """One combination of hyper-parameters to train, and the losses that may decide with its scores."""

    loss: Loss
    weight_decay: float
    hyper: dict[str, float]
    deciders: tuple[Loss, ...]

    def network(self, rows: NDArray[np.int64], seed: int, cost: float) -> NetworkSpec:
        """Return the specification of a network with these hyper-parameters."""
        return NetworkSpec(rows, seed, self.weight_decay, cost, self.hyper)


@dataclass(frozen=True)
class Candidate:
    """What was tried: its hyper-parameters and how it did on the held-out rows; log loss for losses with a link."""

    loss: Loss
    weight_decay: float
    members: tuple[int, ...]
    risk: float
    coverage: float
    failed: bool
    log_loss: float | None = None


class AnswersNothingWarning(UserWarning):
    """A model was fitted that declines every row at its cost."""


def warn_if_silent(chosen: Candidate, cost: float) -> None:
    """Warn if the chosen networks answered none of the rows that they were judged by."""
    if chosen.coverage == 0:
        warnings.warn(
            f"the chosen networks decline every held-out row at the cost {cost:g}: no answer is surer than "
            f"{1 - cost:.0%}. Train longer (epochs), give more rows, or accept that rejecting is cheap here.",
            AnswersNothingWarning,
            stacklevel=3,
        )


def all_diverged(n_networks: int, loss: str) -> InputError:
    """Return the error that says so."""
    return InputError(
        f"all {n_networks} networks diverged: their weights overflowed. Lower learning_rate, standardise "
        f"the features, or choose another loss than {loss!r}."
    )


def grid_of(loss: str | Loss, n_classes: int, weight_decay: float | Sequence[float], cost: float) -> list[GridEntry]:
    """Return all combinations to train.

    A loss given by name or as "file.py:Class" brings its own candidates (beta, tau); a :class:`Loss` is used as it is.
    """
    named = isinstance(loss, str)
    base = resolve(loss).for_classes(n_classes)
    try:
        decays = np.atleast_1d(np.asarray(weight_decay)).astype(np.float64, casting="same_kind").tolist()
    except (TypeError, ValueError):
        decays = []
    if not decays or any(not 0 <= value < np.inf for value in decays):
        raise InputError(f"weight_decay must be one or more numbers of at least 0, got {weight_decay!r}.")
    entries: list[GridEntry] = []
    for variant in base.variants_to_train() if named else [base]:
        hyper = {name: float(value) for name, value in variant.hyper_values(n_classes, cost).items()}
        if any(hyper and np.isclose(hyper["beta"], entry.hyper["beta"], rtol=1e-12) for entry in entries):
            continue  # with two classes all sides of Corollary 5 agree
        deciders = tuple(variant.variants_to_decide()) if named else (variant,)
        entries += [GridEntry(variant, decay, hyper, deciders) for decay in decays]
    return entries


def select(
    grid: Sequence[GridEntry],
    trained: Trained,
    n_members: int,
    X: Tensor,
    y: NDArray[np.int64],
    weight: NDArray[np.float64],
    cost: float,
) -> tuple[list[Candidate], Candidate]:
    """Return all candidates and the one of least 0-1-c risk on these rows; the first of equals.

    Networks that diverged are never chosen.

    Raises
    ------
    ValueError
        If all diverged.
    """
    (candidates,) = try_out(grid, trained, n_members, X, y, weight, [cost])
    best = least_risk(candidates)
    if best.failed:
        raise all_diverged(len(trained.failed), best.loss.name)
    return candidates, best


def least_log_loss(
    candidates: Sequence[Candidate],
    trained: Trained,
    X: Tensor,
    y: NDArray[np.int64],
    weight: NDArray[np.float64],
) -> tuple[list[Candidate], Candidate]:
    """Return the candidates with their log losses on these rows, and the best by them; for losses with a link.

    The 0-1-c risk at one cost is a poor judge where rows are few and "decline everything" is hard to beat, and a
    network with a link serves every cost.
    """
    judged, losses = [], []
    for candidate in candidates:
        value = np.inf
        if not candidate.failed:
            networks = FittedNetworks(trained.take(candidate.members), None, None, loss=candidate.loss)
            proba = networks.proba(X.numpy(), normalised=True)[np.arange(len(y)), y]
            value = float(np.average(-np.log(np.maximum(proba, 1e-12)), weights=weight))
        judged.append(replace(candidate, log_loss=value))
        losses.append(value)
    return judged, judged[int(np.argmin(losses))]


def least_risk(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate of least risk, the first of equals; one that diverged only where all did."""
    return min(candidates, key=lambda candidate: candidate.risk)


def try_out(
    grid: Sequence[GridEntry],
    trained: Trained,
    n_members: int,
    X: Tensor,
    y: NDArray[np.int64] | Tensor,
    weight: NDArray[np.float64] | Tensor,
    costs: Sequence[float],
) -> list[list[Candidate]]:
    """Return, for each cost, how each candidate does on these rows, in the order of the grid.

    Networks with equal losses decide as one tensor program, on the device where they are. What is wrong and what is
    rejected is counted, so candidates that are equally good have risks that are equal to the last bit.
    """
    device = trained.vectors.device
    rows = _HeldOut(
        X.to(device),
        torch.as_tensor(y, device=device),
        torch.as_tensor(weight, dtype=torch.float64, device=device),
        torch.tensor(costs, dtype=torch.float32, device=device).view(-1, 1, 1),
    )
    failed = trained.failed.reshape(len(grid), n_members).tolist()
    members = [[n * n_members + m for m in range(n_members) if not failed[n][m]] for n in range(len(grid))]
    counts: dict[int, NDArray[np.float64]] = {}
    for alike in _alike(grid, [len(one) for one in members]):
        networks = trained.take([m for n in alike for m in members[n]])
        counted = rows.count(grid[alike[0]].deciders, networks, len(alike))
        counts |= {n: counted[..., place] for place, n in enumerate(alike)}
    total = float(rows.weight.sum())
    tried: list[list[Candidate]] = [[] for _ in costs]
    for n, entry in enumerate(grid):
        for k, decider in enumerate(entry.deciders):
            for c, cost in enumerate(costs):
                wrong, rejected = counts[n][:, k, c].tolist() if members[n] else (np.inf, np.nan)
                risk = (wrong + cost * rejected) / total if members[n] else np.inf
                coverage = 1 - rejected / total
                tried[c].append(
                    Candidate(decider, entry.weight_decay, tuple(members[n]), risk, coverage, failed=not members[n])
                )
    return tried


def _alike(grid: Sequence[GridEntry], n_members: Sequence[int]) -> list[list[int]]:
    """Return the positions in the grid in groups of equal losses and equally many networks; without any, in none."""
    groups: list[list[int]] = []
    for n, entry in enumerate(grid):
        if not n_members[n]:
            continue
        for group in groups:
            if grid[group[0]].loss == entry.loss and n_members[group[0]] == n_members[n]:
                group.append(n)
                break
        else:
            groups.append([n])
    return groups


@dataclass(frozen=True, eq=False)
class _HeldOut:
    """Rows to choose by, on the device of the networks: features, classes, weights; and the costs as a column."""

    X: Tensor
    y: Tensor
    weight: Tensor
    cost: Tensor

    def count(self, deciders: Sequence[Loss], networks: Trained, n_entries: int) -> NDArray[np.float64]:
        """Return the weight of the wrong and of the rejected rows, of shape (2, n_deciders, n_costs, n_entries)."""

        def of_some_rows(start: int) -> Tensor:
            rows = slice(start, start + _ROWS_AT_A_TIME)
            scores = torch.stack(networks.scores(self.X[rows]).tensor_split(n_entries))
            counted = []
            for decider in deciders:
                decision = _decide_as_stack(decider, scores, self.cost)
                reject = decision.reject.expand(len(self.cost), n_entries, -1)
                wrong = ~reject & (decision.label != self.y[rows])
                counted.append(torch.stack([(part * self.weight[rows]).sum(-1) for part in (wrong, reject)]))
            return torch.stack(counted, 1)

        n_workers = 1 if self.X.device.type == "cuda" else None
        pieces = on_workers(of_some_rows, range(0, len(self.X), _ROWS_AT_A_TIME), n_workers=n_workers)
        return np.asarray(torch.stack(pieces).sum(0).cpu().numpy(), dtype=np.float64)


def _decide_as_stack(loss: Loss, scores: Tensor, cost: Tensor) -> Decision[Tensor]:
    """Decide with scores of shape (n_entries, n_members, n_rows, n_outputs), members averaged, as FittedNetworks do."""
    if scores.shape[1] == 1 or not loss.has_link:
        return loss.rule(scores[:, 0], cost)
    proba = loss.inverse_link(scores).mean(1)
    confidence = proba.amax(-1)
    by_score = loss.class_scores(scores, proba.shape[-1]).mean(1)
    label = torch.where(proba == confidence.unsqueeze(-1), by_score, -torch.inf).argmax(-1)
    return Decision.from_acceptance(label, chow_acceptance(confidence, cost), confidence)


def with_indicators(X: AnyArray, indicators: NDArray[np.int64] | None) -> AnyArray:
    """Return the features, followed by a column for each of some of them that is 1 where it is missing.

    Examples
    --------
    >>> with_indicators(np.array([[1.0, np.nan]]), np.array([1]))
    array([[ 1., nan,  1.]])
    """
    if indicators is None or not len(indicators):
        return X
    return np.hstack([X, np.isnan(X[:, indicators]).astype(X.dtype)])


def scaled_inputs(
    X: AnyArray, mean: NDArray[np.float64], scale: NDArray[np.float64], clip: float | None
) -> NDArray[np.float32]:
    """Centre and scale in double precision, and clip smoothly to (-clip, clip); what is missing becomes 0.

    Examples
    --------
    >>> scaled_inputs(np.array([[3.0], [np.nan]]), np.array([1.0]), np.array([2.0]), None).ravel()
    array([1., 0.], dtype=float32)
    """
    with np.errstate(over="ignore"):
        values = X - mean
        values /= scale
        if clip is not None:
            np.minimum(values, 1e100, out=values)
            np.maximum(values, -1e100, out=values)
            divisor = values / clip
            np.square(divisor, out=divisor)
            divisor += 1
            values /= np.sqrt(divisor, out=divisor)
        if values.size and np.isnan(values.min()):
            values[np.isnan(values)] = 0.0
        return values.astype(np.float32)


@dataclass(frozen=True, eq=False)
class ScaledNetworks:
    """Networks that were kept, from raw features to scores.

    Parameters
    ----------
    networks : Trained
    mean, scale : arrays of shape (n_inputs,) or (n_members, n_inputs), or None
        Inputs are centred and divided by these, by those of each member if they differ; None if they are already.
    clip : float, optional
        The scaled inputs are clipped smoothly to (-clip, clip).
    indicators : array of int, optional
        Features for which an input tells where they are missing, after the features themselves.
    mean_of : {"proba", "scores"}
        What is averaged over the members. Members that are each calibrated make probabilities too timid when these are
        averaged; the mean of their scores is as sure as they are.
    """

    networks: Trained
    mean: NDArray[np.float64] | None
    scale: NDArray[np.float64] | None
    clip: float | None = None
    indicators: NDArray[np.int64] | None = None
    mean_of: Literal["proba", "scores"] = "proba"

    def over_pieces(self, X: AnyArray, function: Callable[[AnyArray], tuple[AnyArray, ...]]) -> tuple[AnyArray, ...]:
        """Apply a function to the scores (n_members, rows, n_outputs), some rows at a time; it returns arrays of rows.

        Two rows are the least: sums over a single one would add up in another order.
        """
        if not len(X):
            return tuple(one[:0] for one in self.over_pieces(np.zeros((1, X.shape[1])), function))

        def results(start: int) -> tuple[AnyArray, ...]:
            rows = X[start : start + PIECE]
            filled = rows if len(rows) > 1 else np.concatenate([rows, rows])
            scores = self._scores(filled)
            if self.mean_of == "scores" and len(scores) > 1:
                scores = np.add.reduce(scores, axis=0, keepdims=True) / np.float32(len(scores))
            return tuple(one[: len(rows)] for one in function(scores))

        if len(X) <= PIECE:
            return results(0)
        return tuple(map(np.concatenate, zip(*on_workers(results, range(0, len(X), PIECE)), strict=True)))

    def of_scores(self, X: AnyArray, function: Callable[[Tensor], Tensor]) -> AnyArray:
        """Apply a function of the scores (n_members, rows, n_outputs) to all rows, some at a time."""

        def of_rows(scores: AnyArray) -> tuple[AnyArray]:
            return (function(torch.from_numpy(_in_vectors(scores)))[: scores.shape[1]].numpy(),)

        return self.over_pieces(X, of_rows)[0]

    def _scores(self, rows: AnyArray) -> AnyArray:
        """Return the scores of each member. A row's do not depend on the rows it comes with."""
        inputs = self._inputs(rows)
        on_numpy = self.networks.on_numpy()
        if on_numpy is not None:
            return on_numpy.scores(inputs)
        # small products use other kernels
        filled = np.zeros((*inputs.shape[:-2], len(rows) + -len(rows) % 64, inputs.shape[-1]), dtype=np.float32)
        filled[..., : len(rows), :] = inputs
        scores: AnyArray = self.networks.scores(torch.from_numpy(filled)).cpu().numpy()
        return scores[:, : len(rows)]

    def _inputs(self, rows: AnyArray) -> NDArray[np.float32]:
        """Return what the networks see of rows: (n_rows, n_inputs), or that of each member."""
        joined = with_indicators(rows, self.indicators)
        if self.mean is None or self.scale is None:
            with np.errstate(over="ignore"):
                return np.nan_to_num(joined.astype(np.float32), nan=0.0)
        if self.mean.ndim == 1:
            return scaled_inputs(joined, self.mean, self.scale, self.clip)
        return scaled_inputs(joined, self.mean[:, None], self.scale[:, None], self.clip)


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedNetworks(ScaledNetworks):
    """The networks that were kept, from raw features to decisions.

    Parameters
    ----------
    loss : Loss
    temperature : TemperatureScaling, optional
    """

    loss: Loss
    temperature: TemperatureScaling | None = None

    def proba(self, X: AnyArray, *, normalised: bool = False) -> AnyArray:
        """Return the inverse link of the scores as the loss estimates them, one or the other averaged over members.

        With ``normalised``, in float64 and divided by their sum over the classes.
        """

        def probabilities(scores: AnyArray) -> tuple[AnyArray]:
            by_class = self._by_class(scores)
            return (_normalised(by_class) if normalised else by_class.T,)

        return self.over_pieces(X, probabilities)[0]

    def _by_class(self, scores: AnyArray) -> NDArray[np.float32]:
        """Return the probabilities, averaged over the members, of shape (n_classes, n_rows)."""
        by_class = _softmax(scores) if type(self.loss) is CrossEntropy else _linked(self.loss, scores)
        if self.temperature is not None:
            by_class = at_temperature(by_class.T, self.temperature.temperature_).T
        return by_class

    def decide(self, X: AnyArray, cost: CostLike) -> Decision[AnyArray]:
        """Decide with the averaged probabilities, or with the loss's own rule where there are none."""
        return self.decide_and_score(X, cost, None)[0]

    def decide_and_score(
        self, X: AnyArray, cost: CostLike, n_classes: int | None
    ) -> tuple[Decision[AnyArray], NDArray[np.float64]]:
        """Return the decisions and one score per class: normalised probabilities, or scores for losses without a link.

        The networks run once for both. Without ``n_classes``, losses without a link give no scores.
        """
        if self.loss.has_link:
            label, confidence, proba = self.over_pieces(X, self._label_confidence_proba)
            acceptance = chow_acceptance(confidence, np.asarray(cost, dtype=np.float64))
            return Decision.from_acceptance(label, acceptance, confidence), proba
        one_cost = float(np.ravel(cost)[0])

        def by_rule(scores: AnyArray) -> tuple[AnyArray, ...]:
            own = torch.from_numpy(_in_vectors(scores)[0])
            found = self.loss.rule(own, one_cost)
            of_classes = own if n_classes is None else self.loss.class_scores(own, n_classes)
            parts = (found.label, found.acceptance, found.confidence, of_classes)
            return tuple(part[: scores.shape[1]].numpy() for part in parts)

        label, acceptance, confidence, of_classes = self.over_pieces(X, by_rule)
        decision = Decision.from_acceptance(label.astype(np.int64), acceptance, confidence)
        return decision, of_classes.astype(np.float64)

    def _label_confidence_proba(self, scores: AnyArray) -> tuple[AnyArray, AnyArray, AnyArray]:
        """Return the likeliest class, among equals the one with the best mean score, its probability, and those of all.

        The confidence is the loss's own estimate, the probabilities of all classes are normalised.
        """
        by_class = self._by_class(scores)
        confidence = by_class.max(axis=0)
        likeliest = by_class == confidence
        label = likeliest.argmax(axis=0)
        if (likeliest.sum(axis=0) > 1).any():
            by_score = np.where(likeliest, self._class_scores(scores, len(by_class)), -np.inf)
            label = by_score.argmax(axis=0)
        return label, confidence, _normalised(by_class)

    def _class_scores(self, scores: AnyArray, n_classes: int) -> AnyArray:
        """Return the mean of the members' scores of each class, of shape (n_classes, n_rows)."""
        if type(self.loss) is not CrossEntropy:
            of_loss = self.loss.class_scores(torch.from_numpy(_in_vectors(scores)), n_classes)
            scores = of_loss[:, : scores.shape[1]].numpy()
        return np.asarray(np.add.reduce(np.ascontiguousarray(scores.transpose(2, 0, 1)), axis=1) / len(scores))

    def class_scores(self, X: AnyArray, n_classes: int) -> NDArray[np.float64]:
        """Return one score per class, for losses without a link."""

        def of_classes(scores: AnyArray) -> tuple[AnyArray]:
            own = self.loss.class_scores(torch.from_numpy(_in_vectors(scores)[0]), n_classes)
            return (own[: scores.shape[1]].numpy(),)

        return np.asarray(self.over_pieces(X, of_classes)[0], dtype=np.float64)

    def calibrated(self, X: Tensor, y: NDArray[np.int64], weight: NDArray[np.float64]) -> FittedNetworks:
        """Return the same networks with a temperature chosen on these (already scaled) rows."""
        proba = replace(self, mean=None, scale=None, indicators=None).proba(X.numpy(), normalised=True)
        return replace(self, temperature=TemperatureScaling().fit(proba, y, weight))


def _softmax(scores: AnyArray) -> NDArray[np.float32]:
    """Return the softmax, averaged over the members, of shape (n_classes, n_rows); there are two rows or more."""
    by_class = np.array(scores.transpose(2, 0, 1), order="C")
    by_class -= by_class.max(axis=0)
    np.exp(by_class, out=by_class)
    by_class /= np.add.reduce(by_class, axis=0)
    return np.asarray(np.add.reduce(by_class, axis=1) / np.float32(len(scores)), dtype=np.float32)


def _linked(loss: Loss, scores: AnyArray) -> NDArray[np.float32]:
    """Return what the loss's own link makes of the scores, averaged over the members, as :func:`_softmax` does."""
    proba = loss.inverse_link(torch.from_numpy(_in_vectors(scores)))[:, : scores.shape[1]].numpy()
    total = np.add.reduce(np.ascontiguousarray(proba.transpose(2, 0, 1)), axis=1)
    return np.asarray(total / np.float32(len(scores)), dtype=np.float32)


def _in_vectors(scores: AnyArray) -> AnyArray:
    """Fill up to a multiple of 64 rows: torch rounds what is beyond the last full register by other instructions."""
    filled = np.zeros((len(scores), scores.shape[1] + -scores.shape[1] % 64, scores.shape[2]), dtype=scores.dtype)
    filled[:, : scores.shape[1]] = scores
    return filled


def _normalised(by_class: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return probabilities of shape (n_rows, n_classes) in double precision, each row divided by its sum."""
    proba = np.array(by_class, dtype=np.float64, order="C")
    total = np.add.reduce(proba, axis=0)
    if not total.all():
        proba[:, total == 0] = 1.0
        total[total == 0] = len(proba)
    proba /= total
    return proba.T
