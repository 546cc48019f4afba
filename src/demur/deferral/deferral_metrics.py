"""How well model and experts do together: cost, load, the deferral curve, regret, and calibration of the experts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.metrics import RiskCoverage
from demur.metrics.intervals import Interval, bootstrap, proportion_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DeferralCurve",
    "DeferralCurveDisplay",
    "ExpertCalibration",
    "expert_load",
    "regret",
    "system_accuracy",
    "system_risk",
]

Floats = NDArray[np.float64]


def system_accuracy(y_true: ArrayLike, y_system: ArrayLike, confidence_level: float = 0.95) -> Interval:
    """Return the share of rows on which the final answer, of the model or an expert, is right, with its interval.

    Parameters
    ----------
    y_true, y_system : arrays of shape (n,)
    confidence_level : float, default 0.95

    Examples
    --------
    >>> print(system_accuracy(["a", "b", "a", "b"], ["a", "b", "a", "a"]))
    0.75 [0.1941, 0.9937]
    """
    right = _equal(y_true, y_system)
    return proportion_interval(int(right.sum()), len(right), confidence_level)


def system_risk(y_true: ArrayLike, y_system: ArrayLike, ask: ArrayLike, prices: Sequence[float]) -> float:
    """Return the mean cost of the system: 1 for a wrong answer, plus the price of the expert who was asked.

    Parameters
    ----------
    y_true, y_system : arrays of shape (n,)
    ask : array of int, shape (n,)
        The expert who was asked, -1 for the model: ``decision.ask``.
    prices : sequence of float
        One per expert.

    Examples
    --------
    One mistake in four rows, and one question at 0.2:

    >>> system_risk([0, 1, 0, 1], [0, 1, 0, 0], [-1, 0, -1, -1], [0.2])
    0.3
    """
    charged = np.append(np.asarray(prices, dtype=np.float64), 0.0)[_asked(ask, len(prices))]
    return float(np.mean(charged + ~_equal(y_true, y_system)))


def expert_load(ask: ArrayLike, n_experts: int, confidence_level: float = 0.95) -> Interval:
    """Return the share of rows that each expert gets, with intervals.

    Parameters
    ----------
    ask : array of int, shape (n,)
    n_experts : int
    confidence_level : float, default 0.95

    Examples
    --------
    >>> expert_load([-1, 0, 1, 1], 2).estimate
    array([0.25, 0.5 ])
    """
    asked = _asked(ask, n_experts)
    counts = np.bincount(asked + 1, minlength=n_experts + 1)[1:]
    return proportion_interval(counts, len(asked), confidence_level)


def regret(y_true: ArrayLike, y_model: ArrayLike, answers: ArrayLike, ask: ArrayLike, prices: Sequence[float]) -> float:
    """Return what the system costs above an oracle that knows of each row who is right and takes the cheapest of those.

    Parameters
    ----------
    y_true, y_model : arrays of shape (n,)
        The classes, and what the model would answer.
    answers : array of shape (n, n_experts)
        What each expert would answer, without gaps.
    ask : array of int, shape (n,)
    prices : sequence of float

    Examples
    --------
    The oracle would have asked the nurse in the second row, at 0.1 instead of 1:

    >>> round(regret([0, 1], [0, 0], [[0], [1]], [-1, -1], [0.1]), 3)
    0.45
    """
    true, asked = np.asarray(y_true), _asked(ask, len(prices))
    wrong = np.column_stack([np.asarray(answers) != true[:, None], np.asarray(y_model) != true])
    costs = wrong + np.append(np.asarray(prices, dtype=np.float64), 0.0)
    return float(np.mean(costs[np.arange(len(true)), asked] - costs.min(axis=1)))


@dataclass(frozen=True, eq=False)
class DeferralCurve:
    """Accuracy of model and expert together when the least certain share of the rows is asked about.

    Made by :meth:`from_confidence`. Rows of equal confidence cannot be separated by a threshold, so they are asked
    about together: one point for each distinct confidence, and none depends on the order of the rows.

    Parameters
    ----------
    deferred : array
        The share of rows that are asked about, ascending from 0 to 1.
    accuracy : array
        Of the system, at each share.
    area : float
        Under the curve, whose points are joined by straight lines: the mean accuracy over all shares.
    rows : tuple of arrays
        Confidence, whether the model and whether the expert is right.

    Examples
    --------
    The model errs in the row that it is least sure of, the expert in the surest:

    >>> curve = DeferralCurve.from_confidence([0.9, 0.8, 0.6], [True, True, False], [False, True, True])
    >>> curve.deferred.round(2), curve.accuracy.round(2), round(curve.area, 3)
    (array([0.  , 0.33, 0.67, 1.  ]), array([0.67, 1.  , 1.  , 0.67]), 0.889)
    """

    deferred: Floats
    accuracy: Floats
    area: float
    rows: tuple[Floats, Floats, Floats]

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, model_right: ArrayLike, expert_right: ArrayLike) -> Self:
        """Make the curve.

        Parameters
        ----------
        confidence : array of shape (n,)
            Higher means that the model answers: ``decision.confidence``.
        model_right, expert_right : arrays of shape (n,)
            Whether each is right; the expert's may be a share, over several people.
        """
        order, model, expert = (
            np.asarray(values, dtype=np.float64) for values in (confidence, model_right, expert_right)
        )
        if not order.shape == model.shape == expert.shape or order.ndim != 1:
            raise InputError(
                f"confidence, model_right and expert_right must be of one shape (n,), got {order.shape}, {model.shape} "
                f"and {expert.shape}."
            )
        kept = RiskCoverage.from_confidence(order, model - expert)
        level = float(expert.mean())
        deferred = np.r_[1 - kept.coverage[::-1], 1.0]
        accuracy = np.r_[level + kept.generalized_risk[::-1], level]
        return cls(np.abs(deferred), accuracy, level + kept.augrc, (order, model, expert))

    def area_interval(self, confidence_level: float = 0.95, n_resamples: int = 500, seed: Any = 0) -> Interval:
        """Return an interval of the area, from resampled rows.

        Parameters
        ----------
        confidence_level : float, default 0.95
        n_resamples : int, default 500
        seed : int, Generator or None
        """

        def area(*rows: Floats) -> float:
            return type(self).from_confidence(*rows).area

        return bootstrap(area, *self.rows, n_resamples=n_resamples, confidence_level=confidence_level, seed=seed)


@dataclass(frozen=True, eq=False)
class ExpertCalibration:
    """Whether an expert is as often right as it was estimated to be.

    Made by :meth:`from_estimates`.

    Parameters
    ----------
    estimated : array
        The mean estimate in each bin.
    right : Interval
        The share of right answers in each bin.
    error : float
        The expected calibration error: the mean distance of the two, weighted by the rows in each bin.
    """

    estimated: Floats
    right: Interval
    error: float

    @classmethod
    def from_estimates(cls, estimate: ArrayLike, right: ArrayLike, n_bins: int = 10) -> Self:
        """Compare estimates with what happened, in bins of equally many rows; equal estimates stay together.

        Parameters
        ----------
        estimate : array of shape (n,)
            P(expert right), a column of ``model.predict_right(X)``.
        right : array of bool, shape (n,)
        n_bins : int, default 10

        Examples
        --------
        >>> round(ExpertCalibration.from_estimates([0.5, 0.5, 0.9, 0.9], [True, False, True, True]).error, 3)
        0.05
        """
        values, hit = np.asarray(estimate, dtype=np.float64), np.asarray(right, dtype=bool)
        if values.shape != hit.shape or values.ndim != 1 or not len(values):
            raise InputError(f"estimate and right must be of one shape (n,), got {values.shape} and {hit.shape}.")
        cuts = np.unique(np.quantile(values, np.linspace(0, 1, n_bins + 1)[1:-1], method="lower"))
        cell = np.unique(np.searchsorted(cuts, values, side="left"), return_inverse=True)[1]
        counts = np.bincount(cell)
        mean = np.bincount(cell, values) / counts
        share = proportion_interval(np.bincount(cell, hit).astype(np.int64), counts)
        return cls(mean, share, float(np.average(np.abs(share.estimate - mean), weights=counts)))


class DeferralCurveDisplay:
    """Draw the accuracy of model and expert together against the share of rows that are asked about.

    Parameters
    ----------
    curve : DeferralCurve
    name : str, optional
        For the legend.

    Attributes
    ----------
    ax_, figure_, line_
        What :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = DeferralCurve.from_confidence([0.9, 0.8, 0.6], [True, True, False], [False, True, True])
    >>> DeferralCurveDisplay(curve, name="nurse").plot().line_.get_label()
    'nurse (area = 0.889)'
    """

    def __init__(self, curve: DeferralCurve, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    def plot(self, ax: "Axes | None" = None, **line: Any) -> Self:
        """Draw the curve, labelled with its own area.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        **line
            Passed to matplotlib's ``plot``.
        """
        from demur.metrics.displays import axes_or_new, labelled

        axes = axes_or_new(ax)
        style = {"label": labelled(self.name, f"area = {self.curve.area:#.3g}"), **line}
        (self.line_,) = axes.plot(self.curve.deferred, self.curve.accuracy, **style)
        axes.set(xlabel="share of rows asked about", ylabel="accuracy of the system", xlim=(0, 1))
        axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self


def _equal(one: ArrayLike, other: ArrayLike) -> NDArray[np.bool_]:
    true, said = np.asarray(one), np.asarray(other)
    if true.shape != said.shape or true.ndim != 1:
        raise InputError(f"y_true and y_system must be of one shape (n,), got {true.shape} and {said.shape}.")
    return np.asarray(true == said, dtype=bool)


def _asked(ask: ArrayLike, n_experts: int) -> NDArray[np.int64]:
    asked = np.asarray(ask)
    if asked.dtype.kind not in "iu" or ((asked < -1) | (asked >= n_experts)).any():
        raise InputError(f"ask must hold numbers of experts from 0 to {n_experts - 1}, or -1 for the model.")
    return asked.astype(np.int64)
