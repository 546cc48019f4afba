"""Output of the commands: sentences, tables and notes."""

import datetime
import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from demur.errors import InputError, UserError, one_line

if TYPE_CHECKING:
    from demur.metrics import Interval
    from demur.tabular import CallsEvaluation, Evaluation, TableModel

console = Console(highlight=False, emoji=False)
"""Standard output."""

notes = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
"""Standard error: notes, errors, and summaries where the result goes to standard output."""


@contextmanager
def warnings_as_notes() -> Iterator[None]:
    """Print warnings for users as notes on standard error, each once; other warnings are ignored."""
    shown = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in shown:
            shown.add(text)
            note(text)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def note(message: str) -> None:
    """Print a note on standard error."""
    notes.print(f"Note: {message}", markup=False)


def say(text: str) -> None:
    """Print a sentence on standard output."""
    console.print(text, markup=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print JSON on standard output."""
    print(json.dumps(document, indent=2))


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; columns of numbers are aligned on the right."""
    table = Table(title=title, title_justify="left", title_style="bold", pad_edge=False, box=SIMPLE_HEAD)
    for heading, *cells in zip(headings, *rows, strict=True):
        table.add_column(heading, justify="right" if any(cell[:1].isdigit() for cell in cells) else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def check_new_model(path: Path, force: bool) -> None:
    """Refuse a folder that a model cannot be written to, before the training."""
    check_free(path, "--out", force)
    from demur.deploy.model_folder import check_target

    check_target(path, overwrite=force)


def check_free(path: Path, option: str, force: bool, *inputs: str | Path | None) -> None:
    """Refuse a path that exists, unless it may be replaced and is not one of the files to read."""
    if path.resolve() in [Path(one).resolve() for one in inputs if one]:
        raise InputError(f"{path} is a file that is being read: choose another {option}.")
    if path.exists() and not force:
        raise InputError(f"{path} exists already: choose another {option}, or pass --force to replace it.")


def share(*, zero: bool = False, one: bool = False) -> Callable[[typer.CallbackParam, float | None], float | None]:
    """Return a check that an option lies between 0 and 1; ``zero`` and ``one`` say whether these are allowed."""

    def check(option: typer.CallbackParam, value: float | None) -> float | None:
        if value is None or 0 < value < 1 or (zero and value == 0) or (one and value == 1):
            return value
        bounds = f"{'of at least' if zero else 'above'} 0 and {'at most' if one else 'below'} 1"
        hint = f"did you mean {value / 100:g}?" if 1 <= value <= 100 else "give a fraction."
        raise InputError(f"{option.opts[0]} must be a number {bounds}, got {value:g}: {hint}")

    return check


def load_table_model(path: Path | str, *, cascades: bool = False) -> "TableModel":
    """Return the model in a folder; an estimator saved from Python reads its columns by their names.

    Cascades are refused, unless the command can use them.
    """
    from demur.deploy import load
    from demur.tabular import TableModel

    model = load(path)
    if isinstance(model, TableModel):
        if "decision" in model.answer_columns() and not cascades:
            raise InputError(f"{path} holds a cascade of services: use it with demur predict, evaluate or serve.")
        return model
    from demur.tabular.external_models import schema_of_estimator

    kind = f"{path} holds a {type(model).__name__} that was saved from Python"
    try:
        wrapped = TableModel.wrap(model, schema_of_estimator(model))
    except UserError as error:
        raise InputError(f"{kind}: {error}") from error
    note(f"{kind}. Its columns are read by their names, the labels from {wrapped.target!r}; demur wrap changes this.")
    return wrapped


_MOST_CLASSES = 12
_MOST_NOTES = 8


def print_fit(model: "TableModel", data: str, seconds: float) -> None:
    """Print the rows read, the columns used, and the trained model."""
    from demur.columns.frames import shown
    from demur.tabular.evaluation_figures import counted

    facts, sentences = model.facts, [*model.schema.describe()]
    counts = sorted(facts["classes"].items(), key=lambda item: -item[1])
    special = {
        "of them out of scope": facts.get("out_of_scope", {}).get("rows"),
        "more set aside for the rule": facts.get("rows_for_the_rule"),
        "more without a label, left out": facts.get("rows_without_label"),
    }
    more = "".join(f"; {number:,} {words}" for words, number in special.items() if number)
    say(f"{data}: trained on {counted(facts['rows'], 'row', 'rows')} of {len(counts):,} classes{more}.")
    named = ", ".join(f"{_printable(name)} ({count:,})" for name, count in counts[:_MOST_CLASSES])
    more = f", and {len(counts) - _MOST_CLASSES:,} more" if len(counts) > _MOST_CLASSES else ""
    say(f"  Classes and their rows: {named}{more}.")
    if len(sentences) > _MOST_NOTES:
        names = [*model.schema.remarks, *model.schema.set_aside][_MOST_NOTES - 1 :]
        sentences[_MOST_NOTES:] = [f"Also not used or converted: {', '.join(map(shown, names))}."]
    for sentence in sentences:
        say(f"  {sentence}")
    say(f"\nTrained {facts['model_in_words'].removesuffix(' (the default)')} in {seconds:.1f} s.")
    tried = getattr(getattr(model.classifier, "estimator_", None), "tried_", ())
    if len(tried) > 1:
        rows = [
            [
                one.name,
                f"{one.weight:.0%}",
                "" if one.log_loss is None else f"{one.log_loss:.4f}",
                f"{one.seconds:.1f}",
                one.outcome,
            ]
            for one in tried
        ]
        print_table("", ("candidate", "share", "log loss", "seconds", "outcome"), rows)


_IN_THE_REPORT = {"aurc", "aurc_ranked"}


def print_evaluation(evaluation: "Evaluation | CallsEvaluation", where: str) -> None:
    """Print the figures with their intervals, and their meaning."""
    from demur.tabular import Evaluation

    sentences = evaluation.sentences()
    if isinstance(evaluation, Evaluation):
        n_first = 1 + len(evaluation.verdict) + len(evaluation.findings)
        say(f"Verdict {where}")
        for sentence in sentences[:n_first]:
            say(f"  {sentence}")
        sentences = sentences[n_first:]
        _print_figures(evaluation)
    else:
        _print_calls(evaluation, where)
    for sentence in sentences:
        say(sentence)


def _print_figures(evaluation: "Evaluation") -> None:
    from demur.tabular.evaluation_figures import FIGURES, four_digits, percent

    shown = {FIGURES[name]: found for name, found in evaluation.figures.items() if name not in _IN_THE_REPORT}
    rows = [[figure.title, *_interval(found, figure.write), figure.meaning] for figure, found in shown.items()]
    print_table("", ("", "value", "95 % interval", ""), rows)
    if evaluation.group is not None:
        rows = [
            [
                *(_printable(one.name), f"{one.counts.n_rows:,}"),
                *(*_interval(one.coverage, percent), *_interval(one.errors, percent)),
                "" if one.risk is None else four_digits(one.risk.estimate),
            ]
            for one in evaluation.by_group
        ]
        title = f"By {evaluation.group}, with 95 % intervals for all groups together"
        print_table(title, ("group", "rows", "answered", "", "wrong", "", "risk"), rows)
    if evaluation.asking is not None:
        rows = [
            [
                *(_printable(one.name), f"{one.price:g}", percent(one.load.estimate)),
                *(percent(one.right_when_asked.estimate), four_digits(one.risk_if_always_asked.estimate)),
            ]
            for one in evaluation.asking.experts
        ]
        print_table("", ("expert", "price", "asked", "correct", "risk if always"), rows)


def _print_calls(evaluation: "CallsEvaluation", where: str) -> None:
    """Print the cost of a cascade beside those of single services and of all of them."""
    from demur.tabular.evaluation_figures import four_digits, percent

    headings, rows = ["", "spent", "wrong", "95 % interval", "asked"], []
    if evaluation.payments[0].cost is not None:
        headings.insert(3, "cost")
    for one in evaluation.payments:
        cells = [_printable(one.name), four_digits(one.spent), *_interval(one.error, percent)]
        cells[3:] = cells[3:] if one.cost is None else _interval(one.cost, four_digits)
        rows.append([*cells, "" if one.name in ("cascade", "all services") else percent(one.asked)])
    print_table(f"Means per row {where}", headings, rows)


def about(model: "TableModel", data: str) -> dict[str, str]:
    """Return how a model was made, for the end of a report."""
    facts = model.facts
    trained = {"Trained on": f"{facts['rows']:,} rows"} if "rows" in facts else {}
    return {
        "Model": facts.get("model_in_words", "a model"),
        **trained,
        "Evaluated on": data,
        "Date": datetime.date.today().isoformat(),
    }


def before_refit(model: "TableModel") -> str:
    """Return the description of the model that was evaluated before the last fit."""
    rows = model.facts["evaluated_before_refit"]["rows"]
    return f"the model fitted on {rows:,} rows, before the refit on all {model.facts['rows']:,}"


def _interval(found: "Interval", write: Callable[[float], str]) -> list[str]:
    """Return an estimate and its interval as two cells; the second is empty if there is none."""
    return [write(found.estimate), "" if isnan(found.low) else f"{write(found.low)} to {write(found.high)}"]


def _printable(name: str) -> str:
    """Return a name for a line: without line breaks, and cut if it is long."""
    from demur.columns.frames import shown

    return shown(name)[1:-1]
