"""``demur export``: write a model as an ONNX file."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from demur.cli.console import check_free, say
from demur.cli.options import OUTPUT, VALIDATION, Force
from demur.errors import InputError


def export(
    model: Annotated[Path, typer.Argument(help="Model folder from demur fit or demur.save.")],
    check: Annotated[str | None, VALIDATION(help="Table to compare the graph with the model on.")] = None,
    out: Annotated[
        Path | None, OUTPUT("--out", "-o", help="File to write.", show_default="the folder's name with .onnx")
    ] = None,
    format: Annotated[Literal["onnx"], OUTPUT(help="Format of the file.")] = "onnx",
    force: Force = False,
) -> None:
    """Write a model as one ONNX graph: from features to label, reject flag and confidence.

    With --check, the exit code is 1 if the graph and the model decide differently.

    Example: demur export model/ --format onnx --out model.onnx --check test.csv
    """
    from demur.deploy import load
    from demur.deploy.onnx import compare_onnx, export_onnx
    from demur.tabular import read_table

    target = out or Path(f"{model.resolve().name}.onnx")
    check_free(target, "--out", force)
    loaded, table = load(model), check and read_table(check)
    export_onnx(loaded, target, overwrite=force)
    say(f"Wrote {target} ({target.stat().st_size / 1e3:,.1f} kB).")
    if getattr(loaded, "novelty", None) is not None:
        say("It decides by the rule alone: unlike the model, it does not detect novel rows.")
    if table is None:
        return
    try:
        agreement = compare_onnx(loaded, target, table)
    except ValueError as error:  # a model of arrays has no columns that could be compared before
        raise InputError(f"{check} does not fit the model: {error}") from error
    say(
        f"onnxruntime and demur decide the same on {agreement.n_rows - agreement.n_different:,} of "
        f"{agreement.n_rows:,} rows of {check}; confidences differ by at most {agreement.confidence:.1g}."
    )
    if not agreement.decisions_agree:
        raise typer.Exit(1)
