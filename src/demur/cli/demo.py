"""``demur demo``: fit, evaluate, report and predict on data that needs no download."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import console, say
from demur.errors import InputError


def demo(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="New folder to write to.", show_default="demur-demo, or demur-demo-1, ..."),
    ] = None,
) -> None:
    """Run fit, evaluate and predict on scikit-learn's handwritten digits (about a minute).

    Example: demur demo
    """
    if out is None:
        names = (f"demur-demo{-number or ''}" for number in range(10_000))
        out = next(path for path in map(Path, names) if not path.exists())
    if out.exists():
        raise InputError(f"{out} exists already: choose another --out.")
    console.print(
        "[bold]A reject option[/bold]: a wrong answer costs 1, declining to answer costs c. "
        "Where the model is less than 1 - c sure, declining is cheaper. Here c = 0.1.\n"
    )
    from demur.cli.app import app

    _write_digits(out)
    model, report, decisions = out / "model", out / "report.html", out / "decisions.csv"
    for call in (
        f"fit {out}/train.csv --target digit --cost 0.1 --holdout 0 --time-budget 10 --out {model}",
        f"evaluate {model} {out}/test.csv --report {report}",
        f"predict {model} {out}/new.csv --out {decisions}",
        f"predict {model} {out}/new.csv --cost 0.3 --out {out}/decisions-0.3.csv",
    ):
        console.print(f"\n$ demur {call}", style="bold", markup=False, soft_wrap=True)
        app(shlex.split(call), standalone_mode=False)
    say("\nAnother cost needs no training. The first decisions:")
    say("\n".join(decisions.read_text(encoding="utf-8").splitlines()[:4]))
    say(
        f"\nOpen {report} in a browser: its slider shows the figures at other costs.\n"
        f"{decisions} has the decisions for 100 images; prediction is empty where the model declines.\n"
        f"{model} is the model, for demur predict, serve and export."
    )


def _write_digits(folder: Path) -> None:
    """Write rows to train on, rows to evaluate on, and rows without a label."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    digits, names = np.column_stack([X, y]), [*(f"pixel_{number}" for number in range(64)), "digit"]
    train, rest = train_test_split(digits, test_size=550, random_state=0, stratify=y)
    folder.mkdir(parents=True)
    for name, rows in {"train": train, "test": rest[100:], "new": rest[:100, :-1]}.items():
        header = ",".join(names[: rows.shape[1]])
        np.savetxt(folder / f"{name}.csv", rows, fmt="%d", delimiter=",", header=header, comments="")
