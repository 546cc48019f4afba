"""Calibration by its definition: minimise the pointwise risk, decide, compare with Chow's rule."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.rules import Decision
from demur.theory.bayes import chow_rejects, excess_of
from demur.theory.facts import Facts
from demur.theory.pointwise import RiskProblem
from demur.theory.simplex import over_all_classes, random_eta, random_tied_eta, structured_eta, tops_around
from demur.theory.ties import Ties

__all__ = ["Failure", "SearchFindings", "search_simplex"]

STUCK = 1e-7
"""A minimisation that ends with a larger slope than this has not been resolved and counts for nothing."""
RUNAWAY = 1e4
"""Nor does one that ends at larger scores than this: the loss has no lower bound."""


@dataclass(frozen=True)
class Failure:
    """One eta at which the minimiser decides worse than Chow's rule.

    Parameters
    ----------
    kind : str
        "false_reject", "false_accept" or "misclassify".
    eta : tensor of shape (n_classes,)
    scores : tensor of shape (n_outputs,)
        The minimiser.
    excess : float
        How much 0-1-c risk its decision loses.
    separation : float
        How clear the failure is: large in its excess, in the distance |r| of the scores from the boundary, and not
        too near certainty.
    """

    kind: str
    eta: Tensor
    scores: Tensor
    excess: float
    separation: float


@dataclass(frozen=True)
class SearchFindings:
    """What the search found.

    Parameters
    ----------
    n_eta : int
        How many eta were decided.
    n_unresolved : int
        How many could not be, because the minimisation did not converge.
    failures : list of Failure
        The clearest of each kind, with and without zeros in eta.
    margin : float or None
        The least distance from the boundary, |r|, among right decisions; None if there were none.
    nearest : float
        The least distance of max eta from 1 - c that was tried.
    stopped_early : bool
    """

    n_eta: int
    n_unresolved: int
    failures: list[Failure]
    margin: float | None
    nearest: float
    stopped_early: bool

    @property
    def fails(self) -> frozenset[str]:
        """The kinds of wrong decisions that were found."""
        return frozenset(failure.kind for failure in self.failures)


def search_simplex(loss: Loss, facts: Facts, n_classes: int, cost: float, *, seed: int = 0) -> SearchFindings:
    """Search for an eta at which the minimiser of the pointwise risk decides worse than Chow's rule.

    First the structured rows, all of them, so that every kind of failure has its chance; then, unless a clear
    failure has been found, rows drawn at random.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.facts import examine
    >>> loss = get("apc+log", beta="acc")
    >>> found = search_simplex(loss, examine(loss, 3, 0.2), 3, 0.2)
    >>> sorted(found.fails)
    ['false_accept']
    """
    n_eta = n_unresolved = 0
    clearest: dict[tuple[str, bool], Failure] = {}
    margin, nearest = np.inf, np.inf
    stopped = False
    for eta in _stages(loss, facts, n_classes, cost, seed):
        scores, resolved = minimisers(loss, facts, eta, cost, seed=seed)
        eta, scores = eta[resolved], scores[resolved]
        n_eta, n_unresolved = n_eta + len(eta), n_unresolved + int((~resolved).sum())
        if not len(eta):
            continue
        nearest = min(nearest, float((eta.amax(-1) - (1 - cost)).abs().min()))
        decision = loss.rule(scores, cost)
        kinds, excess = judge(decision, eta, cost)
        right = kinds == ""
        if right.any():
            margin = min(margin, float(decision.acceptance.abs()[torch.from_numpy(right)].min()))
        separation = _separation(decision, eta, excess)
        for row in np.flatnonzero(~right):
            key = (str(kinds[row]), bool((eta[row] > 0).all()))
            if key not in clearest or separation[row] > clearest[key].separation:
                clearest[key] = Failure(key[0], eta[row], scores[row], float(excess[row]), float(separation[row]))
        if any(failure.excess > 1e-3 for failure in clearest.values()):
            stopped = True
            break
    return SearchFindings(
        n_eta,
        n_unresolved,
        list(clearest.values()),
        margin=float(margin) if np.isfinite(margin) else None,
        nearest=float(nearest),
        stopped_early=stopped,
    )


def _separation(decision: Decision[Tensor], eta: Tensor, excess: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how clear each failure is; near certainty, where all risks vanish, the risks are hard to tell apart."""
    distance = decision.acceptance.detach().abs().clamp(max=10.0)
    uncertain = (1 - eta.amax(-1)).clamp(max=0.05)
    clear: NDArray[np.float64] = excess * (distance * uncertain).numpy()
    return clear


