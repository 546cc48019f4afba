"""Splitting rows: folds, rows set aside for a rule, a hold-out. Rows that belong together stay on one side.

Every row is an observation. Rows belong together where groups say so (a patient, a machine), or where nearly every row
of a table occurs the same number of times, which only copying explains.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.model_selection import StratifiedKFold, check_cv

from demur.array_types import AnyArray, Features, Floats, Ints, Mask
from demur.errors import InputError

Fold: TypeAlias = tuple[Ints, Ints]
"""Rows to train on, and rows to predict."""

_MOST_COPIES = 50
_NEARLY_ALL = 0.95
_FEWEST_DIFFERENT = 20
"""A table counts as copied if 95 % of its different rows occur k, 2k, ... times. By chance a count is even half of the
time, so from about 20 different rows on, chance cannot explain this."""

_FEW_EQUAL = 0.01
_FEW_MIXED = 0.1
_MOSTLY = 0.7
_ENOUGH_DIFFERENT = 50
"""Thresholds of :func:`_may_be_copies`. Separate observations with equal features differ in their labels in more than
10 % of the cases; chance makes 70 % of at least 50 counts multiples of one number hardly ever."""


_RARE = 10
"""Of a class with more rows, at least one is left to train on with a probability of 99.9 %, if half are set aside."""


class EqualRowsWarning(UserWarning):
    """A guarantee was fitted on rows that are copies of others, or may be."""


class Partition(NamedTuple):
    """Two sides of the rows.

    Attributes
    ----------
    train, aside : arrays of int
        Row numbers, in order.
    copies : array of bool, optional
        Which rows set aside may be copies of others; None where nothing suggests copies.
    """

    train: Ints
    aside: Ints
    copies: Mask | None = None


@dataclass(frozen=True, eq=False)
class Blocks:
    """Which rows belong together, and which may be copies.

    Parameters
    ----------
    of_row : array of int
        The number of each row's block, in the order in which blocks appear first.
    equal_rows : int
        Number of rows with the features of an earlier row.
    times : int
        Number of copies of nearly every row, if the table was copied as a whole; 1 otherwise.
    suspects : array of int, optional
        Numbers that are equal if the features of rows are equal, if some rows may be copies.
    """

    of_row: Ints
    equal_rows: int
    times: int = 1
    suspects: Ints | None = None

    @property
    def sizes(self) -> Ints:
        """The number of rows in each block."""
        return np.bincount(self.of_row)

    def without_copies(self, rows: Ints) -> Ints:
        """Return one of these rows for each block, in order, where the table was copied; otherwise all of them."""
        return rows if self.times == 1 else np.sort(rows[np.unique(self.of_row[rows], return_index=True)[1]])

    def copies(self, rows: Ints, known: Ints | None = None) -> Mask | None:
        """Return which of these rows may be copies of an earlier one, or of one of the ``known`` rows.

        None where nothing suggests copies.
        """
        if self.suspects is None:
            return None
        found = np.ones(len(rows), dtype=bool)
        found[np.unique(self.suspects[rows], return_index=True)[1]] = False
        return found if known is None else found | np.isin(self.suspects[rows], self.suspects[known])

    def explain(self) -> str | None:
        """Describe the equal rows and the assumption about them; None if no rows are equal."""
        if not self.equal_rows:
            return None
        n_rows = f"{len(self.of_row):,} rows"
        if self.times > 1:
            return (
                f"nearly all of the {n_rows} occur {self.times} times: they are treated as copies, stay on one side of "
                "every split, and count once in a guarantee and in the evaluation."
            )
        have = "has" if self.equal_rows == 1 else "have"
        found = f"{self.equal_rows:,} of the {n_rows} {have} the same features as an earlier row"
        if self.suspects is None:
            return f"{found}: all rows are counted as separate observations."
        return (
            f"{found}, nearly always with the same label: they may be copies. All rows are counted as separate "
            "observations; a guarantee must also hold when equal rows are counted once. If they are copies, remove "
            "them, or pass groups to say which rows belong together."
        )


def blocks_of(X: Features, y: AnyArray, groups: ArrayLike | None = None) -> Blocks:
    """Find the rows that must stay on one side of a split: the rows of one group, and the copies in a copied table.

    Without groups every row is a separate block, unless nearly all rows, with their labels, occur k >= 2 times: k such
    rows are then one block.

    Parameters
    ----------
    X : table, array, sparse matrix or list
    y : array of shape (n,)
    groups : array of shape (n,), optional

    Examples
    --------
    >>> y = np.array([0, 1, 0, 1])
    >>> blocks_of(np.array([[1.0], [2.0], [1.0], [3.0]]), y).of_row
    array([0, 1, 2, 3])
    >>> blocks_of(np.array([[1.0], [2.0], [3.0], [4.0]]), y, groups=["ann", "bob", "ann", "bob"]).of_row
    array([0, 1, 0, 1])
    """
    equal = equal_rows(X)
    n_rows, n_different = len(equal), _count(equal)
    if groups is not None:
        return Blocks(_group_numbers(groups, n_rows), n_rows - n_different)
    codes = np.unique(y, return_inverse=True)[1]
    pair = _numbered(equal * (_count(codes) or 1) + codes)  # equal where features and labels are
    sizes = np.bincount(pair)
    times = _times_copied(sizes)
    if times > 1:
        order = np.argsort(pair, kind="stable")
        earlier = np.empty(n_rows, dtype=np.int64)  # how often the same row occurs before
        earlier[order] = np.arange(n_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return Blocks(_numbered(pair * n_rows + earlier // times), n_rows - n_different, times)
    alone = np.arange(n_rows, dtype=np.int64)
    suspects = equal if _may_be_copies(equal, codes, pair, sizes) else None
    return Blocks(alone, n_rows - n_different, suspects=suspects)


def equal_rows(X: Features) -> Ints:
    """Return numbers that are equal if rows are equal, in the order of their first appearance.

    Examples
    --------
    >>> equal_rows(np.array([[0.0, np.nan], [1.0, 2.0], [-0.0, np.nan]]))
    array([0, 1, 0])
    """
    return _numbered(_row_keys(X))


def _may_be_copies(equal: Ints, codes: Ints, pair: Ints, sizes: Ints) -> bool:
    """Return whether equal rows look like copies: they agree in their labels, and copying explains how many there are.

    Either most rows differ; or most rows of the largest class differ, as if rare classes were oversampled; or most rows
    occur k, 2k, ... times.
    """
    n_rows = len(equal)
    if n_rows - len(sizes) < max(1, _FEW_EQUAL * n_rows):
        return False
    by_class, different = np.bincount(codes), np.bincount(codes[np.unique(pair, return_index=True)[1]])
    largest = different.argmax()
    most_differ = _count(equal) >= n_rows / 2 or different[largest] >= 0.9 * by_class[largest]
    multiples = len(sizes) >= _ENOUGH_DIFFERENT and any(
        np.mean(sizes % k == 0) >= _MOSTLY for k in range(2, _MOST_COPIES + 1)
    )
    mixed = _share_of_mixed(equal, pair)
    return bool((most_differ and mixed <= _FEW_MIXED) or (multiples and mixed <= 2 * _FEW_MIXED))


def _times_copied(sizes: Ints) -> int:
    """Return the largest k such that nearly all different rows occur a multiple of k times."""
    if len(sizes) < _FEWEST_DIFFERENT:
        return 1
    return max(k for k in range(1, _MOST_COPIES + 1) if np.mean(sizes % k == 0) >= _NEARLY_ALL)


def _share_of_mixed(equal: Ints, pair: Ints) -> float:
    """Return the share of rows with an equal row of another label among those that have an equal row."""
    labels = np.bincount(equal[np.unique(pair, return_index=True)[1]])
    return float((labels > 1)[equal][np.bincount(equal)[equal] > 1].mean())


def folds_of(
    cv: Any, X: Features, y: AnyArray, *, groups: ArrayLike | None = None, blocks: Blocks | None = None
) -> list[Fold]:
    """Return the folds of ``cv``, interpreted as in scikit-learn, without rows of one block on both sides.

    A number gives this many shuffled, stratified folds, always the same, or fewer if the largest class has fewer rows;
    if the order of rows matters, use a splitter. A class with fewer rows than folds is missing from some of them; the
    caller handles this. With a splitter, rows that belong to the same block as a row to predict are removed from the
    training part. Folds that are listed row by row are unchanged.

    Examples
    --------
    >>> X, y = np.arange(5.0).reshape(-1, 1), np.array([0, 0, 0, 0, 1])
    >>> [test.tolist() for train, test in folds_of(2, X, y)]
    [[2, 3, 4], [0, 1]]
    >>> [test.tolist() for train, test in folds_of(2, X, y, groups=["ann", "bob", "cid", "ann", "dora"])]
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
    if not hasattr(cv, "split"):
        return rows
    apart = [(train[~np.isin(blocks.of_row[train], blocks.of_row[test])], test) for train, test in rows]
    return [fold for fold in apart if len(fold[0])]


