"""What every command's help has, and what it does not need."""

import subprocess
import sys

import pytest

from demur.cli.app import app

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example(demur, name):
    result = demur(name, "--help")
    assert result.code == 0
    words = " ".join(result.text.split())
    assert f"Example: demur {name}" in words
    assert demur("--help").text.count(f" {name} ") >= 1


def test_help_loads_nothing_heavy():
    """It answers at once, since what takes seconds to import is imported by the work itself."""
    code = "import sys, demur.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "typer" in loaded
    assert not {"torch", "sklearn", "scipy", "pyarrow", "pandas", "matplotlib", "jinja2", "onnx", "fastapi"} & {*loaded}
