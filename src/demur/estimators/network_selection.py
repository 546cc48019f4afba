"""The grid of hyper-parameters, the choice among trained networks, and the networks that are kept."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.calibration import TemperatureScaling, at_temperature
from demur.errors import InputError
from demur.losses import Loss, get
from demur.losses.pairwise import PairwiseLoss
from demur.rules import Decision, chow_acceptance
from demur.training import Network, Trained
from demur.workers import on_workers

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
    try:
        decays = np.atleast_1d(np.asarray(weight_decay)).astype(np.float64, casting="same_kind").tolist()
    except (TypeError, ValueError):
        decays = []
    if not decays or any(not 0 <= value < np.inf for value in decays):
        raise InputError(f"weight_decay must be one or more numbers of at least 0, got {weight_decay!r}.")
    entries: list[GridEntry] = []
    for variant in base.variants_to_train() if named else [base]:
        hyper: dict[str, float] = {}
        if isinstance(variant, PairwiseLoss):
            hyper["beta"] = float(variant.beta_value(n_classes, cost))
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
        raise InputError(
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
    mean: NDArray[np.float64] | None
    scale: NDArray[np.float64] | None
    temperature: TemperatureScaling | None = None

    def _over_pieces(self, X: NDArray[Any], function: Callable[[Tensor], Tensor]) -> NDArray[Any]:
        """Apply a function to the scores (n_members, rows, n_outputs), some rows at a time.

        Pieces are filled up to a multiple of 64 rows: small products use other kernels, and a row's result must not
        depend on the rows it comes with.
        """
        n_features = X.shape[1]
        mean = torch.zeros(n_features) if self.mean is None else torch.from_numpy(self.mean)
        factor = torch.ones(n_features) if self.scale is None else torch.from_numpy(1 / self.scale).to(torch.float32)

        def results(start: int) -> NDArray[Any]:
            rows = np.require(X[start : start + _ROWS_AT_A_TIME], requirements=["C", "W"])  # torch wants to write
            filled = torch.zeros(len(rows) + -len(rows) % 64, n_features)
            torch.sub(torch.from_numpy(rows), mean, out=filled[: len(rows)])
            return function(self.networks.scores(filled.mul_(factor)))[: len(rows)].cpu().numpy()

        return np.concatenate(on_workers(results, range(0, len(X), _ROWS_AT_A_TIME)))

    def proba(self, X: NDArray[Any], *, normalised: bool = False) -> NDArray[Any]:
        """Return the inverse link of the scores, averaged over the members, as the loss estimates them.

        With ``normalised``, in float64 and divided by their sum over the classes.
        """

        def probabilities(scores: Tensor) -> Tensor:
            proba = self._probabilities(scores)
            if not normalised:
                return proba
            proba = proba.to(torch.float64)
            total = proba.sum(-1, keepdim=True)
            return (proba / total).nan_to_num_(1 / proba.shape[-1])

        return self._over_pieces(X, probabilities)

    def _probabilities(self, scores: Tensor) -> Tensor:
        proba = self.loss.inverse_link(scores).mean(0) if len(scores) > 1 else self.loss.inverse_link(scores[0])
        if self.temperature is None:
            return proba
        return torch.from_numpy(at_temperature(proba.cpu().numpy(), self.temperature.temperature_))

    def decide(self, X: NDArray[Any], cost: Any) -> Decision[NDArray[Any]]:
        """Decide with the averaged probabilities, or with the loss's own rule where there are none."""
        if self.loss.has_link:
            answers = self._over_pieces(X, self._label_and_confidence)
            acceptance = chow_acceptance(answers[:, 1], np.asarray(cost, dtype=np.float64))
            return Decision.from_acceptance(answers[:, 0].astype(np.int64), acceptance, answers[:, 1])
        one_cost = float(np.ravel(cost)[0])

        def label_acceptance_confidence(scores: Tensor) -> Tensor:
            found = self.loss.rule(scores[0], one_cost)
            return torch.stack([found.label.to(torch.float32), found.acceptance, found.confidence], -1)

        columns = self._over_pieces(X, label_acceptance_confidence)
        return Decision.from_acceptance(columns[:, 0].astype(np.int64), columns[:, 1], columns[:, 2])

    def _label_and_confidence(self, scores: Tensor) -> Tensor:
        """Return the likeliest class, among equals the one with the best mean score, and its probability."""
        proba = self._probabilities(scores)
        confidence = proba.amax(-1)
        by_score = self.loss.class_scores(scores, proba.shape[-1]).mean(0).to(proba.dtype)
        label = torch.where(proba == confidence.unsqueeze(-1), by_score, -torch.inf).argmax(-1)
        return torch.stack([label.to(confidence.dtype), confidence], -1)

    def class_scores(self, X: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
        """Return one score per class, for losses without a link."""
        return self._over_pieces(X, lambda scores: self.loss.class_scores(scores[0], n_classes)).astype(np.float64)

    def calibrated(self, X: Tensor, y: NDArray[np.int64], weight: NDArray[np.float64]) -> "FittedNetworks":
        """Return the same networks with a temperature chosen on these (already scaled) rows."""
        proba = replace(self, mean=None, scale=None).proba(X.numpy(), normalised=True)
        return replace(self, temperature=TemperatureScaling().fit(proba, y, weight))
