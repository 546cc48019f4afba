"""Confusion matrix, precision, recall and F1 of classifiers that may decline."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, Floats, Ints, Label
from demur.errors import InputError
from demur.metrics.predictions import as_labels, correct_and_rejected
from demur.rules import check_weights

_SUMMED = {"true": (1,), "pred": (0,), "all": (0, 1)}
"""The axes over which each normalization adds."""


def confusion_matrix(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    reject_label: Label = -1,
    normalize: Literal["true", "pred", "all"] | None = None,
    sample_weight: ArrayLike | None = None,
) -> AnyArray:
    """Count true classes (rows) against answers (columns), with rejections in a last column.

    Parameters
    ----------
    y_true, y_pred, reject_label
        As for :func:`~demur.metrics.zero_one_c_loss`.
    labels : array of shape (n_classes,), optional
        Classes, in the order of the rows and columns. By default all classes in ``y_true`` and among the answers,
        sorted. As in scikit-learn, examples of other classes, or answered with another class, are left out.
    normalize : {None, "true", "pred", "all"}
        Normalisation: divide each row, each column (rejections included), or all counts by their sum; empty rows and
        columns stay zero.
    sample_weight : array of shape (n,), optional
        Weight of each example.

    Returns
    -------
    array of shape (n_classes, n_classes + 1)
        Integers, unless normalized or weighted.

    Examples
    --------
    >>> confusion_matrix([0, 0, 1, 1, 1], [0, -1, 1, 0, -1])
    array([[1, 0, 1],
           [1, 1, 1]])
    >>> confusion_matrix(["cat", "dog"], ["?", "dog"], labels=["dog", "cat"], reject_label="?", normalize="true")
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    counts, _ = _count(y_true, y_pred, labels, reject_label, sample_weight)
    return normalized(counts if sample_weight is not None else counts.astype(np.int64), normalize)


def normalized(counts: AnyArray, normalize: str | None) -> AnyArray:
    """Divide counts by the sum of each row ("true"), each column ("pred") or of all; an empty one stays zero."""
    if normalize is None:
        return counts
    if normalize not in _SUMMED:
        raise InputError(f"normalize must be None, 'true', 'pred' or 'all', got {normalize!r}.")
    sums = counts.sum(axis=_SUMMED[normalize], keepdims=True)
    return np.asarray(np.divide(counts, sums, out=np.zeros(counts.shape), where=sums > 0))


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Precision, recall, F1, coverage and support of each class; made by :func:`precision_recall_f1`.

    Parameters
    ----------
    labels : array of shape (n_classes,)
    precision, recall, f1, coverage, support : arrays of shape (n_classes,)
    counts : array of shape (n_classes, n_classes + 1)
        The confusion matrix they come from.
    """

    labels: AnyArray
    precision: Floats
    recall: Floats
    f1: Floats
    coverage: Floats
    support: Floats
    counts: Floats


def precision_recall_f1(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    *,
    labels: ArrayLike | None = None,
    reject_label: Label = -1,
    sample_weight: ArrayLike | None = None,
) -> ClassScores:
    """Return precision, recall and F1 of each class, where a rejected example counts as missed.

    With TP_k the examples of class k answered with k, A_k all answers with k, and n_k all examples of class k,
    rejected ones included:

    - precision = TP_k / A_k: the share of right answers among the answers k. A rejection is not an answer and cannot
      lower it.
    - recall = TP_k / n_k: a rejected example of the class counts as not found, so rejecting lowers it. It is the
      coverage of the class times the recall among its accepted examples.
    - F1 = 2 TP_k / (A_k + n_k), the harmonic mean of the two.
    - coverage = the accepted share of the n_k examples of the class.

    Without rejections these are the usual scores. A ratio with a denominator of 0 is NaN: the precision of a class that
    is never answered, and recall and coverage of a class without examples.

    Parameters
    ----------
    y_true, y_pred, labels, reject_label, sample_weight
        As for :func:`confusion_matrix`.

    Examples
    --------
    Class 1 has three examples: one found, one answered with 0, one rejected.

    >>> scores = precision_recall_f1([0, 0, 1, 1, 1], [0, 0, 1, 0, -1])
    >>> scores.precision.round(3), scores.recall.round(3), scores.f1.round(3), scores.coverage.round(3)
    (array([0.667, 1.   ]), array([1.   , 0.333]), array([0.8, 0.5]), array([1.   , 0.667]))
    >>> round(float(np.nanmean(scores.recall)), 3)  # the macro average
    0.667
    """
    counts, names = _count(y_true, y_pred, labels, reject_label, sample_weight)
    right, answers, support = np.diag(counts), counts[:, :-1].sum(axis=0), counts.sum(axis=1)
    return ClassScores(
        labels=names,
        precision=_ratio(right, answers),
        recall=_ratio(right, support),
        f1=_ratio(2 * right, answers + support),
        coverage=_ratio(support - counts[:, -1], support),
        support=support,
        counts=counts,
    )


def _count(
    y_true: ArrayLike, y_pred: ArrayLike, labels: ArrayLike | None, reject_label: Label, sample_weight: ArrayLike | None
) -> tuple[Floats, AnyArray]:
    _, reject = correct_and_rejected(y_true, y_pred, reject_label)
    weights = check_weights(sample_weight, len(reject))
    true, pred = as_labels("y_true", y_true), as_labels("y_pred", y_pred)
    if labels is None:
        labels = sorted({*true.tolist(), *pred[~reject].tolist()}, key=lambda name: (isinstance(name, str), name))
    names = as_labels("labels", labels)
    if len(set(names.tolist())) < len(names):
        raise InputError(f"labels must be distinct, got {names.tolist()}.")
    rows, columns = _codes(true, names), np.where(reject, len(names), _codes(pred, names))
    if (rows < 0).all():
        raise InputError(f"none of the labels {names.tolist()} is in y_true.")
    listed, counts = (rows >= 0) & (columns >= 0), np.zeros((len(names), len(names) + 1))
    np.add.at(counts, (rows[listed], columns[listed]), weights[listed])
    return counts, names


def _codes(values: AnyArray, names: AnyArray) -> Ints:
    """Return the position of each value among the names, -1 where it is none of them."""
    position = {name: code for code, name in enumerate(names.tolist())}
    return np.array([position.get(value, -1) for value in values.tolist()], dtype=np.int64)


def _ratio(numerator: Any, denominator: Any) -> Any:
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    return np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0)
