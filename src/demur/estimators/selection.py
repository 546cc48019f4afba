"""The grid of hyper-parameters, the choice among trained networks, and the networks that are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.calibration import TemperatureScaling
from demur.losses import Loss, get
from demur.losses.pairwise import PairwiseLoss
from demur.rules import Decision, chow_acceptance
from demur.training import Network, Trained

__all__ = ["Candidate", "FittedNetworks", "GridEntry", "grid_of", "select"]

_ROWS_AT_A_TIME = 1 << 12
"""Prediction works through the rows in pieces of this size, which bounds its memory."""


@dataclass(frozen=True)
class GridEntry:
    """One combination of hyper-parameters to train, and the losses that may decide with its scores."""

    loss: Loss
    weight_decay: float
    hyper: dict[str, float]
    deciders: tuple[Loss, ...]

    def network(self, rows: NDArray[np.int64], seed: int, cost: float) -> Network:
        """Return the specification of a network with these hyper-parameters."""
        return Network(rows, seed, self.weight_decay, cost, self.hyper)


@dataclass(frozen=True)
class Candidate:
    """What was tried: its hyper-parameters and how it did on the held-out rows."""

    loss: Loss
    weight_decay: float
    members: tuple[int, ...]
    risk: float
    coverage: float
    failed: bool


def grid_of(loss: str | Loss, n_classes: int, weight_decay: float | Sequence[float], cost: float) -> list[GridEntry]:
    """Return all combinations to train.

    A loss given by name brings its own candidates (beta, tau); a :class:`Loss` is used as it is.
    """
    named = isinstance(loss, str)
    base = (get(loss) if isinstance(loss, str) else loss).for_classes(n_classes)
    decays = [float(weight_decay)] if isinstance(weight_decay, Real) else [float(value) for value in weight_decay]  # type: ignore[union-attr]
    if not decays or any(not value >= 0 for value in decays):
        raise ValueError(f"weight_decay must be one or more numbers of at least 0, got {weight_decay!r}.")
    entries = []
    for variant in base.variants_to_train() if named else [base]:
        hyper: dict[str, float] = {}
        if isinstance(variant, PairwiseLoss):
            hyper["beta"] = float(variant.beta_value(n_classes, cost))
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
    candidates: list[Candidate] = []
    failed = trained.failed.tolist()
    for number, entry in enumerate(grid):
        members = [m for m in range(number * n_members, (number + 1) * n_members) if not failed[m]]
        if not members:
            candidates.append(Candidate(entry.loss, entry.weight_decay, (), np.inf, np.nan, failed=True))
            continue
        for decider in entry.deciders:
            kept = FittedNetworks(decider, trained.take(members), None, None)
            decision = kept.decide(X.numpy(), cost)
            losses = np.where(decision.reject, cost, decision.label != y)
            risk, coverage = np.average(losses, weights=weight), np.average(~decision.reject, weights=weight)
            candidates.append(
                Candidate(decider, entry.weight_decay, tuple(members), float(risk), float(coverage), failed=False)
            )
    best = min(candidates, key=lambda candidate: candidate.risk)
    if best.failed:
        raise ValueError(
            f"all {len(failed)} networks diverged: their weights overflowed. Lower learning_rate, standardise the "
            f"features, or choose another loss than {best.loss.name!r}."
        )
    return candidates, best


@dataclass(frozen=True, eq=False)
class FittedNetworks:
    """The networks that were kept, from raw features to decisions.

    Parameters
    ----------
    loss : Loss
    networks : Trained
    mean, scale : arrays or None
        Features are centred and divided by these; None if they are already.
    temperature : TemperatureScaling, optional
    """

    loss: Loss
    networks: Trained
    mean: NDArray[Any] | None
    scale: NDArray[Any] | None
    temperature: TemperatureScaling | None = None

    def _scores(self, X: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """Yield the scores (n_members, rows, n_outputs) piece by piece.

        In double precision, so that a row's decision does not depend on the rows it is scored with.
        """
        for start in range(0, len(X), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            piece = X[rows]
            if self.mean is not None:
                piece = (piece - self.mean) / self.scale
            yield rows, self.networks.scores(torch.from_numpy(np.ascontiguousarray(piece, dtype=np.float64)))

    def proba(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the inverse link of the scores, averaged over the members, as the loss estimates them."""
        pieces = [self.loss.inverse_link(scores).mean(0).cpu().numpy() for _, scores in self._scores(X)]
        proba: NDArray[Any] = np.concatenate(pieces)
        return proba if self.temperature is None else self.temperature.transform(proba)

    def decide(self, X: NDArray[Any], cost: Any) -> Decision[NDArray[Any]]:
        """Decide with the averaged probabilities, or with the loss's own rule where there are none."""
        if self.loss.has_link:
            proba = self.proba(X)
            confidence = proba.max(axis=1)
            return Decision.from_acceptance(
                proba.argmax(axis=1), chow_acceptance(confidence, np.asarray(cost)), confidence
            )
        pieces = [self.loss.rule(scores[0], float(cost)).numpy() for _, scores in self._scores(X)]
        return Decision(
            *(np.concatenate([getattr(piece, name) for piece in pieces]) for name in Decision.__dataclass_fields__)
        )

    def class_scores(self, X: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
        """Return one score per class, for losses without a link."""
        pieces = [self.loss.class_scores(scores[0], n_classes).cpu().numpy() for _, scores in self._scores(X)]
        return np.concatenate(pieces).astype(np.float64)

    def calibrated(self, X: Tensor, y: NDArray[np.int64], weight: NDArray[np.float64]) -> "FittedNetworks":
        """Return the same networks with a temperature chosen on these (already scaled) rows."""
        proba = replace(self, mean=None, scale=None).proba(X.numpy())
        return replace(self, temperature=TemperatureScaling.fit(proba, y, weight))
