r"""The tightest calibration function: how small a surrogate excess risk can be, given the 0-1-c excess (Eq. 13).

At one eta, a wrong decision that loses z of 0-1-c risk costs the surrogate at least

    delta(z) = min over eta and wrong decisions losing z of (best risk with that decision) - (least risk).

Distributions mix such points, so what holds for risks is the largest convex function below delta. No valid xi is
larger anywhere. The curve returned here lies below that function: by rounding and the corners of a fine grid only
where delta has a closed form (cross-entropy, one-versus-all, binary margin losses: the curve is then certified), by
one step of the grid where delta is computed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from demur.errors import InputError
from demur.losses import Loss
from demur.theory.bayes import REJECT, NoBoundError, as_target, require_cost, require_n_classes
from demur.theory.constrained_risk import best_in_region, decision_constraints
from demur.theory.examined_loss import ExaminedLoss, LossLike, as_loss, examine
from demur.theory.excess_bounds import (
    ExcessRiskBound,
    LowerCurve,
    Piece,
    bound_facts_of,
    closed_pieces,
    excess_risk_bound,
    least_of,
)
from demur.theory.pointwise_risk import RiskProblem, Ties, equal_values
from demur.workers import single_threaded_kernels

__all__ = ["CalibrationFunction", "calibration_function", "least_gaps"]


@dataclass(frozen=True)
class CalibrationFunction:
    """A valid xi of a loss, as large as can be told, callable on 0-1-c excesses between 0 and 1.

    Parameters
    ----------
    subject : ExaminedLoss
    cost : float
    bound : ExcessRiskBound or None
        The paper's, where it has one.
    curve : LowerCurve
        The function itself: convex, on a fixed grid, so that a value does not depend on what else is asked.
    certified : bool
        Whether the curve is proved to lie below the tightest xi (and within a thousandth of it); otherwise it is
        computed from minima that a search found.
    pieces : list or None
        delta in closed form.
    nodes, values : arrays
        Excesses z and delta(z), where it is computed.

    Examples
    --------
    For the squared loss delta is 4 z^2 up to z = 1 - 2c; the paper's bound is z^2:

    >>> xi = calibration_function("ova+sq", 3, cost=0.2)
    >>> xi([0.1, 0.3]).round(3), xi.bound.xi(0.1), xi.certified
    (array([0.04, 0.36]), 0.010000000000000002, True)
    """

    subject: ExaminedLoss
    cost: float
    bound: ExcessRiskBound | None
    curve: LowerCurve
    certified: bool
    pieces: list[Piece] | None = field(repr=False)
    nodes: NDArray[np.float64] = field(repr=False)
    values: NDArray[np.float64] = field(repr=False)

    @property
    def loss(self) -> Loss:
        """The loss it is about."""
        return self.subject.loss

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.subject.n_classes

    def pointwise(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return delta(z): the least surrogate excess at any one eta where at least z is lost."""
        z = _excesses(zero_one_c_excess)
        if self.pieces is not None:
            return least_of(self.pieces, z)
        at_least = np.where(self.nodes[None, :] >= z[..., None], self.values, np.inf).min(-1)
        delta: NDArray[np.float64] = np.minimum(least_gaps(self.subject, self.cost, z), at_least)
        return delta

    def __call__(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return xi(z)."""
        return self.curve(_excesses(zero_one_c_excess))

    def room(self, zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
        """Return xi(z) divided by the paper's bound: 1 where the paper is tight, more where it leaves room."""
        if self.bound is None:
            raise NoBoundError(f"the paper has no bound for {self.loss.name} to compare with.")
        ratio: NDArray[np.float64] = self(zero_one_c_excess) / self.bound.xi(_excesses(zero_one_c_excess))
        return ratio

    def zero_one_c(self, surrogate_excess: float) -> float:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows.

        Parameters
        ----------
        surrogate_excess : float
        """
        if not surrogate_excess >= 0:
            raise InputError(f"an excess risk is a number >= 0, got {surrogate_excess:g}.")
        return self.curve.inverse(surrogate_excess)

    @property
    def blind_spot(self) -> float:
        """The largest excess known to cost the surrogate nothing: 0 for a calibrated loss."""
        tiny = 1e-10 * self.subject.scale.unit
        if self.pieces is not None or self.values[0] > tiny:
            return 0.0
        free = np.flatnonzero(self.values <= tiny).max()
        low = float(self.nodes[free])
        high = float(self.nodes[free + 1]) if free + 1 < len(self.nodes) else 1.0
        for _ in range(4):
            z = np.linspace(low, high, 9)
            allowed = np.r_[True, least_gaps(self.subject, self.cost, z[1:-1]) <= tiny, False]
            last = int(np.flatnonzero(allowed).max())
            low, high = float(z[last]), float(z[last + 1])
        return low


def calibration_function(loss: LossLike, n_classes: int, cost: float, *, n_nodes: int = 48) -> CalibrationFunction:
    """Return the tightest calibration function of a smooth loss, certified where delta has a closed form.

    Elsewhere delta is computed, at eta of the form (p, q, rest): Chow's class, the class answered, and the rest spread
    evenly, on one class, or as unevenly as allowed; the minimum is over this family.

    Parameters
    ----------
    loss : str, Loss or callable
        Smooth, and treating the classes alike (or binary).
    n_classes : int
    cost : float
        In (0, 1/2).
    n_nodes : int
        At how many values of z delta is computed, where it is.

    Examples
    --------
    With two classes and c near 1/2, cross-entropy has the xi of plain classification (Pires & Szepesvari 2016):

    >>> xi = calibration_function("ce", 2, cost=0.4999)
    >>> z = 0.5
    >>> round(float(xi(z)), 3), round(float(0.5 * ((1 + z) * np.log(1 + z) + (1 - z) * np.log(1 - z))), 3)
    (0.131, 0.131)
    """
    n_classes, cost = require_n_classes(n_classes), require_cost(cost)
    made = as_loss(loss, n_classes, cost)
    if not made.smooth:
        raise NoBoundError(f"the calibration function is computed for smooth losses; {made.name} has kinks.")
    subject = examine(made, as_target(cost, n_classes))
    facts = subject.facts
    if not (facts.chow_on_link or facts.answers_argmax) or not (facts.symmetric or n_classes == 2):
        raise NoBoundError(
            f"the calibration function is computed for losses that treat the classes alike and answer the class with "
            f"the largest score or probability; {made.name} does not."
        )
    facts_of_bound = bound_facts_of(made)
    bound = None if facts_of_bound is None else excess_risk_bound(made, cost)
    pieces = None if facts_of_bound is None else closed_pieces(facts_of_bound, n_classes, cost)
    if pieces is not None:
        curve = LowerCurve.below(pieces)
        return CalibrationFunction(subject, cost, bound, curve, True, pieces, curve.nodes, curve.values)
    corners = [0.002, 0.005, 0.01, cost, 1 - cost, 1 - 2 * cost]
    nodes = np.unique(np.r_[np.linspace(0, 1, n_nodes + 1)[1:], corners])
    values = np.minimum.accumulate(least_gaps(subject, cost, nodes)[::-1])[::-1]
    curve = LowerCurve.through_steps(nodes, values)
    return CalibrationFunction(subject, cost, bound, curve, False, None, nodes, values)


def _excesses(zero_one_c_excess: ArrayLike) -> NDArray[np.float64]:
    z = np.asarray(zero_one_c_excess, dtype=np.float64)
    if not np.all((z >= 0) & (z <= 1)):
        raise InputError(f"an excess 0-1-c risk lies in [0, 1], got {z}.")
    return z


Rows = tuple[NDArray[np.int_], NDArray[np.float64]]
"""Which z each row belongs to, and the rows of eta."""


@single_threaded_kernels()
def least_gaps(subject: ExaminedLoss, cost: float, z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return, for each 0-1-c excess z, the least surrogate excess of a decision that loses exactly z at one eta.

    The eta are those of :func:`demur.theory.calibration_function`; infinite where none of them can lose z.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> least_gaps(examine(get("ova+sq"), as_target(0.2, 3)), 0.2, np.array([0.1])).round(9)  # 4 z^2
    array([0.04])
    """
    n_classes, facts = subject.n_classes, subject.facts
    flat = np.where(z > 0, z, 1.0).reshape(-1)
    best = np.full(flat.shape, np.inf)
    classes = [(0, 1)] if facts.symmetric else [(0, 1), (1, 0)]
    for top, other in classes:
        order = [top, other] if n_classes == 2 else list(range(n_classes))
        for decision, rows in _fixed_rows(flat, n_classes, cost, spread_only=facts.chow_on_link):
            answered = decision if decision == REJECT else order[decision]
            _lower(best, _gaps(subject, cost, rows, order, answered), rows[0])
        _misclassified(subject, cost, flat, order, best)
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
    subject: ExaminedLoss, cost: float, z: NDArray[np.float64], order: list[int], best: NDArray[np.float64]
) -> None:
    """Answer class 1 where Chow answers class 0: eta_0 = p, eta_1 = p - z, over p in a range that narrows."""
    n_classes = subject.n_classes
    low, high = np.maximum(1 - cost, z), (1 + z) / 2
    low = high if n_classes == 2 else low
    number = np.flatnonzero((high > 1 - cost - 1e-12) & (high >= low - 1e-12))
    if not len(number):
        return
    low, high = low[number], high[number]
    others = n_classes - 2
    for m in [others] if subject.facts.chow_on_link or others == 0 else sorted({1, others}):
        a, b = low.copy(), high.copy()
        for _ in range(3):
            p = np.linspace(a, b, 9, axis=-1)
            eta = np.zeros((*p.shape, n_classes))
            eta[..., 0] = p
            eta[..., 1] = np.maximum(p - z[number, None], 0.0)
            if m:
                eta[..., 2 : 2 + m] = np.maximum(1 - eta.sum(-1), 0.0)[..., None] / m
            rows = np.repeat(number, 9), eta.reshape(-1, n_classes)
            gaps = _gaps(subject, cost, rows, order, order[1])
            _lower(best, gaps, rows[0])
            least = gaps.reshape(p.shape).argmin(-1)
            span = np.arange(len(number))
            a, b = p[span, np.maximum(least - 1, 0)], p[span, np.minimum(least + 1, 8)]


