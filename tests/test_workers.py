"""Threads: how many there are, and what they may use."""

import os

import pytest

from demur.workers import free_cores, n_cores


@pytest.mark.parametrize(
    ("load", "cores", "machine", "free"),
    [(0.0, 2, 2, 2), (1.0, 2, 2, 2), (2.0, 2, 2, 1), (9.0, 2, 2, 1), (33.0, 4, 64, 2), (3.0, 8, 8, 6)],
)
def test_cores_that_others_use_are_not_free(monkeypatch, load, cores, machine, free):
    monkeypatch.setattr("demur.workers.n_cores", lambda: cores)
    monkeypatch.setattr(os, "cpu_count", lambda: machine)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    assert free_cores() == free


def test_where_the_load_is_unknown_all_cores_are_free(monkeypatch):
    monkeypatch.delattr(os, "getloadavg", raising=False)
    assert free_cores() == n_cores()
