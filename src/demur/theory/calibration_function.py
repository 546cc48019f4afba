r"""The tightest calibration function: how small a surrogate excess risk can be, given the 0-1-c excess (Eq. 13).

At one eta, a wrong decision that loses z of 0-1-c risk costs the surrogate at least

    delta(z) = min over eta and wrong decisions losing z of (best risk with that decision) - (least risk).

Distributions mix such points, so the bound for risks is the largest convex function below delta; no valid xi is larger
anywhere. The curve returned here lies below that function. If delta has a closed form (cross-entropy, one-versus-all,
binary margin losses), the difference is only due to rounding and a fine grid, and the curve is certified; if delta is
computed, it is up to one step of the grid.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from demur.array_types import Floats
from demur.errors import InputError
from demur.losses import Loss
from demur.theory.bayes import REJECT, NoBoundError, as_target, require_cost, require_n_classes
from demur.theory.examined_loss import ExaminedLoss, LossLike, as_loss, examine
from demur.theory.excess_bounds import (
    ExcessRiskBound,
    LowerCurve,
    Piece,
    bound_facts_of,
    closed_pieces,
    excess_risk_bound,
    least_of,
    require_excess,
)
from demur.theory.pointwise_risk import RiskProblem, equal_values
from demur.theory.witness import best_in_region, decision_constraints
from demur.workers import single_threaded_kernels


@dataclass(frozen=True)
class CalibrationFunction:
    """The largest valid xi of a loss that was found, callable on excess 0-1-c risks between 0 and 1.

    Parameters
    ----------
    subject : ExaminedLoss
    cost : float
    bound : ExcessRiskBound or None
        The paper's bound, if there is one.
    curve : LowerCurve
        The function itself: convex, on a fixed grid.
    pieces : list or None
        delta in closed form, if it is known.
    nodes, values : arrays
        Excesses z and delta(z), if delta is computed.

    Examples
    --------
    For the squared loss delta is 4 z^2 up to z = 1 - 2c; the paper's bound is z^2:

    >>> xi = calibration_function("ova+sq", 3, cost=0.2)
    >>> xi([0.1, 0.3]).round(3), round(float(xi.bound.xi(0.1)), 6), xi.certified
    (array([0.04, 0.36]), 0.01, True)
    """

    subject: ExaminedLoss
    cost: float
    bound: ExcessRiskBound | None
    curve: LowerCurve
    pieces: list[Piece] | None = field(repr=False)
    nodes: Floats = field(repr=False)
    values: Floats = field(repr=False)

    @property
    def certified(self) -> bool:
        """Whether the curve is proved to lie below the tightest xi, and within a thousandth of it.

        Otherwise it is computed from minima that a search found.
        """
        return self.pieces is not None

    @property
    def loss(self) -> Loss:
        """The loss it is about."""
        return self.subject.loss

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return self.subject.n_classes

    def pointwise(self, zero_one_c_excess: ArrayLike) -> Floats:
        """Return delta(z): the least surrogate excess at any one eta where at least z is lost."""
        z = _excesses(zero_one_c_excess)
        if self.pieces is not None:
            return least_of(self.pieces, z)
        at_least = np.where(self.nodes[None, :] >= z[..., None], self.values, np.inf).min(-1)
        delta: Floats = np.minimum(least_gaps(self.subject, self.cost, z), at_least)
        return delta

    def __call__(self, zero_one_c_excess: ArrayLike) -> Floats:
        """Return xi(z)."""
        return self.curve(_excesses(zero_one_c_excess))

    def zero_one_c(self, surrogate_excess: float) -> float:
        """Return the largest excess 0-1-c risk that a surrogate excess risk allows.

        Parameters
        ----------
        surrogate_excess : float
        """
        return self.curve.inverse(require_excess(surrogate_excess))


def calibration_function(loss: LossLike, n_classes: int, cost: float, *, n_nodes: int = 48) -> CalibrationFunction:
    """Return the tightest calibration function of a smooth loss, certified where delta has a closed form.

    Otherwise delta is computed, as the minimum over eta of the form (p, q, rest): Chow's class, the class answered, and
    the rest spread evenly or on one class.

    Parameters
    ----------
    loss : str, Loss or callable
        Smooth, and symmetric in the classes (or binary).
    n_classes : int
    cost : float
        In (0, 1/2).
    n_nodes : int
        Number of values of z at which delta is computed.

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
    if not (subject.linked or subject.answers_argmax) or not (subject.symmetric or n_classes == 2):
        raise NoBoundError(
            f"the calibration function is computed for losses that are symmetric in the classes and answer the class "
            f"with the largest score or probability; {made.name} is not one."
        )
    facts = bound_facts_of(made)
    bound = None if facts is None else excess_risk_bound(made, cost)
    pieces = None if facts is None else closed_pieces(facts, n_classes, cost)
    if pieces is not None:
        curve = LowerCurve.below(pieces)
        return CalibrationFunction(subject, cost, bound, curve, pieces, curve.nodes, curve.values)
    corners = [0.002, 0.005, 0.01, cost, 1 - cost, 1 - 2 * cost]
    nodes = np.unique(np.r_[np.linspace(0, 1, n_nodes + 1)[1:], corners])
    values = np.minimum.accumulate(least_gaps(subject, cost, nodes)[::-1])[::-1]
    curve = LowerCurve.through_steps(nodes, values)
    return CalibrationFunction(subject, cost, bound, curve, None, nodes, values)


