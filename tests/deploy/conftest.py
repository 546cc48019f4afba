"""The command line in this process, as in the tests of the commands; helpers beside the tests by name."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def demur():
    path = Path(__file__).parents[1] / "cli" / "conftest.py"
    spec = importlib.util.spec_from_file_location("cli_conftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run_demur
