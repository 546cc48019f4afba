"""Label shift: known shifts of known distributions are found, and where there is none nothing happens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from demur.datasets import GaussianClasses, make_gaussian_classes
from demur.label_shift import LabelShift, LabelShiftWarning, correct_proba


def shifted(classes, prior):
    return GaussianClasses(classes.means, classes.variance, prior)


@st.composite
def problems(draw: st.DrawFn) -> tuple[GaussianClasses, np.ndarray, int]:
    """Gaussian classes, other frequencies for them, and a seed."""
    n_classes, seed = draw(st.integers(2, 5)), draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    classes = make_gaussian_classes(n_classes, 2, spread=1.5, seed=rng)
    train = shifted(classes, rng.dirichlet(np.full(n_classes, 5.0)))
    return train, rng.dirichlet(np.full(n_classes, 3.0)) * 0.9 + 0.1 / n_classes, seed


@given(problems())
def test_the_correction_is_exact_and_goes_back(problem):
    train, new_prior, seed = problem
    X, _ = train.sample(n=50, seed=seed)
    proba = train.posterior(X)
    corrected = correct_proba(proba, train.prior, new_prior)
    np.testing.assert_allclose(corrected, shifted(train, new_prior).posterior(X), atol=1e-9)
    np.testing.assert_allclose(correct_proba(corrected, new_prior, train.prior), proba, atol=1e-9)
    np.testing.assert_allclose(correct_proba(proba, train.prior, train.prior), proba)


@given(problems())
@settings(max_examples=30)
def test_a_known_shift_is_recovered_within_its_standard_error(problem):
    train, new_prior, seed = problem
    X, _ = shifted(train, new_prior).sample(n=4000, seed=seed)
    shift = LabelShift(train.prior).fit(train.posterior(X))
    assert (np.abs(shift.new_prior_ - new_prior) < 4.5 * shift.standard_error_ + 2e-3).all()
    np.testing.assert_allclose(shift.transform(train.posterior(X)).mean(axis=0), shift.new_prior_, atol=1e-3)


@given(problems())
@settings(max_examples=20)
@pytest.mark.filterwarnings("ignore::demur.label_shift.LabelShiftWarning")
def test_it_is_the_maximum_of_the_likelihood(problem):
    train, new_prior, seed = problem
    X, _ = shifted(train, new_prior).sample(n=300, seed=seed)
    ratios = train.posterior(X) / train.prior
    found = LabelShift(train.prior).fit(train.posterior(X)).new_prior_

    def loss(logits):
        q = np.exp(logits - logits.max())
        return -np.log(ratios @ (q / q.sum())).sum()

    best = minimize(loss, np.log(np.maximum(found, 1e-6)), method="BFGS").fun
    assert -np.log(ratios @ found).sum() <= best + 2e-3


def test_standard_errors_are_those_over_samples_and_tests_of_no_shift_err_as_often_as_they_say():
    classes = make_gaussian_classes(3, 2, spread=0.8, seed=1)
    fits = []
    for seed in range(200):
        X, _ = classes.sample(n=500, seed=seed)
        fits.append(LabelShift(classes.prior).fit(classes.posterior(X)))
    spread = np.std([fit.new_prior_ for fit in fits], axis=0)
    np.testing.assert_allclose(np.mean([fit.standard_error_ for fit in fits], axis=0), spread, rtol=0.15)
    assert np.sum([fit.p_value_ < 0.1 for fit in fits]) <= 33  # 20 expected, three standard deviations
    assert np.mean([fit.distance_ for fit in fits]) < 0.1


@given(st.integers(0, 2**16))
def test_probabilities_whose_mean_is_the_prior_are_unchanged(seed):
    proba = np.random.default_rng(seed).dirichlet(np.ones(3), size=40)
    shift = LabelShift(proba.mean(axis=0)).fit(proba)
    assert shift.distance_ == pytest.approx(0, abs=1e-12)
    assert shift.p_value_ == pytest.approx(1)
    np.testing.assert_allclose(shift.transform(proba), proba)


def test_certain_rows_are_counted():
    proba = np.eye(3)[np.repeat([0, 1, 2], [10, 30, 60])]
    with pytest.warns(LabelShiftWarning, match="100% of the rows have a probability of exactly 1"):
        shift = LabelShift(np.full(3, 1 / 3)).fit(proba)
    np.testing.assert_allclose(shift.new_prior_, [0.1, 0.3, 0.6])
    np.testing.assert_allclose(shift.standard_error_, np.sqrt([0.09 / 100, 0.21 / 100, 0.24 / 100]))


def test_a_shift_lowers_the_cost_of_wrong_frequencies():
    """With the training frequencies the decisions are worse than with those found among the unlabelled rows."""
    train = make_gaussian_classes(4, 2, spread=1.0, seed=3)
    new = shifted(train, [0.85, 0.05, 0.05, 0.05])
    X, y = new.sample(n=3000, seed=0)
    proba = train.posterior(X)
    shift = LabelShift(train.prior).fit(proba)
    error, corrected = (np.mean(p.argmax(axis=1) != y) for p in (proba, shift.transform(proba)))
    assert corrected < 0.8 * error
    assert shift.p_value_ < 1e-6
    text = shift.explain()
    for words in ("3,000 unlabelled rows there is a shift", "most of all class 0, from 0.250 to 0.8"):
        assert words in text


def test_no_shift_is_called_no_shift():
    classes = make_gaussian_classes(4, 2, spread=1.0, seed=3)
    X, _ = classes.sample(n=2000, seed=2)
    assert "there is no significant shift" in LabelShift(classes.prior).fit(classes.posterior(X)).explain()


def test_warnings():
    classes = GaussianClasses([[-2.0], [0.0], [2.0]], 0.2)
    X, _ = shifted(classes, [0.4999, 0.5, 1e-4]).sample(n_per_class=[200, 200, 1], seed=0)
    near = classes.posterior(X[X[:, 0] < 0.3])
    with pytest.warns(LabelShiftWarning, match=r"class 2 is estimated to have less than one of \d+ rows"):
        LabelShift(classes.prior).fit(near)


@pytest.mark.parametrize(
    ("proba", "prior", "message"),
    [
        (np.empty((0, 2)), [0.5, 0.5], r"with at least one row, got \(0, 2\)"),
        ([0.5, 0.5], [0.5, 0.5], r"must have shape \(n, n_classes\)"),
        ([[0.5, np.nan]], [0.5, 0.5], "NaN or infinity"),
        ([[0.5, 0.5]], [0.5, 0.3, 0.2], r"one entry for each of the 2 classes, got \(3,\)"),
        ([[0.5, 0.5]], [0.5, 0.6], r"frequencies that sum to 1, got \[0\.5, 0\.6\]"),
        ([[0.5, 0.5]], [1.5, -0.5], "frequencies that sum to 1"),
        ([[0.5, 0.5]], [1.0, 0.0], "positive for every class"),
        ([[0.5, 0.5]], [np.nan, 0.5], "frequencies that sum to 1"),
    ],
)
def test_bad_input(proba, prior, message):
    with pytest.raises(ValueError, match=message):
        LabelShift(prior).fit(proba)


def test_a_row_that_is_certain_of_a_class_that_cannot_occur():
    assert correct_proba([[0.5, 0.5]], [0.5, 0.5], [1.0, 0.0]).tolist() == [[1.0, 0.0]]
    with pytest.raises(ValueError, match="row 1 has all its probability in classes whose new_prior is 0"):
        correct_proba([[0.0, 1.0]], [0.5, 0.5], [1.0, 0.0])


@pytest.mark.filterwarnings("ignore::demur.label_shift.LabelShiftWarning")
@pytest.mark.parametrize("n_rows", [1, 50])
def test_rows_that_do_not_tell_classes_apart_give_the_largest_standard_error(n_rows):
    shift = LabelShift([0.6, 0.4]).fit([[0.6, 0.4]] * n_rows)
    np.testing.assert_allclose(shift.standard_error_, 0.5)
    assert "± 0.500" in shift.explain()
    rows = [[0.5, 0.25, 0.25], [0.2, 0.4, 0.4]] * 30  # which tell the first class from the others only
    known, *unknown = LabelShift([1 / 3, 1 / 3, 1 / 3]).fit(rows).standard_error_
    assert known < 0.3
    assert unknown == [0.5, 0.5]
