"""RejectOption("auto"): the blend, its time budget, and tables as people have them."""

import pickle
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib import parallel_config
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_info, threadpool_limits

from demur import AutoClassifier, RejectOption, RiskControl
from demur.calibration import TemperatureScaling
from demur.columns import as_table
from demur.estimators import auto_classifier, candidates
from demur.estimators.auto_classifier import mixture_weights
from demur.estimators.candidates import CANDIDATES, fit_in_pieces
from demur.workers import BusyClock

QUICK = ("logistic regression", "extra trees")
NAMES = tuple(candidate.name for candidate in CANDIDATES if candidate.library is None and candidate.view != "text")


@pytest.fixture(autouse=True, scope="module")
def short_training():
    """Train networks for a few steps only, and forests of a few trees: what is tested here is how they are combined."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_EPOCHS", 8)
        patch.setattr(candidates, "_FEW_ROWS", 0)
        patch.setattr(candidates, "_TREES", 12)
        patch.setattr(candidates, "_ITERATIONS", 10)
        yield


@pytest.mark.slow
@parametrize_with_checks(
    [AutoClassifier(("logistic regression",), time_budget=None, cv=2, random_state=0)],
    expected_failed_checks=lambda estimator: {
        "check_sample_weight_equivalence_on_dense_data": "features are imputed and scaled by rows, not by weights"
    },
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def noisy():
    return make_classification(
        400, 6, n_informative=4, n_redundant=0, n_classes=3, flip_y=0.2, n_clusters_per_class=1, random_state=0
    )


@pytest.fixture(scope="module")
def fitted(noisy):
    return AutoClassifier(NAMES, time_budget=None, cv=3, random_state=0).fit(*noisy)


def test_every_candidate_is_tried_and_reported(fitted):
    assert tuple(one.name for one in fitted.tried_) == NAMES
    assert sum(one.weight for one in fitted.tried_) == pytest.approx(1)
    assert all(one.seconds >= 0 and one.temperature > 0 for one in fitted.tried_)


def test_the_blend_is_no_worse_out_of_fold_than_its_best_member(fitted, noisy):
    y = noisy[1][fitted.held_out_rows_]
    blend = -np.log(fitted.held_out_proba_[np.arange(len(y)), y]).mean()
    assert blend <= min(one.log_loss for one in fitted.tried_) + 1e-9


def test_the_blend_needs_no_further_temperature(fitted, noisy):
    again = TemperatureScaling().fit(fitted.held_out_proba_, noisy[1][fitted.held_out_rows_])
    assert again.temperature_ == pytest.approx(1, abs=0.01)


def test_probabilities_are_the_weighted_mean_of_calibrated_members(fitted, noisy):
    X = noisy[0][:50]
    views = {"codes": X, "dense": fitted.dense_.transform(X), "numbers": X}
    members = zip(fitted.models_, fitted.weights_, fitted.scalings_, fitted.views_, strict=True)
    mixture = sum(w * scaling.transform(model.predict_proba(views[view])) for model, w, scaling, view in members)
    np.testing.assert_allclose(fitted.predict_proba(X), fitted.scaling_.transform(mixture), rtol=1e-12)


def test_the_same_rows_give_the_same_model(noisy):
    one, two = (AutoClassifier(QUICK, time_budget=None, cv=2, random_state=3).fit(*noisy) for _ in range(2))
    # Threads add the trees of a fold up in any order, so that temperatures differ in their last digits.
    np.testing.assert_allclose(one.predict_proba(noisy[0]), two.predict_proba(noisy[0]), rtol=1e-9)


@pytest.mark.slow
def test_prediction_is_the_same_every_time_and_whatever_rows_are_given_together(fitted):
    X = np.random.default_rng(0).normal(size=(40_000, 6))
    once = fitted.predict_proba(X)
    np.testing.assert_array_equal(once, fitted.predict_proba(X))
    np.testing.assert_allclose(once[:100], fitted.predict_proba(X[:100]), atol=1e-6)


# Blending


def log_loss_of(weights, columns):
    return -np.log(weights @ columns).mean()


@pytest.mark.parametrize("seed", range(3))
def test_mixture_weights_are_the_best_on_the_simplex_up_to_the_prior(seed):
    columns = np.random.default_rng(seed).uniform(0.05, 1, size=(3, 4000))
    weights = np.array(mixture_weights(columns))
    assert weights.sum() == pytest.approx(1)
    grid = [(i / 40, j / 40, 1 - (i + j) / 40) for i in range(41) for j in range(41 - i)]
    best = min(log_loss_of(np.array(one), columns) for one in grid)
    assert log_loss_of(weights, columns) < best + 1e-3


def test_few_rows_rule_no_model_out_and_many_do():
    better, worse = np.full(5, 0.6), np.full(5, 0.5)
    assert mixture_weights([better, worse])[1] > 0.2
    assert mixture_weights([np.repeat(better, 400), np.repeat(worse, 400)]) == (1.0, 0.0)


def test_a_weight_of_two_is_the_row_twice():
    columns = np.random.default_rng(0).uniform(0.05, 1, size=(3, 20))
    counts = np.arange(20) % 3
    np.testing.assert_allclose(
        mixture_weights(columns, counts), mixture_weights([np.repeat(c, counts) for c in columns]), atol=1e-5
    )


# The time budget: a clock that moves by what each fit is said to take


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still unless a test moves it."""
    now = [0.0]
    monkeypatch.setattr(BusyClock, "__call__", lambda _: now[0])
    return now


