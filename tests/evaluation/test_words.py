"""The words are true: no rounding to certainty, and every way a choice can compare with answering everything."""

from hypothesis import given
from hypothesis import strategies as st

from demur.tabular import Counts
from demur.tabular.words import headline, per_hundred, percent


@given(whole=st.integers(1, 10**6), data=st.data())
def test_only_all_is_a_hundred_and_only_none_is_zero(whole, data):
    part = data.draw(st.integers(0, whole))
    text = percent(part / whole)
    assert (text == "100.0 %") == (part == whole)
    assert (text == "0.0 %") == (part == 0)
    if text[0] not in "<>":
        assert abs(float(text.removesuffix(" %")) - 100 * part / whole) <= 0.05 + 1e-9
    assert (per_hundred(part / whole) == "0.0") == (part == 0)


def test_the_sentence_of_each_case():
    assert headline(Counts(1000, 913, 20), 0.2, 61) == (
        "At cost 0.2, the model answers 91.3 % of the rows, 97.8 % of those correctly, and hands on 8.7 %; each 100 "
        "rows cost 3.7 instead of 6.1 if it answered all."
    )
    assert headline(Counts(100, 50, 0), 0.4, 10).endswith("cost 20.0, more than the 10.0 if it answered all.")
    assert headline(Counts(100, 50, 5), 0.1, 10).endswith("cost 10.0, as much as if it answered all.")
    assert headline(Counts(100, 100, 5), 0.1, 5) == (
        "At cost 0.1, the model answers every row, 95.0 % of them correctly; each 100 rows cost 5.0."
    )
    assert headline(Counts(100, 0, 0), 0.0, 5) == (
        "At cost 0, the model answers no row and hands on all of them; each 100 rows cost 0.0 instead of 5.0 if it "
        "answered all."
    )
