"""Runs a page as a reader would: top to bottom, Python in one namespace, commands in one folder.

``python tests/docs/page_runner.py PAGE...`` rewrites the outputs shown on a page, to be read and shortened by a person;
outputs that still hold are left as they are.
"""

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import time
import urllib.error
import urllib.request
from pathlib import Path

from page_blocks import blocks_of

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
EXIT_REFUTED = 3
"""``demur check`` found a counterexample: an outcome, not a failure."""


def agrees(shown, printed):
    return doctest.OutputChecker().check_output(shown, printed, FLAGS)


class PageRunner:
    """One reading of one page. The working directory is the caller's business."""

    def __init__(self, text, name, shows_all=True):
        self.text, self.name, self.shows_all = text, name, shows_all
        self.namespace = {"__name__": "__main__"}
        self.background = []
        self.problems = []
        self.changes = []

    def run(self):
        """Run every block; ``problems`` then says what is wrong, ``changes`` what would be right."""
        blocks = blocks_of(self.text)
        try:
            for block, following in zip(blocks, [*blocks[1:], None], strict=True):
                if block.language == "python" and block.code.startswith(">>>"):
                    self._doctest(block)
                elif block.language == "python":
                    self._python(block, following)
                elif block.language == "console":
                    self._console(block)
        finally:
            for process in self.background:
                process.terminate()
                process.wait()

    def _complain(self, block, message):
        self.problems.append(f"{self.name}:{block.line}: {message}")

    def _python(self, block, following):
        named = re.match(r"# (\w+\.py)\n", block.code)
        if named:
            Path(named[1]).write_text(block.code)
        printed = io.StringIO()
        padding = "\n" * block.line  # so that a traceback names the line of the page
        with contextlib.redirect_stdout(printed):
            exec(compile(padding + block.code, self.name, "exec"), self.namespace)
        if following is not None and following.language == "output":
            if not agrees(following.code, printed.getvalue()):
                self._complain(following, f"shown:\n{following.code}\nprinted:\n{printed.getvalue()}")
                self.changes.append((following, wrapped(printed.getvalue())))
        elif printed.getvalue() and self.shows_all:
            self._complain(block, f"prints what the page does not show:\n{printed.getvalue()}")
            self.changes.append((block, f"{block.code}```\n\n```output\n{printed.getvalue()}"))

    def _doctest(self, block):
        test = doctest.DocTestParser().get_doctest(block.code, self.namespace, self.name, self.name, block.line)
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write, clear_globs=False)
        self.namespace.update(test.globs)
        if report.getvalue():
            self._complain(block, report.getvalue())

    def _console(self, block):
        parts = re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]
        actual = ""
        for part in parts:
            command = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n", part)[0]
            shown = part[len(command) :]
            code, printed = self._command(command.replace("\\\n", " ").strip())
            expected = {1, 2} if shown.startswith("demur: ") else {0, EXIT_REFUTED}
            if code not in expected:
                self._complain(block, f"{command}left with {code}:\n{printed}")
            holds = agrees(shown, printed)
            if not holds:
                self._complain(block, f"{command}shown:\n{shown}\nprinted:\n{printed}")
            actual += f"$ {command}{shown if holds else wrapped(printed)}"
        if actual != block.code:
            self.changes.append((block, actual))

    def _command(self, command):
        if command.endswith("&"):
            return self._start(command[:-1])
        if command.startswith("demur ") and not re.search(r"[|<>]", command):
            return demur(shlex.split(command)[1:])
        result = subprocess.run(
            ["bash", "-c", command], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        return result.returncode, result.stdout

    def _start(self, command):
        """Start a service, and come back when it answers."""
        process = subprocess.Popen(
            shlex.split(command), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.background.append(process)
        port = re.search(r"--port (\d+)", command)[1]
        for _ in range(1800):
            if process.poll() is not None:
                return process.returncode, "the service ended by itself"
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
            except urllib.error.URLError:
                time.sleep(0.1)
            else:
                return 0, ""
        return 1, "the service never answered"


def demur(words):
    """Run the command line in this process, which spares the start of Python; return exit code and output."""
    from demur.cli.app import run

    raw, argv = io.BytesIO(), sys.argv
    printed = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)  # a table goes to the bytes below it
    sys.argv = ["demur", *words]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            run()
    except SystemExit as leaving:
        return int(leaving.code or 0), raw.getvalue().decode()
    finally:
        sys.argv = argv
    return 0, raw.getvalue().decode()


def wrapped(printed):
    """Return an output as a page shows it: long lines broken, no blanks at their ends."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    return "".join(f"{textwrap.fill(line, 90) if len(line) > 90 else line}\n" for line in lines)


def environment():
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "COLUMNS": "80"}


def refresh(page):
    """Put what a page's blocks print in the place of what it shows."""
    runner = PageRunner(page.read_text(), str(page))
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        runner.run()
    text = runner.text
    for block, code in reversed(runner.changes):
        text = text[: block.start] + code + text[block.end :]
    (start / page).write_text(text)
    print(f"{page}: {len(runner.changes)} blocks changed, {len(runner.problems)} problems")
    for problem in runner.problems:
        print(problem)


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    os.environ["COLUMNS"] = "80"
    for argument in sys.argv[1:]:
        begun = time.perf_counter()
        refresh(Path(argument).resolve())
        print(f"  {time.perf_counter() - begun:.1f} s")
