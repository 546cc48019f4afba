"""NumPy's .npy and .npz files as tables: a column for each one-dimensional array and for each column of a matrix."""

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from demur.array_types import AnyArray, Floats, Ints
from demur.columns.frames import TableError
from demur.columns.schema import LARGEST

_AT_ONCE = 1 << 22
"""Numbers in a chunk."""

_MAPPED = 1 << 27
"""Bytes of a file that are mapped at a time."""


@dataclass(frozen=True, eq=False)
class StoredRows:
    """Rows of a matrix that are read on demand, as numbers; infinite ones become NaN.

    Parameters
    ----------
    source : array or str
        A matrix, or the path of a .npy file with one.
    rows, columns : array of int, optional
        Rows and columns to use, in this order; all by default.

    Examples
    --------
    >>> StoredRows(np.arange(6.0).reshape(3, 2), np.array([2, 0]), np.array([1, 0]))[[0]]
    array([[5., 4.]])
    """

    source: AnyArray | str
    rows: Ints | None = None
    columns: Any = ...

    def __len__(self) -> int:
        return len(_opened(self.source)) if self.rows is None else len(self.rows)

    def __getitem__(self, rows: Any) -> Floats:
        chosen = (np.arange(len(self)) if self.rows is None else self.rows)[rows]
        source = _opened(self.source)
        numbers = np.empty((len(chosen), source[:1, self.columns].shape[1]))
        # A page that was read counts as memory of the process as long as it is mapped, and with it its neighbours.
        n_maps = 1 + int(np.ptp(chosen)) * source[:1].nbytes // _MAPPED if len(chosen) else 1
        for part in np.array_split(np.arange(len(chosen)), n_maps):
            numbers[part] = _opened(self.source)[chosen[part]][:, self.columns]
        numbers[~(np.abs(numbers) <= LARGEST)] = np.nan
        return numbers

    def chunks(self, of: Ints | None = None) -> Iterator[tuple[int, Floats]]:
        """Return all rows, or the rows ``of``, in small chunks, each with the number of rows before it."""
        rows = np.arange(len(self)) if of is None else of
        step = max(1, _AT_ONCE // max(1, self[:1].shape[1]))
        return ((start, self[rows[start : start + step]]) for start in range(0, len(rows), step))


def _opened(source: AnyArray | str) -> AnyArray:
    return np.atleast_1d(np.load(source, mmap_mode="r", allow_pickle=False) if isinstance(source, str) else source)


def _columns(rows: AnyArray) -> AnyArray:
    """Return rows as a matrix, other values as its only column, in the byte order that Arrow reads."""
    matrix = rows if rows.ndim == 2 else rows[:, None]
    return matrix.astype(matrix.dtype.newbyteorder("="), copy=False)


def arrays_of(stream: BinaryIO, name: str) -> dict[str, AnyArray | str]:
    """Return the arrays of a .npy or .npz file by name; a .npy file on disk is returned as its path.

    Parameters
    ----------
    stream : binary stream
    name : str
        The name of the file in messages.

    Examples
    --------
    >>> file = io.BytesIO()
    >>> np.savez(file, y=[0, 1])
    >>> arrays_of(io.BytesIO(file.getvalue()), "y.npz")
    {'y': array([0, 1])}
    """
    path = getattr(stream, "name", None)
    if isinstance(stream, io.BufferedReader) and isinstance(path, str) and stream.peek(1)[:1] != b"P":
        return {"": path}
    found = np.load(io.BytesIO(stream.read()), allow_pickle=False)
    return {"": found} if isinstance(found, np.ndarray) else {key: found[key] for key in found.files}


def array_table(
    arrays: dict[str, AnyArray | str], name: str
) -> tuple[pa.Schema, Callable[[list[str], int], Iterator[pa.RecordBatch]], StoredRows | None]:
    """Return the columns of arrays, a function that returns the rows in batches, and the matrix if there is one.

    The columns of a matrix are called 0, 1, 2, ...; where there are several, the name of the matrix comes first. A
    one-dimensional array is a column of its name.

    Parameters
    ----------
    arrays : dict of str to array or path
    name : str
        The name of the file in messages.

    Examples
    --------
    >>> schema, batches, matrix = array_table({"p": np.eye(3), "y": np.array([0, 1, 2])}, "out.npz")
    >>> schema.names, next(batches(["2", "y"], 2)).to_pydict()
    (['0', '1', '2', 'y'], {'2': [0.0, 0.0], 'y': [0, 1]})
    """
    opened = {key: _opened(array) for key, array in arrays.items()}
    n_rows, matrices = len(next(iter(opened.values()))), [key for key, array in opened.items() if array.ndim == 2]
    places: dict[str, tuple[str, int, pa.DataType]] = {}  # a column's array, its place in a matrix, and its type
    for key, array in opened.items():
        if len(array) != n_rows or array.ndim > 2:
            shapes = ", ".join(f"{key} {array.shape}".strip() for key, array in opened.items())
            raise TableError(
                f"{name} holds arrays that are not one table, {shapes}: save arrays of equal length, of one or two axes"
            )
        first = _columns(array[:1])
        kind = pa.array(first.ravel()).type
        for number in range(first.shape[1]):
            column = (key or "0") if array.ndim == 1 else str(number) if len(matrices) == 1 else f"{key}_{number}"
            places[column] = key, number, kind

    def batches(names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, n_rows, rows):
            read = {key: _columns(_opened(array)[start : start + rows]) for key, array in arrays.items()}
            columns = [pa.array(read[key][:, number], kind) for key, number, kind in map(places.__getitem__, names)]
            yield pa.record_batch(columns, names)

    schema = pa.schema({column: kind for column, (_, _, kind) in places.items()})
    return schema, batches, StoredRows(arrays[matrices[0]]) if len(matrices) == 1 else None
