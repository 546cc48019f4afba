"""Every guarantee, simulated on rows that are discrete, clustered or copied: it fails no more often than it may.

Each test has a quick and a slow size. The number of failures that is tolerated is exceeded with probability 0.001 where
each simulation fails with exactly the probability that is allowed.
"""

import warnings
from collections import namedtuple

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from demur import Capacity, Cascade, Coverage, RejectOption, RiskControl
from demur.deploy.monitoring import DriftBets, RiskBets
from demur.estimators import EqualRowsWarning
from demur.guarantees import NoGuaranteeError
from demur.rules import Decision

DELTA = 0.1
SIZES = [pytest.param(1, id="quick"), pytest.param(6, id="many", marks=pytest.mark.slow)]


def most(n_simulations, delta=DELTA):
    return binom.isf(0.001, n_simulations, delta)


# Populations: each returns features and labels of n rows


def continuous(rng, n):
    """A fifth of the rows are coin tosses; the others can be told."""
    X = rng.random((n, 2))
    return X, np.where(X[:, 0] < 0.8, X[:, 1] > 0.5, rng.random(n) < 0.5).astype(int)


def one_cell(rng, n):
    """Two fifths of the rows have equal features, of which 15 % are of the other class."""
    common = rng.random(n) < 0.4
    X = np.where(common, 2.0, rng.uniform(-1, 1, n))
    return X[:, None], np.where(common, rng.random(n) < 0.85, X > 0).astype(int)


def zipf(rng, n):
    """Five categorical columns whose values are distributed by Zipf's law; frequent rows are harder to tell."""
    share = 1 / np.arange(1, 9) ** 1.5
    X = rng.choice(8, size=(n, 5), p=share / share.sum())
    effect = np.random.default_rng(7).normal(size=(5, 8))
    score = effect[np.arange(5), X].sum(axis=1)
    flipped = rng.random(n) < np.where(X.sum(axis=1) < 4, 0.15, 0.01)
    return X.astype(float), ((score > 0) ^ flipped).astype(int)


def many_classes(rng, n):
    """8 % of the rows are of 20,000 rare classes, and look like the rows of the two common ones."""
    X = rng.random((n, 2))
    return X, np.where(rng.random(n) < 0.08, rng.integers(2, 20_000, size=n), X[:, 1] > 0.5)


def few_cells(rng, n):
    """Three columns of yes and no."""
    X = rng.integers(2, size=(n, 3))
    wrong = np.array([0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.3, 0.45])[X @ [4, 2, 1]]
    return X.astype(float), np.where(rng.random(n) < wrong, 1 - X[:, 0], X[:, 0])


def risk_of_answers(model, population, rng):
    X, y = population(rng, 10_000)
    decision = model.decide(X)
    return (decision.label != y)[~decision.reject].mean() if (~decision.reject).any() else 0.0


def count_broken(n_fits, fit, population, target):
    """Return how often a guarantee was given, and how often it was broken; a refusal is not broken."""
    given = broken = 0
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", EqualRowsWarning)
                model = fit(rng)
        except NoGuaranteeError:
            continue
        given += 1
        broken += risk_of_answers(model, population, rng) > target
    return given, broken


def option(target, model=None):
    model = DecisionTreeClassifier(min_samples_leaf=10, random_state=0) if model is None else model
    return RejectOption(model, calibration=None, novelty=None, rule=RiskControl(target, DELTA))


# RiskControl


ROWS = {
    "continuous": (continuous, 0.06, None),
    "one cell": (one_cell, 0.05, None),
    "zipf": (zipf, 0.05, make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression())),
    "zipf, a tree": (zipf, 0.08, None),
    "few cells": (few_cells, 0.05, None),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ROWS)
def test_the_risk_of_the_answers_is_within_its_target(name, size):
    population, target, model = ROWS[name]
    n_fits = 20 * size
    given, broken = count_broken(
        n_fits, lambda rng: option(target, model).fit(*population(rng, 3000)), population, target
    )
    assert given >= n_fits / 4
    assert broken <= most(n_fits)


@pytest.mark.parametrize("size", SIZES)
def test_rows_of_classes_that_were_not_trained_on_are_wrong_answers(size):
    """A rule that gets no row of a class with a single one would never see them."""
    n_fits = 6 * size
    for target, least in ((0.05, 0), (0.2, n_fits)):
        given, broken = count_broken(
            n_fits, lambda rng, target=target: option(target).fit(*many_classes(rng, 1500)), many_classes, target
        )
        assert given >= least
        assert broken <= most(n_fits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("population", [continuous, few_cells])
def test_a_copied_table_guarantees_no_more_than_the_table(population, size):
    def fit(rng):
        X, y = population(rng, 1500)
        rows = rng.permutation(np.repeat(np.arange(1500), 4))
        tree = DecisionTreeClassifier(min_samples_leaf=80, random_state=0)
        return option(0.06, tree).fit(X[rows], y[rows])

    n_fits = 20 * size
    given, broken = count_broken(n_fits, fit, population, 0.06)
    assert given >= n_fits / 4
    assert broken <= most(n_fits)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("neighbors", "target", "least"), [(20, 0.06, 0.25), (1, 0.09, 0.0)])
