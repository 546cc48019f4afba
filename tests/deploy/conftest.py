"""The command line in this process, as in the tests of the commands."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def demur():
    path = Path(__file__).parents[1] / "cli" / "conftest.py"
    spec = importlib.util.spec_from_file_location("cli_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run_demur
