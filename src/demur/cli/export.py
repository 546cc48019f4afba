"""``demur export``: write a model as an ONNX file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import EXIT_FAILED, console, warnings_as_notes, wrong_call_if_refused
from demur.cli.options import ReplaceFile

__all__ = ["export"]


class Format(StrEnum):
    """Formats to export to."""

    ONNX = "onnx"


def export(
    model: Annotated[Path, typer.Argument(help="Model folder from demur fit or demur.save.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="File to write.", show_default="the folder's name with .onnx")
    ] = None,
    format: Annotated[Format, typer.Option(help="Format of the file.")] = Format.ONNX,
    check: Annotated[str | None, typer.Option(help="Table on which to compare the graph with the model.")] = None,
    force: ReplaceFile = False,
) -> None:
    """Write a model as one ONNX graph: from features to label, reject flag and confidence.

    Example: demur export model/ --format onnx --out model.onnx --check test.csv
    """
    target = out or Path(f"{model.resolve().name}.onnx")
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.deploy import load
        from demur.deploy.onnx import export_onnx

        loaded = load(model)
        export_onnx(loaded, target, overwrite=force)
        console.print(f"Wrote {target} ({target.stat().st_size / 1e6:.1f} MB).", markup=False, soft_wrap=True)
        if getattr(loaded, "novelty", None) is not None:
            console.print("It decides by the rule alone: unlike the model, it does not detect novel rows.")
        if check is None:
            return
        from demur.deploy.onnx import compare_onnx
        from demur.tabular import read_table

        agreement = compare_onnx(loaded, target, read_table(check))
    others = agreement.n_labels + agreement.n_rejects
    console.print(
        f"onnxruntime and demur decide the same on {agreement.n_rows - others:,} of {agreement.n_rows:,} rows of "
        f"{check}; confidences differ by at most {agreement.confidence:.1g}.",
        markup=False,
        soft_wrap=True,
    )
    if not agreement.decisions_agree:
        raise typer.Exit(EXIT_FAILED)
