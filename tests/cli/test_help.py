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


def test_the_help_names_every_command(demur):
    words = demur("--help").text
    assert all(f" {name} " in words for name in COMMANDS)


def test_help_loads_nothing_heavy():
    """It answers at once, since what takes seconds to import is imported by the work itself."""
    code = "import sys, demur.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "typer" in loaded
    assert not {"torch", "sklearn", "scipy", "pyarrow", "pandas", "matplotlib", "jinja2", "onnx", "fastapi"} & {*loaded}


def test_every_option_is_explained_in_at_most_80_characters():
    from typer.main import get_command

    for command in get_command(app).commands.values():
        for option in command.params:
            if option.name != "help":
                assert option.help, (command.name, option.name)
                assert len(option.help) <= 80, (command.name, option.name, option.help)


def test_the_help_of_fit_fits_on_two_screens_in_panels(demur, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = demur("fit", "--help").text.splitlines()
    assert len(lines) <= 100
    panels = [line.strip("╭─╮ ") for line in lines if line.startswith("╭─")]
    assert panels[-7:] == ["Data", "Model", "Decision", "Validation", "Output", "Experts", "Cascade"]
