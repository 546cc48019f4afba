"""DeferOption: its laws, its answers, and what it refuses."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.special import expit
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from demur import Chow, DeferOption, RejectOption
from demur.deferral import Expert, Votes
from demur.errors import InputError, InputTypeError
from demur.estimators import PrecomputedProbabilities

REASON = "demands argmax(predict_proba) == predict, which cannot hold where somebody else is asked"


def problem(n, seed=0, skill=2.0):
    """Two classes along the first feature; the expert is right where the second feature is large."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = (rng.random(n) < expit(2 * X[:, 0])).astype(int)
    able = expit(skill * X[:, 1])
    answers = np.where(rng.random(n) < able, y, 1 - y)
    return X, y, answers, able


def fitted(n=1500, seed=0, experts=None, answers=None, **parameters):
    X, y, expert, _ = problem(n, seed)
    model = DeferOption(LogisticRegression(), experts or {"nurse": 0.05}, **parameters)
    return model.fit(X, y, answers=expert if answers is None else answers), X, y, expert


@parametrize_with_checks(
    [DeferOption(LogisticRegression(), {"oracle": Expert(0.1, accuracy=1.0)}, cv=2)],
    expected_failed_checks=lambda estimator: {"check_classifiers_train": REASON},
)
def test_scikit_learn_check(estimator, check):
    check(estimator)


@pytest.mark.parametrize("cost", [0.0, 0.05, 0.2, 0.4])
def test_a_perfect_expert_is_chows_rule(cost):
    """Learned from answers or known beforehand, to the bit: labels, rejections and acceptance."""
    X, y, _, _ = problem(600)
    X_new = problem(3000, seed=1)[0]
    chow = RejectOption(LogisticRegression(), cost=cost, calibration="temperature").fit(X, y).decide(X_new)
    learned = DeferOption(LogisticRegression(), {"oracle": cost}).fit(X, y, answers=y).decide(X_new)
    known = DeferOption(LogisticRegression(), {"oracle": Expert(cost, accuracy=1.0)}).fit(X, y).decide(X_new)
    for decision in (learned, known):
        np.testing.assert_array_equal(decision.label, chow.label)
        np.testing.assert_array_equal(decision.reject, chow.reject)
        np.testing.assert_allclose(decision.acceptance, chow.acceptance, atol=1e-9)
        np.testing.assert_array_equal(decision.ask, np.where(chow.reject, 0, -1))


def test_ties_ask():
    X = np.array([[0.75, 0.25], [0.8, 0.2], [0.25, 0.75]])
    model = DeferOption(PrecomputedProbabilities([0, 1]), {"oracle": Expert(0.25, accuracy=1.0)}, calibration=None)
    decision = model.fit(X, [0, 0, 1]).decide(X)
    np.testing.assert_array_equal(decision.reject, Chow(0.25).decide(X).reject)
    assert decision.reject.tolist() == [True, False, True]


def test_who_is_asked_depends_on_who_is_right():
    model, _, _, _ = fitted(4000)
    X_new, y_new, expert_new, able = problem(4000, seed=1)
    assert model.reliability_["nurse"].kind == "features"
    assert np.abs(model.predict_right(X_new)[:, 0] - able).mean() < 0.03
    eta = expit(2 * X_new[:, 0])
    best = np.maximum(np.maximum(eta, 1 - eta), able - 0.05)
    assert np.mean(1 - best) <= -model.score(X_new, y_new, answers=expert_new) + 0.02
    assert -model.score(X_new, y_new, answers=expert_new) < np.mean(1 - best) + 0.02