class SlowTrees(ExtraTreesClassifier):
    """A forest of which each tree takes a second on a thousand rows."""

    clock: ClassVar = [0.0]
    fits: ClassVar = []

    def fit(self, X, y, sample_weight=None):
        before = len(self.estimators_) if self.warm_start and hasattr(self, "estimators_") else 0
        super().fit(X, y, sample_weight)
        self.clock[0] += (self.n_estimators - before) * len(X) / 1000
        self.fits.append((len(X), self.n_estimators))
        return self


@pytest.fixture
def slow(clock, monkeypatch):
    """Put the slow forest in the place of the candidates that are there."""
    monkeypatch.setattr(SlowTrees, "clock", clock)
    monkeypatch.setattr(SlowTrees, "fits", [])
    monkeypatch.setitem(candidates._PIECES, SlowTrees, candidates._PIECES[ExtraTreesClassifier])
    forest = candidates.CandidateModel("extra trees", "codes", lambda task: SlowTrees(100, random_state=0), "et", 0.1)
    second = candidates.CandidateModel("lightgbm", "codes", lambda task: SlowTrees(100, random_state=1), "lgbm")
    for module in ("auto_classifier", "candidates"):
        monkeypatch.setattr(f"demur.estimators.{module}.CANDIDATES", (forest, second))
    return SlowTrees.fits


@pytest.mark.parametrize("budget", [30.0, pytest.param(100.0, marks=pytest.mark.slow)])
def test_candidates_are_shortened_to_fit_in(slow, clock, noisy, budget):
    model = AutoClassifier(time_budget=budget, n_jobs=1, random_state=0).fit(*noisy)
    assert 0.5 * budget < clock[0] <= 1.15 * budget + 3
    forest, second = model.tried_
    assert "cut short by the time budget" in forest.outcome
    assert 0.1 <= forest.trained < 1
    assert "left out" in second.outcome  # which got less than 40 % of its training
    assert model.starved == (
        f"The time budget allowed only part of the training: extra trees {forest.trained:.0%}, lightgbm 0%. "
        "More time may improve the model."
    )


