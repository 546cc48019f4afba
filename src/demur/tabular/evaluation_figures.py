"""Figures of decisions on labelled rows: counts, by class and by group, calibration, and single rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.array_types import AnyArray, ByName, FloatArray
from demur.errors import InputError, InputTypeError
from demur.metrics import Interval, proportion_interval, risk_interval
from demur.rules import Decision

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation

__all__ = [
    "AnswerCounts",
    "Case",
    "ClassFigures",
    "GroupFigures",
    "Groups",
    "ReliabilityBins",
    "check_decision",
    "choose_cases",
    "class_codes",
    "class_names",
    "figures_by_class",
    "finite",
    "interval_json",
    "sortable",
]

Floats = NDArray[np.float64]

_MOST_GROUPS = 40
"""Groups with a line of their own; those with fewer rows share one."""


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
    """
    names, labels = _python_objects(classes), _python_objects(y)
    position = {name: code for code, name in enumerate(names)}
    if len(position) < len(names) or len(names) < 2:
        raise InputError(f"classes must be at least two distinct names, got {names[:10]}.")
    if not labels or any(label is None or label != label for label in labels):
        raise InputError("y must hold at least one label, and none that is missing (None or NaN).")
    codes = np.array([position.get(label, len(names)) for label in labels], dtype=np.int64)
    if (codes == len(names)).all():
        raise InputError(
            f"none of the labels is a class of the model: y starts with {labels[0]!r}, the classes with {names[0]!r}; "
            "check that labels and classes have the same type."
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


def sortable(confidence: FloatArray) -> FloatArray:
    """Return finite values in the same order, undefined ones last, as a curve needs them.

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
class AnswerCounts:
    """The numbers of rows, of answers, and of wrong answers.

    Parameters
    ----------
    n_rows, n_answered, n_wrong : int

    Examples
    --------
    Ten rows, eight answered, one of them wrongly, at cost 0.25: (1 + 2 * 0.25) / 10.

    >>> counts = AnswerCounts(10, 8, 1)
    >>> counts.risk(0.25), counts.coverage, counts.accepted_accuracy
    (0.15, 0.8, 0.875)
    """

    n_rows: int
    n_answered: int
    n_wrong: int

    @property
    def n_rejected(self) -> int:
        """The number of declined rows."""
        return self.n_rows - self.n_answered

    @property
    def n_right(self) -> int:
        """The number of rows answered correctly."""
        return self.n_answered - self.n_wrong

    @property
    def coverage(self) -> float:
        """The share of rows answered."""
        return self.n_answered / self.n_rows

    @property
    def accepted_accuracy(self) -> float:
        """The share of correct answers among those given; NaN if none was given."""
        return _ratio(self.n_right, self.n_answered)

    def risk(self, cost: float) -> float:
        """Return the 0-1-c risk: the mean cost of a row."""
        return (self.n_wrong + cost * self.n_rejected) / self.n_rows


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


@dataclass(frozen=True)
class ClassFigures:
    """The figures of one class; made by :attr:`~demur.tabular.Evaluation.by_class`.

    Parameters
    ----------
    name : str
    n_rows, n_rejected, n_right : int
        The rows of this class, those declined, and those answered correctly.
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
    def shares(self) -> dict[str, tuple[int, int]]:
        """Count and total of each of the four shares."""
        return {
            "rejection_rate": (self.n_rejected, self.n_rows),
            "accepted_accuracy": (self.n_right, self.n_rows - self.n_rejected),
            "precision": (self.n_right, self.n_answers),
            "recall": (self.n_right, self.n_rows),
        }

    @property
    def rejection_rate(self) -> float:
        """The declined share of the class; NaN for a class without rows."""
        return _ratio(*self.shares["rejection_rate"])

    @property
    def accepted_accuracy(self) -> float:
        """The share answered correctly among the rows of the class that were answered."""
        return _ratio(*self.shares["accepted_accuracy"])

    @property
    def precision(self) -> float:
        """The share of correct ones among the answers with this class."""
        return _ratio(*self.shares["precision"])

    @property
    def recall(self) -> float:
        """The share of the class, declined rows included, that was answered correctly."""
        return _ratio(*self.shares["recall"])

    def to_json(self) -> ByName:
        """Return the figures with their 95 % intervals as plain numbers."""
        found = {name: proportion_interval(*share) for name, share in self.shares.items()}
        return {
            "name": self.name,
            "n_rows": self.n_rows,
            "n_rejected": self.n_rejected,
            **{name: finite(one.estimate) for name, one in found.items()},
            "intervals": {name: [finite(one.low), finite(one.high)] for name, one in found.items()},
        }


def figures_by_class(names: tuple[str, ...], confusion: NDArray[np.int64]) -> list[ClassFigures]:
    """Return the figures of each class from a confusion matrix whose last column counts the rejections.

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


@dataclass(frozen=True)
class Case:
    """One row, for people to look at.

    Parameters
    ----------
    row : str
        Its number or identifier.
    true, answer : str
        The true class, and the class that was answered or would have been.
    confidence : float
        As :func:`~demur.tabular.table_model.answer_confidence` defines it.
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


def choose_cases(
    evaluation: "Evaluation", mask: NDArray[np.bool_], order: FloatArray, n: int, n_columns: int
) -> list[Case]:
    """Return up to ``n`` of the masked rows, from the highest of ``order`` down; ties stay in the order of the rows."""
    rows = np.flatnonzero(mask)
    names = (*evaluation.class_names, "none of the classes")
    table = {} if evaluation.rows is None else evaluation.rows
    shown = list(getattr(table, "column_names", table))[:n_columns]
    cases = []
    for row in rows[np.argsort(-sortable(order[rows]), kind="stable")[:n]].tolist():
        true, answer = int(evaluation.true[row]), int(evaluation.decision.label[row])
        second: tuple[str | None, float | None] = (None, None)
        if evaluation.proba is not None:
            others = np.where(np.arange(len(evaluation.class_names)) == answer, -np.inf, evaluation.proba[row])
            second = names[int(others.argmax())], float(others.max())
        confidence = float(evaluation.answer_confidence[row])
        number = row + 1 if evaluation.row_numbers is None else evaluation.row_numbers[row]
        columns = {name: _cell(table[name], row) for name in shown}
        cases.append(Case(str(number), names[true], names[answer], confidence, *second, columns))
    return cases


def _cell(values: Any, row: int) -> object:
    """Return a value by position, from an Arrow column, a pandas column or a sequence."""
    value = values.iloc[row] if hasattr(values, "iloc") else values[row]
    return value.as_py() if hasattr(value, "as_py") else value


@dataclass(frozen=True, eq=False)
class ReliabilityBins:
    r"""Confidence and accuracy in bins of equal width, and the expected calibration error.

    Made by :meth:`from_confidence`. With n_b rows in bin b,

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} \left| \mathrm{accuracy}_b - \mathrm{confidence}_b \right|

    (Guo et al. 2017). A row on an edge falls into the bin above it, except confidence 1.

    Parameters
    ----------
    edges : array of shape (n_bins + 1,)
    n_rows : array of int, shape (n_bins,)
    confidence : array of shape (n_bins,)
        Means over the rows of the bin; NaN where it is empty.
    accuracy : Interval
        The share of correct answers in each bin, with an exact 95 % interval.

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks, ICML.

    Examples
    --------
    Four rows of confidence 0.8, two of them right, and one certain row, right: |0.5 - 0.8| * 4 / 5.

    >>> found = ReliabilityBins.from_confidence([0.8, 0.8, 0.8, 0.8, 1.0], [True, True, False, False, True])
    >>> round(found.ece, 6)
    0.24
    """

    edges: Floats
    n_rows: NDArray[np.int64]
    confidence: Floats
    accuracy: Interval

    @classmethod
    def from_confidence(cls, confidence: ArrayLike, right: ArrayLike, n_bins: int = 10) -> "ReliabilityBins":
        """Put the rows into bins.

        Parameters
        ----------
        confidence : array of shape (n,)
            The probability given to the answer, in [0, 1].
        right : array of bool, shape (n,)
        n_bins : int, default 10
        """
        values, correct = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=bool)
        if values.ndim != 1 or values.shape != correct.shape or not len(values) or not np.isfinite(values).all():
            raise InputError(
                "confidence and right need the same shape (n,) with n >= 1, without NaN or infinity, got "
                f"{values.shape} and {correct.shape}."
            )
        edges = np.arange(n_bins + 1) / n_bins
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n_bins - 1)
        n_rows = np.bincount(bins, minlength=n_bins)
        sums = np.bincount(bins, weights=values, minlength=n_bins)
        means: Floats = np.divide(sums, n_rows, out=np.full(n_bins, np.nan), where=n_rows > 0)
        return cls(edges, n_rows, means, proportion_interval(np.bincount(bins[correct], minlength=n_bins), n_rows))

    @property
    def ece(self) -> float:
        """The expected calibration error: zero where confidence is accuracy in every bin."""
        gaps = np.abs(self.accuracy.estimate - self.confidence)
        return float(np.average(gaps[self.n_rows > 0], weights=self.n_rows[self.n_rows > 0]))

    def to_json(self) -> ByName:
        """Return the bins as plain numbers."""
        found = self.accuracy
        bins = [
            {
                "from": float(self.edges[k]),
                "to": float(self.edges[k + 1]),
                "n_rows": int(self.n_rows[k]),
                "confidence": finite(self.confidence[k]),
                "accuracy": finite(found.estimate[k]),
                "accuracy_interval": [finite(found.low[k]), finite(found.high[k])],
            }
            for k in range(len(self.n_rows))
        ]
        return {"expected_calibration_error": finite(self.ece), "bins": bins}


