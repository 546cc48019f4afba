"""The numbers that the paper prints, read from files beside the project where there are any."""

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from demur.errors import InputError
from demur.paper.trial_means import Numbers, Value

__all__ = [
    "BENCHMARK_FILE",
    "LARGEST_SIZE",
    "PUBLISHED_FOLDER_VARIABLE",
    "SYNTHETIC_FILE",
    "Published",
    "find_published",
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
