"""``demur reproduce``: run the paper's experiments, and show them beside the published numbers."""

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
    from demur.paper.problems import DataPlace
    from demur.paper.records import Record
    from demur.paper.result_page import Outcome
    from demur.paper.run_jobs import Watch
    from demur.paper.trial_jobs import TrialJob

__all__ = ["reproduce"]


def reproduce(
    which: Annotated[
        str, typer.Argument(help="synthetic, benchmark, all (these two), modern (every loss), deferral, or protocol")
    ] = "all",
    quick: Annotated[
        bool, typer.Option("--quick", help="A short version; without real data, on stand-ins of the same shape.")
    ] = False,
    data: Annotated[
        str | None, typer.Option("--data", help="Folder with the data sets; else DEMUR_DATA, else they are downloaded.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Where everything goes; results/paper, published, modern, deferral, or quick."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:1")] = "auto",
    scheduler: Annotated[
        str | None, typer.Option("--scheduler", help="Run on Dask: a scheduler's address, or local:N for N processes.")
    ] = None,
    published: Annotated[
        str | None, typer.Option("--published", help="Folder with the paper's tables as CSV; else DEMUR_PUBLISHED.")
    ] = None,
    protocol: Annotated[
        str, typer.Option("--protocol", help="ours, or published: what comes nearest to the paper's printed figures.")
    ] = "ours",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE: a setting of the protocol; may be repeated.")
    ] = None,
    problems: Annotated[str, typer.Option("--problems", help="Run only these data sets or sizes: a,b,...")] = "",
    methods: Annotated[
        str,
        typer.Option(
            "--methods", help="Run only these methods: a,b,... Also any loss of `demur methods`, and file.py:Class."
        ),
    ] = "",
    records_only: Annotated[
        bool, typer.Option("--records-only", help="Compute the records and draw nothing: needs no matplotlib.")
    ] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Draw from the stored records, needing no data and no training.")
    ] = False,
    pack: Annotated[
        bool, typer.Option("--pack", help="In the end, put all records of an experiment into one file.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a summary for a program to read.")] = False,
) -> None:
    """Run the paper's experiments, or every loss by their protocol, and write tables, figures and a page to a folder.

    Stopped at any moment, the same command continues: nothing finished is computed twice.

    Example: demur reproduce all --quick
    """
    from demur.paper.experiments import chosen_experiments, parse_settings, restrict, with_losses
    from demur.paper.problems import DataPlace
    from demur.paper.records import Store
    from demur.paper.result_files import check_matplotlib
    from demur.paper.result_tables import find_published

    if records_only and tables_only:
        raise CallError("--records-only draws nothing and --tables-only computes nothing: choose one of them.")
    if which == "deferral":
        unused: dict[str, object] = {
            "--scheduler": scheduler,
            "--published": published,
            "--pack": pack,
            "--json": as_json,
        }
        for option in (name for name, value in unused.items() if value):
            raise CallError(f"{option} is for the paper's experiments; deferral runs here, in minutes.")
        chosen_settings = settings or []
        with _exit_codes(None):
            _reproduce_deferral(
                out or Path("results", "deferral-quick" if quick else "deferral"), data, quick, chosen_settings,
                _names(problems), _names(methods), compute=not tables_only, draw=not records_only,
            )  # fmt: skip
        return
    place = DataPlace(data, stand_ins=quick)
    if which == "protocol":
        given = {"--quick": quick, "--set": settings, "--problems": problems, "--methods": methods, "--json": as_json}
        for option in (name for name, value in given.items() if value):
            raise CallError(f"{option} is for experiments; the search for the protocol has its own.")
        with _exit_codes(None):
            _search_protocol(out or Path("results", "published"), place, device, scheduler, published, tables_only)
        return
    default = "published" if protocol == "published" else "modern" if which == "modern" else "paper"
    folder = out or Path("results", "quick" if quick else default)
    with wrong_call_if_refused():
        chosen = chosen_experiments(which, short=quick, settings=parse_settings(settings or []), protocol=protocol)
        chosen = with_losses(chosen, _names(methods))
        wanted = restrict(chosen, _names(problems), _names(methods))
        paper = find_published(published)
        if not records_only:
            check_matplotlib()  # now, and not after hours of training
    if not tables_only:
        _say_what_the_data_are(wanted, place)
    failure = None if tables_only else _compute(wanted, folder, place, device, scheduler)
    with _exit_codes(failure):
        if not records_only:
            from demur.paper.result_files import write_outputs

            outcome = write_outputs(folder, chosen, paper, None if tables_only else place)
            if as_json:
                typer.echo(json.dumps(_summary(folder, outcome, failure), indent=2))
            else:
                _print_summary(folder, outcome)
        for experiment in chosen if pack and failure is None else []:
            n_records = Store(folder, experiment.name).pack()
            notes.print(f"{n_records} records of the {experiment.name} experiment are in one file.", markup=False)
    if failure:
        complain(failure)
        raise typer.Exit(EXIT_FAILED)


