"""Splitting rows: folds, rows set aside for a rule, a hold-out. What belongs together stays on one side.

Rows with equal features are copies more often than not, and rows of one group (a patient, a machine) resemble each
other. On both sides of a split they make a model look better than it is, and a promise about new rows void.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, check_cv, train_test_split

from demur.array_types import AnyArray, Features
from demur.errors import InputError

__all__ = [
    "Blocks",
    "EqualRowsWarning",
    "Fold",
    "Partition",
    "blocks_from",
    "blocks_of",
    "folds_of",
    "folds_within",
    "hold_out",
    "hold_out_latest",
    "set_aside",
    "validation_rows",
]

Ints: TypeAlias = NDArray[np.int64]

Fold: TypeAlias = tuple[Ints, Ints]
"""Rows to train on, and rows to predict."""

_OFTEN = 10
"""Features that come up this often on average take few values, and equal rows are then no sign of copying."""


class EqualRowsWarning(UserWarning):
    """Rows that are equal, or of one group, were counted once where a promise needs independent rows."""


class Partition(NamedTuple):
    """Two sides of the rows.

    Attributes
    ----------
    train, aside : arrays of int
        Row numbers, in order.
    equal_rows : int
        How many rows have the features of an earlier row.
    """

    train: Ints
    aside: Ints
    equal_rows: int


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which rows belong together.

    Parameters
    ----------
    of_row : array of int
        The number of each row's block, in the order in which blocks appear first.
    equal_rows : int
        How many rows have the features of an earlier row.
    """

    of_row: Ints
    equal_rows: int

    @property
    def sizes(self) -> Ints:
        """The number of rows in each block."""
        return np.bincount(self.of_row)

    @property
    def alike(self) -> bool:
        """Whether all blocks have equally many rows, as where each is a row or each row was copied k times."""
        return len(np.unique(self.sizes)) <= 1

    @property
    def single(self) -> bool:
        """Whether every row is a block of its own."""
        return len(self.of_row) == 0 or int(self.of_row[-1]) + 1 == len(self.of_row)

    def one_row_each(self, rows: Ints) -> Ints:
        """Return one of these rows for each of their blocks, drawn at random but always the same, in order."""
        shuffled = np.random.RandomState(0).permutation(rows)
        return np.sort(shuffled[np.unique(self.of_row[shuffled], return_index=True)[1]])


def blocks_of(X: Features, y: AnyArray, groups: ArrayLike | None = None) -> Blocks:
    """Find the rows that must stay on one side of a split: those with equal features, and those of one group.

    Equal rows are separate observations, and not copies, where the features take few values (rows come up ten times on
    average) and most rows stand beside an equal row of another class. They have to be taken for separate where there
    are no more different rows than classes. And groups have the last word: where equal rows would chain most groups
    together, only the groups count.

    Parameters
    ----------
    X : table, array, sparse matrix or list
    y : array of shape (n,)
    groups : array of shape (n,), optional

    Examples
    --------
    >>> y = np.array([0, 1, 0, 1])
    >>> blocks_of(np.array([[1.0], [2.0], [1.0], [3.0]]), y).of_row
    array([0, 1, 0, 2])
    >>> blocks_of(np.array([[1.0], [2.0], [3.0], [4.0]]), y, groups=["ann", "bob", "ann", "bob"]).of_row
    array([0, 1, 0, 1])
    """
    return blocks_from(_numbered(_row_keys(X)), y, groups)


def blocks_from(equal: Ints, y: AnyArray, groups: ArrayLike | None = None) -> Blocks:
    """Find the blocks, as :func:`blocks_of`, where it is known already which rows are equal.

    Parameters
    ----------
    equal : array of int
        Numbers that are equal where rows are, in the order of their first appearance.
    y, groups
        As for :func:`blocks_of`.
    """
    n_rows, n_different = len(equal), _count(equal)
    separate = _are_separate_observations(equal, n_different, y)
    alone = Blocks(np.arange(n_rows, dtype=np.int64) if separate else equal, n_rows - n_different)
    if groups is None:
        return alone
    given = _group_numbers(groups, n_rows)
    joined = _joined(alone.of_row, given)
    if np.bincount(joined).max() > max(n_rows / 2, np.bincount(given).max()):
        joined = given
    return Blocks(joined, alone.equal_rows)


