"""Axes to draw on, and what an estimator answers: the parts that all displays share."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputTypeError, MissingExtraError
from demur.metrics.labels import NEVER, correct_and_rejected

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["axes_or_new", "confidence_and_errors_of", "labelled"]


def axes_or_new(ax: "Axes | None", size: tuple[float, float] = (5.5, 4.0)) -> "Axes":
    """Return the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError("drawing needs matplotlib; install it with: pip install 'demur[plot]'") from error
    return pyplot.subplots(figsize=size, layout="constrained")[1]


def confidence_and_errors_of(
    estimator: Any, X: Any, y: ArrayLike
) -> tuple[NDArray[np.floating[Any]], NDArray[np.bool_]]:
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
