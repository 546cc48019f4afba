"""The site builds without a warning, has every public name, and no link leads nowhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock
from page_blocks import PAGES, ROOT, name_of

import demur

pytest.importorskip("sphinx")
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

QUESTIONS = (
    "Which loss should I use?",
    "What does c mean for me?",
    "What is guaranteed?",
    "How do I change c without retraining?",
    "What happens to a rejected row?",
)
MARKDOWN = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The site, built once as ``make docs`` does, also where several processes share the tests."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with FileLock(f"{out}.lock"):
        if not (out / "html" / "objects.inv").exists():
            build(out)
    return out / "html"


def build(out):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "cache")]
    result = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, result.stderr


class Links(HTMLParser):
    """The addresses that a page leads to, and the places in it that one can lead to."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.places = [], {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name == "id":
                self.places.add(value)


@pytest.mark.slow
def test_no_link_of_the_site_is_dead(site):
    pages = {page: Links(page) for page in site.rglob("*.html")}
    assert len(pages) > 30
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme in ("https", "http", "data", "mailto"):
                continue
            goal = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
            goal = goal / "index.html" if goal.is_dir() else goal
            if not goal.is_file() or (goal in pages and unquote(parts.fragment) not in pages[goal].places):
                dead.append(f"{page.relative_to(site)} -> {target}")
    assert not dead


@pytest.mark.slow
def test_the_site_needs_no_network(site):
    """Scripts, styles, fonts and formulas come with it."""
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?://[^"]*)"', page.read_text())
        assert not loaded, page.name


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_links_between_files_lead_somewhere(page):
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", outside):
        path = urlsplit(target).path
        if path and not urlsplit(target).scheme:
            assert (page.parent / unquote(path)).exists(), f"{page.name} -> {target}"


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    from public_names import MODULES, page_of, public_names

    pages = {name: (site / "reference" / f"{page_of(name)}.html").read_text() for name in MODULES}
    missing = [
        f"demur.{module}.{name}"
        for module, names in public_names().items()
        for name in names
        if f'id="demur.{module}.{name}"' not in pages[module]
    ]
    assert not missing


def test_every_public_module_has_a_page():
    from public_names import MODULES

    packages = {path.stem for path in Path(demur.__file__).parent.iterdir() if not path.name.startswith(("_", "."))}
    assert packages - {
        "array_types",
        "cli",
        "lazy_torch",
        "named_classes",
        "py",
        "whole_file",
        "workers",
    } == {name.split(".")[0] for name in MODULES}
    short = set(demur.__all__) - set(MODULES)
    reference = (ROOT / "docs" / "reference" / "index.md").read_text()
    assert all(f"`{name}`" in reference for name in short)


def test_every_command_is_in_the_reference():
    from demur.cli.app import app

    reference = (ROOT / "docs" / "reference" / "command_line.md").read_text()
    names = [command.name or command.callback.__name__ for command in app.registered_commands]
    assert all(f"| `demur {name}` |" in reference for name in names)


@pytest.mark.slow
def test_the_home_page_answers_the_five_questions(site):
    home = (site / "index.html").read_text()
    assert all(f"<strong>{question}</strong>" in home for question in QUESTIONS)


def test_formulas_are_drawn():
    from sphinx.errors import SphinxError
    from static_math import drawing

    assert 'aria-label="|f| &lt; 1"' in drawing("|f| < 1")
    with pytest.raises(SphinxError, match="cannot draw the formula"):
        drawing(r"\nosuchcommand{x}")