def set_aside(share: float | Fold, y: AnyArray, blocks: Blocks) -> Partition:
    """Return the rows to train on and the rows that a rule is fitted on.

    A share is drawn at random class by class; classes with fewer than 10 rows or blocks are drawn together, so that all
    rows of one may be set aside. The rule must see rows of classes that the classifier does not know as often as new
    rows have them. If the table was copied, the rule gets one copy of each row, and the other copies are on neither
    side.

    Parameters
    ----------
    share : float, or fold
        Share of the rows, or a fold, whose test part is set aside.
    y : array of shape (n,)
    blocks : Blocks

    Examples
    --------
    >>> y = np.array([0, 1] * 5)
    >>> parts = set_aside(0.2, y, blocks_of(np.arange(10).reshape(-1, 1), y))
    >>> len(parts.train), len(parts.aside)
    (8, 2)
    """
    rows = np.arange(len(y))
    if isinstance(share, tuple):
        last = share[1]
        together = np.isin(blocks.of_row, blocks.of_row[last])
        train, aside = rows[~together], np.sort(last)
    else:
        # A rule must not be fitted on copies of training rows.
        drawn = blocks if blocks.suspects is None else Blocks(blocks.suspects, blocks.equal_rows)
        chosen = _draw_representative(drawn, y, share, np.random.RandomState(0), at_least=1, rare=_RARE)
        train, aside = rows[~chosen], rows[chosen]
    aside = blocks.without_copies(aside)
    return Partition(train, aside, blocks.copies(aside, train))


