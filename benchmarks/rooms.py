"""Count the files of demur whose functions run in one command: fewer files are easier to follow.

A file counts where one of its functions runs while the command does its work. Each command runs twice, and the second
time is traced, so that what an import runs does not count.
"""

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import demur

PACKAGE = Path(demur.__file__).parent


@contextlib.contextmanager
def traced(files: set[str]) -> Iterator[None]:
    """Collect the files of the package whose functions are called, in any thread."""
    prefix = str(PACKAGE)

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(prefix) and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename[len(prefix) + 1 :])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def call(words: Sequence[str]) -> None:
    """Run a command of demur in this process."""
    from demur.cli.app import run

    before, sys.argv = sys.argv, ["demur", *words]
    output = io.TextIOWrapper(io.BytesIO(), write_through=True)
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            run()
    except SystemExit as leaving:
        if leaving.code:
            raise RuntimeError(output.buffer.getvalue().decode()) from leaving  # type: ignore[attr-defined]
    finally:
        sys.argv = before


def rooms(words: Sequence[str]) -> list[str]:
    """Return the files whose functions run in a command."""
    files: set[str] = set()
    call(words)
    with traced(files):
        call(words)
    return sorted(files)


def request(model: str) -> list[str]:
    """Return the files whose functions run in one HTTP request for one row."""
    import asyncio

    import httpx

    from demur.deploy import create_app, load

    transport = httpx.ASGITransport(create_app(load(model)))
    document = {"row": {"one": 0.5, "two": 0.1, "three": 0.2}}

    async def ask() -> None:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            (await client.post("/decide", json=document)).raise_for_status()

    files: set[str] = set()
    asyncio.run(ask())
    with traced(files):
        asyncio.run(ask())
    return sorted(files)


def walks(folder: Path) -> dict[str, list[str]]:
    """Return the files for fitting, evaluating and serving a model."""
    import numpy as np

    rng = np.random.default_rng(0)
    table = folder / "data.csv"
    x, y = rng.normal(size=(300, 3)), rng.integers(3, size=300)
    x[:, 0] += y
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{'abc'[k]}" for (a, b, c), k in zip(x, y, strict=True)]
    table.write_text("\n".join(["one,two,three,y", *lines]) + "\n")
    model, page = str(folder / "model"), str(folder / "report.html")
    fit = ["fit", str(table), "--target", "y", "--model", "lr", "--out", model, "--force"]
    evaluate = ["evaluate", model, str(table), "--report", page, "--force"]
    found = {"demur fit --model lr": rooms(fit), "demur evaluate --report": rooms(evaluate)}
    return {**found, "one HTTP request": request(model)}


def main(arguments: Sequence[str] = ()) -> None:
    argparse.ArgumentParser(prog="python -m benchmarks rooms", description=__doc__).parse_args(arguments)
    files = list(PACKAGE.rglob("*.py"))
    print(f"{len(files)} files in src/demur")
    with tempfile.TemporaryDirectory() as folder:
        for command, passed in walks(Path(folder)).items():
            print(f"{command}: {len(passed)} files")
            for name in passed:
                print(f"  {name}")


if __name__ == "__main__":
    main()
