"""The code blocks of a Markdown page, and which pages there are."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)]
FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A fenced block: its language, its text, where it stands, and what a refresh would put in its place."""

    language: str
    code: str
    start: int
    end: int
    line: int

    @property
    def is_directive(self) -> bool:
        return self.language.startswith("{")


def blocks_of(text):
    """Return the fenced blocks in order."""
    return [
        Block(
            found["language"].strip(),
            found["code"],
            found.start("code"),
            found.end("code"),
            text.count("\n", 0, found.start()) + 1,
        )
        for found in FENCE.finditer(text)
    ]


def name_of(page):
    return str(page.relative_to(ROOT))
