"""The target of all losses: the decision of least expected cost and its risk (Section 2.1); checks of the input."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from demur.array_types import Floats
from demur.costs import check_cost
from demur.errors import InputError
from demur.rules import Chow, CostMatrix, Decision, check_proba

REJECT = -1
"""The decision to reject; other decisions are class numbers. It is also the index of the last column of a cost
matrix."""
WRONG = 1e-8
"""A decision counts as right if it costs at most this much more than the best one."""

CostLike: TypeAlias = float | Sequence[float] | Floats | CostMatrix


class CostRangeError(InputError):
    """The requested statement does not hold, or is vacuous, at this rejection cost."""


class LossContractError(InputError):
    """A user-defined loss violates the interface: wrong shape, NaN, or no derivative."""


class NoBoundError(InputError):
    """No theorem gives the requested bound for this loss."""


class RuleWarning(UserWarning):
    """A rule that can never answer some class."""


def bayes_decision(proba: ArrayLike, cost: float) -> Decision[NDArray[Any]]:
    """Return Chow's decision: answer argmax eta iff max eta > 1 - c, which minimises the 0-1-c risk (Eq. 1).

    Parameters
    ----------
    proba : array of shape (..., n_classes)
        The true class probabilities eta.
    cost : float
        The price c of one rejection.

    Examples
    --------
    >>> bayes_decision([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]], cost=0.2).reject
    array([False,  True])
    """
    return Chow(cost).decide(proba)


def bayes_risk(proba: ArrayLike, cost: float) -> Floats:
    """Return min(c, 1 - max eta), the least 0-1-c risk that any decision has, for each row.

    Examples
    --------
    >>> bayes_risk([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]], cost=0.2).round(6)
    array([0.1, 0.2])
    """
    check_cost(cost)
    least: Floats = np.minimum(cost, 1 - np.asarray(check_proba(proba), dtype=np.float64).max(-1))
    return least


@dataclass(frozen=True)
class Target:
    """The cost of every decision, and from it the best decision at each eta.

    Decisions are whole numbers: a class, or -1 for rejecting.

    Parameters
    ----------
    matrix : tensor of shape (n_classes, n_classes + 1)
        Rows are true classes, columns answers, the last column rejecting.
    cost : float or tensor
        The cost as given, which a loss and its rule receive.

    Examples
    --------
    >>> target = as_target(0.2, 3)
    >>> eta = torch.tensor([[0.9, 0.1, 0.0], [0.5, 0.3, 0.2]], dtype=torch.float64)
    >>> target.best(eta)
    tensor([ 0, -1])
    >>> target.excess(torch.tensor([1, 0]), eta)
    tensor([0.8000, 0.3000], dtype=torch.float64)
    """

    matrix: Tensor
    cost: float | Tensor

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return len(self.matrix)

    @property
    def single(self) -> float | None:
        """The price c of every rejection, where a wrong answer costs 1; None with other costs."""
        return self.cost if isinstance(self.cost, float) else None

    def words(self, decision: int) -> str:
        """Return the description of a decision."""
        return "reject" if decision == REJECT else f"answer class {decision}"

    def kind(self, best: int, taken: int) -> str:
        """Return the name of a wrong decision: "false_accept", "false_reject" or "misclassify"."""
        if best == REJECT:
            return "false_accept"
        return "false_reject" if taken == REJECT else "misclassify"

    def expected(self, eta: Tensor) -> Tensor:
        """Return the expected cost of every decision, (..., n_classes + 1), rejecting last."""
        return eta @ self.matrix

    def least(self, costs: Tensor) -> Tensor:
        """Return the decision of least cost, given the costs of all (..., n_classes + 1); ties reject."""
        answers = costs[..., :-1].min(-1)
        return torch.where(costs[..., -1] <= answers.values, REJECT, answers.indices)

    def best(self, eta: Tensor) -> Tensor:
        """Return the decision of least cost at each eta; ties reject."""
        return self.least(self.expected(eta))

    def excess(self, decision: Tensor, eta: Tensor) -> Tensor:
        """Return the cost of each decision minus that of the best one."""
        costs = self.expected(eta)
        column = decision % costs.shape[-1]  # rejecting is the last one
        return costs.gather(-1, column.unsqueeze(-1))[..., 0] - costs.amin(-1)

    def clearance(self, eta: Tensor) -> Tensor:
        """Return the cost of the second best decision minus that of the best; 0 in a tie."""
        lowest = self.expected(eta).topk(2, dim=-1, largest=False).values
        return lowest[..., 1] - lowest[..., 0]


def chow_target(cost: float, n_classes: int) -> Target:
    """Return the target for one price c of rejecting, where a wrong answer costs 1."""
    return Target(_zero_one(n_classes, np.full(n_classes, cost)), cost)


def as_target(cost: CostLike, n_classes: int) -> Target:
    """Return the target for one price c, for a price of rejecting each class, or for a whole cost matrix.

    Parameters
    ----------
    cost : float, array of shape (n_classes,) or (n_classes, n_classes + 1), or CostMatrix
        Cost of rejecting; an array with one axis has the cost of rejecting each class. A wrong answer costs 1.
    n_classes : int

    Examples
    --------
    >>> as_target([0.1, 0.4], 2).matrix
    tensor([[0.0000, 1.0000, 0.1000],
            [1.0000, 0.0000, 0.4000]], dtype=torch.float64)
    >>> as_target(0.7, 3)
    Traceback (most recent call last):
        ...
    demur.theory.bayes.CostRangeError: this statement needs a cost in (0, 0.666667), got 0.7; ...
    """
    given = cost.costs if isinstance(cost, CostMatrix) else cost
    if np.ndim(given) == 0:
        single = require_cost(given, below=1 - 1 / n_classes)
        check_cost(single)
        return chow_target(single, n_classes)
    values = np.array(given, dtype=np.float64)
    if values.shape not in ((n_classes,), (n_classes, n_classes + 1)):
        raise CostRangeError(
            f"with {n_classes} classes the cost is one number, {n_classes} numbers (the price of rejecting each class) "
            f"or a matrix of the shape ({n_classes}, {n_classes + 1}) (rows the true classes, the last column "
            f"rejecting); got the shape {values.shape}."
        )
    matrix = _zero_one(n_classes, values) if values.ndim == 1 else torch.from_numpy(values)
    CostMatrix(matrix.numpy())  # refuses infinities
    return Target(matrix, torch.from_numpy(values))


def require_cost(cost: Any, *, below: float = 0.5) -> float:
    """Return the cost as a float, or refuse one outside (0, below).

    Examples
    --------
    >>> require_cost(0.2)
    0.2
    >>> require_cost(0.7)
    Traceback (most recent call last):
        ...
    demur.theory.bayes.CostRangeError: this statement needs a cost in (0, 0.5), got 0.7; ...
    """
    try:
        value = float(cost)
    except (TypeError, ValueError):
        raise CostRangeError(f"cost must be one number in (0, {below:g}), got {cost!r}.") from None
    if not 0 < value < below:
        raise CostRangeError(
            f"this statement needs a cost in (0, {below:g}), got {value:g}; the cost is the price of one rejection "
            "where one wrong answer costs 1."
        )
    return value


def require_n_classes(n_classes: int) -> int:
    """Return the number of classes, or refuse fewer than two.

    Examples
    --------
    >>> require_n_classes(1)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: a classifier needs at least two classes, got 1.
    """
    if isinstance(n_classes, bool | str | None) or int(n_classes) != n_classes:
        raise InputError(f"the number of classes must be a whole number, got {n_classes!r}.")
    if n_classes < 2:
        raise InputError(f"a classifier needs at least two classes, got {n_classes}.")
    return int(n_classes)


def _zero_one(n_classes: int, rejecting: Floats) -> Tensor:
    return torch.from_numpy(np.c_[1 - np.eye(n_classes), rejecting])
