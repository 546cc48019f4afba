"""Decisions, and the rules that turn class probabilities into them.

The tie convention of the whole package lives in :meth:`Decision.from_acceptance`: an example is accepted
where the acceptance r(x) is positive and rejected where it is zero or negative, as in the paper.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from demur.costs import check_cost, cost_per_row
from demur.errors import InputError

__all__ = ["Chow", "CostMatrix", "Decision", "Rule", "Threshold", "check_proba", "chow_acceptance"]

Array = TypeVar("Array")
"""NumPy array or torch tensor."""


@dataclass(frozen=True)
class Decision(Generic[Array]):
    """What to do with each example: answer with a class, or decline.

    Parameters
    ----------
    label : array of int
        The class that would be answered, also where the example is rejected.
    reject : array of bool
        True where the example is declined.
    acceptance : array of float
        r(x): positive where accepted, zero or negative where rejected.
    confidence : array of float
        Higher means keep; orders the examples for a risk-coverage curve.

    Examples
    --------
    >>> decision = Chow(cost=0.2).decide([[0.9, 0.1], [0.6, 0.4]])
    >>> decision.label, decision.reject
    (array([0, 0]), array([False,  True]))
    >>> decision.labels(["cat", "dog"], reject_label="ask").tolist()
    ['cat', 'ask']
    """

    label: Array
    reject: Array
    acceptance: Array
    confidence: Array

    @classmethod
    def from_acceptance(cls, label: Array, acceptance: Array, confidence: Array | None = None) -> Self:
        """Accept where ``acceptance > 0``; ties and undefined values reject."""
        comparable: Any = acceptance
        reject = ~(comparable > 0)
        return cls(label, reject, acceptance, acceptance if confidence is None else confidence)

    def numpy(self) -> "Decision[NDArray[Any]]":
        """Return the same decision with NumPy arrays, whatever it held before."""
        return Decision(*(_to_numpy(getattr(self, field.name)) for field in fields(self)))

    def labels(self, classes: ArrayLike, reject_label: Any = -1) -> NDArray[Any]:
        """Write the decisions as class names, with ``reject_label`` where declined."""
        decision = self.numpy()
        answers: NDArray[Any] = np.asarray(classes)[decision.label]
        same_kind = _is_text(answers) == _is_text(np.asarray(reject_label)) and answers.dtype != bool
        if not same_kind or reject_label is None:
            answers = answers.astype(object)  # NumPy would turn a -1 among names into the name "-1"
            answers[decision.reject] = reject_label
            return answers
        return np.where(decision.reject, np.asarray(reject_label), answers)


class Rule(ABC):
    """A rule turns class probabilities into a :class:`Decision`."""

    def decide(self, proba: ArrayLike) -> Decision[NDArray[Any]]:
        """Decide for each row of ``proba``, an array of shape (..., n_classes)."""
        return self._decide(check_proba(proba))

    @abstractmethod
    def _decide(self, proba: NDArray[np.floating[Any]]) -> Decision[NDArray[Any]]: ...


def chow_acceptance(confidence: Any, cost: Any) -> Any:
    """Return r = max_y eta_y - (1 - c), the Bayes-optimal rejector (Section 2.1 and Eq. 10 of the paper)."""
    return confidence - (1 - cost)


@dataclass(frozen=True)
class Chow(Rule):
    """Chow's rule, optimal for the 0-1-c loss: answer iff max_y eta_y > 1 - c.

    Parameters
    ----------
    cost : float, or array of one per row
        The price c of one rejection, in [0, 1); one wrong answer costs 1.

    Notes
    -----
    Ties reject. At c = 0 asking is free: nothing uncertain is accepted, and certainty itself is a tie.

    Examples
    --------
    >>> Chow(cost=0.25).decide([[0.75, 0.25], [0.8, 0.2]]).reject
    array([ True, False])
    """

    cost: float | NDArray[np.floating[Any]]

    def __post_init__(self) -> None:
        check_cost(self.cost)

    def _decide(self, proba: NDArray[np.floating[Any]]) -> Decision[NDArray[Any]]:
        confidence = proba.max(axis=-1)
        cost = cost_per_row(self.cost, confidence.shape)
        return Decision.from_acceptance(proba.argmax(axis=-1), chow_acceptance(confidence, cost), confidence)


@dataclass(frozen=True)
class Threshold(Rule):
    """Answer iff max_y eta_y > t, for a threshold the user has chosen.

    Parameters
    ----------
    threshold : float, or array broadcasting against the rows
        In [0, 1]. ``Threshold(1 - c)`` decides as ``Chow(c)``.

    Examples
    --------
    >>> Threshold(0.5).decide([[0.4, 0.3, 0.3], [0.6, 0.2, 0.2]]).reject
    array([ True, False])
    """

    threshold: float | NDArray[np.floating[Any]]

    def __post_init__(self) -> None:
        values = np.asarray(self.threshold, dtype=np.float64)
        if not np.all((values >= 0) & (values <= 1)):
            raise InputError(f"threshold must be in [0, 1], got {self.threshold}.")

    def _decide(self, proba: NDArray[np.floating[Any]]) -> Decision[NDArray[Any]]:
        confidence = proba.max(axis=-1)
        return Decision.from_acceptance(proba.argmax(axis=-1), confidence - self.threshold, confidence)

    def explain(self) -> str:
        """Say in words how the rule decides."""
        return f"It answers where its confidence exceeds {np.asarray(self.threshold).tolist()}; it promises nothing."


@dataclass(frozen=True, eq=False)
class CostMatrix(Rule):
    """The Bayes decision for costs that depend on the true class and on the answer.

    With eta the class probabilities, answer j costs sum_y eta_y C[y, j] on average and rejecting costs
    sum_y eta_y C[y, K]; the cheapest is chosen, and a tie rejects. The acceptance is what answering saves.

    Parameters
    ----------
    costs : array of shape (n_classes, n_classes + 1), or (n_rows, n_classes, n_classes + 1)
        Rows are true classes, columns answers; the last column is the cost of rejecting that class. With a
        third axis in front, each example has costs of its own.

    Examples
    --------
    Missing a disease (row 1) is ten times worse than a false alarm (row 0), and asking costs 0.3:

    >>> triage = CostMatrix([[0, 1, 0.3], [10, 0, 0.3]])
    >>> triage.decide([[0.99, 0.01], [0.9, 0.1], [0.1, 0.9]]).reject
    array([False,  True, False])
    """

    costs: ArrayLike

    def __post_init__(self) -> None:
        matrix = np.asarray(self.costs, dtype=np.float64)
        if matrix.ndim not in (2, 3) or matrix.shape[-1] != matrix.shape[-2] + 1 or matrix.shape[-2] < 2:
            raise InputError(
                f"a cost matrix has shape (K, K + 1), true class by answer with rejection last, or (n, K, K + 1); "
                f"got {matrix.shape}."
            )
        if not np.isfinite(matrix).all():
            raise InputError("a cost matrix must be finite; use a large number instead of infinity.")
        if matrix.ndim == 2 and not _rejecting_can_pay(matrix):
            raise InputError(
                "rejecting can never pay with these costs: whatever the probabilities, some answer is at most as "
                "expensive as the last column. Lower the last column, or predict without a reject option."
            )
        object.__setattr__(self, "costs", matrix)

    def explain(self) -> str:
        """Say in words how the rule decides."""
        return (
            "It takes what costs least by its cost matrix, given the probabilities: one of the answers, or to hand the "
            "row on; it promises nothing."
        )

    def _decide(self, proba: NDArray[np.floating[Any]]) -> Decision[NDArray[Any]]:
        matrix = np.asarray(self.costs)
        n_classes = matrix.shape[-2]
        if proba.shape[-1] != n_classes:
            raise InputError(f"the cost matrix is for {n_classes} classes, the probabilities have {proba.shape[-1]}.")
        if matrix.ndim == 3 and proba.shape[:-1] != matrix.shape[:1]:
            raise InputError(
                f"the cost matrix is for {matrix.shape[0]} rows, the probabilities have {proba.shape[:-1]}."
            )
        expected = np.einsum("...k,...kj->...j", proba, matrix)
        answers, rejecting = expected[..., :-1], expected[..., -1]
        return Decision.from_acceptance(answers.argmin(axis=-1), rejecting - answers.min(axis=-1))


def check_proba(proba: ArrayLike) -> NDArray[np.floating[Any]]:
    """Check class probabilities of shape (..., n_classes): finite, in [0, 1], rows summing to 1.

    Examples
    --------
    >>> check_proba([[0.5, 0.6]])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: probabilities must sum to 1 in each row; row 0 sums to 1.1. Normalise them first.
    """
    values = np.asarray(proba)
    if not np.issubdtype(values.dtype, np.floating):
        values = values.astype(np.float64)
    if values.ndim == 0 or values.shape[-1] < 2:
        raise InputError(f"probabilities need shape (..., n_classes) with at least two classes, got {values.shape}.")
    slack = 1e-3  # room for float16 and for sums over many classes
    if values.size and not (values.min() >= -slack and values.max() <= 1 + slack):  # NaN compares as False
        if not np.isfinite(values).all():
            raise InputError("probabilities contain NaN or infinity; remove or impute those rows first.")
        bad = values[(values < -slack) | (values > 1 + slack)].flat[0]
        raise InputError(f"probabilities must lie in [0, 1], got {bad:g}. Scores need an inverse link first.")
    sums = values.sum(axis=-1)
    wrong = np.abs(sums - 1) > slack
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"probabilities must sum to 1 in each row; row {row} sums to {sums.flat[row]:g}. Normalise them first."
        )
    return values


def _rejecting_can_pay(matrix: NDArray[np.float64]) -> bool:
    """Return whether rejecting is strictly cheaper than every answer for some distribution: a linear program.

    Each class's savings may be rescaled, since the distribution can make up for it; that keeps the program well
    conditioned for costs of very different sizes.
    """
    n_classes = matrix.shape[0]
    saving = matrix[:, :-1] - matrix[:, -1:]
    saving = saving / np.maximum(np.abs(saving).max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    result = linprog(
        np.r_[np.zeros(n_classes), -1.0],
        A_ub=np.c_[-saving.T, np.ones(n_classes)],
        b_ub=np.zeros(n_classes),
        A_eq=np.r_[np.ones(n_classes), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, 1)] * n_classes + [(None, None)],
    )
    if result.status != 0 or result.fun is None:
        raise RuntimeError(f"the linear program that checks the cost matrix failed: {result.message}")
    return bool(-result.fun > 1e-9)


def _is_text(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "US"


def _to_numpy(array: Any) -> NDArray[Any]:
    return np.asarray(array.detach().cpu() if hasattr(array, "detach") else array)