def judge(decision: Decision[Tensor], eta: Tensor, cost: float) -> tuple[NDArray[np.str_], NDArray[np.float64]]:
    """Return the kind of each wrong decision, "" for a right one, and its excess 0-1-c risk.

    Examples
    --------
    >>> always_reject = Decision.from_acceptance(torch.tensor([0, 0]), torch.tensor([-1.0, -1.0]))
    >>> judge(always_reject, torch.tensor([[0.95, 0.05], [0.7, 0.3]], dtype=torch.float64), 0.2)[0].tolist()
    ['false_reject', '']
    """
    taken = decision.numpy()
    proba = eta.numpy()
    excess = excess_of(taken, proba, cost)
    kinds = np.select(
        [excess <= 1e-7, chow_rejects(proba, cost), taken.reject],
        ["", "false_accept", "false_reject"],
        default="misclassify",
    )
    return kinds, excess


def minimisers(loss: Loss, facts: Facts, eta: Tensor, cost: float, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return minimising scores (n_rows, n_outputs) and which rows were resolved.

    A loss that is not convex is started from several places. A loss that calls itself smooth but gets stuck at a
    kink is tried again with cutting planes, if it is convex.
    """
    generator = torch.Generator().manual_seed(seed)
    n_outputs = loss.n_outputs(eta.shape[-1])
    scores = torch.zeros(len(eta), n_outputs, dtype=torch.float64)
    resolved = torch.zeros(len(eta), dtype=torch.bool)
    for rows, ties in Ties.batches(eta, n_outputs, symmetric=facts.symmetric):
        problem = RiskProblem(loss, ties, cost)
        best, slope = problem.minimise()
        stuck = slope > STUCK
        if loss.smooth and not facts.convex:
            best, slope = _several_starts(problem, best, slope, generator)
        elif bool(stuck.any()):
            again = stuck.nonzero()[:40, 0]
            best[again], slope[again] = problem.select(again).minimise(kinked=True)
        scores[rows], resolved[rows] = best, (slope <= STUCK) & (best.abs().amax(-1) <= RUNAWAY)
    return scores, resolved


def _several_starts(
    problem: RiskProblem, best: Tensor, slope: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Start again elsewhere: at a quarter of the rows, and at all of them if that lowers the risk of any."""
    best, slope = best.clone(), slope.clone()
    for _ in range(2):
        for rows in (torch.arange(0, problem.n_rows, 4), torch.arange(problem.n_rows)):
            part = problem.select(rows)
            shape = (len(rows), problem.ties.n_unknowns)
            other, other_slope = part.minimise(2 * torch.randn(shape, generator=generator, dtype=torch.float64))
            before = part.risk_of_scores(best[rows])
            lower = part.risk_of_scores(other) < before - 1e-10 * (1 + before.abs())
            lower &= other_slope <= STUCK
            best[rows[lower]], slope[rows[lower]] = other[lower], other_slope[lower]
            if not bool(lower.any()):
                break
    return best, slope


def _stages(loss: Loss, facts: Facts, n_classes: int, cost: float, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    structured = structured_eta(tops_around(cost, n_classes), n_classes)
    slow = not loss.smooth
    if facts.symmetric:
        yield structured[:: 3 if slow else 1]
        yield random_tied_eta(24 if slow else 400, n_classes, cost, generator)
    elif slow:
        yield over_all_classes(structured, limit=max(3 * n_classes, 96))
    else:
        yield over_all_classes(structured, limit=max(8 * n_classes, 200))
        yield over_all_classes(structured, limit=600)
    if slow and n_classes > 30:
        return  # a hundred free scores are a large linear program for each row
    n_dense = (60_000 if slow else 400_000) // n_classes**3
    yield random_eta(min(max(n_dense, 4), 24 if slow else 400), n_classes, cost, generator)
