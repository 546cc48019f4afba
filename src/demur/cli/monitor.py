"""``demur monitor``: detect drift and a rising error rate of a deployed model."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.console import load_table_model, print_json, print_table, say, share
from demur.cli.options import DATA, OUTPUT, AllowExtra, AsJson, Delimiter, Force, ModelFolder, panel
from demur.errors import InputError

if TYPE_CHECKING:
    from demur.deploy import Monitor, Reference

ALARMS = panel("Alarms")

EXIT_ALARM = 3

Reviewed = Annotated[bool, DATA("--reviewed", help="DATA holds reviewed rows: declined or audited, with labels.")]
ToReview = Annotated[Path | None, OUTPUT(help="Table to write: declined rows and a random audit, to be labelled.")]
ReferenceRows = Annotated[
    str | None,
    DATA(help="Labelled table to compare with, in each call.", show_default="the rows held out by demur fit"),
]
MaxRisk = Annotated[
    float | None,
    ALARMS(
        help="Error rate above which the monitor raises an alarm.",
        show_default="the guaranteed rate, or that of the reference rows",
        callback=share(),
    ),
]
Delta = Annotated[
    float | None,
    ALARMS(help="Probability of a false alarm, over all calls together.", show_default="0.05", callback=share()),
]
Audit = Annotated[
    float | None,
    ALARMS(
        help="Share of the answered rows to draw for review.",
        show_default="0.02",
        callback=share(zero=True, one=True),
    ),
]


def monitor(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(help="Table of new rows in order of arrival, or - for stdin.")],
    state: Annotated[Path, OUTPUT(help="State file; created by the first call.")],
    reviewed: Reviewed = False,
    reference: ReferenceRows = None,
    allow_extra: AllowExtra = False,
    delimiter: Delimiter = None,
    max_risk: MaxRisk = None,
    delta: Delta = None,
    audit: Audit = None,
    to_review: ToReview = None,
    chunk_rows: Annotated[int, OUTPUT(min=1, help="Rows between two updates of the state file.")] = 4096,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Detect drift in new rows, and a rising error rate in reviewed rows.

    The probability of a false alarm is at most --delta over all calls together.
    Rows are recognised by their content and counted once, so an interrupted call
    can be repeated. Several processes may share a state file. The exit code is 3
    if there is an alarm.

    Example: demur monitor model/ today.csv --state state.json --to-review review.csv
    """
    if reviewed and to_review is not None:
        raise InputError("--to-review lists new rows to label; it cannot be used with --reviewed.")
    from demur.deploy import Monitor, MonitoredTables, Reference
    from demur.tabular import TableWriter, evaluate_table, read_labelled

    fitted, known = load_table_model(model), None
    if reference is not None:
        table = read_labelled(reference, fitted.schema, fitted.classes.tolist(), strict=False)
        evaluation = evaluate_table(fitted, table, where=reference)
        known = Reference.of_evaluation(evaluation, is_probability=fitted.has_proba)
    elif "reference" in fitted.facts:
        known = Reference.from_json(fitted.facts["reference"])
    settings = {"max_risk": max_risk, "delta": delta, "audit": audit}
    given = {name: value for name, value in settings.items() if value is not None}
    tables = MonitoredTables(state, fitted, lambda: Monitor.of_model(fitted, known, **given))
    _check_state(tables.monitor(), state, known, given)
    if reviewed:
        tables.review(data, delimiter=delimiter)
    else:
        review = None
        if to_review is not None:
            review = TableWriter(to_review, overwrite=force, inputs=[data], spreadsheet_safe=True)
        with review or nullcontext() as writer:
            write = None if writer is None else writer.write
            tables.watch(data, chunk_rows=chunk_rows, delimiter=delimiter, strict=not allow_extra, to_review=write)
    watching = tables.monitor()
    if as_json:
        print_json(watching.to_json())
    else:
        _print(watching)
        if to_review is not None:
            say(f"Wrote {to_review}")
    if watching.alarms:
        raise typer.Exit(EXIT_ALARM)


def _check_state(found: "Monitor", state: Path, reference: "Reference | None", given: dict[str, float]) -> None:
    """Raise an error if the state was begun with other settings or other reference rows."""
    for name, value in given.items():
        begun = getattr(found, name)
        if begun != value:
            option = f"--{name.replace('_', '-')}"
            begun = f"without {option}" if begun is None else f"with {option} {begun:g}"
            raise InputError(
                f"{state} was started {begun}, which cannot change: omit the option, or start another state."
            )
    if reference not in (None, found.reference):
        raise InputError(
            f"{state} belongs to another model or other reference rows: use its --reference, or start another state."
        )


def _print(watching: "Monitor") -> None:
    """Print the evidence of each check, the threshold of its alarm, and the result of the audit."""
    from demur.tabular.evaluation_figures import counted, percent

    found, raised = watching.to_json(), {alarm.check for alarm in watching.alarms}
    rows = [
        [name, "ALARM" if name in raised else f"{evidence:,.2f}", f"{found['thresholds'][name]:,.0f}"]
        for name, evidence in found["evidence"].items()
    ]
    print_table(f"After {counted(watching.n_rows, 'row', 'rows')}", ("check", "evidence", "alarm at"), rows)
    if found["rejected_share"] is not None:
        now, then = percent(found["rejected_share"]), percent(found["reference_rejected_share"])
        say(f"Declined: {now} of the rows, {then} of the reference rows.")
    if (risk := found["risk"]) is not None:
        say(
            f"Of {counted(watching.n_audited, 'audited answer', 'audited answers')}, {percent(risk['estimate'])} were "
            f"wrong. The error rate of all answers is between {percent(risk['low'])} and {percent(risk['high'])} "
            f"({percent(1 - watching.delta)} confidence, valid at any time)."
        )
    if "risk" not in raised and 0 < (known := found["reference_risk"]) <= 0.5:
        rows_more = found["rows_to_doubling"]
        more = "more than 10,000" if rows_more is None else f"about {float(f'{rows_more:.2g}'):,.0f}"
        which = "reference" if watching.max_risk is None else "allowed"
        say(
            f"The {which} error rate is {percent(known)}. If it doubled now, the alarm would come after {more} more "
            "audited answers."
        )
    if watching.n_reviewed:
        say(
            f"Of {counted(watching.n_reviewed, 'declined row', 'declined rows')} reviewed, the first choice of "
            f"{percent(found['declined_rightly'])} was wrong."
        )
    for alarm in watching.alarms:
        say(str(alarm))
    if not raised:
        say("No alarm.")
