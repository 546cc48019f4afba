"""Comparison of deferral methods, on stored answers of people and on tables with a synthetic expert.

*Stored*: outputs of seven published methods on three data sets, beside :class:`~demur.DeferOption` fitted to the stored
probabilities. *Votes*: networks and the answers of many people to the same images. *Tables*: the paper's five data sets
and an expert who knows half of the classes; joint losses, two stages and ``DeferOption``, with equal networks.
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
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.datasets import Dataset, available_datasets, load
from demur.deferral import DeferClassifier, DeferOption, Expert, StoredProbabilities, Votes, available_joint, get_joint
from demur.errors import InputError, UserError
from demur.estimators import RejectClassifier
from demur.estimators.network_selection import AnswersNothingWarning
from demur.paper.experiments import parse_settings, read_settings
from demur.paper.records import append_line, describe_environment, read_lines
from demur.paper.tables import markdown_table
from demur.whole_file import write_whole

__all__ = ["DeferralProtocol", "DeferralRun", "StoredAnswersError", "deferral_page"]

Floats: TypeAlias = NDArray[np.float64]
Work: TypeAlias = tuple[ByName, Callable[[], ByName]]
"""The key of a record, and the function that computes its figures."""

PUBLISHED = {
    "cc": "CompareConfidence",
    "sp": "SelectivePrediction",
    "rs": "RealizableSurrogate",
    "lce": "Mozannar-Sontag",
    "ova": "one-vs-all",
    "asm": "asymmetric softmax",
    "dt": "DifferentiableTriage",
}
STORED_SETS = ("cifar10h", "hatespeech", "synth")
VOTED_SETS = {
    "cifar10h": ("cifar10h_nets.csv.gz", None, ("resnet110", "preresnet110")),
    "imagenet16h-80": (
        "imagenet16h_noise80_models.csv.gz", "imagenet16h_noise80_humans.csv.gz", ("alexnet", "vgg19")
    ),
    "imagenet16h-110": (
        "imagenet16h_noise110_models.csv.gz", "imagenet16h_noise110_humans.csv.gz", ("alexnet", "vgg19")
    ),
}  # fmt: skip
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
    halvings : int
        Number of random divisions of the rows with votes into a half to fit on and a half to evaluate on.
    seed : int
    """

    trials: int = 3
    train_rows: int = 1500
    test_rows: int = 3000
    hidden_units: int = 50
    epochs: int = 40
    batch_size: int = 64
    learning_rate: float = 0.003
    halvings: int = 3
    seed: int = 0


class StoredAnswersError(UserError):
    """A file of stored answers is missing."""


