"""The hostile files, made once."""

import functools
import importlib.util
from pathlib import Path

import pytest


@functools.cache
def load_hostile():
    spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("hostile.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def files():
    return load_hostile().hostile_files()


def pytest_generate_tests(metafunc):
    if "hostile_file" in metafunc.fixturenames:
        metafunc.parametrize("hostile_file", list(files().items()), ids=list(files()))


@pytest.fixture(scope="session")
def refused():
    """Return the names of files in which there is no table."""
    return load_hostile().REFUSED
