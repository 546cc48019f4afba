"""Splitting rows: rows of one group, and the copies in a copied table, stay on one side of every split."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_iris, make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    TimeSeriesSplit,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB

from demur import AutoClassifier, Coverage, RejectClassifier, RejectOption, RiskControl
from demur.errors import InputError
from demur.estimators import EqualRowsWarning
from demur.estimators.splitting import (
    blocks_of,
    equal_rows,
    folds_of,
    hold_out,
    hold_out_latest,
    set_aside,
    validation_rows,
)

# What is equal


def as_lists(frame):
    return frame.to_numpy(dtype=object).tolist()


@pytest.mark.parametrize(
    "convert",
    [lambda frame: frame, pl.from_pandas, pa.Table.from_pandas, lambda frame: frame.to_numpy(dtype=object), as_lists],
    ids=["pandas", "polars", "arrow", "objects", "lists"],
)
def test_equal_rows_of_tables_are_found(convert):
    """Numbers, categories, text and dates, with missing values everywhere."""
    different = pd.DataFrame(
        {
            "number": [1.0, np.nan, -0.0],
            "count": pd.array([1, None, 2], dtype="Int64"),
            "colour": pd.Categorical(["red", None, "red"]),
            "text": ["a", None, "b"],
            "when": pd.to_datetime(["2026-01-01", None, "2026-01-02"]),
        }
    )
    frame = different.iloc[[0, 1, 2, 1, 0, 2]].reset_index(drop=True)
    assert equal_rows(convert(frame)).tolist() == [0, 1, 2, 1, 0, 2]
    assert blocks_of(convert(frame), np.array([0, 1, 0, 1, 0, 1])).equal_rows == 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, bool, np.longdouble])
def test_equal_rows_of_arrays_are_found(dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(200, 8)).astype(dtype)
    _, expected = np.unique(X, axis=0, return_inverse=True)
    found = equal_rows(X)
    assert ((found[:, None] == found) == (expected[:, None] == expected)).all()
    for container in (sparse.csr_array, sparse.coo_matrix):
        if dtype is not np.longdouble:
            np.testing.assert_array_equal(equal_rows(container(X)), found)


def test_zeros_and_missing_values_have_many_forms():
    negative = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
    X = np.array([[0.0, negative[0]], [-0.0, negative[1]], [0.0, 1.0], [1.0, 0.0]])
    assert equal_rows(X).tolist() == [0, 0, 1, 2]


def single(blocks):
    """Whether every row is a block of its own."""
    return blocks.of_row.tolist() == list(range(len(blocks.of_row)))


def test_texts_and_ragged_rows():
    assert equal_rows(["yes", "no", "yes", "perhaps"]).tolist() == [0, 1, 0, 2]
    assert equal_rows([[1, 2], [3], [1, 2], []]).tolist() == [0, 1, 0, 2]
    assert single(blocks_of(np.zeros((4, 0)), np.array([0, 1, 0, 1])))


# What belongs together


def test_equal_rows_are_separate_observations():
    rng = np.random.default_rng(0)
    for X in (rng.integers(2, size=(800, 3)), np.zeros((20, 2)), rng.integers(30, size=(800, 2))):
        blocks = blocks_of(X, rng.integers(2, size=len(X)))
        assert single(blocks)
        assert blocks.suspects is None
        assert "counted as separate observations" in blocks.explain()


@pytest.mark.parametrize("k", [2, 3, 12])
@pytest.mark.parametrize("values", [None, 40], ids=["continuous", "discrete"])
def test_a_copied_table_is_counted_once(k, values):
    """Discrete rows that occur by chance more than once are as many as before they were copied."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) if values is None else rng.integers(values, size=(300, 1))
    y = rng.integers(2, size=300)
    order = rng.permutation(300 * k)
    blocks = blocks_of(np.tile(X, (k, 1))[order], np.tile(y, k)[order])
    assert blocks.times % k == 0  # discrete rows may all occur twice
    if blocks.times == k:
        assert (blocks.sizes == k).all()
    assert f"occur {blocks.times} times" in blocks.explain()


