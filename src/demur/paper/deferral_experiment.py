"""Comparison of deferral methods on the paper's data sets, with an expert who knows half of the classes.

Joint losses, two stages and :class:`~demur.DeferOption` are compared with equal networks. The comparison on stored
answers of people is in the folder ``research/stored_deferral`` of the repository.
"""

import hashlib
import json
import os
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
from demur.errors import InputError
from demur.estimators import RejectClassifier
from demur.estimators.network_selection import AnswersNothingWarning
from demur.paper.experiments import parse_settings, read_settings
from demur.paper.pages import markdown_table
from demur.paper.records import append_line, describe_environment, read_lines
from demur.whole_file import write_whole

__all__ = ["DeferralProtocol", "DeferralRun", "deferral_page", "figures_of", "with_spread"]

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


class DeferralRun:
    """The comparison in one folder: lines of ``records.jsonl``, and the page drawn from them.

    Parameters
    ----------
    folder : Path
    data : path, optional
        Folder with the data sets; see :func:`demur.datasets.load`.
    settings : sequence of str
        NAME=VALUE of the protocol.
    quick : bool
        Whether to run a version that takes seconds and shows nothing.
    """

    def __init__(
        self, folder: Path, data: str | os.PathLike[str] | None, settings: Sequence[str] = (), *, quick: bool = False
    ) -> None:
        protocol = DeferralProtocol()
        if quick:
            protocol = replace(protocol, trials=1, train_rows=200, test_rows=200, epochs=2)
        self.protocol = replace(protocol, **read_settings("deferral", protocol, parse_settings(settings)))
        self.folder, self.data = folder, data

    def records(self) -> list[ByName]:
        """Return the stored records; a line that an interrupted run left incomplete is skipped."""
        return [body for _, body in read_lines(self.folder / "records.jsonl") if body is not None]

    def compute(
        self, problems: Sequence[str] = (), methods: Sequence[str] = (), say: Callable[[str], object] = str
    ) -> None:
        """Compute and store the records that are missing, of some data sets and methods or of all."""
        known = {
            "data set": {*available_datasets()},
            "method": {*available_joint(), WRAPPED},
        }
        for (kind, names), given in zip(known.items(), (problems, methods), strict=True):
            for name in set(given) - names:
                raise InputError(f"unknown {kind} {name!r}; there are {', '.join(sorted(names))}.")
        self.folder.mkdir(parents=True, exist_ok=True)
        done = {_key(record) for record in self.records()}
        environment = describe_environment(torch.device("cpu"))
        for record, run in self._work(problems, methods):
            if _key(record) not in done:
                start = time.process_time()
                found = run()
                seconds = round(time.process_time() - start, 2)
                line = {**record, **found, "seconds": seconds, "environment": environment}
                append_line(self.folder / "records.jsonl", line)
                say(f"{record['part']} {record['problem']} {record['method']} trial {record['trial']}: {seconds} s")

    def write_page(self) -> Path:
        """Draw the page from the stored records.

        Raises
        ------
        InputError
            If there are none.
        """
        records = self.records()
        if not records:
            raise InputError(f"there are no records in {self.folder}; run without --tables-only first.")
        return write_whole(self.folder / "README.md", deferral_page(records), overwrite=True)

    def _work(self, problems: Sequence[str], methods: Sequence[str]) -> Iterator[Work]:
        for name in available_datasets():
            if not problems or name in problems:
                dataset, spec = load(name, self.data), {**asdict(replace(self.protocol, trials=1)), "halvings": 1}
                for trial in range(self.protocol.trials):
                    for method in methods or (*available_joint(), WRAPPED):
                        key = {"part": "tables", "problem": name, "method": method, "trial": trial, "spec": spec}
                        run = partial(_table_trial, dataset, method, trial, self.protocol)
                        yield {**key, "data": dataset.sha256}, run


def _key(record: ByName) -> str:
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
