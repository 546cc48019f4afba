"""Calibration of probabilities: making "80 % sure" right four times out of five."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from demur.errors import InputError

__all__ = ["OneVsRestCalibration", "TemperatureScaling"]

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

    def __post_init__(self) -> None:
        if not 0 < self.temperature < np.inf:
            raise InputError(f"temperature must be positive, got {self.temperature!r}.")

    @classmethod
    def fit(cls, proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "TemperatureScaling":
        """Choose the temperature of least log loss on rows that the model was not trained on.

        Without a single error among the rows, the log loss would fall for ever with the temperature. So the total loss
        gets (log T)^2 / 2 added, as if log T were known to lie around 0 give or take 1: enough to hold it there, and
        nothing beside a few hundred rows with errors.

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
        prior = 0.5 / max(float(len(logs) if weights is None else weights.sum()), 1.0)

        def log_loss(log_temperature: float) -> float:
            scaled = logs / np.exp(log_temperature)
            scaled -= scaled.max(axis=1, keepdims=True)
            losses = np.log(np.exp(scaled).sum(axis=1)) - scaled[rows, columns]
            return float(np.average(losses, weights=weights)) + prior * log_temperature**2

        best = minimize_scalar(log_loss, bounds=(np.log(0.05), np.log(20.0)), method="bounded", options={"xatol": 1e-4})
        return cls(float(np.exp(best.x)))

    def transform(self, proba: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return the scaled probabilities."""
        by_class = np.ascontiguousarray(np.moveaxis(np.asarray(proba), -1, 0))  # sums over few classes are slow by row
        scaled = _logs(by_class)
        scaled /= self.temperature
        scaled -= scaled.max(axis=0)
        np.exp(scaled, out=scaled)
        total = scaled[0].copy()
        for one in scaled[1:]:  # sum() would add a single row up in another order than the same row among others
            total += one
        scaled /= total
        return np.moveaxis(scaled, 0, -1)


class OneVsRestCalibration:
    """Calibrate each class's probability by itself with a scikit-learn model, then divide by the sum.

    Parameters
    ----------
    model : {"isotonic", "sigmoid"} or a scikit-learn regressor or classifier
        "isotonic" is a non-decreasing step function, "sigmoid" a logistic curve of the log odds (Platt 1999). A
        regressor is fitted to 0 and 1 as a function of the probability.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> proba = rng.dirichlet([1, 1, 1], size=1000)
    >>> y = np.array([rng.choice(3, p=p) for p in proba])
    >>> overconfident = proba**3 / (proba**3).sum(axis=1, keepdims=True)
    >>> calibrated = OneVsRestCalibration("isotonic").fit(overconfident, y).transform(overconfident)
    >>> bool(np.abs(calibrated - proba).mean() < np.abs(overconfident - proba).mean())
    True
    """

    def __init__(self, model: Any = "isotonic") -> None:
        self.model = model

    def fit(self, proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> "OneVsRestCalibration":
        """Fit one curve per column on rows that the model was not trained on."""
        values, labels = np.asarray(proba, dtype=np.float64), np.asarray(y)
        self.models_ = [
            self._fit_one(column, (labels == number).astype(np.float64), sample_weight)
            for number, column in enumerate(values.T)
        ]
        return self

    def transform(self, proba: ArrayLike) -> NDArray[np.floating[Any]]:
        """Return the calibrated probabilities; a row whose classes all become zero stays as it is."""
        values = np.asarray(proba, dtype=np.float64)
        columns = [self._predict_one(model, column) for model, column in zip(self.models_, values.T, strict=True)]
        result = np.clip(np.column_stack(columns), 0, 1)
        total = result.sum(axis=1, keepdims=True)
        calibrated: NDArray[np.floating[Any]] = np.where(total > 0, result / np.where(total > 0, total, 1), values)
        return calibrated

    def _fit_one(self, column: NDArray[np.float64], target: NDArray[np.float64], weight: ArrayLike | None) -> Any:
        if target.min() == target.max():
            return float(target[0])
        if self.model == "isotonic":
            model: Any = IsotonicRegression(out_of_bounds="clip")
        elif self.model == "sigmoid":
            model = LogisticRegression(C=1e6)
        else:
            model = clone(self.model)
        if weight is None or not has_fit_parameter(model, "sample_weight"):
            return model.fit(self._input(model, column), target)
        return model.fit(self._input(model, column), target, sample_weight=weight)

    def _predict_one(self, model: Any, column: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(model, float):
            return np.full_like(column, model)
        inputs = self._input(model, column)
        found = model.predict_proba(inputs)[:, 1] if hasattr(model, "predict_proba") else model.predict(inputs)
        return np.asarray(found, dtype=np.float64)

    @staticmethod
    def _input(model: Any, column: NDArray[np.float64]) -> NDArray[np.float64]:
        if not hasattr(model, "predict_proba"):
            return column.reshape(-1, 1)
        clipped = np.clip(column, _SMALLEST, 1 - _SMALLEST)
        return np.asarray(np.log(clipped / (1 - clipped)).reshape(-1, 1), dtype=np.float64)


def _logs(proba: ArrayLike) -> NDArray[np.floating[Any]]:
    logs: NDArray[np.floating[Any]] = np.log(np.maximum(np.asarray(proba), _SMALLEST))
    return logs