def test_permuting_experts_permutes_decisions():
    X, y, good, _ = problem(800)
    rng = np.random.default_rng(5)
    answers = np.column_stack([good, rng.integers(0, 2, 800), np.where(rng.random(800) < 0.9, y, 1 - y)])
    names = ["nurse", "dice", "doctor"]
    prices = dict(zip(names, (0.02, 0.0, 0.15), strict=True))
    X_new = problem(500, seed=1)[0]
    first = DeferOption(LogisticRegression(), prices).fit(X, y, answers=answers)
    order = [2, 0, 1]
    permuted = {names[i]: prices[names[i]] for i in order}
    second = DeferOption(LogisticRegression(), permuted).fit(X, y, answers=answers[:, order])
    assert (first.route(X_new) == second.route(X_new)).all()
    assert len(set(first.route(X_new))) > 2
    np.testing.assert_array_equal(first.decide(X_new).costs[:, 2:][:, order], second.decide(X_new).costs[:, 2:])


def test_two_equal_experts_are_told_apart_by_name():
    X, y, _, _ = problem(300)
    for names in (["a", "b"], ["b", "a"]):
        model = DeferOption(GaussianNB(), {name: Expert(0.1, accuracy=1.0) for name in names}).fit(X, y)
        assert set(model.route(X)) == {"a", "model"}


def test_one_more_action_never_raises_the_expected_cost():
    """With an expert who cannot be asked (at an infinite price) the best action is at most as good."""
    X, y, good, _ = problem(800)
    dice = np.random.default_rng(5).integers(0, 2, 800)
    model = DeferOption(LogisticRegression(), {"nurse": 0.05, "dice": 0.0})
    model.fit(X, y, answers=np.column_stack([good, dice]))
    both = model.decide(X).costs.min(axis=1)
    alone = model.decide(X, prices={"dice": np.inf}).costs.min(axis=1)
    assert (both <= alone).all()


@pytest.mark.slow
@pytest.mark.parametrize("price", [0.0, 0.05])
def test_a_useless_expert_costs_nothing(price):
    """Over six draws the system's true cost with dice beside the nurse is that without, up to noise."""
    difference = []
    for seed in range(6):
        X, y, good, _ = problem(600, seed)
        dice = np.random.default_rng(seed + 100).integers(0, 2, 600)
        X_new, y_new, good_new, _ = problem(2000, seed + 1000)
        dice_new = np.random.default_rng(seed + 2000).integers(0, 2, 2000)
        alone = DeferOption(LogisticRegression(), {"nurse": 0.05}).fit(X, y, answers=good)
        both = DeferOption(LogisticRegression(), {"nurse": 0.05, "dice": price})
        both.fit(X, y, answers=np.column_stack([good, dice]))
        together = both.score(X_new, y_new, answers=np.column_stack([good_new, dice_new]))
        difference.append(alone.score(X_new, y_new, answers=good_new) - together)
    assert np.mean(difference) < 0.005


@pytest.mark.parametrize("depends", [False, True], ids=["at random", "on the features"])
@pytest.mark.slow
def test_missing_answers_do_not_bias_the_estimates(depends):
    """Three answers of four are missing; over twenty draws the estimates are not off on the mean by more than noise."""
    errors = []
    for seed in range(20):
        X, y, expert, _ = problem(1200, seed)
        rng = np.random.default_rng(seed + 50)
        seen = rng.random(1200) < (expit(X[:, 1] - 1.2) if depends else 0.25)
        model = DeferOption(LogisticRegression(), {"nurse": 0.05})
        model.fit(X, y, answers=np.where(seen, expert, np.nan))
        X_new, _, _, able = problem(1000, seed + 1000)
        errors.append((model.predict_right(X_new)[:, 0] - able).mean())
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(20) + 0.005
    assert np.std(errors) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("gaps", [False, True], ids=["every answer", "with gaps"])
def test_auto_learns_the_model_and_the_expert(gaps):
    """The blend knows both sides: the system costs less than the model alone and than always asking."""
    X, y, expert, _ = problem(800)
    answers = np.where(np.arange(800) % 2 == 0, expert, np.nan) if gaps else expert
    model = DeferOption("auto", {"nurse": 0.05}, time_budget=12).fit(X, y, answers=answers)
    X_new, y_new, expert_new, able = problem(3000, seed=1)
    assert np.abs(model.predict_right(X_new)[:, 0] - able).mean() < 0.12
    cost = -model.score(X_new, y_new, answers=expert_new)
    assert cost < (model.estimator_.predict(X_new) != y_new).mean()
    assert cost < 0.05 + (expert_new != y_new).mean()


