"""Output, error messages and checks of options that the commands share."""

import datetime
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from demur import __version__
from demur.errors import UserError

if TYPE_CHECKING:
    from demur.tabular import Evaluation, ExpertEvaluation, TableModel

__all__ = [
    "EXIT_FAILED",
    "EXIT_WRONG_CALL",
    "CallError",
    "about",
    "check_free",
    "check_share",
    "complain",
    "console",
    "is_watched",
    "load_table_model",
    "note",
    "notes",
    "plain_table",
    "print_evaluation",
    "print_fit",
    "warnings_as_notes",
    "wrong_call_if_refused",
]


EXIT_FAILED = 1
EXIT_WRONG_CALL = 2

console = Console(highlight=False, emoji=False)
"""Standard output."""

notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""Standard error: notes, errors, and summaries where the result goes to standard output."""


_FOR_PROGRAMMERS = (DeprecationWarning, FutureWarning, ImportWarning, PendingDeprecationWarning, ResourceWarning)


class CallError(UserError):
    """The call or its input is wrong: one sentence for the user, exit code 2, no traceback."""


@contextmanager
def wrong_call_if_refused() -> Iterator[None]:
    """Turn the library's refusal of an argument or of a file into a message for the command line's user."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever read the output has gone away, and the call was right
    except (UserError, OSError) as error:
        raise CallError(" ".join(str(error).split())) from error
    except MemoryError as error:
        raise CallError("there is not enough memory for this: give fewer rows at once, or a smaller model.") from error


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings as notes on standard error, each once; those for programmers stay silent."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for category in _FOR_PROGRAMMERS:
            warnings.simplefilter("ignore", category)
        yield
    for message in dict.fromkeys(" ".join(str(warning.message).split()) for warning in caught):
        note(message)


def note(message: str) -> None:
    """Print something worth knowing on standard error."""
    notes.print(f"Note: {message}", markup=False)


def check_free(path: Path, option: str, force: bool, *, is_file: bool = False) -> None:
    """Refuse a path that cannot be written to, before any time is spent."""
    if is_file and path.is_dir():
        raise CallError(f"{path} is a folder: name a file in it for {option}.")
    if path.exists() and not force:
        raise CallError(f"{path} exists already: choose another {option}, or pass --force to replace it.")
    folder = next(one for one in path.absolute().parents if one.exists())
    if not folder.is_dir():
        raise CallError(f"{folder} is a file, not a folder: choose another {option}.")
    if not os.access(folder, os.W_OK):
        raise CallError(f"the folder {folder} may not be written to: choose another {option}.")


def check_share(option: str, value: float | None, *, zero: bool = True, one: bool = False, what: str = "share") -> None:
    """Refuse a number that is not between 0 and 1, and suggest what may be meant where it looks like a percentage.

    Examples
    --------
    >>> check_share("--coverage", 90, zero=False, one=True)
    Traceback (most recent call last):
        ...
    demur.cli.console.CallError: --coverage must be a share above 0 and at most 1, got 90: did you mean 0.9?
    """
    if value is None or 0 < value < 1 or (zero and value == 0) or (one and value == 1):
        return
    bounds = f"{'of at least' if zero else 'above'} 0 and {'at most' if one else 'below'} 1"
    hint = (
        f"did you mean {value / 100:g}?" if 1 < value < 100 or (value in (1, 100) and not one) else "give a fraction."
    )
    raise CallError(f"{option} must be a {what} {bounds}, got {value:g}: {hint}")


def load_table_model(path: Path | str) -> "TableModel":
    """Return the model in a folder; an estimator saved from Python reads its columns by their names."""
    from demur.deploy import load
    from demur.tabular import TableModel

    model = load(path)
    if isinstance(model, TableModel):
        return model
    from demur.tabular.external_models import schema_of_estimator

    if not hasattr(model, "predict"):
        raise CallError(f"{path} holds a {type(model).__name__}, which is not a classifier: give the folder of one.")
    try:
        wrapped = TableModel.wrap(model, schema_of_estimator(model))
    except UserError as error:
        raise CallError(f"{path} holds a {type(model).__name__} that was saved from Python: {error}") from error
    numbers = "" if any(column.kind != "number" for column in wrapped.schema.columns) else " as numbers"
    note(
        f"{path} holds a {type(model).__name__} that was saved from Python; its columns are read by their names"
        f"{numbers}, and the labels are in {wrapped.target!r}: demur wrap tells it otherwise."
    )
    return wrapped


def complain(message: str) -> None:
    """Print one message on standard error."""
    notes.print(f"demur: {message}", markup=False)


def plain_table(title: str | None = None) -> Table:
    """Return an empty table in the style of all commands."""
    return Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=SIMPLE_HEAD)


def is_watched() -> bool:
    """Return whether standard error is a terminal, so that a progress bar makes sense."""
    return sys.stderr.isatty()


_MOST_CLASSES = 12
_MOST_NOTES = 8
_LONGEST_NAME = 40


