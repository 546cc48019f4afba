"""A drawing of confusion matrices with a column for rejections."""

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError
from demur.metrics.classification import labelled_confusion_matrix
from demur.metrics.display.axes import axes_or_new
from demur.metrics.scorer import _marker_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["RejectConfusionMatrixDisplay"]


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
        estimator: Any,
        X: Any,
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
            marker, predicted = _marker_of(estimator, default=None), estimator.predict(X)
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
        reject_label: Any = -1,
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