def folds_of(
    cv: Any, X: Features, y: AnyArray, *, groups: ArrayLike | None = None, blocks: Blocks | None = None
) -> list[Fold]:
    """Return the folds that ``cv`` stands for in scikit-learn, without rows of one block on both sides.

    A number stands for as many shuffled folds by class, always the same, or for fewer where the largest class has fewer
    rows; for rows whose order matters give a splitter. A class with fewer rows than folds is missing from some of
    them, which is for the caller to handle. Of the folds of a splitter, those rows are left out of the training part
    that belong to the same block as a row to predict. Folds that are listed row by row stay as they are.

    Examples
    --------
    >>> X, y = np.arange(5.0).reshape(-1, 1), np.array([0, 0, 0, 0, 1])
    >>> [test.tolist() for train, test in folds_of(2, X, y)]
    [[2, 3, 4], [0, 1]]
    >>> [test.tolist() for train, test in folds_of(2, X[[0, 1, 2, 0, 4]], y)]
    [[0, 1, 3], [2, 4]]
    """
    blocks = blocks_of(X, y, groups) if blocks is None else blocks
    cv = 5 if cv is None else cv
    if isinstance(cv, Integral):
        return _numbered_folds(int(cv), y, blocks)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class")
        warnings.filterwarnings("ignore", message="The groups parameter is ignored")
        given = () if groups is None else (groups,)
        found = list(check_cv(cv, y, classifier=True).split(X, y, *given))
    if not found:
        raise InputError("cv gives no folds; a generator can be used only once, so give list(...) of it instead.")
    rows = [(np.asarray(train), np.asarray(test)) for train, test in found]
    if blocks.single or not hasattr(cv, "split"):
        return rows
    apart = [(train[~np.isin(blocks.of_row[train], blocks.of_row[test])], test) for train, test in rows]
    kept = [fold for fold in apart if len(fold[0])]
    if not kept:
        raise InputError(
            f"all folds of cv={cv!r} have rows to predict beside equal rows, or rows of the same group, to train on; "
            "give a number of folds, or a splitter that takes groups such as GroupKFold."
        )
    return kept


def set_aside(
    cv: Any,
    X: Features,
    y: AnyArray,
    *,
    groups: ArrayLike | None = None,
    blocks: Blocks | None = None,
    folds: Sequence[Fold] | None = None,
) -> Partition:
    """Return the rows to train on and the rows that a rule is fitted on.

    A number of folds sets a share of 1 / cv aside, drawn at random and by class where the classes are large enough. A
    splitter or a list knows which rows belong together: the test part of its last fold is set aside.

    Parameters
    ----------
    cv, X, y, groups
        As for :func:`folds_of`.
    blocks, folds : optional
        What :func:`blocks_of` and :func:`folds_of` return, if known already.

    Examples
    --------
    >>> train, aside, equal_rows = set_aside(5, np.arange(10).reshape(-1, 1), np.array([0, 1] * 5))
    >>> len(train), len(aside), equal_rows
    (8, 2, 0)
    """
    blocks = blocks_of(X, y, groups) if blocks is None else blocks
    rows = np.arange(len(y))
    if cv is not None and not isinstance(cv, Integral):
        last = (folds_of(cv, X, y, groups=groups, blocks=blocks) if folds is None else folds)[-1][1]
        together = np.isin(blocks.of_row, blocks.of_row[last])
        return Partition(rows[~together], np.sort(last), blocks.equal_rows)
    share = 0.2 if cv is None else 1 / max(2, int(cv))
    chosen = (
        _draw_alike(blocks, y, share) if blocks.alike else _draw(blocks, y, share, np.random.RandomState(0), at_least=1)
    )
    return Partition(rows[~chosen], rows[chosen], blocks.equal_rows)


def hold_out(X: Features, y: AnyArray, share: float, *, groups: ArrayLike | None = None, seed: int = 0) -> Partition:
    """Hold out a share of the rows, of every class alike, and never all of a class.

    ``aside`` is empty where too little would be left to learn from.

    Parameters
    ----------
    X : table, array, sparse matrix or list
    y : array of shape (n,)
    share : float
    groups : array of shape (n,), optional
    seed : int

    Examples
    --------
    >>> copied = np.repeat(np.arange(5.0), 4).reshape(-1, 1)
    >>> parts = hold_out(copied, np.zeros(20), 0.2)
    >>> copied[parts.aside].ravel(), parts.equal_rows
    (array([2., 2., 2., 2.]), 15)
    """
    blocks = blocks_of(X, y, groups)
    chosen = _draw(blocks, y, share, np.random.default_rng(seed), at_least=int(groups is not None and share > 0))
    if np.unique(y[~chosen], return_counts=True)[1].max(initial=0) < 2:
        chosen[:] = False
    rows = np.arange(len(y))
    return Partition(rows[~chosen], rows[chosen], blocks.equal_rows)


