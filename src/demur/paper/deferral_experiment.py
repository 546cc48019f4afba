"""The comparison of ways to defer: on stored answers of people, and on tables with a synthetic expert.

Three parts. *Stored*: outputs of seven published methods on three data sets, beside :class:`~demur.DeferOption` fitted
to the stored probabilities. *Votes*: networks and many people's answers to the same images. *Tables*: the paper's five
data sets and an expert who knows half of the classes; joint losses, two stages, ``DeferOption``, with equal networks.
Records are lines of one file; the page is drawn from them and nothing else.
"""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.datasets import available_datasets, load
from demur.deferral import DeferClassifier, DeferOption, Expert, StoredProbabilities, Votes, available_joint, get_joint
from demur.errors import InputError, UserError
from demur.estimators import RejectClassifier
from demur.estimators.network_selection import AnswersNothingWarning
from demur.paper.records import describe_environment
from demur.whole_file import write_whole

__all__ = [
    "DeferralProtocol",
    "compute_deferral",
    "deferral_page",
    "read_deferral_records",
    "with_deferral_settings",
    "write_deferral_page",
]

Floats = NDArray[np.float64]

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
    """How the systems of the tables are trained and judged; the same networks for every method.

    Parameters
    ----------
    trials : int
        Each with another half of the classes that the expert knows, other rows, other initial weights.
    train_rows, test_rows : int
        At most so many of each data set are used, drawn anew in each trial.
    hidden_units, epochs, batch_size : int
    learning_rate : float
    halvings : int
        Of the rows with many votes, into one half to fit and one to judge.
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

    def shortened(self) -> "DeferralProtocol":
        """Return a version that runs in seconds and shows nothing."""
        return replace(self, trials=1, train_rows=200, test_rows=200, epochs=2, halvings=1)


def with_deferral_settings(protocol: DeferralProtocol, settings: dict[str, str]) -> DeferralProtocol:
    """Return the protocol with some of its numbers replaced.

    Examples
    --------
    >>> with_deferral_settings(DeferralProtocol(), {"trials": "5"}).trials
    5
    """
    known = asdict(protocol)
    for name, text in settings.items():
        if name not in known:
            raise InputError(f"unknown setting {name!r}; there are {', '.join(known)}.")
        try:
            known[name] = type(known[name])(text)
        except ValueError:
            raise InputError(f"{name} must be a number, got {text!r}.") from None
        if not known[name] > 0 and name != "seed":
            raise InputError(f"{name} must be positive, got {text}.")
    return DeferralProtocol(**known)


def compute_deferral(
    folder: Path,
    data: str | os.PathLike[str] | None,
    protocol: DeferralProtocol,
    *,
    problems: Sequence[str] = (),
    methods: Sequence[str] = (),
    said: Callable[[str], None] = lambda text: None,
) -> None:
    """Compute what is not in the folder yet, and add it to ``folder/records.jsonl``.

    Parameters
    ----------
    folder : Path
    data : path, optional
        The folder with the data sets, and with the stored answers in its folder ``deferral``.
    protocol : DeferralProtocol
    problems, methods : sequences of str
        Only these; all by default.
    said : callable
        Called with a line on each finished piece of work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(data) if data is not None else Path(os.environ.get("DEMUR_DATA", "data"))
    done = {_key(record) for record in read_deferral_records(folder)}
    environment = describe_environment(torch.device("cpu"))
    known = {*STORED_SETS, *VOTED_SETS, *available_datasets()}
    unknown = [name for name in problems if name not in known]
    if unknown:
        raise InputError(f"unknown data set {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    unknown = [name for name in methods if name not in (*available_joint(), WRAPPED)]
    if unknown:
        raise InputError(f"unknown method {unknown[0]!r}; there are {', '.join((*available_joint(), WRAPPED))}.")
    for piece in _pieces(place / "deferral", data, protocol, problems, methods):
        if _key(piece.record) in done:
            continue
        start = time.process_time()
        record = {**piece.record, **piece.run(), "seconds": round(time.process_time() - start, 2)}
        with (folder / "records.jsonl").open("a") as file:
            file.write(json.dumps({**record, "environment": environment}) + "\n")
        said(f"{record['part']} {record['problem']} {record['method']} trial {record['trial']}: {record['seconds']} s")


def read_deferral_records(folder: Path) -> list[ByName]:
    """Return the records of a folder; a line that a stopped run left half-written is passed over."""
    file = folder / "records.jsonl"
    records = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def write_deferral_page(folder: Path) -> Path:
    """Draw the page from the stored records.

    Raises
    ------
    InputError
        If there are none.
    """
    records = read_deferral_records(folder)
    if not records:
        raise InputError(f"there are no records in {folder}; run without --tables-only first.")
    return write_whole(folder / "README.md", deferral_page(records), overwrite=True)


@dataclass(frozen=True)
class _Piece:
    record: ByName
    run: Callable[[], ByName]


def _key(record: ByName) -> str:
    return json.dumps([record[name] for name in ("part", "problem", "method", "trial", "spec", "data")], sort_keys=True)


def _pieces(
    stored: Path,
    data: str | os.PathLike[str] | None,
    protocol: DeferralProtocol,
    problems: Sequence[str],
    methods: Sequence[str],
) -> Iterator[_Piece]:
    def wanted(problem: str) -> bool:
        return not problems or problem in problems

    if stored.is_dir():
        for name in filter(wanted, STORED_SETS):
            files = [stored / f"pods_{name}_{part}.csv.gz" for part in ("cal", "test")]
            record = {"part": "stored", "problem": name, "trial": 0, "spec": {}, "data": _sha256(files)}
            for method in (*PUBLISHED, WRAPPED):
                yield _Piece({**record, "method": method}, _Published(method, *files))
        for name, (networks, people, which) in VOTED_SETS.items():
            if not wanted(name):
                continue
            files = [stored / networks, *([] if people is None else [stored / people])]
            for trial in range(protocol.halvings):
                for network in which:
                    record = {
                        "part": "votes", "problem": name, "method": network, "trial": trial, "spec": {},
                        "data": _sha256(files),
                    }  # fmt: skip
                    yield _Piece(record, _Halving(network, trial, files))
    for name in filter(wanted, available_datasets()):
        dataset = load(name, data)
        for trial in range(protocol.trials):
            for method in methods or (*available_joint(), WRAPPED):
                spec = asdict(replace(protocol, trials=1, halvings=1))
                record = {
                    "part": "tables", "problem": name, "method": method, "trial": trial, "spec": spec,
                    "data": dataset.sha256,
                }  # fmt: skip
                yield _Piece(record, _Trial(dataset, method, trial, protocol))


@dataclass(frozen=True)
class _Published:
    """One stored method with the threshold that was best on the calibration rows; or DeferOption on stored figures."""

    method: str
    calibration: Path
    test: Path

    def __call__(self) -> ByName:
        cal, test = _read(self.calibration), _read(self.test)
        y, human = test["label"], test["human"]
        if self.method == WRAPPED:
            columns = sorted((name for name in cal if name.startswith("cc_p") and name[4:].isdigit()), key=_number)
            X = []
            for part in (cal, test):
                proba = np.column_stack([part[name] for name in columns])
                X.append(np.column_stack([proba, np.clip(part["cc_rej_score"] + proba.max(axis=1), 0, 1)]))
            n_classes = len(columns)
            model = DeferOption(
                StoredProbabilities(list(range(n_classes))), {"human": Expert(0.0, model=n_classes)}
            ).fit(X[0], cal["label"].astype(np.int64), answers=cal["human"].astype(np.int64))
            decision = model.decide(X[1])
            asked, label = np.asarray(decision.reject), model.classes_[decision.label]
        else:
            score, said = f"{self.method}_rej_score", f"{self.method}_pred"
            limit = _best_threshold(cal[score], cal[said] == cal["label"], cal["human"] == cal["label"])
            asked, label = test[score] > limit, test[said]
        system = np.where(asked, human == y, label == y)
        return {
            "accuracy": float(system.mean()),
            "asked": float(asked.mean()),
            "alone": float((label == y).mean()),
            "expert": float((human == y).mean()),
            "n": len(y),
        }


@dataclass(frozen=True)
class _Halving:
    """A network and people's votes: fitted on one half of the images, judged on the other; as it is, and combined."""

    network: str
    trial: int
    files: Sequence[Path]

    def __call__(self) -> ByName:
        table = _read(self.files[0])
        n_classes = sum(name.startswith(f"{self.network}_p") for name in table)
        X = np.column_stack([table[f"{self.network}_p{k}"] for k in range(n_classes)])
        X /= X.sum(axis=1, keepdims=True)
        y = table["label"].astype(np.int64)
        if len(self.files) == 1:
            votes = np.column_stack([table[f"h{k}"] for k in range(n_classes)])
        else:
            said = _read(self.files[1])
            votes = np.zeros((len(y), n_classes))
            place = {int(image): row for row, image in enumerate(table["image"])}
            rows = np.array([place[int(image)] for image in said["image"]])
            np.add.at(votes, (rows, said["answer"].astype(np.int64)), 1)
        order = np.random.default_rng(self.trial).permutation(len(y))
        fit, test = order[: len(y) // 2], order[len(y) // 2 :]
        found: ByName = {"n": len(test)}
        share = votes[test, y[test]] / votes[test].sum(axis=1)
        for combine, name in ((False, "accuracy"), (True, "combined")):
            model = DeferOption(StoredProbabilities(), {"people": 0.0}, combine=combine)
            model.fit(X[fit], y[fit], answers={"people": Votes(votes[fit])})
            decision = model.decide(X[test])
            right = share
            if combine:  # the answer of one person, times the model's probabilities, over all answers that were given
                right = np.zeros(len(test))
                for answer in range(n_classes):
                    answers = np.full((len(test), 1), model.classes_[answer])
                    system = model.predict(X[test], answers=answers, prices={"people": 0.0})
                    right += votes[test, answer] * (system == y[test]) / votes[test].sum(axis=1)
            found[name] = float(np.where(decision.reject, right, decision.label == y[test]).mean())
            found.setdefault("asked", float(np.mean(decision.reject)))
            found.setdefault("alone", float((model.classes_[X[test].argmax(axis=1)] == y[test]).mean()))
        found["expert"] = float(share.mean())
        return found


@dataclass(frozen=True)
class _Trial:
    """A table and an expert who knows half of the classes and guesses the others."""

    dataset: Any
    method: str
    trial: int
    protocol: DeferralProtocol

    def __call__(self) -> ByName:
        protocol, dataset = self.protocol, self.dataset
        digits = int(hashlib.sha256(dataset.name.encode()).hexdigest()[:8], 16)
        rng = np.random.default_rng([protocol.seed, self.trial, digits])
        n_classes = len(dataset.classes)
        known = rng.permutation(n_classes)[: n_classes // 2]
        train = rng.permutation(len(dataset.y_train))[: protocol.train_rows]
        test = rng.permutation(len(dataset.y_test))[: protocol.test_rows]
        y, y_test = dataset.y_train[train], dataset.y_test[test]
        guesses = np.unique(y)
        said, said_test = (
            np.where(np.isin(labels, known), labels, rng.choice(guesses, size=len(labels))) for labels in (y, y_test)
        )
        model = self._model()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AnswersNothingWarning)  # the network inside decides nothing here
            model.fit(dataset.X_train[train], y, answers=said)
        decision = model.decide(dataset.X_test[test])
        label = model.classes_[decision.label]
        system = np.where(decision.ask >= 0, said_test == y_test, label == y_test)
        return {
            "accuracy": float(system.mean()),
            "asked": float((decision.ask >= 0).mean()),
            "alone": float((label == y_test).mean()),
            "expert": float((said_test == y_test).mean()),
            "n": len(test),
        }

    def _model(self) -> Any:
        network: ByName = {
            "hidden_units": self.protocol.hidden_units,
            "epochs": self.protocol.epochs,
            "batch_size": self.protocol.batch_size,
            "learning_rate": self.protocol.learning_rate,
            "weight_decay": 1e-4,
            "n_members": 1,
            "device": "cpu",
            "random_state": 1000 * self.protocol.seed + self.trial,
        }
        if self.method == WRAPPED:
            return DeferOption(RejectClassifier("ce", cost=0.49, calibration=None, **network), {"expert": 0.0}, cv=3)
        return DeferClassifier(self.method, {"expert": 0.0}, **network)


def deferral_page(records: Sequence[ByName]) -> str:
    """Return the page as Markdown."""
    parts = {name: [one for one in records if one["part"] == name] for name in ("stored", "votes", "tables")}
    environment = records[-1]["environment"]
    seconds = sum(record["seconds"] for record in records)
    sections = [
        "# Deferral: who should be asked\n\n"
        f"{len(records)} records, {seconds:.0f} s of processor time on {environment['device']}; demur "
        f"{environment['demur']}, torch {environment['torch']}. Price 0 throughout: the figures are shares of right "
        "answers of the system, model and experts together."
    ]
    if parts["stored"]:
        sections.append(_stored_section(parts["stored"]))
    if parts["votes"]:
        sections.append(_votes_section(parts["votes"]))
    if parts["tables"]:
        sections.append(_tables_section(parts["tables"]))
    return "\n\n".join(sections) + "\n"


def _stored_section(records: Sequence[ByName]) -> str:
    problems = [name for name in STORED_SETS if any(record["problem"] == name for record in records)]
    found = {(record["problem"], record["method"]): record for record in records}
    lines = [
        "## Stored outputs of seven methods",
        "",
        "Thresholds of the published methods: the best on the calibration rows. `DeferOption` reads the class "
        "probabilities of CompareConfidence and its estimate that the person is right; it is fitted on the same rows.",
        "",
        "| method | " + " | ".join(problems) + " | mean |",
        "|---|" + "---|" * (len(problems) + 1),
    ]
    for method in (*PUBLISHED, WRAPPED):
        cells = [found.get((problem, method)) for problem in problems]
        if all(cell is None for cell in cells):
            continue
        texts = ["" if cell is None else f"{cell['accuracy']:.4f} ({cell['asked']:.2f} asked)" for cell in cells]
        whole = [cell["accuracy"] for cell in cells if cell is not None]
        mean = f"{np.mean(whole):.4f}" if len(whole) == len(cells) else ""
        name = f"**{WRAPPED}**" if method == WRAPPED else f"{PUBLISHED[method]} (`{method}`)"
        lines.append(f"| {name} | " + " | ".join(texts) + f" | {mean} |")
    people = [next((one["expert"] for one in records if one["problem"] == problem), None) for problem in problems]
    lines.append("| the person alone | " + " | ".join("" if one is None else f"{one:.4f}" for one in people) + " | |")
    for problem in problems:
        rivals = {method: found[problem, method] for method in PUBLISHED if (problem, method) in found}
        ours = found.get((problem, WRAPPED))
        if not rivals or ours is None:
            continue
        best = max(rivals, key=lambda method: float(rivals[method]["accuracy"]))
        value, n = rivals[best]["accuracy"], rivals[best]["n"]
        error = (value * (1 - value) / n) ** 0.5
        lines += [
            "",
            f"{problem}: the best of the seven is {PUBLISHED[best]}, {value:.4f} (standard error {error:.4f}); "
            f"`DeferOption` is {(ours['accuracy'] - value) / error:+.1f} standard errors from it.",
        ]
    return "\n".join(lines)


def _votes_section(records: Sequence[ByName]) -> str:
    lines = [
        "## Networks and the votes of many people",
        "",
        "A network's stored probabilities and every image's answers; fitted on one half of the images, judged on the "
        "other, mean over the halvings (standard deviation). *Deferred*: the answer of one person where one is asked. "
        "*Combined*: that answer times the network's probabilities.",
        "",
        "| images | network | network alone | one person | deferred | (asked) | combined |",
        "|---|---|---|---|---|---|---|",
    ]
    for problem, method in dict.fromkeys((record["problem"], record["method"]) for record in records):
        own = [record for record in records if (record["problem"], record["method"]) == (problem, method)]
        values = {
            name: [record[name] for record in own] for name in ("alone", "expert", "accuracy", "asked", "combined")
        }
        lines.append(
            f"| {problem} | {method} | {np.mean(values['alone']):.4f} | {np.mean(values['expert']):.4f} | "
            f"{_with_spread(values['accuracy'])} | {np.mean(values['asked']):.2f} | "
            f"{_with_spread(values['combined'])} |"
        )
    return "\n".join(lines)


def _tables_section(records: Sequence[ByName]) -> str:
    problems = [name for name in available_datasets() if any(record["problem"] == name for record in records)]
    methods = [name for name in (*available_joint(), WRAPPED) if any(record["method"] == name for record in records)]
    spec = records[0]["spec"]
    error = {(one["problem"], one["method"], one["trial"]): 1 - one["accuracy"] for one in records}
    trials = sorted({one["trial"] for one in records})
    lines = [
        "## Tables, and an expert who knows half of the classes",
        "",
        f"The expert is right on a random half of the classes and guesses the others. At most {spec['train_rows']:,} "
        f"rows train, one hidden layer of {spec['hidden_units']} units, {spec['epochs']} epochs; {len(trials)} trials. "
        "System error, mean (standard deviation over trials); *consistent*: what the loss claims.",
        "",
        "| method | consistent | " + " | ".join(problems) + " | mean |",
        "|---|---|" + "---|" * (len(problems) + 1),
    ]
    means: dict[str, float] = {}
    for method in methods:
        cells = [
            [error[problem, method, trial] for trial in trials if (problem, method, trial) in error]
            for problem in problems
        ]
        claim = "yes" if method == WRAPPED or get_joint(method).calibrated else "no"
        if all(cells):
            means[method] = float(np.mean([np.mean(cell) for cell in cells]))
        texts = [_with_spread(cell) if cell else "" for cell in cells]
        mean = f"{means[method]:.4f}" if method in means else ""
        lines.append(f"| {method} | {claim} | " + " | ".join(texts) + f" | {mean} |")
    reference = [
        f"{np.mean([1 - one['expert'] for one in records if one['problem'] == problem]):.4f}" for problem in problems
    ]
    lines.append("| the expert alone | | " + " | ".join(reference) + " | |")
    lines += ["", _two_stage_verdict(error, problems, methods, trials)]
    return "\n".join(lines)


def _two_stage_verdict(
    error: dict[tuple[str, str, int], float], problems: Sequence[str], methods: Sequence[str], trials: Sequence[int]
) -> str:
    """Say whether two stages are at or below the joint losses in the mean, with the error of the comparison."""
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
    """Return the threshold above which asking was best, among equals the largest; of all scores and -infinity."""
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    gain = np.concatenate([[0.0], np.cumsum(human[order].astype(np.float64) - right[order])])
    candidates = np.concatenate([ranked, [-np.inf]])  # defer the rows above candidate i: the first i, without ties
    counts = np.searchsorted(-ranked, -candidates, side="left")
    return float(candidates[int(np.argmax(gain[counts]))])


def _read(file: Path) -> dict[str, AnyArray]:
    from pyarrow import csv

    if not file.is_file():
        raise StoredAnswersError(f"there is no file {file}; the stored answers are incomplete.")
    table = csv.read_csv(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


class StoredAnswersError(UserError):
    """Stored answers that are missing."""


def _sha256(files: Sequence[Path]) -> str:
    together = hashlib.sha256()
    for file in files:
        if not file.is_file():
            raise StoredAnswersError(f"there is no file {file}; the stored answers are incomplete.")
        together.update(hashlib.sha256(file.read_bytes()).digest())
    return together.hexdigest()


def _number(name: str) -> int:
    return int(name[4:])