def share_for_rule(rule: Any, n_rows: int, *, frozen: bool = False) -> float:
    """Return the share of the rows that a rule is fitted on.

    It is a fifth, or four fifths if the classifier is already fitted, because calibration needs few rows. A guarantee
    gets at least 750 rows, but at most half of all rows.

    Examples
    --------
    >>> from demur.guarantees import RiskControl
    >>> [share_for_rule(RiskControl(0.1), n) for n in (600, 3000, 10_000)]
    [0.5, 0.25, 0.2]
    """
    if frozen:
        return 0.8
    return 0.2 if getattr(rule, "delta", None) is None else min(0.5, max(0.2, 750 / max(n_rows, 1)))


def hold_out(X: Features, y: AnyArray, share: float, *, groups: ArrayLike | None = None, seed: int = 0) -> Partition:
    """Hold out rows that are representative of new rows, also those of rare classes.

    The same share of each class is drawn; classes with one or two rows or blocks are drawn together, so that all rows
    of one may be held out. ``aside`` is empty if too few rows would be left for training, and has one row of each block
    of a copied table.

    Parameters
    ----------
    X : table, array, sparse matrix or list
    y : array of shape (n,)
    share : float
    groups : array of shape (n,), optional
    seed : int

    Examples
    --------
    >>> patients = np.repeat(np.arange(5), 4)
    >>> parts = hold_out(np.eye(20), np.zeros(20), 0.2, groups=patients)
    >>> patients[parts.aside]
    array([2, 2, 2, 2])
    """
    blocks = blocks_of(X, y, groups)
    at_least, rng = int(groups is not None and share > 0), np.random.default_rng(seed)
    # With three rows or more, at least one is left to train on with a probability of 99 %, if a fifth is held out.
    chosen = _draw_representative(blocks, y, share, rng, at_least=at_least, rare=3)
    if not _can_train(y[~chosen]):
        chosen[:] = False
    rows = np.arange(len(y))
    return Partition(rows[~chosen], blocks.without_copies(rows[chosen]))


