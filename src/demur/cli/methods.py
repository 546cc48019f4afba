"""``demur methods``: every registered loss, with its facts."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Annotated

import typer

from demur.cli.console import console, plain_table, wrong_call_if_refused
from demur.cli.options import AsJson

__all__ = ["methods"]


@dataclass(frozen=True)
class _Row:
    name: str
    family: str
    classes: str
    calibrated: str
    why: str
    refit_when_cost_changes: bool
    paper: str


def methods(
    own: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE.PY:CLASS]...", help="Your own losses to include; their files are executed."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all losses: family, whether calibrated and why, whether a new cost needs a refit.

    Example: demur methods
    """
    with wrong_call_if_refused():
        rows = _rows(own or [])
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = plain_table("Losses that demur can train with")
    for heading in ("method", "family", "classes", "calibrated", "refit for new c"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        refit = "yes" if row.refit_when_cost_changes else "no"
        table.add_row(row.name, row.family, row.classes, row.calibrated, refit)
    console.print(table)
    console.print("[bold]Why, and where in the paper[/bold]")
    for (why, paper), group in groupby(rows, key=lambda row: (row.why, row.paper)):
        console.print(f"  {', '.join(row.name for row in group)}: {why} ({paper})", soft_wrap=True)
    console.print(
        "\n[bold]calibrated[/bold]: with enough data, training leads to Chow's decisions, answer iff max eta > 1 - c,\n"
        "where eta are the true class probabilities and c is the cost of rejecting.\n"
        "[bold]refit for new c[/bold]: whether another cost needs another training.",
        soft_wrap=True,
    )


def _rows(own: Sequence[str]) -> list[_Row]:
    from demur.losses import available, get, resolve

    # Running a file may register its losses: ask for what is available afterwards.
    losses = {loss.name: loss for loss in map(resolve, own)}
    losses |= {name: get(name) for name in available() if name not in losses}
    rows = []
    for name, loss in losses.items():
        two, three = loss.calibrated_for(2), loss.calibrated_for(3)
        calibrated = "yes" if two and (three or loss.binary_only) else "K = 2 only" if two else "no"
        classes = "2" if loss.binary_only else "any"
        rows.append(_Row(name, loss.family, classes, calibrated, loss.why, loss.trained_for_cost, loss.equation))
    return sorted(rows, key=lambda row: (row.classes == "2", row.family != "confidence", row.family, row.name))
