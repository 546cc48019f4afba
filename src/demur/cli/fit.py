"""``demur fit``: from a table to a model that declines well."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from demur.cli.choice import Choice
from demur.cli.console import CallError, check_free, console, is_watched, warnings_as_notes, wrong_call_if_refused
from demur.cli.summary import about, evaluation_json, print_evaluation, print_fit

__all__ = ["fit"]


def fit(
    data: Annotated[str, typer.Argument(help="A table: CSV (any delimiter, also compressed), Parquet, Arrow, or -.")],
    target: Annotated[str, typer.Option("--target", "-t", help="The column to predict.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the model to.")],
    cost: Annotated[
        float | None, typer.Option("--cost", "-c", help="The price of declining; a mistake costs 1. [default: 0.2]")
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="auto, et, rf, hgb, lr, or a loss such as ce.")] = "auto",
    test: Annotated[Path | None, typer.Option(help="A table of other rows to judge the model on.")] = None,
    holdout: Annotated[float, typer.Option(help="Without --test: the share of rows kept back to judge it on.")] = 0.2,
    coverage: Annotated[float | None, typer.Option(help="Instead of a cost: the share of rows to answer.")] = None,
    max_risk: Annotated[
        float | None, typer.Option(help="Instead of a cost: the largest share of errors among the answers.")
    ] = None,
    delta: Annotated[float, typer.Option(help="With --max-risk: how often the promise may fail.")] = 0.05,
    cost_matrix: Annotated[
        Path | None,
        typer.Option(help="Instead of a cost: a table, a row per true class, a column per answer and reject."),
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; may be repeated.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A column to use although it looks useless; may be repeated.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="What separates columns, if not found by itself.")] = None,
    time_budget: Annotated[float, typer.Option(help="Seconds that auto may take; 0 for no limit.")] = 90.0,
    report: Annotated[Path | None, typer.Option(help="Write a page about the held-out rows to this file.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is there already.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Train a model that declines to answer when answering would cost more than asking.

    Example: demur fit data.csv --target y --cost 0.2 --out model/
    """
    _check_call(out, report, force, holdout, test)
    choice = Choice(0.2 if cost is None else cost, coverage, max_risk, delta, cost_matrix)
    if cost is not None:
        choice.check_alone()
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.costs import check_cost
        from demur.deploy import save
        from demur.deploy.model_folder import check_target
        from demur.guarantees import NoGuaranteeError
        from demur.tabular import (
            Schema,
            check_classes,
            evaluate_table,
            fit_table,
            labelled_rows,
            read_labelled,
            read_table,
        )
        from demur.tabular.model_names import model_kind

        check_target(out, overwrite=force)
        check_cost(choice.cost)
        model_kind(model)
        table = read_table(data, delimiter=delimiter)
        rows, labels = labelled_rows(table, target)
        check_classes(labels, target)
        classes = sorted(set(labels.tolist()))
        rule = choice.rule(classes)
        schema = Schema.learn(rows, target=target, keep=keep or (), drop=drop or ())
        held_out: Any = None
        if test is not None:
            held_out = read_labelled(str(test), schema, classes, delimiter=delimiter, strict=False)
            labelled_rows(held_out, target, where=str(test))
        elif holdout:
            rows, held_out = _split(rows, labels, holdout)
            if not held_out.num_rows and report is not None:
                raise CallError(f"{data} has too few rows to hold some out for --report: give --test.")
        started = time.perf_counter()
        try:
            fitted = fit_table(
                rows,
                target,
                model=model,
                cost=choice.cost,
                rule=rule,
                schema=schema,
                time_budget=time_budget or None,
                verbose=int(is_watched()),
            )
        except NoGuaranteeError as error:
            raise CallError(_more_rows(str(error), len(labels), holdout if test is None else 0.0)) from error
        seconds = time.perf_counter() - started
        fitted.facts["rows_without_label"] = table.num_rows - len(labels)
        judged = None
        if held_out is not None and held_out.num_rows:
            judged = evaluate_table(fitted, held_out, where=str(test or data))
            fitted.facts["held_out"] = {"rows": judged.n_rows, **judged.to_json()["figures"]}
        save(fitted, out, overwrite=force)
        if report is not None and judged is not None:
            from demur.tabular import write_report

            write_report(judged, report, title=f"{target} from {data}", made=about(fitted, data), overwrite=force)
    if as_json:
        evaluation = None if judged is None else evaluation_json(judged, fitted)
        typer.echo(json.dumps({"folder": str(out), "seconds": seconds, **fitted.facts, "evaluation": evaluation}))
        return
    print_fit(fitted, data, seconds)
    if judged is not None:
        print_evaluation(judged, f"on {judged.n_rows:,} {'other' if test else 'held-out'} rows", fitted)
    else:
        if fitted.rule_words:
            console.print(fitted.rule_words, markup=False)
        console.print("It was not judged: no rows were held out.")
    written = f"Wrote {out}" + (f" and {report}" if report and judged is not None else "")
    console.print(f"{written}. Next: demur predict {out} NEW.csv --out decisions.csv", markup=False, soft_wrap=True)


def _more_rows(refusal: str, n_rows: int, holdout: float) -> str:
    """Say in the command's words where the rows for a promise come from, and how to get more."""
    words = refusal.replace("target_risk", "--max-risk").replace("delta", "--delta").rstrip(".")
    kept = f", after --holdout kept {holdout:.0%} back; --holdout 0 or --test FILE leaves more" if holdout else ""
    return f"{words}. A fifth of the {n_rows:,} rows is set aside for the promise{kept}."


def _check_call(out: Path, report: Path | None, force: bool, holdout: float, test: Path | None) -> None:
    """Refuse what cannot work before any time is spent."""
    if not 0 <= holdout < 1:
        raise CallError(f"--holdout must be a share from 0 to below 1, got {holdout:g}.")
    if report is not None and test is None and not holdout:
        raise CallError("--report needs rows to judge the model on: give --test or a --holdout above 0.")
    check_free(out, "--out", force)
    if report is not None:
        check_free(report, "--report", force, is_file=True)


def _split(rows: Any, labels: Any, share: float) -> tuple[Any, Any]:
    """Hold out a share of the rows, of every class alike, and never the only row of a class."""
    import numpy as np

    _, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = np.random.default_rng(0).permutation(len(labels))
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    held_out = np.zeros(len(labels), dtype=bool)
    due = 0.0  # what small classes, which cannot give a part of a row, leave to the next
    for members in np.split(by_class, np.cumsum(counts)[:-1]):
        due = min(due, 1.0) + share * len(members)
        taken = min(int(due + 0.5), len(members) - 1)
        due -= taken
        held_out[members[:taken]] = True
    if np.bincount(codes[~held_out]).max() < 2:
        held_out[:] = False  # nothing would be left to learn from
    return rows.filter(~held_out), rows.filter(held_out)
