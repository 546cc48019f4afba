"""``demur evaluate`` and ``demur compare``: evaluate decisions on labelled rows."""

from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.console import about, check_free, load_table_model, print_evaluation, print_json, print_table, say
from demur.cli.options import (
    DATA,
    AllowExtra,
    AsJson,
    DayFirst,
    DecimalSign,
    Delimiter,
    Force,
    Ignore,
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
    ignore: Ignore = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate a model on labelled rows: risk, coverage and accuracy with intervals, and a report.

    Example: demur evaluate model/ test.csv --report report.html
    """
    if report is not None:
        check_free(report, "--report", force, data, labels)
    from demur.tabular import CallsModel, evaluate_calls, evaluate_table, read_labelled, write_report

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
    judged: Any
    if isinstance(fitted, CallsModel):
        if any(one is not None for one in (cost, group, report)):
            raise InputError("a cascade has no --cost, --group or --report: leave them out.")
        judged = evaluate_calls(fitted, table, where=data)
    else:
        judged = evaluate_table(
            fitted, table, cost=cost, group=group, prices=prices, importances=bool(report), ignored=ignore, where=data
        )
        if report is not None:
            title = f"{fitted.target}: {Path(data).name}"
            write_report(judged, report, title=title, made=about(fitted, data), overwrite=force)
    if as_json:
        print_json(judged.to_json())
        return
    print_evaluation(judged, f"on {judged.n_rows:,} rows of {data}")
    if report is not None:
        say(f"Wrote {report}")


def compare(
    first: Annotated[Path, typer.Argument(help="Folder of a model.", metavar="MODEL-A")],
    second: Annotated[Path, typer.Argument(help="Folder of another model.", metavar="MODEL-B")],
    data: Annotated[str, typer.Argument(help="Table of labelled rows that neither model has seen.")],
    labels: Labels = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    cost: OtherCost = None,
    as_json: AsJson = False,
) -> None:
    """Compare what two models cost on the same rows, and say whether the difference is significant.

    --cost is required if the models have different costs or a rule without one.

    Example: demur compare model-a/ model-b/ test.csv
    """
    from demur.tabular import cost_difference, evaluate_table, read_labelled
    from demur.tabular.evaluation_figures import json_ready, percent, rows_needed

    if data == "-":
        raise InputError("compare reads the table once for each model: give a file instead of standard input.")
    models, found = [load_table_model(folder) for folder in (first, second)], []
    if models[0].target != models[1].target:
        targets = f"{models[0].target!r} and {models[1].target!r}"
        raise InputError(f"the models predict different columns, {targets}: give two models of one target.")
    for model in models:
        table = read_labelled(
            data,
            model.schema,
            model.classes.tolist(),
            delimiter=delimiter,
            decimal=decimal,
            dayfirst=dayfirst,
            strict=False,
            labels=labels,
        )
        found.append(evaluate_table(model, table, cost=cost if model.cost_adjustable else None, where=data))
    difference = cost_difference(found[0], found[1], cost)
    price = float(found[0].cost or 0) if cost is None else cost
    real = not difference.low <= 0 <= difference.high
    named = list(zip(map(str, (first, second)), found, strict=True))
    if as_json:
        by_model = {folder: one.to_json() for folder, one in named}
        print_json({"rows": found[0].n_rows, "difference": json_ready(difference), "real": real, "models": by_model})
        return
    rows = [
        (folder, f"{one.paid(price).mean():.4f}", percent(one.coverage), percent(one.accepted_accuracy))
        for folder, one in named
    ]
    say(f"{found[0].n_rows:,} rows of {data}; declining costs {price:g}, a mistake 1.")
    print_table("", ("model", "cost per row", "answered", "right answers"), rows)
    say(
        f"Difference: {difference.estimate:+.4f} per row "
        f"(95 % interval {difference.low:+.4f} to {difference.high:+.4f})."
    )
    if real:
        say(f"The difference is significant: {second if difference.estimate > 0 else first} costs less.")
    else:
        needed = rows_needed(difference, found[0].n_rows)
        say(f"These rows do not show which model costs less: the interval contains 0.{needed}")
