"""Metrics of model and experts together, against values to check by hand."""

import pytest

from demur.deferral import expert_load, system_accuracy
from demur.errors import InputError


def test_accuracy_and_load_are_shares_of_the_rows():
    ask = [-1, 0, 1, 1]
    assert system_accuracy([0, 1, 2, 2], [0, 1, 2, 0]).estimate == 0.75
    load = expert_load(ask, 2)
    assert load.estimate.tolist() == [0.25, 0.5]
    assert (load.low < load.estimate).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: system_accuracy([0, 1], [0]), "must be of one shape"),
        (lambda: expert_load([2], 1), "numbers of experts from 0 to 0"),
        (lambda: expert_load([0.5], 1), "numbers of experts"),
    ],
)
def test_hostile_input_is_refused_in_words(call, message):
    with pytest.raises(InputError, match=message):
        call()
