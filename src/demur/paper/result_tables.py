"""Tables: the numbers that the paper prints, and ours beside them, as CSV for programs and Markdown for people."""

import csv
import io
import os
from collections.abc import Sequence
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
    "benchmark_csv",
    "find_published",
    "full_table",
    "rejection_table",
    "synthetic_csv",
]


PUBLISHED_FOLDER_VARIABLE = "DEMUR_PUBLISHED"
"""The environment variable that names a folder with the paper's tables."""

BENCHMARK_FILE = "benchmark_tables.csv"
SYNTHETIC_FILE = "synthetic_rejection_ratio.csv"
LARGEST_SIZE = "10000"
TRIALS = {"benchmark": 10, "synthetic": 3}


@dataclass(frozen=True)
class Published:
    """The paper's tables; without the files, empty ones, and our tables then stand alone."""

    benchmark: Numbers
    synthetic: Numbers

    @property
    def found(self) -> bool:
        """Whether there is anything to compare with."""
        return bool(self.benchmark.values or self.synthetic.values)


def find_published(folder: str | os.PathLike[str] | None = None) -> Published:
    """Read the paper's tables from a folder, from the one ``DEMUR_PUBLISHED`` names, or from ``../shared/paper``.

    Raises
    ------
    InputError
        If a folder is named that does not have them.

    Examples
    --------
    >>> find_published("/nowhere")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: /nowhere has no benchmark_tables.csv; --published names the folder with the paper's ...
    """
    named = folder or os.environ.get(PUBLISHED_FOLDER_VARIABLE)
    place = Path(named) if named else Path("..", "shared", "paper")
    if not (place / BENCHMARK_FILE).is_file():
        if named:
            raise InputError(
                f"{place} has no {BENCHMARK_FILE}; --published names the folder with the paper's tables as CSV."
            )
        return Published(Numbers(), Numbers())
    return Published(_benchmark(place / BENCHMARK_FILE), _synthetic(place / SYNTHETIC_FILE))


def _benchmark(path: Path) -> Numbers:
    numbers = Numbers()
    for row in _rows(path):
        problem, cost, method = row["dataset"], float(row["cost"]), row["method"]
        numbers.values[row["metric"], problem, cost, method] = Value(
            _number(row["mean"]), _number(row["std"]), TRIALS["benchmark"]
        )
        if row["metric"] == "zoc_risk":
            chosen = numbers.bold.setdefault((problem, cost), set())
            if row["best_or_equivalent"] == "1":
                chosen.add(method)
    return numbers


def _synthetic(path: Path) -> Numbers:
    numbers = Numbers()
    for row in _rows(path) if path.is_file() else []:
        mean, std = float(row["mean_percent"]) / 100, float(row["std_percent"]) / 100
        key = ("rejection_ratio", LARGEST_SIZE, float(row["cost"]), row["method"])
        numbers.values[key] = Value(mean, std, TRIALS["synthetic"])
    return numbers


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _number(text: str) -> float | None:
    return float(text) if text else None


BAYES = "Bayes"
"""The name of the best possible rule in tables."""

COLUMNS = ("metric", "dataset", "cost", "method", "mean", "std", "published_mean", "published_std")
TITLES = {
    "zoc_risk": "0-1-c risk",
    "accepted_accuracy": "accuracy on accepted data",
    "rejection_ratio": "rejection ratio",
}


def benchmark_csv(results: Results, published: Numbers) -> str:
    """Return every figure of the benchmark, the paper's methods and ours, one line each."""
    methods = [method.name for method in results.experiment.all_methods]
    numbers = results.numbers(methods)
    return _csv(results, results.problems, methods, numbers, published, dataset="{}")


def synthetic_csv(results: Results, published: Numbers, bayes: dict[float, BayesSummary]) -> str:
    """Return every figure of the synthetic experiment, the best possible rule included."""
    methods = [method.name for method in results.experiment.all_methods]
    numbers = results.numbers(methods)
    for cost, best in bayes.items():
        for problem in results.problems:
            exact = (best.risk.value, best.accepted_accuracy.value, best.rejection_rate.value)
            for metric, value in zip(METRICS, exact, strict=True):
                numbers.values[metric, problem, cost, BAYES] = Value(value, 0.0, 1)
    return _csv(results, results.problems, [*methods, BAYES], numbers, published, dataset="synthetic-{}")


def full_table(
    metric: str,
    numbers: Numbers,
    published: Numbers,
    problems: Sequence[str],
    costs: Sequence[float],
    methods: Sequence[str],
    notes: dict[str, str],
) -> str:
    """Return one metric as Markdown: a row per data set and cost, a column per method.

    A cell has our mean and standard deviation, bold where the risk is the lowest or equivalent; below it the paper's,
    and the difference.
    """
    lines = [f"| data set | c | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    for problem in problems:
        for index, cost in enumerate(costs):
            cells = [
                _cell(numbers.get(metric, problem, cost, method), published.get(metric, problem, cost, method))
                for method in methods
            ]
            bold = numbers.bold.get((problem, cost), set())
            marked = [
                f"**{ours}**{rest}" if method in bold else f"{ours}{rest}"
                for method, (ours, rest) in zip(methods, cells, strict=True)
            ]
            name = _name(problem, notes) if index == 0 else ""
            lines.append(f"| {name} | {cost:g} | {' | '.join(marked)} |")
    return "\n".join(lines)


def rejection_table(
    numbers: Numbers,
    published: Numbers,
    bayes: dict[float, BayesSummary],
    problem: str,
    methods: Sequence[str],
) -> str:
    """Return the rejected share in percent at one training size, with the best possible rule's: Table 2."""
    lines = [f"| c | {' | '.join(methods)} | {BAYES}-optimal |", "|---|" + "---|" * (len(methods) + 1)]
    for cost, best in bayes.items():
        cells = []
        for method in methods:
            ours = numbers.get("rejection_ratio", problem, cost, method)
            paper = published.get("rejection_ratio", problem, cost, method)
            cells.append(_percent(ours) + (f"<br>paper {_percent(paper)}" if paper else ""))
        lines.append(f"| {cost:g} | {' | '.join(cells)} | {100 * best.rejection_rate.value:.1f} |")
    return "\n".join(lines)


def _csv(
    results: Results,
    problems: Sequence[str],
    methods: Sequence[str],
    numbers: Numbers,
    published: Numbers,
    dataset: str,
) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for metric in METRICS:
        for problem in problems:
            for cost in results.experiment.protocol.costs:
                for method in methods:
                    ours = numbers.get(metric, problem, cost, method)
                    if ours is None:
                        continue
                    paper = published.get(metric, problem, cost, method) or Value(None, None, 0)
                    figures = [_plain(x) for x in (ours.mean, ours.std)] + [
                        _as_printed(x) for x in (paper.mean, paper.std)
                    ]
                    writer.writerow([metric, dataset.format(problem), f"{cost:g}", method, *figures])
    return text.getvalue()


def _plain(number: float | None) -> str:
    return "" if number is None else f"{number:.6f}"


def _as_printed(number: float | None) -> str:
    return "" if number is None else f"{number:.4f}"


def _cell(ours: Value | None, paper: Value | None) -> tuple[str, str]:
    """Return our mean, and what follows it in the cell."""
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


def _name(problem: str, notes: dict[str, str]) -> str:
    note = notes.get(problem, "")
    return f"{problem}<br>({note})" if note else problem
