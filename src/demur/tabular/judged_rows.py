"""The rows that are judged: checked here, once; then counted, by class and group, binned by confidence, and shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.array_types import AnyArray, ByName, FloatArray
from demur.errors import InputError, InputTypeError
from demur.metrics import Interval, proportion_interval, risk_interval
from demur.rules import Decision, chow_acceptance

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation

__all__ = [
    "Case",
    "ClassFigures",
    "Counts",
    "GroupFigures",
    "Groups",
    "Reliability",
    "RowTable",
    "check_adjustable_cost",
    "check_decision",
    "choose_cases",
    "class_codes",
    "class_intervals",
    "class_names",
    "figures_by_class",
    "sortable",
]


def class_codes(y: ArrayLike, classes: ArrayLike) -> NDArray[np.int64]:
    """Return the position of each label among the K classes, and K where it is none of them.

    Examples
    --------
    >>> class_codes(["dog", "cat", "cow"], ["cat", "dog"])
    array([1, 0, 2])
    >>> class_codes(["1", "0"], [0, 1])
    Traceback (most recent call last):
        ...
    demur.errors.InputError: none of the labels is a class of the model: y starts with '1', the classes with 0; ...
    classes are of one kind.
    """
    names, labels = _python_objects(classes), _python_objects(y)
    position = {name: code for code, name in enumerate(names)}
    if len(position) < len(names) or len(names) < 2:
        raise InputError(f"classes must be at least two distinct names, got {names[:10]}.")
    if not labels:
        raise InputError("y is empty; give at least one labelled row.")
    if any(label is None or label != label for label in labels):
        raise InputError("y contains missing labels (None or NaN); remove those rows first.")
    codes = np.array([position.get(label, len(names)) for label in labels], dtype=np.int64)
    if (codes == len(names)).all():
        raise InputError(
            f"none of the labels is a class of the model: y starts with {labels[0]!r}, the classes with {names[0]!r}; "
            "check that labels and classes are of one kind."
        )
    return codes


def class_names(classes: ArrayLike) -> tuple[str, ...]:
    """Return the classes as text for people: 1.0 is written 1.

    Examples
    --------
    >>> class_names([1.0, 2.5])
    ('1', '2.5')
    """
    return tuple(str(int(c)) if isinstance(c, float) and c.is_integer() else str(c) for c in _python_objects(classes))


def _python_objects(values: ArrayLike) -> list[Any]:
    """Return Python objects; a list keeps its types, which NumPy would merge into text."""
    if isinstance(values, (list, tuple)):
        return [value.item() if isinstance(value, np.generic) else value for value in values]
    array = np.asarray(values)
    if array.ndim != 1:
        raise InputError(f"labels and classes must be one-dimensional, got shape {array.shape}.")
    return list(array.tolist())


def check_decision(decision: Decision[Any], n_rows: int, n_classes: int) -> Decision[AnyArray]:
    """Return the decision with NumPy arrays: one entry per row, labels that are positions among the classes.

    Examples
    --------
    >>> from demur.rules import Chow
    >>> check_decision(Chow(0.2).decide([[0.9, 0.1]]), n_rows=2, n_classes=2)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: decision.label has shape (1,) but there are 2 labels; decide for the labelled rows.
    """
    found = decision.numpy()
    for name in ("label", "reject", "acceptance", "confidence"):
        shape = getattr(found, name).shape
        if shape != (n_rows,):
            raise InputError(
                f"decision.{name} has shape {shape} but there are {n_rows} labels; decide for the labelled rows."
            )
    if found.label.dtype.kind not in "iu" or found.label.min() < 0 or found.label.max() >= n_classes:
        raise InputError(
            f"decision.label must hold positions 0 to {n_classes - 1} among the classes, got {found.label[:5].tolist()}"
            "...; use decide(), not predict()."
        )
    if found.reject.dtype != np.bool_:
        raise InputTypeError(f"decision.reject must be a boolean mask, got dtype {found.reject.dtype}.")
    return found


def check_adjustable_cost(decision: Decision[AnyArray], cost: float) -> None:
    """Refuse decisions that are not those of Chow's rule at this cost, which alone lets the cost move.

    Examples
    --------
    >>> from demur.rules import Threshold
    >>> check_adjustable_cost(Threshold(0.5).decide([[0.9, 0.1], [0.7, 0.3]]), 0.2)
    Traceback (most recent call last):
        ...
    demur.errors.InputError: the decision differs from Chow's rule at cost 0.2 on 1 row, so that the cost cannot be ...
    cost_adjustable=False.
    """
    # Computed as Chow's rule does, with the cost as an array: float32 probabilities are compared in float64.
    chow = Decision.from_acceptance(decision.label, chow_acceptance(decision.confidence, np.asarray(cost)))
    n_others = int((chow.reject != decision.reject).sum())
    if n_others:
        rows = "1 row" if n_others == 1 else f"{n_others:,} rows"
        raise InputError(
            f"the decision differs from Chow's rule at cost {cost:g} on {rows}, so that the cost cannot be moved; pass "
            "cost_adjustable=False."
        )


def sortable(confidence: FloatArray) -> FloatArray:
    """Return finite values in the same order, undefined ones last, since a curve can only be drawn of those.

    Examples
    --------
    >>> sortable(np.array([0.5, 0.25])), sortable(np.array([np.inf, np.nan, 3.0]))
    (array([0.5 , 0.25]), array([2., 0., 1.]))
    """
    if np.isfinite(confidence).all():
        return confidence
    ranks = np.unique(np.where(np.isnan(confidence), -np.inf, confidence), return_inverse=True)[1]
    return np.asarray(ranks, dtype=np.float64)


@dataclass(frozen=True)
class Counts:
    """How many rows there are, how many were answered, and how many of those wrongly.

    Parameters
    ----------
    n_rows, n_answered, n_wrong : int

    Examples
    --------
    Ten rows, eight answered, one of them wrongly, at cost 0.25: (1 + 2 * 0.25) / 10.

    >>> counts = Counts(10, 8, 1)
    >>> counts.risk(0.25), counts.coverage, counts.accepted_accuracy
    (0.15, 0.8, 0.875)
    """

    n_rows: int
    n_answered: int
    n_wrong: int

    @property
    def n_rejected(self) -> int:
        """The rows that were declined."""
        return self.n_rows - self.n_answered

    @property
    def n_right(self) -> int:
        """The rows that were answered rightly."""
        return self.n_answered - self.n_wrong

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.n_answered / self.n_rows

    @property
    def accepted_accuracy(self) -> float:
        """The share of right answers among those given; NaN if none was given."""
        return _ratio(self.n_right, self.n_answered)

    def risk(self, cost: float) -> float:
        """Return the 0-1-c risk: what a row costs on average."""
        return (self.n_wrong + cost * self.n_rejected) / self.n_rows


@dataclass(frozen=True)
class ClassFigures:
    """The figures of one class; made by :attr:`~demur.tabular.Evaluation.by_class`.

    Parameters
    ----------
    name : str
    n_rows : int
        Rows of this class.
    n_rejected : int
        Those of them that were declined.
    n_right : int
        Those of them that were answered with this class.
    n_answers : int
        All answers with this class, whatever the truth.

    Examples
    --------
    >>> cat = ClassFigures("cat", n_rows=10, n_rejected=2, n_right=6, n_answers=9)
    >>> cat.rejection_rate, cat.accepted_accuracy, round(cat.precision, 3), cat.recall
    (0.2, 0.75, 0.667, 0.6)
    """

    name: str
    n_rows: int
    n_rejected: int
    n_right: int
    n_answers: int

    @property
    def rejection_rate(self) -> float:
        """The declined share of the class; NaN for a class without rows."""
        return _ratio(self.n_rejected, self.n_rows)

    @property
    def accepted_accuracy(self) -> float:
        """The share answered rightly among the rows of the class that were answered."""
        return _ratio(self.n_right, self.n_rows - self.n_rejected)

    @property
    def precision(self) -> float:
        """The share of right ones among the answers with this class."""
        return _ratio(self.n_right, self.n_answers)

    @property
    def recall(self) -> float:
        """The share of the class, declined rows included, that was answered rightly."""
        return _ratio(self.n_right, self.n_rows)


def figures_by_class(names: tuple[str, ...], confusion: NDArray[np.int64]) -> list[ClassFigures]:
    """Read the figures of each class off a confusion matrix whose last column counts the rejections.

    Rows of the matrix beyond the named classes (labels that are not a class) count as answers only.

    Examples
    --------
    >>> figures_by_class(("a", "b"), np.array([[3, 1, 1], [0, 2, 0]]))[0]
    ClassFigures(name='a', n_rows=5, n_rejected=1, n_right=3, n_answers=3)
    """
    n_rows, n_answers = confusion.sum(axis=1), confusion[:, :-1].sum(axis=0)
    return [
        ClassFigures(name, int(n_rows[k]), int(confusion[k, -1]), int(confusion[k, k]), int(n_answers[k]))
        for k, name in enumerate(names)
    ]


def class_intervals(figures: list[ClassFigures]) -> dict[str, Interval]:
    """Return 95 % intervals of the four shares, each with one entry per class.

    Examples
    --------
    Twenty of twenty right is no proof of perfection:

    >>> found = class_intervals([ClassFigures("cat", n_rows=20, n_rejected=0, n_right=20, n_answers=20)])["recall"]
    >>> found.low.round(3), found.high
    (array([0.832]), array([1.]))
    """
    n_rows, n_rejected, n_right, n_answers = np.array(
        [(one.n_rows, one.n_rejected, one.n_right, one.n_answers) for one in figures], dtype=np.int64
    ).T
    return {
        "rejection_rate": proportion_interval(n_rejected, n_rows),
        "accepted_accuracy": proportion_interval(n_right, n_rows - n_rejected),
        "precision": proportion_interval(n_right, n_answers),
        "recall": proportion_interval(n_right, n_rows),
    }


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


@dataclass(frozen=True)
class Case:
    """One row, as a person would want to see it.

    Parameters
    ----------
    row : str
        Its number or identifier.
    true, answer : str
        The true class, and the class that was answered or would have been.
    confidence : float
        The probability given to the answer; without probabilities, the model's own score.
    second : str or None
        The next most probable class.
    second_confidence : float or None
    columns : dict of str to object
        Some of the row's original values.
    """

    row: str
    true: str
    answer: str
    confidence: float
    second: str | None = None
    second_confidence: float | None = None
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RowTable:
    """The original columns of the rows, a mapping of names to values or an Arrow table, and how the rows are called.

    Parameters
    ----------
    columns : mapping of str to sequence, or pyarrow.Table, optional
    numbers : sequence, optional
        What to call each row; 1, 2, 3, ... by default.

    Examples
    --------
    >>> RowTable({"age": [31, 52], "sex": ["f", "m"]}).pick(np.array([1]), 2)
    [{'age': 52, 'sex': 'm'}]
    """

    columns: Any = None
    numbers: Sequence[object] | AnyArray | None = None

    def check_length(self, n_rows: int) -> None:
        """Refuse columns or numbers of another length than the labels."""
        lengths = {} if self.numbers is None else {"row_numbers": len(self.numbers)}
        if hasattr(self.columns, "num_rows"):
            lengths["rows"] = self.columns.num_rows
        elif self.columns is not None:
            lengths |= {f"column {name!r} of rows": len(values) for name, values in self.columns.items()}
        for what, length in lengths.items():
            if length != n_rows:
                entries = "1 entry" if length == 1 else f"{length} entries"
                raise InputError(f"{what} has {entries} but there are {n_rows} labels; give one per labelled row.")

    def name(self, row: int) -> str:
        """Return what to call the row at this position."""
        return str(row + 1 if self.numbers is None else self.numbers[row])

    def pick(self, chosen: NDArray[np.intp], n_columns: int) -> list[dict[str, object]]:
        """Return the first ``n_columns`` columns of the chosen rows."""
        if self.columns is None:
            return [{} for _ in chosen]
        if hasattr(self.columns, "to_pydict"):
            names = self.columns.column_names[:n_columns]
            picked = self.columns.select(names).take(chosen).to_pydict()
        else:
            names = list(self.columns)[:n_columns]
            picked = {name: [_at(self.columns[name], int(row)) for row in chosen] for name in names}
        return [{name: picked[name][i] for name in names} for i in range(len(chosen))]


def choose_cases(
    evaluation: "Evaluation", mask: NDArray[np.bool_], order: FloatArray, n: int, n_columns: int
) -> list[Case]:
    """Return up to ``n`` of the masked rows, from the highest of ``order`` down; ties stay in the order of the rows."""
    rows = np.flatnonzero(mask)
    chosen = rows[np.argsort(-sortable(order[rows]), kind="stable")[:n]]
    names = (*evaluation.class_names, "none of the classes")
    cases = []
    for row, columns in zip(chosen.tolist(), evaluation.rows.pick(chosen, n_columns), strict=True):
        true, answer = int(evaluation.true[row]), int(evaluation.decision.label[row])
        second: tuple[str | None, float | None] = (None, None)
        if evaluation.proba is not None:
            others = np.where(np.arange(len(evaluation.class_names)) == answer, -np.inf, evaluation.proba[row])
            second = names[int(others.argmax())], float(others.max())
        confidence = float(evaluation.answer_confidence[row])
        cases.append(Case(evaluation.rows.name(row), names[true], names[answer], confidence, *second, columns))
    return cases


def _at(values: Any, position: int) -> object:
    """Return a value by position, also from a pandas column whose index is something else."""
    return values.iloc[position] if hasattr(values, "iloc") else values[position]


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reliability:
    r"""Confidence against accuracy in bins of equal width, and the expected calibration error.

    Made by :meth:`from_confidence`. With n_b rows in bin b,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    (Guo et al. 2017). A row on an edge falls into the bin above it, except confidence 1.

    Parameters
    ----------
    edges : array of shape (n_bins + 1,)
    n_rows : array of int, shape (n_bins,)
    confidence, accuracy : arrays of shape (n_bins,)
        Means over the rows of the bin; NaN where it is empty.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.

    Examples
    --------
    Four rows of confidence 0.8, two of them right, and one certain row, right: |0.5 - 0.8| * 4 / 5.

    >>> found = Reliability.from_confidence([0.8, 0.8, 0.8, 0.8, 1.0], [True, True, False, False, True])
    >>> round(found.ece, 6)
    0.24
    """

    edges: Floats
    n_rows: NDArray[np.int64]
    confidence: Floats
    accuracy: Floats

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, right: ArrayLike, n_bins: int = 10) -> "Reliability":
        """Put the rows into bins.

        Parameters
        ----------
        confidence : array of shape (n,)
            The probability given to the answer, in [0, 1].
        right : array of bool, shape (n,)
        n_bins : int, default 10
        """
        if n_bins < 1:
            raise InputError(f"n_bins must be at least 1, got {n_bins}.")
        values, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
        if values.ndim != 1 or values.shape != correct.shape or len(values) == 0:
            raise InputError(
                f"confidence and right need the same shape (n,) with n >= 1, got {values.shape} and {correct.shape}."
            )
        if not np.isfinite(values).all():
            raise InputError("confidence contains NaN or infinity; leave those rows out first.")
        edges = np.arange(n_bins + 1) / n_bins
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bins - 1)
        n_rows = np.bincount(bins, minlength=n_bins)
        sums = (np.bincount(bins, weights=what.astype(np.float64), minlength=n_bins) for what in (values, correct))
        return cls(edges, n_rows, *(_means(np.asarray(each, dtype=np.float64), n_rows) for each in sums))

    @property
    def ece(self) -> float:
        """The expected calibration error: zero where confidence is accuracy in every bin."""
        filled = self.n_rows > 0
        gaps = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float(np.average(gaps, weights=self.n_rows[filled]))

    def accuracy_interval(self) -> tuple[Floats, Floats]:
        """Return the ends of each bin's exact 95 % interval for the accuracy; NaN where the bin is empty."""
        n_right = np.round(np.where(self.n_rows > 0, self.accuracy, 0.0) * self.n_rows).astype(np.int64)
        found = proportion_interval(n_right, self.n_rows)
        return found.low, found.high


