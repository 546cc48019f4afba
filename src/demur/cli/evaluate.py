"""``demur evaluate``: how good the decisions on labelled rows are."""

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import about, check_free, load_table_model, print_calls, print_evaluation, print_json, say
from demur.cli.options import (
    DATA,
    OUTPUT,
    AllowExtra,
    AsJson,
    DayFirst,
    DecimalSign,
    Delimiter,
    Force,
    Labels,
    ModelFolder,
    OtherCost,
    Prices,
    Report,
    read_prices,
)
from demur.errors import InputError

__all__ = ["evaluate"]


def evaluate(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="Table of labelled rows that the model has not seen.")],
    labels: Labels = None,
    group: Annotated[str | None, DATA(help="Column of groups to evaluate separately.")] = None,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    cost: OtherCost = None,
    price: Prices = None,
    report: Report = None,
    monitor: Annotated[Path | None, OUTPUT(help="State file of demur monitor, to show in the report.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on labelled rows: risk, coverage and accuracy with intervals, and a report.

    Example: demur evaluate model/ test.csv --report report.html
    """
    if monitor is not None and report is None:
        raise InputError("--monitor is shown in the report: give --report as well.")
    if report is not None:
        check_free(report, "--report", force)
    from demur.tabular import CallsModel, evaluate_calls, evaluate_table, read_labelled

    prices = read_prices(price) or None
    fitted = load_table_model(model, cascades=True)
    fitted.check_prices(prices)
    table = read_labelled(
        data,
        fitted.schema,
        fitted.classes.tolist(),
        delimiter=delimiter,
        decimal=decimal,
        dayfirst=dayfirst,
        strict=not allow_extra,
        allowed=() if group is None else (group,),
        labels=labels,
    )
    if isinstance(fitted, CallsModel):
        if any(one is not None for one in (cost, group, report)):
            raise InputError("a cascade has no --cost, --group or --report: leave them out.")
        print_calls(evaluate_calls(fitted, table, where=data), f"of {data}", as_json=as_json)
        return
    judged = evaluate_table(fitted, table, cost=cost, prices=prices, group=group, where=data)
    if report is not None:
        from demur.tabular import write_report

        watched = None
        if monitor is not None:
            from demur.deploy import Monitor

            state = Monitor.load(monitor)
            state.check_model(fitted)
            watched = state.to_json()
        title = f"{fitted.target}: {Path(data).name}"
        write_report(judged, report, title=title, made=about(fitted, data), watched=watched, overwrite=force)
    if as_json:
        print_json(judged.to_json())
        return
    print_evaluation(judged, f"on {judged.n_rows:,} rows of {data}")
    if report is not None:
        say(f"Wrote {report}")