def hold_out_latest(
    times: ArrayLike, X: Features, y: AnyArray, share: float, *, groups: ArrayLike | None = None
) -> Partition:
    """Hold out about a share of the rows, the latest; rows of one time stay on one side.

    Earlier rows that are equal to one that is held out, or of its group, are on neither side. ``aside`` is empty where
    too little would be left to learn from.

    Parameters
    ----------
    times : array of numbers, shape (n,)
        When each row was: greater is later.
    X, y, share, groups
        As for :func:`hold_out`.

    Examples
    --------
    >>> days = [3, 1, 2, 5, 4]
    >>> train, aside, _ = hold_out_latest(days, np.eye(5), np.array([0, 1, 0, 1, 0]), 0.4)
    >>> train.tolist(), aside.tolist()
    ([0, 1, 2], [3, 4])
    """
    when = np.asarray(times, dtype=np.float64)
    if when.shape != (len(y),) or np.isnan(when).any():
        raise InputError(f"times must be a number for each of the {len(y):,} rows, got shape {when.shape}.")
    blocks = blocks_of(X, y, groups)
    moments, counts = np.unique(when, return_counts=True)
    later = np.cumsum(counts[::-1])[::-1]  # how many rows are from each moment on
    first = moments[np.abs(later - share * len(when)).argmin()] if share > 0 else np.inf
    chosen = when >= first
    kept = ~chosen & ~np.isin(blocks.of_row, blocks.of_row[chosen])
    if np.unique(y[kept], return_counts=True)[1].max(initial=0) < 2 or len(np.unique(y[kept])) < 2:
        kept, chosen = np.ones(len(when), dtype=bool), np.zeros(len(when), dtype=bool)
    return Partition(np.flatnonzero(kept), np.flatnonzero(chosen), blocks.equal_rows)


def validation_rows(y: NDArray[np.int64], block: Ints, fraction: float, rng: np.random.RandomState) -> Fold:
    """Hold out a random share for validation, block by block, but leave every class a block to train on.

    Where nothing can be held out, the training rows also validate.

    Parameters
    ----------
    y : array of int
    block : array of int
        The number of each row's block.
    fraction : float
    rng : RandomState

    Examples
    --------
    >>> y = np.array([0] * 8 + [1, 2])
    >>> train, validation = validation_rows(y, np.arange(10), 0.5, np.random.RandomState(0))
    >>> sorted(set(y[train].tolist()))
    [0, 1, 2]
    """
    sizes, wanted = np.bincount(block), round(fraction * len(y))
    order = rng.permutation(len(sizes))
    too_large = sizes[order] >= 2 * wanted
    order = np.r_[order[~too_large], order[too_large]]
    n_held_out = int(np.searchsorted(np.cumsum(sizes[order]) - sizes[order] / 2, wanted))
    if not n_held_out and wanted and len(sizes) > 1:
        order, n_held_out = np.argsort(sizes, kind="stable"), 1
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    held_out = rank < n_held_out
    for label in np.setdiff1d(y, y[~held_out[block]]):
        candidates = block[(y == label) & held_out[block]]
        if len(candidates):  # another class may have brought it along
            held_out[candidates[rank[candidates].argmin()]] = False
    train, validation = np.flatnonzero(~held_out[block]), np.flatnonzero(held_out[block])
    return train, validation if len(validation) else train


def folds_within(folds: Sequence[Fold], rows: Ints) -> list[Fold]:
    """Return the folds of some rows alone, as positions among these rows, which are in order.

    Examples
    --------
    >>> folds_within([(np.array([0, 1, 3]), np.array([2, 4]))], np.array([1, 2, 3]))
    [(array([0, 2]), array([1]))]
    """
    parts = ([part[np.isin(part, rows)] for part in fold] for fold in folds)
    return [(np.searchsorted(rows, train), np.searchsorted(rows, test)) for train, test in parts]


