"""Displays in scikit-learn's style: made from an estimator, from predictions, or from a curve; drawn by ``plot``."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.array_types import Estimator, Features, FloatArray, Label
from demur.errors import InputError, InputTypeError, MissingExtraError
from demur.metrics.classification import labelled_confusion_matrix
from demur.metrics.cost_curve import CostCurve, confidence_and_errors
from demur.metrics.predictions import NEVER, correct_and_rejected
from demur.metrics.risk_coverage import RiskCoverage
from demur.metrics.zero_one_c import marker_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CostCurveDisplay", "LossCurveDisplay", "RejectConfusionMatrixDisplay", "RiskCoverageDisplay"]

_MOST_POINTS = 5000
"""More points than this cannot be told apart on a screen."""
_N_COSTS = 1000
_YLABEL = {"risk": "0-1-c risk", "coverage": "coverage", "accuracy": "accuracy of the answers given"}

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
            With ``decide`` (as those of demur) or ``predict_proba``; a cost curve needs the latter.
        X, y, sample_weight
            Rows the classifier has not seen, their classes, and how much each counts.
        name : str, optional
            The class of the estimator by default.
        ax, **line
            As for :meth:`plot`.
        """
        cls._check(estimator)
        curve = cls._curve(*_confidence_and_errors_of(estimator, X, y), sample_weight)
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
    def _check(cls, estimator: Estimator) -> None:
        """Refuse an estimator that has no such curve."""


class RiskCoverageDisplay(CurveDisplay[RiskCoverage]):
    """Draw the risk of the answers given against the share of rows answered.

    Parameters
    ----------
    curve : RiskCoverage
    name : str, optional
        For the legend.

    Attributes
    ----------
    ax_, figure_, line_
        What :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = RiskCoverage.from_confidence([0.9, 0.8, 0.7, 0.6], [0, 0, 1, 0])
    >>> RiskCoverageDisplay(curve, name="model").plot().line_.get_label()
    'model (AURC = 0.146)'
    """

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        name: str | None = None,
        quantity: Literal["risk", "generalized_risk"] = "risk",
        **line: Any,
    ) -> Self:
        """Draw the curve, labelled with its own area.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        name : str, optional
            Instead of the display's own.
        quantity : {"risk", "generalized_risk"}
            The risk, with the AURC in the label, or risk times coverage, with the AUGRC.
        **line
            Passed on to matplotlib's ``plot``.
        """
        if quantity not in ("risk", "generalized_risk"):
            raise InputError(f"quantity must be 'risk' or 'generalized_risk', got {quantity!r}.")
        axes = axes_or_new(ax)
        area = f"AURC = {self.curve.aurc:#.3g}" if quantity == "risk" else f"AUGRC = {self.curve.augrc:#.3g}"
        values = getattr(self.curve, quantity)
        shown = np.unique(np.linspace(0, len(values) - 1, min(len(values), _MOST_POINTS)).astype(int))
        style = {"label": labelled(name or self.name, area), "marker": "o" if len(values) == 1 else None, **line}
        (self.line_,) = axes.plot(self.curve.coverage[shown], values[shown], **style)
        axes.set(
            xlabel="coverage (share of rows answered)",
            ylabel="risk of the answers given" if quantity == "risk" else "generalized risk (risk times coverage)",
            xlim=(0, 1),
        )
        if values.min() >= 0:
            axes.set_ylim(bottom=0, auto=True)  # a second curve on the same axes may be higher
        axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self

    @classmethod
    def _curve(cls, confidence: Any, wrong: Any, sample_weight: ArrayLike | None) -> RiskCoverage:
        return RiskCoverage.from_confidence(confidence, wrong, sample_weight)


