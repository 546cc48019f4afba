"""``demur evaluate``: how good the decisions on labelled rows are."""

from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import about, check_free, load_table_model, print_evaluation, print_json, say
from demur.cli.options import (
    DATA,
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
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on labelled rows: risk, coverage and accuracy with intervals, and a report.

    Example: demur evaluate model/ test.csv --report report.html
    """
    if report is not None:
        check_free(report, "--report", force)
    from demur.tabular import (
        CallsEvaluation,
        CallsModel,
        Evaluation,
        evaluate_calls,
        evaluate_table,
        read_labelled,
        write_report,
    )

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
    judged: Evaluation | CallsEvaluation
    if isinstance(fitted, CallsModel):
        if any(one is not None for one in (cost, group, report)):
            raise InputError("a cascade has no --cost, --group or --report: leave them out.")
        judged = evaluate_calls(fitted, table, where=data)
    else:
        judged = evaluate_table(fitted, table, cost=cost, prices=prices, group=group, where=data)
        if report is not None:
            title = f"{fitted.target}: {Path(data).name}"
            write_report(judged, report, title=title, made=about(fitted, data), overwrite=force)
    if as_json:
        print_json(judged.to_json())
        return
    print_evaluation(judged, f"on {judged.n_rows:,} rows of {data}")
    if report is not None:
        say(f"Wrote {report}")
