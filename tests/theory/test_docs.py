"""Every output in docs/theory.md is what the command prints."""

import doctest
import re
import shlex
from pathlib import Path

import pytest

from demur.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
COMMANDS = re.findall(r"```console\n\$ (demur check .*)\n((?:.*\n)*?)```", PAGE.read_text())


@pytest.mark.parametrize(("command", "shown"), COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands(command, shown, capsys):
    with pytest.raises(SystemExit) as leaving:
        app(shlex.split(command)[1:])
    assert leaving.value.code == (3 if shown.startswith("REFUTED") else 0)
    assert capsys.readouterr().out.strip() == shown.strip()


def test_python():
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=flags)
    assert tried > 10
    assert failed == 0


def test_figures_exist():
    for name in re.findall(r"\(figures/(theory-.*?\.png)\)", PAGE.read_text()):
        assert (PAGE.parent / "figures" / name).is_file()
