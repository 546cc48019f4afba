"""Labels of every type and container are read alike, and what could be misread is refused."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from demur.metrics.predictions import NEVER, correct_and_rejected, rejected
from demur.rules import Chow

# NumPy has texts of any length since its version 2
STRING = getattr(np.dtypes, "StringDType", None)
STRINGS = [(np.array(["a", "b", "b"], dtype=STRING()), np.array(["a", "a", "?"]), "?")] if STRING else []


@pytest.mark.parametrize(
    ("y_true", "y_pred", "marker"),
    [
        (pd.Series(["a", "b", "b"]), pd.Series(["a", "a", "reject"]), "reject"),
        (pd.Series(["a", "b", "b"]), pd.Series(["a", "a", None]), None),
        (pd.Series(["a", "b", "b"], dtype="category"), ["a", "a", -1], -1),
        (pd.Series([0, 1, 1]), pd.Series([0, 0, None]), np.nan),
        (pd.Series([0, 1, 1], dtype="Int64"), pd.Series([0, 0, None], dtype="Int64"), None),
        (pl.Series([0, 1, 1]), pl.Series([0, 0, -1]), -1),
        (pl.Series(["a", "b", "b"]), pl.Series(["a", "a", "?"]), "?"),
        (np.array(["a", "b", "b"]), np.array(["a", "a", None], dtype=object), None),
        ([0, 1, 1], [0.0, 0.0, float("nan")], None),
        ([True, False, False], [1, 1, -1], -1),
        *STRINGS,
    ],
)
def test_containers(y_true, y_pred, marker):
    correct, reject = correct_and_rejected(y_true, y_pred, marker)
    assert correct.tolist() == [True, False, False]
    assert reject.tolist() == [False, False, True]
    assert rejected(y_pred, marker).tolist() == [False, False, True]


def test_the_labels_of_a_decision_are_read_back():
    decision = Chow(cost=0.2).decide([[0.9, 0.1], [0.6, 0.4], [0.05, 0.95]])
    for classes, marker in (([0, 1], -1), (["a", "b"], "reject"), ([0.0, 1.0], np.nan)):
        assert rejected(decision.labels(classes, marker), marker).tolist() == decision.reject.tolist()


def test_a_marker_of_another_type_than_all_labels_rejects_nothing():
    assert not rejected(np.array(["a", "b"]), -1).any()
    assert not rejected(np.array([0, 1]), "reject").any()
    assert not rejected(np.array([0, 1]), None).any()


def test_without_a_marker_nothing_is_rejected_whatever_the_classes_are_called():
    for classes in ([-1, 1], ["reject", "accept"]):
        correct, reject = correct_and_rejected(classes, classes, NEVER)
        assert correct.all()
        assert not reject.any()


def test_a_rejected_example_is_never_right():
    correct, reject = correct_and_rejected([0, 1], [-1, 1], -1)
    assert not (correct & reject).any()


@pytest.mark.parametrize("marker", [-1, -1.0, np.int64(-1)])
def test_a_marker_must_be_no_class(marker):
    with pytest.raises(ValueError, match=r"reject_label .*-1.* is also a class in y_true; choose another marker"):
        correct_and_rejected([-1, 1], [1, 1], marker)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1], [0], "same length, got 2 and 1"),
        ([], [], "y_true is empty; give at least one example"),
        ([[0], [1]], [0, 1], r"y_true must be one-dimensional, one label per example, got shape \(2, 1\)"),
        ([0, 1], [[0, 1]], r"y_pred must be one-dimensional, one label per example, got shape \(1, 2\)"),
        (0, 0, r"y_true must be one-dimensional, one label per example, got shape \(\)"),
        ([0, None], [0, 1], "y_true contains missing values"),
        ([0.0, np.nan], [0, 1], "y_true contains missing values"),
        ([0, 1], [0, np.nan], "y_pred contains missing values .* pass reject_label=None, which is now -1"),
        (["a", "b"], ["a", None], "y_pred contains missing values"),
        (["a", "b"], ["a", "reject"], "y_pred contains the string 'reject', .* pass reject_label='reject'"),
        (["a", "b"], np.array(["a", -1]), "y_pred contains the string '-1'"),
    ],
)
def test_bad_labels(y_true, y_pred, message):
    with pytest.raises(ValueError, match=message):
        correct_and_rejected(y_true, y_pred, -1)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        (["a", "b"], [0, 1], "y_true holds strings but y_pred answers with numbers, which can never be equal"),
        ([0, 1], ["0", "1"], "y_true holds numbers but y_pred answers with strings"),
        (["a", "b"], ["a", 3], "y_true holds strings but y_pred answers with numbers"),
        ([0, 1], [0, "ask"], r"answers with strings, .* set reject_label \(now -1\) if this is the marker"),
    ],
)
def test_labels_that_can_never_be_equal(y_true, y_pred, message):
    with pytest.raises(TypeError, match=message):
        correct_and_rejected(y_true, y_pred, -1)


def test_the_same_errors_without_true_labels():
    with pytest.raises(ValueError, match="y_pred is empty"):
        rejected([], -1)
    with pytest.raises(ValueError, match="y_pred contains the string 'reject'"):
        rejected(["a", "reject"], -1)
    with pytest.raises(ValueError, match="y_pred contains missing values"):
        rejected([1.0, np.nan], -1)


def test_a_class_may_be_called_reject():
    correct, reject = correct_and_rejected(["reject", "accept"], ["reject", -1], -1)
    assert correct.tolist() == [True, False]
    assert reject.tolist() == [False, True]
