"""``demur demo``: fit, evaluate, report and predict on data that needs no download."""

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import CallError, console
from demur.cli.evaluate import evaluate
from demur.cli.fit import fit
from demur.cli.predict import predict

__all__ = ["demo"]

_COST = 0.1
_SECONDS = 10.0
"""For the training: the demonstration is to be over soon."""


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="New folder to write to.", show_default="demur-demo, or -2, ...")
    ] = None,
) -> None:
    """Run fit, evaluate and predict on scikit-learn's handwritten digits (about a minute).

    Example: demur demo
    """
    if out is None:
        names = ("demur-demo", *(f"demur-demo-{number}" for number in range(2, 10_000)))
        out = next(path for path in map(Path, names) if not path.exists())
    if out.exists():
        raise CallError(f"{out} exists already: choose another --out.")
    console.print(
        "[bold]A reject option[/bold]: a wrong answer costs 1, declining to answer costs c. "
        f"Where the model is less than 1 - c sure, declining is cheaper. Here c = {_COST:g}.\n"
    )
    train, test, new = _write_digits(out)
    model, report, decisions = out / "model", out / "report.html", out / "decisions.csv"
    others = out / "decisions-0.3.csv"

    _say(f"demur fit {train} --target digit --cost {_COST:g} --holdout 0 --time-budget {_SECONDS:g} --out {model}")
    fit(str(train), target="digit", out=model, cost=_COST, holdout=0.0, time_budget=_SECONDS)
    _say(f"demur evaluate {model} {test} --report {report}")
    evaluate(model, str(test), report=report)
    _say(f"demur predict {model} {new} --out {decisions}")
    predict(model, str(new), out=str(decisions))
    console.print("".join(decisions.read_text(encoding="utf-8").splitlines(keepends=True)[:4]), markup=False)
    _say(f"demur predict {model} {new} --cost 0.3 --out {others}   # another cost, no training")
    predict(model, str(new), out=str(others), cost=0.3)
    console.print("\n[bold]Look at[/bold]")
    for path, what in (
        (report, "the report: move the cost, and see what declining saves"),
        (decisions, "the decisions for 100 images; prediction is empty where the model declines"),
        (model, "the model, for demur predict, serve and export"),
    ):
        console.print(f"  {path}  {what}", markup=False, soft_wrap=True)


def _write_digits(folder: Path) -> list[Path]:
    """Write rows to train on, rows to judge with, and rows without a label."""
    import pyarrow as pa
    from pyarrow import csv
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=550, random_state=0, stratify=y)
    parts = {"train": (X_train, y_train), "test": (X_rest[100:], y_rest[100:]), "new": (X_rest[:100], None)}
    folder.mkdir(parents=True)
    for name, (pixels, labels) in parts.items():
        columns = {f"pixel_{k}": column for k, column in enumerate(pixels.T)}
        csv.write_csv(pa.table(columns | ({} if labels is None else {"digit": labels})), folder / f"{name}.csv")
    return [folder / f"{name}.csv" for name in parts]


def _say(command: str) -> None:
    console.print(f"\n$ {command}", style="bold", markup=False, soft_wrap=True)
