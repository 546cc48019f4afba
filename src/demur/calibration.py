"""Calibration of probabilities: answers with a probability of 80 % should be right in 80 % of the cases."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax, logit, softmax
from sklearn.base import BaseEstimator, clone
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted

from demur.array_types import FloatArray, Floats
from demur.errors import InputError
from demur.rules import Parametrised, as_floats, check_classes, check_proba, check_rows, check_weights, library_of

__all__ = ["OneVsRestCalibration", "TemperatureScaling", "best_calibration"]


_WIDEST = float(np.log(1e3))
"""The search for a temperature covers a factor of 1,000 on both sides of the typical range of a row's logits."""

_MOST_NUMBERS = 1 << 20
"""Numbers that a temperature is fitted on: with 1,000 rows, its error raises the mean log loss by about 0.0005."""

_ROWS_FOR_ISOTONIC = 200
"""With fewer rows of a class, isotonic calibration was worse than a temperature on most data that were tried."""

_MOST_CHOSEN_ON = 1 << 18
"""Numbers on which kinds of calibration are compared."""
_CLASSES_FOR_CURVES = 100
"""With more classes, one curve for each takes too long to be tried."""

SMALLEST = 1e-12
"""Least probability: forests give exact zeros, whose logarithm is infinite."""


CURVE_END = 1e-4
"""Sigmoids take probabilities for at least this far from 0 and 1: the log odds of the exact zeros of neighbours and
forests would outweigh all other rows."""


