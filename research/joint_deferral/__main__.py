"""Comparison of deferral methods on the paper's data sets, with an expert who knows half of the classes.

Joint losses, two stages and :class:`~demur.DeferOption` are compared with equal networks. The comparison on stored
answers of people is in the folder ``research/stored_deferral`` of the repository.
"""

import argparse
import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch

from demur.array_types import AnyArray, ByName
from demur.datasets import Dataset, available_datasets, load
from demur.deferral import DeferClassifier, DeferOption, available_joint, get_joint
from demur.estimators import RejectClassifier
from demur.estimators.network_selection import AnswersNothingWarning
from demur.paper.pages import markdown_table
from demur.paper.records import append_line, describe_environment, read_lines
from demur.whole_file import write_whole

Work: TypeAlias = tuple[ByName, Callable[[], ByName]]
"""The key of a record, and the function that computes its figures."""

WRAPPED = "DeferOption"


@dataclass(frozen=True)
class DeferralProtocol:
    """How the systems on the tables are trained and evaluated; the same networks for every method.

    Parameters
    ----------
    trials : int
        Number of trials, each with another half of the classes known to the expert, other rows and initial weights.
    train_rows, test_rows : int
        Largest numbers of rows of each data set, drawn anew in each trial.
    hidden_units, epochs, batch_size : int
    learning_rate : float
    seed : int
    """

    trials: int = 3
    train_rows: int = 1500
    test_rows: int = 3000
    hidden_units: int = 50
    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.003
    seed: int = 0


def read_records(folder: Path) -> list[ByName]:
    """Return all complete records of a folder."""
    return [body for _, body in read_lines(folder / "records.jsonl") if body is not None]


def compute(folder: Path, data: Path, protocol: DeferralProtocol, problems: Sequence[str] = ()) -> None:
    """Compute the records that a folder lacks, and add them to it."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {_key(record) for record in read_records(folder)}
    environment = describe_environment(torch.device("cpu"))
    for record, run in _work(data, protocol, problems):
        if _key(record) not in done:
            start = time.process_time()
            found = run()
            seconds = round(time.process_time() - start, 2)
            append_line(folder / "records.jsonl", {**record, **found, "seconds": seconds, "environment": environment})


def _work(data: Path, protocol: DeferralProtocol, problems: Sequence[str]) -> Iterator[Work]:
    for name in problems or available_datasets():
        dataset, spec = load(name, data), {**asdict(replace(protocol, trials=1)), "halvings": 1}
        for trial in range(protocol.trials):
            for method in (*available_joint(), WRAPPED):
                key = {"part": "tables", "problem": name, "method": method, "trial": trial, "spec": spec}
                yield {**key, "data": dataset.sha256}, partial(_table_trial, dataset, method, trial, protocol)


def _key(record: ByName) -> str:
    """Return what a record depends on, as text."""
    return json.dumps([record[name] for name in ("part", "problem", "method", "trial", "spec", "data")], sort_keys=True)


def figures_of(system: AnyArray, asked: AnyArray, alone: AnyArray, expert: AnyArray) -> ByName:
    """Return the shares of right answers of system, model alone and expert, and of asked rows."""
    shares = {"accuracy": system, "asked": asked, "alone": alone, "expert": expert}
    return {**{name: float(np.mean(values)) for name, values in shares.items()}, "n": len(system)}


def _table_trial(dataset: Dataset, method: str, trial: int, protocol: DeferralProtocol) -> ByName:
    """Train on a table with an expert who knows half of the classes and guesses the others, and evaluate."""
    digits = int(hashlib.sha256(dataset.name.encode()).hexdigest()[:8], 16)
    rng = np.random.default_rng([protocol.seed, trial, digits])
    n_classes = len(dataset.classes)
    known = rng.permutation(n_classes)[: n_classes // 2]
    train = rng.permutation(len(dataset.y_train))[: protocol.train_rows]
    test = rng.permutation(len(dataset.y_test))[: protocol.test_rows]
    y, y_test = dataset.y_train[train], dataset.y_test[test]
    guesses = np.unique(y)
    said, said_test = (
        np.where(np.isin(labels, known), labels, rng.choice(guesses, size=len(labels))) for labels in (y, y_test)
    )
    network: ByName = {
        **{name: getattr(protocol, name) for name in ("hidden_units", "epochs", "batch_size", "learning_rate")},
        **{"weight_decay": 1e-4, "n_members": 1, "device": "cpu", "random_state": 1000 * protocol.seed + trial},
    }
    model: DeferOption | DeferClassifier
    if method == WRAPPED:
        model = DeferOption(RejectClassifier("ce", cost=0.49, calibration=None, **network), {"expert": 0.0}, cv=3)
    else:
        model = DeferClassifier(method, {"expert": 0.0}, **network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AnswersNothingWarning)  # the inner network's own decisions are not used
        model.fit(dataset.X_train[train], y, answers=said)
    decision = model.decide(dataset.X_test[test])
    asked, right = np.asarray(decision.ask) >= 0, model.classes_[decision.label] == y_test
    return figures_of(np.where(asked, said_test == y_test, right), asked, right, said_test == y_test)


PAGE = """\
# Deferral: who should be asked

{n} records, {seconds:.0f} s of processor time on {device}; demur {demur}, torch {torch}. Price 0 throughout.

The expert is right on a random half of the classes and guesses the others. At most {train_rows:,} training rows, one
hidden layer of {hidden_units} units, {epochs} epochs; {trials} trials. System error, mean (standard deviation over
trials); *consistent*: what the loss claims.

"""


def deferral_page(records: Sequence[ByName]) -> str:
    """Return the page as Markdown."""
    errors: dict[tuple[str, str], list[float]] = {}
    for one in records:
        errors.setdefault((one["method"], one["problem"]), []).append(1 - one["accuracy"])
    problems = [name for name in available_datasets() if any(name == problem for _, problem in errors)]
    rows = []
    for method in (*available_joint(), WRAPPED):
        cells = [errors.get((method, problem), []) for problem in problems]
        if any(cells):
            claim = "yes" if method == WRAPPED or get_joint(method).calibrated else "no"
            mean = f"{np.mean([np.mean(cell) for cell in cells]):.4f}" if all(cells) else ""
            rows.append([method, claim, *(with_spread(cell) if cell else "" for cell in cells), mean])
    alone = (np.mean([1 - one["expert"] for one in records if one["problem"] == problem]) for problem in problems)
    rows.append(["the expert alone", "", *(f"{error:.4f}" for error in alone), ""])
    trials = {one["trial"] for one in records}
    facts = {**records[-1]["environment"], **records[0]["spec"], "trials": len(trials)}
    text = PAGE.format(n=len(records), seconds=sum(record["seconds"] for record in records), **facts)
    return f"{text}{markdown_table(['method', 'consistent', *problems, 'mean'], rows)}\n"


def with_spread(values: Sequence[float]) -> str:
    """Return mean and standard deviation as text."""
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ({spread:.4f})"


def main() -> None:
    """Compute the missing records and write the page."""
    parser = argparse.ArgumentParser(prog="python -m research.joint_deferral", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the data sets; without it, only the page is drawn")
    asked, folder = parser.parse_args(), Path(__file__).parent
    if asked.data:
        compute(folder, asked.data, DeferralProtocol())
    print(write_whole(folder / "outcome.md", deferral_page(read_records(folder)), overwrite=True))


if __name__ == "__main__":
    main()
