"""Deciding piece by piece: order, bounds and failures."""

import itertools
import threading

import pytest

from demur.tabular.decide_files import _IN_FLIGHT, Decided, _in_order


def test_results_come_in_order_and_few_at_a_time():
    read, finished = itertools.count(), []
    most = 0

    def chunks():
        nonlocal most
        for chunk in range(50):
            most = max(most, next(read) + 1 - len(finished))
            yield chunk

    results = _in_order(lambda chunk: chunk * chunk, chunks())
    while (value := next(results, None)) is not None:
        finished.append(value)
    assert finished == [k * k for k in range(50)]
    assert most <= _IN_FLIGHT


def test_a_failure_ends_the_work_and_its_threads():
    before = threading.active_count()

    def fail_at_five(chunk):
        if chunk == 5:
            raise ValueError("five")
        return chunk

    found = []
    with pytest.raises(ValueError, match="five"):
        found += list(_in_order(fail_at_five, range(1_000_000)))
    assert threading.active_count() == before


def test_counts_add_up():
    assert Decided(3, 1) + Decided(2, 2) == Decided(5, 3)
