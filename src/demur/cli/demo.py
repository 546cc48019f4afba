"""``demur demo``: the whole journey on data that needs no download."""

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
"""For the search among models: the demonstration is to be over soon."""


def demo(
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A folder to make. [default: demur-demo, or the next free name]")
    ] = None,
) -> None:
    """Fit, evaluate, report and predict on scikit-learn's handwritten digits (about a minute).

    Example: demur demo
    """
    folder = out or _free_name()
    if folder.exists():
        raise CallError(f"{folder} exists already: choose another --out.")
    console.print(
        "[bold]A reject option[/bold]: a wrong answer costs 1, declining to answer costs c. "
        f"Where the model is less than 1 - c sure, declining is cheaper. Here c = {_COST:g}.\n"
    )
    train, test, new = _write_digits(folder)
    model, report, decisions = folder / "model", folder / "report.html", folder / "decisions.csv"

    _say(f"demur fit {train} --target digit --cost {_COST:g} --holdout 0 --time-budget {_SECONDS:g} --out {model}")
    fit(target="digit", out=model, data=str(train), cost=_COST, holdout=0.0, time_budget=_SECONDS)
    _say(f"demur evaluate {model} {test} --report {report}")
    evaluate(model, str(test), report=report)
    _say(f"demur predict {model} {new} --out {decisions}")
    predict(model, str(new), out=str(decisions))
    console.print(_some_lines(decisions), markup=False)
    _say(f"demur predict {model} {new} --cost 0.3 --out {folder / 'decisions-0.3.csv'}", "another cost, no training")
    predict(model, str(new), out=str(folder / "decisions-0.3.csv"), cost=0.3)
    console.print("\n[bold]Look at[/bold]")
    for path, what in (
        (report, "the report: move the cost, and see what declining buys"),
        (decisions, "the decisions for 100 images; prediction is empty where the model declines"),
        (model, "the model, for demur predict, serve and export"),
    ):
        console.print(f"  {path}  {what}", markup=False, soft_wrap=True)


def _write_digits(folder: Path) -> tuple[Path, Path, Path]:
    """Write rows to train on, rows to judge with, and rows without a label."""
    import pyarrow as pa
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    from demur.tabular import TableWriter

    X, y = load_digits(return_X_y=True)
    X_train, X_rest, y_train, y_rest = train_test_split(X, y, test_size=550, random_state=0, stratify=y)
    parts = {"train": (X_train, y_train), "test": (X_rest[100:], y_rest[100:]), "new": (X_rest[:100], None)}
    folder.mkdir(parents=True)
    for name, (pixels, labels) in parts.items():
        columns = {f"pixel_{k}": pa.array(column) for k, column in enumerate(pixels.T)}
        if labels is not None:
            columns["digit"] = pa.array(labels)
        with TableWriter(folder / f"{name}.csv") as writer:
            writer.write(pa.record_batch(columns))
    return folder / "train.csv", folder / "test.csv", folder / "new.csv"


def _some_lines(decisions: Path) -> str:
    """Return the header, two answers and the first row that was declined, if any."""
    header, *lines = decisions.read_text(encoding="utf-8").splitlines()
    declined = [line for line in lines if ",true," in line]
    answers = [line for line in lines if ",true," not in line]
    return "\n".join([header, *answers[:2], *declined[:1]])


def _free_name() -> Path:
    """Return the first name that is not taken: nothing that is there is touched."""
    names = (Path("demur-demo" if number == 1 else f"demur-demo-{number}") for number in range(1, 10_000))
    return next(path for path in names if not path.exists())


def _say(command: str, remark: str = "") -> None:
    console.print(f"\n$ {command}" + (f"   # {remark}" if remark else ""), style="bold", markup=False, soft_wrap=True)
