"""``demur evaluate``: how good the decisions on labelled rows are."""

import json
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from demur.cli.console import (
    CallError,
    about,
    check_free,
    check_share,
    console,
    load_table_model,
    print_evaluation,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import (
    AllowExtra,
    AsJson,
    Delimiter,
    KnownDayFirst,
    KnownDecimalSign,
    ModelFolder,
    ReplaceFile,
    panel,
    read_prices,
)

__all__ = ["evaluate"]


Data: TypeAlias = Annotated[str, typer.Argument(help="Table of labelled rows that the model has not seen.")]
OtherCost: TypeAlias = Annotated[
    float | None, panel("Decision", "--cost", "-c", help="Cost of declining, instead of the model's.")
]
OtherPrices: TypeAlias = Annotated[
    list[str] | None,
    panel("Decision", metavar="NAME=PRICE", help="Price of an expert, instead of the model's (repeatable)."),
]
Group: TypeAlias = Annotated[str | None, panel("Output", help="Column of groups to evaluate separately.")]
Report: TypeAlias = Annotated[Path | None, panel("Output", help="HTML report to write.")]
MonitorState: TypeAlias = Annotated[
    Path | None, panel("Output", help="State file of demur monitor, to show in the report.")
]


def evaluate(
    model: ModelFolder,
    data: Data,
    report: Report = None,
    cost: OtherCost = None,
    group: Group = None,
    price: OtherPrices = None,
    monitor: MonitorState = None,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: KnownDecimalSign = None,
    dayfirst: KnownDayFirst = None,
    force: ReplaceFile = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on labelled rows: risk, coverage and accuracy with intervals, and a report.

    Example: demur evaluate model/ test.csv --report report.html
    """
    check_share("--cost", cost, what="price")
    if monitor is not None and report is None:
        raise CallError("--monitor is shown in the report: give --report as well.")
    if report is not None:
        check_free(report, "--report", force, is_file=True)
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.tabular import evaluate_table, read_labelled

        prices = read_prices(price) if price else None
        fitted = load_table_model(model)
        fitted.check_prices(prices)
        classes = fitted.classes.tolist()
        table = read_labelled(
            data,
            fitted.schema,
            classes,
            delimiter=delimiter,
            decimal=decimal,
            dayfirst=dayfirst,
            strict=not allow_extra,
            allowed=() if group is None else (group,),
        )
        judged = evaluate_table(fitted, table, cost=cost, prices=prices, group=group, where=data)
        if report is not None:
            from demur.tabular import write_report

            title = f"{fitted.target}: {Path(data).name}"
            watched = None
            if monitor is not None:
                from demur.deploy import Monitor

                state = Monitor.load(monitor)
                state.check_model(fitted)
                watched = state.to_json()
            write_report(judged, report, title=title, made=about(fitted, data), watched=watched, overwrite=force)
    if as_json:
        typer.echo(json.dumps(judged.to_json(), indent=2))
        return
    from demur.tabular.evaluation_figures import counted

    print_evaluation(judged, f"on {counted(judged.n_rows, 'row', 'rows')} of {data}")
    if report is not None:
        console.print(f"Wrote {report}", markup=False, soft_wrap=True)
