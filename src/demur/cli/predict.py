"""``demur predict``: decisions for new rows."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

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
from demur.cli.options import (
    AllowExtra,
    Delimiter,
    KnownDayFirst,
    KnownDecimalSign,
    ModelFolder,
    ReplaceFile,
    read_limits,
    read_prices,
)

__all__ = ["predict"]


def predict(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="A table of new rows, a Parquet folder, or - (the default).")] = "-",
    out: Annotated[str, typer.Option("--out", "-o", help="A .csv, .parquet or .arrow file, or - (the default).")] = "-",
    cost: Annotated[
        float | None, typer.Option("--cost", "-c", help="Decide for another price of declining, without a refit.")
    ] = None,
    review_budget: Annotated[
        float | None,
        typer.Option(help="Decline exactly so many rows, or this share: those whose review saves most."),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=PRICE", help="Another price of asking an expert, without a refit; may be repeated."),
    ] = None,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LIMIT",
            help="The most of these rows that an expert gets, or a share, or none for no limit; may be repeated.",
        ),
    ] = None,
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the calibrated probability of each class, as proba:<class>.")
    ] = False,
    keep: Annotated[list[str] | None, typer.Option(help="A column to copy into the output; may be repeated.")] = None,
    keep_all: Annotated[bool, typer.Option("--keep-all", help="Copy every column into the output.")] = False,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: KnownDecimalSign = None,
    dayfirst: KnownDayFirst = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows in memory at a time.")] = 65_536,
    scheduler: Annotated[
        str | None, typer.Option(help="Work through a folder of Parquet files on Dask: an address, or local.")
    ] = None,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option("--spreadsheet-safe", help="Guard cells of a CSV file that look like formulas."),
    ] = False,
    force: ReplaceFile = False,
) -> None:
    """Decide for each row of a table: an answer, or none.

    Writes prediction (empty where the model declines), rejected, confidence, first_choice, second_choice and reason
    (ambiguous, or novel and the columns that are unlike those of training), in the order of the rows; with --proba
    also the probability of each class, as proba:<class>; with --review-budget also saves, what a review of the row
    saves on average. A model with experts adds ask (whom; empty where the model answers) and expected_cost, and
    system_answer where the table holds what the experts said.

    Example: demur predict model/ new.csv --out decisions.csv --keep id
    """
    check_share("--cost", cost, what="price")
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.tabular import DecideOptions, decide_file, decide_folder

        if scheduler is not None:
            _check_scheduler_call(data, out, review_budget, spreadsheet_safe)
        options = DecideOptions(
            cost=cost,
            prices=read_prices(price),
            capacity=read_limits(capacity),
            review_budget=review_budget,
            proba=proba,
            keep=None if keep_all else tuple(keep or ()),
            strict=not allow_extra,
            chunk_rows=chunk_rows,
            delimiter=delimiter,
            decimal=decimal,
            dayfirst=dayfirst,
        )
        fitted = load_table_model(model)
        if scheduler is None:
            with _progress("rows") as advance:
                total = decide_file(
                    fitted, data, out, options, overwrite=force, spreadsheet_safe=spreadsheet_safe, progress=advance
                )
        else:
            limited = {**fitted.experts.limits, **(options.capacity or {})}
            if any(limit is not None for limit in limited.values()):
                raise CallError(
                    "limits compare all rows with each other, which --scheduler does not: lift them with --capacity "
                    "NAME=none, or leave --scheduler out."
                )
            load = functools.partial(load_table_model, str(model.resolve()))
            places = Path(data).resolve(), Path(out).resolve()
            with _progress("files") as advance:
                total = decide_folder(load, *places, options, scheduler=scheduler, overwrite=force, progress=advance)
    share = f" ({total.rejected / total.rows:.1%})" if total.rows else ""
    where = "" if out == "-" else f" to {out}"
    what = "for experts" if fitted.asks_experts else "declined"
    summary = f"Wrote {total.rows:,} decisions{where}: {total.rejected:,} {what}{share}."
    (notes if out == "-" else console).print(summary, markup=False, soft_wrap=True)


def _check_scheduler_call(data: str, out: str, review_budget: float | None, spreadsheet_safe: bool) -> None:
    if not Path(data).is_dir() or out == "-":
        raise CallError("--scheduler works on a folder of Parquet files, and needs --out with the name of a folder.")
    if review_budget is not None:
        raise CallError("--review-budget compares all rows with each other, which --scheduler does not: leave one out.")
    if spreadsheet_safe:
        raise CallError("--spreadsheet-safe is for CSV files, and --scheduler writes Parquet: leave one out.")


@contextmanager
def _progress(unit: str) -> Iterator[Callable[[int], None]]:
    """Count on a terminal; the total is not known before the end."""
    if not is_watched():
        yield lambda steps: None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,} " + unit), TimeElapsedColumn())
    with Progress(*columns, console=notes, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda steps: bar.advance(task, steps)