def test_some_copies_do_not_break_the_guarantee(neighbors, target, least, size):
    """19 % of the rows are copies, and new rows are not. A model that learns rows by heart is right about copies."""

    def fit(rng):
        X, y = continuous(rng, 2430)
        rows = rng.permutation(np.r_[np.arange(2430), rng.integers(2430, size=570)])
        return option(target, KNeighborsClassifier(neighbors)).fit(X[rows], y[rows])

    n_fits = 20 * size
    given, broken = count_broken(n_fits, fit, continuous, target)
    assert given >= least * n_fits
    assert broken <= most(n_fits)


@pytest.mark.parametrize("size", SIZES)
def test_with_groups_the_risk_is_that_of_one_answer_per_group(size):
    """Large groups are harder: of all answers more are wrong than of one answer per group."""
    n_groups, target = 4000, 0.1

    def patients(rng):
        hard = rng.random(n_groups) < 0.1
        of_row = np.repeat(np.arange(n_groups), np.where(hard, 12, 1))
        proba = np.clip(rng.normal(np.where(hard[of_row], 0.8, 0.9), 0.03), 0.5, 1)
        wrong = rng.random(len(of_row)) < np.where(hard[of_row], 0.4, 0.05)
        return of_row, proba, wrong

    n_fits, broken, of_rows = 20 * size, 0, []
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        of_row, proba, wrong = patients(rng)
        rule = RiskControl(target, DELTA).fit_confidence(proba, wrong, clusters=of_row)
        assert "for one answer per group (a patient, a machine), to a row drawn at random" in rule.explain()
        of_row, proba, wrong = patients(rng)
        answered = proba > rule.threshold_
        each = answered / np.bincount(of_row)[of_row]  # a row drawn from each group
        broken += (each * wrong).sum() / each.sum() > target + 0.01
        of_rows.append(wrong[answered].mean())
    assert broken <= most(n_fits)
    assert np.mean(of_rows) > 1.3 * target  # the risk of rows is another, and nothing is said about it


def true_risks(threshold, error):
    """Return the risk above each threshold where the confidence is one of ten values, 0.55 to 1, with equal chance."""
    values = np.linspace(0.55, 1, 10)
    above = values[:, None] > np.asarray(threshold)
    return (error[:, None] * above).sum(axis=0) / np.maximum(above.sum(axis=0), 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [30, 600])
@pytest.mark.parametrize("expected", ["right", "too good", "too bad", "reversed"])
def test_out_of_fold_rows_of_any_kind_leave_the_guarantee_as_it_is(expected, n, size):
    """Ties, and few rows, with which hardly anything can be certified. All risks are just above or below the target."""
    target, error = 0.1, np.linspace(0.4, 0.001, 10)
    seen = {"right": error, "too good": error / 4, "too bad": error * 2, "reversed": error[::-1]}[expected]
    n_fits, broken = 25 * size, 0
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        place, before = rng.integers(10, size=(2, n))
        values = np.linspace(0.55, 1, 10)
        known = values[before], rng.random(n) < seen[before]
        try:
            rule = RiskControl(target, DELTA).fit_confidence(
                values[place], rng.random(n) < error[place], out_of_fold=known
            )
        except NoGuaranteeError:
            continue
        broken += true_risks([rule.threshold_], error)[0] > target
    assert broken <= most(n_fits)


def test_out_of_fold_rows_let_more_rows_be_answered():
    error, values, answered = np.linspace(0.5, 0.001, 10), np.linspace(0.55, 1, 10), []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        place, before = rng.integers(10, size=(2, 200))
        rows, known = ((values[one], rng.random(200) < error[one]) for one in (place, before))
        for given in (None, known):
            try:
                rule = RiskControl(0.15, DELTA).fit_confidence(*rows, out_of_fold=given)
                answered.append((values > rule.threshold_).mean())
            except NoGuaranteeError:
                answered.append(0.0)
    without, with_them = np.array(answered).reshape(-1, 2).T
    assert with_them.mean() > without.mean() + 0.05


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n_clusters", [20, 400])
def test_the_risk_of_all_rows_of_clusters_is_within_its_target(n_clusters, size):
    """Large clusters are harder, all rows of a cluster err together, and every threshold is just too low."""
    target, n_fits, broken = 0.2, 8 * size, 0
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        large = rng.random(n_clusters) < 0.3
        of_row = np.repeat(np.arange(n_clusters), np.where(large, 5, 1))
        # 0.3 * 5 of 0.3 * 5 + 0.7 rows are in large clusters; the risk of all rows is 0.2002
        wrong = (rng.random(n_clusters) < np.where(large, 0.28, 0.029))[of_row]
        rule = RiskControl(target, DELTA, unit="row")
        try:
            rule.fit_confidence(rng.choice([0.7, 0.9], size=len(of_row)), wrong, clusters=of_row)
        except NoGuaranteeError:
            continue
        assert "counting all rows of each group, if no group has more than 5 rows" in rule.explain()
        broken += 1
    assert broken <= most(n_fits)