def test_some_equal_rows_of_one_label_may_be_copies():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(800, 3)), rng.integers(2, size=800)
    rows = np.r_[np.arange(800), rng.integers(800, size=190)]
    blocks = blocks_of(X[rows], y[rows])
    assert single(blocks)
    assert "they may be copies" in blocks.explain()
    everywhere = np.arange(990)
    assert (blocks.copies(everywhere) == (everywhere >= 800)).all()
    assert blocks.copies(everywhere[800:], known=everywhere[:800]).all()
    assert blocks_of(X, y).copies(everywhere[:800]) is None
    labels = y[rows].copy()
    labels[800:] = rng.integers(2, size=190)  # no copies: labels of their own
    assert blocks_of(X[rows], labels).suspects is None


def test_groups_have_the_last_word():
    X = np.repeat(np.arange(60.0), 2).reshape(-1, 1)
    assert single(blocks_of(X, np.repeat(np.arange(60) % 2, 2), np.arange(120)))


@pytest.mark.parametrize(
    ("groups", "message"), [(["a"] * 6, "of one group, .*'a'"), (["a", "b"], "each of the 6 rows")]
)
def test_groups_that_cannot_be_kept_apart(groups, message):
    with pytest.raises(ValueError, match=message):
        blocks_of(np.arange(6.0).reshape(-1, 1), np.arange(6) % 2, groups)


# What stays together

CASES = st.integers(0, 2**32 - 1)


