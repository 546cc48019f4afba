"""What the fitted rules share: once fitted, they accept a confidence above one threshold."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.errors import InputError, InputTypeError
from demur.rules import Decision, Rule

__all__ = ["FittedThreshold", "check_confidence", "check_share"]


class FittedThreshold(Rule):
    """A rule that answers iff the confidence exceeds a threshold found on a calibration sample.

    ``fit`` returns a fitted copy and leaves the rule itself as it was.
    """

    @property
    @abstractmethod
    def threshold(self) -> float:
        """The threshold found by ``fit``: rows with a larger confidence are answered, ties reject."""

    @abstractmethod
    def explain(self) -> str:
        """Say in words what was chosen and what it promises."""

    def decide_confidence(self, label: ArrayLike, confidence: ArrayLike) -> Decision[NDArray[Any]]:
        """Decide for classes and confidences that are known already, as those of another :class:`Decision`.

        Parameters
        ----------
        label : array of int
        confidence : array of the same shape
            On the scale of the confidences that the rule was fitted to.
        """
        scores = np.asarray(confidence, dtype=np.float64)
        return Decision.from_acceptance(np.asarray(label), scores - self.threshold, scores)

    def _decide(self, proba: NDArray[np.floating[Any]]) -> Decision[NDArray[Any]]:
        return self.decide_confidence(proba.argmax(axis=-1), proba.max(axis=-1))

    def _not_fitted(self) -> Exception:
        from sklearn.exceptions import NotFittedError

        name = type(self).__name__
        error: Exception = NotFittedError(f"this {name} has no threshold yet; use the rule that its fit() returns.")
        return error


def check_share(name: str, value: Any, *, closed: bool) -> float:
    """Check a number in (0, 1), or in (0, 1] where ``closed``, and return it as a float."""
    interval = "(0, 1]" if closed else "(0, 1)"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputTypeError(f"{name} must be a number in {interval}, got {value!r}.")
    if not (0 < value < 1 or (closed and value == 1)):
        raise InputError(f"{name} must be in {interval}, got {value!r}.")
    return float(value)


def check_confidence(confidence: ArrayLike) -> NDArray[np.float64]:
    """Check the confidences of a calibration sample: one per row, at least one row, all finite."""
    values = np.asarray(confidence, dtype=np.float64)
    if values.ndim != 1:
        raise InputError(f"the calibration sample needs one confidence per row, got shape {values.shape}.")
    if len(values) == 0:
        raise InputError("the calibration sample is empty; set rows aside that the model was not trained on.")
    if not np.isfinite(values).all():
        raise InputError("the confidences contain NaN or infinity; remove those rows first.")
    return values
