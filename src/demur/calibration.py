"""Calibration of probabilities: making "80 % sure" right four times out of five."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar

__all__ = ["TemperatureScaling"]

_SMALLEST = 1e-12
"""Probabilities are kept this far from zero: forests give exact zeros, whose logarithm is infinite."""


@dataclass(frozen=True)
class TemperatureScaling:
    """Sharpen or soften probabilities by one number: p_y^(1/T), normalised (Guo et al. 2017).

    The order of the classes in each row does not change, only the confidence.

    Parameters
    ----------
    temperature : float
        T > 1 makes less confident, T < 1 more.

    Examples
    --------
    >>> TemperatureScaling(2.0).transform([[0.8, 0.2]]).round(4)
    array([[0.6667, 0.3333]])
    """

    temperature: float = 1.0

    @classmethod
    def fit(cls, proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "TemperatureScaling":
        """Choose the temperature of least log loss on rows that the model was not trained on.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        y : array of int, shape (n,)
            Column numbers.
        sample_weight : array of shape (n,), optional
        """
        logs = _logs(proba)
        rows, columns = np.arange(len(logs)), np.asarray(y)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)

        def log_loss(log_temperature: float) -> float:
            scaled = logs / np.exp(log_temperature)
            scaled -= scaled.max(axis=1, keepdims=True)
            losses = np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, columns]
            return float(np.average(losses, weights=weights))

        best = minimize_scalar(log_loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded", options={"xatol": 1e-4})
        return cls(float(np.exp(best.x)))

    def transform(self, proba: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return the scaled probabilities."""
        scaled = _logs(proba) / self.temperature
        scaled = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
        result: NDArray[np.floating[Any]] = scaled / scaled.sum(axis=-1, keepdims=True)
        return result


def _logs(proba: ArrayLike) -> NDArray[np.floating[Any]]:
    logs: NDArray[np.floating[Any]] = np.log(np.maximum(np.asarray(proba), _SMALLEST))
    return logs
