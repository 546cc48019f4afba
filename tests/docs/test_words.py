"""The words of the pages: spelt right, in British English, and without claims that the code does not keep."""

import re
import subprocess
import sys
import tomllib

from page_blocks import PAGES, ROOT, name_of

ALL = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
AMERICAN = re.compile(
    r"\b(behavior|color|center|minimiz|maximiz|optimiz|normaliz|standardiz|generaliz|regulariz|initializ|recogniz|organiz"
    r"|neighbor|labeled|modeling|artifact|license[sd]?\b(?= of)|gray)\w*",
    re.IGNORECASE,
)


def test_spelling():
    paths = [str(path) for path in (*ALL, *EXAMPLES)]
    result = subprocess.run(
        [sys.executable, "-m", "codespell_lib", "--ignore-words-list", "probly", *paths],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr


def test_british_spelling():
    american = []
    for page in ALL:
        prose = re.sub(r"^```.*?^```$|`[^`]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        american += [f"{name_of(page)}: {found[0]}" for found in AMERICAN.finditer(prose)]
    assert not american


def test_the_architecture_page_has_the_layers_that_are_checked():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = next(c["layers"] for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    page = (ROOT / "ARCHITECTURE.md").read_text()
    table = page[page.index("| layer |") : page.index("Three more rules")]
    rows = [line.split("|")[1].replace("`", "").strip() for line in table.splitlines() if line.startswith("| `")]
    assert [set(row.split(" : ")) for row in rows] == [
        set(layer.split(" | ")) for layer in reversed(layers) if layer != "__main__"
    ]


def test_the_architecture_page_names_files_that_exist():
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`((?:src|docs|tests)/[\w/.]+)`", page)
    assert len(named) > 10
    for path in named:
        assert (ROOT / path).exists(), path
