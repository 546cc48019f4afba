"""AnswerClassifier: how often an answer is right, given its confidence, from few rows, odd ones and many."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

from demur import AnswerClassifier, RejectOption, RiskControl
from demur.errors import InputError

LABELS = np.array(["a", "b", "c", "d"])


def simulated(n_rows, seed, missing=0.0):
    """Return rows of answers and confidences, true labels, and the true probability of being right.

    The answer "d" is much less reliable than its confidence says.
    """
    rng = np.random.default_rng(seed)
    answer, sure = rng.integers(4, size=n_rows), rng.beta(5, 2, n_rows).round(2)
    right = expit(5 * sure - 2 - 2.5 * (answer == 3))
    truth = np.where(rng.random(n_rows) < right, answer, (answer + rng.integers(1, 4, n_rows)) % 4)
    said = np.where(rng.random(n_rows) < missing, np.nan, sure)
    return np.column_stack([LABELS[answer].astype(object), said]), LABELS[truth], right


def chance(model, X):
    """Return the probability that the answer is right."""
    column = np.searchsorted(model.classes_, X[:, 0].astype(str))
    return model.predict_proba(X)[np.arange(len(X)), column]


@pytest.mark.parametrize(("n_rows", "distance"), [(30, 0.25), (300, 0.10), (30_000, 0.02)])
def test_few_rows_do_not_overfit_and_many_are_learned(n_rows, distance):
    X, _, right = simulated(5000, 100)
    found = [
        chance(AnswerClassifier().fit(*simulated(n_rows, seed)[:2]), X) for seed in range(10 if n_rows < 999 else 1)
    ]
    assert np.mean([np.abs(one - right).mean() for one in found]) < distance
    assert all(one.min() > 0.01 and one.max() < 0.995 for one in found)


@pytest.mark.parametrize("scale", [lambda c: 100 * c, lambda c: np.log(c + 1e-3), lambda c: 7 - 1e6 * (1 - c)])
def test_any_increasing_scale_will_do(scale):
    X, y, _ = simulated(2000, 0)
    other = np.column_stack([X[:, 0], scale(X[:, 1].astype(float))])
    one, two = (chance(AnswerClassifier().fit(rows, y), rows) for rows in (X, other))
    assert np.abs(one - two).max() < 0.04


def test_it_is_monotone_in_the_confidence_and_flat_outside():
    X, y, _ = simulated(500, 0)
    model = AnswerClassifier().fit(X, y)
    grid = np.column_stack([np.full(50, "b", dtype=object), np.r_[-np.inf, -9, np.linspace(0, 1, 46), 1.5, 2]])
    found = chance(model, grid)
    assert (np.diff(found) >= 0).all()
    assert found[0] == found[1] < found[-2] == found[-1]


def test_percentages_are_refused_by_a_model_of_fractions():
    X, y, _ = simulated(500, 0)
    model = AnswerClassifier().fit(X, y)
    X[3, 1] = 97.0
    with pytest.raises(InputError, match="row 4 has the confidence 97, but training confidences are at most 1:"):
        model.predict_proba(X)
    X[:, 1] = 97.0
    assert AnswerClassifier().fit(X, y).predict_proba(X).shape == (500, len(LABELS))


def test_probabilities_are_refused_by_a_model_of_log_probabilities():
    X, y, _ = simulated(500, 0)
    X[:, 1] = np.log(X[:, 1].astype(float) * 0.99)
    model = AnswerClassifier().fit(X, y)
    X[:2, 1] = [0.0, 1e-9]
    assert np.isfinite(model.predict_proba(X)).all()
    X[2, 1] = 0.9
    with pytest.raises(InputError, match=r"row 3 has the confidence 0\.9, but training confidences are at most -0\.0"):
        model.predict_proba(X)
    X[:, 1] = np.nan  # a model without confidences ignores them
    without = AnswerClassifier().fit(X, y)
    X[:, 1] = 0.9
    assert len(np.unique(without.predict_proba(X).max(axis=1).round(9))) <= len(LABELS)


def test_missing_and_constant_confidences():
    X, y, right = simulated(4000, 0, missing=0.3)
    model = AnswerClassifier().fit(X, y)
    gaps = np.array([value != value for value in X[:, 1]])
    found = chance(model, X)
    for letter in LABELS:
        own = gaps & (X[:, 0] == letter)
        assert np.ptp(found[own]) == 0
        assert abs(found[own].mean() - right[own].mean()) < 0.05
    for value in (np.nan, None, 0.7):
        X[:, 1] = value
        alone = chance(AnswerClassifier().fit(X, y), X)
        rates = {letter: (y == letter)[X[:, 0] == letter].mean() for letter in LABELS}
        assert np.abs(alone - [rates[letter] for letter in X[:, 0]]).max() < 0.02
        assert np.isfinite(model.predict_proba(X)).all()


def test_answers_that_are_no_class_or_were_never_given():
    X, y, _ = simulated(600, 0)
    y = np.where(y == "c", "never", y)  # a label that is never the answer; and "c" is now no class
    model = AnswerClassifier().fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "d", "never"]
    strange = model.predict_proba([["c", 1.0], ["what?", 1.0], [None, 1.0], [np.nan, np.nan]])
    assert (strange == 0.25).all()
    unasked = model.predict_proba([["never", 0.9], ["a", 0.9]])
    assert 0.3 < unasked[0, 3] < 0.99  # the curve of an average answer
    assert unasked[1, 3] > 0
    with pytest.raises(InputError, match="no answer equals a true class such as 'x'"):
        AnswerClassifier().fit(X, np.where(y == "a", "x", "z"))


@pytest.mark.parametrize("always", [True, False])
def test_all_right_and_all_wrong(always):
    truth = np.array(["yes", "no"] * 15)
    answer = truth if always else truth[::-1]
    model = AnswerClassifier().fit(np.column_stack([answer.astype(object), np.linspace(0, 1, 30)]), truth)
    found = model.predict_proba([["yes", 1.0]])[0, 1]
    assert (0.9 < found < 0.999) if always else (0.001 < found < 0.2)


def test_samples_vote():
    rng = np.random.default_rng(0)
    truth = rng.choice(LABELS, 3000)
    ease = rng.beta(3, 2, (3000, 1))
    samples = np.where(rng.random((3000, 5)) < ease, truth[:, None], rng.choice(LABELS, (3000, 5))).astype(object)
    samples[rng.random((3000, 5)) < 0.1] = None
    model = AnswerClassifier(confidence=False).fit(samples, truth)
    some = [["a", "b", "b", "a", None], ["b", "a", None, None, None], [None] * 5, ["a"] * 5, ["b", "a", "a", "a", "b"]]
    said, share = model._read(some)
    assert said.tolist() == [0, 1, 4, 0, 0]
    assert share[[0, 1, 3, 4]].tolist() == [0.4, 0.2, 1.0, 0.6]
    proba = model.predict_proba(samples)
    right = model.classes_[proba.argmax(axis=1)] == truth
    for part in np.array_split(np.argsort(proba.max(axis=1)), 6):
        assert abs(proba[part].max(axis=1).mean() - right[part].mean()) < 0.06


def test_labels_of_other_types_and_frames():
    X, y, _ = simulated(400, 0)
    numbers = {letter: number for number, letter in enumerate(LABELS)}
    frame = pd.DataFrame({"answer": [float(numbers[one]) for one in X[:, 0]], "sure": X[:, 1].astype(float)})
    model = AnswerClassifier().fit(frame, [numbers[one] for one in y])
    assert np.allclose(model.predict_proba(frame), AnswerClassifier().fit(X, y).predict_proba(X), atol=1e-6)
    assert set(model.predict(frame)) <= {0, 1, 2, 3}
    with pytest.raises(InputError, match="must hold the confidences, as numbers"):
        AnswerClassifier().fit(X[:, ::-1], y)
    with pytest.raises(InputError, match="as many as in fit; got the shape"):
        model.predict_proba(frame[["answer"]])


@pytest.mark.slow
def test_a_guarantee_holds_on_new_rows():
    X, y, _ = simulated(20_000, 7)
    kept = 0
    for seed in range(20):
        rows, truth, _ = simulated(2000, seed)
        model = RejectOption(AnswerClassifier(), rule=RiskControl(0.25, delta=0.1), calibration=None)
        decision = model.fit(rows, truth, groups=np.arange(2000)).decide(X)
        wrong = model.classes_[decision.label] != y
        kept += wrong[~decision.reject].mean() <= 0.25
    assert kept >= 16  # 18 of 20 are expected at the least; 15 or fewer have a probability of 4 %
