"""``demur wrap``: turn a classifier that was fitted elsewhere into a model of a table."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from demur.cli.console import check_new_model, say
from demur.cli.fit import rule_of
from demur.cli.options import (
    DATA,
    MODEL,
    Cost,
    Coverage,
    DayFirst,
    DecimalSign,
    Delimiter,
    Delta,
    Drop,
    Force,
    MaxRisk,
    OutFolder,
)
from demur.errors import InputError


def wrap(
    model: Annotated[Path, typer.Argument(help="Folder of a fitted classifier or pipeline, from demur.save.")],
    data: Annotated[str, typer.Argument(help="Table with the classifier's columns, to detect their types.")],
    out: OutFolder,
    target: Annotated[
        str | None, DATA("--target", "-t", help="Name of the label column.", show_default="class")
    ] = None,
    drop: Drop = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    calibrate: Annotated[
        bool, MODEL("--calibrate", help="Calibrate on DATA: labelled rows that the model was not trained on.")
    ] = False,
    cost: Cost = None,
    coverage: Coverage = None,
    max_risk: MaxRisk = None,
    delta: Delta = None,
    force: Force = False,
) -> None:
    """Turn your own fitted classifier into a model for predict, evaluate and serve.

    --coverage and --max-risk need --calibrate. In Python, TableModel.wrap does the same.

    Example: demur wrap sklearn-model/ rows.csv --target y --calibrate --out model/
    """
    check_new_model(out, force)
    rule = rule_of(cost, coverage, max_risk, delta)
    from demur.columns import Schema
    from demur.deploy import load, save
    from demur.tabular import TableModel, open_table

    estimator = load(model)
    if isinstance(estimator, TableModel):
        raise InputError(f"{model} is a model of a table already; use it as it is.")
    with open_table(data, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
        table = reader.read([target] if target else ())
    named = target if target in table.column_names else None
    schema = replace(Schema.from_frame(table, target=named, drop=drop or ()), notation=reader.notation)
    wrapped = TableModel.wrap(
        estimator, schema, target=target, cost=cost, rule=rule, calibrate=table if calibrate else None
    )
    save(wrapped, out, overwrite=force)
    say(f"{model}: {wrapped.facts['model_in_words']}, {len(wrapped.classes):,} classes.")
    for sentence in wrapped.schema.describe():
        say(f"  {sentence}")
    n_rows = wrapped.facts["calibrated_on"]
    say(f"Calibrated on {n_rows:,} rows." if n_rows else "Its probabilities are used as they are.")
    if explanation := wrapped.explain():
        say(explanation)
    say(f"Wrote {out}. Next: demur predict {out} NEW.csv --out decisions.csv")
