"""``demur reproduce``: run the paper's experiments, and compare them with the published numbers."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.console import (
    EXIT_FAILED,
    CallError,
    complain,
    console,
    is_watched,
    notes,
    plain_table,
    wrong_call_if_refused,
)

if TYPE_CHECKING:
    from demur.paper.experiments import Experiment
    from demur.paper.pages import Outcome
    from demur.paper.problems import DataPlace
    from demur.paper.records import Record
    from demur.paper.run_jobs import Watch
    from demur.paper.trial_jobs import TrialJob

__all__ = ["reproduce"]


def reproduce(
    which: Annotated[
        str, typer.Argument(help="synthetic, benchmark, all (these two), modern (every loss) or deferral.")
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="Short run; missing data sets are replaced by synthetic ones.")
    ] = False,
    data: Annotated[
        str | None, typer.Option("--data", help="Folder with the data sets.", show_default="DEMUR_DATA, or downloaded")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Output folder.", show_default="results/paper, published, modern, ...")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Run on Dask: address of a scheduler, or local:N for N processes.")
    ] = None,
    published: Annotated[
        str | None,
        typer.Option("--published", help="Folder with the paper's tables as CSV.", show_default="DEMUR_PUBLISHED"),
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="ours, or published (closest to the paper's printed results).")
    ] = "ours",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Setting of the protocol as NAME=VALUE (repeatable).")
    ] = None,
    problems: Annotated[str, typer.Option("--problems", help="Run only these data sets or sizes: a,b,...")] = "",
    methods: Annotated[
        str, typer.Option("--methods", help="Run only these methods: a,b,... Any loss, or file.py:Class.")
    ] = "",
    records_only: Annotated[
        bool, typer.Option("--records-only", help="Compute the records only; does not need matplotlib.")
    ] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Write tables and figures from stored records, without training.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary as JSON.")] = False,
) -> None:
    """Run the paper's experiments and write tables, figures and a page to a folder.

    An interrupted run continues where it stopped.

    Example: demur reproduce all --quick
    """
    if records_only and tables_only:
        raise CallError("--records-only draws nothing and --tables-only computes nothing: choose one of them.")
    if which == "deferral":
        unused = {"--scheduler": scheduler, "--published": published, "--json": as_json}
        for option in (name for name, value in unused.items() if value):
            raise CallError(f"{option} cannot be used with deferral.")
        with _exit_codes(None):
            from demur.paper.deferral_experiment import DeferralRun

            run = DeferralRun(
                out or Path("results", "deferral-quick" if quick else "deferral"), data, settings or [], quick=quick
            )
            if not tables_only:
                run.compute(_names(problems), _names(methods), lambda line: print(line, file=sys.stderr, flush=True))
            if not records_only:
                console.print(f"Tables: {run.write_page()}", markup=False, soft_wrap=True)
        return
    from demur.paper.experiments import chosen_experiments, parse_settings, restrict, with_losses
    from demur.paper.figures import check_matplotlib
    from demur.paper.problems import DataPlace
    from demur.paper.tables import find_published

    place = DataPlace(data, stand_ins=quick)
    default = "published" if protocol == "published" else "modern" if which == "modern" else "paper"
    folder = out or Path("results", "quick" if quick else default)
    with wrong_call_if_refused():
        chosen = chosen_experiments(which, short=quick, settings=parse_settings(settings or []), protocol=protocol)
        chosen = with_losses(chosen, _names(methods))
        wanted = restrict(chosen, _names(problems), _names(methods))
        paper = find_published(published)
        if not records_only:
            check_matplotlib()  # before hours of training
    if not tables_only:
        _note_stand_ins(wanted, place)
    failure = None if tables_only else _compute(wanted, folder, place, device, scheduler)
    if not records_only:
        with _exit_codes(failure):
            from demur.paper.pages import write_outputs

            outcome = write_outputs(folder, chosen, paper, None if tables_only else place)
            if as_json:
                typer.echo(json.dumps(_summary(folder, outcome, failure), indent=2))
            else:
                _print_summary(folder, outcome)
    if failure:
        complain(failure)
        raise typer.Exit(EXIT_FAILED)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _note_stand_ins(experiments: "list[Experiment]", place: "DataPlace") -> None:
    """Print which data sets are replaced by synthetic ones."""
    from demur.paper.problems import STAND_IN_NOTE, identify

    with wrong_call_if_refused():
        stand_ins = [
            problem
            for experiment in experiments
            for problem in experiment.problems
            if identify(problem, experiment.protocol, place).note == STAND_IN_NOTE
        ]
    if stand_ins:
        notes.print(
            f"Not the real data: synthetic stand-ins of the same shape replace {', '.join(stand_ins)}. Pass the folder "
            "with the real ones with --data.",
            markup=False,
        )


def _compute(
    experiments: "list[Experiment]", folder: Path, place: "DataPlace", device: str, scheduler: str | None
) -> str | None:
    """Compute what is not stored yet; return an error message if some jobs failed."""
    from demur.paper.run_jobs import JobsFailedError, compute_records

    with _exit_codes(None):
        try:
            with _watching() as watch:
                compute_records(experiments, folder, place, device=device, scheduler=scheduler, watch=watch)
        except JobsFailedError as error:
            return str(error)
        except KeyboardInterrupt:
            complain("interrupted. Finished jobs are stored; the same command continues.")
            raise typer.Exit(EXIT_FAILED) from None
    return None


@contextmanager
def _exit_codes(failure: str | None) -> Iterator[None]:
    """Turn errors into exit codes: 1 if the work failed, 2 if the call was wrong."""
    from demur.errors import UserError
    from demur.paper.records import StoreError

    try:
        yield
    except UserError as error:
        if failure is None and not isinstance(error, StoreError):
            raise CallError(str(error)) from error
        complain(failure or str(error))
        raise typer.Exit(EXIT_FAILED) from error


@contextmanager
def _watching() -> "Iterator[Watch]":
    """Show progress: a bar on a terminal, elsewhere one line per finished job."""
    from demur.paper.run_jobs import Watch
    from demur.workers import progress_bar

    if is_watched():
        with ExitStack() as stack:
            bars: list[Callable[[int], None]] = []

            def planned(n_jobs: int, work: float) -> None:
                bars.append(stack.enter_context(progress_bar(f"{n_jobs} jobs", round(work))))

            yield Watch(planned=planned, advance=lambda work: bars[0](round(work)), warn=complain)
        return
    log = _Log()
    yield Watch(planned=log.planned, finished=log.finished, warn=complain)


class _Log:
    """Print one line per finished job to standard error, for log files."""

    def planned(self, n_jobs: int, work: float) -> None:
        self._n_jobs, self._n_done, self._started = n_jobs, 0, time.monotonic()

    def finished(self, job: "TrialJob", record: "Record") -> None:
        self._n_done += 1
        print(
            f"[{self._n_done}/{self._n_jobs}, {time.monotonic() - self._started:.0f} s] {job.experiment} "
            f"{job.problem} {job.method.name}: {record.networks} networks, training {record.seconds_training:.2f} s, "
            f"other {record.seconds_other:.2f} s",
            file=sys.stderr,
            flush=True,
        )


def _summary(folder: Path, outcome: "Outcome", failure: str | None) -> dict[str, object]:
    return {
        "out": str(folder),
        "complete": failure is None and not any(part.missing for part in outcome.parts),
        "quick": outcome.quick,
        "notes": {problem: note for part in outcome.parts for problem, note in part.notes.items() if note},
        "claims": [
            {"statement": one.claim.statement, "verdict": one.ours.verdict, "evidence": one.ours.evidence}
            for one in outcome.claims
        ],
        "published": [
            {
                "method": one.method,
                "cells": one.n,
                "at_or_below": one.at_or_below,
                "strictly": one.strictly,
                "within": one.within,
            }
            for one in outcome.compared
        ],
    }


def _print_summary(folder: Path, outcome: "Outcome") -> None:
    """Print the caveats, and then the verdicts."""
    from demur.paper.pages import best_counts

    for line in outcome.warnings():
        console.print(line.replace("**", ""), markup=False)
    if outcome.claims:
        table = plain_table("The paper's statements, tested on these figures")
        table.add_column("statement")
        table.add_column("verdict", no_wrap=True)
        for judged in outcome.claims:
            table.add_row(judged.claim.statement, f"{judged.ours.verdict} ({judged.ours.counts})")
        console.print(table)
    if outcome.modern is not None:
        table = plain_table("Cells (data set x cost) in which a loss is the best or equivalent to the best")
        for heading in ("loss", "cells"):
            table.add_column(heading, no_wrap=True)
        for name, counts in best_counts(outcome.modern):
            table.add_row(name, counts)
        console.print(table)
    console.print(f"Tables, figures and the page: {folder / 'README.md'}", markup=False, soft_wrap=True)
