"""Reading predictions: which examples were rejected, and which answers are right.

Labels come as numbers or strings, in lists, arrays or data frames, with a marker for "rejected" among them.
Everything that could be misread in silence is an error here: a marker that is also a class, a marker that
NumPy has turned into text, strings compared with numbers.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from demur.array_types import AnyArray, Label
from demur.errors import InputError, InputTypeError

__all__ = ["NEVER", "as_labels", "correct_and_rejected", "rejected"]

NEVER: Any = object()
"""A marker equal to no label, for classifiers that never reject."""

Mask = NDArray[np.bool_]


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
    return _rejected(as_labels("y_pred", y_pred), reject_label, classes=())


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
    if _is_missing(true).any():
        raise InputError("y_true contains missing values (None or NaN); remove those rows first.")
    if _equals(true, reject_label).any():
        raise InputError(
            f"reject_label {reject_label!r} is also a class in y_true; choose a marker that is not a class, "
            "such as reject_label=None."
        )
    reject = _rejected(pred, reject_label, classes=true)
    answered = pred[~reject]
    strangers = _kinds(answered) - _kinds(true)
    if strangers:
        raise InputTypeError(
            f"y_true holds {_listed(_kinds(true))} but y_pred answers with {_listed(strangers)}, which can never be "
            f"equal; convert one of them, or set reject_label (now {_shown(reject_label)}) if this is the marker."
        )
    correct = np.zeros(len(true), dtype=bool)
    correct[~reject] = true[~reject] == answered
    return correct, reject


def as_labels(name: str, labels: Any) -> AnyArray:
    """Return a one-dimensional array in which no label has changed its type."""
    if isinstance(labels, (list, tuple)) and len(_kinds(labels)) > 1:
        values = np.empty(len(labels), dtype=object)
        values[:] = labels  # np.asarray would turn the numbers among strings into text
    else:
        values = np.asarray(labels)
    if values.dtype.kind == "T":
        values = values.astype(object)
    if values.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, one label per example, got shape {values.shape}.")
    if len(values) == 0:
        raise InputError(f"{name} is empty; give at least one example.")
    return values


def _rejected(pred: AnyArray, reject_label: Label, classes: Iterable[Any]) -> Mask:
    reject = _equals(pred, reject_label)
    if (_is_missing(pred) & ~reject).any():
        raise InputError(
            "y_pred contains missing values (None or NaN); if they mean rejection, pass reject_label=None, "
            f"which is now {_shown(reject_label)}."
        )
    if reject_label is not NEVER and not isinstance(reject_label, str) and "strings" in _kinds(pred):
        unknown = set(pred.tolist()) - set(classes)
        for text in ("reject", str(reject_label)):
            if text in unknown:
                raise InputError(
                    f"y_pred contains the string {text!r}, which is not a class in y_true, while reject_label is "
                    f"{reject_label!r}; if it means rejection, pass reject_label={text!r}."
                )
    return reject


def _equals(labels: AnyArray, marker: Any) -> Mask:
    if _missing(marker):
        return _is_missing(labels)
    if labels.dtype.kind != "O" and _kind(marker) not in _kinds(labels):
        return np.zeros(len(labels), dtype=bool)
    if labels.dtype.kind == "O":
        return np.array([not _missing(label) and bool(label == marker) for label in labels])
    return np.asarray(labels == marker)


def _is_missing(labels: AnyArray) -> Mask:
    if labels.dtype.kind == "O":
        return np.array([_missing(label) for label in labels])
    return np.asarray(labels != labels)


def _missing(label: Any) -> bool:
    if label is None:
        return True
    try:
        return bool(label != label)
    except TypeError:  # the missing value of pandas refuses to be true or false
        return True


def _kinds(labels: Any) -> set[str]:
    if isinstance(labels, np.ndarray) and labels.dtype.kind != "O":
        return {_kind(labels.dtype.type())} if len(labels) else set()
    return {_kind(label) for label in labels}


def _kind(label: Any) -> str:
    if isinstance(label, (str, np.str_)):
        return "strings"
    if isinstance(label, (int, float, np.number, np.bool_)):
        return "numbers"
    return f"{type(label).__name__} values"


def _listed(kinds: set[str]) -> str:
    return " and ".join(sorted(kinds))


def _shown(marker: Any) -> str:
    return "not set" if marker is NEVER else repr(marker)