def test_few_answers_get_a_simple_model():
    X, y, expert, _ = problem(400)
    answers = np.where(np.arange(400) < 12, expert, np.nan)
    model = DeferOption(LogisticRegression(), {"nurse": 0.05}).fit(X, y, answers=answers)
    tried = model.reliability_["nurse"].log_loss
    assert "features" not in tried
    assert model.reliability_["nurse"].kind == min(tried, key=tried.get)


def test_gaps_may_be_written_in_any_way():
    X, y, expert, _ = problem(150)
    names = np.array(["no", "yes"])
    gap = np.arange(150) % 3 == 0
    model = DeferOption(LogisticRegression(), {"nurse": 0.05}, cv=2)
    expected = model.fit(X, names[y], answers=np.where(gap, None, names[expert])).decide(X).costs
    text = names[expert].astype(object)
    text[gap] = np.nan
    ways = [
        text,
        text.tolist(),
        np.where(gap, "", names[expert]),
        np.ma.array(names[expert], mask=gap),
        pd.DataFrame({"other": 1, "nurse": pd.array(np.where(gap, None, names[expert]), dtype="string")}),
        {"nurse": text},
        {"nurse": Votes(np.eye(2)[expert] * ~gap[:, None])},
    ]
    for way in ways:
        np.testing.assert_allclose(clone(model).fit(X, names[y], answers=way).decide(X).costs, expected)


def test_several_people_behind_one_expert():
    """Three people of 0.7: one of them is right in 0.7 of the rows."""
    rng = np.random.default_rng(0)
    X, y, _, _ = problem(6000)
    people = np.where(rng.random((6000, 3)) < 0.7, y[:, None], 1 - y[:, None])
    one = DeferOption(GaussianNB(), {"team": 0.0}).fit(X, y, answers={"team": people})
    assert one.predict_right(X).mean() == pytest.approx(0.7, abs=0.015)


def test_predict_takes_the_answer_of_who_is_asked():
    X, y, good, _ = problem(800)
    answers = np.column_stack([good, y])
    model = DeferOption(LogisticRegression(), {"nurse": 0.02, "doctor": 0.2}).fit(X, y, answers=answers)
    route, said = model.route(X), model.predict(X, answers=answers)
    assert {"model", "nurse", "doctor"} == set(route)
    for number, name in enumerate(("nurse", "doctor")):
        assert (said[route == name] == answers[route == name, number]).all()
    decision = model.decide(X)
    assert (said[route == "model"] == decision.label[route == "model"]).all()
    waiting = model.predict(X)
    assert ((waiting == model.reject_label_) == decision.reject).all()
    half = model.predict(X, answers=np.where(np.arange(800)[:, None] % 2, answers, np.nan))
    assert ((half == -1) == (decision.reject & (np.arange(800) % 2 == 0))).all()
    mean_cost = np.mean((said != y) + np.select([route == "nurse", route == "doctor"], [0.02, 0.2], 0.0))
    assert model.score(X, y, answers=answers) == pytest.approx(-mean_cost)


def test_the_cheapest_action_is_taken():
    X, y, good, _ = problem(800)
    model = DeferOption(LogisticRegression(), {"nurse": 0.02, "doctor": Expert(0.2, accuracy=0.97)})
    model.fit(X, y, answers={"nurse": good})
    decision = model.decide(X)
    chosen = np.where(decision.ask < 0, decision.label, 2 + decision.ask)
    np.testing.assert_allclose(decision.costs[np.arange(800), chosen], decision.costs.min(axis=1))
    np.testing.assert_allclose(decision.costs[:, :2], 1 - model.predict_proba(X))
    np.testing.assert_allclose(decision.costs[:, 2:], np.array([0.02, 0.2]) + 1 - model.predict_right(X))
    assert decision.numpy().ask is not None


