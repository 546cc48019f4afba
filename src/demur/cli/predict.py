"""``demur predict``: decisions for new rows."""

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.console import (
    CallError,
    check_share,
    console,
    is_watched,
    load_table_model,
    notes,
    warnings_as_notes,
    wrong_call_if_refused,
)

__all__ = ["predict"]


def predict(
    model: Annotated[Path, typer.Argument(help="The folder that demur fit wrote.")],
    data: Annotated[str, typer.Argument(help="A table of new rows, a Parquet folder, or - (the default).")] = "-",
    out: Annotated[str, typer.Option("--out", "-o", help="A .csv, .parquet or .arrow file, or - (the default).")] = "-",
    cost: Annotated[
        float | None, typer.Option("--cost", "-c", help="Decide for another price of declining, without a refit.")
    ] = None,
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy into the output; may be repeated.")] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Copy every column into the output.")] = False,
    allow_extra: Annotated[
        bool, typer.Option("--allow-extra", help="Accept columns that the model does not know.")
    ] = False,
    delimiter: Annotated[str | None, typer.Option(help="What separates columns, if not found by itself.")] = None,
    decimal: Annotated[
        str | None, typer.Option(help="The decimal sign, a comma or a point. [default: as in the training table]")
    ] = None,
    dayfirst: Annotated[
        bool | None,
        typer.Option(help="How dates as 1.2.2024 begin. [default: as in the training table]", show_default=False),
    ] = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows in memory at a time.")] = 65_536,
    scheduler: Annotated[
        str | None, typer.Option(help="Work through a folder of Parquet files on Dask: an address, or local.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")] = False,
) -> None:
    """Decide for each row of a table: an answer, or none.

    Writes prediction (empty where the model declines), rejected, confidence, first_choice and second_choice, in the
    order of the rows.

    Example: demur predict model/ new.csv --out decisions.csv --keep id
    """
    check_share("--cost", cost, what="price")
    options: dict[str, Any] = {
        "cost": cost,
        "keep": None if keep_all else tuple(keep or ()),
        "strict": not allow_extra,
        "overwrite": force,
        "chunk_rows": chunk_rows,
    }
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.tabular import decide_file, decide_folder

        if scheduler is not None:
            if not Path(data).is_dir() or out == "-":
                raise CallError(
                    "--scheduler works on a folder of Parquet files, and needs --out with a folder to make."
                )
            fitted = load_table_model(model)
            if cost is not None:
                fitted.check_cost(cost)
            loader = functools.partial(load_table_model, str(model.resolve()))
            read, write = Path(data).resolve(), Path(out).resolve()
            with _progress("files") as advance:
                total = decide_folder(loader, read, write, scheduler=scheduler, progress=advance, **options)
        else:
            fitted = load_table_model(model)
            with _progress("rows") as advance:
                written = {"delimiter": delimiter, "decimal": decimal, "dayfirst": dayfirst}
                total = decide_file(fitted, data, out, progress=advance, **written, **options)
    share = f" ({total.rejected / total.rows:.1%})" if total.rows else ""
    where = "" if out == "-" else f" to {out}"
    summary = f"Wrote {total.rows:,} decisions{where}: {total.rejected:,} declined{share}."
    (notes if out == "-" else console).print(summary, markup=False, soft_wrap=True)


def _progress(unit: str) -> Any:
    from contextlib import nullcontext

    if not is_watched():
        return nullcontext(lambda steps: None)
    return _counter(unit)


def _counter(unit: str) -> Any:
    """Count on the terminal: how many rows there are is not known before the end."""
    from contextlib import contextmanager

    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    @contextmanager
    def counting() -> Any:
        columns = (SpinnerColumn(), TextColumn("{task.completed:,} " + unit), TimeElapsedColumn())
        with Progress(*columns, console=notes, transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda steps: bar.advance(task, steps)

    return counting()