def hold_out_latest(
    times: ArrayLike, X: Features, y: AnyArray, share: float, *, groups: ArrayLike | None = None
) -> Partition:
    """Hold out about a share of the rows, the latest; rows of one time stay on one side.

    Earlier rows of the group of a held-out row are on neither side. ``aside`` is empty if too few rows would be left
    for training.

    Parameters
    ----------
    times : array of numbers, shape (n,)
        Time of each row; larger is later.
    X, y, share, groups
        As for :func:`hold_out`.

    Examples
    --------
    >>> days = [3, 1, 2, 5, 4]
    >>> parts = hold_out_latest(days, np.eye(5), np.array([0, 1, 0, 1, 0]), 0.4)
    >>> parts.train.tolist(), parts.aside.tolist()
    ([0, 1, 2], [3, 4])
    """
    when = np.asarray(times, dtype=np.float64)
    blocks = blocks_of(X, y, groups)
    moments, counts = np.unique(when, return_counts=True)
    later = np.cumsum(counts[::-1])[::-1]  # how many rows are from each moment on
    first = moments[np.abs(later - share * len(when)).argmin()] if share > 0 else np.inf
    chosen = when >= first
    kept = ~chosen & ~np.isin(blocks.of_row, blocks.of_row[chosen])
    if not _can_train(y[kept]) or len(np.unique(y[kept])) < 2:
        kept, chosen = np.ones(len(when), dtype=bool), np.zeros(len(when), dtype=bool)
    return Partition(np.flatnonzero(kept), blocks.without_copies(np.flatnonzero(chosen)))


def _can_train(y: AnyArray) -> bool:
    """Return whether some class has two rows."""
    return bool(np.unique(y, return_counts=True)[1].max(initial=0) > 1)


def validation_rows(y: Ints, block: Ints, fraction: float, rng: np.random.RandomState) -> Fold:
    """Hold out a random share for validation, block by block, but leave every class a block to train on.

    If nothing can be held out, the training rows are also the validation rows.

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
    held_out = _draw(Blocks(block, 0), y, fraction, rng, at_least=int(round(fraction * len(y)) > 0))
    for label in np.setdiff1d(y, y[~held_out]):  # its blocks were drawn for rarer classes that are in them
        held_out[block == block[y == label][0]] = False
    train, validation = np.flatnonzero(~held_out), np.flatnonzero(held_out)
    return train, validation if len(validation) else train


def usable_folds(
    folds: Sequence[Fold], y: AnyArray, weight: Floats | None = None, *, at_least_one: bool = False
) -> list[Fold]:
    """Return the folds without held-out rows of classes that are not trained on, and without rows of weight 0.

    Folds that train on a single class, or hold nothing out, are left out. With ``at_least_one``, it is an error if
    none is left.
    """
    counts = np.ones(len(y), dtype=bool) if weight is None else weight > 0
    found = []
    for fold in folds:
        train, test = (side[counts[side]] for side in fold)
        known = np.unique(y[train])
        test = test[np.isin(y[test], known)]
        if len(known) > 1 and len(test):
            found.append((train, test))
    if at_least_one and not found:
        raise InputError(
            "no fold has two classes to train on and rows of them to predict; use another number of folds (cv), "
            "a splitter that takes groups such as GroupKFold, or calibration=None."
        )
    return found


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
    largest = int(np.bincount(labels).max())
    n_folds = max(2, min(n_folds, largest))
    fold = np.empty(len(sizes), dtype=np.int64)
    if len(np.unique(sizes)) == 1 and largest > 1:  # single rows, or a copied table
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


def _draw_representative(blocks: Blocks, y: AnyArray, share: float, rng: Any, *, at_least: int, rare: int) -> Mask:
    """Draw rows of rare classes as often as others, unless nothing could then be trained or evaluated."""
    for fewest in (rare, 0):
        chosen = _draw(blocks, y, share, rng, at_least=at_least, rare=fewest)
        left = y[~chosen]
        if _can_train(left) and len(np.unique(left)) >= min(3, len(np.unique(y))) and np.isin(y[chosen], left).any():
            break
    return chosen


def _draw(blocks: Blocks, y: AnyArray, share: float, rng: Any, *, at_least: int, rare: int = 0) -> Mask:
    """Draw about a share of the rows, block by block and class by class, and never the only block of a class.

    Classes with fewer than ``rare`` blocks count as one.
    """
    labels, sizes = _rarest_class(blocks, y), blocks.sizes
    labels = np.where(np.bincount(labels)[labels] < rare, labels.max() + 1, labels)
    shuffled = rng.permutation(len(sizes))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    chosen = np.zeros(len(sizes), dtype=bool)
    due = 0.0  # the share that small classes cannot give as whole blocks, for the next class
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
    drawn: Mask = chosen[blocks.of_row]
    return drawn


def _rarest_class(blocks: Blocks, y: AnyArray) -> Ints:
    """Return for each block the number of its rarest class, by which it is spread over folds."""
    codes, counts = np.unique(y, return_inverse=True, return_counts=True)[1:]
    rarest_first = np.argsort(counts[codes], kind="stable")
    first = np.unique(blocks.of_row[rarest_first], return_index=True)[1]
    return np.asarray(codes[rarest_first[first]], dtype=np.int64)


def _group_numbers(groups: ArrayLike, n_rows: int) -> Ints:
    values = np.asarray(groups)
    if values.shape != (n_rows,):
        raise InputError(f"groups must name the group of each of the {n_rows:,} rows, got shape {values.shape}.")
    numbers = _numbered(_codes(values))
    if _count(numbers) < 2:
        raise InputError(
            f"all {n_rows:,} rows are of one group, {values.tolist()[0]!r}, so they cannot be split; give "
            "rows of at least two groups, or leave groups out."
        )
    return numbers


def _count(numbers: Ints) -> int:
    return int(numbers.max(initial=-1)) + 1


def _numbered(keys: Ints) -> Ints:
    """Give equal keys one number, in the order of their first appearance."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    return number[inverse]