def print_fit(model: "TableModel", data: str, seconds: float) -> None:
    """Print what was read, which columns are used, and what was trained."""
    from demur.columns.frames import shown
    from demur.tabular.evaluation_words import counted

    facts, schema = model.facts, model.schema
    counts = sorted(facts["classes"].items(), key=lambda item: -item[1])
    aside = facts.get("rows_for_the_rule", 0)
    more = f"; {counted(aside, 'more row was', 'more rows were')} set aside for the rule" if aside else ""
    rows = counted(facts["rows"], "row", "rows")
    console.print(f"{data}: trained on {rows} of {len(counts):,} classes{more}.", markup=False)
    named = ", ".join(f"{_in_line(name)} ({count:,})" for name, count in counts[:_MOST_CLASSES])
    more = f", and {len(counts) - _MOST_CLASSES:,} more" if len(counts) > _MOST_CLASSES else ""
    console.print(f"  Classes and their rows: {named}{more}.", markup=False)
    if facts.get("rows_without_label"):
        left = counted(facts["rows_without_label"], "row without a label was", "rows without a label were")
        console.print(f"  {left} left out.")
    sentences = schema.describe()
    for sentence in sentences[:_MOST_NOTES]:
        console.print(f"  {sentence}", markup=False)
    if len(sentences) > _MOST_NOTES:
        names = [*schema.remarks, *schema.set_aside][_MOST_NOTES - 1 :]
        console.print(f"  Also set aside or converted: {', '.join(map(shown, names))}.", markup=False)
    console.print(f"\nTrained {facts['model_in_words'].removesuffix(' (the default)')} in {seconds:.1f} s.")
    if facts.get("temperature") is not None:
        said = "overconfident" if facts["temperature"] > 1 else "underconfident"
        console.print(f"The temperature is {facts['temperature']:.3g}: the numbers were {said}.")
    tried = getattr(getattr(model.classifier, "estimator_", None), "tried_", ())
    if len(tried) > 1:
        table = plain_table()
        for heading in ("candidate", "share", "log loss", "seconds", "outcome"):
            table.add_column(heading, justify="left" if heading in ("candidate", "outcome") else "right")
        for one in tried:
            loss = "" if one.log_loss is None else f"{one.log_loss:.4f}"
            table.add_row(one.name, f"{one.weight:.0%}", loss, f"{one.seconds:.1f}", one.outcome)
        console.print(table)


_SHARES = ("system_accuracy", "coverage", "accepted_accuracy")
_LEFT_TO_THE_REPORT = ("eaurc", "augrc", "deferral_area", "regret")


def print_evaluation(evaluation: "Evaluation", where: str) -> None:
    """Print the figures with their intervals, and what they mean."""
    from demur.tabular.evaluation_words import FIGURES, percent

    def written(value: float, figure: str) -> str:
        return percent(value) if figure in _SHARES else f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"

    table = plain_table(f"How it does {where}")
    for heading in ("", "value", "95 % interval", ""):
        table.add_column(heading, justify="right" if heading else "left")
    for figure, found in evaluation.figures.items():
        if figure in _LEFT_TO_THE_REPORT:
            continue
        title, meaning = FIGURES[figure]
        if figure == "risk" and evaluation.cost_assumed:
            meaning = f"declining priced at {evaluation.cost:g}"
        value = written(found.estimate, figure) if found.estimate == found.estimate else "none"
        between = f"{written(found.low, figure)} to {written(found.high, figure)}" if found.low == found.low else ""
        table.add_row(title, value, between, meaning)
    console.print(table)
    if evaluation.groups is not None:
        console.print(_by_group(evaluation))
    if evaluation.asking is not None:
        console.print(_by_expert(evaluation.asking))
    for sentence in evaluation.sentences():
        console.print(sentence, markup=False)


def _by_group(evaluation: "Evaluation") -> Table:
    """Return a line for each group, with intervals that hold for all groups together."""
    column = "" if evaluation.groups is None else evaluation.groups.column
    table = plain_table(f"By {column}, with 95 % intervals for all groups together")
    for heading in ("group", "rows", "answered %", "", "wrong %", "", "risk"):
        table.add_column(heading, justify="left" if heading == "group" else "right", no_wrap=heading != "group")
    for one in evaluation.by_group:
        cells = [_in_line(one.name), f"{one.counts.n_rows:,}"]
        for found in (one.coverage, one.errors):
            between = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
            cells += [f"{100 * found.estimate:.1f}", between] if found.estimate == found.estimate else ["", ""]
        table.add_row(*cells, "" if one.risk is None else f"{one.risk.estimate:.4f}")
    return table


def _by_expert(asking: "ExpertEvaluation") -> Table:
    """Return a line for each expert: how much it gets, and how good it is."""
    from demur.tabular.evaluation_words import percent

    table = plain_table()
    for heading in ("expert", "price", "asked", "95 % interval", "correct", "risk if always"):
        table.add_column(heading, justify="left" if heading == "expert" else "right", no_wrap=heading != "expert")
    load = asking.load
    for number, name in enumerate(asking.names):
        right, always = asking.right_when_asked(number), asking.always(number)
        table.add_row(
            _in_line(name),
            f"{asking.prices[number]:g}",
            percent(load.estimate[number]),
            f"{percent(load.low[number])} to {percent(load.high[number])}",
            percent(right.estimate),
            f"{always.estimate:.4f}" if always.estimate == always.estimate else "no answers",
        )
    return table


def _in_line(name: str) -> str:
    """Return the name of a class as it can stand in a line: without line breaks, and cut where it is long."""
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in name)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 3] + "..."


def about(model: "TableModel", data: str) -> dict[str, str]:
    """Return how a model was made, for the end of a report."""
    from demur.tabular.evaluation_words import counted

    facts = model.facts
    novelty = {} if model.novelty is None else {"Novel rows": model.novelty.explain()}
    trained = {"Trained on": counted(facts["rows"], "row", "rows")} if "rows" in facts else {}
    if facts.get("calibrated_on"):
        trained["Calibrated on"] = counted(facts["calibrated_on"], "row", "rows")
    return {
        "Model": facts.get("model_in_words", "a model"),
        **novelty,
        **trained,
        "Judged on": data,
        "Date": datetime.date.today().isoformat(),
        "Program": f"demur {__version__}",
    }