def test_a_slow_candidate_gives_way_to_folds(slow, clock, noisy):
    """Weights and temperatures of few held-out rows are worse than none."""
    model = AutoClassifier(time_budget=400.0, n_jobs=1, random_state=0)
    slower = replace(CANDIDATES[3], make=lambda task: SlowTrees(300, random_state=1), library=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("demur.estimators.auto_classifier.CANDIDATES", (auto_classifier.CANDIDATES[0], slower))
        model.fit(*noisy)
    assert len(model.held_out_rows_) == len(noisy[1])
    assert [one.weight for one in model.tried_] == [1.0, 0.0]
    assert clock[0] <= 1.15 * 400 + 3


def test_a_candidate_that_is_too_slow_is_given_up_early(slow, clock, noisy):
    AutoClassifier(time_budget=100.0, n_jobs=1, random_state=0).fit(*noisy)
    assert max(n_trees for _, n_trees in slow[-3:]) >= 10
    assert clock[0] <= 1.15 * 100 + 3


def test_presets(noisy):
    model = AutoClassifier(preset="fast", time_budget=None, cv=2, random_state=0).fit(*noisy)
    better = min(model.tried_, key=lambda one: one.log_loss)
    assert [one.name for one in model.tried_ if one.weight] == [better.name]
    fast, usual, best = (AutoClassifier(preset=name)._wanted(False, 1) for name in ("fast", "default", "best"))
    assert set(fast) < set(usual) < set(best)


@pytest.mark.slow
def test_without_a_budget_nothing_is_shortened(slow, noisy):
    model = AutoClassifier(time_budget=None, random_state=0).fit(*noisy)
    assert {n_trees for _, n_trees in slow} == {100}
    assert model.starved is None


def test_where_no_time_is_left_a_candidate_is_left_out(slow, noisy):
    model = AutoClassifier(time_budget=2.0, random_state=0).fit(*noisy)
    assert [one.weight for one in model.tried_] == [1.0, 0.0]  # the first is trained in any case
    assert "left out" in model.tried_[1].outcome


@pytest.mark.slow
def test_large_tables_show_on_a_share_of_their_rows_how_many_fit_in(slow, clock, monkeypatch):
    monkeypatch.setattr(candidates, "_MANY_ROWS", 1000)
    X, y = make_classification(6000, 4, n_informative=3, n_redundant=0, random_state=0)
    model = AutoClassifier(("et",), time_budget=600.0, cv=2, n_jobs=1, random_state=0).fit(X, y)
    probe, _ = slow[0]
    assert probe == 2000  # the fewest that say something
    assert clock[0] <= 1.15 * 600 + 3
    assert "% of the rows" in model.tried_[0].outcome


def test_one_fold_is_enough_for_large_tables(slow, monkeypatch):
    monkeypatch.setattr("demur.estimators.auto_classifier._MANY_ROWS", 300)
    monkeypatch.setattr("demur.estimators.auto_classifier._MOST_HELD_OUT", 50)
    X, y = make_classification(400, 4, n_informative=3, n_redundant=0, random_state=0)
    model = AutoClassifier(("et",), time_budget=None, random_state=0).fit(X, y)
    assert len(model.held_out_rows_) == 50
    assert slow == [(350, 100), (400, 100)]


@pytest.mark.parametrize(
    "estimator",
    [
        ExtraTreesClassifier(20, random_state=0),
        HistGradientBoostingClassifier(max_iter=12, early_stopping=False, random_state=0),
    ],
    ids=["trees", "boosting"],
)
def test_a_model_in_pieces_is_the_same_model(estimator, noisy):
    whole, pieces = clone(estimator).fit(*noisy), clone(estimator)
    assert fit_in_pieces(pieces, *noisy, None, lambda: 1e9) == 1
    np.testing.assert_allclose(pieces.predict_proba(noisy[0]), whole.predict_proba(noisy[0]), rtol=1e-9)
    assert pieces.get_params() == whole.get_params()


def test_the_last_fit_is_no_surer_than_those_that_it_is_calibrated_by(noisy):
    """A temperature found for five iterations would make a hundred far too sure."""
    boosting = HistGradientBoostingClassifier(max_iter=20, early_stopping=False, random_state=0)
    for seconds in (1e9, np.inf):
        assert fit_in_pieces(clone(boosting), *noisy, None, lambda seconds=seconds: seconds, at_most=0.25) == 0.25


def test_networks_keep_to_the_time_that_is_left(noisy):
    """Next to none: they stop after a step, and the blend still works."""
    model = AutoClassifier(("nn",), time_budget=1e-3, random_state=0).fit(*noisy)
    assert "networks" in model.starved
    assert np.isfinite(model.predict_proba(noisy[0])).all()


def test_names_and_short_names_are_one_set(noisy):
    short, long = (AutoClassifier(names, time_budget=None, cv=2, random_state=0) for names in (("lr",), QUICK[:1]))
    np.testing.assert_array_equal(short.fit(*noisy).predict_proba(noisy[0]), long.fit(*noisy).predict_proba(noisy[0]))


# Tables as people have them


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 300
    colour, size = rng.choice(["red", "green", "blue"], n), rng.normal(size=n)
    y = np.where((colour == "red") ^ (size > 0), "good", "bad")
    size[rng.random(n) < 0.2] = np.nan
    table = pd.DataFrame({"colour": pd.Categorical(colour), "size": size, "when": pd.date_range("2026", periods=n)})
    table.loc[::17, "colour"] = None
    return table, y


@pytest.mark.parametrize(
    ("name", "convert"),
    [*((name, lambda frame: frame) for name in NAMES), ("extra trees", pl.from_pandas)],
    ids=[*NAMES, "polars"],
)
def test_missing_values_and_categories_for_every_candidate(frame, convert, name):
    table, y = frame
    model = AutoClassifier((name,), time_budget=None, cv=3, random_state=0).fit(convert(table), y)
    proba = model.predict_proba(convert(table))
    assert np.isfinite(proba).all()
    assert (model.predict(convert(table)) == y).mean() > (0.55 if name == "logistic regression" else 0.8)


def test_columns_are_read_by_name(frame):
    table, y = frame
    model = AutoClassifier(QUICK, time_budget=None, cv=3, random_state=0).fit(table, y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table[["size"]])


def test_codes_in_an_array_are_the_same_as_categories_in_a_frame(frame):
    table, y = frame
    model = AutoClassifier(QUICK, time_budget=None, cv=3, random_state=0).fit(table, y)
    codes = model.encoding_.schema.encode(as_table(table))
    mask = model.encoding_.categorical
    same = AutoClassifier(QUICK, time_budget=None, cv=3, categorical_features=mask, random_state=0).fit(codes, y)
    np.testing.assert_allclose(same.predict_proba(codes), model.predict_proba(table), rtol=1e-9)


@pytest.mark.parametrize(
    ("X", "features", "message"),
    [
        (np.array([[300.0], [1.0]]), [0], "codes from 0 to 254"),
        (np.array([[0.5], [1.0]]), [0], "codes from 0 to 254"),
        (np.array([[0.0], [1.0]]), [1], "numbers of the 1 columns"),
        (np.array([[0.0], [1.0]]), [True, False], "a mask or numbers of the 1 columns"),
        (np.array([[0.0], [1.0]]), ["a"], "numbers of the 1 columns"),
    ],
)
def test_wrong_categorical_features(X, features, message):
    with pytest.raises(ValueError, match=message):
        AutoClassifier(categorical_features=features).fit(np.repeat(X, 10, axis=0), [0, 1] * 10)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"candidates": ("xgboost",)}, "must be some of linear model of text"),
        ({"candidates": ()}, "must be some of linear model of text"),
        ({"time_budget": 0}, "positive number of seconds"),
        ({"preset": "good"}, "must be one of fast, default, best, got 'good'"),
    ],
)
def test_wrong_parameters(parameters, message, noisy):
    with pytest.raises(ValueError, match=message):
        AutoClassifier(**parameters).fit(*noisy)


