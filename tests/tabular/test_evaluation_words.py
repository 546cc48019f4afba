"""The words are true: no rounding to certainty, and the headline of each case."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from demur.rules import CostMatrix, Decision
from demur.tabular import AnswerCounts, Evaluation
from demur.tabular.evaluation_figures import per_hundred, percent


@given(whole=st.integers(1, 10**6), data=st.data())
def test_only_all_is_a_hundred_and_only_none_is_zero(whole, data):
    part = data.draw(st.integers(0, whole))
    text = percent(part / whole)
    assert (text == "100.0 %") == (part == whole)
    assert (text == "0.0 %") == (part == 0)
    if text[0] not in "<>":
        assert abs(float(text.removesuffix(" %")) - 100 * part / whole) <= 0.05 + 1e-9
    assert (per_hundred(part / whole) == "0.0") == (part == 0)


def at_cost(counts, cost, n_wrong_if_all):
    """Return the headline of so many answers, of which some are wrong, as rows with two classes."""
    answered = np.arange(counts.n_rows) < counts.n_answered
    wrong = np.arange(counts.n_rows) < counts.n_wrong
    wrong[counts.n_rows - (n_wrong_if_all - counts.n_wrong) :] = True
    acceptance = np.where(answered, 1.0, -1.0)
    decision = Decision.from_acceptance(np.zeros(counts.n_rows, dtype=int), acceptance)
    return Evaluation(("a", "b"), wrong.astype(np.int64), decision, cost).headline()


def test_the_sentence_of_each_case():
    assert at_cost(AnswerCounts(1000, 913, 20), 0.2, 61) == (
        "At cost 0.2, the model answers 91.3 % of the rows, 97.8 % of those correctly, and declines 8.7 %; each 100 "
        "rows cost 3.7."
    )
    assert at_cost(AnswerCounts(100, 100, 5), 0.1, 5) == (
        "At cost 0.1, the model answers every row, 95.0 % of them correctly; each 100 rows cost 5.0."
    )
    assert at_cost(AnswerCounts(100, 0, 0), 0.0, 5) == (
        "At cost 0, the model answers no row and declines all of them; each 100 rows cost 0.0."
    )


def test_a_cost_matrix_has_its_own_unit():
    decision = Decision.from_acceptance(np.array([0, 0, 1, 1]), np.array([1.0, -1.0, 1.0, 1.0]))
    rule = CostMatrix([[0, 100, 20], [500, 0, 20]])
    words = Evaluation(("a", "b"), np.array([0, 0, 1, 0]), decision, None, rule=rule).headline()
    assert words.startswith("By its cost matrix, the model answers 75.0 % of the rows")
    assert words.endswith("each 100 rows cost 3,000.")
