"""Features made comparable for networks: centred, scaled by their quartiles, and clipped smoothly."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from demur.errors import InputError

__all__ = ["SmoothRobustScaler"]


class SmoothRobustScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc] # untyped bases
    r"""Subtract the median, divide by the distance of the quartiles, and clip smoothly to (-clip, clip).

    With z the scaled value the result is :math:`z / \sqrt{1 + (z / \text{clip})^2}`, which leaves moderate values
    nearly as they are and takes the weight out of outliers (Holzmüller, Grinsztajn and Steinwart 2024). A column whose
    quartiles coincide is scaled by half its range, and a constant one becomes 0. Missing values (NaN) are ignored when
    the scales are fitted, and become 0, the median.

    Parameters
    ----------
    clip : float

    Attributes
    ----------
    center_, scale_ : array of shape (n_features,)
        ``z = (x - center_) * scale_``.

    Examples
    --------
    >>> scaler = SmoothRobustScaler().fit([[0.0], [1.0], [2.0], [3.0], [4.0]])
    >>> scaler.transform([[2.0], [4.0], [1e9]]).ravel().round(3)  # z = 0, 1 and very large
    array([0.   , 0.949, 3.   ])
    """

    def __init__(self, clip: float = 3.0) -> None:
        self.clip = clip

    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> "SmoothRobustScaler":
        """Learn the medians and quartiles; a row of weight 2 counts as a row that is there twice."""
        if not self.clip > 0:
            raise InputError(f"clip must be positive, got {self.clip}.")
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
        weight = _check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
        if not (weight > 0).any():
            raise InputError("all sample weights are zero; at least one row must count.")
        values, weight = values[weight > 0], weight[weight > 0]
        quartiles = np.array([_quartiles(column, weight) for column in values.T])
        low, self.center_, high, least, most = quartiles.reshape(-1, 5).T
        width = np.where(high > low, high - low, (most - least) / 2)
        self.scale_ = np.divide(1.0, width, out=np.zeros_like(width), where=width > 0)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the scaled and clipped features."""
        check_is_fitted(self)
        values = validate_data(self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", reset=False)
        values = np.nan_to_num((values - self.center_) * self.scale_, nan=0.0)
        scaled: NDArray[np.float64] = values / np.sqrt(1 + (values / self.clip) ** 2)
        return scaled

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _quartiles(column: NDArray[np.float64], weight: NDArray[np.float64]) -> tuple[float, ...]:
    """Return lower quartile, median, upper quartile, least and largest value.

    Where a quantile lies between two values it is their mean, so that rows that are there twice change nothing.
    """
    order = np.argsort(column, kind="stable")[: np.count_nonzero(~np.isnan(column))]
    if not len(order):
        return (0.0,) * 5
    values, below = column[order], np.cumsum(weight[order])
    wanted = np.array([0.25, 0.5, 0.75]) * below[-1]
    near = 1e-12 * below[-1]  # sums of weights are rounded
    first = np.searchsorted(below, wanted - near).clip(max=len(values) - 1)
    after = np.searchsorted(below, wanted + near, side="right").clip(max=len(values) - 1)
    return (*((values[first] + values[after]) / 2), values[0], values[-1])
