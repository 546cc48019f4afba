"""``demur predict``: decisions for new rows."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

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
    panel,
    read_limits,
    read_prices,
)

__all__ = ["predict"]


NewRows: TypeAlias = Annotated[str, typer.Argument(help="Table of new rows, folder of Parquet files, or - for stdin.")]
Output: TypeAlias = Annotated[
    str, panel("Output", "--out", "-o", help="File to write (.csv, .tsv, .parquet, .arrow), or - for stdout.")
]
OtherCost: TypeAlias = Annotated[
    float | None,
    panel("Decision", "--cost", "-c", help="Cost of declining, without a refit.", show_default="the model's"),
]
ReviewBudget: TypeAlias = Annotated[
    float | None, panel("Decision", help="Number or share of rows to decline, those with the largest saving first.")
]
Price: TypeAlias = Annotated[
    list[str] | None,
    panel("Decision", metavar="NAME=PRICE", help="Price of an expert.", show_default="the model's"),
]
Capacity: TypeAlias = Annotated[
    list[str] | None,
    panel("Decision", metavar="NAME=LIMIT", help="Maximum number or share of rows for an expert; none for no limit."),
]
Proba: TypeAlias = Annotated[bool, panel("Output", "--proba", help="Write class probabilities, as proba:<class>.")]
Keep: TypeAlias = Annotated[list[str] | None, panel("Output", metavar="COLUMN", help="Column to copy to the output.")]
KeepAll: TypeAlias = Annotated[bool, panel("Output", "--keep-all", help="Copy all columns to the output.")]
ChunkRows: TypeAlias = Annotated[int, typer.Option(min=1, help="Rows to process at a time.")]
Scheduler: TypeAlias = Annotated[
    str | None, typer.Option(help="Process a folder on Dask: address of a scheduler, or local:N.")
]
SpreadsheetSafe: TypeAlias = Annotated[
    bool, panel("Output", "--spreadsheet-safe", help="Put an apostrophe in front of cells that look like formulas.")
]


def predict(
    model: ModelFolder,
    data: NewRows = "-",
    out: Output = "-",
    cost: OtherCost = None,
    review_budget: ReviewBudget = None,
    price: Price = None,
    capacity: Capacity = None,
    proba: Proba = False,
    keep: Keep = None,
    keep_all: KeepAll = False,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: KnownDecimalSign = None,
    dayfirst: KnownDayFirst = None,
    chunk_rows: ChunkRows = 65_536,
    scheduler: Scheduler = None,
    spreadsheet_safe: SpreadsheetSafe = False,
    force: ReplaceFile = False,
) -> None:
    """Decide for each row of a table, and write the decisions in the same order.

    Output columns: prediction (empty if the model declines), rejected,
    confidence, first_choice, second_choice and reason (ambiguous; or novel, with
    the names of the columns that have unusual values). --proba adds proba:<class>
    for each class, --review-budget adds saves, the expected saving of a review. A
    model with experts adds ask (empty if the model answers) and expected_cost,
    and system_answer if the table has the experts' answers.

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
                writing = {"overwrite": force, "spreadsheet_safe": spreadsheet_safe}
                total = decide_file(fitted, data, out, options, **writing, progress=advance)
        else:
            _check_limits({**fitted.experts.limits, **(options.capacity or {})})
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


def _check_limits(limits: Mapping[str, float | None]) -> None:
    if any(limit is not None for limit in limits.values()):
        raise CallError(
            "limits compare all rows with each other, which --scheduler does not: lift them with --capacity NAME=none, "
            "or leave --scheduler out."
        )


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
