"""``demur monitor``: detect drift and a rising error rate of a deployed model."""

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.console import (
    CallError,
    check_share,
    console,
    load_table_model,
    plain_table,
    warnings_as_notes,
    wrong_call_if_refused,
)
from demur.cli.options import AllowExtra, AsJson, Delimiter, ModelFolder

if TYPE_CHECKING:
    from demur.deploy import Monitor, Reference
    from demur.tabular import TableModel

__all__ = ["EXIT_ALARM", "monitor"]

EXIT_ALARM = 3


def monitor(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="Table of new rows, in the order they came in, or - for stdin.")],
    state: Annotated[Path, typer.Option(help="State file; created by the first call.")],
    reviewed: Annotated[
        bool, typer.Option("--reviewed", help="DATA holds reviewed rows: declined or audited, with labels.")
    ] = False,
    to_review: Annotated[
        Path | None, typer.Option(help="Table to write: declined rows and a random audit, to be labelled.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="Labelled table to compare with.", show_default="the rows held out by demur fit")
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(
            help="Error rate above which the monitor raises an alarm.",
            show_default="the guaranteed rate, or that of held-out rows",
        ),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="Probability that there is ever a false alarm.", show_default="0.05")
    ] = None,
    audit: Annotated[
        float | None, typer.Option(help="Share of the answered rows to draw for review.", show_default="0.02")
    ] = None,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows between two updates of the state file.")] = 4096,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing --to-review file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Monitor a model: drift from new rows, error rate from reviewed ones.

    The probability of a false alarm is at most --delta over all calls together.
    Rows are identified by their content and counted once, so an interrupted call
    can be repeated. Several processes may share a state file. The exit code is 3
    if there is an alarm.

    Example: demur monitor model/ today.csv --state state.json --to-review review.csv
    """
    check_share("--max-risk", max_risk, zero=False)
    check_share("--delta", delta, zero=False)
    check_share("--audit", audit, one=True)
    if reviewed and to_review is not None:
        raise CallError("--to-review lists new rows to label; it cannot be used with --reviewed.")
    with wrong_call_if_refused(), warnings_as_notes():
        from demur.deploy import Monitor, MonitoredTables

        fitted = load_table_model(model)
        known = None if reference is None else _reference(fitted, reference)
        settings = {"max_risk": max_risk, "delta": delta, "audit": audit}
        given = {name: value for name, value in settings.items() if value is not None}
        tables = MonitoredTables(state, fitted, lambda: Monitor.of_model(fitted, known, **given))
        _check_state(tables.monitor(), fitted, state, known, given)
        if reviewed:
            tables.review(data, delimiter=delimiter)
        else:
            with ExitStack() as stack:
                write = None
                if to_review is not None:
                    from demur.tabular import TableWriter

                    writer = TableWriter(to_review, overwrite=force, inputs=[data], spreadsheet_safe=True)
                    write = stack.enter_context(writer).write
                tables.watch(data, chunk_rows=chunk_rows, delimiter=delimiter, strict=not allow_extra, to_review=write)
    watching = tables.monitor()
    if as_json:
        typer.echo(json.dumps(watching.to_json(), indent=2))
    else:
        _print(watching)
        if to_review is not None:
            console.print(f"Wrote {to_review}", markup=False, soft_wrap=True)
    if watching.alarms:
        raise typer.Exit(EXIT_ALARM)


def _reference(model: "TableModel", path: str) -> "Reference":
    from demur.deploy import Reference
    from demur.tabular import evaluate_table, read_labelled

    table = read_labelled(path, model.schema, model.classes.tolist(), strict=False)
    return Reference.of_evaluation(evaluate_table(model, table, where=path), is_probability=model.has_proba)


def _check_state(
    found: "Monitor", model: "TableModel", state: Path, reference: "Reference | None", given: dict[str, float]
) -> None:
    """Raise an error if the state was begun with other settings, or for another model."""
    found.check_model(model)
    for name, value in given.items():
        if getattr(found, name) != value:
            raise CallError(
                f"{state} was started with --{name.replace('_', '-')} {getattr(found, name):g}, which cannot change: "
                "omit the option, or start another state."
            )
    compared = model.facts.get("reference") if reference is None else reference.to_json()
    if compared is not None and compared != found.reference.to_json():
        raise CallError(f"{state} was started with another model or other reference rows: start another state.")


def _print(watching: "Monitor") -> None:
    """Print the evidence of each check, the threshold of its alarm, and the result of the audit."""
    from demur.tabular.evaluation_figures import counted, percent

    found = watching.to_json()
    table = plain_table(f"After {counted(watching.n_rows, 'row', 'rows')}")
    for heading in ("check", "now", "reference", "evidence", "alarm at"):
        table.add_column(heading, justify="left" if heading == "check" else "right")
    for name, evidence in found["evidence"].items():
        now, then = "", ""
        if name == "rejected share":
            now = "" if found["rejected_share"] is None else percent(found["rejected_share"])
            then = percent(found["reference_rejected_share"])
        elif name == "risk":
            now = "" if found["risk"] is None else percent(found["risk"]["estimate"])
            then = f"at most {percent(watching.max_risk)}"
        raised = any(alarm.check == name for alarm in watching.alarms)
        table.add_row(name, now, then, "ALARM" if raised else f"{evidence:,.2f}", f"{watching.threshold:,.0f}")
    console.print(table)
    if found["risk"] is not None:
        risk = found["risk"]
        console.print(
            f"Of {counted(watching.n_audited, 'audited answer', 'audited answers')}, "
            f"{percent(risk['estimate'])} were wrong. The error rate of all answers is between "
            f"{percent(risk['low'])} and {percent(risk['high'])} ({percent(1 - watching.delta)} confidence, valid at "
            "any time).",
            markup=False,
        )
    if watching.n_reviewed:
        console.print(
            f"Of {counted(watching.n_reviewed, 'declined row', 'declined rows')} reviewed, the first choice of "
            f"{percent(found['declined_rightly'])} was wrong.",
            markup=False,
        )
    for alarm in watching.alarms:
        console.print(str(alarm), markup=False)
    if not watching.alarms:
        console.print("No alarm.")