class DeferralRun:
    """The comparison in one folder: lines of ``records.jsonl``, and the page drawn from them.

    Parameters
    ----------
    folder : Path
    data : path, optional
        Folder with the data sets, and with the stored answers in its folder ``deferral``.
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
            protocol = replace(protocol, trials=1, train_rows=200, test_rows=200, epochs=2, halvings=1)
        self.protocol = replace(protocol, **read_settings("deferral", protocol, parse_settings(settings)))
        self.folder, self.data = folder, data
        self.stored = Path(data or os.environ.get("DEMUR_DATA", "data")) / "deferral"

    def records(self) -> list[ByName]:
        """Return the stored records; a line that an interrupted run left incomplete is skipped."""
        return [body for _, body in read_lines(self.folder / "records.jsonl") if body is not None]

    def compute(
        self, problems: Sequence[str] = (), methods: Sequence[str] = (), say: Callable[[str], object] = str
    ) -> None:
        """Compute and store the records that are missing, of some data sets and methods or of all."""
        known = {
            "data set": {*STORED_SETS, *VOTED_SETS, *available_datasets()},
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
        for name in STORED_SETS if self.stored.is_dir() else ():
            if not problems or name in problems:
                files = [self.stored / f"pods_{name}_{part}.csv.gz" for part in ("cal", "test")]
                for method in (*PUBLISHED, WRAPPED):
                    yield _record("stored", name, method, _sha256(files)), partial(_stored_method, method, *files)
        for name, (networks, people, which) in VOTED_SETS.items() if self.stored.is_dir() else ():
            if not problems or name in problems:
                files = [self.stored / file for file in (networks, people) if file is not None]
                for trial in range(self.protocol.halvings):
                    for network in which:
                        yield (
                            _record("votes", name, network, _sha256(files), trial),
                            partial(_network_and_votes, network, trial, files),
                        )
        for name in available_datasets():
            if not problems or name in problems:
                dataset, spec = load(name, self.data), asdict(replace(self.protocol, trials=1, halvings=1))
                for trial in range(self.protocol.trials):
                    for method in methods or (*available_joint(), WRAPPED):
                        yield (
                            _record("tables", name, method, dataset.sha256, trial, spec),
                            partial(_table_trial, dataset, method, trial, self.protocol),
                        )


def _record(part: str, problem: str, method: str, data: str, trial: int = 0, spec: ByName | None = None) -> ByName:
    return {"part": part, "problem": problem, "method": method, "trial": trial, "spec": spec or {}, "data": data}


def _key(record: ByName) -> str:
    return json.dumps([record[name] for name in ("part", "problem", "method", "trial", "spec", "data")], sort_keys=True)


def _figures(system: AnyArray, asked: AnyArray, alone: AnyArray, expert: AnyArray) -> ByName:
    """Return the shares of right answers of system, model alone and expert, and of asked rows."""
    shares = {"accuracy": system, "asked": asked, "alone": alone, "expert": expert}
    return {**{name: float(np.mean(values)) for name, values in shares.items()}, "n": len(system)}


def _stored_method(method: str, calibration: Path, test_file: Path) -> ByName:
    """Evaluate a stored method with the threshold that is best on the calibration rows, or DeferOption."""
    cal, test = _read(calibration), _read(test_file)
    y, human = test["label"], test["human"]
    if method == WRAPPED:
        n_classes = sum(name.startswith("cc_p") and name[4:].isdigit() for name in cal)
        X = []
        for part in (cal, test):
            proba = np.column_stack([part[f"cc_p{k}"] for k in range(n_classes)])
            X.append(np.column_stack([proba, np.clip(part["cc_rej_score"] + proba.max(axis=1), 0, 1)]))
        model = DeferOption(StoredProbabilities(list(range(n_classes))), {"human": Expert(0.0, model=n_classes)})
        model.fit(X[0], cal["label"].astype(np.int64), answers=cal["human"].astype(np.int64))
        decision = model.decide(X[1])
        asked, label = np.asarray(decision.reject), model.classes_[decision.label]
    else:
        score, said = f"{method}_rej_score", f"{method}_pred"
        limit = _best_threshold(cal[score], cal[said] == cal["label"], cal["human"] == cal["label"])
        asked, label = test[score] > limit, test[said]
    return _figures(np.where(asked, human == y, label == y), asked, label == y, human == y)


def _network_and_votes(network: str, trial: int, files: Sequence[Path]) -> ByName:
    """Fit on one half of the images and evaluate on the other, with and without combining the two answers."""
    table = _read(files[0])
    n_classes = sum(name.startswith(f"{network}_p") for name in table)
    X = np.column_stack([table[f"{network}_p{k}"] for k in range(n_classes)])
    X /= X.sum(axis=1, keepdims=True)
    y = table["label"].astype(np.int64)
    if len(files) == 1:
        votes = np.column_stack([table[f"h{k}"] for k in range(n_classes)])
    else:
        said = _read(files[1])
        votes = np.zeros((len(y), n_classes))
        place = {int(image): row for row, image in enumerate(table["image"])}
        rows = np.array([place[int(image)] for image in said["image"]])
        np.add.at(votes, (rows, said["answer"].astype(np.int64)), 1)
    order = np.random.default_rng(trial).permutation(len(y))
    fit, test = order[: len(y) // 2], order[len(y) // 2 :]
    votes_test, truth = votes[test], y[test]
    share = votes_test[np.arange(len(test)), truth] / votes_test.sum(axis=1)
    found: ByName = {}
    for combine in (True, False):
        model = DeferOption(StoredProbabilities(), {"people": 0.0}, combine=combine)
        model.fit(X[fit], y[fit], answers={"people": Votes(votes[fit])})
        decision = model.decide(X[test])
        right = share
        if combine:  # one person's answer times the model's probabilities, averaged over all answers that were given
            right = np.zeros(len(test))
            for answer in range(n_classes):
                answers = np.full((len(test), 1), model.classes_[answer])
                system = model.predict(X[test], answers=answers, prices={"people": 0.0})
                right += votes_test[:, answer] * (system == truth) / votes_test.sum(axis=1)
        alone = model.classes_[X[test].argmax(axis=1)] == truth
        whole = _figures(np.where(decision.reject, right, decision.label == truth), decision.reject, alone, share)
        found = {"combined": whole["accuracy"]} if combine else {**found, **whole}
    return found


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
    return _figures(np.where(asked, said_test == y_test, right), asked, right, said_test == y_test)


def deferral_page(records: Sequence[ByName]) -> str:
    """Return the page as Markdown."""
    environment = records[-1]["environment"]
    seconds = sum(record["seconds"] for record in records)
    sections = [
        "# Deferral: who should be asked\n\n"
        f"{len(records)} records, {seconds:.0f} s of processor time on {environment['device']}; demur "
        f"{environment['demur']}, torch {environment['torch']}. Price 0 throughout: the figures are shares of right "
        "answers of the system, model and experts together."
    ]
    for name, section in (("stored", _stored_section), ("votes", _votes_section), ("tables", _tables_section)):
        own = [one for one in records if one["part"] == name]
        if own:
            sections.append(section(own))
    return "\n\n".join(sections) + "\n"


STORED = """\
## Stored outputs of seven methods

