"""The least surrogate excess risk of a wrong decision, by what the decision loses."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from demur.losses import Loss
from demur.theory.facts import Facts
from demur.theory.pointwise import RiskProblem
from demur.theory.regions import REJECT, best_in_region, decision_constraints
from demur.theory.ties import Ties, equal_values
from demur.workers import single_threaded_kernels

__all__ = ["least_gaps"]

Rows = tuple[NDArray[np.int_], NDArray[np.float64]]
"""Which z each row belongs to, and the rows of eta."""


@single_threaded_kernels()
def least_gaps(loss: Loss, facts: Facts, n_classes: int, cost: float, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each 0-1-c excess z, the least surrogate excess of a decision that loses exactly z at one eta.

    The eta are those of :func:`demur.theory.calibration_function`; infinite where none of them can lose z.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.facts import examine
    >>> loss = get("ova+sq")
    >>> least_gaps(loss, examine(loss, 3, 0.2), 3, 0.2, np.array([0.1])).round(9)  # 4 z^2
    array([0.04])
    """
    flat = np.where(z > 0, z, 1.0).reshape(-1)
    best = np.full(flat.shape, np.inf)
    classes = [(0, 1)] if facts.symmetric else [(0, 1), (1, 0)]
    for top, other in classes:
        order = [top, other] if n_classes == 2 else list(range(n_classes))
        for decision, rows in _fixed_rows(flat, n_classes, cost, spread_only=facts.chow_on_link):
            answered = decision if decision == REJECT else order[decision]
            _lower(best, _gaps(loss, facts, n_classes, cost, rows, order, answered), rows[0])
        _misclassified(loss, facts, n_classes, cost, flat, order, best)
    result: NDArray[np.float64] = np.where(z > 0, best.reshape(z.shape), 0.0)
    return result


def _fixed_rows(
    z: NDArray[np.float64], n_classes: int, cost: float, *, spread_only: bool
) -> Iterator[tuple[int, Rows]]:
    """Yield false rejects (Chow answers class 0) and false accepts (class 1 is answered, Chow rejects)."""
    rest = n_classes - 1
    number = np.arange(len(z))
    inside = z <= cost * (1 - 1e-12)
    for m in [rest] if spread_only else sorted({1, rest}):
        eta = np.zeros((len(z), n_classes))
        eta[:, 0] = 1 - cost + z
        eta[:, 1 : 1 + m] = ((cost - z) / m)[:, None]
        yield REJECT, (number[inside], eta[inside])
    own = 1 - cost - z
    for m in [rest] if spread_only else sorted({1, min(2, rest), rest}):
        share = (1 - own) / m
        eta = np.zeros((len(z), n_classes))
        eta[:, 1] = own
        eta[:, [k for k in range(n_classes) if k != 1][:m]] = share[:, None]
        valid = (own >= 0) & (share <= 1 - cost + 1e-12)
        yield 1, (number[valid], eta[valid])
    if n_classes > 2 and not spread_only:
        eta = np.zeros((len(z), n_classes))
        eta[:, 1] = own
        eta[:, 0] = np.minimum(1 - cost, 1 - own)
        eta[:, 2] = 1 - own - eta[:, 0]
        valid = (own >= 0) & (eta[:, 2] <= 1 - cost + 1e-12)
        yield 1, (number[valid], eta[valid])


def _misclassified(
    loss: Loss,
    facts: Facts,
    n_classes: int,
    cost: float,
    z: NDArray[np.float64],
    order: list[int],
    best: NDArray[np.float64],
) -> None:
    """Answer class 1 where Chow answers class 0: eta_0 = p, eta_1 = p - z, over p in a range that narrows."""
    low, high = np.maximum(1 - cost, z), (1 + z) / 2
    low = high if n_classes == 2 else low
    number = np.flatnonzero((high > 1 - cost - 1e-12) & (high >= low - 1e-12))
    if not len(number):
        return
    low, high = low[number], high[number]
    others = n_classes - 2
    for m in [others] if facts.chow_on_link or others == 0 else sorted({1, others}):
        a, b = low.copy(), high.copy()
        for _ in range(3):
            p = np.linspace(a, b, 9, axis=-1)
            eta = np.zeros((*p.shape, n_classes))
            eta[..., 0] = p
            eta[..., 1] = np.maximum(p - z[number, None], 0.0)
            if m:
                eta[..., 2 : 2 + m] = np.maximum(1 - eta.sum(-1), 0.0)[..., None] / m
            rows = np.repeat(number, 9), eta.reshape(-1, n_classes)
            gaps = _gaps(loss, facts, n_classes, cost, rows, order, order[1])
            _lower(best, gaps, rows[0])
            least = gaps.reshape(p.shape).argmin(-1)
            span = np.arange(len(number))
            a, b = p[span, np.maximum(least - 1, 0)], p[span, np.minimum(least + 1, 8)]


def _gaps(
    loss: Loss, facts: Facts, n_classes: int, cost: float, rows: Rows, order: list[int], decision: int
) -> NDArray[np.float64]:
    """Return, for each row, the best risk with a decision minus the least risk."""
    if not len(rows[0]):
        return np.zeros(0)
    eta = torch.from_numpy(rows[1])
    eta = eta[:, torch.tensor(order).argsort()]
    groups = equal_values(eta) if facts.symmetric else None
    if groups is not None and decision != REJECT:
        groups[:, decision] = groups.max() + 1  # the answered class keeps a score of its own
    problem, nearby = (
        RiskProblem(loss, Ties.of(row, groups, loss.n_outputs(n_classes)), cost)
        for row in (eta, _on_boundary(eta, decision, cost))
    )
    n_unknowns = problem.ties.n_unknowns
    least, _ = problem.descend_from_guess(problem.risk, n_unknowns)
    start, _ = nearby.descend_from_guess(nearby.risk, n_unknowns)
    constraints = decision_constraints(loss, facts, n_classes, cost, decision)
    unknowns, violation = best_in_region(problem, constraints, start)
    everywhere = torch.arange(len(eta))
    with torch.no_grad():
        gap = problem.risk(unknowns, everywhere) - problem.risk(least, everywhere)
        free = (constraints(problem.ties.scores(least, everywhere)) >= 0).all(-1)
        gap = torch.where(free, 0.0, gap)  # the minimiser takes this decision by itself
        violation = torch.where(free, 0.0, violation)
    return torch.where(violation < 1e-7, gap.clamp(min=0.0), torch.inf).numpy()


def _on_boundary(eta: Tensor, decision: int, cost: float) -> Tensor:
    """Return eta changed so that Chow's rule is about to take, or to leave, the decision: its minimiser is close."""
    place = eta.argmax(-1, keepdim=True) if decision == REJECT else torch.full((len(eta), 1), decision)
    others = (eta + 1e-6).scatter(-1, place, 0.0)
    return (others / others.sum(-1, keepdim=True) * cost).scatter(-1, place, 1 - cost)


def _lower(best: NDArray[np.float64], gaps: NDArray[np.float64], rows: NDArray[np.int_]) -> None:
    np.minimum.at(best, rows, gaps)
