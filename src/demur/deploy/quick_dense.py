"""The dense view without scikit-learn's overhead per step, which for one row is most of the time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from demur.errors import InputError

__all__ = ["QuickDense"]


class QuickDense:
    """Turns codes into numbers on one scale exactly as a fitted :func:`~demur.estimators.candidates.dense_view`.

    Numbers are filled up, joined by columns that tell what was missing, and scaled; the indicators of a category
    are looked up in a table with a row for each code and one for what is missing.

    Parameters
    ----------
    dense : ColumnTransformer
        A fitted dense view.

    Examples
    --------
    >>> from demur.estimators.candidates import dense_view
    >>> codes = np.array([[1.5, 0.0], [np.nan, 1.0], [2.0, 0.0], [0.5, np.nan]])
    >>> dense = dense_view(np.array([False, True])).fit(codes)
    >>> bool((QuickDense(dense).transform(codes) == dense.transform(codes)).all())
    True
    """

    def __init__(self, dense: Any) -> None:
        (_, numbers, self._numbers), (_, categories, self._categories) = dense.transformers_[:2]
        if len(self._numbers):
            imputer, scaler = numbers[0], numbers[1]
            self._fill, self._told = imputer.statistics_, imputer.indicator_.features_
            if np.isnan(self._fill).any():
                raise InputError("a column of the dense view held no value when it was fitted, and is left out there.")
            self._mean, self._scale = scaler.mean_, scaler.scale_
        self._tables = _tables(categories) if len(self._categories) else []

    def transform(self, codes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the dense view of rows of codes."""
        parts = []
        if len(self._numbers):
            values = codes[:, self._numbers]
            missing = np.isnan(values)
            joined = np.hstack([np.where(missing, self._fill, values), missing[:, self._told]])
            joined -= self._mean
            joined /= self._scale
            parts.append(joined)
        for position, table in zip(self._categories, self._tables, strict=True):
            column = codes[:, position]
            # a code beyond the table is one that the encoder has never seen: the row before the last
            known = np.where(np.isnan(column), len(table) - 1, np.minimum(column, len(table) - 2))
            parts.append(table[known.astype(np.intp)])
        return np.hstack(parts)


def _tables(encoder: Any) -> list[NDArray[np.float64]]:
    """Return the indicators of each code of each category, of an unseen one, and of what is missing."""
    tables, start = [], 0
    for number, found in enumerate(encoder.categories_):
        rare = encoder.infrequent_categories_[number]
        width = len(found) if rare is None else len(found) - len(rare) + 1
        n_codes = int(np.nanmax(found, initial=-1)) + 1
        tried = np.tile([other[0] for other in encoder.categories_], (n_codes + 2, 1))
        tried[:, number] = [*range(n_codes + 1), np.nan]
        tables.append(np.asarray(encoder.transform(tried), dtype=np.float64)[:, start : start + width])
        start += width
    return tables
