"""The ``demur`` program: its commands, exit codes and error messages."""

import gc
import os
import sys
from typing import Annotated

import typer

from demur import __version__
from demur.cli.console import notes, warnings_as_notes
from demur.cli.demo import demo
from demur.cli.evaluate import compare, evaluate
from demur.cli.export import export
from demur.cli.fit import fit
from demur.cli.losses import check, methods
from demur.cli.monitor import monitor
from demur.cli.predict import predict
from demur.cli.refit import refit
from demur.cli.reproduce import reproduce
from demur.cli.serve import serve
from demur.cli.wrap import wrap
from demur.errors import UserError, one_line

app = typer.Typer(
    name="demur",
    help="Classifiers that decline to answer where declining costs less than a likely mistake.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
for command in (demo, fit, wrap, predict, evaluate, compare, export, serve, monitor, refit, check, methods, reproduce):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"demur {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None: ...


def run() -> None:
    """Run the program: 0 done, 1 the work failed, 2 the call or its input is wrong.

    Some commands have other codes for their results, which their help states.
    """
    try:
        with warnings_as_notes():
            app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except (UserError, OSError, MemoryError) as error:
        said = str(error)
        if isinstance(error, MemoryError):
            said = "there is not enough memory: give fewer rows at once, or a smaller model."
        if isinstance(error, OSError) and error.strerror:
            said = f"{error.filename or 'output'}: {error.strerror}."
        notes.print(f"demur: {one_line(said)}", markup=False)
        sys.exit(getattr(error, "exit_code", 2))


def main() -> None:
    """Run the program as a process, and exit immediately after an error.

    A thread of Arrow may still be reading ahead then; the normal end of the interpreter would abort it, with another
    exit code.
    """
    gc.set_threshold(100_000)  # imports create many objects: frequent collections take a tenth of the start
    try:
        run()
    except SystemExit as leaving:
        if not leaving.code:
            raise
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)