class CostCurveDisplay(CurveDisplay[CostCurve]):
    """Draw the 0-1-c risk, the coverage or the accuracy against the rejection cost.

    Parameters
    ----------
    curve : CostCurve
    name : str, optional
        For the legend.

    Attributes
    ----------
    ax_, figure_, line_
        What :meth:`plot` has drawn.

    Examples
    --------
    >>> curve = CostCurve.from_proba([[0.9, 0.1], [0.6, 0.4]], [0, 1])
    >>> CostCurveDisplay(curve, name="model").plot().line_.get_label()
    'model (mean risk = 0.185)'
    """

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        name: str | None = None,
        quantity: Literal["risk", "coverage", "accuracy"] = "risk",
        max_cost: float = 0.5,
        baselines: bool = True,
        **line: Any,
    ) -> Self:
        """Draw the curve, labelled with its own mean over the costs drawn.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        name : str, optional
            Instead of the display's own.
        quantity : {"risk", "coverage", "accuracy"}
        max_cost : float, default 0.5
            Costs from 0 up to this one are drawn.
        baselines : bool, default True
            With the risk, also draw those of answering every row and of rejecting every row.
        **line
            Passed on to matplotlib's ``plot``.
        """
        if quantity not in _YLABEL:
            raise InputError(f"quantity must be 'risk', 'coverage' or 'accuracy', got {quantity!r}.")
        axes = axes_or_new(ax)
        costs = np.linspace(0, max_cost, _N_COSTS, endpoint=False)
        values = getattr(self.curve, f"{quantity}_at")(costs)
        own = name or self.name
        label = labelled(own, f"mean risk = {self.curve.mean_risk(0, max_cost):#.3g}") if quantity == "risk" else own
        (self.line_,) = axes.plot(costs, values, **{"label": label, **line})
        if quantity == "risk" and baselines:
            axes.axhline(
                self.curve.error_rate,
                color=self.line_.get_color(),
                linestyle="--",
                linewidth=1,
                label=labelled(own, "answer all"),
            )
            if not any(one.get_label() == "reject all" for one in axes.lines):
                axes.plot([0, max_cost], [0, max_cost], color="0.6", linestyle=":", label="reject all")
        axes.set(xlabel="rejection cost c", ylabel=_YLABEL[quantity], xlim=(0, max_cost))
        if quantity == "risk":
            axes.set_ylim(bottom=0, auto=True)  # a second curve on the same axes may be higher
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="best", frameon=False)
        self.ax_, self.figure_ = axes, axes.figure
        return self

    @classmethod
    def _curve(cls, confidence: Any, wrong: Any, sample_weight: ArrayLike | None) -> CostCurve:
        return CostCurve.from_confidence(confidence, wrong, sample_weight)

    @classmethod
    def _check(cls, estimator: Estimator) -> None:
        if not hasattr(estimator, "predict_proba"):
            raise InputTypeError(
                f"a cost curve needs probabilities, which {type(estimator).__name__} has not; draw its "
                "RiskCoverageDisplay instead."
            )