Thresholds of the published methods: the best on the calibration rows. `DeferOption` reads the class probabilities of
CompareConfidence and its estimate that the person is right; it is fitted on the same rows.

"""

VOTES = """\
## Networks and the votes of many people

A network's stored probabilities and every image's answers; fitted on one half of the images, evaluated on the other,
mean over the halvings (standard deviation). *Deferred*: the answer of one person where one is asked. *Combined*: that
answer times the network's probabilities.

"""

TABLES = """\
## Tables, and an expert who knows half of the classes

The expert is right on a random half of the classes and guesses the others. At most {train_rows:,} training rows, one
hidden layer of {hidden_units} units, {epochs} epochs; {trials} trials. System error, mean (standard deviation over
trials); *consistent*: what the loss claims.

"""


def _present(names: Sequence[str], records: Sequence[ByName], field: str) -> list[str]:
    found = {record[field] for record in records}
    return [name for name in names if name in found]


def _stored_section(records: Sequence[ByName]) -> str:
    problems = _present(STORED_SETS, records, "problem")
    found = {(record["problem"], record["method"]): record for record in records}
    rows = []
    for method in _present((*PUBLISHED, WRAPPED), records, "method"):
        cells = [found.get((problem, method)) for problem in problems]
        texts = ["" if cell is None else f"{cell['accuracy']:.4f} ({cell['asked']:.2f} asked)" for cell in cells]
        known = [cell["accuracy"] for cell in cells if cell is not None]
        mean = f"{np.mean(known):.4f}" if len(known) == len(cells) else ""
        rows.append([f"**{WRAPPED}**" if method == WRAPPED else f"{PUBLISHED[method]} (`{method}`)", *texts, mean])
    people = {record["problem"]: f"{record['expert']:.4f}" for record in records}
    table = markdown_table(["method", *problems, "mean"], rows)
    lines = [f"{STORED}{table}\n| the person alone | {' | '.join(people[problem] for problem in problems)} | |"]
    for problem in problems:
        rivals = {method: found[problem, method] for method in PUBLISHED if (problem, method) in found}
        ours = found.get((problem, WRAPPED))
        if rivals and ours is not None:
            best = max(rivals, key=lambda method: float(rivals[method]["accuracy"]))
            value, n = rivals[best]["accuracy"], rivals[best]["n"]
            error = (value * (1 - value) / n) ** 0.5
            lines.append(
                f"{problem}: the best of the seven is {PUBLISHED[best]}, {value:.4f} (standard error {error:.4f}); "
                f"`DeferOption` is {(ours['accuracy'] - value) / error:+.1f} standard errors from it."
            )
    return "\n\n".join(lines)


def _votes_section(records: Sequence[ByName]) -> str:
    rows = []
    for problem, method in dict.fromkeys((record["problem"], record["method"]) for record in records):
        own = [record for record in records if (record["problem"], record["method"]) == (problem, method)]
        alone, expert, asked = (np.mean([record[name] for record in own]) for name in ("alone", "expert", "asked"))
        deferred, combined = (_with_spread([record[name] for record in own]) for name in ("accuracy", "combined"))
        rows.append([problem, method, f"{alone:.4f}", f"{expert:.4f}", deferred, f"{asked:.2f}", combined])
    headings = ["images", "network", "network alone", "one person", "deferred", "(asked)", "combined"]
    return VOTES + markdown_table(headings, rows)


def _tables_section(records: Sequence[ByName]) -> str:
    problems = _present(available_datasets(), records, "problem")
    methods = _present((*available_joint(), WRAPPED), records, "method")
    error = {(one["problem"], one["method"], one["trial"]): 1 - one["accuracy"] for one in records}
    trials = sorted({one["trial"] for one in records})
    rows = []
    for method in methods:
        cells = [
            [error[problem, method, trial] for trial in trials if (problem, method, trial) in error]
            for problem in problems
        ]
        claim = "yes" if method == WRAPPED or get_joint(method).calibrated else "no"
        mean = f"{np.mean([np.mean(cell) for cell in cells]):.4f}" if all(cells) else ""
        rows.append([method, claim, *(_with_spread(cell) if cell else "" for cell in cells), mean])
    expert = [
        f"{np.mean([1 - one['expert'] for one in records if one['problem'] == problem]):.4f}" for problem in problems
    ]
    table = markdown_table(["method", "consistent", *problems, "mean"], rows)
    table += f"\n| the expert alone | | {' | '.join(expert)} | |"
    text = TABLES.format(**records[0]["spec"] | {"trials": len(trials)})
    return f"{text}{table}\n\n{_two_stage_verdict(error, problems, methods, trials)}"


def _two_stage_verdict(
    error: dict[tuple[str, str, int], float], problems: Sequence[str], methods: Sequence[str], trials: Sequence[int]
) -> str:
    """Compare two stages with the mean of the joint losses, with the error of the comparison."""
    joint = [name for name in methods if name not in (WRAPPED, "two-stage")]
    differences = [
        error[problem, "two-stage", trial] - np.mean([error[problem, name, trial] for name in joint])
        for problem in problems
        for trial in trials
        if all((problem, name, trial) in error for name in (*joint, "two-stage"))
    ]
    if not joint or not differences:
        return "Two stages against the joint losses: not all of them were run."
    mean = float(np.mean(differences))
    spread = float(np.std(differences, ddof=1) / len(differences) ** 0.5) if len(differences) > 1 else float("nan")
    holds = "holds" if mean <= 0 else "does not hold"
    per_set = {
        problem: np.mean([error[problem, "two-stage", trial] for trial in trials])
        - np.mean([error[problem, name, trial] for name in joint for trial in trials])
        for problem in problems
    }
    below = sum(value <= 0 for value in per_set.values())

    def mean_error(name: str) -> float:
        return float(np.mean([error[problem, name, trial] for problem in problems for trial in trials]))

    ahead = [name for name in joint if mean_error(name) < mean_error("two-stage")]
    named = ", ".join(f"`{name}`" for name in ahead) or "none"
    return (
        f"*Two-stage is at or below the joint losses in the mean*: {holds}. Its error less the mean of theirs is "
        f"{mean:+.4f} (standard error {spread:.4f} over {len(differences)} pairs of data set and trial); it is at or "
        f"below on {below} of {len(problems)} data sets. Of {len(joint)} joint losses these have a lower mean: {named}."
    )


def _with_spread(values: Sequence[float]) -> str:
    spread = np.std(values, ddof=1) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ({spread:.4f})"


def _best_threshold(score: Floats, right: AnyArray, human: AnyArray) -> float:
    """Return the threshold above which asking is best, the largest of several; of all scores and -infinity."""
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    gain = np.concatenate([[0.0], np.cumsum(human[order].astype(np.float64) - right[order])])
    candidates = np.concatenate([ranked, [-np.inf]])  # defer the rows above candidate i: the first i, without ties
    counts = np.searchsorted(-ranked, -candidates, side="left")
    return float(candidates[int(np.argmax(gain[counts]))])


def _bytes(file: Path) -> bytes:
    if not file.is_file():
        raise StoredAnswersError(f"there is no file {file}; the stored answers are incomplete.")
    return file.read_bytes()


def _read(file: Path) -> dict[str, AnyArray]:
    from pyarrow import csv

    _bytes(file)
    table = csv.read_csv(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def _sha256(files: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(_bytes(file)).digest() for file in files)).hexdigest()
