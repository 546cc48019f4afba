"""``demur reproduce``: run the paper's experiments, and show them beside the published numbers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from demur.cli.console import EXIT_FAILED, CallError, complain, console, plain_table, wrong_call_if_refused

if TYPE_CHECKING:
    from demur.paper import DataPlace, Experiment
    from demur.paper.progress import Progress

__all__ = ["reproduce"]


def reproduce(
    which: Annotated[str, typer.Argument(help="synthetic, benchmark or all")] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="A short version; without real data, on stand-ins of the same shape.")
    ] = False,
    data: Annotated[
        str | None, typer.Option("--data", help="Folder with the data sets; else DEMUR_DATA, else they are downloaded.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where everything goes; results/paper, or results/quick.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1")] = "auto",
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Run on Dask: a scheduler's address, or local:N for N processes.")
    ] = None,
    published: Annotated[
        str | None, typer.Option("--published", help="Folder with the paper's tables as CSV; else DEMUR_PUBLISHED.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting of the protocol; may be repeated.")
    ] = None,
    problems: Annotated[str, typer.Option("--problems", help="Run only these data sets or sizes: a,b,...")] = "",
    methods: Annotated[str, typer.Option("--methods", help="Run only these methods: a,b,...")] = "",
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Draw from the stored records, needing no data and no training.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary for a program to read.")] = False,
) -> None:
    """Run the paper's experiments on real data and write tables, figures and a page to a folder.

    Stopped at any moment, the same command continues: nothing finished is computed twice.

    Example: demur reproduce all --quick
    """
    from demur.paper.numbers import MixedDataError
    from demur.paper.problems import DataPlace
    from demur.paper.published import find_published
    from demur.paper.render import NothingToShowError, write_outputs
    from demur.paper.run import chosen_experiments, parse_settings, restrict
    from demur.paper.store import StoreError

    folder = out or Path("results", "quick" if quick else "paper")
    place = DataPlace(data, stand_ins=quick)
    with wrong_call_if_refused():
        chosen = chosen_experiments(which, short=quick, settings=parse_settings(settings or []))
        wanted = restrict(chosen, problems, methods)
        paper = find_published(published)
    failure = None if tables_only else _compute(wanted, folder, place, device, scheduler)
    try:
        material = write_outputs(folder, chosen, paper, None if tables_only else place)
    except (NothingToShowError, MixedDataError) as error:
        if failure is None:
            raise CallError(str(error)) from error
        complain(failure)
        raise typer.Exit(EXIT_FAILED) from error
    except StoreError as error:
        complain(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    if as_json:
        typer.echo(json.dumps(_summary(folder, material, failure), indent=2))
    else:
        _print_summary(folder, material)
    if failure:
        complain(failure)
        raise typer.Exit(EXIT_FAILED)


def _compute(
    experiments: "list[Experiment]", folder: Path, place: "DataPlace", device: str, scheduler: str | None
) -> str | None:
    """Compute what is not done yet; return what to say if some of it failed."""
    from demur.datasets import DatasetError
    from demur.paper.bar import watching
    from demur.paper.plan import make_plan
    from demur.paper.progress import RunFailedError
    from demur.paper.store import Store, StoreError, UnusableFolderError
    from demur.training import resolve_device

    with wrong_call_if_refused():
        device_type = resolve_device(device).type
    failures = []
    try:
        plans = []
        with watching(complain) as progress:
            for experiment in experiments:
                store = Store(folder, experiment.name)
                store.check_writable()
                plan = make_plan(experiment, store, place, device_type=device_type, progress=progress)
                plan.ensure_data()
                plans.append(plan)
            progress.expect(sum(len(plan.units) for plan in plans), sum(plan.work for plan in plans))
            for plan in plans:
                try:
                    _run(plan, device, scheduler, progress)
                except RunFailedError as error:
                    failures.append(str(error))
    except (DatasetError, UnusableFolderError) as error:
        raise CallError(str(error)) from error
    except StoreError as error:
        complain(str(error))
        raise typer.Exit(EXIT_FAILED) from error
    except KeyboardInterrupt:
        complain("stopped. What is finished is kept; the same command continues.")
        raise typer.Exit(EXIT_FAILED) from None
    return " ".join(failures) or None


def _run(plan: Any, device: str, scheduler: str | None, progress: "Progress") -> None:
    from demur.paper.runner import run_here
    from demur.training import resolve_device

    if not plan.units:
        return
    if scheduler is None:
        run_here(plan, resolve_device(device), progress)
        return
    from demur.paper.distributed import DaskMissingError, connect, run_on_cluster

    try:
        with wrong_call_if_refused(), connect(scheduler) as client:
            run_on_cluster(plan, client, device, progress)
    except DaskMissingError as error:
        raise CallError(str(error)) from error


def _summary(folder: Path, material: Any, failure: str | None) -> dict[str, Any]:
    return {
        "out": str(folder),
        "complete": failure is None and not any(part.missing for part in material.parts),
        "quick": material.quick,
        "notes": {problem: note for part in material.parts for problem, note in part.notes.items() if note},
        "claims": [
            {"statement": one.claim.statement, "verdict": one.ours.verdict, "evidence": one.ours.evidence}
            for one in material.claims
        ],
        "published": [
            {
                "method": one.method,
                "cells": one.n,
                "at_or_below": one.at_or_below,
                "strictly": one.strictly,
                "within": one.within,
            }
            for one in material.compared
        ],
    }


def _print_summary(folder: Path, material: Any) -> None:
    table = plain_table("The paper's statements on these figures")
    table.add_column("statement")
    table.add_column("verdict", no_wrap=True)
    for judged in material.claims:
        table.add_row(judged.claim.statement, f"{judged.ours.verdict} ({judged.ours.counts})")
    console.print(table)
    for line in material.warning().splitlines():
        console.print(line.strip("> ").replace("**", ""), markup=False)
    console.print(f"Tables, figures and the page: {folder / 'README.md'}", markup=False, soft_wrap=True)