@settings(max_examples=25)
@given(CASES)
def test_no_split_parts_a_block(seed):
    rng = np.random.default_rng(seed)
    n_different, n_classes = rng.integers(6, 60), rng.integers(2, 4)
    pool, labels = rng.normal(size=(n_different, 2)), rng.integers(n_classes, size=n_different)
    take = np.r_[np.arange(n_different), rng.integers(n_different, size=rng.integers(1, 60))]
    X, y = pool[take], labels[take]
    groups = rng.integers(max(2, n_different // 3), size=n_different)[take] if rng.random() < 0.5 else None
    if groups is not None and len(np.unique(groups)) < 2:
        return
    blocks = blocks_of(X, y, groups)
    splits = [*folds_of(int(rng.integers(2, 6)), X, y, groups=groups)]
    splits += [set_aside(0.2, y, blocks_of(X, y, groups))[:2], hold_out(X, y, 0.3, groups=groups)[:2]]
    for train, test in splits:
        assert sorted([*train, *test]) == list(range(len(X)))
        assert not np.isin(blocks.of_row[train], blocks.of_row[test]).any()
        if groups is not None:
            assert not np.isin(groups[train], groups[test]).any()
        assert len(train)
    assert len(np.unique(np.concatenate([test for _, test in splits[:-2]]))) == len(X)
    train, validation = validation_rows(y, blocks.of_row, 0.2, np.random.RandomState(seed % 1000))
    assert set(y[train]) == set(y)
    assert (train is validation) or not np.isin(blocks.of_row[train], blocks.of_row[validation]).any()


def test_shares_are_close_to_those_requested():
    X, y = np.repeat(np.random.default_rng(0).normal(size=(500, 3)), 4, axis=0), np.repeat(np.arange(500) % 5, 4)
    assert len(hold_out(X, y, 0.2).aside) == 100  # the evaluation counts one copy of each
    assert len(set_aside(0.2, y, blocks_of(X, y)).aside) == 100  # and so does a rule
    assert [len(test) for _, test in folds_of(5, X, y)] == [400] * 5
    for _, test in folds_of(5, X, y):
        assert np.bincount(y[test]).tolist() == [80] * 5


def test_without_equal_rows_nothing_changes():
    """The folds and the hold-out are those of StratifiedKFold and of demur fit before blocks were kept together."""
    X, y = make_classification(97, n_classes=3, n_informative=4, random_state=0)
    for mine, theirs in zip(
        folds_of(5, X, y), StratifiedKFold(5, shuffle=True, random_state=0).split(X, y), strict=True
    ):
        np.testing.assert_array_equal(mine[1], theirs[1])


def test_a_large_group_is_trained_on():
    X, groups = np.arange(100.0).reshape(-1, 1), np.r_[np.zeros(80), np.repeat([1, 2, 3, 4], 5)]
    y = np.arange(100) % 2
    assert set(groups[set_aside(0.2, y, blocks_of(X, y, groups)).aside]) <= {1, 2, 3, 4}
    assert 0 < len(hold_out(X, y, 0.1, groups=groups).aside) <= 15
    train, validation = validation_rows(y, blocks_of(X, y, groups).of_row, 0.1, np.random.RandomState(0))
    assert 80 <= len(train) < 100
    assert len(validation) == 100 - len(train)


def test_two_groups_are_enough():
    X, y, groups = np.arange(20.0).reshape(-1, 1), np.arange(20) % 2, np.repeat(["a", "b"], 10)
    for train, test in [*folds_of(5, X, y, groups=groups), hold_out(X, y, 0.2, groups=groups)[:2]]:
        assert sorted([len(train), len(test)]) == [10, 10]


# Weights


def test_weights_count_relative_to_each_other():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(2, size=60)
    quick = {"epochs": 3, "hidden_units": 5, "cost": 0.4, "random_state": 0}
    plain, weighted = (RejectClassifier(**quick).fit(X, y, weight) for weight in (None, np.full(60, 3.0)))
    np.testing.assert_array_equal(weighted.predict_proba(X), plain.predict_proba(X))


def test_a_weight_of_4_calibrates_as_the_row_four_times():
    X, y = make_classification(90, n_classes=3, n_informative=4, flip_y=0.3, random_state=0)
    weighted = RejectOption(GaussianNB(), calibration="temperature").fit(X, y, sample_weight=np.full(90, 4.0))
    repeated = RejectOption(GaussianNB(), calibration="temperature").fit(np.repeat(X, 4, axis=0), np.repeat(y, 4))
    assert weighted.calibrator_.temperature_ == pytest.approx(repeated.calibrator_.temperature_, rel=1e-6)


# A generator of folds


@pytest.mark.parametrize("estimator", [GaussianNB(), "auto"])
def test_cv_may_be_a_generator_also_with_a_fitted_rule(estimator, monkeypatch):
    monkeypatch.setattr("demur.estimators.candidates._TREES", 10)
    monkeypatch.setattr("demur.estimators.auto_classifier.CANDIDATES", _only("extra trees"))
    X, y = load_iris(return_X_y=True)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    once = RejectOption(estimator, rule=Coverage(0.8), cv=(fold for fold in folds)).fit(X, y)
    listed = RejectOption(estimator, rule=Coverage(0.8), cv=folds).fit(X, y)
    np.testing.assert_allclose(once.predict_proba(X), listed.predict_proba(X), rtol=1e-9)
    assert once.rule_.threshold_ == pytest.approx(listed.rule_.threshold_)
    with pytest.raises(ValueError, match="a generator can be used only once"):
        once.fit(X, y)


def _only(name):
    from demur.estimators.candidates import CANDIDATES

    return tuple(candidate for candidate in CANDIDATES if candidate.name == name)


# Groups


class Remembers(ClassifierMixin, BaseEstimator):
    """Notes which rows it was fitted on and which it was asked about, by their first feature."""

    seen: list = []  # noqa: RUF012 # shared on purpose: clones are what is fitted

    def fit(self, X, y):
        self.classes_, self.rows_ = np.unique(y), set(X[:, 0].tolist())
        return self

    def predict_proba(self, X):
        self.seen.append((self.rows_, set(X[:, 0].tolist())))
        return np.tile([0.4, 0.6], (len(X), 1))


@pytest.mark.parametrize("routing", [False, True])
@pytest.mark.parametrize("cv", [5, GroupKFold(3), KFold(3)], ids=["number", "groups", "no groups"])
@pytest.mark.parametrize("rule", [None, Coverage(0.8)], ids=["cost", "rule"])
def test_groups_reach_every_split(routing, cv, rule):
    rng = np.random.default_rng(0)
    X, groups = np.column_stack([np.arange(120.0), rng.normal(size=120)]), np.arange(120) // 7
    y = rng.integers(2, size=120)
    Remembers.seen.clear()
    with sklearn.config_context(enable_metadata_routing=routing):
        RejectOption(Remembers(), cv=cv, rule=rule).fit(X, y, groups=groups)
    assert len(Remembers.seen) >= 3
    for trained, asked in Remembers.seen:
        assert not {groups[int(row)] for row in trained} & {groups[int(row)] for row in asked}


def test_groups_reach_the_estimator_that_takes_them():
    rng = np.random.default_rng(0)
    X, y, groups = rng.normal(size=(120, 3)), rng.integers(2, size=120), np.repeat(np.arange(12), 10)
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=GroupKFold(3))
    for routing in (False, True):
        with sklearn.config_context(enable_metadata_routing=routing):
            assert RejectOption(search).fit(X, y, groups=groups).estimator_.best_params_


def test_groups_are_routed_from_outside():
    rng = np.random.default_rng(0)
    X, groups = np.column_stack([np.arange(120.0), rng.normal(size=120)]), np.repeat(np.arange(12), 10)
    y = rng.integers(2, size=120)
    Remembers.seen.clear()
    with sklearn.config_context(enable_metadata_routing=True):
        cross_validate(RejectOption(Remembers(), cv=3), X, y, cv=GroupKFold(3), params={"groups": groups})
    for trained, asked in Remembers.seen:
        assert not {row // 10 for row in trained} & {row // 10 for row in asked}


@pytest.mark.parametrize("model", [RejectClassifier(epochs=2), AutoClassifier(("logistic regression",), cv=2)])
def test_all_estimators_take_groups_and_count_equal_rows(model):
    X, y = load_iris(return_X_y=True)
    assert model.fit(X, y, groups=np.arange(150) // 2).equal_rows_ == 1  # iris has one row twice
    with pytest.raises(ValueError, match="all 150 rows are of one group"):
        model.fit(X, y, groups=np.zeros(150))


# Copies


def test_a_warning_says_what_was_found_and_assumed():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = (X[:, 0] > 0).astype(int)
    model = RejectOption(GaussianNB(), rule=RiskControl(0.2))
    rows = np.repeat(np.arange(600), 3)
    with pytest.warns(EqualRowsWarning, match="occur 3 times: they are treated as copies"):
        assert model.fit(X[rows], y[rows]).rule_.certificate_.n_rows == 300
    rows = np.r_[np.arange(600), np.arange(100)]
    with pytest.warns(EqualRowsWarning, match="100 of the 700 rows .* may be copies"):
        assert model.fit(X[rows], y[rows]).rule_.certificate_.n_rows == 350
    assert "one answer per group" not in model.rule_.explain()
    assert "one answer per group" in model.fit(X[rows], y[rows], groups=rows).rule_.explain()


def test_a_splitter_cannot_put_copies_on_both_sides():
    X, y = np.repeat(np.arange(40.0), 4).reshape(-1, 1), np.repeat(np.arange(40) % 2, 4)
    for train, test in folds_of(StratifiedKFold(5, shuffle=True, random_state=0), X, y):
        assert not np.isin(X[train], X[test]).any()
    parts = set_aside(folds_of(TimeSeriesSplit(3), X, y)[-1], y, blocks_of(X, y))
    assert not np.isin(X[parts.train], X[parts.aside]).any()
    assert blocks_of(X, y).equal_rows == 120
    groups = np.repeat(np.arange(4), 50)
    with pytest.raises(ValueError, match="a splitter that takes groups such as GroupKFold"):
        RejectOption(GaussianNB(), cv=KFold(2, shuffle=True, random_state=1)).fit(
            np.eye(200), groups % 2, groups=groups
        )


def test_all_rows_set_aside_count_where_nothing_is_copied():
    X, y = np.random.default_rng(0).integers(3, size=(400, 2)), np.arange(400) % 2
    assert RejectOption(GaussianNB(), rule=Coverage(0.5)).fit(X, y).rule_.n_rows_ == 80


@pytest.mark.parametrize("times", [3, 5])
def test_most_rows_copied_several_times_are_suspected_and_kept_on_one_side(times):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 3)), rng.integers(2, size=400)
    X, y = np.tile(X, (times, 1)), np.tile(y, times)
    edited = rng.random(len(y)) < 0.03
    X[edited, 0] += 1e-3 * rng.normal(size=edited.sum())
    assert blocks_of(X, y).suspects is not None
    parts = set_aside(0.2, y, blocks_of(X, y))
    assert not set(map(tuple, X[parts.train])) & set(map(tuple, X[parts.aside]))


def test_repeated_rare_classes_are_suspected():
    rng = np.random.default_rng(0)
    rare = rng.choice(300, size=2700)
    X = np.concatenate([rng.normal(size=(3000, 3)), rng.normal(size=(300, 3))[rare]])
    assert blocks_of(X, np.repeat([0, 1], [3000, 2700])).suspects is not None


def test_discrete_observations_are_not_suspected():
    rng = np.random.default_rng(0)
    X = rng.zipf(1.6, size=(4000, 5)).clip(max=6)
    y = (X.sum(axis=1) + rng.normal(size=4000) > 10).astype(int)
    assert blocks_of(X, y).suspects is None


def test_a_copied_table_is_evaluated_on_one_row_of_each_block():
    X, y = np.tile(np.arange(100.0), 4).reshape(-1, 1), np.tile(np.arange(100) % 2, 4)
    for parts in (hold_out(X, y, 0.2), hold_out_latest(X[:, 0], X, y, 0.2)):
        assert len(parts.aside) == len(np.unique(X[parts.aside])) == 20
        assert len(parts.train) == 320


@pytest.mark.parametrize("groups", [None, np.repeat([0, 1], 4)], ids=["one row a class", "one group a class"])
def test_folds_of_classes_that_cannot_be_divided_are_refused(groups):
    X = np.arange(2.0 if groups is None else 8.0).reshape(-1, 1)
    with pytest.raises(InputError, match="no fold has two classes to train on"):
        RejectOption(GaussianNB()).fit(X, [0, 1] if groups is None else groups, groups=groups)


def test_rows_of_rare_classes_are_set_aside_as_often_as_others():
    y = np.r_[np.zeros(500, dtype=int), np.arange(1, 501)]
    for share in (0.2, 0.5):
        train, aside, _ = set_aside(share, y, blocks_of(np.arange(1000.0).reshape(-1, 1), y))
        assert len(np.intersect1d(train, aside)) == 0
        assert (y[aside] > 0).sum() == pytest.approx(500 * share, abs=1)
        train, aside, _ = hold_out(np.arange(1000.0).reshape(-1, 1), y, share)
        assert (y[aside] > 0).sum() == pytest.approx(500 * share, abs=1)
    for few in ([0, 0, 1], [0, 0, 0, 1, 1, 1], [0] * 50 + [1]):
        labels = np.array(few)
        train = set_aside(0.5, labels, blocks_of(np.arange(float(len(few))).reshape(-1, 1), labels)).train
        assert len(np.unique(labels[train])) == 2


@pytest.mark.parametrize("labels", [[0] * 7 + [1] * 2, [0] * 100 + [1] * 2 + [2] * 2, [0, 0, 0, 1, 2]])
def test_what_is_held_out_can_be_evaluated(labels):
    """With few classes, all of them are trained on; some row held out has a class that is."""
    y = np.array(labels)
    for seed in range(40):
        train, aside, _ = hold_out(np.arange(float(len(y))).reshape(-1, 1), y, 0.4, seed=seed)
        assert len(np.unique(y[train])) >= min(3, len(np.unique(y)))
        assert np.isin(y[aside], y[train]).any()
