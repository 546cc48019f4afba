"""``demur wrap``: turn a classifier that was fitted elsewhere into a model of a table."""

from pathlib import Path
from typing import Annotated

import typer

from demur.array_types import ByName
from demur.cli.console import CallError, check_free, console, warnings_as_notes, wrong_call_if_refused
from demur.cli.fit import rule_of
from demur.cli.options import Cost, DayFirst, DecimalSign, Delimiter, Delta, Drop, OutFolder, ReplaceModel

__all__ = ["wrap"]


def wrap(
    model: Annotated[Path, typer.Argument(help="Folder of a fitted classifier or pipeline, from demur.save.")],
    data: Annotated[str, typer.Argument(help="Table with the classifier's columns, to detect their types.")],
    out: OutFolder,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Name of the label column.", show_default="class")
    ] = None,
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Calibrate on the table: labelled rows that the model was not trained on."),
    ] = False,
    cost: Cost = None,
    coverage: Annotated[
        float | None, typer.Option(help="Share of rows to answer, instead of a cost. Needs --calibrate.")
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="Guaranteed error rate, instead of a cost. Needs --calibrate."),
    ] = None,
    delta: Delta = 0.05,
    drop: Drop = None,
    delimiter: Delimiter = None,
    decimal: DecimalSign = None,
    dayfirst: DayFirst = None,
    force: ReplaceModel = False,
) -> None:
    """Make a model folder for predict, evaluate and serve from your own fitted classifier.

    In Python, TableModel.wrap does the same.

    Example: demur wrap sklearn-model/ rows.csv --target y --calibrate --out model/
    """
    check_free(out, "--out", force)
    with wrong_call_if_refused(), warnings_as_notes():
        rule = rule_of(cost, coverage, max_risk, delta, None)
        if rule is not None and not calibrate:
            raise CallError("--coverage and --max-risk need labelled rows: give --calibrate and a table with labels.")
        from dataclasses import replace

        from demur.columns import Schema
        from demur.deploy import load, save
        from demur.deploy.model_folder import check_target
        from demur.rules import Rule
        from demur.tabular import TableModel, open_table

        assert rule is None or isinstance(rule, Rule)  # without a matrix, no rule waits for the classes
        check_target(out, overwrite=force)
        estimator = load(model)
        if isinstance(estimator, TableModel):
            raise CallError(f"{model} is a model of a table already; use it as it is.")
        with open_table(data, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
            table = reader.read()
            notation: ByName = {"decimal": reader.decimal or ".", "dayfirst": reader.dayfirst}
        named = target if target in table.column_names else None
        schema = replace(Schema.from_frame(table, target=named, drop=drop or ()), **notation)
        wrapped = TableModel.wrap(
            estimator, schema, target=target, cost=cost, rule=rule, calibrate=table if calibrate else None
        )
        save(wrapped, out, overwrite=force)
    console.print(
        f"{model}: {wrapped.facts['model_in_words']}, {len(wrapped.classes):,} classes.", markup=False, soft_wrap=True
    )
    for sentence in wrapped.schema.describe():
        console.print(f"  {sentence}", markup=False)
    n_rows = wrapped.facts["calibrated_on"]
    words = f"Calibrated on {n_rows:,} rows." if n_rows else "Its probabilities are used as they are."
    console.print(words)
    if (sentence_ := wrapped.explain()) is not None:
        console.print(sentence_, markup=False)
    console.print(f"Wrote {out}. Next: demur predict {out} NEW.csv --out decisions.csv", markup=False, soft_wrap=True)
