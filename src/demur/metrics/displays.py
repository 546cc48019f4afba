"""Displays in scikit-learn's style: made from an estimator, from predictions, or from a curve; drawn by ``plot``."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import Estimator, Features, FloatArray, Mask
from demur.errors import InputError, InputTypeError, MissingExtraError
from demur.metrics.classification import normalized, precision_recall_f1
from demur.metrics.cost_curve import CostCurve, confidence_and_errors
from demur.metrics.predictions import NEVER, correct_and_rejected
from demur.metrics.risk_coverage import RiskCoverage
from demur.metrics.zero_one_c import marker_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_POINTS = 5000
"""More points than this cannot be told apart on a screen."""
_N_COSTS = 1000


class CurveDisplay(ABC):
    """A drawing of one curve.

    Parameters
    ----------
    curve : RiskCoverage or CostCurve
    name : str, optional
        Name in the legend.
    """

    curve_type: ClassVar[Any]

    def __init__(self, curve: Any, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Features,
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
            Classifier with ``decide`` (as those of demur) or ``predict_proba``; a cost curve needs probabilities.
        X, y, sample_weight
            Rows that the classifier has not seen, their classes, and their weights.
        name : str, optional
            Name in the legend; by default the class name of the estimator.
        ax, **line
            As for :meth:`plot`.
        """
        curve = cls.curve_type.from_confidence(*_confidence_and_errors_of(estimator, X, y), sample_weight)
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
        curve = cls.curve_type.from_confidence(*confidence_and_errors(proba, y_true, classes), sample_weight)
        return cls(curve, name=name).plot(ax, **line)

    @abstractmethod
    def plot(self, ax: "Axes | None" = None, **line: Any) -> Self:
        """Draw the curve."""

    def _finish(self, axes: "Axes", bottom: float) -> Self:
        axes.set_ylim(bottom=bottom, auto=True)  # a second curve on the same axes may be higher
        axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self


class RiskCoverageDisplay(CurveDisplay):
    """Draw the risk of the answers given against the share of rows answered.

    Parameters
    ----------
    curve : RiskCoverage
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_, figure_, line_
        Objects that :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = RiskCoverage.from_confidence([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 0])
    >>> RiskCoverageDisplay(curve, name="model").plot().line_.get_label()
    'model (AURC = 0.146)'
    """

    curve_type = RiskCoverage

    def plot(self, ax: "Axes | None" = None, **line: Any) -> Self:
        """Draw the curve, labelled with the area under it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        **line
            Passed on to matplotlib's ``plot``.
        """
        axes, risk = axes_or_new(ax), self.curve.risk
        shown = np.unique(np.linspace(0, len(risk) - 1, min(len(risk), _MOST_POINTS)).astype(int))
        label = labelled(self.name, f"AURC = {self.curve.aurc:#.3g}")
        style = {"label": label, "marker": "o" if len(risk) == 1 else None, **line}
        (self.line_,) = axes.plot(self.curve.coverage[shown], risk[shown], **style)
        axes.set(xlabel="coverage (share of rows answered)", ylabel="risk of the answers given", xlim=(0, 1))
        return self._finish(axes, min(float(risk.min()), 0.0))


class CostCurveDisplay(CurveDisplay):
    """Draw the 0-1-c risk against the rejection cost.

    Parameters
    ----------
    curve : CostCurve
    name : str, optional
        Name in the legend.

    Attributes
    ----------
    ax_, figure_, line_
        Objects that :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = CostCurve.from_proba([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    >>> CostCurveDisplay(curve, name="model").plot().line_.get_label()
    'model (mean risk = 0.185)'
    """

    curve_type = CostCurve

    def plot(self, ax: "Axes | None" = None, *, max_cost: float = 0.5, **line: Any) -> Self:
        """Draw the risk, labelled with its mean, and the risks of answering and of declining every row.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        max_cost : float, default 0.5
            Largest cost to draw.
        **line
            Passed on to matplotlib's ``plot``.
        """
        axes = axes_or_new(ax)
        costs = np.linspace(0, max_cost, _N_COSTS, endpoint=False)
        label = labelled(self.name, f"mean risk = {self.curve.mean_risk(0, max_cost):#.3g}")
        (self.line_,) = axes.plot(costs, self.curve.risk_at(costs), **{"label": label, **line})
        style: dict[str, Any] = {"color": self.line_.get_color(), "linestyle": "--", "linewidth": 1}
        axes.axhline(self.curve.error_rate, label=labelled(self.name, "answer all"), **style)
        if not any(one.get_label() == "reject all" for one in axes.lines):
            axes.plot([0, max_cost], [0, max_cost], color="0.6", linestyle=":", label="reject all")
        axes.set(xlabel="rejection cost c", ylabel="0-1-c risk", xlim=(0, max_cost))
        return self._finish(axes, 0.0)


