"""Tables as matrices of numbers and codes of categories."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_consistent_length, validate_data

from demur.array_types import AnyArray, Estimator, Features
from demur.errors import InputError, UserError
from demur.novelty import FEWEST_ROWS, UNSEEN, Novelty, check_rate

if TYPE_CHECKING:
    from demur.columns import Schema

__all__ = ["KnownRows", "TableEncoding"]

_MOST_CODES = 255
"""As many categories as gradient boosting can tell apart."""


@dataclass(frozen=True, eq=False)
class TableEncoding:
    """How a table becomes a matrix: numbers as they are, categories as codes 0, 1, ..., missing values as NaN.

    Parameters
    ----------
    schema : Schema or None
        Columns of a DataFrame and their types; None for numeric arrays, which are not encoded.
    categorical : array of bool, shape (n_columns,)
        Which columns of the matrix hold codes.
    """

    schema: "Schema | None"
    categorical: NDArray[np.bool_]

    @classmethod
    def learn(cls, estimator: Estimator, X: Features, y: AnyArray, categorical_features: ArrayLike | None) -> Self:
        """Learn the columns, and set ``n_features_in_`` and ``feature_names_in_`` of the estimator."""
        if not _is_frame(X):
            array = validate_data(estimator, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
            check_consistent_length(array, y)
            return cls(None, _checked_codes(array, categorical_features))
        if categorical_features is not None:
            raise InputError(
                f"categorical_features={categorical_features!r} is for arrays; a DataFrame says by its column types "
                "which are categories: give those the type category or text, and leave categorical_features out."
            )
        from demur.columns import Schema, as_table  # Arrow is imported where there is a table to read

        validate_data(estimator, X, skip_check_array=True)
        check_consistent_length(X, y)
        table = as_table(X)
        schema = Schema.from_frame(table)  # whoever passes a DataFrame has chosen its columns
        return cls(schema, schema.categorical)

    def encode(self, estimator: Estimator, X: Features) -> NDArray[np.float64]:
        """Return the matrix for this table."""
        if self.schema is None:
            array: NDArray[np.float64] = validate_data(
                estimator, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan"
            )
            return array
        if not _is_frame(X):
            raise InputError(
                f"fitted on a table with named columns, so it cannot read a {type(X).__name__}; give a table with the "
                "same columns."
            )
        from demur.columns import as_table

        validate_data(estimator, X, reset=False, skip_check_array=True)
        return self.schema.encode(as_table(X))


@dataclass(frozen=True, eq=False)
class KnownRows:
    """Detector of out-of-distribution rows, learned from the training rows.

    Parameters
    ----------
    schema : Schema or None
        The columns of a DataFrame that does not hold numbers alone.
    novelty : Novelty
    """

    schema: "Schema | None"
    novelty: Novelty

    @classmethod
    def learn(cls, X: Features, rate: float | str | None, blocks: ArrayLike | None = None) -> "KnownRows | None":
        """Learn from the training rows; None without a rate, or with "auto" where rows cannot be compared.

        Parameters
        ----------
        X : array or table
        rate : float, "auto" or None
            As for :class:`~demur.novelty.Novelty`.
        blocks : array of int, optional
            Rows of one block belong together.
        """
        if rate is None:
            return None
        check_rate(rate)
        found = _comparable(X)
        if found is None or len(found[1]) < FEWEST_ROWS:
            if rate == "auto":
                return None
            raise InputError(
                f"novelty={rate!r} needs a table of numbers, categories and dates with at least {FEWEST_ROWS} rows: "
                "give None instead."
            )
        schema, codes = found
        categorical = None if schema is None else schema.categorical
        return cls(schema, Novelty(rate).fit(codes, categorical, blocks))

    def novel(self, X: Features, rate: float | str | None) -> NDArray[np.bool_]:
        """Return which rows are unlike those of training, at this rate."""
        if self.schema is None:
            return self.novelty.novel(np.asarray(X, dtype=np.float64), rate)
        from demur.columns import as_table

        table = as_table(X)
        codes = self.schema.encode(table, unseen=UNSEEN)
        return self.novelty.novel(codes, rate)


def _comparable(X: Features) -> "tuple[Schema | None, NDArray[np.float64]] | None":
    """Return rows as numbers and codes, with the schema of a DataFrame that holds more than numbers; or None."""
    if hasattr(X, "toarray"):
        return None  # a sparse matrix may be too large to be filled up
    try:
        array = np.asarray(X)
        if array.ndim == 2 and array.shape[1] and array.dtype.kind in "biuf":
            return None, array.astype(np.float64)
        if _is_frame(X):
            from demur.columns import Schema, as_table

            table = as_table(X)
            schema = Schema.from_frame(table)
            return schema, schema.encode(table)
    except (TypeError, ValueError, UserError):  # no table, or one that holds something else
        pass
    return None


def _is_frame(X: Features) -> bool:
    """Say whether the columns can have types of their own."""
    return hasattr(X, "__arrow_c_stream__") or hasattr(X, "column_names") or hasattr(X, "columns")


def _checked_codes(array: NDArray[np.float64], categorical_features: ArrayLike | None) -> NDArray[np.bool_]:
    mask = np.zeros(array.shape[1], dtype=bool)
    if categorical_features is None:
        return mask
    wanted = np.asarray(categorical_features)
    if not wanted.size:
        return mask
    is_mask = wanted.dtype == bool and wanted.shape == mask.shape
    if not is_mask and (wanted.dtype.kind not in "iu" or wanted.max() >= mask.size or wanted.min() < 0):
        raise InputError(
            f"categorical_features must be a mask or numbers of the {mask.size} columns, got {categorical_features!r}."
        )
    mask[wanted] = True
    codes = array[:, mask]
    known = codes[~np.isnan(codes)]
    if ((known < 0) | (known >= _MOST_CODES) | (known != np.floor(known))).any():
        raise InputError(
            f"categorical columns of an array must hold codes from 0 to {_MOST_CODES - 1}; pass a DataFrame with "
            "columns of type category instead, which may hold anything."
        )
    return mask
