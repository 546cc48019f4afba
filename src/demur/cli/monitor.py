"""``demur monitor``: whether the world has changed since the model was fitted."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    import pyarrow as pa

    from demur.deploy import Monitor
    from demur.tabular import TableModel

__all__ = ["EXIT_ALARM", "monitor"]

EXIT_ALARM = 3


def monitor(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="A table of the rows that came in, in their order, or -.")],
    state: Annotated[Path, typer.Option(help="The small file that remembers all; made by the first call.")],
    reviewed: Annotated[
        bool, typer.Option("--reviewed", help="The rows have labels: they were declined, or drawn for the audit.")
    ] = False,
    to_review: Annotated[
        Path | None, typer.Option(help="Write the declined rows and those drawn for the audit to this table.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="A table with labels to compare with. [default: what demur fit held out]")
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="The share of wrong answers that is no alarm yet. [default: what was promised, or held out]"),
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="How probable a false alarm may be, ever. [default: 0.05]")
    ] = None,
    audit: Annotated[
        float | None, typer.Option(help="The share of answered rows to draw for a review. [default: 0.02]")
    ] = None,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    chunk_rows: Annotated[int, typer.Option(min=1, help="Rows between two savings of the state.")] = 4096,
    force: Annotated[bool, typer.Option("--force", help="Replace a --to-review file that is there already.")] = False,
    as_json: AsJson = False,
) -> None:
    """Watch a model: drift from the rows that come in, risk from those that were reviewed.

    A false alarm has probability at most --delta, however often and however long this runs. Killed at any moment, the
    same call goes on where it was. Exit code 3: there was an alarm.

    Example: demur monitor model/ today.csv --state watch.json --to-review desk.csv
    """
    check_share("--max-risk", max_risk, zero=False)
    check_share("--delta", delta, zero=False)
    check_share("--audit", audit, one=True)
    if reviewed and to_review is not None:
        raise CallError("--to-review lists rows that come in; rows that are --reviewed already need no list.")
    with wrong_call_if_refused(), warnings_as_notes():
        fitted = load_table_model(model)
        given = {"max_risk": max_risk, "delta": delta, "audit": audit}
        watching = _monitor(
            fitted, state, reference, {name: value for name, value in given.items() if value is not None}
        )
        if reviewed:
            _review(watching, fitted, data, delimiter)
            watching.save(state)
        else:
            with ExitStack() as stack:
                writer: Any = None
                if to_review is not None:
                    from demur.tabular import TableWriter

                    writer = stack.enter_context(
                        TableWriter(to_review, overwrite=force, inputs=[data], spreadsheet_safe=True)
                    )
                for first, chunk in _watch(
                    watching, fitted, data, state, chunk_rows, delimiter, strict=not allow_extra
                ):
                    if writer is not None:
                        writer.write(_desk(watching, fitted, data, first, chunk))
    if as_json:
        typer.echo(json.dumps(watching.to_json(), indent=2))
    else:
        _print(watching)
        if to_review is not None:
            console.print(f"Wrote {to_review}", markup=False, soft_wrap=True)
    if watching.alarms:
        raise typer.Exit(EXIT_ALARM)


def _monitor(model: "TableModel", state: Path, reference: str | None, given: dict[str, float]) -> "Monitor":
    """Return the monitor that the state holds, or a new one."""
    from demur.deploy import Monitor, Reference

    known = None
    if reference is not None:
        from demur.tabular import read_labelled

        rows = read_labelled(reference, model.schema, model.classes.tolist(), strict=False)
        known = Reference.of_table(model, rows, where=reference)
    if not state.exists():
        return Monitor.of_model(model, known, **given)
    found = Monitor.load(state)
    found.check_model(model)
    for name, value in given.items():
        if getattr(found, name) != value:
            raise CallError(
                f"{state} was begun with --{name.replace('_', '-')} {getattr(found, name):g}: what counts as an alarm "
                "cannot change on the way; leave the option out, or begin another state."
            )
    compared = model.facts.get("reference") if known is None else known.to_json()
    if compared is not None and Reference.from_json(compared) != found.reference:
        raise CallError(f"{state} was begun with another model or other reference rows: begin another state.")
    return found


def _review(watching: "Monitor", model: "TableModel", data: str, delimiter: str | None) -> None:
    """Take the labels of a table; a table that was taken already is refused."""
    from demur.tabular import read_labelled

    key = f"reviewed {Path(data).resolve()}"
    table = read_labelled(data, model.schema, model.classes.tolist(), delimiter=delimiter, strict=False)
    seen = 0 if data == "-" else watching.sources.get(key, 0)
    if table.num_rows > seen:
        watching.review_table(model, table.slice(seen), where=data)
    watching.sources[key] = table.num_rows


def _watch(
    watching: "Monitor",
    model: "TableModel",
    data: str,
    state: Path,
    chunk_rows: int,
    delimiter: str | None,
    *,
    strict: bool,
) -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Watch the rows that the state has not seen, save it after each piece; yield all pieces and where they begin."""
    import pyarrow as pa

    from demur.tabular import open_table

    source = _source(data)
    seen = watching.sources.get(source, 0)
    first = seen if data == "-" else 0
    schema = model.schema
    with open_table(data, delimiter=delimiter, decimal=schema.decimal, dayfirst=schema.dayfirst) as reader:
        schema.check(reader.columns, strict=strict, where=reader.name)
        types = {name: kind or pa.string() for name, kind in reader.columns.items()} | schema.arrow_types()
        for chunk in reader.chunks(types, chunk_rows):
            known = max(seen - first, 0)
            if known < chunk.num_rows:
                watching.watch_table(model, chunk.slice(known), where=reader.name)
                watching.sources[source] = first + chunk.num_rows
                watching.save(state)
            yield first, chunk
            first += chunk.num_rows
    if not state.exists():
        watching.save(state)


def _source(data: str) -> str:
    return data if data == "-" else str(Path(data).resolve())


def _desk(watching: "Monitor", model: "TableModel", data: str, first: int, chunk: "pa.RecordBatch") -> "pa.Table":
    """Return the rows of a piece that need a review, and why; the column for the label is left to the reviewer."""
    import numpy as np
    import pyarrow as pa

    from demur.tabular.review_desk import AUDIT, DECLINED, WHY

    answers = model.answers(chunk, where=data)
    rejected = answers.column("rejected").to_numpy()
    drawn = watching.draw(_source(data), first, chunk.num_rows)
    columns = {name: chunk.column(name) for name in chunk.schema.names if name != model.target}
    told = {WHY: pa.array(np.where(rejected, DECLINED, AUDIT))}
    told |= {"first_choice": answers.column("first_choice").combine_chunks()}
    columns |= {name: values for name, values in told.items() if name not in model.schema.names}
    return pa.table(columns).filter(pa.array(rejected | drawn))


def _print(watching: "Monitor") -> None:
    """Print each check's evidence beside what an alarm takes, and what the audit says."""
    from demur.tabular.evaluation_words import counted, percent

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
            f"{percent(risk['estimate'])} were wrong; the share among all answers is between {percent(risk['low'])} "
            f"and {percent(risk['high'])}, at any time with {percent(1 - watching.delta)} confidence.",
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
