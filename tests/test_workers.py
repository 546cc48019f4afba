"""The clock of time budgets."""

import pytest

from demur.workers import BusyClock


def test_the_clock_does_not_count_what_other_programs_took(monkeypatch):
    now = {"wall": 0.0, "own": 0.0, "all": 0.0}
    monkeypatch.setattr("demur.workers.n_cores", lambda: 2)
    monkeypatch.setattr("demur.workers._busy_seconds", lambda: now["all"])
    monkeypatch.setattr("demur.workers.time.monotonic", lambda: now["wall"])
    monkeypatch.setattr("demur.workers.time.process_time", lambda: now["own"])
    clock = BusyClock()
    now.update(wall=0.01)
    assert clock.in_wall_time(7.0) == pytest.approx(7.0)  # right after the start too
    now.update(wall=5.0, own=7.0, all=7.0)
    assert clock() == 5.0  # a quiet machine, although a core was idle for 3 seconds
    now.update(wall=10.0, own=11.0, all=17.0)
    assert clock() == 7.0  # others took 6 of 10 seconds of two cores
    assert clock.in_wall_time(7.0) == pytest.approx(10.0)
    now.update(wall=20.0, own=16.0, all=27.0)
    assert clock() == 17.0  # others took 5 seconds, but a core was idle for 10
    now.update(wall=100.0, own=17.0, all=300.0)
    assert clock() == 50.0  # at least half as fast as wall time