class RejectConfusionMatrixDisplay:
    """Draw true classes against answers, with rejections in a last, separated column.

    Parameters
    ----------
    confusion_matrix : array of shape (n_classes, n_classes + 1)
        As :func:`~demur.metrics.confusion_matrix` returns it.
    display_labels : array of shape (n_classes,), optional
        Names of the classes; numbers by default.

    Attributes
    ----------
    ax_, figure_, text_
        Objects that :meth:`plot` has drawn; ``text_`` is the array of the cell texts.

    Examples
    --------
    >>> display = RejectConfusionMatrixDisplay.from_predictions([0, 0, 1], [0, -1, 1])
    >>> [cell.get_text() for cell in display.text_[0]]
    ['1', '0', '1']
    """

    def __init__(self, confusion_matrix: ArrayLike, *, display_labels: ArrayLike | None = None) -> None:
        matrix = np.asarray(confusion_matrix)
        if matrix.ndim != 2 or matrix.shape[1] != matrix.shape[0] + 1:
            raise InputError(
                f"a confusion matrix with a reject column has shape (K, K + 1), got {matrix.shape}; make it with "
                "demur.metrics.confusion_matrix."
            )
        self.confusion_matrix = matrix
        self.display_labels = np.arange(len(matrix)) if display_labels is None else np.asarray(display_labels)

    @classmethod
    def from_estimator(cls, estimator: Estimator, X: Features, y: ArrayLike, **options: Any) -> Self:
        """Draw the predictions of a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            Fitted classifier. It declines where it predicts its ``reject_label_`` (or that of the last step of a
            pipeline); a classifier without that attribute never declines.
        X, y
            Rows that the classifier has not seen, and their classes.
        **options
            Passed on to :meth:`from_predictions`.
        """
        return cls.from_predictions(y, estimator.predict(X), reject_label=marker_of(estimator, None), **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        normalize: Literal["true", "pred", "all"] | None = None,
        ax: "Axes | None" = None,
        xticks_rotation: float = 0,
        **options: Any,
    ) -> Self:
        """Draw given predictions; parameters as for :func:`~demur.metrics.confusion_matrix` and :meth:`plot`."""
        scores = precision_recall_f1(y_true, y_pred, **options)
        display = cls(normalized(scores.counts, normalize), display_labels=scores.labels)
        return display.plot(ax, xticks_rotation=xticks_rotation)

    def plot(self, ax: "Axes | None" = None, *, xticks_rotation: float = 0) -> Self:
        """Draw the matrix.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        xticks_rotation : float, default 0
            Rotation of the labels in degrees.
        """
        matrix, n_classes = self.confusion_matrix, len(self.confusion_matrix)
        side = min(2.5 + 0.55 * n_classes, 14)
        axes = axes_or_new(ax, (side + 0.8, side))
        names = [*map(str, self.display_labels.tolist()), "rejected"]
        style = ".0f" if (matrix == np.round(matrix)).all() else ".2f" if matrix.max() <= 1 else ".3g"
        axes.imshow(matrix, cmap="Blues")
        self.text_ = np.empty(matrix.shape, dtype=object)
        for (row, column), value in np.ndenumerate(matrix):
            colour = "white" if value > matrix.max() / 2 else "black"
            self.text_[row, column] = axes.text(column, row, f"{value:{style}}", ha="center", va="center", color=colour)
        axes.axvline(n_classes - 0.5, color="black", linewidth=1.5)
        axes.set(xlabel="answer", ylabel="true class")
        axes.set_xticks(range(n_classes + 1), names, rotation=xticks_rotation)
        axes.set_yticks(range(n_classes), names[:-1])
        self.ax_, self.figure_ = axes, axes.figure
        return self


def axes_or_new(ax: "Axes | None", size: tuple[float, float] = (5.5, 4.0)) -> "Axes":
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("drawing needs matplotlib; install it with: pip install 'demur[plot]'") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def labelled(name: str | None, figure: str) -> str:
    """Return the label of a curve: its name, if any, and its own number."""
    return figure if name is None else f"{name} ({figure})"


def _confidence_and_errors_of(estimator: Estimator, X: Features, y: ArrayLike) -> tuple[FloatArray, Mask]:
    """Return the confidence of an estimator in each row, and whether its first choice is wrong.

    Both come from ``decide`` if the estimator has it, because this also gives them for rejected rows, and otherwise
    from ``predict_proba``.
    """
    if hasattr(estimator, "decide"):
        decision = estimator.decide(X).numpy()
        label, confidence = decision.label, decision.confidence
    elif hasattr(estimator, "predict_proba"):
        proba = np.asarray(estimator.predict_proba(X))
        label, confidence = proba.argmax(axis=1), proba.max(axis=1)
    else:
        raise InputTypeError(
            f"{type(estimator).__name__} has neither decide nor predict_proba, so its confidence is unknown; make the "
            "curve with RiskCoverage.from_confidence and pass it to the display."
        )
    correct, _ = correct_and_rejected(y, np.asarray(estimator.classes_)[label], NEVER)
    return confidence, ~correct
