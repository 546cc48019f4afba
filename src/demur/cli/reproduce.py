"""``demur reproduce``: run the paper's experiments, and compare them with the published numbers."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from demur.cli.console import note, print_table, say
from demur.cli.options import COMPUTING, DATA, OUTPUT, Repeatable, panel
from demur.errors import InputError

if TYPE_CHECKING:
    from demur.paper.pages import Outcome
    from demur.paper.records import Record
    from demur.paper.trials import TrialJob

EXPERIMENT = panel("Experiment")

Quick = Annotated[bool, EXPERIMENT("--quick", help="Short run; missing data sets are replaced by synthetic ones.")]
Settings = Annotated[Repeatable, EXPERIMENT("--set", help="Setting of the protocol as NAME=VALUE (repeatable).")]
Data = Annotated[str | None, DATA(help="Folder with the data sets.", show_default="DEMUR_DATA, or downloaded")]
PublishedTables = Annotated[
    str | None, DATA(help="Folder with the paper's tables as CSV.", show_default="DEMUR_PUBLISHED")
]
Out = Annotated[Path | None, OUTPUT(help="Output folder.", show_default="results/paper, published, modern, ...")]
RecordsOnly = Annotated[bool, OUTPUT("--records-only", help="Compute the records only; does not need matplotlib.")]
TablesOnly = Annotated[
    bool, OUTPUT("--tables-only", help="Write tables and figures from stored records, without training.")
]


def reproduce(
    which: Annotated[str, typer.Argument(help="synthetic, benchmark, all (these two) or modern (every loss).")] = "all",
    quick: Quick = False,
    protocol: Annotated[str, EXPERIMENT(help="ours, or published (closest to the paper's printed results).")] = "ours",
    settings: Settings = None,
    problems: Annotated[str, EXPERIMENT(help="Run only these data sets or sizes: a,b,...")] = "",
    methods: Annotated[str, EXPERIMENT(help="Run only these methods: a,b,... Any loss, or file.py:Class.")] = "",
    data: Data = None,
    published: PublishedTables = None,
    device: Annotated[str, COMPUTING(help="auto, cpu, cuda or cuda:N.")] = "auto",
    scheduler: Annotated[str | None, COMPUTING(help="Run on Dask: address of a scheduler.")] = None,
    out: Out = None,
    records_only: RecordsOnly = False,
    tables_only: TablesOnly = False,
) -> None:
    """Run the paper's experiments and write tables, figures and a page to a folder.

    An interrupted run continues where it stopped.

    Example: demur reproduce all --quick
    """
    if records_only and tables_only:
        raise InputError("--records-only and --tables-only exclude each other: give only one of them.")
    some, named = ([name.strip() for name in text.split(",") if name.strip()] for text in (problems, methods))
    from demur.paper.experiments import chosen_experiments, parse_settings, restrict, with_losses
    from demur.paper.figures import check_matplotlib
    from demur.paper.problems import DataPlace
    from demur.paper.trial_jobs import Watch, compute_records
    from demur.paper.trial_means import find_published
    from demur.workers import n_cores

    place = DataPlace(data, stand_ins=quick)
    default = "published" if protocol == "published" else "modern" if which == "modern" else "paper"
    folder = out or Path("results", "quick" if quick else default)
    chosen = chosen_experiments(which, short=quick, settings=parse_settings(settings or []), protocol=protocol)
    chosen = with_losses(chosen, named)
    wanted = restrict(chosen, some, named)
    paper = find_published(published)
    if not records_only:
        check_matplotlib()  # before hours of training
    if not tables_only:
        compute_records(
            wanted,
            folder,
            place,
            device=device,
            scheduler=scheduler,
            n_processes=n_cores(),
            watch=Watch(_finished, note),
        )
    if not records_only:
        from demur.paper.pages import write_outputs

        _print(folder, write_outputs(folder, chosen, paper, None if tables_only else place))


def _finished(job: "TrialJob", record: "Record", place: str) -> None:
    line = (
        f"[{place}] {job.experiment} {job.problem} {job.method.name}: {record.networks} networks, training "
        f"{record.seconds_training:.2f} s, other {record.seconds_other:.2f} s"
    )
    print(line, file=sys.stderr, flush=True)


def _print(folder: Path, outcome: "Outcome") -> None:
    """Print the caveats, and then the verdicts."""
    for line in outcome.warnings():
        say(line.replace("**", ""))
    if outcome.claims:
        rows = [[one.claim.statement, f"{one.ours.verdict} ({one.ours.counts})"] for one in outcome.claims]
        print_table("The paper's statements, tested on these figures", ("statement", "verdict"), rows)
    say(f"Tables, figures and the page: {folder / 'README.md'}")
