"""Threads: how many there are, and what they may use."""

import os

import pytest
from threadpoolctl import threadpool_info

from demur.workers import free_cores, n_cores, native_threads


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


@pytest.mark.parametrize(("n_rows", "limit"), [(164, 1), (100_000, 3)])
def test_native_threads_are_limited_and_given_back(monkeypatch, n_rows, limit):
    monkeypatch.setattr("demur.workers.free_cores", lambda: 3)
    before = [library["num_threads"] for library in threadpool_info()]
    with native_threads(n_rows):
        assert all(library["num_threads"] <= limit for library in threadpool_info())
    assert [library["num_threads"] for library in threadpool_info()] == before