def _means(sums: Floats, counts: NDArray[np.int64]) -> Floats:
    means: Floats = np.divide(sums, counts, out=np.full(len(counts), np.nan), where=counts > 0)
    return means


_MOST = 40
"""Groups with a line of their own; those with fewer rows share one."""
_NONE = "(none)"


@dataclass(frozen=True)
class GroupFigures:
    """What was decided in one group.

    Parameters
    ----------
    name : str
    counts : Counts
    coverage, errors : Interval
        The share of rows answered, and of wrong answers among those given; NaN where there is none.
    risk : Interval or None
        What a row costs; None where rejecting has no single price.
    differs : {"", "more", "fewer"}
        Whether the errors are more or fewer than those of all rows, beyond what chance explains.
    """

    name: str
    counts: Counts
    coverage: Interval
    errors: Interval
    risk: Interval | None
    differs: str


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group each row is of.

    Parameters
    ----------
    column : str
        What the groups are called.
    of_row : array of str, shape (n,)

    Examples
    --------
    >>> sites = Groups.of("site", ["north"] * 90 + ["south"] * 10)
    >>> reject, wrong = np.zeros(100, dtype=bool), np.arange(100) >= 93
    >>> for one in sites.figures(reject, wrong, cost=0.2):
    ...     print(one.name, one.counts.n_wrong, round(one.errors.low, 2), round(one.errors.high, 2), one.differs)
    north 0 0.0 0.05 fewer
    south 7 0.31 0.95 more
    """

    column: str
    of_row: NDArray[np.str_]

    @classmethod
    def of(cls, column: str, values: Sequence[str | None]) -> "Groups":
        """Name the group of each row; rows without one are a group as well."""
        return cls(column, np.array([_NONE if value is None else str(value) for value in values], dtype=np.str_))

    def figures(
        self, reject: NDArray[np.bool_], wrong: NDArray[np.bool_], cost: float | None = None
    ) -> list[GroupFigures]:
        """Return the figures of each group, by name; beyond forty groups the smallest are one.

        The intervals of each figure hold for all groups together with 95 % confidence (Bonferroni), so that the widest
        of many is not a discovery; a small group has a wide one, which is all that can be said about it.
        """
        names, codes, sizes = np.unique(self.of_row, return_inverse=True, return_counts=True)
        shown = [str(name) for name in names]
        if len(names) > _MOST:
            largest = np.sort(np.argsort(-sizes, kind="stable")[: _MOST - 1])
            place = np.full(len(names), len(largest))
            place[largest] = np.arange(len(largest))
            shown = [shown[k] for k in largest] + [f"{len(names) - len(largest):,} other groups"]
            codes = place[codes]
        level = 1 - 0.05 / len(shown)
        answered = ~reject
        errors_of_all = float((wrong & answered).sum() / max(answered.sum(), 1))
        found = []
        for code, name in enumerate(shown):
            own = codes == code
            counts = Counts(int(own.sum()), int((own & answered).sum()), int((own & answered & wrong).sum()))
            errors = proportion_interval(counts.n_wrong, counts.n_answered, level)
            risk = None
            if cost is not None:
                risk = risk_interval(counts.n_wrong, counts.n_rejected, counts.n_rows, cost, level)
            differs = "more" if errors.low > errors_of_all else "fewer" if errors.high < errors_of_all else ""
            coverage = proportion_interval(counts.n_answered, counts.n_rows, level)
            found.append(GroupFigures(name, counts, coverage, errors, risk, differs))
        return found


def group_json(one: GroupFigures) -> ByName:
    """Return the figures of a group as plain numbers, with None where one is undefined."""

    def numbers(interval: Interval | None) -> dict[str, float | None] | None:
        if interval is None:
            return None
        parts = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
        return {name: float(value) if value == value else None for name, value in parts.items()}

    counts = {"rows": one.counts.n_rows, "answered": one.counts.n_answered, "wrong": one.counts.n_wrong}
    intervals = {"coverage": numbers(one.coverage), "errors": numbers(one.errors), "risk": numbers(one.risk)}
    return {"name": one.name, **counts, **intervals, "differs": one.differs or None}