def _numbered_folds(n_folds: int, y: AnyArray, blocks: Blocks) -> list[Fold]:
    labels, sizes = _rarest_class(blocks, y), blocks.sizes
    n_folds = max(2, min(n_folds, int(np.bincount(labels).max())))
    fold = np.empty(len(sizes), dtype=np.int64)
    if blocks.alike:
        splitter = StratifiedKFold(n_folds, shuffle=True, random_state=0)  # real tables are rarely in random order
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The least populated class")
            for number, (_, test) in enumerate(splitter.split(labels, labels)):
                fold[test] = number
    else:
        shuffled = np.random.RandomState(0).permutation(len(sizes))
        dealt = shuffled[np.lexsort((-sizes[shuffled], labels[shuffled]))]
        fold[dealt] = np.arange(len(dealt)) % n_folds
    of_row = fold[blocks.of_row]
    return [(np.flatnonzero(of_row != number), np.flatnonzero(of_row == number)) for number in range(n_folds)]


def _draw_alike(blocks: Blocks, y: AnyArray, share: float) -> NDArray[np.bool_]:
    """Draw a share of the blocks, by class where the classes are large enough, and never all blocks of a class."""
    labels = _rarest_class(blocks, y)
    counts = np.bincount(labels)
    stratify = labels if counts[counts > 0].min() >= 2 and share * len(labels) >= len(counts) else None
    kept, drawn = train_test_split(np.arange(len(labels)), test_size=share, random_state=0, stratify=stratify)
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[drawn[np.isin(labels[drawn], labels[kept])]] = True
    of_rows: NDArray[np.bool_] = chosen[blocks.of_row]
    return of_rows


def _draw(blocks: Blocks, y: AnyArray, share: float, rng: Any, *, at_least: int) -> NDArray[np.bool_]:
    """Draw about a share of the rows, block by block and class by class, and never the only block of a class."""
    labels, sizes = _rarest_class(blocks, y), blocks.sizes
    shuffled = rng.permutation(len(sizes))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    chosen = np.zeros(len(sizes), dtype=bool)
    due = 0.0  # what small classes, which cannot give a part of a block, leave to the next
    for members in np.split(by_class, np.cumsum(np.bincount(labels))[:-1]):
        if not len(members):
            continue
        ends = np.cumsum(sizes[members])
        due = min(due, float(sizes.max())) + share * float(ends[-1])
        taken = min(int(np.searchsorted(ends - sizes[members] / 2, due, side="right")), len(members) - 1)
        due -= float(ends[taken - 1]) if taken else 0.0
        chosen[members[:taken]] = True
    if at_least and not chosen.any():
        spare = np.bincount(labels)[labels] > 1
        chosen[np.where(spare, sizes, sizes + sizes.max()).argmin()] = True
    drawn: NDArray[np.bool_] = chosen[blocks.of_row]
    return drawn


def _rarest_class(blocks: Blocks, y: AnyArray) -> Ints:
    """Return for each block the number of its rarest class, by which it is spread over folds."""
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    rarest_first = np.argsort(counts[codes], kind="stable")
    first = np.unique(blocks.of_row[rarest_first], return_index=True)[1]
    return np.asarray(codes[rarest_first[first]], dtype=np.int64)


