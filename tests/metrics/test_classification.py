"""Confusion matrix, precision, recall and F1: scikit-learn's where nothing is rejected, and what rejection adds."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from demur.metrics import confusion_matrix, precision_recall_f1


@st.composite
def predictions(draw: st.DrawFn, lowest=-1) -> tuple[np.ndarray, np.ndarray]:
    """Labels 0 to 2, and predictions with -1 for a rejection."""
    n = draw(st.integers(1, 30))
    y_true = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    y_pred = draw(st.lists(st.integers(lowest, 2), min_size=n, max_size=n))
    return np.array(y_true), np.array(y_pred)


@given(predictions())
def test_the_matrix_counts(data):
    y_true, y_pred = data
    matrix = confusion_matrix(y_true, y_pred, labels=[2, 0, 1])
    for row, true in enumerate([2, 0, 1]):
        for column, pred in enumerate([2, 0, 1, -1]):
            assert matrix[row, column] == np.sum((y_true == true) & (y_pred == pred))
    assert matrix.dtype == np.int64


@given(predictions(lowest=0), st.sampled_from([None, "true", "pred", "all"]))
def test_without_rejections_it_is_scikit_learns_with_an_empty_column(data, normalize):
    ours = confusion_matrix(*data, labels=[0, 1, 2], normalize=normalize)
    theirs = sklearn_metrics.confusion_matrix(*data, labels=[0, 1, 2], normalize=normalize)
    np.testing.assert_allclose(ours[:, :-1], theirs)
    assert not ours[:, -1].any()


@given(predictions(), st.sampled_from(["true", "pred", "all"]))
def test_normalized_sums(data, normalize):
    matrix, counts = confusion_matrix(*data, normalize=normalize), confusion_matrix(*data)
    axis = {"true": 1, "pred": 0, "all": None}[normalize]
    np.testing.assert_allclose(matrix.sum(axis=axis), (counts.sum(axis=axis) > 0).astype(float))
    assert ((matrix > 0) == (counts > 0)).all()


@given(predictions(), st.data())
def test_a_whole_weight_repeats_the_row(data, drawn):
    y_true, y_pred = data
    weight = np.array(drawn.draw(st.lists(st.integers(0, 3), min_size=len(y_true), max_size=len(y_true)).filter(any)))
    repeated = np.repeat(y_true, weight), np.repeat(y_pred, weight)
    labels = sorted(set(repeated[0]) | set(repeated[1]) - {-1})
    matrix = confusion_matrix(y_true, y_pred, labels=labels, sample_weight=weight)
    np.testing.assert_allclose(matrix, confusion_matrix(*repeated, labels=labels))


@pytest.mark.parametrize(
    ("y_true", "y_pred", "marker"),
    [
        (["b", "a", "b"], ["b", "b", "reject"], "reject"),
        (["b", "a", "b"], ["b", "b", -1], -1),
        (np.array(["b", "a", "b"]), np.array(["b", "b", None], dtype=object), None),
        (pd.Series(["b", "a", "b"], dtype="category"), ["b", "b", math.nan], math.nan),
        (pl.Series(["b", "a", "b"]), pl.Series(["b", "b", "?"]), "?"),
        ([1, 0, 1], [1.0, 1.0, math.nan], None),
        ([1, 0, 1], [1, 1, "ask"], "ask"),
        ([True, False, True], [True, True, -1], -1),
        (pd.Series([1, 0, 1]), pd.Series([1, 1, None], dtype="Int64"), None),
    ],
)
def test_labels_and_markers_of_every_kind(y_true, y_pred, marker):
    matrix = confusion_matrix(y_true, y_pred, reject_label=marker)
    assert matrix.tolist() == [[0, 1, 0], [0, 1, 1]]
    assert precision_recall_f1(y_true, y_pred, reject_label=marker).counts.tolist() == matrix.tolist()


def test_everything_rejected_and_labels_that_never_occur():
    assert confusion_matrix([0, 1], [-1, -1]).tolist() == [[0, 0, 1], [0, 0, 1]]
    assert confusion_matrix([0], [0], labels=[0, 7]).tolist() == [[1, 0, 0], [0, 0, 0]]
    assert confusion_matrix(["x", "y"], ["x", "y"], labels=["y"]).tolist() == [[1, 0]]
    assert confusion_matrix(["b", 2, 1], ["b", 2, -1]).tolist() == [[0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]


@given(predictions(lowest=0))
def test_without_rejections_the_scores_are_scikit_learns(data):
    ours = precision_recall_f1(*data)
    theirs = sklearn_metrics.precision_recall_fscore_support(*data, zero_division=np.nan)
    for name, expected in zip(("precision", "recall", "f1", "support"), theirs, strict=True):
        np.testing.assert_allclose(getattr(ours, name), expected)
    np.testing.assert_allclose(ours.coverage[ours.support > 0], 1)


@given(predictions())
def test_a_rejected_example_is_missed_but_no_false_answer(data):
    """Rejections change recall as a wrong answer would, and precision as if the row were not there."""
    y_true, y_pred = data
    accepted = y_pred != -1
    scores = precision_recall_f1(y_true, y_pred, labels=[0, 1, 2])
    for k in range(3):
        found = np.sum((y_true == k) & (y_pred == k))
        if (y_true == k).any():
            assert scores.recall[k] == found / np.sum(y_true == k)
            assert scores.coverage[k] == accepted[y_true == k].mean()
        if (y_pred == k).any():
            assert scores.precision[k] == np.mean(y_true[y_pred == k] == k)
        if scores.precision[k] + scores.recall[k] > 0:
            harmonic = 2 / (1 / scores.precision[k] + 1 / scores.recall[k]) if found else 0
            assert scores.f1[k] == pytest.approx(harmonic)


def test_undefined_scores_are_nan():
    scores = precision_recall_f1([0, 0], [-1, 0], labels=[0, 1])
    assert scores.recall.tolist()[0] == 0.5
    assert math.isnan(scores.precision[1])
    assert math.isnan(scores.recall[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": "rows"}, "normalize must be None, 'true', 'pred' or 'all', got 'rows'"),
        ({"labels": [0, 0]}, r"labels must be distinct, got \[0, 0\]"),
        ({"labels": [7]}, r"none of the labels \[7\] is in y_true"),
        ({"labels": ["0"]}, "none of the labels"),
        ({"labels": []}, "labels is empty"),
        ({"reject_label": 0}, "reject_label 0 is also a class"),
        ({"sample_weight": [1]}, "sample_weight must have shape"),
    ],
)
def test_bad_calls(options, message):
    with pytest.raises(ValueError, match=message):
        confusion_matrix([0, 1], [0, -1], **options)