def _excesses(zero_one_c_excess: ArrayLike) -> Floats:
    z = np.asarray(zero_one_c_excess, dtype=np.float64)
    if not np.all((z >= 0) & (z <= 1)):
        raise InputError(f"an excess 0-1-c risk lies in [0, 1], got {z}.")
    return z


@single_threaded_kernels()
def least_gaps(subject: ExaminedLoss, cost: float, z: Floats) -> Floats:
    """Return, for each 0-1-c excess z, the least surrogate excess of a decision that loses exactly z at one eta.

    The eta are those of :func:`demur.theory.calibration_function`; infinite where none of them can lose z.

    Examples
    --------
    >>> from demur.losses import get
    >>> from demur.theory.bayes import as_target
    >>> least_gaps(examine(get("ova+sq"), as_target(0.2, 3)), 0.2, np.array([0.1])).round(9)  # 4 z^2
    array([0.04])
    """
    positive = np.where(z > 0, z, 1.0).reshape(-1)
    best = np.full(positive.shape, np.inf)
    for decision in (REJECT, 1):
        eta, number = _losing(positive, subject.n_classes, cost, decision)
        excess = subject.target.excess(torch.full((len(eta),), decision), eta)
        valid = ((eta.sum(-1) - 1).abs() < 1e-9) & ((excess - torch.from_numpy(positive[number])).abs() < 1e-9)
        valid &= (eta > -1e-12).all(-1)
        rows, number = eta[valid].clamp(min=0.0), number[valid.numpy()]
        if not len(rows):
            continue
        np.minimum.at(best, number, _gaps(subject, rows, decision))
        if not subject.symmetric:  # two classes
            np.minimum.at(best, number, _gaps(subject, rows.flip(-1), decision if decision == REJECT else 0))
    result: Floats = np.where(z > 0, best.reshape(z.shape), 0.0)
    return result


def _losing(z: Floats, n_classes: int, cost: float, decision: int) -> tuple[Tensor, NDArray[np.int_]]:
    """Return eta at which a decision, -1 or 1, may lose z, and the number of that z.

    Class 0 has p, class 1 has q and m more share the rest. Rejecting loses z where p = 1 - c + z; answering class 1
    where q = 1 - c - z and rejecting is best, or where q = p - z and answering class 0 is best.
    """
    others = n_classes - 2
    few = min(1, others)
    if decision == REJECT:
        p = 1 - cost + z
        shapes = [(p, (1 - p) / (n_classes - 1), others), (p, 1 - p, 0)]
    else:
        q = 1 - cost - z
        shapes = [((1 - q) / (n_classes - 1), q, others), (1 - q, q, 0), ((1 - q) / 2, q, few)]
        shapes.append((np.minimum(1 - cost, 1 - q), q, few))
        low, high = np.maximum(1 - cost, z), (1 + z) / 2
        for p in np.linspace(low if n_classes > 2 else high, high, 17):
            shapes += [(p, p - z, m) for m in {few, others}]
    rows = np.zeros((len(shapes), len(z), n_classes))
    for row, (p, q, m) in zip(rows, shapes, strict=True):
        row[:, 0], row[:, 1] = p, q
        row[:, 2 : 2 + m] = (1 - p - q)[:, None] / max(m, 1)
    return torch.from_numpy(rows.reshape(-1, n_classes)), np.tile(np.arange(len(z)), len(shapes))


def _gaps(subject: ExaminedLoss, eta: Tensor, decision: int) -> Floats:
    """Return, for each row, the best risk with a decision minus the least risk."""
    groups = equal_values(eta) if subject.symmetric else None
    if groups is not None and decision != REJECT:
        groups[:, decision] = groups.max() + 1  # the answered class keeps a score of its own
    problem = RiskProblem(subject, eta, groups)
    least, _ = problem.descend(problem.risk, problem.guess()[0])
    constraints = decision_constraints(subject, decision)
    unknowns, violation = best_in_region(problem, constraints, torch.zeros_like(least))
    everywhere = torch.arange(len(eta))
    with torch.no_grad():
        gap = problem.risk(unknowns, everywhere) - problem.risk(least, everywhere)
        free = (constraints(problem.scores(least)) >= 0).all(-1)  # the minimiser takes this decision by itself
    gap = torch.where(violation < 1e-7, gap.clamp(min=0.0), torch.inf)
    return (torch.where(free, 0.0, gap) * subject.scale.unit).numpy()