def test_the_risk_of_all_rows_can_be_certified():
    rng = np.random.default_rng(0)
    of_row = np.repeat(np.arange(500), rng.integers(1, 4, size=500))
    confidence = rng.choice([0.6, 0.95], size=len(of_row))
    wrong = rng.random(len(of_row)) < np.where(confidence > 0.9, 0.02, 0.5)
    rule = RiskControl(0.1, unit="row").fit_confidence(confidence, wrong, clusters=of_row)
    assert rule.certificate_.n_accepted == (confidence > 0.9).sum()
    assert 0.02 < rule.certificate_.bound <= 0.1
    with pytest.raises(NoGuaranteeError, match=r"no threshold guarantees a risk of at most 0\.01"):
        RiskControl(0.01, unit="row").fit_confidence(confidence, wrong, clusters=of_row)
    with pytest.raises(ValueError, match="unit must be 'cluster' or 'row', got 'patient'"):
        RiskControl(0.1, unit="patient")


# Bounds of groups


@pytest.mark.parametrize("size", SIZES)
def test_the_bounds_of_all_groups_hold_together(size):
    """Eight groups and confidences that take few values. Each bound alone would fail in up to a tenth of the fits."""
    risks = np.array([0.05, 0.04, 0.06, 0.03, 0.05, 0.02, 0.05, 0.04])
    n_fits = 200 * size
    broken = 0
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        group = rng.integers(8, size=4000)
        confidence = rng.choice([0.7, 0.8, 0.99], size=4000)
        wrong = rng.random(4000) < risks[group]
        rule = RiskControl(0.2, DELTA, groups=group).fit_confidence(confidence, wrong)
        bounds = np.array([rule.group_certificates_[str(name)].bound for name in range(8)])
        broken += (risks > bounds).any()
    assert n_fits / 100 <= broken <= most(n_fits)


# Coverage


@pytest.mark.parametrize("population", [continuous, few_cells, zipf])
def test_coverage_is_reached_in_the_mean_on_new_rows(population):
    covered = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        model = DecisionTreeClassifier(min_samples_leaf=10, random_state=0)
        model = RejectOption(model, calibration=None, novelty=None, rule=Coverage(0.7)).fit(*population(rng, 1000))
        covered.append((~model.decide(population(rng, 5000)[0]).reject).mean())
    assert np.mean(covered) >= 0.7 - 3 * np.std(covered) / np.sqrt(30)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [5, 50, 1000])
@pytest.mark.parametrize("values", [3, 1_000_000])
def test_coverage_of_new_rows_is_below_its_target_no_more_often_than_delta(values, n, size):
    n_fits, broken, accepted = 200 * size, 0, []
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        rule = Coverage(0.7, delta=DELTA).fit_confidence(rng.integers(1, values + 1, size=n) / values)
        broken += 1 - np.floor(rule.threshold_ * values) / values < 0.7 - 1e-9
        accepted.append(rule.n_accepted_ / n)
    assert broken <= most(n_fits)
    if values > n > 500:
        assert broken >= 0.03 * n_fits
        assert np.mean(accepted) < 0.73


# Capacity of a stream


def decisions(rng, n, cells):
    """What two experts save on each row; with few cells many rows tie."""
    gains = rng.normal(0.1, 0.2, size=(n, 2))
    if cells:
        gains = np.random.default_rng(3).normal(0.1, 0.2, size=(cells, 2))[rng.integers(cells, size=n)]
    costs = np.column_stack([np.full(n, 0.5), np.full(n, 0.6), 0.5 - gains])
    nothing = np.zeros(n, dtype=int)
    return Decision(nothing, nothing == 0, nothing, nothing, nothing, costs)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cells", [0, 12])
