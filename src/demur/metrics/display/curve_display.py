"""What the drawings of curves share: how they come from an estimator or from probabilities."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from numpy.typing import ArrayLike

from demur.metrics.cost_curve import confidence_and_errors
from demur.metrics.display.axes import confidence_and_errors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CurveDisplay"]

Curve = TypeVar("Curve")


class CurveDisplay(ABC, Generic[Curve]):
    """A drawing of one curve.

    Parameters
    ----------
    curve : RiskCoverage or CostCurve
    name : str, optional
        For the legend.
    """

    def __init__(self, curve: Curve, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **line: Any,
    ) -> Self:
        """Draw the curve of a fitted classifier, ordered by its own confidence.

        Parameters
        ----------
        estimator : classifier
            With ``decide`` (as those of demur) or ``predict_proba``; a cost curve needs the latter.
        X, y, sample_weight
            Rows the classifier has not seen, their classes, and how much each counts.
        name : str, optional
            The class of the estimator by default.
        ax, **line
            As for :meth:`plot`.
        """
        cls._check(estimator)
        curve = cls._curve(*confidence_and_errors_of(estimator, X, y), sample_weight)
        return cls(curve, name=name or type(estimator).__name__).plot(ax, **line)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        proba: ArrayLike,
        *,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        name: str | None = None,
        ax: "Axes | None" = None,
        **line: Any,
    ) -> Self:
        """Draw the curve of class probabilities, ordered by the largest.

        Parameters
        ----------
        y_true : array of shape (n,)
            Column numbers, or entries of ``classes``.
        proba : array of shape (n, n_classes)
        classes, sample_weight
            As for :meth:`CostCurve.from_proba <demur.metrics.CostCurve.from_proba>`.
        name : str, optional
        ax, **line
            As for :meth:`plot`.
        """
        curve = cls._curve(*confidence_and_errors(proba, y_true, classes), sample_weight)
        return cls(curve, name=name).plot(ax, **line)

    @abstractmethod
    def plot(self, ax: "Axes | None" = None, *, name: str | None = None, **line: Any) -> Self:
        """Draw the curve."""

    @classmethod
    @abstractmethod
    def _curve(cls, confidence: Any, wrong: Any, sample_weight: ArrayLike | None) -> Curve: ...

    @classmethod
    def _check(cls, estimator: Any) -> None:
        """Refuse an estimator that has no such curve."""
