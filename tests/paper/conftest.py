"""A small experiment that takes a second: few rows, few epochs, every kind of method."""

from dataclasses import replace

import pytest

from demur.paper.experiments import BENCHMARK, SYNTHETIC
from demur.paper.problems import DataPlace


@pytest.fixture(scope="session")
def place():
    """Stand-ins only: no test here depends on what lies on the machine."""
    return DataPlace("/nonexistent", stand_ins=True)


@pytest.fixture(scope="session")
def benchmark():
    protocol = replace(
        BENCHMARK.protocol, epochs=2, trials=2, costs=(0.1, 0.3), max_train_rows=150, max_test_rows=200, hidden_units=5
    )
    small = BENCHMARK.only(problems=("vehicle", "yeast"), methods=("MPC+log", "CE", "OVA+hin", "BEP"))
    return replace(small, protocol=protocol, quick=True)


@pytest.fixture(scope="session")
def synthetic():
    protocol = replace(SYNTHETIC.protocol, epochs=2, trials=2, costs=(0.1, 0.3), n_test=500)
    small = SYNTHETIC.only(methods=("MPC+log+acc", "OVA+log", "CE"))
    return replace(small, problems=("20", "50"), protocol=protocol, quick=True)