@dataclass(frozen=True)
class GroupFigures:
    """The figures of one group.

    Parameters
    ----------
    name : str
    counts : AnswerCounts
    coverage, errors : Interval
        The share of rows answered, and of wrong answers among those given; NaN where there is none.
    risk : Interval or None
        The mean cost of a row; None where rejecting has no single cost.
    differs : {"", "more", "fewer"}
        Whether the errors are more or fewer than those of all rows, beyond chance.
    """

    name: str
    counts: AnswerCounts
    coverage: Interval
    errors: Interval
    risk: Interval | None
    differs: str

    def to_json(self) -> ByName:
        """Return the figures as plain numbers, with None where one is undefined."""
        counts = {"rows": self.counts.n_rows, "answered": self.counts.n_answered, "wrong": self.counts.n_wrong}
        shares = {"coverage": interval_json(self.coverage), "errors": interval_json(self.errors)}
        risk = None if self.risk is None else interval_json(self.risk)
        return {"name": self.name, **counts, **shares, "risk": risk, "differs": self.differs or None}


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each row.

    Parameters
    ----------
    column : str
        The name of the column with the groups.
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
        return cls(column, np.array(["(none)" if value is None else str(value) for value in values], dtype=np.str_))

    def figures(
        self, reject: NDArray[np.bool_], wrong: NDArray[np.bool_], cost: float | None = None
    ) -> list[GroupFigures]:
        """Return the figures of each group, by name; beyond forty groups the smallest are one.

        The intervals of each figure hold for all groups together with 95 % confidence (Bonferroni): the widest of many
        is not a discovery.
        """
        names, codes, sizes = np.unique(self.of_row, return_inverse=True, return_counts=True)
        shown = names.tolist()
        if len(names) > _MOST_GROUPS:
            largest = np.sort(np.argsort(-sizes, kind="stable")[: _MOST_GROUPS - 1])
            place = np.full(len(names), len(largest))
            place[largest] = np.arange(len(largest))
            shown = [*names[largest].tolist(), f"{len(names) - len(largest):,} other groups"]
            codes = place[codes]
        level = 1 - 0.05 / len(shown)
        n_rows, n_answered, n_wrong = (
            np.bincount(codes[rows], minlength=len(shown)) for rows in (slice(None), ~reject, ~reject & wrong)
        )
        errors_of_all = float(n_wrong.sum() / max(n_answered.sum(), 1))
        found = []
        for name, *numbers in zip(shown, n_rows.tolist(), n_answered.tolist(), n_wrong.tolist(), strict=True):
            counts = AnswerCounts(*numbers)
            coverage = proportion_interval(counts.n_answered, counts.n_rows, level)
            errors = proportion_interval(counts.n_wrong, counts.n_answered, level)
            risk = None
            if cost is not None:
                risk = risk_interval(counts.n_wrong, counts.n_rejected, counts.n_rows, cost, level)
            differs = "more" if errors.low > errors_of_all else "fewer" if errors.high < errors_of_all else ""
            found.append(GroupFigures(name, counts, coverage, errors, risk, differs))
        return found


def finite(number: float) -> float | None:
    """Return the number, or None where it is NaN or infinite, which JSON does not know."""
    return float(number) if np.isfinite(number) else None


def interval_json(found: Interval) -> dict[str, float | None]:
    """Return an interval as plain numbers, None where one is undefined."""
    return {"estimate": finite(found.estimate), "low": finite(found.low), "high": finite(found.high)}
