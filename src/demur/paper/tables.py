"""Tables: the paper's printed numbers, and ours beside them, as CSV and Markdown."""

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from demur.datasets import BayesSummary
from demur.errors import InputError
from demur.paper.trial_means import METRICS, Numbers, Results, Value

__all__ = [
    "BAYES",
    "BENCHMARK_FILE",
    "LARGEST_SIZE",
    "PUBLISHED_FOLDER_VARIABLE",
    "SYNTHETIC_FILE",
    "TITLES",
    "Published",
    "find_published",
    "full_table",
    "markdown_table",
    "rejection_table",
    "results_csv",
]

PUBLISHED_FOLDER_VARIABLE = "DEMUR_PUBLISHED"
"""Environment variable that names a folder with the paper's tables."""

BENCHMARK_FILE = "benchmark_tables.csv"
SYNTHETIC_FILE = "synthetic_rejection_ratio.csv"
LARGEST_SIZE = "10000"
TRIALS = {"benchmark": 10, "synthetic": 3}
BAYES = "Bayes"
"""Name of the Bayes-optimal rule in tables."""

COLUMNS = ("metric", "dataset", "cost", "method", "mean", "std", "published_mean", "published_std")
TITLES = {
    "zoc_risk": "0-1-c risk",
    "accepted_accuracy": "accuracy on accepted data",
    "rejection_ratio": "rejection ratio",
}


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown.

    Examples
    --------
    >>> print(markdown_table(["loss", "risk"], [["CE", "0.1"]]))
    | loss | risk |
    |---|---|
    | CE | 0.1 |
    """
    lines = [f"| {' | '.join(headings)} |".replace("|  |", "| |"), "|" + "---|" * len(headings)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


@dataclass(frozen=True)
class Published:
    """The paper's tables; empty without the files, and our tables then stand alone."""

    benchmark: Numbers
    synthetic: Numbers

    @property
    def found(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self.benchmark.values or self.synthetic.values)


def find_published(folder: str | os.PathLike[str] | None = None) -> Published:
    """Read the paper's tables from a folder, or from the one that ``DEMUR_PUBLISHED`` names.

    Raises
    ------
    InputError
        If the folder does not have them.

    Examples
    --------
    >>> find_published("/nowhere")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: /nowhere has no benchmark_tables.csv; --published names the folder with the paper's ...
    """
    named = folder or os.environ.get(PUBLISHED_FOLDER_VARIABLE)
    benchmark, synthetic = Numbers(), Numbers()
    if not named:
        return Published(benchmark, synthetic)
    if not (Path(named) / BENCHMARK_FILE).is_file():
        raise InputError(
            f"{named} has no {BENCHMARK_FILE}; --published names the folder with the paper's tables as CSV."
        )
    for row in _rows(Path(named) / BENCHMARK_FILE):
        cell, method = (row["dataset"], float(row["cost"])), row["method"]
        mean, std = (float(row[name]) if row[name] else None for name in ("mean", "std"))
        benchmark.values[row["metric"], *cell, method] = Value(mean, std, TRIALS["benchmark"])
        if row["metric"] == "zoc_risk":
            bold = benchmark.bold.setdefault(cell, set())
            if row["best_or_equivalent"] == "1":
                bold.add(method)
    for row in _rows(Path(named) / SYNTHETIC_FILE):
        key = ("rejection_ratio", LARGEST_SIZE, float(row["cost"]), row["method"])
        mean, std = (float(row[name]) / 100 for name in ("mean_percent", "std_percent"))
        synthetic.values[key] = Value(mean, std, TRIALS["synthetic"])
    return Published(benchmark, synthetic)


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def results_csv(
    results: Results, published: Numbers, *, dataset: str = "{}", bayes: dict[float, BayesSummary] | None = None
) -> str:
    """Return every figure of an experiment, one line each.

    Parameters
    ----------
    results : Results
    published : Numbers
    dataset : str
        Format of the names of the data sets.
    bayes : dict, optional
        The Bayes-optimal rule by cost, added as one more method.
    """
    methods, numbers = results.all_methods, results.numbers(results.all_methods)
    for cost, best in (bayes or {}).items():
        for problem in results.problems:
            exact = (best.risk.value, best.accepted_accuracy.value, best.rejection_rate.value)
            for metric, value in zip(METRICS, exact, strict=True):
                numbers.values[metric, problem, cost, BAYES] = Value(value, 0.0, 1)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for metric in METRICS:
        for problem in results.problems:
            for cost in results.experiment.protocol.costs:
                for method in [*methods, BAYES] if bayes else methods:
                    ours = numbers.get(metric, problem, cost, method)
                    if ours is not None:
                        paper = published.get(metric, problem, cost, method) or Value(None, None, 0)
                        figures = [(ours.mean, 6), (ours.std, 6), (paper.mean, 4), (paper.std, 4)]
                        texts = ["" if number is None else f"{number:.{digits}f}" for number, digits in figures]
                        writer.writerow([metric, dataset.format(problem), f"{cost:g}", method, *texts])
    return text.getvalue()


def full_table(metric: str, results: Results, methods: Sequence[str], published: Numbers | None = None) -> str:
    """Return one metric as Markdown: a row per data set and cost, a column per method.

    A cell has our mean and standard deviation, bold if the risk is the lowest or equivalent to it; below it the
    published figure and the difference.
    """
    numbers, published = results.numbers(methods), published or Numbers()
    rows = []
    for problem in results.problems:
        note = results.notes.get(problem, "")
        name = f"{problem}<br>({note})" if note else problem
        for cost in results.experiment.protocol.costs:
            bold = numbers.bold.get((problem, cost), set())
            cells = []
            for method in methods:
                where = (metric, problem, cost, method)
                mean, rest = _cell(numbers.get(*where), published.get(*where))
                cells.append(f"**{mean}**{rest}" if method in bold else f"{mean}{rest}")
            rows.append([name, f"{cost:g}", *cells])
            name = ""
    return markdown_table(["data set", "c", *methods], rows)


def rejection_table(results: Results, published: Numbers, bayes: dict[float, BayesSummary]) -> str:
    """Return the rejected share in percent at the largest training size, beside the Bayes-optimal one: Table 2."""
    rows = []
    for cost, best in bayes.items():
        cells = []
        for method in results.methods:
            where = ("rejection_ratio", results.problems[-1], cost, method)
            paper = published.get(*where)
            cells.append(
                _percent(results.paper_numbers.get(*where)) + (f"<br>paper {_percent(paper)}" if paper else "")
            )
        rows.append([f"{cost:g}", *cells, f"{100 * best.rejection_rate.value:.1f}"])
    return markdown_table(["c", *results.methods, f"{BAYES}-optimal"], rows)


def _cell(ours: Value | None, paper: Value | None) -> tuple[str, str]:
    """Return our mean, and the rest of the cell."""
    if ours is None:
        return "?", ""
    mean = "-" if ours.mean is None else f"{ours.mean:.3f}"
    rest = "" if ours.std is None else f" ({ours.std:.4f})"
    if paper is None:
        return mean, rest
    if paper.mean is None:
        return mean, f"{rest}<br>paper -"
    difference = "" if ours.mean is None else f", {ours.mean - paper.mean:+.3f}"
    return mean, f"{rest}<br>paper {paper.mean:.3f} ({paper.std or 0:.4f}){difference}"


def _percent(value: Value | None) -> str:
    if value is None or value.mean is None:
        return "?"
    return f"{100 * value.mean:.1f} ({100 * (value.std or 0):.1f})"
