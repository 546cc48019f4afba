"""Every code block of README and site runs as it stands, and prints what the page shows."""

import re

import pytest
from page_blocks import PAGES, ROOT, blocks_of, name_of
from page_runner import PageRunner

from demur.losses import available, unregister

LANGUAGES = {"python", "console", "output", "text"}
MOST_TEXT_BLOCKS = 8
"""Blocks that do not run, such as a picture in letters, a command of hours or the commands for files of one's own."""


@pytest.fixture
def _losses_as_before():
    known = set(available())
    yield
    for name in set(available()) - known:
        unregister(name)


@pytest.mark.slow
@pytest.mark.usefixtures("_losses_as_before")
@pytest.mark.parametrize("page", [page for page in PAGES if "```" in page.read_text()], ids=name_of)
def test_blocks_run_and_print_what_is_shown(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("MPLBACKEND", "agg")
    runner = PageRunner(page.read_text(), name_of(page), shows_all=page.name != "README.md")
    runner.run()
    assert not runner.problems, "\n".join(runner.problems)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_is_of_a_kind_that_is_run(page):
    blocks = [block for block in blocks_of(page.read_text()) if not block.is_directive]
    assert {block.language for block in blocks} <= LANGUAGES
    for before, block in zip([None, *blocks], blocks, strict=False):
        assert block.language != "output" or before.language == "python", f"{name_of(page)}:{block.line}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "README.md"], ids=name_of)
def test_no_code_hides_in_indentation(page):
    """An indented paragraph is a code block too, and nothing would run it."""
    outside = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(r"\n\n {4}(?![-*:])\S", outside)


def test_few_blocks_do_not_run():
    blocks = [block for page in PAGES for block in blocks_of(page.read_text())]
    assert sum(block.language == "text" for block in blocks) <= MOST_TEXT_BLOCKS
    assert sum(block.language in ("python", "console") for block in blocks) >= 60


def test_the_runner_notices():
    """It complains about a wrong output, a failing command and an output that is not shown."""
    page = "```python\nprint(1)\n```\n\n```output\n2\n```\n\n```python\nprint(3)\n```\n\n"
    page += "```console\n$ demur no-such-command\n$ echo 4\n5\n```\n"
    runner = PageRunner(page, "page")
    runner.run()
    assert len(runner.problems) == 5
    assert [code for _, code in runner.changes][:2] == ["1\n", "print(3)\n```\n\n```output\n3\n"]


def test_a_program_named_in_a_block_becomes_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = PageRunner("```python\n# one.py\nx = 1\n```\n\n```console\n$ cat one.py\n# one.py\nx = 1\n```\n", "page")
    runner.run()
    assert not runner.problems


def test_the_examples_are_all_named_on_some_page():
    text = "".join(page.read_text() for page in PAGES)
    for path in (ROOT / "examples").glob("*.py"):
        assert f"examples/{path.name}" in text, path.name
