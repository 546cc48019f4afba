"""``demur predict``: decisions for new rows."""

from contextlib import nullcontext
from typing import Annotated

import typer

from demur.cli.console import console, is_watched, load_table_model, notes
from demur.cli.options import (
    COMPUTING,
    DECISION,
    OUTPUT,
    AllowExtra,
    DayFirst,
    DecimalSign,
    Delimiter,
    Force,
    ModelFolder,
    OtherCost,
    Prices,
    read_limits,
    read_prices,
)

NewRows = Annotated[str, typer.Argument(help="Table of new rows, folder of Parquet files, or - for stdin.")]
Output = Annotated[str, OUTPUT("--out", "-o", help="File to write (.csv, .tsv, .parquet, .arrow), or - for stdout.")]
ReviewBudget = Annotated[
    float | None, DECISION(help="Number or share of rows to decline, those with the largest saving first.")
]
Capacity = Annotated[
    list[str] | None,
    DECISION(metavar="NAME=LIMIT", help="Maximum number or share of rows for an expert; none for no limit."),
]
Proba = Annotated[bool, OUTPUT("--proba", help="Write class probabilities, as proba:<class>.")]
Keep = Annotated[list[str] | None, OUTPUT(metavar="COLUMN", help="Column to copy to the output.")]
KeepAll = Annotated[bool, OUTPUT("--keep-all", help="Copy all columns to the output.")]
SpreadsheetSafe = Annotated[
    bool, OUTPUT("--spreadsheet-safe", help="Put an apostrophe in front of cells that look like formulas.")
]
ChunkRows = Annotated[int, COMPUTING(min=1, help="Rows to process at a time.")]


def predict(
    model: ModelFolder,
    data: NewRows = "-",
    out: Output = "-",
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    cost: OtherCost = None,
    review_budget: ReviewBudget = None,
    price: Prices = None,
    capacity: Capacity = None,
    proba: Proba = False,
    keep: Keep = None,
    keep_all: KeepAll = False,
    spreadsheet_safe: SpreadsheetSafe = False,
    force: Force = False,
    chunk_rows: ChunkRows = 65_536,
) -> None:
    """Decide for each row of a table, and write the decisions in the same order.

    Output columns: prediction (empty if the model declines), rejected,
    confidence, first_choice, second_choice and reason (ambiguous; or novel, with
    the names of the columns that have unusual values). --proba adds proba:<class>
    for each class, --review-budget adds saves, the expected saving of a review. A
    model with experts adds ask (empty if the model answers) and expected_cost,
    and system_answer if the table has the experts' answers. The columns of a
    cascade are decision (ask or answer), service (whom to ask), answer,
    confidence, spent and reason; calls that were not made are empty cells.

    Example: demur predict model/ new.csv --out decisions.csv --keep id
    """
    from demur.tabular import DecideOptions, decide_file
    from demur.workers import progress_bar

    options = DecideOptions(
        cost=cost,
        prices=read_prices(price) or None,
        capacity=read_limits(capacity) or None,
        review_budget=review_budget,
        proba=proba,
        keep=None if keep_all else tuple(keep or ()),
        strict=not allow_extra,
        chunk_rows=chunk_rows,
        delimiter=delimiter,
        decimal=decimal,
        dayfirst=dayfirst,
    )
    fitted = load_table_model(model, cascades=True)
    with progress_bar("rows", None) if is_watched() else nullcontext(lambda steps: None) as progress:
        total = decide_file(
            fitted, data, out, options, overwrite=force, spreadsheet_safe=spreadsheet_safe, progress=progress
        )
    share = f" ({total.rejected / total.rows:.1%})" if total.rows else ""
    what = "to ask" if "decision" in fitted.answer_columns() else "for experts" if fitted.asks_experts else "declined"
    where = "" if out == "-" else f" to {out}"
    summary = f"Wrote {total.rows:,} decisions{where}: {total.rejected:,} {what}{share}."
    (notes if out == "-" else console).print(summary, markup=False, soft_wrap=True)