# Equal rows have equal keys


def _row_keys(X: Features) -> AnyArray:
    """Return a key for each row: equal rows have equal ones."""
    if isinstance(X, list | tuple):
        return _codes(np.fromiter(X, dtype=object, count=len(X)))
    if sparse.issparse(X):
        rows = sparse.csr_array(X).copy()  # type: ignore[call-overload] # any sparse matrix
        rows.sum_duplicates()
        rows.eliminate_zeros()
        data, ends = _codes(rows.data), pairwise(rows.indptr.tolist())
        return _hashes(rows.indices[start:end].tobytes() + data[start:end].tobytes() for start, end in ends)
    columns = _columns(X)
    if columns is None:
        cells = np.asarray(X)
        codes = _codes(cells.ravel()).reshape(len(cells), -1)
    else:
        codes = np.array([_codes(np.asarray(column)) for column in columns], dtype=np.int64).reshape(-1, len(X)).T
    keys = np.zeros(len(codes), dtype=np.uint64)
    for column in codes.view(np.uint64).T:  # each step is one to one in the column
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(32)
    return keys


def _columns(X: Features) -> Iterable[Any] | None:
    """Return the columns of a table, or None for anything else."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return [column for _, column in X.items()]
    for name in ("get_columns", "itercolumns"):  # of polars and of pyarrow
        if hasattr(X, name):
            return list(getattr(X, name)())
    return None


def _codes(values: AnyArray) -> Ints:
    """Return integers that are equal if the values are equal; missing values are equal to each other."""
    kind = values.dtype.kind
    if kind in "mM":
        return values.view(np.int64)
    if kind in "biu":
        return values.astype(np.int64)
    if kind == "f":
        plain = values.astype(np.float64) + 0.0  # turns -0.0 into 0.0
        plain[np.isnan(plain)] = np.nan
        return plain.view(np.int64)
    return _hashes(value.tobytes() if isinstance(value, np.ndarray) else repr(value) for value in values.tolist())


def _hashes(values: Iterable[str | bytes]) -> Ints:
    return np.fromiter((hash(value) for value in values), dtype=np.int64)