@pytest.mark.parametrize("limits", [{"nurse": 0.2}, {"nurse": 0.2, "doctor": 0.1}], ids=["one", "two"])
def test_the_load_of_a_stream_stays_within_its_limits(limits, cells, size):
    n_fits, broken = 20 * size, 0
    for seed in range(n_fits):
        rng = np.random.default_rng(seed)
        capacity = Capacity(limits, delta=DELTA).fit(decisions(rng, 1000, cells), ["nurse", "doctor"])
        ask = capacity.assign(decisions(rng, 40_000, cells), ["nurse", "doctor"]).ask
        load = np.bincount(ask + 1, minlength=3)[1:] / len(ask)
        broken += any(load[["nurse", "doctor"].index(name)] > limit + 0.004 for name, limit in limits.items())
    assert broken <= most(n_fits)


@pytest.mark.parametrize("n_rows", [1000, 5000])
def test_the_load_of_a_stream_reaches_the_possible_share_of_the_limit(n_rows):
    """For one expert no method is better than the binomial test; a tenth of the rows gives the prices of several."""
    limits, loads = np.array([0.2, 0.1]), []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        capacity = Capacity(dict(zip(["nurse", "doctor"], limits.tolist(), strict=True)))
        capacity.fit(decisions(rng, n_rows, 0), ["nurse", "doctor"])
        ask = capacity.assign(decisions(rng, 20_000, 0), ["nurse", "doctor"]).ask
        loads.append(np.bincount(ask + 1, minlength=3)[1:] / len(ask))
    parts = (1 / limits - 1) ** 2 / ((1 / limits - 1) ** 2).sum() * capacity.delta
    best = (binom.ppf(parts, n_rows, limits) - 1) / n_rows
    assert (np.mean(loads, axis=0) > 0.97 * best).all()


# Cascades


Calls = namedtuple("Calls", "answers confidence y")


def calls(rng, n):
    """Two services with confidences of few values; some rows are of a class that ``fit`` may not have seen."""
    y = rng.choice(["a", "b", "rare"], size=n, p=[0.49, 0.49, 0.02])
    sure = rng.choice([0.6, 0.8, 0.95], size=(n, 2))
    other = np.where(y == "a", "b", "a")
    right = rng.random((n, 2)) < np.column_stack([sure[:, 0], 0.9 + 0.05 * (sure[:, 1] > 0.7)])
    return Calls(np.where(right, y[:, None], other[:, None]), sure, y)


@pytest.mark.parametrize("size", SIZES)
def test_a_certified_cascade_is_as_accurate_as_it_says(size):
    rng = np.random.default_rng(0)
    seen = calls(rng, 400)
    known = seen.y != "rare"
    cascade = Cascade({"cheap": 0.1, "dear": 1.0}, mistake=5.0).fit(*(part[known] for part in seen))
    new = calls(rng, 20_000)
    best = (new.answers == new.y[:, None]).mean(axis=0).max()
    n_fits, broken, given = 10 * size, 0, 0
    for _ in range(n_fits):
        try:
            cascade.certify(*calls(rng, 1500), within=0.05, delta=DELTA)
        except NoGuaranteeError:
            continue
        given += 1
        broken += (cascade.run(new.answers, new.confidence).label == new.y).mean() < best - 0.055
    assert given
    assert broken <= most(n_fits)


@pytest.mark.parametrize("size", SIZES)
def test_a_cascade_with_a_certified_budget_keeps_it(size):
    rng = np.random.default_rng(0)
    cascade = Cascade({"cheap": 0.1, "dear": 1.0}, mistake=5.0).fit(*calls(rng, 400))
    new = calls(rng, 20_000)
    n_fits, spent = 10 * size, []
    for _ in range(n_fits):
        answers, confidence, _ = calls(rng, 500)
        cascade.certify(answers, confidence, budget=0.5, delta=DELTA)
        spent.append(cascade.run(new.answers, new.confidence).spent.mean())
    assert np.sum(np.array(spent) > 0.503) <= most(n_fits)
    assert np.mean(spent) > 0.35
    with pytest.raises(NoGuaranteeError, match=r"no policy keeps the budget 0\.05 .* the cheapest costs 0\.1"):
        cascade.certify(answers, confidence, budget=0.05)
    with pytest.raises(ValueError, match="give the labels y"):
        cascade.certify(answers, confidence)


# The monitor


@pytest.mark.parametrize("size", SIZES)
def test_the_monitor_raises_few_false_alarms_however_long_it_watches(size):
    rng = np.random.default_rng(0)
    streams, n_rows = 200 * size, 2000
    share = np.array([0.6, 0.3, 0.1])
    kinds = rng.choice(3, size=(streams, n_rows), p=share)
    drift = DriftBets(rng.multinomial(500, share, size=streams)).bet(kinds, rng.random(kinds.shape))
    wrong = rng.random((streams, n_rows)) < 0.05
    risk = RiskBets(np.full((streams, 1), 0.05)).bet(wrong)
    for capital in (drift, risk):
        assert (capital.max(axis=1) >= np.log(1 / DELTA)).sum() <= most(streams)