def test_prices_change_without_a_fit():
    model, X, _, _ = fitted(800)
    loads = [model.decide(X, prices={"nurse": price}).reject.mean() for price in (0.0, 0.1, 0.3, np.inf)]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] > loads[-1] == 0
    per_row = np.where(np.arange(800) < 400, 0.0, np.inf)
    mixed = model.decide(X, prices={"nurse": per_row}).reject
    assert (mixed[:400] == model.decide(X, prices=[0.0]).reject[:400]).all()
    assert not mixed[400:].any()
    model.set_params(experts={"nurse": 0.3})
    assert (model.decide(X).reject == model.decide(X, prices=[0.3]).reject).all()


def test_combining_the_answer_with_the_model_pays_where_both_know_something():
    """A model of 0.8 and an independent expert of 0.8 on three classes: together they are right more often."""
    rng = np.random.default_rng(0)

    def draw(n):
        y = rng.integers(0, 3, n)
        X = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
        answers = np.where(rng.random(n) < 0.8, y, rng.integers(0, 3, n))
        return X, y, answers

    (X, y, answers), (X_new, y_new, answers_new) = draw(1500), draw(10000)
    taken = DeferOption(LogisticRegression(), {"nurse": 0.0}).fit(X, y, answers=answers)
    combined = DeferOption(LogisticRegression(), {"nurse": 0.0}, combine=True).fit(X, y, answers=answers)
    assert combined.combines_ == {"nurse": True}
    assert combined.score(X_new, y_new, answers=answers_new) > taken.score(X_new, y_new, answers=answers_new) + 0.003
    dice = DeferOption(LogisticRegression(), {"dice": 0.0}, combine=True).fit(X, y, answers=rng.integers(0, 3, 1500))
    assert dice.score(X_new, y_new) < -0.05


def test_a_frozen_model_and_pipelines_and_forests():
    X, y, expert, _ = problem(600)
    frozen = FrozenEstimator(LogisticRegression().fit(X[:300], y[:300]))
    kept = DeferOption(frozen, {"nurse": 0.05}).fit(X[300:], y[300:], answers=expert[300:])
    assert kept.estimator_ is frozen
    assert "features" not in kept.reliability_["nurse"].log_loss
    own = DeferOption(frozen, {"nurse": Expert(0.05, model=LogisticRegression())})
    assert own.fit(X[300:], y[300:], answers=expert[300:]).reliability_["nurse"].kind == "features"
    table = pd.DataFrame(X, columns=["a", "b"])
    piped = DeferOption(make_pipeline(StandardScaler(), LogisticRegression()), {"nurse": 0.05})
    np.testing.assert_allclose(
        piped.fit(table, y, answers=pd.DataFrame({"nurse": expert})).predict_right(table),
        clone(piped).fit(X, y, answers=expert).predict_right(X),
    )
    trees = ExtraTreesClassifier(30, random_state=0)
    inside = make_pipeline(StandardScaler(), DeferOption(trees, {"nurse": 0.05}, cv=3))
    inside.fit(X, y, deferoption__answers=expert)
    assert np.isfinite(inside[-1].decide(X).costs).all()


def test_answers_are_routed():
    X, y, expert, _ = problem(400)
    with sklearn.config_context(enable_metadata_routing=True):
        model = make_pipeline(StandardScaler(), DeferOption(LogisticRegression(), {"nurse": 0.02}))
        scores = cross_validate(model, X, y, params={"answers": expert}, cv=3)["test_score"]
    assert (scores > -0.3).all()


def test_weights_count_as_copies_do():
    X, y, expert, _ = problem(200)
    model = DeferOption(LogisticRegression(), {"nurse": 0.05})
    weighted = clone(model).fit(X, y, answers=expert, sample_weight=np.full(200, 3.0))
    copied = clone(model).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3), answers=np.repeat(expert, 3))
    np.testing.assert_allclose(weighted.predict_right(X), copied.predict_right(X), atol=0.03)