def test_numbers_beyond_single_precision_are_trained_on(noisy):
    X, y = noisy[0].copy(), noisy[1]
    X[:3, 0] = 1e39, -1e200, np.finfo(float).max
    model = AutoClassifier(QUICK, time_budget=None, cv=2, n_jobs=1, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


# Nothing is learnt from a row that is then predicted


def test_imputing_and_scaling_are_learnt_inside_the_folds(monkeypatch):
    fitted_on = []

    class Remembers(ColumnTransformer):
        def fit_transform(self, X, y=None):  # which fit calls, too
            fitted_on.append(np.asarray(X)[:, 0])
            return super().fit_transform(X, y)

    monkeypatch.setattr(candidates, "ColumnTransformer", Remembers)
    rng = np.random.default_rng(0)
    X, y = np.column_stack([np.arange(60.0), rng.normal(size=60)]), np.arange(60) % 2
    X[rng.random(60) < 0.3, 1] = np.nan
    AutoClassifier(("logistic regression",), time_budget=None, cv=3, random_state=0).fit(X, y)
    by_fold = fitted_on[:3]
    assert [len(rows) for rows in by_fold] == [40, 40, 40]
    assert set.intersection(*(set(rows) for rows in by_fold)) == set()  # each row is left out by one fold
    assert [len(rows) for rows in fitted_on[3:]] == [60]  # and then all rows, once, for the members of the blend


# Inside RejectOption


def test_reject_option_takes_auto_by_name(noisy, monkeypatch):
    monkeypatch.setattr("demur.estimators.auto_classifier.CANDIDATES", CANDIDATES[2:3])
    X, y = noisy
    model = RejectOption("auto", cost=0.1, time_budget=30).fit(X[:200], y[:200])
    assert isinstance(model.estimator_, AutoClassifier)
    assert model.estimator_.time_budget == 30
    assert model.calibrator_ is None  # the blend is calibrated out of fold by itself
    assert model.decide(X, cost=0.4).reject.mean() < model.decide(X).reject.mean()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    assert clone(model).estimator == "auto"


def test_a_calibration_that_is_asked_for_comes_on_top(noisy, monkeypatch):
    monkeypatch.setattr("demur.estimators.auto_classifier.CANDIDATES", CANDIDATES[2:3])
    model = RejectOption("auto", calibration="isotonic").fit(*noisy)
    assert model.calibrator_ is not None


def test_rules_that_need_rows_get_rows_that_the_blend_has_not_seen(monkeypatch):
    monkeypatch.setattr("demur.estimators.auto_classifier.CANDIDATES", CANDIDATES[2:3])
    X, y = load_breast_cancer(return_X_y=True)
    model = RejectOption("auto", rule=RiskControl(0.1, 0.1), guarantee_share=0.2).fit(X, y)
    assert len(model.estimator_.held_out_rows_) == len(X) - round(0.2 * len(X))


@pytest.mark.slow
def test_rare_classes():
    X, y = load_iris(return_X_y=True)
    keep = np.r_[0:50, 50:100, 100]  # one row of the third class
    model = AutoClassifier(NAMES, time_budget=None, cv=3, random_state=0).fit(X[keep], y[keep])
    assert model.predict_proba(X).shape == (150, 3)


def test_boosting_survives_a_class_of_two_rows(data_folder):
    """Without a penalty, leaves with one of the two rows take values that no later tree can undo."""
    frame = pd.read_csv(data_folder / "mixed" / "hypothyroid.csv.gz")
    y = frame.pop("class").to_numpy()
    numbers = frame.select_dtypes("number")
    codes = [pd.factorize(frame[name])[0] for name in frame if name not in numbers]
    X = np.column_stack([numbers.drop(columns="TBG"), *codes])
    assert (y == "secondary_hypothyroid").sum() == 2
    rows = np.random.RandomState(0).permutation(len(y))
    train, test = rows[:2800], rows[2800:]
    [boosting] = [candidate for candidate in CANDIDATES if candidate.key == "hgb"]
    task = candidates.Task(np.zeros(X.shape[1], dtype=bool), 0, None, smallest_class=2, n_other=X.shape[1])
    model = boosting.make(task).set_params(max_iter=100).fit(X[train], y[train])
    assert (model.predict(X[test]) != y[test]).mean() < 0.02


def test_a_blend_is_no_worse_than_the_class_frequencies(monkeypatch):
    class Wrong(ExtraTreesClassifier):
        def predict_proba(self, X):
            return np.where(np.arange(len(X))[:, None] % 2, [1.0, 0.0], [0.0, 1.0])

    wrong = candidates.CandidateModel("extra trees", "codes", lambda task: Wrong(3, random_state=0), "et")
    monkeypatch.setattr("demur.estimators.auto_classifier.CANDIDATES", (wrong,))
    X, y = make_classification(400, weights=[0.97], flip_y=0, random_state=0)
    model = AutoClassifier(time_budget=None, cv=2, random_state=0).fit(X, y)
    share = y.mean()
    log_loss = -np.log(model.held_out_proba_[np.arange(400), y[model.held_out_rows_]]).mean()
    assert log_loss < 1.1 * -(share * np.log(share) + (1 - share) * np.log(1 - share))


@pytest.mark.slow
def test_dask_workers_train_the_same_model(noisy):
    """Candidates and folds are trained on the workers where joblib uses Dask."""
    distributed = pytest.importorskip("distributed", reason='Dask is an optional extra: pip install "demur[dask]"')
    wanted = ("logistic regression", "extra trees", "gradient boosting", "networks")
    alone, together = (AutoClassifier(wanted, time_budget=None, cv=3, random_state=0) for _ in range(2))
    with distributed.Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as client:
        submitted = []
        submit = client.submit
        client.submit = lambda function, *rest, **options: submitted.append(rest) or submit(function, *rest, **options)
        with parallel_config(backend="dask", client=client):
            together.fit(*noisy)
    jobs = [pickle.loads(pickle.dumps(one)) for one in submitted if one]  # joblib submits one without arguments
    of_all_rows = [one.name for one in together.tried_ if one.weight and one.name != "networks"]
    expected = [*wanted[:3] * 3, *of_all_rows, "networks"]  # three folds, which networks train as one stack
    assert sorted(candidate.name for candidate, *_ in jobs) == sorted(expected)
    alone.fit(*noisy)
    np.testing.assert_allclose(together.predict_proba(noisy[0]), alone.predict_proba(noisy[0]), atol=1e-6)


def test_an_unknown_name():
    with pytest.raises(ValueError, match="classifier or \"auto\", got 'automatic'"):
        RejectOption("automatic").fit([[0.0], [1.0]], [0, 1])


def test_training_limits_native_threads_and_gives_them_back(monkeypatch):
    seen = []
    monkeypatch.setattr(
        AutoClassifier, "_blend", lambda *_: seen.extend(one["num_threads"] for one in threadpool_info())
    )
    with threadpool_limits(3):
        before = threadpool_info()
        AutoClassifier(("logistic regression",)).fit(*load_iris(return_X_y=True))
        assert max(seen) == 1
        assert threadpool_info() == before