def _are_separate_observations(equal: Ints, n_different: int, y: AnyArray) -> bool:
    """Say whether equal rows are to be expected and differ in their classes, or there is hardly anything else."""
    classes, codes = np.unique(y, return_inverse=True)
    if n_different <= len(classes):
        return True
    if len(equal) < _OFTEN * n_different:
        return False
    pairs = np.unique(equal * len(classes) + codes)
    mixed = np.bincount(pairs // len(classes)) > 1
    return bool(mixed[equal].mean() > 0.5)


def _group_numbers(groups: ArrayLike, n_rows: int) -> Ints:
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise InputError(f"groups must name the group of each of the {n_rows:,} rows, got shape {values.shape}.")
    numbers = _numbered(_column_codes(values))
    if _count(numbers) < 2:
        raise InputError(
            f"all {n_rows:,} rows are of one group, {values[0]!r}, so that none can be kept apart; give rows of at "
            "least two groups, or leave groups out."
        )
    return numbers


def _joined(one: Ints, other: Ints) -> Ints:
    """Return the finest blocks that keep together what either keeps together."""
    n_one, n_other = _count(one), _count(other)
    if n_one == len(one):
        return other
    size = n_one + n_other
    places = (one.astype(np.int32), (other + n_one).astype(np.int32))  # older versions of scipy misread wider ones
    links = sparse.coo_array((np.ones(len(one), dtype=bool), places), shape=(size, size))
    component = sparse.csgraph.connected_components(links, directed=False)[1]
    return _numbered(np.asarray(component, dtype=np.int64)[one])


def _count(numbers: Ints) -> int:
    return int(numbers.max(initial=-1)) + 1


def _numbered(keys: Ints) -> Ints:
    """Give equal keys one number, in the order of their first appearance."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse]


# Equal rows have equal keys


def _row_keys(X: Features) -> Ints:
    if sparse.issparse(X):
        return _sparse_keys(X)
    columns = _columns(X)
    if columns is not None:
        codes = [_column_codes(np.asarray(column)) for column in columns]
        return _hashes(np.column_stack(codes)) if codes else np.arange(len(X), dtype=np.int64)
    array = _as_array(X)
    if array.dtype.kind in "biuf":
        return _hashes(array.reshape(len(array), -1))
    if array.ndim == 1:
        return _column_codes(array)
    cells = array.reshape(len(array), -1)
    return _hashes(np.column_stack([_column_codes(column) for column in cells.T]))


def _columns(X: Features) -> Iterable[Any] | None:
    """Return the columns of a table, each with a type of its own, or None for what is not a table."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return (X.iloc[:, position] for position in range(X.shape[1]))
    if hasattr(X, "get_columns"):
        return list(X.get_columns())
    if hasattr(X, "itercolumns"):
        return list(X.itercolumns())
    return None


def _as_array(X: Features) -> AnyArray:
    if isinstance(X, list | tuple) and len(X) and not np.ndim(X[0]):
        return _objects(X)  # texts of many lengths would all take the room of the longest
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        return _objects(X)
    return array if array.ndim else _objects(list(X))


def _objects(values: Sequence[Any]) -> AnyArray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def _column_codes(values: AnyArray) -> Ints:
    """Return whole numbers that are equal where the values are; missing values are equal to each other."""
    kind = values.dtype.kind
    if kind in "mM":
        return values.view(np.int64)
    if kind in "biu":
        return values.astype(np.int64)
    if kind == "f":
        return _plain(values.astype(np.float64)).view(np.int64)
    known: dict[Any, int] = {}
    try:
        codes = [known.setdefault(_plain_object(value), len(known)) for value in values.tolist()]
    except TypeError:  # cells that are lists or arrays
        codes = [known.setdefault(_written(value), len(known)) for value in values.tolist()]
    return np.asarray(codes, dtype=np.int64)


def _plain(values: AnyArray) -> AnyArray:
    """Return floats in which zero and NaN have one form each."""
    plain: AnyArray = values + values.dtype.type(0)  # turns -0.0 into 0.0
    plain[np.isnan(plain)] = np.nan
    return plain


def _plain_object(value: Any) -> Any:
    return None if isinstance(value, float) and value != value else value


def _written(value: Any) -> Any:
    return value.tobytes() if isinstance(value, np.ndarray) else repr(value)


_ROWS_AT_A_TIME = 1 << 15


def _hashes(matrix: AnyArray) -> Ints:
    """Return 64 bits of each row, some rows at a time."""
    if not matrix.shape[1]:
        return np.arange(len(matrix), dtype=np.int64)
    if matrix.dtype == np.longdouble:
        matrix = matrix.astype(np.float64)  # its bytes have gaps
    width = np.dtype((np.void, matrix.dtype.itemsize * matrix.shape[1]))
    found = np.empty(len(matrix), dtype=np.int64)
    for start in range(0, len(matrix), _ROWS_AT_A_TIME):
        piece = matrix[start : start + _ROWS_AT_A_TIME]
        piece = np.ascontiguousarray(_plain(piece) if piece.dtype.kind == "f" else piece)
        found[start : start + len(piece)] = [hash(row) for row in piece.view(width).ravel().tolist()]
    return found


def _sparse_keys(X: Features) -> Ints:
    rows = sparse.csr_array(X, copy=True)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    ends = rows.indptr.tolist()
    data = _plain(rows.data) if rows.data.dtype.kind == "f" else rows.data
    keys = (hash((rows.indices[start:end].tobytes(), data[start:end].tobytes())) for start, end in pairwise(ends))
    return np.fromiter(keys, dtype=np.int64, count=rows.shape[0])