def test_three_classes_by_name():
    rng = np.random.default_rng(0)
    y = np.array(["a", "b", "c"])[rng.integers(0, 3, 600)]
    X = rng.normal(size=(600, 2)) + np.column_stack([y == "a", y == "b"])
    expert = np.where(y == "c", "a", y)  # never says c
    model = DeferOption(GaussianNB(), {"nurse": 0.01}).fit(X, y, answers=expert)
    assert model.reject_label_ == "reject"
    assert set(model.predict(X)) <= {"a", "b", "c", "reject"}
    assert set(model.route(X)) == {"model", "nurse"}
    assert (model.predict(X, answers=expert) == y).mean() > (model.estimator_.predict(X) == y).mean()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": np.full(60, 7)}, "the answer 7 of 'nurse' in row 1 is not among the classes 0, 1"),
        ({"answers": np.full(60, np.nan)}, "there is no answer of the expert 'nurse'"),
        ({"answers": None}, "there is no answer of the expert 'nurse'"),
        ({"answers": np.zeros((60, 2))}, r"answers must have shape \(n_rows, 1\)"),
        ({"answers": np.zeros((59, 1))}, r"answers of 'nurse' must have shape \(60,\)"),
        ({"answers": {"doctor": np.zeros(60)}}, "answers of 'doctor' were given; the experts are nurse"),
        ({"answers": pd.DataFrame({"doctor": np.zeros(60)})}, "answers has no column 'nurse'"),
        ({"answers": {"nurse": Votes(-np.ones((60, 2)))}}, "must be counts"),
        ({"experts": {"nurse": -0.1}}, "at least 0, got -0.1"),
        ({"experts": {"nurse": np.nan}}, "must be a finite number"),
        ({"experts": {"nurse": "cheap"}}, "must be numbers, got 'cheap'"),
        ({"experts": {}}, "must be a mapping from names to prices"),
        ({"experts": ["nurse"]}, "must be a mapping from names to prices"),
        ({"experts": {"model": 0.1}}, "cannot be called 'model'"),
        ({"experts": {"yes": 0.1}, "y": np.array(["no", "yes"] * 30)}, "the expert 'yes' is named like a class"),
        ({"calibration": "magic"}, "calibration must be"),
        ({"y": np.zeros(60)}, "y holds only one class"),
    ],
)
def test_invalid_input_raises_clear_errors(change, message):
    X, y, expert, _ = problem(60)
    rows = {"X": X, "y": y, "answers": expert}
    parameters = {"experts": {"nurse": 0.1}}
    for name, value in change.items():
        (rows if name in rows else parameters)[name] = value
    with pytest.raises((InputError, InputTypeError), match=message):
        DeferOption(LogisticRegression(), **parameters).fit(**rows)


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ({"nurse": -1}, "the price of 'nurse' in row 1 is -1; give a number of at least 0"),
        ({"nurse": np.nan}, "the price of 'nurse' in row 1 is nan"),
        ({"doctor": 0.1}, "a price was given for 'doctor'; the experts are nurse"),
        ([0.1, 0.2], "prices must have shape"),
        ({"nurse": [0.1, 0.2]}, "must have shape () or (60,)"),
        ("cheap", "prices must be numbers"),
    ],
)
def test_invalid_prices_raise_clear_errors(prices, message):
    model, X, _, _ = fitted(60)
    with pytest.raises((InputError, InputTypeError), match=re.escape(message)):
        model.decide(X, prices=prices)


def test_an_expert_cannot_change_after_fit():
    model, X, _, _ = fitted(60)
    model.set_params(experts={"doctor": 0.1})
    with pytest.raises(InputError, match="the experts were changed after fit"):
        model.decide(X)


