"""Reading predictions: which examples were rejected, and which answers are right.

Labels are numbers or strings, in lists, arrays or data frames, with a marker for "rejected" among them. Ambiguous input
is an error: a marker that is also a class, a marker that NumPy has converted to text, or strings compared with numbers.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, Label, Mask
from demur.errors import InputError, InputTypeError

NEVER: Any = object()
"""A marker that equals no label, for classifiers that never reject."""


def rejected(y_pred: ArrayLike, reject_label: Label) -> Mask:
    """Return the mask of the predictions equal to ``reject_label``.

    ``None`` and NaN as a marker both mean a missing value, since data frames turn one into the other.

    Examples
    --------
    >>> rejected(["cat", "dog", -1], reject_label=-1)
    array([False, False,  True])
    >>> rejected([0.0, float("nan")], reject_label=None)
    array([False,  True])
    """
    return _rejected(as_labels("y_pred", y_pred), reject_label, classes=set())


def correct_and_rejected(y_true: ArrayLike, y_pred: ArrayLike, reject_label: Label) -> tuple[Mask, Mask]:
    """Return two masks: right answers, and rejections. An example in neither was answered wrongly.

    Examples
    --------
    >>> correct_and_rejected(["cat", "dog", "dog"], ["cat", "cat", -1], reject_label=-1)
    (array([ True, False, False]), array([False, False,  True]))
    """
    true, pred = as_labels("y_true", y_true), as_labels("y_pred", y_pred)
    if len(true) != len(pred):
        raise InputError(f"y_true and y_pred must have the same length, got {len(true)} and {len(pred)}.")
    if _equal(true, None).any():
        raise InputError("y_true contains missing values (None or NaN); remove those rows first.")
    if _equal(true, reject_label).any():
        raise InputError(
            f"reject_label {reject_label!r} is also a class in y_true; choose another marker, such as None."
        )
    reject = _rejected(pred, reject_label, classes=set(true.tolist()))
    kinds = _kinds(true)
    others = _kinds(pred[~reject]) - kinds
    if others:
        marker = "not set" if reject_label is NEVER else repr(reject_label)
        raise InputTypeError(
            f"y_true holds {' and '.join(sorted(kinds))} but y_pred answers with {' and '.join(sorted(others))}, which "
            f"can never be equal; convert one of them, or set reject_label (now {marker}) if this is the marker."
        )
    correct = np.zeros(len(true), dtype=bool)
    correct[~reject] = true[~reject] == pred[~reject]
    return correct, reject


def as_labels(name: str, labels: Any) -> AnyArray:
    """Return a one-dimensional array of Python numbers and strings, so that no label changes its type."""
    values = np.array(labels, dtype=object)
    if isinstance(labels, np.ma.MaskedArray):
        values[np.ma.getmaskarray(labels)] = None
    if values.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, one label per example, got shape {values.shape}.")
    if len(values) == 0:
        raise InputError(f"{name} is empty; give at least one example.")
    return values


def _rejected(pred: AnyArray, reject_label: Label, classes: set[Any]) -> Mask:
    reject = _equal(pred, reject_label)
    if (_equal(pred, None) & ~reject).any():
        raise InputError(
            "y_pred contains missing values (None or NaN); if they mean rejection, pass reject_label=None, "
            f"which is now {reject_label!r}."
        )
    if reject_label is not NEVER and not isinstance(reject_label, str):
        for text in {"reject", str(reject_label)} & set(pred[~reject].tolist()) - classes:
            raise InputError(
                f"y_pred contains the string {text!r}, which is not a class in y_true, while reject_label is "
                f"{reject_label!r}; if it means rejection, pass reject_label={text!r}."
            )
    return reject


def _equal(labels: AnyArray, marker: Any) -> Mask:
    """Return which labels are the marker; None and NaN stand for any missing value."""
    # comparing the few distinct labels is fast for a million rows
    missing, distinct = is_missing(marker), set(labels.tolist())
    same = {label: missing if is_missing(label) else bool(label == marker) for label in distinct}
    return np.array([same[label] for label in labels.tolist()])


def is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN or the missing value of pandas."""
    try:
        return label is None or bool(label != label)
    except TypeError:  # the missing value of pandas refuses to be true or false
        return True


def _kinds(labels: AnyArray) -> set[str]:
    """Return the types of the labels: "numbers", "strings" or the name of another type."""
    types = {type(label) for label in labels}
    return {
        "strings" if issubclass(one, str) else "numbers" if issubclass(one, int | float | np.number | np.bool_) else
        f"{one.__name__} values"
        for one in types
    }  # fmt: skip
