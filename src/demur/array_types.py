"""Type aliases for arrays, tables of features, estimators, labels and prices.

scikit-learn accepts tables of any library and defines no types; these names document the meaning.
"""

import os
from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
"""An array whose type of numbers, or of labels, is the caller's."""

FloatArray: TypeAlias = NDArray[np.floating[Any]]
"""An array of floats, single or double."""

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Objects: TypeAlias = NDArray[np.object_]
Texts: TypeAlias = NDArray[np.str_]

Features: TypeAlias = Any
"""Rows as an estimator takes them: an array, a sparse matrix, or a data frame of any library."""

Estimator: TypeAlias = Any
"""A classifier, regressor or transformer with scikit-learn's interface."""

Label: TypeAlias = Any
"""The name of a class or the marker of a declined row: a number or a text, like the user's labels."""

ByName: TypeAlias = dict[str, Any]
"""Values by their names, as in a JSON object or in keyword arguments."""

CostLike: TypeAlias = Any
"""A price, or one for each row: a number, an array, or a tensor."""

AnyMapping: TypeAlias = Mapping[str, Any]
"""As ``ByName``, read-only."""

Names: TypeAlias = Collection[str]
"""Names of columns, classes or files."""

Prices: TypeAlias = Mapping[str, float]
"""A price or a limit for each expert."""

FilePath: TypeAlias = str | os.PathLike[str]
"""The name of a file or folder."""