def pods(folder, name, part, method="cc"):
    """Stored class probabilities, the stored estimate that the human is right, labels and the human's answers."""
    table = pd.read_csv(folder / f"pods_{name}_{part}.csv.gz")
    own = [column for column in table if re.fullmatch(rf"{method}_p\d+", column)]
    compared = [column for column in table if re.fullmatch(r"cc_p\d+", column)]
    right = (table.cc_rej_score + table[compared].max(axis=1)).clip(0, 1)
    X = table[own].assign(wrong=1 - right, right=right)
    return X, table.label.to_numpy(), table[["human"]], own


def test_stored_outputs_of_others(data_folder):
    """System accuracy at price 0 from stored outputs alone; only the calibration rows are used for fitting."""
    accuracy = {}
    for name in ("cifar10h", "hatespeech", "synth"):
        X, y, human, columns = pods(data_folder / "deferral", name, "cal")
        X_test, y_test, human_test, _ = pods(data_folder / "deferral", name, "test")
        stored, right = (
            make_pipeline(ColumnTransformer([("proba", "passthrough", own)]), PrecomputedProbabilities(classes))
            for own, classes in ((columns, np.unique(y)), (["wrong", "right"], [0, 1]))
        )
        model = DeferOption(stored, {"human": Expert(0.0, model=right)})
        model.fit(X, y, answers=human)
        accuracy[name] = (model.predict(X_test, answers=human_test) == y_test).mean()
    assert accuracy["cifar10h"] >= 0.978 - 0.0033
    assert accuracy["hatespeech"] >= 0.9274 - 0.0037
    assert accuracy["synth"] >= 0.830
    assert np.mean(list(accuracy.values())) >= np.mean([0.9780, 0.9211, 0.8304])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "deferred", "combined"), [("resnet110", 0.9712, 0.9735), ("preresnet110", 0.9741, 0.9766)]
)
def test_counts_of_votes_of_fifty_people(network, deferred, combined, data_folder):
    """On ten halvings of CIFAR-10H, at least as right as the stored thresholds and combination."""
    table = pd.read_csv(data_folder / "deferral" / "cifar10h_nets.csv.gz")
    X = table[[f"{network}_p{k}" for k in range(10)]].to_numpy()
    X, y, votes = (
        X / X.sum(axis=1, keepdims=True),
        table.label.to_numpy(),
        table[[f"h{k}" for k in range(10)]].to_numpy(),
    )
    taken, together = [], []
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(y))
        fit, test = order[:5000], order[5000:]
        share = votes[test, y[test]] / votes[test].sum(axis=1)
        for combine, found in ((False, taken), (True, together)):
            model = DeferOption(PrecomputedProbabilities(np.arange(10)), {"human": 0.0}, combine=combine)
            model.fit(X[fit], y[fit], answers={"human": Votes(votes[fit])})
            decision = model.decide(X[test])
            hit = share
            if combine:
                answers = (model._estimates(X[test])[0][:, :, None] * model.confusion_["human"]).argmax(axis=1)
                hit = (votes[test] * (answers == y[test][:, None])).sum(axis=1) / votes[test].sum(axis=1)
            found.append(np.where(decision.reject, hit, decision.label == y[test]).mean())
    for found, stored in ((taken, deferred), (together, combined)):  # within two standard errors of ten halvings
        assert np.mean(found) >= stored - 2 * np.std(found, ddof=1) / np.sqrt(len(found))


@pytest.mark.parametrize("right", [True, False])
def test_few_answers_are_never_certain(right):
    """Half an answer of the other kind counts always: 5 right ones of 5 are a share of 5.5 / 6."""
    X, y, _, _ = problem(200)
    answers = np.where(np.arange(200) < 5, y if right else 1 - y, np.nan)
    found = DeferOption(LogisticRegression(), {"expert": 0.1}).fit(X, y, answers=answers).predict_right(X)
    assert ((found > 0.5) == right).all()
    assert (np.abs(found - 0.5) < 0.49).all()