class TemperatureScaling(Parametrised):
    r"""Temperature scaling: the probabilities p_y^(1/T), normalised (Guo et al. 2017).

    The order of the classes in each row does not change, only the confidence. With p the softmax of logits z this is
    the softmax of z / T, so that one temperature serves both.

    Parameters
    ----------
    temperature : float, optional
        Temperature T: above 1 it lowers the confidence, below 1 it raises it. By default ``fit`` chooses it.
    from_logits : bool, default False
        Whether ``fit`` and ``transform`` get logits, the raw scores before a softmax, instead of probabilities. The
        results are probabilities in either case.
    biases : bool, default False
        Whether ``fit`` also chooses a number for each class that is added to the logits after the division by T, for
        models that favour some classes. The order of the classes may then change.
    smooth : bool, default False
        Whether ``fit`` first mixes the probabilities with the class frequencies, for models such as nearest neighbours,
        which give probabilities of exactly 0 to classes that do occur.

    Attributes
    ----------
    temperature_ : float
        The temperature in use: the one that ``fit`` found, or the one given.
    biases_ : array of shape (n_classes,), or None
        The numbers that are added to the logits.
    smoothing_ : array of shape (n_classes,), or None
        The class frequencies, times their share s of the mixture. It is added to the probabilities times 1 - s.

    Examples
    --------
    >>> TemperatureScaling(2.0).transform([[0.8, 0.2]]).round(4)
    array([[0.6667, 0.3333]])

    An overconfident network, which is right in two of three rows:

    >>> logits, y = [[4.0, 0.0]] * 300, [0, 0, 1] * 100
    >>> scaling = TemperatureScaling(from_logits=True).fit(logits, y)
    >>> scaling.transform(logits)[0].round(2)
    array([0.67, 0.33])
    >>> TemperatureScaling().fit(logits, y)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: probabilities must lie in [0, 1], got 4. Scores need an inverse link first. If these are
    logits, use TemperatureScaling(from_logits=True).
    """

    biases_: Floats | None = None
    smoothing_: Floats | None = None

    def __init__(
        self,
        temperature: float | None = None,
        *,
        from_logits: bool = False,
        biases: bool = False,
        smooth: bool = False,
    ) -> None:
        self.temperature = temperature
        self.from_logits = from_logits
        self.biases = biases
        self.smooth = smooth
        if smooth and from_logits:
            raise InputError("smooth mixes probabilities with class frequencies; leave it out with from_logits.")
        if temperature is not None and not 0 < temperature < np.inf:
            raise InputError(f"temperature must be positive, got {temperature!r}.")

    def fit(self, proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Choose the temperature of least log loss on rows that the model was not trained on.

        If all rows are answered correctly, the log loss decreases as the temperature approaches 0. The total loss
        therefore has a penalty, sqrt(1 + (log T)^2) - 1: about (log T)^2 / 2 near T = 1 and abs(log T) far from it. A
        few hundred rows outweigh it at any scale of the logits. The search covers a factor of 1,000 on both sides of
        the median range of a row's logits. There is a warning if the best temperature is at an end of that interval.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
            Or logits, with ``from_logits``.
        y : array of int, shape (n,)
            Column numbers.
        sample_weight : array of shape (n,), optional
            Weight of each row; a whole number counts as that many equal rows.
        """
        values = self._checked(proba)
        if values.ndim != 2 or len(values) == 0:
            raise InputError(f"proba must have shape (n, n_classes) with at least one row, got {values.shape}.")
        if self.from_logits and (values >= 0).all() and (np.abs(values.sum(axis=1) - 1) < 1e-6).all():
            raise InputError(
                "these look like probabilities and not like logits: every row lies in [0, 1] and sums to 1. Give the "
                "scores before the softmax, or use them as probabilities."
            )
        values, columns, weights = _counted(values, y, sample_weight, _MOST_NUMBERS // values.shape[1] + 1)
        self.smoothing_ = _smoothing(values, columns, weights) if self.smooth else None
        self.fitted_temperature_, found = _least_log_loss(
            self._logits(values), columns, weights, self.temperature, self.biases * values.shape[1]
        )
        self.biases_ = found if self.biases else None
        return self

    def transform(self, proba: ArrayLike) -> FloatArray:
        """Return the scaled probabilities, of probabilities, or of logits with ``from_logits``."""
        return softmax_at(self._logits(self._checked(proba)), self.temperature_, self.biases_)

    def _logits(self, values: FloatArray) -> FloatArray:
        return values if self.from_logits else _logs(values, self.smoothing_)

    def _checked(self, proba: ArrayLike) -> FloatArray:
        if not self.from_logits:
            try:
                return check_proba(proba)
            except InputError as error:
                raise InputError(f"{error} If these are logits, use TemperatureScaling(from_logits=True).") from None
        values = as_floats(proba)
        if values.ndim == 0 or values.shape[-1] < 2:
            raise InputError(f"logits need shape (..., n_classes) with at least two classes, got {values.shape}.")
        if not np.isfinite(values).all():
            raise InputError("logits contain NaN or infinity; remove those rows first.")
        return values

    @property
    def temperature_(self) -> float:
        """The temperature in use."""
        check_is_fitted(self)
        return float(self.temperature or self.fitted_temperature_)

    def __sklearn_is_fitted__(self) -> bool:
        return self.temperature is not None or hasattr(self, "fitted_temperature_")


class OneVsRestCalibration(BaseEstimator):  # type: ignore[misc] # scikit-learn is untyped
    """Calibrate the probability of each class with its own curve, then divide by the sum.

    Parameters
    ----------
    model : {"isotonic", "sigmoid"}
        "isotonic" is a non-decreasing step function of the probability, "sigmoid" a logistic curve of its log odds
        (Platt 1999).

    Attributes
    ----------
    models_ : list
        One fitted model per class. A class that all or none of the rows have gets a number instead: its share among the
        rows and one additional row, which counts with its mean probability.

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

    def __init__(self, model: str = "isotonic") -> None:
        self.model = model

    def fit(self, proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit one curve per column on rows that the model was not trained on.

        Parameters
        ----------
        proba : array of shape (n, n_classes)
        y : array of int, shape (n,)
            Column numbers.
        sample_weight : array of shape (n,), optional
        """
        if self.model not in ("isotonic", "sigmoid"):
            raise InputError(f"model must be 'isotonic' or 'sigmoid', got {self.model!r}.")
        rows, labels, weight = _counted(check_rows(proba), y, sample_weight)
        values = rows.astype(np.float64, copy=False)
        rarest = int(np.bincount(labels, minlength=values.shape[1]).min())
        if self.model == "isotonic" and rarest < _ROWS_FOR_ISOTONIC:
            warnings.warn(
                f"isotonic calibration overfits where a class has fewer than {_ROWS_FOR_ISOTONIC} rows, and the rarest "
                f'has {rarest}: use "auto" or "sigmoid", or give more rows.',
                UserWarning,
                stacklevel=2,
            )
        self.models_ = [
            self._fit_one(column, (labels == number).astype(np.float64), weight)
            for number, column in enumerate(values.T)
        ]
        return self

    def transform(self, proba: ArrayLike) -> FloatArray:
        """Return the calibrated probabilities; a row is unchanged if all its probabilities would become zero."""
        check_is_fitted(self)
        values = check_proba(proba).astype(np.float64, copy=False)
        if values.shape[1:] != (len(self.models_),):
            raise InputError(f"proba must have shape (n, {len(self.models_)}), as in fit, got {values.shape}.")
        columns = [self._predict_one(model, column) for model, column in zip(self.models_, values.T, strict=True)]
        result = np.column_stack(columns)
        total = result.sum(axis=1, keepdims=True)
        calibrated: FloatArray = np.where(total > 0, result / np.where(total > 0, total, 1), values)
        return calibrated

    def _fit_one(self, column: Floats, target: Floats, weight: Floats) -> Any:
        if target.min() == target.max():
            return float((weight @ target + column.mean()) / (weight.sum() + 1))
        if self.model == "sigmoid":
            return LogisticRegression(C=1e6).fit(_log_odds(column), target, weight)
        return IsotonicRegression(out_of_bounds="clip").fit(column, target, weight)

    def _predict_one(self, model: Any, column: Floats) -> Floats:
        if isinstance(model, float):
            return np.full_like(column, model)
        found = model.predict_proba(_log_odds(column))[:, 1] if self.model == "sigmoid" else model.predict(column)
        return np.asarray(found)


def _log_odds(column: Floats) -> Floats:
    return np.asarray(logit(np.clip(column, CURVE_END, 1 - CURVE_END)).reshape(-1, 1))


def best_calibration(proba: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Any:
    """Return the fitted calibrator with the lowest log loss on rows that it was not fitted on.

    The candidates are no calibration (temperature 1), a temperature, a temperature with class biases, and one sigmoid
    per class. If a true class has a probability of 0, temperatures of probabilities that are mixed with the class
    frequencies are candidates as well. They are compared by three-fold cross-validation. Half of the number of
    parameters, divided by the number of rows, is added to the mean log loss, so that simpler calibrators are preferred
    if there are few rows.

    Parameters
    ----------
    proba : array of shape (n, n_classes)
        Probabilities of rows that the model was not trained on.
    y : array of int, shape (n,)
        Column numbers.
    sample_weight : array of shape (n,), optional

    Examples
    --------
    A network that overestimates the first class:

    >>> rng = np.random.default_rng(0)
    >>> proba = rng.dirichlet([1, 1, 1], size=2000)
    >>> y = (rng.random((2000, 1)) > proba.cumsum(axis=1)).sum(axis=1)
    >>> tilted = proba * [5, 1, 1] / (proba * [5, 1, 1]).sum(axis=1, keepdims=True)
    >>> found = best_calibration(tilted, y)
    >>> bool(np.abs(found.transform(tilted) - proba).max() < 0.1)
    True
    """
    values, labels, weight = _counted(check_rows(proba), y, sample_weight)
    n_classes = values.shape[1]
    candidates: list[tuple[Any, int]] = [(TemperatureScaling(1.0), 0), (TemperatureScaling(), 1)]
    if n_classes <= _CLASSES_FOR_CURVES:
        candidates += [(TemperatureScaling(biases=True), n_classes), (OneVsRestCalibration("sigmoid"), 2 * n_classes)]
    if (values[np.arange(len(values)), labels] < SMALLEST).any():  # nothing but smoothing corrects zeros
        candidates += [(clone(one).set_params(smooth=True), n + 1) for one, n in candidates[1:3]]
    rows = np.random.RandomState(0).permutation(len(values))[: max(_MOST_CHOSEN_ON // n_classes, 300)]
    third = np.arange(len(rows)) % 3
    if len(rows) < 6:
        return TemperatureScaling().fit(values, labels, weight)
    losses = []
    for candidate, n_parameters in candidates:
        total = 0.0
        for part in range(3):
            train, test = rows[third != part], rows[third == part]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a third has no errors, or too few rows of a class
                calibrated = clone(candidate).fit(values[train], labels[train], weight[train]).transform(values[test])
            right = np.clip(calibrated[np.arange(len(test)), labels[test]], SMALLEST, None)
            total -= float(weight[test] @ np.log(right))
        losses.append((total + n_parameters / 2) / weight[rows].sum())
    return candidates[int(np.argmin(losses))][0].fit(values, labels, weight)


def _counted(
    values: FloatArray, y: ArrayLike, sample_weight: ArrayLike | None, most: Any = np.inf
) -> tuple[FloatArray, NDArray[np.integer[Any]], Floats]:
    """Return the rows that have a weight, or ``most`` of them, with their classes and weights.

    Weights that sum to less than the number of rows are not counts: they get a mean of one.
    """
    columns, weights = check_classes(y, values.shape), check_weights(sample_weight, len(values))
    counted = np.flatnonzero(weights)
    if len(counted) > most:
        counted = np.sort(np.random.RandomState(0).choice(counted, most, replace=False))
    weights = weights[counted]
    return values[counted], columns[counted], weights * max(1.0, len(counted) / weights.sum())


def at_temperature(
    proba: FloatArray, temperature: float, biases: Floats | None = None, smoothing: Floats | None = None
) -> FloatArray:
    """Return p_y^(1/T), normalised, of numbers that must not be negative but need not sum to 1, as those of OVA losses.

    Examples
    --------
    >>> at_temperature(np.array([[1.6, 0.4]]), 2.0).round(4)
    array([[0.6667, 0.3333]])
    """
    return softmax_at(_logs(proba, smoothing), temperature, biases)


def softmax_at(logits: FloatArray, temperature: float, biases: Floats | None = None) -> FloatArray:
    """Return the softmax of logits, an array or a tensor, divided by a temperature, plus biases.

    Examples
    --------
    >>> softmax_at(np.array([[0.0, np.log(3.0)]]), 1.0)
    array([[0.25, 0.75]])
    """
    if biases is not None:
        logits = logits + temperature * library_of(logits).asarray(biases)
    scaled = logits / temperature
    found: FloatArray = softmax(scaled, axis=-1) if library_of(logits) is np else scaled.softmax(-1)  # type: ignore[attr-defined]
    return found


def _least_log_loss(
    logits: FloatArray,
    columns: NDArray[np.integer[Any]],
    weights: Floats,
    temperature: float | None,
    n_biases: int,
) -> tuple[float, Floats]:
    """Return the temperature, unless it is given, and the class biases of least penalised log loss.

    A grid gives the starting point. The penalty of the biases is half of the sum of their squares, in the units of one
    row's log loss.
    """
    from scipy.optimize import minimize  # it takes a while to import

    logits, rows, total = logits.astype(np.float64), np.arange(len(logits)), weights.sum()
    share = weights / total

    def penalised(numbers: Floats) -> tuple[float, Floats]:
        log_temperature, biases = float(numbers[0]), numbers[1:]
        scaled = logits / np.exp(log_temperature)
        scores = scaled + (biases if n_biases else 0.0)
        logs = log_softmax(scores, axis=1)
        loss, slopes = -float(share @ logs[rows, columns]), np.exp(logs)
        slopes[rows, columns] -= 1
        slopes *= share[:, None]
        length = float(np.hypot(1.0, log_temperature))
        by_bias = slopes.sum(axis=0)[:n_biases] + biases / total
        slopes *= scaled
        by_temperature = log_temperature / length / total - float(slopes.sum())
        return loss + (length - 1 + float(biases @ biases) / 2) / total, np.append(by_temperature, by_bias)

    ranges = np.ptp(logits, axis=1)
    middle = np.log(np.median(ranges[ranges > 0])) if (ranges > 0).any() else 0.0
    # T = 1 is always inside: a class that is masked by a logit of -1e9 says nothing about the scale.
    low, high = min(middle, 0.0) - _WIDEST, max(middle, 0.0) + _WIDEST
    if temperature is not None:
        low = high = float(np.log(temperature))
    tried = np.linspace(low, high, 2 + int(np.ceil(high - low)))
    starts = np.column_stack([tried, np.zeros((len(tried), n_biases))])
    with np.errstate(under="ignore"):
        start = min(starts, key=lambda numbers: penalised(numbers)[0])
        bounds: Any = [(low, high), *[(None, None)] * n_biases]
        exact: Any = {"ftol": 1e-13, "gtol": 1e-9}
        found = minimize(penalised, start, jac=True, method="L-BFGS-B", bounds=bounds, options=exact).x
    best = float(np.exp(found[0]))
    if temperature is None and min(found[0] - low, high - found[0]) < 1e-3:
        warnings.warn(
            f"the temperature {best:.3g} is at the end of the range that was searched, and the log loss would still "
            "fall beyond it: the scores do not order the classes, or the rows have no errors. Give a temperature, or "
            "more rows.",
            UserWarning,
            stacklevel=3,
        )
    return best, found[1:]


def _smoothing(proba: FloatArray, columns: NDArray[np.integer[Any]], weights: Floats) -> Floats:
    """Return the class frequencies times their share of the mixture with the least log loss.

    The share is found by expectation maximisation, with half a row added for each part, so that it is above 0.
    """
    counts = np.bincount(columns, weights, minlength=proba.shape[1]) + 1
    frequencies, share = counts / counts.sum(), 0.1
    own = proba[np.arange(len(columns)), columns].astype(np.float64)
    for _ in range(100):
        claimed = share * frequencies[columns]
        share = (weights @ (claimed / (claimed + (1 - share) * own)) + 0.5) / (weights.sum() + 1)
    return np.asarray(share * frequencies)


def _logs(proba: FloatArray, smoothing: Floats | None = None) -> FloatArray:
    library = library_of(proba)
    if smoothing is not None:
        proba = proba * (1 - smoothing.sum()) + library.asarray(smoothing)
    logs: FloatArray = library.log(library.clip(proba, SMALLEST, None))
    return logs
