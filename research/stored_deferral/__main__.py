"""Deferral on stored answers of people: published methods and networks beside :class:`~demur.DeferOption`.

*Stored*: outputs of seven published methods on three data sets, beside ``DeferOption`` fitted to the stored
probabilities. *Votes*: networks and the answers of many people to the same images.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pyarrow import csv
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline

from demur.array_types import AnyArray, ByName
from demur.deferral import DeferOption, Expert, Votes
from demur.estimators import PrecomputedProbabilities
from demur.paper.pages import markdown_table
from demur.paper.records import append_line, describe_environment, read_lines
from demur.whole_file import write_whole
from research.joint_deferral.__main__ import figures_of, with_spread

Floats = NDArray[np.float64]
WRAPPED = "DeferOption"
HALVINGS = 3
"""Random divisions of the rows with votes into a half to fit on and a half to evaluate on."""

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


def _stored_method(method: str, calibration: Path, test_file: Path) -> ByName:
    """Evaluate a stored method with the threshold that is best on the calibration rows, or DeferOption."""
    cal, test = _read(calibration), _read(test_file)
    y, human = test["label"], test["human"]
    if method == WRAPPED:
        n_classes = sum(name.startswith("cc_p") and name[4:].isdigit() for name in cal)
        X = []
        for part in (cal, test):
            proba = np.column_stack([part[f"cc_p{k}"] for k in range(n_classes)])
            right = np.clip(part["cc_rej_score"] + proba.max(axis=1), 0, 1)
            X.append(np.column_stack([proba, 1 - right, right]))
        stored, right = (
            make_pipeline(
                ColumnTransformer([("own", "passthrough", columns)]),
                PrecomputedProbabilities(np.arange(len(columns))),
            )
            for columns in (list(range(n_classes)), [n_classes, n_classes + 1])
        )
        model = DeferOption(stored, {"human": Expert(0.0, model=right)})
        model.fit(X[0], cal["label"].astype(np.int64), answers=cal["human"].astype(np.int64))
        decision = model.decide(X[1])
        asked, label = np.asarray(decision.reject), model.classes_[decision.label]
    else:
        score, said = f"{method}_rej_score", f"{method}_pred"
        limit = _best_threshold(cal[score], cal[said] == cal["label"], cal["human"] == cal["label"])
        asked, label = test[score] > limit, test[said]
    return figures_of(np.where(asked, human == y, label == y), asked, label == y, human == y)


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
        model = DeferOption(PrecomputedProbabilities(np.arange(n_classes)), {"people": 0.0}, combine=combine)
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
        whole = figures_of(np.where(decision.reject, right, decision.label == truth), decision.reject, alone, share)
        found = {"combined": whole["accuracy"]} if combine else {**found, **whole}
    return found


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


def _stored_section(records: Sequence[ByName]) -> str:
    problems = list(dict.fromkeys(record["problem"] for record in records))
    found = {(record["problem"], record["method"]): record for record in records}
    rows = []
    for method in (*PUBLISHED, WRAPPED):
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
        deferred, combined = (with_spread([record[name] for record in own]) for name in ("accuracy", "combined"))
        rows.append([problem, method, f"{alone:.4f}", f"{expert:.4f}", deferred, f"{asked:.2f}", combined])
    headings = ["images", "network", "network alone", "one person", "deferred", "(asked)", "combined"]
    return VOTES + markdown_table(headings, rows)


def _best_threshold(score: Floats, right: AnyArray, human: AnyArray) -> float:
    """Return the threshold above which asking is best, the largest of several; of all scores and -infinity."""
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    gain = np.concatenate([[0.0], np.cumsum(human[order].astype(np.float64) - right[order])])
    candidates = np.concatenate([ranked, [-np.inf]])  # defer the rows above candidate i: the first i, without ties
    counts = np.searchsorted(-ranked, -candidates, side="left")
    return float(candidates[int(np.argmax(gain[counts]))])


def _read(file: Path) -> dict[str, AnyArray]:
    table = csv.read_csv(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}


def work(folder: Path) -> Iterator[tuple[ByName, Callable[[], ByName]]]:
    """Yield the key of each record, and the function that computes its figures."""
    for name in STORED_SETS:
        files = [folder / f"pods_{name}_{part}.csv.gz" for part in ("cal", "test")]
        for method in (*PUBLISHED, WRAPPED):
            yield _record("stored", name, method, 0, files), partial(_stored_method, method, *files)
    for name, (networks, people, which) in VOTED_SETS.items():
        files = [folder / file for file in (networks, people) if file is not None]
        for trial in range(HALVINGS):
            for network in which:
                yield (
                    _record("votes", name, network, trial, files),
                    partial(_network_and_votes, network, trial, files),
                )


def _record(part: str, problem: str, method: str, trial: int, files: Sequence[Path]) -> ByName:
    data = sha256(b"".join(sha256(file.read_bytes()).digest() for file in files)).hexdigest()
    return {"part": part, "problem": problem, "method": method, "trial": trial, "spec": {}, "data": data}


def page(records: Sequence[ByName]) -> str:
    """Return the page as Markdown."""
    parts = {name: [one for one in records if one["part"] == name] for name in ("stored", "votes")}
    title = (
        "# Deferral on stored answers of people\n\nPrice 0 throughout: the figures are shares of right answers of the "
    )
    title += "system, model and experts together."
    return "\n\n".join([title, _stored_section(parts["stored"]), _votes_section(parts["votes"])]) + "\n"


def main() -> None:
    """Compute the missing records and write the page."""
    parser = argparse.ArgumentParser(prog="python -m research.stored_deferral", description=__doc__)
    parser.add_argument("--data", type=Path, help="folder with the stored answers; without it, only the page is drawn")
    asked, folder = parser.parse_args(), Path(__file__).parent
    path = folder / "records.jsonl"
    done = [body for _, body in read_lines(path) if body is not None]
    environment = describe_environment(torch.device("cpu"))
    for record, run in work(asked.data) if asked.data else ():
        if not any(record.items() <= body.items() for body in done):
            start = time.process_time()
            found = run()
            seconds = round(time.process_time() - start, 2)
            append_line(path, {**record, **found, "seconds": seconds, "environment": environment})
    records = [body for _, body in read_lines(path) if body is not None]
    print(write_whole(folder / "outcome.md", page(records), overwrite=True))


if __name__ == "__main__":
    main()