class LossCurveDisplay:
    """Draw the loss of networks over the epochs of their training, and the best epoch of each.

    Parameters
    ----------
    training : array of shape (n_networks, n_epochs)
        The mean loss of each epoch; NaN where a network had stopped.
    validation : array of shape (n_networks, n_epochs), optional
        The loss on rows that a network has not seen, after each epoch.

    Attributes
    ----------
    ax_, figure_, lines_
        What :meth:`plot` has drawn; ``lines_`` are the mean of the training losses, and that of the validation losses
        where there are any.

    Examples
    --------
    >>> display = LossCurveDisplay([[0.9, 0.5, 0.3]], [[0.8, 0.6, 0.7]]).plot()
    >>> display.best_epoch.tolist(), display.ax_.get_xlabel()
    ([2], 'epoch')
    """

    def __init__(self, training: ArrayLike, validation: ArrayLike | None = None) -> None:
        self.training = _curves(training, "training")
        self.validation = None
        if validation is not None:
            self.validation = _curves(validation, "validation")
            if self.validation.shape != self.training.shape:
                raise InputError(
                    f"validation must have the shape of training, {self.training.shape}, got {self.validation.shape}."
                )
            if np.isnan(self.validation).all():
                self.validation = None

    @classmethod
    def from_estimator(cls, estimator: Estimator, *, ax: "Axes | None" = None) -> Self:
        """Draw how the networks of a fitted :class:`~demur.RejectClassifier` were trained.

        Parameters
        ----------
        estimator : RejectClassifier
            Or whatever has ``loss_curve_`` and ``validation_curve_``.
        ax : matplotlib.axes.Axes, optional
        """
        training = getattr(estimator, "loss_curve_", None)
        if training is None or np.ndim(training) != 2:
            raise InputTypeError(
                f"{type(estimator).__name__} has no loss curves to draw; a fitted RejectClassifier with the default "
                "networks has."
            )
        return cls(training, getattr(estimator, "validation_curve_", None)).plot(ax)

    @property
    def best_epoch(self) -> NDArray[np.int64]:
        """The epoch of least validation loss of each network, counted from 1; its last one without validation."""
        judged = self.validation
        if judged is None:
            return np.asarray(np.isfinite(self.training).sum(axis=1), dtype=np.int64)
        return np.asarray(np.where(np.isnan(judged), np.inf, judged).argmin(axis=1) + 1, dtype=np.int64)

    def plot(self, ax: "Axes | None" = None) -> Self:
        """Draw a thin line for each network, and a bold one for their mean.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            A new figure by default.
        """
        ax = axes_or_new(ax)
        epochs = np.arange(1, self.training.shape[1] + 1)
        self.lines_ = []
        kinds = [(self.training, "training", "C0"), (self.validation, "held-out rows", "C1")]
        for curves, label, colour in kinds:
            if curves is None:
                continue
            ax.plot(epochs, curves.T, color=colour, alpha=0.3, linewidth=0.8)
            known = np.isfinite(curves)
            mean = np.where(known, curves, 0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
            reached = known.any(axis=0)
            self.lines_ += ax.plot(epochs[reached], mean[reached], color=colour, label=label)
        if self.validation is not None:
            best = self.best_epoch
            ax.plot(best, self.validation[np.arange(len(best)), best - 1], "o", color="C1", label="best epochs")
        ax.set(xlabel="epoch", ylabel="loss")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _curves(values: ArrayLike, name: str) -> FloatArray:
    curves = np.asarray(values, dtype=np.float64)
    if curves.ndim != 2 or not curves.size:
        raise InputError(f"{name} must have shape (n_networks, n_epochs), got {curves.shape}.")
    return curves


class RejectConfusionMatrixDisplay:
    """Draw true classes against answers, with rejections in a last column set apart in grey.

    Parameters
    ----------
    confusion_matrix : array of shape (n_classes, n_classes + 1)
        As :func:`~demur.metrics.confusion_matrix` returns it.
    display_labels : array of shape (n_classes,), optional
        Names of the classes; numbers by default.
    reject_name : str, default "rejected"
        Name of the last column.

    Attributes
    ----------
    ax_, figure_, text_
        What :meth:`plot` has drawn; ``text_`` is the array of the texts in the cells.

    Examples
    --------
    >>> display = RejectConfusionMatrixDisplay.from_predictions([0, 0, 1], [0, -1, 1])
    >>> [cell.get_text() for cell in display.text_[0]]
    ['1', '0', '1']
    """

    def __init__(
        self, confusion_matrix: ArrayLike, *, display_labels: ArrayLike | None = None, reject_name: str = "rejected"
    ) -> None:
        matrix = np.asarray(confusion_matrix)
        if matrix.ndim != 2 or matrix.shape[1] != matrix.shape[0] + 1:
            raise InputError(
                f"a confusion matrix with a reject column has shape (K, K + 1), got {matrix.shape}; make it with "
                "demur.metrics.confusion_matrix."
            )
        names = np.arange(len(matrix)) if display_labels is None else np.asarray(display_labels)
        if len(names) != len(matrix):
            raise InputError(f"display_labels must name {len(matrix)} classes, got {len(names)}.")
        self.confusion_matrix = matrix
        self.display_labels = names
        self.reject_name = reject_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Estimator,
        X: Features,
        y: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        normalize: Literal["true", "pred", "all"] | None = None,
        sample_weight: ArrayLike | None = None,
        **plot: Any,
    ) -> Self:
        """Draw the decisions of a fitted classifier.

        Parameters
        ----------
        estimator : classifier
            What it rejects is read off ``decide`` where it has it, else off ``predict`` by its ``reject_label_``
            (or that of the last step of a pipeline); a classifier with neither never rejects.
        X, y, sample_weight
            Rows the classifier has not seen, their classes, and how much each counts.
        labels, normalize
            As for :func:`~demur.metrics.confusion_matrix`.
        **plot
            Passed on to :meth:`plot`.
        """
        if hasattr(estimator, "decide"):
            marker: Any = None
            predicted = estimator.decide(X).labels(estimator.classes_, reject_label=None)
        else:
            marker, predicted = marker_of(estimator, default=None), estimator.predict(X)
        return cls.from_predictions(
            y,
            predicted,
            labels=labels,
            reject_label=marker,
            normalize=normalize,
            sample_weight=sample_weight,
            **plot,
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: ArrayLike,
        y_pred: ArrayLike,
        *,
        labels: ArrayLike | None = None,
        reject_label: Label = -1,
        normalize: Literal["true", "pred", "all"] | None = None,
        sample_weight: ArrayLike | None = None,
        reject_name: str = "rejected",
        **plot: Any,
    ) -> Self:
        """Draw given predictions; parameters as for :func:`~demur.metrics.confusion_matrix` and :meth:`plot`."""
        matrix, names = labelled_confusion_matrix(y_true, y_pred, labels, reject_label, normalize, sample_weight)
        return cls(matrix, display_labels=names, reject_name=reject_name).plot(**plot)

    def plot(
        self,
        ax: "Axes | None" = None,
        *,
        cmap: str = "Blues",
        values_format: str | None = None,
        include_values: bool = True,
        xticks_rotation: float = 0,
    ) -> Self:
        """Draw the matrix.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.
        cmap : str, default "Blues"
            The colours of the answers; rejections are grey, on the same scale.
        values_format : str, optional
            Of the number in each cell; by default ``"d"`` for counts, ``".2f"`` for shares and ``".3g"`` else.
        include_values : bool, default True
        xticks_rotation : float, default 0
            In degrees.
        """
        n_classes = len(self.confusion_matrix)
        side = min(2.5 + 0.55 * n_classes, 14)
        axes = axes_or_new(ax, (side + 0.8, side))
        top = max(float(self.confusion_matrix.max()), np.finfo(np.float64).tiny)
        is_reject = np.zeros(self.confusion_matrix.shape, dtype=bool)
        is_reject[:, -1] = True
        for hidden, colours in ((is_reject, cmap), (~is_reject, "Greys")):
            axes.imshow(np.ma.masked_array(self.confusion_matrix, hidden), cmap=colours, vmin=0, vmax=1.25 * top)
        axes.axvline(n_classes - 0.5, color="black", linewidth=1.5)
        if include_values:
            self.text_ = self._write_values(axes, values_format, top)
        names = [str(name) for name in self.display_labels.tolist()]
        axes.set_xticks(range(n_classes + 1), [*names, self.reject_name], rotation=xticks_rotation)
        axes.set_yticks(range(n_classes), names)
        axes.set(xlabel="answer", ylabel="true class")
        self.ax_, self.figure_ = axes, axes.figure
        return self

    def _write_values(self, axes: "Axes", values_format: str | None, top: float) -> NDArray[np.object_]:
        counts = np.issubdtype(self.confusion_matrix.dtype, np.integer)
        style = values_format or ("d" if counts else ".2f" if top <= 1 else ".3g")
        texts = np.empty(self.confusion_matrix.shape, dtype=object)
        for (row, column), value in np.ndenumerate(self.confusion_matrix):
            colour = "white" if value > 0.7 * top else "black" if value > 0 else "0.7"
            texts[row, column] = axes.text(column, row, format(value, style), ha="center", va="center", color=colour)
        return texts


def axes_or_new(ax: "Axes | None", size: tuple[float, float] = (5.5, 4.0)) -> "Axes":
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("drawing needs matplotlib; install it with: pip install 'demur[plot]'") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def _confidence_and_errors_of(estimator: Estimator, X: Features, y: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the confidence of an estimator in each row, and whether the class it names is wrong.

    Both come from ``decide`` where the estimator has it, which knows its own confidence and names a class for
    rejected rows too; else from ``predict_proba``.
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


def labelled(name: str | None, figure: str) -> str:
    """Return the label of a curve: its name, if any, and its own number."""
    return figure if name is None else f"{name} ({figure})"