def _search_protocol(
    folder: Path, place: "DataPlace", device: str, scheduler: str | None, published: str | None, tables_only: bool
) -> None:
    """Try the protocols of the search, keep the records of the nearest, and write the page about them."""
    from demur.errors import InputError
    from demur.paper.experiments import BenchmarkProtocol, published_benchmark
    from demur.paper.protocol_page import protocol_page
    from demur.paper.protocol_search import (
        SEARCH_TEST_ROWS,
        SEARCH_TRIALS,
        SPACE,
        SearchStore,
        read_found,
        run_search,
        score_all,
        write_found,
        write_records,
    )  # fmt: skip
    from demur.paper.result_tables import find_published
    from demur.whole_file import write_whole

    paper, store, nearest = find_published(published), SearchStore(folder), published_benchmark()
    if not paper.found:
        raise InputError("the search compares with the paper's tables: --published names the folder with them as CSV.")
    if not tables_only:
        assert isinstance(nearest.protocol, BenchmarkProtocol)
        protocols = (*SPACE, nearest.protocol)
        run_search(
            folder, place, protocols=protocols, device=device, scheduler=scheduler,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )  # fmt: skip
    found = score_all(store, paper.benchmark)
    if found:
        write_found(folder, found)
        write_records(folder, store, nearest)
    found = found or read_found(folder)
    if not found:
        raise InputError(f"{folder} has nothing of a search; run the command without --tables-only first.")
    text = protocol_page(found, trials=SEARCH_TRIALS, rows=SEARCH_TEST_ROWS)
    write_whole(folder / "protocol.md", text, overwrite=True)
    console.print(f"The page: {folder / 'protocol.md'}", markup=False, soft_wrap=True)


def _reproduce_deferral(
    folder: Path,
    data: str | None,
    quick: bool,
    settings: list[str],
    problems: list[str],
    methods: list[str],
    *,
    compute: bool,
    draw: bool,
) -> None:
    """Compare the ways to defer, on stored answers and on tables."""
    from demur.paper.deferral_experiment import (
        DeferralProtocol,
        compute_deferral,
        with_deferral_settings,
        write_deferral_page,
    )
    from demur.paper.experiments import parse_settings

    protocol = DeferralProtocol().shortened() if quick else DeferralProtocol()
    protocol = with_deferral_settings(protocol, parse_settings(settings))
    if compute:
        compute_deferral(
            folder, data, protocol, problems=problems, methods=methods,
            said=lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
    if draw:
        page = write_deferral_page(folder)
        console.print(f"Tables: {page}", markup=False, soft_wrap=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _say_what_the_data_are(experiments: "list[Experiment]", place: "DataPlace") -> None:
    """Say before anything else which figures will mean nothing."""
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
            f"Not the real data: synthetic stand-ins of the same shape replace {', '.join(stand_ins)}. --data names "
            "the folder with the real ones.",
            markup=False,
        )


def _compute(
    experiments: "list[Experiment]", folder: Path, place: "DataPlace", device: str, scheduler: str | None
) -> str | None:
    """Compute what is not done yet; return what to say if some of it failed."""
    from demur.paper.run_jobs import JobsFailedError, compute_records

    with _exit_codes(None):
        try:
            with _watching() as watch:
                compute_records(experiments, folder, place, device=device, scheduler=scheduler, watch=watch)
        except JobsFailedError as error:
            return str(error)
        except KeyboardInterrupt:
            complain("stopped. What is finished is kept; the same command continues.")
            raise typer.Exit(EXIT_FAILED) from None
    return None


@contextmanager
def _exit_codes(failure: str | None) -> Iterator[None]:
    """Turn errors into exit codes: 1 where the work failed, 2 where the call was wrong."""
    from demur.errors import UserError
    from demur.paper.records import StoreError, UnusableFolderError

    try:
        yield
    except UserError as error:
        if isinstance(error, UnusableFolderError) or not isinstance(error, StoreError):
            if failure is None:
                raise CallError(str(error)) from error
            complain(failure)
        else:
            complain(str(error))
        raise typer.Exit(EXIT_FAILED) from error


@contextmanager
def _watching() -> "Iterator[Watch]":
    """Watch a run: with a bar on a terminal, with one line for every finished job elsewhere."""
    from demur.paper.run_jobs import Watch
    from demur.progress import progress_bar

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
    """One line on standard error for every finished job: for log files."""

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
    """Print what must be said of the data, and then the verdicts."""
    from demur.paper.result_page import best_counts

    for line in outcome.warnings():
        console.print(line.replace("**", ""), markup=False)
    if outcome.claims:
        table = plain_table("The paper's statements on these figures")
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