def _gaps(subject: ExaminedLoss, cost: float, rows: Rows, order: list[int], decision: int) -> NDArray[np.float64]:
    """Return, for each row, the best risk with a decision minus the least risk."""
    if not len(rows[0]):
        return np.zeros(0)
    eta = torch.from_numpy(rows[1])
    eta = eta[:, torch.tensor(order).argsort()]
    groups = equal_values(eta) if subject.facts.symmetric else None
    if groups is not None and decision != REJECT:
        groups[:, decision] = groups.max() + 1  # the answered class keeps a score of its own
    problem, nearby = (
        RiskProblem.of(subject, Ties.of(row, groups, subject.n_outputs))
        for row in (eta, _on_boundary(eta, decision, cost))
    )
    n_unknowns = problem.ties.n_unknowns
    least, _ = problem.descend_from_guess(problem.risk, n_unknowns)
    start, _ = nearby.descend_from_guess(nearby.risk, n_unknowns)
    constraints = decision_constraints(subject, decision)
    unknowns, violation = best_in_region(problem, constraints, start)
    everywhere = torch.arange(len(eta))
    with torch.no_grad():
        gap = problem.risk(unknowns, everywhere) - problem.risk(least, everywhere)
        free = (constraints(problem.ties.scores(least, everywhere)) >= 0).all(-1)
        gap = torch.where(free, 0.0, gap)  # the minimiser takes this decision by itself
        violation = torch.where(free, 0.0, violation)
    gap = torch.where(violation < 1e-7, gap.clamp(min=0.0), torch.inf) * subject.scale.unit
    return gap.numpy()


def _on_boundary(eta: Tensor, decision: int, cost: float) -> Tensor:
    """Return eta changed so that Chow's rule is about to take, or to leave, the decision: its minimiser is close."""
    place = eta.argmax(-1, keepdim=True) if decision == REJECT else torch.full((len(eta), 1), decision)
    others = (eta + 1e-6).scatter(-1, place, 0.0)
    return (others / others.sum(-1, keepdim=True) * cost).scatter(-1, place, 1 - cost)


def _lower(best: NDArray[np.float64], gaps: NDArray[np.float64], rows: NDArray[np.int_]) -> None:
    np.minimum.at(best, rows, gaps)
