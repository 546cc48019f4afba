"""The words are true: no rounding to certainty, and every way a choice can compare with answering everything."""

from hypothesis import given
from hypothesis import strategies as st

from demur.tabular import AnswerCounts
from demur.tabular.evaluation_figures import cost_words, headline, matrix_words, per_hundred, percent


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
    costs = (counts.risk(cost), n_wrong_if_all / counts.n_rows, cost)
    return headline(counts, costs, f"At cost {cost_words(cost)}")


def test_the_sentence_of_each_case():
    assert at_cost(AnswerCounts(1000, 913, 20), 0.2, 61) == (
        "At cost 0.2, the model answers 91.3 % of the rows, 97.8 % of those correctly, and declines 8.7 %; each 100 "
        "rows cost 3.7 instead of 6.1 if it answered all."
    )
    assert at_cost(AnswerCounts(100, 50, 0), 0.4, 10).endswith("cost 20.0, more than the 10.0 if it answered all.")
    assert at_cost(AnswerCounts(100, 50, 5), 0.1, 10).endswith("cost 10.0, as much as if it answered all.")
    assert at_cost(AnswerCounts(100, 100, 5), 0.1, 5) == (
        "At cost 0.1, the model answers every row, 95.0 % of them correctly; each 100 rows cost 5.0."
    )
    assert at_cost(AnswerCounts(100, 100, 20), 0.1, 20).endswith("cost 20.0, more than the 10.0 if it declined all.")
    assert at_cost(AnswerCounts(100, 0, 0), 0.0, 5) == (
        "At cost 0, the model answers no row and declines all of them; each 100 rows cost 0.0."
    )
    assert at_cost(AnswerCounts(100, 0, 0), 0.3, 5).endswith("cost 30.0, more than the 5.0 if it answered all.")


def test_the_comparison_is_with_the_better_of_answering_all_and_declining_all():
    """Of 1,000 rows 40 are answered, 8 of them wrongly; 476 would be wrong if all were answered."""
    words = at_cost(AnswerCounts(1000, 40, 8), 0.3, 476)
    assert words == (
        "At cost 0.3, the model answers 4.0 % of the rows, 80.0 % of those correctly, and declines 96.0 %; each 100 "
        "rows cost 29.6 instead of 30.0 if it declined all."
    )
    by_matrix = headline(AnswerCounts(100, 50, 5), (0.5, 0.9, 0.6), "By its cost matrix", matrix_words)
    assert by_matrix.startswith("By its cost matrix, the model answers 50.0 % of the rows")
    assert by_matrix.endswith("cost 50 instead of 60 if it declined all.")


@given(n_rows=st.integers(1, 300), cost=st.floats(0, 0.99), data=st.data())
def test_no_headline_flatters(n_rows, cost, data):
    """Whatever the counts: "instead of" only where the model is cheaper than both extremes."""
    n_answered = data.draw(st.integers(0, n_rows))
    n_wrong = data.draw(st.integers(0, n_answered))
    n_wrong_if_all = n_wrong + data.draw(st.integers(0, n_rows - n_answered))
    counts = AnswerCounts(n_rows, n_answered, n_wrong)
    words, risk = at_cost(counts, cost, n_wrong_if_all), counts.risk(cost)
    if " instead of " in words:
        assert risk < min(cost, n_wrong_if_all / n_rows)
    if ", more than " in words:
        assert risk > min(cost, n_wrong_if_all / n_rows)
